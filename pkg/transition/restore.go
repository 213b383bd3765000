package transition

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Member is a member of a store as it is put back to a backup: what it had is kept beside it. It is a pod of a cluster,
// or runs on a host.
type Member struct {
	Namespace string `json:"namespace,omitempty"` // of a pod
	Store     string `json:"store"`
	Backup    string `json:"backup"`          // its name
	ID        string `json:"id"`              // of the restore: done again, it changes nothing
	Pod       string `json:"pod,omitempty"`   // the member's; "" on a host
	Claim     string `json:"claim,omitempty"` // of its data; "" on a host
	DataDir   string `json:"dataDir"`         // in the pod, or on the host
	PeerURL   string `json:"peerURL"`
	Cluster   string `json:"cluster"`             // NAME=PEERURL,... of every member
	Token     string `json:"token"`               // of the cluster after the restore
	Name      string `json:"name,omitempty"`      // as etcd has it, on a host
	Directory string `json:"directory,omitempty"` // of the backups, on the host
}

// Validate checks what NewRestore keeps to, of a member that was read from a file.
func (m *Member) Validate() error {
	switch {
	case m == nil:
		return fmt.Errorf("names no member")
	case !spec.IsLabel(m.Namespace) || !spec.IsLabel(m.Pod) || !spec.IsLabel(m.Claim) || !m.named():
		return fmt.Errorf("member %q of store %q, restore %q of %q: want names", m.Pod, m.Store, m.ID, m.Backup)
	case !isDirectory(m.DataDir):
		return fmt.Errorf("member %q: data directory %q: want an absolute and clean path", m.Pod, m.DataDir)
	}
	return nil
}

// onHost is Validate for NewRestoreOnHosts.
func (m *Member) onHost() error {
	switch {
	case m == nil:
		return fmt.Errorf("names no member")
	case m.Namespace != "" || m.Pod != "" || m.Claim != "" || !spec.IsNodeName(m.Name) || !m.named():
		return fmt.Errorf("member %q of store %q, restore %q of %q: want names", m.Name, m.Store, m.ID, m.Backup)
	case !isDirectory(m.DataDir) || !isDirectory(m.Directory):
		return fmt.Errorf("member %q: data directory %q, backups in %q: want absolute and clean paths", m.Name,
			m.DataDir, m.Directory)
	}
	return nil
}

// named reports whether what every restore names is a name: paths are made of them.
func (m *Member) named() bool {
	return spec.IsLabel(m.Store) && spec.IsLabel(m.ID) && m.Backup != "" && !strings.ContainsAny(m.Backup, "/.$\x00\n")
}

func isDirectory(dir string) bool {
	return path.IsAbs(dir) && path.Clean(dir) == dir && dir != "/" && !strings.ContainsRune(dir, 0)
}

// Snapshot is the file of the member's store in the backup, on its host.
func (m *Member) Snapshot() string { return path.Join(m.Directory, m.Backup, m.Store+".db") }

// NewRestore computes the steps that put the managed stores of a hosted plan back to a backup: everything that reads or
// writes them stops, each member is put back, and everything starts. The way back puts back what the members had. The
// stores are not looked at: they may be what is lost. id names the restore, and no other one of this control plane.
//
// Errors: *RefusedError, with every reason; what cannot be rendered.
func NewRestore(p *plan.Plan, backup, id string) (Transition, error) {
	t := Transition{From: describe(Setup{Plan: p, Target: render.Hosted}), To: "backup " + backup}
	if reasons := refuseRestore(p); len(reasons) > 0 {
		return t, &RefusedError{Reasons: reasons}
	}
	parts, err := render.HostedParts(p)
	if err != nil {
		return t, err
	}
	ends, err := NewHosted(p, nil, Facts{})
	if err != nil {
		return t, err
	}
	begins, err := NewHosted(nil, p, Facts{})
	if err != nil {
		return t, err
	}
	// All of it comes again, on both ways: its pods alone are removed.
	stays := func(a *Action) *Action {
		at := slices.IndexFunc(parts, func(p render.HostedPart) bool {
			return a != nil && a.Kind == RemoveObjects && a.Workload.Name == p.Component.Name
		})
		if at < 0 {
			return a
		}
		return removing(stopped(p, &parts[at]))
	}
	// The controllers of both sides come back: they leave in the API what they left there.
	only := func(steps []Step, kind Kind) {
		for _, s := range steps {
			if s.Do != nil && s.Do.Kind == kind {
				s.Stores, s.Do, s.Undo = nil, stays(s.Do), stays(s.Undo)
				t.Steps = append(t.Steps, s)
			}
		}
	}
	only(ends.Steps, RemoveObjects)
	for i := range p.Components {
		if c := &p.Components[i]; c.Kind == plan.Etcd && c.Host == plan.HostedName {
			for n := range p.Hosts {
				t.Steps = append(t.Steps, restoring(p, c, n, backup, id))
			}
		}
	}
	only(begins.Steps, ApplyObjects)
	for i := range t.Steps {
		t.Steps[i].ID, t.Steps[i].Host = fmt.Sprintf("%03d", i+1), plan.HostedName
	}
	t.Hosts = []Host{{Name: plan.HostedName}}
	return t, nil
}

// NewRestoreOnHosts computes the same for a plan on hosts. The backup is in a directory of the host of each member,
// which is looked at before anything stops.
//
// Errors: *RefusedError, with every reason; what cannot be rendered.
func NewRestoreOnHosts(s Setup, directory, backup, id string) (Transition, error) {
	t := Transition{From: describe(s), To: "backup " + backup}
	if reasons := refuseRestore(s.Plan); len(reasons) > 0 {
		return t, &RefusedError{Reasons: reasons}
	}
	b := &builder{from: s, to: s, whole: s, disk: map[place]render.File{}, placed: map[place]bool{}}
	parts, err := partsOf(s, b.disk)
	if err != nil {
		return t, err
	}
	var ends, begins []change
	var members []*Member
	for i := range parts {
		ends, begins = append(ends, change{was: &parts[i]}), append(begins, change{is: &parts[i]})
	}
	b.changes = begins
	for _, c := range b.changed(etcd) {
		m := memberOnHost(s.Plan, c.is.Component, directory, backup, id)
		members = append(members, m)
		b.add(Step{Phase: Prepare, Host: c.is.Component.Host, Title: "backup " + backup + " of store " + m.Store +
			" is there, and whole", Do: &Action{Kind: RunChecks, Before: []Check{{Kind: BackupIs, Member: m,
			Hint: "copy the directory of the backup there from the host that made it, or mount what it lies on"}}}})
	}
	b.changes = ends
	for _, of := range []func(*plan.Component) bool{gateway, joint, daemon(pair.Modern), daemon(pair.Legacy),
		server(pair.Modern), server(pair.Legacy), etcd} {
		b.stopAll(b.changed(of))
	}
	b.changes = begins
	for n, c := range b.changed(etcd) {
		do := restoringMember(members[n], RestoreMember)
		b.add(Step{Phase: Stores, Host: c.is.Component.Host, Title: do.changes(), Do: do,
			Undo: restoringMember(members[n], PutBackMember)})
	}
	b.startMembers(b.changed(etcd))
	for _, store := range s.Plan.Stores {
		if store.Managed != nil && len(store.Endpoints) > 1 {
			b.add(Step{Phase: Stores, Host: s.Plan.Hosts[0].Name, Title: "the members of store " + store.Name +
				" have the same data", Do: &Action{Kind: RunChecks, Before: []Check{{Kind: SameData,
				Stores: []plan.Store{store}, Hint: "copy " + path.Join(directory, backup) + " from one host to the " +
					"others: two backups that were made apart are not the same, whatever their names"}}}})
		}
	}
	b.servers(pair.Legacy, Legacy)
	b.start(LegacyMgr, b.changed(daemon(pair.Legacy)), true)
	b.servers(pair.Modern, Modern)
	b.start(ModernMgr, b.changed(daemon(pair.Modern)), true)
	b.start(Joint, b.changed(joint), true)
	b.start(Gateway, b.changed(gateway), true)
	t.Steps = b.steps
	for i := range t.Steps {
		t.Steps[i].ID = fmt.Sprintf("%03d", i+1)
	}
	t.Hosts = hostsOf(t.Steps, s.Plan)
	return t, nil
}

func memberOnHost(p *plan.Plan, c *plan.Component, directory, backup, id string) *Member {
	m := &Member{Store: c.Store, Backup: backup, ID: id, Directory: directory, Token: c.Name + "-" + id,
		DataDir: p.Store(c.Store).Managed.DataDir}
	m.Name, _ = c.Arg("name")
	m.PeerURL, _ = c.Arg("initial-advertise-peer-urls")
	m.Cluster, _ = c.Arg("initial-cluster")
	return m
}

func restoringMember(m *Member, kind Kind) *Action {
	return &Action{Kind: kind, Member: m, After: []Check{{Kind: MemberIs, Member: m, Back: kind == PutBackMember}}}
}

// refuseRestore: what runs elsewhere would go on with what it read before.
func refuseRestore(p *plan.Plan) []string {
	var reasons []string
	managed := false
	for _, s := range p.Stores {
		managed = managed || s.Managed != nil
		for _, c := range existingOf(p) {
			if s.Managed != nil && p.Side(c.Side).Store == s.Name {
				reasons = append(reasons, fmt.Sprintf("%s on %s: runs elsewhere, and would go on with what it read of "+
					"store %s before", c.Name, c.Host, s.Name))
			}
		}
	}
	if !managed {
		reasons = append(reasons, "no store is managed: each is restored where it runs, as fusionctl etcd restore does")
	}
	return reasons
}

func restoring(p *plan.Plan, c *plan.Component, n int, backup, id string) Step {
	m := &Member{Namespace: p.Name, Store: c.Store, Backup: backup, ID: id, Pod: c.Name + "-" + strconv.Itoa(n)}
	m.Claim, m.Token = render.HostedClaim(m.Pod), c.Name+"-"+id
	arg := func(name string) string {
		value, _ := c.Arg(name)
		return strings.ReplaceAll(value, "$("+plan.PodName+")", m.Pod)
	}
	m.DataDir, m.PeerURL, m.Cluster = path.Clean(arg("data-dir")), arg("initial-advertise-peer-urls"),
		arg("initial-cluster")
	act := func(kind Kind) *Action {
		return &Action{Kind: kind, Member: m, After: []Check{{Kind: MemberIs, Member: m, Back: kind == PutBackMember,
			Hint: "kubectl -n " + p.Name + " logs -l app.kubernetes.io/name=" + RestoreJob + " says why"}}}
	}
	return Step{Phase: Stores, Title: "restore " + m.Pod + " from backup " + backup, Do: act(RestoreMember),
		Undo: act(PutBackMember)}
}

// RestoreID names a restore that begins now.
func RestoreID(now time.Time) string { return strings.ToLower(now.UTC().Format("20060102T150405Z")) }

// RestoreJob is the name of what puts members back, in the labels of its pods.
const RestoreJob = "fusionctl-restore"

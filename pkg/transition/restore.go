package transition

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Member is a member of a store that runs as a pod of a cluster, as it is put back to a backup: what it had is kept in
// its volume.
type Member struct {
	Namespace string `json:"namespace"`
	Store     string `json:"store"`
	Backup    string `json:"backup"`  // its name
	ID        string `json:"id"`      // of the restore: done again, it changes nothing
	Pod       string `json:"pod"`     // the member's
	Claim     string `json:"claim"`   // of its data
	DataDir   string `json:"dataDir"` // in the pod
	PeerURL   string `json:"peerURL"`
	Cluster   string `json:"cluster"` // NAME=PEERURL,... of every member
	Token     string `json:"token"`   // of the cluster after the restore
}

// Validate checks what NewRestore keeps to, of a member that was read from a file.
func (m *Member) Validate() error {
	switch {
	case m == nil:
		return fmt.Errorf("names no member")
	case !spec.IsLabel(m.Namespace) || !spec.IsLabel(m.Store) || !spec.IsLabel(m.ID) || !spec.IsLabel(m.Pod) ||
		!spec.IsLabel(m.Claim) || m.Backup == "" || strings.ContainsAny(m.Backup, "/.$"):
		return fmt.Errorf("member %q of store %q, restore %q of %q: want names", m.Pod, m.Store, m.ID, m.Backup)
	case !path.IsAbs(m.DataDir) || path.Clean(m.DataDir) != m.DataDir || m.DataDir == "/":
		return fmt.Errorf("member %q: data directory %q: want an absolute and clean path", m.Pod, m.DataDir)
	}
	return nil
}

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

// RestoreJob is the name of what puts members back, in the labels of its pods.
const RestoreJob = "fusionctl-restore"

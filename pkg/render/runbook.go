package render

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// runbookFacts are what the runbooks of all targets say, whatever runs the components. Commands are whole lines of a
// shell, quoted already.
type runbookFacts struct {
	Plan       *plan.Plan
	Spec       string // the spec's name, quoted
	Hosts      []string
	OneHost    bool
	Spare      int  // how many members of a store may be down
	Existing   bool // the legacy side runs already
	Changes    []change
	Issued     []issued
	Issue      []string
	Backups    []backup
	Policies   []string // the policy file of each host, in the tree
	ModernURLs []string // of the modern API servers, for their clients
	Asked      []string // the same from where a person works
	AtStores   string   // where the stores can be reached
	EtcdCheck  string
	Tools      string   // programs of others that the first host needs for the commands
	Staged     string   // where the rendered files of a host lie on it; "" when they lie on none
	Restart    []string // the modern API server, after a change of its policy
	Log        string   // of the modern API server
	Manager    bool     // the modern side has a controller manager
	Canary     bool     // the modern side makes pods of its Deployments
	Shared     string   // resources, as kubectl names them, that both sides see
	Own        string   // namespaced resources of which the modern side has objects of its own
	LeftOver   []string // keys in shared stores that the modern API server writes at start
	Off        []collector
	AllOff     bool
	JointRuns  bool   // the controllers that see both sides are of this plan
	Serves     bool   // so is the gateway
	LegacyOff  string // why the legacy side's collector is off, "" when it is on
	RunsFrom   string // the directory with the manifests or units of what runs
	// CollectorBack says that the changes of what runs switch the legacy side's collector off, so that reverting them
	// switches it on; Ownerless is what it then deletes.
	CollectorBack bool
	Ownerless     string
	Kubelets      permit // how the modern API server is let in by kubelets
	Namespaces    namespaceView
	Errors        []warning // with these the plan must not be applied
	Warnings      []warning
	Needs         []string // stores without which the modern API server does not serve
}

// hostRunbook is what templates/RUNBOOK.md.tmpl ranges over.
type hostRunbook struct {
	runbookFacts
	Stage     []string
	Preflight []preflight
	Programs  []startedProgram
	// PutPrograms: of some of them the spec says where they come from.
	PutPrograms bool
	Rows        []runbookRow
	Members     []phase
	Health      []string
	Legacy      phase
	Modern      phase
	Managers    phase
	Locks       []lockView
	Joint       phase // the controllers that see both sides
	Permit      permit
	Gateway     gatewayView
}

// preflight compares a host with what the plan needs of it.
type preflight struct{ Host, Command string }

// startedProgram is a program that units start.
// Put are commands that put it into its place, Sum those that hold it against its digest, where the spec says them.
type startedProgram struct {
	File, Version, Print string
	Put, Sum             string // lines
}

type runbookRow struct{ Component, File, Port, Store string }

// issued is a certificate that the plan needs and the cluster does not have.
type issued struct {
	Hosts, Cert, CA, Name, Names, Why string
	Authority                         bool
}

// warning is a finding of the rules.
type warning struct{ Rule, Subject, Message, Fix string }

type backup struct{ Store, Command string }

// phase is one step: what to do on a host, what to ask it afterwards, and how to undo it.
type phase struct{ Blocks []block }

// block are commands that are the same on some hosts.
type block struct {
	Hosts  string
	Many   bool     // more than one host
	Beside []string // what has to be there before the start; of most phases it is a part of Start
	Start  []string
	Verify []string
	Stop   []string
}

// change is one argument of a running component that has to be another.
type change struct {
	Component, Arg, What, Why, Meaning, Verify, Answer string
}

// ownerless is an object without a live owner, in the words of every version.
const ownerless = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fusion-without-owner","ownerReferences":[` +
	`{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"00000000-0000-0000-0000-000000000000"}]}}`

type lockView struct{ Component, Object, Command string }

type collector struct{ Side, Version, Why string }

type namespaceView struct {
	Shared   bool
	ModernOn bool
	Why      string
}

// retiredRunbook is that of a plan of which nothing starts beside a legacy side.
const retiredRunbook = `# The legacy side is retired

These are the files of the modern side as it runs alone. Nothing here says how it comes to that: objects, roles and
service ranges go over beforehand, in an order of which every step is verified. Have that done by the steps from the
spec with which both sides run:

    fusionctl transition plan FUSED RETIRED --out retire.steps
    fusionctl transition apply retire.steps
`

// runbook prints the runbook of a plan.
func runbook(p *plan.Plan, o Options) ([]byte, error) {
	if p.Legacy.Retired {
		return []byte(retiredRunbook), nil
	}
	if o.Target == Hosted {
		view, err := newHostedRunbook(p, o)
		if err != nil {
			return nil, err
		}
		return execute(view, "RUNBOOK-hosted.md.tmpl", "runbook-parts.tmpl")
	}
	return execute(newHostRunbook(p, o), "RUNBOOK.md.tmpl", "runbook-parts.tmpl")
}

func newRunbookFacts(p *plan.Plan, o Options) runbookFacts {
	f := runbookFacts{
		Plan: p, Spec: shell(specName(o.Spec)), Hosts: hostNames(p), OneHost: len(p.Hosts) == 1,
		Spare:    (len(p.Hosts) - 1) / 2,
		Existing: p.Legacy.Existing, Changes: changes(p), Backups: backups(p),
		Manager: len(p.ComponentsOf(pair.Modern, kubever.ControllerManager)) > 0,
		Canary:  createsPods(p, "deployments", "deployment-controller", "replicaset-controller"),
		Shared:  strings.Join(shared(p), ","), Own: strings.Join(own(p), ","), LeftOver: leftOver(p),
		Namespaces: namespaces(p), Needs: storesOf(p, pair.Modern),
	}
	for _, found := range o.Findings {
		w := warning{Rule: found.Rule, Subject: sentence(found.Subject), Message: sentence(found.Message),
			Fix: sentence(found.Fix)}
		switch found.Severity {
		case finding.Error:
			f.Errors = append(f.Errors, w)
		case finding.Warning:
			f.Warnings = append(f.Warnings, w)
		}
	}
	f.Kubelets = permitKubelets(p)
	f.Off, f.AllOff = collectorsOff(p)
	f.JointRuns = len(p.ComponentsOf("", plan.JointControllers)) > 0
	f.Serves = p.Gateway.Serves()
	for _, c := range f.Off {
		if c.Side == string(pair.Legacy) {
			f.LegacyOff = c.Why
			f.CollectorBack = slices.ContainsFunc(f.Changes, func(c change) bool {
				return strings.HasPrefix(c.Arg, "--controllers=")
			})
		}
	}
	f.Ownerless, f.RunsFrom = ownerless, ManifestDirectory
	if o.Target == Systemd {
		f.RunsFrom = unitDirectory
	}
	return f
}

func newHostRunbook(p *plan.Plan, o Options) hostRunbook {
	of := func(wanted func(*plan.Component) bool) phase { return phaseOf(p, o.Target, false, wanted) }
	v := hostRunbook{
		runbookFacts: newRunbookFacts(p, o), Rows: runbookRows(p, o.Target), Locks: locks(p),
		Legacy:   of(func(c *plan.Component) bool { return c.Side == pair.Legacy && !runsAlready(p, c) }),
		Modern:   of(func(c *plan.Component) bool { return c.Side == pair.Modern && c.Kind == kubever.APIServer }),
		Managers: of(func(c *plan.Component) bool { return c.Side == pair.Modern && c.Kind != kubever.APIServer }),
		Joint:    phaseOf(p, o.Target, true, func(c *plan.Component) bool { return c.Kind == plan.JointControllers }),
	}
	// Their finalizer is removed when they have ended, or they would write it again.
	for i := range v.Joint.Blocks {
		b := &v.Joint.Blocks[i]
		for _, line := range b.Verify {
			command, _, _ := strings.Cut(line, "    # ")
			b.Stop = append(b.Stop, command+"    # nothing: they have stopped")
		}
	}
	v.Permit, v.Gateway = newPermit(p, o.Target), newGatewayView(p, o.Target)
	v.Staged = staging(p)
	v.Stage, v.Preflight = stageCommands(p, v.Staged, v.Spec), preflights(p, v.Staged, o.Target)
	v.Tools = "fusionctl, kubectl, etcdctl, jq and curl"
	if o.Target == Systemd {
		v.Programs = programs(p)
		v.PutPrograms = slices.ContainsFunc(v.Programs, func(q startedProgram) bool { return q.Put != "" })
	}
	v.Issued, v.Issue = certificatesToIssue(p), issueCommands(p, v.Spec, p.Hosts, true)
	for _, s := range p.Stores {
		if s.Managed != nil {
			v.Members = append(v.Members, of(func(c *plan.Component) bool {
				return c.Kind == plan.Etcd && c.Store == s.Name
			}))
			v.Health = append(v.Health, etcdctl(&s, s.Endpoints, "endpoint health")+"    # is healthy",
				etcdctl(&s, s.Endpoints, "member list")+"    # started")
		}
	}
	for _, h := range p.Hosts {
		v.Policies = append(v.Policies, shell(hostPath(h.Name, p.PolicyFile)))
		v.ModernURLs = append(v.ModernURLs, "https://"+plan.HostPort(servedAt(p, h), p.Modern.Port))
	}
	v.Asked, v.AtStores, v.EtcdCheck = v.ModernURLs, "On "+v.Hosts[0]+", which reaches the stores",
		"fusionctl etcd check "+v.Staged+"/"+stagedSpec
	if servers := p.ComponentsOf(pair.Modern, kubever.APIServer); len(servers) > 0 {
		v.Restart, v.Log = restartCommands(p, &servers[0], o.Target), logCommand(&servers[0], o.Target)
	}
	return v
}

// servedAt is the address at which clients elsewhere reach the modern API server of a host.
func servedAt(p *plan.Plan, h spec.Host) string {
	for _, c := range p.ComponentsOf(pair.Modern, kubever.APIServer) {
		if address, ok := c.Arg("bind-address"); ok && c.Host == h.Name && address != "0.0.0.0" && address != "::" &&
			address != "" {
			return address
		}
	}
	return h.Address
}

// specName stands for the spec where it was read from standard input.
func specName(name string) string {
	if name == "" || name == "-" {
		return "spec.yaml"
	}
	return name
}

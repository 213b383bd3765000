package render

import (
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// runbookView is what templates/RUNBOOK.md.tmpl ranges over. Commands are whole lines of a shell, quoted already.
type runbookView struct {
	Plan       *plan.Plan
	Target     Target
	Hosts      []string
	OneHost    bool
	Spec       string // the spec's name, quoted
	Staging    string // where the tree of a host lies on it while it is put into place
	Stage      []string
	Programs   []startedProgram
	Rows       []runbookRow
	Existing   bool // the legacy side runs already
	Issued     []issued
	Issue      []string
	Backups    []backup
	Members    []phase
	Spare      int // how many members of a store may be down
	Health     []string
	Changes    []change
	Legacy     phase
	Modern     phase
	Managers   phase
	Locks      []lockView
	Canary     bool
	Shared     string   // resources, as kubectl names them, that both sides see
	LeftOver   []string // keys in shared stores that the modern API server writes at start
	Off        []collector
	AllOff     bool
	Namespace  namespaceView
	Needs      []string // stores without which the modern API server does not serve
	Own        string   // namespaced resources of which the modern side has objects of its own
	Policies   []string // the policy file of each host, in the tree
	ModernURLs []string
	Restart    []string // the modern API server of a host
	Logs       []string // how to read the log of the modern API server
}

// startedProgram is a program that units start.
type startedProgram struct{ File, Version, Print string }

type runbookRow struct{ Component, File, Port, Store string }

// issued is a certificate that the plan needs and the cluster does not have.
type issued struct {
	Hosts, Cert, CA, Name, Names, Why string
	Authority                         bool
}

type backup struct{ Store, Command string }

// phase is one step: what to do on a host, what to ask it afterwards, and how to undo it.
type phase struct{ Blocks []block }

// block are commands that are the same on some hosts.
type block struct {
	Hosts  string
	Many   bool // more than one host
	Start  []string
	Verify []string
	Stop   []string
	Logs   []string
}

// change is one argument of a running component that has to be another.
type change struct {
	Component, Arg, What, Why, Meaning, Verify string
}

type lockView struct{ Component, Object, Command string }

type collector struct{ Side, Version, Why string }

type namespaceView struct {
	Shared   bool
	ModernOn bool
	Why      string
}

// runbook prints the runbook of a plan.
func runbook(p *plan.Plan, o Options) ([]byte, error) {
	v := runbookView{
		Plan: p, Target: o.Target, Hosts: hostNames(p), OneHost: len(p.Hosts) == 1, Spec: shell(specName(o.Spec)),
		Staging: "/root/fusion-" + p.Name, Existing: p.Legacy.Existing,
	}
	v.Stage = stageCommands(p, v.Staging)
	if o.Target == Systemd {
		v.Programs = programs(p)
	}
	v.Rows = runbookRows(p, o.Target)
	v.Issued = certificatesToIssue(p)
	v.Issue = issueCommands(p, v.Spec)
	v.Backups = backups(p)
	for _, s := range p.Stores {
		if s.Managed != nil {
			v.Members = append(v.Members, phaseOf(p, o.Target, func(c *plan.Component) bool { return c.Kind == plan.Etcd && c.Store == s.Name }))
			v.Health = append(v.Health, etcdctl(&s, s.Endpoints, "endpoint health"), etcdctl(&s, s.Endpoints, "member list"))
		}
	}
	v.Spare = (len(p.Hosts) - 1) / 2
	v.Changes = changes(p)
	v.Legacy = phaseOf(p, o.Target, func(c *plan.Component) bool { return c.Side == etcdsplit.Legacy && !runsAlready(p, c) })
	v.Modern = phaseOf(p, o.Target, func(c *plan.Component) bool { return c.Side == etcdsplit.Modern && c.Kind == kubever.APIServer })
	v.Managers = phaseOf(p, o.Target, func(c *plan.Component) bool { return c.Side == etcdsplit.Modern && c.Kind != kubever.APIServer })
	v.Locks = locks(p)
	v.Canary = createsPods(p, "deployments", "deployment-controller", "replicaset-controller")
	v.Shared, v.LeftOver = strings.Join(shared(p), ","), leftOver(p)
	v.Off, v.AllOff = collectorsOff(p)
	v.Namespace = namespaces(p)
	v.Needs = storesOf(p, etcdsplit.Modern)
	v.Own = strings.Join(own(p), ",")
	for _, h := range p.Hosts {
		v.Policies = append(v.Policies, shell(hostPath(h.Name, p.PolicyFile)))
		v.ModernURLs = append(v.ModernURLs, "https://"+hostPort(h.Address, p.Modern.Port))
	}
	for _, c := range p.ComponentsOf(etcdsplit.Modern, kubever.APIServer)[:1] {
		v.Restart = restartCommands(&c, o.Target)
	}
	for _, b := range v.Modern.Blocks {
		v.Logs = append(v.Logs, b.Logs...)
	}
	return execute("RUNBOOK.md.tmpl", v)
}

// specName stands for the spec where it was read from standard input.
func specName(name string) string {
	if name == "" || name == "-" {
		return "spec.yaml"
	}
	return name
}

package transition

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Node is a node whose kubelet changes, and how both API servers are queried for it: from the node itself, with the
// certificate of its kubelet, which may read what concerns it on either side.
type Node struct {
	Name    string          `json:"name"`
	Legacy  Access          `json:"legacy"`
	Modern  Access          `json:"modern"`
	Runtime string          `json:"runtime"` // socket of the container runtime
	From    kubever.Version `json:"from"`    // of the kubelets
	To      kubever.Version `json:"to"`
	// Leases: the legacy controllers take Leases as heartbeats of nodes.
	Leases bool `json:"leases"`
	// Record is the name of the record of the pods from before the change: a DNS label.
	Record string `json:"record"`
	// Client is the user as which the modern API server reaches kubelets, for logs and exec.
	Client string `json:"client"`
}

// kubelet is how the kubelet of a node runs by a plan.
type kubelet struct {
	node               *plan.Node // nil: at the legacy API server, from files of its own
	version            kubever.Version
	kubeconfig, dropIn render.File
}

func kubeletsOf(s Setup) (map[string]kubelet, error) {
	kubelets := map[string]kubelet{}
	if s.Plan == nil {
		return kubelets, nil
	}
	for i := range s.Plan.Nodes {
		k := kubelet{node: &s.Plan.Nodes[i], version: *s.Plan.ModernKubelet}
		var err error
		if k.kubeconfig, k.dropIn, err = render.Kubelet(k.node); err != nil {
			return nil, fmt.Errorf("node %s: %w", k.node.Name, err)
		}
		kubelets[k.node.Name] = k
	}
	return kubelets, nil
}

// crossing is a node whose kubelet changes.
type crossing struct {
	was, is kubelet
	plan    *plan.Plan // the one by which everything else runs when the kubelet changes, on the way back too
	cut     bool       // it is connected to an API server that is lost
}

func (c crossing) node() *plan.Node {
	if c.is.node != nil {
		return c.is.node
	}
	return c.was.node
}

// over reports whether the kubelet goes to the modern API server, or becomes newer there. One that is cut off does not
// wait for the rest.
func (c crossing) over() bool {
	return c.was.node == nil || c.is.node != nil && (c.is.version.Minor > c.was.version.Minor ||
		c.is.version.Minor == c.was.version.Minor && !c.cut)
}

// readNodes finds the nodes whose kubelets differ: in the order of the plans, those of the second first.
func (b *builder) readNodes() error {
	was, err := kubeletsOf(b.from)
	if err != nil {
		return err
	}
	is, err := kubeletsOf(b.to)
	if err != nil {
		return err
	}
	for _, s := range []Setup{b.to, b.from} {
		if s.Plan == nil {
			continue
		}
		for _, n := range s.Plan.Nodes {
			c := crossing{was: was[n.Name], is: is[n.Name], plan: s.Plan}
			known := slices.ContainsFunc(b.crossings, func(o crossing) bool { return o.node().Name == n.Name })
			if known || c.was.node != nil && c.is.node != nil && sameFile(c.was.dropIn, c.is.dropIn) &&
				sameFile(c.was.kubeconfig, c.is.kubeconfig) {
				continue
			}
			if c.was.node == nil {
				c.was.version = c.plan.Kubelet
			}
			if c.is.node == nil {
				c.is.version = c.plan.Kubelet
			}
			c.cut = c.was.node != nil && !serves(b.from.Plan, pair.Modern, c.was.node.Kubeconfig.Server)
			if c.was.node != nil && !c.over() {
				c.plan = b.from.Plan
			}
			b.crossings = append(b.crossings, c)
		}
	}
	return nil
}

// nodes changes kubelets, one node after the other: those that move when everything that they need serves, the last
// of all; those that come back before any of that is changed.
func (b *builder) nodes(over bool) {
	for _, c := range b.crossings {
		if c.over() != over {
			continue
		}
		host, first := c.node().Name, len(b.steps)
		if c.is.node != nil {
			b.put(Nodes, host, c.is.kubeconfig, nil, nil)
		}
		// Undo checks no budget and no readiness: it must also repair broken nodes.
		forth, back := c.action(), crossing{was: c.is, is: c.was, plan: c.plan}.action()
		before := *forth.Node
		before.To = before.From
		if !c.cut {
			forth.Before = append([]Check{{Kind: NodeReady, Node: &before,
				Hint: "wait until it is ready, or later failures go unnoticed"}}, forth.Before...)
		}
		b.budgets(c, forth.Node)
		b.add(Step{Phase: Nodes, Host: host, Title: forth.changes(), Do: forth, Undo: back})
		if s := b.steps[first]; s.Do.Kind == PutFile && c.was.node != nil && c.is.node != nil {
			b.again(Nodes, s) // on the way back the kubelet starts with the one of before
		}
		for i := first; c.cut && i < len(b.steps); i++ {
			b.steps[i].Undo = nil // what it was connected to does not come back
		}
		delete(b.disk, place{host, c.was.dropIn.Path})
		if c.is.node == nil {
			b.remove(Nodes, host, c.was.kubeconfig.Path, nil, nil)
		} else {
			b.disk[place{host, c.is.dropIn.Path}] = c.is.dropIn
		}
	}
}

// action changes the kubelet, and verifies that the node lives in the eyes of both sides and that its pods are those
// of before.
func (c crossing) action() *Action {
	n := c.node()
	access := func(side pair.Side, server string) Access {
		return Access{Side: side, Server: server, CA: n.Kubeconfig.CA, Cert: n.Kubeconfig.Cert, Key: n.Kubeconfig.Key}
	}
	legacy := n.Legacy
	for _, o := range c.plan.Nodes {
		if o.Name == n.Name && !c.cut {
			legacy = o.Legacy
		}
	}
	node := &Node{Name: n.Name, Legacy: access(pair.Legacy, legacy), Modern: access(pair.Modern, n.Kubeconfig.Server),
		Runtime: n.Runtime, From: c.was.version, To: c.is.version, Client: plan.KubeletClientUser,
		Leases: kubever.Behaves(kubever.BehaviourNodeLeasesRead, c.plan.Legacy.Version.Minor)}
	a := &Action{Unit: n.Unit, Node: node}
	if c.is.node != nil {
		a.Kind, a.File = ChangeKubelet, stored(c.is.dropIn)
		if c.was.node != nil {
			a.Was = stored(c.was.dropIn)
		}
		a.Before = append(a.Before,
			Check{Kind: Program, Path: n.Program, Version: c.is.version.String(),
				Hint: "install the kubelet of version " + c.is.version.String() + " there"},
			Check{Kind: NodeRights, Node: node, Hint: "the modern API server has to run with the arguments and the " +
				"policy of the plan: fusionctl check, rule FUS281"})
	} else {
		a.Kind, a.File = RestoreKubelet, stored(c.was.dropIn)
	}
	sum := sha256.Sum256(append([]byte(a.Kind), a.File.Data...))
	node.Record = fmt.Sprintf("kubelet-%x", sum[:4])
	a.After = []Check{
		{Kind: NodeReady, Node: node, Hint: "journalctl -u " + n.Unit + " on the node says why; undo brings back " +
			"what was, and the pods of a node that is not ready are evicted after five minutes"},
		{Kind: NodePods, Node: node, Hint: "find out why before changing the next node"},
	}
	return a
}

// budgets looks at the PodDisruptionBudgets of both sides before containers restart: kubelets ask none. The controllers
// of both sides may read them everywhere; without those a person looks.
func (b *builder) budgets(c crossing, n *Node) {
	host := jointHost(c.plan)
	legacy, modern := jointAccess(c.plan, host, pair.Legacy), jointAccess(c.plan, host, pair.Modern)
	a := &Action{Kind: RunChecks}
	if legacy != nil && modern != nil {
		a.Before = []Check{{Kind: Budgets, Node: n, Asked: []Access{*legacy, *modern},
			Hint: "drain the node first, or wait until the pods elsewhere are ready"}}
	} else {
		a = &Action{Kind: ByHand, Text: fmt.Sprintf("see that no PodDisruptionBudget forbids what restarts: fusionctl "+
			"restarts plan --from %s --to %s --kubeconfig FILE --node %s", n.From, n.To, n.Name)}
	}
	b.add(Step{Phase: Nodes, Host: host, Title: "the disruption budgets of the pods of " + n.Name, Do: a})
}

// KubeletsByHand says why no transition changes the kubelets that are at the modern API server, so that people do;
// "" where one does, or they stay what they are.
func KubeletsByHand(was, is *plan.Plan) string {
	a, b := was.ModernKubelet, is.ModernKubelet
	switch {
	case was.Legacy.Retired && (a == nil || b == nil || *a != *b || !reflect.DeepEqual(was.Nodes, is.Nodes)):
		return "spec.kubelet.modern: with the legacy side retired kubelets are upgraded by hand, or by what upgrades " +
			"those of any cluster: then set the version in FROM"
	case a != nil && b != nil && a.Minor != b.Minor && len(was.Nodes)+len(is.Nodes) == 0:
		return fmt.Sprintf("spec.kubelet.modern.version: %s and %s: a transition changes the kubelets of "+
			"spec.kubelet.modern.nodes: list them, or upgrade them by hand and set the version in FROM", *a, *b)
	}
	return ""
}

// serves reports whether the API servers of a plan serve at a URL.
func serves(p *plan.Plan, side pair.Side, server string) bool {
	return slices.ContainsFunc(p.Hosts, func(h spec.Host) bool {
		return server == "https://"+plan.HostPort(h.Address, p.Side(side).Port)
	})
}

// refuseKubelets says which kubelets of both plans cannot be changed. Each is connected to one API server, and is
// changed when all of FROM runs, or all of TO, and so it is on the way back: its server of the other plan has to be
// there then, for nodes that are not heard of are evicted.
func refuseKubelets(from, to *plan.Plan) (reasons []string) {
	if from == nil || to == nil || from.ModernKubelet == nil || to.ModernKubelet == nil {
		return nil
	}
	for _, is := range to.Nodes {
		at := slices.IndexFunc(from.Nodes, func(o plan.Node) bool { return o.Name == is.Name })
		if at < 0 {
			continue
		}
		was := from.Nodes[at]
		if was.Unit != is.Unit {
			reasons = append(reasons, fmt.Sprintf("spec.kubelet.modern.unit: %s and %s: what the first has of %s "+
				"would stay, and the kubelet with it: take %s out of the nodes first, in a transition of its own",
				was.Unit, is.Unit, is.Name, is.Name))
		}
		other, p, name := was.Kubeconfig.Server, to, "TO"
		switch lost := !serves(from, pair.Modern, other); {
		case lost && serves(from, pair.Modern, is.Kubeconfig.Server) && serves(from, pair.Legacy, is.Legacy):
			continue
		case lost, to.ModernKubelet.Minor < from.ModernKubelet.Minor:
			other, p, name = is.Kubeconfig.Server, from, "FROM"
		}
		if !serves(p, pair.Modern, other) {
			reasons = append(reasons, fmt.Sprintf("spec.kubelet.modern.nodes: of %s no modern API server serves at "+
				"%s: the kubelet of %s would be cut off. Kubelets are connected to the first of spec.hosts: put one "+
				"that stays first, in a transition of its own; for another port or address take %s out of the nodes "+
				"first", name, other, is.Name, is.Name))
		}
	}
	return reasons
}

// refuseNodes lists what stands against changing kubelets.
func refuseNodes(from, to Setup) []string {
	var reasons []string
	was, is := from.Plan, to.Plan
	if was != nil && is != nil && !was.Legacy.Retired {
		if why := KubeletsByHand(was, is); why != "" {
			reasons = append(reasons, why)
		}
	}
	reasons = append(reasons, refuseKubelets(was, is)...)
	for _, s := range []Setup{from, to} {
		if s.Plan == nil || s.Target != render.StaticPod {
			continue
		}
		for _, n := range s.Plan.Nodes {
			if slices.ContainsFunc(s.Plan.Hosts, func(h spec.Host) bool { return h.Name == n.Name }) {
				reasons = append(reasons, fmt.Sprintf("spec.kubelet.modern.nodes: %s runs the control plane as static "+
					"pods, which another kubelet recreates: change this node last, by hand", n.Name))
			}
		}
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// Package graph draws a plan: who speaks to which API server, and what each API server keeps in which store. New says
// what is in the picture; ASCII, Dot, Mermaid and SVG say it in four formats. The same plan gives the same bytes.
package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// Graph is the picture of a plan. Every edge leads one rank to the right: clients, API servers, stores.
type Graph struct {
	Name  string
	Sides []Side // legacy, modern
	Nodes []Node // by side, then rank, then from top to bottom; stores last
	Edges []Edge // by source, then by target, in the order of Nodes
}

// Side is a control plane, drawn around its nodes.
type Side struct {
	Name  pair.Side
	Title string // one line
}

// Rank is the column of a node.
type Rank int

// The ranks, from left to right.
const (
	Client Rank = iota // kubelets, schedulers, controller managers, users
	Server             // API servers
	Store              // etcd clusters
)

// Node is a box.
type Node struct {
	ID    string // of letters, digits and underscores, unique in the graph
	Rank  Rank
	Side  pair.Side // "" for a store: both sides may use it
	Title string    // one line
	Lines []string  // below the title
	// where the box leads in a picture that is part of a page; "" where it does not. New leaves it empty.
	Href string
}

// text is what stands in the box, wrapped.
func (n Node) text(width int) []string { return wrap(append([]string{n.Title}, n.Lines...), width) }

// Edge is an arrow.
type Edge struct {
	From, To string   // node IDs
	Label    []string // one line each, wrapped by the printers
}

func (g Graph) node(id string) Node {
	return g.Nodes[slices.IndexFunc(g.Nodes, func(n Node) bool { return n.ID == id })]
}

// New computes the picture of a plan.
func New(p *plan.Plan) Graph {
	g, sides := Graph{Name: p.Name}, p.RunningSides()
	for _, name := range sides {
		g.addSide(p, name)
	}
	for i, store := range p.Stores {
		g.Nodes = append(g.Nodes, storeNode(store, storeID(i)))
	}
	for _, name := range sides {
		for i, store := range p.Stores {
			if label := flows(p, name, store.Name); len(label) > 0 {
				g.Edges = append(g.Edges, Edge{From: serverID(name), To: storeID(i), Label: label})
			}
		}
	}
	return g
}

func storeID(i int) string           { return fmt.Sprintf("store_%d", i) }
func serverID(side pair.Side) string { return string(side) + "_apiserver" }

// addSide adds a control plane and what speaks to it. On the modern side every request passes the policy.
func (g *Graph) addSide(p *plan.Plan, name pair.Side) {
	side := p.Side(name)
	title := fmt.Sprintf("%s side: Kubernetes %s", name, side.Version)
	if side.Existing {
		title += ", exists already"
	}
	g.Sides = append(g.Sides, Side{Name: name, Title: title})

	var label []string
	if name == pair.Modern && p.PolicyFile != "" {
		label = []string{"ABAC"}
	}
	add := func(n Node) {
		n.Side, n.Rank = name, Client
		g.Nodes = append(g.Nodes, n)
		g.Edges = append(g.Edges, Edge{From: n.ID, To: serverID(name), Label: label})
	}
	if kubelets := p.Kubelet; name == pair.Legacy || p.Legacy.Retired {
		if p.Legacy.Retired && p.ModernKubelet != nil {
			kubelets = *p.ModernKubelet
		}
		add(Node{ID: "kubelets", Title: "kubelets", Lines: []string{kubelets.String() + ", every node"}})
	}
	if found := p.ComponentsOf(name, kubever.Scheduler); len(found) > 0 {
		add(Node{ID: string(name) + "_scheduler", Title: "kube-scheduler", Lines: elected(len(found))})
	}
	if found := p.ComponentsOf(name, kubever.ControllerManager); len(found) > 0 {
		lines := append(controllers(p, name), elected(len(found))...)
		add(Node{ID: string(name) + "_controllers", Title: "kube-controller-manager", Lines: lines})
	}
	if found := p.ComponentsOf("", plan.JointControllers); len(found) > 0 {
		// One process, drawn beside each of the servers that it speaks to.
		add(Node{ID: string(name) + "_joint", Title: plan.JointControllers,
			Lines: append([]string{"sees both sides"}, elected(len(found))...)})
	}
	if found := p.ComponentsOf("", plan.JointGateway); len(found) > 0 {
		serves := "one endpoint, both sides"
		if p.Legacy.Retired {
			serves = "one endpoint, for old clients"
		}
		add(Node{ID: string(name) + "_gateway", Title: plan.JointGateway,
			Lines: append([]string{serves}, hosts(len(found))...)})
	}
	if p.Pods != nil && name == pair.Modern {
		service := p.Pods.Service
		add(Node{ID: "modern_pods", Title: "pods of the modern side",
			Lines: []string{"find it by the service", service.Namespace + "/" + service.Name,
				fmt.Sprintf("%s:%d", service.ClusterIP, service.Port)}})
	}
	if name == pair.Modern {
		add(Node{ID: "users", Title: "users and their software", Lines: accessGroups(p.Policy)})
	}
	g.Nodes = append(g.Nodes, Node{
		ID: serverID(name), Rank: Server, Side: name, Title: "kube-apiserver",
		Lines: append([]string{side.Version.String(), fmt.Sprintf("port %d", side.Port)},
			hosts(len(p.ComponentsOf(name, kubever.APIServer)))...),
	})
}

func storeNode(store plan.Store, id string) Node {
	n := Node{ID: id, Rank: Store, Title: "etcd " + store.Name,
		Lines: []string{prose.Counted(len(store.Endpoints), "endpoint")}}
	switch {
	case store.Managed != nil:
		n.Lines = append(n.Lines, "managed, "+store.Managed.Version)
	case store.Version != "":
		n.Lines = append(n.Lines, "version "+store.Version)
	}
	return n
}

func controllers(p *plan.Plan, side pair.Side) []string {
	on, all := 0, 0
	for _, c := range p.Controllers {
		if c.Side == side {
			all++
			if c.On {
				on++
			}
		}
	}
	if all == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d controllers on", on, all)}
}

// hosts says on how many hosts something runs, when that is worth saying.
func hosts(n int) []string {
	if n < 2 {
		return nil
	}
	return []string{prose.Counted(n, "host")}
}

// elected is hosts for what elects a leader.
func elected(n int) []string {
	if n < 2 {
		return nil
	}
	return []string{prose.Counted(n, "host") + ", one leads"}
}

// namesShown is how many names a list spells out before it says how many more there are.
const namesShown = 4

// accessGroups lists the API groups beyond the core that the policy opens to users other than the control plane itself.
func accessGroups(intent policy.Intent) []string {
	var groups []string
	for _, grant := range intent.Grants {
		if slices.ContainsFunc(grant.Subjects, isUser) {
			groups = append(groups, grant.APIGroups...)
		}
	}
	if slices.Contains(groups, "*") {
		return []string{"all API groups"}
	}
	slices.SortFunc(groups, func(a, b string) int {
		return cmp.Or(compareBool(builtIn(a), builtIn(b)), cmp.Compare(a, b))
	})
	groups = slices.Compact(groups)
	groups = slices.DeleteFunc(groups, func(group string) bool { return group == "" })
	if len(groups) > namesShown {
		return append(slices.Clone(groups[:namesShown-1]), fmt.Sprintf("and %d more groups", len(groups)-namesShown+1))
	}
	return groups
}

// builtIn reports whether an API group is Kubernetes' own: what users bring along is better known by theirs.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// isUser reports whether the subject is not a part of the control plane.
func isUser(s policy.Subject) bool {
	switch s.Kind {
	case policy.KindGroup:
		return s.Name == "system:authenticated" || !strings.HasPrefix(s.Name, "system:")
	case policy.KindServiceAccount:
		return s.Namespace != metav1.NamespaceSystem
	}
	return !strings.HasPrefix(s.Name, "system:") && !plan.SeesBoth(s.Name)
}

// flows says what a side keeps in a store, by what it may do there: a line for what both sides write, one for what it
// alone writes, one for what it only reads because the other side owns it. What it does not serve is not worth an
// arrow.
func flows(p *plan.Plan, side pair.Side, store string) []string {
	names := map[string][]string{}
	for i := range p.Resources {
		r := &p.Resources[i]
		if len(r.View(side).Serves) > 0 && r.View(side).Store == store {
			role := roleOf(&r.Resource, side)
			names[role] = append(names[role], displayName(&r.Resource, side))
		}
	}
	if r := &p.CustomResources; r.View(side).Store == store {
		role := roleOf(r, side)
		names[role] = append(names[role], customResources)
	}
	var label []string
	for _, role := range []string{roleShared, roleOwn, roleReader} {
		if len(names[role]) > 0 {
			label = append(label, fmt.Sprintf("%s (%d): %s", role, len(names[role]), abridged(names[role])))
		}
	}
	return label
}

const (
	roleShared = "shared"
	roleOwn    = "own"
	roleReader = "read only"
)

// roleOf says what a side is to a resource.
func roleOf(r *pair.Resource, side pair.Side) string {
	switch {
	case r.Owner == pair.Owner(side.Other()):
		return roleReader
	case r.Owner == pair.OwnerShared && r.Legacy.Store == r.Modern.Store:
		return roleShared
	default:
		return roleOwn
	}
}

const customResources = "custom resources"

// displayName is the resource's name, with the group under which the side stores it where there are several; CRDs go by
// the name that everybody uses.
func displayName(r *pair.Resource, side pair.Side) string {
	group, _, grouped := strings.Cut(r.View(side).StoredAs, "/")
	switch {
	case r.Name == "customresourcedefinitions":
		return "CRDs"
	case len(r.Groups) > 1 && grouped:
		return r.Name + "." + group
	}
	return r.Name
}

// prominent are the resources by which people know a cluster, in the order in which they name them.
var prominent = []string{
	"CRDs", customResources, "pods", "services", "nodes", "deployments", "statefulsets", "daemonsets", "jobs",
	"cronjobs", "ingresses",
	"configmaps", "secrets", "namespaces", "replicasets", "endpoints", "serviceaccounts", "persistentvolumes",
	"persistentvolumeclaims",
}

// ByRenown sorts the names of resources, which may end in their groups: the best-known ones come first.
func ByRenown(names []string) []string {
	rank := func(name string) int {
		resource, _, _ := strings.Cut(name, ".")
		if i := slices.Index(prominent, resource); i >= 0 {
			return i
		}
		return len(prominent)
	}
	return slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// abridged names the best-known ones and lets dots stand for the others.
func abridged(names []string) string {
	sorted := ByRenown(names)
	if len(sorted) > namesShown {
		sorted = append(sorted[:namesShown], more)
	}
	return strings.Join(sorted, ", ")
}

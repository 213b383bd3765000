package restart

import (
	"maps"
	"slices"
)

// Count is a number of containers by verdict.
type Count struct {
	Restart int `json:"restart"`
	Keep    int `json:"keep"`
	Unknown int `json:"unknown"`
}

// Add counts one verdict.
func (c *Count) Add(v Verdict) {
	switch v {
	case Restart:
		c.Restart++
	case Keep:
		c.Keep++
	default:
		c.Unknown++
	}
}

// less compares costs: what is kept costs nothing.
func (c Count) less(d Count) bool {
	return c.Restart < d.Restart || c.Restart == d.Restart && c.Unknown < d.Unknown
}

func (c Count) plus(d Count) Count {
	return Count{Restart: c.Restart + d.Restart, Unknown: c.Unknown + d.Unknown}
}

// Group is the count of one node, namespace or owner.
type Group struct {
	Name string `json:"name"`
	Count
}

// Tally adds up outcomes: all, by node, by namespace and by owner within its namespace.
type Tally struct {
	Pods                     int
	All                      Count
	Restarts                 int // each container counted as often as it is restarted
	nodes, namespaces, owner map[string]Count
}

// Add counts the outcomes of one pod.
func (t *Tally) Add(outcomes []Outcome) {
	if t.nodes == nil {
		t.nodes, t.namespaces, t.owner = map[string]Count{}, map[string]Count{}, map[string]Count{}
	}
	t.Pods++
	for _, o := range outcomes {
		t.All.Add(o.Verdict)
		t.Restarts += o.Restarts
		count(t.nodes, o.Node, o.Verdict)
		count(t.namespaces, o.Namespace, o.Verdict)
		owner := ""
		if o.Owner != "" {
			owner = o.Namespace + "/" + o.Owner
		}
		count(t.owner, owner, o.Verdict)
	}
}

func count(groups map[string]Count, name string, v Verdict) {
	c := groups[name]
	c.Add(v)
	groups[name] = c
}

// Nodes are the counts by node, sorted by name; "" is no node.
func (t *Tally) Nodes() []Group { return sorted(t.nodes) }

// Namespaces are the counts by namespace, sorted by name.
func (t *Tally) Namespaces() []Group { return sorted(t.namespaces) }

// Owners are the counts by owner, named shop/Deployment/web, sorted; "" is a pod without an owner.
func (t *Tally) Owners() []Group { return sorted(t.owner) }

func sorted(groups map[string]Count) []Group {
	list := []Group{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, Group{name, groups[name]})
	}
	return list
}

package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// storesOf are the stores in which a side keeps anything, its default store first.
func storesOf(p *plan.Plan, side pair.Side) []string {
	stores := []string{p.Side(side).Store}
	for _, s := range p.Stores {
		uses := slices.ContainsFunc(p.Resources, func(r plan.Resource) bool { return r.View(side).Store == s.Name })
		if uses && !slices.Contains(stores, s.Name) {
			stores = append(stores, s.Name)
		}
	}
	return stores
}

// flagMeanings say what an argument that the plan may have to change does.
var flagMeanings = map[string]string{
	"etcd-quorum-read": "reads need a majority of the etcd members; each takes one more round trip to the etcd leader",
	"controllers": "the list of controllers: `*` enables every one that is on by default, `-NAME` disables one, " +
		"and the first entry that names a controller decides",
}

// changes are the arguments of running components that have to be others, each once.
func changes(p *plan.Plan) []change {
	var list []change
	for i := range p.Components {
		c := &p.Components[i]
		if !runsAlready(p, c) {
			continue
		}
		for _, a := range c.Args {
			if a.Origin == plan.FromSpec {
				continue
			}
			what := "add"
			if a.Origin == plan.FromBoth {
				what = "change to"
			}
			made := newChange(c, a, what, "not 0")
			if !slices.Contains(list, made) {
				list = append(list, made)
			}
		}
		for _, a := range c.Removed {
			if made := newChange(c, a, "remove", "0"); !slices.Contains(list, made) {
				list = append(list, made)
			}
		}
	}
	return list
}

func newChange(c *plan.Component, a plan.Arg, what, answer string) change {
	return change{
		Component: c.Name, Arg: inline(a.String()), What: what, Why: inline(a.Why), Meaning: flagMeanings[a.Name],
		Verify: fmt.Sprintf("pgrep -af %s | grep -cF -- %s", shell(strings.TrimPrefix(c.Kind, "kube-")),
			shell(a.String())),
		Answer: answer,
	}
}

// locks are the objects on which the modern side elects, and how to ask who holds them.
func locks(p *plan.Plan) []lockView {
	file := ""
	for _, k := range p.Kubeconfigs {
		if slices.ContainsFunc(p.ComponentsOf(pair.Modern, kubever.ControllerManager), func(c plan.Component) bool {
			return c.Name == k.Component
		}) {
			file = k.Path
			break
		}
	}
	if file == "" {
		return nil
	}
	var views []lockView
	for _, l := range p.Modern.Locks {
		name, field := l.Resource, `{.metadata.annotations.control-plane\.alpha\.kubernetes\.io/leader}`
		if row := p.Resource(l.Resource); row != nil {
			name = row.Name
		}
		if l.Resource == "leases" {
			field = "{.spec.holderIdentity}"
		}
		views = append(views, lockView{
			Component: l.Component, Object: fmt.Sprintf("%s %s/%s", name, l.Namespace, l.Name),
			Command: fmt.Sprintf("kubectl --kubeconfig %s -n %s get %s %s -o jsonpath=%s", shell(file),
				shell(l.Namespace), name, shell(l.Name), shell(field)),
		})
	}
	return views
}

// createsPods reports whether the modern side has objects of its own of the resource, and runs the controllers that
// make pods of them.
func createsPods(p *plan.Plan, key string, controllers ...string) bool {
	row := p.Resource(key)
	if row == nil || (row.Owner != pair.OwnerModern && row.Owner != pair.OwnerSplit) {
		return false
	}
	for _, id := range controllers {
		if c := p.Controller(pair.Modern, id); c == nil || !c.On {
			return false
		}
	}
	return true
}

// shared lists what both sides see, as kubectl names it.
func shared(p *plan.Plan) []string {
	var names []string
	for i := range p.Resources {
		if r := &p.Resources[i]; r.VisibleToBoth() && len(r.Legacy.Serves) > 0 && r.Name != "" {
			names = append(names, kubectlName(r, r.Legacy.Serves[0]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// own lists the namespaced resources of which the modern side has objects that the legacy side does not see.
func own(p *plan.Plan) []string {
	var names []string
	for i := range p.Resources {
		if r := &p.Resources[i]; r.Namespaced && !r.VisibleToBoth() && len(r.Modern.Serves) > 0 && r.Name != "" {
			names = append(names, kubectlName(r, r.Modern.Serves[0]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// kubectlName is RESOURCE.GROUP, or RESOURCE in the core group.
func kubectlName(r *plan.Resource, groupVersion string) string {
	if group, _, ok := strings.Cut(groupVersion, "/"); ok {
		return r.Name + "." + group
	}
	return r.Name
}

// leftOver are the keys in stores of the legacy side that the modern API server writes by itself and that the legacy
// one does not.
func leftOver(p *plan.Plan) []string {
	written := map[string]bool{}
	for _, w := range p.StartupWrites {
		if w.Side == pair.Legacy {
			written[w.Key] = true
		}
	}
	var keys []string
	for _, w := range p.StartupWrites {
		if w.Side != pair.Modern || written[w.Key] {
			continue
		}
		if row := rowOfKey(p, w.Key); row != nil && row.Modern.Store == p.Legacy.Store {
			keys = append(keys, inline(p.Prefix+"/"+w.Key))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// rowOfKey is the row below whose key a key lies.
func rowOfKey(p *plan.Plan, key string) *plan.Resource {
	for at := key; at != "." && at != "/" && at != ""; at = path.Dir(at) {
		if row := p.Resource(at); row != nil {
			return row
		}
	}
	return nil
}

// collectorsOff lists the garbage collectors that the plan keeps off.
func collectorsOff(p *plan.Plan) (off []collector, all bool) {
	runs := false
	for _, side := range pair.Sides() {
		c := p.Controller(side, "garbage-collector-controller")
		switch {
		case c == nil:
		case c.On:
			runs = true
		default:
			off = append(off, collector{Side: string(side), Version: p.Side(side).Version.String(), Why: inline(c.Why)})
		}
	}
	return off, len(off) > 0 && !runs
}

func namespaces(p *plan.Plan) namespaceView {
	var v namespaceView
	if row := p.Resource("namespaces"); row != nil {
		v.Shared = row.VisibleToBoth()
	}
	if c := p.Controller(pair.Modern, "namespace-controller"); c != nil {
		v.ModernOn, v.Why = c.On, inline(c.Why)
	}
	return v
}

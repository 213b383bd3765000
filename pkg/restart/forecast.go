package restart

import (
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Schema heads a forecast as `fusionctl restarts plan -o json` prints it: the fields of Head, the outcomes as
// "containers", and the fields of Totals.
const Schema = "fusionctl/restarts-plan/v1"

// Head says which upgrade a forecast is about.
type Head struct {
	Schema string            `json:"schema"`
	From   kubever.Version   `json:"from"`
	Via    []kubever.Version `json:"via,omitempty"`
	To     kubever.Version   `json:"to"`
}

// Head is the head of a forecast of the route.
func (r Route) Head() Head {
	last := len(r.Stops) - 1
	return Head{Schema: Schema, From: r.Stops[0], Via: r.Stops[1:last], To: r.Stops[last]}
}

// Totals sum a forecast up.
type Totals struct {
	Pods       int      `json:"pods"`
	Summary    Count    `json:"summary"`  // containers
	Restarts   int      `json:"restarts"` // of containers, at all stops
	Nodes      []Group  `json:"nodes"`
	Namespaces []Group  `json:"namespaces"`
	Owners     []Group  `json:"owners"`
	Order      []Wave   `json:"order,omitempty"` // of nodes, if there are PodDisruptionBudgets
	Paths      []Path   `json:"paths,omitempty"`
	Notes      []string `json:"notes,omitempty"` // what the verdicts rest on
}

// Forecast judges the pods of a cluster one by one, and keeps their sums.
type Forecast struct {
	route   Route
	runtime *Runtime
	tally   Tally
	paths   *Paths // nil if they are not compared
	budgets []*policyv1.PodDisruptionBudget
	order   *Order // nil before the first pod

	recorded    int // containers whose record was found
	silent      int // pods whose status does not name a runtime
	undefaulted int // containers

	pods, restarts atomic.Int64
}

// NewForecast begins one. runtime holds the recorded hashes, nil for none; paths compares the paths through the minors,
// too.
func NewForecast(route Route, runtime *Runtime, paths bool) *Forecast {
	f := &Forecast{route: route, runtime: runtime}
	if paths {
		f.paths = NewPaths(route)
	}
	return f
}

// AddBudget takes a PodDisruptionBudget, all of them before the first pod.
func (f *Forecast) AddBudget(budget *policyv1.PodDisruptionBudget) {
	f.budgets = append(f.budgets, budget)
}

// Add judges a pod.
// Errors: a budget with a selector or a number that is none.
func (f *Forecast) Add(pod *v1.Pod) (outcomes []Outcome, err error) {
	if f.order == nil {
		if f.order, err = NewOrder(f.budgets); err != nil {
			return nil, err
		}
	}
	outcomes = f.route.Judge(pod, f.runtime)
	f.tally.Add(outcomes)
	f.order.Add(pod, outcomes)
	if f.paths != nil {
		f.paths.Add(pod, f.runtime)
	}
	f.pods.Add(1)
	f.restarts.Store(int64(f.tally.All.Restart))
	if len(pod.Status.ContainerStatuses) == 0 {
		f.silent++
	}
	for i := range pod.Spec.Containers {
		if !IsDefaulted(&pod.Spec.Containers[i]) {
			f.undefaulted++
		}
	}
	for _, o := range outcomes {
		if o.Recorded != "" {
			f.recorded++
		}
	}
	return outcomes, nil
}

// Progress returns how many pods were judged and how many of their containers are restarted. Safe to call beside Add.
func (f *Forecast) Progress() (pods, restarts int64) { return f.pods.Load(), f.restarts.Load() }

// Totals sums up what was added.
func (f *Forecast) Totals() Totals {
	t := Totals{Pods: f.tally.Pods, Summary: f.tally.All, Restarts: f.tally.Restarts, Nodes: f.tally.Nodes(),
		Namespaces: f.tally.Namespaces(), Owners: f.tally.Owners(), Notes: f.notes()}
	if len(f.budgets) > 0 && f.order != nil {
		t.Order = f.order.Waves()
	}
	if f.paths != nil {
		t.Paths = f.paths.Best()
	}
	return t
}

func (f *Forecast) notes() (notes []string) {
	from, to := f.route.Stops[0], f.route.Stops[len(f.route.Stops)-1]
	if f.runtime == nil {
		notes = append(notes, fmt.Sprintf("no recorded hashes were given: containers are assumed to have been "+
			"started by the %s kubelet from their present definition; --runtime and --runtime-endpoint give the "+
			"hashes", from))
	} else if other := f.runtime.Records() - f.recorded; other > 0 {
		notes = append(notes, fmt.Sprintf("running containers of the runtime that belong to no pod given: %d", other))
	}
	if f.silent > 0 && losesDockershim(from.Minor, to.Minor) {
		notes = append(notes, fmt.Sprintf("pods whose status does not name a runtime: %d; if theirs is docker "+
			"without a CRI, every container of them is restarted, since dockershim is removed in %s", f.silent,
			dockershimGone()))
	}
	if f.undefaulted > 0 {
		notes = append(notes, fmt.Sprintf("containers that lack the defaults of an API server: %d; a default is part "+
			"of the hash, so give the pods as the API server serves them", f.undefaulted))
	}
	return notes
}

// IsDefaulted reports whether an API server has defaulted the container: every one since 1.6 sets these two fields.
func IsDefaulted(c *v1.Container) bool {
	return c.TerminationMessagePath != "" && c.TerminationMessagePolicy != ""
}

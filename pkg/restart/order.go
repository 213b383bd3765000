package restart

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Order finds an order of nodes in which an upgrade keeps PodDisruptionBudgets whole. A kubelet that restarts
// containers asks no budget: all affected pods of a node are disturbed at once. Its size grows with the nodes and the
// budgets, not with the pods.
type Order struct {
	budgets []*budget
	nodes   map[string]map[*budget]int // affected pods, by node and budget
}

type budget struct {
	name     string // shop/web
	object   *policyv1.PodDisruptionBudget
	selector labels.Selector
	pods     int
	healthy  int
}

// NewOrder takes the budgets, all of them before the first pod.
// Errors: a selector or a number that is none.
func NewOrder(objects []*policyv1.PodDisruptionBudget) (*Order, error) {
	o := &Order{nodes: map[string]map[*budget]int{}}
	for _, object := range objects {
		b := &budget{name: object.Namespace + "/" + object.Name, object: object}
		selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("PodDisruptionBudget %s: spec.selector: %w", b.name, err)
		}
		if selector.Empty() && object.APIVersion == "policy/v1beta1" {
			selector = labels.Nothing() // there an empty selector selects nothing, in policy/v1 everything
		}
		b.selector = selector
		if _, err := b.allowed(); err != nil {
			return nil, fmt.Errorf("PodDisruptionBudget %s: %w", b.name, err)
		}
		o.budgets = append(o.budgets, b)
	}
	slices.SortFunc(o.budgets, func(a, b *budget) int { return cmp.Compare(a.name, b.name) })
	return o, nil
}

// Add counts a pod. One with a container that is restarted, or of which that is not known, is affected.
func (o *Order) Add(pod *v1.Pod, outcomes []Outcome) {
	affected := slices.ContainsFunc(outcomes, func(c Outcome) bool { return c.Verdict != Keep })
	node := pod.Spec.NodeName
	if node != "" && o.nodes[node] == nil {
		o.nodes[node] = map[*budget]int{}
	}
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return
	}
	for _, b := range o.budgets {
		if b.object.Namespace != pod.Namespace || !b.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		b.pods++
		if isHealthy(pod) {
			b.healthy++
		}
		if affected && node != "" {
			o.nodes[node][b]++
		}
	}
}

// isHealthy reports whether a pod counts for a budget. A pod without a status, from a manifest, is taken to be ready.
func isHealthy(pod *v1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return len(pod.Status.Conditions) == 0
}

// allowed is how many pods of the budget may be disturbed at a time: what the disruption controller says, or if it has
// not, what it would say about the pods that were counted.
func (b *budget) allowed() (int, error) {
	status, spec := b.object.Status, b.object.Spec
	if status.ExpectedPods > 0 && status.ObservedGeneration == b.object.Generation {
		return int(status.DisruptionsAllowed), nil
	}
	desired := 0
	switch {
	case spec.MaxUnavailable != nil:
		unavailable, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, b.pods, true)
		if err != nil {
			return 0, fmt.Errorf("spec.maxUnavailable: %w", err)
		}
		desired = b.pods - unavailable
	case spec.MinAvailable != nil:
		available, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, b.pods, true)
		if err != nil {
			return 0, fmt.Errorf("spec.minAvailable: %w", err)
		}
		desired = available
	default:
		desired = 1
	}
	return max(0, b.healthy-max(0, desired)), nil
}

// Wave is a set of nodes that may be upgraded at the same time. The next one waits until the pods are ready again.
type Wave struct {
	Nodes []string `json:"nodes"`
	// Breaks names the budgets that even this node alone breaks, with how much.
	Breaks []string `json:"breaks,omitempty"`
}

// Waves puts the nodes in order: each into the first wave whose budgets have room for it, those with the most affected
// pods first. A node that breaks a budget by itself comes last, in a wave of its own.
func (o *Order) Waves() []Wave {
	type filling struct {
		nodes []string
		used  map[*budget]int
	}
	allowed := map[*budget]int{}
	for _, b := range o.budgets {
		allowed[b], _ = b.allowed() // NewOrder has seen that it can be computed
	}
	weight := func(node string) (pods int) {
		for _, n := range o.nodes[node] {
			pods += n
		}
		return pods
	}
	nodes := slices.SortedFunc(maps.Keys(o.nodes), func(a, b string) int {
		return cmp.Or(-cmp.Compare(weight(a), weight(b)), cmp.Compare(a, b))
	})
	var fillings []*filling
	var last []Wave
	for _, node := range nodes {
		if breaks := o.breaks(node, allowed); len(breaks) > 0 {
			last = append(last, Wave{Nodes: []string{node}, Breaks: breaks})
			continue
		}
		i := slices.IndexFunc(fillings, func(f *filling) bool {
			for b, n := range o.nodes[node] {
				if f.used[b]+n > allowed[b] {
					return false
				}
			}
			return true
		})
		if i < 0 {
			i = len(fillings)
			fillings = append(fillings, &filling{used: map[*budget]int{}})
		}
		fillings[i].nodes = append(fillings[i].nodes, node)
		for b, n := range o.nodes[node] {
			fillings[i].used[b] += n
		}
	}
	waves := []Wave{}
	for _, f := range fillings {
		slices.Sort(f.nodes)
		waves = append(waves, Wave{Nodes: f.nodes})
	}
	slices.SortFunc(last, func(a, b Wave) int { return cmp.Compare(a.Nodes[0], b.Nodes[0]) })
	return append(waves, last...)
}

// breaks names the budgets that the affected pods of one node break.
func (o *Order) breaks(node string, allowed map[*budget]int) (breaks []string) {
	for _, b := range o.budgets {
		if n := o.nodes[node][b]; n > allowed[b] {
			breaks = append(breaks, fmt.Sprintf("%s: %d of its pods are disturbed, %d may be", b.name, n, allowed[b]))
		}
	}
	return breaks
}

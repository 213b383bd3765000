package live

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// samples is how many objects a finding names.
const samples = 8

// overlaps compares what the workloads of one side select with the pods, and the pod templates, of the other.
type overlaps struct {
	sideLabel string // of the modern side's pods, "" where the spec names none
	workloads []*workload
	spaces    map[string]*space // by namespace; built when the first pod comes
	mislabels mislabels
}

// workload is something with a selector.
type workload struct {
	kind      string
	namespace string
	name      string
	side      pair.Side // whose it is; "" when both see it and nothing tells
	selector  labels.Selector
	template  labels.Set // of the pods that it makes; nil when it makes none
	makesPods bool
	hits      map[pair.Side]*hits
}

// hits are what a selector selects of one side.
type hits struct {
	pods     int
	examples []string
}

func (h *hits) add(example string) {
	if len(h.examples) < samples {
		h.examples = append(h.examples, example)
	}
}

// space is what selects in a namespace: by one label that the selector wants, and the rest.
type space struct {
	byLabel map[string][]*workload
	rest    []*workload
}

func newOverlaps(p *plan.Plan) *overlaps { return &overlaps{sideLabel: sideLabel(p)} }

func (w *workload) title() string { return w.kind + " " + title(w.namespace, w.name) }

func (w *workload) hit(side pair.Side) *hits {
	if w.hits == nil {
		w.hits = map[pair.Side]*hits{}
	}
	if w.hits[side] == nil {
		w.hits[side] = &hits{}
	}
	return w.hits[side]
}

// meet takes note of a workload, or looks for those that select a pod.
func (v *overlaps) meet(in *collection, o *object, met *owners) {
	side := v.sideOf(in, o, met)
	if in.name == "pods" {
		v.meetPod(o, side, met)
		return
	}
	w := workloadOf(in, o)
	if w == nil {
		return
	}
	w.side = side
	if w.makesPods {
		v.mislabels.meet(v.sideLabel, "templates", w.title(), w.template, side)
	}
	if w.selector != nil && !w.selector.Empty() && v.names(w.selector) {
		return // it chooses a side knowingly
	}
	v.workloads = append(v.workloads, w)
}

// sideOf says whose an object is: of the side that alone sees it, or alone sees what controls it, or that its label
// names.
func (v *overlaps) sideOf(in *collection, o *object, met *owners) pair.Side {
	if !in.shared() {
		return in.side
	}
	if r := o.controller(); r != nil {
		if side, alone := met.alone(string(r.UID)); alone {
			return side
		}
	}
	if v.sideLabel != "" && o.Metadata.Labels[v.sideLabel] == sideModern {
		return pair.Modern
	}
	return ""
}

// names reports whether a selector asks for the side label.
func (v *overlaps) names(s labels.Selector) bool {
	requirements, _ := s.Requirements()
	return v.sideLabel != "" && slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return r.Key() == v.sideLabel
	})
}

// workloadOf reads the selector and the labels of the pod template; nil when the object selects no pods.
func workloadOf(in *collection, o *object) *workload {
	w := &workload{kind: in.Kind, namespace: o.Metadata.Namespace, name: o.Metadata.Name, makesPods: true}
	var spec struct {
		Type     string          `json:"type"`
		Selector selectorOrNames `json:"selector"`
		Template struct {
			Metadata struct {
				Labels labels.Set `json:"labels"`
			} `json:"metadata"`
		} `json:"template"`
	}
	switch in.name {
	case "controllers", "services/specs", "daemonsets", "deployments", "jobs", "replicasets", "statefulsets",
		"poddisruptionbudgets":
		if utiljson.Unmarshal(o.Spec, &spec) != nil {
			return nil
		}
	default:
		return nil
	}
	w.template = spec.Template.Metadata.Labels
	switch in.name {
	case "replicasets":
		if o.controller() != nil {
			return nil // its Deployment selects all that it selects
		}
	case "services/specs":
		w.makesPods = false
		if spec.Type == "ExternalName" || len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
			return nil
		}
	case "poddisruptionbudgets":
		w.makesPods = false
		if in.Version == "v1beta1" && len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
			return nil // up to v1beta1 an empty selector selects nothing
		}
	}
	if !spec.Selector.given {
		w.selector = labels.Nothing()
		return w
	}
	var err error
	if w.selector, err = metav1.LabelSelectorAsSelector(&spec.Selector.LabelSelector); err != nil {
		w.selector = labels.Nothing() // the server's own selector would not be one either
	}
	return w
}

// selectorOrNames is a selector in either of its forms: with matchLabels and matchExpressions, or the labels
// themselves.
type selectorOrNames struct {
	metav1.LabelSelector
	given bool
}

func (s *selectorOrNames) UnmarshalJSON(data []byte) error {
	s.given = string(data) != "null"
	if plain := map[string]string(nil); utiljson.Unmarshal(data, &plain) == nil {
		s.MatchLabels = plain
		return nil
	}
	return utiljson.Unmarshal(data, &s.LabelSelector)
}

func (v *overlaps) meetPod(o *object, side pair.Side, met *owners) {
	if side == "" || o.Metadata.DeletionTimestamp != "" {
		return
	}
	if r := o.controller(); r != nil {
		if owner, alone := met.alone(string(r.UID)); alone {
			v.mislabels.meet(v.sideLabel, "pods", o.title(), o.Metadata.Labels, owner)
		}
	}
	var status struct {
		Phase string `json:"phase"`
	}
	if utiljson.Unmarshal(o.Status, &status) == nil && (status.Phase == "Succeeded" || status.Phase == "Failed") {
		return // no side acts on it
	}
	v.selecting(o.Metadata.Namespace, o.Metadata.Labels, func(w *workload) {
		if w.side == side {
			return
		}
		h := w.hit(side)
		h.pods++
		h.add("pod " + o.title())
	})
}

// selecting calls yield for everything in a namespace whose selector matches the labels.
func (v *overlaps) selecting(namespace string, set labels.Set, yield func(*workload)) {
	if v.spaces == nil {
		v.index()
	}
	s := v.spaces[namespace]
	if s == nil {
		return
	}
	for key, value := range set {
		for _, w := range s.byLabel[key+"="+value] {
			if w.selector.Matches(set) {
				yield(w)
			}
		}
	}
	for _, w := range s.rest {
		if w.selector.Matches(set) {
			yield(w)
		}
	}
}

// index files each workload under every value of one label that its selector wants, so that labels find it once.
func (v *overlaps) index() {
	v.spaces = map[string]*space{}
	for _, w := range v.workloads {
		s := v.spaces[w.namespace]
		if s == nil {
			s = &space{byLabel: map[string][]*workload{}}
			v.spaces[w.namespace] = s
		}
		requirements, _ := w.selector.Requirements()
		at := slices.IndexFunc(requirements, func(r labels.Requirement) bool {
			return slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In},
				r.Operator())
		})
		if at < 0 {
			s.rest = append(s.rest, w)
			continue
		}
		for value := range requirements[at].Values() {
			s.byLabel[requirements[at].Key()+"="+value] = append(s.byLabel[requirements[at].Key()+"="+value], w)
		}
	}
}

// report matches the templates, now that all are known, and words the findings.
func (v *overlaps) report(c *checker) {
	for _, made := range v.workloads {
		if !made.makesPods || made.side == "" {
			continue
		}
		v.selecting(made.namespace, made.template, func(w *workload) {
			if h := w.hits[made.side]; w != made && w.side != made.side && (h == nil || h.pods == 0) {
				w.hit(made.side).add("the pods that " + made.title() + " makes")
			}
		})
	}
	for _, w := range v.workloads {
		if f, found := v.judge(w); found {
			c.add(f)
		}
	}
	v.mislabels.report(c, v.sideLabel)
}

// judge words what a workload selects of the other side. One of no side is judged when it selects pods of both.
func (v *overlaps) judge(w *workload) (finding.Finding, bool) {
	f := finding.Finding{Rule: Overlap, Severity: finding.Warning, Subject: w.title(), Fix: v.fix(w)}
	if w.makesPods {
		f.Severity = finding.Error
	}
	if w.side == "" {
		legacy, modern := w.hits[pair.Legacy], w.hits[pair.Modern]
		if legacy == nil || modern == nil {
			return f, false
		}
		f.Message = fmt.Sprintf("selects pods of both sides (%s): %s", w.selector, consequences[w.kind])
		f.Count = finding.Count(legacy.pods + modern.pods)
		f.Related = slices.Concat(prefixed("legacy: ", legacy.examples), prefixed("modern: ", modern.examples))
		return f, true
	}
	for side, h := range w.hits {
		what := "would select pods"
		if h.pods > 0 {
			what = fmt.Sprintf("selects %s", prose.Counted(h.pods, "pod"))
		}
		f.Count = finding.Count(h.pods)
		f.Message = fmt.Sprintf("belongs to the %s side and %s of the %s side (%s): %s", w.side, what, side, w.selector,
			consequences[w.kind])
		f.Related = h.examples
		return f, true // the sides are two
	}
	return f, false
}

func prefixed(prefix string, list []string) []string {
	var result []string
	for _, s := range list {
		result = append(result, prefix+s)
	}
	return result
}

func (v *overlaps) fix(w *workload) string {
	label := v.sideLabel
	if label == "" {
		label = "a label of their side (spec.pods.sideLabel)"
	}
	return fmt.Sprintf("give the pods of each side %s and add it to the selector of %s, or use different namespaces",
		label, w.title())
}

// consequences of selecting the other side's pods.
var consequences = map[string]string{
	"Service":             "it routes traffic to the pods of both",
	"PodDisruptionBudget": "it counts pods whose controller its side does not see, and blocks evictions",
	"DaemonSet":           adopts,
	"Deployment": "its autoscaler counts them; ReplicaSets of one side adopt the other's pods that have " +
		"no controller, and delete surplus ones",
	"Job":                   adopts,
	"ReplicaSet":            adopts,
	"ReplicationController": adopts,
	"StatefulSet":           adopts,
}

const adopts = "it adopts those without a controller, and deletes surplus ones"

// mislabels are pods and templates that do not say whose they are, or say it wrongly.
type mislabels map[mislabel]*hits

type mislabel struct {
	what  string // pods, templates
	side  pair.Side
	value string // of the label, "" for none
}

func (m *mislabels) meet(label, what, title string, set labels.Set, side pair.Side) {
	value := set[label]
	if label == "" || side == "" || (side == pair.Modern) == (value == sideModern) {
		return
	}
	if *m == nil {
		*m = mislabels{}
	}
	of := mislabel{what, side, value}
	if (*m)[of] == nil {
		(*m)[of] = &hits{}
	}
	(*m)[of].pods++
	(*m)[of].add(title)
}

func (m mislabels) report(c *checker, label string) {
	for of, h := range m {
		f := finding.Finding{Rule: Mislabelled, Severity: finding.Warning,
			Subject: fmt.Sprintf("%s of the %s side", of.what, of.side),
			Key:     of.value, Count: finding.Count(h.pods), Related: h.examples}
		switch {
		case of.side == pair.Legacy:
			f.Message = fmt.Sprintf("%s %s=%s, which is the label of the modern side",
				carries(h.pods, "carries", "carry"), label, of.value)
			f.Fix = "remove the label from pods and templates that are created through the legacy API server"
		case of.value == "":
			f.Message = fmt.Sprintf("%s no label %s", carries(h.pods, "has", "have"), label)
			f.Fix = fmt.Sprintf("create them again: admission of the modern API server sets %s=%s on pods and "+
				"templates", label, sideModern)
		default:
			f.Message = fmt.Sprintf("%s %s=%s, want %s", carries(h.pods, "carries", "carry"), label, of.value,
				sideModern)
			f.Fix = fmt.Sprintf("set %s=%s", label, sideModern)
		}
		c.add(f)
	}
}

func carries(n int, one, many string) string {
	if n == 1 {
		return "1 of them " + one
	}
	return strings.Join([]string{fmt.Sprint(n), "of them", many}, " ")
}

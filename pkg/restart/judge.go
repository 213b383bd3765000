package restart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Verdict says what becomes of a container.
type Verdict string

const (
	Restart Verdict = "restart"
	Keep    Verdict = "keep"
	Unknown Verdict = "unknown" // it could not be decided, and nothing is guessed
)

// Route is the way of a node's kubelet through versions.
type Route struct {
	Stops []kubever.Version // from the version that runs to the one it ends at; two or more
	// MovesCgroups says that the first step also changes the cgroup driver or the cgroup root.
	MovesCgroups bool
}

// NewRoute checks that the stops lead from one version to another without turning round.
// Errors: a stop that does not lie between the one before and the end.
func NewRoute(from, to kubever.Version, via ...kubever.Version) (Route, error) {
	stops := append(append([]kubever.Version{from}, via...), to)
	direction := compareVersions(from, to)
	for i := 1; i < len(stops); i++ {
		if step := compareVersions(stops[i-1], stops[i]); step != direction || step == 0 && len(via) > 0 {
			return Route{}, fmt.Errorf("%s is no stop on the way from %s to %s", stops[min(i, len(via))], from, to)
		}
	}
	return Route{Stops: stops}, nil
}

func compareVersions(a, b kubever.Version) int {
	return cmp.Or(cmp.Compare(a.Minor, b.Minor), cmp.Compare(a.Patch, b.Patch))
}

// Outcome is the verdict on one container, over the whole route.
// Units: Restarts counts the stops at which it is restarted for certain; Verdict is Restart when that is not 0.
type Outcome struct {
	Namespace string        `json:"namespace,omitempty"`
	Pod       string        `json:"pod,omitempty"`
	Node      string        `json:"node,omitempty"`
	Owner     string        `json:"owner,omitempty"` // Deployment/web; "" for a pod without an owner
	Container string        `json:"container"`
	Kind      ContainerKind `json:"kind"`
	Verdict   Verdict       `json:"verdict"`
	Restarts  int           `json:"restarts"`
	Why       []string      `json:"why"`
	Recorded  string        `json:"recorded,omitempty"`  // the hash that the runtime holds
	StartedBy string        `json:"startedBy,omitempty"` // the version whose hash that is
}

// Judge says for every container of a pod what becomes of it on the route. Shape: the pod as the API server serves it
// to kubelets. A runtime of nil means that no hashes were recorded: then containers are taken to have been started by
// the version that the route begins with. A container that a given runtime does not have is Unknown. Errors: none; what
// cannot be decided is Unknown, with its reason. Source: computePodActions, podSandboxChanged and shouldRestart of
// k8s.io/kubernetes pkg/kubelet/kuberuntime in every minor. It keeps and changes nothing. Safe for concurrent use.
func (r Route) Judge(pod *v1.Pod, runtime *Runtime) []Outcome {
	p := newPodFacts(pod, runtime)
	var outcomes []Outcome
	for kind, container := range Containers(&pod.Spec) {
		s := newSubject(p, kind, container, r, runtime)
		o := Outcome{
			Namespace: pod.Namespace,
			Pod:       pod.Name,
			Node:      pod.Spec.NodeName,
			Owner:     ownerOf(pod),
			Container: container.Name,
			Kind:      kind,
			Verdict:   Keep,
			Recorded:  s.record.Hash,
			StartedBy: s.startedBy,
		}
		state := s.initial
		for i := 1; i < len(r.Stops); i++ {
			var step hop
			step, state = s.hop(i-1, i, state)
			o.add(step, r.Stops[i], len(r.Stops) > 2)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// add takes over the verdict of one hop. A restart outweighs what is unknown, and that what is kept.
func (o *Outcome) add(step hop, at kubever.Version, several bool) {
	if step.verdict == Restart {
		o.Restarts++
	}
	if step.verdict == Keep {
		if o.Verdict == Keep {
			o.Why = step.why()
		}
		return
	}
	why := step.why()
	for i := range why {
		if several {
			why[i] = "at " + at.String() + ": " + why[i]
		}
	}
	if o.Verdict == Keep {
		o.Why = nil
	}
	o.Why = append(o.Why, why...)
	if o.Verdict != Restart {
		o.Verdict = step.verdict
	}
}

// ownerOf names the controller of a pod, for a ReplicaSet of a Deployment the Deployment: its name is that of the set
// without the hash, which the pod has as a label.
func ownerOf(pod *v1.Pod) string {
	for _, owner := range pod.OwnerReferences {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		if hash := pod.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
			if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
				return "Deployment/" + name
			}
		}
		return owner.Kind + "/" + owner.Name
	}
	return ""
}

// hop is what happens to a container when the kubelet goes from one stop to another. The reasons are put into words
// only when they are needed.
type hop struct {
	verdict Verdict
	why     func() []string
}

func hopf(v Verdict, format string, args ...any) hop {
	return hop{v, func() []string { return []string{fmt.Sprintf(format, args...)} }}
}

// state is what is known about the recorded hash of a container between two hops.
type state struct {
	sums    []Sum           // one of these is recorded; none for nothing that can be read
	from    kubever.Version // whose kubelet computed them; the zero version if that is not known
	legacy  bool            // by dockertools or rkt
	missing bool            // a runtime was given, and does not have the container
}

// subject is a container on a route.
type subject struct {
	pod       *podFacts
	kind      ContainerKind
	container *v1.Container
	route     Route
	record    Record
	startedBy string
	initial   state
	failed    error   // it has no hash
	sums      [][]Sum // by stop, when they were computed
}

func newSubject(p *podFacts, kind ContainerKind, container *v1.Container, r Route, runtime *Runtime) *subject {
	s := &subject{pod: p, kind: kind, container: container, route: r, sums: make([][]Sum, len(r.Stops))}
	if runtime == nil {
		s.initial = s.at(0)
		return s
	}
	record, ok := runtime.find(p.pod, container.Name)
	if !ok {
		s.initial = state{missing: true}
		return s
	}
	s.record = record
	s.initial = s.recorded(r.Stops[0])
	return s
}

// at is the state after the kubelet of a stop has looked at the container, or started it.
func (s *subject) at(stop int) state {
	return state{sums: s.sumsOf(stop), from: s.route.Stops[stop]}
}

func (s *subject) sumsOf(stop int) []Sum {
	if s.sums[stop] == nil && s.failed == nil {
		s.sums[stop], s.failed = Hashes(s.container, s.route.Stops[stop], API)
	}
	return s.sums[stop]
}

// recorded finds the version whose kubelet computed the recorded hash: the one that runs, or else an older one.
func (s *subject) recorded(running kubever.Version) state {
	sum, ok := ParseSum(s.record.Hash)
	if !ok {
		return state{}
	}
	recorded := state{sums: []Sum{sum}}
	for minor := running.Minor; minor >= kubever.Oldest; minor-- {
		version := kubever.Version{Minor: minor}
		if minor == running.Minor {
			version = running
		}
		sums, err := Hashes(s.container, version, API)
		if kubever.Behaves(kubever.BehaviourDockertools, minor) {
			legacy, err := legacyHash(s.container, minor, API)
			recorded.legacy = err == nil && legacy == sum
		}
		if recorded.legacy || err == nil && slices.Contains(sums, sum) {
			recorded.from = version
			s.startedBy = version.String()
			break
		}
	}
	return recorded
}

// hop says what happens between two stops of the route, and what is recorded then.
func (s *subject) hop(i, j int, before state) (hop, state) {
	if s.pod.gone != "" {
		return hopf(Keep, "%s", s.pod.gone), before
	}
	whole := s.pod.hop(s.route, i, j)
	if whole.verdict == Restart {
		return whole, s.at(j)
	}
	own, after := s.compare(i, j, before)
	if whole.verdict == Unknown && own.verdict == Keep {
		return whole, after
	}
	return own, after
}

// since is the first minor that behaves so.
func since(b kubever.Behaviour) kubever.Minor { return b.Minors()[0].From }

// compare is the kubelet's comparison of hashes.
func (s *subject) compare(i, j int, before state) (hop, state) {
	from, to := s.route.Stops[i], s.route.Stops[j]
	switch {
	case s.kind == EphemeralContainer:
		return hopf(Keep, "the hash of an ephemeral container is never compared"), before
	case s.kind == InitContainer:
		return hopf(Keep, "the hash of an init container is never compared"), before
	case s.pod.stopped(s.container.Name):
		return hopf(Keep, "not running: there is nothing to restart"), before
	case s.kind == SidecarContainer && !kubever.Behaves(kubever.BehaviourSidecarContainers, min(from.Minor, to.Minor)):
		return hopf(Unknown, "the %s kubelet takes a sidecar for an init container that ends",
			min(from.Minor, to.Minor)), before
	case s.kind == SidecarContainer && !kubever.Behaves(kubever.BehaviourSidecarHashCompared, to.Minor):
		return hopf(Keep, "the %s kubelet does not compare the hashes of sidecars; kubelets do since %s", to.Minor,
			since(kubever.BehaviourSidecarHashCompared)), before
	}
	after := s.at(j)
	if s.failed != nil {
		return hopf(Unknown, "%v", s.failed), after
	}
	return s.verdict(before, to, after.sums), after
}

// verdict compares what may be recorded with what the kubelet may compute.
func (s *subject) verdict(before state, to kubever.Version, now []Sum) hop {
	possible := slices.ContainsFunc(before.sums, func(sum Sum) bool { return slices.Contains(now, sum) })
	switch {
	case before.missing:
		return hopf(Unknown, "the runtime has no running container of this name in this pod: is it that of another "+
			"node?")
	case len(before.sums) == 0:
		return hopf(Restart, "no hash is recorded that can be read, which a kubelet takes for a change")
	case possible && len(before.sums) == 1 && len(now) == 1:
		return hopf(Keep, "the %s kubelet computes the same hash", to)
	case possible:
		return hopf(Unknown, "%s", patchReason(patchless(before.from, to)))
	case before.from.Minor == 0:
		return hopf(Unknown, "the recorded hash %s is none that %s or an older kubelet computes for this definition: "+
			"it was changed in place, an API server changed a default, or the kubelet is a patched "+
			"one", before.sums[0], s.route.Stops[0])
	case before.legacy:
		return hopf(Restart, "the recorded hash is an adler32 of dockertools or rkt, which the %s kubelet does not "+
			"compute", to)
	}
	return hop{Restart, func() []string {
		if why := explain(s.container, before.from.Minor, to.Minor); len(why) > 0 {
			return why
		}
		return []string{fmt.Sprintf("the %s kubelet computes %s instead of %s", to, now[0], before.sums[0])}
	}}
}

// patchless is the one of two versions whose hashes depend on a patch release that is not named.
func patchless(a, b kubever.Version) kubever.Minor {
	if escapesSince(a.Minor) != 0 && !a.HasPatch {
		return a.Minor
	}
	return b.Minor
}

func patchReason(minor kubever.Minor) string {
	return fmt.Sprintf("a backspace or form feed is in it, which %s hashes in another way from patch release %d on: "+
		"name the patch release",
		minor, escapesSince(minor))
}

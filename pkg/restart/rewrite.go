package restart

import (
	v1 "k8s.io/api/core/v1"
)

// Rewrite is what the metadata of a container would have to say for a new kubelet to keep it.
type Rewrite struct {
	Namespace string        `json:"namespace,omitempty"`
	Pod       string        `json:"pod,omitempty"`
	Node      string        `json:"node,omitempty"`
	Container string        `json:"container"`
	Kind      ContainerKind `json:"kind"`
	ID        string        `json:"id,omitempty"` // of the runtime, if it was asked
	Key       string        `json:"key"`          // annotation of a CRI runtime, or label of docker
	// the present value, or without a runtime the one that it should have
	Recorded string `json:"recorded,omitempty"`
	New      string `json:"new,omitempty"` // "" if there is no value that can be trusted
	Why      string `json:"why,omitempty"` // of no value
}

// Rewrites computes for the containers of a pod whose hash kubelets compare what would have to be recorded at the end
// of the route. It writes nothing anywhere. Containers for which Judge gives Unknown have no value: to write one could
// hide a change of the definition for ever. The pod and the runtime are those of [Route.Judge].
func (r Route) Rewrites(pod *v1.Pod, runtime *Runtime) []Rewrite {
	facts := newPodFacts(pod, runtime)
	if facts.gone != "" {
		return nil
	}
	last := len(r.Stops) - 1
	var rewrites []Rewrite
	for kind, container := range Containers(&pod.Spec) {
		if kind != AppContainer && kind != SidecarContainer || facts.stopped(container.Name) {
			continue
		}
		s := newSubject(facts, kind, container, r, runtime)
		w := Rewrite{
			Namespace: pod.Namespace,
			Pod:       pod.Name,
			Node:      pod.Spec.NodeName,
			Container: container.Name,
			Kind:      kind,
			ID:        s.record.ID,
			Key:       s.record.Key,
			Recorded:  s.record.Hash,
		}
		if w.Key == "" {
			w.Key = annotationHash
			if facts.docker {
				w.Key = dockerPrefix + annotationHash
			}
		}
		if runtime == nil && len(s.initial.sums) > 0 {
			w.Recorded = s.initial.sums[0].String()
		}
		w.New, w.Why = s.newValue(last)
		rewrites = append(rewrites, w)
	}
	return rewrites
}

// newValue is the one hash that the kubelet of the last stop can compute, or why there is none.
func (s *subject) newValue(last int) (value, why string) {
	whole := s.pod.hop(s.route, 0, last)
	to, sums := s.route.Stops[last], s.sumsOf(last)
	switch {
	case s.failed != nil:
		return "", s.failed.Error()
	case whole.verdict == Restart:
		return "", "no value keeps it: " + whole.why()[0]
	case whole.verdict == Unknown:
		return "", whole.why()[0]
	case len(sums) > 1:
		return "", patchReason(to.Minor)
	}
	if !s.initial.missing && len(s.initial.sums) == 0 {
		return "", "no hash is recorded that can be read: nothing says of which definition it was"
	}
	if step := s.verdict(s.initial, to, sums); step.verdict == Unknown {
		return "", step.why()[0]
	}
	return sums[0].String(), ""
}

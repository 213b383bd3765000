package restart

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Paths compares the ways from one version to another by what they restart. It counts for every pair of minors on the
// way the containers that a step between them restarts; how many pods there are makes no difference to its size.
type Paths struct {
	all   Route // through every minor
	steps [][]Count
}

// NewPaths begins with no pods. Only the ends of the route count; minors between them have no patch release.
func NewPaths(route Route) *Paths {
	from, to := route.Stops[0], route.Stops[len(route.Stops)-1]
	p := &Paths{all: Route{Stops: []kubever.Version{from}, MovesCgroups: route.MovesCgroups}}
	step := kubever.Minor(1)
	if to.Minor < from.Minor {
		step = -1
	}
	for minor := from.Minor; minor != to.Minor; {
		minor += step
		stop := kubever.Version{Minor: minor}
		if minor == to.Minor {
			stop = to
		}
		p.all.Stops = append(p.all.Stops, stop)
	}
	p.steps = make([][]Count, len(p.all.Stops))
	for i := range p.steps {
		p.steps[i] = make([]Count, len(p.all.Stops))
	}
	return p
}

// Add counts the containers of a pod.
func (p *Paths) Add(pod *v1.Pod, runtime *Runtime) {
	facts := newPodFacts(pod, runtime)
	if facts.gone != "" {
		return
	}
	for kind, container := range Containers(&pod.Spec) {
		s := newSubject(facts, kind, container, p.all, runtime)
		for i := range p.all.Stops {
			before := s.before(i)
			for j := i + 1; j < len(p.all.Stops); j++ {
				step, _ := s.hop(i, j, before)
				p.steps[i][j].Add(step.verdict)
			}
		}
	}
}

// before is the state at a stop, whichever way led to it: a container that was compared has the hash of the stop now,
// for it had that or was restarted. Sidecars are not compared until the first stop that does.
func (s *subject) before(stop int) state {
	if stop == 0 || s.kind == SidecarContainer &&
		!kubever.Behaves(kubever.BehaviourSidecarHashCompared, s.route.Stops[stop].Minor) {
		return s.initial
	}
	return s.at(stop)
}

// Path is the best way whose steps are no longer than allowed.
type Path struct {
	MaxStep int               `json:"maxStep"` // in minors; 0 for any
	Stops   []kubever.Version `json:"stops"`
	Restart int               `json:"restart"` // restarts of containers, each counted as often as it happens
	Unknown int               `json:"unknown"` // steps of containers that could not be decided
}

// Best finds for steps of any length, and for steps of at most 3, 2 and 1 minors, the way that restarts the fewest
// containers; of those the one that leaves the least undecided, and then the one with the fewest stops. A direct step
// is never worse than a way with stops, since a container that is kept at a stop already has the hash of the stop.
func (p *Paths) Best() []Path {
	last := len(p.all.Stops) - 1
	if last == 0 {
		return nil
	}
	var best []Path
	for _, limit := range []int{0, 3, 2, 1} {
		if limit < last {
			best = append(best, p.shortest(limit))
		}
	}
	return best
}

func (p *Paths) shortest(limit int) Path {
	type way struct {
		cost  Count
		stops int
		from  int
	}
	ways := make([]way, len(p.all.Stops))
	for j := 1; j < len(ways); j++ {
		for i := range j {
			if limit > 0 && j-i > limit {
				continue
			}
			w := way{ways[i].cost.plus(p.steps[i][j]), ways[i].stops + 1, i}
			if ways[j].stops == 0 || w.cost.less(ways[j].cost) || w.cost == ways[j].cost && w.stops < ways[j].stops {
				ways[j] = w
			}
		}
	}
	last := len(ways) - 1
	path := Path{MaxStep: limit, Restart: ways[last].cost.Restart, Unknown: ways[last].cost.Unknown}
	for at := last; at > 0; at = ways[at].from {
		path.Stops = append([]kubever.Version{p.all.Stops[at]}, path.Stops...)
	}
	path.Stops = append([]kubever.Version{p.all.Stops[0]}, path.Stops...)
	return path
}

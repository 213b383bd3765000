package restart

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func pathString(p Path) (s string) {
	for i, stop := range p.Stops {
		if i > 0 {
			s += " "
		}
		s += stop.String()
	}
	return s
}

func TestBestFindsTheCheapestWay(t *testing.T) {
	paths := NewPaths(route(t, "1.12", "1.17"))
	mounts := func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts = make([]v1.VolumeMount, 1) }
	security := func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{} }
	for range 3 {
		paths.Add(running(mounts), nil) // changes in 1.14 and 1.16
	}
	paths.Add(running(security), nil) // changes in 1.15 and 1.16
	want := map[int]struct {
		path    string
		restart int
	}{
		0: {"1.12 1.17", 4},
		3: {"1.12 1.13 1.16 1.17", 4},     // 1.13 is free, and all changes are in one step
		2: {"1.12 1.14 1.16 1.17", 3 + 4}, // mounts first, and 1.15 is skipped
		1: {"1.12 1.13 1.14 1.15 1.16 1.17", 3 + 1 + 4},
	}
	best := paths.Best()
	if len(best) != len(want) {
		t.Fatalf("%d paths, want %d", len(best), len(want))
	}
	for _, p := range best {
		if w := want[p.MaxStep]; pathString(p) != w.path || p.Restart != w.restart || p.Unknown != 0 {
			t.Errorf("steps of %d: %s, %d restarts, %d unknown; want %s, %d", p.MaxStep, pathString(p), p.Restart,
				p.Unknown, w.path, w.restart)
		}
	}
}

// TestPathsCostWhatJudgeSays compares the two ways to count: pair by pair, and along a route.
func TestPathsCostWhatJudgeSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var pods []*v1.Pod
	for i, container := range releaseContainers(t) {
		pod := running()
		container.Name = "app"
		pod.Spec.Containers[0] = *container
		switch i % 5 {
		case 1:
			withDocker(pod)
		case 2:
			withStatic(pod)
		case 3:
			withSidecar(pod)
		}
		pods = append(pods, pod)
	}
	for _, ends := range [][2]string{{"1.6", "1.36"}, {"1.28", "1.36"}, {"1.16", "1.12"}} {
		paths := NewPaths(route(t, ends[0], ends[1]))
		runtimes := make([]*Runtime, len(pods))
		for i, pod := range pods {
			if i%3 == 0 {
				minor := kubever.Oldest + kubever.Minor(random.IntN(int(kubever.Newest-kubever.Oldest)+1))
				runtimes[i] = recorded(pod, hashOf(t, pod.Spec.Containers[0], minor))
			}
			paths.Add(pod, runtimes[i])
		}
		for _, path := range paths.Best() {
			restarts := 0
			for i, pod := range pods {
				for _, o := range (Route{Stops: path.Stops}).Judge(pod, runtimes[i]) {
					restarts += o.Restarts
				}
			}
			if restarts != path.Restart {
				t.Errorf("%s: %d restarts, but judged stop by stop %d", pathString(path), path.Restart, restarts)
			}
			if path.Restart < paths.Best()[0].Restart {
				t.Errorf("%s restarts %d, fewer than the direct step, %d", pathString(path), path.Restart,
					paths.Best()[0].Restart)
			}
		}
	}
}

func TestBestOfOneMinorIsNothing(t *testing.T) {
	if best := NewPaths(route(t, "1.12.1", "1.12.3")).Best(); best != nil {
		t.Errorf("Best = %v, want none: there is no way to choose", best)
	}
	if best := NewPaths(route(t, "1.12", "1.13")).Best(); len(best) != 1 || pathString(best[0]) != "1.12 1.13" {
		t.Errorf("Best = %v, want the only step", best)
	}
}

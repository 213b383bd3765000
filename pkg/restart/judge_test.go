package restart

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// defaulted is a container as an API server serves it.
func defaulted(name string, change ...func(*v1.Container)) v1.Container {
	c := v1.Container{
		Name: name, Image: "registry.example/app:1.0", TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile, ImagePullPolicy: v1.PullIfNotPresent,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// running is a pod on a node with one container, which containerd runs.
func running(change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u1"},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{defaulted("app")}},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.7", ContainerStatuses: []v1.ContainerStatus{
			{Name: "app", ContainerID: "containerd://c1",
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func route(t testing.TB, versions ...string) Route {
	t.Helper()
	var stops []kubever.Version
	for _, text := range versions {
		v, err := kubever.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, v)
	}
	last := len(stops) - 1
	r, err := NewRoute(stops[0], stops[last], stops[1:last]...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recorded is a runtime that holds the hash for the container app of the pod.
func recorded(pod *v1.Pod, hash string) *Runtime {
	rt := new(Runtime)
	rt.Add(Record{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Container: "app", ID: "c1",
		Key: annotationHash, Hash: hash})
	return rt
}

func hashOf(t testing.TB, c v1.Container, minor kubever.Minor) string {
	t.Helper()
	sum, err := Hash(&c, minor, API)
	if err != nil {
		t.Fatal(err)
	}
	return sum.String()
}

func legacyHashOf(t testing.TB, c v1.Container, minor kubever.Minor) string {
	t.Helper()
	sum, err := legacyHash(&c, minor, API)
	if err != nil {
		t.Fatal(err)
	}
	return sum.String()
}

func withDocker(pod *v1.Pod) { pod.Status.ContainerStatuses[0].ContainerID = "docker://c1" }
func withStatic(pod *v1.Pod) {
	pod.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "abc"}
}
func withArgs(args ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers[0].Args = args }
}
func withSidecar(pod *v1.Pod) {
	always := v1.ContainerRestartPolicyAlways
	sidecar := defaulted("app", func(c *v1.Container) { c.RestartPolicy = &always })
	pod.Spec.InitContainers = []v1.Container{sidecar}
	pod.Spec.Containers[0].Name = "main"
}

func TestJudge(t *testing.T) {
	app := defaulted("app")
	for _, c := range []struct {
		name     string
		pod      *v1.Pod
		runtime  func(*v1.Pod) *Runtime
		route    []string
		want     Verdict
		restarts int
		why      string // part of the reasons
	}{
		{name: "the same hash", pod: running(), route: []string{"1.9", "1.15"}, want: Keep,
			why: "the 1.15 kubelet computes the same hash"},
		{name: "another algorithm", pod: running(), route: []string{"1.15", "1.16"}, want: Restart, restarts: 1,
			why: "hashes JSON instead of the struct"},
		{name: "two algorithms, one jump", pod: running(), route: []string{"1.15", "1.31"}, want: Restart, restarts: 1,
			why: "hashes only name and image"},
		{name: "two algorithms, a stop", pod: running(), route: []string{"1.15", "1.20", "1.31"}, want: Restart,
			restarts: 2, why: "at 1.31: the 1.31 kubelet"},
		{name: "a stop that costs nothing", pod: running(), route: []string{"1.9", "1.12", "1.15"}, want: Keep,
			why: "the 1.15 kubelet"},
		{name: "back", pod: running(), route: []string{"1.31", "1.30"}, want: Restart, restarts: 1,
			why: "the 1.30 kubelet hashes JSON instead of only"},
		{name: "a patch release", pod: running(), route: []string{"1.12.1", "1.12.10"}, want: Keep,
			why: "the 1.12.10 kubelet"},
		{name: "nothing", pod: running(), route: []string{"1.12", "1.12"}, want: Keep},

		{name: "recorded by the one that runs", pod: running(), route: []string{"1.12", "1.17"}, want: Restart,
			restarts: 1,
			runtime:  func(p *v1.Pod) *Runtime { return recorded(p, hashOf(t, app, 12)) }, why: "the 1.16 kubelet"},
		{name: "recorded by an older one", pod: running(), route: []string{"1.9", "1.12"}, want: Restart, restarts: 1,
			runtime: func(p *v1.Pod) *Runtime {
				return recorded(p, hashOf(t, app, 8))
			}, why: "every container: volumeDevices is new in 1.9"},
		{name: "recorded by the new one", pod: running(), route: []string{"1.12", "1.17"}, want: Keep,
			runtime: func(p *v1.Pod) *Runtime {
				return recorded(p, hashOf(t, app, 17))
			}, why: "the 1.17 kubelet computes the same hash"},
		{name: "recorded by nobody", pod: running(), route: []string{"1.12", "1.17"}, want: Unknown,
			runtime: func(p *v1.Pod) *Runtime {
				return recorded(p, "12345678")
			}, why: "12345678 is none that 1.12 or an older kubelet computes"},
		{name: "recorded by nobody, but then a stop", pod: running(), route: []string{"1.12", "1.15", "1.17"},
			want: Restart, restarts: 1,
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, "12345678") }, why: "at 1.17: the 1.16 kubelet"},
		{name: "recorded by nobody, and a stop that settles nothing", pod: running(),
			route: []string{"1.16", "1.20", "1.30"}, want: Unknown,
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, "12345678") }, why: "at 1.20: the recorded hash"},
		{name: "recorded by dockertools", pod: running(withDocker), route: []string{"1.6", "1.7"}, want: Restart,
			restarts: 1,
			runtime:  func(p *v1.Pod) *Runtime { return recorded(p, legacyHashOf(t, app, 6)) }, why: "adler32"},
		{name: "not recorded", pod: running(), route: []string{"1.12", "1.13"}, want: Restart, restarts: 1,
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, "") }, why: "no hash is recorded"},
		{name: "on another node", pod: running(), route: []string{"1.12", "1.13"}, want: Unknown,
			runtime: func(*v1.Pod) *Runtime { return new(Runtime) }, why: "that of another node"},
		{name: "of a pod that had the name before", pod: running(), route: []string{"1.12", "1.13"}, want: Unknown,
			runtime: func(p *v1.Pod) *Runtime {
				q := p.DeepCopy()
				q.UID = "u0"
				return recorded(q, "1")
			}, why: "that of another node"},

		{name: "ended", pod: running(func(p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
		}), route: []string{"1.15", "1.16"}, want: Keep, why: "the pod has ended"},
		{name: "not scheduled", pod: running(func(p *v1.Pod) {
			p.Status.Phase, p.Spec.NodeName = v1.PodPending, ""
		}), route: []string{"1.15", "1.16"}, want: Keep, why: "on no node"},
		{name: "crashed", pod: running(func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		}), route: []string{"1.15", "1.16"}, want: Keep, why: "not running"},

		{name: "dockershim", pod: running(withDocker), route: []string{"1.23", "1.24"}, want: Restart, restarts: 1,
			why: "dockershim is gone in 1.24"},
		{name: "dockershim and the hash, in one", pod: running(withDocker), route: []string{"1.23", "1.31"},
			want: Restart, restarts: 1, why: "dockershim"},
		{name: "dockershim, then the hash", pod: running(withDocker), route: []string{"1.23", "1.24", "1.31"},
			want: Restart, restarts: 2, why: "at 1.31: the 1.31"},
		{name: "docker before", pod: running(withDocker), route: []string{"1.20", "1.23"}, want: Keep},
		{name: "cri-dockerd", pod: running(withDocker), route: []string{"1.24", "1.30"}, want: Keep},
		{name: "cri-dockerd, back", pod: running(withDocker), route: []string{"1.24", "1.23"}, want: Unknown,
			why: "cri-dockerd"},
		{name: "containerd", pod: running(), route: []string{"1.23", "1.24"}, want: Keep},

		{name: "no address", pod: running(func(p *v1.Pod) {
			p.Status.PodIP = ""
		}), route: []string{"1.7", "1.8"}, want: Restart, restarts: 1, why: "no IP address"},
		{name: "no address of its own", pod: running(func(p *v1.Pod) {
			p.Status.PodIP, p.Spec.HostNetwork = "", true
		}), route: []string{"1.7", "1.8"}, want: Keep},
		{name: "no address, later", pod: running(func(p *v1.Pod) {
			p.Status.PodIP = ""
		}), route: []string{"1.9", "1.10"}, want: Keep},

		{name: "static, rewritten", pod: running(withStatic), route: []string{"1.20", "1.21"}, want: Restart,
			restarts: 1, why: "computed in another way since 1.21"},
		{name: "static, rewritten again", pod: running(withStatic), route: []string{"1.34", "1.36"}, want: Restart,
			restarts: 1, why: "since 1.35"},
		{name: "static, other fields", pod: running(withStatic), route: []string{"1.17", "1.18"}, want: Restart,
			restarts: 1, why: "assume that it is recreated"},
		{name: "static, no other fields", pod: running(withStatic), route: []string{"1.16", "1.17"}, want: Unknown,
			why: "none is known to have changed by 1.17"},
		{name: "static, several steps", pod: running(withStatic), route: []string{"1.16", "1.18"}, want: Restart,
			restarts: 1, why: "assume"},
		{name: "static, a patch release", pod: running(withStatic), route: []string{"1.16.1", "1.16.9"}, want: Keep},

		{name: "sidecar, not compared", pod: running(withSidecar), route: []string{"1.28", "1.31"}, want: Keep,
			why: "does not compare the hashes of sidecars"},
		{name: "sidecar, compared", pod: running(withSidecar), route: []string{"1.30", "1.32"}, want: Restart,
			restarts: 1, why: "only name and image"},
		{name: "sidecar, later", pod: running(withSidecar), route: []string{"1.30", "1.31", "1.32"}, want: Restart,
			restarts: 1, why: "at 1.32: the 1.31 kubelet"},
		{name: "sidecar of 1.31", pod: running(withSidecar), route: []string{"1.31", "1.32"}, want: Keep},
		{name: "sidecar, not known", pod: running(withSidecar), route: []string{"1.27", "1.36"}, want: Unknown,
			why: "takes a sidecar for an init container"},
		{name: "sidecar without a record, later", pod: running(withSidecar), route: []string{"1.30", "1.31", "1.32"},
			want: Unknown,
			runtime: func(*v1.Pod) *Runtime {
				return new(Runtime)
			}, why: "at 1.32: the runtime has no running container"},

		{name: "a backspace", pod: running(withArgs("\b")), route: []string{"1.26", "1.30"}, want: Restart, restarts: 1,
			why: "computes"},
		{name: "a backspace, no patch", pod: running(withArgs("\b")), route: []string{"1.26", "1.28"}, want: Unknown,
			why: "1.28 hashes in another way from patch release 12 on"},
		{name: "a backspace, from no patch", pod: running(withArgs("\b")), route: []string{"1.29", "1.30"},
			want: Unknown, why: "1.29 hashes in another way from patch release 7 on"},
		{name: "a backspace, a patch", pod: running(withArgs("\b")), route: []string{"1.28.11", "1.28.12"},
			want: Restart, restarts: 1},
		{name: "a backspace, no difference", pod: running(withArgs("\b")), route: []string{"1.28.12", "1.30"},
			want: Keep},
		{name: "a backspace, another algorithm", pod: running(withArgs("\b")), route: []string{"1.12", "1.28"},
			want: Restart, restarts: 1, why: "JSON"},
	} {
		var runtime *Runtime
		if c.runtime != nil {
			runtime = c.runtime(c.pod)
		}
		for _, got := range route(t, c.route...).Judge(c.pod, runtime) {
			if got.Container != "app" {
				continue
			}
			why := strings.Join(got.Why, "; ")
			if got.Verdict != c.want || got.Restarts != c.restarts || !strings.Contains(why, c.why) || why == "" {
				t.Errorf("%s, %v: %s, %d restarts, because %q; want %s, %d, %q", c.name, c.route, got.Verdict,
					got.Restarts, why, c.want, c.restarts, c.why)
			}
		}
	}
}

func TestJudgeNamesWhoStartedTheContainer(t *testing.T) {
	pod, app := running(), defaulted("app")
	for _, c := range []struct{ hash, want string }{
		{hashOf(t, app, 12), "1.12"}, // the one that runs, though 1.9 computes the same
		{hashOf(t, app, 8), "1.8"},
		{legacyHashOf(t, app, 7), "1.8"}, // the same fields
		{"1", ""},
	} {
		got := route(t, "1.12", "1.36").Judge(pod, recorded(pod, c.hash))[0]
		if got.StartedBy != c.want || got.Recorded != c.hash {
			t.Errorf("recorded %s: %+v, want it started by %q", c.hash, got, c.want)
		}
	}
}

func TestJudgeCoversEveryContainerOfAPod(t *testing.T) {
	pod := running(withSidecar, func(p *v1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, defaulted("prepare"))
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon(defaulted("debug"))}}
	})
	verdicts := func(r Route) (list []string) {
		for _, o := range r.Judge(pod, nil) {
			list = append(list, o.Container+" "+string(o.Kind)+" "+string(o.Verdict))
		}
		return list
	}
	want := []string{"main app restart", "app sidecar keep", "prepare init keep", "debug ephemeral keep"}
	if got := verdicts(route(t, "1.30", "1.31")); !slices.Equal(got, want) {
		t.Errorf("by hash: %q, want %q", got, want)
	}
	cgroups := route(t, "1.31", "1.32")
	cgroups.MovesCgroups = true
	want = []string{"main app restart", "app sidecar restart", "prepare init restart", "debug ephemeral restart"}
	if got := verdicts(cgroups); !slices.Equal(got, want) {
		t.Errorf("with other cgroups: %q, want %q", got, want)
	}
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	if why := cgroups.Judge(pod, nil)[0].Why[0]; !strings.Contains(why, "does not come back") {
		t.Errorf("restartPolicy Never: %q, want to hear that it does not come back", why)
	}
}

func TestJudgeLooksAtSandboxes(t *testing.T) {
	for _, c := range []struct {
		name      string
		sandboxes []Sandbox
		route     []string
		want      Verdict
		why       string
	}{
		{"ready", []Sandbox{{Ready: true, Created: 2}, {Created: 1}}, []string{"1.9", "1.10"}, Keep, ""},
		{"two ready", []Sandbox{{Ready: true}, {Ready: true}}, []string{"1.9", "1.10"}, Restart,
			"2 sandboxes that are ready"},
		{"the newest not ready", []Sandbox{{Ready: true, Created: 1}, {Created: 2}}, []string{"1.9", "1.10"}, Restart,
			"not ready"},
		{"none ready", []Sandbox{{}}, []string{"1.9", "1.10"}, Restart, "not ready"},
		{"host network", []Sandbox{{Ready: true, HasNetwork: true, HostNetwork: true}}, []string{"1.9", "1.10"},
			Restart, "host network true, the pod false"},
		{"no address", []Sandbox{{Ready: true, HasNetwork: true}}, []string{"1.7", "1.8"}, Restart, "no IP address"},
		{"address", []Sandbox{{Ready: true, HasNetwork: true, IP: "10.0.0.7"}}, []string{"1.6", "1.8"}, Keep, ""},
	} {
		pod := running()
		pod.Spec.Containers[0].VolumeMounts = nil
		r := route(t, c.route...)
		rt := recorded(pod, hashOf(t, pod.Spec.Containers[0], r.Stops[0].Minor))
		for _, s := range c.sandboxes {
			s.Namespace, s.Pod, s.UID = pod.Namespace, pod.Name, string(pod.UID)
			rt.AddSandbox(s)
		}
		got := r.Judge(pod, rt)[0]
		if got.Verdict != c.want || !strings.Contains(strings.Join(got.Why, "; "), c.why) {
			t.Errorf("%s: %+v, want %s, %q", c.name, got, c.want, c.why)
		}
	}
}

func TestNewRouteRefusesDetours(t *testing.T) {
	for _, text := range []string{"1.12 1.20 1.17", "1.12 1.11 1.17", "1.12 1.15 1.14 1.17", "1.12 1.12 1.17",
		"1.12 1.17 1.17", "1.17 1.18 1.12", "1.12 1.12 1.12"} {
		var stops []kubever.Version
		for _, word := range strings.Fields(text) {
			v, err := kubever.Parse(word)
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, v)
		}
		last := len(stops) - 1
		if _, err := NewRoute(stops[0], stops[last], stops[1:last]...); err == nil ||
			!strings.Contains(err.Error(), "is no stop on the way") {
			t.Errorf("NewRoute(%s): %v, want an error", text, err)
		}
	}
}

func TestOwnerOfIsTheWorkload(t *testing.T) {
	yes := true
	set := metav1.OwnerReference{Kind: "ReplicaSet", Name: "web-6d4b75cb6d", Controller: &yes}
	for want, pod := range map[string]*v1.Pod{
		"": {
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n1"}}}},
		"ReplicaSet/web-6d4b75cb6d": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{set}}},
		"Deployment/web": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{set},
			Labels: map[string]string{"pod-template-hash": "6d4b75cb6d"}}},
	} {
		if got := ownerOf(pod); got != want {
			t.Errorf("ownerOf(%v) = %q, want %q", pod.ObjectMeta, got, want)
		}
	}
}

package restart

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// podFacts are what decides about a pod as a whole: a new sandbox means that every container starts anew, whatever its
// hash.
type podFacts struct {
	pod    *v1.Pod
	gone   string // why there is nothing to restart
	static bool
	docker bool // its containers are docker's
	noIP   bool // its sandbox has none although it should
	broken string
}

func newPodFacts(pod *v1.Pod, runtime *Runtime) *podFacts {
	p := &podFacts{pod: pod, static: isStatic(pod)}
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		p.gone = "the pod has ended: there is nothing to restart"
	case pod.Status.Phase == v1.PodPending && pod.Spec.NodeName == "":
		p.gone = "the pod is on no node yet: there is nothing to restart"
	}
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		p.docker = p.docker || strings.HasPrefix(status.ContainerID, "docker://")
	}
	p.noIP = pod.Status.Phase == v1.PodRunning && pod.Status.PodIP == "" && !pod.Spec.HostNetwork
	if runtime != nil {
		p.judgeSandboxes(runtime.sandboxesOf(pod))
		for _, r := range runtime.records[podKey{pod.Namespace, pod.Name}] {
			p.docker = p.docker || r.Docker && sameUID(pod, r.UID)
		}
	}
	return p
}

// judgeSandboxes looks at what every kubelet looks at.
func (p *podFacts) judgeSandboxes(sandboxes []Sandbox) {
	if len(sandboxes) == 0 {
		return
	}
	newest, ready := sandboxes[0], 0
	for _, s := range sandboxes {
		if s.Ready {
			ready++
		}
		if s.Created > newest.Created {
			newest = s
		}
	}
	switch {
	case ready > 1:
		p.broken = fmt.Sprintf("the pod has %d sandboxes that are ready, so that a kubelet makes a new one", ready)
	case ready == 0 || !newest.Ready && newest.Created != 0:
		p.broken = "the sandbox of the pod is not ready, so that a kubelet makes a new one"
	case newest.HasNetwork && newest.HostNetwork != p.pod.Spec.HostNetwork:
		p.broken = fmt.Sprintf("the sandbox has host network %t, the pod %t, so that a kubelet makes a new one",
			newest.HostNetwork, p.pod.Spec.HostNetwork)
	case newest.HasNetwork:
		p.noIP = newest.IP == "" && !newest.HostNetwork
	}
}

// isStatic reports whether the kubelet has the pod from a file or a URL. What the API server shows is its mirror.
func isStatic(pod *v1.Pod) bool {
	source := pod.Annotations["kubernetes.io/config.source"]
	return pod.Annotations["kubernetes.io/config.mirror"] != "" || source != "" && source != "api"
}

// stopped reports whether the status says that a container does not run.
func (p *podFacts) stopped(container string) bool {
	for _, status := range slices.Concat(p.pod.Status.ContainerStatuses, p.pod.Status.InitContainerStatuses) {
		if status.Name == container {
			return status.State.Running == nil && (status.State.Terminated != nil || status.State.Waiting != nil)
		}
	}
	return false
}

// crossings are the minors from which on a kubelet recreates pods that older ones left alone.
//
// Source: podSandboxChanged in pkg/kubelet/kuberuntime (not in 1.6.0, 1.6.13 and 1.7.0, there in 1.8.0); the removal of
// dockershim.
var crossings = []struct {
	at      kubever.Minor
	applies func(*podFacts) bool
	why     string
}{
	{8, func(p *podFacts) bool {
		return p.noIP
	}, "the 1.8 kubelet makes a new sandbox for a pod that has no IP address"},
	{DockershimGone, func(p *podFacts) bool {
		return p.docker
	}, "dockershim is gone in 1.24, and another runtime does not see docker's containers"},
}

// DockershimGone is the first minor whose kubelet does not run docker without a CRI.
const DockershimGone kubever.Minor = 24

// hop says whether the way from one stop to another starts the whole pod anew.
func (p *podFacts) hop(r Route, i, j int) hop {
	from, to := r.Stops[i], r.Stops[j]
	if i == 0 && r.MovesCgroups {
		why := "the pod has no cgroup where the new driver or root wants it, so that the kubelet kills it"
		if p.pod.Spec.RestartPolicy == v1.RestartPolicyNever {
			why += "; with restartPolicy Never it does not come back"
		}
		return hopf(Restart, "%s", why)
	}
	if i == 0 && p.broken != "" {
		return hopf(Restart, "%s", p.broken)
	}
	for _, c := range crossings {
		if from.Minor < c.at && c.at <= to.Minor && c.applies(p) {
			return hopf(Restart, "%s", c.why)
		}
	}
	if p.static {
		if h := staticHop(from.Minor, to.Minor); h.verdict != Keep {
			return h
		}
	}
	if p.docker && to.Minor < DockershimGone && DockershimGone <= from.Minor {
		return hopf(Unknown, "whether the dockershim of %s takes over the containers that cri-dockerd started is not "+
			"known", to.Minor)
	}
	return hop{verdict: Keep}
}

// The UID of a static pod is a hash of the pod, as the kubelet has it inside with its own defaults: a field more in any
// type of a pod is another pod. uidRewritten are the minors that compute it in another way, uidAlike those that have
// the same fields as the minor before, as far as the types of the API tell; the hash itself is not computed here.
//
// Source: applyDefaults in pkg/kubelet/config/common.go: from 1.21 on the host and the file are hashed too, from 1.35
// on by FNV.
var (
	uidRewritten = []kubever.Minor{21, 35}
	uidAlike     = []kubever.Minor{17, 20}
)

func staticHop(from, to kubever.Minor) hop {
	h := hop{verdict: Keep}
	for minor := min(from, to) + 1; minor <= max(from, to); minor++ {
		switch {
		case slices.Contains(uidRewritten, minor):
			return hopf(Restart, "static pod: its UID is computed in another way since %s, so that it becomes "+
				"another pod", minor)
		case !slices.Contains(uidAlike, minor):
			h = hopf(Restart, "static pod: assume that it is recreated, since its UID is a hash of all its fields, "+
				"and those changed by %s", minor)
		case h.verdict == Keep:
			h = hopf(Unknown, "static pod: its UID is a hash of all its fields, of which none is known to have "+
				"changed by %s", minor)
		}
	}
	return h
}

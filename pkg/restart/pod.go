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

// dockershimGone is the first minor whose kubelet does not run docker without a CRI.
func dockershimGone() kubever.Minor { return kubever.BehaviourDockershim.Minors()[0].To + 1 }

// losesDockershim reports whether the first kubelet runs docker without a CRI, and the second does not.
func losesDockershim(from, to kubever.Minor) bool {
	return kubever.Behaves(kubever.BehaviourDockershim, from) && !kubever.Behaves(kubever.BehaviourDockershim, to)
}

// recreated says why a kubelet recreates a pod that an older one left alone, "" when it does not.
func (p *podFacts) recreated(from, to kubever.Minor) string {
	switch sandboxes := kubever.BehaviourSandboxWithoutIP; {
	case p.noIP && !kubever.Behaves(sandboxes, from) && kubever.Behaves(sandboxes, to):
		return fmt.Sprintf("the %s kubelet makes a new sandbox for a pod that has no IP address", since(sandboxes))
	case p.docker && losesDockershim(from, to):
		return fmt.Sprintf("dockershim is gone in %s, and another runtime does not see docker's containers",
			dockershimGone())
	}
	return ""
}

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
	if why := p.recreated(from.Minor, to.Minor); why != "" {
		return hopf(Restart, "%s", why)
	}
	if p.static {
		if h := staticHop(from.Minor, to.Minor); h.verdict != Keep {
			return h
		}
	}
	if p.docker && losesDockershim(to.Minor, from.Minor) {
		return hopf(Unknown, "whether the dockershim of %s takes over the containers that cri-dockerd started is not "+
			"known", to.Minor)
	}
	return hop{verdict: Keep}
}

// uidMethods are what the way depends on in which a kubelet computes the UID of a static pod.
var uidMethods = []kubever.Behaviour{kubever.BehaviourStaticPodUIDWithHost, kubever.BehaviourStaticPodUIDByFNV}

// rewritesUID reports whether a minor computes the UID of a static pod in another way than the minor before.
func rewritesUID(minor kubever.Minor) bool {
	return slices.ContainsFunc(uidMethods, func(b kubever.Behaviour) bool {
		return kubever.Behaves(b, minor) != kubever.Behaves(b, minor-1)
	})
}

// staticHop judges by the UID of a static pod: a hash of the pod as the kubelet has it inside, with its own defaults,
// so that a field more in any type of a pod is another pod. The hash itself is not computed here.
func staticHop(from, to kubever.Minor) hop {
	h := hop{verdict: Keep}
	for minor := min(from, to) + 1; minor <= max(from, to); minor++ {
		switch {
		case rewritesUID(minor):
			return hopf(Restart, "static pod: its UID is computed in another way since %s, so that it becomes "+
				"another pod", minor)
		case !kubever.Behaves(kubever.BehaviourStaticPodFieldsAsBefore, minor):
			h = hopf(Restart, "static pod: assume that it is recreated, since its UID is a hash of all its fields, "+
				"and those changed by %s", minor)
		case h.verdict == Keep:
			h = hopf(Unknown, "static pod: its UID is a hash of all its fields, of which none is known to have "+
				"changed by %s", minor)
		}
	}
	return h
}

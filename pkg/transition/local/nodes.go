package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kube"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/pkg/restart/cri"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// recordedNode is what was read of a node before its kubelet was changed, and what was predicted.
type recordedNode struct {
	Schema string        `json:"schema"`
	Node   string        `json:"node"`
	Pods   []recordedPod `json:"pods"`
}

const recordSchema = "fusionctl/transition-node/v1"

type recordedPod struct {
	Namespace  string              `json:"namespace"`
	Name       string              `json:"name"`
	UID        types.UID           `json:"uid"`
	Containers []recordedContainer `json:"containers"`
}

type recordedContainer struct {
	Name     string          `json:"name"`
	ID       string          `json:"id"`
	Restarts int32           `json:"restarts"`
	Verdict  restart.Verdict `json:"verdict"`
	Why      []string        `json:"why"`
}

// recordOf is where the record of a node lies.
func (h *Host) recordOf(n *transition.Node) string {
	return filepath.Join(h.Snapshots, n.Name+"."+n.Record+".json")
}

// changeKubelet puts or removes the drop-in of a kubelet's unit and restarts it. The pods are recorded before, by the
// kubelet that still runs; when it is repeated, that record stands.
func (h *Host) changeKubelet(ctx context.Context, host string, a *transition.Action) error {
	now, _, err := state(h.place(host, a.File.Path))
	if err != nil {
		return err
	}
	reached := now == nil
	if a.Kind == transition.ChangeKubelet {
		reached = now != nil && string(now) == string(a.File.Data)
	}
	if h.Rehearsal == "" {
		from := a.Node.From
		_, err := os.Stat(h.recordOf(a.Node))
		if reached && errors.Is(err, fs.ErrNotExist) {
			from, err = a.Node.To, nil // it was never another
			reached = false
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !reached {
			if err := h.record(ctx, a.Node, from); err != nil {
				return fmt.Errorf("recording the pods of node %s: %w", a.Node.Name, err)
			}
		}
	}
	if a.Kind == transition.ChangeKubelet {
		err = h.put(ctx, host, a.File, a.Was)
	} else {
		err = h.remove(host, a.File)
	}
	if err != nil || h.Rehearsal != "" {
		return err
	}
	if err := systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	return systemctl(ctx, "restart", a.Unit)
}

func (h *Host) record(ctx context.Context, n *transition.Node, from kubever.Version) error {
	if err := filetree.Private(h.Snapshots); err != nil {
		return err
	}
	route, err := restart.NewRoute(from, n.To)
	if err != nil {
		return err
	}
	runtime := new(restart.Runtime)
	if err := cri.Read(ctx, n.Runtime, runtime); err != nil {
		return err
	}
	pods, err := podsOf(ctx, &n.Legacy, n.Name)
	if err != nil {
		return err
	}
	record := recordedNode{Schema: recordSchema, Node: n.Name, Pods: []recordedPod{}}
	for _, p := range pods {
		if lives(p) {
			record.Pods = append(record.Pods, recordPod(p, route.Judge(p, runtime)))
		}
	}
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return filetree.WriteFile(h.recordOf(n), data, 0o600)
}

// lives reports whether a pod is to be there afterwards: none that ends by itself, and none of the kubelet's own, which
// becomes another pod under another kubelet.
func lives(p *v1.Pod) bool {
	_, static := p.Annotations[v1.MirrorPodAnnotationKey]
	return !static && p.DeletionTimestamp == nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

// recordPod keeps the containers of a pod that run; one that does not may start at any time.
func recordPod(p *v1.Pod, outcomes []restart.Outcome) recordedPod {
	kept := recordedPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.State.Running == nil {
			continue
		}
		c := recordedContainer{Name: s.Name, ID: s.ContainerID, Restarts: s.RestartCount, Verdict: restart.Unknown}
		for _, o := range outcomes {
			if o.Container == s.Name {
				c.Verdict, c.Why = o.Verdict, o.Why
			}
		}
		kept.Containers = append(kept.Containers, c)
	}
	return kept
}

func podsOf(ctx context.Context, a *transition.Access, node string) ([]*v1.Pod, error) {
	s, err := serverOf(a)
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for p, err := range kube.New(s).Pods(ctx, kube.Selection{Node: node}) {
		if err != nil {
			return nil, fmt.Errorf("the %s API server: %w", a.Side, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// steady is for how long nothing may change once what was predicted has happened: a kubelet looks at every pod when it
// starts, and at those that it takes for changed a second time soon.
const steady = 10 * time.Second

// nodePods waits until what was predicted has happened, and nothing else happens.
func (h *Host) nodePods(ctx context.Context, n *transition.Node) error {
	data, err := os.ReadFile(h.recordOf(n))
	var record recordedNode
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err == nil && (record.Schema != recordSchema || record.Node != n.Name) {
		err = errors.New("is no record of this node")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.recordOf(n), err)
	}
	var since time.Time
	return h.wait(ctx, "the pods of node "+n.Name+" have changed", func(ctx context.Context) error {
		pods, err := podsOf(ctx, &n.Legacy, n.Name)
		if err == nil {
			err = record.compare(pods)
		}
		switch {
		case err != nil:
			since = time.Time{}
			return err
		case since.IsZero():
			since = time.Now()
		}
		if left := steady - time.Since(since); left > 0 {
			return fmt.Errorf("observed for %s more", left.Round(time.Second))
		}
		return nil
	})
}

// compare returns nil when the pods are those of the record, exactly the predicted containers have restarted, each
// once, and all run.
func (r *recordedNode) compare(pods []*v1.Pod) error {
	var problems []error
	for _, was := range r.Pods {
		at := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == was.UID })
		if at < 0 {
			problems = append(problems, fmt.Errorf("pod %s/%s, UID %s, is gone", was.Namespace, was.Name, was.UID))
			continue
		}
		for _, c := range was.Containers {
			problems = append(problems, c.compare(was.Namespace+"/"+was.Name, pods[at].Status.ContainerStatuses))
		}
	}
	return errors.Join(problems...)
}

func (c *recordedContainer) compare(pod string, now []v1.ContainerStatus) error {
	at := slices.IndexFunc(now, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
	if at < 0 {
		return fmt.Errorf("%s, container %s: is gone", pod, c.Name)
	}
	s := &now[at]
	restarts := s.RestartCount - c.Restarts
	switch {
	case c.Verdict == restart.Keep && (restarts != 0 || s.ContainerID != c.ID):
		return fmt.Errorf("%s, container %s: is another one after %d restarts, want the same", pod, c.Name, restarts)
	case c.Verdict == restart.Restart && restarts == 0:
		return fmt.Errorf("%s, container %s: has not restarted yet, as predicted: %s", pod, c.Name,
			strings.Join(c.Why, "; "))
	case restarts < 0 || restarts > 1:
		return fmt.Errorf("%s, container %s: restarted %d times, want once", pod, c.Name, restarts)
	case s.State.Running == nil:
		return fmt.Errorf("%s, container %s: does not run", pod, c.Name)
	}
	return nil
}

var (
	nodes  = discovery.Resource{GroupVersion: v1.SchemeGroupVersion, Name: "nodes", Kind: "Node"}
	leases = discovery.Resource{GroupVersion: coordinationv1.SchemeGroupVersion, Name: "leases", Kind: "Lease",
		Namespaced: true}
	reviews = discovery.Resource{GroupVersion: authorizationv1.SchemeGroupVersion, Name: "subjectaccessreviews",
		Kind: "SubjectAccessReview"}
)

// kubeletPatience is how long a kubelet may take to bring its node back. Pods of a node that is not ready are evicted
// after five minutes: until then the kubelet of before has to be back.
const kubeletPatience = 2 * time.Minute

// nodeReady waits until both API servers return a node that is ready with its kubelet, and until the legacy one has
// seen one heartbeat after another: that it still says ready shows nothing before its patience is over.
func (h *Host) nodeReady(ctx context.Context, n *transition.Node) error {
	first := ""
	patient := &Host{Wait: min(h.Wait, kubeletPatience)}
	return patient.wait(ctx, "node "+n.Name+" is not ready", func(ctx context.Context) error {
		beat := ""
		for _, a := range []*transition.Access{&n.Modern, &n.Legacy} {
			seen, err := readyNode(ctx, a, n)
			if err != nil {
				return fmt.Errorf("the %s API server: %w", a.Side, err)
			}
			beat = seen
		}
		if n.Leases {
			seen, err := leaseOf(ctx, &n.Legacy, n.Name)
			if err != nil {
				return fmt.Errorf("the legacy API server: %w", err)
			}
			beat += " " + seen
		}
		if first == "" {
			first = beat
		}
		if first == beat {
			return errors.New("no heartbeat since: " + beat)
		}
		return nil
	})
}

// readyNode returns the last heartbeat of a node that is ready with the kubelet of its version.
func readyNode(ctx context.Context, a *transition.Access, n *transition.Node) (string, error) {
	s, err := serverOf(a)
	if err != nil {
		return "", err
	}
	text, err := s.Read(ctx, nodes.Object("", n.Name))
	if err != nil {
		return "", err
	}
	var node v1.Node
	if err := utiljson.Unmarshal(text, &node); err != nil {
		return "", err
	}
	if !isVersion(node.Status.NodeInfo.KubeletVersion, n.To.String()) {
		return "", fmt.Errorf("its kubelet is %s, want %s", node.Status.NodeInfo.KubeletVersion, n.To)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return c.LastHeartbeatTime.String(), nil
		} else if c.Type == v1.NodeReady {
			return "", fmt.Errorf("is not ready: %s: %s", c.Reason, c.Message)
		}
	}
	return "", errors.New("has no condition Ready")
}

// leaseOf returns when the Lease of a node was renewed.
func leaseOf(ctx context.Context, a *transition.Access, node string) (string, error) {
	s, err := serverOf(a)
	if err != nil {
		return "", err
	}
	var versions []string
	if versions, err = s.Versions(ctx, coordinationv1.GroupName); err != nil {
		return "", err
	}
	if len(versions) == 0 {
		return "", nil
	}
	of := leases
	if !slices.Contains(versions, of.Version) {
		of.Version = versions[0] // v1beta1 has the same shape
	}
	text, err := s.Read(ctx, of.Object(v1.NamespaceNodeLease, node))
	if errors.Is(err, discovery.ErrNotFound) {
		return "", nil // an old kubelet has none
	}
	var lease coordinationv1.Lease
	if err == nil {
		err = utiljson.Unmarshal(text, &lease)
	}
	if err != nil || lease.Spec.RenewTime == nil {
		return "", err
	}
	return lease.Spec.RenewTime.String(), nil
}

// isVersion reports whether a version, as a program prints it, is one of the plan: v1.36.3 is 1.36.3 and 1.36.
func isVersion(printed, want string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(printed, "v"), strings.TrimPrefix(want, "v"))
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// kubeletProgram checks that a file is the kubelet of a version.
func kubeletProgram(ctx context.Context, c *transition.Check) error {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(limited, c.Path, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", c.Path, err)
	}
	printed := strings.TrimSpace(string(out))
	if version, ok := strings.CutPrefix(printed, "Kubernetes "); !ok || !isVersion(version, c.Version) {
		return fmt.Errorf("%s is %q, want version %s", c.Path, printed, c.Version)
	}
	return nil
}

// nodeNeeds is what a kubelet cannot do without, in the terms of an authorizer. What it may read of config maps and
// secrets follows from its pods. Source: the system:node role of 1.36. A kubelet without rights was seen to renew no
// Lease, and one whose list of services is refused to kill containers that it cannot start.
func nodeNeeds(node string) []authorizationv1.ResourceAttributes {
	const coordination = "coordination.k8s.io"
	return []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "nodes", Name: node},
		{Verb: "patch", Resource: "nodes", Subresource: "status", Name: node},
		{Verb: "patch", Resource: "pods", Subresource: "status"},
		{Verb: "list", Resource: "services"},
		{Verb: "create", Resource: "events"},
		{Verb: "update", Group: coordination, Resource: "leases", Namespace: v1.NamespaceNodeLease, Name: node},
		{Verb: "create", Group: coordination, Resource: "leases", Namespace: v1.NamespaceNodeLease, Name: node},
		{Verb: "get", Group: "storage.k8s.io", Resource: "csinodes", Name: node},
		{Verb: "create", Group: "storage.k8s.io", Resource: "csinodes", Name: node},
	}
}

// nodeRights asks the modern API server, as the kubelet, what its authorizers would allow to the kubelet, and to the
// user by which API servers reach it for logs and exec.
func nodeRights(ctx context.Context, n *transition.Node) error {
	s, err := serverOf(&n.Modern)
	if err != nil {
		return err
	}
	user := "system:node:" + n.Name
	groups := []string{"system:nodes", "system:authenticated"}
	// The Node authorizer lets a kubelet list the pods of its node alone, which a review cannot say before 1.31.
	_, err = podsOf(ctx, &n.Modern, n.Name)
	problems := []error{err}
	for _, need := range nodeNeeds(n.Name) {
		problems = append(problems, mayDo(ctx, s, user, groups, need))
	}
	problems = append(problems, mayDo(ctx, s, n.Client, groups[1:], authorizationv1.ResourceAttributes{Verb: "create",
		Resource: "nodes", Subresource: "proxy", Name: n.Name}))
	return errors.Join(problems...)
}

func mayDo(ctx context.Context, s *apiserver.Server, user string, groups []string,
	need authorizationv1.ResourceAttributes) error {
	if need.Group == "" {
		need.Version = "v1"
	}
	body, err := json.Marshal(authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviews.GroupVersion.String(), Kind: reviews.Kind},
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &need}})
	if err != nil {
		return err
	}
	text, err := s.Send(ctx, apiserver.Write{Verb: http.MethodPost, Path: reviews.Objects(""), Body: body,
		Repeatable: true})
	if err != nil {
		return fmt.Errorf("asking what %s may: %w", user, err)
	}
	var review authorizationv1.SubjectAccessReview
	if err := utiljson.Unmarshal(text, &review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		what := need.Resource
		if need.Subresource != "" {
			what += "/" + need.Subresource
		}
		return fmt.Errorf("%s may not %s %s: %s", user, need.Verb, strings.TrimSpace(what+" "+need.Name),
			review.Status.Reason)
	}
	return nil
}

// budgets checks that what restarts on a node breaks no PodDisruptionBudget of either side.
func budgets(ctx context.Context, c *transition.Check) error {
	route, err := restart.NewRoute(c.Node.From, c.Node.To)
	if err != nil {
		return err
	}
	var problems []error
	for i := range c.Asked {
		a := &c.Asked[i]
		s, err := serverOf(a)
		if err != nil {
			return err
		}
		client := kube.New(s)
		forecast := restart.NewForecast(route, nil, false)
		list, err := client.DisruptionBudgets(ctx, "")
		if err != nil {
			return fmt.Errorf("the %s API server: %w", a.Side, err)
		}
		for _, budget := range list {
			forecast.AddBudget(budget)
		}
		for pod, err := range client.Pods(ctx, kube.Selection{}) {
			if err == nil {
				_, err = forecast.Add(pod)
			}
			if err != nil {
				return fmt.Errorf("the %s API server: %w", a.Side, err)
			}
		}
		for _, wave := range forecast.Totals().Order {
			if slices.Contains(wave.Nodes, c.Node.Name) && len(wave.Breaks) > 0 {
				problems = append(problems, fmt.Errorf("the containers of node %s restart at once, which breaks: %s",
					c.Node.Name, strings.Join(wave.Breaks, ", ")))
			}
		}
	}
	return errors.Join(problems...)
}

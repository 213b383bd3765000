package restart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The names under which kubelets record things with a runtime. Docker knows no annotations: dockershim keeps them as
// labels, with a prefix. Dockertools, which ran containers in 1.6 when the CRI was off, had its annotations without it.
// Source: k8s.io/kubernetes pkg/kubelet/kuberuntime/labels.go, pkg/kubelet/types/labels.go,
// pkg/kubelet/dockershim/helpers.go; unchanged from 1.6 to 1.36.
const (
	labelNamespace   = "io.kubernetes.pod.namespace"
	labelPod         = "io.kubernetes.pod.name"
	labelUID         = "io.kubernetes.pod.uid"
	labelContainer   = "io.kubernetes.container.name"
	annotationHash   = "io.kubernetes.container.hash"
	annotationStarts = "io.kubernetes.container.restartCount"
	dockerPrefix     = "annotation."
	dockerType       = "io.kubernetes.docker.type"
)

// Record is what a runtime holds about a running container of a pod.
type Record struct {
	Namespace string
	Pod       string
	UID       string // of the pod, as the kubelet knows it
	Container string
	ID        string // of the runtime
	Key       string // where the hash is recorded: an annotation, or a label of docker
	Hash      string // as recorded; "" if it is not
	Starts    int    // how often the kubelet has restarted it
	Docker    bool   // run by docker, without a CRI
	Legacy    bool   // started by dockertools, whose hashes are others
}

// Sandbox is what a runtime holds about the sandbox of a pod.
type Sandbox struct {
	Namespace   string
	Pod         string
	UID         string
	Ready       bool
	Created     int64 // nanoseconds since 1970; 0 if not known
	HasNetwork  bool  // whether the two below are known
	HostNetwork bool
	IP          string
}

type podKey struct{ namespace, name string }

// Runtime is what the container runtimes of some nodes hold.
type Runtime struct {
	records   map[podKey][]Record
	sandboxes map[podKey][]Sandbox
	count     int
}

// Add takes over a record of a running container.
func (rt *Runtime) Add(record Record) {
	if rt.records == nil {
		rt.records = map[podKey][]Record{}
	}
	key := podKey{record.Namespace, record.Pod}
	rt.records[key] = append(rt.records[key], record)
	rt.count++
}

// AddSandbox takes over a sandbox.
func (rt *Runtime) AddSandbox(sandbox Sandbox) {
	if rt.sandboxes == nil {
		rt.sandboxes = map[podKey][]Sandbox{}
	}
	key := podKey{sandbox.Namespace, sandbox.Pod}
	rt.sandboxes[key] = append(rt.sandboxes[key], sandbox)
}

// Records counts the containers that were added.
func (rt *Runtime) Records() int { return rt.count }

// find returns the record of a container of the pod; of several the one that was restarted most often, which is the
// newest.
func (rt *Runtime) find(pod *v1.Pod, container string) (found Record, ok bool) {
	for _, r := range rt.records[podKey{pod.Namespace, pod.Name}] {
		if r.Container == container && sameUID(pod, r.UID) && (!ok || r.Starts > found.Starts) {
			found, ok = r, true
		}
	}
	return found, ok
}

func (rt *Runtime) sandboxesOf(pod *v1.Pod) (found []Sandbox) {
	for _, s := range rt.sandboxes[podKey{pod.Namespace, pod.Name}] {
		if sameUID(pod, s.UID) {
			found = append(found, s)
		}
	}
	return found
}

// sameUID reports whether a UID of the runtime can be that of the pod. A static pod is known to the API server by
// another.
func sameUID(pod *v1.Pod, uid string) bool {
	return pod.UID == "" || uid == "" || string(pod.UID) == uid || isStatic(pod)
}

// runtimeBytes bounds what ParseRuntime reads: the containers of a node are some megabytes, with all that inspect says.
const runtimeBytes = 512 << 20

// ParseRuntime reads what a runtime says about its containers, and adds those that run and belong to a pod. Shape: the
// JSON of crictl ps, crictl inspect, crictl pods, crictl inspectp or docker inspect; several one after the other.
// Errors: JSON that is none of these. It returns how many containers it added.
func ParseRuntime(r io.Reader, into *Runtime) (added int, err error) {
	before := into.count
	limited := &io.LimitedReader{R: r, N: runtimeBytes}
	decoder := json.NewDecoder(limited)
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return into.count - before, nil
		}
		if err != nil && limited.N <= 0 {
			err = fmt.Errorf("larger than %d MiB", runtimeBytes>>20)
		}
		if err == nil {
			err = into.parseAll(value)
		}
		if err != nil {
			return into.count - before, err
		}
	}
}

// parseAll reads a document, or an array of documents one by one.
func (rt *Runtime) parseAll(value json.RawMessage) error {
	if value[0] != '[' {
		return rt.parse(value)
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	if _, err := decoder.Token(); err != nil { // the opening bracket
		return err
	}
	for i := 0; decoder.More(); i++ {
		var item json.RawMessage
		err := decoder.Decode(&item)
		if err == nil {
			err = rt.parse(item)
		}
		if err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (rt *Runtime) parse(value json.RawMessage) error {
	var document struct {
		Containers []criContainer `json:"containers"` // crictl ps
		Items      []criSandbox   `json:"items"`      // crictl pods
		Status     *struct {      // crictl inspect, crictl inspectp
			criContainer
			Network *struct {
				IP string `json:"ip"`
			} `json:"network"`
			Linux *struct {
				Namespaces struct {
					Options struct {
						Network string `json:"network"`
					} `json:"options"`
				} `json:"namespaces"`
			} `json:"linux"`
		} `json:"status"`
		dockerContainer
	}
	if err := unmarshal(value, &document); err != nil {
		return err
	}
	other := errors.New("want the JSON of crictl ps, crictl inspect, crictl pods, crictl inspectp or docker inspect")
	switch {
	case document.Containers != nil:
		for _, c := range document.Containers {
			rt.addCRI(c)
		}
	case document.Items != nil:
		for _, s := range document.Items {
			if s.State == "" {
				return other // a list of something else: of pods, say
			}
			rt.addCRISandbox(s)
		}
	case document.Status != nil && strings.HasPrefix(document.Status.State, "SANDBOX_"):
		s := criSandbox{Labels: document.Status.Labels, State: document.Status.State,
			CreatedAt: document.Status.CreatedAt}
		if network, linux := document.Status.Network, document.Status.Linux; network != nil && linux != nil {
			s.hasNetwork, s.ip, s.hostNetwork = true, network.IP, linux.Namespaces.Options.Network == "NODE"
		}
		rt.addCRISandbox(s)
	case document.Status != nil:
		rt.addCRI(document.Status.criContainer)
	case document.ID != "":
		rt.addDocker(document.dockerContainer)
	default:
		return other
	}
	return nil
}

// criContainer is a container as crictl shows it.
type criContainer struct {
	ID          string            `json:"id"`
	State       string            `json:"state"`
	CreatedAt   json.RawMessage   `json:"createdAt"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (rt *Runtime) addCRI(c criContainer) {
	if c.State == "CONTAINER_RUNNING" && c.Labels[labelPod] != "" {
		rt.Add(NewRecord(c.ID, c.Labels, c.Annotations))
	}
}

// NewRecord reads the labels and annotations that a kubelet gives to a container of a CRI runtime.
func NewRecord(id string, labels, annotations map[string]string) Record {
	starts, _ := strconv.Atoi(annotations[annotationStarts]) // only compared; the first start has 0
	return Record{
		Namespace: labels[labelNamespace],
		Pod:       labels[labelPod],
		UID:       labels[labelUID],
		Container: labels[labelContainer],
		ID:        id,
		Key:       annotationHash,
		Hash:      annotations[annotationHash],
		Starts:    starts,
	}
}

// criSandbox is a sandbox as crictl shows it.
type criSandbox struct {
	State       string            `json:"state"`
	CreatedAt   json.RawMessage   `json:"createdAt"`
	Labels      map[string]string `json:"labels"`
	hasNetwork  bool
	hostNetwork bool
	ip          string
}

func (rt *Runtime) addCRISandbox(s criSandbox) {
	if s.Labels[labelPod] == "" {
		return
	}
	created, _ := strconv.ParseInt(strings.Trim(string(s.CreatedAt), `"`), 10, 64) // a time as text leaves 0: not known
	rt.AddSandbox(Sandbox{
		Namespace:   s.Labels[labelNamespace],
		Pod:         s.Labels[labelPod],
		UID:         s.Labels[labelUID],
		Ready:       s.State == "SANDBOX_READY",
		Created:     created,
		HasNetwork:  s.hasNetwork,
		HostNetwork: s.hostNetwork,
		IP:          s.ip,
	})
}

// dockerContainer is a container as docker inspect shows it.
type dockerContainer struct {
	ID    string `json:"Id"`
	State struct {
		Running bool `json:"Running"`
	} `json:"State"`
	Config struct {
		Labels map[string]string `json:"Labels"`
	} `json:"Config"`
}

func (rt *Runtime) addDocker(c dockerContainer) {
	labels := c.Config.Labels
	if !c.State.Running || labels[labelPod] == "" || labels[dockerType] == "podsandbox" ||
		labels[labelContainer] == "POD" {
		return
	}
	annotations := map[string]string{}
	for name, value := range labels {
		if name, ok := strings.CutPrefix(name, dockerPrefix); ok {
			annotations[name] = value
		}
	}
	record := NewRecord(c.ID, labels, annotations)
	record.Docker, record.Key = true, dockerPrefix+annotationHash
	if legacy, ok := labels[annotationHash]; ok && record.Hash == "" {
		record.Hash, record.Key, record.Legacy = legacy, annotationHash, true
	}
	rt.Add(record)
}

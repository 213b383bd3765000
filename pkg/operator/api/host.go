package api

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The names of the resource of hosts.
const (
	HostPlural   = "controlplanehosts"
	HostSingular = "controlplanehost"
	HostShort    = "cph"
	HostKind     = "ControlPlaneHost"
)

// ControlPlaneHost is a machine of a control plane on hosts: what the operator wants of its agent, and what that saw.
// It lies in the namespace of the control plane, and has the name of the host. It holds no contents of files: these are
// in the Secret of TasksOf, which the agent of this host alone may read.
type ControlPlaneHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`
	Spec              HostSpec   `json:"spec"`
	Status            HostStatus `json:"status,omitzero"`
}

// ControlPlaneHostList is a list of them.
type ControlPlaneHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ControlPlaneHost `json:"items"`
}

// HostSpec is what the operator wants of an agent.
type HostSpec struct {
	// one of the machine's own: an agent on another machine refuses to work
	Address string    `json:"address"`
	Task    *HostTask `json:"task,omitempty"`
	// absent while a transition goes on: nothing is looked after then
	Upkeep *HostUpkeep `json:"upkeep,omitempty"`
	// of the host that saves the stores; absent while a transition goes on
	Backup *HostBackup `json:"backup,omitempty"`
}

// HostTask is a part of a step of a transition, which the agent does once.
type HostTask struct {
	Number  int64       `json:"number"`  // grows with each task of the host
	Request string      `json:"request"` // names what is wanted, and at which point of the transition
	Title   string      `json:"title,omitempty"`
	Digest  string      `json:"digest"` // SHA-256 of the entry of the Secret
	Issued  metav1.Time `json:"issued,omitzero"`
	// WaitSeconds is how long a component may take to start or to stop.
	WaitSeconds int64 `json:"waitSeconds"`
	// ByHand says that a person has done what this step leaves to a person, and has seen what Found names.
	ByHand bool   `json:"byHand,omitempty"`
	Found  string `json:"found,omitempty"`
}

// HostUpkeep is what the host has while no transition goes on.
type HostUpkeep struct {
	Digest string `json:"digest"`           // SHA-256 of the entry of the Secret
	Repair bool   `json:"repair,omitempty"` // what differs is put back
}

// HostBackup is what the host saves of the stores, and when.
type HostBackup struct {
	Digest   string `json:"digest"`   // SHA-256 of the entry of the Secret, which says what is saved
	Schedule string `json:"schedule"` // five fields of cron
	TimeZone string `json:"timeZone,omitempty"`
	// how many backups are kept
	Keep      int    `json:"keep"`
	Directory string `json:"directory"`
}

// HostStatus is what an agent saw and did.
type HostStatus struct {
	// version of the agent's program
	Agent string `json:"agent,omitempty"`
	// when the agent last wrote
	Seen metav1.Time     `json:"seen,omitzero"`
	Task *HostTaskStatus `json:"task,omitempty"`
	// digest of the upkeep that the components were compared with
	Upkeep     string          `json:"upkeep,omitempty"`
	Components []HostComponent `json:"components,omitempty"`
	// what the agent saved of the stores
	Backup *BackupStatus `json:"backup,omitempty"`
	// Problem is why the agent does not work.
	Problem string `json:"problem,omitempty"`
}

// HostTaskStatus is how far the agent came with a task.
type HostTaskStatus struct {
	Number  int64        `json:"number"`
	Started metav1.Time  `json:"started,omitzero"`
	Ended   *metav1.Time `json:"ended,omitempty"` // it was done, or could not be
	Error   string       `json:"error,omitempty"` // why it could not be done
	// Answer is the whole answer, as JSON: what stores showed of themselves, for example.
	Answer string `json:"answer,omitempty"`
}

// HostComponent is the record of a component on its host.
type HostComponent struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Image   string `json:"image,omitempty"`
	Program string `json:"program,omitempty"` // path of what the unit starts
	// ProgramDigest is the SHA-256 of the program that is there, RecordedDigest of the one that was there first since
	// the version runs.
	ProgramDigest  string     `json:"programDigest,omitempty"`
	RecordedDigest string     `json:"recordedDigest,omitempty"`
	Args           []string   `json:"args,omitempty"`
	Files          []HostFile `json:"files,omitempty"`
	Ready          bool       `json:"ready"`
	// Problem is why it is not ready.
	Problem string `json:"problem,omitempty"`
	// Drift is what is not as the plan has it.
	Drift []string `json:"drift,omitempty"`
	// Repaired is what was last put back.
	Repaired   []string     `json:"repaired,omitempty"`
	RepairedAt *metav1.Time `json:"repairedAt,omitempty"`
}

// HostFile is a file of a component.
type HostFile struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256,omitempty"` // of what is there
}

// TasksOf is the name of the Secret with what the agent of a host does, and looks after.
func TasksOf(host string) string { return "fusionctl-host-" + host }

// The entries of that Secret, of JSON, compressed: what is looked after, what is saved, and each task under a name of
// its own.
const (
	UpkeepKey  = "upkeep.json.gz"
	BackupKey  = "backup.json.gz"
	TaskPrefix = "task-"
)

// TaskKey is the entry of the task of a digest.
func TaskKey(digest string) string { return TaskPrefix + digest[:min(len(digest), 16)] + ".json.gz" }

// AgentPulse is how often an agent that has nothing to do writes its status, and TaskPulse one that is at work.
const (
	AgentPulse = 5 * time.Minute
	TaskPulse  = 15 * time.Second
)

// AgentUser is the user whose certificate the agent of a host has.
func AgentUser(plane, host string) string { return "fusionctl:agent:" + plane + ":" + host }

// AgentGroup is the group of all agents: it has no permissions.
const AgentGroup = "fusionctl:agents"

// AgentCertificateLife is for how long an agent asks, and may ask: API servers revoke no certificate, and one of a host
// that was lost is good until its end.
const AgentCertificateLife = 30 * 24 * time.Hour

// DeepCopyObject copies the object.
func (h *ControlPlaneHost) DeepCopyObject() runtime.Object { return h.DeepCopy() }

// DeepCopy copies the object.
func (h *ControlPlaneHost) DeepCopy() *ControlPlaneHost {
	c := &ControlPlaneHost{TypeMeta: h.TypeMeta, Spec: h.Spec.DeepCopy(), Status: h.Status.DeepCopy()}
	h.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

// DeepCopyObject copies the list.
func (l *ControlPlaneHostList) DeepCopyObject() runtime.Object {
	c := &ControlPlaneHostList{TypeMeta: l.TypeMeta, Items: make([]ControlPlaneHost, 0, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopy())
	}
	return c
}

// DeepCopy copies what is wanted.
func (s HostSpec) DeepCopy() HostSpec { return copied(s) }

// DeepCopy copies the status.
func (s HostStatus) DeepCopy() HostStatus { return copied(s) }

// copied copies plain data.
func copied[T any](value T) T {
	data, err := json.Marshal(value)
	var c T
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		panic("operator/api: internal error: " + err.Error())
	}
	return c
}

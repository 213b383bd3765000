// Package transition leads from one plan of a cluster to another: an ordered list of steps, each with its host, its
// action, its verification and its inverse. New computes it, Apply and Undo carry it out through a Runner, with a
// record before and after every step, so that a run that was killed goes on or goes back.
package transition

import (
	"io/fs"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// Setup is what runs on the hosts: a plan, and what runs its components. No plan: nothing of ours.
type Setup struct {
	Plan   *plan.Plan
	Target render.Target
	// Certificates are those of the plan with their keys, by host, as CertificatesOf reads them; nil: a transition
	// leaves them alone.
	Certificates map[string][]render.File
}

// Facts are what was read of the cluster. The zero value is that nothing was read; what depends on it is then refused.
type Facts struct {
	// StoresAgree: the stores were read as a whole against the plan to which the transition leads, and without an error
	// among the findings. Every stored object is then one that both API servers of that plan decode.
	StoresAgree bool
	// Prepare: objects that one of the plans does not read are to be written again, where nothing is lost, and keys of
	// resources that go to another store are to be moved there, where the API servers of that read them.
	Prepare bool
	// Lost are hosts and nodes of the first plan that are gone for good, and not in the second one: nothing is done on
	// them, and nothing is asked of them but that nothing answers there.
	Lost []string
	// Empty are those of Moves of which the store that they leave was read, and holds no key, or, with Prepare, none
	// that cannot be moved.
	Empty []Move
}

// Move is a resource that the API servers of a side look for in another store after a transition.
type Move struct {
	Side     pair.Side `json:"side"`
	Resource string    `json:"resource"` // its part of the key
	From     string    `json:"from"`     // stores
	To       string    `json:"to"`
}

// Transition is plain data, and JSON. Files of it may hold secrets.
type Transition struct {
	From  string `json:"from"` // what runs before, for people
	To    string `json:"to"`
	Hosts []Host `json:"hosts"`
	Steps []Step `json:"steps"` // in order; empty when nothing changes
	// Watch is how the stores are looked at; nil where nothing changes.
	Watch *Watch `json:"watch,omitempty"`
}

// Host is a machine on which steps run.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Step is one change of one host, or a gate without one. Do and Undo are each other's inverse; nil: nothing is to be
// done in that direction.
type Step struct {
	ID    string  `json:"id"` // unique: 007
	Phase Phase   `json:"phase"`
	Host  string  `json:"host"`
	Title string  `json:"title"`
	Do    *Action `json:"do,omitempty"`
	Undo  *Action `json:"undo,omitempty"`
	// Stores run while this is done or undone.
	Stores []string `json:"stores,omitempty"`

	lost string // its host, where that is lost, as Without has it
}

// Phase groups steps.
type Phase string

// Phases in their order. What acts is stopped before what it depends on changes, and started after it.
const (
	Prepare     Phase = "prepare" // checks, and snapshots of the stores
	Stop        Phase = "stop"    // of controllers and schedulers, then servers, then stores
	Stores      Phase = "stores"  // etcd
	Legacy      Phase = "legacy API server"
	LegacyMgr   Phase = "legacy controllers" // and scheduler
	HandingOver Phase = "hand over"          // of objects, while no controller acts for them
	Modern      Phase = "modern API server"
	ModernMgr   Phase = "modern controllers"
	Joint       Phase = "joint controllers" // those that see both sides
	Gateway     Phase = "gateway"           // whose clients go on at another host, or wait
	Nodes       Phase = "nodes"             // kubelets, node by node
	Tidy        Phase = "tidy"              // files that no component reads any more
)

// Kind is what an action does.
type Kind string

const (
	PutFile    Kind = "put file"
	RemoveFile Kind = "remove file"
	StartUnit  Kind = "start unit"
	StopUnit   Kind = "stop unit"
	// PutProgram puts Program into its place, and keeps what was there; RemoveProgram puts that back, or removes it.
	PutProgram    Kind = "put program"
	RemoveProgram Kind = "remove program"
	Snapshot      Kind = "snapshot store"
	Release       Kind = "release" // takes Marks out of the API
	// ChangeKubelet puts File, a drop-in of Unit, and restarts the unit; RestoreKubelet removes it and does the same.
	// Before, they record the pods of Node and predict what restarts.
	ChangeKubelet  Kind = "change kubelet"
	RestoreKubelet Kind = "restore kubelet"
	// ApplyObjects and RemoveObjects are about the objects of Workload in a cluster; data that it claimed stays.
	ApplyObjects  Kind = "apply objects"
	RemoveObjects Kind = "remove objects"
	// RestoreMember puts Member back to a backup, PutBackMember to what it had before.
	RestoreMember Kind = "restore member"
	PutBackMember Kind = "put member back"
	// HandOver takes objects from the legacy side to the modern one, HandBack brings them back.
	HandOver Kind = "hand over"
	HandBack Kind = "hand back"
	// CopyRoles gives the modern side copies of Roles, RemoveRoles takes them away.
	CopyRoles   Kind = "copy roles"
	RemoveRoles Kind = "remove roles"
	// RaiseStore lets the members of a store agree on the newer of two minors, LowerStore on the older one, before one
	// of them comes back to that.
	RaiseStore Kind = "raise store"
	LowerStore Kind = "lower store"
	// RewriteObjects writes what Rewrite names in versions that both plans read, and completes bitmaps.
	RewriteObjects Kind = "rewrite objects"
	// MoveKeys moves those of Moving to another store, while no API server looks for them.
	MoveKeys Kind = "move keys"
	// SettleMember lets the log of a member leave requests behind that the next minor does not read.
	SettleMember Kind = "settle member"
	// AddMember adds Joining to its store as a learner, PromoteMember gives it a vote, RemoveMember takes it out. They
	// are done on its host: both of the first set its data aside where it is no member.
	AddMember     Kind = "add member"
	PromoteMember Kind = "promote member"
	RemoveMember  Kind = "remove member"
	// SetDataAside renames what a member that left has stored, so that it can join again.
	SetDataAside Kind = "set data aside"
	// ClearEndpoints deletes the Endpoints of the service kubernetes, and what was made from them, from the stores: API
	// servers of another port write them anew.
	ClearEndpoints Kind = "clear endpoints"
	// AddRanges has the modern API server allocate from Ranges, RemoveRanges takes that back.
	AddRanges    Kind = "add ranges"
	RemoveRanges Kind = "remove ranges"
	RunChecks    Kind = "check" // nothing but Before
	ByHand       Kind = "by hand"
)

// Action changes one thing. It is idempotent: done already, it changes nothing.
type Action struct {
	Kind Kind `json:"kind"`
	// Before are checks without which nothing is done, After are those that verify it.
	Before []Check `json:"before,omitempty"`
	// First is done before it, after Before, where the two belong together: a process that is killed in between does
	// both again.
	First   *Action     `json:"first,omitempty"`
	After   []Check     `json:"after,omitempty"`
	File    *File       `json:"file,omitempty"` // of PutFile; of RemoveFile, the file that is removed
	Was     *File       `json:"was,omitempty"`  // of PutFile: what it replaces, nil for none
	Unit    string      `json:"unit,omitempty"`
	Program *Binary     `json:"program,omitempty"` // of PutProgram and RemoveProgram
	Store   *plan.Store `json:"store,omitempty"`
	Marks   *Marks      `json:"marks,omitempty"`
	Node    *Node       `json:"node,omitempty"`
	// Workload is what ApplyObjects and RemoveObjects are about.
	Workload *Workload `json:"workload,omitempty"`
	Member   *Member   `json:"member,omitempty"`  // of RestoreMember and PutBackMember
	Text     string    `json:"text,omitempty"`    // what a person does
	Found    string    `json:"-"`                 // of ByHand: what checks found, as in ByHandError
	Objects  *Objects  `json:"objects,omitempty"` // of HandOver and HandBack
	Roles    *Roles    `json:"roles,omitempty"`   // of CopyRoles and RemoveRoles
	Rewrite  *Rewrite  `json:"rewrite,omitempty"` // of RewriteObjects
	Moving   *Moving   `json:"moving,omitempty"`  // of MoveKeys
	Members  *Members  `json:"members,omitempty"` // of RaiseStore, LowerStore and SettleMember
	Masters  *Masters  `json:"masters,omitempty"` // of ClearEndpoints
	Ranges   *Ranges   `json:"ranges,omitempty"`  // of AddRanges and RemoveRanges
	// Joining is what AddMember, PromoteMember, RemoveMember and SetDataAside are about.
	Joining *Joining `json:"joining,omitempty"`
}

// Workload is a component of a hosted plan.
type Workload struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // of the object that has its pods: Deployment or StatefulSet
	Name      string `json:"name"`
	Manifest  []byte `json:"manifest,omitempty"` // its objects, documents of YAML; not of checks
}

// Access is how an API server is queried from a host: its URL, and paths of the certificates.
type Access struct {
	Side   pair.Side `json:"side"`
	Server string    `json:"server"`
	CA     string    `json:"ca"`
	Cert   string    `json:"cert"`
	Key    string    `json:"key"`
}

// Objects are those of resources that go from one store to another.
type Objects struct {
	// Record is the name of the record of what went, the same for both directions: a DNS label, and for one namespace
	// a dot and its name.
	Record string        `json:"record"`
	Names  []string      `json:"names"` // of the resources, for people
	Plan   handover.Plan `json:"plan"`
	From   plan.Store    `json:"from"`
	To     plan.Store    `json:"to"`
	Pods   string        `json:"pods"` // the name of the one of both that has the pods
	// Definitions is the name of the record of the definitions, where what they define goes.
	Definitions string `json:"definitions,omitempty"`
	// Known is what the journal knows of this hand-over when a step is carried out; of no plan.
	Known *handover.Known `json:"known,omitempty"`
}

// Marks are what the controllers of both sides put into the API, and leave there when they stop.
type Marks struct {
	// Namespaces is the API server through which namespaces have their finalizer; nil where none has.
	Namespaces *Access `json:"namespaces,omitempty"`
	// Modern is the API server that has the Registrations; nil where there are none.
	Modern        *Access        `json:"modern,omitempty"`
	Registrations []Registration `json:"registrations,omitempty"`
}

// Registration is a kind of admissionregistration.k8s.io.
type Registration struct {
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
}

// File is a file of a host.
type File struct {
	Path string      `json:"path"` // absolute and clean
	Mode fs.FileMode `json:"mode"`
	Data []byte      `json:"data"`
}

// Binary is the file of a program on a host, and where it comes from.
type Binary struct {
	Path   string `json:"path"`            // absolute and clean
	SHA256 string `json:"sha256"`          // of the program
	File   string `json:"file"`            // of the host, or of the image
	Image  string `json:"image,omitempty"` // by digest; "" for a file of the host
	// Before is the digest of what was at the path before, "" for nothing; nil where that is not known. The journal
	// knows it when a step is undone; of no plan.
	Before *string `json:"before,omitempty"`
}

// CheckKind is what a check asks.
type CheckKind string

const (
	FileIs      CheckKind = "file is"       // File, content and mode, or absent when it is nil
	UnitOn      CheckKind = "unit on"       // the unit of the file Path is enabled, or runs
	Executable  CheckKind = "program"       // Path is there and executable, and of SHA256 where that is said
	Certificate CheckKind = "certificate"   // is there, valid, and for these names
	Ready       CheckKind = "ready"         // the probe is answered, and an API server is of Version
	Gone        CheckKind = "gone"          // no process listens there, and none has the arguments, if there are some
	Runs        CheckKind = "runs with"     // Program runs, and each of its processes but Others has Args
	StoresAgree CheckKind = "stores agree"  // with Map: complete, and no error but those that Accept covers
	NoKeys      CheckKind = "no keys"       // below Keys in Stores
	Settled     CheckKind = "settled"       // no namespace that has Marks is being deleted
	Released    CheckKind = "released"      // there are no Marks
	Program     CheckKind = "kubelet"       // Path is a kubelet of Version
	RolledOut   CheckKind = "rolled out"    // every pod of Workload is there as it is to be, and ready
	NoPods      CheckKind = "no pods"       // of Workload
	MemberIs    CheckKind = "member is"     // restored, or put Back
	BackupIs    CheckKind = "backup is"     // there, on the host of Member, and whole
	NodeRights  CheckKind = "node rights"   // the modern API server allows Node's kubelet what it needs
	NodeReady   CheckKind = "node ready"    // for both sides, with a kubelet of Node.To, and heartbeats are seen
	NodePods    CheckKind = "node pods"     // those recorded; what was predicted has restarted, and nothing else
	Budgets     CheckKind = "budgets"       // what restarts on Node breaks no PodDisruptionBudget of those Asked
	MayGo       CheckKind = "may go"        // nothing stands against handing Objects over, or back
	RolesMayGo  CheckKind = "roles may go"  // nothing stands against copying Roles
	RolesEqual  CheckKind = "roles equal"   // every subject may do there what Roles allow it
	NoneWakes   CheckKind = "none wakes"    // nothing that Roles do not allow comes into force, unseen by a person
	MayRewrite  CheckKind = "may rewrite"   // StoresAgree, but for objects that Rewrite can write again without loss
	MayMove     CheckKind = "may move"      // nothing stands against moving keys of Moving
	MembersAre  CheckKind = "members"       // all Members are healthy, and have the versions that it says
	MayComeBack CheckKind = "may come back" // Members have not agreed on the newer minor
	OneCluster  CheckKind = "one cluster"   // all endpoints of Stores answer, with a leader, as members of one cluster
	SameData    CheckKind = "same data"     // all endpoints of Stores are of members that have the same data
	NoData      CheckKind = "no data"       // of a member of etcd in Path
	Silent      CheckKind = "silent"        // nothing answers at Addresses
	Beats       CheckKind = "beats"         // every node that is ready has a kubelet of Heartbeats and is heard of
	NotNewer    CheckKind = "not newer"     // no node has a kubelet of a minor after that of Heartbeats
	NothingLeft CheckKind = "nothing left"  // of the legacy side's own objects of Left
	MastersAre  CheckKind = "masters are"   // the service kubernetes leads to the API servers of Masters alone
	RangesAdded CheckKind = "ranges added"  // every address of a service in Ranges is known to its allocator
	Works       CheckKind = "works"         // controllers, scheduler, allocator and collector of Asked do their work
	Defined     CheckKind = "defined"       // of Asked the second serves all Objects, the first none that have gone
	Adopted     CheckKind = "adopted"       // the controllers there act for Objects; their pods are those of before
)

// Check is what is verified on a host.
type Check struct {
	Kind   CheckKind   `json:"kind"`
	Path   string      `json:"path,omitempty"`
	SHA256 string      `json:"sha256,omitempty"`
	File   *File       `json:"file,omitempty"`
	Probe  *plan.Probe `json:"probe,omitempty"`
	CA     string      `json:"ca,omitempty"` // path of the certificate by which the probe's server is known
	// Cert and Key are paths of the client certificate with which the probe's server is queried; "" for none.
	Cert    string   `json:"cert,omitempty"`
	Key     string   `json:"key,omitempty"`
	Version string   `json:"version,omitempty"`
	Program string   `json:"program,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Others are the arguments of other processes of the same program on the host: those of the other side.
	Others      [][]string           `json:"others,omitempty"`
	Certificate *plan.Certificate    `json:"certificate,omitempty"`
	Stores      []plan.Store         `json:"stores,omitempty"`
	Keys        []string             `json:"keys,omitempty"` // prefixes of keys
	Map         *pair.Map            `json:"map,omitempty"`
	Accept      []finding.Acceptance `json:"accept,omitempty"`
	Marks       *Marks               `json:"marks,omitempty"`
	Workload    *Workload            `json:"workload,omitempty"`
	Member      *Member              `json:"member,omitempty"`
	Back        bool                 `json:"back,omitempty"` // of MemberIs
	Node        *Node                `json:"node,omitempty"`
	Asked       []Access             `json:"asked,omitempty"`
	Addresses   []string             `json:"addresses,omitempty"` // HOST:PORT, of Silent
	Objects     *Objects             `json:"objects,omitempty"`
	Roles       *Roles               `json:"roles,omitempty"`
	Rewrite     *Rewrite             `json:"rewrite,omitempty"`    // of MayRewrite
	Moving      *Moving              `json:"moving,omitempty"`     // of MayMove
	Members     *Members             `json:"members,omitempty"`    // of MembersAre and MayComeBack
	Heartbeats  *Heartbeats          `json:"heartbeats,omitempty"` // of Beats and NotNewer
	Left        *Left                `json:"left,omitempty"`
	Masters     *Masters             `json:"masters,omitempty"`
	Ranges      *Ranges              `json:"ranges,omitempty"`
	Hint        string               `json:"hint,omitempty"` // the way out when it fails
}

package pair

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/gc"
)

// Map is the ownership map of one fused control plane: where every key belongs, who may write it and who reads it. It
// is plain data and complete, so that a scan needs neither the spec nor tables of version facts. Shape:
// {"prefix":"/registry","stores":["core","modern"],"resources":[{"key":"deployments","owner":"legacy",...}],...}
// Source: computed from a plan; a hand-written one works as well.
type Map struct {
	Prefix    string       `json:"prefix"` // of every key, without a slash at the end: "/registry"
	Stores    []string     `json:"stores"` // names, as the sides and the resources use them
	Legacy    ControlPlane `json:"legacy"`
	Modern    ControlPlane `json:"modern"`
	Resources []Resource   `json:"resources"` // everything that either version compiles in
	// CustomResources is the entry for keys /<group>/<plural>/... of groups that no entry of Resources names. Custom
	// resources, CRDs and APIServices lie in a side's default store whatever its overrides say. An entry of Resources
	// with the Key "kubeflow.org/*" or "kubeflow.org/notebooks" takes precedence.
	CustomResources Resource  `json:"customResources"`
	Boot            []BootKey `json:"boot,omitempty"`  // what API servers write by themselves when they start
	Locks           []Lock    `json:"locks,omitempty"` // what the controllers of the two sides elect on
	// ServiceCIDRs and NodePortRange are what the allocators of both sides must agree on: "10.96.0.0/16",
	// "30000-32767".
	ServiceCIDRs  []string `json:"serviceCIDRs,omitempty"`
	NodePortRange string   `json:"nodePortRange,omitempty"`
	// Starting are the sides whose API servers start after the stores were read, as on the way from one plan to
	// another: what the others left behind, these repair. None of a pair at rest.
	Starting []Side `json:"starting,omitempty"`
}

// ControlPlane holds the facts about one side as a whole.
type ControlPlane struct {
	Version string `json:"version"` // "1.6.13", for messages only
	// the default store: CRDs, custom resources, APIServices
	Store string `json:"store"`
	// everything served, "v1", "apps/v1": an APIService of another one is foreign
	GroupVersions []string     `json:"groupVersions,omitempty"`
	Collector     gc.Collector `json:"collector"`
	// CRDFields are the fields below a CRD's spec and status that this version keeps when it rewrites one:
	// "spec.versions", "status.storedVersions". Empty: this version has no CRDs.
	CRDFields []string `json:"crdFields,omitempty"`
	// Allocates says how this version allocates ClusterIPs: AllocatesBitmap, AllocatesAddresses or AllocatesBoth.
	Allocates string `json:"allocates,omitempty"`
	// ServiceCIDRs are the ranges from which this side allocates ClusterIPs, when they are its own; empty:
	// Map.ServiceCIDRs.
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Undecryptable says what a list does with a value that cannot be decrypted: UndecryptableOmitted,
	// UndecryptableFails.
	Undecryptable string `json:"undecryptable,omitempty"`
}

// The values of ControlPlane.Allocates.
const (
	AllocatesBitmap    = "bitmap"    // ranges/serviceips
	AllocatesAddresses = "addresses" // ipaddresses
	AllocatesBoth      = "both"      // ipaddresses, and the bitmap beside them
)

// The values of ControlPlane.Undecryptable.
const (
	// The object is missing from lists, silently. Of a server that has no keys at all the whole list fails.
	UndecryptableOmitted = "omitted"
	UndecryptableFails   = "fails" // the whole list fails
)

// Resource is one row of the map.
type Resource struct {
	// Key is the resource's part of the key, below the prefix: "deployments", "services/specs",
	// "apiextensions.k8s.io/customresourcedefinitions", "masterleases"; or one object of the allocators:
	// "ranges/serviceips".
	Key        string   `json:"key"`
	Name       string   `json:"name"`             // as in a URL: "deployments"; "" where there is none (ranges)
	Kind       string   `json:"kind"`             // of the stored objects; "" accepts any
	Groups     []string `json:"groups,omitempty"` // that serve this key: "extensions", "apps"; "" is the core group
	Namespaced bool     `json:"namespaced"`
	Owner      Owner    `json:"owner"`
	Legacy     View     `json:"legacy"`
	Modern     View     `json:"modern"`
	// HandedOver: the modern side has taken over the objects of the legacy one, which has none any more.
	HandedOver bool `json:"handedOver,omitempty"`
	// HandedOverIn are the namespaces of which the modern side has taken over the objects of the legacy one. Both sides
	// go on to act for their own.
	HandedOverIn []string `json:"handedOverIn,omitempty"`
	// Copied: the modern side has copies of the objects of the legacy one, which keeps its own.
	Copied bool `json:"copied,omitempty"`
}

// View is what one side knows about a resource.
type View struct {
	// where this side keeps it; "" when this side does not have the resource
	Store    string   `json:"store,omitempty"`
	StoredAs string   `json:"storedAs,omitempty"` // group/version that it writes: "v1", "apps/v1"
	Decodes  []string `json:"decodes,omitempty"`  // group/versions of the kind that it reads from a store
	// WatchBreaks are those of Decodes that it reads in a list but not in a watch: one such object and the watch
	// closes.
	WatchBreaks []string `json:"watchBreaks,omitempty"`
	Serves      []string `json:"serves,omitempty"` // group/versions at which clients reach it
	// Drops are fields that the other side's version knows and this one does not, as paths:
	// "spec.containers[].startupProbe". An object that this side rewrites loses them.
	Drops []string `json:"drops,omitempty"`
	// Implied are values of fields among Drops, and below them, that say what this side does anyway, by path: their
	// loss means nothing. OneElement stands for any list of one.
	Implied map[string]string `json:"implied,omitempty"`
}

// OneElement is a value of View.Implied.
const OneElement = "[*]"

// ManagedFields is a path of View.Drops on which, and on those below it, nothing that runs depends.
const ManagedFields = "metadata.managedFields"

// BootKey names what an API server writes by itself at every start, so that it may lie where the owner would not have
// it.
type BootKey struct {
	Side Side `json:"side"`
	// Key is below the prefix: "namespaces/default", or "flowschemas/*" where the star stands for any rest.
	Key      string `json:"key"`
	StoredAs string `json:"storedAs,omitempty"` // group/version in which that side writes it
}

// Lock is an object on which a component of one side elects its leader.
type Lock struct {
	Side      Side   `json:"side"`
	Component string `json:"component"` // "kube-controller-manager"
	Resource  string `json:"resource"`  // Resource.Key of the lock object: "leases", "services/endpoints", "configmaps"
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ControlPlane returns the facts about a side as a whole.
func (m *Map) ControlPlane(side Side) *ControlPlane {
	if side == Legacy {
		return &m.Legacy
	}
	return &m.Modern
}

// View returns what the side knows about the resource.
func (r *Resource) View(side Side) *View {
	if side == Legacy {
		return &r.Legacy
	}
	return &r.Modern
}

// Readers lists the sides that read the resource from the store.
func (r *Resource) Readers(store string) []Side {
	var sides []Side
	for _, side := range Sides() {
		if r.View(side).Store == store {
			sides = append(sides, side)
		}
	}
	return sides
}

// Homes lists the stores in which the owner wants the resource's keys, in the order legacy, modern.
func (r *Resource) Homes() []string {
	var homes []string
	for _, side := range Sides() {
		store := r.View(side).Store
		if store == "" || slices.Contains(homes, store) || !r.WrittenBy(side) {
			continue
		}
		homes = append(homes, store)
	}
	return homes
}

// WrittenBy reports whether the owner of the resource lets the side write its objects.
func (r *Resource) WrittenBy(side Side) bool {
	switch r.Owner {
	case OwnerLegacy:
		return side == Legacy
	case OwnerModern:
		return side == Modern
	}
	return true
}

// ServesKind reports whether one of the resource's groups is group and its kind is kind.
func (r *Resource) ServesKind(group, kind string) bool {
	return r.Kind == kind && slices.Contains(r.Groups, group)
}

// Matches reports whether the boot key covers a key below the prefix.
func (b *BootKey) Matches(rest string) bool {
	if stem, ok := strings.CutSuffix(b.Key, "*"); ok {
		return strings.HasPrefix(rest, stem)
	}
	return rest == b.Key
}

// Key is the lock object below the prefix.
func (l *Lock) Key() string { return l.Resource + "/" + l.Namespace + "/" + l.Name }

package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Health says whether objects are converted between versions, as far as that was tested.
type Health struct {
	State  HealthState `json:"state"`
	Detail string      `json:"detail,omitempty"` // what was tried, or the server's words
}

// HealthState is the short form of Health.
type HealthState string

// The states of conversion.
const (
	HealthGood    HealthState = "works"   // an object was read in every served version
	HealthBad     HealthState = "broken"  // it could not be, or the webhook's service has no endpoints
	HealthUnknown HealthState = "unknown" // there is no object to try it on, and no endpoint to look at
	HealthUnused  HealthState = "unused"  // strategy None, or one version alone
)

// Observation is the state of a resource, as servers and stores return it.
type Observation struct {
	Resource   Resource
	Definition *Definition // nil for one that is built in
	// BuiltIn is what is known of one that is built in: the apiVersions that are served, and the one in which the
	// server writes.
	Served  []string
	Storage string // apiVersion; "" when it is not known
	Stored  *Stored
	// WhyUnknown says why Stored is nil.
	WhyUnknown string
	Health     Health
	// Row is where a pair of control planes keeps the resource, and Side is that of the server; nil without a pair.
	Row  *pair.Resource
	Side pair.Side
}

// unreadable refuses an apiVersion that the other side, which reads the resource in the same store, cannot decode.
func (o Observation) unreadable(apiVersion string) error {
	other := o.Side.Other()
	if o.Row == nil || !o.Row.VisibleToBoth() || o.Row.View(other).Reads(apiVersion) {
		return nil
	}
	return fmt.Errorf("%s: the %s side reads it in the same store, and cannot decode %s: its lists and watches of "+
		"the resource would fail", o.Resource.Name, other, apiVersion)
}

// dropped are the fields that the other side, which writes the resource in the same store, knows and the server does
// not: an object that it writes again loses them. Errors: the other side's server is the one to write through.
func (o Observation) dropped() ([]string, error) {
	other := o.Side.Other()
	if o.Row == nil || !o.Row.VisibleToBoth() || !o.Row.WrittenBy(other) {
		return nil, nil
	}
	fields := slices.DeleteFunc(slices.Clone(o.Row.View(o.Side).Drops), func(path string) bool {
		return path == pair.ManagedFields || strings.HasPrefix(path, pair.ManagedFields+".")
	})
	if len(fields) == 0 || o.Row.Route().Write == o.Side {
		return fields, nil
	}
	return nil, fmt.Errorf("%s: the %s side writes it in the same store, and objects that the %s side writes again "+
		"lose %s: plan with the kubeconfig of the %s side and --side %[2]s", o.Resource.Name, other, o.Side,
		prose.First(fields, 3), other)
}

// Status is where a resource stands on its way from version to version.
type Status struct {
	Resource
	Versions []VersionStatus `json:"versions"`
	// StoredVersions is what the server remembers to have stored; nil for a resource that is built in.
	StoredVersions []string `json:"storedVersions,omitempty"`
	// Stored is what the store holds; nil when it was not read, and Unknown says why.
	Stored     *Stored `json:"stored,omitempty"`
	Unknown    string  `json:"unknown,omitempty"`
	Strategy   string  `json:"conversion,omitempty"`
	Webhook    string  `json:"webhook,omitempty"`
	Health     Health  `json:"health"`
	Generation int64   `json:"generation,omitempty"`
}

// VersionStatus is one version of a resource.
type VersionStatus struct {
	Version
	Remembered bool   `json:"remembered"`        // in status.storedVersions
	Objects    *int64 `json:"objects,omitempty"` // that are stored in it; nil when the store was not read
	// Blocks is what must happen before the version can be removed; empty when it can be.
	Blocks []string `json:"blocks,omitempty"`
}

// NewStatus sums up what was seen.
func NewStatus(o Observation) Status {
	s := Status{Resource: o.Resource, Stored: o.Stored, Health: o.Health}
	if o.Stored == nil {
		s.Unknown = o.WhyUnknown
	}
	if o.Definition == nil {
		s.Versions = builtInVersions(o)
		s.Health = Health{State: HealthUnused}
		return s
	}
	d := o.Definition
	s.StoredVersions, s.Generation = d.StoredVersions(), d.Generation()
	var webhook Webhook
	if s.Strategy, webhook = d.Conversion(); s.Strategy == StrategyWebhook {
		s.Webhook = webhook.String()
	}
	versions := d.Versions()
	for _, name := range storedNames(o) {
		if _, ok := d.Version(name); !ok {
			versions = append(versions, Version{Name: name})
		}
	}
	for _, v := range versions {
		status := VersionStatus{Version: v, Remembered: slices.Contains(s.StoredVersions, v.Name)}
		if o.Stored != nil {
			n := o.Stored.Versions[o.Resource.APIVersion(v.Name)]
			status.Objects = &n
		}
		status.Blocks = s.blocks(status, len(versions))
		s.Versions = append(s.Versions, status)
	}
	return s
}

// storedNames lists the versions that are stored, without their group where that is the resource's own.
func storedNames(o Observation) []string {
	if o.Stored == nil {
		return nil
	}
	versions, _ := o.Stored.Others("")
	for i, v := range versions {
		if name, ok := strings.CutPrefix(v, o.Resource.Group+"/"); ok {
			versions[i] = name
		}
	}
	return versions
}

// blocks lists what is in the way of removing the version.
func (s *Status) blocks(v VersionStatus, versions int) []string {
	var blocks []string
	add := func(format string, args ...any) { blocks = append(blocks, fmt.Sprintf(format, args...)) }
	if versions == 1 {
		add("it is the only version")
	}
	if v.Storage {
		add("objects are written in it")
	}
	switch {
	case v.Objects == nil:
		if v.Remembered && !v.Storage {
			add("objects may be stored in it: the store was not read")
		}
	case *v.Objects > 0 && !v.Storage:
		add("%s stored in it", prose.Plural(*v.Objects, "object is", "objects are"))
	case s.Stored.Encrypted+s.Stored.Unreadable > 0 && v.Remembered && !v.Storage:
		add("%s in a version that cannot be told",
			prose.Plural(s.Stored.Encrypted+s.Stored.Unreadable, "object is stored", "objects are stored"))
	}
	if v.Remembered && !v.Storage {
		add("status.storedVersions names it")
	}
	if v.Served {
		add("it is served")
	}
	if s.Health.State == HealthBad && !v.Storage {
		add("conversion is broken")
	}
	return blocks
}

// builtInVersions lists the versions of a resource that is built in: those that are served, and those that are stored.
func builtInVersions(o Observation) []VersionStatus {
	names := slices.Clone(o.Served)
	if o.Storage != "" {
		names = append(names, o.Storage)
	}
	if o.Stored != nil {
		stored, _ := o.Stored.Others("")
		names = append(names, stored...)
	}
	slices.Sort(names)
	var versions []VersionStatus
	for _, name := range slices.Compact(names) {
		v := VersionStatus{
			Version: Version{Name: name, Served: slices.Contains(o.Served, name), Storage: name == o.Storage}}
		if o.Stored != nil {
			n := o.Stored.Versions[name]
			v.Objects = &n
			if n > 0 && !v.Storage {
				v.Blocks = append(v.Blocks, fmt.Sprintf("%s stored in it", prose.Plural(n, "object is", "objects are")))
			}
		}
		versions = append(versions, v)
	}
	return versions
}

// NeedsAttention reports whether objects cannot be read as they are: they are stored in a version that the CRD does not
// have, are damaged, or their conversion is broken.
func (s *Status) NeedsAttention() bool {
	lost := slices.ContainsFunc(s.Versions, func(v VersionStatus) bool {
		return v.Objects != nil && *v.Objects > 0 && !v.Served && !v.Remembered && !v.Storage && !s.BuiltIn
	})
	return lost || s.Health.State == HealthBad || s.Stored != nil && s.Stored.Unreadable > 0
}

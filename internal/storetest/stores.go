package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// SplitMap is a small split layout: pods, services and what belongs to them shared in core; deployments, replica sets
// and what is grouped, each side in its own store.
func SplitMap() *pair.Map {
	core := func(gv string) pair.View {
		return pair.View{Store: "core", StoredAs: gv, Decodes: []string{gv}, Serves: []string{gv}}
	}
	modern := func(gv string) pair.View {
		return pair.View{Store: "modern", StoredAs: gv, Decodes: []string{gv}, Serves: []string{gv}}
	}
	shared := func(key, kind string) pair.Resource {
		return pair.Resource{Key: key, Name: storage.PlainName(key), Kind: kind, Groups: []string{""}, Namespaced: true,
			Owner: pair.OwnerShared, Legacy: core("v1"), Modern: core("v1")}
	}
	cluster := func(r pair.Resource) pair.Resource { r.Namespaced = false; return r }
	return &pair.Map{
		Prefix: "/registry", Stores: []string{"core", "modern"},
		Legacy: pair.ControlPlane{Version: "1.10.13", Store: "core",
			GroupVersions: []string{"v1", "apps/v1", "extensions/v1beta1"}, Allocates: pair.AllocatesBitmap,
			Undecryptable: pair.UndecryptableOmitted,
			CRDFields:     []string{"spec.group", "spec.names", "spec.scope", "spec.validation", "spec.version"},
			Collector:     gc.Collector{AbsentOwner: gc.Deleted}},
		Modern: pair.ControlPlane{Version: "1.36.3", Store: "modern",
			GroupVersions: []string{"v1", "apps/v1", "networking.k8s.io/v1"}, Allocates: pair.AllocatesAddresses,
			CRDFields: []string{"spec.group", "spec.names", "spec.scope", "spec.version", "spec.versions",
				"spec.preserveUnknownFields", "status.storedVersions"},
			Collector: gc.Collector{AbsentOwner: gc.Deleted}},
		Resources: []pair.Resource{
			shared("pods", "Pod"), shared("services/specs", "Service"), shared("secrets", "Secret"),
			shared("serviceaccounts", "ServiceAccount"),
			shared("services/endpoints", "Endpoints"), shared("configmaps", "ConfigMap"),
			cluster(shared("namespaces", "Namespace")), cluster(shared("minions", "Node")),
			{Key: "ranges/serviceips", Kind: "RangeAllocation", Owner: pair.OwnerShared, Legacy: core("v1")},
			{Key: "ranges/servicenodeports", Kind: "RangeAllocation", Owner: pair.OwnerShared, Legacy: core("v1"),
				Modern: core("v1")},
			{Key: "ipaddresses", Name: "ipaddresses", Kind: "IPAddress", Groups: []string{"networking.k8s.io"},
				Owner: pair.OwnerModern, Modern: modern("networking.k8s.io/v1")},
			{Key: "servicecidrs", Name: "servicecidrs", Kind: "ServiceCIDR", Groups: []string{"networking.k8s.io"},
				Owner: pair.OwnerModern, Modern: modern("networking.k8s.io/v1")},
			{Key: "deployments", Name: "deployments", Kind: "Deployment", Groups: []string{"apps", "extensions"},
				Namespaced: true, Owner: pair.OwnerLegacy, Legacy: core("apps/v1"), Modern: modern("apps/v1")},
			{Key: "replicasets", Name: "replicasets", Kind: "ReplicaSet", Groups: []string{"apps", "extensions"},
				Namespaced: true, Owner: pair.OwnerSplit,
				Legacy: pair.View{Store: "core", StoredAs: "apps/v1",
					Decodes: []string{"apps/v1", "extensions/v1beta1"}, WatchBreaks: []string{"extensions/v1beta1"},
					Serves: []string{"apps/v1", "extensions/v1beta1"}}, Modern: modern("apps/v1")},
			{Key: storage.CRDResource, Name: "customresourcedefinitions", Kind: "CustomResourceDefinition",
				Groups: []string{"apiextensions.k8s.io"}, Owner: pair.OwnerSplit,
				Legacy: core("apiextensions.k8s.io/v1beta1"), Modern: modern("apiextensions.k8s.io/v1beta1")},
			{Key: storage.APIServiceResource, Name: "apiservices", Kind: "APIService",
				Groups: []string{"apiregistration.k8s.io"}, Owner: pair.OwnerSplit,
				Legacy: core("apiregistration.k8s.io/v1beta1"), Modern: modern("apiregistration.k8s.io/v1")},
			{Key: "flowschemas", Name: "flowschemas", Kind: "FlowSchema",
				Groups: []string{"flowcontrol.apiserver.k8s.io"}, Owner: pair.OwnerModern,
				Modern: modern("flowcontrol.apiserver.k8s.io/v1")},
		},
		CustomResources: pair.Resource{Key: "*", Owner: pair.OwnerSplit, Legacy: pair.View{Store: "core"},
			Modern: pair.View{Store: "modern"}},
		Boot: []pair.BootKey{{Side: pair.Modern, Key: storage.APIServiceResource + "/*"},
			{Side: pair.Legacy, Key: storage.APIServiceResource + "/*"},
			{Side: pair.Modern, Key: "namespaces/default"}},
		ServiceCIDRs: []string{"10.96.0.0/24"}, NodePortRange: "30000-30015",
	}
}

// Contents of a store, by key below the prefix.
type Contents map[string][]byte

// Pager serves the contents as a live store at revision 42.
func (c Contents) Pager(t *testing.T) *Pager {
	f := &Pager{T: t, Revision: 42}
	values := map[string][]byte{}
	for key, value := range c {
		if !strings.HasPrefix(key, "!") { // "!" marks a key outside the prefix
			key = "/registry/" + key
		}
		values[strings.TrimPrefix(key, "!")] = value
	}
	f.Keys = slices.Sorted(maps.Keys(values))
	f.Value = func(key string) []byte { return values[key] }
	return f
}

// Walk makes contents an offline store, in an order that is not that of keys, with all the workers at work.
func (c Contents) Walk(_ context.Context, workers int, visitor func() func(etcd.Entry) error) (etcd.Walked, error) {
	keys := slices.Sorted(maps.Keys(c))
	slices.Reverse(keys)
	var group errgroup.Group
	for n := range workers {
		visit := visitor()
		group.Go(func() error {
			for i := n; i < len(keys); i += workers {
				if err := visit(etcd.Entry{Key: []byte("/registry/" + keys[i]), Value: c[keys[i]]}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return etcd.Walked{Revision: 42}, group.Wait()
}

// Put is a value in protobuf; raw is what its message holds behind the metadata, owners are apiVersion, kind, name,
// uid.
func Put(apiVersion, kind, namespace, name, uid string, raw []byte, owners ...[4]string) []byte {
	return Object{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name, UID: uid, Owners: owners,
		Raw: raw}.Protobuf()
}

// Pod is a stored pod.
func Pod(namespace, name string, owners ...[4]string) []byte {
	return Put("v1", "Pod", namespace, name, "uid-pod-"+namespace+"-"+name, nil, owners...)
}

// Service is a stored service with a ClusterIP and, unless it is 0, a node port.
func Service(namespace, name, ip string, nodePort int) []byte {
	spec := Field(nil, 3, []byte(ip))
	if nodePort > 0 {
		port := Field(nil, 2, []byte("TCP"))
		spec = append(Field(nil, 1, protowire.AppendVarint(protowire.AppendTag(port, 5, protowire.VarintType),
			uint64(nodePort))), spec...)
	}
	return Put("v1", "Service", namespace, name, "uid-svc-"+name, Field(nil, 2, spec))
}

// Allocation is a stored range in which the numbers at the offsets are allocated.
func Allocation(cidr string, offsets ...int) []byte {
	bits := new(big.Int)
	for _, i := range offsets {
		bits.SetBit(bits, i, 1)
	}
	return Put("v1", "RangeAllocation", "", "", "", Field(Field(nil, 2, []byte(cidr)), 3, bits.Bytes()))
}

// CRD is a stored CustomResourceDefinition up to its scope; rest closes what is open.
func CRD(group, plural, kind, rest string) []byte {
	return fmt.Appendf(nil,
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"%s.%s","uid":"u-%s"},"spec":{"group":%q,"names":{"plural":%q,"kind":%q},"scope":"Namespaced"%s`,
		plural, group, plural, group, plural, kind, rest)
}

// CustomResource is a stored object of a CRD.
func CustomResource(apiVersion, kind, name string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":"default","uid":"u-%s"},"spec":{}}`, apiVersion,
		kind, name, name)
}

// APIService is a stored APIService.
func APIService(version, group string) []byte {
	return fmt.Appendf(nil,
		`{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"%s.%s","uid":"u"},"spec":{"group":%q,"version":%q}}`, version, group, group, version)
}

// Clean are stores as the map wants them.
func Clean() map[string]Contents {
	return map[string]Contents{
		"core": {
			"namespaces/default": Put("v1", "Namespace", "", "default", "uid-ns", nil),
			"minions/n1":         Put("v1", "Node", "", "n1", "uid-n1", nil),
			"pods/default/web-1": Pod("default", "web-1",
				[4]string{"extensions/v1beta1", "ReplicaSet", "web", "uid-rs"}),
			"replicasets/default/web":           Put("apps/v1", "ReplicaSet", "default", "web", "uid-rs", nil),
			"deployments/default/web":           Put("apps/v1", "Deployment", "default", "web", "uid-d", nil),
			"services/specs/default/kubernetes": Service("default", "kubernetes", "10.96.0.1", 0),
			"ranges/serviceips":                 Allocation("10.96.0.0/24", 0),
		},
		"modern": {
			"flowschemas/system": Put("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "system",
				"uid-fs", nil),
			storage.APIServiceResource + "/v1.apps": APIService("v1", "apps"),
			"ipaddresses/10.96.0.1": Put("networking.k8s.io/v1", "IPAddress", "", "10.96.0.1", "uid-ip",
				nil),
			storage.CRDResource + "/notebooks.kubeflow.io": CRD("kubeflow.io", "notebooks", "Notebook",
				`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":false},"status":{"storedVersions":["v1"]}}`),
			"kubeflow.io/notebooks/default/nb": CustomResource("kubeflow.io/v1", "Notebook", "nb"),
		},
	}
}

// Pager serves sorted keys as a server does, and polices its caller: no page over the limit, one revision, no call
// after the context ended.
type Pager struct {
	T             *testing.T
	Keys          []string
	Value         func(key string) []byte
	Revision      int64 // of the store
	MaxKeys       int   // 0: any limit
	MaxBytes      int   // 0: any size
	KeysCounted   int64 // what a server would have walked over
	Requests      int
	CompactBefore int64 // revisions below are gone
	OnPage        func(f *Pager, r etcd.Request) error
	Values        int64 // bytes of the largest page
	mu            sync.Mutex
}

// Page is a page as a server serves it.
func (f *Pager) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Requests++
	if ctx.Err() != nil {
		f.T.Errorf("Page called after the context ended")
	}
	if r.LimitKeys < 1 || (f.MaxKeys > 0 && r.LimitKeys > f.MaxKeys) {
		f.T.Errorf("Page(limit %d), want 1 to %d", r.LimitKeys, f.MaxKeys)
	}
	if r.From == "" {
		f.T.Errorf("Page(from %q): an empty key is refused by a server", r.From)
	}
	if f.OnPage != nil {
		if err := f.OnPage(f, r); err != nil {
			return etcd.Page{}, err
		}
	}
	if r.Revision != 0 && r.Revision < f.CompactBefore {
		return etcd.Page{}, fmt.Errorf("reading: %w", etcd.ErrCompacted)
	}
	revision := r.Revision
	if revision == 0 {
		revision = f.Revision
	}
	start := sort.SearchStrings(f.Keys, r.From)
	end := len(f.Keys)
	if r.To != "" {
		end = max(start, sort.SearchStrings(f.Keys, r.To))
	}
	f.KeysCounted += int64(end - start)
	page := etcd.Page{Revision: revision, RangeKeys: int64(end - start), More: end-start > r.LimitKeys}
	size := 0
	for _, key := range f.Keys[start:min(end, start+r.LimitKeys)] {
		e := etcd.Entry{Key: []byte(key), ModRevision: 1, CreateRevision: 1, Version: 1}
		if !r.KeysOnly && f.Value != nil {
			e.Value = f.Value(key)
		}
		size += len(e.Value)
		page.Entries = append(page.Entries, e)
	}
	if f.MaxBytes > 0 && size > f.MaxBytes && r.LimitKeys > 1 {
		return etcd.Page{}, fmt.Errorf("reading: %w", etcd.ErrPageTooLarge)
	}
	f.Values = max(f.Values, int64(size))
	return page, nil
}

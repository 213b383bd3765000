// Package demo fills the two stores of a plan as its two API servers would, and knows a few ways to spoil them. The
// objects are those of a small shop that a 1.6 cluster runs, and of Kubeflow, which came later and needs custom
// resources.
package demo

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Contents are the values of stores by the store's name and the key.
type Contents map[string]map[string][]byte

// Fill returns what lies in the stores of a plan for 1.6 and 1.36 when both sides have run for a while. What each
// object is stored as, and where, is the plan's to say. Errors: the plan stores something in a version that is not
// written here.
func Fill(p *plan.Plan, now time.Time) (Contents, error) {
	w := &writer{plan: p, now: now, contents: Contents{}}
	w.fillLegacy()
	w.fillModern()
	return w.contents, errors.Join(w.errs...)
}

// object is any type of k8s.io/api.
type object interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// writer writes objects as the API server of a side does.
type writer struct {
	plan     *plan.Plan
	side     pair.Side
	now      time.Time
	contents Contents
	errs     []error
}

// put stores an object of a compiled-in resource: in the store where the side keeps the resource, in protobuf, in the
// version that the side stores.
func (w *writer) put(resource string, o object) {
	row := w.plan.Resource(resource)
	if row == nil {
		w.errs = append(w.errs, fmt.Errorf("%s: the plan does not know this resource", resource))
		return
	}
	at := row.View(w.side)
	if goVersion(o) != shortGroupVersion(at.StoredAs) {
		w.errs = append(w.errs, fmt.Errorf("%s: the %s side stores %q, not %T", resource, w.side, at.StoredAs, o))
		return
	}
	key := row.Key
	if !strings.HasPrefix(key, "ranges/") { // a range is no more than its key
		key = objectKey(key, o)
		w.complete(row.Kind, o)
	}
	value, err := protobuf(at.StoredAs, row.Kind, o)
	if err != nil {
		w.errs = append(w.errs, fmt.Errorf("%s: %w", resource, err))
		return
	}
	w.store(at.Store, key, value)
}

// complete gives the object what the server gives to every new one.
func (w *writer) complete(kind string, o object) {
	if o.GetUID() == "" {
		o.SetUID(uid(kind, o.GetNamespace(), o.GetName()))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(w.now.Add(-time.Hour)))
	}
}

func (w *writer) store(store, key string, value []byte) {
	if w.contents[store] == nil {
		w.contents[store] = map[string][]byte{}
	}
	w.contents[store][w.plan.Prefix+"/"+key] = value
}

// putJSON stores an object of the servers for CRDs, custom resources and APIServices: as JSON, in the side's default
// store.
func (w *writer) putJSON(group, resource, namespace, name string, o map[string]any) {
	kind, _ := o["kind"].(string)
	metadata := map[string]any{
		"name": name, "uid": uid(kind, namespace, name), "generation": 1,
		"creationTimestamp": w.now.Add(-time.Hour).UTC().Format(time.RFC3339),
	}
	key := group + "/" + resource + "/" + name
	if namespace != "" {
		metadata["namespace"] = namespace
		key = group + "/" + resource + "/" + namespace + "/" + name
	}
	if labels, ok := o["labels"]; ok {
		metadata["labels"] = labels
		delete(o, "labels")
	}
	o["metadata"] = metadata
	value, err := json.Marshal(o)
	if err != nil {
		w.errs = append(w.errs, fmt.Errorf("%s: %w", key, err))
		return
	}
	w.store(w.plan.Side(w.side).Store, key, value)
}

// uid is one that a name always has, so that owners can be referred to before they are written.
func uid(kind, namespace, name string) types.UID {
	h := fmt.Sprintf("%x", sha256.Sum256([]byte(kind+"/"+namespace+"/"+name)))
	return types.UID(h[0:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32])
}

func objectKey(resource string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return resource + "/" + o.GetName()
	}
	return resource + "/" + o.GetNamespace() + "/" + o.GetName()
}

// protobuf is the envelope in which API servers store objects.
// Source: k8s.io/apimachinery pkg/runtime/serializer/protobuf
func protobuf(apiVersion, kind string, o object) ([]byte, error) {
	raw, err := o.Marshal()
	if err != nil {
		return nil, err
	}
	value, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}).Marshal()
	return append([]byte("k8s\x00"), value...), err
}

// goVersion is the group's first label and the version of an object's Go type: apps/v1 for
// k8s.io/api/apps/v1.Deployment.
func goVersion(o object) string {
	return strings.TrimPrefix(reflect.TypeOf(o).Elem().PkgPath(), "k8s.io/api/")
}

func shortGroupVersion(apiVersion string) string {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return "core/" + apiVersion
	}
	label, _, _ := strings.Cut(group, ".")
	return label + "/" + version
}

// service is a Service that the legacy side has, and that its allocators therefore know.
type service struct {
	namespace, name string
	address         int // the n-th of the range of addresses
	port            int32
	nodePort        int32 // 0 for none
	backends        []string
}

func services() []service {
	return []service{
		{"default", "kubernetes", 1, 443, 0, nil},
		{metav1.NamespaceSystem, "kube-dns", 10, 53, 0, []string{"10.244.1.2"}},
		{"shop", "db", 33, 5432, 0, []string{"10.244.2.7"}},
		{"shop", "web", 57, 80, 30080, []string{"10.244.1.11", "10.244.2.12", "10.244.3.13"}},
	}
}

// clusterIP is the n-th address of the plan's first range.
func (w *writer) clusterIP(n int) string {
	prefix, err := netip.ParsePrefix(w.plan.Network.ServiceCIDRs[0])
	if err != nil {
		w.errs = append(w.errs, err)
		return ""
	}
	address := prefix.Masked().Addr()
	for range n {
		address = address.Next()
	}
	return address.String()
}

// bitmap is the data of an allocator: bit i is the i-th number of its range.
func bitmap(allocated []int) []byte {
	bits := new(big.Int)
	for _, i := range allocated {
		bits.SetBit(bits, i, 1)
	}
	return bits.Bytes()
}

// putRanges stores both allocators as the services say.
func (w *writer) putRanges() {
	ports := w.plan.Network.NodePortRange
	from, _, _ := strings.Cut(ports, "-")
	first, err := strconv.Atoi(from)
	if err != nil {
		w.errs = append(w.errs, fmt.Errorf("node port range %q: %w", ports, err))
	}
	var addresses, nodePorts []int
	for _, s := range services() {
		addresses = append(addresses, s.address-1) // the network's own address is in no range
		if s.nodePort != 0 {
			nodePorts = append(nodePorts, int(s.nodePort)-first)
		}
	}
	w.put("ranges/serviceips", &corev1.RangeAllocation{Range: w.plan.Network.ServiceCIDRs[0], Data: bitmap(addresses)})
	w.put("ranges/servicenodeports", &corev1.RangeAllocation{Range: ports, Data: bitmap(nodePorts)})
}

// putLocks stores the locks on which the side's components elect.
func (w *writer) putLocks(lock func(l pair.Lock, holder string)) {
	for _, l := range w.plan.Side(w.side).Locks {
		lock(l, w.plan.Hosts[0].Name+"_"+string(uid("holder", l.Namespace, l.Name)))
	}
}

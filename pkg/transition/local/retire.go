package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// mostListed bounds what a sentence lists.
const mostListed = 8

// storedObjects visits the objects of a store below a prefix, each with its entry. Errors: also of an object that
// cannot be decoded: what it says is not known.
func storedObjects(ctx context.Context, s plan.Store, prefix string,
	visit func(etcd.Entry, *unstructured.Unstructured) error) error {
	client, err := open(s, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = etcd.Entries(ctx, etcd.Store{Name: s.Name, Pager: client},
		etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix)}, func(e etcd.Entry) error {
			tree, err := objects.Decode(e.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
			}
			return visit(e, &unstructured.Unstructured{Object: tree})
		})
	if err != nil {
		return fmt.Errorf("store %s: %w", s.Name, err)
	}
	return nil
}

func storeNamed(stores []plan.Store, name string) (plan.Store, error) {
	at := slices.IndexFunc(stores, func(s plan.Store) bool { return s.Name == name })
	if at < 0 {
		return plan.Store{}, fmt.Errorf("store %q is none of the check", name)
	}
	return stores[at], nil
}

// beats waits until every node that is ready has sent a heartbeat, and none has a kubelet of another version.
func (h *Host) beats(ctx context.Context, c *transition.Check) error {
	first, err := heartbeats(ctx, c)
	if err != nil {
		return err
	}
	patient := &Host{Wait: min(h.Wait, kubeletPatience)}
	return patient.wait(ctx, "not all nodes are heard of", func(ctx context.Context) error {
		now, err := heartbeats(ctx, c)
		if err != nil {
			return err
		}
		var silent []string
		for _, node := range slices.Sorted(maps.Keys(first)) {
			if beat, there := now[node]; there && beat == first[node] {
				silent = append(silent, node)
			}
		}
		if len(silent) > 0 {
			return fmt.Errorf("no heartbeat since of %s", prose.First(silent, mostListed))
		}
		return nil
	})
}

// heartbeats are the last ones of the nodes that are ready. Errors: nodes with a kubelet of another minor.
func heartbeats(ctx context.Context, c *transition.Check) (map[string]string, error) {
	store, err := storeNamed(c.Stores, c.Heartbeats.Nodes)
	if err != nil {
		return nil, err
	}
	beats := map[string]string{}
	var others []string
	err = storedObjects(ctx, store, c.Heartbeats.Prefix+"/minions/",
		func(_ etcd.Entry, node *unstructured.Unstructured) error {
			runs, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", "kubeletVersion")
			version, err := kubever.Parse(runs)
			if err != nil || version.Minor != c.Heartbeats.Version.Minor {
				others = append(others, fmt.Sprintf("%s (%s)", node.GetName(), runs))
				return nil
			}
			if beat, ready := lastBeat(node); ready {
				beats[node.GetName()] = beat
			}
			return nil
		})
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("kubelets are not of version %s: %s", c.Heartbeats.Version.Minor,
			prose.First(others, mostListed))
	}
	if err != nil || c.Heartbeats.Leases == "" {
		return beats, err
	}
	if store, err = storeNamed(c.Stores, c.Heartbeats.Leases); err != nil {
		return nil, err
	}
	err = storedObjects(ctx, store, c.Heartbeats.Prefix+"/leases/"+v1.NamespaceNodeLease+"/",
		func(_ etcd.Entry, lease *unstructured.Unstructured) error {
			if beat, ready := beats[lease.GetName()]; ready {
				renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
				beats[lease.GetName()] = beat + " " + renewed
			}
			return nil
		})
	return beats, err
}

// notNewer looks for nodes whose kubelets are of a later minor.
func notNewer(ctx context.Context, c *transition.Check) error {
	store, err := storeNamed(c.Stores, c.Heartbeats.Nodes)
	if err != nil {
		return err
	}
	var newer []string
	err = storedObjects(ctx, store, c.Heartbeats.Prefix+"/minions/",
		func(_ etcd.Entry, node *unstructured.Unstructured) error {
			runs, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", "kubeletVersion")
			if version, err := kubever.Parse(runs); runs != "" && (err != nil ||
				version.Minor > c.Heartbeats.Version.Minor) {
				newer = append(newer, fmt.Sprintf("%s (%s)", node.GetName(), runs))
			}
			return nil
		})
	if err == nil && len(newer) > 0 {
		err = fmt.Errorf("kubelets are newer than %s: %s", c.Heartbeats.Version.Minor, prose.First(newer, mostListed))
	}
	return err
}

// lastBeat is when the status of a node was written, and whether it is ready.
func lastBeat(node *unstructured.Unstructured) (at string, ready bool) {
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == string(v1.NodeReady) {
			at, _ = condition["lastHeartbeatTime"].(string)
			return at, condition["status"] == string(v1.ConditionTrue)
		}
	}
	return "", false
}

// LeftError names objects that would be served by no API server.
type LeftError struct{ Objects []string }

func (e *LeftError) Error() string {
	return "objects are the legacy side's alone:\n  " + strings.Join(e.Objects, "\n  ")
}

// nothingLeft looks for objects of the legacy side's own. Errors: *LeftError; what kept it from looking.
func nothingLeft(ctx context.Context, c *transition.Check) error {
	var found []string
	for _, row := range c.Left.Rows {
		store, err := storeNamed(c.Stores, row.Store)
		if err != nil {
			return err
		}
		names, err := leftOf(ctx, store, c.Left, row.Key)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			found = append(found, fmt.Sprintf("%s: %s: %s", row.Name, prose.First(names, mostListed), row.Hint))
		}
	}
	if len(found) > 0 {
		return &LeftError{Objects: found}
	}
	return nil
}

// leftOf names the objects of a resource that API servers do not write by themselves.
func leftOf(ctx context.Context, store plan.Store, l *transition.Left, key string) (names []string, err error) {
	client, err := open(store, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	from := l.Prefix + "/" + key + "/"
	_, err = etcd.Entries(ctx, etcd.Store{Name: store.Name, Pager: client},
		etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(e etcd.Entry) error {
			rest := strings.TrimPrefix(string(e.Key), l.Prefix+"/")
			for i := range l.Boot {
				if l.Boot[i].Matches(rest) {
					return nil
				}
			}
			envelope, err := storage.ReadEnvelope(e.Value)
			var meta storage.Meta
			if err == nil && envelope.Encoding != storage.Encrypted {
				err = envelope.ReadMeta(&meta)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
			}
			if _, by := meta.Label(kubever.LabelAutoManaged); !by {
				names = append(names, storage.Printable(strings.TrimPrefix(rest, key+"/")))
			}
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", store.Name, err)
	}
	return names, nil
}

const kubernetesService = "kubernetes"

// clearEndpoints deletes the Endpoints of the service kubernetes, and its EndpointSlices: what one API server wrote
// there, another one with another port leaves in place.
func clearEndpoints(ctx context.Context, m *transition.Masters) error {
	err := deleteWhere(ctx, m.Endpoints, endpointsKey(m), func(o *unstructured.Unstructured) bool {
		return o.GetName() == kubernetesService
	})
	if err != nil || m.Slices.Name == "" {
		return err
	}
	return deleteWhere(ctx, m.Slices, slicesPrefix(m)+kubernetesService, leadsToMasters)
}

func endpointsKey(m *transition.Masters) string {
	return m.Prefix + "/services/endpoints/" + v1.NamespaceDefault + "/" + kubernetesService
}

func slicesPrefix(m *transition.Masters) string {
	return m.Prefix + "/endpointslices/" + v1.NamespaceDefault + "/"
}

func leadsToMasters(o *unstructured.Unstructured) bool {
	return o.GetName() == kubernetesService || o.GetLabels()[discoveryv1.LabelServiceName] == kubernetesService
}

// deleteWhere deletes objects as they were read.
func deleteWhere(ctx context.Context, s plan.Store, prefix string, is func(*unstructured.Unstructured) bool) error {
	const rounds = 5
	for range rounds {
		var keys []move.KeyAt
		err := storedObjects(ctx, s, prefix, func(e etcd.Entry, o *unstructured.Unstructured) error {
			if is(o) {
				keys = append(keys, move.KeyAt{Key: string(e.Key), ModRevision: e.ModRevision})
			}
			return nil
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		client, err := open(s, nil)
		if err != nil {
			return err
		}
		_, err = (&etcdv3.Writer{Client: client}).Delete(ctx, keys)
		if err := errors.Join(err, client.Close()); err != nil {
			return fmt.Errorf("store %s: %w", s.Name, err)
		}
	}
	return fmt.Errorf("store %s: %s: is written again and again: stop what writes it", s.Name, prefix)
}

// mastersAre checks that the service kubernetes leads to the API servers, and nowhere else.
func mastersAre(ctx context.Context, m *transition.Masters) error {
	var want []string
	for _, address := range m.Addresses {
		want = append(want, plan.HostPort(address, m.Port))
	}
	slices.Sort(want)
	compare := func(what string, found []string) error {
		slices.Sort(found)
		if !slices.Equal(slices.Compact(found), slices.Compact(want)) {
			return fmt.Errorf("%s of the service kubernetes have %q, want %q", what, found, want)
		}
		return nil
	}
	var found []string
	err := storedObjects(ctx, m.Endpoints, endpointsKey(m), func(_ etcd.Entry, o *unstructured.Unstructured) error {
		if o.GetName() != kubernetesService {
			return nil
		}
		subsets, _, err := unstructured.NestedSlice(o.Object, "subsets")
		for _, subset := range subsets {
			s, _ := subset.(map[string]any)
			found = append(found, addressesOf(s, s["addresses"], "ip")...)
		}
		return err
	})
	if err == nil {
		err = compare("endpoints", found)
	}
	if err != nil || m.Slices.Name == "" {
		return err
	}
	found = nil
	var names []string // a client may have written one of another name
	err = storedObjects(ctx, m.Slices, slicesPrefix(m), func(_ etcd.Entry, o *unstructured.Unstructured) error {
		if leadsToMasters(o) {
			names = append(names, storage.Printable(o.GetName()))
			found = append(found, addressesOf(o.Object, o.Object["endpoints"], "addresses")...)
		}
		return nil
	})
	if err == nil {
		err = compare(strings.TrimSpace("endpoint slices "+prose.First(names, mostListed)), found)
	}
	return err
}

// addressesOf are the addresses of entries, with each of the ports beside them.
func addressesOf(of map[string]any, entries any, field string) (found []string) {
	list, _ := entries.([]any)
	ports, _ := of["ports"].([]any)
	for _, entry := range list {
		e, _ := entry.(map[string]any)
		addresses, many := e[field].([]any)
		if !many {
			addresses = []any{e[field]}
		}
		for _, port := range ports {
			p, _ := port.(map[string]any)
			number, _ := p["port"].(int64)
			for _, address := range addresses {
				text, _ := address.(string)
				found = append(found, plan.HostPort(text, int(number)))
			}
		}
	}
	return found
}

// service is a service with the addresses that it has in ranges.
type service struct {
	namespace, name string
	addresses       []netip.Addr
}

func servicesIn(ctx context.Context, r *transition.Ranges) (list []service, err error) {
	var ranges []netip.Prefix
	for _, text := range r.CIDRs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, prefix)
	}
	err = storedObjects(ctx, r.Store, r.Prefix+"/services/specs/",
		func(_ etcd.Entry, o *unstructured.Unstructured) error {
			s := service{namespace: o.GetNamespace(), name: o.GetName()}
			first, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
			all, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "clusterIPs")
			for _, text := range append([]string{first}, all...) {
				ip, err := netip.ParseAddr(text)
				in := func(p netip.Prefix) bool { return p.Contains(ip) }
				if err == nil && slices.ContainsFunc(ranges, in) && !slices.Contains(s.addresses, ip) {
					s.addresses = append(s.addresses, ip)
				}
			}
			if len(s.addresses) > 0 {
				list = append(list, s)
			}
			return nil
		})
	slices.SortFunc(list, func(a, b service) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return list, err
}

// probeLimit is how long a probe may take to do its work; components that have just started wait for their lock.
const probeLimit = 3 * time.Minute

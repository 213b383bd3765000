package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// The label of objects that these controllers write, and its value.
const (
	managedLabel = "app.kubernetes.io/managed-by"
	managedBy    = "fusionctl-controllers"
)

// The timeout of a probe, and after how many failures in a row a modern API server is removed from the endpoints.
const (
	probeWithin   = 3 * time.Second
	probeFailures = 2
)

// podService reconciles the service by which pods reach the modern API servers: the service itself, its endpoints, and
// endpoint slices where a side serves them. Only the leader does.
type podService struct {
	*cluster
	service plan.PodService
	servers map[string]*apiserver.Server // the modern API servers, by address

	failures map[string]int // in a row, by address
	asked    bool           // each was probed once
}

// newPodService reaches every modern API server as the configuration reaches one of them.
func newPodService(c *cluster, config *rest.Config) (*podService, error) {
	s := &podService{cluster: c, service: c.layout.plan.Pods.Service, servers: map[string]*apiserver.Server{},
		failures: map[string]int{}}
	for _, address := range s.service.Addresses {
		to := rest.CopyConfig(config)
		to.Host = "https://" + net.JoinHostPort(address, strconv.Itoa(s.service.Target))
		server, err := apiserver.New(to, apiserver.Options{Timeout: probeWithin, Attempts: 1, QPS: -1,
			UserAgent: "fusionctl-controllers"})
		if err != nil {
			return nil, fmt.Errorf("connecting to the modern API server at %s: %w", address, err)
		}
		s.servers[address] = server
	}
	return s, nil
}

// podKeepers reconcile what pods of the modern side need; none of it where the plan has no pods.
func podKeepers(c *cluster, o Options) ([]func(context.Context) error, error) {
	keepers := []func(context.Context) error{(&registration{cluster: c, webhook: o.Webhook}).sync}
	if c.layout.plan.Pods == nil {
		return keepers, nil
	}
	service, err := newPodService(c, o.Modern)
	if err != nil {
		return nil, err
	}
	return append(keepers, service.sync), nil
}

// sync reconciles the service and its endpoints.
func (s *podService) sync(ctx context.Context) error {
	s.ask(ctx)
	if err := s.syncService(ctx); err != nil {
		return err
	}
	var problems []error
	problems = append(problems, s.syncEndpoints(ctx))
	stores := map[string]bool{}
	for _, side := range pair.Sides() {
		row := s.layout.plan.Row(schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"})
		if row == nil || row.View(side).Store == "" || stores[row.View(side).Store] {
			continue
		}
		known, err := s.catalogs[side].recent(ctx)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if slices := known.ofKind([]string{"discovery.k8s.io"}, "EndpointSlice"); len(slices) > 0 {
			stores[row.View(side).Store] = true
			problems = append(problems, s.syncSlice(ctx, slices[0]))
		}
	}
	return errors.Join(problems...)
}

// ask probes every modern API server.
func (s *podService) ask(ctx context.Context) {
	var wait sync.WaitGroup
	var mutex sync.Mutex
	for address, server := range s.servers {
		wait.Go(func() {
			err := isReady(ctx, server)
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				s.failures[address] = 0
				return
			}
			if s.failures[address]++; s.failures[address] == probeFailures && ctx.Err() == nil {
				s.log.Warn("modern API server removed from its service", "address", address, "err", err)
			}
			if !s.asked {
				s.failures[address] = probeFailures // it was never ready
			}
		})
	}
	wait.Wait()
	s.asked = true
}

// isReady probes one API server by the health check of its version: an upgrade may not have reached it yet.
func isReady(ctx context.Context, server *apiserver.Server) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	identity, err := server.Identify(ctx, false)
	if err != nil {
		return err
	}
	return server.Ready(ctx, identity)
}

// addresses are those of the API servers that are ready, and of those that are not. When none is, the prober may be the
// one partitioned: then all stay.
func (s *podService) addresses() (ready, failed []string) {
	for _, address := range s.service.Addresses {
		if s.failures[address] < probeFailures {
			ready = append(ready, address)
		} else {
			failed = append(failed, address)
		}
	}
	if len(ready) == 0 {
		return failed, nil
	}
	return ready, failed
}

func (s *podService) metadata(labels map[string]any) map[string]any {
	labels[managedLabel] = managedBy
	return map[string]any{"name": s.service.Name, "namespace": s.service.Namespace, "labels": labels}
}

const portName = "https"

// syncService creates the service, or corrects its ports and selector. Its ClusterIP is immutable: that is an error.
func (s *podService) syncService(ctx context.Context) error {
	r := s.resource(s.service.Side, "", "v1", "services", "Service")
	ports := []any{map[string]any{"name": portName, "protocol": "TCP", "port": int64(s.service.Port),
		"targetPort": int64(s.service.Target)}}
	return s.keep(ctx, r, "pods reach the modern API servers by it",
		func() map[string]any {
			return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": s.metadata(map[string]any{}),
				"spec": map[string]any{"type": "ClusterIP", "clusterIP": s.service.ClusterIP, "ports": ports}}
		},
		func(found map[string]any) (bool, error) {
			spec, _ := found["spec"].(map[string]any)
			if address, _ := spec["clusterIP"].(string); !sameAddress(address, s.service.ClusterIP) {
				return false, fmt.Errorf("service %s/%s has the address %s, and pods and certificates name %s: "+
					"delete the service, or set spec.pods.service.clusterIP and issue the serving certificate again",
					s.service.Namespace, s.service.Name, address, s.service.ClusterIP)
			}
			_, selects := spec["selector"]
			if !selects && contains(spec["ports"], ports) {
				return false, nil
			}
			delete(spec, "selector")
			spec["ports"] = ports
			return true, nil
		})
}

func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x == y
}

// syncEndpoints writes them where kube-proxy of the nodes reads them. No controller mirrors them: where slices are
// served, syncSlice writes these.
func (s *podService) syncEndpoints(ctx context.Context) error {
	side := s.service.Side
	if row := s.layout.plan.Row(schema.GroupResource{Resource: "endpoints"}); row == nil ||
		row.Legacy.Store != row.Modern.Store {
		side = pair.Legacy
	}
	ready, failed := s.addresses()
	subset := map[string]any{
		"ports": []any{map[string]any{"name": portName, "port": int64(s.service.Target), "protocol": "TCP"}}}
	for name, list := range map[string][]string{"addresses": ready, "notReadyAddresses": failed} {
		var of []any
		for _, address := range list {
			of = append(of, map[string]any{"ip": address})
		}
		if len(of) > 0 {
			subset[name] = of
		}
	}
	labels := map[string]any{"endpointslice.kubernetes.io/skip-mirror": "true"}
	return s.keepList(ctx, s.resource(side, "", "v1", "endpoints", "Endpoints"),
		"the modern API servers that are ready", labels, map[string]any{"subsets": []any{subset}})
}

// syncSlice writes the same as a slice, managed by no other controller, so that none deletes it.
func (s *podService) syncSlice(ctx context.Context, r resource) error {
	ready, failed := s.addresses()
	var endpoints []any
	for i, list := range [][]string{ready, failed} {
		for _, address := range list {
			endpoints = append(
				endpoints, map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": i == 0}})
		}
	}
	family := "IPv4"
	if ip, err := netip.ParseAddr(s.service.ClusterIP); err == nil && ip.Is6() {
		family = "IPv6"
	}
	labels := map[string]any{"kubernetes.io/service-name": s.service.Name,
		"endpointslice.kubernetes.io/managed-by": managedBy}
	return s.keepList(ctx, r, "the modern API servers that are ready", labels,
		map[string]any{"addressType": family, "endpoints": endpoints,
			"ports": []any{map[string]any{"name": portName, "port": int64(s.service.Target), "protocol": "TCP"}}})
}

// keepList reconciles the labels and some fields of an object.
func (s *podService) keepList(ctx context.Context, r resource, why string, labels, fields map[string]any) error {
	metadata := s.metadata(labels)
	return s.keep(ctx, r, why,
		func() map[string]any {
			object := map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.kind, "metadata": metadata}
			for name, value := range fields {
				object[name] = value
			}
			return object
		},
		func(found map[string]any) (bool, error) {
			if contains(found["metadata"], map[string]any{"labels": labels}) && sameLists(found, fields) {
				return false, nil
			}
			held, _ := found["metadata"].(map[string]any)
			written, _ := held["labels"].(map[string]any)
			if written == nil {
				written = map[string]any{}
				held["labels"] = written
			}
			for name, value := range labels {
				written[name] = value
			}
			for name, value := range fields {
				found[name] = value
			}
			return true, nil
		})
}

// keep reads the object of the service's name, creates it when there is none, and writes what correct has changed.
func (s *podService) keep(ctx context.Context, r resource, why string, wanted func() map[string]any,
	correct func(found map[string]any) (bool, error)) error {
	client := s.client(r.side)
	at := r.object(s.service.Namespace, s.service.Name)
	what, verb := "create", http.MethodPost
	found, err := client.read(ctx, at)
	switch {
	case errors.Is(err, discovery.ErrNotFound):
		found, at = wanted(), r.collection(s.service.Namespace)
	case err != nil:
		return fmt.Errorf("reading %s on the %s side: %w", r.describe(s.service.Namespace, s.service.Name), r.side, err)
	default:
		wrong, err := correct(found)
		if err != nil || !wrong {
			return err
		}
		what, verb = "change", http.MethodPut
	}
	err = s.writer.write(ctx, r.side, verb, at, found)
	s.record(what, r,
		&metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.service.Namespace, Name: s.service.Name}}, why, err)
	if err != nil {
		return fmt.Errorf("writing %s on the %s side: %w", r.describe(s.service.Namespace, s.service.Name), r.side, err)
	}
	return nil
}

func (c *cluster) resource(side pair.Side, group, version, name, kind string) resource {
	return resource{side: side, GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version,
		Resource: name}, kind: kind, namespaced: true, verbs: "dglw"}
}

// contains reports whether found has everything that is wanted; an API server may add fields to objects, not to lists.
func contains(found, wanted any) bool {
	switch want := wanted.(type) {
	case map[string]any:
		have, ok := found.(map[string]any)
		for name := range want {
			ok = ok && contains(have[name], want[name])
		}
		return ok
	case []any:
		have, ok := found.([]any)
		if ok = ok && len(have) == len(want); ok {
			for i := range want {
				ok = ok && contains(have[i], want[i])
			}
		}
		return ok
	default:
		return reflect.DeepEqual(found, wanted)
	}
}

// sameLists is contains, and no other list of addresses in the found object: left-over addresses are wrong.
func sameLists(found, wanted map[string]any) bool {
	if !contains(found, wanted) {
		return false
	}
	subsets, _ := found["subsets"].([]any)
	for i, subset := range subsets {
		have, _ := subset.(map[string]any)
		want, _ := wanted["subsets"].([]any)[i].(map[string]any)
		for name := range have {
			if _, ok := want[name]; !ok {
				return false
			}
		}
	}
	return true
}

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// LockNamespace and LockName name the config map on which controllers elect their leader.
const (
	LockNamespace = metav1.NamespaceSystem
	LockName      = "fusionctl-controllers"
)

// StopAnnotation of the lock is a witness.Stop as JSON, while the leader deletes nothing.
const StopAnnotation = "kubefusion.dev/deletions-stopped"

// KindsAnnotation of the lock are the kinds whose objects own others, a witness.Memory's, as JSON.
const KindsAnnotation = "kubefusion.dev/kinds-that-own"

// lock is a config map, which every version has; leases are younger than half of the versions. It is no lock of any
// Kubernetes component.
//
// It carries the stop of the leader, too: a process that leads after it, on another host, has not counted the owners
// that vanished, and must not go on where the leader stopped. And the kinds that the leader remembers: a side may have
// stopped to serve one.
type lock struct {
	client   *client
	identity string
	guard    *guard // whose stop the lock carries; nil for none
	// as it was last read or written: its resource version is the precondition of the next write
	object map[string]any
}

var lockResource = discovery.Resource{
	GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "configmaps", Kind: "ConfigMap", Namespaced: true,
}

// Get reads the record of the leader.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	object, err := l.client.read(ctx, lockResource.Object(LockNamespace, LockName))
	if err != nil {
		return nil, nil, err
	}
	l.object = object
	record := &resourcelock.LeaderElectionRecord{}
	annotations := (&unstructured.Unstructured{Object: object}).GetAnnotations()
	l.guard.takeOver(annotations[StopAnnotation])
	text := annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	if text != "" {
		if err := json.Unmarshal([]byte(text), record); err != nil {
			return nil, nil, fmt.Errorf("reading the lock %s/%s: %w", LockNamespace, LockName, err)
		}
	}
	if l.guard != nil && record.HolderIdentity != l.identity {
		l.guard.takeOverKinds(annotations[KindsAnnotation])
	}
	return record, []byte(text), nil
}

// Create creates the config map.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": LockName, "namespace": LockNamespace}}
	return l.put(ctx, http.MethodPost, lockResource.Objects(LockNamespace), record)
}

// Update writes the record, if no other process has since.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.object == nil {
		return fmt.Errorf("writing the lock %s/%s: it was not read", LockNamespace, LockName)
	}
	return l.put(ctx, http.MethodPut, lockResource.Object(LockNamespace, LockName), record)
}

// carry writes each stop on the lock as soon as deletions stop, without waiting for the next renewal: this process may
// end before that. It is for a lock of its own, beside that of the elector; where both write, one of them writes again.
func (l *lock) carry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.guard.stops:
		}
		err := l.writeStop(ctx)
		for range 2 { // the elector has written meanwhile
			if apierrors.IsConflict(err) {
				err = l.writeStop(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			l.guard.log.Warn("writing the stop on the lock failed; the next renewal writes it", "lock", l.Describe(),
				"err", err)
		}
	}
}

// another is the same lock, which has read nothing yet: what each has read is its own.
func (l *lock) another() *lock {
	return &lock{client: l.client, identity: l.identity, guard: l.guard}
}

// writeStop writes the stop, and the record as it is: a renewal is the elector's.
func (l *lock) writeStop(ctx context.Context) error {
	record, _, err := l.Get(ctx)
	if err != nil || record.HolderIdentity != l.identity {
		return err
	}
	return l.Update(ctx, *record)
}

func (l *lock) put(ctx context.Context, verb string, at discovery.Path,
	record resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: l.object}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcelock.LeaderElectionRecordAnnotationKey] = string(text)
	delete(annotations, StopAnnotation)
	if stop := l.guard.handOver(); stop != "" {
		annotations[StopAnnotation] = stop
	}
	if l.guard != nil {
		annotations[KindsAnnotation] = l.guard.kinds()
	}
	object.SetAnnotations(annotations)
	// The response has the resource version that is the precondition of the next write. A read would return that of
	// another process, and its record would be overwritten.
	l.object, err = l.client.exchange(ctx, verb, at, object.Object)
	return err
}

// RecordEvent does nothing: the log has the leader.
func (l *lock) RecordEvent(string) {}

// Identity is this process.
func (l *lock) Identity() string { return l.identity }

// Describe names the lock.
func (l *lock) Describe() string { return LockNamespace + "/" + LockName }

package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// PodsError names the pods that are not those of before, when the controllers act for their owners.
type PodsError struct {
	Pods []string `json:"pods"` // the first of them, each with what became of it
	More int      `json:"more,omitempty"`
}

func (e *PodsError) Error() string {
	text := strings.Join(e.Pods, "\n")
	if e.More > 0 {
		text += fmt.Sprintf("\nand %d more", e.More)
	}
	return text
}

// mostPods bounds what a PodsError names.
const mostPods = 20

// Adopted reports whether the controllers of the side to which the objects went act for them, and for nothing else:
// each was observed again, each pod of before is there, and no other one was created. What clients, nodes and time do
// is no matter of the hand-over: pods of what was changed or deleted since, pods of DaemonSets on nodes that came or
// went, and pods that were replaced one for one by others of the same template.
//
// Errors: what is not so; *PodsError where it is about pods alone; *GoneError; those of the stores.
func (j *Job) Adopted(ctx context.Context) error {
	rec, err := j.load()
	if err != nil {
		return err
	}
	if j.Kept {
		return j.kept(ctx)
	}
	if err := j.define(ctx, rec); err != nil {
		return err
	}
	if rec == nil {
		if j.Back { // from before anything was handed over
			return nil
		}
		return errors.New("there is no record of what was handed over: put it back where it was")
	}
	if err := j.gone(ctx, rec, nil); err != nil {
		return err
	}
	uids := rec.uids()
	if !slices.ContainsFunc(j.Resources, func(r Resource) bool { return !r.compared() }) {
		return j.left(ctx, uids)
	}
	generations := map[string]int64{} // of what is there, by UID
	var problems []error
	for k := range j.Resources {
		r := &j.Resources[k]
		err := j.each(ctx, j.To, r.Key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			if !uids[identity(string(e.Key), string(m.UID))] {
				return nil
			}
			generation, problem := unobserved(r.Kind, string(e.Key), e.Value)
			generations[string(m.UID)] = generation
			problems = append(problems, problem)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	owners, err := j.asTheyWere(rec, generations)
	if err != nil {
		return err
	}
	now, err := j.podsOf(ctx, rec.steady())
	if err != nil {
		return err
	}
	return j.samePods(ctx, owners, rec.Pods, now)
}

// asTheyWere are the kinds of the recorded objects that no client has changed or deleted since, by UID. What another
// one of them controls is changed by that one.
func (j *Job) asTheyWere(rec *Record, generations map[string]int64) (map[string]string, error) {
	kinds, controllers, changed := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, o := range rec.Objects {
		object, err := objects.Decode(o.Value)
		if err != nil {
			return nil, fmt.Errorf("in the record, %s: %w", storage.Printable(o.Key), err)
		}
		meta, _ := object["metadata"].(map[string]any)
		if r := j.resourceOf(o.Key); r != nil {
			kinds[o.UID] = r.Kind
		}
		now, there := generations[o.UID]
		changed[o.UID] = !there || now > o.Generation
		if owner := controllerOf(meta); owner != nil {
			controllers[o.UID], _ = owner["uid"].(string)
		}
	}
	same, roots := map[string]string{}, map[string]string{}
	for uid, kind := range kinds {
		if !changed[rootOf(uid, controllers, kinds, roots)] {
			same[uid] = kind
		}
	}
	return same, nil
}

// rootOf is the outermost of the recorded objects that control one another, from an object on; of those that control
// one another in a circle, as clients may write, one of them. What is found is kept in roots.
func rootOf(uid string, controllers, recorded, roots map[string]string) string {
	var way []string
	for {
		if root, known := roots[uid]; known {
			uid = root
			break
		}
		roots[uid] = uid
		way = append(way, uid)
		if _, is := recorded[controllers[uid]]; !is {
			break
		}
		uid = controllers[uid]
	}
	for _, passed := range way {
		roots[passed] = uid
	}
	return uid
}

// controllerOf is the owner reference of what controls an object; nil where nothing does.
func controllerOf(meta map[string]any) map[string]any {
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, _ := o.(map[string]any); owner["controller"] == true {
			return owner
		}
	}
	return nil
}

// nodes is their part of the key, in every version.
const nodes = "minions"

// samePods compares the pods of owners that are as they were. Errors: *PodsError; those of the store.
func (j *Job) samePods(ctx context.Context, owners map[string]string, before, now []Pod) error {
	gone, created := without(before, now), without(now, before)
	of := func(pods []Pod) []Pod {
		return slices.DeleteFunc(pods, func(p Pod) bool { return owners[p.Owner] == "" })
	}
	gone, created = of(gone), of(created)
	created = slices.DeleteFunc(created, func(p Pod) bool {
		return owners[p.Owner] == daemonSet && p.Node != "" && !slices.ContainsFunc(before, func(o Pod) bool {
			return o.Owner == p.Owner && o.Node == p.Node
		})
	})
	var lost []Pod
	for _, p := range gone {
		at := slices.IndexFunc(created, func(o Pod) bool { return replaces(owners[p.Owner], p, o) })
		if at >= 0 {
			created = slices.Delete(created, at, at+1)
			continue
		}
		if owners[p.Owner] == daemonSet && p.Node != "" {
			node, err := j.Shared.Read(ctx, []string{j.Prefix + "/" + nodes + "/" + p.Node})
			if err != nil {
				return err
			}
			if node[0] == nil {
				continue
			}
		}
		lost = append(lost, p)
	}
	var e PodsError
	say := func(p Pod, what string) {
		if len(e.Pods) == mostPods {
			e.More++
			return
		}
		e.Pods = append(e.Pods, fmt.Sprintf("%s, UID %s: %s", storage.Printable(p.Key), storage.Printable(p.UID), what))
	}
	for _, p := range lost {
		say(p, "is gone, or about to go")
	}
	for _, p := range created {
		say(p, "was created since")
	}
	if len(e.Pods) > 0 {
		return &e
	}
	return nil
}

// without are the pods of the first list whose UIDs are not in the second.
func without(pods, others []Pod) (rest []Pod) {
	known := make(map[string]bool, len(others))
	for _, p := range others {
		known[p.UID] = true
	}
	for _, p := range pods {
		if !known[p.UID] {
			rest = append(rest, p)
		}
	}
	return rest
}

// replaces reports whether a pod is there for one that is gone: of the same owner and the same template. A ReplicaSet
// has one template for all its pods; those of others say by a label of which revision they are.
func replaces(kind string, gone, created Pod) bool {
	switch {
	case gone.Owner != created.Owner:
		return false
	case kind == "StatefulSet":
		return gone.Key == created.Key && gone.Revision != "" && gone.Revision == created.Revision
	case kind == daemonSet:
		return gone.Node == created.Node && gone.Revision != "" && gone.Revision == created.Revision
	}
	return kind == "ReplicaSet"
}

// revisionLabel is where controllers of DaemonSets and StatefulSets write of which revision a pod is.
const revisionLabel = "controller-revision-hash"

// podsOf lists the pods that objects own and that do not end by themselves.
func (j *Job) podsOf(ctx context.Context, uids map[string]bool) ([]Pod, error) {
	var pods []Pod
	err := j.each(ctx, j.Shared, j.Pods, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
		if !isOwned(e.Key, m, uids) {
			return nil
		}
		p := Pod{Key: string(e.Key), UID: string(m.UID)}
		object, err := objects.Decode(e.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", storage.Printable(p.Key), err)
		}
		meta, _ := object["metadata"].(map[string]any)
		status, _ := object["status"].(map[string]any)
		if meta["deletionTimestamp"] != nil || status["phase"] == "Succeeded" || status["phase"] == "Failed" {
			return nil
		}
		for _, o := range m.Owners {
			if uids[identity(p.Key, string(o.UID))] {
				p.Owner = string(o.UID)
			}
		}
		labels, _ := meta["labels"].(map[string]any)
		p.Revision, _ = labels[revisionLabel].(string)
		p.Node = nodeOf(object)
		pods = append(pods, p)
		return nil
	})
	return pods, err
}

// nodeOf is the node of a pod, or the one to which its DaemonSet has bound it by its affinity.
func nodeOf(pod map[string]any) string {
	spec, _ := pod["spec"].(map[string]any)
	if name, _ := spec["nodeName"].(string); name != "" {
		return name
	}
	var at any = spec
	for _, field := range []string{"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"} {
		object, _ := at.(map[string]any)
		at = object[field]
	}
	selector, _ := at.(map[string]any)
	terms, _ := selector["nodeSelectorTerms"].([]any)
	for _, t := range terms {
		term, _ := t.(map[string]any)
		fields, _ := term["matchFields"].([]any)
		for _, f := range fields {
			field, _ := f.(map[string]any)
			values, _ := field["values"].([]any)
			if name, is := first(values).(string); is && field["key"] == "metadata.name" {
				return name
			}
		}
	}
	return ""
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

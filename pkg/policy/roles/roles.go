// Package roles copies the roles and bindings of one API server to another, and proves that they allow the same: which
// of them are created, changed or removed there, what stands against it, and what subjects may do before and
// afterwards.
package roles

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

// Copied is the annotation of a copy: the digest of what was copied.
const Copied = "kubefusion.dev/copied"

// Bootstrapping is the label of what API servers create by themselves, and bring up to date whenever they start.
// Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of every version from 1.6 on.
const Bootstrapping = "kubernetes.io/bootstrapping"

// Kinds, as in stored objects.
const (
	clusterRole        = "ClusterRole"
	role               = "Role"
	clusterRoleBinding = "ClusterRoleBinding"
	roleBinding        = "RoleBinding"
)

// plurals are the kinds by their resource.
var plurals = map[string]string{clusterRole: "clusterroles", role: "roles", clusterRoleBinding: "clusterrolebindings",
	roleBinding: "rolebindings"}

// Object is a role or a binding of either kind, in the version rbac.authorization.k8s.io/v1. Shape: that of its JSON.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	AggregationRule   *rbacv1.AggregationRule `json:"aggregationRule,omitempty"`
	Rules             []rbacv1.PolicyRule     `json:"rules,omitempty"`
	RoleRef           *rbacv1.RoleRef         `json:"roleRef,omitempty"`
	Subjects          []rbacv1.Subject        `json:"subjects,omitempty"`
}

// kept are the fields of metadata that are read.
var kept = []string{"name", "namespace", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp"}

// Read reads an object in its JSON, as a tree. Errors: what is none, or has fields that v1 does not have.
func Read(tree map[string]any) (Object, error) {
	tree = maps.Clone(tree)
	meta, _ := tree["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	maps.DeleteFunc(meta, func(field string, _ any) bool { return !slices.Contains(kept, field) })
	tree["metadata"] = meta
	var o Object
	text, err := json.Marshal(tree)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&o)
	}
	switch {
	case err != nil:
		return o, err
	case o.APIVersion != rbacv1.SchemeGroupVersion.String() || plurals[o.Kind] == "" || o.Name == "":
		return o, fmt.Errorf("%s %s %q is no role or binding", o.APIVersion, o.Kind, o.Name)
	case o.isBinding() != (o.RoleRef != nil):
		return o, fmt.Errorf("%s: want a roleRef in bindings, and in nothing else", o.Key())
	}
	return o, nil
}

// OfPolicy are the roles and bindings that allow what rules of ABAC do.
func OfPolicy(rbac policy.RBAC) (list []Object) {
	for _, o := range rbac.ClusterRoles {
		list = append(list, Object{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Rules: o.Rules})
	}
	for _, o := range rbac.Roles {
		list = append(list, Object{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Rules: o.Rules})
	}
	for _, o := range rbac.ClusterRoleBindings {
		list = append(list, Object{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Subjects: o.Subjects,
			RoleRef: &o.RoleRef})
	}
	for _, o := range rbac.RoleBindings {
		list = append(list, Object{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Subjects: o.Subjects,
			RoleRef: &o.RoleRef})
	}
	return list
}

// Key is the object's part of the key: "roles/default/reader".
func (o *Object) Key() string {
	return plurals[o.Kind] + "/" + strings.TrimPrefix(o.Namespace+"/", "/") + o.Name
}

func (o *Object) isBinding() bool { return o.Kind == clusterRoleBinding || o.Kind == roleBinding }

// refersTo is the key of the role that a binding refers to.
func (o *Object) refersTo() string {
	if o.RoleRef.Kind == role {
		return plurals[role] + "/" + o.Namespace + "/" + o.RoleRef.Name
	}
	return plurals[clusterRole] + "/" + o.RoleRef.Name
}

func (o *Object) bootstraps() bool { return o.Labels[Bootstrapping] != "" }

// digest is that of all that decides what an object allows. The rules of an aggregated role follow from others.
func (o *Object) digest() string {
	d := Object{ObjectMeta: metav1.ObjectMeta{Labels: o.Labels}, AggregationRule: o.AggregationRule, Rules: o.Rules,
		RoleRef: o.RoleRef, Subjects: o.Subjects}
	if o.AggregationRule != nil {
		d.Rules = nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		panic("roles: internal error: " + err.Error()) // plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// copied is the copy of an object: another one, of the same name. What owns the original is not there.
func (o *Object) copied() Object {
	c := *o
	c.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, CreationTimestamp: o.CreationTimestamp,
		Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations)}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[Copied] = o.digest()
	delete(c.Annotations, "kubectl.kubernetes.io/last-applied-configuration") // apply would take the annotation out
	sum := sha256.Sum256([]byte(o.Key() + "\x00" + string(o.UID)))
	sum[6], sum[8] = sum[6]&0x0f|uidVersion<<4, sum[8]&0x3f|0x80
	c.UID = types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
	return c
}

// uidVersion is that of the UIDs of copies: of one's own making. API servers give every object that a client creates a
// UID of version 4, whatever its annotations say: the copy of a copy by kubectl has them, too.
const uidVersion = 8

// isCopy reports whether an object is a copy, and whether it is as it was copied.
func (o *Object) isCopy() (copied, unchanged bool) {
	digest, copied := o.Annotations[Copied]
	const at = len("01234567-0123-")
	copied = copied && len(o.UID) > at && o.UID[at] == '0'+uidVersion
	return copied, copied && digest == o.digest()
}

// Difference is an object of the API server to which others are copied that is left as it is.
type Difference struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// Copies is what makes copies of objects: nothing, when all have theirs.
type Copies struct {
	Create []Object     // of objects that are not there
	Change []Object     // of objects that were changed since they were copied
	Remove []Object     // of objects that were deleted since they were copied
	Kept   []Difference // what is there by itself, and differs
}

// Copy compares what is to be copied with what is there. What stands against it is a problem, with the key of an
// object; an object of the same name that allows the same is as good as a copy.
func Copy(from, there []Object) (c Copies, problems []string) {
	had, own, left := byKey(from), byKey(there), newBudget()
	problem := func(o *Object, format string, args ...any) {
		problems = append(problems, o.Key()+": "+fmt.Sprintf(format, args...))
	}
	for i := range from {
		o := &from[i]
		is := own[o.Key()]
		if o.DeletionTimestamp != nil {
			problem(o, "is being deleted: wait until it is gone")
			continue
		}
		if o.isBinding() && had[o.refersTo()] == nil {
			if r := own[o.refersTo()]; r != nil {
				if copied, _ := r.isCopy(); !copied {
					problem(o, "binds %s, which is not there, but on the other side: its copy would allow what it "+
						"allows there: delete the binding", o.refersTo())
					continue
				}
			}
		}
		if is == nil {
			c.Create = append(c.Create, o.copied())
			continue
		}
		copied, unchanged := is.isCopy()
		switch {
		case copied && unchanged && is.Annotations[Copied] == o.digest():
		case copied && unchanged:
			change := o.copied()
			change.UID, change.CreationTimestamp = is.UID, is.CreationTimestamp
			c.Change = append(c.Change, change)
		case same(o, is, left):
		case is.bootstraps():
			c.Kept = append(c.Kept, Difference{Key: o.Key(), Why: "is what the API server there creates by itself, " +
				"and differs: " + differs(o, is, left)})
		case copied:
			problem(o, "its copy was changed on the other side: %s: change both to what is meant, or delete the copy",
				differs(o, is, left))
		default:
			problem(o, "there is another one of this name on the other side: %s: rename or delete one of the two",
				differs(o, is, left))
		}
	}
	for i := range there {
		if _, unchanged := there[i].isCopy(); unchanged && had[there[i].Key()] == nil {
			c.Remove = append(c.Remove, there[i])
		}
	}
	return c, problems
}

// Replace compares roles that take the place of others where roles decide already, and bindings. Of a key that both
// have alike, and of all that neither has, nothing is looked at: people change and withdraw what is theirs there. So
// what was withdrawn stays so. A copy that goes, or would be another, and that a person has changed, is a problem.
func Replace(was, is, there []Object) (c Copies, problems []string) {
	had, wanted, own := byKey(was), byKey(is), byKey(there)
	changed := func(o *Object) { problems = append(problems, o.changedSince()) }
	for i := range is {
		o := &is[i]
		before, now := had[o.Key()], own[o.Key()]
		switch {
		case before != nil && before.digest() == o.digest():
			continue
		case now == nil && before == nil:
			c.Create = append(c.Create, o.copied())
			continue
		case now == nil: // withdrawn
			continue
		}
		switch copied, unchanged := now.isCopy(); {
		case !copied, now.digest() == o.digest():
		case unchanged:
			change := o.copied()
			change.UID, change.CreationTimestamp = now.UID, now.CreationTimestamp
			c.Change = append(c.Change, change)
		default:
			changed(now)
		}
	}
	for i := range was {
		now := own[was[i].Key()]
		if now == nil || wanted[was[i].Key()] != nil {
			continue
		}
		switch copied, unchanged := now.isCopy(); {
		case unchanged:
			c.Remove = append(c.Remove, *now)
		case copied:
			changed(now)
		}
	}
	return c, problems
}

// changedSince says what becomes of a copy that was changed.
func (o *Object) changedSince() string {
	return fmt.Sprintf("%s: was changed since it was copied: delete it, or take its annotation %s away to keep it",
		o.Key(), Copied)
}

// Apply returns what is there afterwards.
func (c *Copies) Apply(there []Object) []Object {
	changed := byKey(slices.Concat(c.Change, c.Remove))
	after := slices.DeleteFunc(slices.Clone(there), func(o Object) bool { return changed[o.Key()] != nil })
	return slices.Concat(after, c.Create, c.Change)
}

// Withdraw returns the copies among objects. One that was changed since is a problem, unless the API server there
// changes it by itself.
func Withdraw(there []Object) (remove []Object, problems []string) {
	for i := range there {
		o := &there[i]
		copied, unchanged := o.isCopy()
		switch {
		case !copied:
		case unchanged, o.bootstraps():
			remove = append(remove, *o)
		default:
			problems = append(problems, o.changedSince())
		}
	}
	return remove, problems
}

func byKey(list []Object) map[string]*Object {
	m := make(map[string]*Object, len(list))
	for i := range list {
		m[list[i].Key()] = &list[i]
	}
	return m
}

// same reports whether two objects of one key allow the same.
func same(a, b *Object, left *budget) bool { return differs(a, b, left) == "" }

// differs says in what two objects of one key differ; "" where they allow the same.
func differs(a, b *Object, left *budget) string {
	var parts []string
	if a.isBinding() {
		if a.RoleRef.Kind != b.RoleRef.Kind || a.RoleRef.Name != b.RoleRef.Name {
			parts = append(parts, fmt.Sprintf("it binds %s there, and %s here", b.refersTo(), a.refersTo()))
		}
		here, there := subjectsOf(a), subjectsOf(b)
		if more := without(here, there); len(more) > 0 {
			parts = append(parts, "not bound there: "+first(more))
		}
		if more := without(there, here); len(more) > 0 {
			parts = append(parts, "bound there alone: "+first(more))
		}
		return strings.Join(parts, "; ")
	}
	if a.AggregationRule != nil && b.AggregationRule != nil {
		if !reflect.DeepEqual(a.AggregationRule, b.AggregationRule) {
			return "it aggregates other roles there"
		}
		return ""
	}
	if (a.AggregationRule == nil) != (b.AggregationRule == nil) {
		parts = append(parts, "one of the two aggregates others")
	}
	here, there := []*ruleSet{setOf(a, true)}, []*ruleSet{setOf(b, true)}
	for _, by := range []struct {
		wanted, allowed []*ruleSet
		words           string
	}{{here, there, "not allowed there: "}, {there, here, "allowed there alone: "}} {
		more, tooMuch := uncovered(by.wanted, by.allowed, left)
		if tooMuch != nil {
			return "one of the two names too much to be compared"
		}
		if len(more) > 0 {
			parts = append(parts, by.words+first(more))
		}
	}
	return strings.Join(parts, "; ")
}

// mostNamed bounds what a sentence lists.
const mostNamed = 8

func first(list []string) string {
	if len(list) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:mostNamed], ", "), len(list)-mostNamed)
	}
	return strings.Join(list, ", ")
}

func without(list, other []string) []string {
	there := map[string]bool{}
	for _, s := range other {
		there[s] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return there[s] })
}

package controllers

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// onePod is a request for a pod, whatever its name.
var onePod = regexp.MustCompile(`^/api/v1/namespaces/demo/pods/[^/?#]+$`)

// What an object says that anybody may write never becomes another request than one for an object of that name: the
// controllers may read everything, nodes/proxy and pods/proxy included, and who writes a ConfigMap may not.
func TestOwnersLeadToNoOtherRequest(t *testing.T) {
	for name, ref := range map[string]metav1.OwnerReference{
		"a name that leads elsewhere": {APIVersion: "v1", Kind: "Pod",
			Name: "../../kube-system/pods/http:victim:8080/proxy/admin/shutdown"},
		"a proxy below it": {APIVersion: "v1", Kind: "Pod", Name: "victim/proxy/admin"},
		"escaped": {APIVersion: "v1", Kind: "Pod",
			Name: "..%2f..%2fkube-system/pods/victim/proxy"},
		"a node":                       {APIVersion: "v1", Kind: "Node", Name: "worker:10250/proxy/run"},
		"dots":                         {APIVersion: "v1", Kind: "Pod", Name: ".."},
		"a query":                      {APIVersion: "v1", Kind: "Pod", Name: "victim?watch=true"},
		"a fragment":                   {APIVersion: "v1", Kind: "Pod", Name: "victim#proxy"},
		"nothing":                      {APIVersion: "v1", Kind: "Pod"},
		"a version that leads":         {APIVersion: "apps/../../api/v1", Kind: "Pod", Name: "victim"},
		"a group that leads":           {APIVersion: "../v1", Kind: "Pod", Name: "victim"},
		"a kind that leads":            {APIVersion: "v1", Kind: "../nodes/worker/proxy", Name: "victim"},
		"a name with another encoding": {APIVersion: "v1", Kind: "Pod", Name: "victim\x00proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			ref.UID = "of-nobody"
			config := w.put(modern, "configmaps", "demo", "bait", ref)
			w.see(t.Context(), m)
			w.refuse = func(_ pair.Side, r *http.Request) int {
				for _, bad := range []string{"victim", "worker", "proxy", ".."} {
					if strings.Contains(r.URL.String(), bad) && !onePod.MatchString(r.RequestURI) {
						t.Errorf("a reference makes the controllers ask for %s", r.RequestURI)
					}
				}
				return 0
			}
			err := c.process(t.Context(), config.UID)
			// absent, as any other
			possible := slices.Contains([]string{"a query", "a fragment", "a name with another encoding"}, name)
			if !possible && (err != nil || len(w.deletions) > 0) {
				t.Errorf("process = %v, deleted %q, want the object left alone", err, w.deletions)
			}
		})
	}
}

// What an extension API server lists is asked for by its own name, or not at all.
func TestListedNamesLeadToNoOtherRequest(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	victim := w.put("", "pods", "prod", "victim")
	const leading = "../../../../../../api/v1/namespaces/prod/pods/victim"
	w.put(modern, "widgets", "demo", leading, metav1.OwnerReference{
		APIVersion: "example.test/v1", Kind: "Widget", Name: "gone", UID: "gone"})
	for _, o := range w.own[modern].objects {
		if strings.HasSuffix(o.Metadata.Name, "/victim") {
			o.Metadata.UID = victim.UID
		}
	}
	for _, r := range m.layout.watchedFor(t, m) {
		if r.Resource == "widgets" {
			if _, err := m.client(r.side).listAll(t.Context(), r, ""); err == nil {
				t.Error("a list with a name that no object can have is read")
			}
			if _, _, err := m.client(r.side).list(t.Context(), collection{r, "", decodeObject},
				metav1.ListOptions{}, 0); err == nil {
				t.Error("a watch begins with a name that no object can have")
			}
			listed := w.own[modern].objects["widgets/demo/"+leading].Metadata // as if it had been
			m.graph.observe(&r, &metav1.PartialObjectMetadata{ObjectMeta: listed})
		}
	}
	_ = c.process(t.Context(), victim.UID)
	if len(w.deletions) > 0 || !w.has("", "pods", "prod", "victim") {
		t.Errorf("deleted %q", w.deletions)
	}
}

// spoof gives an object of a side the UID of another one, and puts it into the graph last.
func (w *world) spoof(m *manager, side pair.Side, key string, uid types.UID, finalizer string) {
	w.t.Helper()
	now := metav1.Now()
	o := w.own[side].objects[key]
	o.Metadata.UID, o.Metadata.DeletionTimestamp, o.Metadata.Finalizers = uid, &now, []string{finalizer}
	plural, _, _ := strings.Cut(key, "/")
	for _, r := range m.layout.watchedFor(w.t, m) {
		if r.Resource == plural && r.side == side {
			m.graph.observe(&m.monitors.running[r].resource, &metav1.PartialObjectMetadata{ObjectMeta: o.Metadata})
		}
	}
}

// An extension API server, and each side, may give its objects the UID of an object of another one: what it says of
// these moves nothing of the other's.
func TestUIDsOfOthersMoveNothing(t *testing.T) {
	for name, fake := range map[string]string{"an object of an extension": "widgets/demo/fake",
		"one of the other side, of the same name": "replicasets/demo/set"} {
		for _, finalizer := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
			t.Run(name+", "+finalizer, func(t *testing.T) {
				w := newWorld(t)
				c, m := w.collector(Options{})
				set := w.put(legacy, "replicasets", "demo", "set")
				set.BlockOwnerDeletion = new(true)
				pod := w.put("", "pods", "demo", "one", set)
				parts := strings.Split(fake, "/")
				w.put(modern, parts[0], parts[1], parts[2])
				w.see(t.Context(), m)
				w.spoof(m, modern, fake, set.UID, finalizer)
				for range 3 {
					for _, uid := range append(m.graph.suspects(), pod.UID, set.UID) {
						_ = c.process(t.Context(), uid)
					}
				}
				if len(w.deletions) > 0 || len(w.wrong) > 0 {
					t.Errorf("deleted %q; %q", w.deletions, w.wrong)
				}
				if pod := w.shared.objects["pods/demo/one"]; pod != nil && len(pod.Metadata.OwnerReferences) != 1 {
					t.Errorf("the pod has lost its owner, and names %+v", pod.Metadata.OwnerReferences)
				}
				if !w.has(legacy, "replicasets", "demo", "set") {
					t.Error("the owner is gone")
				}
			})
		}
	}
}

// An owner that waits for its dependents waits for those that name it: one that names something else stays while it is
// there.
func TestMisnamedReferencesWaitForTheOwner(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	misnamed := w.put(legacy, "replicasets", "demo", "set")
	misnamed.Name = "another"
	pod := w.put("", "pods", "demo", "one", misnamed)
	finalized(w, legacy, "replicasets/demo/set", metav1.FinalizerDeleteDependents)
	w.see(t.Context(), m)
	if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) > 0 {
		t.Errorf("process = %v, deleted %q", err, w.deletions)
	}
}

// A reference with the UID of an owner and the name of something else is released with the others: it names nothing.
func TestMisnamedReferencesAreReleased(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	set := w.put(legacy, "replicasets", "demo", "set")
	misnamed, impossible := set, set
	misnamed.Name, impossible.Name = "another", "../set"
	w.put("", "pods", "demo", "one", misnamed)
	w.put("", "pods", "demo", "two", impossible)
	finalized(w, legacy, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
	w.see(t.Context(), m)
	if err := c.process(t.Context(), set.UID); err != nil || w.has(legacy, "replicasets", "demo", "set") {
		t.Errorf("the owner stays: %v", err)
	}
	for _, pod := range []string{"one", "two"} {
		if refs := w.shared.objects["pods/demo/"+pod].Metadata.OwnerReferences; len(refs) != 0 {
			t.Errorf("pod %s still names %+v", pod, refs)
		}
	}
}

// watchedFor is what the two sides of the fakes serve.
func (l layout) watchedFor(t testing.TB, m *manager) []resource {
	t.Helper()
	legacy, modern, err := m.freshCatalogs(t.Context(), m.now())
	if err != nil {
		t.Fatal(err)
	}
	return l.watched(legacy, modern)
}

package controllers

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// watchedFor is what the two sides of the fakes serve.
func (l layout) watchedFor(t *testing.T, m *manager) []resource {
	t.Helper()
	legacy, modern, err := m.freshCatalogs(t.Context(), m.now())
	if err != nil {
		t.Fatal(err)
	}
	return l.watched(legacy, modern)
}

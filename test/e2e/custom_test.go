//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestCustomResourcesGoOver: definitions of a real 1.15.12, and what they define, become those of a 1.36.3, as the same
// objects, and come back; no client that watches them sees one deleted, or a part of them. PriorityClasses and
// configurations of webhooks are on both sides meanwhile.
func TestCustomResourcesGoOver(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: [apiextensions.k8s.io, " +
		"example.test, own.test, admissionregistration.k8s.io, scheduling.k8s.io], resources: [\"*\"]}\n"
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: rights})
	legacy, modern := startBare(t, r, p)
	const defs, classes, webhooks = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions",
		"/apis/scheduling.k8s.io/v1/priorityclasses",
		"/apis/admissionregistration.k8s.io/v1beta1/validatingwebhookconfigurations"
	const api = "/apis/example.test/v1/"
	const widgets, things = api + "namespaces/demo/widgets", api + "things"
	create := func(c *rig.Client, path string, body object) {
		t.Helper()
		r.Eventually("creating at "+path, func(ctx context.Context) error {
			return c.Call(ctx, http.MethodPost, path, body, nil)
		})
	}
	create(legacy, defs, object{"metadata": object{"name": "widgets.example.test"}, "spec": object{
		"group": "example.test", "scope": "Namespaced", "names": object{"plural": "widgets", "kind": "Widget"},
		"versions": []object{{"name": "v1", "served": true, "storage": true},
			{"name": "v1alpha1", "served": true, "storage": false}},
		"subresources": object{"status": object{}},
		"validation": object{"openAPIV3Schema": object{"properties": object{"spec": object{"properties": object{
			"size": object{"type": "integer", "minimum": 1}}}}}}}})
	create(legacy, defs, object{"metadata": object{"name": "things.example.test"}, "spec": object{
		"group": "example.test", "version": "v1", "scope": "Cluster",
		"names": object{"plural": "things", "kind": "Thing"}}})
	widget := func(name string, size int) object {
		meta := object{"name": name, "finalizers": []string{"example.test/kept"}}
		return object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": meta,
			"spec": object{"size": size, "anything": object{"goes": true}}}
	}
	create(legacy, things, object{"apiVersion": "example.test/v1", "kind": "Thing", "metadata": object{"name": "t"}})
	for i := range 120 {
		create(legacy, widgets, widget(fmt.Sprintf("w-%d", i), i+1))
	}
	must(t, legacy.Call(t.Context(), http.MethodPatch, widgets+"/w-7/status",
		object{"status": object{"seen": "by the legacy side"}}, nil))
	create(legacy, classes, object{"metadata": object{"name": "gold"}, "value": 1000})
	rules := []object{{"operations": []string{"CREATE"}, "apiGroups": []string{"example.test"},
		"apiVersions": []string{"v1"}, "resources": []string{"never"}}}
	create(legacy, webhooks, object{"metadata": object{"name": "judge"}, "webhooks": []object{{
		"name": "judge.example.test", "clientConfig": object{"url": "https://127.0.0.1:1/"}, "rules": rules}}})
	// the modern side's own
	create(modern, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{
		"metadata": object{"name": "gears.own.test"}, "spec": object{"group": "own.test", "scope": "Cluster",
			"names": object{"plural": "gears", "kind": "Gear", "singular": "gear", "listKind": "GearList"},
			"versions": []object{{"name": "v1", "served": true, "storage": true, "schema": object{
				"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}})

	before := customObjects(t, legacy, widgets, things)
	same := func(when string, c *rig.Client) {
		t.Helper()
		now := customObjects(t, c, widgets, things)
		for name, o := range before {
			if now[name] != o {
				t.Errorf("%s: %s is\n%s\nwant\n%s", when, name, now[name], o)
			}
		}
		if len(now) != len(before) {
			t.Errorf("%s: there are %d objects, want %d", when, len(now), len(before))
		}
	}
	gone := func(when string, c *rig.Client, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := c.Call(t.Context(), http.MethodGet, path, nil, nil); rig.Code(err) != http.StatusNotFound {
				t.Errorf("%s: %s: %v, want that it is not found", when, path, err)
			}
		}
	}
	tr := customSteps(t, p, func(o *transition.Access) {
		server := map[pair.Side]*rig.APIServer{pair.Legacy: p.Legacy, pair.Modern: p.Modern}[o.Side]
		o.Server, o.CA = server.URL, r.PKI.File("ca.crt")
		var err error
		o.Cert, o.Key, err = r.PKI.Client("joint", plan.JointControllers)
		must(t, err)
	})
	host := &local.Host{Snapshots: t.TempDir() + "/records", Wait: time.Minute,
		ByHand: func(string, string) error { return nil }}
	// It turns round at every step, at some of which an API server is killed.
	killed := map[string]*rig.APIServer{"hand customresourcedefinitions over to the modern side": p.Modern,
		"hand what customresourcedefinitions define over to the modern side": p.Legacy}
	for i := range tr.Steps {
		at := &tr.Steps[i]
		ctx, cancel := context.WithCancel(t.Context())
		j := new(remembered)
		err := transition.Apply(ctx, &tr, host, j, func(s *transition.Step, event transition.Event) {
			switch {
			case s.ID != at.ID:
			case event == transition.Begun && killed[s.Title] != nil:
				killed[s.Title].Kill()
				killed[s.Title].Restart()
			case event == transition.Done:
				cancel()
			}
		})
		cancel()
		if last := i == len(tr.Steps)-1; (err == nil) != last || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("as far as %q: %v", at.Title, err)
		}
		must(t, transition.Undo(t.Context(), &tr, host, j, nil))
		same("turned round at "+at.Title, legacy)
		gone("turned round at "+at.Title, modern, widgets, things)
	}

	seen := watchObjects(t, legacy, widgets)
	j := new(remembered)
	start := time.Now()
	must(t, transition.Apply(t.Context(), &tr, host, j, nil))
	t.Logf("handed over after %s", time.Since(start).Round(time.Millisecond))

	same("handed over", modern)
	gone("handed over", legacy, widgets, things, defs+"/widgets.example.test")
	if deleted := seen(); len(deleted) > 0 {
		t.Errorf("a client saw %v deleted", deleted)
	}
	for _, path := range []string{classes + "/gold", strings.Replace(webhooks, "v1beta1", "v1", 1) + "/judge"} {
		must(t, modern.Call(t.Context(), http.MethodGet, path, nil, nil))
	}
	must(t, legacy.Call(t.Context(), http.MethodGet, webhooks+"/judge", nil, nil))
	// the modern API server acts for them: it validates, converts, deletes and has their status
	if err := modern.Call(t.Context(), http.MethodPost, widgets, widget("small", 0), nil); rig.Code(err) !=
		http.StatusUnprocessableEntity {
		t.Errorf("an object that the definition refuses: %v", err)
	}
	create(modern, widgets, widget("since", 3))
	must(t, modern.Call(t.Context(), http.MethodPatch, widgets+"/w-8/status",
		object{"status": object{"seen": "by the modern side"}}, nil))
	other := strings.Replace(widgets, "/v1/", "/v1alpha1/", 1)
	must(t, modern.Call(t.Context(), http.MethodGet, other+"/w-1", nil, nil))
	must(t, modern.Call(t.Context(), http.MethodPatch, widgets+"/w-9",
		object{"metadata": object{"finalizers": nil}}, nil))
	must(t, modern.Call(t.Context(), http.MethodDelete, widgets+"/w-9", nil, nil))

	before = customObjects(t, modern, widgets, things)
	seen = watchObjects(t, modern, widgets)
	start = time.Now()
	must(t, transition.Undo(t.Context(), &tr, host, j, nil))
	t.Logf("handed back after %s", time.Since(start).Round(time.Millisecond))
	same("handed back", legacy)
	gone("handed back", modern, widgets, things, classes+"/gold")
	if deleted := seen(); len(deleted) > 0 {
		t.Errorf("back, a client saw %v deleted", deleted)
	}
	must(t, modern.Call(t.Context(), http.MethodGet, "/apis/own.test/v1/gears", nil, nil))
	create(legacy, widgets, widget("again", 1))

	must(t, transition.Apply(t.Context(), &tr, host, new(remembered), nil))
	must(t, modern.Call(t.Context(), http.MethodGet, widgets+"/again", nil, nil))
	proved(t, spec.LayoutSplit, "1.15.12", "1.36.3", "definitions of custom resources and what they define are handed "+
		"over and back as the same objects, and no client that watches them sees one deleted; PriorityClasses and "+
		"webhook configurations are copied")
}

// remembered is a journal in memory.
type remembered struct{ records []transition.Record }

func (m *remembered) Records() []transition.Record { return m.records }

func (m *remembered) Append(r transition.Record) error {
	m.records = append(m.records, r)
	return nil
}

// customObjects are all objects, but what API servers write beside them, by path.
func customObjects(t *testing.T, c *rig.Client, paths ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range paths {
		var list struct{ Items []map[string]any }
		must(t, c.Call(t.Context(), http.MethodGet, path, nil, &list))
		for _, o := range list.Items {
			meta := o["metadata"].(map[string]any)
			for _, field := range []string{"resourceVersion", "selfLink", "managedFields"} {
				delete(meta, field)
			}
			text, err := json.Marshal(o)
			must(t, err)
			found[path+"/"+meta["name"].(string)] = string(text)
		}
	}
	return found
}

// watchObjects watches until the returned function is called, which returns what was seen to be deleted.
func watchObjects(t *testing.T, c *rig.Client, path string) (ended func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	must(t, c.Call(ctx, http.MethodGet, path, nil, &list))
	response, err := c.Do(ctx, http.MethodGet, path+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	must(t, err)
	var deleted []string
	var done sync.WaitGroup
	done.Go(func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			var event struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Type == "DELETED" {
				deleted = append(deleted, event.Object.Metadata.Name)
			}
		}
	})
	return func() []string {
		cancel()
		done.Wait()
		return slices.Clip(deleted)
	}
}

// customSteps are the steps about objects of a transition that hands definitions over.
func customSteps(t *testing.T, p *rig.Pair, access func(*transition.Access)) transition.Transition {
	t.Helper()
	tr := handingOver(t, p, "customresourcedefinitions.apiextensions.k8s.io", "priorityclasses.scheduling.k8s.io",
		"validatingwebhookconfigurations.admissionregistration.k8s.io")
	about := func(a *transition.Action) bool {
		if a == nil {
			return false
		}
		for i := range a.Before {
			for k := range a.Before[i].Asked {
				access(&a.Before[i].Asked[k])
			}
		}
		return a.Objects != nil || a.Kind == transition.ByHand || len(a.Before) > 0 && a.Before[0].Objects != nil
	}
	of := transition.Transition{From: tr.From, To: tr.To, Hosts: tr.Hosts}
	for _, s := range tr.Steps {
		if forth, back := about(s.Do), about(s.Undo); forth || back {
			of.Steps = append(of.Steps, s)
		}
	}
	if len(of.Steps) < 15 {
		t.Fatal(errors.New("the steps do not hand definitions over"))
	}
	return of
}

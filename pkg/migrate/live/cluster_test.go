package live

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

const crdKey = "apiextensions.k8s.io/customresourcedefinitions/pizzas.g.example"

// clusterOf is the server of answers with the stores core and modern of a pair, and the names that are opened.
func clusterOf(t *testing.T, side pair.Side, answers map[string][]answer) (*Cluster, *[]string) {
	s, _ := serve(t, answers)
	contents := map[string]storetest.Contents{
		"core": {"deployments/default/a": storetest.Put("extensions/v1beta1", "Deployment", "default", "a", "1",
			nil)},
		"modern": {"g.example/pizzas/default/p": storetest.CustomResource("g.example/v1", "Pizza", "p")},
	}
	if side == pair.Legacy {
		contents["core"][crdKey] = storetest.Put("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", pizzas.Name,
			"1", nil)
	} else {
		contents["modern"][crdKey] = storetest.Put("apiextensions.k8s.io/v1", "CustomResourceDefinition", "",
			pizzas.Name, "1", nil)
	}
	var opened []string
	return &Cluster{Server: s, Pair: storetest.SplitMap(), Side: side,
		Open: func(_ context.Context, name string) (*etcd.Store, error) {
			opened = append(opened, name)
			return &etcd.Store{Name: name, Pager: contents[name].Pager(t)}, nil
		}}, &opened
}

func deployments(version string, items ...object) map[string][]answer {
	return map[string][]answer{
		"GET /apis/apps/v1": {ok(object{"groupVersion": "apps/v1", "resources": []object{{"name": "deployments",
			"kind": "Deployment", "namespaced": true,
			"storageVersionHash": migrate.StorageHash("apps/v1", "Deployment")}}})},
		"GET /version":                  {ok(object{"gitVersion": version})},
		"GET /apis/apps/v1/deployments": {ok(object{"metadata": object{"resourceVersion": "9"}, "items": items})},
	}
}

// aDeployment is the one of store core, as a server lists it.
var aDeployment = object{"metadata": object{"namespace": "default", "name": "a", "resourceVersion": "1"}}

func TestResourcesAreReadInTheStoreOfTheirSide(t *testing.T) {
	answers := deployments("v1.15.12")
	ofLegacy := deployments("v1.15.12", aDeployment)["GET /apis/apps/v1/deployments"]
	answers["GET /apis/apiextensions.k8s.io"] = []answer{group("v1")}
	answers["GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/pizzas.g.example"] = []answer{ok(crd("v1"))}
	for _, test := range []struct {
		side       pair.Side
		name, want string
		objects    map[string]int64
	}{
		{pair.Modern, "pizzas.g.example", "modern", map[string]int64{"g.example/v1": 1}},
		{pair.Legacy, "pizzas.g.example", "core", map[string]int64{}},
		{pair.Legacy, "deployments.apps", "core", map[string]int64{"extensions/v1beta1": 1}},
		{pair.Modern, "deployments.apps", "modern", map[string]int64{}},
	} {
		answered := maps.Clone(answers)
		if test.side == pair.Legacy {
			answered["GET /apis/apps/v1/deployments"] = ofLegacy
		}
		c, opened := clusterOf(t, test.side, answered)
		o, err := c.Observe(t.Context(), test.name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(*opened, " ") != test.want || o.Stored.Store != test.want ||
			len(o.Stored.Versions) != len(test.objects) {
			t.Errorf("%s of %s: opened %q, stored %+v; want %s", test.name, test.side, *opened, o.Stored, test.want)
		}
		for version, n := range test.objects {
			if o.Stored.Versions[version] != n {
				t.Errorf("%s of %s: stored %v, want %v", test.name, test.side, o.Stored.Versions, test.objects)
			}
		}
	}
}

func TestWhatASideDoesNotHaveIsNotReadElsewhere(t *testing.T) {
	c, opened := clusterOf(t, pair.Legacy, deployments("v1.15.12"))
	for i := range c.Pair.Resources {
		if row := &c.Pair.Resources[i]; row.Key == "deployments" {
			row.Legacy = pair.View{}
		}
	}
	if _, err := c.Observe(t.Context(), "deployments.apps"); !errors.Is(err, ErrNotPlaced) || len(*opened) > 0 {
		t.Errorf("%v, opened %q; want ErrNotPlaced", err, *opened)
	}
}

func TestWithoutAStoreWhatIsStoredIsUnknown(t *testing.T) {
	s, _ := serve(t, deployments("v1.15.12"))
	c := &Cluster{Server: s, Prefix: "/registry",
		Open: func(context.Context, string) (*etcd.Store, error) { return nil, nil }}
	o, err := c.Observe(t.Context(), "deployments.apps")
	if err != nil || o.Stored != nil || o.WhyUnknown == "" {
		t.Errorf("stored %+v, unknown %q, %v; want a reason", o.Stored, o.WhyUnknown, err)
	}
}

// The store of the other side, or of another prefix, says nothing of what this server stores.
func TestAStoreOfAnotherServerIsRefused(t *testing.T) {
	answers := deployments("v1.15.12", aDeployment)
	answers["GET /apis/apiextensions.k8s.io"] = []answer{group("v1")}
	answers["GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/pizzas.g.example"] = []answer{ok(crd("v1"))}
	for _, name := range []string{"pizzas.g.example", "deployments.apps"} {
		c, _ := clusterOf(t, pair.Legacy, answers)
		if _, err := c.Observe(t.Context(), name); err != nil {
			t.Errorf("%s in its own store: %v", name, err)
		}
		c.Side = pair.Modern
		if _, err := c.Observe(t.Context(), name); !errors.Is(err, migrate.ErrNotItsStore) {
			t.Errorf("%s in the store of the other side: %v, want ErrNotItsStore", name, err)
		}
		c.Side, c.Pair.Prefix = pair.Legacy, "/elsewhere"
		if _, err := c.Observe(t.Context(), name); !errors.Is(err, migrate.ErrNotItsStore) {
			t.Errorf("%s below another prefix: %v, want ErrNotItsStore", name, err)
		}
	}
	c, _ := clusterOf(t, pair.Legacy, deployments("v1.15.12"))
	if _, err := c.Observe(t.Context(), "deployments.apps"); !errors.Is(err, migrate.ErrNotItsStore) {
		t.Errorf("a server without objects, and a store with one: %v, want ErrNotItsStore", err)
	}
}

// What a server writes again loses the fields that it does not know, if another one writes them into the same store.
func TestNoPlanThroughAServerThatDropsFields(t *testing.T) {
	c, _ := clusterOf(t, pair.Modern, deployments("v1.15.12"))
	o, err := c.Observe(t.Context(), "deployments.apps")
	if err != nil {
		t.Fatal(err)
	}
	row := *o.Row
	o.Stored = nil // as when objects are encrypted
	row.Owner = pair.OwnerShared
	row.Legacy = pair.View{Store: "modern", Decodes: []string{"apps/v1"}, StoredAs: "apps/v1",
		Drops: []string{pair.ManagedFields, "spec.more"}}
	o.Row, o.Side = &row, pair.Legacy
	if _, err := migrate.New(o, migrate.Goal{}); err == nil || !strings.Contains(err.Error(), "lose spec.more") {
		t.Errorf("through the legacy side: %v, want a refusal that names the field", err)
	}
	row.Legacy.Drops = row.Legacy.Drops[:1]
	if p, err := migrate.New(o, migrate.Goal{}); err != nil || len(p.Warnings) > 0 {
		t.Errorf("where it drops nothing: %+v, %v; want a plan", p, err)
	}
	o.Side, o.Row.Modern.Drops = pair.Modern, []string{"spec.old"}
	if p, err := migrate.New(o, migrate.Goal{}); err != nil || len(p.Warnings) != 1 ||
		!strings.Contains(p.Warnings[0], "lose spec.old") {
		t.Errorf("through the side to write through: %+v, %v; want a warning", p, err)
	}
	o.Row, o.Side = nil, ""
	if p, err := migrate.New(o, migrate.Goal{}); err != nil || len(p.Warnings) != 1 {
		t.Errorf("without a spec: %+v, %v; want a warning", p, err)
	}
}

func TestNoPlanForAVersionThatTheOtherSideCannotDecode(t *testing.T) {
	c, _ := clusterOf(t, pair.Modern, deployments("v1.15.12"))
	o, err := c.Observe(t.Context(), "deployments.apps")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.New(o, migrate.Goal{}); err != nil {
		t.Errorf("in a store of its own: %v, want a plan", err)
	}
	shared := *o.Row
	shared.Legacy = pair.View{Store: "modern", Decodes: []string{"extensions/v1beta1"}}
	o.Row = &shared
	if _, err := migrate.New(o, migrate.Goal{}); err == nil || !strings.Contains(err.Error(), "cannot decode apps/v1") {
		t.Errorf("in a store that the legacy side reads: %v, want a refusal", err)
	}
	shared.Legacy.Decodes = append(shared.Legacy.Decodes, "apps/v1")
	if _, err := migrate.New(o, migrate.Goal{}); err != nil {
		t.Errorf("where the legacy side decodes it: %v, want a plan", err)
	}
}

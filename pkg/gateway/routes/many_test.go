package routes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// TestManyVersions: one definition, or one extension API server, may have thousands, and every client asks
// for the groups.
func TestManyVersions(t *testing.T) {
	const many = 9000
	result := &discovery.Result{}
	for i := range many {
		result.Resources = append(result.Resources, discovery.Resource{GroupVersion: schema.GroupVersion{
			Group: "example.com", Version: fmt.Sprint("v", i)}, Name: "pizzas", Kind: "Pizza"})
	}
	for _, group := range []string{"b.com", "a.com"} {
		result.Resources = append(result.Resources, discovery.Resource{GroupVersion: schema.GroupVersion{
			Group: group, Version: "v1"}, Name: "pizzas", Kind: "Pizza"})
	}
	table := Alone("one", result, Conversions{})
	d := table.Documents(nil)
	if took := cputest.Thread(t, func() { d.Groups() }); took > time.Second {
		t.Errorf("the groups took %v", took)
	}
	groups := d.Groups().Groups
	if len(groups) != 3 || len(groups[0].Versions) != many || groups[0].PreferredVersion.Version != "v0" ||
		groups[1].Name != "b.com" || len(groups[2].Versions) != 1 || groups[2].Versions[0].GroupVersion != "a.com/v1" {
		t.Errorf("%d groups", len(groups))
	}
	for _, group := range groups {
		if one := d.Group(group.Name); fmt.Sprint(one.Versions, one.PreferredVersion) !=
			fmt.Sprint(group.Versions, group.PreferredVersion) {
			t.Errorf("%s by itself is another one", group.Name)
		}
	}
}

// TestManyResources: whoever may define custom resources, or an extension API server, decides how many there are, and
// the table is computed whenever one of them changes.
func TestManyResources(t *testing.T) {
	const many = 9000
	p := planOf(t, "1.15", "1.36")
	facts := Facts(p)
	for name, gv := range map[string]func(i int) schema.GroupVersion{
		"of one version": func(int) schema.GroupVersion { return schema.GroupVersion{Group: "a.com", Version: "v1"} },
		"of many groups": func(i int) schema.GroupVersion {
			return schema.GroupVersion{Group: fmt.Sprint("g", i), Version: "v1"}
		},
	} {
		var list []discovery.Resource
		failed := map[schema.GroupVersion]error{}
		for i := range many {
			list = append(list, discovery.Resource{GroupVersion: gv(i), Name: fmt.Sprint("pizzas", i),
				Kind: fmt.Sprint("Pizza", i), Namespaced: true})
			failed[schema.GroupVersion{Group: fmt.Sprint("failed", i), Version: "v1"}] = errors.New("timed out")
		}
		for what, sources := range map[string]Sources{
			"both":   {Legacy: served(facts.Legacy, list...), Modern: served(facts.Modern, list...)},
			"legacy": {Legacy: served(facts.Legacy, list...), Modern: served(facts.Modern)},
		} {
			sources.Legacy.Failed, sources.Modern.Failed = failed, failed
			sources.Equivalents = func(schema.GroupVersionKind) []schema.GroupVersionKind { return nil }
			if took := cputest.Thread(t, func() { New(p, sources) }); took > time.Second/2 {
				t.Errorf("%s, %s: the table took %v", name, what, took)
			}
		}
	}
}

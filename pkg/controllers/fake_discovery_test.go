package controllers

import (
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// fakeResource is a resource in one version of a fake server.
type fakeResource struct {
	gv, name, kind string
	namespaced     bool
	verbs          metav1.Verbs
}

func (f fakeResource) group() string { return groupVersionOf(f.gv).Group }

func groupVersionOf(text string) schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		panic(err)
	}
	return gv
}

var everyVerb = metav1.Verbs{"get", "list", "watch", "delete", "patch"}

// fakeCustom are the custom resources of each side, in the order in which a starting server lists their groups.
var fakeCustom = map[pair.Side][]fakeResource{
	legacy: {{"both.test/v1", "gadgets", "Gadget", true, everyVerb}},
	modern: {
		{"example.test/v1", "widgets", "Widget", true, everyVerb},
		// nobody taught their server to watch
		{"example.test/v1", "reports", "Report", true, metav1.Verbs{"list", "delete"}},
		{"both.test/v1", "gadgets", "Gadget", true, everyVerb},
	},
}

// fakeBuiltIn is what the versions of the plan serve by default.
var fakeBuiltIn = sync.OnceValue(func() map[pair.Side][]fakeResource {
	all := map[pair.Side][]fakeResource{}
	for side, minor := range map[pair.Side]kubever.Minor{legacy: 15, modern: 36} {
		for _, a := range kubever.APIResources(minor) {
			if a.DefaultOn.Has(minor) {
				verbs := everyVerb
				if fact, known := kubever.ResourceFor(a.GroupResource()); !known || !fact.In(minor) {
					verbs = metav1.Verbs{"create"}
				}
				all[side] = append(all[side], fakeResource{a.GroupVersion.String(), a.Name, a.Kind, a.Namespaced,
					verbs})
			}
		}
	}
	return all
})

// fakeAll are what each side serves.
var fakeAll = sync.OnceValue(func() map[pair.Side][]fakeResource {
	all := map[pair.Side][]fakeResource{}
	for _, side := range pair.Sides() {
		all[side] = slices.Concat(fakeBuiltIn()[side], fakeCustom[side])
	}
	return all
})

func fakeResources(side pair.Side) []fakeResource { return fakeAll()[side] }

// fakeGroupsOf are the groups of each side as /apis lists them: those of its version first.
var fakeGroupsOf = sync.OnceValue(func() map[pair.Side][]string {
	all := map[pair.Side][]string{}
	for _, side := range pair.Sides() {
		for _, f := range fakeResources(side) {
			if group := f.group(); group != "" && !slices.Contains(all[side], group) {
				all[side] = append(all[side], group)
			}
		}
	}
	return all
})

func fakeGroups(side pair.Side) []string { return fakeGroupsOf()[side] }

// boot is how far a starting server is. A real one of 1.36 answers at once about its version, namespaces and
// definitions, and lists its groups little by little.
type boot struct {
	ready  bool
	core   bool // /api/v1 is served
	groups int  // of /apis
}

// serves reports whether the server has come to a group; nil is a server that has started.
func (b *boot) serves(side pair.Side, gv string) bool {
	if b == nil || gv == "v1" {
		return b == nil || b.core
	}
	i := slices.Index(fakeGroups(side), groupVersionOf(gv).Group)
	return i >= 0 && i < b.groups
}

// define makes a definition that the server serves.
func (w *world) define(side pair.Side, name string) {
	w.version++
	w.own[side].objects["customresourcedefinitions//"+name] = &stored{
		Metadata: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + string(side) + "-" + name),
			ResourceVersion: "1"},
		Status: &storedStatus{Conditions: []metav1.Condition{{Type: "Established", Status: metav1.ConditionTrue}}},
	}
}

// discovery answers what a server of before 1.26 answers.
func (w *world) discovery(side pair.Side, parts []string, hidden string, answer func(int, any)) bool {
	path, boot := strings.Join(parts, "/"), w.boots[side]
	switch {
	case path == "api":
		answer(200, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return true
	case path == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}}
		for _, f := range fakeResources(side) {
			gv := groupVersionOf(f.gv)
			if gv.Group == "" || f.gv == hidden || !boot.serves(side, f.gv) {
				continue
			}
			v := metav1.GroupVersionForDiscovery{GroupVersion: f.gv, Version: gv.Version}
			i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
			if i < 0 {
				list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: v})
				i = len(list.Groups) - 1
			}
			if !slices.Contains(list.Groups[i].Versions, v) {
				list.Groups[i].Versions = append(list.Groups[i].Versions, v)
			}
		}
		answer(200, list)
		return true
	case path == "api/v1" || parts[0] == "apis" && len(parts) == 3:
		gv := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
		if !boot.serves(side, gv) {
			return false // and so it answers 404
		}
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv}
		for _, f := range fakeResources(side) {
			if f.gv == gv {
				r := metav1.APIResource{Name: f.name, Kind: f.kind, Namespaced: f.namespaced, Verbs: f.verbs}
				list.APIResources = append(list.APIResources, r)
			}
		}
		answer(200, list)
		return true
	}
	return false
}

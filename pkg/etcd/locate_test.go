package etcd_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

func TestPathsUnderstandsEveryNameOfAResource(t *testing.T) {
	m := storetest.SplitMap()
	for typed, want := range map[string][]string{
		"":                                {""},
		"pods":                            {"pods"},
		"pods/default/web":                {"pods/default/web"},
		"/pods/default/":                  {"pods/default"},
		"/registry/pods/default/web":      {"pods/default/web"},
		"/registry/po":                    {"po"}, // a whole key is what it says
		`"pods/default/\x1b[31m"`:         {"pods/default/\x1b[31m"},
		"po/default/web":                  {"pods/default/web", "po/default/web"},
		"Pod/default/web":                 {"pods/default/web", "Pod/default/web"},
		"svc":                             {"services/specs", "svc"},
		"services":                        {"services"}, // as it stands in the store: both kinds below it
		"services/default/web":            {"services/specs/default/web", "services/default/web"},
		"services/specs/default/web":      {"services/specs/default/web"},
		"endpoints/default/web":           {"services/endpoints/default/web", "endpoints/default/web"},
		"nodes/n1":                        {"minions/n1", "nodes/n1"},
		"deployments.apps/a/b":            {"deployments/a/b", "deployments.apps/a/b"},
		"deployment.extensions/a/b":       {"deployments/a/b", "deployment.extensions/a/b"},
		"deployments.batch/a/b":           {"deployments.batch/a/b"},
		"crd/a.b.c":                       {storage.CRDResource + "/a.b.c", "crd/a.b.c"},
		"ranges":                          {"ranges"},
		"ranges/serviceips":               {"ranges/serviceips"},
		"kubeflow.org/notebooks/team/a":   {"kubeflow.org/notebooks/team/a"},
		"notebooks.kubeflow.org/team/a":   {"notebooks.kubeflow.org/team/a", "kubeflow.org/notebooks/team/a"},
		"podz/a/b":                        {"podz/a/b"},
		"/registry/deployments.apps/a//b": {"deployments.apps/a//b"},
	} {
		got, known := etcd.Paths(m, typed)
		if !slices.Equal(got, want) {
			t.Errorf("Paths(%q) = %q, want %q", typed, got, want)
		}
		if first, _,
			_ := strings.Cut(want[0], "/"); known != !slices.Contains([]string{"po", "podz", "deployments.batch",
			"kubeflow.org", "notebooks.kubeflow.org", "deployments.apps"}, first) {
			t.Errorf("Paths(%q) says known = %v", typed, known)
		}
	}
}

func TestUnderIsAKeyAndWhatIsBelowIt(t *testing.T) {
	for path, want := range map[string][]string{
		"":               {"pods", "pods/a/b", "pods/a/b-c", "pods/ab/c", "pods-x", "podsecuritypolicy/p"},
		"pods":           {"pods", "pods/a/b", "pods/a/b-c", "pods/ab/c"},
		"pods/":          {"pods", "pods/a/b", "pods/a/b-c", "pods/ab/c"},
		"pods/a":         {"pods/a/b", "pods/a/b-c"},
		"pods/a/b":       {"pods/a/b"},
		"pods/a/nothing": nil,
	} {
		c := storetest.Contents{"pods": nil, "pods/a/b": nil, "pods/a/b-c": nil, "pods/ab/c": nil, "pods-x": nil,
			"podsecuritypolicy/p": nil}
		for name, store := range map[string]etcd.Store{"live": {Name: "core", Pager: c.Pager(t)},
			"offline": {Name: "core", Walker: c}} {
			lines, _, err := etcd.List(t.Context(), storetest.SplitMap(), store,
				etcd.ListOptions{Under: path, NumberOfKeys: 10})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range lines {
				for _, k := range l.Largest {
					got = append(got, k.Key)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: under %q are %q, want %q", name, path, got, want)
			}
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, typed := range []string{"", "po/a/b", `"pods/\x00"`, "/registry/x", "a.b.c/d", "//", `"`, "services/specs"} {
		f.Add(typed)
	}
	m := storetest.SplitMap()
	f.Fuzz(func(t *testing.T, typed string) {
		paths, _ := etcd.Paths(m, typed)
		if len(paths) == 0 {
			t.Fatalf("Paths(%q) names no place", typed)
		}
		// The whole key of a place means that place, and so does the key as a report quotes it.
		for _, path := range paths {
			whole := "/registry/" + strings.TrimSuffix(path, "/")
			for _, again := range []string{whole, strconv.Quote(whole)} {
				if got, _ := etcd.Paths(m, again); len(got) != 1 || "/registry/"+got[0] != whole &&
					strings.TrimSuffix(path, "/") == path {
					t.Errorf("Paths(%q) = %q, want %q", again, got, path)
				}
			}
		}
	})
}

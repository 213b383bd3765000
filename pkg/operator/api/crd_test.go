package api

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// internalCRD is the definition as an API server has it after its defaults.
func internalCRD(t *testing.T) *apiextensions.CustomResourceDefinition { return internalOf(t, CRD()) }

func internalOf(t *testing.T, crd *v1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(crd)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := scheme.Convert(crd, internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{Version}
	return internal
}

// TestTheDefinitionIsValid judges it as an API server does: structure, expressions and their cost, defaults.
func TestTheDefinitionIsValid(t *testing.T) {
	for _, crd := range []*v1.CustomResourceDefinition{CRD(), HostCRD()} {
		for _, problem := range apivalidation.ValidateCustomResourceDefinition(context.Background(),
			internalOf(t, crd)) {
			t.Errorf("%s: %v", crd.Name, problem)
		}
	}
}

// judge does with an object what an API server does that has the definition.
type judge struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

func newJudge(t *testing.T) *judge { return judgeOf(t, internalCRD(t)) }

func judgeOf(t *testing.T, crd *apiextensions.CustomResourceDefinition) *judge {
	t.Helper()
	whole := crd.Spec.Validation
	if whole == nil {
		whole = crd.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(whole.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := validation.NewSchemaValidator(whole.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return &judge{structural, v, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// refuses lists what is wrong with an object. Fields that the schema does not have are problems, too.
func (j *judge) refuses(object map[string]any) []string {
	var problems []string
	for _, field := range pruning.PruneWithOptions(object, j.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		problems = append(problems, "unknown field "+field)
	}
	defaulting.Default(object, j.structural)
	errs := validation.ValidateCustomResource(nil, object, j.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, object)...)
	if len(errs) == 0 { // as the server does
		found, _ := j.cel.Validate(context.Background(), nil, j.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, found...)
	}
	for _, err := range errs {
		problems = append(problems, err.Error())
	}
	return problems
}

func objectOf(t *testing.T, text []byte) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// goodSpecs are all specs of the repository that load, by their files.
func goodSpecs(t *testing.T) map[string][]byte {
	t.Helper()
	texts := map[string][]byte{}
	for _, pattern := range []string{"../../../examples/*.yaml", "../../render/testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if texts[file], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases, err := filepath.Glob("../../spec/testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range cases {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, "spec.yaml") {
				texts[file+"/"+f.Name] = f.Data
			}
		}
	}
	good := map[string][]byte{}
	for file, text := range texts {
		if f, err := spec.Load(file, text); err == nil {
			if good[file], err = spec.Marshal(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(good) < 10 {
		t.Fatalf("%d specs that load", len(good))
	}
	return good
}

// TestEverySpecIsAnObject gives the definition every spec of the repository that loads: nothing is refused or pruned,
// and the defaults change nothing.
func TestEverySpecIsAnObject(t *testing.T) {
	j := newJudge(t)
	for file, text := range goodSpecs(t) {
		object := objectOf(t, text)
		for _, problem := range j.refuses(object) {
			t.Errorf("%s: %s", file, problem)
		}
		after, err := utiljson.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		was, err := spec.Load(file, text)
		if err != nil {
			t.Fatal(err)
		}
		is, err := spec.Load(file, after)
		if err != nil {
			t.Errorf("%s: after the defaults of the definition: %v", file, err)
			continue
		}
		is.Spec.Operation = was.Spec.Operation // "" is the default
		texts := [2]string{}
		for i, f := range []*spec.File{was, is} {
			data, err := spec.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(data)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s: the definition's defaults are others than those of spec:\n%s", file,
				cmp.Diff(texts[0], texts[1]))
		}
	}
}

// TestTheDefinitionRefusesWhatSpecRefuses takes away every field of a spec that has all of them, one at a time, and
// replaces each by values of another type and by texts that fit nowhere: what the definition refuses, spec refuses, and
// what spec calls missing the definition refuses.
func TestTheDefinitionRefusesWhatSpecRefuses(t *testing.T) {
	text, err := os.ReadFile("../../render/testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(t)
	missing, refused, accepted := 0, 0, 0
	for _, change := range changes(objectOf(t, text)) {
		object := objectOf(t, text)
		change.do(object)
		data, err := utiljson.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		_, err = spec.Load("spec.json", data)
		problems := j.refuses(object)
		switch {
		case err == nil && len(problems) > 0 && !stricter(problems):
			t.Errorf("%s: spec accepts it, and the definition says %q", change.what, problems)
		case err == nil:
			accepted++
		case len(problems) > 0:
			refused++
		case strings.Contains(err.Error(), change.path+": is missing") && change.remove:
			t.Errorf("%s: the definition accepts it, and spec says %v", change.what, err)
		}
		if change.remove && err != nil {
			missing++
		}
	}
	if missing < 20 || refused < 300 || accepted < 50 {
		t.Errorf("%d removals are refused by spec, %d changes by both; %d changes are accepted by both: want more",
			missing, refused, accepted)
	}
	t.Logf("%d removals refused by spec, %d changes refused by both, %d accepted by both", missing, refused, accepted)
}

// stricter reports whether all that the definition refuses is what it means to refuse beyond spec: a fraction, which
// may have been another text, and an empty word where the default is meant.
func stricter(problems []string) bool {
	return !slices.ContainsFunc(problems, func(problem string) bool {
		return !strings.Contains(problem, "should be a multiple of 1") &&
			!strings.Contains(problem, `Unsupported value: ""`)
	})
}

type change struct {
	what, path string
	remove     bool
	do         func(object map[string]any)
}

// changes lists what can be done to one field of an object.
func changes(object map[string]any) []change {
	var list []change
	var walk func(value any, path string, to []any)
	walk = func(value any, path string, to []any) {
		if len(to) > 1 {
			if name, ok := to[len(to)-1].(string); ok {
				list = append(list, change{"removing " + path, path, true, func(o map[string]any) {
					delete(at(o, to[:len(to)-1]).(map[string]any), name)
				}})
			}
			for _, other := range []any{"", "Nowhere at all", int64(-1), true, 1.5, []any{"x y"},
				map[string]any{"no-such-field": "x"}} {
				list = append(list, change{fmt.Sprintf("%s: %#v", path, other), path, false,
					func(o map[string]any) { set(o, to, runtime.DeepCopyJSONValue(other)) }})
			}
		}
		switch value := value.(type) {
		case map[string]any:
			for _, name := range sortedKeys(value) {
				walk(value[name], strings.TrimPrefix(path+"."+name, "."), append(slices.Clone(to), name))
			}
		case []any:
			for i := range value {
				walk(value[i], fmt.Sprintf("%s[%d]", path, i), append(slices.Clone(to), i))
			}
		}
	}
	walk(map[string]any{"spec": object["spec"]}, "", nil)
	return list
}

func sortedKeys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func at(value any, to []any) any {
	for _, step := range to {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
	}
	return value
}

func set(object map[string]any, to []any, value any) {
	within := at(object, to[:len(to)-1])
	switch step := to[len(to)-1].(type) {
	case string:
		within.(map[string]any)[step] = value
	case int:
		within.([]any)[step] = value
	}
}

// TestTheVersionIsStored holds the constants against the definition and the header of a spec.
func TestTheVersionIsStored(t *testing.T) {
	if got := Group + "/" + Version; got != spec.APIVersion {
		t.Errorf("the definition is of %s, and a spec of %s", got, spec.APIVersion)
	}
	if v := CRD().Spec.Versions; len(v) != 1 || v[0].Name != Version || !v[0].Storage {
		t.Errorf("versions %v", v)
	}
}

// TestWhatAgentsReportIsBounded: the operator holds the objects of all hosts, and a host that is somebody else's by now
// writes the status of its own.
func TestWhatAgentsReportIsBounded(t *testing.T) {
	j := judgeOf(t, internalOf(t, HostCRD()))
	many := func(n int, of any) (list []any) {
		for range n {
			list = append(list, of)
		}
		return list
	}
	component := map[string]any{"name": "kube-apiserver", "ready": true,
		"files": many(1024, map[string]any{"path": "/etc/kubernetes/x"})}
	for name, test := range map[string]struct {
		status map[string]any
		wrong  string
	}{
		"as many as there may be": {map[string]any{"components": many(256, component)}, ""},
		"components": {map[string]any{"components": many(257, map[string]any{"name": "x",
			"ready": true})}, "256 items"},
		"files": {map[string]any{"components": []any{map[string]any{"name": "x", "ready": true,
			"files": many(1025, map[string]any{"path": "/x"})}}}, "1024 items"},
		"an answer": {map[string]any{"task": map[string]any{"number": int64(1),
			"answer": strings.Repeat("x", 256<<10+1)}}, "262144"},
	} {
		got := j.refuses(map[string]any{"apiVersion": Group + "/" + Version, "kind": HostKind,
			"metadata": map[string]any{"name": "cp-1"}, "spec": map[string]any{"address": "10.0.0.11"},
			"status": test.status})
		if test.wrong == "" && len(got) > 0 || test.wrong != "" && !strings.Contains(strings.Join(got, "\n"),
			test.wrong) {
			t.Errorf("%s: %.300q, want %q", name, got, test.wrong)
		}
	}
}

package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

const manyFields = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, managedFields: []}
spec:
  priorityClassName: high
  topologySpreadConstraints: [{maxSkew: 1, minDomains: 2}]
  containers:
  - name: web
    image: web:1
    startupProbe: {httpGet: {path: /, port: 80}}
    livenessProbe: {grpc: {port: 9000}}
    lifecycle: {preStop: {sleep: {seconds: 5}, exec: {command: [sync]}}}
  - {name: second, image: web:1, volumeMounts: [{name: token, mountPath: /token, subPathExpr: $(X)}]}
  volumes:
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}
`

func TestLossesNameEveryField(t *testing.T) {
	for _, test := range []struct {
		legacy kubever.Minor
		paths  []string
	}{
		{6, []string{
			"spec.containers[0].lifecycle.preStop.sleep", "spec.containers[0].livenessProbe.grpc",
			"spec.containers[0].startupProbe", "spec.containers[1].volumeMounts[0].subPathExpr",
			"spec.priorityClassName", "spec.topologySpreadConstraints",
			"spec.volumes[0].projected.sources[0].serviceAccountToken",
		}},
		{16, []string{"spec.containers[0].lifecycle.preStop.sleep", "spec.containers[0].livenessProbe.grpc",
			"spec.topologySpreadConstraints[0].minDomains"}},
		{36, nil},
	} {
		found, err := Older{Minor: test.legacy}.Losses(object(t, manyFields))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, f := range found {
			path, ok := strings.CutPrefix(f.Subject, "Pod shop/web ")
			if !ok || f.Severity != finding.Error || !strings.Contains(f.Message, "since 1.") {
				t.Errorf("%s: finding %+v: want one about the pod, an error, with the first version", test.legacy, f)
			}
			paths = append(paths, path)
		}
		slices.Sort(paths)
		if !slices.Equal(paths, test.paths) {
			t.Errorf("Losses to %s = %q, want %q", test.legacy, paths, test.paths)
		}
	}
}

// In a split layout the legacy side does not see a Deployment of the modern side, and does see its pods.
func TestLossesFollowWhatTheLegacySideSees(t *testing.T) {
	deployment := object(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  minReadySeconds: 5
  template: {spec: {hostUsers: false, containers: [{name: a, resizePolicy: []}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {dataSourceRef: {kind: X, name: y}}}]
`)
	want := map[bool][]string{
		false: {"spec.minReadySeconds", "spec.template.spec.containers[0].resizePolicy", "spec.template.spec.hostUsers",
			"spec.volumeClaimTemplates[0].spec.dataSourceRef"},
		true: {"spec.template.spec.containers[0].resizePolicy", "spec.template.spec.hostUsers",
			"spec.volumeClaimTemplates[0].spec.dataSourceRef"},
	}
	for split, want := range want {
		older := Older{Minor: 15}
		if split {
			older = LegacyOf(plantest.Of(t, example{}.String()).Runtime())
		}
		found, err := older.Losses(deployment)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, f := range found {
			paths = append(paths, strings.TrimPrefix(f.Subject, "StatefulSet db "))
		}
		if !slices.Equal(paths, want) {
			t.Errorf("split %v: %q, want %q", split, paths, want)
		}
	}
}

func TestLossesRefuseWhatTheyCannotJudge(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Pod": "apiVersion",
		"{apiVersion: apps/v1, kind: Deploymnet}":       `did you mean "Deployment"?`,
		"{apiVersion: v1, kind: List, items: [1]}":      "items[0]",
		"{apiVersion: a/b/c, kind: Pod}":                "a/b/c",
		"{apiVersion: apps/v7, kind: Deployment}":       "apps/v7",
		"{apiVersion: v1, kind: List, items: [{a: b}]}": "items[0]",
	} {
		_, err := Older{Minor: 6}.Losses(object(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Losses of %s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestLossesOfOddFields(t *testing.T) {
	found, err := Older{Minor: 6}.Losses(object(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: "+
		"{startupProbes: {}, containers: 7}}"))
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Message, "no version knows") {
		t.Errorf("Losses = %+v, %v; want one field that no version knows", found, err)
	}
	found, err = Older{Minor: 6}.Losses(object(t, "{apiVersion: kubeflow.org/v1, kind: Notebook, metadata: {name: "+
		"a}, spec: {anything: {}}}"))
	if err != nil || len(found) != 1 || found[0].Severity != finding.Info {
		t.Errorf("Losses = %+v, %v; want a remark that a custom resource keeps its fields", found, err)
	}
}

func TestMeaningsAreOfFieldsThatExist(t *testing.T) {
	for name := range meanings {
		at := strings.LastIndexByte(name, '.')
		if len(kubever.Field(name[:at], name[at+1:])) == 0 {
			t.Errorf("no version has the field %s", name)
		}
	}
}

func FuzzLosses(f *testing.F) {
	f.Add(manyFields)
	f.Add("{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, spec: [{}]}]}")
	f.Fuzz(func(t *testing.T, text string) {
		var o map[string]any
		if yaml.Unmarshal([]byte(text), &o) != nil {
			return
		}
		found, err := Older{Minor: 6}.Losses(o)
		for _, f := range found {
			if f.Subject == "" || f.Message == "" || f.Severity == 0 || f.Rule == "" {
				t.Errorf("%+v (%v)", f, err)
			}
		}
	})
}

// The fields of a map are its keys, and a schema may stand where a list or a word may: no version lacks what is in
// them.
func TestLossesInMapsAndSchemas(t *testing.T) {
	crd := func(version, schema string) map[string]any {
		var object map[string]any
		text := `{"apiVersion":"apiextensions.k8s.io/` + version +
			`","kind":"CustomResourceDefinition","metadata":{"name":"x"},
			"spec":` + schema + `}`
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	const schema = `{"openAPIV3Schema":{"properties":{"spec":{"type":"array","items":{"properties":{"a":{%s}}}}}}}`
	for _, test := range []struct {
		object map[string]any
		want   int
	}{
		// it sees no v1
		{crd("v1", `{"versions":[{"name":"v1","schema":`+fmt.Sprintf(schema, `"type":"string"`)+`}]}`), 1},
		{crd("v1beta1", `{"validation":`+fmt.Sprintf(schema, `"type":"string"`)+`}`), 0},
		{crd("v1beta1", `{"validation":`+fmt.Sprintf(schema, `"typo":"string"`)+`}`), 1},
		{crd("v1beta1", `{"validation":`+fmt.Sprintf(schema, `"x-kubernetes-list-type":"set"`)+`}`), 1},
	} {
		found, err := Older{Minor: 10}.Losses(test.object)
		if err != nil || len(found) != test.want {
			t.Errorf("Losses of %v = %v, %v; want %d", test.object, found, err, test.want)
		}
	}
}

package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// TestTheChartIsTheManifests: what Helm makes of the chart is what operator manifests prints, but for the namespace,
// which is Helm's.
func TestTheChartIsTheManifests(t *testing.T) {
	install := api.Install{Name: "1234", Namespace: "5678", Image: "registry.example.com/fusionctl:v1", Replicas: 3}
	files, err := api.Install{Replicas: 2}.Chart("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"image": install.Image, "replicas": install.Replicas}
	render := func(data []byte) ([]byte, error) {
		functions := template.FuncMap{
			"required": func(message, value string) (string, error) {
				if value == "" {
					return "", errors.New(message)
				}
				return value, nil
			},
			"quote": func(value string) (string, error) {
				text, err := json.Marshal(value)
				return string(text), err
			}}
		parsed, err := template.New("chart").Funcs(functions).Option("missingkey=error").Parse(string(data))
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = parsed.Execute(&out, map[string]any{"Values": values,
			"Release": map[string]any{"Name": install.Name, "Namespace": install.Namespace}})
		return out.Bytes(), err
	}
	normal := func(data []byte) (object map[string]any) {
		if err := yaml.UnmarshalStrict(data, &object); err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		return object
	}
	asYAML := func(object any) []byte {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var want, got []map[string]any
	for _, o := range append(install.Objects(), api.Definitions()...) {
		if o["kind"] != "Namespace" {
			want = append(want, normal(asYAML(o)))
		}
	}
	plain := map[string]map[string]any{}
	var definitions []map[string]any
	for _, f := range files {
		switch {
		case strings.HasPrefix(f.Path, "templates/"):
			text, err := render(f.Data)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, normal(text))
		case strings.HasPrefix(f.Path, "crds/"):
			if bytes.Contains(f.Data, []byte("{{")) {
				t.Errorf("%s is a template, and Helm takes it as it is", f.Path)
			}
			definitions = append(definitions, normal(f.Data))
		default:
			plain[f.Path] = normal(f.Data)
		}
	}
	if diff := cmp.Diff(want, append(got, definitions...)); diff != "" {
		t.Error(diff)
	}
	if of := plain["Chart.yaml"]; of["apiVersion"] != "v2" || of["name"] != api.ChartName || of["version"] != "1.2.3" {
		t.Errorf("Chart.yaml: %v", of)
	}
	if of := plain["values.yaml"]; of["image"] != "" || of["replicas"] != 2.0 {
		t.Errorf("values.yaml: %v", of)
	}
	values["image"] = ""
	for _, f := range files {
		if text, err := render(f.Data); strings.HasSuffix(f.Path, "-deployment.yaml") && err == nil {
			t.Errorf("without an image:\n%s", text)
		}
	}
}

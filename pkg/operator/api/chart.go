package api

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// ChartName is the name of the Helm chart, and of the directory in its archive.
const ChartName = "fusionctl-operator"

// ChartFile is a file of the Helm chart, by its path within the chart.
type ChartFile struct {
	Path string
	Data []byte
}

// What stands for a value of the release while a template is written.
const (
	chartName      = "FUSIONCTL-NAME-OF-RELEASE"
	chartNamespace = "FUSIONCTL-NAMESPACE-OF-RELEASE"
	chartImage     = "FUSIONCTL-VALUE-IMAGE"
	chartReplicas  = 987654321
)

// Chart is the definition and what runs the operator as a Helm chart: the objects of Definition and Objects, whose name
// and namespace are the release's, and whose image and replicas are values. The namespace is Helm's. The version is a
// semantic one.
func (i Install) Chart(version string) ([]ChartFile, error) {
	type values struct {
		Image    string `json:"image"`
		Replicas int    `json:"replicas"`
	}
	type chart struct {
		APIVersion  string `json:"apiVersion"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Type        string `json:"type"`
		Version     string `json:"version"`
		AppVersion  string `json:"appVersion"`
		KubeVersion string `json:"kubeVersion"`
	}
	var files []ChartFile
	add := func(path string, value any, comment string, replace ...string) error {
		text, err := yamltext.Marshal(value)
		if err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		files = append(files, ChartFile{path, []byte(comment + strings.NewReplacer(replace...).Replace(string(text)))})
		return nil
	}
	err := add("Chart.yaml", chart{APIVersion: "v2", Name: ChartName, Type: "application",
		Description: "Runs many fused control planes from one cluster", Version: version, AppVersion: version,
		KubeVersion: ">=1.30.0-0"}, "")
	if err == nil {
		err = add("values.yaml", values{i.Image, i.Replicas}, "# image: whose entry point is fusionctl\n"+
			"# replicas: of which one acts\n")
	}
	for _, definition := range Definitions() {
		if err == nil {
			plural, _, _ := strings.Cut(definition["metadata"].(map[string]any)["name"].(string), ".")
			err = add("crds/"+plural+".yaml", definition, "")
		}
	}
	objects := Install{Name: chartName, Namespace: chartNamespace, Image: chartImage, Replicas: chartReplicas}.Objects()
	for n, object := range objects {
		if object["kind"] == "Namespace" || err != nil {
			continue
		}
		kind := strings.ToLower(fmt.Sprint(object["kind"]))
		err = add(fmt.Sprintf("templates/%02d-%s.yaml", n, kind), object, "",
			": "+chartName+"-agents", `: {{ printf "%s-agents" .Release.Name | quote }}`,
			": "+chartName, ": {{ .Release.Name | quote }}", // which may be a number
			": "+chartNamespace, ": {{ .Release.Namespace | quote }}", chartNamespace, "{{ .Release.Namespace }}",
			chartImage, `{{ required "image: want one whose entry point is fusionctl" .Values.image | quote }}`,
			fmt.Sprint(chartReplicas), "{{ .Values.replicas }}")
	}
	return files, err
}

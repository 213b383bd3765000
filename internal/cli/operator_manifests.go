package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

func newOperatorManifestsCmd(streams Streams) *cobra.Command {
	var install api.Install
	var only string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the definition of FusedControlPlane, and what runs the operator",
		Long: `manifests prints the CustomResourceDefinition of FusedControlPlane, for clusters of 1.30 and later. Its
schema follows from the spec file: fields, descriptions and defaults are the same. The API server refuses what is wrong
with one object by itself; what follows from the versions of a pair is judged by the plan, as fusionctl check does.

With --image it also prints what runs the operator: a namespace, an account with the permissions that it needs, and a
Deployment. Its image is one of your own, with fusionctl as its entry point.

Exit codes: 0 printed, 1 could not print, 2 bad usage.`,
		Example: `  fusionctl operator manifests | kubectl apply --server-side -f -
  fusionctl operator manifests --image registry.example.com/fusionctl:1 | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runOperatorManifests(install, only, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&install.Image, "image", "", "image whose entry point is fusionctl; without it the definition alone")
	f.StringVar(&install.Name, "name", "fusionctl-operator", "of everything but the definition")
	f.StringVarP(&install.Namespace, "namespace", "n", operatorNamespace, "of the operator")
	f.IntVar(&install.Replicas, "replicas", 2, "of the operator, of which one acts")
	enumFlag(cmd, &only, "only", "", "what to print", "all", "crd", "operator")
	return cmd
}

func runOperatorManifests(i api.Install, only string, streams Streams) error {
	for _, label := range []struct{ flag, value string }{{"name", i.Name}, {"namespace", i.Namespace}} {
		if problems := validation.IsDNS1035Label(label.value); len(problems) > 0 {
			return usagef("--%s %q: %s", label.flag, label.value, strings.Join(problems, "; "))
		}
	}
	if i.Replicas < 1 {
		return usagef("--replicas %d: want at least 1", i.Replicas)
	}
	if only == "operator" && i.Image == "" {
		return usagef("--only operator: want --image")
	}
	var documents []map[string]any
	if only != "operator" {
		documents = append(documents, api.Definition())
	}
	if only != "crd" && i.Image != "" {
		documents = append(documents, i.Objects()...)
	}
	return printDocuments(streams.Out, documents)
}

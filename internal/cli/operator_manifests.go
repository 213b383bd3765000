package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

func newOperatorManifestsCmd(streams Streams) *cobra.Command {
	var install api.Install
	var only string
	var chart bool
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the definition of FusedControlPlane, and what runs the operator",
		Long: `manifests prints the CustomResourceDefinition of FusedControlPlane, for clusters of 1.30 and later. Its
schema follows from the spec file: fields, descriptions and defaults are the same. The API server refuses what is wrong
with one object by itself; what follows from the versions of a pair is judged by the plan, as fusionctl check does.

With --image it also prints what runs the operator: a namespace, an account with the permissions that it needs, and a
Deployment. Its image is one of your own, with fusionctl as its entry point.

With --chart the same is printed as the archive of a Helm chart, whose values are image and replicas; name and namespace
are the release's. Helm installs the definition, and never changes it: apply the one of a newer fusionctl yourself.

Exit codes: 0 printed, 1 could not print, 2 bad usage.`,
		Example: `  fusionctl operator manifests | kubectl apply --server-side -f -
  fusionctl operator manifests --image registry.example.com/fusionctl:1 | kubectl apply --server-side -f -
  fusionctl operator manifests --chart --image registry.example.com/fusionctl:1 > fusionctl-operator.tgz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !chart {
				return runOperatorManifests(install, only, streams)
			}
			for _, name := range []string{"name", "namespace", "only"} {
				if cmd.Flags().Changed(name) {
					return usagef("--%s has no effect with --chart: Helm has a name and a namespace for each release",
						name)
				}
			}
			return printChart(install, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&install.Image, "image", "", "image whose entry point is fusionctl; without it the definition alone")
	f.StringVar(&install.Name, "name", "fusionctl-operator", "of everything but the definition")
	f.StringVarP(&install.Namespace, "namespace", "n", operatorNamespace, "of the operator")
	f.IntVar(&install.Replicas, "replicas", 2, "of the operator, of which one acts")
	f.BoolVar(&chart, "chart", false, "print a Helm chart, as an archive")
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
		documents = append(documents, api.Definitions()...)
	}
	if only != "crd" && i.Image != "" {
		documents = append(documents, i.Objects()...)
	}
	return printDocuments(streams.Out, documents)
}

// semantic is a version that Helm takes.
var semantic = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// chartVersion is the program's, where it is of a release.
func chartVersion() string {
	info, _ := debug.ReadBuildInfo()
	if version := strings.TrimPrefix(newVersionDocument(release, info).Program, "v"); semantic.MatchString(version) {
		return version
	}
	return "0.0.0"
}

// printChart prints the archive of the chart: the same bytes each time.
func printChart(i api.Install, streams Streams) error {
	if i.Replicas < 1 {
		return usagef("--replicas %d: want at least 1", i.Replicas)
	}
	if isTerminal(streams.Out) {
		return usagef("--chart prints an archive: want it in a file, as > %s.tgz", api.ChartName)
	}
	files, err := i.Chart(chartVersion())
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	packed := tar.NewWriter(zipped)
	for _, f := range files {
		err = errors.Join(err, packed.WriteHeader(&tar.Header{Name: api.ChartName + "/" + f.Path, Mode: 0o644,
			Size: int64(len(f.Data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}))
		if err == nil {
			_, err = packed.Write(f.Data)
		}
	}
	if err := errors.Join(err, packed.Close(), zipped.Close()); err != nil {
		return err
	}
	_, err = asData(streams.Out).Write(archive.Bytes())
	return err
}

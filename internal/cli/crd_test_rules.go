package cli

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/hub"
)

type crdTestRequest struct {
	rules   string
	crds    []string
	objects int
	seed    uint64
	output  string
}

// crdTestDocument is the outcome as JSON and YAML show it.
type crdTestDocument struct {
	Schema string `json:"schema"`
	CRD    string `json:"crd"`
	Hub    string `json:"hub"`
	Seed   uint64 `json:"seed"`
	*hub.TrialReport
}

func newCRDTestCmd(streams Streams) *cobra.Command {
	var req crdTestRequest
	cmd := &cobra.Command{
		Use:   "test RULES --crd FILE",
		Short: "Check conversion rules against their CRD, and convert generated objects in both directions",
		Long: `test checks a rules file against the schemas of its CRD: every required field is set, types are right,
and no field is lost unless a rule drops it. Then it generates objects from the schemas and converts them in every
direction and back, also with changes in between: what comes out has to be valid, and a round trip has to return the
same object, but for what a rule drops. A failure is shrunk to a small object. The same seed makes the same objects.

Objects are judged by the schemas as API servers do, but for rules in CEL (x-kubernetes-validations).

Exit codes: 0 no failure, 1 too few objects could be generated, 2 bad usage, or rules that do not fit the CRD, 3
failures.`,
		Example: `  fusionctl crd test examples/pizza/rules.yaml --crd examples/pizza/crd.yaml
  kubectl get crd pizzas.restaurant.example.com -o yaml | fusionctl crd test rules.yaml --crd - -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.rules = args[0]
			if !cmd.Flags().Changed("seed") {
				req.seed = newSeed()
			}
			return runCRDTest(req, streams)
		},
	}
	cmd.Flags().StringArrayVar(&req.crds, "crd", nil,
		"file with the CRD; repeat for more, of which the one that the rules name is taken")
	cmd.Flags().IntVar(&req.objects, "objects", 1000, "objects of each version")
	cmd.Flags().Uint64Var(&req.seed, "seed", 0, "of the random numbers (default a new one, which is printed)")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

// newSeed is short enough to be typed.
func newSeed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) % 1_000_000
}

func runCRDTest(req crdTestRequest, streams Streams) error {
	if len(req.crds) == 0 {
		return usagef("--crd is required")
	}
	if req.objects < 1 {
		return usagef("--objects %d: want at least 1", req.objects)
	}
	converter, err := req.load(streams)
	if err != nil {
		return err
	}
	done := drawLine(streams.Err, func(elapsed time.Duration) string {
		return fmt.Sprintf("converting, %.0f s", elapsed.Seconds())
	})
	report, err := converter.Try(hub.Trial{Objects: req.objects, Random: mathrand.NewPCG(req.seed, 0).Uint64})
	done()
	if err != nil {
		return badInput(err, "")
	}
	document := crdTestDocument{Schema: "fusionctl/crd-test/v1", CRD: converter.Definition.Name, Hub: converter.Hub,
		Seed: req.seed, TrialReport: report}
	if err := printCRDTest(streams.Out, req.output, document); err != nil {
		return err
	}
	switch {
	case len(report.Failures) > 0:
		return errAttention
	case len(report.Incomplete) > 0:
		return withHint(fmt.Errorf("incomplete: %s", strings.Join(report.Incomplete, "\n")),
			"a pattern, a format or an anyOf that generated objects seldom meet; give the field an enum or a looser "+
				"pattern in a copy of the CRD")
	}
	return nil
}

func (req crdTestRequest) load(streams Streams) (*hub.Converter, error) {
	text, err := readInput(streams, req.rules, 1<<20)
	if err != nil {
		return nil, err
	}
	rules, err := hub.Parse(req.rules, text)
	if err != nil {
		return nil, badInput(err, "")
	}
	for _, file := range req.crds {
		data, err := readInput(streams, file, crdsLimitBytes)
		if err != nil {
			return nil, err
		}
		definitions, err := hub.ParseDefinitions(file, data)
		if err != nil {
			return nil, badInput(err, "")
		}
		for _, d := range definitions {
			if d.Name == rules.Spec.CRD {
				converter, err := hub.New(rules, d)
				return converter, badInput(err, "")
			}
		}
	}
	return nil, usagef("%s: the rules are of the CRD %q, which is not in %s", req.rules, rules.Spec.CRD,
		strings.Join(req.crds, ", "))
}

func printCRDTest(out io.Writer, output string, document crdTestDocument) error {
	if printed, err := printDocument(out, output, document); printed {
		return err
	}
	err := printTable(out, func(table io.Writer) {
		visible.Fprintln(table, "FROM\tTO\tOBJECTS\tEDITED\tFAILED")
		for _, way := range document.Ways {
			visible.Fprintf(table, "%s\t%s\t%d\t%d\t%d\n", way.From, way.To, way.Objects, way.Edited, way.Failed)
		}
	})
	if err != nil {
		return err
	}
	for _, f := range document.Failures {
		visible.Fprintf(out, "\n%s to %s: an object %s: %s\n", f.From, f.To, f.What, f.Message)
		for _, part := range []struct {
			title  string
			object map[string]any
		}{{"the object", f.Object}, {"in " + f.To, f.Result}, {"back in " + f.From, f.Back}} {
			if part.object == nil {
				continue
			}
			text, err := yamltext.Marshal(part.object)
			if err != nil {
				return err
			}
			visible.Fprintf(out, "  %s:\n    %s\n", part.title,
				visible.Lines(strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")))
		}
	}
	_, err = visible.Fprintf(out, "\n%s: %d kinds of failure; seed %d\n", document.CRD, len(document.Failures),
		document.Seed)
	return err
}

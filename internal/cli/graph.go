package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/graph"
)

type graphRequest struct {
	file   string
	output string
}

func newGraphCmd(streams Streams) *cobra.Command {
	var req graphRequest
	cmd := &cobra.Command{
		Use:   "graph SPEC",
		Short: "Draw the plan: components, API servers, and what each keeps in which store",
		Long: `graph draws what follows from a spec: kubelets, schedulers, controller managers and users on the left,
the API servers of both sides, and the stores with what each side keeps there. On an arrow to a store, "shared" is
written by both sides, "own" by this side alone, "read only" by the other side alone.

ascii is for a terminal, mermaid for Markdown pages, svg for anything that shows pictures, dot for Graphviz.

Exit codes: 0 done, 2 bad spec.`,
		Example: `  fusionctl graph spec.yaml
  fusionctl graph spec.yaml -o svg > plan.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runGraph(cmd.Context(), req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "output format", "ascii", "dot", "mermaid", "svg")
	return cmd
}

func runGraph(ctx context.Context, req graphRequest, streams Streams) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	g := graph.New(p)
	var picture []byte
	switch req.output {
	case "dot":
		picture = graph.Dot(g)
	case "mermaid":
		picture = graph.Mermaid(g)
	case "svg":
		picture, err = graph.SVG(ctx, g)
	default:
		picture = graph.ASCII(g)
	}
	if err != nil {
		return err
	}
	_, err = streams.Out.Write(picture)
	return err
}

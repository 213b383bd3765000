package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/gateway"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func newGatewayCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "One endpoint over both API servers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGatewayRoutesCmd(streams))
	return cmd
}

type gatewayRoutesRequest struct {
	spec           string
	legacy, modern string // kubeconfig files; both or none
	output         string
}

// routeRow is one row of the answer.
type routeRow struct {
	Group        string    `json:"group"`
	Version      string    `json:"version"`
	Resource     string    `json:"resource"`
	Kind         string    `json:"kind"`
	Namespaced   bool      `json:"namespaced"`
	Way          string    `json:"way"`
	Read         pair.Side `json:"read,omitempty"`
	Write        pair.Side `json:"write,omitempty"`
	Stream       pair.Side `json:"stream,omitempty"`
	Verbs        []string  `json:"verbs"`
	Subresources []string  `json:"subresources,omitempty"`
	Why          string    `json:"why"`
}

type routesHead struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Source string `json:"source"` // facts, servers
}

func newGatewayRoutesCmd(streams Streams) *cobra.Command {
	var req gatewayRoutesRequest
	cmd := &cobra.Command{
		Use:   "routes SPEC",
		Short: "Show through which API server each resource is served in each version, and why",
		Long: `routes prints one row for every resource in every version that a side serves:

  owner    by the side that the plan has for it
  other    by the other side, which alone serves this version
  both     each side has objects of its own: both are asked, and their answers are merged
  none     not at all; the reason says what serves it instead
  unknown  not at the moment: a side does not say what it has

READ is the side whose API server gets, lists and watches; WRITE is the side whose API server is sent changes and
requests for subresources; a row without WRITE is read only. Where exec, attach and port-forward need another side, the
reason says so.

Without kubeconfigs the rows are those of the facts about both versions and of --runtime-config in the plan: built-in
resources, with the verbs of most. With both kubeconfigs they are what the API servers serve at the moment, custom
resources and extension API servers included.

Exit codes: 0 done, 1 an API server did not say all that it serves, 2 bad usage or bad spec.`,
		Example: `  fusionctl gateway routes spec.yaml
  fusionctl gateway routes spec.yaml --legacy-kubeconfig legacy.conf --modern-kubeconfig modern.conf -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.spec = args[0]
			return runGatewayRoutes(cmd.Context(), req, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.legacy, "legacy-kubeconfig", "", "kubeconfig of the legacy API server")
	f.StringVar(&req.modern, "modern-kubeconfig", "", "kubeconfig of the modern API server")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runGatewayRoutes(ctx context.Context, req gatewayRoutesRequest, streams Streams) error {
	if (req.legacy == "") != (req.modern == "") {
		return usagef("--legacy-kubeconfig and --modern-kubeconfig: want both, or none for the facts")
	}
	p, err := loadPlan(streams, req.spec)
	if err != nil {
		return err
	}
	runtime := p.Runtime()
	sources, from := routes.Facts(runtime), "facts"
	if req.legacy != "" {
		from = "servers"
		if sources, err = servedBy(ctx, runtime, req); err != nil {
			return err
		}
	}
	head := routesHead{"fusionctl/gateway-routes/v1", p.Name, from}
	var rows rowWriter = newTableRows(streams.Out)
	if req.output != "table" {
		rows = newDocumentRows(streams.Out, req.output, head, "routes")
	}
	header := []string{"RESOURCE", "VERSION", "WAY", "READ", "WRITE", "WHY"}
	for _, r := range routes.New(runtime, sources).Rows {
		row := routeRow{r.Group, r.Version, r.Name, r.Kind, r.Namespaced, string(r.Way), r.Read, r.Write, r.Stream,
			append([]string{}, r.Verbs...), nil, r.Why}
		for _, sub := range r.Subresources {
			row.Subresources = append(row.Subresources, sub.Name)
		}
		cells := []string{r.String(), r.Version, string(r.Way), cmp.Or(string(r.Read), "-"),
			cmp.Or(string(r.Write), "-"), r.Why}
		if err := rows.row(row, header, cells); err != nil {
			return err
		}
	}
	incomplete := gaps(sources)
	var tail any
	if incomplete != nil {
		tail = map[string]string{"incomplete": incomplete.Error()}
	}
	if err := rows.close(tail); err != nil {
		return err
	}
	return incomplete
}

// servedBy asks both API servers what they serve.
func servedBy(ctx context.Context, p *plan.Runtime, req gatewayRoutesRequest) (routes.Sources, error) {
	var sources routes.Sources
	for _, side := range pair.Sides() {
		file := req.legacy
		if side == pair.Modern {
			file = req.modern
		}
		config, err := kubeconfig(ctx, file, "")
		if err != nil {
			return sources, err
		}
		server, err := apiserver.New(config, apiserver.Options{})
		if err != nil {
			return sources, err
		}
		served, err := gateway.Served(ctx, server, p.Side(side).Version)
		if err != nil {
			return sources, fmt.Errorf("%s side: %w", side, err)
		}
		*sources.Of(side) = served
	}
	return sources, nil
}

// gaps joins what the sides do not say.
func gaps(sources routes.Sources) error {
	var errs []string
	for _, side := range pair.Sides() {
		if err := sources.Of(side).Gaps(); err != nil {
			errs = append(errs, fmt.Sprintf("the %s side: %v", side, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("not all that is served is known: %s", strings.Join(errs, "; "))
}

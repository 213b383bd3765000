package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

type negotiateRequest struct {
	kinds      []string
	minor      string
	kubeconfig string
	context    string
	output     string
}

func newConvertNegotiateCmd(streams Streams) *cobra.Command {
	var req negotiateRequest
	cmd := &cobra.Command{
		Use:   "negotiate KIND... {--for MINOR | --kubeconfig FILE}",
		Short: "Report how an API server serves a kind: as requested, converted or not at all",
		Long: `negotiate reports for each kind what a program gets that requests it from an API server through
fusionctl's converting client: the kind as it is (pass), the kind in another version, converted both ways (convert), or
nothing (unsupported). It decides by group and kind, across groups where the kind moved.

Of several versions it takes the one that knows most fields of the requested one; then one of the same group, the one
that the server prefers, the newest. --for uses the facts of a release, --kubeconfig the discovery of an API server;
where discovery failed there is no result.

A KIND is apps/v1/Deployment, v1/Pod, or Deployment.v1.apps; or a resource, such as apps/v1/deployments.

Exit codes: 0 all are served, 1 could not finish: discovery failed, 2 bad usage, 3 some are unsupported.`,
		Example: `  fusionctl convert negotiate apps/v1/Deployment networking.k8s.io/v1/Ingress --for 1.6
  fusionctl convert negotiate extensions/v1beta1/Deployment --kubeconfig modern.conf -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.kinds = args
			return runConvertNegotiate(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.minor, "for", "", "release that serves the kinds, such as 1.15")
	cmd.Flags().StringVar(&req.kubeconfig, "kubeconfig", "", "kubeconfig of the API server that serves the kinds")
	cmd.Flags().StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "yaml")
	return cmd
}

// negotiation is the answer for all kinds.
type negotiation struct {
	Schema  string             `json:"schema"`
	Server  string             `json:"server"`
	Answers []negotiatedAnswer `json:"answers"`
}

type negotiatedAnswer struct {
	Kind     string `json:"kind"` // apps/v1/Deployment
	Answer   string `json:"answer"`
	As       string `json:"as,omitempty"`
	Resource string `json:"resource,omitempty"`
	Reason   string `json:"reason"`
	// UnknownFields are those of the asked version that the served one does not have under the same name.
	UnknownFields []string `json:"unknownFields,omitempty"`
}

func runConvertNegotiate(ctx context.Context, req negotiateRequest, streams Streams) error {
	if (req.minor == "") == (req.kubeconfig == "") {
		return usagef("want one of --for and --kubeconfig")
	}
	if req.context != "" && req.kubeconfig == "" {
		return usagef("--context chooses in a --kubeconfig")
	}
	kinds, err := parseKinds(req.kinds)
	if err != nil {
		return err
	}
	converter, err := convert.New()
	if err != nil {
		return err
	}
	report := negotiation{Schema: "fusionctl/convert-negotiate/v1"}
	ask, err := negotiator(ctx, req, converter, &report)
	if err != nil {
		return err
	}
	unsupported := false
	for _, kind := range kinds {
		answer, err := ask(ctx, kind)
		if err != nil {
			return err
		}
		unsupported = unsupported || answer.Verdict == negotiate.Unsupported
		report.Answers = append(report.Answers, negotiated(answer))
	}
	if err := report.print(req.output, streams); err != nil {
		return err
	}
	if unsupported {
		return errAttention
	}
	return nil
}

// negotiator is who answers: the facts of a release, or a server.
func negotiator(ctx context.Context, req negotiateRequest, converter *convert.Converter, report *negotiation) (
	func(context.Context, schema.GroupVersionKind) (negotiate.Answer, error), error) {
	if req.minor != "" {
		version, err := parseVersionFlag("for", req.minor)
		if err != nil {
			return nil, err
		}
		server := negotiate.FromFacts(version.Minor)
		report.Server = version.Minor.String()
		return func(_ context.Context, kind schema.GroupVersionKind) (negotiate.Answer, error) {
			item, list := converter.ItemOf(kind)
			answer, err := server.Negotiate(item, converter.Equivalents(item))
			if list {
				answer = answer.OfList()
			}
			return answer, err
		}, nil
	}
	config, err := kubeconfig(ctx, req.kubeconfig, req.context)
	if err != nil {
		return nil, err
	}
	live, err := client.NewLive(config, converter)
	if err != nil {
		return nil, err
	}
	report.Server = config.Host
	return live.Kind, nil
}

// parseKinds reads the kinds as they are given. Errors: every one that cannot be read.
func parseKinds(texts []string) ([]schema.GroupVersionKind, error) {
	var kinds []schema.GroupVersionKind
	var problems []error
	for _, text := range texts {
		kind, err := kubever.ParseKind(text)
		if err != nil {
			problems = append(problems, err)
		}
		kinds = append(kinds, kind)
	}
	return kinds, badInput(errors.Join(problems...), "")
}

func negotiated(answer negotiate.Answer) negotiatedAnswer {
	row := negotiatedAnswer{Kind: kindText(answer.Asked), Answer: string(answer.Verdict),
		Resource: answer.Resource.Name, Reason: answer.Reason, UnknownFields: answer.Unknown}
	if answer.Verdict != negotiate.Unsupported {
		row.As = kindText(answer.As)
	}
	return row
}

func kindText(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + "/" + gvk.Kind
}

func (n negotiation) print(format string, streams Streams) error {
	if printed, err := printDocument(streams.Out, format, n); printed {
		return err
	}
	return printTable(streams.Out, func(table io.Writer) {
		visible.Fprintln(table, "KIND\tANSWER\tAS\tREASON")
		for _, a := range n.Answers {
			visible.Fprintln(table, cells(a.Kind, a.Answer, a.As, a.Reason))
		}
	})
}

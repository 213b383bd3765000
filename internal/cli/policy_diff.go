package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyDiffRequest struct {
	before, after string
	output        string
}

type policyDiffDocument struct {
	Schema string `json:"schema"`
	policy.Comparison
}

func newPolicyDiffCmd(streams Streams) *cobra.Command {
	var req policyDiffRequest
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Print what B allows and A does not, and vice versa",
		Long: `diff compares what two policies allow, not how they are written. The result is exact and complete: a
request is decided differently if and only if it is in one of the sets that are printed, and in none of that one's
exceptions. Each set has an example request.

A set may have further exceptions for users who have the permission under the other policy for another reason, such as
one more group; they are counted here, and listed in -o json.

Exit codes: 0 the policies allow the same, 2 bad usage or a bad file, 3 they differ.`,
		Example: `  fusionctl policy diff policy.jsonl policy.jsonl.fixed`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			req.before, req.after = args[0], args[1]
			return runPolicyDiff(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runPolicyDiff(req policyDiffRequest, streams Streams) error {
	before, err := readPolicy(streams, req.before)
	if err != nil {
		return err
	}
	after, err := readPolicy(streams, req.after)
	if err != nil {
		return err
	}
	document := policyDiffDocument{Schema: "fusionctl/policy-diff/v1", Comparison: policy.Compare(before, after)}
	printed, err := printDocument(streams.Out, req.output, document)
	if !printed {
		err = printComparison(streams.Out, req, document.Comparison)
	}
	if err == nil && len(document.Gained)+len(document.Lost) > 0 {
		return errAttention
	}
	return err
}

func printComparison(w io.Writer, req policyDiffRequest, c policy.Comparison) error {
	if len(c.Gained)+len(c.Lost) == 0 {
		_, err := visible.Fprintf(w, "%s and %s allow the same\n", req.before, req.after)
		return err
	}
	printExcesses(w, "+", req.after, c.Gained)
	printExcesses(w, "-", req.before, c.Lost)
	_, err := visible.Fprintf(w, "%d gained, %d lost\n", len(c.Gained), len(c.Lost))
	return err
}

func printExcesses(w io.Writer, sign, file string, excesses []policy.Excess) {
	for _, e := range excesses {
		visible.Fprintf(w, "%s %s:%d: %s\n", sign, file, e.Line, e.Region)
		for _, r := range e.Except {
			visible.Fprintf(w, "      except: %s\n", r.What())
		}
		if n := len(e.Others); n > 0 {
			visible.Fprintf(w, "      and except subjects that have it for another reason, such as: %s (%s)\n",
				e.Others[0],
				prose.Counted(n, "reason"))
		}
		visible.Fprintf(w, "      such as %s\n", e.Example)
		if e.Unlikely {
			visible.Fprintf(w, "      only outside of group %s, to which a server adds every authenticated user\n",
				policy.GroupAuthenticated)
		}
	}
}

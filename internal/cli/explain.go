package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

type explainRequest struct {
	rule   string // "" lists all
	output string
}

// explainDocument is a list of rules as JSON and YAML show it.
type explainDocument struct {
	Schema string       `json:"schema"`
	Rules  []rules.Rule `json:"rules"`
}

func newExplainCmd(streams Streams) *cobra.Command {
	var req explainRequest
	cmd := &cobra.Command{
		Use:   "explain [RULE]",
		Short: "Why a rule is a rule: mechanism, versions, a bad and a good spec, evidence",
		Long: `explain tells what a finding is about: what happens and why, which versions it concerns, how it is known, and a spec that has
the danger beside the same spec without it. Without RULE it lists all rules.

Exit codes: 0 done, 2 no such rule.`,
		Example: `  fusionctl explain FUS060
  fusionctl explain`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return ruleIDs(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				req.rule = args[0]
			}
			return runExplain(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "how to print", "table", "json", "yaml")
	return cmd
}

func runExplain(req explainRequest, streams Streams) error {
	document := explainDocument{Schema: "fusionctl/explain/v1", Rules: rules.All()}
	if req.rule != "" {
		rule, ok := rules.ByID(strings.ToUpper(req.rule))
		if !ok {
			hint := "fusionctl explain lists the rules"
			if near, ok := spelling.Nearest(req.rule, ruleIDs()); ok {
				hint = fmt.Sprintf("did you mean %s? %s", near, hint)
			}
			return badInput(fmt.Errorf("no rule %q", req.rule), hint)
		}
		document.Rules = []rules.Rule{rule}
	}
	switch {
	case req.output == "json":
		return printJSON(streams.Out, document)
	case req.output == "yaml":
		return printYAML(streams.Out, document)
	case req.rule != "":
		_, err := io.WriteString(streams.Out, document.Rules[0].Text())
		return err
	}
	return printTable(streams.Out, func(t io.Writer) {
		fmt.Fprintln(t, "RULE\tWORST\tLEGACY\tMODERN\tTITLE")
		for _, r := range document.Rules {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Severity, r.Legacy, r.Modern, r.Title)
		}
	})
}

func ruleIDs() []string {
	var ids []string
	for _, r := range rules.All() {
		ids = append(ids, r.ID)
	}
	return ids
}

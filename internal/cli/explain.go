package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

type explainRequest struct {
	rule   string // "" lists all
	output string
}

// explainDocument is a list of rules as JSON and YAML show it.
type explainDocument struct {
	Schema string         `json:"schema"`
	Rules  []finding.Rule `json:"rules"`
}

func newExplainCmd(streams Streams) *cobra.Command {
	var req explainRequest
	cmd := &cobra.Command{
		Use:   "explain [RULE]",
		Short: "Explain a rule: mechanism, versions, evidence, a bad and a good example",
		Long: `explain prints the documentation of a rule: what happens and why, which verbs report it, which versions
it concerns, the evidence, and a spec or policy lines that have it beside the same without it. Without RULE it lists all
rules by the engine that reports them. RULE is an ID or its number: FUS060, fus060 or 60.

Exit codes: 0 done, 2 no such rule.`,
		Example: `  fusionctl explain FUS060
  fusionctl explain 60
  fusionctl explain`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return catalog.IDs(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				req.rule = args[0]
			}
			return runExplain(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runExplain(req explainRequest, streams Streams) error {
	document := explainDocument{Schema: "fusionctl/explain/v1", Rules: catalog.Rules()}
	if req.rule != "" {
		document.Rules = catalog.ByID(req.rule)
		if len(document.Rules) == 0 {
			hint := "fusionctl explain lists the rules"
			if near, ok := spelling.Nearest(req.rule, catalog.IDs()); ok {
				hint = fmt.Sprintf("did you mean %s? %s", near, hint)
			}
			return badInput(fmt.Errorf("no rule %q", req.rule), hint)
		}
	}
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	if req.rule != "" {
		var texts []string
		for _, r := range document.Rules {
			texts = append(texts, r.Text())
		}
		_, err := io.WriteString(streams.Out, strings.Join(texts, "\n"))
		return err
	}
	for i, engine := range finding.Engines() {
		if i > 0 {
			visible.Fprintln(streams.Out)
		}
		visible.Fprintf(streams.Out, "%s: %s\n", strings.ToUpper(string(engine)), engine.Verbs())
		if err := printTable(streams.Out, func(t io.Writer) { printRules(t, engine, document.Rules) }); err != nil {
			return err
		}
	}
	return nil
}

// printRules prints the rules that an engine reports.
func printRules(t io.Writer, engine finding.Engine, rules []finding.Rule) {
	for _, r := range rules {
		switch {
		case r.Engine != engine:
		case r.Versioned():
			visible.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Severity, r.Legacy, r.Modern, r.Title)
		default:
			visible.Fprintf(t, "%s\t%s\t%s\n", r.ID, r.Severity, r.Title)
		}
	}
}

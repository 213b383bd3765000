package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

type explainRequest struct {
	rule   string // "" lists all
	output string
}

// explainDocument is a list of rules as JSON and YAML show it.
type explainDocument struct {
	Schema  string          `json:"schema"`
	Rules   []rules.Rule    `json:"rules"`
	Checks  []policy.Check  `json:"checks"`  // of policy files
	Stores  []finding.Check `json:"stores"`  // of what is in the stores
	Live    []finding.Check `json:"live"`    // of running servers
	Changes []finding.Check `json:"changes"` // of CRDs
}

func newExplainCmd(streams Streams) *cobra.Command {
	var req explainRequest
	cmd := &cobra.Command{
		Use:   "explain [RULE]",
		Short: "Why a rule is a rule: mechanism, versions, a bad and a good spec, evidence",
		Long: `explain tells what a finding is about: what happens and why, which versions it concerns, how it is known, and a spec that has
the danger beside the same spec without it, or policy lines with and without it. Without RULE it lists all rules.

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
	document := explainDocument{Schema: "fusionctl/explain/v1", Rules: rules.All(), Checks: policy.Checks(), Stores: etcdsplit.Checks(), Live: rules.LiveChecks(), Changes: migrate.Checks()}
	if req.rule != "" {
		id := strings.ToUpper(req.rule)
		document.Rules = slices.DeleteFunc(document.Rules, func(r rules.Rule) bool { return r.ID != id })
		document.Checks = slices.DeleteFunc(document.Checks, func(c policy.Check) bool { return c.ID != id })
		document.Stores = slices.DeleteFunc(document.Stores, func(c finding.Check) bool { return c.ID != id })
		document.Live = slices.DeleteFunc(document.Live, func(c finding.Check) bool { return c.ID != id })
		document.Changes = slices.DeleteFunc(document.Changes, func(c finding.Check) bool { return c.ID != id })
		if len(document.Rules)+len(document.Checks)+len(document.Stores)+len(document.Live)+len(document.Changes) == 0 {
			hint := "fusionctl explain lists the rules"
			if near, ok := spelling.Nearest(req.rule, ruleIDs()); ok {
				hint = fmt.Sprintf("did you mean %s? %s", near, hint)
			}
			return badInput(fmt.Errorf("no rule %q", req.rule), hint)
		}
	}
	switch {
	case req.output == "json":
		return printJSON(streams.Out, document)
	case req.output == "yaml":
		return printYAML(streams.Out, document)
	case req.rule != "":
		var texts []string
		for _, r := range document.Rules {
			texts = append(texts, r.Text())
		}
		for _, c := range document.Checks {
			texts = append(texts, c.Text())
		}
		for _, c := range document.Stores {
			texts = append(texts, c.Text("stores: fusionctl etcd check and watch"))
		}
		for _, c := range document.Live {
			texts = append(texts, c.Text("running servers: fusionctl check --live"))
		}
		for _, c := range document.Changes {
			texts = append(texts, c.Text("changes of CRDs: fusionctl crd diff"))
		}
		_, err := io.WriteString(streams.Out, strings.Join(texts, "\n"))
		return err
	}
	err := printTable(streams.Out, func(t io.Writer) {
		fmt.Fprintln(t, "RULE\tWORST\tLEGACY\tMODERN\tTITLE")
		for _, r := range document.Rules {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Severity, r.Legacy, r.Modern, r.Title)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(streams.Out)
	if err := printTable(streams.Out, func(t io.Writer) {
		fmt.Fprintln(t, "IN POLICY FILES\tSEVERITY\tTITLE")
		for _, c := range document.Checks {
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.ID, c.Severity, c.Title)
		}
	}); err != nil {
		return err
	}
	for _, list := range []struct {
		title  string
		checks []finding.Check
	}{{"IN STORES", document.Stores}, {"IN RUNNING SERVERS", document.Live}, {"IN CHANGES OF CRDS", document.Changes}} {
		fmt.Fprintln(streams.Out)
		if err := printTable(streams.Out, func(t io.Writer) {
			fmt.Fprintf(t, "%s\tWORST\tTITLE\n", list.title)
			for _, c := range list.checks {
				fmt.Fprintf(t, "%s\t%s\t%s\n", c.ID, c.Severity, c.Title)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func ruleIDs() []string {
	var ids []string
	for _, r := range rules.All() {
		ids = append(ids, r.ID)
	}
	for _, c := range policy.Checks() {
		ids = append(ids, c.ID)
	}
	for _, c := range slices.Concat(etcdsplit.Checks(), rules.LiveChecks(), migrate.Checks()) {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

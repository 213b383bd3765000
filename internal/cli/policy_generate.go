package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyGenerateRequest struct {
	spec     string
	presets  []string
	subjects []string
	out      string
}

func newPolicyGenerateCmd(streams Streams) *cobra.Command {
	var req policyGenerateRequest
	cmd := &cobra.Command{
		Use:   "generate [SPEC]",
		Short: "Generate the policy of the modern API server, from a spec, presets, or both",
		Long: `generate prints the smallest policy that allows what a spec grants under "access" and what the modern
side's own components need: its controller manager, the service account of each controller, discovery and health.
Presets add what common software needs; "policy presets" lists them.

All resources of the core group are written one by one, since "*" would include permission to impersonate any user.

Exit codes: 0 done, 2 bad usage, a bad spec, or an access rule that ABAC cannot express.`,
		Example: `  fusionctl policy generate fused.yaml > policy.jsonl
  fusionctl policy generate fused.yaml --preset kubeflow --preset istio --subject group:ml-team --out policy.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.spec = args[0]
			}
			return runPolicyGenerate(req, streams)
		},
	}
	cmd.Flags().StringSliceVar(&req.presets, "preset", nil, "add what this software needs; repeat for more")
	cmd.Flags().StringSliceVar(&req.subjects, "subject", []string{"group:" + policy.GroupAuthenticated},
		"subjects of the presets: user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME")
	cmd.Flags().StringVar(&req.out, "out", "-", "file to write; - is standard output")
	err := cmd.RegisterFlagCompletionFunc("preset",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return presetNames(), cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic("cli: internal error: " + err.Error())
	}
	return cmd
}

func runPolicyGenerate(req policyGenerateRequest, streams Streams) error {
	if req.spec == "" && len(req.presets) == 0 {
		return badInput(fmt.Errorf("nothing to generate from: want a SPEC, --preset, or both"),
			"fusionctl policy presets lists the presets")
	}
	var intent policy.Intent
	if req.spec != "" {
		p, err := loadPlan(streams, req.spec)
		if err != nil {
			return err
		}
		intent.Grants = append(intent.Grants, p.Policy.Grants...)
	}
	subjects, err := parseSubjects(req.subjects)
	if err != nil {
		return err
	}
	for _, name := range req.presets {
		preset, err := policy.PresetNamed(name)
		if err != nil {
			return badInput(err, "fusionctl policy presets lists them")
		}
		intent.Grants = append(intent.Grants, preset.Grants(subjects)...)
	}
	sections, err := policy.Generate(intent)
	if err != nil {
		return badInput(err, "")
	}
	if req.out != "-" {
		return filetree.WriteFile(req.out, policy.Format(sections), 0o644)
	}
	_, err = streams.Out.Write(policy.Format(sections))
	return err
}

// parseSubjects reads user:NAME, group:NAME and serviceaccount:NAMESPACE:NAME.
func parseSubjects(values []string) ([]policy.Subject, error) {
	var subjects []policy.Subject
	for _, value := range values {
		kind, name, _ := strings.Cut(value, ":")
		subject := policy.Subject{Name: name}
		switch kind {
		case "user":
			subject.Kind = policy.KindUser
		case "group":
			subject.Kind = policy.KindGroup
		case "serviceaccount":
			subject.Kind = policy.KindServiceAccount
			subject.Namespace, subject.Name, _ = strings.Cut(name, ":")
		}
		if subject.Kind == "" || subject.Name == "" {
			return nil, usagef("--subject %q: want user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME", value)
		}
		subjects = append(subjects, subject)
	}
	return subjects, nil
}

func presetNames() []string {
	var names []string
	for _, p := range policy.Presets() {
		names = append(names, p.Name)
	}
	return names
}

func newPolicyPresetsCmd(streams Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "presets [NAME]",
		Short: "List what common software needs from a policy",
		Long: `presets lists the software that "policy generate --preset" knows; with a NAME, its API groups and
resources, and those of Kubernetes that its installation writes, with the source of the names.

Exit codes: 0 done, 2 unknown preset.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return presetNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return printPresets(output, streams)
			}
			preset, err := policy.PresetNamed(args[0])
			if err != nil {
				return badInput(err, "")
			}
			return printPreset(output, preset, streams)
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

// presetsDocument is the list, or one of it, as JSON and YAML show it.
type presetsDocument struct {
	Schema  string          `json:"schema"`
	Presets []policy.Preset `json:"presets"`
}

func printPresets(output string, streams Streams) error {
	document := presetsDocument{Schema: "fusionctl/policy-presets/v1", Presets: policy.Presets()}
	if printed, err := printDocument(streams.Out, output, document); printed {
		return err
	}
	return printTable(streams.Out, func(t io.Writer) {
		visible.Fprintln(t, "NAME\tWHAT\tAPI GROUPS")
		for _, p := range document.Presets {
			visible.Fprintf(t, "%s\t%s\t%s\n", p.Name, p.Title, strings.Join(p.APIGroups(), " "))
		}
	})
}

func printPreset(output string, p policy.Preset, streams Streams) error {
	document := presetsDocument{Schema: "fusionctl/policy-presets/v1", Presets: []policy.Preset{p}}
	if printed, err := printDocument(streams.Out, output, document); printed {
		return err
	}
	visible.Fprintf(streams.Out, "%s\nfrom %s\n\n", p.Title, p.Source)
	return printTable(streams.Out, func(t io.Writer) {
		visible.Fprintln(t, "API GROUP\tRESOURCE\tNAMESPACED\tCUSTOM")
		for _, r := range p.Resources {
			visible.Fprintf(t, "%s\t%s\t%v\ttrue\n", r.APIGroup, r.Resource, r.Namespaced)
		}
		for _, r := range p.Also {
			visible.Fprintf(t, "%s\t%s\t%v\tfalse\n", r.APIGroup, r.Resource, r.Namespaced)
		}
	})
}

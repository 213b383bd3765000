package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/monitoring"
)

func newMonitoringCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "monitoring",
		Short: "Print a Grafana dashboard and Prometheus alert rules for the servers of fusionctl",
		Long: `monitoring prints what shows and watches the metrics of etcd watch, controllers, gateway, policy
serve and crd webhook.

Exit codes: 0 printed, 2 bad usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newMonitoringFileCmd(streams, "dashboard", "Print a Grafana dashboard with a panel for each metric",
			`dashboard prints a Grafana dashboard as JSON: a row for each server, a panel for each metric that it has.
Grafana asks for the data source when it is imported.`, monitoring.Dashboard),
		newMonitoringFileCmd(streams, "rules", "Print Prometheus alert rules with the links of their runbooks",
			`rules prints a file of Prometheus alert rules. Name the servers that run with --part: a server that is not
scraped is an alert.`, monitoring.Rules))
	return cmd
}

func newMonitoringFileCmd(streams Streams, name, short, long string,
	generate func([]monitoring.Part) ([]byte, error)) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long + "\n\nExit codes: 0 printed, 2 bad usage.",
		Example: "  fusionctl monitoring " + name + " --part etcd,controllers,certificates",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			parts, err := partsOf(names)
			if err != nil {
				return err
			}
			text, err := generate(parts)
			if err != nil {
				return err
			}
			_, err = asData(streams.Out).Write(text)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&names, "part", nil, "only these: "+strings.Join(monitoring.PartNames(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("part",
		cobra.FixedCompletions(monitoring.PartNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// partsOf are the parts of these names, all for none.
func partsOf(names []string) ([]monitoring.Part, error) {
	all := monitoring.Parts()
	if len(names) == 0 {
		return all, nil
	}
	byName := map[string]monitoring.Part{}
	for _, p := range all {
		byName[p.Name] = p
	}
	var parts []monitoring.Part
	for _, name := range names {
		p, found := byName[name]
		if !found {
			return nil, usagef("--part %q: want some of %s", name, strings.Join(monitoring.PartNames(), ", "))
		}
		delete(byName, name)
		parts = append(parts, p)
	}
	return parts, nil
}

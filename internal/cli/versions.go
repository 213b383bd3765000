package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/kubever/browse"
)

type versionsRequest struct {
	component string // "" for a summary of the minors
	minor     string // "" for all minors
	facts     string
	output    string
}

func newVersionsCmd(streams Streams) *cobra.Command {
	var request versionsRequest
	cmd := &cobra.Command{
		Use:   "versions [COMPONENT] [--minor MINOR]",
		Short: "Browse the facts about each Kubernetes version",
		Long: `versions prints the facts that plans and findings rest on, for Kubernetes ` +
			kubever.Oldest.String() + " to " + kubever.Newest.String() + `.

Without a component it lists the minors, and the release of each whose source was read. With one it lists what that
component has: kube-apiserver its flags, API resources with their etcd keys and stored versions, feature gates,
admission plugins, writes at start, behaviours and the releases of etcd on which it works; kube-controller-manager its
flags, feature gates, controllers and leader-election locks; kube-scheduler its flags, feature gates and locks; each of
them the faults that a patch release mended. Where patch releases of a minor differ, the facts name the one that
changed. --facts picks one kind of fact, --minor one version.

A vendor's version counts as its minor.

Exit codes: 0 printed, 1 could not print, 2 bad usage or an unknown version.`,
		Example: `  fusionctl versions
  fusionctl versions kube-controller-manager --facts controllers --minor 1.6
  fusionctl versions kube-apiserver --facts resources --minor 1.36 -o json`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: kubever.Components(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.component = args[0]
			}
			return runVersions(request, streams)
		},
	}
	cmd.Flags().StringVar(&request.minor, "minor", "", "only this version, such as 1.15 (default all)")
	enumFlag(cmd, &request.facts, "facts", "", "kind of fact", append([]string{"all"}, browse.Kinds()...)...)
	enumFlag(cmd, &request.output, "output", "o", "format", "table", "json", "yaml")
	return cmd
}

func runVersions(request versionsRequest, streams Streams) error {
	minors := kubever.Minors()
	if request.minor != "" {
		version, err := parseVersionFlag("minor", request.minor)
		if err != nil {
			return err
		}
		minors = []kubever.Minor{version.Minor}
	}
	if components := kubever.Components(); request.component != "" && !slices.Contains(components, request.component) {
		return unknownComponent(request.component, components)
	}
	if request.facts != "all" && !slices.Contains(browse.KindsOf(request.component), request.facts) {
		if request.component == "" {
			return usagef("--facts %s: name a component, one of %s", request.facts,
				strings.Join(kubever.Components(), ", "))
		}
		return usagef("--facts %s: %s has %s", request.facts, request.component,
			strings.Join(browse.KindsOf(request.component), ", "))
	}
	kinds := browse.KindsOf(request.component)
	if request.facts != "all" {
		kinds = []string{request.facts}
	}
	report := versionsReport{"fusionctl/versions/v1", browse.Of(request.component, kinds, minors)}
	if printed, err := printDocument(streams.Out, request.output, report); printed {
		return err
	}
	return report.printTables(streams.Out)
}

func unknownComponent(name string, components []string) error {
	message := fmt.Sprintf("%q: want one of %s", name, strings.Join(components, ", "))
	if near, ok := spelling.Nearest(name, components); ok {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return usagef("%s", message)
}

// versionsReport is the answer.
type versionsReport struct {
	Schema string `json:"schema"`
	browse.Facts
}

// part is one table of the answer.
type part struct {
	title, header string
	lines         []string
}

// printTables prints each part that is present, with titles if there are several.
func (r versionsReport) printTables(w io.Writer) error {
	parts := []part{
		{"MINORS", "MINOR\tREAD FROM\tAPISERVER FLAGS\tRESOURCES\tCONTROLLERS", lines(r.Minors, minorLine)},
		{"FLAGS", "FLAG\tMINORS\tDEPRECATED\tDEFAULT", lines(r.Flags, flagLine)},
		{"RESOURCES", "ETCD KEY\tRESOURCE\tGROUPS\tSTORED AS\tON BY DEFAULT", lines(r.Resources, resourceLine)},
		{"CONTROLLERS", "CONTROLLER\tNAME IN --controllers\tON BY DEFAULT\tREADS\tWRITES\tDELETES",
			lines(r.Controllers, controllerLine)},
		{"FEATURE GATES", "GATE\tSTATE", lines(r.Gates, gateLine)},
		{"ADMISSION PLUGINS", "PLUGIN\tMINORS\tON BY DEFAULT", lines(r.Admission, admissionLine)},
		{"LEADER ELECTION LOCKS", "MINORS\tDEFAULT\tSETTABLE\tNAME FLAG\tOBJECT", lines(r.Locks, lockLine)},
		{"WRITES AT START", "ETCD KEY\tMINORS\tOBJECTS\tHOOK\tTURNED OFF BY", lines(r.Startup, startupLine)},
		{"BEHAVIOURS", "BEHAVIOUR\tMINORS\tMEANING", lines(r.Behaviours, behaviourLine)},
		{"ETCD", "ETCD\tRUN\tBETWEEN THOSE\tFAILS\tUSERS BY CERTIFICATE", lines(r.Etcd, etcdLine)},
		{"FAULTS OF FIRST RELEASES", "MENDED IN\tCONTROLLER\tONLY WITH GATE\tBEFORE", lines(r.Faults, faultLine)},
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return len(p.lines) == 0 })
	for i, part := range parts {
		if i > 0 {
			visible.Fprintln(w)
		}
		if len(parts) > 1 {
			visible.Fprintln(w, part.title)
		}
		err := printTable(w, func(table io.Writer) {
			for _, line := range append([]string{part.header}, part.lines...) {
				visible.Fprintln(table, line)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// history prints a single value alone, several with their minors.
func history(values []browse.Value) string {
	if len(values) == 1 {
		return values[0].Value
	}
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.Minors + ": " + v.Value
	}
	return strings.Join(words, "; ")
}

func minorLine(r browse.Minor) string {
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%d", r.Minor, r.Release, r.Flags, r.Resources, r.Controllers)
}

func flagLine(r browse.Flag) string {
	minors := r.Minors
	if r.NotInFirst != "" {
		minors += " (not in .0 of " + r.NotInFirst + ")"
	}
	return cells(r.Name, minors, r.Deprecated, history(r.Defaults))
}

func resourceLine(r browse.Resource) string {
	groups := make([]string, len(r.Groups))
	for i, group := range r.Groups {
		if groups[i] = group; group == "" {
			groups[i] = "core"
		}
	}
	return cells(r.Key, r.Resource, strings.Join(groups, ","), history(r.Stored), r.OnByDefault)
}

func controllerLine(r browse.Controller) string {
	return cells(r.Name, history(r.Names), r.OnByDefault,
		strings.Join(r.Reads, ","), strings.Join(r.Writes, ","), strings.Join(r.Deletes, ","))
}

func gateLine(r browse.Gate) string { return cells(r.Name, history(r.States)) }

func admissionLine(r browse.Plugin) string { return cells(r.Plugin, r.Minors, r.OnByDefault) }

func lockLine(r browse.Lock) string {
	return cells(r.Minors, r.Default, strings.Join(r.Settable, ","), r.NameFlag, r.Object)
}

func startupLine(r browse.StartupWrite) string {
	objects := r.Objects
	if r.OnlyWithRBAC {
		objects += " (with RBAC only)"
	}
	return cells(r.Key, r.Minors, objects, r.Hook, history(r.TurnedOffBy))
}

func etcdLine(r browse.Etcd) string {
	users := "-"
	if r.CertificateUsers {
		users = "yes"
	}
	fails := r.Fails
	if r.FailsFrom != "" {
		fails += " (from " + r.FailsFrom + " on)"
	}
	return cells(r.Etcd, r.Run, r.Between, fails, users)
}

func behaviourLine(r browse.Behaviour) string {
	minors := r.Minors
	if len(r.Since) > 0 {
		minors += " (from " + strings.Join(r.Since, ", ") + " on)"
	}
	return cells(r.Name, minors, r.Meaning)
}

func faultLine(r browse.Fault) string {
	return cells(strings.Join(r.MendedIn, ","), r.Controller, r.Gate, r.Happens)
}

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/report"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

type restartsPlanRequest struct {
	pods         podsRequest
	from, to     string
	via          []string
	movesCgroups bool
	bestPath     bool
	failAbove    int // -1 for no limit
	output       string
}

func newRestartsPlanCmd(streams Streams) *cobra.Command {
	var req restartsPlanRequest
	cmd := &cobra.Command{
		Use:   "plan --from VERSION --to VERSION (-f FILE | --kubeconfig FILE)",
		Short: "Predict what a kubelet upgrade restarts, and why",
		Long: `plan reports for every container whether the new kubelet restarts it, keeps it, or whether that is
unknown, and why. It sums the verdicts by node, namespace and owner.

Pods are those that the API server serves, from files or from a cluster. They are read as a stream: the memory does not
grow with the length of a JSON list.

Without recorded hashes, containers are assumed to have been started by the version of --from, from their present
definition. --runtime and --runtime-endpoint give the hashes that were recorded on a node: when one is not what that
version computes, older versions are tried; when none of them computes it, the verdict is unknown. It is never a guess.

--via adds intermediate versions, at which every node gets another kubelet first. --best-path compares all paths through
the minors by the number of containers that they restart.

With PodDisruptionBudgets, which come before the pods, plan also orders the nodes in waves: the nodes of a wave can be
upgraded concurrently, and each wave when the pods of the previous one are ready again, without violating a budget.

Exit codes: 0 done, 1 could not finish, 2 bad usage or a bad file, 3 done and more containers are restarted or unknown
than --fail-above allows.`,
		Example: `  kubectl get pdb,pods -A -o json | fusionctl restarts plan --from 1.12 --to 1.17 -f -
  crictl ps -o json > node-1.json; fusionctl restarts plan --from 1.12 --to 1.17 --kubeconfig admin.conf --node node-1 --runtime node-1.json
  fusionctl restarts plan --from 1.28 --to 1.36 -f pods.json --best-path --fail-above 0 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRestartsPlan(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.from, "from", "", "version of the running kubelet, such as 1.12")
	flags.StringVar(&req.to, "to", "", "version of the new kubelet")
	flags.StringSliceVar(&req.via, "via", nil, "intermediate versions, in order, such as 1.15 or 1.14,1.15")
	req.pods.addFlags(cmd)
	flags.BoolVar(&req.movesCgroups, "cgroup-change", false,
		"the new kubelet has another cgroup driver or cgroup root, which kills every pod")
	flags.BoolVar(&req.bestPath, "best-path", false, "also compare the paths through the minors")
	flags.IntVar(&req.failAbove, "fail-above", -1,
		"exit 3 when more containers than this are restarted or unknown; -1 for never")
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "yaml", "csv", "html")
	return cmd
}

func runRestartsPlan(ctx context.Context, req restartsPlanRequest, streams Streams) error {
	route, err := parseRoute(req.from, req.to, req.via)
	if err != nil {
		return err
	}
	route.MovesCgroups = req.movesCgroups
	if err := req.pods.check(); err != nil {
		return err
	}
	runtime, err := req.pods.loadRuntime(ctx, streams)
	if err != nil {
		return err
	}
	p := &restartsPlan{forecast: restart.NewForecast(route, runtime, req.bestPath), output: req.output,
		rows: newPlanRows(streams.Out, req.output, route)}
	reader := podReader{budget: p.forecast.AddBudget, pod: p.addPod}
	done := func() {}
	if !isTerminal(streams.Out) { // where the rows are progress enough
		done = drawLine(streams.Err, p.line)
	}
	err = reader.read(ctx, &req.pods, streams)
	done()
	if err != nil {
		pods, _ := p.forecast.Progress()
		return abort(p.rows, pods > 0, err)
	}
	totals := p.forecast.Totals()
	if err := p.rows.close(totals); err != nil {
		return err
	}
	if req.output == "table" {
		if err := printTotals(streams.Out, &totals); err != nil {
			return err
		}
	}
	if all := totals.Summary; req.failAbove >= 0 && all.Restart+all.Unknown > req.failAbove {
		return errAttention
	}
	return nil
}

// restartsPlan prints what becomes of pods as they come.
type restartsPlan struct {
	forecast *restart.Forecast
	rows     rowWriter
	output   string
}

func (p *restartsPlan) addPod(pod *v1.Pod) error {
	outcomes, err := p.forecast.Add(pod)
	if err != nil {
		return badInput(err, "")
	}
	for _, o := range outcomes {
		header, cells := planCells(o)
		if p.output == "csv" {
			header, cells = planRecord(o)
		}
		if err := p.rows.row(o, header, cells); err != nil {
			return err
		}
	}
	return nil
}

// planCells is a row of the table.
func planCells(o restart.Outcome) (header, cells []string) {
	return []string{"NAMESPACE", "POD", "NODE", "CONTAINER", "VERDICT", "WHY"},
		[]string{dash(o.Namespace), dash(o.Pod), dash(o.Node), withKind(o.Container, o.Kind), string(o.Verdict),
			strings.Join(o.Why, "; ")}
}

// planRecord is a row of CSV, whose columns are the fields of JSON.
func planRecord(o restart.Outcome) (header, cells []string) {
	return []string{"namespace", "pod", "node", "owner", "container", "kind", "verdict", "restarts", "why", "recorded",
			"startedBy"},
		[]string{o.Namespace, o.Pod, o.Node, o.Owner, o.Container, string(o.Kind), string(o.Verdict),
			strconv.Itoa(o.Restarts),
			strings.Join(o.Why, "; "), o.Recorded, o.StartedBy}
}

func (p *restartsPlan) line(elapsed time.Duration) string {
	pods, restarts := p.forecast.Progress()
	return fmt.Sprintf("%d pods, %d restarts, %.0f pods/s", pods, restarts,
		float64(pods)/max(elapsed.Seconds(), 0.001))
}

func newPlanRows(w io.Writer, output string, route restart.Route) rowWriter {
	switch last := len(route.Stops) - 1; output {
	case "json", "yaml":
		return newDocumentRows(w, output, route.Head(), "containers")
	case "csv":
		return newCSVRows(w)
	case "html":
		return &htmlRows{w: w, rows: "Containers", choose: "VERDICT", finish: restartsSheet,
			title: fmt.Sprintf("What kubelets of %s restart after %s", route.Stops[last], route.Stops[0])}
	default:
		return newTableRows(w)
	}
}

// printTotals adds to a table what follows the rows. Groups in which everything is kept are left out.
func printTotals(w io.Writer, r *restart.Totals) error {
	visible.Fprintf(w, "\npods %d, containers %d: restart %d, keep %d, unknown %d",
		r.Pods, r.Summary.Restart+r.Summary.Keep+r.Summary.Unknown, r.Summary.Restart, r.Summary.Keep,
		r.Summary.Unknown)
	if r.Restarts > r.Summary.Restart {
		visible.Fprintf(w, "; restarts at all stops %d", r.Restarts)
	}
	visible.Fprintln(w)
	return printTable(w, func(t io.Writer) {
		printGroups(t, "NODE", r.Nodes)
		printGroups(t, "NAMESPACE", r.Namespaces)
		printGroups(t, "OWNER", r.Owners)
		if len(r.Order) > 0 {
			visible.Fprintf(t, "\nWAVE\tNODES\tBREAKS\n")
		}
		for i, wave := range r.Order {
			visible.Fprintf(t, "%d\t%s\t%s\n", i+1, strings.Join(wave.Nodes, " "),
				dash(strings.Join(wave.Breaks, "; ")))
		}
		if len(r.Paths) > 0 {
			visible.Fprintf(t, "\nSTEPS\tRESTART\tUNKNOWN\tPATH\n")
		}
		for _, path := range r.Paths {
			stops := make([]string, len(path.Stops))
			for i, stop := range path.Stops {
				stops[i] = stop.String()
			}
			steps := "any"
			if path.MaxStep > 0 {
				steps = "at most " + strconv.Itoa(path.MaxStep)
			}
			visible.Fprintf(t, "%s\t%d\t%d\t%s\n", steps, path.Restart, path.Unknown, strings.Join(stops, " "))
		}
		if len(r.Notes) > 0 {
			visible.Fprintln(t)
		}
		for _, note := range r.Notes {
			visible.Fprintln(t, "note: "+note)
		}
	})
}

// restartsSheet says what the containers of a page add up to.
func restartsSheet(sheet *report.Sheet, tail any) {
	r, ok := tail.(restart.Totals)
	if !ok {
		return
	}
	sheet.Notes = r.Notes
	sheet.Verdict = report.Verdict{Severity: severityOf(0, r.Summary.Restart+r.Summary.Unknown),
		Text: fmt.Sprintf("%s: %d containers are restarted, %d kept, %d unknown.", prose.Counted(r.Pods, "pod"),
			r.Summary.Restart, r.Summary.Keep, r.Summary.Unknown)}
	for _, of := range []struct {
		title  string
		groups []restart.Group
	}{{"Node", r.Nodes}, {"Namespace", r.Namespaces}, {"Owner", r.Owners}} {
		table := report.Table{Title: of.title + "s", Head: []string{of.title, "Restart", "Keep", "Unknown"}}
		for _, g := range of.groups {
			table.Rows = append(table.Rows, report.Cells(g.Name, strconv.Itoa(g.Restart), strconv.Itoa(g.Keep),
				strconv.Itoa(g.Unknown)))
		}
		if len(table.Rows) > 0 {
			sheet.Tables = append(sheet.Tables, table)
		}
	}
	if len(r.Order) > 0 {
		table := report.Table{Title: "Order", Head: []string{"Wave", "Nodes", "Breaks"}}
		for i, wave := range r.Order {
			table.Rows = append(table.Rows, report.Cells(strconv.Itoa(i+1), strings.Join(wave.Nodes, " "),
				strings.Join(wave.Breaks, "; ")))
		}
		sheet.Tables = append(sheet.Tables, table)
	}
}

func printGroups(t io.Writer, what string, groups []restart.Group) {
	header := false
	for _, g := range groups {
		if g.Restart+g.Unknown == 0 {
			continue
		}
		if !header {
			visible.Fprintf(t, "\n%s\tRESTART\tKEEP\tUNKNOWN\n", what)
			header = true
		}
		visible.Fprintf(t, "%s\t%d\t%d\t%d\n", dash(g.Name), g.Restart, g.Keep, g.Unknown)
	}
}

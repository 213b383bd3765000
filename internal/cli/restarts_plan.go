package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
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
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "csv", "html")
	return cmd
}

// parseRoute reads the versions of a route.
func parseRoute(from, to string, via []string) (restart.Route, error) {
	start, err := parseVersionFlag("from", from)
	if err != nil {
		return restart.Route{}, err
	}
	end, err := parseVersionFlag("to", to)
	if err != nil {
		return restart.Route{}, err
	}
	var stops []kubever.Version
	for _, text := range via {
		stop, err := parseVersionFlag("via", text)
		if err != nil {
			return restart.Route{}, err
		}
		stops = append(stops, stop)
	}
	route, err := restart.NewRoute(start, end, stops...)
	if err != nil {
		return restart.Route{}, badInput(fmt.Errorf("--via: %w", err), "")
	}
	return route, nil
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
	p := &restartsPlan{route: route, runtime: runtime, output: req.output,
		rows: newPlanRows(streams.Out, req.output, route)}
	if req.bestPath {
		p.paths = restart.NewPaths(route)
	}
	reader := podReader{budget: p.addBudget, pod: p.addPod}
	done := func() {}
	if !isTerminal(streams.Out) { // where the rows are progress enough
		done = drawLine(streams.Err, p.line)
	}
	err = reader.read(ctx, &req.pods, streams)
	done()
	if err != nil {
		return abort(p.rows, p.tally.Pods > 0, err)
	}
	report := p.report()
	if err := p.rows.close(report); err != nil {
		return err
	}
	if req.output == "table" {
		if err := report.print(streams.Out); err != nil {
			return err
		}
	}
	if all := p.tally.All; req.failAbove >= 0 && all.Restart+all.Unknown > req.failAbove {
		return errAttention
	}
	return nil
}

// restartsPlan judges pods as they come.
type restartsPlan struct {
	route   restart.Route
	runtime *restart.Runtime
	rows    rowWriter
	output  string
	tally   restart.Tally
	paths   *restart.Paths // nil if they are not asked for
	budgets []*policyv1.PodDisruptionBudget
	order   *restart.Order // nil before the first pod

	recorded    int // containers whose record was found
	silent      int // pods that do not say which runtime they have
	undefaulted int // containers

	pods, restarts atomic.Int64 // for the line on the terminal
}

func (p *restartsPlan) addBudget(budget *policyv1.PodDisruptionBudget) {
	p.budgets = append(p.budgets, budget)
}

func (p *restartsPlan) addPod(pod *v1.Pod) (err error) {
	if p.order == nil {
		if p.order, err = restart.NewOrder(p.budgets); err != nil {
			return badInput(err, "")
		}
	}
	outcomes := p.route.Judge(pod, p.runtime)
	p.tally.Add(outcomes)
	p.order.Add(pod, outcomes)
	if p.paths != nil {
		p.paths.Add(pod, p.runtime)
	}
	p.observe(pod, outcomes)
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

// observe gathers what the answer should be taken with.
func (p *restartsPlan) observe(pod *v1.Pod, outcomes []restart.Outcome) {
	p.pods.Add(1)
	p.restarts.Store(int64(p.tally.All.Restart))
	if len(pod.Status.ContainerStatuses) == 0 {
		p.silent++
	}
	for _, container := range pod.Spec.Containers {
		if !isDefaulted(&container) {
			p.undefaulted++
		}
	}
	for _, o := range outcomes {
		if o.Recorded != "" {
			p.recorded++
		}
	}
}

func (p *restartsPlan) line(elapsed time.Duration) string {
	pods := p.pods.Load()
	return fmt.Sprintf("%d pods, %d restarts, %.0f pods/s", pods, p.restarts.Load(),
		float64(pods)/max(elapsed.Seconds(), 0.001))
}

// planHead begins the JSON of a plan.
type planHead struct {
	Schema string            `json:"schema"`
	From   kubever.Version   `json:"from"`
	Via    []kubever.Version `json:"via,omitempty"`
	To     kubever.Version   `json:"to"`
}

func newPlanRows(w io.Writer, output string, route restart.Route) rowWriter {
	switch last := len(route.Stops) - 1; output {
	case "json":
		return newJSONRows(w, planHead{"fusionctl/restarts-plan/v1", route.Stops[0], route.Stops[1:last],
			route.Stops[last]}, "containers")
	case "csv":
		return newCSVRows(w)
	case "html":
		return &htmlRows{w: w, choose: "VERDICT", finish: restartsSheet,
			title: fmt.Sprintf("What kubelets of %s restart after %s", route.Stops[last], route.Stops[0])}
	default:
		return newTableRows(w)
	}
}

// planReport ends a plan.
type planReport struct {
	Pods       int             `json:"pods"`
	Summary    restart.Count   `json:"summary"`  // containers
	Restarts   int             `json:"restarts"` // of containers, at all stops
	Nodes      []restart.Group `json:"nodes"`
	Namespaces []restart.Group `json:"namespaces"`
	Owners     []restart.Group `json:"owners"`
	Order      []restart.Wave  `json:"order,omitempty"` // of nodes, if there are PodDisruptionBudgets
	Paths      []restart.Path  `json:"paths,omitempty"`
	Notes      []string        `json:"notes,omitempty"`
}

func (p *restartsPlan) report() planReport {
	r := planReport{
		Pods:       p.tally.Pods,
		Summary:    p.tally.All,
		Restarts:   p.tally.Restarts,
		Nodes:      p.tally.Nodes(),
		Namespaces: p.tally.Namespaces(),
		Owners:     p.tally.Owners(),
		Notes:      p.notes(),
	}
	if len(p.budgets) > 0 && p.order != nil {
		r.Order = p.order.Waves()
	}
	if p.paths != nil {
		r.Paths = p.paths.Best()
	}
	return r
}

// notes are what the verdicts rest on.
func (p *restartsPlan) notes() (notes []string) {
	from, to := p.route.Stops[0], p.route.Stops[len(p.route.Stops)-1]
	if p.runtime == nil {
		notes = append(notes, fmt.Sprintf("no recorded hashes were given: containers are assumed to have been "+
			"started by the %s kubelet from their present definition; --runtime and --runtime-endpoint give the "+
			"hashes", from))
	} else if other := p.runtime.Records() - p.recorded; other > 0 {
		notes = append(notes, fmt.Sprintf("running containers of the runtime that belong to no pod given: %d", other))
	}
	if p.silent > 0 && from.Minor < restart.DockershimGone && restart.DockershimGone <= to.Minor {
		notes = append(notes, fmt.Sprintf("pods whose status does not name a runtime: %d; if theirs is docker "+
			"without a CRI, every container of them is restarted, since dockershim is removed in %s", p.silent,
			restart.DockershimGone))
	}
	if p.undefaulted > 0 {
		notes = append(notes, fmt.Sprintf("containers that lack the defaults of an API server: %d; a default is part "+
			"of the hash, so give the pods "+
			"as the API server serves them", p.undefaulted))
	}
	return notes
}

// print adds to a table what follows the rows. Groups in which everything is kept are left out.
func (r *planReport) print(w io.Writer) error {
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
	r, ok := tail.(planReport)
	if !ok {
		return
	}
	sheet.Notes = r.Notes
	sheet.Verdict = report.Verdict{Severity: severityOf(0, r.Summary.Restart+r.Summary.Unknown),
		Text: fmt.Sprintf("%s: %d containers are restarted, %d kept, %d unknown.", counted(r.Pods, "pod"),
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

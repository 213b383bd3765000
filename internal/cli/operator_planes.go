package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/operator"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/report"
)

// pluginName is the name of a link to this program by which kubectl finds it: kubectl fusion.
const pluginName = "kubectl-fusion"

// pluginVerbs are those of the operator that the plugin has as its own.
var pluginVerbs = []string{"get", "plan", "approve", "history", "back", "report", "done", "manifests"}

// Arguments are the arguments of a command line, whose first word is the program's name. By the plugin's name the verbs
// of the operator are its own, and no word at all shows them instead of starting an operator. Every other word is
// fusionctl's.
func Arguments(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	name, args := strings.TrimSuffix(filepath.Base(words[0]), ".exe"), words[1:]
	switch {
	case name != pluginName:
		return args
	case len(args) == 0, strings.HasPrefix(args[0], "-"), args[0] == "help":
		return []string{"operator", "--help"}
	case slices.Contains(pluginVerbs, args[0]):
		return append([]string{"operator"}, args...)
	}
	return args
}

type planesRequest struct {
	kubeconfig, context, output string
	names                       []string
	plan                        string
	yes                         bool
}

func (r *planesRequest) connect(ctx context.Context) (*operator.Planes, error) {
	config, err := interruptibly(ctx, func() (*rest.Config, error) {
		if r.kubeconfig == "" {
			return apiserver.DefaultKubeconfig(r.context)
		}
		return apiserver.Kubeconfig(r.kubeconfig, r.context)
	})
	if err != nil {
		return nil, badInput(err, "a kubeconfig names a server, its CA and the client's certificate or token")
	}
	return operator.NewPlanes(config)
}

// planesCmd is a verb about control planes that are objects.
func planesCmd(use, short, long, example string, args cobra.PositionalArgs, formats bool,
	run func(context.Context, planesRequest) error) *cobra.Command {
	var req planesRequest
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.names = args
			return run(cmd.Context(), req)
		}}
	connectionFlags(cmd, &req)
	f := cmd.Flags()
	if formats {
		enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
		return cmd
	}
	f.StringVar(&req.plan, "plan", "", "digest of the plan: any other one is refused")
	f.BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	return cmd
}

func newPlanesCmds(streams Streams) []*cobra.Command {
	return []*cobra.Command{
		planesCmd("get [NAME...]", "Show the control planes of a management cluster",
			`get shows the FusedControlPlane objects of a management cluster, all or those named, as the operator saw them.

Exit codes: 0 printed, 1 could not finish, 2 bad usage, 3 one of them is Refused or Degraded, 130 interrupted.`,
			"  fusionctl operator get\n  kubectl fusion get hosted -o yaml", cobra.ArbitraryArgs, true,
			func(ctx context.Context, req planesRequest) error { return runPlanesGet(ctx, req, streams) }),
		planesCmd("plan NAME", "Show the steps from what runs to what the spec says",
			`plan shows the transition that the operator would begin for the spec as it is, and its findings. It is computed
here, by the facts of this fusionctl, from the object and from the Secret fusionctl-record of its namespace, which takes
permission to get that Secret.

Exit codes: 0 printed, 1 could not finish, 2 bad usage, 3 the plan is refused, 130 interrupted.`,
			"  fusionctl operator plan hosted\n  kubectl fusion plan hosted -o json", cobra.ExactArgs(1), true,
			func(ctx context.Context, req planesRequest) error { return runPlanesPlan(ctx, req, streams) }),
		planesCmd("approve NAME", "Approve the plan that waits",
			`approve lets the transition begin that waits for an approval: it writes a word into the annotation
`+api.AnnotationApprove+`, which has the digests of the plan to which it leads and of the plan from which. Another
transition takes another approval: after an edit of the spec, from another plan to the same one, and the same one again
later, whose word has a number. It names hosts that are lost for good, too. With --plan another transition than that is
refused: the word as plan prints it, or its first digest, which says where it leads alone, and none of lost hosts.

Exit codes: 0 approved, 1 could not finish, or no plan waits, 2 bad usage, 130 interrupted.`,
			"  fusionctl operator approve hosted\n  kubectl fusion approve hosted --plan 3f0c1d9a5b7e2c4d6a80 --yes",
			cobra.ExactArgs(1), false,
			func(ctx context.Context, req planesRequest) error { return runPlanesApprove(ctx, req, streams) }),
		planesCmd("history [NAME...]", "Show the transitions that ended",
			`history shows the transitions of control planes that ended, the last one first, and why one went back.

Exit codes: 0 printed, 1 could not finish, 2 bad usage, 130 interrupted.`,
			"  fusionctl operator history hosted", cobra.ArbitraryArgs, true,
			func(ctx context.Context, req planesRequest) error { return runPlanesHistory(ctx, req, streams) }),
		planesCmd("back NAME", "Undo the transition that goes on",
			`back has the operator undo the transition that goes on: it writes the digest of its plan into the annotation
`+api.AnnotationBack+`. A plan that runs is left by an edit of the spec.

Exit codes: 0 requested, 1 could not finish, or no transition goes on, 2 bad usage, 130 interrupted.`,
			"  fusionctl operator back hosted", cobra.ExactArgs(1), false,
			func(ctx context.Context, req planesRequest) error { return runPlanesBack(ctx, req, streams) }),
		planesCmd("done NAME", "Confirm the step that is done by hand",
			`done lets a transition go on that waits for a person to have done a step by hand: it writes which step that is, of
which transition, into the annotation `+api.AnnotationDone+`. --plan takes the digest of its plan.

Exit codes: 0 confirmed, 1 could not finish, or no step waits, 2 bad usage, 130 interrupted.`,
			"  fusionctl operator done prod", cobra.ExactArgs(1), false,
			func(ctx context.Context, req planesRequest) error { return runPlanesDone(ctx, req, streams) }),
		newPlanesReportCmd(streams),
	}
}

// newPlanesReportCmd is fusionctl report for a control plane that is an object.
func newPlanesReportCmd(streams Streams) *cobra.Command {
	var req planesRequest
	cmd := &cobra.Command{
		Use:   "report NAME",
		Short: "Write the page of fusionctl report about a control plane",
		Long: `report writes one HTML page about the plan that the spec of a control plane leads to, as fusionctl report does
for a spec file. The operator serves the same page on its metrics address, below /reports/.

Exit codes: 0 written, 1 could not write, 2 bad usage or a spec without a plan, 3 written, and there are errors,
130 interrupted.`,
		Example: "  fusionctl operator report hosted -o hosted.html",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.names = args
			return runPlanesReport(cmd.Context(), req, streams)
		},
	}
	connectionFlags(cmd, &req)
	cmd.Flags().StringVarP(&req.output, "output", "o", "html", "html to print it; or the file to write, *.html")
	return cmd
}

func connectionFlags(cmd *cobra.Command, req *planesRequest) {
	f := cmd.Flags()
	f.StringVar(&req.kubeconfig, "kubeconfig", "", "of the management cluster (default: as kubectl finds it)")
	f.StringVar(&req.context, "context", "", "of the kubeconfig (default: its current one)")
}

func runPlanesReport(ctx context.Context, req planesRequest, streams Streams) error {
	if req.output != "html" && !strings.HasSuffix(req.output, ".html") {
		return usagef("-o %s: want html, or a file that ends in .html", req.output)
	}
	_, list, err := req.read(ctx)
	if err != nil {
		return err
	}
	in, err := operator.Report(ctx, &list[0])
	if err != nil {
		return badInput(err, "")
	}
	if req.output == "html" {
		err = report.HTML(asData(streams.Out), in)
	} else {
		err = filetree.Replace(req.output, 0o600, func(w *bufio.Writer) error { return report.HTML(w, in) })
	}
	if err != nil {
		return err
	}
	return attention(in.Check.Findings, finding.Error.String())
}

func runPlanesDone(ctx context.Context, req planesRequest, streams Streams) error {
	return req.annotate(ctx, streams, api.AnnotationDone, operator.Confirmable, func(f *api.FusedControlPlane) string {
		return fmt.Sprintf("Was this done for %s?", f.Name)
	})
}

// read reads the control planes that are named, or all.
func (r *planesRequest) read(ctx context.Context) (*operator.Planes, []api.FusedControlPlane, error) {
	planes, err := r.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(r.names) == 0 {
		all, err := planes.List(ctx)
		return planes, all, err
	}
	var some []api.FusedControlPlane
	for _, name := range r.names {
		f, err := planes.Get(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		some = append(some, *f)
	}
	return planes, some, nil
}

// planeRow is a control plane as the verbs print it.
type planeRow struct {
	Name   string     `json:"name"`
	Legacy string     `json:"legacy,omitempty"`
	Modern string     `json:"modern,omitempty"`
	Status api.Status `json:"status"`
}

func runPlanesGet(ctx context.Context, req planesRequest, streams Streams) error {
	_, list, err := req.read(ctx)
	if err != nil {
		return err
	}
	document := struct {
		Schema string     `json:"schema"`
		Planes []planeRow `json:"controlPlanes"`
	}{"fusionctl/operator-get/v1", []planeRow{}}
	attention := false
	for i := range list {
		row := planeRow{Name: list[i].Name, Status: list[i].Status}
		if file, err := list[i].File(); err == nil {
			row.Legacy, row.Modern = file.Spec.Legacy.Version.String(), file.Spec.Modern.Version.String()
		}
		document.Planes = append(document.Planes, row)
		s := &row.Status
		attention = attention || s.Phase == api.Refused || s.Phase == api.Degraded ||
			meta.IsStatusConditionTrue(s.Conditions, api.ConditionDegraded)
	}
	if printed, err := printDocument(streams.Out, req.output, document); err != nil {
		return err
	} else if !printed {
		if err := printPlanes(streams.Out, document.Planes); err != nil {
			return err
		}
	}
	if attention {
		return errAttention
	}
	return nil
}

func printPlanes(w io.Writer, rows []planeRow) error {
	if len(rows) == 0 {
		_, err := visible.Fprintln(w, "there are no control planes")
		return err
	}
	if err := printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "NAME\tLEGACY\tMODERN\tPHASE\tPODS\tPLAN\tSTEP")
		for _, r := range rows {
			wanted, ready := 0, 0
			for _, c := range r.Status.Components {
				wanted, ready = wanted+c.Wanted, ready+c.Ready
			}
			step := ""
			if at := r.Status.Transition; at != nil {
				step = fmt.Sprintf("%d/%d %s", at.Done, at.Steps, at.Step)
			}
			visible.Fprintln(t, cells(r.Name, dash(r.Legacy), dash(r.Modern), dash(string(r.Status.Phase)),
				fmt.Sprintf("%d/%d", ready, wanted), dash(r.Status.Plan), dash(step)))
		}
	}); err != nil {
		return err
	}
	for _, r := range rows {
		for _, kind := range []string{api.ConditionDegraded, api.ConditionProgressing} {
			c := meta.FindStatusCondition(r.Status.Conditions, kind)
			if c == nil || c.Message == "" || kind == api.ConditionDegraded && c.Status != "True" {
				continue
			}
			visible.Fprintf(w, "\n%s: %s\n", r.Name, c.Message)
		}
	}
	return nil
}

func runPlanesPlan(ctx context.Context, req planesRequest, streams Streams) error {
	planes, list, err := req.read(ctx)
	if err != nil {
		return err
	}
	f := &list[0]
	preview, err := planes.Preview(ctx, f)
	if err != nil {
		return err
	}
	document := struct {
		Schema string `json:"schema"`
		*operator.Preview
	}{"fusionctl/operator-plan/v1", preview}
	if printed, err := printDocument(streams.Out, req.output, document); err != nil {
		return err
	} else if !printed {
		if err := printPreview(streams.Out, preview); err != nil {
			return err
		}
	}
	if s := &f.Status; s.ObservedGeneration == f.Generation && s.Plan != "" && s.Plan != preview.Plan {
		visible.Fprintf(streams.Err, "the operator plans %s: it is of another version than this fusionctl\n", s.Plan)
	}
	if preview.Refused != "" {
		return errAttention
	}
	return nil
}

func printPreview(w io.Writer, p *operator.Preview) error {
	switch {
	case p.Refused != "":
		visible.Fprintf(w, "refused: %s\n", p.Refused)
	case len(p.Steps) == 0:
		visible.Fprintf(w, "plan %s: nothing is to be done\n", p.Plan)
	default:
		visible.Fprintf(w, "plan %s: from %s to %s\n\n", p.Plan, p.From, p.To)
		if err := printTable(w, func(t io.Writer) {
			visible.Fprintln(t, "STEP\tPHASE\tWHAT\tWAY BACK")
			for _, s := range p.Steps {
				visible.Fprintln(t, cells(s.ID, s.Phase, s.Title, yesNo(!s.Final)))
			}
		}); err != nil {
			return err
		}
	}
	if p.Waits {
		visible.Fprintf(w, "\nit waits for an approval: kubectl fusion approve %s --plan %s\n", p.Name, p.Approval)
	}
	if len(p.Findings) > 0 {
		visible.Fprintln(w)
	}
	for _, f := range p.Findings {
		visible.Fprintf(w, "%s: %s: %s: %s\n", f.Severity, f.Rule, f.Subject, f.Message)
	}
	return nil
}

func runPlanesHistory(ctx context.Context, req planesRequest, streams Streams) error {
	_, list, err := req.read(ctx)
	if err != nil {
		return err
	}
	type row struct {
		Name string `json:"name"`
		api.PastTransition
	}
	document := struct {
		Schema  string `json:"schema"`
		History []row  `json:"history"`
	}{"fusionctl/operator-history/v1", []row{}}
	for i := range list {
		for _, past := range list[i].Status.History {
			document.History = append(document.History, row{list[i].Name, past})
		}
	}
	if printed, err := printDocument(streams.Out, req.output, document); printed || err != nil {
		return err
	}
	return printTable(streams.Out, func(t io.Writer) {
		visible.Fprintln(t, "NAME\tENDED\tFROM\tTO\tRAN AFTER IT\tWENT BACK, BECAUSE")
		for _, r := range document.History {
			visible.Fprintln(t, cells(r.Name, r.Ended.UTC().Format("2006-01-02 15:04:05"), r.From, r.To, dash(r.Plan),
				dash(r.Error)))
		}
	})
}

func runPlanesApprove(ctx context.Context, req planesRequest, streams Streams) error {
	return req.annotate(ctx, streams, api.AnnotationApprove, operator.Approvable,
		func(f *api.FusedControlPlane) string {
			return fmt.Sprintf("Let %s go to plan %s?", f.Name, f.Status.Plan)
		})
}

func runPlanesBack(ctx context.Context, req planesRequest, streams Streams) error {
	return req.annotate(ctx, streams, api.AnnotationBack, operator.Undoable, func(f *api.FusedControlPlane) string {
		t := f.Status.Transition
		return fmt.Sprintf("Undo the transition of %s to plan %s, of which %d of %d steps are done?", f.Name, t.Plan,
			t.Done, t.Steps)
	})
}

// annotate shows a control plane, asks, and writes what a person says of its plan.
func (r *planesRequest) annotate(ctx context.Context, streams Streams, annotation string,
	about func(*api.FusedControlPlane) (string, error), question func(*api.FusedControlPlane) string) error {
	planes, list, err := r.read(ctx)
	if err != nil {
		return err
	}
	f := &list[0]
	word, err := about(f)
	if err != nil {
		return err
	}
	if r.plan != "" && !operator.IsAbout(word, r.plan) {
		return usagef("--plan %q: it is about plan %s", r.plan, word)
	}
	if c := meta.FindStatusCondition(f.Status.Conditions, api.ConditionProgressing); c != nil && c.Message != "" {
		visible.Fprintf(streams.Err, "%s: %s\n", f.Name, c.Message)
	}
	if err := confirm(streams, r.yes, question(f)); err != nil {
		return err
	}
	if err := planes.Annotate(ctx, f, annotation, word); err != nil {
		return err
	}
	_, err = visible.Fprintf(streams.Out, "%s: %s=%s\n", f.Name, annotation, word)
	return err
}

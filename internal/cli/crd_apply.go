package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/migrate/live"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type crdApplyRequest struct {
	crdRequest
	file      string // of the plan
	journal   string
	auditLogs []string
	to        string
	workers   int
	rate      float64
	yes       bool
	output    string
	// loseFields: rolling back may lose fields.
	loseFields bool
}

type crdApplyDocument struct {
	Schema string `json:"schema"`
	*migrate.Report
	Error string `json:"error,omitempty"`
}

func newCRDApplyCmd(streams Streams) *cobra.Command {
	var req crdApplyRequest
	cmd := &cobra.Command{
		Use:   "apply PLAN --kubeconfig FILE",
		Short: "Apply a plan; resumes where it stopped when it was killed",
		Long: `apply executes the plan that crd plan wrote with --out. It prints the steps, and asks for confirmation on
a terminal.

Before it changes anything it checks that the CRD is still as planned and that objects are converted. Objects are
rewritten through the API server, unchanged, each only if no client has written it meanwhile. An object that the API
server refuses is recorded with its error, and the rest continues; as long as one is left, nothing is pruned and no
version is removed.

status.storedVersions is not pruned without proof. With the store (--spec or --endpoints) the proof is that no key of
the resource has another version, at one revision; without it, that every object was written after the switch. The
output says which of the two it was.

The journal records the progress of the plan: apply may be killed and run again, and undo reads it too. It also
remembers what the store showed of itself: apply and undo stop when that store has another cluster id or UID of
kube-system, goes back in time, as after a restore, or loses more than 20 % of the objects, and at least 10, within a
minute.

Exit codes: 0 done, 1 could not finish, 2 bad usage or a bad plan, 3 objects were refused, or a version may not be
removed yet, 130 interrupted.`,
		Example: `  fusionctl crd apply pizzas.plan --kubeconfig modern.conf --spec fused.yaml
  fusionctl crd apply pizzas.plan --kubeconfig modern.conf --rate 50 --yes --audit-log /var/log/kube-audit.log`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runCRDApply(cmd.Context(), req, streams, false)
		},
	}
	crdApplyFlags(cmd, &req)
	cmd.Flags().StringArrayVar(&req.auditLogs, "audit-log", nil,
		"audit log that covers the time since a version is no longer served; repeat for more")
	return cmd
}

func newCRDUndoCmd(streams Streams) *cobra.Command {
	var req crdApplyRequest
	cmd := &cobra.Command{
		Use:   "undo PLAN --kubeconfig FILE",
		Short: "Roll a plan back to the last safe step, or to the start",
		Long: `undo rolls back from the step that the journal records to the previous safe step, or with --to further. A
removed version is restored as it was, and when new objects are stored in the old version again, objects that were
rewritten are rewritten back. Without a conversion webhook they lose the fields that the old version does not have: undo
names these, and with --yes it wants --lose-fields then. It may be killed and run again.

Exit codes: as for apply.`,
		Example: `  fusionctl crd undo pizzas.plan --kubeconfig modern.conf --spec fused.yaml
  fusionctl crd undo pizzas.plan --kubeconfig modern.conf --to start`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runCRDApply(cmd.Context(), req, streams, true)
		},
	}
	crdApplyFlags(cmd, &req)
	cmd.Flags().StringVar(&req.to, "to", "",
		`safe step to stop at, as "serve v1", or start (default the last safe one)`)
	cmd.Flags().BoolVar(&req.loseFields, "lose-fields", false,
		"with --yes: roll back although fields are lost that only the new version has")
	return cmd
}

func crdApplyFlags(cmd *cobra.Command, req *crdApplyRequest) {
	crdFlags(cmd, &req.crdRequest)
	flags := cmd.Flags()
	flags.StringVar(&req.journal, "journal", "", "file of the journal (default PLAN.journal)")
	flags.IntVar(&req.workers, "workers", 16, "objects that are rewritten concurrently")
	flags.Float64Var(&req.rate, "rate", 0, "objects rewritten per second at most; 0: no limit")
	flags.BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
}

func runCRDApply(ctx context.Context, req crdApplyRequest, streams Streams, undo bool) error {
	switch {
	case req.workers < 1 || req.workers > 256:
		return usagef("--workers %d: want 1 to 256", req.workers)
	case req.rate < 0:
		return usagef("--rate %g: want 0 or more", req.rate)
	case len(req.stores.snapshots) > 0:
		return usagef("--snapshot: a file cannot prove what is stored now")
	}
	p, id, err := readCRDPlan(req.file)
	if err != nil {
		return err
	}
	c, err := req.openCluster(ctx, streams)
	if err != nil {
		return err
	}
	defer c.close()
	records, err := journal.Open[migrate.Record](cmp.Or(req.journal, journal.Of(req.file)), id)
	if err != nil {
		return journalError(err, "--journal names another file")
	}
	defer records.Close() // every record is on the disk already
	steps, err := announce(streams.Err, p, records, req.to, undo)
	if err != nil {
		return badInput(err, "")
	}
	question := "Apply the plan?"
	if undo {
		question = "Roll back?"
		if lost := p.UndoWarnings(steps); len(lost) > 0 && req.yes && !req.loseFields {
			return usagef("--yes: rolling back loses fields of objects, as shown above: --lose-fields confirms that")
		}
	}
	if err := confirm(streams, req.yes, question); err != nil {
		return err
	}
	w, done, err := req.world(ctx, c, p, records, streams)
	if err != nil {
		return err
	}
	var report *migrate.Report
	if undo {
		report, err = migrate.ApplyUndo(ctx, p, steps, w)
	} else {
		report, err = migrate.Apply(ctx, p, w)
	}
	done()
	return finishApply(streams.Out, req.output, report, err)
}

// readCRDPlan reads what crd plan wrote, and the identity by which its journal knows it.
func readCRDPlan(file string) (*migrate.Plan, string, error) {
	data, err := readPlan(file, 4*crdLimitBytes, "fusionctl crd plan --out writes one")
	if err != nil {
		return nil, "", err
	}
	p := &migrate.Plan{}
	if err = json.Unmarshal(data, p); err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, "", badInput(fmt.Errorf("%s: %w", file, err), "fusionctl crd plan --out writes one")
	}
	return p, journal.ID(data), nil
}

// announce prints what will be done, and returns the way back for undo.
func announce(w io.Writer, p *migrate.Plan, journal migrate.Journal, to string, undo bool) ([]migrate.Step, error) {
	position, err := migrate.Locate(p, journal.Records())
	if err != nil {
		return nil, err
	}
	if !undo {
		if err := printSteps(w, p); err != nil {
			return nil, err
		}
		if position.Done > 0 && !position.Undoing {
			visible.Fprintf(w, "\n%d of %s done already\n", position.Done, prose.Counted(len(p.Steps), "step"))
		}
		return nil, nil
	}
	steps, err := migrate.Undo(p, journal.Records(), to)
	if err != nil {
		return nil, err
	}
	visible.Fprintf(w, "%s: rolling back to %s\n\n", p.Resource.Name, p.From)
	err = printStepTable(w, steps)
	printWarnings(w, p.UndoWarnings(steps))
	return steps, err
}

// world is what the plan is applied through.
func (r *crdApplyRequest) world(ctx context.Context, c *cluster, p *migrate.Plan, journal migrate.Journal,
	streams Streams) (*migrate.World, func(), error) {
	store, err := c.Store(ctx, p.Resource)
	if err != nil {
		return nil, nil, crdError(err)
	}
	objects := live.Objects{Server: c.Server, Resource: p.Resource}
	progress := &stepProgress{noun: "objects"}
	w := &migrate.World{
		Definitions: c.Server, Objects: objects, Servers: objects, Store: store, Journal: journal, Now: time.Now,
		Sleep: pause.For, Workers: r.workers,
		Progress: func(p migrate.Progress) { progress.add(p.Step, p.Walk, p.Objects, p.Total, p.Refused) },
	}
	if r.rate > 0 {
		w.Pace = rate.NewLimiter(rate.Limit(r.rate), max(1, int(r.rate/10))).Wait
	}
	if len(r.auditLogs) > 0 {
		w.Audit = func(since time.Time) (migrate.Requests, error) {
			return r.auditedSince(ctx, streams, p, since)
		}
	}
	return w, drawLine(streams.Err, progress.line), nil
}

// auditedSince looks for requests for the versions that the plan retires.
func (r *crdApplyRequest) auditedSince(ctx context.Context, streams Streams, p *migrate.Plan, since time.Time) (
	migrate.Requests, error) {
	clients := migrate.NewClients(p.Resource, p.Retire, since)
	for _, file := range r.auditLogs {
		if err := readAuditLog(ctx, streams, file, func(e policy.AuditEvent) error {
			return clients.Add(auditedRequest(e))
		}); err != nil {
			return migrate.Requests{}, err
		}
	}
	return clients.Requests(), nil
}

func finishApply(out io.Writer, output string, report *migrate.Report, err error) error {
	if report != nil {
		document := crdApplyDocument{Schema: "fusionctl/crd-apply/v1", Report: report}
		if err != nil {
			document.Error = err.Error()
		}
		if printErr := printCRDReport(out, output, document); printErr != nil {
			return printErr
		}
	}
	switch {
	case errors.Is(err, migrate.ErrRefused), errors.Is(err, migrate.ErrWaiting):
		return errAttention
	case errors.Is(err, migrate.ErrChanged):
		return withHint(err, "nothing more is changed; fusionctl crd plan computes a plan from the present state")
	case errors.Is(err, migrate.ErrNotItsStore):
		return badInput(err, storeOfServer)
	case errors.Is(err, migrate.ErrOtherStore):
		return withHint(err, "objects and proofs of the journal may be gone; nothing is pruned or removed by it any "+
			"more. Where that store is the right one, fusionctl crd plan computes a plan from the present state; "+
			"objects that were deleted in numbers on purpose: run the same command again")
	case errors.Is(err, migrate.ErrConversion):
		return withHint(err, "the webhook must respond before objects are rewritten; run the same command again then")
	case errors.Is(err, migrate.ErrUnreachable):
		return withHint(err, "the journal records the progress; run the same command again")
	}
	return withHint(err, storeHint(err))
}

const refusalsShown = 10

func printCRDReport(w io.Writer, output string, d crdApplyDocument) error {
	if printed, err := printDocument(w, output, d); printed {
		return err
	}
	for _, step := range d.Steps {
		visible.Fprintf(w, "done: %s\n", step)
	}
	for _, note := range d.Notes {
		visible.Fprintf(w, "note: %s\n", note)
	}
	for _, proof := range d.Proofs {
		visible.Fprintln(w, proof)
	}
	if n := d.Rewritten + d.Others + d.Gone; n > 0 {
		visible.Fprintf(w, "%s rewritten; meanwhile other clients wrote %d, and %d were deleted\n",
			prose.Counted(int(d.Rewritten), "object"), d.Others, d.Gone)
	}
	if d.Cleaned > 0 {
		visible.Fprintf(w, "managedFields of %s cleaned\n", prose.Counted(int(d.Cleaned), "object"))
	}
	for i, refusal := range d.Refusals {
		if i == refusalsShown {
			visible.Fprintf(w, "refused: %d more, in the journal\n", d.Refused-refusalsShown)
			break
		}
		visible.Fprintf(w, "refused: %s: %s\n", refusal.Object, refusal.Error)
	}
	if d.Stopped != "" {
		visible.Fprintf(w, "stopped at %s: %s\n", d.Stopped, d.Error)
	}
	return nil
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/etcd/move/files"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

func newEtcdMoveCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move keys to the stores in which the plan has them",
		Long: `move brings keys to the store of their owner: to split a store that both sides shared, or to repair a
mistake.

  fusionctl etcd move plan  SPEC --out move.plan     lists what would be moved; changes nothing
  fusionctl etcd move apply SPEC move.plan           backup, copy, verify, delete
  fusionctl etcd move undo  SPEC move.plan           moves all keys back

Stop the API servers that use these stores first, and start them again afterwards: clients that watch a running one see
the moved objects deleted. apply refuses when a key changed since the plan. It may be killed at any moment and run
again.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEtcdMovePlanCmd(streams), newEtcdMoveApplyCmd(streams), newEtcdMoveUndoCmd(streams))
	return cmd
}

type etcdMoveRequest struct {
	file    string
	plan    string
	journal string
	backup  string
	output  string
	yes     bool
	options move.Options
	stores  storesRequest
}

func newEtcdMovePlanCmd(streams Streams) *cobra.Command {
	var req etcdMoveRequest
	cmd := &cobra.Command{
		Use:   "plan SPEC --out FILE",
		Short: "List the keys that would be moved",
		Long: `plan lists every key in a store where its owner does not keep it, and writes the list to a file for
apply.

Keys that belong in several stores stay: for a resource that both sides own, only you know the side of a key. Name such
resources, and move all of their keys, with --resource, --from and --to.

Exit codes: 0 planned, 1 a store could not be read, 2 bad usage or a bad spec, 3 planned, and some keys cannot be moved,
130 interrupted.`,
		Example: `  fusionctl etcd move plan fused.yaml --out move.plan
  fusionctl etcd move plan fused.yaml --out move.plan --resource jobs --from core --to modern`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runEtcdMovePlan(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	hideSnapshotFlags(cmd)
	cmd.Flags().StringVar(&req.plan, "out", "", "file to write the plan to (required)")
	cmd.Flags().StringArrayVar(&req.options.Resources, "resource", nil,
		"only this resource, by its name or its part of the key: nodes or minions; repeat for more")
	cmd.Flags().StringVar(&req.options.From, "from", "",
		"with --resource and --to: move all of its keys from this store")
	cmd.Flags().StringVar(&req.options.To, "to", "", "with --resource and --from: to this store")
	enumFlag(cmd, &req.output, "output", "o", "output format of the summary", "table", "json", "yaml")
	return cmd
}

func newEtcdMoveApplyCmd(streams Streams) *cobra.Command {
	var req etcdMoveRequest
	cmd := &cobra.Command{
		Use:   "apply SPEC PLAN",
		Short: "Move the keys of a plan",
		Long: `apply saves every key of the plan in a backup, copies them to their new store (only where they are
absent), reads the copies back, and when all are there deletes the originals (only at the revision of the plan). Keys
keep the rest of their lease.

A journal beside the plan records the progress. Run again after it was killed, it resumes; run again when it is done, it
does nothing. A lock in each store excludes other runs.

Exit codes: 0 moved, 1 could not finish: run it again, or undo, 2 bad usage or a bad file, 3 moved, and meanwhile keys
were written to the wrong store, 130 interrupted.`,
		Example: `  fusionctl etcd move apply fused.yaml move.plan`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.plan = args[0], args[1]
			return runEtcdMove(cmd.Context(), req, streams, false)
		},
	}
	moveFlags(cmd, &req)
	return cmd
}

func newEtcdMoveUndoCmd(streams Streams) *cobra.Command {
	var req etcdMoveRequest
	cmd := &cobra.Command{
		Use:   "undo SPEC PLAN",
		Short: "Move the keys of a plan back",
		Long: `undo moves every key of the plan back to its old store, from its copy or from the backup, and deletes the
copies. It refuses, before it changes anything, when a copy was written after the move. It may be killed and run again.
Objects that were deleted in their new store are restored from the backup.

Exit codes: 0 undone, 1 could not finish, 2 bad usage or a bad file, 130 interrupted.`,
		Example: `  fusionctl etcd move undo fused.yaml move.plan`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.plan = args[0], args[1]
			return runEtcdMove(cmd.Context(), req, streams, true)
		},
	}
	moveFlags(cmd, &req)
	return cmd
}

func moveFlags(cmd *cobra.Command, req *etcdMoveRequest) {
	storesFlags(cmd, &req.stores)
	hideSnapshotFlags(cmd)
	cmd.Flags().StringVar(&req.journal, "journal", "", "file of the journal (default PLAN.journal)")
	cmd.Flags().StringVar(&req.backup, "backup", "", "file of the backup (default PLAN.backup)")
	cmd.Flags().BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	enumFlag(cmd, &req.output, "output", "o", "output format of the result", "table", "json", "yaml")
}

// openWriters opens the stores of the plan for reading and writing. Files cannot be moved to.
func openWriters(ctx context.Context, r storesRequest, p *plan.Plan) (map[string]move.Store, func(), error) {
	if len(r.snapshots) > 0 {
		return nil, nil, usagef("--snapshot: keys are moved between live stores")
	}
	if r.gentle {
		return nil, nil, usagef("--gentle: serializable reads may be stale, and a move must not be; --rate slows it " +
			"down")
	}
	live, err := openStores(ctx, r, p)
	if err != nil {
		return nil, nil, err
	}
	one, err := etcdv3.OneEtcd(ctx, opened(live), p.Prefix)
	if err == nil && one != "" {
		err = badInput(errors.New(one), "within one etcd, a moved key would be its own copy, and deleted")
	}
	if err != nil {
		closeStores(live)
		return nil, nil, withHint(err, cmp.Or(hintOf(err), storeHint(err)))
	}
	stores := map[string]move.Store{}
	for _, s := range live {
		stores[s.Name] = &etcdv3.Writer{Client: s.live}
	}
	return stores, func() { closeStores(live) }, nil
}

func runEtcdMovePlan(ctx context.Context, req etcdMoveRequest, streams Streams) error {
	if req.plan == "" {
		return usagef("--out FILE is required")
	}
	if (req.options.From == "") != (req.options.To == "") ||
		(req.options.From != "" && len(req.options.Resources) == 0) {
		return usagef("--from and --to: want both, with --resource, or neither")
	}
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	ownership := p.Ownership()
	if req.options.Resources, err = move.ResolveResources(&ownership, req.options.Resources); err != nil {
		return badInput(err, "fusionctl etcd ls lists them")
	}
	stores, closeAll, err := openWriters(ctx, req.stores, p)
	if err != nil {
		return err
	}
	defer closeAll()
	limitMemory(ctx)
	summary := move.NewSummary(&ownership)
	var planned atomic.Int64
	done := drawLine(streams.Err, func(time.Duration) string { return fmt.Sprintf("%d keys to move", planned.Load()) })
	err = files.WritePlan(req.plan, func(emit func(move.Move) error) (move.Header, error) {
		return move.New(ctx, &ownership, stores, req.options, func(m move.Move) error {
			summary.Add(m)
			planned.Add(1)
			return emit(m)
		})
	})
	done()
	if err != nil {
		return moveError(err)
	}
	lines := summary.Totals()
	if err := printMovePlan(streams.Out, req, p, lines, summary.Notes(req.options)); err != nil {
		return err
	}
	if slices.ContainsFunc(lines, func(l move.Totals) bool { return l.Conflicts > 0 }) {
		return errAttention
	}
	return nil
}

func printMovePlan(w io.Writer, req etcdMoveRequest, p *plan.Plan, lines []move.Totals, notes []string) error {
	document := struct {
		Schema string        `json:"schema"`
		Plan   string        `json:"plan"`
		Moves  []move.Totals `json:"moves"`
		Stop   []plan.Server `json:"stop"` // before apply
		Notes  []string      `json:"notes,omitempty"`
	}{"fusionctl/etcd-move-plan/v1", req.plan, lines, p.ServersOf(move.StoresOf(lines)...), notes}
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	if err := printMoveTotals(w, lines); err != nil || len(lines) == 0 {
		return err
	}
	for _, note := range notes {
		visible.Fprintf(w, "\nnote: %s\n", note)
	}
	visible.Fprintf(w, "\nBefore apply, stop every API server that uses these stores, with whatever configuration it "+
		"runs now:\n")
	for _, s := range document.Stop {
		visible.Fprintf(w, "  %s (%s, %s) on %s\n", s.Component, s.Side, s.Version, strings.Join(s.Hosts, ", "))
	}
	_, err := visible.Fprintf(w,
		`A running one sends delete events for the moved objects to its watchers: kubelets stop the containers of such pods.

Then:  fusionctl etcd move apply %[1]s %[2]s
After: start the API servers as this spec configures them (fusionctl render %[1]s), and check: fusionctl etcd check %[1]s
`, req.file, req.plan)
	return err
}

func printMoveTotals(w io.Writer, lines []move.Totals) error {
	if len(lines) == 0 {
		_, err := visible.Fprintln(w, "nothing to move: every key is in the store of its owner")
		return err
	}
	return printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "RESOURCE\tFROM\tTO\tKEYS\tBYTES\tLEASED\tCONFLICTS\tFOR EXAMPLE")
		for _, l := range lines {
			visible.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", storage.Printable(l.Resource), l.From, l.To,
				l.Keys, l.Bytes, l.Leased, l.Conflicts, storage.Printable(l.Example))
		}
	})
}

func runEtcdMove(ctx context.Context, req etcdMoveRequest, streams Streams, undo bool) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	ownership := p.Ownership()
	summary := move.NewSummary(&ownership)
	moves, total, err := files.ReadPlan(req.plan, p.Prefix, summary.Add)
	if err != nil {
		return badInput(err, "fusionctl etcd move plan writes one")
	}
	stores, closeAll, err := openWriters(ctx, req.stores, p)
	if err != nil {
		return err
	}
	defer closeAll()
	question := "Move these keys?"
	if undo {
		question = "Move these keys back?"
	}
	if err := printMoveTotals(streams.Err, summary.Totals()); err != nil {
		return err
	}
	servers, err := move.RunningServers(ctx, moves.Header, stores)
	warnOfServers(streams.Err, servers)
	if err != nil {
		return moveError(err)
	}
	if err := confirm(streams, req.yes, question); err != nil {
		return err
	}
	limitMemory(ctx)
	backup := cmp.Or(req.backup, files.BackupOf(req.plan))
	kept, err := files.Open(cmp.Or(req.journal, journal.Of(req.plan)), backup, moves.ID)
	if err != nil {
		return journalError(err, otherFiles)
	}
	defer kept.Close() // every record is on the disk already
	log, steps := loggerFrom(ctx), []move.Step{move.Saved, move.Copied, move.Deleted}
	if undo {
		steps = []move.Step{move.Compared, move.Restored}
	}
	progress := &stepProgress{noun: "keys", steps: words(steps), between: "checking for writes"}
	job := move.Job{
		Map: &ownership, Stores: stores, Plan: moves, Files: kept, Run: kept.Run(), By: thisProcess(req.plan),
		Progress: func(step move.Step, moves int64) {
			log.Info("moving", "step", step, "moves", moves)
			progress.reach(string(step), moves, total)
		},
	}
	done := drawLine(streams.Err, progress.line)
	var result move.Result
	if undo {
		result, err = move.Undo(ctx, job)
	} else {
		result, err = move.Apply(ctx, job)
	}
	done()
	if err != nil {
		if ctx.Err() != nil {
			visible.Fprintf(streams.Err, "stopped after %s; the same command resumes, and fusionctl etcd move undo "+
				"%s %s rolls back\n", progress.reached(), req.file, req.plan)
		}
		return moveError(err)
	}
	return printMoved(streams.Out, req, result, backup, undo)
}

// thisProcess says to another one what holds a lock.
func thisProcess(plan string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("process %d on %s, with %s, since %s", os.Getpid(), host, filepath.Base(plan),
		time.Now().UTC().Format(time.RFC3339))
}

// warnOfServers warns of API servers that still use the stores.
func warnOfServers(w io.Writer, servers []move.RunningServer) {
	for _, s := range servers {
		visible.Fprintf(w, "warning: store %s: an API server at %s is running, or was %d s ago: stop it first; its "+
			"watchers see the moved objects deleted\n",
			s.Store, storage.Printable(s.Address), s.SecondsAgo)
	}
}

func printMoved(w io.Writer, req etcdMoveRequest, result move.Result, backup string, undo bool) error {
	verb := "apply"
	if undo {
		verb = "undo"
	}
	document := struct {
		Schema string `json:"schema"`
		move.Result
		Backup string `json:"backup"`
	}{"fusionctl/etcd-move-" + verb + "/v1", result, backup}
	printed, err := printDocument(w, req.output, document)
	switch {
	case printed:
	case result.NotBegun:
		_, err := visible.Fprintln(w, "nothing to move back: apply of this plan never began")
		return err
	default:
		printMovedText(w, result, backup, undo)
	}
	if err == nil && result.Left > 0 {
		return errAttention
	}
	return err
}

// printMovedText says what happened, in sentences.
func printMovedText(w io.Writer, result move.Result, backup string, undo bool) {
	did := "moved"
	if undo {
		did = "moved back"
	}
	visible.Fprintf(w, "%s %s, %d expired meanwhile; backup in %s\n", prose.Counted(int(result.Moved), "key"), did,
		result.Expired, backup)
	if result.Recreated > 0 {
		visible.Fprintf(w, "%s from the backup: they had been deleted in their new store\n",
			prose.Counted(int(result.Recreated), "key"))
	}
	for _, name := range result.Full {
		visible.Fprintf(w, "store %s is full (alarm NOSPACE) and took deletions only: compact and defragment it, "+
			"then etcdctl alarm disarm\n", name)
	}
	if result.Left > 0 {
		visible.Fprintf(w, "%s written to the wrong store while this was running; they were left there:\n  %s\n",
			prose.Counted(int(result.Left), "key"), visible.Lines(strings.Join(result.LeftKeys, "\n  ")))
		visible.Fprintln(w, "stop the component that writes them, and make a new plan")
	}
}

// otherFiles is the way out when journal or backup belong to another plan.
const otherFiles = "--journal and --backup name other files"

// moveError is an error of a move with its way out.
func moveError(err error) error {
	switch {
	case errors.Is(err, journal.ErrBegun):
		return planError(err)
	case errors.Is(err, files.ErrOtherBackup):
		return badInput(err, otherFiles)
	}
	return withHint(err, moveHint(err))
}

func moveHint(err error) string {
	var locked *move.LockedError
	switch {
	case errors.As(err, &locked):
		return "wait until it ends, or resume or undo it with the files of that move"
	case errors.Is(err, move.ErrChanged):
		return "stop the API servers that write there; undo rolls back, and a new plan starts from the present state"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG):
		return "free disk space, or name files on another disk with --journal and --backup, which needs four thirds " +
			"of the values; then run it again"
	case errors.Is(err, etcd.ErrDenied):
		return "the user needs a role with the permission readwrite on everything below the prefix"
	case errors.Is(err, move.ErrFull):
		return "raise --quota-backend-bytes of this etcd, or compact and defragment it, then etcdctl alarm disarm, " +
			"and run it again; undo deletes the copies in one that is full"
	case errors.Is(err, move.ErrNoRoom):
		return "raise --quota-backend-bytes of this etcd, or compact and defragment it; then run it again"
	case errors.Is(err, move.ErrOtherStores):
		return "--endpoints names others; for an etcd that was restored from a snapshot, make a new plan"
	}
	return storeHint(err)
}

package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/move"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func newEtcdMoveCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move keys between stores until they lie where the plan wants them",
		Long: `move brings keys to the store in which their owner keeps them: to split a store that both sides shared, or to repair a mistake.

  fusionctl etcd move plan  SPEC --out move.plan     lists what would be moved; changes nothing
  fusionctl etcd move apply SPEC move.plan           backup, copy, verify, delete
  fusionctl etcd move undo  SPEC move.plan           brings everything back

Stop the API servers' writes to these resources first, and start the servers again afterwards: watches do not survive a move.
apply refuses when anything changed since the plan. It may be killed at any moment and run again.`,
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
		Short: "List what would be moved",
		Long: `plan lists every key that lies in a store where its owner does not keep it, and writes the list to a file for apply.

What belongs in several stores stays where it is: for a resource that both sides own, nobody but you knows whose a key is. Name
such resources, and move all of their keys, with --resource, --from and --to.

Exit codes: 0 planned, 1 a store could not be read, 2 bad usage or a bad spec, 3 planned, and some keys cannot be moved.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runEtcdMovePlan(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.plan, "out", "", "file to write the plan to (required)")
	cmd.Flags().StringArrayVar(&req.options.Resources, "resource", nil, "only this resource, by its part of the key; repeat for more")
	cmd.Flags().StringVar(&req.options.From, "from", "", "with --resource and --to: move all of its keys from this store")
	cmd.Flags().StringVar(&req.options.To, "to", "", "with --resource and --from: to this store")
	enumFlag(cmd, &req.output, "output", "o", "how to print the summary", "table", "json", "yaml")
	return cmd
}

func newEtcdMoveApplyCmd(streams Streams) *cobra.Command {
	var req etcdMoveRequest
	cmd := &cobra.Command{
		Use:   "apply SPEC PLAN",
		Short: "Do the moves of a plan",
		Long: `apply saves every key of the plan in a backup, copies them to their new store (only where they are absent), reads the copies back,
and when all are there deletes the originals (only at the revision of the plan). Keys keep the rest of their lease.

A journal beside the plan says how far it came. Run again after it was killed, it goes on; run again when it is done, it does
nothing.

Exit codes: 0 moved, 1 could not finish: run it again, or undo, 2 bad usage or a bad file, 130 interrupted.`,
		Args: cobra.ExactArgs(2),
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
		Short: "Bring back what apply has moved",
		Long: `undo brings every key of the plan back to where it came from, from its copy or from the backup, and deletes the copies. It
refuses, before it changes anything, when a copy was written after it was moved. It may be killed and run again.

Exit codes: 0 undone, 1 could not finish, 2 bad usage or a bad file, 130 interrupted.`,
		Args: cobra.ExactArgs(2),
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
	cmd.Flags().StringVar(&req.journal, "journal", "", "file of the journal (default PLAN.journal)")
	cmd.Flags().StringVar(&req.backup, "backup", "", "file of the backup (default PLAN.backup)")
	cmd.Flags().BoolVar(&req.yes, "yes", false, "do not ask")
}

// openWriters opens the stores of the plan for reading and writing. Files cannot be moved to.
func openWriters(ctx context.Context, r storesRequest, p *plan.Plan) (map[string]move.Store, func(), error) {
	if len(r.snapshots) > 0 {
		return nil, nil, usagef("--snapshot: keys are moved between live stores")
	}
	opened, err := openStores(ctx, r, p)
	if err != nil {
		return nil, nil, err
	}
	one, err := oneEtcd(ctx, opened, p.Prefix)
	if err == nil && one != "" {
		err = badInput(errors.New(one), "moved within one etcd, a key would be its own copy, and deleted")
	}
	if err != nil {
		closeStores(opened)
		return nil, nil, withHint(err, cmp.Or(hintOf(err), storeHint(err)))
	}
	stores := map[string]move.Store{}
	for _, s := range opened {
		stores[s.Name] = etcdv3.Writer{Client: s.live}
	}
	return stores, func() { closeStores(opened) }, nil
}

// moveTotals are the moves between two stores, by resource.
type moveTotals struct {
	Resource  string `json:"resource"`
	From      string `json:"from"`
	To        string `json:"to"`
	Keys      int64  `json:"keys"`
	Bytes     int64  `json:"bytes"`
	Conflicts int64  `json:"conflicts"`
	Example   string `json:"example,omitempty"` // of a conflict, or else of a key
}

func runEtcdMovePlan(ctx context.Context, req etcdMoveRequest, streams Streams) error {
	if req.plan == "" {
		return usagef("--out FILE is required")
	}
	if (req.options.From == "") != (req.options.To == "") || (req.options.From != "" && len(req.options.Resources) == 0) {
		return usagef("--from and --to: want both, with --resource, or neither")
	}
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	stores, closeAll, err := openWriters(ctx, req.stores, p)
	if err != nil {
		return err
	}
	defer closeAll()
	limitMemory(ctx)
	ownership := p.Ownership()
	totals := newTotals(&ownership)
	err = writeMovePlan(req.plan, func(emit func(move.Move) error) (move.Header, error) {
		return move.New(ctx, &ownership, stores, req.options, func(m move.Move) error {
			totals.add(m)
			return emit(m)
		})
	})
	if err != nil {
		return withHint(err, storeHint(err))
	}
	lines := totals.lines()
	if err := printMoveTotals(streams.Out, req, lines); err != nil {
		return err
	}
	if slices.ContainsFunc(lines, func(l moveTotals) bool { return l.Conflicts > 0 }) {
		return errAttention
	}
	return nil
}

type totalsByResource struct {
	classifier *etcdsplit.Classifier
	byID       map[[3]string]*moveTotals
}

func newTotals(m *etcdsplit.Map) *totalsByResource {
	return &totalsByResource{etcdsplit.NewClassifier(m), map[[3]string]*moveTotals{}}
}

func (t *totalsByResource) add(m move.Move) {
	k := t.classifier.Classify(m.Key)
	id := [3]string{strings.Clone(k.Resource), m.From, m.To}
	line, ok := t.byID[id]
	if !ok {
		line = &moveTotals{Resource: id[0], From: m.From, To: m.To, Example: m.Key}
		t.byID[id] = line
	}
	line.Keys++
	line.Bytes += int64(m.Bytes)
	if m.Conflict != "" {
		if line.Conflicts++; line.Conflicts == 1 {
			line.Example = m.Key + ": " + m.Conflict
		}
	}
}

func (t *totalsByResource) lines() []moveTotals {
	lines := []moveTotals{}
	for _, line := range t.byID {
		lines = append(lines, *line)
	}
	slices.SortFunc(lines, func(a, b moveTotals) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Resource, b.Resource))
	})
	return lines
}

func printMoveTotals(w io.Writer, req etcdMoveRequest, lines []moveTotals) error {
	document := struct {
		Schema string       `json:"schema"`
		Plan   string       `json:"plan"`
		Moves  []moveTotals `json:"moves"`
	}{"fusionctl/etcd-move-plan/v1", req.plan, lines}
	switch req.output {
	case "json":
		return printJSON(w, document)
	case "yaml":
		return printYAML(w, document)
	}
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "nothing to move: every key lies where its owner keeps it")
		return err
	}
	return printTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "RESOURCE\tFROM\tTO\tKEYS\tBYTES\tCONFLICTS\tFOR EXAMPLE")
		for _, l := range lines {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", etcdsplit.Printable(l.Resource), l.From, l.To, l.Keys, l.Bytes, l.Conflicts, etcdsplit.Printable(l.Example))
		}
	})
}

func runEtcdMove(ctx context.Context, req etcdMoveRequest, streams Streams, undo bool) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	moves, totals, err := readMovePlan(req.plan, p)
	if err != nil {
		return badInput(err, "fusionctl etcd move plan writes one")
	}
	question := "Move these keys?"
	if undo {
		question = "Bring these keys back?"
	}
	if err := printMoveTotals(streams.Err, etcdMoveRequest{output: "table"}, totals); err != nil {
		return err
	}
	if err := confirm(streams, req.yes, question); err != nil {
		return err
	}
	stores, closeAll, err := openWriters(ctx, req.stores, p)
	if err != nil {
		return err
	}
	defer closeAll()
	limitMemory(ctx)
	files, err := openMoveFiles(cmp.Or(req.journal, req.plan+".journal"), cmp.Or(req.backup, req.plan+".backup"))
	if err != nil {
		return err
	}
	defer files.close()
	log := loggerFrom(ctx)
	progress := func(step move.Step, moves int64) { log.Info("moving", "step", step, "moves", moves) }
	ownership := p.Ownership()
	var result move.Result
	if undo {
		result, err = move.Undo(ctx, stores, moves, files, progress)
	} else {
		result, err = move.Apply(ctx, &ownership, stores, moves, files, progress)
	}
	if err != nil {
		return withHint(err, moveHint(err))
	}
	verb := "moved"
	if undo {
		verb = "brought back"
	}
	_, err = fmt.Fprintf(streams.Out, "%d keys %s, %d expired meanwhile; backup in %s\n", result.Moved, verb, result.Expired, files.backup)
	return err
}

func moveHint(err error) string {
	if errors.Is(err, move.ErrChanged) {
		return "stop the API servers that write there; undo brings back what is moved already"
	}
	return storeHint(err)
}

// confirm asks on a terminal; elsewhere it wants --yes.
func confirm(streams Streams, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := streams.In.(*os.File)
	if !ok || !isTerminal(in) {
		return usagef("not asked on a terminal: --yes is required")
	}
	fmt.Fprintf(streams.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// A plan file is JSON lines: the moves, and behind them the header, which counts them: a file that was cut off has none.

type movePlanEnd struct {
	move.Header
	Moves int64 `json:"moves"`
}

func writeMovePlan(file string, make func(emit func(move.Move) error) (move.Header, error)) error {
	return replaceFile(file, func(w *bufio.Writer) error {
		encoder := json.NewEncoder(w)
		end := movePlanEnd{}
		header, err := make(func(m move.Move) error {
			end.Moves++
			return encoder.Encode(m)
		})
		if err != nil {
			return err
		}
		end.Header = header
		return encoder.Encode(end)
	})
}

// replaceFile writes a file under a temporary name, brings it to the disk, and renames it.
func replaceFile(file string, write func(*bufio.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer os.Remove(temp.Name()) // a no-op once renamed
	buffered := bufio.NewWriterSize(temp, 1<<16)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// jsonLines reads a file of JSON values, one per line, as often as it is asked.
func jsonLines(file string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		f, err := os.Open(file)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		decoder := json.NewDecoder(bufio.NewReaderSize(f, 1<<16))
		for n := 1; ; n++ {
			var line json.RawMessage
			switch err := decoder.Decode(&line); {
			case err == io.EOF:
				return
			case err != nil:
				yield(nil, fmt.Errorf("%s:%d: %w", file, n, err))
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// readMovePlan checks a plan file once, sums it up, and returns it for reading as often as needed.
func readMovePlan(file string, p *plan.Plan) (move.Plan, []moveTotals, error) {
	ownership := p.Ownership()
	totals := newTotals(&ownership)
	var end movePlanEnd
	moves := int64(0)
	for line, err := range jsonLines(file) {
		if err != nil {
			return move.Plan{}, nil, err
		}
		if end.Schema != "" {
			return move.Plan{}, nil, fmt.Errorf("%s: there is something behind its end", file)
		}
		var m move.Move
		if err := json.Unmarshal(line, &m); err == nil && m.Key != "" {
			totals.add(m)
			moves++
			continue
		}
		if err := json.Unmarshal(line, &end); err != nil {
			return move.Plan{}, nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	switch {
	case end.Schema != move.Schema || end.Moves != moves:
		return move.Plan{}, nil, fmt.Errorf("%s: is no plan, or is cut off", file)
	case end.Prefix != etcdsplit.NormalPrefix(p.Prefix):
		return move.Plan{}, nil, fmt.Errorf("%s: was made for the prefix %q, the spec has %q", file, end.Prefix, p.Prefix)
	}
	return move.Plan{Header: end.Header, Moves: func() iter.Seq2[move.Move, error] {
		return func(yield func(move.Move, error) bool) {
			n := int64(0)
			for line, err := range jsonLines(file) {
				var m move.Move
				if err == nil && n < moves {
					err = json.Unmarshal(line, &m)
				}
				if n++; n > moves || !yield(m, err) || err != nil {
					return
				}
			}
		}
	}}, totals.lines(), nil
}

// moveFiles keeps the journal and the backup of a move on the disk.
type moveFiles struct {
	*journalFile[move.Record]
	backup string
}

func openMoveFiles(journal, backup string) (*moveFiles, error) {
	f, err := openJournal[move.Record](journal)
	if err != nil {
		return nil, err
	}
	return &moveFiles{f, backup}, nil
}

func (f *moveFiles) Journal() ([]move.Record, error) { return f.Records(), nil }

func (f *moveFiles) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	return replaceFile(f.backup, func(w *bufio.Writer) error {
		encoder := json.NewEncoder(w)
		for key, err := range keys {
			if err == nil {
				err = encoder.Encode(key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *moveFiles) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		for line, err := range jsonLines(f.backup) {
			var key move.SavedKey
			if err == nil {
				err = json.Unmarshal(line, &key)
			}
			if !yield(key, err) || err != nil {
				return
			}
		}
	}
}

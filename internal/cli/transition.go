package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/registry"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
)

// noSpec stands for the spec of a cluster in which nothing of ours runs.
const noSpec = "none"

type transitionRequest struct {
	from, to             string // specs
	fromTarget, toTarget string
	fromPKI, toPKI       string // directories
	readStores, prepare  bool
	lost                 []string // hosts and nodes that are gone for good
	file                 string   // of the transition
	journal, rehearse    string
	snapshots            string
	credentials          string // file with those of registries
	ssh, sshProgram      string // command lines
	lock                 string // file
	wait                 time.Duration
	done                 []string // steps that a person has done
	yes                  bool
	output               string
}

// transitionWait is how long a component may take to start or to stop, by default.
const transitionWait = 3 * time.Minute

// transitionLimitBytes is the size of the largest file of steps: the manifests of many hosts, in base64.
const transitionLimitBytes = 256 << 20

func newTransitionCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transition",
		Short: "Plan and apply the steps from one spec to another, with rollback",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTransitionPlanCmd(streams), newTransitionRestoreCmd(streams),
		newTransitionRunCmd(streams, false), newTransitionRunCmd(streams, true),
		newTransitionStatusCmd(streams), newTransitionAcknowledgeCmd(streams), newTransitionAgentCmd(streams))
	return cmd
}

func newTransitionPlanCmd(streams Streams) *cobra.Command {
	var req transitionRequest
	cmd := &cobra.Command{
		Use:   "plan FROM TO",
		Short: "Write the steps from one spec to another",
		Long: `plan computes the steps from spec FROM to spec TO: files put and removed, units started and stopped,
snapshots and checks, each with its inverse. "none" is a cluster in which nothing of a plan runs yet, or any more.
Nothing is changed; --out writes the steps for apply.

Exit codes: 0 done, 1 a store could not be read, 2 bad usage, a bad spec, or no transition leads there, 3 the stores do
not agree with TO.`,
		Example: `  fusionctl transition plan none fused.yaml --out install.steps
  fusionctl transition plan fused.yaml upgraded.yaml --read-stores --out up.steps
  fusionctl transition plan upgraded.yaml fused.yaml --read-stores --prepare --out back.steps`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.from, req.to = args[0], args[1]
			return runTransitionPlan(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.file, "out", "", "file to write the steps to; it may hold secrets")
	targets := []string{string(render.StaticPod), string(render.Systemd)}
	enumFlag(cmd, &req.fromTarget, "from-target", "", "what runs the components of FROM", targets...)
	enumFlag(cmd, &req.toTarget, "to-target", "", "what runs those of TO", targets...)
	cmd.Flags().StringVar(&req.fromPKI, "from-pki", "",
		"directory with the certificates of FROM, DIR/HOST/PATH, as fusionctl pki writes it")
	cmd.Flags().StringVar(&req.toPKI, "to-pki", "",
		"directory with the certificates of TO: the steps put them and their keys, and restart who reads them")
	cmd.Flags().BoolVar(&req.readStores, "read-stores", false,
		"read the stores: a new minor has to decode every object in them, and what is to lie in another store must\n"+
			"have no key where it lies, or, with --prepare, none that cannot be moved")
	cmd.Flags().StringSliceVar(&req.lost, "lost", nil,
		"host or node of FROM that is gone for good, and not in TO; nothing is done on it; repeat")
	cmd.Flags().BoolVar(&req.prepare, "prepare", false,
		"write objects again that another minor does not read, where nothing of them is lost, and move keys of\n"+
			"resources that are to lie in another store, while no API server that reads them runs: on the way to TO,\n"+
			"and on the way back")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func newTransitionRunCmd(streams Streams, undo bool) *cobra.Command {
	var req transitionRequest
	cmd := &cobra.Command{
		Use:   "apply STEPS",
		Short: "Apply the remaining steps",
		Long: `apply does the steps of a file that plan has written: those of this machine itself, those of other hosts
over ssh, where the same program runs as an agent ("fusionctl transition agent"). --ssh allows that, and may name
another command, to which user@address and the agent's command line are added. Configuration, keys and known hosts are
ssh's own. A record goes to the journal before and after each step: killed at any point, apply goes on and undo goes
back. Files that are neither what a step puts nor what it replaces stop it.

--lost HOST goes on when a host is gone for good: nothing is done on it, what would change the cluster from there is
done from another host, and the others look first whether something on it answers.

--rehearse DIR does the same to files below DIR/HOST, for every host: no unit is started, no component is queried, no
store is copied, and manual steps count as done.

Exit codes: 0 done, 1 could not finish: run it again, or undo, 2 bad usage or a bad file, 130 interrupted.`,
		Example: `  fusionctl transition apply install.steps
  fusionctl transition apply install.steps --ssh
  fusionctl transition apply install.steps --ssh="ssh -F cluster.conf -l admin" --ssh-program="sudo fusionctl"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runTransition(cmd.Context(), req, streams, undo)
		},
	}
	if undo {
		cmd.Use, cmd.Short = "undo STEPS", "Take back the steps that are done"
		cmd.Long = `undo takes back what apply has done of these steps, the last one first, up to where it began. It
may be killed and run again. --lost HOST goes back when a host is gone for good, as with apply.

Exit codes: 0 undone, 1 could not finish, 2 bad usage or a bad file, 130 interrupted.`
		cmd.Example = `  fusionctl transition undo install.steps`
	}
	flags := cmd.Flags()
	flags.StringVar(&req.journal, "journal", "", "file of the journal (default STEPS.journal)")
	flags.StringVar(&req.snapshots, "snapshots", "",
		"directory of the stores' snapshots, on the host of the step (default STEPS.snapshots here, and\n"+
			otherSnapshots+" on other hosts)")
	flags.StringVar(&req.ssh, "ssh", "", "do the steps of other hosts over this command")
	flags.Lookup("ssh").NoOptDefVal = "ssh -l root -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
	flags.StringVar(&req.sshProgram, "ssh-program", "fusionctl", "command line of this program on other hosts")
	flags.StringVar(&req.rehearse, "rehearse", "", "directory of the hosts' files, in place of this machine")
	flags.StringVar(&req.lock, "lock", machineLock, "file that is locked while steps are done on this machine")
	if !undo { // which fetches nothing
		flags.StringVar(&req.credentials, "registry-config", "",
			"file with credentials of registries, as docker login writes it, for programs that come from images;\n"+
				"on each host")
	}
	flags.DurationVar(&req.wait, "wait", transitionWait, "how long a component may take to start or to stop")
	flags.StringArrayVar(&req.done, "done", nil, "manual step that is done, as apply names it; repeat")
	flags.StringSliceVar(&req.lost, "lost", nil,
		"host of the steps that is gone for good since they were begun: nothing is done on it; repeat")
	flags.BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	enumFlag(cmd, &req.output, "output", "o", "how to print; json: a line for each record", "table", "json")
	return cmd
}

func newTransitionStatusCmd(streams Streams) *cobra.Command {
	var req transitionRequest
	cmd := &cobra.Command{
		Use:   "status STEPS",
		Short: "Print the progress of a transition",
		Long: `status reads the journal of a transition, also while apply or undo is at work, and changes nothing.

Exit codes: 0 done or not begun, 1 could not read, 2 bad usage or a bad file, 3 under way: steps are left.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runTransitionStatus(req, streams)
		},
	}
	cmd.Flags().StringVar(&req.journal, "journal", "", "file of the journal (default STEPS.journal)")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func loadSetup(streams Streams, file, target, certificates string) (transition.Setup, error) {
	if file == noSpec {
		return transition.Setup{}, nil
	}
	p, err := loadPlan(streams, file)
	s := transition.Setup{Plan: p, Target: render.Target(target)}
	if err != nil || certificates == "" {
		return s, err
	}
	if s.Certificates, err = transition.CertificatesOf(p, filetree.DirFS(certificates)); err != nil {
		err = badInput(fmt.Errorf("%s: %w", certificates, err), "fusionctl pki SPEC --out DIR issues what is missing")
	}
	return s, err
}

// goodCertificates checks that the certificates of a directory do for a plan.
func goodCertificates(p *plan.Plan, dir string) error {
	if p == nil || dir == "" {
		return nil
	}
	tree := filetree.DirFS(dir)
	wrong, err := pki.KeptCertificates(p, tree, nil, time.Now())
	keys, errOfKeys := pki.KeptKeys(p, tree)
	err = errors.Join(err, errOfKeys)
	for _, k := range append(wrong, keys...) {
		err = errors.Join(err, fmt.Errorf("%s: %s", filepath.Join(dir, filepath.FromSlash(k.File)), k.Why))
	}
	return badInput(err, "")
}

func runTransitionPlan(ctx context.Context, req transitionRequest, streams Streams) error {
	from, err := loadSetup(streams, req.from, req.fromTarget, req.fromPKI)
	if err != nil {
		return err
	}
	to, err := loadSetup(streams, req.to, req.toTarget, req.toPKI)
	if err != nil {
		return err
	}
	if err := goodCertificates(to.Plan, req.toPKI); err != nil {
		return err
	}
	facts := transition.Facts{Prepare: req.prepare}
	if req.readStores {
		if facts, err = readFacts(ctx, from, to, req.prepare, streams); err != nil {
			return err
		}
	}
	facts.Lost = req.lost
	t, err := transition.New(from, to, facts)
	var refused *transition.RefusedError
	if errors.As(err, &refused) {
		return badInput(err, "")
	} else if err != nil {
		return err
	}
	if req.file != "" {
		if facts.StoresAgree && t.Watch != nil {
			// what does not run yet is known from when it does
			t.Watch.Seen, _ = new(local.Host).Look(ctx, "", t.Watch) //nolint:errcheck
		}
		data, err := t.Marshal()
		if err != nil {
			return err
		}
		if err := writePlan(req.file, data); err != nil {
			return err
		}
	}
	return printTransition(streams.Out, req, &t)
}

// stepLine is a step as it is printed, without what may be secret.
type stepLine struct {
	ID    string           `json:"id"`
	Phase transition.Phase `json:"phase"`
	Host  string           `json:"host"`
	Title string           `json:"title"`
	Do    transition.Kind  `json:"do,omitempty"`
	Undo  transition.Kind  `json:"undo,omitempty"`
}

func printTransition(w io.Writer, req transitionRequest, t *transition.Transition) error {
	lines := []stepLine{}
	for _, s := range t.Steps {
		line := stepLine{ID: s.ID, Phase: s.Phase, Host: s.Host, Title: s.Title}
		if s.Do != nil {
			line.Do = s.Do.Kind
		}
		if s.Undo != nil {
			line.Undo = s.Undo.Kind
		}
		lines = append(lines, line)
	}
	document := struct {
		Schema string     `json:"schema"`
		From   string     `json:"from"`
		To     string     `json:"to"`
		Steps  []stepLine `json:"steps"`
	}{"fusionctl/transition-plan/v1", t.From, t.To, lines}
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	visible.Fprintf(w, "from %s\nto   %s\n\n", t.From, t.To)
	if len(lines) == 0 {
		_, err := visible.Fprintln(w, "nothing changes")
		return err
	}
	return printTable(w, func(table io.Writer) {
		visible.Fprintln(table, "STEP\tPHASE\tHOST\tWHAT\tBACK")
		for _, l := range lines {
			visible.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.ID, l.Phase, l.Host, l.Title, dash(string(l.Undo)))
		}
	})
}

// printHosts says where the steps will be done: the names are the file's, and its addresses decide.
func printHosts(w io.Writer, req transitionRequest, t *transition.Transition, away []transition.Host) error {
	visible.Fprintln(w)
	return printTable(w, func(table io.Writer) {
		visible.Fprintln(table, "HOST\tADDRESS\tDONE")
		for _, h := range t.Hosts {
			by := "on this machine"
			switch {
			case slices.Contains(req.lost, h.Name):
				by = "not: it is lost"
			case req.rehearse != "":
				by = "below " + filepath.Join(req.rehearse, h.Name)
			case slices.Contains(away, h):
				by = "by " + req.ssh + " " + h.Address
			}
			visible.Fprintf(table, "%s\t%s\t%s\n", h.Name, h.Address, by)
		}
	})
}

// readTransition reads a file of steps and its identity.
func readTransition(file string) (*transition.Transition, string, error) {
	data, err := readPlan(file, transitionLimitBytes, "fusionctl transition plan writes one")
	if err != nil {
		return nil, "", err
	}
	t, err := transition.Parse(data)
	if err != nil {
		return nil, "", badInput(fmt.Errorf("%s: %w", file, err), "fusionctl transition plan writes one")
	}
	return t, journal.ID(data), nil
}

func runTransition(ctx context.Context, req transitionRequest, streams Streams, undo bool) error {
	t, id, err := readTransition(req.file)
	if err != nil {
		return err
	}
	away, err := othersOf(t, req)
	if err != nil {
		return err
	}
	for _, name := range req.lost {
		if req.rehearse == "" && !slices.ContainsFunc(away, func(h transition.Host) bool { return h.Name == name }) {
			return usagef("--lost %s: is this machine, or none of the hosts of the steps", name)
		}
	}
	question := "Apply these steps?"
	if undo {
		question = "Undo these steps?"
	}
	if err := printTransition(streams.Err, transitionRequest{output: "table"}, t); err != nil {
		return err
	}
	if err := printHosts(streams.Err, req, t, away); err != nil {
		return err
	}
	if err := confirm(streams, req.yes, question); err != nil {
		return err
	}
	kept, err := journal.Open[transition.Record](cmp.Or(req.journal, journal.Of(req.file)), id)
	if err != nil {
		return journalError(err, "--journal names another file")
	}
	defer kept.Close() // every record is on the disk already
	printer := &stepPrinter{req: req, streams: streams, of: len(t.Steps)}
	host := &local.Host{Rehearsal: req.rehearse, Wait: req.wait,
		Snapshots: cmp.Or(req.snapshots, req.file+".snapshots"), ByHand: printer.byHand,
		Images: &registry.Client{Credentials: req.credentials}}
	limitMemory(ctx)
	runner, end, err := runnerOf(ctx, t, req, host, away)
	if err != nil {
		return err
	}
	printer.notes = runner.Notes
	if len(req.lost) > 0 {
		left, err := t.Without(kept.Records(), req.lost, undo)
		if err == nil {
			err = transition.Silence(ctx, t, runner, req.lost)
		}
		if err != nil {
			return errors.Join(withoutError(err), end())
		}
		t = left
	}
	if undo {
		err = transition.Undo(ctx, t, runner, kept, printer.print)
	} else {
		err = transition.Apply(ctx, t, runner, kept, printer.print)
	}
	printer.note() // of a check that has failed
	if closing := end(); err == nil {
		err = closing
	}
	if err == nil && printer.err != nil {
		return withHint(fmt.Errorf("printing the steps, all of which are done: %w", printer.err),
			"fusionctl transition status prints them")
	}
	return transitionError(err)
}

// stepPrinter prints steps as they are done, and knows which one is.
type stepPrinter struct {
	req     transitionRequest
	streams Streams
	of      int    // steps
	at      string // the step
	err     error  // the first of printing; the steps go on, and the journal has them
	// notes are what the checks of a step have found that is in no one's way.
	notes func() []string
}

func (p *stepPrinter) print(s *transition.Step, event transition.Event) {
	p.at = s.ID
	p.note()
	var err error
	if p.req.output == "json" {
		err = json.NewEncoder(p.streams.Out).Encode(struct {
			transition.Record
			Of    int    `json:"of"`
			Host  string `json:"host"`
			Title string `json:"title"`
		}{transition.Record{Step: s.ID, Event: event}, p.of, s.Host, s.Title})
	} else if event == transition.Unseen {
		visible.Fprintf(p.streams.Err, "before step %s: not every store could be read\n", s.ID)
	} else if event == transition.Done || event == transition.Undone {
		_, err = visible.Fprintf(p.streams.Out, "%s of %03d  %s  %s: %s\n", s.ID, p.of, s.Host, s.Title, event)
	}
	p.err = cmp.Or(p.err, err)
}

func (p *stepPrinter) note() {
	for _, note := range p.notes() {
		visible.Fprintf(p.streams.Err, "note: %s\n", note)
	}
}

// byHand refuses the step at work while a person has not done it, or has not seen what checks found.
func (p *stepPrinter) byHand(text, found string) error {
	done := p.at
	if found != "" {
		done += "." + found
	}
	if slices.Contains(p.req.done, done) {
		return nil
	}
	return withHint(fmt.Errorf("to be done by hand: %s", text), "then run it again with --done "+done)
}

// withoutError is an error of Without with its way out.
func withoutError(err error) error {
	if lacks := (*transition.WithoutError)(nil); errors.As(err, &lacks) {
		return badInput(err, "")
	}
	return transitionError(err)
}

// transitionError is an error of Apply or Undo with its way out.
func transitionError(err error) error {
	switch {
	case errors.Is(err, transition.ErrJournal):
		return badInput(err, "--journal names another file")
	case errors.Is(err, transition.ErrOtherStore):
		return withHint(err, "look whether each store has the endpoints, the data directory and the backup that it "+
			"should have; where they are right as they are, fusionctl transition acknowledge says so")
	}
	return withHint(err, cmp.Or(hintOf(err), "run it again to resume; fusionctl transition undo rolls back"))
}

func runTransitionStatus(req transitionRequest, streams Streams) error {
	t, id, err := readTransition(req.file)
	if err != nil {
		return err
	}
	name := cmp.Or(req.journal, journal.Of(req.file))
	records, err := journal.Read[transition.Record](name, id)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return journalError(err, "--journal names another file")
	}
	state, err := transition.StateOf(t, records)
	if err != nil {
		return badInput(err, "--journal names another file")
	}
	document := struct {
		Schema string `json:"schema"`
		transition.State
		Steps int    `json:"steps"`
		Next  string `json:"next,omitempty"`
		// Stopped is in what stores are not those that the journal knows, until it is acknowledged.
		Stopped []string `json:"stopped,omitempty"`
	}{"fusionctl/transition-status/v1", state, len(t.Steps), "", nil}
	if stop := transition.Stopped(records); stop != nil {
		document.Stopped = stop.Looked.Why
	}
	if state.Done < len(t.Steps) {
		document.Next = t.Steps[state.Done].ID
	}
	printed, err := printDocument(streams.Out, req.output, document)
	if !printed {
		_, err = visible.Fprintf(streams.Out, "%s: %d of %s done", filepath.Base(req.file), state.Done,
			prose.Counted(len(t.Steps), "step"))
		if state.Open {
			visible.Fprintf(streams.Out, "; step %s was begun", document.Next)
		}
		visible.Fprintln(streams.Out)
		for _, why := range document.Stopped {
			visible.Fprintf(streams.Out, "  stopped: %s\n", why)
		}
	}
	if err == nil && (document.Stopped != nil || state.Open || state.Done > 0 && state.Done < len(t.Steps)) {
		return errAttention
	}
	return err
}

// readFacts reads the stores of the plan to which a transition leads, and prints what is in its way.
func readFacts(ctx context.Context, from, to transition.Setup, prepare bool, streams Streams) (
	transition.Facts, error) {
	limitMemory(ctx)
	log := loggerFrom(ctx)
	facts, err := local.Facts(ctx, from, to, prepare,
		local.Telling{
			Failover: func(store, reason string) { log.Warn("failover", "store", store, "reason", reason) },
			Note:     func(text string) { visible.Fprintf(streams.Err, "note: %s\n", text) },
		})
	var disagree *local.DisagreeError
	var left *local.KeysError
	var ending *local.LeftError
	var stays *local.RewriteError
	switch {
	case errors.As(err, &disagree):
		visible.Fprintln(streams.Err, visible.Lines(err.Error()))
		return facts, errAttention
	case errors.As(err, &ending):
		visible.Fprintln(streams.Err, visible.Lines(err.Error()))
		return facts, errAttention
	case errors.As(err, &stays):
		visible.Fprintln(streams.Err, visible.Lines(err.Error()))
		return facts, errAttention
	case errors.As(err, &left):
		visible.Fprintln(streams.Err, visible.Lines(err.Error()+"\n"+left.Hint()))
		return facts, errAttention
	}
	return facts, withHint(err, storeHint(err))
}

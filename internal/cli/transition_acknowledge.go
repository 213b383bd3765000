package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func newTransitionAcknowledgeCmd(streams Streams) *cobra.Command {
	var req transitionRequest
	var why string
	cmd := &cobra.Command{
		Use:   "acknowledge STEPS",
		Short: "Let a transition go on after a store was replaced or restored",
		Long: `acknowledge shows why a transition has stopped before a step, and lets apply and undo go on.

They stop when a store is not the one recorded in the journal: another etcd, an emptied or a restored one. What is not
in it looks as if it need not be kept, handed over or waited for. Look first whether each store is the one that it
should be, and bring back what is missing. Afterwards the stores are trusted as they were seen at the stop.

Exit codes: 0 acknowledged, or nothing to acknowledge, 1 could not finish, 2 bad usage or a bad file, 130 interrupted.`,
		Example: `  fusionctl transition acknowledge over.steps --why "restored from the backup of Monday"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runTransitionAcknowledge(req, why, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.journal, "journal", "", "file of the journal (default STEPS.journal)")
	f.StringVar(&why, "why", "", "for the journal")
	f.BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	return cmd
}

func runTransitionAcknowledge(req transitionRequest, why string, streams Streams) error {
	t, id, err := readTransition(req.file)
	if err != nil {
		return err
	}
	name := cmp.Or(req.journal, journal.Of(req.file))
	if _, err := os.Lstat(name); err != nil {
		return badInput(err, "apply begins a journal; --journal names another file")
	}
	kept, err := journal.Open[transition.Record](name, id)
	if err != nil {
		return journalError(err, "--journal names another file")
	}
	if _, err := transition.StateOf(t, kept.Records()); err != nil {
		return errors.Join(badInput(err, "--journal names another file"), kept.Close())
	}
	stop := transition.Stopped(kept.Records())
	if stop == nil {
		_, err := visible.Fprintln(streams.Out, "nothing to acknowledge: the stores were those that the journal knows")
		return errors.Join(err, kept.Close())
	}
	visible.Fprintf(streams.Err, "before step %s:\n", stop.Step)
	for _, reason := range stop.Looked.Why {
		visible.Fprintf(streams.Err, "  %s\n", reason)
	}
	if err := confirm(streams, req.yes, "Are these stores the right ones, with what is in them?"); err != nil {
		return errors.Join(err, kept.Close())
	}
	err = errors.Join(transition.Acknowledge(kept, stop, whoami(), why), kept.Close())
	if err == nil {
		_, err = visible.Fprintln(streams.Out, "acknowledged: apply and undo go on")
	}
	if err != nil {
		err = fmt.Errorf("acknowledging: %w", err)
	}
	return err
}

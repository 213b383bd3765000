package cli

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/pkg/witness/statedir"
)

type acknowledgeRequest struct {
	directory string
	why       string
	yes       bool
	output    string
}

func newControllersAcknowledgeCmd(streams Streams) *cobra.Command {
	var req acknowledgeRequest
	cmd := &cobra.Command{
		Use:   "acknowledge --state-dir DIR",
		Short: "Resume deletions after a store was replaced or restored",
		Long: `acknowledge shows why controllers have stopped deleting, and lets them go on.

They stop when a store is not the one that they remember: another etcd, an emptied or a restored one, or when too many
owners vanish at once. What these owned looks like garbage then, pods among it. Look first whether each side has the
store that it should have, and bring back what is missing.

Afterwards the present contents of the stores are trusted, and objects whose owners are on no side are deleted. A restarted
process does not forget that it has stopped. Each host on which controllers run remembers for itself: acknowledge on
each.

Exit codes: 0 acknowledged, or nothing to acknowledge, 1 could not finish, 2 bad usage, or nothing is remembered there,
130 interrupted.`,
		Example: `  fusionctl controllers acknowledge --state-dir /var/lib/fusionctl-controllers --why "restored from the backup of Monday"`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return runControllersAcknowledge(req, streams, time.Now())
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.directory, "state-dir", "", "where the controllers of this host remember the stores (required)")
	f.StringVar(&req.why, "why", "", "for the log")
	f.BoolVar(&req.yes, "yes", false, "do not ask for confirmation")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

type acknowledgedDocument struct {
	Schema string                   `json:"schema"`
	Stop   *witness.Stop            `json:"stop"` // nil: nothing to acknowledge
	Word   *witness.Acknowledgement `json:"acknowledgement,omitempty"`
}

func runControllersAcknowledge(req acknowledgeRequest, streams Streams, now time.Time) error {
	if req.directory == "" {
		return usagef("--state-dir is required")
	}
	if _, err := os.Stat(req.directory); err != nil {
		return badInput(err, "the rendered unit or pod names it: --state-dir")
	}
	directory, err := statedir.Open(req.directory)
	if err != nil {
		return badInput(err, "")
	}
	known, err := directory.Load()
	switch {
	case err != nil:
		return badInput(err, "controllers that cannot read what they remember stop, and write it anew: wait until "+
			"they run")
	case known == nil:
		return badInput(fmt.Errorf("%s: %w: nothing is remembered there", req.directory, fs.ErrNotExist),
			"controllers write it when they run")
	}
	document := acknowledgedDocument{Schema: "fusionctl/controllers-acknowledge/v1", Stop: known.Stop}
	if known.Stop == nil {
		if printed, err := printDocument(streams.Out, req.output, document); printed {
			return err
		}
		_, err := visible.Fprintf(streams.Out, "nothing to acknowledge: the controllers of %s have not stopped\n",
			known.Pair)
		return err
	}
	visible.Fprintf(streams.Err, "the controllers of %s have deleted nothing since %s, because\n", known.Pair,
		known.Stop.Since.Format(time.RFC3339))
	for _, why := range known.Stop.Why {
		visible.Fprintf(streams.Err, "  %s\n", why)
	}
	visible.Fprintln(streams.Err, "When they resume, the stores are trusted as they are: objects whose owners are on "+
		"no side are deleted, pods among them.")
	if err := confirm(streams, req.yes, "Acknowledge?"); err != nil {
		return err
	}
	word := witness.Acknowledgement{Stop: known.Stop.ID, At: now.UTC(), By: whoami(), Why: req.why}
	if err := directory.Acknowledge(word); err != nil {
		return err
	}
	document.Word = &word
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	_, err = visible.Fprintln(streams.Out, "acknowledged: the controllers of this host resume within seconds")
	return err
}

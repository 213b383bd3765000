package cli

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func newTransitionRestoreCmd(streams Streams) *cobra.Command {
	var req transitionRequest
	var from string
	cmd := &cobra.Command{
		Use:   "restore SPEC --from DIR/NAME",
		Short: "Write the steps that put the managed stores back to a backup",
		Long: `restore computes the steps that put the managed stores of a running spec back to a backup of
"fusionctl etcd backup": everything that the spec runs stops, each member is put back to the snapshot of its store, and
everything starts. What was written since the backup is not in the stores after it. What the members had is kept beside
it, and undo puts it back.

--from is a path on the host of each member: copy the directory there before. Nothing is changed; --out writes the
steps for apply, which looks at the snapshots before anything stops.

Exit codes: 0 done, 2 bad usage, a bad spec, or stores that no steps put back.`,
		Example: `  fusionctl transition restore fused.yaml --from /var/backups/fused/20261124T013000Z --out back.steps
  fusionctl transition apply back.steps`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.from = args[0]
			return runTransitionRestore(req, from, time.Now(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "directory of the backup, on the host of each member")
	f.StringVar(&req.file, "out", "", "file to write the steps to; it may hold secrets")
	enumFlag(cmd, &req.fromTarget, "target", "", "what runs the components", string(render.StaticPod),
		string(render.Systemd))
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runTransitionRestore(req transitionRequest, from string, now time.Time, streams Streams) error {
	dir, name := path.Split(from)
	if dir = path.Clean(dir); !path.IsAbs(dir) || path.Join(dir, name) != from || !backup.IsName(name) {
		return usagef("--from %q: want the absolute path of a backup, as /var/backups/fused/20261124T013000Z", from)
	}
	s, err := loadSetup(streams, req.from, req.fromTarget, "")
	if err != nil {
		return err
	}
	if s.Plan == nil {
		return usagef("%s: want the spec that runs", noSpec)
	}
	t, err := transition.NewRestoreOnHosts(s, dir, name, transition.RestoreID(now))
	if _, refused := errors.AsType[*transition.RefusedError](err); refused {
		return badInput(err, "")
	}
	if err != nil {
		return fmt.Errorf("planning the restore: %w", err)
	}
	if req.file != "" {
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

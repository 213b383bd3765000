package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/objects"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

type etcdDiffRequest struct {
	file        string
	left, right string
	under       string
	output      string
	values      bool
	limit       int
	stores      storesRequest
}

// etcdDiffDocument is a comparison as JSON and YAML show it.
type etcdDiffDocument struct {
	Schema string `json:"schema"`
	Left   string `json:"left"`
	Right  string `json:"right"`
	*etcdsplit.DiffReport
}

func newEtcdDiffCmd(streams Streams) *cobra.Command {
	var req etcdDiffRequest
	cmd := &cobra.Command{
		Use:   "diff SPEC LEFT RIGHT",
		Short: "In which keys two stores differ, or a store and a snapshot",
		Long: `diff compares two stores key by key, by the bytes of the values. LEFT and RIGHT are stores of the spec, or files: a snapshot,
or a member's db file. Both are read whole; neither is held in memory.

In the table "-" is a key that only LEFT holds, "+" one that only RIGHT holds, "~" one whose values differ. With --values each "~"
is followed by what differs between the decoded values; what Secrets hold is never shown.

Exit codes: 0 the same, 1 a store could not be read, or --under names nothing; 2 bad usage or a bad spec, 3 they differ,
130 interrupted.`,
		Example: `  fusionctl etcd diff fused.yaml core modern --under pods
  fusionctl etcd diff fused.yaml core core-yesterday.db --under deployments/default --values`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.left, req.right = args[0], args[1], args[2]
			return runEtcdDiff(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.under, "under", "", "only this, and what is below it: a resource, its objects in a namespace, or one object")
	cmd.Flags().BoolVar(&req.values, "values", false, "show what differs between the values of a key")
	cmd.Flags().IntVar(&req.limit, "limit", 1000, "how many differences to name; all are counted")
	enumFlag(cmd, &req.output, "output", "o", "how to print", "table", "json", "yaml")
	return cmd
}

func runEtcdDiff(ctx context.Context, req etcdDiffRequest, streams Streams) error {
	if req.limit < 0 || req.limit > 1_000_000 {
		return usagef("--limit %d: want 0 to 1000000", req.limit)
	}
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	limitMemory(ctx)
	var both [2]openStore
	for i, name := range []string{req.left, req.right} {
		if both[i], err = openStoreOrFile(ctx, req.stores, p, name); err != nil {
			return err
		}
		defer both[i].close()
	}
	ownership := p.Ownership()
	report, err := diffStores(ctx, req, &ownership, both, streams)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return withHint(err, storeHint(err))
	}
	printed := etcdDiffDocument{"fusionctl/etcd-diff/v1", req.left, req.right, report}
	if err := printEtcdDiff(streams.Out, req.output, printed); err != nil {
		return err
	}
	if report.Differs() {
		return errAttention
	}
	return nil
}

// diffStores compares what --under most likely means, and the values if that is wanted.
func diffStores(ctx context.Context, req etcdDiffRequest, m *etcdsplit.Map, both [2]openStore, streams Streams) (*etcdsplit.DiffReport, error) {
	progress := newProgress(streams.Err)
	defer progress.done()
	left, right := progress.counted(both[0].Store), progress.counted(both[1].Store)
	paths, known := m.Paths(req.under)
	for _, path := range paths {
		report, err := etcdsplit.Diff(ctx, m, left, right, path, req.limit)
		if err != nil {
			return nil, err
		}
		if report.Same > 0 || report.Differs() {
			if req.values {
				err = etcdsplit.DiffValues(ctx, m, left, right, report, objects.DiffValues)
			}
			return report, err
		}
		if known { // there is such a resource, and neither store holds any of it
			return report, nil
		}
	}
	return nil, noSuchKey(paths[0], m)
}

// openStoreOrFile opens a store of the plan by its name, or a file.
func openStoreOrFile(ctx context.Context, r storesRequest, p *plan.Plan, name string) (openStore, error) {
	if p.Store(name) != nil {
		stores, err := openStores(ctx, r, p, name)
		if err != nil {
			return openStore{}, err
		}
		return stores[0], nil
	}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return openStore{}, badInput(fmt.Errorf("%q: neither a store of the spec nor a file", name), "the spec's stores are "+strings.Join(storeNames(p), ", "))
	}
	return r.openSnapshot(name, name)
}

func printEtcdDiff(w io.Writer, output string, document etcdDiffDocument) error {
	switch output {
	case "json":
		return printJSON(w, document)
	case "yaml":
		return printYAML(w, document)
	}
	signs := map[etcdsplit.DifferenceKind]string{etcdsplit.OnlyLeft: "-", etcdsplit.OnlyRight: "+", etcdsplit.Changed: "~"}
	for _, d := range document.Differences {
		fmt.Fprintf(w, "%s %s\n", signs[d.Kind], d.Key)
		for line := range strings.Lines(d.Values) {
			fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	named := int64(len(document.Differences))
	if all := document.OnlyLeft + document.OnlyRight + document.Changed; named < all {
		fmt.Fprintf(w, "... and %d more\n", all-named)
	}
	_, err := fmt.Fprintf(w, "%s at revision %d, %s at revision %d: %d the same, %d only in %s, %d only in %s, %d changed\n",
		document.Left, document.LeftRevision, document.Right, document.RightRevision, document.Same, document.OnlyLeft, document.Left,
		document.OnlyRight, document.Right, document.Changed)
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/diff"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
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

// etcdDiffHead stands before the differences in JSON and YAML.
type etcdDiffHead struct {
	Schema        string `json:"schema"`
	Left          string `json:"left"`
	Right         string `json:"right"`
	LeftRevision  int64  `json:"leftRevision"`
	RightRevision int64  `json:"rightRevision"`
	Same          int64  `json:"same"`
	OnlyLeft      int64  `json:"onlyLeft"`
	OnlyRight     int64  `json:"onlyRight"`
	Changed       int64  `json:"changed"`
}

func newEtcdDiffCmd(streams Streams) *cobra.Command {
	var req etcdDiffRequest
	cmd := &cobra.Command{
		Use:   "diff SPEC LEFT RIGHT",
		Short: "Compare two stores, or a store and a snapshot, key by key",
		Long: `diff compares two stores key by key, by the bytes of the values. LEFT and RIGHT are stores of the spec,
or files: a snapshot, or a member's db file. Both are read whole; neither is held in memory.

In the table "-" is a key that only LEFT holds, "+" one that only RIGHT holds, "~" one whose values differ. With
--values each "~" is followed by what differs between the decoded values; what Secrets hold is never shown.

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
	cmd.Flags().StringVar(&req.under, "under", "",
		"only this key or prefix: a resource, its objects in a namespace, or one object")
	cmd.Flags().BoolVar(&req.values, "values", false, "show the differences between the values of a key")
	cmd.Flags().IntVar(&req.limit, "limit", 1000, "how many differences to list; all are counted")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
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
	req.stores.warnOld(ctx, both[:]...)
	ownership := p.Ownership()
	d := diffing{req: req, ownership: &ownership, both: both, out: streams.Out}
	differs, err := d.run(ctx, streams)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return withHint(err, storeHint(err))
	case differs:
		return errAttention
	}
	return nil
}

// diffing is one comparison.
type diffing struct {
	req       etcdDiffRequest
	ownership *pair.Map
	both      [2]openStore
	out       io.Writer
}

// run compares what --under most likely means, and prints how it differs.
func (d *diffing) run(ctx context.Context, streams Streams) (differs bool, err error) {
	progress := newProgress(streams.Err)
	left, right := progress.counted(d.both[0].Store), progress.counted(d.both[1].Store)
	paths, known := etcd.Paths(d.ownership, d.req.under)
	var report *diff.Report
	for _, path := range paths {
		report, err = diff.Stores(ctx, d.ownership, left, right, path, d.req.limit)
		if err != nil || known || report.Same > 0 || report.Differs() {
			known = true // there is such a resource, or something under that name
			break
		}
	}
	progress.done()
	if err != nil {
		return false, err
	}
	if !known {
		return false, noSuchKey(paths[0], d.ownership)
	}
	return report.Differs(), d.print(ctx, report)
}

// print prints the differences one by one: their values may be large.
func (d *diffing) print(ctx context.Context, report *diff.Report) error {
	var compare func(path string, left, right []byte) string
	if d.req.values {
		compare = objects.DiffValues
	}
	each := func(visit func(diff.Difference) error) error {
		return diff.Each(ctx, d.ownership, d.both[0].Store, d.both[1].Store, report, compare, visit)
	}
	head := etcdDiffHead{"fusionctl/etcd-diff/v1", d.req.left, d.req.right, report.LeftRevision, report.RightRevision,
		report.Same, report.OnlyLeft, report.OnlyRight, report.Changed}
	switch d.req.output {
	case "json":
		rows := newJSONRows(d.out, head, "differences")
		printed := false
		err := each(func(difference diff.Difference) error {
			printed = true
			return rows.row(difference, nil, nil)
		})
		if err != nil {
			return abort(rows, printed, err)
		}
		return rows.close(nil)
	case "yaml":
		document := struct {
			etcdDiffHead
			Differences []diff.Difference `json:"differences"`
		}{head, []diff.Difference{}}
		if err := each(func(difference diff.Difference) error {
			document.Differences = append(document.Differences, difference)
			return nil
		}); err != nil {
			return err
		}
		return printYAML(d.out, document)
	}
	if err := each(d.printDifference); err != nil {
		return err
	}
	if more := report.OnlyLeft + report.OnlyRight + report.Changed - int64(len(report.Differences)); more > 0 {
		visible.Fprintf(d.out, "... and %d more\n", more)
	}
	_, err := visible.Fprintf(d.out, "%s at revision %d, %s at revision %d: %d the same, %d only in %s, %d only in "+
		"%s, %d changed\n",
		head.Left, head.LeftRevision, head.Right, head.RightRevision, head.Same, head.OnlyLeft, head.Left,
		head.OnlyRight, head.Right, head.Changed)
	return err
}

func (d *diffing) printDifference(difference diff.Difference) error {
	signs := map[diff.Kind]string{diff.OnlyLeft: "-", diff.OnlyRight: "+",
		diff.Changed: "~"}
	if _, err := visible.Fprintf(d.out, "%s %s\n", signs[difference.Kind], difference.Key); err != nil {
		return err
	}
	for line := range strings.Lines(difference.Values) {
		if _, err := visible.Fprintf(d.out, "    %s\n", strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
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
		return openStore{}, badInput(fmt.Errorf("%q: neither a store of the spec nor a file", name),
			"the spec's stores are "+strings.Join(storeNames(p), ", "))
	}
	return r.openSnapshot(name, name)
}

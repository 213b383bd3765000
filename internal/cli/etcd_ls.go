package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

type etcdLsRequest struct {
	file        string
	under       string
	output      string
	sort        string
	store       string
	byNamespace bool
	top         int
	stores      storesRequest
}

// etcdLsDocument is a listing as JSON and YAML show it.
type etcdLsDocument struct {
	Schema     string        `json:"schema"`
	Complete   bool          `json:"complete"`
	Incomplete []string      `json:"incomplete,omitempty"` // what could not be read
	Stores     []listedStore `json:"stores"`               // that were read
	Resources  []etcd.Listed `json:"resources"`
}

// listedStore sums up what was listed of a store.
type listedStore struct {
	Name     string `json:"name"`
	Revision int64  `json:"revision"`
	Keys     int64  `json:"keys"`
	Bytes    int64  `json:"bytes"`
}

func newEtcdLsCmd(streams Streams) *cobra.Command {
	var req etcdLsRequest
	cmd := &cobra.Command{
		Use:   "ls SPEC [RESOURCE[/NAMESPACE]]",
		Short: "Summarize the stores by resource: keys, sizes, the largest and the newest objects",
		Long: `ls summarizes the stores of a spec: for each resource the number of keys, the size of their values, the
largest object and the one written last. --by-namespace has a line per namespace, --top more of the largest and newest
objects.

RESOURCE is any of its names (pods, po, deployments.apps, notebooks.kubeflow.org), or a path or key in the store:
services/specs, kubeflow.org, /registry/minions. Values are read for their size only; their contents are not printed.

Exit codes: 0 listed, 1 a store could not be read, or has no such key; 2 bad usage or a bad spec, 130 interrupted.`,
		Example: `  fusionctl etcd ls fused.yaml --sort bytes
  fusionctl etcd ls fused.yaml pods --by-namespace --top 3
  fusionctl etcd ls fused.yaml secrets/kube-system --store core --snapshot core=core.db`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			if len(args) == 2 {
				req.under = args[1]
			}
			return runEtcdLs(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.store, "store", "", "only this store")
	cmd.Flags().BoolVar(&req.byNamespace, "by-namespace", false, "a line for each namespace of each resource")
	cmd.Flags().IntVar(&req.top, "top", 1, "how many of the largest and of the newest objects to name")
	enumFlag(cmd, &req.sort, "sort", "", "sort order of the lines of a store", "name", "bytes", "keys")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runEtcdLs(ctx context.Context, req etcdLsRequest, streams Streams) error {
	if req.top < 0 || req.top > 1000 {
		return usagef("--top %d: want 0 to 1000", req.top)
	}
	p, stores, err := openSpecStores(ctx, req.file, req.store, req.stores, streams)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	ownership := p.Ownership()
	document := etcdLsDocument{Schema: "fusionctl/etcd-ls/v1", Stores: []listedStore{}, Resources: []etcd.Listed{}}
	paths, known := etcd.Paths(&ownership, req.under)
	progress := newProgress(streams.Err)
	var failed error
	for _, path := range paths {
		options := etcd.ListOptions{Under: path, ByNamespace: req.byNamespace, NumberOfKeys: req.top}
		failed = document.list(ctx, &ownership, stores, options, progress)
		if failed != nil || len(document.Resources) > 0 {
			break
		}
	}
	progress.done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed == nil && len(document.Resources) == 0 && !known {
		return noSuchKey(paths[0], &ownership)
	}
	document.sort(req.sort)
	if err := printEtcdLs(streams.Out, req.output, document); err != nil {
		return err
	}
	return withHint(failed, storeHint(failed))
}

// list adds what the stores hold. A store that cannot be read does not keep the others from being listed.
func (d *etcdLsDocument) list(ctx context.Context, m *pair.Map, stores []openStore, options etcd.ListOptions,
	p *progress) error {
	d.Stores, d.Resources, d.Incomplete = d.Stores[:0], d.Resources[:0], nil
	var failed []error
	for _, s := range stores {
		lines, revision, err := etcd.List(ctx, m, p.counted(s.Store), options)
		if err != nil {
			failed = append(failed, err)
			d.Incomplete = append(d.Incomplete, err.Error())
			continue
		}
		total := listedStore{Name: s.Name, Revision: revision}
		for _, l := range lines {
			total.Keys += l.Keys
			total.Bytes += l.Bytes
		}
		d.Stores = append(d.Stores, total)
		d.Resources = append(d.Resources, lines...)
	}
	d.Complete = len(failed) == 0
	return errors.Join(failed...)
}

func (d *etcdLsDocument) sort(by string) {
	place := map[string]int{}
	for i, s := range d.Stores {
		place[s.Name] = i
	}
	slices.SortStableFunc(d.Resources, func(a, b etcd.Listed) int {
		order := cmp.Compare(place[a.Store], place[b.Store])
		switch by {
		case "bytes":
			return cmp.Or(order, -cmp.Compare(a.Bytes, b.Bytes))
		case "keys":
			return cmp.Or(order, -cmp.Compare(a.Keys, b.Keys))
		}
		return order
	})
}

func printEtcdLs(w io.Writer, output string, document etcdLsDocument) error {
	if printed, err := printDocument(w, output, document); printed {
		return err
	}
	err := printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "RESOURCE\tNAMESPACE\tSTORE\tOWNER\tKEYS\tBYTES\tLARGEST\tNEWEST")
		for _, l := range document.Resources {
			visible.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.Resource, dash(l.Namespace), l.Store,
				dash(string(l.Owner)), l.Keys, l.Bytes,
				dash(keyAt(l.Largest, 0, l.Resource)), dash(keyAt(l.Newest, 0, l.Resource)))
			for i := 1; i < max(len(l.Largest), len(l.Newest)); i++ {
				visible.Fprintf(t, "\t\t\t\t\t\t%s\t%s\n", keyAt(l.Largest, i, l.Resource),
					keyAt(l.Newest, i, l.Resource))
			}
		}
	})
	visible.Fprintln(w)
	for _, s := range document.Stores {
		visible.Fprintf(w, "%s at revision %d: %d keys, %d bytes\n", s.Name, s.Revision, s.Keys, s.Bytes)
	}
	return err
}

// keyAt is "default/web (1234 B, rev 56)" for the i-th key, "" when there are fewer.
func keyAt(keys []etcd.ListedKey, i int, resource string) string {
	if i >= len(keys) {
		return ""
	}
	return fmt.Sprintf("%s (%d B, rev %d)", strings.TrimPrefix(keys[i].Key, resource+"/"), keys[i].Bytes,
		keys[i].ModRevision)
}

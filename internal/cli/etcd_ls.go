package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd"
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
	Schema     string   `json:"schema"`
	Complete   bool     `json:"complete"`
	Incomplete []string `json:"incomplete,omitempty"` // what could not be read
	etcd.Listing
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
	progress := newProgress(streams.Err)
	read := storesIn(stores)
	for i := range read {
		read[i] = progress.counted(read[i])
	}
	listing, unread := etcd.ListAll(ctx, &ownership, read, req.under,
		etcd.ListOptions{ByNamespace: req.byNamespace, NumberOfKeys: req.top})
	progress.done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	paths, known := etcd.Paths(&ownership, req.under)
	if len(unread) == 0 && len(listing.Resources) == 0 && !known {
		return noSuchKey(paths[0], &ownership)
	}
	listing.Sort(req.sort)
	document := etcdLsDocument{Schema: "fusionctl/etcd-ls/v1", Complete: len(unread) == 0, Listing: listing}
	for _, err := range unread {
		document.Incomplete = append(document.Incomplete, err.Error())
	}
	failed := errors.Join(unread...)
	if err := printEtcdLs(streams.Out, req.output, document); err != nil {
		return err
	}
	return withHint(failed, storeHint(failed))
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

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/objects"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

type etcdLsRequest struct {
	file        string
	under       string
	output      string
	store       string
	byNamespace bool
	top         int
	stores      storesRequest
}

func newEtcdLsCmd(streams Streams) *cobra.Command {
	var req etcdLsRequest
	cmd := &cobra.Command{
		Use:   "ls SPEC [RESOURCE[/NAMESPACE]]",
		Short: "What the stores hold, by resource: keys, sizes, the largest and the newest objects",
		Long: `ls sums up what the stores of a spec hold: for each resource the number of keys, the size of their values, the largest object
and the one written last. --by-namespace has a line per namespace, --top more of the largest and newest objects.

RESOURCE is its part of the key, as check prints it: pods, services/specs, kubeflow.org/notebooks.

Exit codes: 0 listed, 1 a store could not be read, 2 bad usage or a bad spec, 130 interrupted.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			if len(args) == 2 {
				req.under = strings.Trim(args[1], "/") + "/"
			}
			return runEtcdLs(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.store, "store", "", "only this store")
	cmd.Flags().BoolVar(&req.byNamespace, "by-namespace", false, "a line for each namespace of each resource")
	cmd.Flags().IntVar(&req.top, "top", 1, "how many of the largest and of the newest objects to name")
	enumFlag(cmd, &req.output, "output", "o", "how to print", "table", "json", "yaml")
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
	lines := []etcdsplit.Listed{}
	for _, s := range stores {
		listed, err := etcdsplit.List(ctx, &ownership, s.Store, etcdsplit.ListOptions{Under: req.under, ByNamespace: req.byNamespace, NumberOfKeys: req.top})
		if err != nil {
			return withHint(err, storeHint(err))
		}
		lines = append(lines, listed...)
	}
	document := struct {
		Schema    string             `json:"schema"`
		Resources []etcdsplit.Listed `json:"resources"`
	}{"fusionctl/etcd-ls/v1", lines}
	switch req.output {
	case "json":
		return printJSON(streams.Out, document)
	case "yaml":
		return printYAML(streams.Out, document)
	}
	return printEtcdLs(streams.Out, lines)
}

func printEtcdLs(w io.Writer, lines []etcdsplit.Listed) error {
	return printTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "RESOURCE\tNAMESPACE\tSTORE\tOWNER\tKEYS\tBYTES\tLARGEST\tNEWEST")
		for _, l := range lines {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.Resource, dash(l.Namespace), l.Store, dash(string(l.Owner)), l.Keys, l.Bytes,
				dash(keyAt(l.Largest, 0, l.Resource)), dash(keyAt(l.Newest, 0, l.Resource)))
			for i := 1; i < max(len(l.Largest), len(l.Newest)); i++ {
				fmt.Fprintf(t, "\t\t\t\t\t\t%s\t%s\n", keyAt(l.Largest, i, l.Resource), keyAt(l.Newest, i, l.Resource))
			}
		}
	})
}

// keyAt is "default/web (1234 B, rev 56)" for the i-th key, "" when there are fewer.
func keyAt(keys []etcdsplit.ListedKey, i int, resource string) string {
	if i >= len(keys) {
		return ""
	}
	return fmt.Sprintf("%s (%d B, rev %d)", strings.TrimPrefix(keys[i].Key, resource+"/"), keys[i].Bytes, keys[i].ModRevision)
}

// openSpecStores plans a spec and opens its stores, or the one named.
func openSpecStores(ctx context.Context, file, only string, request storesRequest, streams Streams) (*plan.Plan, []openStore, error) {
	p, err := loadPlan(streams, file)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	if only != "" {
		if p.Store(only) == nil {
			return nil, nil, badInput(fmt.Errorf("the spec has no store %q", only), "its stores are "+strings.Join(storeNames(p), ", "))
		}
		names = []string{only}
	}
	limitMemory(ctx)
	stores, err := openStores(ctx, request, p, names...)
	return p, stores, err
}

type etcdGetRequest struct {
	file   string
	key    string
	output string
	store  string
	stores storesRequest
}

// storedObject is one object as get prints it.
type storedObject struct {
	Store          string         `json:"store"`
	Key            string         `json:"key"`
	CreateRevision int64          `json:"createRevision"`
	ModRevision    int64          `json:"modRevision"`
	Version        int64          `json:"version"`
	Bytes          int            `json:"bytes"`
	Encoding       string         `json:"encoding"`
	Object         map[string]any `json:"object"`
}

func newEtcdGetCmd(streams Streams) *cobra.Command {
	var req etcdGetRequest
	cmd := &cobra.Command{
		Use:   "get SPEC KEY",
		Short: "One object as it is stored, decoded in the version in which it is stored",
		Long: `get looks for a key in the stores of a spec and prints what is stored there: not converted, in the version in which it was
written. KEY is a whole key or its part below the prefix: pods/default/web. A key that several stores hold is printed from each.

The contents of Secrets are printed as they are.

Exit codes: 0 printed, 1 no store holds the key, or it could not be read or decoded, 2 bad usage or a bad spec.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.key = args[0], args[1]
			return runEtcdGet(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.store, "store", "", "only this store")
	enumFlag(cmd, &req.output, "output", "o", "how to print; raw prints the bytes of the value", "yaml", "json", "raw")
	return cmd
}

func runEtcdGet(ctx context.Context, req etcdGetRequest, streams Streams) error {
	p, stores, err := openSpecStores(ctx, req.file, req.store, req.stores, streams)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	key := req.key
	if !strings.HasPrefix(key, etcdsplit.NormalPrefix(p.Prefix)+"/") && key != "compact_rev_key" {
		key = etcdsplit.NormalPrefix(p.Prefix) + "/" + strings.TrimPrefix(key, "/")
	}
	objects := []storedObject{}
	for _, s := range stores {
		entry, err := etcdsplit.Get(ctx, s.Store, key)
		if err != nil {
			return withHint(err, storeHint(err))
		}
		if entry == nil {
			continue
		}
		if req.output == "raw" {
			_, err := streams.Out.Write(entry.Value)
			return err
		}
		object, err := decodeEntry(s.Name, entry)
		if err != nil {
			return withHint(err, "-o raw prints the bytes of the value")
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return withHint(fmt.Errorf("no store holds %s", etcdsplit.Printable(key)), "fusionctl etcd ls shows which resources there are")
	}
	if req.output == "json" {
		return printJSON(streams.Out, struct {
			Schema  string         `json:"schema"`
			Objects []storedObject `json:"objects"`
		}{"fusionctl/etcd-get/v1", objects})
	}
	return printStoredObjects(streams.Out, objects)
}

func decodeEntry(store string, entry *etcdsplit.Entry) (storedObject, error) {
	object, err := objects.Decode(entry.Value)
	if err != nil {
		return storedObject{}, fmt.Errorf("store %s: %s: %w", store, etcdsplit.Printable(string(entry.Key)), err)
	}
	envelope, err := etcdsplit.ReadEnvelope(entry.Value)
	return storedObject{
		Store: store, Key: etcdsplit.Printable(string(entry.Key)), CreateRevision: entry.CreateRevision, ModRevision: entry.ModRevision, Version: entry.Version,
		Bytes: len(entry.Value), Encoding: string(envelope.Encoding), Object: object,
	}, err
}

// printStoredObjects prints YAML documents; where they come from stands in a comment before each.
func printStoredObjects(w io.Writer, objects []storedObject) error {
	for i, o := range objects {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintf(w, "# store %s, %s, created at revision %d, written %d times, last at revision %d, %d bytes of %s\n",
			o.Store, o.Key, o.CreateRevision, o.Version, o.ModRevision, o.Bytes, o.Encoding)
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

type etcdDiffRequest struct {
	file        string
	left, right string
	under       string
	output      string
	limit       int
	stores      storesRequest
}

func newEtcdDiffCmd(streams Streams) *cobra.Command {
	var req etcdDiffRequest
	cmd := &cobra.Command{
		Use:   "diff SPEC LEFT RIGHT",
		Short: "In which keys two stores differ, or a store and a snapshot",
		Long: `diff compares two stores key by key, by the bytes of the values. LEFT and RIGHT are stores of the spec, or files: a snapshot,
or a member's db file. Both are read whole; neither is held in memory.

In the table "-" is a key that only LEFT holds, "+" one that only RIGHT holds, "~" one whose values differ.

Exit codes: 0 the same, 1 a store could not be read, 2 bad usage or a bad spec, 3 they differ, 130 interrupted.`,
		Example: `  fusionctl etcd diff fused.yaml core modern --under pods/
  fusionctl etcd diff fused.yaml core core-yesterday.db`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.left, req.right = args[0], args[1], args[2]
			return runEtcdDiff(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.under, "under", "", "only keys below the prefix that start so: pods/, services/specs/default/")
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
	report, err := etcdsplit.Diff(ctx, &ownership, both[0].Store, both[1].Store, req.under, req.limit)
	if err != nil {
		return withHint(err, storeHint(err))
	}
	if err := printEtcdDiff(streams.Out, req, report); err != nil {
		return err
	}
	if report.Differs() {
		return errAttention
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
		return openStore{}, badInput(fmt.Errorf("%q: neither a store of the spec nor a file", name), "the spec's stores are "+strings.Join(storeNames(p), ", "))
	}
	return openSnapshot(name, name)
}

func printEtcdDiff(w io.Writer, req etcdDiffRequest, report *etcdsplit.DiffReport) error {
	document := struct {
		Schema string `json:"schema"`
		Left   string `json:"left"`
		Right  string `json:"right"`
		*etcdsplit.DiffReport
	}{"fusionctl/etcd-diff/v1", req.left, req.right, report}
	switch req.output {
	case "json":
		return printJSON(w, document)
	case "yaml":
		return printYAML(w, document)
	}
	signs := map[etcdsplit.DifferenceKind]string{etcdsplit.OnlyLeft: "-", etcdsplit.OnlyRight: "+", etcdsplit.Changed: "~"}
	for _, d := range report.Differences {
		fmt.Fprintf(w, "%s %s\n", signs[d.Kind], d.Key)
	}
	named := int64(len(report.Differences))
	if all := report.OnlyLeft + report.OnlyRight + report.Changed; named < all {
		fmt.Fprintf(w, "... and %d more\n", all-named)
	}
	_, err := fmt.Fprintf(w, "%s at revision %d, %s at revision %d: %d the same, %d only in %s, %d only in %s, %d changed\n",
		req.left, report.LeftRevision, req.right, report.RightRevision, report.Same, report.OnlyLeft, req.left, report.OnlyRight, req.right, report.Changed)
	return err
}

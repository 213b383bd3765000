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
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

type etcdGetRequest struct {
	file    string
	key     string
	output  string
	store   string
	managed bool
	stores  storesRequest
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
		Short: "Print an object as it is stored, decoded in its stored version",
		Long: `get looks for a key in the stores of a spec and prints the stored value: not converted, in the version in
which it was written. KEY is a whole key, its part below the prefix, or a resource by any of its names with the
namespace and the name: /registry/minions/n1, pods/default/web, deploy/default/web, notebooks.kubeflow.org/team/a. A key
in several stores is printed from each.

Fields that the object's type does not have (of another version or of another vendor) are printed by their numbers.

The contents of Secrets are printed. An encrypted value is printed by no format but raw: fusionctl has no keys.

Exit codes: 0 printed, 1 no store holds the key, or a store or the value could not be read, 2 bad usage or a bad spec,
130 interrupted.`,
		Example: `  fusionctl etcd get fused.yaml pods/default/web
  fusionctl etcd get fused.yaml ranges/serviceips --store core --snapshot core=core.db -o raw | auger decode`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.key = args[0], args[1]
			return runEtcdGet(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	cmd.Flags().StringVar(&req.store, "store", "", "only this store")
	cmd.Flags().BoolVar(&req.managed, "show-managed-fields", false, "print metadata.managedFields too")
	enumFlag(cmd, &req.output, "output", "o", "output format; raw prints the bytes of the value", "yaml", "json", "raw")
	return cmd
}

func runEtcdGet(ctx context.Context, req etcdGetRequest, streams Streams) error {
	p, stores, err := openSpecStores(ctx, req.file, req.store, req.stores, streams)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	ownership := p.Ownership()
	found, failed := etcd.Find(ctx, &ownership, storesIn(stores), req.key)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(found) == 0 && failed != nil:
		return withHint(failed, storeHint(failed))
	case len(found) == 0:
		return noStoreHolds(&ownership, req.key)
	case req.output == "raw":
		return errors.Join(printRaw(streams.Out, found), withHint(failed, storeHint(failed)))
	}
	return printDecoded(streams.Out, req, found, failed)
}

func noStoreHolds(m *pair.Map, typed string) error {
	hint := "fusionctl etcd ls SPEC lists the keys"
	paths, known := etcd.Paths(m, typed)
	if known && strings.Count(paths[0], "/") < 2 {
		hint = "want RESOURCE/NAMESPACE/NAME, or RESOURCE/NAME for cluster-scoped resources; fusionctl etcd ls SPEC " +
			"RESOURCE --top 10 names some"
	}
	key := storage.NormalPrefix(m.Prefix) + "/" + paths[0]
	if typed == "compact_rev_key" {
		key = typed
	}
	return withHint(fmt.Errorf("no store holds %s", storage.Printable(key)), hint)
}

// printRaw prints the bytes of a value, of which there may be one, and which may do anything to a terminal.
func printRaw(w io.Writer, found []etcd.Found) error {
	if len(found) > 1 {
		var names []string
		for _, f := range found {
			names = append(names, f.Store)
		}
		return badInput(fmt.Errorf("several stores hold %s: %s", storage.Printable(string(found[0].Key)),
			strings.Join(names, ", ")), "--store chooses one for -o raw")
	}
	value := found[0].Value
	if isTerminal(w) && storage.Printable(strings.NewReplacer("\n", "", "\t", "").Replace(string(value))) != string(
		value) {
		return badInput(errors.New("-o raw: the value is not text, and standard output is a terminal"),
			"redirect it to a file, or pipe it")
	}
	_, err := asData(w).Write(value)
	return err
}

// printDecoded prints what can be decoded, and returns what could not be read or decoded.
func printDecoded(w io.Writer, req etcdGetRequest, found []etcd.Found, failed error) error {
	printed := []storedObject{}
	hint := storeHint(failed)
	for _, f := range found {
		object, err := decodeEntry(f.Store, f.Entry, req.managed)
		if err != nil {
			failed = errors.Join(failed, err)
			hint = "-o raw prints the bytes of the value"
			continue
		}
		printed = append(printed, object)
	}
	if len(printed) == 0 {
		return withHint(failed, hint)
	}
	var err error
	if req.output == "json" {
		err = printJSON(w, struct {
			Schema  string         `json:"schema"`
			Objects []storedObject `json:"objects"`
		}{"fusionctl/etcd-get/v1", printed})
	} else {
		err = printStoredObjects(w, printed)
	}
	return withHint(errors.Join(failed, err), hint)
}

func decodeEntry(store string, entry *etcd.Entry, managed bool) (storedObject, error) {
	object, err := objects.Decode(entry.Value)
	if err != nil {
		return storedObject{}, fmt.Errorf("store %s: %s: %w", store, storage.Printable(string(entry.Key)), err)
	}
	if !managed {
		objects.DropManagedFields(object)
	}
	envelope, err := storage.ReadEnvelope(entry.Value)
	return storedObject{
		Store: store, Key: storage.Printable(string(entry.Key)), CreateRevision: entry.CreateRevision,
		ModRevision: entry.ModRevision, Version: entry.Version,
		Bytes: len(entry.Value), Encoding: string(envelope.Encoding), Object: object,
	}, err
}

// printStoredObjects prints YAML documents; where they come from stands in a comment before each.
func printStoredObjects(w io.Writer, stored []storedObject) error {
	for i, o := range stored {
		if i > 0 {
			visible.Fprintln(w, "---")
		}
		visible.Fprintf(w, "# store %s, %s, created at revision %d, written %s, last at revision %d, %d bytes of %s\n",
			o.Store, o.Key, o.CreateRevision, times(o.Version), o.ModRevision, o.Bytes, o.Encoding)
		if objects.Nameless(o.Object) {
			visible.Fprintln(w, "# fields such as \"#99\" are field numbers: of another version or a vendor, whose "+
				"names are not in the value")
		}
		if err := printYAML(w, o.Object); err != nil {
			return err
		}
	}
	return nil
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

func TestSnapshotFlagNamesAFilePerStore(t *testing.T) {
	p := &plan.Plan{Stores: []plan.Store{{Name: "core"}, {Name: "modern"}}}
	for _, test := range []struct {
		flags []string
		want  string // files, or a part of the error
	}{
		{[]string{"core=a.db", "modern=b.db"}, "map[core:a.db modern:b.db]"},
		{[]string{"core=a.db,modern=b.db"}, "map[core:a.db modern:b.db]"},
		{[]string{"core=a,b.db,modern=c=d.db"}, "map[core:a,b.db modern:c=d.db]"},
		{[]string{"core=a,other=b.db"}, "map[core:a,other=b.db]"},
		{[]string{"core=a,"}, "map[core:a,]"},
		{nil, "map[]"},
		{[]string{"core=a", "core=b"}, `two files for store core: "a" and "b"`},
		{[]string{"core=a,core=b"}, `two files for store core: "a" and "b"`},
		{[]string{"core="}, "want STORE=FILE"},
		{[]string{"core=,modern=b"}, "want STORE=FILE"},
		{[]string{"=a"}, "want STORE=FILE"},
		{[]string{"a.db"}, "want STORE=FILE"},
		{[]string{"other=a.db"}, `the spec has no store "other"`},
	} {
		files, err := (&storesRequest{snapshots: test.flags}).files(p)
		if got := fmt.Sprint(files); err == nil && got != test.want {
			t.Errorf("--snapshot %q: %s, want %s", test.flags, got, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("--snapshot %q: %v, want %s", test.flags, err, test.want)
		}
	}
}

func FuzzStoresFlags(f *testing.F) {
	for _, value := range []string{"core=a.db,modern=b.db", "core=https://10.0.0.11:2379,https://10.0.0.12:2379",
		"core=", "=", ",", "core=a,b,core=c", "core=http://h/?a=b"} {
		f.Add(value)
	}
	p := &plan.Plan{Stores: []plan.Store{{Name: "core"}, {Name: "modern"}}}
	f.Fuzz(func(t *testing.T, value string) {
		files, err := (&storesRequest{snapshots: []string{value}}).files(p)
		for store, file := range files {
			if err == nil && (p.Store(store) == nil || file == "" || !strings.Contains(value, store+"="+file)) {
				t.Errorf("--snapshot %q names %q for store %q", value, file, store)
			}
		}
		urls, err := (&storesRequest{endpoints: []string{value}}).urls(p)
		for store, list := range urls {
			for _, url := range list {
				if err == nil && (p.Store(store) == nil || url == "" || !strings.Contains(value, url)) {
					t.Errorf("--endpoints %q names %q for store %q", value, url, store)
				}
			}
		}
	})
}

// TestEtcdVerbsExplainThemselves: each says what it does, how it is used, and which exit codes it has.
func TestEtcdVerbsExplainThemselves(t *testing.T) {
	verbs := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			visit(child)
		}
		if cmd.HasSubCommands() {
			return
		}
		verbs++
		if !strings.Contains(cmd.Example, cmd.CommandPath()+" ") {
			t.Errorf("%s has no example of itself: %q", cmd.CommandPath(), cmd.Example)
		}
		long := strings.Join(strings.Fields(cmd.Long), " ")
		if !strings.Contains(long, "Exit codes:") || !strings.Contains(long, "130 interrupted") {
			t.Errorf("%s does not say its exit codes", cmd.CommandPath())
		}
	}
	root := newRootCmd(Streams{})
	etcd, _, err := root.Find([]string{"etcd"})
	if err != nil {
		t.Fatal(err)
	}
	visit(etcd)
	if verbs < 8 {
		t.Errorf("%d verbs of etcd, want check, ls, get, diff, watch and those of move", verbs)
	}
}

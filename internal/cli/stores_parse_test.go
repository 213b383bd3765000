package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSnapshotFlagNamesAFilePerStore(t *testing.T) {
	stores := []string{"core", "modern"}
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
		files, err := parseStoreFiles(test.flags, stores)
		if got := fmt.Sprint(files); err == nil && got != test.want {
			t.Errorf("--snapshot %q: %s, want %s", test.flags, got, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("--snapshot %q: %v, want %s", test.flags, err, test.want)
		}
	}
}

func TestEndpointsFlagNamesURLsPerStore(t *testing.T) {
	stores := []string{"core", "modern"}
	for _, test := range []struct {
		flags []string
		want  string // URLs, or a part of the error
	}{
		{[]string{"core=https://a:2379"}, "map[core:[https://a:2379]]"},
		{[]string{"core=https://a,https://b,modern=c:1,d:2"}, "map[core:[https://a https://b] modern:[c:1 d:2]]"},
		{[]string{"core=a:1", "modern=b:2", "core=c:3"}, "map[core:[a:1 c:3] modern:[b:2]]"},
		{[]string{"core=http://h/?a=b"}, "map[core:[http://h/?a=b]]"},
		{[]string{"core=a:1,http://h/?a=b"}, "map[core:[a:1 http://h/?a=b]]"},
		{nil, "map[]"},
		{[]string{"https://a:2379"}, "want STORE=URL[,URL...]"},
		{[]string{"core="}, "want STORE=URL[,URL...]"},
		{[]string{"core=a:1,"}, "want STORE=URL[,URL...]"},
		{[]string{"=a:1"}, "want STORE=URL[,URL...]"},
		{[]string{"other=a:1"}, `the spec has no store "other"`},
		{[]string{"core=https://root:hunter2@a:1,"}, `"core=https://...@a:1,": want STORE=URL[,URL...]`},
		{[]string{"other=root:hunter2@a:1"}, `"...@a:1": the spec has no store "other"`},
	} {
		urls, err := parseStoreURLs(test.flags, stores)
		if got := fmt.Sprint(urls); err == nil && got != test.want {
			t.Errorf("--endpoints %q: %s, want %s", test.flags, got, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("--endpoints %q: %v, want %s", test.flags, err, test.want)
		}
	}
}

func FuzzStoresFlags(f *testing.F) {
	for _, value := range []string{"core=a.db,modern=b.db", "core=https://10.0.0.11:2379,https://10.0.0.12:2379",
		"core=", "=", ",", "core=a,b,core=c", "core=http://h/?a=b"} {
		f.Add(value)
	}
	stores := []string{"core", "modern"}
	f.Fuzz(func(t *testing.T, value string) {
		files, err := parseStoreFiles([]string{value}, stores)
		for store, file := range files {
			named := slices.Contains(stores, store) && strings.Contains(value, store+"="+file)
			if err == nil && (!named || file == "") {
				t.Errorf("--snapshot %q names %q for store %q", value, file, store)
			}
		}
		urls, err := parseStoreURLs([]string{value}, stores)
		for store, list := range urls {
			for _, url := range list {
				if err == nil && (!slices.Contains(stores, store) || url == "" || !strings.Contains(value, url)) {
					t.Errorf("--endpoints %q names %q for store %q", value, url, store)
				}
			}
		}
	})
}

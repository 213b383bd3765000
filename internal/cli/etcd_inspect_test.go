package cli_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/internal/golden"
)

func TestEtcdInspectsStoresWrittenByRealServers(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
	}{
		"ls":            {[]string{"ls", splitSpec}, 0},
		"ls-namespaces": {[]string{"ls", splitSpec, "pods", "--by-namespace", "--top", "2", "-o", "json"}, 0},
		"get":           {[]string{"get", splitSpec, "/registry/deployments/default/d-legacy"}, 0},
		"get-both":      {[]string{"get", splitSpec, "apiregistration.k8s.io/apiservices/v1.apps", "-o", "json"}, 0},
		"diff":          {[]string{"diff", splitSpec, "core", "modern", "--under", "deployments/"}, 3},
		"diff-file":     {[]string{"diff", splitSpec, "core", stores + "split-1.10-1.36-core.db", "-o", "json"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, slices.Concat([]string{"etcd"}, test.args, fromFiles)...)
			if code != test.code || stderr != "" {
				t.Errorf("exit code %d, stderr %q; want %d and nothing", code, stderr, test.code)
			}
			golden.File(t, "testdata/etcd-"+name+".txt", []byte(stdout))
		})
	}
}

func TestEtcdInspectRefusesBadInput(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no such key": {[]string{"get", splitSpec, "pods/default/nobody"}, 1,
			"no store holds /registry/pods/default/nobody"},
		"no such store": {[]string{"ls", splitSpec, "--store", "extra"}, 2, `the spec has no store "extra"`},
		"no such side": {[]string{"diff", splitSpec, "core", "extra"}, 2,
			`"extra": neither a store of the spec nor a file`},
		"no db file": {[]string{"diff", splitSpec, "core", stores + "README.md"}, 1, "not a readable etcd db file"},
		"top":        {[]string{"ls", splitSpec, "--top", "-1"}, 2, "--top -1: want 0 to 1000"},
		"limit":      {[]string{"diff", splitSpec, "core", "modern", "--limit", "-1"}, 2, "--limit -1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, slices.Concat([]string{"etcd"}, test.args, fromFiles)...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, test.code, test.says)
			}
		})
	}
}

// TestEtcdPrintsNoRawBytes: a store may hold any bytes as keys. None of them reaches a terminal, and JSON stays JSON.
func TestEtcdPrintsNoRawBytes(t *testing.T) {
	servers := liveStores(t)
	servers["core"].Put(t, map[string][]byte{
		"/registry/pods/default/\x1b[31mred\x07": []byte("k8s\x00\x1b]0;title"),
		"/registry/pods/default/\xff\xfe":        []byte("x"),
		"/registry/wid\ngets/default/w":          []byte(`{"apiVersion":"v1\x1b","kind":"W"}`),
		"/registry/\x80/a/b":                     []byte("\x1b"), "\x1boutside": []byte("x"),
		"/registry/pods/go\x1bne/web": []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`),
	})
	for name, args := range map[string][]string{
		"check": {"check", splitSpec}, "ls": {"ls", splitSpec, "--by-namespace", "--top", "5"},
		"diff": {"diff", splitSpec, "core", "modern"},
		"get":  {"get", splitSpec, "pods/default/\x1b[31mred\x07"},
	} {
		for _, output := range []string{"table", "json", "yaml"} {
			if name == "get" {
				output = map[string]string{"table": "yaml", "json": "json", "yaml": "yaml"}[output]
			} else if name == "diff" && output == "yaml" {
				continue // as JSON
			}
			_, stdout, stderr := run(
				t, slices.Concat([]string{"etcd"}, args, []string{"-o", output}, endpoints(servers))...)
			if text := stdout + stderr; !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
				return r != '\n' && !strconv.IsPrint(r)
			}) {
				t.Errorf("%s -o %s prints bytes that are no text: %q", name, output, text)
			}
			if output == "json" && name != "get" &&
				(!json.Valid([]byte(stdout)) || !strings.Contains(stdout, `x1b[31mred`)) {
				t.Errorf("%s -o json is no JSON, or does not name the key:\n%s", name, stdout)
			}
			if output == "table" && !strings.Contains(stdout, `"pods/default/\x1b[31mred\a"`) && name != "ls" &&
				name != "get" {
				t.Errorf("%s does not name the key:\n%s", name, stdout)
			}
		}
	}
}

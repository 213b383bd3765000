package cli_test

import (
	"slices"
	"strings"
	"testing"

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
		"no such key":   {[]string{"get", splitSpec, "pods/default/nobody"}, 1, "no store holds /registry/pods/default/nobody"},
		"no such store": {[]string{"ls", splitSpec, "--store", "extra"}, 2, `the spec has no store "extra"`},
		"no such side":  {[]string{"diff", splitSpec, "core", "extra"}, 2, `"extra": neither a store of the spec nor a file`},
		"no db file":    {[]string{"diff", splitSpec, "core", stores + "README.md"}, 1, "not a readable etcd db file"},
		"top":           {[]string{"ls", splitSpec, "--top", "-1"}, 2, "--top -1: want 0 to 1000"},
		"limit":         {[]string{"diff", splitSpec, "core", "modern", "--limit", "-1"}, 2, "--limit -1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, slices.Concat([]string{"etcd"}, test.args, fromFiles)...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, test.code, test.says)
			}
		})
	}
}

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
)

const (
	splitSpec = "testdata/split-1.10-1.36.yaml"
	stores    = "../../pkg/etcd/snapshot/testdata/"
)

// fromFiles are the arguments that read both stores of splitSpec from what real servers wrote.
var fromFiles = []string{"--snapshot", "core=" + stores + "split-1.10-1.36-core.db", "--snapshot",
	"modern=" + stores + "split-1.10-1.36-modern.db"}

// run runs the command line and returns its exit code and outputs.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

func TestEtcdCheckOfStoresWrittenByRealServers(t *testing.T) {
	code, stdout, stderr := run(t, slices.Concat([]string{"etcd", "check", splitSpec}, fromFiles)...)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 0 and nothing", code, stderr)
	}
	golden.File(t, "testdata/etcd-check.txt", []byte(stdout))
}

func TestEtcdCheckOfFieldsThatTheLegacySideDrops(t *testing.T) {
	code, stdout,
		stderr := run(t,
		slices.Concat([]string{"etcd", "check", splitSpec, "--depth", "objects", "--fail-on", "warning"}, fromFiles)...)
	if code != 3 || stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 3 and nothing", code, stderr)
	}
	golden.File(t, "testdata/etcd-check-objects.txt", []byte(stdout))
}

type checkDocument struct {
	Schema   string
	Complete bool
	Findings []struct{ Rule, Severity, Subject, Message string }
	Summary  struct{ Errors, Warnings, Infos, Keys, Bytes int }
}

func TestEtcdCheckAsJSON(t *testing.T) {
	code, stdout,
		_ := run(t, slices.Concat([]string{"etcd", "check", splitSpec, "-o", "json", "--fail-on", "info"},
		fromFiles)...)
	var document checkDocument
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatal(err)
	}
	if code != 3 || document.Schema != "fusionctl/etcd-check/v1" || !document.Complete ||
		document.Summary.Keys != 245 || document.Summary.Infos != 2 {
		t.Errorf("exit code %d, %+v; want 3 for its two remarks about 245 keys", code, document)
	}
}

// storedValues are what a file of real servers holds.
func storedValues(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := snapshot.Open(stores + "split-1.10-1.36-" + name + ".db")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values := map[string][]byte{}
	if _, err := etcd.Entries(t.Context(), etcd.Store{Name: name, Walker: f}, etcd.Request{},
		func(e etcd.Entry) error {
			values[string(e.Key)] = slices.Clone(e.Value)
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	return values
}

// liveStores copies what the files hold into running members.
func liveStores(t *testing.T) map[string]*etcdtest.Server {
	t.Helper()
	servers := map[string]*etcdtest.Server{}
	for _, name := range []string{"core", "modern"} {
		servers[name] = etcdtest.Start(t)
		servers[name].Put(t, storedValues(t, name))
	}
	return servers
}

func endpoints(servers map[string]*etcdtest.Server) []string {
	return []string{"--endpoints", "core=" + servers["core"].Endpoint, "--endpoints",
		"modern=" + servers["modern"].Endpoint}
}

// A value of another kind is told from those of the resource where types are counted.
func TestEtcdCheckShowsAKindThatIsNotTheResources(t *testing.T) {
	servers := liveStores(t)
	for key, value := range storedValues(t, "core") {
		if strings.HasPrefix(key, "/registry/secrets/") {
			servers["core"].Put(t, map[string][]byte{"/registry/configmaps/default/misfiled": value})
		}
	}
	code, stdout, _ := run(t, slices.Concat([]string{"etcd", "check", splitSpec}, endpoints(servers))...)
	if want := " v1/Secret(1)"; code != 3 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want 3 and%s in:\n%s", code, want, stdout)
	}
}

func TestEtcdCheckOfLiveStores(t *testing.T) {
	servers := liveStores(t)
	args := slices.Concat([]string{"etcd", "check", splitSpec, "-o", "json"}, endpoints(servers))
	code, stdout, stderr := run(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q, stdout %s; want clean stores", code, stderr, stdout)
	}
	// The same pods, stolen: the StatefulSet of the modern side goes, and its own collector would run.
	client := servers["core"].Client(t)
	deployment, err := client.Get(t.Context(), "/registry/deployments/default/d-legacy")
	if err != nil || len(deployment.Kvs) != 1 {
		t.Fatalf("reading a deployment: %v", err)
	}
	servers["modern"].Put(t, map[string][]byte{"/registry/deployments/default/d-legacy": deployment.Kvs[0].Value})
	servers["core"].Put(t, map[string][]byte{
		"/registry/pods/gone/web": []byte("k8s\x00damaged"),
		"/registry/kubeflow.org/notebooks/n/a": []byte(
			`{"apiVersion":"kubeflow.org/v1","kind":"Notebook","metadata":{"name":"a","namespace":"n","uid":"x"}}`),
	})
	code, stdout, _ = run(t, args...)
	var document checkDocument
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, f := range document.Findings {
		rules = append(rules, f.Rule+" "+f.Subject)
	}
	for _, want := range []string{"FUS000 core:pods", "FUS130 core:pods", "FUS130 core:kubeflow.org/notebooks",
		"FUS232 core:kubeflow.org/notebooks", "FUS230 modern:deployments"} {
		if !slices.Contains(rules, want) {
			t.Errorf("no finding %q among %q", want, rules)
		}
	}
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

func TestEtcdCheckRefusesToCallCleanWhatItCouldNotRead(t *testing.T) {
	core, modern := fromFiles[1], fromFiles[3]
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("no db"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	tls := etcdtest.StartTLS(t)
	other := etcdtest.Start(t)
	other.Put(t, map[string][]byte{"/k8s/pods/default/web": []byte("x"), "compact_rev_key": []byte("7")})
	snapshots := []string{"--snapshot", modern}
	secure := slices.Concat(snapshots, []string{"--endpoints", "core=" + tls.Endpoint, "--timeout", "2s", "--cert",
		tls.PKI.Cert, "--key", tls.PKI.Key})
	for name, test := range map[string]struct {
		args  []string
		code  int
		says  []string // of stderr
		never string   // in any output
	}{
		"unreachable": {slices.Concat(snapshots, []string{"--endpoints", "core=http://127.0.0.1:1"}), 1,
			[]string{"incomplete", "store core: reading the newest revision: no member answered", "connection " +
				"refused", "hint: nothing listens there"}, ""},
		"wrong CA": {slices.Concat(secure, []string{"--ca", tls.PKI.OtherCA}), 1,
			[]string{"incomplete", "unknown authority", "hint: the CA file does not belong to this etcd"}, ""},
		"other prefix": {slices.Concat(snapshots, []string{"--endpoints", "core=" + other.Endpoint}), 1,
			[]string{"incomplete", `none below the prefix "/registry"; the first is "/k8s/pods/default/web"`}, ""},
		"damaged file": {[]string{"--snapshot", "core=" + damaged, "--snapshot", modern}, 1,
			[]string{"incomplete", "not a readable etcd db file", "hint: take a fresh snapshot"}, ""},
		"missing file": {[]string{"--snapshot", "core=/nowhere.db", "--snapshot", modern}, 2,
			[]string{"store core: open /nowhere.db: no such file"}, ""},
		"unreadable CA": {slices.Concat(secure, []string{"--ca", "/nowhere.crt"}), 2,
			[]string{"store core: reading the CA: open /nowhere.crt", "hint: --ca"}, ""},
		"unknown store": {[]string{"--snapshot", core, "--snapshot", "extra=x.db"}, 2,
			[]string{`the spec has no store "extra"`, "hint: its stores are core, modern"}, ""},
		"no store": {[]string{"--endpoints", "http://127.0.0.1:1"}, 2, []string{"want STORE=URL"}, ""},
		"bad endpoint": {[]string{"--endpoints", "core=127.0.0.1:1"}, 2,
			[]string{`endpoint "127.0.0.1:1": want http://HOST:PORT`}, ""},
		"bad depth": {[]string{"--depth", "all"}, 2, []string{"want one of envelope, keys, objects"}, ""},
		"no password": {slices.Concat(snapshots,
			[]string{"--endpoints", "core=" + other.Endpoint, "--user", "root"}), 2,
			[]string{"no password given", "FUSIONCTL_ETCD_PASSWORD"}, ""},
		"wrong user": {slices.Concat(snapshots,
			[]string{"--endpoints", "core=" + other.Endpoint, "--user", "root", "--password-file", damaged}), 1,
			[]string{"incomplete"}, "no dbno db"},
		"one file": {[]string{"--snapshot", core, "--snapshot", strings.Replace(core, "core=", "modern=", 1)}, 2,
			[]string{"are one file, which is of one store"}, ""},
		"negative rate": {slices.Concat(fromFiles[:2], []string{"--rate", "-1"}), 2,
			[]string{"--rate -1: want 0 or more"}, ""},
		"no time": {slices.Concat(fromFiles[:2], []string{"--timeout", "0s"}), 2,
			[]string{"--timeout 0s: want more than 0"}, ""},
		"parallel beyond": {slices.Concat(fromFiles, []string{"--parallel", "0"}), 2,
			[]string{"--parallel 0: want 1 to 64"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, append([]string{"etcd", "check", splitSpec}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, stdout, stderr)
			}
			for _, says := range test.says {
				if !strings.Contains(stderr, says) {
					t.Errorf("stderr %q, want it to say %q", stderr, says)
				}
			}
			if test.never != "" && strings.Contains(stdout+stderr, test.never) {
				t.Errorf("the password is printed: %s%s", stdout, stderr)
			}
			if test.code == 1 && !strings.Contains(stdout, "INCOMPLETE") {
				t.Errorf("stdout %q does not say that it is incomplete", stdout)
			}
		})
	}
}

func TestEtcdCheckIsInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := cli.Main(ctx, slices.Concat([]string{"etcd", "check", splitSpec}, fromFiles),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 130 || !strings.Contains(out.String(), "INCOMPLETE") {
		t.Errorf("exit code %d, stdout %q; want 130 and a report marked incomplete", code, out.String())
	}
}

// TestEtcdCheckWithARoleThatMayReadAPart: what a role hides is never clean.
func TestEtcdCheckWithARoleThatMayReadAPart(t *testing.T) {
	servers := liveStores(t)
	c, ctx := servers["core"].Client(t), t.Context()
	for _, do := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.RoleAdd(ctx, "pods"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "pods", "/registry/pods/", "/registry/pods0",
				clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, "reader", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "reader", "pods"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("FUSIONCTL_ETCD_PASSWORD", "secret")
	args := []string{"etcd", "check", splitSpec, "--endpoints", "core=" + servers["core"].Endpoint, "--snapshot",
		"modern=" + stores + "split-1.10-1.36-modern.db"}
	code, stdout, stderr := run(t, append(args, "--user", "reader")...)
	if code != 1 || !strings.Contains(stdout, "INCOMPLETE") || !strings.Contains(stderr, "permission denied") {
		t.Errorf("as reader: exit code %d, stdout %q, stderr %q; want 1 and permission denied", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, append(args, "--user", "root")...); strings.Contains(stdout, "INCOMPLETE") ||
		code == 1 {
		t.Errorf("as root: exit code %d, stderr %q; want it complete", code, stderr)
	}
}

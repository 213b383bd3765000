package cli_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// dump reads a whole member: values, and whether they have a lease.
func dump(t *testing.T, server *etcdtest.Server) map[string]string {
	t.Helper()
	response, err := server.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, kv := range response.Kvs {
		values[string(kv.Key)] = fmt.Sprintf("%q lease %v", kv.Value, kv.Lease != 0)
	}
	return values
}

func TestEtcdMoveRepairsAndUndoes(t *testing.T) {
	servers := liveStores(t)
	core, modern := servers["core"], servers["modern"]
	lease, err := core.Client(t).Grant(t.Context(), 3000)
	if err != nil {
		t.Fatal(err)
	}
	// 300 pods where no side looks for pods, and leases that belong to the modern side, in core.
	stray := map[string][]byte{}
	for i := range 300 {
		stray[fmt.Sprintf("/registry/pods/default/stray-%03d", i)] = fmt.Appendf(nil, "pod %d", i)
	}
	modern.Put(t, stray)
	if _, err := core.Client(t).Put(t.Context(), "/registry/leases/kube-system/leased", "a lease",
		clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	beforeCore, beforeModern := dump(t, core), dump(t, modern)
	plan := filepath.Join(t.TempDir(), "move.plan")
	args := func(verb string, more ...string) []string {
		return slices.Concat([]string{"etcd", "move", verb, splitSpec}, more, endpoints(servers))
	}

	code, stdout, stderr := run(t, args("plan", "--out", plan)...)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "pods      modern  core    300") ||
		!strings.Contains(stdout, "leases    core    modern  1") {
		t.Fatalf("plan: exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
	}
	for _, line := range []string{"\nThen:  fusionctl etcd move apply " + splitSpec + " " + plan + "\n",
		"\nAfter: start the API servers"} {
		if !strings.Contains(stdout, line) {
			t.Errorf("plan prints no line %q:\n%s", line, stdout)
		}
	}
	if !maps.Equal(dump(t, core), beforeCore) || !maps.Equal(dump(t, modern), beforeModern) {
		t.Fatal("plan changed something")
	}
	if code, _, stderr := run(t, args("apply", plan)...); code != 2 || !strings.Contains(stderr, "--yes is required") {
		t.Errorf("apply without --yes: exit code %d, stderr %q; want 2", code, stderr)
	}
	for range 2 { // the second time there is nothing left to do
		if code, _, stderr := run(t, args("apply", plan, "--yes")...); code != 0 {
			t.Fatalf("apply: exit code %d, stderr %q", code, stderr)
		}
		afterCore, afterModern := dump(t, core), dump(t, modern)
		for key := range stray {
			if afterCore[key] != beforeModern[key] || afterModern[key] != "" {
				t.Fatalf("%s: %q in core, %q in modern; want it moved", key, afterCore[key], afterModern[key])
			}
		}
		if want := `"a lease" lease true`; afterModern["/registry/leases/kube-system/leased"] != want {
			t.Errorf("leased key in modern = %q, want %q", afterModern["/registry/leases/kube-system/leased"], want)
		}
		if len(afterCore) != len(beforeCore)+300-1 || len(afterModern) != len(beforeModern)-300+1 {
			t.Errorf("%d and %d keys, want %d and %d", len(afterCore), len(afterModern), len(beforeCore)+299,
				len(beforeModern)-299)
		}
	}
	if code, stdout, stderr := run(t, args("undo", plan, "--yes")...); code != 0 {
		t.Fatalf("undo: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if !maps.Equal(dump(t, core), beforeCore) || !maps.Equal(dump(t, modern), beforeModern) {
		t.Error("undo did not bring everything back")
	}
}

func TestEtcdMoveRefusesBadInput(t *testing.T) {
	servers := liveStores(t)
	dir := t.TempDir()
	plan := filepath.Join(dir, "move.plan")
	servers["modern"].Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("pod")})
	if code, _, stderr := run(t, slices.Concat([]string{"etcd", "move", "plan", splitSpec, "--out", plan},
		endpoints(servers))...); code != 0 {
		t.Fatalf("plan: exit code %d, %s", code, stderr)
	}
	whole, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	cut, text := filepath.Join(dir, "cut.plan"), filepath.Join(dir, "text.plan")
	for file, data := range map[string][]byte{cut: whole[:strings.IndexByte(string(whole), '\n')+1],
		text: []byte("hello\n")} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"cut off": {[]string{"apply", splitSpec, cut, "--yes"}, 2, "is no plan, or is cut off"},
		"no plan": {[]string{"apply", splitSpec, text, "--yes"}, 2, "text.plan:1"},
		"missing": {[]string{"apply", splitSpec, filepath.Join(dir, "none"), "--yes"}, 2, "no such file"},
		"no out":  {[]string{"plan", splitSpec}, 2, "--out FILE is required"},
		"snapshot": {[]string{"plan", splitSpec, "--out", plan, "--snapshot",
			"core=" + stores + "split-1.10-1.36-core.db"}, 2, "between live stores"},
		"half": {[]string{"plan", splitSpec, "--out", plan, "--from", "core"}, 2,
			"want both, with --resource, or neither"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, slices.Concat([]string{"etcd", "move"}, test.args, endpoints(servers))...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, test.code, test.says)
			}
		})
	}
	// What never began is undone already.
	code, stdout,
		stderr := run(t, slices.Concat([]string{"etcd", "move", "undo", splitSpec, plan, "--yes"},
		endpoints(servers))...)
	if code != 0 || !strings.Contains(stdout, "never began") {
		t.Errorf("undo of a move that never began: exit code %d, %s%s; want 0", code, stdout, stderr)
	}
	// Something still writes.
	servers["modern"].Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("changed")})
	code, _, stderr = run(t, slices.Concat([]string{"etcd", "move", "apply", splitSpec, plan, "--yes"},
		endpoints(servers))...)
	if code != 1 || !strings.Contains(stderr, "changed since the plan was made") ||
		!strings.Contains(stderr, "hint: stop the API servers") {
		t.Errorf("apply after a change: exit code %d, stderr %q; want 1", code, stderr)
	}
}

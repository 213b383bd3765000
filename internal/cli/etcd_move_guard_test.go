package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// moved is a move between two members, most of it in the wrong one.
type moved struct {
	t       *testing.T
	servers map[string]*etcdtest.Server
	plan    string
}

// newMove fills the store core with so many leases, which belong to the other one, and plans to move them.
func newMove(t *testing.T, servers map[string]*etcdtest.Server, keys int) *moved {
	t.Helper()
	m := &moved{t, servers, filepath.Join(t.TempDir(), "move.plan")}
	values := map[string][]byte{}
	for i := range keys {
		values[fmt.Sprintf("/registry/leases/default/lease-%04d", i)] = fmt.Appendf(nil, "lease %d", i)
	}
	servers["core"].Put(t, values)
	if code, _, stderr := m.run("plan", "--out", m.plan); code != 0 {
		t.Fatalf("plan: exit code %d, %s", code, stderr)
	}
	return m
}

func twoServers(t *testing.T) map[string]*etcdtest.Server {
	return map[string]*etcdtest.Server{"core": etcdtest.Start(t), "modern": etcdtest.Start(t)}
}

func (m *moved) run(verb string, more ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	return run(m.t, slices.Concat([]string{"etcd", "move", verb, splitSpec}, more, endpoints(m.servers))...)
}

// refused wants an exit code and what is said, and that nothing has changed.
func (m *moved) refused(name string, code int, says []string, verb string, more ...string) {
	m.t.Helper()
	core, modern := dump(m.t, m.servers["core"]), dump(m.t, m.servers["modern"])
	got, _, stderr := m.run(verb, more...)
	for _, s := range says {
		if got != code || !strings.Contains(stderr, s) {
			m.t.Errorf("%s: exit code %d, stderr %q; want %d and %q", name, got, stderr, code, s)
		}
	}
	if !maps.Equal(core, dump(m.t, m.servers["core"])) || !maps.Equal(modern, dump(m.t, m.servers["modern"])) {
		m.t.Errorf("%s: it refused, and changed something", name)
	}
}

func TestEtcdMoveKnowsItsFiles(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 250)
	edit := func(file, old, new string) string {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte(old)) {
			t.Fatalf("%s does not hold %q: %v", file, old, err)
		}
		other := filepath.Join(t.TempDir(), "edited")
		if err := os.WriteFile(other, bytes.Replace(data, []byte(old), []byte(new), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		return other
	}
	m.refused("a plan that was edited", 2, []string{"was changed after it was written", "hint: fusionctl etcd move " +
		"plan"}, "apply", edit(m.plan, "lease-0007", "lease-9997"), "--yes")
	m.refused("a plan for another etcd by hand", 2, []string{"was changed after it was written"}, "apply",
		edit(m.plan, `"clusters":{"core":"`, `"clusters":{"core":"1`), "--yes")
	if code, stdout, stderr := m.run("undo", m.plan, "--yes"); code != 0 ||
		!strings.HasPrefix(stdout, "nothing to move back") {
		t.Errorf("undo before apply: exit code %d, %s%s", code, stdout, stderr)
	}
	for verb, args := range map[string][]string{"plan": {"--out", m.plan + "2"}, "apply": {m.plan, "--yes"},
		"undo": {m.plan, "--yes"}} {
		m.refused(verb+" of what is not newest", 2, []string{"--gentle: serializable reads may be stale"}, verb,
			append(args, "--gentle")...)
	}
	m.refused("no such resource", 2, []string{`resource "nodse": neither version has one of this name`}, "plan",
		"--out", m.plan+"2", "--resource", "nodse")
	m.refused("a plan over one that was begun", 2,
		[]string{"move.plan: was begun", "hint: give the new plan another name"}, "plan", "--out", m.plan)

	if code, stdout, stderr := m.run("apply", m.plan, "--yes"); code != 0 ||
		!strings.HasPrefix(stdout, "250 keys moved, 0 expired meanwhile") {
		t.Fatalf("apply: exit code %d, %s%s", code, stdout, stderr)
	}
	for _, suffix := range []string{"", ".journal", ".backup"} {
		if info, err := os.Stat(m.plan + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want it for the owner alone", m.plan+suffix, info.Mode(), err)
		}
	}
	m.refused("undo without journal and backup", 1, []string{"there is no backup, and 250 keys may have been moved"},
		"undo", m.plan, "--yes",
		"--journal", m.plan+"-other.journal", "--backup", m.plan+"-other.backup")
	for name, test := range map[string]struct{ old, new, says string }{
		"damaged": {`"value":"bGVhc2UgNw=="`, `"value":"bGVhc2UgOA=="`, "is damaged"},
		"cut off": {"\n{\"keys\":250", "", "is cut off"},
		"other's": {`"plan":"`, `"plan":"0`, "is not the backup of this plan"},
	} {
		file := edit(m.plan+".backup", test.old, test.new)
		if name == "cut off" { // the rest of that line too
			data, _ := os.ReadFile(file)
			if err := os.WriteFile(file, data[:bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '}')-80],
				0o600); err != nil {
				t.Fatal(err)
			}
			test.says = file
		}
		code := 1
		if name == "other's" {
			code = 2
		}
		m.refused("a backup that is "+name, code, []string{test.says}, "undo", m.plan, "--yes", "--backup", file)
	}
	// The same keys again: the plan is another one.
	if code, _, stderr := m.run("undo", m.plan, "--yes"); code != 0 {
		t.Fatalf("undo: exit code %d, %s", code, stderr)
	}
	second := m.plan + "-2"
	if code, _, stderr := m.run("plan", "--out", second); code != 0 {
		t.Fatalf("plan: exit code %d, %s", code, stderr)
	}
	m.refused("the journal of another plan", 2, []string{"is the journal of another plan", "hint: --journal"}, "apply",
		second, "--yes", "--journal", m.plan+".journal")
	m.refused("a plan that was undone", 1, []string{"was undone"}, "apply", m.plan, "--yes")
	// And when the journal is lost, the backup is enough.
	if code, _, stderr := m.run("apply", second, "--yes"); code != 0 {
		t.Fatalf("apply: exit code %d, %s", code, stderr)
	}
	if err := os.Remove(second + ".journal"); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := m.run("undo", second, "--yes", "-o", "json"); code != 0 ||
		!strings.Contains(stdout, `"moved": 250`) || !strings.Contains(stdout, `"fusionctl/etcd-move-undo/v1"`) {
		t.Fatalf("undo without a journal: exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestEtcdMoveKnowsItsStores(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 20)
	another := etcdtest.Start(t)
	m.servers["modern"], another = another, m.servers["modern"]
	m.refused("another etcd", 1, []string{"store modern: the plan was made for another etcd", "hint: --endpoints"},
		"apply", m.plan, "--yes")
	m.servers["modern"], another = another, m.servers["modern"]
	m.servers["modern"] = m.servers["core"]
	m.refused("one etcd", 2, []string{"one and the same etcd"}, "apply", m.plan, "--yes")
	m.servers["modern"] = another

	m = newMove(t, twoServers(t), 20)
	client := m.servers["modern"].Client(t)
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "/registry/fusionctl-etcd-move",
		`{"run":"x","store":"modern","by":"process 7 on cp-2"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	m.refused("another move", 1, []string{"store modern: locking: another move is under way: process 7 on cp-2; its " +
		"lock ends ", "hint: wait until it ends"}, "apply", m.plan, "--yes")
}

func TestEtcdMoveIsNotAllowedTo(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 20)
	m.servers["core"].AllowReader(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := m.run("apply", m.plan, "--yes", "--user", "reader", "--password-file", password, "--endpoints",
		"modern="+m.servers["modern"].Endpoint)
	if code != 1 || !strings.Contains(stderr, "store core: locking") ||
		!strings.Contains(stderr, "hint: the user needs a role with the permission readwrite") {
		t.Errorf("exit code %d, stderr %q; want 1 and what the role lacks", code, stderr)
	}
	if left := dump(t, m.servers["modern"]); len(left) != 0 {
		t.Errorf("modern holds %v, want nothing", left)
	}
}

// TestEtcdMoveIntoAStoreThatRefuses what the other one took, or has no room for all of it.
func TestEtcdMoveIntoAStoreThatRefuses(t *testing.T) {
	t.Parallel()
	servers := map[string]*etcdtest.Server{
		"core": etcdtest.StartWith(t, func(c *embed.Config) { c.MaxRequestBytes = 4 << 20 }),
		// A server counts what it has committed, which it does ten times a second unless told otherwise.
		"modern": etcdtest.StartWith(t, func(c *embed.Config) { c.QuotaBackendBytes, c.BackendBatchLimit = 6<<20, 1 }),
	}
	servers["core"].Put(t, map[string][]byte{"/registry/leases/default/large": bytes.Repeat([]byte("x"), 1800<<10)})
	m := newMove(t, servers, 0)
	want := dump(t, servers["core"])["/registry/leases/default/large"]
	for _, verb := range []string{"apply", "undo"} {
		code, _, stderr := m.run(verb, m.plan, "--yes")
		if verb == "apply" && (code != 1 || !strings.Contains(stderr, "request is too large") ||
			!strings.Contains(stderr, "hint: raise --max-request-bytes")) || verb == "undo" && code != 0 {
			t.Errorf("%s: exit code %d, stderr %q", verb, code, stderr)
		}
		if dump(t, servers["core"])["/registry/leases/default/large"] != want {
			t.Fatal("the large value is lost")
		}
	}
	if _, err := servers["core"].Client(t).Delete(t.Context(), "/registry/leases/default/large"); err != nil {
		t.Fatal(err)
	}
	for i := range 8 { // an API server puts up to 1.5 MiB
		servers["core"].Put(t,
			map[string][]byte{fmt.Sprintf("/registry/leases/default/big-%d", i): bytes.Repeat([]byte("x"), 1400<<10)})
	}
	m = newMove(t, servers, 0)
	before := dump(t, servers["core"])
	m.refused("no room", 1, []string{"store modern: there is no room for what is moved there",
		"hint: raise --quota-backend-bytes"}, "apply", m.plan, "--yes")
	if after := dump(t, servers["core"]); !maps.Equal(before, after) {
		t.Errorf("no room: core holds %d keys, want its %d", len(after), len(before))
	}
}

// TestEtcdMoveUndoesInAStoreThatIsFull: not in this plan fills it while apply copies. It takes neither a lock nor a
// lease then.
func TestEtcdMoveUndoesInAStoreThatIsFull(t *testing.T) {
	t.Parallel()
	m := newMove(t, map[string]*etcdtest.Server{
		"core":   etcdtest.Start(t),
		"modern": etcdtest.StartWith(t, func(c *embed.Config) { c.QuotaBackendBytes = 6 << 20 }),
	}, 450)
	before, modern := dump(t, m.servers["core"]), m.servers["modern"].Client(t)
	proxy := etcdtest.NewRequests(t, m.servers["core"])
	filler := strings.Repeat("x", 1<<20)
	var full atomic.Bool
	look := func(etcdtest.Request) error {
		if journal, _ := os.ReadFile(m.plan + ".journal"); bytes.Count(journal, []byte(`{"step":"copied"`)) != 2 ||
			full.Load() {
			return nil
		}
		for i := range 100 {
			if _, err := modern.Put(t.Context(), fmt.Sprintf("/elsewhere/%d", i), filler); err != nil {
				full.Store(true)
				break
			}
		}
		return nil
	}
	proxy.Look.Store(&look)
	code, _, stderr := run(t, "etcd", "move", "apply", splitSpec, m.plan, "--yes", "--endpoints",
		"core="+proxy.Endpoint, "--endpoints", "modern="+m.servers["modern"].Endpoint)
	if code != 1 || !full.Load() || !strings.Contains(stderr, "space exceeded") ||
		!strings.Contains(stderr, "etcdctl alarm disarm") || !strings.Contains(stderr, "undo deletes the copies") {
		t.Fatalf("apply into a store that is full: exit code %d, stderr %q; want 1 and the ways out", code, stderr)
	}
	copies := func() int {
		got := dump(t, m.servers["modern"])
		maps.DeleteFunc(got, func(key, _ string) bool { return !strings.HasPrefix(key, "/registry/") })
		return len(got)
	}
	if n := copies(); n != 200 {
		t.Fatalf("modern holds %d copies, want 200", n)
	}
	m.refused("apply again", 1, []string{"store modern: locking: ", "space exceeded"}, "apply", m.plan, "--yes")
	code, stdout, stderr := m.run("undo", m.plan, "--yes")
	if code != 0 || !strings.HasPrefix(stdout, "450 keys moved back") ||
		!strings.Contains(stdout, "store modern is full (alarm NOSPACE)") {
		t.Errorf("undo in a store that is full: exit code %d, stdout %q, stderr %q; want 0", code, stdout, stderr)
	}
	if n := copies(); n != 0 || !maps.Equal(before, dump(t, m.servers["core"])) {
		t.Errorf("undone, modern holds %d copies, want none; and core what it held", n)
	}
}

// TestEtcdMoveWhileSomebodyWrites: what is written behind the back of apply is named, and the exit code says so.
func TestEtcdMoveWhileSomebodyWrites(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 250)
	proxy := etcdtest.NewRequests(t, m.servers["core"])
	client := m.servers["core"].Client(t)
	var once atomic.Bool
	look := func(etcdtest.Request) error {
		if journal, _ := os.ReadFile(m.plan + ".journal"); bytes.Contains(journal, []byte(`{"step":"deleted"`)) &&
			once.CompareAndSwap(false, true) {
			_, err := client.Put(t.Context(), "/registry/leases/default/late", "late")
			return err
		}
		return nil
	}
	proxy.Look.Store(&look)
	code, stdout, stderr := run(t, "etcd", "move", "apply", splitSpec, m.plan, "--yes", "--endpoints",
		"core="+proxy.Endpoint, "--endpoints", "modern="+m.servers["modern"].Endpoint)
	if code != 3 || !strings.Contains(stdout, "1 key written to the wrong store") ||
		!strings.Contains(stdout, "/registry/leases/default/late: was written in store core meanwhile") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want 3 and the key that was written", code, stdout, stderr)
	}
}

func TestEtcdMoveIsInterruptible(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 450)
	before := dump(t, m.servers["core"])
	proxy := etcdtest.NewRequests(t, m.servers["core"])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	look := func(etcdtest.Request) error {
		if journal, _ := os.ReadFile(m.plan + ".journal"); bytes.Count(journal, []byte(`{"step":"copied"`)) == 2 {
			cancel()
		}
		return nil
	}
	proxy.Look.Store(&look)
	var out, errs bytes.Buffer
	args := []string{"etcd", "move", "apply", splitSpec, m.plan, "--yes", "--endpoints", "core=" + proxy.Endpoint,
		"--endpoints", "modern=" + m.servers["modern"].Endpoint}
	code := cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 130 || !strings.Contains(errs.String(), "stopped after 200 of 450 keys copied; the same command "+
		"resumes, and fusionctl etcd move undo "+splitSpec+" "+m.plan+" rolls back") {
		t.Errorf("exit code %d, stderr %q; want 130 and how to go on", code, errs.String())
	}
	if got := dump(t, m.servers["core"]); !maps.Equal(got, before) {
		t.Errorf("core holds %d keys, want its %d: the lock must be gone, and nothing else", len(got), len(before))
	}
	if code, _, stderr := m.run("apply", m.plan, "--yes"); code != 0 || len(dump(t, m.servers["core"])) != 0 ||
		len(dump(t, m.servers["modern"])) != 450 {
		t.Errorf("run again: exit code %d, %s; %d and %d keys, want 0 and 450", code, stderr,
			len(dump(t, m.servers["core"])), len(dump(t, m.servers["modern"])))
	}
}

func TestEtcdMoveSaysWhatIsToBeDone(t *testing.T) {
	t.Parallel()
	servers := twoServers(t)
	servers["core"].Put(t, map[string][]byte{"/registry/leases/default/secret": []byte("k8s:enc:aescbc:v1:key1:xxxx")})
	client := servers["core"].Client(t)
	lease, err := client.Grant(t.Context(), 15)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "/registry/masterleases/10.0.0.11", "x",
		clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	m := newMove(t, servers, 3)
	code, stdout, stderr := m.run("plan", "--out", m.plan)
	for _, says := range []string{
		"leases    core  modern  4", "  kube-apiserver (legacy, 1.10.13) on cp-1\n",
		"  kube-apiserver-modern (modern, 1.36.3) on cp-1\n",
		"note: 1 value encrypted with aescbc:key1: the API server that reads store modern must have this provider " +
			"and key",
		"fusionctl etcd move apply " + splitSpec + " " + m.plan, "fusionctl etcd check " + splitSpec,
	} {
		if code != 0 || !strings.Contains(stdout, says) {
			t.Errorf("plan: exit code %d, stderr %q, stdout does not say %q:\n%s", code, stderr, says, stdout)
		}
	}
	if code, _, stderr := m.run("apply", m.plan, "--yes"); code != 0 ||
		!strings.Contains(stderr, "warning: store core: an API server at 10.0.0.11 is running") {
		t.Errorf("apply beside an API server: exit code %d, stderr %q; want a warning", code, stderr)
	}
	if code, stdout, _ := m.run("plan", "--out", m.plan+"-2", "-o", "json"); code != 0 ||
		!strings.Contains(stdout, `"moves": []`) {
		t.Errorf("plan after apply: exit code %d, %s; want nothing to move", code, stdout)
	}
}

// TestEtcdMoveMakesTheStoresMatchThePlan: check finds what is misplaced, and after apply it does not.
func TestEtcdMoveMakesTheStoresMatchThePlan(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	// All that the modern side has lies with the rest, as if one store had been shared.
	response, err := servers["modern"].Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]bool{}
	for _, kv := range response.Kvs {
		resource := strings.Split(string(kv.Key), "/")[2]
		if resource != "leases" && resource != "flowschemas" && resource != "prioritylevelconfigurations" {
			continue
		}
		resources[resource] = true
		servers["core"].Put(t, map[string][]byte{string(kv.Key): kv.Value})
		if _, err := servers["modern"].Client(t).Delete(t.Context(), string(kv.Key)); err != nil {
			t.Fatal(err)
		}
	}
	check := slices.Concat([]string{"etcd", "check", splitSpec, "--fail-on", "warning"}, endpoints(servers))
	if code, stdout, _ := run(t, check...); code != 3 || !strings.Contains(stdout, "FUS004") || len(resources) != 3 {
		t.Fatalf("check of a shared store: exit code %d, want 3 with FUS004 about %v:\n%s", code, resources, stdout)
	}
	m := newMove(t, servers, 0)
	if code, _, stderr := m.run("apply", m.plan, "--yes"); code != 0 {
		t.Fatalf("apply: exit code %d, %s", code, stderr)
	}
	if code, stdout, _ := run(t, check...); code != 0 {
		t.Errorf("check after apply: exit code %d, want 0:\n%s", code, stdout)
	}
}

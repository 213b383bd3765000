//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// asProgram makes the test binary the program itself, for tests that kill it or weigh it.
const asProgram = "FUSIONCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if file := os.Getenv(asProgram); file != "" {
		code := cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		if status, err := os.ReadFile("/proc/self/status"); err == nil { // the most memory that it held is in there
			_ = os.WriteFile(file, status, 0o600)
		}
		os.Exit(code)
	}
	os.Setenv("GOMEMLIMIT", "off") // the tests' own process also runs etcd members
	os.Exit(m.Run())
}

// program is a process of the program, without the memory limit of the tests.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOMEMLIMIT=")
	}), asProgram+"="+filepath.Join(t.TempDir(), "status"))
	return cmd
}

// TestEtcdMoveSurvivesSIGKILL kills apply again and again, then undo, each time at a later request to a store: before
// it is done, or when it is done and not answered, or at some moment behind. After every kill each key is in at least
// one store with its value; in the end everything is where it belongs, and nothing else.
func TestEtcdMoveSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	stray := map[string][]byte{}
	for i := range 450 {
		stray[fmt.Sprintf("/registry/pods/default/stray-%04d", i)] = fmt.Appendf(nil, "pod %d", i)
	}
	servers["modern"].Put(t, stray)
	before := map[string]map[string]string{"core": dump(t, servers["core"]), "modern": dump(t, servers["modern"])}
	plan := filepath.Join(t.TempDir(), "move.plan")
	if code, _, stderr := run(t, slices.Concat([]string{"etcd", "move", "plan", splitSpec, "--out", plan},
		endpoints(servers))...); code != 0 {
		t.Fatalf("plan: exit code %d, %s", code, stderr)
	}
	killer := newKiller(t, servers)
	for _, verb := range []string{"apply", "undo"} {
		kills := 0
		for ; ; kills++ {
			if kills > 300 {
				t.Fatalf("%s does not get on", verb)
			}
			args := slices.Concat([]string{"etcd", "move", verb, splitSpec, plan, "--yes"}, killer.endpoints)
			if killer.killedOrDone(t, program(t, args...), int64(1+2*kills), kills%3) {
				break
			}
			nothingLost(t, servers, before["modern"], stray)
		}
		t.Logf("%s was killed %d times", verb, kills)
		if kills < 15 {
			t.Errorf("%s was killed only %d times", verb, kills)
		}
		core, modern := dump(t, servers["core"]), dump(t, servers["modern"])
		if verb == "undo" {
			if !maps.Equal(core, before["core"]) || !maps.Equal(modern, before["modern"]) {
				t.Errorf("undo left %d and %d keys, want the %d and %d from before", len(core), len(modern),
					len(before["core"]), len(before["modern"]))
			}
			continue
		}
		for key := range stray {
			if core[key] != before["modern"][key] || modern[key] != "" {
				t.Fatalf("%s: %q in core, %q in modern; want it moved", key, core[key], modern[key])
			}
		}
		if len(core) != len(before["core"])+len(stray) || len(modern) != len(before["modern"])-len(stray) {
			t.Errorf("%d and %d keys after apply", len(core), len(modern))
		}
	}
	if left, err := filepath.Glob(plan + "*"); err != nil || len(left) != 3 {
		t.Errorf("files: %q, %v; want the plan, its journal and its backup", left, err)
	}
}

// TestEtcdMoveWhenTheDiskIsFull: a limit on the size of files ends it in the middle of the backup, then at a record of
// the journal. Nothing is lost, and with room again it goes on, and back.
func TestEtcdMoveWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	m := newMove(t, twoServers(t), 900)
	before := dump(t, m.servers["core"])
	limited := func(verb string, blocks int) string {
		t.Helper()
		cmd := program(t, slices.Concat([]string{"etcd", "move", verb, splitSpec, m.plan, "--yes"},
			endpoints(m.servers))...)
		// of 512 bytes
		limit := exec.CommandContext(t.Context(), "/bin/sh",
			append([]string{"-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, blocks)}, cmd.Args...)...)
		limit.Env = cmd.Env
		out, err := limit.CombinedOutput()
		if err == nil {
			t.Fatalf("%s with files of at most %d blocks is done:\n%s", verb, blocks, out)
		}
		return string(out)
	}
	if out := limited("apply", 64); !strings.Contains(out, "writing the backup: write "+
		filepath.Join(filepath.Dir(m.plan), "."+filepath.Base(m.plan)+".backup.partial")+": "+
		"file too large") || !strings.Contains(out, "hint: free disk space") {
		t.Errorf("apply that cannot write its backup says %q", out)
	}
	if !maps.Equal(dump(t, m.servers["core"]), before) || len(dump(t, m.servers["modern"])) != 0 {
		t.Fatal("something was changed before there was a backup")
	}
	if left, err := filepath.Glob(m.plan + "*"); err != nil || len(left) != 2 {
		t.Errorf("files: %q, %v; want the plan and its journal", left, err)
	}
	if code, _, stderr := m.run("apply", m.plan, "--yes"); code != 0 {
		t.Fatalf("apply with room: exit code %d, %s", code, stderr)
	}
	// The journal is longer than a block by now.
	if out := limited("undo", 1); !strings.Contains(out, m.plan+".journal: ") {
		t.Errorf("undo that cannot write its journal says %q", out)
	}
	if len(dump(t, m.servers["core"])) != 0 || len(dump(t, m.servers["modern"])) != 900 {
		t.Fatal("undo went on without its journal")
	}
	if code, _, stderr := m.run("undo", m.plan, "--yes"); code != 0 || !maps.Equal(dump(t, m.servers["core"]), before) {
		t.Errorf("undo with room: exit code %d, %s", code, stderr)
	}
}

// TestEtcdMoveKeepsItsMemory weighs all three verbs: neither the number of keys nor the size of values matters much.
func TestEtcdMoveKeepsItsMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system counts otherwise")
	}
	t.Parallel()
	m := newMove(t, twoServers(t), 0)
	idle := idleKiB(t)
	value := bytes.Repeat([]byte("x"), 2000)
	for part := range 20 {
		values := map[string][]byte{}
		for i := range 500 {
			values[fmt.Sprintf("/registry/leases/team-%02d/lease-%05d", i%50, 500*part+i)] = value
		}
		m.servers["core"].Put(t, values)
	}
	for _, args := range [][]string{{"plan", splitSpec, "--out", m.plan}, {"apply", splitSpec, m.plan, "--yes"},
		{"undo", splitSpec, m.plan, "--yes"}} {
		cmd := program(t, slices.Concat([]string{"etcd", "move"}, args, endpoints(m.servers))...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v:\n%s", args[0], err, out)
		}
		kib := heldKiB(t, cmd)
		t.Logf("%s of 10000 keys and 20 MB: %d KiB", args[0], kib)
		if kib-idle > 24<<10 {
			t.Errorf("%s of 10000 keys and 20 MB: %d KiB, %d without a verb; want less than 24 MiB more", args[0], kib,
				idle)
		}
	}
}

// killer kills a process at a request.
type killer struct {
	endpoints []string
	requests  atomic.Int64
	at        atomic.Int64
	answered  atomic.Bool
	kill      atomic.Pointer[func()]
	random    *rand.Rand
}

func newKiller(t *testing.T, servers map[string]*etcdtest.Server) *killer {
	k := &killer{random: rand.New(rand.NewSource(1))}
	look := func(r etcdtest.Request) error {
		if kill := k.kill.Load(); kill != nil && r.Answered == k.answered.Load() && k.requests.Add(1) == k.at.Load() {
			(*kill)()
		}
		return nil
	}
	for name, s := range servers {
		proxy := etcdtest.NewRequests(t, s)
		proxy.Look.Store(&look)
		k.endpoints = append(k.endpoints, "--endpoints", name+"="+proxy.Endpoint)
	}
	return k
}

// killedOrDone kills the process at its n-th request, and reports whether it was done before.
func (k *killer) killedOrDone(t *testing.T, cmd *exec.Cmd, n int64, how int) bool {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.requests.Store(0)
	k.at.Store(n)
	k.answered.Store(how > 0)
	moment := time.Duration(k.random.Intn(2000)) * time.Microsecond
	kill := func() { _ = cmd.Process.Kill() } // it may have ended by itself
	if how == 2 {
		kill = func() { time.AfterFunc(moment, func() { _ = cmd.Process.Kill() }) }
	}
	k.kill.Store(&kill)
	err := cmd.Wait()
	k.kill.Store(nil)
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return false
	}
	if err != nil {
		t.Fatalf("it ended by itself with %v:\n%s", err, said.String())
	}
	return true
}

func nothingLost(t *testing.T, servers map[string]*etcdtest.Server, before map[string]string, stray map[string][]byte) {
	t.Helper()
	core, modern := dump(t, servers["core"]), dump(t, servers["modern"])
	for key := range stray {
		if core[key] != before[key] && modern[key] != before[key] {
			t.Fatalf("%s is in neither store with its value: %q, %q", key, core[key], modern[key])
		}
	}
}

// TestEtcdVerbsKeepTheirMemory weighs the program: keys cost little, and the size of values nothing.
func TestEtcdVerbsKeepTheirMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system counts otherwise")
	}
	t.Parallel()
	idle := idleKiB(t)
	few, large, many, huge := weigh(t, 10_000, 100), weigh(t, 10_000, 12_000), weigh(t, 100_000, 100),
		weigh(t, 150, 1_000_000)
	t.Logf("%d KiB without a verb", idle)
	for verb := range few {
		if huge[verb]-idle > 20<<10 {
			t.Errorf("%s: %d KiB for 150 keys with values of 1 MB, %d without a verb; want less than 20 MiB more", verb,
				huge[verb], idle)
		}
		t.Logf("%s: %d KiB for 10000 keys, %d KiB with values of 12 KB, %d KiB for 100000 keys", verb, few[verb],
			large[verb], many[verb])
		if large[verb]-few[verb] > 24<<10 || many[verb]-idle > 16<<10 {
			t.Errorf("%s: %d KiB for 10000 keys, %d KiB with values of 12 KB, %d KiB for 100000 keys, %d without a "+
				"verb: want less than 24 MiB for the values, and 16 MiB in all", verb, few[verb], large[verb],
				many[verb], idle)
		}
	}
}

// weigh is the most memory in KiB that the verbs hold with a file of so many pods. Pages of files are included.
func weigh(t *testing.T, keys, valueBytes int) map[string]int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	spec := strings.Repeat("n", valueBytes)
	writeDB(t, file, keys, func(i int) (string, []byte) {
		return fmt.Sprintf("/registry/pods/team-%02d/web-%06d", i%50, i),
			fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%06d","uid":"%d",`+
				`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs-%d"}]},"spec":{"nodeName":"%s"}}`, i, i, i, spec)
	})
	held := map[string]int{}
	files := []string{"--snapshot", "core=" + file, "--snapshot", "modern=" + stores + "split-1.10-1.36-modern.db"}
	for verb, args := range map[string][]string{
		"keys": {"check", splitSpec, "--depth", "keys"}, "envelope": {"check", splitSpec, "--depth", "envelope"},
		"objects": {"check", splitSpec, "--depth", "objects"},
		"ls":      {"ls", splitSpec, "--by-namespace"}, "diff": {"diff", splitSpec, "core", file},
	} {
		cmd := program(t, slices.Concat([]string{"etcd"}, args, files)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 {
			t.Fatalf("exit code %d, %v:\n%s", code, err, out)
		}
		held[verb] = heldKiB(t, cmd)
	}
	return held
}

// idleKiB is what a process of the program holds that does nothing: mostly pages of its file, of which the kernel maps
// more or fewer.
func idleKiB(t *testing.T) int {
	t.Helper()
	cmd := program(t, "version")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return heldKiB(t, cmd)
}

// heldKiB is the most memory that a process of the program held.
func heldKiB(t *testing.T, cmd *exec.Cmd) (kib int) {
	t.Helper()
	status, err := os.ReadFile(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], asProgram+"="))
	if err != nil {
		t.Fatal(err)
	}
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(most, &kib); err != nil {
		t.Fatalf("%v in %s", err, status)
	}
	return kib
}

// writeDB writes a member's file with keys at one revision each.
func writeDB(t *testing.T, file string, keys int, entry func(i int) (key string, value []byte)) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for start := 0; start < keys && err == nil; start += 10_000 {
		err = db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
			for i := start; i < min(start+10_000, keys) && err == nil; i++ {
				revision := int64(i + 2)
				key, value := entry(i)
				kv := mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision,
					Version: 1}
				at := append(binary.BigEndian.AppendUint64(nil, uint64(revision)),
					"_\x00\x00\x00\x00\x00\x00\x00\x00"...)
				var data []byte
				if data, err = kv.Marshal(); err == nil {
					err = bucket.Put(at, data)
				}
			}
			return err
		})
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

//go:build unix

package cli_test

import (
	"bufio"
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
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") }), asProgram+"="+filepath.Join(t.TempDir(), "status"))
	return cmd
}

// TestEtcdMoveSurvivesSIGKILL kills apply again and again, each time a little further on, until it is done; then undo. After
// every kill each key is in at least one store with its value; in the end everything is where it belongs, and nothing else.
func TestEtcdMoveSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	stray := map[string][]byte{}
	for i := range 1500 {
		stray[fmt.Sprintf("/registry/pods/default/stray-%04d", i)] = fmt.Appendf(nil, "pod %d", i)
	}
	servers["modern"].Put(t, stray)
	before := map[string]map[string]string{"core": dump(t, servers["core"]), "modern": dump(t, servers["modern"])}
	plan := filepath.Join(t.TempDir(), "move.plan")
	args := func(verb string, more ...string) []string {
		return slices.Concat([]string{"etcd", "move", verb, splitSpec}, more, endpoints(servers))
	}
	if code, _, stderr := run(t, args("plan", "--out", plan)...); code != 0 {
		t.Fatalf("plan: exit code %d, %s", code, stderr)
	}
	random := rand.New(rand.NewSource(1))
	// A backup is begun anew, and undo looks at everything again; behind the backup the journal of apply says where to go on.
	further := map[string]func(kills int) int{"undo": func(kills int) int { return 1 + kills }, "apply": func(kills int) int {
		if _, err := os.Stat(plan + ".backup"); err != nil {
			return 1 + 2*kills
		}
		return 1 + kills%3
	}}
	for _, verb := range []string{"apply", "undo"} {
		kills := 0
		for ; ; kills++ {
			if kills > 500 {
				t.Fatalf("%s does not get on", verb)
			}
			if killedOrDone(t, program(t, args(verb, plan, "--yes", "-v")...), further[verb](kills), time.Duration(random.Intn(3000))*time.Microsecond) {
				break
			}
			nothingLost(t, servers, before["modern"], stray)
		}
		t.Logf("%s was killed %d times", verb, kills)
		if kills < 8 {
			t.Errorf("%s was killed only %d times: it is faster than the test", verb, kills)
		}
		core, modern := dump(t, servers["core"]), dump(t, servers["modern"])
		if verb == "undo" {
			if !maps.Equal(core, before["core"]) || !maps.Equal(modern, before["modern"]) {
				t.Errorf("undo left %d and %d keys, want the %d and %d from before", len(core), len(modern), len(before["core"]), len(before["modern"]))
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
}

// killedOrDone kills the process a moment after the n-th line of its log, and reports whether it was done before.
func killedOrDone(t *testing.T, cmd *exec.Cmd, n int, moment time.Duration) bool {
	t.Helper()
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "moving") {
			if n--; n == 0 {
				for end := time.Now().Add(moment); time.Now().Before(end); { // shorter than a sleep can be
					runtime.Gosched()
				}
				_ = cmd.Process.Kill() // it may have ended by itself
			}
		}
	}
	err = cmd.Wait()
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

// TestEtcdCheckKeepsItsMemory weighs the program: keys cost little, and the size of values nothing.
func TestEtcdCheckKeepsItsMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system counts otherwise")
	}
	t.Parallel()
	few, large, many := weigh(t, 10_000, 100), weigh(t, 10_000, 12_000), weigh(t, 100_000, 100)
	for depth := range few {
		t.Logf("depth %s: %d KiB for 10000 keys, %d KiB with values of 12 KB, %d KiB for 100000 keys", depth, few[depth], large[depth], many[depth])
		if large[depth]-few[depth] > 24<<10 || many[depth] > 90<<10 {
			t.Errorf("depth %s: %d KiB for 10000 keys, %d KiB with values of 12 KB, %d KiB for 100000 keys: want less than 24 MiB for the values, and 90 MiB in all", depth, few[depth], large[depth], many[depth])
		}
	}
}

// weigh is the most memory in KiB that checks of a file with so many pods hold, by depth. Pages of files are included.
func weigh(t *testing.T, keys, valueBytes int) map[string]int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	spec := strings.Repeat("n", valueBytes)
	writeDB(t, file, keys, func(i int) (string, []byte) {
		return fmt.Sprintf("/registry/pods/team-%02d/web-%06d", i%50, i), fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%06d","uid":"%d",`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs-%d"}]},"spec":{"nodeName":"%s"}}`, i, i, i, spec)
	})
	held := map[string]int{}
	for _, depth := range []string{"keys", "envelope", "objects"} {
		cmd := program(t, "etcd", "check", splitSpec, "--depth", depth, "--snapshot", "core="+file, "--snapshot", "modern="+stores+"split-1.10-1.36-modern.db")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 {
			t.Fatalf("exit code %d, %v:\n%s", code, err, out)
		}
		status, err := os.ReadFile(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], asProgram+"="))
		if err != nil {
			t.Fatal(err)
		}
		_, most, _ := strings.Cut(string(status), "VmHWM:")
		var kib int
		if _, err := fmt.Sscan(most, &kib); err != nil {
			t.Fatalf("%v in %s", err, status)
		}
		held[depth] = kib
	}
	return held
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
				kv := mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision, Version: 1}
				at := append(binary.BigEndian.AppendUint64(nil, uint64(revision)), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
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

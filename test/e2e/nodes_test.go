//go:build e2e && linux

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/test/rig"
)

// onNodes runs a test with nodes: in a sandbox, where programs cannot be built, because no modules can be downloaded.
// The needed ones are built outside.
func onNodes(t *testing.T, run func(t *testing.T), needed ...string) {
	t.Helper()
	if _, inside := rig.Sandboxed(); inside {
		run(t)
		return
	}
	var env []string
	for _, name := range needed {
		program, err := map[string]func() (string, error){fusionctlEnv: fusionctl, reconcilerEnv: reconciler}[name]()
		must(t, err)
		env = append(env, name+"="+program)
	}
	readProofs(t, filepath.Join(rig.RunSandboxed(t, env...), proofsFile))
}

// enterSandbox makes the sandbox ready, in the process that is in one.
func enterSandbox() error {
	if _, inside := rig.Sandboxed(); !inside {
		return nil
	}
	return rig.EnterSandbox()
}

// heldEnv makes TestHoldsANode wait with its node to be killed.
const heldEnv = "FUSIONCTL_E2E_HOLD"

func TestHoldsANode(t *testing.T) {
	if os.Getenv(heldEnv) == "" {
		t.Skip("this is the test that TestKilledTestsLeaveNothing kills")
	}
	onNodes(t, func(t *testing.T) {
		r := rig.New(t)
		server := r.StartAPIServer("apiserver", 15, r.APIServerArgs(15, r.StartEtcd("core")))
		server.WaitReady()
		n := r.StartNode("node-1")
		n.StartKubelet(15, server)
		n.WaitReady(server)
		fmt.Println("the node is ready")
		<-t.Context().Done()
	})
}

// TestKilledTestsLeaveNothing: a test with a node that is killed leaves no process, cgroup, mount or interface, and no
// setting of the kernel changed.
func TestKilledTestsLeaveNothing(t *testing.T) {
	t.Parallel()
	if err := rig.MissingForNodes(); err != nil {
		onNodes(t, nil) // says so, or fails
	}
	if _, inside := rig.Sandboxed(); inside {
		return
	}
	settings := func() (values []string) {
		for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops",
			"net/ipv4/ip_forward"} {
			data, err := os.ReadFile("/proc/sys/" + name)
			must(t, err)
			values = append(values, name+" "+string(data))
		}
		return values
	}
	before := settings()
	program, err := os.Executable()
	must(t, err)
	command := exec.Command(program, "-test.run=^TestHoldsANode$", "-test.v")
	command.Env = append(os.Environ(), heldEnv+"=yes")
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	cgroups := fmt.Sprintf("fusionctl-rig-%d-", command.Process.Pid)
	lines, up := bufio.NewScanner(out), false
	for !up && lines.Scan() {
		up = strings.Contains(lines.Text(), "the node is ready")
	}
	inCgroups := func() (found []string) {
		files, err := filepath.Glob("/proc/[0-9]*/cgroup")
		must(t, err)
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), cgroups) {
				found = append(found, file)
			}
		}
		trees, err := filepath.Glob("/sys/fs/cgroup/*/" + cgroups + "*")
		must(t, err)
		return append(found, trees...)
	}
	if !up || len(inCgroups()) == 0 {
		t.Errorf("the node was not ready, or is not in cgroups of its own; the test would prove nothing")
	}
	must(t, command.Process.Kill())
	_ = command.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for len(inCgroups()) > 0 && time.Now().Before(deadline) {
		pause(t, 100*time.Millisecond)
	}
	if left := inCgroups(); len(left) > 0 {
		t.Errorf("after the test was killed there are %q", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), " rig ") {
		t.Errorf("after the test was killed there are mounts of it:\n%s", mounts)
	}
	interfaces, err := net.Interfaces()
	must(t, err)
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "rig") {
			t.Errorf("after the test was killed there is the interface %s", i.Name)
		}
	}
	if after := settings(); !slices.Equal(before, after) {
		t.Errorf("the kernel's settings are %q, want %q as before", after, before)
	}
}

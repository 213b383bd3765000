package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubefusion/fusionctl/test/rig/packages"
)

// Tests with nodes change the network, mounts and cgroups of their machine. Such a test runs in a second process of the
// test's own program, in a network, a mount and a PID namespace of its own, with its temporary files in memory: when
// that process ends, however it ends, the kernel ends all that it has started and takes back addresses, routes, mounts
// and files. Of cgroups there are no namespaces that end with a process: the first process removes them, and if it is
// killed a third one does.

// nodesEnv makes a test that cannot have nodes fail. Without it the test is skipped.
const nodesEnv = "FUSIONCTL_NODES"

const (
	podCIDR = "10.244.0.0/16"
	// cgroupRoot is where cgroup version 1 is; every controller has a tree of its own below.
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "fusionctl-rig-"
)

// MissingForNodes says what this machine lacks for nodes; nothing when tests with nodes can run.
func MissingForNodes() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("nodes need root"))
	}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "memory", "cgroup.procs")); err != nil {
		missing = append(missing, errors.New("kubelets of old releases need cgroup version 1, below "+cgroupRoot))
	}
	if list := packages.Missing(); len(list) > 0 {
		missing = append(missing, fmt.Errorf("`make rig`, as root, installs Debian's packages %s",
			strings.Join(list, " ")))
	}
	return errors.Join(missing...)
}

var sandboxes atomic.Int32

// places are how many sandboxes run at once: one for each processor. A cluster with nodes uses about one of them, much
// of it only for being there, and other tests run beside it. With more, leases are lost, managers and kubelets start
// again, and each test takes more than three times as long: of three at once two did not come to their end in half an
// hour.
var places = make(chan struct{}, max(2, runtime.NumCPU()))

// RunSandboxed runs the test once more in a sandbox, with the further environment, and returns the folder of its
// results. It waits until there is a place for it. The test fails, is skipped, or has passed when it returns. Call it
// only outside of a sandbox.
func RunSandboxed(t *testing.T, env ...string) (dir string) {
	t.Helper()
	if err := MissingForNodes(); err != nil {
		if os.Getenv(nodesEnv) == "required" {
			t.Fatalf("%s=required: %v", nodesEnv, err)
		}
		fmt.Fprintf(os.Stderr, "%s is skipped: %s\n", t.Name(), strings.ReplaceAll(err.Error(), "\n", "; "))
		t.Skip(err)
	}
	places <- struct{}{}
	defer func() { <-places }()
	leaveOutLate(t, withinForNodes)
	removeAbandonedCgroups()
	// The name of a sandbox is that of its cgroups.
	name := fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), sandboxes.Add(1))
	dir = filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keeper, err := startKeeper(name)
	if err != nil {
		t.Fatalf("starting what removes the cgroups of a killed test: %v", err)
	}
	defer keeper.Close()
	err = runInNamespaces(t, dir, env)
	t.Logf("its containers have computed for %s", computed(name).Round(time.Second))
	if left := removeCgroups(name); left != nil {
		t.Errorf("removing the test's cgroups: %v", left)
	}
	if err != nil {
		t.Errorf("the test in its sandbox: %v", err)
	}
	return dir
}

// runInNamespaces runs this test alone in another process.
func runInNamespaces(t *testing.T, dir string, env []string) error {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	args := []string{"-test.run=" + strings.Join(pattern, "/"), "-test.count=1", "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args,
			fmt.Sprintf("-test.timeout=%s", max(time.Second, time.Until(deadline)-10*time.Second).Round(time.Second)))
	}
	command := exec.Command(program, args...)
	pod, err := podProgram()
	if err != nil {
		return err
	}
	command.Env = append(append(os.Environ(), sandboxEnv+"="+dir, podEnv+"="+pod), env...)
	out, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return err
	}
	defer out.Close()
	command.Stdout, command.Stderr = out, out
	if testing.Verbose() {
		command.Stdout = io.MultiWriter(out, os.Stdout)
		command.Stderr = command.Stdout
	}
	attributes := diesWithParent()
	attributes.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	command.SysProcAttr = attributes
	err = runOnThread(command)
	if err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%w\n%s\nWhat the test itself said last:\n%s", err, text, saidLast(string(text)))
	}
	return nil
}

// saidLast is what a test said itself, without the logs that follow it, which are long: what is kept of the output of
// a run may be its end.
func saidLast(output string) string {
	said := regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .{0,400}`).FindAllString(output, -1)
	return strings.Join(said[max(0, len(said)-12):], "\n")
}

// runOnThread runs a command whose end the kernel ties to that of the thread which started it.
func runOnThread(command *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- command.Run()
	}()
	return <-done
}

// EnterSandbox makes the sandbox ready; TestMain of the second process calls it first.
func EnterSandbox() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping mounts from the machine: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// What the system has in /run is of no use here, and in memory files end with the sandbox. Names there are short
	// enough for sockets. Kubelets tell file systems by their source, and the machine has others of the source tmpfs.
	if err := unix.Mount("rig", "/run", "tmpfs", 0, "size=80%,mode=755"); err != nil {
		return fmt.Errorf("mounting a file system in memory: %w", err)
	}
	const temporary = "/run/tmp"
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return err
	}
	if err := os.Setenv("TMPDIR", temporary); err != nil {
		return err
	}
	for _, words := range []string{
		"ip link set lo up",
		"ip link add " + bridgeName + " type bridge",
		"ip address add " + Bridge + "/24 dev " + bridgeName,
		"ip link set " + bridgeName + " up",
	} {
		fields := strings.Fields(words)
		if out, err := exec.Command(fields[0], fields[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", words, err, out)
		}
	}
	return nil
}

// cgroupTrees are the folders of the name in all controllers' trees.
func cgroupTrees(name string) []string {
	trees, err := filepath.Glob(filepath.Join(cgroupRoot, "*", name))
	if err != nil {
		panic("rig: internal error: " + err.Error())
	}
	return trees
}

// computed is what the processes below the cgroup have computed; what the test starts beside containers is not there.
func computed(name string) time.Duration {
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cpuacct", name, "cpuacct.usage"))
	if err != nil {
		return 0
	}
	used, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(used)
}

// removeCgroups removes the cgroups of a sandbox, whose processes have ended or are about to.
func removeCgroups(name string) error {
	var last error
	for range 100 {
		last = nil
		for _, tree := range cgroupTrees(name) {
			last = errors.Join(last, removeTree(tree))
		}
		if last == nil {
			return nil
		}
		time.Sleep(interval)
	}
	return last
}

// removeTree removes folders from below; the files of cgroups cannot be removed and go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// removeAbandonedCgroups removes those of processes that are no more.
func removeAbandonedCgroups() {
	for _, tree := range cgroupTrees(cgroupPrefix + "*") {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(tree), cgroupPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
			_ = removeTree(tree) // another test may be at it
		}
	}
}

// startKeeper starts a process, in a session of its own, that removes the sandbox's cgroups when this process is gone.
// It notices by the end of its input. Closing it ends it.
func startKeeper(name string) (io.Closer, error) {
	const script = `while read -r line; do [ "$line" = done ] && exit; done
for i in $(seq 100); do
	for tree in /sys/fs/cgroup/*/"$0"; do find "$tree" -depth -type d -exec rmdir {} \; 2>/dev/null; done
	ls -d /sys/fs/cgroup/*/"$0" >/dev/null 2>&1 || exit
	sleep 0.1
done`
	command := exec.Command("/bin/sh", "-c", script, name)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return keeper{command, input}, nil
}

type keeper struct {
	command *exec.Cmd
	input   io.WriteCloser
}

func (k keeper) Close() error {
	_, err := io.WriteString(k.input, "done\n")
	return errors.Join(err, k.input.Close(), k.command.Wait())
}

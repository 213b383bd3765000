package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

const asProgram = "FUSIONCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// etcdVerb is a process of the program that reads a store at the endpoint, and another one from a file.
func etcdVerb(t *testing.T, verb, endpoint string, more ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self,
		append([]string{"etcd", verb, "../../internal/cli/testdata/split-1.10-1.36.yaml", "--endpoints",
			"core=" + endpoint}, more...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm")
	return cmd
}

var modernFromFile = []string{"--snapshot", "modern=../../pkg/etcd/snapshot/testdata/split-1.10-1.36-modern.db"}

// pods is a store with so many of them.
func pods(t *testing.T, n int) *etcdtest.Server {
	t.Helper()
	server := etcdtest.Start(t)
	values := map[string][]byte{}
	for i := range n {
		values[fmt.Sprintf("/registry/pods/default/p-%05d", i)] = fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%05d","namespace":"default","uid":"%d"},"spec":{"nodeName":"%0500d"}}`, i, i, i)
	}
	server.Put(t, values)
	return server
}

// TestSignalsEndACheckWithWhatItHasSeen interrupts a check whose store hangs in the middle.
func TestSignalsEndACheckWithWhatItHasSeen(t *testing.T) {
	t.Parallel()
	server := pods(t, 5000)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			proxy := etcdtest.NewProxy(t, server.Endpoint)
			hung := proxy.HangAfter(1 << 20)
			cmd := etcdVerb(t, "check", proxy.Endpoint, append(modernFromFile, "-o", "json", "--timeout", "5m")...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-hung
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its exit code is looked at
			var report struct {
				Complete   bool
				Incomplete []string
				Stores     []struct {
					Name string
					Keys int
				}
				Findings []struct{ Rule, Subject string }
			}
			if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
				t.Fatalf("%v in %q, stderr %q", err, stdout.String(), stderr.String())
			}
			if cmd.ProcessState.ExitCode() != 130 || report.Complete || len(report.Incomplete) == 0 ||
				report.Stores[0].Keys == 0 || report.Stores[0].Keys >= 5000 {
				t.Errorf("exit code %d, complete %v, incomplete %q, %d keys; want 130 and a part of the keys",
					cmd.ProcessState.ExitCode(), report.Complete, report.Incomplete, report.Stores[0].Keys)
			}
			for _, f := range report.Findings {
				if strings.HasPrefix(f.Subject, "core:") {
					t.Errorf("finding %+v of what was not read", f)
				}
			}
		})
	}
}

func TestSignalsEndAWatch(t *testing.T) {
	t.Parallel()
	server, other := pods(t, 10), pods(t, 20)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd := etcdVerb(t, "watch", server.Endpoint, "--endpoints", "modern="+other.Endpoint)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := json.NewDecoder(stdout)
			for event := ""; event != "checked"; {
				var line struct{ Event string }
				if err := lines.Decode(&line); err != nil {
					t.Fatal(err)
				}
				event = line.Event
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				err = lines.Decode(&struct{}{})
			}
			if err != io.EOF {
				t.Errorf("the last line is cut: %v", err)
			}
			_ = cmd.Wait() // its exit code is looked at
			if code := cmd.ProcessState.ExitCode(); code != 130 || strings.Contains(stderr.String(), "panic") {
				t.Errorf("exit code %d, stderr %q; want 130", code, stderr.String())
			}
		})
	}
}

// terminal is a pseudo terminal: what is written to one side is read from the other.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestProgressOnATerminal: how many keys of how many, how fast, and how long it still takes; on anything else, nothing.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	server := pods(t, 2000)
	limited := append(modernFromFile, "--rate", "800")
	master, slave := terminal(t)
	var drawn bytes.Buffer
	var group sync.WaitGroup
	// it ends with an error when nobody has the terminal open any more
	group.Go(func() { _, _ = io.Copy(&drawn, master) })
	cmd := etcdVerb(t, "check", server.Endpoint, limited...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	_ = cmd.Wait() // there are findings
	group.Wait()
	for _, says := range []string{" of 2", " %, ", " keys/s", " s left"} {
		if !strings.Contains(drawn.String(), says) {
			t.Errorf("drawn: %q, want %q in it", drawn.String(), says)
		}
	}
	if !strings.Contains(drawn.String(), "\r\x1b[K") || strings.Contains(stdout.String(), "keys/s") {
		t.Errorf("the line is not taken off, or on stdout: %q", stdout.String())
	}

	cmd = etcdVerb(t, "check", server.Endpoint, modernFromFile...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run()
	if stderr.Len() > 0 {
		t.Errorf("stderr that is no terminal gets %q", stderr.String())
	}
}

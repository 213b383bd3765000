// Package rig runs real control planes in tests: etcd inside the test's process, API servers and controller managers of
// several releases as processes of their own, all on loopback, with certificates and logs in a folder of the test.
//
//	r := rig.New(t)
//	core := r.StartEtcd("core")
//	legacy := r.StartAPIServer("legacy", 6, r.APIServerArgs(6, core))
//	legacy.WaitReady()
//	err := legacy.Client("alice", "developers").Call(ctx, "GET", "/api/v1/namespaces", nil, &list)
//
// A server takes the list of arguments that it would have in production; only addresses and file names are exchanged
// (MapArgs). Everything that a Rig starts ends with the test, however the test ends: see Process. When the test fails,
// the end of every process's log is in its output; `go test -artifacts` keeps the logs, certificates and databases.
//
// The programs are built by `make rig`. A test without them fails; it is never skipped.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/freeport"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// The bounds of waiting. They are long because machines that run tests are busy; nothing waits longer than it has to.
const (
	readyWithin = 5 * time.Minute
	eventually  = 10 * time.Minute
	interval    = 100 * time.Millisecond
)

// Rig is what one test runs. Its methods fail the test instead of returning an error, so they are for the test's
// goroutine.
type Rig struct {
	// PKI issues the certificates of the test.
	PKI *PKI

	t         testing.TB
	dir       string
	host      string // where servers serve, if the plan does not say it
	processes []*Process
	etcds     []*Etcd
	nodes     int
}

// New makes an empty rig whose parts end with the test.
func New(t testing.TB) *Rig {
	t.Helper()
	leaveOutLate(t, 1)
	r := &Rig{t: t, dir: t.ArtifactDir(), host: "127.0.0.1"}
	if _, inside := Sandboxed(); inside {
		r.host = Bridge
	}
	pki, err := newPKI(filepath.Join(r.dir, "pki"))
	if err != nil {
		t.Fatalf("making the certificate authority of the test: %v", err)
	}
	r.PKI = pki
	t.Cleanup(r.close)
	return r
}

// Dir is a folder of the test for files that its processes read.
func (r *Rig) Dir() string { return r.dir }

// close ends everything, last started first, and tells a failing test what the processes wrote.
func (r *Rig) close() {
	for _, p := range slices.Backward(r.processes) {
		if err := p.endedByItself(); err != nil {
			r.t.Errorf("%s ended by itself: %v", p.Name, err)
		}
		p.Kill()
	}
	for _, e := range slices.Backward(r.etcds) {
		e.Stop()
	}
	r.logComputing()
	if r.t.Failed() {
		for _, p := range r.processes {
			r.t.Logf("the end of the log of %s (go test -artifacts keeps all of it):\n%s", p.Name, p.LogTail(10))
		}
	}
}

// logComputing logs what each process has computed: the time of tests is that of the processors.
func (r *Rig) logComputing() {
	var all time.Duration
	var each []string
	for _, p := range slices.SortedStableFunc(slices.Values(r.processes), func(a, b *Process) int {
		return cmp.Compare(b.used, a.used)
	}) {
		if all += p.used; p.used >= time.Second {
			each = append(each, fmt.Sprintf("%s %s", p.Name, p.used.Round(time.Second)))
		}
	}
	r.t.Logf("its processes have computed for %s: %s", all.Round(time.Second), strings.Join(each, ", "))
}

// Binary finds a program of a release of Kubernetes that `make rig` built.
// Errors: the file that is missing, and what makes it.
func Binary(program string, minor kubever.Minor) (string, error) {
	return Program(program + "-" + minor.String())
}

// Program finds a program that `make rig` built: etcd, etcd-3.5, etcd-3.4, etcdctl and helm are of the release that the
// go.mod of their folder names.
// Errors: the file that is missing, and what makes it.
func Program(name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	name = filepath.Join("test", "rig", "bin", name)
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		return "", fmt.Errorf("%s is not built: run `make rig` first", name)
	}
	return filepath.Join(root, name), nil
}

// moduleRoot is the folder of our go.mod; tests run in the folder of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working folder")
		}
	}
}

// Eventually tries the probe until it returns nil, for ten minutes at most; then the test fails with the last
// error.
func (r *Rig) Eventually(what string, probe func(context.Context) error) {
	r.t.Helper()
	if err := poll(r.t.Context(), eventually, nil, probe); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// Throughout tries the probe again and again for the time given; the test fails at the first error.
func (r *Rig) Throughout(span time.Duration, what string, probe func(context.Context) error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), span)
	defer cancel()
	for start := time.Now(); ; {
		// Each probe has the time it needs, beyond the span too: running out of the span is not its failure.
		if err := probe(r.t.Context()); err != nil {
			r.t.Fatalf("%s: after %s: %v", what, time.Since(start).Round(100*time.Millisecond), err)
		}
		select {
		case <-ctx.Done():
			if err := r.t.Context().Err(); err != nil {
				r.t.Fatalf("%s: %v", what, err)
			}
			return
		case <-time.After(interval):
		}
	}
}

// poll tries the probe until it returns nil, the time is over, or the channel is closed.
func poll(ctx context.Context, within time.Duration, ended <-chan struct{}, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the process ended; before that: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, err)
		case <-ticker.C:
		}
	}
}

// Port returns a free port of 127.0.0.1, a different one at each call.
func (r *Rig) Port() int {
	r.t.Helper()
	port, err := freeport.Next()
	if err != nil {
		r.t.Fatal(err)
	}
	return port
}

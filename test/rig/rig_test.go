package rig

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// forever is longer than any test. Where a program has no cgo, the runtime ends one that waits for nothing at all.
func forever() { time.Sleep(time.Hour) }

// TestChild is not a test: it is what the processes of these tests run. The argument says what the child does.
func TestChild(t *testing.T) {
	switch flag.Arg(0) {
	case "": // not a child
	case "wait":
		fmt.Println("waiting")
		forever()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("waiting")
		forever()
	case "exit":
		fmt.Println("last words")
		os.Exit(3)
	case "parent": // starts a child of its own and says who that is
		p := startChild(New(t), "wait")
		fmt.Println("child", p.process.Pid)
		forever()
	}
}

// startChild runs this test binary as a process of the rig.
func startChild(r *Rig, what string) *Process {
	r.t.Helper()
	binary, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.start("child-"+what, binary, []string{"-test.run=^TestChild$", what})
}

// What a kubelet starts again, the rig does, so many times; then the process has ended by itself.
func TestProcessIsStartedAgain(t *testing.T) {
	r := New(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Name: "child", rig: r, program: binary, args: []string{"-test.run=^TestChild$", "exit"},
		log: filepath.Join(r.dir, "child.log"), restarts: 2}
	p.run()
	select {
	case <-p.ended:
	case <-t.Context().Done():
		t.Fatal("it never ended")
	}
	if got := strings.Count(p.Log(), "last words"); got != 3 {
		t.Errorf("the process ran %d times, want 3:\n%s", got, p.Log())
	}
	if err := p.endedByItself(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended by itself: %v, want exit status 3", err)
	}
}

// A test that begins too late is left out; the parts of one that has begun are not.
func TestLateTestsAreLeftOut(t *testing.T) {
	progress := filepath.Join(t.TempDir(), "progress")
	t.Setenv(progressEnv, progress)
	var ran []string
	begins := func(t *testing.T) {
		leaveOutLate(t, 1)
		ran = append(ran, t.Name())
	}
	for _, within := range []string{"", "1000h", "0s"} {
		t.Setenv(withinEnv, within)
		t.Run("within "+within, begins)
	}
	t.Run("parts of a test that does nothing", func(t *testing.T) { t.Run("part", begins) })
	t.Setenv(withinEnv, "")
	t.Run("early", func(t *testing.T) {
		begins(t)
		t.Setenv(withinEnv, "0s")
		t.Run("part", begins)
	})
	t.Setenv(withinEnv, time.Since(began).Round(time.Second).String())
	t.Run("with nodes", func(t *testing.T) {
		leaveOutLate(t, 0)
		ran = append(ran, t.Name())
	})
	const name = "TestLateTestsAreLeftOut/"
	want := []string{name + "within_", name + "within_1000h", name + "early", name + "early/part"}
	if !slices.Equal(ran, want) {
		t.Errorf("these began: %q, want %q", ran, want)
	}
	text, err := os.ReadFile(progress)
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^[0-9:]{8} `+name+`| [0-9]+ s$`).ReplaceAllString(string(text), "")
	if want := `within_ begins
within_ has passed after
within_1000h begins
within_1000h has passed after
within_0s is left out
parts_of_a_test_that_does_nothing/part is left out
early begins
early has passed after
with_nodes is left out
`; got != want {
		t.Errorf("the progress is\n%swant\n%s", got, want)
	}
}

func TestStoppedProcessStaysStopped(t *testing.T) {
	r := New(t)
	p := startChild(r, "wait")
	p.MayEnd(2)
	awaitOutput(p, "waiting")
	p.Stop()
	if got := strings.Count(p.Log(), "waiting"); got != 1 {
		t.Errorf("the process ran %d times, want once:\n%s", got, p.Log())
	}
}

func awaitOutput(p *Process, text string) {
	p.Wait("say "+text, func(context.Context) error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

// recorder is a test that may fail: it keeps what it is told.
type recorder struct {
	testing.TB
	failed   bool
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()                        {}
func (r *recorder) Failed() bool                   { return r.failed }
func (r *recorder) Cleanup(f func())               { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(format string, a ...any)   { r.said = append(r.said, fmt.Sprintf(format, a...)) }
func (r *recorder) Errorf(format string, a ...any) { r.Logf(format, a...); r.failed = true }
func (r *recorder) Fatal(a ...any)                 { r.Fatalf("%s", fmt.Sprint(a...)) }
func (r *recorder) Fatalf(format string, a ...any) { r.Errorf(format, a...); runtime.Goexit() }

// record runs a test that may fail, with its cleanups, and returns what it said and whether it failed.
func record(t *testing.T, test func(*Rig)) (said string, failed bool) {
	t.Helper()
	fake := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(fake.cleanups) {
				cleanup()
			}
		}()
		test(New(fake))
	}()
	<-done
	return strings.Join(fake.said, "\n"), fake.failed
}

func TestMissingBinaryNamesMakeRig(t *testing.T) {
	_, err := Binary(kubever.APIServer, 7)
	if err == nil || !strings.Contains(err.Error(), "make rig") ||
		!strings.Contains(err.Error(), filepath.Join("test", "rig", "bin", "kube-apiserver-1.7")) {
		t.Errorf("Binary = %v, want an error that names the file and make rig", err)
	}
}

func TestReleasesAreTheFoldersOfTheRig(t *testing.T) {
	releases, err := Releases()
	if err != nil {
		t.Fatal(err)
	}
	released := func(m kubever.Minor) kubever.Version {
		v, err := kubever.Parse(kubever.Release(m))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := []Release{
		{Minor: 6, Version: released(6), Programs: []string{"kube-apiserver", "kube-controller-manager"}},
		{Minor: 10, Version: released(10), Programs: []string{"kube-apiserver", "kube-controller-manager",
			"kube-proxy", "kube-scheduler", "kubelet"}},
		{Minor: 15, Version: released(15), Programs: []string{"kube-apiserver", "kube-controller-manager",
			"kube-proxy", "kube-scheduler", "kubectl", "kubelet"}},
		{Minor: 17, Version: released(17), Programs: []string{"kubelet"}},
		{Minor: 36, Version: released(36), Programs: []string{"kube-apiserver", "kube-controller-manager",
			"kube-proxy", "kube-scheduler", "kubectl", "kubelet"}},
	}
	for _, release := range want { // others may be added
		if !slices.ContainsFunc(releases, func(r Release) bool { return cmp.Equal(r, release) }) {
			t.Errorf("Releases = %v, want %v among them", releases, release)
		}
	}
	newest := kubever.Oldest // with every change
	for _, release := range releases {
		if !release.OnRequest && slices.Contains(release.Programs, kubever.APIServer) {
			newest = release.Minor
		}
	}
	if newest != kubever.Suggested {
		t.Errorf("make rig builds %s at last, and kubever.Suggested is %s", newest, kubever.Suggested)
	}
}

func TestProcessesEndWithTheTest(t *testing.T) {
	var child *Process
	said, failed := record(t, func(r *Rig) {
		child = startChild(r, "wait")
		awaitOutput(child, "waiting")
	})
	if failed {
		t.Errorf("the test failed: %s", said)
	}
	if err := child.process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the test the process can be signalled (%v), want it gone", err)
	}
}

func TestFailingTestShowsTheLogs(t *testing.T) {
	said, failed := record(t, func(r *Rig) {
		awaitOutput(startChild(r, "wait"), "waiting")
		r.t.Errorf("some failure")
	})
	if !failed || !strings.Contains(said, "the end of the log of child-wait") ||
		!strings.Contains(said, "    waiting") {
		t.Errorf("the test said:\n%s\nwant the log of its process", said)
	}
}

func TestProcessThatEndsByItselfFailsTheTest(t *testing.T) {
	said, failed := record(t, func(r *Rig) {
		child := startChild(r, "exit")
		<-child.ended
	})
	if !failed || !strings.Contains(said, "child-exit ended by itself: exit status 3") ||
		!strings.Contains(said, "last words") {
		t.Errorf("the test said:\n%s\nwant that its process ended, and its last words", said)
	}
}

func TestWaitingEndsWithTheProcess(t *testing.T) {
	said, failed := record(t, func(r *Rig) {
		child := startChild(r, "exit")
		child.Wait("be ready", func(context.Context) error { return errors.New("nobody there") })
	})
	if !failed || !strings.Contains(said, "waiting for child-exit to be ready: the process ended; before that: "+
		"nobody there") {
		t.Errorf("the test said:\n%s\nwant the wait to end with the process", said)
	}
}

func TestExitIsTheProcessesOwn(t *testing.T) {
	said, failed := record(t, func(r *Rig) {
		if code, err := startChild(r, "exit").Exit(t.Context()); code != 3 || err != nil {
			r.t.Errorf("Exit = %d, %v, want 3", code, err)
		}
	})
	if failed {
		t.Errorf("the test failed: %s", said)
	}
}

func TestStopDoesNotAskForever(t *testing.T) {
	r := New(t)
	child := startChild(r, "stubborn")
	awaitOutput(child, "waiting")
	child.stopWithin = 200 * time.Millisecond
	start := time.Now()
	child.Stop()
	if took := time.Since(start); took < child.stopWithin {
		t.Errorf("the process ended after %s, want it to have had %s", took, child.stopWithin)
	}
	if err := child.process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after Stop the process can be signalled (%v), want it gone", err)
	}
}

func TestRestartKeepsTheLog(t *testing.T) {
	r := New(t)
	child := startChild(r, "wait")
	awaitOutput(child, "waiting")
	before := child.process.Pid
	child.Restart()
	awaitOutput(child, "waiting\nwaiting")
	if child.process.Pid == before {
		t.Error("the process is the same after a restart")
	}
}

func TestEventuallyReportsTheLastError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := poll(ctx, time.Hour, nil, func(context.Context) error { cancel(); return errors.New("the last error") })
	if err == nil || !strings.Contains(err.Error(), "the last error") {
		t.Errorf("poll = %v, want the probe's own error", err)
	}
}

func TestThroughoutFailsAtTheFirstError(t *testing.T) {
	probes := 0
	said, failed := record(t, func(r *Rig) {
		r.Throughout(time.Hour, "keeping pods", func(context.Context) error {
			if probes++; probes == 3 {
				return errors.New("one is gone")
			}
			return nil
		})
	})
	if !failed || probes != 3 || !strings.Contains(said, "keeping pods: after ") ||
		!strings.Contains(said, "one is gone") {
		t.Errorf("after %d probes the test said %q, want the failure of the third", probes, said)
	}
}

func TestServersKnowTheUsersOfTheRig(t *testing.T) {
	r := New(t)
	certFile, keyFile, err := r.PKI.Serving("server", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		subject := request.TLS.PeerCertificates[0].Subject
		fmt.Fprintf(w, `{"user": %q, "groups": %q}`, subject.CommonName, strings.Join(subject.Organization, ","))
	}))
	config, err := r.PKI.clientTLS("server")
	if err != nil {
		t.Fatal(err)
	}
	config.ClientCAs, config.ClientAuth = r.PKI.pool, tls.RequireAndVerifyClientCert
	if config.Certificates[0], err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	server.TLS = config
	server.StartTLS()
	defer server.Close()

	api := &APIServer{Process: &Process{rig: r}, URL: server.URL}
	var got struct{ User, Groups string }
	if err := api.Client("alice", "developers", "admins").Call(t.Context(), http.MethodGet, "/", nil,
		&got); err != nil {
		t.Fatal(err)
	}
	if got.User != "alice" || got.Groups != "admins,developers" {
		t.Errorf("the server saw %+v, want alice of admins and developers", got)
	}
	for _, file := range []string{keyFile, r.PKI.File("ca.key"), r.PKI.File("sa.key")} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", filepath.Base(file), info.Mode(), err)
		}
	}
}

func TestClientReportsWhatTheServerSaid(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/status":
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"kind": "Status", "message": "alice may not"}`)
		case "/text":
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, "out of order\n")
		case "/busy":
			if asked++; asked == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			io.WriteString(w, "{}")
		case "/patch":
			io.WriteString(w, `{"type": "`+request.Header.Get("Content-Type")+`"}`)
		}
	}))
	defer server.Close()
	client := newClient(server.URL, nil)
	for path, want := range map[string]*StatusError{
		"/status": {Method: "GET", Path: "/status", Code: 403, Message: "alice may not"},
		"/text":   {Method: "GET", Path: "/text", Code: 500, Message: "out of order"},
	} {
		err := client.Call(t.Context(), http.MethodGet, path, nil, nil)
		got, _ := errors.AsType[*StatusError](err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(StatusError{})); diff != "" || Code(err) != want.Code {
			t.Errorf("Call %s: %v (-want +got):\n%s", path, err, diff)
		}
	}
	var patched struct{ Type string }
	if err := client.Call(t.Context(), http.MethodPatch, "/patch", map[string]any{}, &patched); err != nil ||
		patched.Type != "application/merge-patch+json" {
		t.Errorf("PATCH was sent as %q (%v), want a merge patch", patched.Type, err)
	}
	if err := client.Call(t.Context(), http.MethodGet, "/busy", nil, nil); err != nil || asked != 2 {
		t.Errorf("a busy server that says when to come again is asked %d times (%v), want twice", asked, err)
	}
	if Code(nil) != 200 || Code(errors.New("no answer")) != 0 {
		t.Errorf("Code(nil) = %d, Code(no answer) = %d, want 200 and 0", Code(nil), Code(errors.New("no answer")))
	}
}

func TestEtcdKeepsItsDataAcrossARestart(t *testing.T) {
	r := New(t)
	etcd := r.StartEtcd("core")
	if _, err := etcd.Client().Put(t.Context(), "/registry/a", "1"); err != nil {
		t.Fatal(err)
	}
	url := etcd.URL
	etcd.Stop()
	etcd.Start()
	keys, err := etcd.Keys(t.Context(), "/registry/")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/registry/a"}, keys); diff != "" || etcd.URL != url {
		t.Errorf("after a restart at %s (before: %s) the keys are (-want +got):\n%s", etcd.URL, url, diff)
	}
}

func TestMapArgsChangesValuesOnly(t *testing.T) {
	got, err := MapArgs([]string{"--etcd-servers=https://10.0.0.11:2379", "--profiling=false"},
		func(name, value string) string {
			if name == "etcd-servers" {
				return strings.ReplaceAll(value, "10.0.0.11:2379", "127.0.0.1:23456")
			}
			return value
		})
	if diff := cmp.Diff([]string{"--etcd-servers=https://127.0.0.1:23456", "--profiling=false"}, got); diff != "" ||
		err != nil {
		t.Errorf("MapArgs: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"etcd-servers=x", "--profiling", "--=x", ""} {
		if _, err := MapArgs([]string{bad}, func(_, value string) string { return value }); err == nil {
			t.Errorf("MapArgs accepted %q", bad)
		}
	}
}

func TestArgumentsFitTheRelease(t *testing.T) {
	rows := []arg{
		{flag: "insecure-port", value: "0"},
		{flag: "service-account-signing-key-file", value: "sa.key", in: since12},
		{flag: "admission-control", value: "ServiceAccount", in: to9},
		{flag: "secure-port", value: "6443"},
	}
	for minor, want := range map[kubever.Minor][]string{
		6:  {"--insecure-port=0", "--admission-control=ServiceAccount", "--secure-port=6443"},
		10: {"--insecure-port=0", "--secure-port=6443"},
		36: {"--service-account-signing-key-file=sa.key", "--secure-port=6443"},
	} {
		if diff := cmp.Diff(want, argsFor(kubever.APIServer, minor, rows)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", minor, diff)
		}
	}
}

func TestServersAreReachedWhereTheirArgumentsSay(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--bind-address=127.0.0.1 --secure-port=23456", "https://127.0.0.1:23456"},
		{"--secure-port=23456", "https://127.0.0.1:23456"},
		{"--bind-address=0.0.0.0 --secure-port=1 --secure-port=23456", "https://127.0.0.1:23456"},
		{"--bind-address=::1 --secure-port=23456", "https://[::1]:23456"},
		{"--secure-port=0", ""},
		{"--port=23456", ""},
	} {
		if got := serving(strings.Fields(test.args), "https", "bind-address", "secure-port"); got != test.want {
			t.Errorf("%s is reached at %q, want %q", test.args, got, test.want)
		}
	}
}

package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

func probeOf(t *testing.T, at string) *plan.Probe {
	t.Helper()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Probe{Scheme: "HTTP", Host: host, Port: number, Path: "/healthz"}
}

func TestReadyWantsHealthAndVersion(t *testing.T) {
	for _, c := range []struct{ health, version, want, says string }{
		{"ok", "v1.36.3", "1.36.3", ""},
		{"ok", "v1.36.3", "1.36", ""},
		{"ok", "v1.6.13-acme.4", "1.6.13-acme.4", ""},
		{"ok", "v1.36.3", "1.3", "is of version v1.36.3, want 1.3"},
		{"ok", "v1.15.12", "1.36.3", "is of version v1.15.12"},
		{`{"health":"true"}`, "", "", ""},
		{`{"health":"false"}`, "", "", `"health":"false"`},
		{`{"health": "true", "reason": ""}`, "", "", ""},
		{`{"health":"","reason":"\"health\":\"true\""}`, "", "", `"health":""`},
		{"", "", "", "500"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := c.health
			if r.URL.Path == "/version" {
				text = `{"gitVersion":"` + c.version + `"}`
			}
			if text == "" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write([]byte(text))
		}))
		probe := probeOf(t, server.Listener.Addr().String())
		err := ready(t.Context(), &transition.Check{Kind: transition.Ready, Probe: probe, Version: c.want})
		if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("ready of %+v = %v", c, err)
		}
		if err := gone(t.Context(), probe); err == nil || !strings.Contains(err.Error(), "accepts connections") {
			t.Errorf("gone of a server that listens = %v", err)
		}
		server.Close()
		h := &Host{Wait: time.Minute}
		if err := h.Check(t.Context(), "", &transition.Check{Kind: transition.Gone, Probe: probe}); err != nil {
			t.Errorf("gone of a server that has stopped = %v", err)
		}
	}
}

// TestReadyPresentsItsCertificate: a server that lets in clients with certificates alone is asked with the check's.
func TestReadyPresentsItsCertificate(t *testing.T) {
	lifetime := pki.LifetimeOf(time.Now(), time.Hour)
	authority, ca, err := pki.NewAuthority("ca", lifetime)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	issue := func(name, usage string) (cert, key string) {
		files, err := authority.Issue(plan.Certificate{CommonName: name, IPs: []string{"127.0.0.1"},
			Usages: []string{usage}}, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		return write(name+".crt", files.Certificate), write(name+".key", files.Key)
	}
	serving, servingKey := issue("server", plan.UsageServer)
	pair, err := tls.LoadX509KeyPair(serving, servingKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.Certificate)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.PeerCertificates[0].Subject.CommonName != "controllers" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients}
	server.StartTLS()
	defer server.Close()
	check := &transition.Check{Kind: transition.Ready, Probe: probeOf(t, server.Listener.Addr().String()),
		CA: write("ca.crt", ca.Certificate)}
	check.Probe.Scheme = "HTTPS"
	if err := ready(t.Context(), check); err == nil {
		t.Error("without a certificate = nil")
	}
	for name, want := range map[string]bool{"controllers": true, "other": false} {
		check.Cert, check.Key = issue(name, plan.UsageClient)
		if err := ready(t.Context(), check); (err == nil) != want {
			t.Errorf("with the certificate of %s = %v, want ready %t", name, err, want)
		}
	}
}

// TestSilentHostsAcceptNoConnection: what does not answer, and what refuses, is silent; what accepts is not lost.
func TestSilentHostsAcceptNoConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	h := &Host{}
	check := &transition.Check{Kind: transition.Silent, Addresses: []string{"127.0.0.1:1", address}}
	if err := h.Check(t.Context(), "", check); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("one that accepts connections: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(t.Context(), "", check); err != nil {
		t.Errorf("ones that refuse: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h.Check(ctx, "", check) == nil {
		t.Error("a look that was broken off shows nothing")
	}
	check.Addresses = []string{"127.0.0.1:99999"}
	if err := h.Check(t.Context(), "", check); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("an address at which nobody can look: %v", err)
	}
}

// TestWhatIsNoAnswer: what another machine, or a router, says of a connection that was tried is silence; why none was
// tried is not.
func TestWhatIsNoAnswer(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{os.ErrDeadlineExceeded, true},
		{syscall.ECONNREFUSED, true},
		{syscall.EHOSTUNREACH, true},
		{syscall.ETIMEDOUT, true},
		{syscall.ENETUNREACH, false},
		{syscall.EPERM, false},
		{syscall.EACCES, false},
		{syscall.EMFILE, false},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
	} {
		if got := unanswered(&net.OpError{Op: "dial", Net: "tcp", Err: test.err}); got != test.want {
			t.Errorf("%v: silence = %t, want %t", test.err, got, test.want)
		}
	}
}

// TestGoneWantsToBeRefused: an address that cannot be asked says nothing of what listens there.
func TestGoneWantsToBeRefused(t *testing.T) {
	h := &Host{Wait: 20 * time.Millisecond}
	nowhere := &plan.Probe{Host: "127.0.0.1", Port: 99999}
	if err := h.Check(t.Context(), "", &transition.Check{Kind: transition.Gone, Probe: nowhere}); err == nil {
		t.Error("gone at an address that cannot be dialled = nil")
	}
}

// TestGoneWantsNoProcess: one that begins does not listen yet, and one that ends listens no more.
func TestGoneWantsNoProcess(t *testing.T) {
	nothing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := nothing.Addr().(*net.TCPAddr).Port
	if err := nothing.Close(); err != nil {
		t.Fatal(err)
	}
	args := []string{"--name=gone-" + strconv.Itoa(port), "--b=c d"}
	process := exec.Command("sh", "-c", "read line", "etcd", args[0], "--b", "c d", "--more")
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	h := &Host{Wait: time.Second}
	check := &transition.Check{Kind: transition.Gone, Program: "etcd", Args: args,
		Probe: &plan.Probe{Host: "127.0.0.1", Port: port}}
	if err := h.Check(t.Context(), "", check); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("while its process is there: %v", err)
	}
	other := *check
	other.Args = append(slices.Clone(args), "--other")
	if err := h.Check(t.Context(), "", &other); err != nil {
		t.Errorf("while a process with fewer arguments is there: %v", err)
	}
	in.Close()
	if err := process.Wait(); err == nil {
		t.Error("read ends without an error")
	}
	if err := h.Check(t.Context(), "", check); err != nil {
		t.Errorf("when its process has ended: %v", err)
	}
}

func TestRunsWantsEveryProcess(t *testing.T) {
	const legacy, modern = "/hyperkube controller-manager --controllers=*,-garbagecollector --v=2",
		"kube-controller-manager --controllers=deployment --leader-elect=true --kubeconfig=/etc/modern.conf"
	check := &transition.Check{Kind: transition.Runs, Program: "kube-controller-manager",
		Args: []string{"--controllers=*,-garbagecollector"}, Others: [][]string{strings.Fields(modern)[1:]}}
	for _, c := range []struct {
		running []string
		says    string // "" for nil
	}{
		{[]string{legacy}, ""},
		{[]string{legacy, modern, "sleep 3"}, ""},
		{[]string{"/usr/bin/kube-controller-manager --controllers *,-garbagecollector"}, ""},
		{[]string{legacy, "/hyperkube controller-manager --v=2"}, "a process kube-controller-manager runs without"},
		{[]string{legacy, "kube-controller-manager"}, "runs without --controllers=*,-garbagecollector"},
		{[]string{modern}, "no process kube-controller-manager"},
		{[]string{"cloud-controller-manager --controllers=*,-garbagecollector"}, "no process"},
		{nil, "no process"},
	} {
		var commands [][]string
		for _, line := range c.running {
			commands = append(commands, strings.Fields(line))
		}
		if err := runs(check, commands); (c.says == "") != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("runs among %q = %v, want %q", c.running, err, c.says)
		}
	}
	if err := (&Host{}).Check(t.Context(), "", check); err == nil {
		t.Error("a program that does not run here = nil")
	}
}

// TestStoresAgreeAsFarAsTheSpecAccepts: every error is named, and one that is accepted counts no more.
func TestStoresAgreeAsFarAsTheSpecAccepts(t *testing.T) {
	m := storetest.SplitMap()
	check := &transition.Check{Kind: transition.StoresAgree, Map: m}
	for _, name := range []string{"core", "modern"} {
		server := etcdtest.Start(t)
		check.Stores = append(check.Stores, plan.Store{Name: name, Endpoints: []string{server.Endpoint}})
		if name == "modern" {
			server.Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("pod"),
				"/registry/minions/stray": []byte("node")})
		}
	}
	h := &Host{}
	check.Hint = "write them again"
	var found *DisagreeError
	if err := h.Check(t.Context(), "", check); !errors.As(err, &found) || len(found.Findings) < 2 ||
		!strings.Contains(err.Error(), check.Hint) {
		t.Fatalf("stores that do not agree = %v, want both errors and what to do", err)
	}
	for _, f := range found.Findings {
		check.Accept = append(check.Accept, finding.Acceptance{Rule: f.Rule, Subject: f.Subject})
	}
	if err := h.Check(t.Context(), "", check); err != nil {
		t.Errorf("stores with accepted findings = %v", err)
	}
	check.Stores = check.Stores[:1]
	var incomplete *IncompleteError
	if err := h.Check(t.Context(), "", check); !errors.As(err, &incomplete) ||
		strings.Contains(err.Error(), check.Hint) {
		t.Errorf("without one of the stores = %v, want it incomplete, and nothing to write again", err)
	}
}

// TestWhatAServerRepairsAtItsStartIsNoted: an allocator that lacks what services have stops two that are in use, and
// not those that come.
func TestWhatAServerRepairsAtItsStartIsNoted(t *testing.T) {
	check := &transition.Check{Kind: transition.StoresAgree, Map: storetest.SplitMap()}
	check.Map.Modern.Allocates = pair.AllocatesBoth
	contents := storetest.Clean()
	contents["core"]["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.9", 0)
	delete(contents["modern"], "ipaddresses/10.96.0.9")
	for _, name := range check.Map.Stores {
		server := etcdtest.Start(t)
		check.Stores = append(check.Stores, plan.Store{Name: name, Endpoints: []string{server.Endpoint}})
		keys := map[string][]byte{}
		for key, value := range contents[name] {
			keys["/registry/"+key] = value
		}
		server.Put(t, keys)
	}
	h := &Host{}
	var found *DisagreeError
	if err := h.Check(t.Context(), "", check); !errors.As(err, &found) || found.Findings[0].Rule != "FUS050" {
		t.Fatalf("a pair at rest = %v, want FUS050", err)
	}
	h.Notes()
	check.Map.Starting = []pair.Side{pair.Modern}
	if err := h.Check(t.Context(), "", check); err != nil {
		t.Errorf("a pair to come = %v", err)
	}
	want := []string{"FUS050 core:ranges/serviceips: the bitmap lacks 1 allocation of services: 1.10.13 adds",
		"FUS050 modern:ipaddresses: 1 ClusterIP of services without an IPAddress object: 1.36.3 creates"}
	notes := h.Notes()
	for _, begins := range want {
		if !slices.ContainsFunc(notes, func(note string) bool { return strings.HasPrefix(note, begins) }) {
			t.Errorf("no note %q among %q", begins, notes)
		}
	}
	if again := h.Notes(); len(notes) != len(want) || again != nil {
		t.Errorf("%d notes, and %q once more", len(notes), again)
	}
}

// TestObjectsInTheWayAreNamed: each object that a side cannot decode, with its key and type, and no other.
func TestObjectsInTheWayAreNamed(t *testing.T) {
	check := &transition.Check{Kind: transition.StoresAgree, Map: storetest.SplitMap()}
	object := func(version, name string) []byte {
		return []byte(`{"kind":"Deployment","apiVersion":"` + version + `","metadata":{"name":"` + name +
			`","namespace":"shop","uid":"` + name + `"}}`)
	}
	for _, name := range []string{"core", "modern"} {
		server := etcdtest.Start(t)
		check.Stores = append(check.Stores, plan.Store{Name: name, Endpoints: []string{server.Endpoint}})
		keys := map[string][]byte{}
		for i := range 30 { // more than findings have examples
			old := fmt.Sprintf("old-%02d", i)
			keys["/registry/deployments/shop/"+old] = object("apps/v1beta2", old)
		}
		keys["/registry/deployments/shop/new"] = object("apps/v1", "new")
		if name == "core" {
			server.Put(t, keys)
		}
	}
	var found *DisagreeError
	if err := (&Host{}).Check(t.Context(), "", check); !errors.As(err, &found) {
		t.Fatalf("stores that do not agree = %v", err)
	}
	text := found.Error()
	if len(found.Objects) != 30 || found.Further != 0 || strings.Contains(text, "shop/new") ||
		!strings.Contains(text, "\n  store core: /registry/deployments/shop/old-29, apps/v1beta2 Deployment") {
		t.Errorf("%d objects, %d more:\n%s", len(found.Objects), found.Further, text)
	}
}

// TestFactsAreReadOfThePlanToWhichItLeads: without one nothing is known, and stores that disagree are no fact.
func TestFactsAreReadOfThePlanToWhichItLeads(t *testing.T) {
	facts, err := Facts(t.Context(), transition.Setup{}, transition.Setup{}, false, Telling{})
	if err != nil || facts.StoresAgree || facts.Empty != nil {
		t.Errorf("Facts without a plan = %+v, %v; want none", facts, err)
	}
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	servers := make([]*etcdtest.Server, len(p.Stores))
	for i := range p.Stores {
		servers[i] = etcdtest.Start(t)
		p.Stores[i].Endpoints, p.Stores[i].TLS = []string{servers[i].Endpoint}, nil
	}
	to := transition.Setup{Plan: p}
	if facts, err = Facts(t.Context(), to, to, false, Telling{}); err != nil || !facts.StoresAgree ||
		facts.Empty != nil {
		t.Errorf("Facts of empty stores = %+v, %v; want them to agree", facts, err)
	}
	for _, server := range servers {
		server.Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("pod")})
	}
	var disagree *DisagreeError
	if facts, err = Facts(t.Context(), to, to, false, Telling{}); facts.StoresAgree || !errors.As(err, &disagree) {
		t.Errorf("Facts of stores with a pod that none decodes = %+v, %v; want them to disagree", facts, err)
	}
}

func TestNoKeysNamesTheFirstOfEachPrefix(t *testing.T) {
	server := etcdtest.Start(t)
	check := &transition.Check{Kind: transition.NoKeys, Hint: "move them",
		Keys:   []string{"/registry/csinodes/", "/registry/csidrivers/"},
		Stores: []plan.Store{{Name: "core", Endpoints: []string{server.Endpoint}}}}
	h := &Host{}
	server.Put(t, map[string][]byte{"/registry/csinodesx": []byte("x")})
	if err := h.Check(t.Context(), "", check); err != nil {
		t.Errorf("without such keys = %v", err)
	}
	server.Put(t, map[string][]byte{"/registry/csinodes/node-1": []byte("x"), "/registry/csinodes/node-2": []byte("x")})
	var found *KeysError
	if err := h.Check(t.Context(), "", check); !errors.As(err, &found) ||
		!slices.Equal(found.Found, []string{"store core: /registry/csinodes/node-1"}) || found.Hint() != "move them" {
		t.Errorf("with two keys = %v, want the first", err)
	}
}

// TestNoKeysOfAStoreThatCannotBeRead: nothing was found, so that what to do about keys is no way out.
func TestNoKeysOfAStoreThatCannotBeRead(t *testing.T) {
	check := &transition.Check{Kind: transition.NoKeys, Hint: "move them", Keys: []string{"/registry/csinodes/"},
		Stores: []plan.Store{{Name: "core", Endpoints: []string{"https://127.0.0.1:2379"},
			TLS: &spec.TLS{CA: filepath.Join(t.TempDir(), "none.crt")}}}}
	err := (&Host{}).Check(t.Context(), "", check)
	if _, unread := errors.AsType[*IncompleteError](err); !unread || strings.Contains(err.Error(), "move them") ||
		!strings.Contains(err.Error(), "store core") {
		t.Errorf("Check = %v, want an IncompleteError without the hint", err)
	}
}

func TestFileIsWantsContentAndMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want *transition.File
		says string
	}{
		{&transition.File{Mode: 0o600, Data: []byte("a")}, ""},
		{&transition.File{Mode: 0o644, Data: []byte("a")}, "has mode 0600, want 0644"},
		{&transition.File{Mode: 0o600, Data: []byte("b")}, "is another file"},
		{nil, "is there already"},
	} {
		if err := fileIs(file, c.want); (err == nil) != (c.says == "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("fileIs(%+v) = %v, want %q", c.want, err, c.says)
		}
	}
}

func TestFilesAreNeverLost(t *testing.T) {
	dir := t.TempDir()
	h := &Host{Rehearsal: dir}
	file := func(text string) *transition.File {
		return &transition.File{Path: "/etc/x/y.conf", Mode: 0o600, Data: []byte(text)}
	}
	at := filepath.Join(dir, "cp-1", "etc", "x", "y.conf")
	do := func(a transition.Action) error { return h.Do(t.Context(), "cp-1", &a) }
	for i, step := range []struct {
		a    transition.Action
		ok   bool
		want string // what is there afterwards; "" for nothing
	}{
		{transition.Action{Kind: transition.RemoveFile, File: file("a")}, true, ""},
		{transition.Action{Kind: transition.PutFile, File: file("a")}, true, "a"},
		{transition.Action{Kind: transition.PutFile, File: file("a")}, true, "a"},
		{transition.Action{Kind: transition.PutFile, File: file("b")}, false, "a"},
		{transition.Action{Kind: transition.PutFile, File: file("b"), Was: file("c")}, false, "a"},
		{transition.Action{Kind: transition.PutFile, File: file("b"), Was: file("a")}, true, "b"},
		{transition.Action{Kind: transition.RemoveFile, File: file("a")}, false, "b"},
		{transition.Action{Kind: transition.RemoveFile, File: file("b")}, true, ""},
		{transition.Action{Kind: transition.PutFile, File: file("b"), Was: file("a")}, false, ""},
		{transition.Action{Kind: transition.RemoveFile, File: file("b")}, true, ""},
	} {
		// what an attempt leaves that is killed before the file has its name, or right after
		left := filepath.Join(filepath.Dir(at), ".y.conf.partial")
		if i > 0 {
			if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o755), os.WriteFile(left, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		err := do(step.a)
		text, _ := os.ReadFile(at)
		if (err == nil) != step.ok || string(text) != step.want {
			t.Errorf("step %d: %v, then %q; want %q", i, err, text, step.want)
		}
		if _, there := os.Lstat(left); step.ok && !errors.Is(there, fs.ErrNotExist) {
			t.Errorf("step %d leaves %s behind: %v", i, left, there)
		}
	}
}

// Snapshots hold Secrets, under names that are known beforehand.
func TestSnapshotsAreWrittenWhereNobodyElseWrites(t *testing.T) {
	dir := t.TempDir()
	if err := filetree.Private(filepath.Join(dir, "new", "below")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a new directory: %v, %v, want 0700", info, err)
	}
	open, file := filepath.Join(dir, "open"), filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused := []string{open, file}
	if os.Geteuid() == 0 {
		theirs := filepath.Join(dir, "theirs")
		if err := errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		refused = append(refused, theirs)
	}
	for _, path := range refused {
		if err := filetree.Private(path); err == nil {
			t.Errorf("filetree.Private(%s) = nil", path)
		}
	}
}

// A component whose port another server answers on is not ready because that one sends its clients elsewhere.
func TestReadinessFollowsNoRedirect(t *testing.T) {
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer well.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(well.URL, http.StatusFound))
	defer elsewhere.Close()
	for server, want := range map[*httptest.Server]bool{well: true, elsewhere: false} {
		probe := probeOf(t, server.Listener.Addr().String())
		if err := ready(t.Context(), &transition.Check{Kind: transition.Ready, Probe: probe}); (err == nil) != want {
			t.Errorf("ready = %v, want ready %v", err, want)
		}
	}
}

// TestLookKnowsAStore: what a look finds of a store is the same the next time, and tells it from one that was emptied,
// set back, or is another. A store that does not answer is an error beside what the others show.
func TestLookKnowsAStore(t *testing.T) {
	const key = "/registry/namespaces/kube-system"
	namespace := func(uid string) map[string][]byte {
		return map[string][]byte{key: storetest.Put("v1", "Namespace", "", "kube-system", uid, nil)}
	}
	core, other := etcdtest.Start(t), etcdtest.Start(t)
	core.Put(t, namespace("first"))
	other.Put(t, namespace("first"))
	h := &Host{}
	look := func(endpoint string) *witness.Sight {
		t.Helper()
		seen, err := h.Look(t.Context(), "", &transition.Watch{Prefix: "/registry", Stores: []plan.Store{
			{Name: "core", Endpoints: []string{endpoint}}, {Name: "away", Endpoints: []string{"http://127.0.0.1:1"}}}})
		if err == nil || !strings.Contains(err.Error(), "store away") || len(seen) != 1 {
			t.Fatalf("Look = %v, %v; want core, and an error about the other one", seen, err)
		}
		sight := seen["core"]
		return &sight
	}
	first := look(core.Endpoint)
	if first.Objects[witness.KubeSystem].UID != "first" || first.Cluster == "" || first.Revision == 0 {
		t.Fatalf("Look = %+v", first)
	}
	changes := func(endpoint string, want string) {
		t.Helper()
		why := strings.Join(first.Changes(look(endpoint)), "; ")
		if (want == "") != (why == "") || !strings.Contains(why, want) {
			t.Errorf("changes = %q, want %q", why, want)
		}
	}
	changes(core.Endpoint, "")
	changes(other.Endpoint, "its etcd cluster has the id")
	core.Put(t, namespace("second"))
	changes(core.Endpoint, `its UID is "second", and was "first"`)
	if _, err := core.Client(t).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	changes(core.Endpoint, `its UID is "", and was "first"`)
	core.Put(t, map[string][]byte{key: []byte("k8s:enc:aescbc:v1:key:secret")})
	changes(core.Endpoint, "") // what is encrypted cannot be looked at
	if seen, err := (&Host{Rehearsal: t.TempDir()}).Look(t.Context(), "", &transition.Watch{
		Stores: []plan.Store{{Name: "core", Endpoints: []string{"http://127.0.0.1:1"}}}}); len(seen) > 0 || err != nil {
		t.Errorf("a rehearsal looked: %v, %v", seen, err)
	}
}

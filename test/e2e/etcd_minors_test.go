//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/test/rig"
)

const unitOfStore = "etcd-modern.service"

// minorsStore is a managed store of three real members, on three hosts, at some release.
type minorsStore struct {
	*unitHosts
	text   string // of the spec, with RELEASE
	port   int    // for clients
	client *clientv3.Client
	store  plan.Store // with all of its members
}

// TestEtcdGoesUpAndBackByMinors: a store of three members with TLS goes 3.4, 3.5, 3.6 and back to 3.5 by transitions,
// while a client writes. fusionctl and members are killed at every step, the majority is lost once: it goes on or goes
// back, what was written is there, and from 3.5 there is no way back to 3.4, which is said before and refused after.
func TestEtcdGoesUpAndBackByMinors(t *testing.T) {
	t.Parallel()
	s := startMinorsStore(t, "3.4.21", 1, 2, 3)
	writes := s.writer()
	up := s.between("3.4.21", "3.5.35")

	// the last member is asked about, and nothing is undone once all of them have agreed
	j := &memoryJournal{left: -1}
	notYet := errors.New("by hand")
	s.ByHand = func(string, string) error { return notYet }
	if err := transition.Apply(t.Context(), &up, s, j, nil); !errors.Is(err, notYet) {
		t.Fatalf("apply from 3.4 to 3.5 = %v, want a question before the last member", err)
	}
	must(t, transition.Undo(t.Context(), &up, s, j, nil))
	s.run("3.4.21", "3.4.21", "3.4.21")
	s.ByHand = func(string, string) error { return nil }
	must(t, transition.Apply(t.Context(), &up, s, j, nil))
	s.run("3.5.35", "3.5.35", "3.5.35")
	if err := transition.Undo(t.Context(), &up, s, j, nil); err == nil || !strings.Contains(err.Error(),
		"have agreed on 3.5: ") || !strings.Contains(err.Error(), "modern.db") {
		t.Fatalf("undo from 3.5 to 3.4 = %v, want it refused with the snapshot", err)
	}
	s.run("3.5.35", "3.5.35", "3.5.35")

	next := s.between("3.5.35", "3.6.8")
	points := s.killedEverywhere(&next)
	s.withoutMajority(&next)
	s.run("3.6.8", "3.6.8", "3.6.8")

	// the same as a transition of its own: what 3.6 has written is read by 3.5
	down := s.between("3.6.8", "3.5.35")
	must(t, transition.Apply(t.Context(), &down, s, &memoryJournal{left: -1}, nil))
	s.run("3.5.35", "3.5.35", "3.5.35")
	written := writes()
	s.holds(written)
	t.Logf("killed at %d points; all %d keys that were acknowledged are there", points, written)
}

// startMinorsStore starts the members of some of three hosts.
func startMinorsStore(t *testing.T, release string, hosts ...int) *minorsStore {
	t.Helper()
	r := rig.New(t)
	s := &minorsStore{unitHosts: newUnitHosts(t, r)}
	s.skipped = []transition.CheckKind{transition.Certificate, transition.Executable}
	data, err := os.ReadFile("../../examples/ha-three-hosts-1.15-1.36.yaml")
	must(t, err)
	client, peer, metrics := r.Port(), r.Port(), 0
	metrics, s.port = client+2, client
	var addresses []string
	change := []string{"version: 3.6.8", "version: RELEASE", ":2479", fmt.Sprint(":", client), "peerPort: 2480",
		fmt.Sprint("peerPort: ", peer), "/var/lib/etcd-modern", filepath.Join(r.Dir(), "data")}
	for i := 1; i <= 3; i++ {
		address := fmt.Sprintf("127.10.%d.%d", client%250, i)
		s.addresses[fmt.Sprint("cp-", i)] = address
		addresses = append(addresses, address)
		change = append(change, fmt.Sprintf("10.0.0.1%d", i), address)
	}
	crt, key, err := r.PKI.Serving("member", append(addresses, "127.0.0.1")...)
	must(t, err)
	clientCrt, clientKey, err := r.PKI.Client("member-client", "rig")
	must(t, err)
	// peers show theirs as clients, too
	peerCrt, peerKey, err := r.PKI.Peer("peer", append(addresses, "127.0.0.1")...) // whence members of loopback come
	must(t, err)
	change = append(change, "/etc/kubernetes/pki/etcd/ca.crt", r.PKI.File("ca.crt"),
		"/etc/kubernetes/pki/apiserver-etcd-client.crt", clientCrt,
		"/etc/kubernetes/pki/apiserver-etcd-client.key", clientKey)
	s.text = strings.NewReplacer(change...).Replace(string(data))
	files := map[string]string{"server.crt": crt, "server.key": key, "peer.crt": peerCrt, "peer.key": peerKey}
	s.rewrite = func(host, word string) string {
		for name, file := range files {
			word = strings.ReplaceAll(word, "/etc/kubernetes/pki/etcd-modern/"+name, file)
		}
		word = strings.ReplaceAll(word, ",https://127.0.0.1:", ",https://"+s.addresses[host]+":")
		word = strings.ReplaceAll(word, fmt.Sprint("http://127.0.0.1:", metrics), fmt.Sprint("http://",
			s.addresses[host], ":", metrics))
		if listens := fmt.Sprint("--listen-client-urls=https://", s.addresses[host], ":",
			client); strings.HasPrefix(word, listens) {
			word = listens // the other is the same here
		}
		if strings.HasPrefix(word, "--listen-metrics-urls=") {
			word += " --snapshot-count=2000" // by default 100,000, which takes longer to write
		}
		if strings.HasPrefix(word, "--data-dir=") {
			word += "/" + host
		}
		return word
	}
	s.program = func(path string) (string, error) { // /opt/etcd/3.5.35/bin/etcd
		release := strings.Split(path, "/")[3]
		if minor, _ := kubever.ParseEtcd(release); minor.Minor < 6 {
			return rig.Program("etcd-" + minor.String())
		}
		return rig.Program("etcd")
	}
	must(t, os.MkdirAll(filepath.Join(r.Dir(), "data"), 0o700))
	install, err := transition.New(transition.Setup{}, s.setup(release, hosts...), transition.Facts{})
	must(t, err)
	install.Steps = slices.DeleteFunc(install.Steps, func(s transition.Step) bool {
		return s.Phase != transition.Stores
	})
	install.Watch = nil
	must(t, transition.Apply(t.Context(), &install, s, &memoryJournal{left: -1}, nil))
	s.store = *s.setup(release, 1, 2, 3).Plan.Store("modern")
	info := transport.TLSInfo{TrustedCAFile: s.store.TLS.CA, CertFile: s.store.TLS.Cert, KeyFile: s.store.TLS.Key}
	secured, err := info.ClientConfig()
	must(t, err)
	s.client, err = clientv3.New(clientv3.Config{Endpoints: s.store.Endpoints, TLS: secured, Logger: zap.NewNop(),
		DialTimeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { s.client.Close() })
	return s
}

// setup is the plan with the store at a release, with members on some of the three hosts.
func (s *minorsStore) setup(release string, hosts ...int) transition.Setup {
	s.t.Helper()
	text := strings.ReplaceAll(s.text, "RELEASE", release)
	lines, endpoints := "", []string{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprint("cp-", i)
		line := fmt.Sprintf("  - {name: %s, address: %s}\n", name, s.addresses[name])
		if strings.Count(text, line) != 1 {
			s.t.Fatalf("the spec has no line %q:\n%s", line, text)
		}
		text = strings.Replace(text, line, "", 1)
		if slices.Contains(hosts, i) {
			lines += line
			endpoints = append(endpoints, fmt.Sprintf("https://%s:%d", s.addresses[name], s.port))
		}
	}
	text = strings.Replace(text, "  hosts:\n", "  hosts:\n"+lines, 1)
	before, rest, _ := strings.Cut(text, "- name: modern\n    endpoints: [")
	_, rest, _ = strings.Cut(rest, "]")
	text = before + "- name: modern\n    endpoints: [" + strings.Join(endpoints, ", ") + "]" + rest
	f, err := spec.Load("spec.yaml", []byte(text))
	must(s.t, err)
	p, err := plan.New(f, plan.OnHosts)
	must(s.t, err)
	return transition.Setup{Plan: p, Target: render.Systemd}
}

// between are the steps of the managed store from one release to another: those of the other one, which does not run
// here, are left out.
func (s *minorsStore) between(from, to string) transition.Transition {
	s.t.Helper()
	return s.way(s.setup(from, 1, 2, 3), s.setup(to, 1, 2, 3))
}

func (s *minorsStore) way(from, to transition.Setup, lost ...string) transition.Transition {
	s.t.Helper()
	tr, err := transition.New(from, to, transition.Facts{Lost: lost})
	must(s.t, err)
	other := func(st transition.Step) bool {
		return st.Do != nil && st.Do.Kind == transition.Snapshot && st.Do.Store.Name != "modern"
	}
	tr.Steps = slices.DeleteFunc(tr.Steps, other)
	tr.Watch.Stores = slices.DeleteFunc(tr.Watch.Stores, func(s plan.Store) bool { return s.Name != "modern" })
	for i := range tr.Steps {
		tr.Steps[i].Stores = slices.DeleteFunc(tr.Steps[i].Stores, func(name string) bool { return name != "modern" })
	}
	return tr
}

// writer writes keys one after the other until it is called, and returns how many were acknowledged.
func (s *minorsStore) writer() func() int {
	ctx, stop := context.WithCancel(s.t.Context())
	var group sync.WaitGroup
	written := 0
	group.Go(func() {
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := s.client.Put(limited, fmt.Sprintf("/registry/configmaps/default/%06d", written), "value")
			cancel()
			if err == nil {
				written++
			}
		}
	})
	s.t.Cleanup(stop)
	return func() int { stop(); group.Wait(); return written }
}

// holds checks that the keys are there.
func (s *minorsStore) holds(keys int) {
	s.t.Helper()
	answer, err := s.client.Get(s.t.Context(), "/registry/configmaps/default/", clientv3.WithPrefix(),
		clientv3.WithKeysOnly())
	must(s.t, err)
	if len(answer.Kvs) < keys || keys == 0 {
		s.t.Errorf("%d keys are there, and %d were acknowledged", len(answer.Kvs), keys)
	}
}

// run checks which release each member runs.
func (s *minorsStore) run(releases ...string) {
	s.t.Helper()
	for i, endpoint := range s.store.Endpoints {
		status, err := s.client.Status(s.t.Context(), endpoint)
		must(s.t, err)
		if status.Version != releases[i] {
			s.t.Errorf("%s runs %s, want %s", endpoint, status.Version, releases[i])
		}
	}
}

// killedEverywhere kills fusionctl before and after each record of apply, and the member that a step is about with it;
// every other time it goes back, and on again.
func (s *minorsStore) killedEverywhere(tr *transition.Transition) (points int) {
	t := s.t
	t.Helper()
	crash := func(run func(*memoryJournal) error, j *memoryJournal) bool {
		err := run(j)
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at point %d: %v", points, err)
		}
		if err != nil {
			points++
		}
		return err != nil
	}
	apply := func(j *memoryJournal) error { return transition.Apply(t.Context(), tr, s, j, nil) }
	undo := func(j *memoryJournal) error { return transition.Undo(t.Context(), tr, s, j, nil) }
	members := slices.Sorted(func(yield func(string) bool) {
		for host := range s.addresses {
			if !yield(host) {
				return
			}
		}
	})
	// Forth and back: each run begins where the one before was killed.
	j := &memoryJournal{}
	for _, run := range []func(*memoryJournal) error{apply, undo} {
		for j.left = 2; crash(run, j); j.left = 2 + points%2 { // before its action is recorded, or before the next one
			s.kill(members[points%len(members)], unitOfStore)
		}
	}
	s.run("3.5.35", "3.5.35", "3.5.35")
	j.left = -1
	must(t, apply(j))
	j.left = -1
	must(t, undo(j)) // also when nothing was killed
	return points
}

// withoutMajority: two of three members are killed and do not come back; apply fails and says so, and goes on later.
func (s *minorsStore) withoutMajority(tr *transition.Transition) {
	t := s.t
	t.Helper()
	j, wait := &memoryJournal{left: -1}, s.Wait
	lost := errors.New("lost")
	s.after = func(_ string, a *transition.Action) error {
		if a.Kind == transition.StartUnit {
			return lost
		}
		return nil
	}
	if err := transition.Apply(t.Context(), tr, s, j, nil); !errors.Is(err, lost) {
		t.Fatalf("apply = %v, want it to break off", err)
	}
	s.after = nil
	for _, host := range []string{"cp-2", "cp-3"} {
		s.running[host+"/"+unitOfStore].Kill()
	}
	s.Wait = 3 * time.Second
	if err := transition.Apply(t.Context(), tr, s, j, nil); err == nil {
		t.Fatal("apply went on without a majority")
	} else {
		t.Logf("without a majority: %v", err)
	}
	for _, host := range []string{"cp-2", "cp-3"} {
		s.running[host+"/"+unitOfStore].StartAgain()
	}
	s.Wait = wait
	must(t, transition.Apply(t.Context(), tr, s, j, nil))
}

// TestACertificateOfTheClusterOpensAStore: where the members of a store hold their clients to the CA of the cluster,
// the certificate of a user whom the API server lets read nothing reads and writes its Secrets in the store; a store
// that has users of its own takes it no more.
func TestACertificateOfTheClusterOpensAStore(t *testing.T) {
	t.Parallel()
	const path, key = "/api/v1/namespaces/default/secrets", "/registry/secrets/default/hidden"
	r := rig.New(t)
	store := r.StartEtcd("core")
	server := r.StartAPIServer("apiserver", 36, append(r.APIServerArgs(36, store), "--authorization-mode=RBAC"))
	server.WaitReady()
	r.Eventually("the Secret is created", func(ctx context.Context) error {
		return server.Client("admin", "system:masters").Call(ctx, http.MethodPost, path, object{
			"metadata": object{"name": "hidden"}, "stringData": object{"password": "guess"}}, nil)
	})
	err := server.Client("alice", "developers").Call(t.Context(), http.MethodGet, path+"/hidden", nil, nil)
	if rig.Code(err) != http.StatusForbidden {
		t.Fatalf("alice reads the Secret through the API server: %v, want it forbidden", err)
	}

	cert, file, err := r.PKI.Client("alice-etcd", "alice", "developers")
	must(t, err)
	client, err := etcdv3.Open(etcdv3.Config{Endpoints: store.URLs, CAFile: r.PKI.File("ca.crt"), CertFile: cert,
		KeyFile: file, Timeout: 10 * time.Second})
	must(t, err)
	defer client.Close()
	reads := func() (string, error) {
		page, err := client.Page(t.Context(), etcd.Request{From: key, To: key + "\x00", LimitKeys: 1})
		if err != nil || len(page.Entries) == 0 {
			return "", err
		}
		return string(page.Entries[0].Value), nil
	}
	if value, err := reads(); err != nil || !strings.Contains(value, "guess") {
		t.Errorf("alice reads %q, %v in the store, want the password", value, err)
	}
	store.Authenticate()
	if value, err := reads(); err == nil {
		t.Errorf("alice reads %q in a store that has users of its own", value)
	}
}

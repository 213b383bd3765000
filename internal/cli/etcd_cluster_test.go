package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

var modernFromFile = []string{"--snapshot", "modern=" + stores + "split-1.10-1.36-modern.db"}

func TestEtcdCheckWithoutAQuorum(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cluster.Members[2].Put(t, storedValues(t, "core"))
	cluster.Members[0].Stop()
	cluster.Members[1].Stop()
	args := slices.Concat([]string{"etcd", "check", splitSpec, "--endpoints",
		"core=" + strings.Join(cluster.Endpoints(), ",")}, modernFromFile)
	code, stdout, stderr := run(t, append(args, "--timeout", "3s")...) // a read ends with it
	if code != 1 || !strings.Contains(stdout, "INCOMPLETE") ||
		!strings.Contains(stderr, cluster.Members[2].Endpoint+": it runs and has no leader") ||
		!strings.Contains(stderr, "hint: too few members run to elect a leader; --gentle reads") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want 1 and the way out", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, append(args, "--gentle")...)
	if code != 0 || !strings.Contains(stdout, "core: read as "+cluster.Members[2].Endpoint+" knows it, without "+
		"asking the others: newer changes may be missing") || !strings.Contains(stdout, "; complete") {
		t.Errorf("--gentle: exit code %d, stdout %q, stderr %q; want 0, and that it may be old", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "etcd", "ls", splitSpec, "--gentle", "--store", "core", "--endpoints",
		"core="+strings.Join(cluster.Endpoints(), ","))
	if code != 0 || !strings.Contains(stdout, "pods") || !strings.Contains(stderr, "newer changes may be missing") {
		t.Errorf("ls --gentle: exit code %d, stdout %q, stderr %q; want 0, and that it may be old", code, stdout,
			stderr)
	}
	code, stdout, stderr = run(t, "etcd", "diff", splitSpec, "core", stores+"split-1.10-1.36-modern.db", "--gentle",
		"--endpoints", "core="+strings.Join(cluster.Endpoints(), ","))
	if code != 3 || !strings.Contains(stdout, "- pods/") || !strings.Contains(stderr, "newer changes may be missing") {
		t.Errorf("diff --gentle: exit code %d, stdout %q, stderr %q; want 3, and that it may be old", code, stdout,
			stderr)
	}
	code, _, stderr = run(t, "etcd", "ls", splitSpec, "--gentle", "--store", "modern", modernFromFile[0],
		modernFromFile[1])
	if code != 0 || strings.Contains(stderr, "newer changes may be missing") {
		t.Errorf("ls --gentle of a file: exit code %d, stderr %q; want 0, and no warning", code, stderr)
	}
}

func TestEtcdVerbsRefuseStoresThatAreMixedUp(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	core, modern := servers["core"].Endpoint, servers["modern"].Endpoint
	plan := t.TempDir() + "/move.plan"
	servers["modern"].Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("a pod")}) // to be moved
	if code, _, stderr := run(t, slices.Concat([]string{"etcd", "move", "plan", splitSpec, "--out", plan},
		endpoints(servers))...); code != 0 {
		t.Fatal(stderr)
	}
	mixed := []string{"--endpoints", "core=" + core + "," + modern, "--endpoints", "modern=" + modern}
	one := []string{"--endpoints", "core=" + core, "--endpoints", "modern=" + core}
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"check": {slices.Concat([]string{"check", splitSpec}, mixed), 1,
			[]string{"they are two stores", "hint: the endpoints of a store must be members of one etcd"}},
		"ls": {slices.Concat([]string{"ls", splitSpec}, mixed), 1,
			[]string{"they are two stores", "hint: the endpoints"}},
		"diff": {slices.Concat([]string{"diff", splitSpec, "core", "modern"}, mixed), 1,
			[]string{"they are two stores"}},
		"watch": {slices.Concat([]string{"watch", splitSpec}, mixed), 1,
			[]string{"they are two stores", "hint: the endpoints"}},
		"move plan": {slices.Concat([]string{"move", "plan", splitSpec, "--out", plan + "2"}, mixed), 1,
			[]string{"they are two stores", "hint: the endpoints"}},
		"check of one": {slices.Concat([]string{"check", splitSpec}, one), 1,
			[]string{"incomplete", "stores core and modern are one and the same etcd"}},
		"move plan of one": {slices.Concat([]string{"move", "plan", splitSpec, "--out", plan + "2"}, one), 2,
			[]string{"stores core and modern are one and the same etcd", "hint: within one etcd"}},
		"move apply of one": {slices.Concat([]string{"move", "apply", splitSpec, plan, "--yes"}, one), 2,
			[]string{"stores core and modern are one and the same etcd"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, append([]string{"etcd"}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, stdout, stderr)
			}
			for _, says := range test.says {
				if !strings.Contains(stderr, says) {
					t.Errorf("stderr %q, want it to say %q", stderr, says)
				}
			}
		})
	}
}

// TestEtcdVerbsWithAUserOfThePrefix: to read what is below the prefix is all that a user of etcd has to be allowed.
func TestEtcdVerbsWithAUserOfThePrefix(t *testing.T) {
	servers := liveStores(t)
	for _, server := range servers {
		server.AllowReader(t)
	}
	t.Setenv("FUSIONCTL_ETCD_PASSWORD", "secret")
	as := slices.Concat([]string{"--user", "reader"}, endpoints(servers))
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"check", splitSpec}, 0,
			`core: the user of this store may not read all of it: keys outside "/registry/" are not counted`},
		{[]string{"ls", splitSpec}, 0, "pods"},
		{[]string{"get", splitSpec, "namespaces/default"}, 0, "kind: Namespace"},
		{[]string{"diff", splitSpec, "core", "modern"}, 3, "namespaces/"},
		{[]string{"move", "plan", splitSpec, "--out", t.TempDir() + "/move.plan"}, 0, ""},
	} {
		if code, stdout, stderr := run(t, slices.Concat([]string{"etcd"}, test.args, as)...); code != test.code ||
			!strings.Contains(stdout, test.says) {
			t.Errorf("etcd %s as reader: exit code %d, %s%s; want %d and %q", test.args[0], code, stdout, stderr,
				test.code, test.says)
		}
	}
	w := watchStores(t, append(as, "--interval", "100ms")...)
	w.until("the first check", func(l watchLine) bool { return l.Event == "checked" && l.Check.Complete })
	if code, stdout,
		stderr := run(t, slices.Concat([]string{"etcd", "check", splitSpec, "--user", "stranger"},
		endpoints(servers))...); code != 1 || !strings.Contains(stderr, "hint: the user or the password is wrong") {
		t.Errorf("as a stranger: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout,
		stderr := run(t, slices.Concat([]string{"etcd", "check", splitSpec}, endpoints(servers))...); code != 1 ||
		!strings.Contains(stderr, "hint: this etcd wants a user and a password") {
		t.Errorf("as nobody: exit code %d, %s%s", code, stdout, stderr)
	}
}

// damage makes a value that nobody can read, of a resource of its own, so that the finding about it is its own as well.
func damage(t *testing.T, server *etcdtest.Server, resource string) {
	t.Helper()
	server.Put(t, map[string][]byte{"/registry/" + resource + "/default/bad": []byte("k8s\x00damaged")})
}

// TestEtcdWatchOfAStoreThatGoesAndComesBack: the other store is followed meanwhile, what is missed is told once, and
// nothing appears twice.
func TestEtcdWatchOfAStoreThatGoesAndComesBack(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	proxy := etcdtest.NewProxy(t, servers["core"].Endpoint)
	w := watchStores(t, "--timeout", "2s", "--interval", "100ms", "--endpoints", "core="+proxy.Endpoint,
		"--endpoints", "modern="+servers["modern"].Endpoint)
	w.until("the first check", func(l watchLine) bool { return l.Event == "checked" && l.Check.Complete })
	damage(t, servers["core"], "pods")
	w.finding("appeared", "FUS000", "core:pods")

	proxy.Cut()
	if missed := w.until("a store that is missed", func(l watchLine) bool {
		return l.Event == "missed"
	}); !strings.Contains(missed.Reason, "store core: watching from revision") {
		t.Errorf("missed: %q", missed.Reason)
	}
	w.until("a check without it", func(l watchLine) bool { return l.Event == "checked" && !l.Check.Complete })
	damage(t, servers["modern"], "deployments")
	w.finding("appeared", "FUS000", "modern:deployments")
	damage(t, servers["core"], "secrets")
	w.until("another check without it", func(l watchLine) bool { return l.Event == "checked" && !l.Check.Complete })
	proxy.Mend(t)
	w.until("a check with it", func(l watchLine) bool { return l.Event == "checked" && l.Check.Complete })
	w.finding("appeared", "FUS000", "core:secrets")

	// Away for a moment, in which what was not seen is compacted.
	proxy.Cut()
	damage(t, servers["core"], "configmaps")
	client := servers["core"].Client(t)
	put, err := client.Put(t.Context(), "compact_rev_key", "x")
	if err == nil {
		_, err = client.Compact(t.Context(), put.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy.Mend(t)
	if missed := w.until("changes that are missed", func(l watchLine) bool {
		return l.Event == "missed"
	}); !strings.Contains(missed.Reason, "the revision was compacted") {
		t.Errorf("missed: %q", missed.Reason)
	}
	w.finding("appeared", "FUS000", "core:configmaps")

	counts := map[string]int{}
	for _, line := range w.seen {
		counts[line]++
	}
	for _, resource := range []string{"core:pods", "core:secrets", "core:configmaps", "modern:deployments"} {
		if n := counts["appeared FUS000 "+resource]; n != 1 {
			t.Errorf("the finding about %s appeared %d times: %q", resource, n, w.seen)
		}
		if n := counts["disappeared FUS000 "+resource]; n != 0 {
			t.Errorf("the finding about %s disappeared %d times: %q", resource, n, w.seen)
		}
	}
	if n := counts["missed  "]; n != 2 {
		t.Errorf("missed was said %d times, want twice: %q", n, w.seen)
	}
}

// TestEtcdWatchKeepsSeriesFew: what a store holds decides how many series there are, up to a limit.
func TestEtcdWatchKeepsSeriesFew(t *testing.T) {
	t.Parallel()
	servers := liveStores(t)
	strange := map[string][]byte{}
	for i := range 3000 {
		strange[fmt.Sprintf("/registry/strange-%04d/default/x", i)] = []byte("{}")
	}
	servers["core"].Put(t, strange)
	address := etcdtest.FreeAddress(t)
	w := watchStores(t, slices.Concat(endpoints(servers), []string{"--metrics", address})...)
	w.until("the first check", func(l watchLine) bool { return l.Event == "checked" && l.Check.Complete })
	metrics := get(t, "http://"+address+"/metrics")
	if n := strings.Count(metrics, "fusionctl_etcd_keys{"); n > 1100 {
		t.Errorf("%d series of keys", n)
	}
	if !strings.Contains(metrics, `fusionctl_etcd_keys{resource="(others)",store="core"}`) ||
		!strings.Contains(metrics, `fusionctl_etcd_keys{resource="pods",store="core"}`) {
		t.Errorf("no series of pods, or of the other resources:\n%.2000s", metrics)
	}
}

package preflight

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func needsOf(t *testing.T, example string, target render.Target, change func(string) string) *Needs {
	t.Helper()
	data, err := examples.FS.ReadFile(example + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := spec.Load(example, []byte(change(string(data))))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(p, "cp-1", target)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func same(text string) string { return text }

func pointer(text string) *string { return &text }

// TestCheckJudgesTheWorld holds what was read of a machine to the needs of a plan: a modern API server on port 7443.
func TestCheckJudgesTheWorld(t *testing.T) {
	images := func(names ...string) *[]string { return &names }
	other := []string{"/usr/bin/haproxy", "-f", "/etc/haproxy.cfg"}
	n := needsOf(t, "vendor-1.6-1.36", render.StaticPod, same)
	var itself []string
	for _, l := range n.Listeners {
		if l.Port == 7443 {
			itself = append([]string{"/usr/local/bin/kube-apiserver"}, arguments(l.Component)...)
		}
	}
	for _, c := range []struct {
		name  string
		world World
		want  string // the rules
		says  string
	}{
		{"nothing was looked at", World{}, "", ""},
		{"a port of another process", World{Listening: []Socket{{Port: 7443, Process: other}}}, "FUS268", "haproxy"},
		{"one of which nothing is known", World{Listening: []Socket{{Port: 7443}}}, "FUS268", "could not be read"},
		{"the component itself", World{Listening: []Socket{{Port: 7443, Process: itself}}}, "", ""},
		{"the component itself, of a program with its version", World{Listening: []Socket{{Port: 7443,
			Process: append([]string{"/opt/kube-apiserver-v1.36.3"}, itself[1:]...)}}}, "", ""},
		{"the API server of another cluster", World{Listening: []Socket{{Port: 7443,
			Process: []string{"kube-apiserver", "--etcd-servers", "http://10.9.9.9:2379"}}}}, "FUS268", "10.9.9.9"},
		{"another port", World{Listening: []Socket{{Port: 7444, Process: other}}}, "", ""},
		{"an address of its own", World{Listening: []Socket{{Address: "10.0.0.11", Port: 11257, Process: other}}}, "",
			""},
		{"the same address", World{Listening: []Socket{{Address: "127.0.0.1", Port: 11257, Process: other}}}, "FUS268",
			"kube-controller-manager-modern"},
		{"a store that does not answer", World{Stores: map[string][]Member{"core": {{Endpoint: "http://10.0.0.11:2379",
			Problem: "connection refused"}}}}, "FUS269", "connection refused"},
		{"an old store", World{Stores: map[string][]Member{"core": {{Endpoint: "http://10.0.0.11:2379",
			Version: "3.0.17"}}}}, "FUS166", "3.0.17: kube-apiserver 1.6 and kube-apiserver 1.36 were not run"},
		{"an etcd 2", World{Stores: map[string][]Member{"core": {{Endpoint: "http://10.0.0.11:2379",
			Version: "2.3.8"}}}}, "FUS166", "2.3.8"},
		{"a store of today", World{Stores: map[string][]Member{"core": {{Endpoint: "http://10.0.0.11:2379",
			Version: "3.5.24"}}}}, "", ""},
		{"a store of tomorrow", World{Stores: map[string][]Member{"core": {{Endpoint: "http://10.0.0.11:2379",
			Version: "3.10.0"}}}}, "FUS166", "3.10.0"},
		{"no images", World{Images: images()}, strings.Repeat("FUS270 ", len(n.Images)), "does not start before"},
		{"all images", World{Images: images(imagesOf(n)...)}, "", ""},
		{"another directory",
			World{Kubelet: &Kubelet{Where: "/var/lib/kubelet/config.yaml", StaticPods: "/etc/kubelet.d"}},
			"FUS271", "/etc/kubelet.d"},
		{"no static pods", World{Kubelet: &Kubelet{Where: "/var/lib/kubelet/config.yaml"}}, "FUS271", "no static pods"},
		{"the directory", World{Kubelet: &Kubelet{StaticPods: "/etc/kubernetes/manifests/"}}, "", ""},
		{"streams of loopback, to which an old kubelet redirects", World{Streams: pointer("127.0.0.1")}, "FUS272",
			"redirect"},
		{"streams of an address that the runtime chooses", World{Streams: pointer("")}, "", ""},
		{"streams of the host", World{Streams: pointer("10.0.0.11"), Addresses: []string{"10.0.0.11"}}, "", ""},
	} {
		found := Check(n, &Host{World: &c.world}, time.Unix(1e9, 0))
		var rules, texts []string
		for _, f := range found {
			rules, texts = append(rules, f.Rule), append(texts, f.Message)
		}
		if got := strings.Join(rules, " "); got != strings.TrimSpace(c.want) ||
			!strings.Contains(strings.Join(texts, "\n"), c.says) {
			t.Errorf("%s: found %q, want %q: %q", c.name, got, c.want, texts)
		}
	}
}

func arguments(c *plan.Component) []string {
	var words []string
	for _, a := range c.Args {
		words = append(words, a.String())
	}
	return words
}

func imagesOf(n *Needs) []string {
	var names []string
	for _, i := range n.Images {
		names = append(names, i.Image)
	}
	return names
}

// TestNewKubeletsReachStreamsThemselves: loopback is what they want.
func TestNewKubeletsReachStreamsThemselves(t *testing.T) {
	n := needsOf(t, "split-1.15-1.36", render.StaticPod, same)
	for address, want := range map[string]int{"127.0.0.1": 0, "10.0.0.11": 0, "192.0.2.7": 1, "::1": 0, "": 0} {
		world := &World{Streams: &address, Addresses: []string{"127.0.0.1", "10.0.0.11"}}
		if found := Check(n, &Host{World: world}, time.Unix(1e9, 0)); len(found) != want {
			t.Errorf("streams on %q: %+v, want %d findings", address, found, want)
		}
	}
}

func TestUnitsNeedProgramsAndNoImages(t *testing.T) {
	n := needsOf(t, "split-1.15-1.36", render.Systemd, same)
	if len(n.Images) > 0 || n.Manifests != "" {
		t.Errorf("units need images %v and the manifests' directory %q", n.Images, n.Manifests)
	}
	programs := 0
	for _, f := range n.Files {
		if f.Program {
			programs++
		}
	}
	if programs < 3 {
		t.Errorf("%d programs, want those of etcd and of both sides", programs)
	}
}

// TestProgramsThatTransitionsPutMayBeMissing: that is no error, and others are.
func TestProgramsThatTransitionsPutMayBeMissing(t *testing.T) {
	n := needsOf(t, "split-1.15-1.36", render.Systemd, same)
	const listed = "/opt/kubernetes/1.36.3/bin/kube-apiserver"
	n.Plan.Programs = []spec.Program{{Path: listed}}
	n, err := New(n.Plan, "cp-1", render.Systemd)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]File{}
	for _, f := range n.Files {
		files[f.Path] = File{Missing: true}
	}
	info, missing := 0, 0
	for _, f := range Check(n, &Host{World: &World{}, Files: files}, time.Unix(1e9, 0)) {
		switch {
		case f.Subject == listed && (f.Severity != finding.Info || !strings.Contains(f.Fix, "transition apply")):
			t.Errorf("%+v, want what puts it there", f)
		case f.Subject == listed:
			info++
		case strings.HasPrefix(f.Subject, "/opt/") && f.Severity == finding.Error:
			missing++
		}
	}
	if info != 1 || missing < 3 {
		t.Errorf("%d programs that are put and %d that are missing, want 1 and more than 2", info, missing)
	}
}

func TestNewRefusesAnotherHost(t *testing.T) {
	n := needsOf(t, "ha-three-hosts-1.15-1.36", render.StaticPod, same)
	if _, err := New(n.Plan, "cp-9", render.StaticPod); err == nil ||
		!strings.Contains(err.Error(), "cp-1, cp-2, cp-3") {
		t.Errorf("New(cp-9): %v, want the hosts", err)
	}
}

// TestNormalImage: names as manifests and as runtimes have them.
func TestNormalImage(t *testing.T) {
	for _, same := range [][]string{
		{"busybox", "busybox:latest", "docker.io/library/busybox", "docker.io/library/busybox:latest"},
		{"kube/hyperkube:v1", "docker.io/kube/hyperkube:v1"},
		{"registry:5000/a", "registry:5000/a:latest"},
		{"localhost/a:1"},
		{"r.example/a:1@sha256:11", "r.example/a@sha256:11"},
	} {
		for _, name := range same {
			if got, want := normalImage(name), normalImage(same[0]); got != want {
				t.Errorf("normalImage(%q) = %q, want %q", name, got, want)
			}
		}
	}
	if normalImage("a/b:1") == normalImage("a/b:2") || normalImage("a/b:1") == normalImage("r.example/a/b:1") {
		t.Error("two images are one")
	}
}

// TestRulesAreReported: each rule has a place in the code that reports it.
func TestRulesAreReported(t *testing.T) {
	ids := []string{UnseenStore, StoreOfClients, Missing, Readable, Expired, OtherCA, OtherName, WrongKey, NotAdmitted,
		WrongTokens, PortInUse,
		NoStore, NoImage, OtherManifests, NoStreams, Stale, Undecryptable}
	for _, r := range Rules() {
		if !slices.Contains(ids, r.ID) {
			t.Errorf("%s is reported nowhere", r.ID)
		}
	}
	if len(Rules()) != len(ids) {
		t.Errorf("%d rules, %d constants", len(Rules()), len(ids))
	}
}

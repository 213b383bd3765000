//go:build e2e && linux

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// runbookAccess is what the user of the runbook may do through the modern API server.
const runbookAccess = `  pods: {unknownFields: warn}
  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apps], resources: [deployments, replicasets], namespaces: [default, demo]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods], namespaces: [default, demo]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [namespaces], readOnly: true}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apiextensions.k8s.io, example.test], resources: ["*"]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apps, autoscaling, batch, discovery.k8s.io, policy, rbac.authorization.k8s.io, resource.k8s.io], resources: ["*"], namespaces: [leaving]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [networking.k8s.io], resources: [ingresses], namespaces: [leaving]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [storage.k8s.io], resources: [csistoragecapacities], namespaces: [leaving]}
`

// canaryImage is the image of the runbook's own pods.
const canaryImage = "registry.k8s.io/pause:3.9"

// followRunbook goes into fusion and back, with workloads that live through it.
func (f *nodesPair) followRunbook(target render.Target) {
	t := f.t
	t.Helper()
	book := f.runbook(target)
	f.writeKubeconfigs()
	before := f.started()
	r := newRunner(f, book, target)
	r.forth()
	f.deploy(pair.Modern, "modern", 2, serves())
	f.awaitReady("modern", 2)
	f.same(before, "in fusion")
	r.stopDeletions()
	r.endNamespace()
	r.exchangePolicy()
	must(t, f.user.Call(t.Context(), "DELETE", f.path(pair.Modern, "deployments")+"/modern",
		object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, nil))
	f.Eventually("the pods of the modern side are gone", func(ctx context.Context) error {
		pods, err := f.pods(ctx, "modern")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there is %s", pods[0].Metadata.Name)
		}
		return err
	})
	f.deploy(pair.Modern, "uncollected", 1, runs("pause"))
	f.awaitReady("uncollected", 1)
	r.back()
	r.nothingLeft()
	f.same(before, "after the way back")
	f.asBefore(target)
}

// legacyWorkloads run on every node of the legacy side.
func (f *nodesPair) legacyWorkloads() {
	f.t.Helper()
	f.deploy(pair.Legacy, "deployment", 3, serves())
	f.create(pair.Legacy, f.path(pair.Legacy, "daemonsets"), object{"metadata": object{"name": "daemon"},
		"spec": object{"selector": object{"matchLabels": object{"workload": "daemon"}},
			"template": labelled("daemon", serves())}})
	f.create(pair.Legacy, f.path(pair.Legacy, "statefulsets"), object{"metadata": object{"name": "set"},
		"spec": object{"serviceName": "set", "replicas": 2,
			"selector": object{"matchLabels": object{"workload": "set"}},
			"template": labelled("set", serves())}})
	f.awaitReady("deployment", 3)
	f.awaitReady("daemon", len(f.nodes))
	f.awaitReady("set", 2)
}

// startLegacyCluster starts the machine of testdata/legacy-1.15.txtar with workloads.
func startLegacyCluster(t *testing.T) *nodesPair {
	t.Helper()
	f := &nodesPair{Rig: rig.New(t), t: t, program: sandboxed(t, fusionctlEnv)}
	dir := filepath.Join(f.Dir(), "legacy")
	files, err := txtar.ParseFile("testdata/legacy-1.15.txtar")
	must(t, err)
	for _, file := range files.Files {
		writeTo(t, dir, file.Name, file.Data)
	}
	authorities := f.legacyAuthorities()
	f.legacyCertificates(authorities, dir, host, machine)
	f.draft([]string{machine}, "--from", filepath.Join(dir, "etc/kubernetes/manifests"))
	images := f.PlanImages(f.Plan)
	etcd, err := rig.Program("etcd")
	must(t, err)
	images = append(
		images, rig.Image{Name: "k8s.gcr.io/etcd:3.3.10", Files: map[string]string{"usr/local/bin/etcd": etcd}},
		canary())
	n := f.StartNode(host, images...)
	f.nodes = []*rig.Node{n}
	must(t, n.CopyTree(dir))
	f.installTools()
	f.connect()
	f.useDemo()
	f.legacyWorkloads()
	return f
}

// canary is the image of the runbook's own pods.
func canary() rig.Image {
	return rig.Image{Name: canaryImage, Files: map[string]string{"prog": os.Getenv("FUSIONCTL_RIG_POD")},
		Entrypoint: []string{"/prog"}}
}

// installTools puts what the runbook wants on hosts on all of them.
func (f *nodesPair) installTools() {
	f.t.Helper()
	etcdctl, err := rig.Program("etcdctl")
	must(f.t, err)
	kubectl, err := rig.Binary("kubectl", 36)
	must(f.t, err)
	for _, n := range f.nodes {
		for name, file := range map[string]string{"fusionctl": f.program, "etcdctl": etcdctl, "kubectl": kubectl} {
			f.installOn(n, file, "/usr/local/bin/"+name, "0755")
		}
	}
}

// kubeadmOf is whose files of kubeadm those of a release are like, where it has none of its own in testdata.
var kubeadmOf = map[kubever.Minor]kubever.Minor{20: 24}

// legacyFiles are the files of a control plane of the release as kubeadm writes them.
func legacyFiles(t *testing.T, minor kubever.Minor) *txtar.Archive {
	t.Helper()
	like := cmp.Or(kubeadmOf[minor], minor)
	text, err := os.ReadFile("testdata/legacy-" + like.String() + ".txtar")
	must(t, err)
	return txtar.Parse([]byte(strings.ReplaceAll(string(text), "v"+kubever.Release(like), "v"+kubever.Release(minor))))
}

// startLegacyUnits starts the control plane of legacyFiles as units of systemd, on several hosts, which have images of
// more pods.
func startLegacyUnits(t *testing.T, minor kubever.Minor, hosts int, images ...rig.Image) *nodesPair {
	t.Helper()
	f := &nodesPair{Rig: rig.New(t), t: t, program: sandboxed(t, fusionctlEnv)}
	files := legacyFiles(t, minor)
	var names, addresses, members, from []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("cp-%d", i+1))
		addresses = append(addresses, fmt.Sprintf("10.88.0.%d", 11+i))
		members = append(members, fmt.Sprintf("%s=https://%s:2380", names[i], addresses[i]))
	}
	authorities := f.legacyAuthorities()
	for i, name := range names {
		dir := filepath.Join(f.Dir(), "legacy", name)
		from = append(from, filepath.Join(f.Dir(), "units", name)) // a copy, called after the host
		for _, file := range files.Files {
			if strings.HasPrefix(file.Name, "etc/kubernetes/manifests/") {
				unit := strings.TrimSuffix(filepath.Base(file.Name), ".yaml")
				text := legacyUnit(t, unit, string(file.Data), func(arg string) string {
					if strings.HasPrefix(arg, "--initial-cluster=") {
						return "--initial-cluster=" + strings.Join(members, ",")
					}
					if hosts == 1 && arg == "--leader-elect=true" { // the lock would be waited for
						return "--leader-elect=false"
					}
					return strings.NewReplacer(machine, addresses[i], host, name).Replace(arg)
				})
				writeTo(t, dir, "etc/systemd/system/"+unit+".service", []byte(text))
				writeTo(t, from[i], unit+".service", []byte(text))
			}
		}
		f.legacyCertificates(authorities, dir, name, addresses...)
	}
	f.draft(addresses, append([]string{"--legacy", kubever.Release(minor), "--from"}, from...)...)
	programs := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		file, err := rig.Binary(name, minor)
		must(t, err)
		programs[name] = file
	}
	etcd, err := rig.Program("etcd")
	must(t, err)
	programs["etcd"] = etcd
	for i, name := range names {
		n := f.StartMachine(name, append([]rig.Image{canary()}, images...)...)
		f.nodes = append(f.nodes, n)
		must(t, n.CopyTree(filepath.Join(f.Dir(), "legacy", name)))
		f.runOn(n, "mkdir", "-p", "/usr/local/bin")
		for program, file := range programs {
			f.runOn(n, "ln", "-s", file, "/usr/local/bin/"+program)
		}
		if n.Address != addresses[i] {
			t.Fatalf("%s has the address %s, want %s", name, n.Address, addresses[i])
		}
	}
	f.installTools()
	for _, n := range f.nodes {
		f.runOn(n, "systemctl", "daemon-reload")
		f.runOn(n, "systemctl", "enable", "--now", "--no-block", "etcd", "kube-apiserver", "kube-controller-manager",
			"kube-scheduler")
	}
	f.connect()
	f.useDemo()
	f.legacyWorkloads()
	return f
}

// legacyUnit is a unit of systemd that starts what a manifest of kubeadm starts.
func legacyUnit(t *testing.T, name, manifest string, change func(arg string) string) string {
	t.Helper()
	text, _, _ := strings.Cut(manifest, "\n    image:")
	_, text, found := strings.Cut(text, "- command:\n")
	if !found {
		t.Fatalf("the manifest of %s has no command", name)
	}
	var words []string
	for line := range strings.Lines(text) {
		words = append(words, change(strings.TrimPrefix(strings.TrimSpace(line), "- ")))
	}
	return "[Unit]\nDescription=" + name + "\n\n[Service]\nExecStart=/usr/local/bin/" +
		strings.Join(words, " \\\n  ") + "\nRestart=always\nRestartSec=2\nStandardOutput=append:/var/log/" + name +
		".log\nStandardError=append:/var/log/" + name + ".log\n\n[Install]\nWantedBy=multi-user.target\n"
}

func writeTo(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	file := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, data, 0o600))
}

// legacyAuthority is an authority of kubeadm's three, with its files.
type legacyAuthority struct {
	*pki.Authority
	certificate, key []byte
}

// legacyLifetime is kubeadm's.
func legacyLifetime() pki.Lifetime { return pki.LifetimeOf(time.Now(), 365*24*time.Hour) }

// legacyAuthorities are the authorities that all hosts of a cluster have, by their files.
func (f *nodesPair) legacyAuthorities() map[string]legacyAuthority {
	t := f.t
	t.Helper()
	certificate, err := os.ReadFile(f.PKI.File("ca.crt"))
	must(t, err)
	key, err := os.ReadFile(f.PKI.File("ca.key"))
	must(t, err)
	cluster, err := pki.ParseAuthority(certificate, key)
	must(t, err)
	authorities := map[string]legacyAuthority{"ca": {cluster, certificate, key}}
	for _, name := range []string{"etcd/ca", "front-proxy-ca"} {
		authority, files, err := pki.NewAuthority(strings.ReplaceAll(name, "/", "-"), legacyLifetime())
		must(t, err)
		authorities[name] = legacyAuthority{authority, files.Certificate, files.Key}
	}
	return authorities
}

// legacyCertificates are those that kubeadm makes on a host, good for the addresses.
func (f *nodesPair) legacyCertificates(authorities map[string]legacyAuthority, dir, host string, addresses ...string) {
	t := f.t
	t.Helper()
	const folder = "etc/kubernetes/pki/"
	for _, name := range []string{"sa.key", "sa.pub"} {
		data, err := os.ReadFile(f.PKI.File(name))
		must(t, err)
		writeTo(t, dir, folder+name, data)
	}
	for name, a := range authorities {
		writeTo(t, dir, folder+name+".crt", a.certificate)
		writeTo(t, dir, folder+name+".key", a.key)
	}
	for _, c := range []struct{ file, authority, name string }{
		{"apiserver", "ca", "kube-apiserver"},
		{"apiserver-etcd-client", "etcd/ca", "kube-apiserver-etcd-client"},
		{"etcd/server", "etcd/ca", host},
		{"etcd/peer", "etcd/ca", host},
		{"front-proxy-client", "front-proxy-ca", "front-proxy-client"},
	} {
		wanted := plan.Certificate{CommonName: c.name, IPs: append([]string{"127.0.0.1", "10.96.0.1"}, addresses...),
			DNSNames: []string{"localhost", host, "kubernetes", "kubernetes.default"},
			Usages:   []string{plan.UsageServer, plan.UsageClient}}
		files, err := authorities[c.authority].Issue(wanted, legacyLifetime())
		must(t, err)
		writeTo(t, dir, folder+c.file+".crt", files.Certificate)
		writeTo(t, dir, folder+c.file+".key", files.Key)
	}
	// kubeadm's is in this group; fusionctl does not issue such ones.
	certificate, key, err := f.PKI.Client(host+"-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	must(t, err)
	for from, to := range map[string]string{certificate: "crt", key: "key"} {
		data, err := os.ReadFile(from)
		must(t, err)
		writeTo(t, dir, folder+"apiserver-kubelet-client."+to, data)
	}
	for file, user := range map[string]string{"controller-manager": "system:kube-controller-manager",
		"scheduler": "system:kube-scheduler"} {
		config, err := f.PKI.Kubeconfig(host+"-"+file, "https://"+machine+":6443", user)
		must(t, err)
		data, err := os.ReadFile(config)
		must(t, err)
		writeTo(t, dir, "etc/kubernetes/"+file+".conf", data)
	}
}

// draft lets fusionctl write the spec of what runs, fills in what it asks for, and plans it.
func (f *nodesPair) draft(addresses []string, from ...string) {
	f.t.Helper()
	draft := filepath.Join(f.Dir(), "draft.yaml")
	f.fusionctl(append([]string{"init", "--name", "cluster", "--out", draft}, from...)...)
	var endpoints []string
	for _, address := range addresses {
		endpoints = append(endpoints, "'https://"+address+":2479'")
	}
	data, err := os.ReadFile(draft)
	must(f.t, err)
	text := string(data)
	for old, filled := range map[string]string{
		"endpoints: []\n": "endpoints: [" + strings.Join(endpoints, ", ") + "]\n" +
			"    managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}\n",
		"  access: []\n": runbookAccess,
	} {
		if strings.Count(text, old) != 1 {
			f.t.Fatalf("the draft has %q %d times:\n%s", old, strings.Count(text, old), text)
		}
		text = strings.Replace(text, old, filled, 1)
	}
	f.plan(text)
}

// runbook renders the plan and returns the folder with the runbook.
func (f *nodesPair) runbook(target render.Target) string {
	f.t.Helper()
	dir := filepath.Join(f.Dir(), "tree")
	f.fusionctl("render", f.SpecFile, "--out", dir, "--target", string(target))
	return dir
}

// same: the pods that were there are there, with the same containers and restart counts.
func (f *nodesPair) same(before map[string]string, when string) {
	f.t.Helper()
	after := f.started()
	maps.DeleteFunc(after, func(pod, _ string) bool { _, there := before[pod]; return !there })
	if !maps.Equal(before, after) {
		f.t.Errorf("%s the containers are %v, want %v as before", when, after, before)
	}
}

// asBefore: the legacy side creates pods of its Deployments as it did, and nothing of the modern one runs any more.
func (f *nodesPair) asBefore(target render.Target) {
	f.t.Helper()
	f.deploy(pair.Legacy, "afterwards", 1, runs("pause"))
	f.awaitReady("afterwards", 1)
	start := time.Now()
	must(f.t, f.admin.Call(f.t.Context(), http.MethodDelete, f.path(pair.Legacy, "deployments")+"/afterwards",
		object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, nil))
	f.Eventually("a Deployment that is deleted in the foreground is gone", func(ctx context.Context) error {
		err := f.admin.Call(ctx, http.MethodGet, f.path(pair.Legacy, "deployments")+"/afterwards", nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
	f.t.Logf("a Deployment that is deleted in the foreground is gone after %s", time.Since(start).Round(time.Second))
	list := "ls /etc/kubernetes/manifests"
	if target == render.Systemd {
		list = "systemctl list-units --type=service --state=running,activating,failed --plain --no-legend"
	}
	for _, n := range f.nodes {
		if out := f.runOn(n, "sh", "-c", list); strings.Contains(out, "modern") || strings.Contains(out, "fusionctl") {
			f.t.Errorf("on %s there is left: %s", n.Name, out)
		}
	}
}

// block is one of the runbook's shell blocks.
type block struct {
	// kind: do, verify, back; beside the way the words in bold that it follows, as "When they stop"
	step, kind, place, folder string
	lines                     []string
	twice                     bool // a minute apart
	ran                       bool
}

// yours is the place of commands on the reader's machine; others are names of hosts, or everyHost.
const (
	yours     = "yours"
	everyHost = "every host"
)

// runner executes the blocks of a runbook: those of the reader's machine in the sandbox, in the folder of the runbook,
// and those of a host on it. ssh enters the host.
type runner struct {
	f      *nodesPair
	target render.Target
	book   []block
	text   string
	yours  *rig.Shell
	at     map[string]*rig.Shell // by the names of hosts
	uid    string                // of the canary
	pods   int
	ran    int
	// resumed: of a host the answer was that deletions had stopped, and that they go on
	resumed bool
}

func newRunner(f *nodesPair, dir string, target render.Target) *runner {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "RUNBOOK.md"))
	must(f.t, err)
	r := &runner{f: f, target: target, text: string(data), book: parseRunbook(f.t, string(data)),
		pods: f.ordinaryPods(), at: map[string]*rig.Shell{}}
	bin := filepath.Join(f.Dir(), "bin")
	kubectl, err := rig.Binary("kubectl", 36)
	must(f.t, err)
	must(f.t, os.MkdirAll(bin, 0o755))
	must(f.t, os.Symlink(kubectl, filepath.Join(bin, "kubectl")))
	must(f.t, os.Symlink(f.program, filepath.Join(bin, "fusionctl")))
	ssh := "#!/bin/sh\nto=$1\nshift\ncase \"$to\" in\n"
	for _, n := range f.nodes {
		ssh += "root@" + n.Address + ")\n" + n.Enter() + " ;;\n"
	}
	ssh += "esac\necho \"no such host: $to\" >&2\nexit 255\n"
	must(f.t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(ssh), 0o755))
	r.yours = f.Shell(nil, dir, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+f.Dir())
	for _, n := range f.nodes {
		r.at[n.Name] = f.Shell(n, "/root", "HOME=/root")
	}
	r.installPrograms()
	return r
}

// startedProgram is a row of the table of the programs that units start.
var startedProgram = regexp.MustCompile("(?m)^\\| `(/[^`]+)` \\| (\\d[^ ]*) \\|$")

// installPrograms puts the programs on every host that the runbook says must be there.
func (r *runner) installPrograms() {
	t := r.f.t
	t.Helper()
	rows := startedProgram.FindAllStringSubmatch(r.text, -1)
	if r.target == render.Systemd && len(rows) == 0 {
		t.Fatal("the runbook has no table of programs")
	}
	for _, row := range rows {
		name := filepath.Base(row[1])
		file, err := rig.Program(name)
		if name != plan.Etcd {
			version, parseErr := kubever.Parse(row[2])
			must(t, parseErr)
			file, err = rig.Binary(name, version.Minor)
		}
		must(t, err)
		for _, n := range r.f.nodes {
			r.f.installOn(n, file, row[1], "0755")
		}
	}
}

// ordinaryPods is how many pods there are but those of manifests.
func (f *nodesPair) ordinaryPods() (count int) {
	f.t.Helper()
	pods, err := f.pods(f.t.Context(), "")
	must(f.t, err)
	return len(pods)
}

var (
	heading = regexp.MustCompile(`^## (?:(\d+)\. )?(.*)`)
	onHost  = regexp.MustCompile(`(?i)\bon ([a-z0-9]+-\d(?:, [a-z0-9]+-\d)*|every host)\b(?:, (?:which reaches the stores|one host after the other))?(?:,\s+in (/\S+?))?[:,]?\s*$`)
	marker  = regexp.MustCompile(`\*\*([A-Z][^*]*?)\.?\*\*`)
)

// parseRunbook reads the blocks. Each must say where it is executed: a reader does not guess.
func parseRunbook(t *testing.T, text string) (book []block) {
	t.Helper()
	step, kind, place, folder, prose := "", "do", "", "", ""
	var current *block
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if current != nil {
			if line == "```" {
				book, current = append(book, *current), nil
			} else {
				current.lines = append(current.lines, line)
			}
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			step, kind, place, prose = m[1], "do", "", ""
			switch {
			case m[1] == "" && strings.HasPrefix(m[2], "Pods of the modern"):
				step = "pods"
			case m[1] == "":
				step, kind = m[2], ""
			}
			continue
		}
		if line != "```sh" {
			if m := marker.FindStringSubmatch(line); m != nil {
				switch {
				case m[1] == "Verify":
					kind = "verify"
				case m[1] == "Go back":
					kind = "back"
				default:
					kind = m[1]
				}
			}
			prose += " " + line
			continue
		}
		prose = strings.TrimSpace(prose)
		switch {
		case kind == "":
			t.Errorf("%s: it is not said when to execute what follows %q", step, prose)
		case onHost.MatchString(prose):
			m := onHost.FindStringSubmatch(prose)
			place, folder = m[1], m[2]
		case strings.Contains(strings.ToLower(prose), "your machine"):
			place, folder = yours, ""
		case strings.HasSuffix(prose, "there") || prose == "" || strings.HasPrefix(prose, "Then ") ||
			strings.HasPrefix(prose, "The present state"):
		default:
			t.Errorf("step %s: the runbook does not say where to execute what follows %q", step, prose)
		}
		if kind == "do" && place == "" {
			t.Errorf("step %s: no place for what follows %q", step, prose)
		}
		current = &block{step: step, kind: kind, place: place, folder: folder,
			twice: strings.Contains(prose, "twice, a minute apart")}
		prose = ""
	}
	return book
}

// forth does what the runbook says, step by step.
func (r *runner) forth() {
	r.f.t.Helper()
	changed := false
	for i := range r.book {
		b := &r.book[i]
		if b.step == "4" && !changed {
			changed = true
			r.change(false)
		}
		if b.kind == "do" || b.kind == "verify" {
			r.execute(b)
		}
	}
	for i := range r.book { // more than a minute later
		if b := &r.book[i]; b.twice {
			r.execute(b)
		}
	}
	if r.ran < 40 {
		r.f.t.Errorf("%d commands were executed; the runbook has more", r.ran)
	}
}

// back undoes the steps in the runbook's order.
func (r *runner) back() {
	r.f.t.Helper()
	const order = "Undo step 7, then what is there for pods of the modern side, then 6, then 5, then 4, then 3."
	if !strings.Contains(r.text, order) {
		r.f.t.Errorf("the runbook does not say %q", order)
	}
	for _, step := range []string{"7", "pods", "6", "5", "4", "3"} {
		undone := 0
		if step == "4" {
			r.change(true)
			undone++
		}
		for i := range r.book {
			if b := &r.book[i]; b.step == step && b.kind == "back" {
				r.execute(b)
				undone++
			}
		}
		if undone == 0 {
			r.f.t.Errorf("step %s: nothing to go back by", step)
		}
		if step == "7" { // nobody collects any more
			r.beside("Garbage collection", "FILE", r.f.kubeconfigs[pair.Modern], "NAMESPACE", "demo",
				"LABELS-OF-THE-DEPLOYMENT", "workload=uncollected")
			if pods, err := r.f.pods(r.f.t.Context(), "uncollected"); err != nil || len(pods) > 0 {
				r.f.t.Errorf("pods of a Deployment that was deleted with its dependents: %+v, %v", pods, err)
			}
		}
	}
}

// beside executes the blocks that follow words in bold, with a word for each placeholder.
func (r *runner) beside(words string, fill ...string) {
	r.f.t.Helper()
	executed := 0
	for i := range r.book {
		b := &r.book[i]
		if b.kind != words {
			continue
		}
		filled := *b
		filled.lines = strings.Split(strings.NewReplacer(fill...).Replace(strings.Join(b.lines, "\n")), "\n")
		r.execute(&filled)
		b.ran = true
		executed++
	}
	if executed == 0 {
		r.f.t.Errorf("the runbook has no commands after %q", words)
	}
}

// nothingLeft: every block was executed.
func (r *runner) nothingLeft() {
	r.f.t.Helper()
	for i := range r.book {
		if b := &r.book[i]; !b.ran {
			r.f.t.Errorf("step %s, %s: these commands were not executed:\n%s", b.step, b.kind,
				strings.Join(b.lines, "\n"))
		}
	}
}

// stopDeletions: so many owners vanish at once that the controllers delete nothing any more. What the runbook says of
// that lets them go on; what has no owner is deleted then, and not before.
func (r *runner) stopDeletions() {
	f, t := r.f, r.f.t
	t.Helper()
	const owners = 30 // of few more: three times what stops them
	path, none := "/api/v1/namespaces/demo/configmaps", object{"kind": "DeleteOptions", "apiVersion": "v1"}
	for i := range owners {
		var owner struct{ Metadata struct{ Name, UID string } }
		must(t, f.admin.Call(t.Context(), http.MethodPost, path,
			object{"metadata": object{"name": fmt.Sprintf("owner-%d", i)}}, &owner))
		must(t, f.admin.Call(t.Context(), http.MethodPost, path,
			object{"metadata": object{"name": fmt.Sprintf("owned-%d", i), "labels": object{"owned": "yes"},
				"ownerReferences": []object{{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.Metadata.Name,
					"uid": owner.Metadata.UID}}}}, nil))
	}
	for i := range owners {
		must(t, f.admin.Call(t.Context(), http.MethodDelete, fmt.Sprintf("%s/owner-%d", path, i), none, nil))
	}
	f.Eventually("an event says that deletions have stopped", func(ctx context.Context) error {
		var events struct {
			Items []struct{ Reason, Message string }
		}
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/events", nil, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "DeletionsStopped" {
				t.Logf("deletions have stopped: %s", e.Message)
				return nil
			}
		}
		return fmt.Errorf("%d events, none says so", len(events.Items))
	})
	owned := func(ctx context.Context) (int, error) {
		var list struct{ Items []object }
		err := f.admin.Call(ctx, http.MethodGet, path+"?labelSelector=owned=yes", nil, &list)
		return len(list.Items), err
	}
	f.Throughout(3*time.Second, "while deletions have stopped", func(ctx context.Context) error {
		left, err := owned(ctx)
		if err == nil && left < owners/2 {
			err = fmt.Errorf("%d of %d objects of vanished owners are left", left, owners)
		}
		return err
	})
	r.resumed = false
	r.beside("When they stop")
	if !r.resumed {
		t.Errorf("on no host had deletions stopped")
	}
	f.Eventually("what has no owner is deleted after the acknowledgement", func(ctx context.Context) error {
		left, err := owned(ctx)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d objects are left", left)
		}
		return err
	})
}

// endNamespace: a namespace with objects of the modern side alone is emptied by the runbook's commands, and ends.
func (r *runner) endNamespace() {
	f, t := r.f, r.f.t
	t.Helper()
	customResources(t, f.Rig, f.Pair, f.user)
	must(t, f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
		object{"metadata": object{"name": "leaving"}}, nil))
	widgets := "/apis/example.test/v1/namespaces/leaving/widgets"
	deployments := strings.Replace(f.path(pair.Modern, "deployments"), "/demo/", "/leaving/", 1)
	f.Eventually("a Deployment in another namespace", func(ctx context.Context) error {
		return f.user.Call(ctx, http.MethodPost, deployments, object{"metadata": object{"name": "left"},
			"spec": object{"replicas": 0, "selector": object{"matchLabels": object{"workload": "left"}},
				"template": labelled("left", runs("pause"))}}, nil)
	})
	must(t, f.user.Call(t.Context(), http.MethodPost, widgets,
		object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": "left"}}, nil))
	r.beside("Namespaces", "NAMESPACE", "leaving")
	for _, path := range []string{deployments, widgets} {
		var list struct{ Items []object }
		if err := f.user.Call(t.Context(), http.MethodGet, path, nil, &list); err != nil || len(list.Items) > 0 {
			t.Errorf("%s afterwards: %v, %v", path, list.Items, err)
		}
	}
	must(t, f.admin.Call(t.Context(), http.MethodDelete, "/api/v1/namespaces/leaving", nil, nil))
	f.Eventually("the namespace ends", func(ctx context.Context) error {
		err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/leaving", nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
}

// exchangePolicy restarts the modern API servers, as for another policy; they answer then as they did.
func (r *runner) exchangePolicy() {
	r.f.t.Helper()
	r.beside("The policy")
	for i := range r.book {
		if b := &r.book[i]; b.step == "5" && b.kind == "verify" {
			r.execute(b)
		}
	}
}

// tableRow is a change of an argument of what runs already.
var tableRow = regexp.MustCompile("(?m)^\\| (\\S+) \\| (add|change to|remove) \\| `(--([^=`]+)(?:=[^`]*)?)` \\|")

// change makes the changes of step 4 in the manifests, as a person does, or reverts them.
func (r *runner) change(revert bool) {
	t := r.f.t
	t.Helper()
	_, text, _ := strings.Cut(r.text, "\n## 4. ")
	text, _, _ = strings.Cut(text, "\n## 5. ")
	rows := tableRow.FindAllStringSubmatch(text, -1)
	if len(rows) == 0 {
		t.Fatal("the legacy side has nothing to change: the test would prove nothing")
	}
	for _, n := range r.f.nodes {
		for _, row := range rows {
			file := "/etc/kubernetes/manifests/" + row[1] + ".yaml"
			if r.target == render.Systemd {
				file = "/etc/systemd/system/" + row[1] + ".service"
			}
			copied := "/root/" + filepath.Base(file) + ".before"
			// A kubelet reads what it finds: the file is changed beside its place, and renamed.
			changed := "/etc/kubernetes/" + filepath.Base(file) + ".new"
			if revert {
				r.f.runOn(n, "cp", copied, changed)
			} else {
				r.f.runOn(n, "cp", "-n", file, copied)
				text, err := edited(r.f.runOn(n, "cat", file), row[1], row[2], row[3], row[4])
				must(t, err)
				must(t, n.WriteFile(changed, []byte(text), 0o600))
			}
			r.f.runOn(n, "mv", changed, file)
			if r.target == render.Systemd {
				r.f.runOn(n, "systemctl", "daemon-reload")
				r.f.runOn(n, "systemctl", "restart", row[1])
			}
		}
	}
}

// edited makes one change of the table in a manifest or a unit, where every argument has a line of its own.
func edited(text, component, what, arg, name string) (string, error) {
	var lines []string
	done := false
	for line := range strings.Lines(text) {
		word := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "- "), " \\")
		has := strings.HasPrefix(word, "--"+name+"=")
		starts := word == component || strings.HasPrefix(word, "ExecStart=")
		switch {
		case what == "change to" && has:
			line, done = strings.Replace(line, word, arg, 1), true
		case what == "remove" && has:
			done = true
			continue
		case what == "add" && starts && !done:
			indent, end := "    - ", "\n"
			if word != component {
				indent, end = "  ", " \\\n"
			}
			line, done = line+indent+arg+end, true
		}
		lines = append(lines, line)
	}
	if !done {
		return "", fmt.Errorf("there is nothing to %s %s in\n%s", what, arg, text)
	}
	return strings.Join(lines, ""), nil
}

// execute executes a block, command by command.
func (r *runner) execute(b *block) {
	t := r.f.t
	t.Helper()
	b.ran = true
	var places []string
	switch b.place {
	case yours:
		r.executeIn(b, yours, r.yours)
		return
	case everyHost:
		for _, n := range r.f.nodes {
			places = append(places, n.Name)
		}
	default:
		places = strings.Split(b.place, ", ")
	}
	for _, place := range places {
		shell := r.at[place]
		if shell == nil {
			t.Fatalf("step %s: there is no host %s", b.step, place)
		}
		if b.folder != "" {
			r.must(shell, "cd "+b.folder)
		}
		r.executeIn(b, place, shell)
	}
}

// executeIn executes the commands of a block in a place's shell.
func (r *runner) executeIn(b *block, place string, shell *rig.Shell) {
	t := r.f.t
	t.Helper()
	for _, command := range commands(t, b.lines) {
		r.ran++
		command, want, compared := strings.Cut(command, "    # ")
		if variable, ok := strings.CutPrefix(command, "export "); ok { // what follows it is said of the value
			name, _, _ := strings.Cut(variable, "=")
			command, compared = "export "+name+"="+r.own(name), false
		}
		if strings.HasPrefix(want, "says why and asks") { // and is answered, at the terminal that it asks for
			command = "echo y | script -qec " + quoted(command) + " /dev/null"
		}
		start := time.Now()
		if !compared {
			r.must(shell, command)
		} else {
			r.compare(b, shell, command, want)
		}
		// With watches that it does not end, an API server takes 60 s to stop; it refuses every request meanwhile.
		if took := time.Since(start); took > 30*time.Second && strings.HasPrefix(command, "systemctl restart") {
			t.Errorf("%q took %s: an API server that does not end its watches takes a minute to stop", command, took)
		}
		t.Logf("step %s, %s, on %s, %s: %s", b.step, b.kind, place, time.Since(start).Round(100*time.Millisecond),
			strings.SplitN(command, "\n", 2)[0])
	}
}

// own is what the reader fills in.
func (r *runner) own(variable string) string {
	switch variable {
	case "LEGACY":
		return r.f.kubeconfigs[pair.Legacy]
	case "MODERN":
		return r.f.kubeconfigs[pair.Modern]
	case "LEGACY_KUBECTL":
		return "kubectl"
	}
	r.f.t.Fatalf("the runbook wants %s from its reader", variable)
	return ""
}

// must runs a command that has to succeed. `timeout` ends what goes on by itself.
func (r *runner) must(shell *rig.Shell, command string) string {
	r.f.t.Helper()
	out, code, err := shell.Run(r.f.t.Context(), command)
	if err != nil || code != 0 && (code != 124 || !strings.HasPrefix(command, "timeout ")) {
		r.f.t.Fatalf("%s\nends with %d, %v:\n%s", command, code, err, out)
	}
	return out
}

// compare runs a command until its answer is what the runbook says, for as long as the runbook says.
func (r *runner) compare(b *block, shell *rig.Shell, command, want string) {
	r.f.t.Helper()
	patience := 4 * time.Minute // twice what the runbook says: the machine is busy with other tests
	if r.f.t.Failed() {
		patience = 10 * time.Second // what comes now shows what else is wrong
	}
	deadline := time.Now().Add(patience)
	for {
		out, code, err := shell.Run(r.f.t.Context(), command)
		if err == nil {
			err = r.answers(b, want, strings.TrimSpace(out), code)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) || r.f.t.Context().Err() != nil {
			r.f.t.Errorf("step %s: %s\nends with %d:\n%s\nthe runbook says: %s\n%v", b.step, command, code, out, want,
				err)
			return
		}
		pause(r.f.t, time.Second)
	}
}

var (
	oneUID  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f-]{27}$`)
	words   = regexp.MustCompile(`^[A-Za-z0-9_./"':-]+$`)
	numeral = regexp.MustCompile(`^\d+$`)
)

// answers compares an answer with what the runbook says of it. What it does not understand it refuses.
func (r *runner) answers(b *block, want, out string, code int) error {
	says, _, _ := strings.Cut(want, ":")
	ok := false
	switch {
	case strings.HasPrefix(want, "nothing"):
		ok = out == ""
	case strings.Contains(want, "exit code 0"):
		ok = code == 0
	case want == "0 errors, complete":
		ok = code == 0 && strings.Contains(out, "0 errors") && !strings.Contains(out, "incomplete")
	case want == "the number of your pods":
		ok = out == fmt.Sprint(r.pods)
	case want == "the addresses of the legacy API servers":
		ok = slices.Equal(slices.Sorted(slices.Values(strings.Fields(out))), r.f.addresses())
	case want == "the one that rendered this":
		ok = code == 0 && out != ""
	case want == "not 0":
		ok = numeral.MatchString(out) && out != "0"
	case want == "one":
		ok = code == 0 && out != ""
	case want == "one UID":
		r.uid = out
		ok = oneUID.MatchString(out)
	case strings.HasPrefix(want, "the same UID"):
		ok = out == r.uid
	case strings.HasPrefix(want, "as many as there are objects"):
		ok = numeral.MatchString(out)
	case strings.HasPrefix(want, "says why and asks"):
		resumed := strings.Contains(out, "owners") && strings.Contains(out, "acknowledged: ")
		r.resumed = r.resumed || resumed
		ok = code == 0 && (resumed || strings.Contains(out, "nothing to acknowledge"))
	case strings.HasPrefix(want, "deletions have stopped, and why"):
		ok = strings.HasPrefix(out, "deletions have stopped since ") || out == "ok" ||
			strings.HasPrefix(out, "standing by")
	case want == "ok, or standing by":
		ok = out == "ok" || strings.HasPrefix(out, "standing by")
	case want == "absent owners":
		ok = code == 0 && !strings.Contains(out, "uncollected")
	case want == "the leader":
		ok = strings.Contains(out, "holderIdentity")
	case strings.HasSuffix(want, "is among them"):
		ok = strings.Contains(out, strings.TrimSuffix(want, " is among them"))
	case strings.Contains(want, ", the hostname, "):
		name, err := os.Hostname()
		ok = err == nil && strings.HasPrefix(out, name)
	case want == "the URL of the webhook":
		ok = strings.HasPrefix(out, "https://")
	case strings.Contains(want, "kubefusion.dev/admission is off"):
		ok = strings.Contains(out, `"kubefusion.dev/admission":"off"`) ||
			strings.Contains(out, "kubefusion.dev/admission:off")
	case strings.HasSuffix(want, ", each with port "+fmt.Sprint(r.f.Plan.Modern.Port)):
		ok = !slices.ContainsFunc(r.f.addresses(), func(address string) bool {
			return !strings.Contains(out, fmt.Sprintf("%s:%d", address, r.f.Plan.Modern.Port))
		})
	case strings.Contains(want, ", "): // all of them
		ok = !slices.ContainsFunc(strings.Split(want, ", "), func(w string) bool { return !strings.Contains(out, w) })
	case want == "0" || want == "ok" || numeral.MatchString(says):
		ok = out == says
	case words.MatchString(want) || want == "not a dynamic executable" || want == "is healthy":
		ok = strings.Contains(out, want)
	default:
		return fmt.Errorf("the test does not know how to compare with %q", want)
	}
	if !ok {
		return fmt.Errorf("the answer is another one")
	}
	return nil
}

// quoted is a word of the shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// commands splits a block into commands: lines, or more than one where a shell wants more.
func commands(t *testing.T, lines []string) (list []string) {
	t.Helper()
	pending := ""
	for _, line := range lines {
		if pending == "" && strings.HasPrefix(line, "#") {
			continue
		}
		if pending != "" {
			pending += "\n"
		}
		pending += line
		check := exec.Command("bash", "-n")
		check.Stdin = strings.NewReader(pending + "\n")
		if check.Run() == nil {
			list, pending = append(list, pending), ""
		}
	}
	if pending != "" {
		t.Errorf("no shell reads %q", pending)
	}
	return list
}

// TestRunbooksSayWhere: of every command of every example's runbook it is clear on which machine it is executed.
func TestRunbooksSayWhere(t *testing.T) {
	t.Parallel()
	specs, err := filepath.Glob("../../examples/*.yaml")
	must(t, err)
	read := 0
	for _, file := range specs {
		text, err := os.ReadFile(file)
		must(t, err)
		loaded, err := spec.Load(file, text)
		must(t, err)
		planned, err := plan.New(loaded, plan.OnHosts)
		must(t, err)
		for _, target := range []render.Target{render.StaticPod, render.Systemd} {
			files, err := render.Files(planned, render.Options{Target: target, Spec: file})
			must(t, err)
			for _, f := range files {
				if f.Path == render.RunbookFile {
					read += len(parseRunbook(t, string(f.Data)))
				}
			}
		}
	}
	if read < 100 {
		t.Errorf("%d blocks were read, want more", read)
	}
}

//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

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
`

// canaryImage is the image of the runbook's own pods.
const canaryImage = "registry.k8s.io/pause:3.9"

// TestRunbook follows a runbook to its end and back. A cluster as kubeadm makes it runs, with pods; fusionctl reads its
// manifests and renders the plan, and every command of the rendered runbook is executed as it stands, each Verify
// compared with what it says it answers; then every Go back, in the order that the runbook says. The pods of the
// cluster live through all of it.
func TestRunbook(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyCluster(t)
		book := f.runbook()
		f.writeKubeconfigs()
		before := f.started()
		r := newRunner(f, book)
		r.forth()
		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		f.same(before, "in fusion")
		must(t, f.user.Call(t.Context(), "DELETE", f.path(pair.Modern, "deployments")+"/modern",
			object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, nil))
		f.Eventually("the pods of the modern side are gone", func(ctx context.Context) error {
			pods, err := f.pods(ctx, "modern")
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("there is %s", pods[0].Metadata.Name)
			}
			return err
		})
		r.back()
		f.same(before, "after the way back")
		f.asBefore()
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster as kubeadm makes it went into fusion and back by the rendered "+
				"runbook, every command of it executed: its pods have the UIDs, containers and restart counts that "+
				"they had")
	}, fusionctlEnv)
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
	f.legacyCertificates(dir)
	f.draft(filepath.Join(dir, "etc/kubernetes/manifests"))
	images := f.PlanImages(f.Plan)
	etcd, err := rig.StoreProgram("etcd")
	must(t, err)
	images = append(
		images, rig.Image{Name: "k8s.gcr.io/etcd:3.3.10", Files: map[string]string{"usr/local/bin/etcd": etcd}},
		rig.Image{Name: canaryImage, Files: map[string]string{"prog": os.Getenv("FUSIONCTL_RIG_POD")},
			Entrypoint: []string{"/prog"}})
	n := f.StartNode(host, images...)
	f.nodes = []*rig.Node{n}
	must(t, n.CopyTree(dir))
	f.install(f.program, "/usr/local/bin/fusionctl", "0755")
	etcdctl, err := rig.StoreProgram("etcdctl")
	must(t, err)
	f.install(etcdctl, "/usr/local/bin/etcdctl", "0755")
	kubectl, err := rig.Binary("kubectl", 36)
	must(t, err)
	f.install(kubectl, "/usr/local/bin/kubectl", "0755")
	f.connect()
	f.useDemo()
	f.deploy(pair.Legacy, "deployment", 3, serves())
	f.create(pair.Legacy, f.path(pair.Legacy, "daemonsets"), object{"metadata": object{"name": "daemon"},
		"spec": object{"selector": object{"matchLabels": object{"workload": "daemon"}},
			"template": labelled("daemon", serves())}})
	f.create(pair.Legacy, f.path(pair.Legacy, "statefulsets"), object{"metadata": object{"name": "set"},
		"spec": object{"serviceName": "set", "replicas": 2,
			"selector": object{"matchLabels": object{"workload": "set"}},
			"template": labelled("set", serves())}})
	f.awaitReady("deployment", 3)
	f.awaitReady("daemon", 1)
	f.awaitReady("set", 2)
	return f
}

func writeTo(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	file := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, data, 0o600))
}

// legacyCertificates are those that kubeadm makes, with three authorities.
func (f *nodesPair) legacyCertificates(dir string) {
	t := f.t
	t.Helper()
	lifetime := pki.LifetimeOf(time.Now(), 365*24*time.Hour)
	const folder = "etc/kubernetes/pki/"
	read := func(name string) []byte {
		data, err := os.ReadFile(f.PKI.File(name))
		must(t, err)
		return data
	}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub"} {
		writeTo(t, dir, folder+name, read(name))
	}
	cluster, err := pki.ParseAuthority(read("ca.crt"), read("ca.key"))
	must(t, err)
	authorities := map[string]*pki.Authority{"ca": cluster}
	for _, name := range []string{"etcd/ca", "front-proxy-ca"} {
		authority, files, err := pki.NewAuthority(strings.ReplaceAll(name, "/", "-"), lifetime)
		must(t, err)
		authorities[name] = authority
		writeTo(t, dir, folder+name+".crt", files.Certificate)
		writeTo(t, dir, folder+name+".key", files.Key)
	}
	for _, c := range []struct{ file, authority, name string }{
		{"apiserver", "ca", "kube-apiserver"},
		{"apiserver-etcd-client", "etcd/ca", "kube-apiserver-etcd-client"},
		{"etcd/server", "etcd/ca", host},
		{"etcd/peer", "etcd/ca", host},
		{"front-proxy-client", "front-proxy-ca", "front-proxy-client"},
	} {
		wanted := plan.Certificate{CommonName: c.name, IPs: []string{"127.0.0.1", machine, "10.96.0.1"},
			DNSNames: []string{"localhost", host, "kubernetes", "kubernetes.default"},
			Usages:   []string{plan.UsageServer, plan.UsageClient}}
		files, err := authorities[c.authority].Issue(wanted, lifetime)
		must(t, err)
		writeTo(t, dir, folder+c.file+".crt", files.Certificate)
		writeTo(t, dir, folder+c.file+".key", files.Key)
	}
	// kubeadm's is in this group; fusionctl does not issue such ones.
	certificate, key, err := f.PKI.Client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	must(t, err)
	for from, to := range map[string]string{certificate: "crt", key: "key"} {
		data, err := os.ReadFile(from)
		must(t, err)
		writeTo(t, dir, folder+"apiserver-kubelet-client."+to, data)
	}
	for file, user := range map[string]string{"controller-manager": "system:kube-controller-manager",
		"scheduler": "system:kube-scheduler"} {
		config, err := f.PKI.Kubeconfig(file, "https://"+machine+":6443", user)
		must(t, err)
		data, err := os.ReadFile(config)
		must(t, err)
		writeTo(t, dir, "etc/kubernetes/"+file+".conf", data)
	}
}

// draft lets fusionctl write the spec of what runs, fills in what it asks for, and plans it.
func (f *nodesPair) draft(manifests string) {
	f.t.Helper()
	draft := filepath.Join(f.Dir(), "draft.yaml")
	f.fusionctl("init", "--from", manifests, "--name", "cluster", "--out", draft)
	data, err := os.ReadFile(draft)
	must(f.t, err)
	text := string(data)
	for old, filled := range map[string]string{
		"endpoints: []\n": "endpoints: ['https://" + machine + ":2479']\n" +
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
func (f *nodesPair) runbook() string {
	f.t.Helper()
	dir := filepath.Join(f.Dir(), "tree")
	f.fusionctl("render", f.SpecFile, "--out", dir)
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
func (f *nodesPair) asBefore() {
	f.t.Helper()
	f.deploy(pair.Legacy, "afterwards", 1, runs("pause"))
	f.awaitReady("afterwards", 1)
	if out := f.run("sh", "-c", "ls /etc/kubernetes/manifests"); strings.Contains(out, "modern") ||
		strings.Contains(out, "fusionctl") {
		f.t.Errorf("manifests are left: %s", out)
	}
}

// block is one of the runbook's shell blocks.
type block struct {
	step, kind, place, folder string // kind: do, verify, back, or "" for what is not part of the way
	lines                     []string
}

// runner executes the blocks of a runbook: those of the reader's machine in the sandbox, in the folder of the runbook,
// and those of a host on it. ssh enters the host.
type runner struct {
	f         *nodesPair
	book      []block
	text      string
	yours, at *rig.Shell
	uid       string // of the canary
	pods      int
	ran       int
}

func newRunner(f *nodesPair, dir string) *runner {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "RUNBOOK.md"))
	must(f.t, err)
	r := &runner{f: f, text: string(data), book: parseRunbook(f.t, string(data)), pods: f.ordinaryPods()}
	bin := filepath.Join(f.Dir(), "bin")
	kubectl, err := rig.Binary("kubectl", 36)
	must(f.t, err)
	must(f.t, os.MkdirAll(bin, 0o755))
	must(f.t, os.Symlink(kubectl, filepath.Join(bin, "kubectl")))
	must(f.t, os.Symlink(f.program, filepath.Join(bin, "fusionctl")))
	ssh := "#!/bin/sh\n[ \"$1\" = root@" + machine + " ] || { echo \"no such host: $1\" >&2; exit 255; }\nshift\n" +
		f.nodes[0].Enter() + "\n"
	must(f.t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(ssh), 0o755))
	r.yours = f.Shell(nil, dir, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+f.Dir())
	r.at = f.Shell(f.nodes[0], "/root", "HOME=/root")
	return r
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
	onHost  = regexp.MustCompile(`(?i)\bon (?:[a-z0-9]+-\d(?:, [a-z0-9]+-\d)*|every host)\b(?:, (?:which reaches the stores|one host after the other))?(?:,\s+in (/\S+?))?[:,]?\s*$`)
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
				case step != "" && kind != "":
					kind = "other"
				}
			}
			prose += " " + line
			continue
		}
		prose = strings.TrimSpace(prose)
		switch {
		case kind == "" || kind == "other":
		case onHost.MatchString(prose):
			place, folder = host, onHost.FindStringSubmatch(prose)[1]
		case strings.Contains(strings.ToLower(prose), "your machine"):
			place, folder = "yours", ""
		case strings.HasSuffix(prose, "there") || prose == "" || strings.HasPrefix(prose, "Then ") ||
			strings.HasPrefix(prose, "The present state"):
		default:
			t.Errorf("step %s: the runbook does not say where to execute what follows %q", step, prose)
		}
		if kind == "do" && place == "" {
			t.Errorf("step %s: no place for what follows %q", step, prose)
		}
		current = &block{step: step, kind: kind, place: place, folder: folder}
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
	for _, row := range rows {
		manifest := "/etc/kubernetes/manifests/" + row[1] + ".yaml"
		copied := "/root/" + row[1] + ".yaml.before"
		if revert {
			r.f.edit(copied, manifest, "")
			continue
		}
		r.f.run("cp", "-n", manifest, copied)
		switch row[2] {
		case "add":
			r.f.edit(manifest, manifest, "s|^    - "+row[1]+"$|&\\n    - "+row[3]+"|")
		case "change to":
			r.f.edit(manifest, manifest, "s|^    - --"+row[4]+"=.*|    - "+row[3]+"|")
		case "remove":
			r.f.edit(manifest, manifest, "/^    - --"+row[4]+"=/d")
		}
	}
}

// execute executes a block, command by command.
func (r *runner) execute(b *block) {
	t := r.f.t
	t.Helper()
	shell := r.yours
	if b.place == host {
		shell = r.at
		if b.folder != "" {
			r.must(shell, "cd "+b.folder)
		}
	}
	for _, command := range commands(t, b.lines) {
		r.ran++
		command, want, compared := strings.Cut(command, "    # ")
		if variable, ok := strings.CutPrefix(command, "export "); ok { // what follows it is said of the value
			name, _, _ := strings.Cut(variable, "=")
			command, compared = "export "+name+"="+r.own(name), false
		}
		start := time.Now()
		if !compared {
			r.must(shell, command)
		} else {
			r.compare(b, shell, command, want)
		}
		t.Logf("step %s, %s, on %s, %s: %s", b.step, b.kind, b.place, time.Since(start).Round(100*time.Millisecond),
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
		ok = out == machine
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
	case want == "the leader":
		ok = strings.Contains(out, "holderIdentity")
	case strings.HasSuffix(want, "is among them"):
		ok = strings.Contains(out, strings.TrimSuffix(want, " is among them"))
	case strings.Contains(want, "as the machine calls itself"):
		name, err := os.Hostname()
		ok = err == nil && strings.HasPrefix(out, name)
	case want == "the URL of the webhook":
		ok = strings.HasPrefix(out, "https://")
	case strings.Contains(want, "kubefusion.dev/admission is off"):
		ok = strings.Contains(out, `"kubefusion.dev/admission":"off"`) ||
			strings.Contains(out, "kubefusion.dev/admission:off")
	case strings.HasSuffix(want, ", each with port "+fmt.Sprint(r.f.Plan.Modern.Port)):
		ok = strings.Contains(out, fmt.Sprintf("%s:%d", machine, r.f.Plan.Modern.Port))
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

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/pki"
)

// evil clears the screen, names the window, colours, turns text around and begins lines: one that looks like an answer,
// and one that looks like a record of the log.
const evil = "\x1b[2J\x1b]0;x\x07\u009b31m\u202e\u2066\x7f\x00\r\nforged: clean\nlevel=INFO msg=forged\ttab\u0085\u2028"

// TestNothingMovesTheCursor feeds every verb files, stores and an API server in which everything that a developer can
// name is evil. Whatever it prints has lines of its own alone, and no character that does anything but be seen.
func TestNothingMovesTheCursor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	lines := func(values ...any) string {
		var out bytes.Buffer
		for _, value := range values {
			if err := json.NewEncoder(&out).Encode(value); err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	}
	name := strings.ReplaceAll(evil, "\x00", "") // as files and arguments may be named
	good := file("good.yaml", cli.PKISpec)
	split, err := filepath.Abs(splitSpec)
	if err != nil {
		t.Fatal(err)
	}
	bad := file("bad"+name+".yaml",
		lines(object{"apiVersion": "kubefusion.dev/v1alpha1", "kind": "FusedControlPlane" + evil,
			"metadata": object{"name": evil, evil: evil},
			"spec":     object{"layout": evil, evil: 1, "legacy": object{"version": evil}}}))
	rule := func(user string) object {
		return object{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
			"spec": object{"user": user, "group": "g" + evil, "namespace": "n" + evil, "resource": "pods" + evil,
				"apiGroup": "*"}}
	}
	policy := file("policy"+name, lines(rule("alice"+evil), rule("*")))
	broken := file("broken"+name, lines(object{"user": evil, evil: evil})+"{"+evil)
	audit := file("audit"+name,
		lines(object{"kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete", "verb": "get",
			"level":      "Metadata",
			"requestURI": "/apis/g.example/v1beta1/pizzas",
			"user":       object{"username": "u" + evil, "groups": []string{"g" + evil}}, "userAgent": "agent" + evil,
			"objectRef": object{"resource": "pizzas", "apiGroup": "g.example", "apiVersion": "v1beta1",
				"namespace": "n" + evil, "name": "n" + evil},
			"responseStatus": object{"code": 200}, "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z"})+"{")
	cases := file("cases"+name,
		lines([]object{{"name": evil, "user": evil, "verb": evil, "resource": evil, "allow": true}}))
	pod := object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "pod" + evil, "namespace": "n" + evil, "annotations": object{"a" + evil: evil},
			"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": "ReplicaSet" + evil, "name": "o" + evil,
				"uid": "u", "controller": true}}},
		"spec": object{"nodeName": "node" + evil, "containers": []object{{"name": "c" + evil, "image": "i" + evil}}}}
	deployment := object{"apiVersion": "extensions/v1beta1", "kind": "Deployment",
		"metadata": object{"name": "d" + evil, "namespace": "n" + evil},
		"spec": object{"rollbackTo": object{"revision": 3},
			"template": object{"metadata": object{"labels": object{"a": "b"}},
				"spec": object{"containers": []object{{"name": "c" + evil, "image": "i"}}}}}}
	objects := file("objects"+name+".json",
		lines(object{"apiVersion": "v1", "kind": "List", "items": []object{pod, deployment}}))
	noObjects := file("none"+name+".yaml", "a: \"\\e"+"\"\n---\n"+evil)
	crd := file("crd"+name+".yaml",
		lines(object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": "pizzas.g.example"},
			"spec": object{"group": "g.example", "scope": "Namespaced",
				"names": object{"plural": "pizzas", "kind": "Pizza" + evil},
				"versions": []object{{"name": "v1", "served": true, "storage": true,
					"schema": object{"openAPIV3Schema": object{"type": "object",
						"properties": object{"p" + evil: object{"type": "string" + evil}}}}}}}}))
	rules := file("rules/rules"+name+".yaml",
		lines(object{"apiVersion": "kubefusion.dev/v1alpha1", "kind": evil, "metadata": object{"name": evil}, evil: 1}))
	units := filepath.Dir(file("units/kube-apiserver"+name+".yaml",
		lines(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "kube-apiserver" + evil},
			"spec": object{"containers": []object{{"name": "kube-apiserver", "image": "hyperkube:v1.6.13",
				"command": []string{"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
					"--x" + evil + "=" + evil},
				"env": []object{{"name": evil, "value": evil}}}}}})))
	_, pair, err := pki.NewAuthority("ca"+evil, pki.LifetimeOf(time.Now(), time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := file("certs/ca"+name+".crt", string(pair.Certificate)), file("keys/ca.key", string(pair.Key))
	state := filepath.Dir(file("state/witness.json", lines(object{"schema": "fusionctl/witness/v1", "pair": "p" + evil,
		"stop": object{"id": evil, "since": "2026-01-02T03:04:05Z", "why": []string{"store " + evil}}})))
	kubeconfig := fakeServer(t, evil)
	messages := []object{{"type": "Progressing", "status": "False", "reason": "R", "message": evil,
		"lastTransitionTime": "2026-01-02T03:04:05Z"}, {"type": "Degraded", "status": "True", "reason": "R",
		"message": evil, "lastTransitionTime": "2026-01-02T03:04:05Z"}}
	ended := []object{{"from": evil, "to": evil, "plan": evil, "error": evil, "ended": "2026-01-02T03:04:05Z"}}
	_, management := newManagement(t, map[string]object{
		"w": {"phase": "Waiting", "plan": evil, "runs": evil, "conditions": messages, "history": ended},
		"p": {"phase": evil, "plan": evil, "runs": evil, "conditions": messages,
			"transition": object{"from": evil, "to": evil, "plan": evil, "steps": 2, "done": 1, "step": evil}}})
	servers := twoServers(t)
	for _, server := range servers {
		server.Put(t, map[string][]byte{
			"/registry/pods/n" + evil + "/pod" + evil: []byte(lines(pod)),
			"/registry/leases/n" + evil + "/lease" +
				evil: []byte(lines(object{"apiVersion": "coordination.k8s.io/v1" + evil, "kind": "Lease" + evil,
				"metadata": object{"name": "x" + evil}})),
			"/registry/strange" + evil + "/x/y": []byte(evil),
		})
	}
	stores := endpoints(servers)
	movePlan, crdPlan := filepath.Join(dir, "move"+name), filepath.Join(dir, "crdplan"+name)
	auditPlan := filepath.Join(dir, "gone"+name)

	steps := file("steps"+name, lines(object{"schema": "fusionctl/transition/v1", "from": evil, "to": evil,
		"steps": []object{{"id": "1" + evil, "phase": evil, "host": "h", "title": evil, "do": object{"kind": evil}}}}))

	verbs := map[string][][]string{
		"init":        {{"--from", units}, {"--from", auditPlan}, {evil}},
		"init shared": {{"--legacy", evil}},
		"init split":  {{"--modern", evil}, {"-o", bad}},
		"check": {{bad}, {good, "--live", "--legacy-kubeconfig", kubeconfig, "--modern-kubeconfig",
			kubeconfig}, {good, "--objects", objects}},
		"plan": {{bad}, {good}},
		"gateway": {{}, {bad}, {good, "--legacy-kubeconfig", kubeconfig, "--modern-kubeconfig", kubeconfig,
			"--proxy-cert",
			name, "--proxy-key", name, "--tls-cert", name, "--tls-key", name, "--client-ca", name}},
		"gateway routes": {{bad}, {good}, {good, "--legacy-kubeconfig", kubeconfig, "--modern-kubeconfig", kubeconfig}},
		"graph":          {{bad}, {good}},
		"report": {{bad}, {good, "-o", "markdown"}, {good, "-o", evil}, {good, "-o", "html", "--diff", units},
			append([]string{split, "-o", "html"}, stores...), append([]string{split, "-o", "markdown"}, stores...),
			{good, "--restarts", objects}},
		"explain":              {{evil}},
		"licenses":             {{}, {evil}},
		"monitoring dashboard": {{}, {"--part", evil}},
		"monitoring rules":     {{}, {"--part", evil}},
		"pki": {{bad, "--ca-cert", certificate, "--ca-key", key, "--out",
			filepath.Join(dir, "p"+name)}, {good, "--ca-cert", certificate, "--ca-key", policy, "--out", "x"}},
		"pki show": {{filepath.Dir(certificate)}, {auditPlan}},
		"render": {{bad, "--out", "-"}, {good, "--out", filepath.Join(dir, "r"+name)},
			{good, "--out", dir}, {good, "--diff", units}, {good, "--out", "-", "--host", evil}},
		"preflight": {{bad, "--skip", "ports,stores,images,kubelet"}, {good, "--host", evil},
			{good, "--skip", "ports,stores,images,kubelet", "--staged", dir},
			{good, "--skip", "ports,stores,images,kubelet", "--staged", evil}, {good, "--skip", evil}},
		"roadmap":           {{good, "--to", "1.36"}, {bad, "--to", "1.36"}, {good, "--to", evil}},
		"transition plan":   {{bad, good}, {"none", good}, {good, evil}},
		"transition apply":  {{steps, "--rehearse", dir, "--yes"}, {bad, "--yes"}},
		"transition undo":   {{steps, "--rehearse", dir, "--yes"}, {bad, "--yes"}},
		"transition status": {{steps}, {bad}},

		"transition acknowledge": {{steps, "--yes"}, {bad, "--yes"}},
		"transition restore": {{bad, "--from", "/b/20261124T013000Z"}, {good, "--from", "/b/20261124T013000Z"},
			{good, "--from", "/" + evil + "/20261124T013000Z"}, {good, "--from", evil}},

		"transition agent": {{"--lock", bad}, {evil}},
		"version":          {{}, {evil}},
		"versions":         {{evil}, {"--minor", evil}},
		"policy validate":  {{policy}, {broken}, {auditPlan}},
		"policy generate":  {{bad}, {"--preset", evil}, {good}},
		"policy can-i": {{policy, "get", "pods" + evil, "--as", "alice" + evil}, {broken, "get", "pods"},
			{policy, "get", "pods", "--as", evil}},
		"policy diff": {{policy, broken}, {policy, file("other", lines(rule("bob"+evil)))}},
		"policy prove": {{policy, "--deny", "read pods" + evil},
			{policy, "--deny", "read pods by user " + evil}, {policy, "--deny", "any secrets"}},
		"policy to-rbac":    {{policy}, {broken}},
		"policy from-audit": {{audit}, {audit, "--policy", policy}},
		"policy test":       {{policy, "--cases", cases}},
		"policy presets":    {{}, {evil}},
		"policy serve":      {{broken, "--insecure-http", "--listen", "127.0.0.1:0"}},
		"etcd check": {append([]string{split}, stores...), append([]string{bad}, stores...),
			{split, "--endpoints", evil}},
		"etcd ls": {append([]string{split}, stores...)},
		"etcd get": {append([]string{split, "pods/n" + evil + "/pod" + evil}, stores...),
			append([]string{split, evil}, stores...)},
		"etcd diff":      {append([]string{split, "core", "modern", "--values"}, stores...)},
		"etcd watch":     {append([]string{split, "--interval", "10ms"}, stores...)},
		"etcd move plan": {append([]string{split, "--out", movePlan}, stores...)},
		"etcd move apply": {append([]string{split, movePlan, "--yes"}, stores...),
			append([]string{split, policy, "--yes"}, stores...)},
		"etcd move undo": {append([]string{split, movePlan, "--yes"}, stores...)},
		"etcd backup": {append([]string{split, "--out", filepath.Join(dir, "backups"+name)}, stores...),
			{bad, "--out", dir}, {"--source", policy, "--out", dir}},
		"etcd restore": {{policy, "--data-dir", filepath.Join(dir, "member"+name), "--id", "a", "--name", name,
			"--peer-url", evil, "--cluster", evil, "--token", evil}, {"--back", "--data-dir", dir, "--id", evil}},
		"convert": {{"-f", objects, "--for", "1.36"}, {"-f", objects, "--for", "1.36", "--report"},
			{"-f", noObjects, "--for", "1.36"}, {"-f", objects, "--for-server", kubeconfig, "--report"},
			{"-f", objects, "--to", evil}},
		"convert check": {{"-f", objects, "--for", "1.36", "--all"},
			{"--kubeconfig", kubeconfig, "--for", "1.36", "--all"}, {"-f", noObjects, "--for", "1.36"}},
		"convert negotiate": {{"v1/Pod", evil, "--for", "1.36"}, {"v1/Pod" + evil, "--kubeconfig", kubeconfig}},
		"restarts hash":     {{objects, "--kubelet", "1.12"}, {noObjects, "--kubelet", "1.12"}},
		"restarts plan": {{"--from", "1.12", "--to", "1.17", "-f", objects},
			{"--from", "1.12", "--to", "1.17", "--kubeconfig", kubeconfig}},
		"restarts annotate": {{"--from", "1.12", "--to", "1.17", "-f", objects},
			{"--from", "1.12", "--to", "1.17", "--kubeconfig", kubeconfig, "--runtime", objects}},
		"controllers": {{"--spec", bad, "--legacy-kubeconfig", kubeconfig, "--modern-kubeconfig", kubeconfig},
			{"--spec", good, "--legacy-kubeconfig", auditPlan, "--modern-kubeconfig", kubeconfig}},
		"controllers acknowledge": {{"--state-dir", state, "--yes"}, {"--state-dir", state, "--yes", "-o", "yaml"},
			{"--state-dir", evil}, {"--state-dir", filepath.Dir(policy), "--why", evil}},
		"crd status": {{"--kubeconfig", kubeconfig}, {evil, "--kubeconfig", kubeconfig}},
		"crd plan": {{"pizzas.g.example", "--kubeconfig", kubeconfig, "--storage", "v1", "--out", crdPlan},
			{evil, "--kubeconfig", kubeconfig}},
		"crd apply":          {{crdPlan, "--kubeconfig", kubeconfig, "--yes"}, {policy, "--kubeconfig", kubeconfig}},
		"crd undo":           {{crdPlan, "--kubeconfig", kubeconfig, "--yes"}},
		"crd diff":           {{crd, "--kubeconfig", kubeconfig}, {noObjects, crd}},
		"crd clients":        {{"pizzas.g.example", "--version", "v1beta1", "--audit-log", audit}},
		"crd test":           {{rules, "--crd", crd}},
		"crd webhook":        {{"--rules", filepath.Dir(rules), "--insecure-http", "--listen", "127.0.0.1:0"}},
		"operator":           {{"--kubeconfig", auditPlan}, {"--context", evil, "--kubeconfig", auditPlan}, {evil}},
		"operator manifests": {{}, {"--chart", "--name", evil}},
		"operator get":       {{"--kubeconfig", management}, {evil, "--kubeconfig", management}},
		"operator plan":      {{"p", "--kubeconfig", management}, {"none", "--kubeconfig", management}},
		"operator history":   {{"--kubeconfig", management}},
		"operator approve": {{"w", "--yes", "--kubeconfig", management},
			{"p", "--yes", "--kubeconfig", management}},
		"operator back":   {{"p", "--yes", "--kubeconfig", management}, {"w", "--yes", "--kubeconfig", management}},
		"operator done":   {{"w", "--yes", "--kubeconfig", management}, {"p", "--yes", "--kubeconfig", management}},
		"operator report": {{"w", "--kubeconfig", management}, {"none", "--kubeconfig", management}},
		"agent": {{"--plane", evil, "--host", evil}, {"--plane", "p", "--host", "h", "--kubeconfig", auditPlan},
			{"--plane", "p", "--host", "h", "--kubeconfig", kubeconfig, "--state-dir", evil}},
		"crd webhook manifests": {{"--rules", filepath.Dir(rules), "--image", evil, "--ca", certificate, "--for",
			"1.36"}},
	}
	order := []string{"etcd check", "etcd ls", "etcd get", "etcd diff", "etcd watch", "etcd backup",
		"etcd restore", "etcd move plan", "etcd move apply", "etcd move undo", "crd status", "crd plan", "crd apply",
		"crd undo"}
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		if cmd.Flags().Lookup("output") != nil && verbs[path] == nil {
			t.Errorf("fusionctl %s is not fed", path)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && verbs[path] == nil &&
			!slices.Contains([]string{"demo", "help"}, cmd.Name()) && cmd.Parent().Name() != "completion" {
			t.Errorf("fusionctl %s is not fed", path)
		}
		for _, args := range verbs[path] {
			for _, format := range formats(cmd) {
				feed(t, strings.Fields(path), slices.Concat(args, format), path == "convert" &&
					!slices.Contains(args, "--report"))
			}
		}
		for _, child := range cmd.Commands() {
			if next := strings.TrimSpace(path + " " + child.Name()); !slices.Contains(order, next) {
				walk(child, next)
			}
		}
	}
	root := cli.NewRootCmd(cli.Streams{})
	walk(root, "")
	for _, path := range order {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		walk(cmd, path)
	}
}

// formats are the ways to print that a verb knows, as arguments.
func formats(cmd *cobra.Command) [][]string {
	flag := cmd.Flags().Lookup("output")
	if flag == nil || !strings.Contains(flag.Usage, ": ") {
		return [][]string{nil}
	}
	var all [][]string
	for word := range strings.SplitSeq(flag.Usage[strings.LastIndex(flag.Usage, ": ")+2:], ", ") {
		all = append(all, []string{"--output", word})
	}
	return all
}

// endless is what a verb prints that does not end by itself: once it has printed enough, it is ended.
type endless struct {
	bytes.Buffer
	enough string
	end    func() // called once; nil: the verb ends
}

func (e *endless) Write(p []byte) (int, error) {
	n, err := e.Buffer.Write(p)
	if e.end != nil && bytes.Contains(e.Bytes(), []byte(e.enough)) {
		e.end()
		e.end = nil
	}
	return n, err
}

// feed runs a verb and looks at what it prints. Data are objects as they were given.
func feed(t *testing.T, verb, args []string, data bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs endless
	switch strings.Join(verb, " ") {
	case "etcd watch": // it goes on after a check
		out = endless{enough: `"checked"`, end: cancel}
	case "crd apply", "crd undo": // they try again after a while
		errs = endless{enough: "\n", end: func() { time.AfterFunc(time.Second, cancel) }}
	}
	all := slices.Concat(verb, args)
	code := cli.Main(ctx, append(all, "-vv"), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	for stream, text := range map[string]string{"stdout": out.String(), "stderr": errs.String()} {
		if data && stream == "stdout" || slices.Contains(args, "raw") {
			continue
		}
		bad := func(r rune) bool {
			return r != '\n' && r != '\t' &&
				(unicode.IsControl(r) || r <= 0xffff && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, bad) {
			t.Errorf("fusionctl %q sends a raw character to %s: %q", all, stream, text)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "forged") || strings.HasPrefix(line, "level=INFO msg=forged") {
				t.Errorf("fusionctl %q has a forged line on %s:\n%s", all, stream, text)
				break
			}
		}
	}
	if code != 0 && code != 3 || out.Len() == 0 || slices.Contains(args, "--report") {
		return
	}
	switch text := out.String(); {
	case slices.Contains(args, "json") && !slices.Contains(verb, "convert") && !json.Valid([]byte(text)):
		t.Errorf("fusionctl %q prints no JSON: %q", all, text)
	case slices.Contains(args, "yaml"):
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Errorf("fusionctl %q prints no YAML: %v: %q", all, err, text)
		}
	}
}

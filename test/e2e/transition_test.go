//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// manager is the manifest whose arguments a person changes.
const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"

// edit writes a file as sed changes it into the directory of manifests, at once: a kubelet takes every file there that
// does not begin with a dot for a manifest, the temporary ones of sed, too.
func (f *nodesPair) edit(from, manifest, script string) {
	f.t.Helper()
	hidden := filepath.Join(filepath.Dir(manifest), ".edited")
	f.run("sh", "-c", `install -m 0600 /dev/null "$3" && sed "$0" "$1" > "$3" && mv "$3" "$2"`, script, from, manifest,
		hidden)
}

// checksums are those of everything that starts components, and of what they read beside certificates.
const checksums = "cd /etc/kubernetes && find . -type f ! -path './pki/*' ! -name kubelet.yaml | sort | xargs sha256sum"

// hasArgument returns nil when a legacy controller manager runs, and none without what the text says: the one before
// may end after the new one has started.
func (f *nodesPair) hasArgument(text string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		out, err := f.nodes[0].Run(ctx, "pgrep", "-af", "kube-controller-manager")
		if err != nil {
			return fmt.Errorf("no such process: %w: %s", err, out)
		}
		for line := range strings.Lines(out) {
			if !strings.Contains(line, text) {
				return fmt.Errorf("a process runs without %s: %s", text, line)
			}
		}
		return nil
	}
}

// issueCertificates issues those of the plan by the authorities of the one machine, whose files lie in a folder, and
// puts them there.
func (f *nodesPair) issueCertificates(legacy string) {
	t := f.t
	t.Helper()
	certificates := filepath.Join(f.Dir(), "certificates")
	pki := filepath.Join(legacy, "etc/kubernetes/pki")
	folder := filepath.Join(certificates, f.nodes[0].Name, "etc/kubernetes")
	must(t, os.MkdirAll(folder, 0o755))
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", pki, folder).CombinedOutput(); err != nil {
		t.Fatalf("copying certificates: %v\n%s", err, out)
	}
	f.issue(pki, certificates)
	must(t, f.nodes[0].CopyTree(filepath.Join(certificates, f.nodes[0].Name)))
}

// issue issues certificates of the plan into a directory, by the authorities whose files lie in the folder pki.
func (f *nodesPair) issue(pki, dir string) {
	f.t.Helper()
	args := []string{"pki", f.SpecFile, "--out", dir}
	for flag, name := range map[string]string{"ca": "ca", "etcd-ca": "etcd/ca", "front-proxy-ca": "front-proxy-ca"} {
		args = append(args, "--"+flag+"-cert", filepath.Join(pki, name+".crt"),
			"--"+flag+"-key", filepath.Join(pki, name+".key"))
	}
	f.fusionctl(args...)
}

// planTransition issues the certificates, puts what apply needs on the machine and plans the steps there. It returns
// their numbers by title.
func (f *nodesPair) planTransition() map[string]string {
	t := f.t
	t.Helper()
	f.issueCertificates(filepath.Join(f.Dir(), "legacy"))
	f.install(f.SpecFile, "/root/spec.yaml", "0600")
	out := f.run("fusionctl", "transition", "plan", "none", "/root/spec.yaml", "--out", stepsFile, "-o", "json")
	var printed struct{ Steps []struct{ ID, Title string } }
	must(t, json.Unmarshal([]byte(out), &printed))
	steps := map[string]string{}
	for _, s := range printed.Steps {
		steps[s.Title] = s.ID
	}
	return steps
}

const stepsFile = "/root/install.steps"

// transitionWords are the command line of apply or undo, which says every record.
func transitionWords(verb, done string) []string {
	words := []string{"fusionctl", "transition", verb, stepsFile, "--yes", "--wait", "5m", "-o", "json"}
	if done != "" {
		words = append(words, "--done", done)
	}
	return words
}

// transition runs apply or undo to its end.
func (f *nodesPair) transition(verb, done string) {
	f.t.Helper()
	start := time.Now()
	f.run(transitionWords(verb, done)...)
	f.t.Logf("%s to its end after %s", verb, time.Since(start).Round(time.Millisecond))
}

// fails runs apply or undo, which has to fail, and to say why.
func (f *nodesPair) fails(verb, done, says string) {
	f.t.Helper()
	out, err := f.nodes[0].Run(f.t.Context(), transitionWords(verb, done)...)
	if err == nil || !strings.Contains(out, says) {
		f.t.Fatalf("%s = %v, want it to fail and to say %q:\n%s", verb, err, says, out)
	}
}

// stops kills apply or undo when it has begun a step.
func (f *nodesPair) stops(verb, done, title string, steps map[string]string) {
	f.t.Helper()
	f.killedAt(transitionWords(verb, done), verb, title, steps)
	status, err := f.nodes[0].Run(f.t.Context(), "fusionctl", "transition", "status", stepsFile)
	if err == nil || !strings.Contains(status, fmt.Sprintf(" of %d steps done", len(steps))) {
		f.t.Errorf("status after %s was killed at %s: %v\n%s", verb, title, err, status)
	}
}

// killedAt kills a command line of apply or undo when it has begun a step.
func (f *nodesPair) killedAt(words []string, verb, title string, steps map[string]string) {
	t := f.t
	t.Helper()
	event := map[string]string{"apply": "begun", "undo": "undoing"}[verb]
	id := steps[title]
	if id == "" {
		t.Fatalf("no step %q: %v", title, steps)
	}
	script := strings.Join(words, " ") + ` > /root/records 2>&1 &
		until grep -q '"step":"` + id + `","event":"` + event + `"' /root/records; do
			kill -0 $! || { cat /root/records; exit 1; }
			sleep 0.02
		done
		kill -9 $!
		wait $!
		echo "killed: $?"`
	out, err := f.nodes[0].Run(t.Context(), "sh", "-c", script)
	if err != nil || !strings.Contains(out, "killed: 137") {
		t.Fatalf("%s, to be killed at step %s, %s: %v\n%s", verb, id, title, err, out)
	}
}

// haveFinalizer: some namespace has the finalizer of both sides, or none.
func (f *nodesPair) haveFinalizer(want bool) {
	t := f.t
	t.Helper()
	var list struct {
		Items []struct{ Spec struct{ Finalizers []string } }
	}
	must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces", nil, &list))
	has := slices.ContainsFunc(list.Items, func(ns struct{ Spec struct{ Finalizers []string } }) bool {
		return slices.Contains(ns.Spec.Finalizers, "kubefusion.dev/both-sides")
	})
	if has != want || len(list.Items) == 0 {
		t.Errorf("of %d namespaces some have the finalizer of both sides: %t, want %t", len(list.Items), has, want)
	}
}

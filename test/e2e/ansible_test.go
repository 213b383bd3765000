//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestAnsibleOnARealHost: a control plane that runs as units of systemd, with pods, goes into fusion and back by the
// playbooks of `render --target ansible-systemd`, on its own host. What they leave to people is done when they ask for
// it, and not before.
func TestAnsibleOnARealHost(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyUnits(t, 15, 1)
		f.issueCertificates(filepath.Join(f.Dir(), "legacy", f.nodes[0].Name))
		f.install(f.SpecFile, "/root/spec.yaml", "0600")
		const target = "ansible-systemd"
		tree := f.runbook(target)
		change := newRunner(f, tree, render.Systemd).change
		before, files := f.started(), f.run("sh", "-c", unitSums)
		p := &playbooks{f: f, dir: filepath.Join(tree, "ansible")}

		p.stops("site.yml", "kube-controller-manager runs without --")
		change(false)
		p.asks("site.yml", "allow user fusionctl-controllers")
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f", filepath.Join(tree, "legacy-access.yaml"))
		p.ends("site.yml")

		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		f.same(before, "in fusion")
		if out := f.run("fusionctl", "etcd", "check", "/root/spec.yaml"); !strings.Contains(out, "0 errors") {
			t.Errorf("the stores in fusion: %s", out)
		}
		must(t, f.user.Call(t.Context(), "DELETE", f.path(pair.Modern, "deployments")+"/modern",
			object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, nil))
		f.awaitReady("modern", 0)

		p.done = nil
		p.asks("undo.yml", "make sure that no namespace is being deleted")
		p.asks("undo.yml", "kubefusion.dev/both-sides")
		f.release()
		p.asks("undo.yml", "take back")
		change(true)
		p.ends("undo.yml")
		f.same(before, "after the way back")
		f.asBefore(render.Systemd)
		if after := f.run("sh", "-c", unitSums); after != files {
			t.Errorf("the files are\n%s\nwant as before\n%s", after, files)
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster whose control plane runs as units of systemd goes into fusion and back by the rendered "+
				"playbooks of Ansible: its pods have the UIDs, containers and restart counts that they had, its units "+
				"the same bytes")
	}, fusionctlEnv)
}

// unitSums are the checksums of what starts components, and of what they read beside certificates.
const unitSums = "cd / && find etc/systemd/system etc/kubernetes -type f ! -path '*/pki/*' | sort | xargs sha256sum"

// playbooks are run on the host that they are for.
type playbooks struct {
	f    *nodesPair
	dir  string
	done []string // the steps that a person has done
}

// run runs one.
func (p *playbooks) run(book string) (string, error) {
	p.f.t.Helper()
	vars, err := json.Marshal(map[string]any{"ansible_user": "root", "done": p.done})
	must(p.f.t, err)
	start := time.Now()
	out, err := p.f.nodes[0].Run(p.f.t.Context(), "sh", "-c", `cd "$0" && HOME=/root LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1 `+
		`ANSIBLE_PIPELINING=1 ansible-playbook -i inventory.yml -c local -e "$1" "$2"`, p.dir, string(vars), book)
	p.f.t.Logf("%s, done %v: %v after %s", book, p.done, err, time.Since(start).Round(time.Second))
	return out, err
}

// ends runs one to its end.
func (p *playbooks) ends(book string) {
	p.f.t.Helper()
	if out, err := p.run(book); err != nil {
		p.f.t.Fatalf("%s: %v\n%s", book, err, out)
	}
}

// stops runs one that has to stop, and to say why.
func (p *playbooks) stops(book, says string) string {
	p.f.t.Helper()
	out, err := p.run(book)
	if err == nil || !strings.Contains(out, says) {
		p.f.t.Fatalf("%s = %v, want it to stop and to say %q:\n%s", book, err, says, out)
	}
	return out
}

// again is what a playbook says of the steps that a person has done.
var again = regexp.MustCompile(`-e '\{\\?"done\\?": \[(.*?)\]\}'`)

// asks runs one that has to stop for a person. The step counts as done afterwards.
func (p *playbooks) asks(book, says string) {
	t := p.f.t
	t.Helper()
	out := p.stops(book, says)
	m := again.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("%s does not say how to go on:\n%s", book, out)
	}
	p.done = append(p.done, strings.Split(strings.NewReplacer(`\`, "", `"`, "", " ", "").Replace(m[1]), ",")...)
	slices.Sort(p.done)
	p.done = slices.Compact(p.done)
}

// release does what the runbook says of what the controllers of both sides leave behind.
func (f *nodesPair) release() {
	t := f.t
	t.Helper()
	f.kubectlMust(pair.Legacy, "--namespace=default", "delete", "-f",
		filepath.Join(f.Dir(), "tree", "legacy-access.yaml"))
	var list struct{ Items []object }
	must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces", nil, &list))
	released := 0
	for _, n := range list.Items {
		spec, name := n["spec"].(map[string]any), n["metadata"].(map[string]any)["name"].(string)
		if !slices.Contains(spec["finalizers"].([]any), any("kubefusion.dev/both-sides")) {
			continue
		}
		spec["finalizers"] = []string{"kubernetes"}
		must(t, f.admin.Call(t.Context(), http.MethodPut, "/api/v1/namespaces/"+name+"/finalize", n, nil))
		released++
	}
	if released == 0 {
		t.Error("no namespace has the finalizer of both sides")
	}
}

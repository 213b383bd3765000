//go:build e2e && linux

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/test/rig"
)

// agentUnit is where a machine has units that are none of the control plane's.
const agentUnit = "/run/rig-units/fusionctl-agent.service"

// startAgent runs fusionctl agent as a unit of the first machine, with an identity that may ask for a certificate.
func (f *nodesPair) startAgent(m *management, plane string) {
	t := f.t
	t.Helper()
	m.ok("", "create", "clusterrolebinding", "fusionctl-bootstrap", "--clusterrole=system:node-bootstrapper",
		"--group=system:bootstrappers:fusionctl")
	bootstrap, err := m.PKI.Kubeconfig("bootstrap", m.server.URL, "system:bootstrap:agents",
		"system:bootstrappers:fusionctl")
	must(t, err)
	f.install(bootstrap, "/etc/fusionctl/bootstrap.conf", "0600")
	f.install(f.PKI.File("ca.crt"), "/etc/fusionctl/registries.crt", "0644")
	n := f.nodes[0]
	must(t, n.WriteFile(agentUnit, []byte("[Service]\nExecStart=/usr/local/bin/fusionctl agent --plane "+plane+
		" --host "+n.Name+" --bootstrap-kubeconfig /etc/fusionctl/bootstrap.conf --interval 5s\nRestart=always\n"+
		"Environment=SSL_CERT_FILE=/etc/fusionctl/registries.crt\n"+
		"RestartSec=100ms\nStandardError=append:/var/log/fusionctl-agent.log\n"), 0o644))
	f.run("systemctl", "daemon-reload")
	f.run("systemctl", "start", "fusionctl-agent")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if out, err := n.Run(context.Background(), "tail", "-n", "60", "/var/log/fusionctl-agent.log"); err == nil {
			t.Logf("the agent:\n%s", out)
		}
	})
}

// fromImage takes the program of the modern API server from the host, and serves an image that has it. It returns where
// the program is to be, and what a spec says of it.
func (f *nodesPair) fromImage() (program, lists string) {
	t := f.t
	t.Helper()
	binary, err := rig.Binary(kubever.APIServer, kubever.Suggested)
	must(t, err)
	parts, err := render.Parts(f.Plan, render.Systemd)
	must(t, err)
	at := slices.IndexFunc(parts, func(p render.Part) bool {
		return p.Component.Side == pair.Modern && p.Component.Kind == kubever.APIServer
	})
	program = parts[at].Program
	f.run("rm", "-f", program)
	const inside = "usr/local/bin/kube-apiserver"
	image := f.ServeImage(rig.Image{Name: "programs", Files: map[string]string{inside: binary}})
	data, err := os.ReadFile(binary)
	must(t, err)
	return program, fmt.Sprintf("  programs:\n  - {path: %s, sha256: %x, image: %q, file: /%s}\n", program,
		sha256.Sum256(data), image, inside)
}

// statusOf reads the status of a control plane.
func (m *management) statusOf(name string) (s api.Status) {
	m.t.Helper()
	if text := m.ok("", "get", "fcp", name, "-o", "jsonpath={.status}"); text != "" { // the operator has not looked yet
		must(m.t, json.Unmarshal([]byte(text), &s))
	}
	return s
}

// messageOf is what a condition says.
func messageOf(s *api.Status, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// agentDeaths are killed in turn, those that run: the operator, the agent, and what the control plane has.
var agentDeaths = []string{"fusionctl-agent", "etcd-modern", "operator", "kube-apiserver-modern", "fusionctl-agent",
	"kube-apiserver", "kube-controller-manager-modern", "operator", "etcd", "fusionctl-controllers"}

// deaths are what was killed.
type deaths struct {
	turn int
	of   map[string]int
}

// next kills the next one of those that run.
func (d *deaths) next(f *nodesPair, o *operator) {
	f.t.Helper()
	for range agentDeaths {
		who := agentDeaths[d.turn%len(agentDeaths)]
		d.turn++
		if who == "operator" {
			o.kill()
			o.start()
		} else if _, err := f.nodes[0].Run(f.t.Context(), "sh", "-c", "systemctl is-active --quiet "+who+
			" && systemctl kill --signal=KILL "+who); err != nil {
			continue
		}
		d.of[who]++
		return
	}
}

// goesOn waits until the control plane runs, or waits for a person. At each step something is killed.
func (f *nodesPair) goesOn(m *management, o *operator, d *deaths, name string) (s api.Status) {
	f.t.Helper()
	f.dies(m, o, d, name, func(now *api.Status) bool {
		s = *now
		ready := strings.HasPrefix(messageOf(&s, api.ConditionReady), "Ready: ")
		return s.Phase == api.Waiting || s.Phase == api.Running && s.Runs == s.Plan && s.Transition == nil && ready
	})
	return s
}

// dies kills something at each step of a transition, forth and back, until it has ended.
func (f *nodesPair) dies(m *management, o *operator, d *deaths, name string, ended func(*api.Status) bool) {
	f.t.Helper()
	before, start := d.turn, time.Now()
	for last := ""; ; {
		over := false
		f.Eventually("the transition of "+name+" goes on", func(context.Context) error {
			s := m.statusOf(name)
			over = ended(&s)
			if t := s.Transition; over || t != nil && last != fmt.Sprint(t.Back, t.Done) {
				if !over {
					last = fmt.Sprint(t.Back, t.Done)
				}
				return nil
			}
			return fmt.Errorf("%s, %+v: %s; %s", s.Phase, s.Transition, messageOf(&s, api.ConditionProgressing),
				messageOf(&s, api.ConditionDegraded))
		})
		if over {
			f.t.Logf("%s goes on after %d turns of killing, %s", name, d.turn-before,
				time.Since(start).Round(time.Second))
			return
		}
		d.next(f, o)
	}
}

// TestAgentOnARealHost: a control plane that runs as units of systemd, with pods, goes into fusion as an object of a
// management cluster, through the agent of its host, which has a certificate of its own and no rights but those of its
// host. What others change on the host is put back; a backup is restored; an edit is carried out, and one that does not
// start goes back by itself. At each step one of them is killed, or a component. No pod is touched.
func TestAgentOnARealHost(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyUnits(t, 15, 1)
		f.issueCertificates(filepath.Join(f.Dir(), "legacy", f.nodes[0].Name))
		tree := f.runbook(render.Systemd)
		newRunner(f, tree, render.Systemd).change(false)
		before := f.started()

		m := managementOf(t, f.Rig)
		m.StartControllerManager("management-manager", kubever.Suggested,
			f.ControllerManagerArgs(kubever.Suggested, m.server)).WaitReady()
		m.ok(runFusionctl(t, 0, "operator", "manifests", "--image", "registry.example/fusionctl:1"), "apply",
			"--server-side", "-f", "-")
		m.ok("", "wait", "--for=condition=Established", "crd/fusedcontrolplanes.kubefusion.dev",
			"crd/controlplanehosts.kubefusion.dev", "--timeout=2m")
		o := m.startOperator()
		text, err := os.ReadFile(f.SpecFile)
		must(t, err)
		name, host := f.Plan.Name, f.nodes[0].Name
		program, lists := f.fromImage()
		m.ok(string(text)+"  target: systemd\n  repair: Repair\n  backup: {schedule: \"* * * * *\", keep: 2, "+
			"directory: /var/backups/fused}\n"+lists, "apply", "--server-side", "-f", "-")
		m.awaits(name, ".status.conditions[?(@.type=='Degraded')].message", "has no agent yet")

		f.startAgent(m, name)
		request := ""
		f.Eventually("the agent asks for a certificate", func(context.Context) error {
			out, err := m.kubectl("", "get", "csr", "-o", "name")
			if err == nil && strings.TrimSpace(out) == "" {
				err = fmt.Errorf("there is no request")
			}
			request = strings.TrimSpace(out)
			return err
		})
		m.ok("", "certificate", "approve", request)

		// What is done by hand: permissions of the joint controllers.
		died := &deaths{of: map[string]int{}}
		s := f.goesOn(m, o, died, name)
		progress := messageOf(&s, api.ConditionProgressing)
		_, word, found := strings.Cut(progress, api.AnnotationDone+"=")
		if s.Phase != api.Waiting || !found || !strings.Contains(progress, "allow user fusionctl-controllers") {
			t.Fatalf("%s: %s", s.Phase, progress)
		}
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f", filepath.Join(tree, "legacy-access.yaml"))
		m.ok("", "annotate", "--overwrite", "fcp", name, api.AnnotationDone+"="+word)
		m.awaits(name, ".status.phase", "Progressing")
		if s = f.goesOn(m, o, died, name); s.Phase != api.Running {
			t.Fatalf("%s: %s", s.Phase, messageOf(&s, api.ConditionProgressing))
		}
		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		f.same(before, "in fusion")
		f.install(f.SpecFile, "/root/spec.yaml", "0600")
		if out := f.run("fusionctl", "etcd", "check", "/root/spec.yaml"); !strings.Contains(out, "0 errors") {
			t.Errorf("the stores in fusion: %s", out)
		}

		// The agent's rights.
		as := "--as=" + api.AgentUser(name, host)
		for what, want := range map[string]string{"get secrets/fusionctl-host-" + host: "yes",
			"get secrets/fusionctl-record": "no", "list secrets": "no", "get secrets/fusionctl-host-other": "no",
			"get controlplanehosts.kubefusion.dev/" + host:    "yes",
			"update controlplanehosts.kubefusion.dev/" + host: "no",
			"create pods": "no", "list controlplanehosts.kubefusion.dev": "no"} {
			out, err := m.kubectl("", append([]string{"--namespace", name, "auth", "can-i", as},
				strings.Fields(what)...)...)
			if (err == nil) != (want == "yes") {
				t.Errorf("the agent may %s: %s, %v; want %s", what, out, err, want)
			}
		}

		// Drift.
		const unit = "/etc/systemd/system/kube-controller-manager-modern.service"
		was := f.run("cat", unit)
		f.run("sh", "-c", "echo '# by hand' >> "+unit)
		f.run("systemctl", "stop", "kube-controller-manager-modern")
		f.Eventually("the unit is put back, and started", func(ctx context.Context) error {
			if is := f.run("cat", unit); is != was {
				return fmt.Errorf("the unit is\n%s", is)
			}
			out, err := f.nodes[0].Run(ctx, "systemctl", "is-active", "kube-controller-manager-modern")
			if err != nil {
				return fmt.Errorf("the unit is %s", out)
			}
			return nil
		})
		if out := f.run("sh", "-c", "cat /var/lib/fusionctl/agent/replaced/*"); !strings.Contains(out, "# by hand") {
			t.Errorf("what was there is not kept: %s", out)
		}

		// A program that others replace comes from its image again; the stores are saved meanwhile.
		was = f.run("sha256sum", program)
		f.run("sh", "-c", "cd $(dirname "+program+") && echo 'not a program' > x && chmod 755 x && mv x "+program)
		f.Eventually("the program is put back, and runs", func(ctx context.Context) error {
			if is := f.run("sha256sum", program); is != was {
				return fmt.Errorf("its digest is %s", is)
			}
			out, err := f.nodes[0].Run(ctx, "sh", "-c", "readlink /proc/$(systemctl show -P MainPID "+
				"kube-apiserver-modern)/exe")
			if err != nil || strings.TrimSpace(out) != program {
				return fmt.Errorf("the unit runs %q, %v", out, err)
			}
			return nil
		})
		if out := f.run("sh", "-c", "cat $(dirname "+program+")/.kube-apiserver.*"); out != "not a program\n" {
			t.Errorf("beside the program there is %q", out)
		}
		m.awaits(name, ".status.conditions[?(@.type=='Ready')].status", "True")
		m.awaits(name, ".status.conditions[?(@.type=='BackedUp')].status", "True")
		backup := f.run("sh", "-c", "ls /var/backups/fused/"+m.statusOf(name).Backup.Last.Name)
		if backup != "backup.json\ncore.db\nmodern.db\n" && backup != "backup.json\netcd.db\nmodern.db\n" {
			t.Errorf("the backup has %q", backup)
		}
		f.goesBackTo(m, o, died, name)
		f.same(before, "after a restore")

		// An edit, and one whose server does not start.
		edit := func(modern string) {
			m.ok("", "patch", "fcp", name, "--type=merge", "-p", `{"spec":{"modern":`+modern+`}}`)
		}
		had := len(m.statusOf(name).History) // the newest is the first: others may be of what was put back
		edit(`{"apiServer":{"extraArgs":[{"name":"v","value":"3"}]}}`)
		f.Eventually("the edit is carried out", func(context.Context) error {
			if s = f.goesOn(m, o, died, name); len(s.History) <= had {
				return fmt.Errorf("%s: %s", s.Phase, messageOf(&s, api.ConditionProgressing))
			}
			return nil
		})
		if s.Phase != api.Running {
			t.Fatalf("%s: %s", s.Phase, messageOf(&s, api.ConditionProgressing))
		}
		out := f.run("sh", "-c", "tr '\\0' ' ' < /proc/$(systemctl show -P MainPID kube-apiserver-modern)/cmdline")
		if !strings.Contains(out, "--v=3 ") {
			t.Errorf("the modern API server runs without the new argument: %s\n%s", out,
				f.run("systemctl", "cat", "kube-apiserver-modern"))
		}
		good := s.Runs
		o.kill()
		o.args = append(o.args, "--step-limit", "90s")
		o.start()
		for _, program := range []string{"kube-apiserver", "kube-controller-manager"} {
			file := "/opt/kubernetes/1.36.9/bin/" + program
			must(t, f.nodes[0].WriteFile(file, []byte("#!/bin/sh\nexit 1\n"), 0o755))
		}
		m.ok("", "patch", "fcp", name, "--type=merge", "-p", `{"spec":{"programs":[],"modern":{"version":"1.36.9"}}}`)
		start := time.Now()
		f.dies(m, o, died, name, func(now *api.Status) bool {
			s = *now // what it says of that comes with its next look
			return len(s.History) > 3 && s.History[0].Error != "" &&
				strings.Contains(messageOf(&s, api.ConditionDegraded), "WentBack")
		})
		t.Logf("it went back after %s: %s", time.Since(start).Round(time.Second), s.History[0].Error)
		if s.Runs != good {
			t.Errorf("after it went back %s runs, want %s", s.Runs, good)
		}
		f.Eventually("what was before serves", func(ctx context.Context) error {
			_, err := f.pods(ctx, "modern")
			return err
		})
		f.awaitReady("modern", 2)
		f.same(before, "after a bad upgrade went back")
		t.Logf("killed: %v", died.of)
		for _, who := range agentDeaths {
			if died.of[who] == 0 {
				t.Errorf("%s was never killed", who)
			}
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster whose control plane runs as units of systemd goes into fusion as an object of a management "+
				"cluster, through the agent of its host: its pods have the UIDs, containers and restart counts that "+
				"they had; its stores go back to a backup; an upgrade that does not start goes back by itself; at "+
				"each step operator, agent, a store, an API server or a controller is killed")
	}, fusionctlEnv)
}

// goesBackTo has the control plane go back to a backup: what was written since is gone, and nothing else.
func (f *nodesPair) goesBackTo(m *management, o *operator, d *deaths, name string) {
	t := f.t
	t.Helper()
	since := time.Now() // everything of before is in the next backup
	backup := ""
	f.Eventually("a backup is made", func(context.Context) error {
		if b := m.statusOf(name).Backup; b != nil && b.Last != nil && b.Last.At.After(since) {
			backup = b.Last.Name
			return nil
		}
		return fmt.Errorf("there is none of after %s", since)
	})
	pods, err := f.pods(t.Context(), "modern")
	must(t, err)
	deployments := func() string {
		return f.kubectlMust(pair.Modern, "--namespace=demo", "get", "deployments", "-o",
			"jsonpath={.items[*].metadata.name} {.items[*].metadata.annotations.after}")
	}
	was := deployments()
	f.kubectlMust(pair.Modern, "--namespace=demo", "annotate", "deployment", "modern", "after=backup")
	had := len(m.statusOf(name).History)
	m.ok("", "annotate", "--overwrite", "fcp", name, api.AnnotationRestore+"="+backup)
	f.dies(m, o, d, name, func(s *api.Status) bool {
		return len(s.History) > had && s.Transition == nil &&
			strings.HasPrefix(messageOf(s, api.ConditionReady), "Ready: ")
	})
	if past := m.statusOf(name).History[0]; past.To != "backup "+backup || past.Error != "" {
		t.Fatalf("the history is %+v", past)
	}
	f.run("fusionctl", "controllers", "acknowledge", "--state-dir", "/var/lib/fusionctl-controllers", "--why",
		"restored "+backup, "--yes")
	if is := deployments(); is != was {
		t.Errorf("after the restore there is %q, want %q", is, was)
	}
	f.awaitReady("modern", 2)
	again, err := f.pods(t.Context(), "modern")
	must(t, err)
	if !maps.Equal(seenContainers(again), seenContainers(pods)) {
		t.Errorf("the pods are %v, were %v", seenContainers(again), seenContainers(pods))
	}
}

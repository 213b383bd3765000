package transition

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestRunbookSaysWhatTheStepsDo: the runbook that people follow by hand, and the steps of the same plan, put the same
// files with the same modes into the same places of each host, in the same order; both ask the same address of each
// component, and both end it on the way back.
func TestRunbookSaysWhatTheStepsDo(t *testing.T) {
	journeys := journeys(t)
	compared := 0
	for name, pair := range journeys {
		to := pair[1]
		if pair[0].Plan != nil || !strings.Contains(name, " from nothing") {
			continue
		}
		steps, err := New(pair[0], to, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		files, err := render.Files(to.Plan, render.Options{Target: to.Target, Spec: "spec.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		tree := map[string][]byte{}
		for _, f := range files {
			tree[f.Path] = f.Data
		}
		runbook := string(tree["RUNBOOK.md"])
		byHand := installed(t, runbook)
		for _, s := range steps.Steps {
			for _, wanted := range alsoByHand(s) {
				if !strings.Contains(runbook, wanted) {
					t.Errorf("%s, step %s, %s: the runbook has no %q", name, s.ID, s.Title, wanted)
				}
				compared++
			}
		}
		for _, h := range to.Plan.Hosts {
			var put []string
			for _, s := range steps.Steps {
				if s.Host != h.Name || s.Do == nil || s.Do.Kind != PutFile {
					continue
				}
				f := s.Do.File
				put = append(put, f.Mode.String()+" "+f.Path)
				if string(tree[h.Name+f.Path]) != string(f.Data) {
					t.Errorf("%s, host %s: %s of the step is not what the runbook puts there", name, h.Name, f.Path)
				}
			}
			if !slices.Equal(byHand[h.Name], put) {
				t.Errorf("%s, host %s: by hand\n%s\nby steps\n%s", name, h.Name, strings.Join(byHand[h.Name], "\n"),
					strings.Join(put, "\n"))
			}
			compared += len(put)
		}
	}
	if compared < 50 {
		t.Errorf("%d files were compared", compared)
	}
}

// TestStopsWaitForProcesses: a step that ends a component, on the way or on the way back, looks for its process as well
// as for its port.
func TestStopsWaitForProcesses(t *testing.T) {
	looked := 0
	for name, pair := range journeys(t) {
		steps, err := New(pair[0], pair[1], Facts{StoresAgree: true})
		if _, refused := errors.AsType[*RefusedError](err); refused {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps.Steps {
			for _, a := range []*Action{s.Do, s.Undo} {
				if a == nil || a.Kind != StopUnit && a.Kind != RemoveFile {
					continue
				}
				for _, c := range a.After {
					if looked++; c.Kind == Gone && len(c.Args) == 0 {
						t.Errorf("%s, step %s, %s: only the port of %s is looked at", name, s.ID, s.Title, c.Program)
					}
				}
			}
		}
	}
	if looked < 100 {
		t.Errorf("%d checks were looked at", looked)
	}
}

// alsoByHand is what the runbook has to say of a step: the question to a component that it starts, and what ends it.
func alsoByHand(s Step) (words []string) {
	if s.Do != nil {
		for _, c := range s.Do.After {
			if c.Kind == Ready {
				address := plan.HostPort(c.Probe.Host, c.Probe.Port)
				if c.Probe.Path == "" {
					address = fmt.Sprintf("%s/%d", c.Probe.Host, c.Probe.Port)
				}
				words = append(words, address+c.Probe.Path)
			}
		}
	}
	switch {
	case s.Undo == nil:
	case s.Undo.Kind == StopUnit:
		words = append(words, "systemctl disable --now "+s.Undo.Unit)
	case s.Undo.Kind == RemoveFile && strings.HasPrefix(s.Undo.File.Path, render.ManifestDirectory+"/"):
		words = append(words, "rm "+s.Undo.File.Path)
	}
	return words
}

// installed are the files that the commands of a runbook put into their places, "MODE PATH" by host, in their order.
func installed(t *testing.T, runbook string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	var hosts []string
	for line := range strings.Lines(runbook) {
		if on, ok := strings.CutPrefix(line, "On "); ok {
			on, _, _ = strings.Cut(strings.TrimRight(on, ":\n"), ", in ")
			on, _, _ = strings.Cut(on, ", one host")
			hosts = strings.Split(on, ", ")
		}
		if strings.HasPrefix(line, "## ") {
			hosts = nil
		}
		if !strings.HasPrefix(line, "install -D ") || len(hosts) == 0 {
			continue
		}
		words, err := shell.Fields(line, nil)
		if err != nil || len(words) != 6 {
			t.Fatalf("%q: %v", line, err)
		}
		mode := map[string]fs.FileMode{"0600": 0o600, "0644": 0o644}[words[3]]
		for _, h := range hosts {
			found[h] = append(found[h], mode.String()+" "+words[5])
		}
	}
	return found
}

package transition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// digest is a digest of programs in tests: that of a number.
func digest(n int) string { return fmt.Sprintf("%064x", n) }

// withPrograms is an example with programs, in the order of name, path, digest.
func withPrograms(t *testing.T, text string, programs ...string) string {
	t.Helper()
	list := "\nspec:\n  programs:\n"
	for _, p := range programs {
		list += "  - {" + p + "}\n"
	}
	return strings.Replace(text, "\nspec:\n", list, 1)
}

func programAt(path string, sum int, more string) string {
	return fmt.Sprintf("path: %s, sha256: %q, file: /srv/programs/%d%s", path, digest(sum), sum, more)
}

const (
	modernServer = "/opt/kubernetes/1.36.3/bin/kube-apiserver"
	newerServer  = "/opt/kubernetes/1.36.4/bin/kube-apiserver"
	modernEtcd   = "/opt/etcd/3.6.8/bin/etcd"
	onlyImage    = ", image: \"registry.example.com/kube/kube-apiserver@sha256:" +
		"0000000000000000000000000000000000000000000000000000000000000007\""
)

// programJourneys install programs, change them in their places, and add them beside others.
func programJourneys(t *testing.T) map[string][2]Setup {
	t.Helper()
	setup := func(text string) Setup { return Setup{Plan: planOf(t, splitExample, text), Target: render.Systemd} }
	text := example(t, splitExample)
	newer := strings.Replace(text, "version: 1.36.3", "version: 1.36.4", 1)
	first := setup(withPrograms(t, text, programAt(modernServer, 1, ""), programAt(modernEtcd, 2, "")))
	return map[string][2]Setup{
		"programs from nothing": {{}, first},
		"programs to nothing":   {first, {}},
		"programs in their places": {first, setup(withPrograms(t, text, programAt(modernServer, 3, onlyImage),
			programAt(modernEtcd, 4, "")))},
		"programs of another version": {first, setup(withPrograms(t, newer, programAt(newerServer, 5, ""),
			programAt(modernEtcd, 2, "")))},
	}
}

// digestsOf are the programs of a setup that are known.
func digestsOf(t *testing.T, s Setup) map[place]string {
	t.Helper()
	files, err := started(s)
	if err != nil {
		t.Fatal(err)
	}
	digests := map[place]string{}
	for at := range files {
		if sum := digestOf(s.Plan, at.host, at.path); sum != "" {
			digests[at] = sum
		}
	}
	return digests
}

// program puts a program, or puts back what the journal knows. It refuses to touch one that a unit runs.
func (c *cluster) program(host string, a *Action) error {
	at := place{host, a.Program.Path}
	now := c.digests[at]
	for unit := range c.units {
		runs := strings.Contains(string(c.files[place{host, "/etc/systemd/system/" + unit.path}].Data), " "+at.path)
		if unit.host == host && runs && now != a.Program.SHA256 {
			return fmt.Errorf("%s is run by %s", at, unit.path)
		}
	}
	if a.Kind == PutProgram {
		c.digests[at] = a.Program.SHA256
		return nil
	}
	switch before := a.Program.Before; {
	case before == nil:
		return fmt.Errorf("what %s was before is not known", at)
	case now != *before && now != a.Program.SHA256:
		return fmt.Errorf("%s has %s", at, now)
	case *before == "":
		delete(c.digests, at)
	default:
		c.digests[at] = *before
	}
	return nil
}

func programSteps(t *testing.T, journey [2]Setup) []string {
	t.Helper()
	tr, err := New(journey[0], journey[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Error(err)
	}
	var steps []string
	for _, s := range tr.Steps {
		if s.Do == nil || s.Phase == Prepare && s.Do.Kind != PutProgram {
			continue
		}
		name := s.Title
		if s.Do.Kind == PutProgram {
			name = fmt.Sprintf("%s: %s from %s", s.Phase, s.Title, s.Do.Program.File)
		}
		steps = append(steps, name)
	}
	return steps
}

// TestProgramsComeBeforeWhatStartsThem: while everything runs, or, in the place of another one, between its end and the
// start of the next.
func TestProgramsComeBeforeWhatStartsThem(t *testing.T) {
	journeys := programJourneys(t)
	install := programSteps(t, journeys["programs from nothing"])
	want := []string{"prepare: put program " + modernServer + " from /srv/programs/1",
		"prepare: put program " + modernEtcd + " from /srv/programs/2"}
	if len(install) < 4 || !slices.Equal(install[:2], want) {
		t.Errorf("installing: %q, want first %q", install, want)
	}
	if steps := programSteps(t, journeys["programs to nothing"]); slices.ContainsFunc(steps, func(s string) bool {
		return strings.Contains(s, "program")
	}) {
		t.Errorf("to nothing: %q: programs stay", steps)
	}
	steps := programSteps(t, journeys["programs of another version"])
	if steps[0] != "prepare: put program "+newerServer+" from /srv/programs/5" {
		t.Errorf("another version: %q", steps)
	}
	steps = programSteps(t, journeys["programs in their places"])
	for _, of := range [][3]string{
		{"stop kube-apiserver-modern", "modern API server: put program " + modernServer + " from /srv/programs/3",
			"start kube-apiserver-modern"},
		{"stop etcd-modern", "stores: put program " + modernEtcd + " from /srv/programs/4", "start etcd-modern"},
	} {
		at := slices.Index(steps, of[1])
		if at < 1 || !slices.Contains(steps[:at], of[0]) || !slices.Contains(steps[at:], of[2]) {
			t.Errorf("in their places: %q, want %q in this order", steps, of)
		}
	}
}

// TestUndoLeavesTheProgramsOfBefore: what was put is gone, what was replaced is back, and what was there already stays.
func TestUndoLeavesTheProgramsOfBefore(t *testing.T) {
	for name, journey := range programJourneys(t) {
		tr, err := New(journey[0], journey[1], Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for _, there := range []string{"", "wanted", digest(9)} {
			c := newCluster(t, journey[0])
			for at, sum := range digestsOf(t, journey[1]) {
				if _, known := c.digests[at]; known || there == "" {
					continue
				}
				if c.digests[at] = there; there == "wanted" {
					c.digests[at] = sum
				}
			}
			start := maps.Clone(c.digests)
			if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for at, sum := range digestsOf(t, journey[1]) {
				if c.digests[at] != sum {
					t.Errorf("%s: %s is %q, want %q", name, at, c.digests[at], sum)
				}
			}
			if err := Undo(t.Context(), &tr, c, c, nil); err != nil || !maps.Equal(c.digests, start) {
				t.Errorf("%s, with %q there: undo leads to %v, %v; want %v", name, there, c.digests, err, start)
			}
		}
	}
}

// TestProgramsThatAreThereAreHeldAgainstTheSpec: nothing else changes, and no store is copied for that.
func TestProgramsThatAreThereAreHeldAgainstTheSpec(t *testing.T) {
	text := example(t, splitExample)
	tr, err := New(Setup{Plan: planOf(t, splitExample, text), Target: render.Systemd},
		Setup{Plan: planOf(t, splitExample, withPrograms(t, text, programAt(modernServer, 1, ""))),
			Target: render.Systemd}, Facts{})
	if err != nil || len(tr.Steps) != 1 || tr.Steps[0].Do.Kind != PutProgram {
		t.Errorf("steps: %+v, %v; want one that puts the program", tr.Steps, err)
	}
	listed := withPrograms(t, text, programAt(modernServer, 1, ""))
	kept, err := UpkeepOf(Setup{Plan: planOf(t, splitExample, listed), Target: render.Systemd})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range kept["cp-1"] {
		want := ""
		if u.Program == modernServer {
			want = digest(1)
		}
		if u.ProgramSHA256 != want || u.Validate() != nil {
			t.Errorf("%s: %q, %v, want %q", u.Name, u.ProgramSHA256, u.Validate(), want)
		}
	}
}

func TestProgramsThatNothingStartsAreRefused(t *testing.T) {
	text := example(t, splitExample)
	nodes := func(sum int) string {
		return withPrograms(t, strings.Replace(text, "  kubelet: {", "  kubelet: {modern: {nodes: [{name: node-1, "+
			"address: 10.0.0.21}]}, ", 1), programAt("/opt/kubernetes/1.36.3/bin/kubelet", sum, ", hosts: [node-1]"))
	}
	for _, c := range []struct {
		from, to string
		target   render.Target
		says     string
	}{
		{"", withPrograms(t, text, programAt(newerServer, 1, "")), render.Systemd,
			"spec.programs[0].path: nothing starts " + newerServer + "; what is started is /opt/kubernetes/1."},
		{"", withPrograms(t, text, programAt(modernServer, 1, "")), render.StaticPod, "the components are pods"},
		{"", nodes(1), render.StaticPod, ""},
		{nodes(1), nodes(2), render.StaticPod, "spec.kubelet.modern.program: /opt/kubernetes/1.36.3/bin/kubelet " +
			"would be another program on node-1"},
		{nodes(1), nodes(1), render.StaticPod, ""},
	} {
		from := Setup{}
		if c.from != "" {
			from = Setup{Plan: planOf(t, splitExample, c.from), Target: c.target}
		}
		_, err := New(from, Setup{Plan: planOf(t, splitExample, c.to), Target: c.target}, Facts{})
		if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("New = %v, want %q", err, c.says)
		}
	}
}

func TestProgramsOfAFileAreValidated(t *testing.T) {
	good := Binary{Path: "/opt/x", SHA256: digest(1), File: "/srv/x"}
	other := "x"
	for name, change := range map[string]func(*Binary){
		"":                    func(*Binary) {},
		"a relative path":     func(p *Binary) { p.Path = "opt/x" },
		"the root":            func(p *Binary) { p.Path = "/" },
		"a detour":            func(p *Binary) { p.Path = "/opt/../etc/passwd" },
		"a relative source":   func(p *Binary) { p.File = "x" },
		"a digest in letters": func(p *Binary) { p.SHA256 = strings.ToUpper(digest(0xabc)) },
		"an image by a tag":   func(p *Binary) { p.Image = "registry.example.com/x:1" },
		"what was before":     func(p *Binary) { p.Before = &other },
	} {
		p := good
		change(&p)
		for _, kind := range []Kind{PutProgram, RemoveProgram} {
			if err := (&Action{Kind: kind, Program: &p}).Validate(); (err == nil) != (name == "") {
				t.Errorf("%s with %s = %v", kind, name, err)
			}
		}
	}
	if err := (&Action{Kind: PutProgram}).Validate(); err == nil {
		t.Error("without a program = nil")
	}
	tr := Transition{Hosts: []Host{{"cp-1", "10.0.0.1"}}, Steps: []Step{{ID: "001", Host: "cp-1",
		Title: "put program /opt/y", Do: &Action{Kind: PutProgram, Program: &good}}}}
	if err := tr.Validate(); err == nil {
		t.Error("a title of another program = nil")
	}
}

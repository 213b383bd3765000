package render

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// examples are the plans of all example specs for hosts, by name.
func examples(t *testing.T) map[string]*plan.Plan { return examplesFor(t, StaticPod) }

func examplesFor(t *testing.T, target Target) map[string]*plan.Plan {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	plans := map[string]*plan.Plan{}
	for _, file := range files {
		name := filepath.Base(file)
		plans[strings.TrimSuffix(name, ".yaml")] = plantest.ExampleFor(t, name, target.Plan())
	}
	if target == Hosted {
		plans["hosted-both"] = seesBoth(t)
	}
	return plans
}

// seesBoth is a plan for a cluster with fusionctl's own components: their pods have an image of their own.
func seesBoth(t *testing.T) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile("../../examples/hosted-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const image = "{image: registry.example.com/fusionctl:v1}"
	f, err := spec.Load("hosted.yaml", bytes.Replace(text, []byte("  access:\n"), []byte("  controllers: "+image+
		"\n  gateway: "+image+"\n  access:\n"), 1))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.Hosted)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every example is readable by every kubelet, not only by its own.
func TestExamplesAreReadableByEveryKubelet(t *testing.T) {
	for name, p := range examples(t) {
		for _, m := range kubever.Minors() {
			p.Kubelet = kubever.Version{Minor: m}
			for i := range p.Components {
				c := &p.Components[i]
				data, err := staticPod(p, c)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, unknown := range unknownFields(t, data, "v1.Pod", m) {
					t.Errorf("%s, kubelet %s, %s: no field %s", name, m, c.Name, unknown)
				}
			}
		}
	}
}

// Every argument of every manifest and every unit is one that the release of that version has.
func TestExamplesHaveNoArgumentThatTheVersionLacks(t *testing.T) {
	checked := 0
	for name, p := range examples(t) {
		pods, err := Files(p, Options{Target: StaticPod})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		units, err := Files(p, Options{Target: Systemd})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range p.Components {
			if c.Side == "" {
				continue // checked against the flags of the program itself, in other tests
			}
			version, err := kubever.Parse(c.Version)
			if err != nil {
				t.Fatal(err)
			}
			for place, args := range map[string][]string{"pod": argsInPod(t, p, &c, pods),
				"unit": argsInUnit(t, p, &c, units)} {
				if len(args) == 0 {
					t.Errorf("%s: %s has no arguments in its %s", name, c.Name, place)
				}
				for _, arg := range args {
					flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
					if !kubever.Flag(c.Kind, flag).In(version.Minor) {
						t.Errorf("%s: %s %s in its %s: no flag --%s", name, c.Name, version, place, flag)
					}
					checked++
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d arguments were checked", checked)
	}
}

// treePath is where a component's file lies.
func treePath(p *plan.Plan, c *plan.Component, directory, ending string) string {
	if runsAlready(p, c) {
		directory = existingDirectory + directory
	}
	return c.Host + directory + "/" + c.Name + ending
}

func argsInPod(t *testing.T, p *plan.Plan, c *plan.Component, files []File) []string {
	t.Helper()
	f := find(files, treePath(p, c, ManifestDirectory, ".yaml"))
	if f == nil {
		t.Fatalf("no manifest of %s on %s", c.Name, c.Host)
	}
	return decodePod(t, f.Data).Spec.Containers[0].Args
}

func argsInUnit(t *testing.T, p *plan.Plan, c *plan.Component, files []File) []string {
	t.Helper()
	f := find(files, treePath(p, c, unitDirectory, ".service"))
	if f == nil {
		t.Fatalf("no unit of %s on %s", c.Name, c.Host)
	}
	return commandLine(t, settings(t, f.Data), nil)[len(c.Command):]
}

func TestRenderingTwiceGivesTheSameBytes(t *testing.T) {
	for _, target := range Targets {
		for name, p := range examplesFor(t, Target(target)) {
			first, err := Files(p, Options{Target: Target(target)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			second, err := Files(examplesFor(t, Target(target))[name], Options{Target: Target(target)})
			if err != nil {
				t.Fatal(err)
			}
			same := slices.EqualFunc(first, second, func(a, b File) bool {
				return a.Path == b.Path && a.Mode == b.Mode && string(a.Data) == string(b.Data)
			})
			if !same {
				t.Errorf("%s, %s: two renderings differ", name, target)
			}
		}
	}
}

// What names a key or may hold a secret is nobody else's to read.
func TestModesOfFiles(t *testing.T) {
	for _, target := range Targets {
		for name, p := range examplesFor(t, Target(target)) {
			files, err := Files(p, Options{Target: Target(target)})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				want := private
				if strings.HasSuffix(f.Path, ".service") || strings.HasSuffix(f.Path, ".md") ||
					!strings.Contains(f.Path, "/") {
					want = public
				}
				if f.Mode != want {
					t.Errorf("%s: %s has mode %o, want %o", name, f.Path, f.Mode, want)
				}
			}
		}
	}
}

// A side that runs already is not replaced by copying the tree onto a host.
func TestTheTreeOfAHostReplacesNothingThatRuns(t *testing.T) {
	p := examples(t)["vendor-1.6-1.36"]
	for _, target := range []Target{StaticPod, Systemd} {
		files, err := Files(p, Options{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		running := regexp.MustCompile(`/kube-(apiserver|controller-manager|scheduler)\.(yaml|service|env)$`)
		for _, f := range files {
			if running.MatchString(f.Path) && !strings.HasPrefix(f.Path, "cp-1"+existingDirectory+"/") {
				t.Errorf("%s: want it below cp-1%s", f.Path, existingDirectory)
			}
		}
		if find(files, "cp-1/existing/etc/kubernetes/manifests/kube-apiserver.yaml") == nil &&
			find(files, "cp-1/existing/etc/systemd/system/kube-apiserver.service") == nil {
			t.Errorf("%s: what the plan makes of the running API server is missing", target)
		}
	}
}

func TestOneHostAlone(t *testing.T) {
	p := examples(t)["ha-three-hosts-1.15-1.36"]
	all, err := Files(p, Options{Target: StaticPod})
	if err != nil {
		t.Fatal(err)
	}
	one, err := Files(p, Options{Target: StaticPod, Host: "cp-2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		got := find(one, f.Path)
		wanted := strings.HasPrefix(f.Path, "cp-2/") || !strings.Contains(f.Path, "/")
		if wanted != (got != nil) {
			t.Errorf("--host cp-2: %s is there: %v, want %v", f.Path, got != nil, wanted)
		}
	}
	if _, err := Files(p, Options{Target: StaticPod, Host: "cp-4"}); err == nil ||
		!strings.Contains(err.Error(), "cp-1, cp-2, cp-3") {
		t.Errorf("--host cp-4: got %v, want an error that names the hosts", err)
	}
}

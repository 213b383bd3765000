//go:build unix

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// The rig of these tests has a release of its own, in a module proxy that is a folder: the smallest thing that is built
// as the real ones are. Version 1.98 is built as published, 1.99 from a copy that is edited.
const (
	mainFile = `package main

import "k8s.io/kubernetes/pkg/version"

func main() { println(version.String()) }
`
	versionFile = `package version

var gitVersion, gitMajor, gitMinor, gitTreeState string

func String() string { return gitVersion + " " + gitMajor + "." + gitMinor + " " + gitTreeState + " " + kind }
`
	kindFile = `package version

const kind = "published"
`
)

type fixture struct {
	t          *testing.T
	proxy, rig string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	proxy := t.TempDir()
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GONOSUMDB", "")
	t.Setenv("GOPRIVATE", "")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() { // the module cache is read-only: a temporary folder with it in cannot be removed otherwise
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("go clean -modcache: %v\n%s", err, out)
		}
	})
	f := &fixture{t: t, proxy: proxy, rig: filepath.Join(t.TempDir(), "rig")}
	sums := map[string]struct{ Sum, GoModSum string }{}
	for _, release := range []string{"v1.98.3", "v1.99.0"} {
		publish(t, proxy, "k8s.io/kubernetes", release, map[string]string{
			"cmd/kube-apiserver/main.go": mainFile,
			"cmd/kube-scheduler/main.go": mainFile,
			"pkg/version/version.go":     versionFile,
			"pkg/version/kind.go":        kindFile,
		})
		sums[release] = download(t, "k8s.io/kubernetes", release)
	}
	f.write("kube-1.98/go.mod", "module example.test/rig\n\ngo 1.24\n\ntool k8s.io/kubernetes/cmd/kube-apiserver\n\n"+
		"require k8s.io/kubernetes v1.98.3 // indirect\n")
	f.write("kube-1.98/go.sum", "k8s.io/kubernetes v1.98.3 "+sums["v1.98.3"].Sum+"\nk8s.io/kubernetes "+
		"v1.98.3/go.mod "+sums["v1.98.3"].GoModSum+"\n")
	f.write("kube-1.98/build.yaml", "cpuMinutes: 1\nversionPackages: [k8s.io/kubernetes/pkg/version]\n")
	f.write("kube-1.99/go.mod", "module example.test/rig\n\ngo 1.16\n\ntool (\n"+
		"\tk8s.io/kubernetes/cmd/kube-apiserver\n\tk8s.io/kubernetes/cmd/kube-scheduler\n)\n\n"+
		"require k8s.io/kubernetes v1.99.0\n\nreplace k8s.io/kubernetes => ../.build/kube-1.99/src\n")
	f.write("kube-1.99/build.yaml", `cpuMinutes: 2
versionPackages: [k8s.io/kubernetes/pkg/version]
copies:
- module: k8s.io/kubernetes@v1.99.0
  sum: `+sums["v1.99.0"].Sum+`
  to: src
  remove: [go.mod]
  edits:
  - {file: pkg/version/kind.go, replace: published, with: edited, times: 1}
  add:
    pkg/version/added/added.go: |
      package added
`)
	return f
}

// publish puts a release into the module proxy.
func publish(t *testing.T, proxy, module, release string, files map[string]string) {
	t.Helper()
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	modFile := "module " + module + "\n"
	write := func(name, content string) {
		file, err := writer.Create(module + "@" + release + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", modFile)
	for name, content := range files {
		write(name, content)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for suffix, content := range map[string]string{
		".info": `{"Version":"` + release + `"}`,
		".mod":  modFile,
		".zip":  archive.String(),
	} {
		writeFile(t, filepath.Join(proxy, module, "@v", release+suffix), content)
	}
}

func download(t *testing.T, path, release string) (module struct{ Sum, GoModSum string }) {
	t.Helper()
	command := exec.Command("go", "mod", "download", "-json", path+"@"+release)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "PWD="+command.Dir, "GOWORK=off", "GOFLAGS=", "GO111MODULE=on")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go mod download: %v\n%s", withStderr(err), out)
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return module
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) write(name, content string) { writeFile(f.t, filepath.Join(f.rig, name), content) }

// replace changes a file of the rig.
func (f *fixture) replace(name, before, after string) {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.rig, name))
	if err != nil || !strings.Contains(string(data), before) {
		f.t.Fatalf("%s: no %q in it (%v)", name, before, err)
	}
	f.write(name, strings.ReplaceAll(string(data), before, after))
}

// run builds and wants an exit code; it returns what was printed.
func (f *fixture) run(want int, only ...string) string {
	f.t.Helper()
	var out output
	if got := run(f.t.Context(), f.rig, only, &out); got != want {
		f.t.Fatalf("run = %d, want %d; printed:\n%s", got, want, out.String())
	}
	return out.String()
}

// says runs a binary.
func (f *fixture) says(program string) string {
	f.t.Helper()
	out, err := exec.Command(filepath.Join(f.rig, "bin", program)).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v", program, err)
	}
	return strings.TrimSpace(string(out))
}

// binaries lists what is in the bin folder, without the keys.
func (f *fixture) binaries() []string {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.rig, "bin"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".key") {
			names = append(names, entry.Name())
		}
	}
	return names
}

// output is a buffer for several writers that can call back.
type output struct {
	mutex   sync.Mutex
	buffer  bytes.Buffer
	onWrite func(line string)
}

func (o *output) Write(data []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.onWrite != nil {
		o.onWrite(string(data))
	}
	return o.buffer.Write(data)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buffer.String()
}

func TestSourcesAreCopiedAlone(t *testing.T) {
	f := newFixture(t)
	var out output
	if got := copySources(t.Context(), f.rig, []string{"1.99"}, &out); got != 0 {
		t.Fatalf("copySources = %d; printed:\n%s", got, out.String())
	}
	edited, err := os.ReadFile(filepath.Join(f.rig, ".build/kube-1.99/src/pkg/version/kind.go"))
	if err != nil || !strings.Contains(string(edited), `"edited"`) {
		t.Errorf("the copy has %q, %v; want the edited file", edited, err)
	}
	if built := f.binaries(); len(built) > 0 {
		t.Errorf("built %v, want nothing", built)
	}
}

func TestBuildMakesOnlyWhatIsMissing(t *testing.T) {
	f := newFixture(t)
	printed := f.run(0)
	for _, want := range []string{"kube-1.99: will build 2 programs of v1.99.0, about 2 minutes",
		"kube-1.98: will build 1 programs of v1.98.3, about 1 minute"} {
		if !strings.Contains(printed, want) {
			t.Errorf("printed %q, want %q in it", printed, want)
		}
	}
	for program, want := range map[string]string{
		"kube-apiserver-1.98": "v1.98.3 1.98 clean published",
		"kube-apiserver-1.99": "v1.99.0 1.99 clean edited",
		"kube-scheduler-1.99": "v1.99.0 1.99 clean edited",
	} {
		if got := f.says(program); got != want {
			t.Errorf("%s is %q, want %q", program, got, want)
		}
	}
	if printed := f.run(0); printed != "" {
		t.Errorf("second build printed %q, want nothing to do", printed)
	}
	f.replace("kube-1.99/build.yaml", "with: edited", "with: changed")
	if printed := f.run(0); strings.Contains(printed, "1.98") {
		t.Errorf("a change of 1.99 printed %q, want 1.98 left alone", printed)
	}
	if got, want := f.says("kube-scheduler-1.99"), "v1.99.0 1.99 clean changed"; got != want {
		t.Errorf("after the change the program is %q, want %q", got, want)
	}
	if err := os.Remove(filepath.Join(f.rig, "bin", "kube-apiserver-1.98")); err != nil {
		t.Fatal(err)
	}
	if printed := f.run(0); !strings.Contains(printed, "kube-1.98: built") || strings.Contains(printed, "1.99") {
		t.Errorf("with one binary removed the build printed %q, want 1.98 alone built", printed)
	}
}

func TestBuildFailsLoudlyAndBuildsTheRest(t *testing.T) {
	for name, test := range map[string]struct{ before, after, want string }{
		"an edit that does not fit": {"times: 1", "times: 2",
			`rig: kube-1.99: preparing k8s.io/kubernetes@v1.99.0: editing pkg/version/kind.go: "published" is there 1 times: build.yaml wants 2`},
		"a program that does not compile": {"replace: published, with: edited",
			`replace: '"published"', with: nonsense`,
			"rig: kube-1.99: building kube-apiserver: exit status 1; the end of "},
		"other content than was pinned": {"sum: h1:", "sum: h1:x", "downloaded content has the hash h1:"},
		"an added file that is there already": {"pkg/version/added/added.go", "pkg/version/kind.go",
			"add: pkg/version/kind.go is there already"},
		"an added file outside": {"pkg/version/added/added.go", "../added.go",
			`add: "../added.go": want the name of a file below`},
		"a file that is not there": {"remove: [go.mod]", "remove: [gone.go]",
			"rig: kube-1.99: preparing k8s.io/kubernetes@v1.99.0: remove "},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.replace("kube-1.99/build.yaml", test.before, test.after)
			printed := f.run(1)
			if !strings.Contains(printed, test.want) {
				t.Errorf("printed:\n%s\nwant in it: %s", printed, test.want)
			}
			if got := strings.Join(f.binaries(), " "); got != "kube-apiserver-1.98" {
				t.Errorf("bin holds %q, want kube-apiserver-1.98 alone", got)
			}
		})
	}
	t.Run("the compiler's words are in the message", func(t *testing.T) {
		f := newFixture(t)
		f.replace("kube-1.99/build.yaml", "replace: published, with: edited", `replace: '"published"', with: nonsense`)
		if printed := f.run(1, "1.99"); !strings.Contains(printed, "undefined: nonsense") {
			t.Errorf("printed:\n%s\nwant the compiler's message in it", printed)
		}
	})
}

func TestVersionsOnRequestAreBuiltWhenAskedFor(t *testing.T) {
	f := newFixture(t)
	f.replace("kube-1.98/build.yaml", "cpuMinutes: 1", "cpuMinutes: 1\nonRequest: true")
	f.run(0)
	if got, want := f.binaries(), []string{"kube-apiserver-1.99", "kube-scheduler-1.99"}; !slices.Equal(got, want) {
		t.Errorf("bin holds %q, want %q: nobody asked for 1.98", got, want)
	}
	f.run(0, everyVersion)
	if got := f.binaries(); !slices.Contains(got, "kube-apiserver-1.98") {
		t.Errorf("bin holds %q, want all of them", got)
	}
}

// TestEtcdIsBuilt builds a server whose module has another version than its release, as that of 3.4.
func TestEtcdIsBuilt(t *testing.T) {
	f := newFixture(t)
	const module, version = "go.etcd.io/etcd", "v0.5.0-alpha.5"
	publish(t, f.proxy, module, version, map[string]string{"main.go": "package main\n\nfunc main() {}\n"})
	sums := download(t, module, version)
	f.write("etcd-3.94/go.mod", "module example.test/rig\n\ngo 1.24\n\ntool "+module+"\n\nrequire "+module+" "+
		version+" // indirect\n")
	f.write("etcd-3.94/go.sum", module+" "+version+" "+sums.Sum+"\n"+module+" "+version+"/go.mod "+sums.GoModSum+"\n")
	f.write("etcd-3.94/build.yaml", "cpuMinutes: 1\nonRequest: true\n")
	if printed, want := f.run(2, "etcd-3.94"), `"v0.5.0-alpha.5": want a release of 3.94`; !strings.Contains(printed, want) {
		t.Errorf("printed:\n%s\nwant in it: %s", printed, want)
	}
	f.replace("etcd-3.94/build.yaml", "onRequest: true", "onRequest: true\nrelease: v3.94.21")
	if printed, want := f.run(0, "etcd-3.94"), "etcd-3.94: will build 1 programs of v3.94.21"; !strings.Contains(
		printed, want) {
		t.Errorf("printed:\n%s\nwant in it: %s", printed, want)
	}
	if got, want := f.binaries(), []string{"etcd-3.94"}; !slices.Equal(got, want) {
		t.Errorf("bin holds %q, want %q", got, want)
	}
}

func TestBuildRefusesWhatItCannotRead(t *testing.T) {
	for name, test := range map[string]struct{ file, before, after, want string }{
		"an unknown field": {"kube-1.99/build.yaml", "cpuMinutes", "cpuHours", "cpuHours"},
		"no cost": {"kube-1.98/build.yaml", "cpuMinutes: 1", "cpuMinutes: 0",
			"want cpuMinutes above zero"},
		"no variables of the release": {"kube-1.98/build.yaml", "versionPackages: [k8s.io/kubernetes/pkg/version]", "",
			"versionPackages for Kubernetes"},
		"another release's folder": {"kube-1.99/go.mod", "v1.99.0", "v1.97.0",
			`requires k8s.io/kubernetes "v1.97.0": want a release of 1.99`},
		"no programs": {"kube-1.98/go.mod", "tool k8s.io/kubernetes/cmd/kube-apiserver", "",
			"no tool below k8s.io/kubernetes/cmd/"},
		"a go.mod that does not parse": {"kube-1.98/go.mod", "go 1.24", "go go", "reading go.mod"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.replace(test.file, test.before, test.after)
			if printed := f.run(2); !strings.Contains(printed, test.want) {
				t.Errorf("printed:\n%s\nwant in it: %s", printed, test.want)
			}
		})
	}
}

func TestInterruptedBuildLeavesNoBinary(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &output{onWrite: func(line string) {
		if strings.Contains(line, ": building") {
			cancel()
		}
	}}
	if got := run(ctx, f.rig, nil, out); got != 130 {
		t.Errorf("run = %d, want 130; printed:\n%s", got, out)
	}
	if got := f.binaries(); len(got) > 0 {
		t.Errorf("bin holds %q, want nothing", got)
	}
	f.run(0)
}

func TestSecondBuildWaitsForTheFirst(t *testing.T) {
	f := newFixture(t)
	release, err := lock(t.Context(), filepath.Join(f.rig, ".build"), &output{})
	if err != nil {
		t.Fatal(err)
	}
	out := &output{onWrite: func(line string) {
		if strings.Contains(line, "waiting") {
			release()
		}
	}}
	if got := run(t.Context(), f.rig, []string{"1.98"}, out); got != 0 {
		t.Fatalf("run = %d, want 0; printed:\n%s", got, out)
	}
	if printed := out.String(); !strings.HasPrefix(printed, "rig: waiting for another build") ||
		len(f.binaries()) != 1 {
		t.Errorf("printed %q, want it to wait and then to build", printed)
	}
}

func TestRigReleasesAreThoseOfTheFacts(t *testing.T) {
	versions, err := readVersions(t.Context(), "..", []string{everyVersion})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if !v.product.stamped {
			continue // etcd
		}
		minor, err := kubever.Parse(v.name)
		if err != nil {
			t.Errorf("kube-%s: %v", v.name, err)
		} else if want := "v" + kubever.Release(minor.Minor); v.release != want && !v.OnRequest {
			t.Errorf("kube-%s/go.mod requires %s, the facts were read from %s", v.name, v.release, want)
		}
		for _, c := range v.Copies {
			if _, release, _ := strings.Cut(c.Module, "@"); c.To == "src" && release != v.release {
				t.Errorf("kube-%s/build.yaml copies %s, go.mod requires %s", v.name, c.Module, v.release)
			}
		}
	}
}

//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// recipe is part of every version's key. A change of this program that makes other binaries from the same folder raises
// it.
const recipe = 1

// product is what folders of one kind build.
type product struct {
	folders string   // what their names begin with
	modules []string // the paths that the product's module has had; a folder requires one of them
	want    string   // which tools of a go.mod are programs, for people
	// program names the program whose main package a tool is. Other tools, such as a generator, are not programs.
	program func(tool string) (name string, ok bool)
	// stamped programs have their release in variables of packages, and not as a constant.
	stamped bool
}

var products = []product{
	{folders: "kube-", modules: []string{"k8s.io/kubernetes"}, want: "below k8s.io/kubernetes/cmd/", stamped: true,
		program: func(tool string) (string, bool) { return strings.CutPrefix(tool, "k8s.io/kubernetes/cmd/") }},
	{folders: "etcd-", modules: etcdModules, want: "of etcd, whose path is that of its module",
		program: func(tool string) (string, bool) { return "etcd", slices.Contains(etcdModules, tool) }},
}

var etcdModules = []string{"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd", "github.com/coreos/etcd"}

// version is one folder kube-1.N or etcd-3.N.
type version struct {
	product  product
	folder   string // kube-1.6
	name     string // 1.6
	release  string // v1.6.13, as go.mod requires it
	dir      string // the folder itself, absolute
	work     string // its part of .build, absolute; holds nothing that cannot be made again
	bin      string // where the binaries go, absolute
	programs []program
	replaced []replacement
	description

	computing time.Duration // what the build has used so far; to correct CPUMinutes by
}

// program is one that a folder builds, and its main package.
type program struct{ name, path string }

// replacement is a module that go.mod takes from a folder.
type replacement struct{ module, dir string }

// description is build.yaml: what is special about building the version.
type description struct {
	// CPUMinutes is what a build from a cold cache takes on one core.
	CPUMinutes int `json:"cpuMinutes"`
	// OnRequest: built when it is named, or with "all". These are the releases for which CI has no time.
	OnRequest bool `json:"onRequest,omitempty"`
	// Release is the release where the version of its module is not: v3.4.21 of a module that begins with v0.5.0.
	Release string `json:"release,omitempty"`
	// VersionPackages hold the variables (gitVersion and its like) that a release stamps into its binaries; none where
	// they have the release as a constant.
	VersionPackages []string `json:"versionPackages,omitempty"`
	// Copies are modules of which a changed copy is built; go.mod replaces the module by the copy.
	Copies []moduleCopy `json:"copies,omitempty"`
	// OpenAPI is absent when the release's module has its generated API description.
	OpenAPI *openAPI `json:"openAPI,omitempty"`
}

// everyVersion asks for those on request, too.
const everyVersion = "all"

// readVersions reads the folders kube-1.N and etcd-3.N: those named (1.N is kube-1.N), or all but those on request.
func readVersions(ctx context.Context, rig string, only []string) ([]*version, error) {
	rig, err := filepath.Abs(rig)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, p := range products {
		found, err := filepath.Glob(filepath.Join(rig, p.folders+"*"))
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, found...)
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s: no folder kube-1.N or etcd-3.N in it", rig)
	}
	every := len(only) == 1 && only[0] == everyVersion
	if len(only) > 0 && !every {
		dirs = dirs[:0]
		for _, name := range only {
			if strings.HasPrefix(name, "1.") {
				name = products[0].folders + name
			}
			dirs = append(dirs, filepath.Join(rig, name))
		}
	}
	var versions []*version
	var problems []error
	for _, dir := range dirs {
		v, err := readVersion(ctx, rig, dir)
		versions, problems = append(versions, v), append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(only) == 0 {
		versions = slices.DeleteFunc(versions, func(v *version) bool { return v.OnRequest })
	}
	// The longest first: a long build that starts last has a core to itself at the end.
	sort.SliceStable(versions, func(i, j int) bool { return versions[i].CPUMinutes > versions[j].CPUMinutes })
	return versions, nil
}

func readVersion(ctx context.Context, rig, dir string) (*version, error) {
	base := filepath.Base(dir)
	i := slices.IndexFunc(products, func(p product) bool { return strings.HasPrefix(base, p.folders) })
	if i < 0 {
		return nil, fmt.Errorf("%q: want a folder kube-1.N or etcd-3.N", base)
	}
	v := &version{
		product: products[i],
		folder:  base,
		name:    strings.TrimPrefix(base, products[i].folders),
		dir:     dir,
		work:    filepath.Join(rig, ".build", base),
		bin:     filepath.Join(rig, "bin"),
	}
	file := filepath.Join(dir, "build.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &v.description); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if v.CPUMinutes <= 0 || v.product.stamped != (len(v.VersionPackages) > 0) {
		return nil, fmt.Errorf("%s: want cpuMinutes above zero, and versionPackages for Kubernetes alone", file)
	}
	return v, v.readModule(ctx)
}

// readModule takes the release, the programs and the replaced folders from go.mod.
func (v *version) readModule(ctx context.Context) error {
	var module struct {
		Require []struct{ Path, Version string }
		Tool    []struct{ Path string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	data, err := v.goCommand(ctx, v.dir, "mod", "edit", "-json").Output()
	if err != nil {
		return fmt.Errorf("%s: reading go.mod: %w", v.dir, withStderr(err))
	}
	if err := json.Unmarshal(data, &module); err != nil {
		return fmt.Errorf("%s: reading go.mod: %w", v.dir, err)
	}
	for _, required := range module.Require {
		if slices.Contains(v.product.modules, required.Path) {
			v.release = cmp.Or(v.Release, strings.TrimSuffix(required.Version, "+incompatible"))
		}
	}
	for _, tool := range module.Tool {
		if name, ok := v.product.program(tool.Path); ok {
			v.programs = append(v.programs, program{name, tool.Path})
		}
	}
	for _, replace := range module.Replace {
		if replace.New.Version == "" {
			v.replaced = append(
				v.replaced, replacement{replace.Old.Path, filepath.Join(v.dir, filepath.FromSlash(replace.New.Path))})
		}
	}
	if !strings.HasPrefix(v.release, "v"+v.name+".") {
		return fmt.Errorf("%s/go.mod: requires %s %q: want a release of %s, the version in the folder's name", v.dir,
			strings.Join(v.product.modules, " or "), v.release, v.name)
	}
	if len(v.programs) == 0 {
		return fmt.Errorf("%s/go.mod: no tool %s: want one per program", v.dir, v.product.want)
	}
	return nil
}

// binary is where a program of the version is put.
func (v *version) binary(program string) string { return filepath.Join(v.bin, program+"-"+v.name) }

// keyFile holds the key from which a program was built.
func (v *version) keyFile(program string) string {
	return filepath.Join(v.bin, "."+program+"-"+v.name+".key")
}

// isBuilt reports whether every program is there, built from the folder as it is now.
func (v *version) isBuilt() (bool, error) {
	key, err := v.key()
	if err != nil {
		return false, err
	}
	for _, program := range v.programs {
		if _, err := os.Stat(v.binary(program.name)); err != nil {
			return false, nil
		}
		built, err := os.ReadFile(v.keyFile(program.name))
		if err != nil || string(built) != key {
			return false, nil
		}
	}
	return true, nil
}

// key names everything that decides what the binaries are: the folder and the stub modules it uses, the Go release, the
// platform.
func (v *version) key() (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%d %s %s/%s\n", recipe, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	dirs := []string{v.dir}
	for _, r := range v.replaced {
		if !isBelow(r.dir, v.work) {
			dirs = append(dirs, r.dir)
		}
	}
	for _, dir := range dirs {
		if err := hashFiles(hash, dir); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func hashFiles(hash io.Writer, dir string) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		fmt.Fprintf(hash, "%s %s %d\n", filepath.Base(dir), name, len(data))
		hash.Write(data)
		return err
	})
}

func isBelow(file, dir string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}

// build makes the binaries of the version. A binary gets its name only when it is whole.
func (v *version) build(ctx context.Context) error {
	key, err := v.key()
	if err != nil {
		return err
	}
	if err := v.prepare(ctx, key); err != nil {
		return fmt.Errorf("%s: %w", v.folder, err)
	}
	if err := os.MkdirAll(v.bin, 0o777); err != nil {
		return err
	}
	// A folder of this run's own: a build that was killed may have left a compiler behind that still writes to another.
	unfinished, err := os.MkdirTemp(v.work, "unfinished")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	for _, program := range v.programs {
		made := filepath.Join(unfinished, program.name)
		if err := v.logged(v.goCommand(ctx, v.dir, "build", "-trimpath", "-buildvcs=false",
			"-ldflags", v.linkerFlags(), "-o", made, program.path)); err != nil {
			return fmt.Errorf("%s: building %s: %w", v.folder, program.name, err)
		}
		// Between the two steps there is no key: an interruption here means building again, never a binary under a
		// wrong key.
		os.Remove(v.keyFile(program.name))
		if err := os.Rename(made, v.binary(program.name)); err != nil {
			return err
		}
		if err := os.WriteFile(v.keyFile(program.name), []byte(key), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// linkerFlags stamp the release into its version packages: the servers compute from it what they offer to clients.
func (v *version) linkerFlags() string {
	flags := []string{"-s", "-w"}
	major, minor, _ := strings.Cut(v.name, ".")
	for _, pkg := range v.VersionPackages {
		for _, stamp := range [][2]string{{"gitVersion", v.release}, {"gitMajor", major}, {"gitMinor", minor},
			{"gitTreeState", "clean"}} {
			flags = append(flags, "-X", pkg+"."+stamp[0]+"="+stamp[1])
		}
	}
	return strings.Join(flags, " ")
}

// goCommand is the go command, undisturbed by the caller's own settings. It dies with its children when ctx ends.
func (v *version) goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "PWD="+dir, "CGO_ENABLED=0", "GO111MODULE=on", "GOWORK=off",
		"GOFLAGS=-mod=readonly")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	return command
}

// logged runs a command with its output in a log file and puts the end of that into the error.
func (v *version) logged(command *exec.Cmd) error {
	name := v.work + ".log"
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	err = command.Run()
	if state := command.ProcessState; state != nil { // nil when it could not be started
		v.computing += state.UserTime() + state.SystemTime()
	}
	if err != nil {
		return fmt.Errorf("%w; the end of %s:\n%s", err, name, tail(name, 30))
	}
	return nil
}

// tail is the last lines of a file, indented.
func tail(name string, lines int) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimRight(data, "\n")), "\n")
	return "    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}

// withStderr adds what a command wrote on its standard error, which exec keeps apart.
func withStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// release is a release of Kubernetes on this machine: the modules of the Go module proxy, unpacked.
type release struct {
	version string // v1.36.3
	minor   int
	dir     string            // k8s.io/kubernetes
	staging map[string]string // k8s.io/api -> v0.36.3
	needed  map[string]bool   // those of them that go.mod requires: others need not be on the proxy
	dirs    map[string]string // of staging modules that were downloaded
}

var releaseName = regexp.MustCompile(`^v1\.(\d+)\.(\d+)$`)

// oldestMinor is the first whose module has the generated description of its API.
const oldestMinor = 31

// minorOf is the minor of a release, such as 37 of v1.37.2.
func minorOf(version string) (minor int, ok bool) {
	match := releaseName.FindStringSubmatch(version)
	if match == nil {
		return 0, false
	}
	minor, err := strconv.Atoi(match[1])
	return minor, err == nil
}

// fetch downloads k8s.io/kubernetes of a release.
// Errors: not a release, one that is too old to be read by programs, one that the proxy does not have.
func fetch(ctx context.Context, version string) (release, error) {
	minor, ok := minorOf(version)
	if !ok {
		return release{}, fmt.Errorf("release %q: want vMAJOR.MINOR.PATCH, such as v1.36.3", version)
	}
	r := release{version: version, minor: minor, staging: map[string]string{}, needed: map[string]bool{},
		dirs: map[string]string{}}
	if r.minor < oldestMinor {
		return r, fmt.Errorf("release %s: want one of 1.%d or later, whose programs can be asked", version, oldestMinor)
	}
	dir, err := moduleDir(ctx, "k8s.io/kubernetes@"+version)
	if err != nil {
		return r, err
	}
	r.dir = dir
	var module struct {
		Require []struct{ Path string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	out, err := goCommand(ctx, os.TempDir(), "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		return r, fmt.Errorf("reading go.mod of %s: %w", version, withStderr(err))
	}
	for _, replace := range module.Replace {
		if strings.HasPrefix(replace.New.Path, "./staging/") {
			r.staging[replace.Old.Path] = "v0." + strings.TrimPrefix(version, "v1.")
		}
	}
	for _, required := range module.Require {
		r.needed[required.Path] = r.staging[required.Path] != ""
	}
	return r, nil
}

// moduleDir downloads a module and returns where it lies.
func moduleDir(ctx context.Context, module string) (string, error) {
	var got struct{ Dir, Error string }
	// In a directory without a go.mod: the module of the caller says nothing about others.
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module).Output()
	if jsonErr := json.Unmarshal(out, &got); got.Error != "" || err != nil || jsonErr != nil {
		return "", fmt.Errorf("downloading %s: %s", module,
			cmp.Or(got.Error, errors.Join(withStderr(err), jsonErr).Error()))
	}
	return got.Dir, nil
}

// errNoModule is a staging module that a release does not have.
var errNoModule = errors.New("no such module")

// file is where a file of Kubernetes' repository lies: staging/src/k8s.io/api/x.go is x.go of module k8s.io/api.
// Errors: errNoModule, wrapped; what the download of a module says.
func (r release) file(ctx context.Context, path string) (string, error) {
	below, staged := strings.CutPrefix(path, "staging/src/")
	if !staged {
		return filepath.Join(r.dir, filepath.FromSlash(path)), nil
	}
	parts := strings.SplitN(below, "/", 3)
	if len(parts) < 3 || r.staging[parts[0]+"/"+parts[1]] == "" {
		return "", fmt.Errorf("%s of %s: %w", path, r.version, errNoModule)
	}
	module := parts[0] + "/" + parts[1]
	dir, known := r.dirs[module]
	if !known { // the go command takes a second, and more on a busy machine
		var err error
		if dir, err = moduleDir(ctx, module+"@"+r.staging[module]); err != nil {
			return "", err
		}
		r.dirs[module] = dir
	}
	return filepath.Join(dir, filepath.FromSlash(parts[2])), nil
}

// facts are what programs of the release print about themselves, and what its API description says.
type facts struct {
	components map[string]component
	controllers
	apiServer
	resources []resource
	fields    map[[2]string]string // type and field -> type of the field
	required  map[[2]string]bool   // type and field, of the fields that an object of the type has to have
}

type component struct {
	Flags []struct {
		Name, Default, Deprecated string
		SaysDeprecated            bool
	}
	Gates []struct {
		Name, Stage     string
		Default, Locked bool
	}
}

type controllers struct {
	Controllers []struct {
		Name           string
		Aliases, Gates []string
		Off, Cloud     bool
	}
}

type apiServer struct {
	Admission, AdmissionOn, Authorization, Reconcilers []string
	Resources                                          []resource
	Kinds                                              []struct {
		GroupVersion, Kind string
		Deprecated         int
	}
	Roles []struct {
		Metadata struct{ Name string }
		Rules    []struct{ Verbs, APIGroups, Resources []string }
	}
}

// resource is one resource in one group and version.
type resource struct {
	Group, Version, Name, Kind string
	Stored                     bool // as its verbs say
	On                         bool
	Key, StoredAs              string

	Namespaced   bool
	Subresources []string
	ShortNames   []string
}

func (r resource) groupVersion() string { return strings.TrimPrefix(r.Group+"/"+r.Version, "/") }

//go:embed testdata/probe
var probes embed.FS

// programs are the probes, by the component that each asks.
var programs = map[string]string{
	"kube-apiserver": "apiserver", "kube-controller-manager": "manager", "kube-scheduler": "scheduler",
}

// read asks the release: it builds small programs with the release's own packages, in a directory that is removed
// afterwards, and reads the description of the API. It says on progress how far the build is.
func (r release) read(ctx context.Context, progress io.Writer) (facts, error) {
	f := facts{components: map[string]component{}}
	var err error
	if f.resources, err = readDiscovery(filepath.Join(r.dir, "api", "discovery")); err != nil {
		return f, err
	}
	if f.fields, f.required, err = readTypes(filepath.Join(r.dir, "api", "openapi-spec", "swagger.json")); err != nil {
		return f, err
	}
	dir, err := os.MkdirTemp("", "facts-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	if err := r.build(ctx, dir, progress); err != nil {
		return f, err
	}
	question, err := json.Marshal(f.resources)
	if err != nil {
		return f, err
	}
	if err := os.WriteFile(filepath.Join(dir, "resources.json"), question, 0o600); err != nil {
		return f, err
	}
	for name, program := range programs {
		answer := filepath.Join(dir, program+".json")
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "bin", program), answer,
			filepath.Join(dir, "resources.json")).CombinedOutput()
		if err != nil {
			return f, fmt.Errorf("asking %s of %s: %w: %s", name, r.version, err, out)
		}
		data, err := os.ReadFile(answer)
		if err != nil {
			return f, err
		}
		var c component
		for _, part := range []any{&c, &f.controllers, &f.apiServer} {
			if err := json.Unmarshal(data, part); err != nil {
				return f, fmt.Errorf("asking %s of %s: %w", name, r.version, err)
			}
		}
		f.components[name] = c
	}
	for i, answer := range f.apiServer.Resources {
		f.resources[i].On, f.resources[i].Key, f.resources[i].StoredAs = answer.On, answer.Key, answer.StoredAs
	}
	return f, nil
}

// build makes the probes. Their go.mod is the release's own, with its staging modules at the versions of the release.
func (r release) build(ctx context.Context, dir string, progress io.Writer) error {
	tree, err := fs.Sub(probes, "testdata/probe")
	if err == nil {
		err = os.CopyFS(dir, tree)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(r.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	edit := []string{"mod", "edit", "-module=probe", "-require=k8s.io/kubernetes@" + r.version}
	for module, version := range r.staging {
		edit = append(edit, "-dropreplace="+module)
		if r.needed[module] {
			edit = append(edit, "-require="+module+"@"+version)
		}
	}
	if out, err := goCommand(ctx, dir, edit...).CombinedOutput(); err != nil {
		return fmt.Errorf("building programs of %s: go mod edit: %w:\n%s", r.version, err, out)
	}
	flags := []string{"-mod=mod", "-trimpath", "-ldflags=-s -w"}
	mains := []string{"./apiserver", "./manager", "./scheduler"}
	out, err := goCommand(ctx, dir, slices.Concat([]string{"list", "-deps", "-f", "{{.Stale}}"}, flags,
		mains)...).Output()
	if err != nil {
		return fmt.Errorf("building programs of %s: go list: %w", r.version, withStderr(err))
	}
	compiled := &compiling{progress: progress, stale: bytes.Count(out, []byte("true\n"))}
	fmt.Fprintf(progress, "compiling %d of %d packages: Go's build cache has the others\n", compiled.stale,
		bytes.Count(out, []byte("\n")))
	build := goCommand(ctx, dir, slices.Concat([]string{"build", "-v", "-o", "bin" + string(filepath.Separator)}, flags,
		mains)...)
	build.Stderr = compiled
	if err := build.Run(); err != nil {
		return fmt.Errorf("building programs of %s: go build: %w:\n%s", r.version, err, compiled.messages.String())
	}
	return nil
}

// compiling reads what go build -v writes: the name of each package when it is compiled, and messages. It counts the
// packages, and says so now and then: on a busy machine a build takes an hour.
type compiling struct {
	progress    io.Writer
	stale, done int
	line        []byte // that has not ended yet
	messages    bytes.Buffer
}

// compiledStep is how many packages are compiled between two lines of progress.
const compiledStep = 100

func (c *compiling) Write(data []byte) (int, error) {
	c.line = append(c.line, data...)
	for {
		line, rest, ended := bytes.Cut(c.line, []byte("\n"))
		if !ended {
			return len(data), nil
		}
		c.line = rest
		if bytes.ContainsAny(line, " \t:") { // no package has such a name
			fmt.Fprintf(&c.messages, "%s\n", line)
			continue
		}
		if c.done++; c.done%compiledStep == 0 {
			fmt.Fprintf(c.progress, "compiled %d of %d packages\n", c.done, c.stale)
		}
	}
}

// goCommand is the go command, undisturbed by the caller's settings.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "PWD="+dir, "CGO_ENABLED=0", "GO111MODULE=on", "GOWORK=off", "GOFLAGS=")
	return command
}

func withStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// readDiscovery reads what the release's API server answers with everything turned on.
func readDiscovery(dir string) ([]resource, error) {
	var resources []resource
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct {
					Resource     string
					ResponseKind struct{ Kind string }
					Scope        string
					Verbs        []string
					ShortNames   []string
					Subresources []struct{ Subresource string }
				}
			}
		}
	}
	var core struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
			Verbs      []string
			ShortNames []string
		}
	}
	if err := readJSON(filepath.Join(dir, "aggregated_v2.json"), &groups); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(dir, "api__v1.json"), &core); err != nil {
		return nil, err
	}
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				read := resource{Group: group.Metadata.Name, Version: version.Version, Name: r.Resource,
					Kind: r.ResponseKind.Kind, Stored: stored(r.Verbs), Namespaced: r.Scope == "Namespaced",
					ShortNames: r.ShortNames}
				for _, sub := range r.Subresources {
					read.Subresources = append(read.Subresources, sub.Subresource)
				}
				resources = append(resources, read)
			}
		}
	}
	of := map[string]int{}
	for _, r := range core.Resources { // resources come before their subresources
		if name, sub, is := strings.Cut(r.Name, "/"); is {
			i, ok := of[name]
			if !ok {
				return nil, fmt.Errorf("%s: api__v1.json: %q comes before its resource", dir, r.Name)
			}
			resources[i].Subresources = append(resources[i].Subresources, sub)
			continue
		}
		of[r.Name] = len(resources)
		resources = append(resources, resource{Version: "v1", Name: r.Name, Kind: r.Kind, Stored: stored(r.Verbs),
			Namespaced: r.Namespaced, ShortNames: r.ShortNames})
	}
	return resources, nil
}

// stored reports whether a resource with these verbs is kept: reviews are only created, component statuses only read.
func stored(verbs []string) bool {
	return slices.Contains(verbs, "create") && slices.Contains(verbs, "list")
}

// schemaType is a type in an OpenAPI v2 description.
type schemaType struct {
	Ref                  string `json:"$ref"`
	Type, Format         string
	Items                *schemaType
	AdditionalProperties *schemaType
	Properties           map[string]schemaType
	Required             []string
}

// readTypes reads the fields of all types, and those that the description requires. A type that writes its own JSON has
// no fields. Lists require their items, which no table wants.
func readTypes(file string) (fields map[[2]string]string, required map[[2]string]bool, err error) {
	var description struct{ Definitions map[string]schemaType }
	if err := readJSON(file, &description); err != nil {
		return nil, nil, err
	}
	fields, required = map[[2]string]string{}, map[[2]string]bool{}
	for name, definition := range description.Definitions {
		name = typeName(name)
		for field, t := range definition.Properties {
			fields[[2]string{name, field}] = t.String()
		}
		for _, field := range definition.Required {
			if _, known := definition.Properties[field]; !known {
				return nil, nil, fmt.Errorf("reading %s: %s requires %q, which is no field of it", file, name, field)
			}
			if field != "items" || !strings.HasSuffix(name, "List") {
				required[[2]string{name, field}] = true
			}
		}
	}
	return fields, required, nil
}

var typePrefix = regexp.MustCompile(
	`^io\.k8s\.(?:api\.core|api|(?:apimachinery|apiextensions-apiserver|kube-aggregator)\.pkg(?:\.apis|\.api)?)\.`)

// typeName is what the tables call io.k8s.api.apps.v1.DeploymentSpec.
func typeName(name string) string { return typePrefix.ReplaceAllString(name, "") }

func (t schemaType) String() string {
	switch {
	case t.Ref != "":
		return typeName(strings.TrimPrefix(t.Ref, "#/definitions/"))
	case t.Type == "array" && t.Items != nil:
		return "[]" + t.Items.String()
	case t.Type == "object" && t.AdditionalProperties != nil:
		return "map[string]" + t.AdditionalProperties.String()
	case t.Format != "":
		return t.Type + "/" + t.Format
	}
	return t.Type
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

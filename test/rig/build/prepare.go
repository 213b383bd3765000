//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// moduleCopy is a module, or a folder of one, that is copied below .build/kube-1.N and changed there.
type moduleCopy struct {
	Module string   `json:"module"`           // path@version
	Sum    string   `json:"sum"`              // its h1: hash, as in a go.sum: replaced modules are not in go.sum
	Folder string   `json:"folder,omitempty"` // copy only this folder of the module
	To     string   `json:"to"`               // the name of the copy
	Remove []string `json:"remove,omitempty"` // files to leave out
	Edits  []edit   `json:"edits,omitempty"`
	// Add holds whole files, name to content: stubs of packages that cannot be built any more.
	Add map[string]string `json:"add,omitempty"`
}

// edit changes one file. Either every line that contains Drop goes away, or Replace is replaced by With; in both cases
// exactly Times of them are expected, so that an edit which no longer fits its release is an error.
type edit struct {
	File    string `json:"file"`
	Drop    string `json:"drop,omitempty"`
	Replace string `json:"replace,omitempty"`
	With    string `json:"with,omitempty"`
	Times   int    `json:"times"`
}

// prepare makes the folders that go.mod replaces modules by, unless they were made from the same key. They get their
// name only when they are whole.
func (v *version) prepare(ctx context.Context, key string) error {
	keyFile := filepath.Join(v.work, "key")
	if prepared, err := os.ReadFile(keyFile); err == nil && string(prepared) == key {
		return nil
	}
	if err := os.RemoveAll(v.work); err != nil {
		return err
	}
	if err := os.MkdirAll(v.work, 0o777); err != nil {
		return err
	}
	for _, c := range v.Copies {
		if err := v.copyModule(ctx, c); err != nil {
			return fmt.Errorf("preparing %s: %w", c.Module, err)
		}
	}
	if err := v.addModuleFiles(); err != nil {
		return err
	}
	if v.OpenAPI != nil {
		if err := v.generateOpenAPI(ctx); err != nil {
			return fmt.Errorf("generating the API description: %w", err)
		}
	}
	return os.WriteFile(keyFile, []byte(key), 0o666)
}

func (v *version) copyModule(ctx context.Context, c moduleCopy) error {
	if !filepath.IsLocal(c.To) || !filepath.IsLocal(filepath.Join(".", c.Folder)) {
		return fmt.Errorf("to: %q, folder: %q: want names of folders below", c.To, c.Folder)
	}
	from, err := v.download(ctx, c)
	if err != nil {
		return err
	}
	to := filepath.Join(v.work, c.To)
	if err := os.CopyFS(to, os.DirFS(filepath.Join(from, c.Folder))); err != nil {
		return err
	}
	for _, file := range c.Remove {
		if err := os.Remove(filepath.Join(to, file)); err != nil {
			return err
		}
	}
	for _, e := range c.Edits {
		if err := e.apply(to); err != nil {
			return err
		}
	}
	return addFiles(to, c.Add)
}

// addFiles writes the files below dir. One that the module has is an error unless it was removed: an addition never
// hides a change.
func addFiles(dir string, files map[string]string) error {
	for name, content := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("add: %q: want the name of a file below", name)
		}
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("add: %s is there already: remove it first", name)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// download brings the module into the module cache and says where it is there.
func (v *version) download(ctx context.Context, c moduleCopy) (string, error) {
	// An empty folder: inside kube-1.N the go command would look for the replacements that do not exist yet.
	empty, err := os.MkdirTemp(v.work, "download")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(empty)
	if err := os.WriteFile(filepath.Join(empty, "go.mod"), []byte("module download\n"), 0o666); err != nil {
		return "", err
	}
	var module struct{ Dir, Sum, Error string }
	data, err := v.goCommand(ctx, empty, "mod", "download", "-json", c.Module).Output()
	if jsonErr := json.Unmarshal(data, &module); jsonErr == nil && module.Error != "" {
		return "", fmt.Errorf("downloading: %s", module.Error)
	}
	if err != nil {
		return "", fmt.Errorf("downloading: %w", withStderr(err))
	}
	if module.Sum != c.Sum {
		return "", fmt.Errorf("downloaded content has the hash %s: build.yaml wants %s", module.Sum, c.Sum)
	}
	return module.Dir, nil
}

// apply changes the file below dir.
func (e edit) apply(dir string) error {
	name := filepath.Join(dir, e.File)
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, times, err := e.change(string(data))
	if err != nil {
		return fmt.Errorf("editing %s: %w", e.File, err)
	}
	if times != e.Times {
		return fmt.Errorf("editing %s: %q is there %d times: build.yaml wants %d", e.File, e.Drop+e.Replace, times,
			e.Times)
	}
	return os.WriteFile(name, []byte(text), 0o666)
}

// change returns the changed text and how many places were changed.
func (e edit) change(text string) (string, int, error) {
	switch {
	case e.Drop != "" && e.Replace == "" && e.With == "":
		var kept []string
		lines := strings.SplitAfter(text, "\n")
		for _, line := range lines {
			if !strings.Contains(line, e.Drop) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, ""), len(lines) - len(kept), nil
	case e.Drop == "" && e.Replace != "":
		return strings.ReplaceAll(text, e.Replace, e.With), strings.Count(text, e.Replace), nil
	}
	return "", 0, fmt.Errorf("want either drop, or replace and with")
}

// addModuleFiles gives a go.mod to the replaced folders that have none: releases that are older than modules.
func (v *version) addModuleFiles() error {
	for _, r := range v.replaced {
		name := filepath.Join(r.dir, "go.mod")
		if !isBelow(r.dir, v.work) {
			continue // a stub module of the rig; it has one
		}
		if _, err := os.Stat(name); err == nil {
			continue
		}
		// Packages without a go line are compiled as Go 1.16, which is what is wanted, but say so.
		if err := os.WriteFile(name, []byte("module "+r.module+"\n\ngo 1.16\n"), 0o666); err != nil {
			return fmt.Errorf("go.mod replaces %s by a folder that build.yaml does not make: %w", r.module, err)
		}
	}
	return nil
}

// openAPI tells how to generate the API description that a release compiles in but does not publish with its module.
type openAPI struct {
	Generator string   `json:"generator"` // package path; a tool of go.mod
	Flags     []string `json:"flags,omitempty"`
	Inputs    []string `json:"inputs"` // packages whose types are described
}

// generateOpenAPI runs the release's own generator. It predates modules and reads a GOPATH: one is made of symbolic
// links.
func (v *version) generateOpenAPI(ctx context.Context) error {
	generator := filepath.Join(v.work, "openapi-gen")
	if err := v.logged(
		v.goCommand(ctx, v.dir, "build", "-buildvcs=false", "-o", generator, v.OpenAPI.Generator)); err != nil {
		return err
	}
	gopath := filepath.Join(v.work, "gopath")
	if err := v.linkGopath(ctx, filepath.Join(gopath, "src")); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, generator, append([]string{
		"--input-dirs", strings.Join(v.OpenAPI.Inputs, ","),
		"--output-base", filepath.Join(gopath, "src"),
		"--output-package", "k8s.io/kubernetes/pkg/generated/openapi",
		"--output-file-base", "zz_generated.openapi",
		"--go-header-file", filepath.Join(gopath, "src/k8s.io/kubernetes/hack/boilerplate/boilerplate.go.txt"),
	}, v.OpenAPI.Flags...)...)
	command.Dir = gopath
	// The generator's type walker does not know alias types, which newer compilers report unless told otherwise.
	command.Env = append(os.Environ(), "PWD="+gopath, "GOPATH="+gopath, "GO111MODULE=off", "GOFLAGS=", "CGO_ENABLED=0",
		"GODEBUG=gotypesalias=0")
	return v.logged(command)
}

// linkGopath makes a GOPATH of the modules from which the inputs are compiled.
func (v *version) linkGopath(ctx context.Context, src string) error {
	list := v.goCommand(ctx, v.dir, append([]string{"list", "-deps", "-f", "{{with " +
		".Module}}{{.Path}}\t{{.Dir}}{{end}}"}, v.OpenAPI.Inputs...)...)
	data, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the modules of the inputs: %w", withStderr(err))
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if module, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			dirs[module] = dir
		}
	}
	modules := slices.Sorted(maps.Keys(dirs))
	for _, module := range modules {
		link := filepath.Join(src, filepath.FromSlash(module))
		if i := slices.IndexFunc(modules, func(outer string) bool {
			return strings.HasPrefix(module, outer+"/")
		}); i >= 0 {
			return fmt.Errorf("module %s lies inside %s: a GOPATH of links cannot hold both", module, modules[i])
		}
		if err := os.MkdirAll(filepath.Dir(link), 0o777); err != nil {
			return err
		}
		if err := os.Symlink(dirs[module], link); err != nil {
			return err
		}
	}
	return nil
}

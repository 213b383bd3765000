package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what the files of one release have in common.
type release struct {
	version  string // v1.2.3
	source   string // the checkout
	out      string
	modified bool // the checkout may be

	commit string
	date   time.Time // of the commit
	extras string    // man, completions
}

// program is a built command.
type program struct {
	os, arch string
	file     string
}

// semver is a version without build metadata, as Go, Debian, krew and images all take it.
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// number is the version without its v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

func (r *release) make(ctx context.Context, platforms []string) (err error) {
	if !semver.MatchString(r.version) {
		return fmt.Errorf("VERSION %q: want a version such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	if r.source, err = filepath.Abs(r.source); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := r.describe(ctx); err != nil {
		return err
	}
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return fmt.Errorf("%w; a release is written into a new directory", err)
	}
	work, err := os.MkdirTemp("", "fusionctl-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r.extras = work
	if err := r.run(ctx, nil, "go", "run", "-buildvcs=false", "./internal/site/build", "-man", work+"/man",
		"-completions", work+"/completions", "-version", r.version, "-date",
		strconv.FormatInt(r.date.Unix(), 10)); err != nil {
		return err
	}
	var programs []program
	for _, platform := range platforms {
		p, err := r.build(ctx, platform)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	for _, p := range programs {
		if err := r.archive(p); err != nil {
			return err
		}
		if err := r.contents(p); err != nil {
			return err
		}
		if p.os == "linux" {
			if err := r.debian(p); err != nil {
				return err
			}
		}
	}
	if err := r.image(programs); err != nil {
		return err
	}
	if err := r.managers(programs); err != nil {
		return err
	}
	return r.checksums()
}

// describe asks git what is released.
func (r *release) describe(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.source}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		err := cmd.Run()
		return strings.TrimSpace(out.String()), err
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return fmt.Errorf("a release is made of a commit: %w", err)
	}
	if changed != "" && !r.modified {
		return fmt.Errorf("a release is made of a commit, and the checkout is changed:\n%s", changed)
	}
	if r.commit, err = git("rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	r.date = time.Unix(at, 0).UTC()
	return err
}

// run runs a command in the checkout. Nothing of the environment changes what it builds.
func (r *release) run(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.source, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=",
		"GOWORK=off", "GOENV=off", "GODEBUG=")
	// GOENV=off also hides where modules and caches are.
	for _, name := range []string{"GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN"} {
		value, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(value)))
	}
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// build links the command statically, without tables for debuggers: stack traces need none of them.
func (r *release) build(ctx context.Context, platform string) (program, error) {
	system, arch, found := strings.Cut(platform, "/")
	if !found {
		return program{}, fmt.Errorf("platform %q: want OS/ARCH", platform)
	}
	p := program{os: system, arch: arch, file: filepath.Join(r.extras, system+"-"+arch, "fusionctl")}
	return p, r.run(ctx, []string{"GOOS=" + system, "GOARCH=" + arch}, "go", "build", "-buildvcs=true", "-ldflags",
		"-s -w -buildid= -X github.com/kubefusion/fusionctl/internal/cli.release="+r.version, "-o", p.file,
		"./cmd/fusionctl")
}

func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return r.write("SHA256SUMS", text.Bytes())
}

// glob lists files of the extras, sorted.
func (r *release) glob(pattern string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(r.extras, pattern))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file is called %s", pattern)
	}
	slices.Sort(files)
	return files, err
}

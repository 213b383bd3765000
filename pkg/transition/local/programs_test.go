package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

const programPath = "/opt/kubernetes/1.36.3/bin/kube-apiserver"

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// programHost is a host that is a directory, with a new program in /srv and an old one, or none, in its place.
type programHost struct {
	*Host
	t       *testing.T
	at      string
	program transition.Binary
}

func newProgramHost(t *testing.T, old string) *programHost {
	t.Helper()
	h := &programHost{Host: &Host{Rehearsal: t.TempDir()}, t: t}
	h.at = h.place("cp-1", programPath)
	h.program = transition.Binary{Path: programPath, SHA256: sumOf("new"), File: "/srv/new"}
	h.write(h.place("cp-1", "/srv/new"), "new")
	if old != "" {
		h.write(h.at, old)
	}
	return h
}

func (h *programHost) write(name, text string) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o700)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *programHost) do(kind transition.Kind, before *string) error {
	p := h.program
	p.Before = before
	return h.Do(h.t.Context(), "cp-1", &transition.Action{Kind: kind, Program: &p})
}

// files are those beside the place, by name.
func (h *programHost) files() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(h.at))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(h.at), e.Name()))
		if err != nil {
			h.t.Fatal(err)
		}
		found[e.Name()] = string(data)
	}
	return found
}

func (h *programHost) want(what string, want map[string]string) {
	h.t.Helper()
	if found := h.files(); !maps.Equal(found, want) {
		h.t.Errorf("%s: %q, want %q", what, found, want)
	}
}

const programName = "kube-apiserver"

// TestProgramsAreNeverLost puts and removes a program where there was none, another one, and the same one already; the
// process is killed after each thing that it does to files, and then goes on, or back.
func TestProgramsAreNeverLost(t *testing.T) {
	aside := "." + programName + "." + sumOf("old")[:16]
	partial := "." + programName + ".partial"
	for _, old := range []string{"", "old", "new"} {
		before := ""
		start, end := map[string]string{}, map[string]string{programName: "new"}
		if old != "" {
			before = sumOf(old)
			start[programName] = old
		}
		if old == "old" {
			end[aside] = "old"
		}
		killed := map[string]func(h *programHost){
			"before anything": func(*programHost) {},
			"while it wrote":  func(h *programHost) { h.write(filepath.Join(filepath.Dir(h.at), partial), "ne") },
			"before it was recorded": func(h *programHost) {
				if err := h.do(transition.PutProgram, nil); err != nil {
					t.Fatal(err)
				}
			},
		}
		if old == "old" {
			keep := func(h *programHost) {
				if err := keepAside(h.at, before); err != nil {
					t.Fatal(err)
				}
			}
			killed["when the old one was kept"] = keep
			killed["while it wrote beside the old one"] = func(h *programHost) {
				keep(h)
				h.write(filepath.Join(filepath.Dir(h.at), partial), "ne")
			}
		}
		for name, kill := range killed {
			what := fmt.Sprintf("with %q there, killed %s", old, name)
			h := newProgramHost(t, old)
			if found, err := h.Digest(t.Context(), "cp-1", programPath); found != before || err != nil {
				t.Errorf("digest %q, %v; want %q", found, err, before)
			}
			kill(h)
			for range 2 {
				if err := h.do(transition.PutProgram, &before); err != nil {
					t.Errorf("%s, then on: %v", what, err)
				}
				h.want(what+", then on", end)
			}
			if info, err := os.Stat(h.at); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v; want mode 0755", what, info.Mode(), err)
			}
			for range 2 {
				if err := h.do(transition.RemoveProgram, &before); err != nil {
					t.Errorf("%s, then on and back: %v", what, err)
				}
				h.want(what+", then on and back", start)
			}
			h = newProgramHost(t, old)
			kill(h)
			if err := h.do(transition.RemoveProgram, &before); err != nil {
				t.Errorf("%s, then back: %v", what, err)
			}
			h.want(what+", then back", start)
		}
	}
}

// TestAProgramOfAnotherDigestLeavesNothing, and says which one was wanted, and which found.
func TestAProgramOfAnotherDigestLeavesNothing(t *testing.T) {
	for _, old := range []string{"", "old"} {
		h := newProgramHost(t, old)
		h.program.SHA256 = sumOf("wanted")
		err := h.do(transition.PutProgram, nil)
		if err == nil || !strings.Contains(err.Error(), "has the SHA-256 "+sumOf("new")+", want "+sumOf("wanted")) {
			t.Errorf("another program = %v", err)
		}
		want := map[string]string{}
		if old != "" {
			want[programName] = old
			want[filepath.Base(asideOf(h.at, sumOf(old)))] = old
		}
		h.want("another program", want)
		before := ""
		if old != "" {
			before = sumOf(old)
		}
		if err := h.do(transition.RemoveProgram, &before); err != nil {
			t.Errorf("back: %v", err)
		}
		delete(want, filepath.Base(asideOf(h.at, sumOf("old"))))
		h.want("back", want)
		h.program.File = "/srv/none"
		if err := h.do(transition.PutProgram, nil); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no program = %v", err)
		}
		h.program.File = "/srv"
		if err := h.do(transition.PutProgram, nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("a directory = %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		h.program.File = "/srv/new"
		put := &transition.Action{Kind: transition.PutProgram, Program: &h.program}
		if err := h.Do(ended, "cp-1", put); !errors.Is(err, context.Canceled) {
			t.Errorf("broken off = %v", err)
		}
	}
}

// TestWhatWasChangedSinceStays: a program that a person has put there, and one that is a link.
func TestWhatWasChangedSinceStays(t *testing.T) {
	before := sumOf("old")
	h := newProgramHost(t, "old")
	if err := h.do(transition.PutProgram, &before); err != nil {
		t.Fatal(err)
	}
	h.write(h.at, "of a person")
	if err := h.do(transition.RemoveProgram, &before); err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Errorf("changed since = %v", err)
	}
	h.write(h.at, "new")
	h.write(asideOf(h.at, before), "another")
	if err := h.do(transition.RemoveProgram, &before); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("what was kept is another one = %v", err)
	}
	if err := h.do(transition.RemoveProgram, nil); err != nil {
		t.Errorf("what was there is not known = %v", err)
	}
	if data, err := os.ReadFile(h.at); string(data) != "new" {
		t.Errorf("the program is %q, %v", data, err)
	}
	h = newProgramHost(t, "")
	h.write(filepath.Join(filepath.Dir(h.at), "elsewhere"), "old")
	if err := os.Symlink("elsewhere", h.at); err != nil {
		t.Fatal(err)
	}
	if err := h.do(transition.PutProgram, nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a link = %v", err)
	}
	h = newProgramHost(t, "old")
	h.write(asideOf(h.at, before), "another")
	if err := h.do(transition.PutProgram, nil); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("another file in the way = %v", err)
	}
}

// TestAProgramThatRunsIsNotReplaced by another one, nor removed.
func TestAProgramThatRunsIsNotReplaced(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	h := newProgramHost(t, string(data))
	if err := filetree.WriteFile(h.at, data, 0o755); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(h.at, "600")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill(); _ = running.Wait() })
	says := fmt.Sprintf("process %d runs it", running.Process.Pid)
	if ids, err := processesOf(h.at); !slices.Contains(ids, running.Process.Pid) {
		t.Fatalf("processes %v, %v; want %d", ids, err, running.Process.Pid)
	}
	if err := h.do(transition.PutProgram, nil); err == nil || !strings.Contains(err.Error(), says) ||
		!strings.Contains(err.Error(), sumOf("new")) {
		t.Errorf("replacing = %v, want %q", err, says)
	}
	h.program.SHA256 = sumOf(string(data))
	if err := h.do(transition.PutProgram, nil); err != nil {
		t.Errorf("the one that runs = %v", err)
	}
	none := ""
	if err := h.do(transition.RemoveProgram, &none); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("removing = %v, want %q", err, says)
	}
	h.want("what runs", map[string]string{programName: string(data)})
}

func TestExecutableWantsItsDigest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for sum, says := range map[string]string{"": "", sumOf("x"): "", sumOf("y"): "has the SHA-256 " + sumOf("x") +
		", want " + sumOf("y")} {
		err := new(Host).Check(t.Context(), "", &transition.Check{Kind: transition.Executable, Path: file, SHA256: sum})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("with %q = %v, want %q", sum, err, says)
		}
	}
}

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestWhatIsKeptIsBounded: what writes a file again and again, against the upkeep, does not fill the disk; what was
// there first is kept, and other files of the directory are.
func TestWhatIsKeptIsBounded(t *testing.T) {
	root, now := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := &Keeper{Host: &Host{Rehearsal: root}, Aside: filepath.Join(root, "replaced"), Now: func() time.Time {
		now = now.Add(time.Minute)
		return now
	}}
	fought := []transition.File{{Path: "/etc/kubernetes/a", Mode: 0o600, Data: []byte("planned")},
		{Path: "/etc/kubernetes/a.b", Mode: 0o600, Data: []byte("planned")}}
	if err := os.MkdirAll(filepath.Join(root, "cp-1/etc/kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(k.Aside, 0o700); err != nil {
		t.Fatal(err)
	}
	const mine = "etc__kubernetes__a.mine"
	if err := os.WriteFile(filepath.Join(k.Aside, mine), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 30 {
		for _, f := range fought {
			text := fmt.Sprintf("by hand %d", n/2) // each of them twice
			if err := os.WriteFile(k.Host.place("cp-1", f.Path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := k.replace(t.Context(), "cp-1", &f); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(k.Aside)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(k.Aside, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		path := "a"
		if strings.HasPrefix(e.Name(), "etc__kubernetes__a.b.") {
			path = "a.b"
		}
		texts[path] += string(data) + ","
	}
	for _, path := range []string{"a", "a.b"} {
		for _, want := range []string{"by hand 0,", "by hand 14,", "by hand 6,"} {
			if !strings.Contains(texts[path], want) {
				t.Errorf("%s: %q is not kept: %q", path, want, texts[path])
			}
		}
	}
	if len(entries) != 2*mostKept+1 || texts["a"] == "" {
		t.Errorf("%d files are kept: %v", len(entries), entries)
	}
	if _, err := os.Stat(filepath.Join(k.Aside, mine)); err != nil {
		t.Error(err)
	}
}

// TestProgramsArePutBack: a program that is another one than the plan has, or is gone, is put back from where the plan
// has it, and what was there stays beside it. Where that has another digest, or is not there, nothing is changed.
func TestProgramsArePutBack(t *testing.T) {
	root := t.TempDir()
	k := &Keeper{Host: &Host{Rehearsal: root}, Aside: filepath.Join(root, "replaced"), Now: time.Now}
	const program, source = "/opt/kubernetes/1.36.3/bin/kube-apiserver", "/mnt/releases/kube-apiserver"
	at := func(name string) string { return k.Host.place("cp-1", name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(source, "good")
	sum := digest([]byte("good"))
	u := &transition.Upkeep{Name: "kube-apiserver-modern", Unit: "kube-apiserver-modern.service", Program: program,
		ProgramSHA256: sum, Binary: &transition.Binary{Path: program, SHA256: sum, File: source}}
	if err := u.Validate(); err != nil {
		t.Fatal(err)
	}
	mend := func() ([]string, error) {
		t.Helper()
		found := k.Look(t.Context(), "cp-1", u)
		if found.ProgramDiffers == "" {
			t.Fatalf("%+v: the program does not differ", found)
		}
		return k.Mend(t.Context(), "cp-1", u, &found)
	}
	is := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(at(program)); err != nil || string(text) != want {
			t.Errorf("the program is %q, %v; want %q", text, err, want)
		}
		if left, err := filepath.Glob(at(program) + ".*"); err != nil || len(left) > 0 {
			t.Errorf("%q are left, %v", left, err)
		}
	}
	write(program, "bad")
	if done, err := mend(); err != nil || len(done) != 1 {
		t.Errorf("%q, %v", done, err)
	}
	is("good")
	if kept, err := os.ReadFile(asideOf(at(program), digest([]byte("bad")))); err != nil || string(kept) != "bad" {
		t.Errorf("what was there: %q, %v", kept, err)
	}
	if found := k.Look(t.Context(), "cp-1", u); found.ProgramDiffers != "" {
		t.Error(found.ProgramDiffers)
	}
	if err := os.Remove(at(program)); err != nil {
		t.Fatal(err)
	}
	if _, err := mend(); err != nil {
		t.Error(err)
	}
	is("good")
	write(program, "worse")
	write(source, "another release")
	if done, err := mend(); err == nil || len(done) > 0 {
		t.Errorf("from a source of another digest: %q", done)
	}
	is("worse")
	if err := os.Remove(at(source)); err != nil {
		t.Fatal(err)
	}
	if done, err := mend(); err == nil || len(done) > 0 {
		t.Errorf("from no source: %q", done)
	}
	is("worse")
}

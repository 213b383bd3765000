//go:build unix

package statedir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/pkg/witness/statedir"
)

func TestWhatIsSavedIsLoaded(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "state")
	d, err := statedir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.Load(); m != nil || err != nil {
		t.Fatalf("Load of nothing = %v, %v", m, err)
	}
	if a, err := d.Acknowledged(); a != nil || err != nil {
		t.Fatalf("Acknowledged of nothing = %v, %v", a, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := &witness.Memory{Pair: "kubeflow", Stop: &witness.Stop{ID: "1", Since: at, Why: []string{"it is empty"}},
		Stores: map[string]witness.Sight{
			"modern": {At: at, Revision: 7, Objects: map[string]witness.Object{"a/b": {UID: "u"}}}}}
	word := witness.Acknowledgement{Stop: "1", At: at, By: "root", Why: "restored"}
	if err := d.Save(want); err != nil {
		t.Fatal(err)
	}
	if err := d.Acknowledge(word); err != nil {
		t.Fatal(err)
	}
	got, err := d.Load()
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("Load = %v, %s", err, cmp.Diff(want, got))
	}
	word.Schema = witness.AcknowledgementSchema
	if a, err := d.Acknowledged(); err != nil || *a != word {
		t.Errorf("Acknowledged = %+v, %v; want %+v", a, err, word)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700 | os.ModeDir, "witness.json": 0o600,
		"acknowledged.json": 0o600} {
		if info, err := os.Stat(filepath.Join(path, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, mode)
		}
	}
}

func TestWhatIsNoMemoryIsAnError(t *testing.T) {
	for text, says := range map[string]string{"": "EOF", "{": "witness.json", "{}": `schema ""`,
		`{"schema":"x/v1"}`: `want "`} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "witness.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := statedir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(); err == nil || !strings.Contains(err.Error(), says) {
			if text != "" || err == nil {
				t.Errorf("%q: Load = %v, want %q", text, err, says)
			}
		}
	}
}

// TestStateThatOthersCanWriteIsRefused: who can put files there could acknowledge a stop, or have the stores forgotten.
func TestStateThatOthersCanWriteIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		says string
	}{
		"for the group": {func(path string) error { return os.Chmod(path, 0o770) }, "has mode -rwxrwx---"},
		"for everybody": {func(path string) error { return os.Chmod(path, 0o707) }, "other users can write"},
		"sticky":        {func(path string) error { return os.Chmod(path, 0o777|os.ModeSticky) }, "want 0700"},
		"a link": {func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		}, "is a link"},
		"a link to nothing": {func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink(path+"2", path))
		}, "is a link"},
		"a file": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600))
		}, "not a directory"},
		"another user's": {func(path string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			return os.Chown(path, 65534, -1)
		}, "belongs to another user"},
		"readable": {func(path string) error { return os.Chmod(path, 0o755) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			if err := errors.Join(os.Mkdir(path, 0o700), c.make(path)); err != nil {
				t.Fatal(err)
			}
			_, err := statedir.Open(path)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open = %v, want %q", err, c.says)
			}
		})
	}
}

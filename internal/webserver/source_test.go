package webserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// folder is a directory whose files a test rewrites; every write moves their time on, as a clock would.
type folder struct {
	path string
	time time.Time
}

func (f *folder) write(t *testing.T, name, text string) {
	t.Helper()
	temporary := filepath.Join(f.path, ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.time = f.time.Add(time.Second)
	if err := os.Chtimes(temporary, f.time, f.time); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(f.path, name)); err != nil {
		t.Fatal(err)
	}
}

var errBad = errors.New("bad")

// joined reads the contents of files as one text; one that is "bad" is refused.
func joined(files []File) (string, int, error) {
	var texts []string
	for _, f := range files {
		data, err := f.Read(100)
		if err != nil {
			return "", 0, err
		}
		if string(data) == "bad" {
			return "", 0, errBad
		}
		texts = append(texts, string(data))
	}
	return strings.Join(texts, " "), len(texts), nil
}

var names = Names{Prefix: "test_", Files: "file", Good: "good", Size: "texts", SizeHelp: "Texts."}

func TestSourceKeepsWhatWasGood(t *testing.T) {
	f := &folder{t.TempDir(), time.Now()}
	f.write(t, "text", "one")
	metrics := NewMetrics(prometheus.NewRegistry(), names)
	s, err := Open(OneFile(filepath.Join(f.path, "text")), joined, metrics)
	if err != nil {
		t.Fatal(err)
	}
	check := func(step string, wantLoaded, wantErr bool, want string, wantGood float64) {
		t.Helper()
		if loaded, err := s.Check(); loaded != wantLoaded || (err != nil) != wantErr {
			t.Fatalf("%s: Check = %v, %v, want loaded %v, error %v", step, loaded, err, wantLoaded, wantErr)
		}
		if got := s.Current(); got != want {
			t.Fatalf("%s: %q is in use, want %q", step, got, want)
		}
		if got := testutil.ToFloat64(metrics.good); got != wantGood {
			t.Fatalf("%s: metric good = %v, want %v", step, got, wantGood)
		}
	}
	check("nothing changed", false, false, "one", 1)

	f.write(t, "text", "two")
	check("just changed", false, false, "one", 1)
	check("stayed the same", true, false, "two", 1)

	f.write(t, "text", "bad")
	check("just broken", false, false, "two", 1)
	check("broken", false, true, "two", 0)
	check("still broken, reported once", false, false, "two", 0)

	f.write(t, "text", strings.Repeat("x", 101))
	check("just grown", false, false, "two", 0)
	check("too large", false, true, "two", 0)

	if err := os.Remove(filepath.Join(f.path, "text")); err != nil {
		t.Fatal(err)
	}
	check("gone", false, true, "two", 0)
	check("still gone", false, false, "two", 0)

	f.write(t, "text", "three")
	check("back", false, false, "two", 0)
	check("back and the same", true, false, "three", 1)

	// As long as it changes at every look, nothing of it is in use.
	for i := range 4 {
		f.write(t, "text", strings.Repeat("#", i))
		check("still changing", false, false, "three", 1)
	}
	for result, want := range map[string]float64{"loaded": 3, "kept": 3} {
		if got := testutil.ToFloat64(metrics.reloads.WithLabelValues(result)); got != want {
			t.Errorf("metric reloads %s = %v, want %v", result, got, want)
		}
	}
}

func TestDirectoryIsReadAsAWhole(t *testing.T) {
	f := &folder{t.TempDir(), time.Now()}
	for name, text := range map[string]string{"b.yaml": "b", "a.json": "a", ".hidden.yaml": "hidden",
		"notes.txt": "notes"} {
		f.write(t, name, text)
	}
	if err := os.Mkdir(filepath.Join(f.path, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Directory(f.path, ".yaml", ".json"), joined, NewMetrics(prometheus.NewRegistry(), names))
	if err != nil {
		t.Fatal(err)
	}
	want := func(step, text string, loaded, failed bool) {
		t.Helper()
		if _, err := s.Check(); err != nil {
			t.Fatalf("%s: %v, want a second look first", step, err)
		}
		if got, err := s.Check(); got != loaded || (err != nil) != failed || s.Current() != text {
			t.Fatalf("%s: Check = %v, %v with %q in use; want loaded %v, error %v, %q", step, got, err, s.Current(),
				loaded, failed, text)
		}
	}
	want("nothing changed", "a b", false, false)
	f.write(t, "c.yaml", "c")
	want("one more", "a b c", true, false)
	f.write(t, "a.json", "bad")
	want("one of them bad", "a b c", false, true)
	if err := os.Remove(filepath.Join(f.path, "a.json")); err != nil {
		t.Fatal(err)
	}
	want("without the bad one", "b c", true, false)
}

func TestOpenRefuses(t *testing.T) {
	f := &folder{t.TempDir(), time.Now()}
	f.write(t, "text", "bad")
	for name, test := range map[string]struct {
		look func() ([]File, error)
		want string
	}{
		"missing":             {OneFile(filepath.Join(f.path, "missing")), "no such file"},
		"a directory":         {OneFile(f.path), "want a file"},
		"bad":                 {OneFile(filepath.Join(f.path, "text")), "bad"},
		"a missing directory": {Directory(filepath.Join(f.path, "missing")), "no such file"},
	} {
		if _, err := Open(test.look, joined, NewMetrics(prometheus.NewRegistry(), names)); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Open = %v, want %q", name, err, test.want)
		}
	}
}

func TestWatchReportsEachChangeOnce(t *testing.T) {
	f := &folder{t.TempDir(), time.Now()}
	f.write(t, "text", "one")
	s, err := Open(OneFile(filepath.Join(f.path, "text")), joined, NewMetrics(prometheus.NewRegistry(), names))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reports, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, time.Millisecond, func(err error) { reports <- err })
	}()
	var got []error
	for _, text := range []string{"two", "bad", "three"} {
		f.write(t, "text", text)
		got = append(got, <-reports)
	}
	cancel()
	<-ended
	if !slices.Equal(got, []error{nil, errBad, nil}) || s.Current() != "three" {
		t.Errorf("reports %v with %q in use, want loaded, bad, loaded, and the last text", got, s.Current())
	}
}

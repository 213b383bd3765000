package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var sample = []File{
	{Path: "RUNBOOK.md", Mode: 0o644, Data: []byte("read me\n")},
	{Path: "cp-1/etc/secret", Mode: 0o600, Data: []byte("a\n")},
}

// contents lists the files below a directory as PATH MODE TEXT, but for the record.
func contents(t *testing.T, directory string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == RecordFile {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		relative, _ := filepath.Rel(directory, name)
		lines = append(lines, relative+" "+info.Mode().String()+" "+strings.TrimSpace(string(data)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// onlyEntry fails when anything but the directory stands beside it: a temporary one that was left behind.
func onlyEntry(t *testing.T, directory string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(directory))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(directory) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func write(t *testing.T, directory string, files []File) {
	t.Helper()
	if err := Write(context.Background(), directory, "a", "", files); err != nil {
		t.Fatal(err)
	}
}

func TestWriteReplacesWhatItWrote(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "out")
	write(t, directory, sample)
	want := []string{"RUNBOOK.md -rw-r--r-- read me", "cp-1/etc/secret -rw------- a"}
	if got := contents(t, directory); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	write(t, directory, []File{{Path: "cp-2/etc/secret", Mode: 0o600, Data: []byte("b\n")}})
	want = []string{"cp-2/etc/secret -rw------- b"}
	if got := contents(t, directory); !slices.Equal(got, want) {
		t.Errorf("the second time: got %q, want %q", got, want)
	}
	onlyEntry(t, directory)
}

func TestWriteFillsAnEmptyDirectoryAndFollowsALink(t *testing.T) {
	parent := t.TempDir()
	directory := filepath.Join(parent, "out")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(directory, link); err != nil {
		t.Fatal(err)
	}
	write(t, link, sample)
	if got := contents(t, directory); len(got) != len(sample) {
		t.Errorf("got %q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
}

func TestWriteRefusesWhatItDidNotWrite(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(directory string) error
		source  string
		part    string
		want    string
	}{
		"foreign": {func(d string) error {
			return os.Remove(filepath.Join(d, RecordFile))
		}, "a", "", "it holds files that were not rendered"},
		"added": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "cp-1/notes"), nil, 0o644)
		}, "a", "", "cp-1/notes was not rendered"},
		"edited": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "cp-1/etc/secret"), []byte("b"), 0o600)
		}, "a", "",
			"cp-1/etc/secret was changed by hand"},
		"linked": {func(d string) error {
			return errors.Join(os.Remove(filepath.Join(d, "RUNBOOK.md")),
				os.Symlink("cp-1/etc/secret", filepath.Join(d, "RUNBOOK.md")))
		}, "a", "", "RUNBOOK.md is no longer a file"},
		"source": {func(string) error { return nil }, "b", "", `it was rendered from "a", not from "b"`},
		"part": {func(string) error {
			return nil
		}, "a", "host cp-1", "it was rendered for every host, not for host cp-1 alone"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "out")
			write(t, directory, sample)
			if err := test.disturb(directory); err != nil {
				t.Fatal(err)
			}
			before := contents(t, directory)
			err := Write(context.Background(), directory, test.source, test.part, nil)
			var occupied *OccupiedError
			if !errors.As(err, &occupied) || !slices.Equal(occupied.Lost, []string{test.want}) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if after := contents(t, directory); !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
			onlyEntry(t, directory)
		})
	}
}

func TestWriteRefusesADamagedRecord(t *testing.T) {
	for _, record := range []string{"", "{}", `{"schema":"fusionctl/filetree/v9"}`} {
		directory := filepath.Join(t.TempDir(), "out")
		write(t, directory, sample)
		if err := os.WriteFile(filepath.Join(directory, RecordFile), []byte(record), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Write(context.Background(), directory, "a", "", nil); err == nil ||
			len(contents(t, directory)) != len(sample) {
			t.Errorf("record %q: got %v, want an error and the old content", record, err)
		}
	}
}

// A directory of others may hold anything under the name of the record.
func TestWriteReadsNoRecordThatIsNoFile(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"a link to what has no end": func(name string) error { return os.Symlink("/dev/zero", name) },
		"a directory":               func(name string) error { return os.Mkdir(name, 0o755) },
		"a huge file": func(name string) error {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(name, limitRecordBytes+1)
		},
	} {
		directory := t.TempDir()
		if err := make(filepath.Join(directory, RecordFile)); err != nil {
			t.Fatal(err)
		}
		err := Write(t.Context(), directory, "a", "", sample)
		if err == nil || !strings.Contains(err.Error(), RecordFile+": is ") {
			t.Errorf("%s: %v, want what the record is", name, err)
		}
	}
}

func TestWriteRefusesTheWorkingDirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "out", "below")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(directory)
	for _, name := range []string{".", ".."} {
		var occupied *OccupiedError
		if err := Write(context.Background(), name, "a", "", sample); !errors.As(err, &occupied) {
			t.Errorf("Write(%q) = %v, want a refusal", name, err)
		}
	}
}

// A failure leaves the directory as it was, and nothing beside it.
func TestWriteIsWholeOrNothing(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		files []File
	}{
		"canceled": {canceled, sample},
		"outside":  {context.Background(), append(slices.Clone(sample), File{Path: "../escaped"})},
		"absolute": {context.Background(), append(slices.Clone(sample), File{Path: "/escaped"})},
		"twice":    {context.Background(), append(slices.Clone(sample), sample[0])},
		"below":    {context.Background(), append(slices.Clone(sample), File{Path: "RUNBOOK.md/more"})},
	} {
		t.Run(name, func(t *testing.T) {
			for _, exists := range []bool{false, true} {
				directory := filepath.Join(t.TempDir(), "out")
				if exists {
					write(t, directory, sample[:1])
				}
				if err := Write(test.ctx, directory, "a", "", test.files); err == nil {
					t.Errorf("exists %v: no error", exists)
				}
				if _, err := os.Stat(directory); exists != (err == nil) {
					t.Errorf("exists %v: afterwards %v", exists, err)
				}
				if exists && len(contents(t, directory)) != 1 {
					t.Errorf("got %q", contents(t, directory))
				}
				onlyEntry(t, directory)
			}
		})
	}
}

func TestWriteWithoutAParent(t *testing.T) {
	if err := Write(context.Background(), filepath.Join(t.TempDir(), "no", "out"), "a", "", sample); !errors.Is(
		err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the parent does not exist", err)
	}
}

func TestWriteRefusesPathsOutside(t *testing.T) {
	for _, path := range []string{"../cp-1/etc/passwd", "cp-1/../../x", "/etc/passwd", "", "cp-1/etc/../../../x"} {
		parent := t.TempDir()
		err := Write(t.Context(), filepath.Join(parent, "out"), "a", "",
			append(slices.Clone(sample), File{Path: path, Mode: 0o644}))
		if err == nil {
			t.Errorf("%q is written", path)
		}
		if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
			t.Errorf("%q: %v is left behind, %v", path, entries, err)
		}
	}
}

// TestWriteCleansUpAfterRunsThatWereKilled removes what they left, puts back what one had moved away, and touches
// nothing else.
func TestWriteCleansUpAfterRunsThatWereKilled(t *testing.T) {
	parent := t.TempDir()
	directory := filepath.Join(parent, "out")
	write(t, directory, sample)
	for _, name := range []string{".out.new-123/cp-1", ".out.old-7", ".out.new-notes", ".other.new-5"} {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(directory, filepath.Join(parent, ".out.old-7", movedAway)); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), directory, "another", "", sample); err == nil ||
		!strings.Contains(err.Error(), `rendered from "a"`) {
		t.Errorf("Write from another source = %v, want the old tree back in its place", err)
	}
	var left []string
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := []string{".other.new-5", ".out.new-notes", "out"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// TestWriteWaitsForAnotherProcess: what is beside the directory may be in use.
func TestWriteWaitsForAnotherProcess(t *testing.T) {
	parent := t.TempDir()
	release, held, err := lock(t.Context(), parent)
	if err != nil || !held {
		t.Skip("no locks on directories here: ", err)
	}
	temporary := filepath.Join(parent, ".out.new-1")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Write(ctx, filepath.Join(parent, "out"), "a", "", sample) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Write beside another = %v, want it to wait until its context ends", err)
	}
	if _, err := os.Stat(temporary); err != nil {
		t.Errorf("what the other process uses is gone: %v", err)
	}
	release()
	write(t, filepath.Join(parent, "out"), sample)
}

func TestTreesWithSecretsAreTheirOwnersAlone(t *testing.T) {
	for name, want := range map[string]fs.FileMode{"secret": 0o700, "public": 0o755} {
		directory := filepath.Join(t.TempDir(), name)
		files := []File{{Path: "cp-1/etc/file", Mode: 0o644}}
		if name == "secret" {
			files = append(files, File{Path: "cp-1/etc/key", Mode: 0o600})
		}
		write(t, directory, files)
		for path, want := range map[string]fs.FileMode{directory: want, filepath.Join(directory, "cp-1/etc"): 0o755} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
			}
		}
	}
}

func TestAddReplacesNothingAndLeavesTheDirectoryByNoLink(t *testing.T) {
	parent := t.TempDir()
	directory, outside := filepath.Join(parent, "pki"), filepath.Join(parent, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	key := File{Path: "cp-1/sa.key", Mode: 0o600, Data: []byte("key")}
	if err := Add(t.Context(), directory, []File{key}); err != nil {
		t.Fatal(err)
	}
	key.Data = []byte("another")
	if err := Add(t.Context(), directory, []File{key}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Add of a file that is there = %v, want fs.ErrExist", err)
	}
	if got, want := contents(t, directory), []string{"cp-1/sa.key -rw------- key"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Symlink(outside, filepath.Join(directory, "cp-2")); err != nil {
		t.Fatal(err)
	}
	if err := Add(t.Context(), directory, []File{{Path: "cp-2/sa.key", Mode: 0o600}}); err == nil {
		t.Error("Add through a link that leads out = nil")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside are %v, %v; want nothing", entries, err)
	}
	if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v; want it for the owner alone", info.Mode(), err)
	}
}

// TestOfTwoThatAddOneDoes: the files of a directory are those of one process, and not of two that began at once.
func TestOfTwoThatAddOneDoes(t *testing.T) {
	for range 20 {
		directory := filepath.Join(t.TempDir(), "pki")
		var group sync.WaitGroup
		for i := range 2 {
			var files []File
			for n := range 20 {
				files = append(files, File{Path: fmt.Sprintf("cp/%d", n), Mode: 0o600, Data: fmt.Append(nil, i)})
			}
			group.Go(func() {
				if err := Add(t.Context(), directory, files); err != nil && !errors.Is(err, fs.ErrExist) {
					t.Errorf("Add = %v, want nil or fs.ErrExist", err)
				}
			})
		}
		group.Wait()
		of := map[string]bool{}
		for _, file := range contents(t, directory) {
			_, data, _ := strings.Cut(file, " ")
			of[data] = true
		}
		if len(of) != 1 {
			t.Fatalf("the files are those of %d processes, want of one", len(of))
		}
	}
}

// TestLeftoversOfOthersStay: who can write beside the directory does not say what gets its place, or is removed.
func TestLeftoversOfOthersStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	parent := t.TempDir()
	left := filepath.Join(parent, ".rendered.old-1")
	if err := errors.Join(os.MkdirAll(filepath.Join(left, movedAway, "cp-1"), 0o777),
		os.Chown(left, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), filepath.Join(parent, "rendered"), "kubeflow", "", sample); err != nil {
		t.Errorf("Write beside what another user put there = %v", err)
	}
	if _, err := os.Stat(filepath.Join(left, movedAway, "cp-1")); err != nil {
		t.Errorf("what another user put there is gone: %v", err)
	}
}

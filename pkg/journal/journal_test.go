package journal

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func open(t *testing.T, name, plan string) *Journal[string] {
	t.Helper()
	j, err := Open[string](name, plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func TestJournalIsOpenOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	first := open(t, name, "plan")
	if err := first.Append("copied"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open[string](name, "plan"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), name) {
		t.Errorf("a second Open = %v, want ErrLocked with the file's name", err)
	}
	first.Close()
	second := open(t, name, "plan")
	if got := second.Records(); !slices.Equal(got, []string{"copied"}) || second.Run() != first.Run() ||
		second.Run() == "" {
		t.Errorf("records %q of run %q, want those of the first, %q", got, second.Run(), first.Run())
	}
}

func TestJournalBelongsToOnePlan(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	open(t, name, ID([]byte("one"))).Close()
	if _, err := Open[string](name, ID([]byte("another"))); !errors.Is(err, ErrOtherPlan) ||
		!strings.Contains(err.Error(), name) {
		t.Errorf("Open with another plan = %v, want ErrOtherPlan with the file's name", err)
	}
	open(t, name, ID([]byte("one"))) // a refusal leaves no lock behind
}

// TestJournalIsCutOffAnywhere: whatever part of a journal has reached the disk, the next run reads its whole lines and
// goes on.
func TestJournalIsCutOffAnywhere(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.journal")
	j := open(t, whole, "plan")
	for _, r := range []string{"begin 1", "done 1", "begin 2"} {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for size := range data {
		name := filepath.Join(t.TempDir(), "plan.journal")
		if err := os.WriteFile(name, data[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, name, "plan")
		had := max(0, strings.Count(string(data[:size]), "\n")-1)
		if !slices.Equal(j.Records(), []string{"begin 1", "done 1", "begin 2"}[:had]) {
			t.Fatalf("of %d bytes: records %q, want %d", size, j.Records(), had)
		}
		if err := j.Append("more"); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if records := open(t, name, "plan").Records(); len(records) != had+1 || records[had] != "more" {
			t.Fatalf("of %d bytes: records %q after one more, want %d", size, records, had+1)
		}
	}
}

func TestJournalThatIsNone(t *testing.T) {
	for text, says := range map[string]string{
		"hello\n":                             "line 1: ",
		"{}\n":                                ErrOtherPlan.Error(),
		`{"plan":"plan"}` + "\n":              ErrOtherPlan.Error(),
		`{"plan":"plan","run":"A"}` + "\n7\n": "line 2: ",
	} {
		name := filepath.Join(t.TempDir(), "plan.journal")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open[string](name, "plan"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: Open = %v, want %q", text, err, says)
		}
	}
}

func TestJournalOfARunThatLostItsPower(t *testing.T) {
	for _, text := range []string{"\x00\x00\x00", `{"plan":"pl` + "\x00\x00"} {
		name := filepath.Join(t.TempDir(), "plan.journal")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if j := open(t, name, "plan"); len(j.Records()) != 0 || j.Run() == "" {
			t.Errorf("%q: records %q of run %q, want a new journal", text, j.Records(), j.Run())
		}
	}
}

// TestFilesThatAreNoJournalStayAsTheyAre: a file that is named as a journal by mistake is not cut, and not its owner's
// alone from then on.
func TestFilesThatAreNoJournalStayAsTheyAre(t *testing.T) {
	for _, text := range []string{
		"one line without an end", "\x00a", "a\nb", `{"plan":"another"`, `{"plan":"plan","run":""}` + "\n{\"st",
		`{"plan":"plan","run":"` + strings.Repeat("A", 1000), `{"plan":"planned","run":"A"}`,
		`{"plan":"plan","run":"A"}` + "\nno record\nmore",
	} {
		name := filepath.Join(t.TempDir(), "notes.txt")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open[string](name, "plan"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: Open = %v, want an error with the file's name", text, err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != text {
			t.Errorf("Open made %q of %q, %v", got, text, err)
		}
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o644 {
			t.Errorf("Open made the mode %v, %v", info.Mode(), err)
		}
	}
}

func TestJournalThatBrokeTakesNoMore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	j := open(t, name, "plan")
	file := j.file
	readOnly, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	j.file = readOnly
	if err := j.Append("lost"); err == nil {
		t.Fatal("Append to a file that takes nothing = nil")
	}
	j.file = file
	if err := j.Append("behind it"); err == nil || len(j.Records()) != 0 {
		t.Errorf("Append after one that failed = %v, records %q; want it refused", err, j.Records())
	}
}

func TestJournalOfAMissingDirectory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "plan.journal")
	if _, err := Open[string](name, "plan"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open = %v, want fs.ErrNotExist", err)
	}
}

func TestJournalIsItsOwnersAloneAndNoLink(t *testing.T) {
	dir := t.TempDir()
	name, theirs, link := filepath.Join(dir, "plan.journal"), filepath.Join(dir, "theirs"), filepath.Join(dir, "link")
	for _, file := range []string{name, theirs} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(theirs, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open[string](link, "plan"); err == nil {
		t.Error("Open of a link = nil")
	}
	if _, err := Read[string](link, "plan"); err == nil {
		t.Error("Read of a link = nil")
	}
	open(t, name, "plan")
	for file, want := range map[string]fs.FileMode{name: 0o600, theirs: 0o644} {
		if info, err := os.Stat(file); err != nil || info.Mode() != want || (file == theirs) != (info.Size() == 0) {
			t.Errorf("%s is %v, %d bytes, %v; want mode %v", filepath.Base(file), info.Mode(), info.Size(), err, want)
		}
	}
}

// A journal that was replaced, or is gone, takes no more: the run must not go on as if it were remembered.
func TestJournalThatIsReplacedTakesNoMore(t *testing.T) {
	for name, replace := range map[string]func(file string) error{
		"removed": os.Remove,
		"moved":   func(file string) error { return os.Rename(file, file+".old") },
		"another file": func(file string) error {
			if err := os.WriteFile(file+".new", []byte("{}\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		},
		"a link to it": func(file string) error {
			if err := os.Rename(file, file+".old"); err != nil {
				return err
			}
			return os.Symlink(file+".old", file)
		},
	} {
		file := filepath.Join(t.TempDir(), "plan.journal")
		j := open(t, file, "plan")
		if err := j.Append("one"); err != nil {
			t.Fatal(err)
		}
		if err := replace(file); err != nil {
			t.Fatal(err)
		}
		if err := j.Append("two"); err == nil {
			t.Errorf("%s: Append = nil", name)
		}
	}
}

func TestJournalOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	file := filepath.Join(t.TempDir(), "plan.journal")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := Open[string](file, "plan"); err == nil {
		t.Error("Open = nil")
	}
}

// TestReadIsForOthers: while a run has the journal open, another process reads what it holds, and changes nothing.
func TestReadIsForOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	if _, err := Read[string](name, "plan"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read before any run = %v, want fs.ErrNotExist", err)
	}
	j := open(t, name, "plan")
	if err := j.Append("begun"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`"do`); err != nil { // a record that is being written
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o400); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	records, err := Read[string](name, "plan")
	if err != nil || !slices.Equal(records, []string{"begun"}) {
		t.Errorf("Read while it is open = %q, %v; want the whole record", records, err)
	}
	after, err := os.ReadFile(name)
	if err != nil || string(after) != string(before) {
		t.Errorf("Read made %q of %q, %v", after, before, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o400 {
		t.Errorf("Read made the mode %v, %v", info.Mode(), err)
	}
	if _, err := Read[string](name, "another"); !errors.Is(err, ErrOtherPlan) {
		t.Errorf("Read of another plan's = %v, want ErrOtherPlan", err)
	}
}

func TestAPlanThatWasBegunStays(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan")
	write := func(text string) error {
		return WritePlan(plan, func(w *bufio.Writer) error { _, err := w.WriteString(text); return err })
	}
	for _, text := range []string{"one", "two"} { // none was begun
		if err := write(text); err != nil {
			t.Fatal(err)
		}
	}
	open(t, Of(plan), ID([]byte("two"))).Close()
	if err := write("three"); !errors.Is(err, ErrBegun) || !strings.Contains(err.Error(), Of(plan)) {
		t.Errorf("WritePlan over one that was begun = %v, want ErrBegun with the journal's name", err)
	}
	if got, err := os.ReadFile(plan); err != nil || string(got) != "two" {
		t.Errorf("the plan is %q, %v; want the one that was begun", got, err)
	}
}

// FuzzRead: a journal that was cut off, or changed, is read without what is not whole, or not at all; and so it is when
// it is written on.
func FuzzRead(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("{}\n"))
	f.Add([]byte("{\"plan\":\"p\"}\n{\"step\":\"1\"}\n{\"st"))
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := Read[map[string]any](name, "p")
		j, opened := Open[map[string]any](name, "p")
		if opened != nil {
			return
		}
		if err != nil || len(j.Records()) != len(read) {
			t.Errorf("Open of %q has %d records, Read has %d, %v", data, len(j.Records()), len(read), err)
		}
		if err := j.Append(map[string]any{"step": "2"}); err != nil {
			t.Errorf("writing on %q: %v", data, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if again, err := Read[map[string]any](name, "p"); err != nil || len(again) != len(read)+1 {
			t.Errorf("%q, written on, has %d records, %v, want %d", data, len(again), err, len(read)+1)
		}
	})
}

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestJournalIsOpenOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	first, err := openJournal[string](name)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Append("copied"); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal[string](name); err == nil || !strings.Contains(err.Error(), "another process") || hintOf(err) == "" || exitCode(t.Context(), err) != exitFailed {
		t.Errorf("a second openJournal = %v (hint %q, exit %d), want a refusal that names the other process, a way out, and exit %d", err, hintOf(err), exitCode(t.Context(), err), exitFailed)
	}
	first.close()
	second, err := openJournal[string](name)
	if err != nil {
		t.Fatalf("openJournal after the first was closed: %v", err)
	}
	defer second.close()
	if got := second.Records(); !slices.Equal(got, []string{"copied"}) {
		t.Errorf("records %q, want those of the first", got)
	}
}

func TestJournalTakesOffALineThatWasCutOff(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	if err := os.WriteFile(name, []byte("\"copied\"\n\"ver"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal[string](name)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	if err := j.Append("verified"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "\"copied\"\n\"verified\"\n" {
		t.Errorf("journal %q (%v), want whole lines", data, err)
	}
}

func TestJournalOfAMissingDirectoryIsBadInput(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "plan.journal")
	_, err := openJournal[string](name)
	if want := "open " + name + ": no such file or directory"; err == nil || err.Error() != want || exitCode(t.Context(), err) != exitUsage {
		t.Errorf("openJournal = %v, want %q as bad input", err, want)
	}
}

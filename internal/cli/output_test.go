package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// TestDocumentsMeanTheSameWhenTheyAreShown: an escape in JSON and YAML stands where it has a meaning.
func TestDocumentsMeanTheSameWhenTheyAreShown(t *testing.T) {
	want := map[string]string{"plain": "x", "turned \u202e": "a \u2066b\u009b31m\u007f\u0085 'c'",
		"lines": "a\n\u200fb\tc\u2028"}
	for name, print := range map[string]func(*visible.Writer) error{
		"JSON": func(w *visible.Writer) error { return printJSON(w, want) },
		"YAML": func(w *visible.Writer) error { return printYAML(w, want) },
	} {
		var out bytes.Buffer
		if err := print(visible.NewWriter(&out)); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s:\n%s\nmeans %q, %v; want %q", name, out.String(), got, err, want)
		}
		if text := out.String(); visible.Text(text) != text {
			t.Errorf("%s has raw characters: %q", name, text)
		}
	}
}

func TestErrorsAreLinesOfTheirOwn(t *testing.T) {
	joined := errors.Join(errors.New("a.yaml:1: one"), errors.New("a.yaml:2: two\nforged"))
	for _, test := range []struct {
		err  error
		want []string
	}{
		{badInput(joined, "hint"), []string{"a.yaml:1: one", "a.yaml:2: two", "  forged"}},
		{fmt.Errorf("reading: %w", joined), []string{"reading: a.yaml:1: one", "  a.yaml:2: two", "  forged"}},
		{errors.New("2 keys:\n  one\n    two\n"), []string{"2 keys:", "  one", "    two"}},
	} {
		if got := errorLines(test.err); !slices.Equal(got, test.want) {
			t.Errorf("errorLines(%q) = %q, want %q", test.err, got, test.want)
		}
	}
}

// TestLogsDoNotGrowByWhatClientsSend: a name of megabytes in an error is a short line of a log.
func TestLogsDoNotGrowByWhatClientsSend(t *testing.T) {
	const megabyte = 1 << 20
	long := strings.Repeat("\x01", megabyte)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, logOptions(slog.LevelInfo)))
	log.With("with", long).WithGroup("of").Info("refused", "err", fmt.Errorf("kind %q", long), "name", long)
	if out.Len() > megabyte/4 || !strings.Contains(out.String(), " ...") {
		t.Errorf("a record has %d bytes: %.300s", out.Len(), out.String())
	}
	out.Reset()
	var none *os.PathError
	log.Info("short", "err", errors.New("an error"), "n", 3, "none", none, "list", []string{"a"})
	if got := out.String(); !strings.HasSuffix(got, "msg=short err=\"an error\" n=3 none=<nil> list=[a]\n") {
		t.Errorf("a short record is %q", got)
	}
}

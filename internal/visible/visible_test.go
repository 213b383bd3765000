package visible

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsShown(t *testing.T) {
	for _, test := range []struct{ given, line string }{
		{"plain, naïve, 日本 ✓", "plain, naïve, 日本 ✓"},
		{"a\x1b[31mred", `a\u001b[31mred`},
		{"a\nb\tc\rd", `a\nb\tc\u000dd`},
		{"\u009b2J\u0085", `\u009b2J\u0085`},
		{"\u202eevil\u2066\u200f", `\u202eevil\u2066\u200f`},
		{"\x9b2J\xff", `\x9b2J\xff`},
		{"\x7f\x00\u2028\ufffd", `\u007f\u0000\u2028` + "\ufffd"},
		{"\ufffe\uffff", `\ufffe\uffff`},
	} {
		if got := Line(test.given); got != test.line {
			t.Errorf("Line(%q) = %q, want %q", test.given, got, test.line)
		}
		text := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(test.line)
		if got := Text(test.given); got != text {
			t.Errorf("Text(%q) = %q, want %q", test.given, got, text)
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		for _, c := range []byte(test.given) { // characters come in parts
			if n, err := w.Write([]byte{c}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil || out.String() != text {
			t.Errorf("a Writer of %q wrote %q, %v; want %q", test.given, out.String(), err, text)
		}
	}
}

func TestArgumentsStayInTheirLineAndCell(t *testing.T) {
	var out bytes.Buffer
	evil := errors.New("a\nforged: b\tc")
	Fprintf(&out, "%s\t%v|%q|%-6s|%d\n", evil, []string{"x\ny"}, "q\n", "é\n", 7)
	Fprintln(&out, "NAME\tOWNER", "n\nforged", Lines("two\nlines\x1b"))
	want := `a\nforged: b\tc` + "\t" + `[x\ny]|"q\n"|é\n    |7` + "\n" + "NAME\tOWNER " + `n\nforged` + " two\nlines" +
		`\u001b` + "\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestWriterReportsWhatTheStreamDoes(t *testing.T) {
	for _, data := range []string{"plain", "\x1b"} {
		if _, err := NewWriter(broken{}).Write([]byte(data)); !errors.Is(err, errBroken) {
			t.Errorf("Write(%q) to a stream that is broken = %v", data, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func FuzzText(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b[2J", "\u009b", "\xc2", "\u202e\n\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		for name, text := range map[string]string{"Text": Text(given), "Line": Line(given), "%s": func() string {
			var b strings.Builder
			Fprintf(&b, "%s", given)
			return b.String()
		}()} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
				return hidden(r) && (name != "Text" || r != '\n' && r != '\t')
			}) {
				t.Errorf("%s of %q is %q", name, given, text)
			}
		}
		if !strings.ContainsFunc(given, func(r rune) bool {
			return hidden(r) || r == utf8.RuneError
		}) && fmt.Sprint(Line(given)) != given {
			t.Errorf("Line(%q) = %q, though there is nothing to show", given, Line(given))
		}
	})
}

// TestBlocksStayInTheirPlace: what another machine says begins no line of ours.
func TestBlocksStayInTheirPlace(t *testing.T) {
	if got, want := Block("a\n001 done\x1b[2K\n"), "a\n  001 done\\u001b[2K\n  "; got != want {
		t.Errorf("Block = %q, want %q", got, want)
	}
}

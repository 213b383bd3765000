package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words are expressions that readers of Kubernetes and etcd stumble over, and the field's own in their place.
var words = []struct {
	refused *regexp.Regexp
	write   string
}{
	{regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever)\b`), "the component, the operator, the client, no controller"},
	{regexp.MustCompile(`(?i)\b(is|as|worth)\s+a\s+remark\b`), "an info"},
	{regexp.MustCompile(`(?i)\bmade\s+through\b`), "created through"},
	{regexp.MustCompile(`(?i)\b(hands?|handed)\s+out\b|\b(gives?|given|giving)\s+out\b`), "allocate"},
	{regexp.MustCompile(`(?i)\bwithout\s+a\s+word\b`), "silently"},
	{regexp.MustCompile(`(?i)\bthere\s+and\s+back\b`), "a round trip"},
	{regexp.MustCompile(`(?i)\bby\s+turns\b`), "alternately"},
	{regexp.MustCompile(`(?i)\bout\s+of\s+sight\b`), "unreachable"},
	{regexp.MustCompile(`(?i)\bis\s+garbage\b`), "has no live owner"},
	{regexp.MustCompile(`(?i)\bled\s+to\s+the\s+(modern|legacy)\b`), "connected to the modern API server"},
	{regexp.MustCompile(`(?i)\bneeds?\s+attention\b`), "findings were reported"},
	{regexp.MustCompile(`(?i)\bend(s|ing)?\s+(the\s+)?namespaces\b`), "finalize namespaces"},
	{regexp.MustCompile(`\b[Tt]he\s+(modern|legacy)\s+server\b`), "the modern API server, the legacy API server"},
}

// quotes are the files that quote the words themselves.
var quotes = []string{"test/words_test.go"}

// names are words of others: a user of the operating system, a Go name, a user name in an example.
var names = regexp.MustCompile(`NoBody|\bnobody +=|number\(nobody\)|[Rr]uns? as nobody\b|"somebody"`)

// TestWords refuses words that the field has others for: in code, comments, pages and templates, not in tests.
func TestWords(t *testing.T) {
	read := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && name != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		page, _ := strings.CutPrefix(filepath.ToSlash(path), "../")
		switch filepath.Ext(name) {
		case ".go", ".md", ".tmpl":
		default:
			return nil
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		if slices.Contains(quotes, page) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		for i, line := range strings.Split(string(content), "\n") {
			line = names.ReplaceAllString(line, "")
			for _, w := range words {
				if found := w.refused.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: write %s", page, i+1, found, w.write)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 300 {
		t.Errorf("%d files were read, want many more", read)
	}
}

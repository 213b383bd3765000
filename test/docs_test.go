package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksLeadSomewhere follows every link from one page of the repository to another, and to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	followed := 0
	err := filepath.WalkDir("..", func(page string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(page) != ".md" {
			if entry != nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
				return fs.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		for _, link := range linkPattern.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			followed++
			file, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, link[1])
			} else if anchor != "" && !hasAnchor(t, target, anchor) {
				t.Errorf("%s: %s: the page has no such heading", page, link[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 30 {
		t.Errorf("%d links were followed, want many more", followed)
	}
}

// hasAnchor reports whether a page has a heading of that anchor: its words in lower case with dashes between.
func hasAnchor(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range headingPattern.FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z]*)`")

// TestSecurityPageNamesItsTests holds each guard of docs/security.md to a test that exists.
func TestSecurityPageNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| from | becomes | guard | test |")
	if !found {
		t.Fatal("docs/security.md has no table of guards")
	}
	tests := testFunctions(t)
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
			continue
		}
		rows++
		names := testName.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test stands for %s", line)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("no test is called %s: %s", name[1], line)
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows, want many more", rows)
	}
}

// testFunctions are the names of all tests and fuzz targets of the repository.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, "_test.go") {
			if entry != nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
				return fs.SkipDir
			}
			return err
		}
		source, err := os.ReadFile(file)
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

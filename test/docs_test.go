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

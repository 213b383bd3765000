package test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// columns is the most that a line takes, a tab counted as four.
const columns = 120

// TestLines holds Go and Markdown to lines that fit beside each other on a screen. Raw strings are exempt: they are
// data (objects, manifests) and mean something else when they are broken. So are tables, links and code in Markdown.
func TestLines(t *testing.T) {
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
		var exempt func(content []byte) map[int]bool
		switch filepath.Ext(name) {
		case ".go":
			exempt = rawStrings
		case ".md":
			exempt = tablesAndCode
		default:
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		skip := exempt(content)
		for i, line := range strings.Split(string(content), "\n") {
			width := len([]rune(line)) + 3*strings.Count(line, "\t")
			output := strings.HasSuffix(name, "example_test.go") && strings.HasPrefix(line, "\t// ")
			if width > columns && !skip[i+1] && !output {
				t.Errorf("%s:%d: %d columns; at most %d", filepath.ToSlash(path), i+1, width, columns)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rawStrings gives the lines of Go source that a raw string touches.
func rawStrings(source []byte) map[int]bool {
	lines := map[int]bool{}
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		at, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && text[0] == '`' {
			first := file.Line(at)
			for n := range strings.Count(text, "\n") + 1 {
				lines[first+n] = true
			}
		}
	}
}

// tablesAndCode gives the lines of Markdown that cannot be broken: rows of tables, code, headings, and lines of one or
// two words.
func tablesAndCode(text []byte) map[int]bool {
	lines := map[int]bool{}
	code := false
	for i, line := range strings.Split(string(text), "\n") {
		indented := strings.HasPrefix(line, "    ")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if code || indented || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") ||
			len(strings.Fields(line)) <= 2 {
			lines[i+1] = true
		}
	}
	return lines
}

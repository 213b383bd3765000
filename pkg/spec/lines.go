package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Lines tells where the fields of a File stand in its text, so that a problem found later can still name its line.
// The zero Lines knows no place; problems then start with the field path.
type Lines struct {
	name    string          // of the file
	at      map[string]int  // field path -> line, 1-based
	damaged map[string]bool // field paths whose text could not be decoded: what a File holds there is not what was written
	around  map[string]bool // field paths with something damaged below them
}

// Line is the line of a field path, such as spec.stores[0].endpoints, or of the closest field around it that was written;
// 0 when there is none.
func (l Lines) Line(path string) int {
	for {
		if line, ok := l.at[path]; ok {
			return line
		}
		if path == "" {
			return 0
		}
		path = parentPath(path)
	}
}

// parentPath drops the last step of a path: spec.stores[0] -> spec.stores -> spec -> "".
func parentPath(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// damage marks a path as one whose value is not what was written.
func (l Lines) damage(path string) {
	l.damaged[path] = true
	for path != "" {
		path = parentPath(path)
		l.around[path] = true
	}
}

// trusts reports whether what a File holds at the path, around it and below it is what was written.
func (l Lines) trusts(path string) bool {
	if l.around[path] {
		return false
	}
	for ; path != ""; path = parentPath(path) {
		if l.damaged[path] {
			return false
		}
	}
	return true
}

// problem is one thing that is wrong with a file.
type problem struct {
	file    string
	line    int
	path    string
	message string
}

func (p *problem) Error() string {
	var place strings.Builder
	if p.file != "" {
		place.WriteString(p.file + ":")
		if p.line > 0 {
			fmt.Fprintf(&place, "%d:", p.line)
		}
		place.WriteByte(' ')
	}
	if p.path != "" {
		place.WriteString(p.path + ": ")
	}
	return place.String() + p.message
}

// problems collects what is wrong, each thing once.
type problems struct {
	lines   Lines
	all     []*problem
	leftOut int // beyond limitProblems
}

// addf reports a problem with the field at the path, at the line where it, or what holds it, stands.
func (ps *problems) addf(path, format string, args ...any) {
	ps.addAt(ps.lines.Line(path), path, format, args...)
}

func (ps *problems) addAt(line int, path, format string, args ...any) {
	if len(ps.all) >= limitProblems {
		ps.leftOut++
		return
	}
	p := &problem{file: ps.lines.name, line: line, path: path, message: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(ps.all, func(other *problem) bool { return *other == *p }) {
		ps.all = append(ps.all, p)
	}
}

// err joins the problems in the order of their lines; nil for none.
func (ps *problems) err() error {
	if len(ps.all) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.all, func(a, b *problem) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(ps.all), len(ps.all)+1)
	for i, p := range ps.all {
		errs[i] = p
	}
	if ps.leftOut > 0 {
		errs = append(errs, &problem{file: ps.lines.name, message: fmt.Sprintf("%d more problems are left out", ps.leftOut)})
	}
	return errors.Join(errs...)
}

package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Lines tells where the fields of what was decoded stand in the text, so that a problem found later can still name its
// line. The zero Lines knows no place; problems then start with the field path.
type Lines struct {
	name string         // of the file
	at   map[string]int // field path -> line, 1-based
	// field paths whose text could not be decoded: what the decoded value holds there is not what was written
	damaged map[string]bool
	around  map[string]bool // field paths with something damaged below them
}

// Line is the line of a field path, such as spec.stores[0].endpoints, or of the closest field around it that was
// written; 0 when there is none.
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

// Errorf is a problem with the field at the path, at the line where it, or what holds it, stands.
func (l Lines) Errorf(path, format string, args ...any) error {
	return &problem{file: l.name, line: l.Line(path), path: path, message: fmt.Sprintf(format, args...)}
}

// Written reports whether the text has the field path.
func (l Lines) Written(path string) bool {
	_, ok := l.at[path]
	return ok
}

// damage marks a path as one whose value is not what was written.
func (l Lines) damage(path string) {
	l.damaged[path] = true
	for path != "" {
		path = parentPath(path)
		l.around[path] = true
	}
}

// Trusts reports whether what was decoded at the path, around it and below it is what was written.
func (l Lines) Trusts(path string) bool {
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

// Problems collects what is wrong with a text, each thing once.
type Problems struct {
	Lines   Lines
	all     []*problem
	leftOut int // beyond limitProblems
}

// limitProblems bounds what is reported.
const limitProblems = 100

// Full reports whether one more problem is only counted: what would be said of it need not be found out.
func (ps *Problems) Full() bool { return len(ps.all) >= limitProblems }

// Addf reports a problem with the field at the path, at the line where it, or what holds it, stands.
func (ps *Problems) Addf(path, format string, args ...any) {
	ps.AddAt(ps.Lines.Line(path), path, format, args...)
}

// AddAt reports a problem at a line; 0 for none.
func (ps *Problems) AddAt(line int, path, format string, args ...any) {
	if len(ps.all) >= limitProblems {
		ps.leftOut++
		return
	}
	p := &problem{file: ps.Lines.name, line: line, path: path, message: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(ps.all, func(other *problem) bool { return *other == *p }) {
		ps.all = append(ps.all, p)
	}
}

// Count is how many problems there are.
func (ps *Problems) Count() int { return len(ps.all) + ps.leftOut }

// Err joins the problems in the order of their lines; nil for none.
func (ps *Problems) Err() error {
	if len(ps.all) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.all, func(a, b *problem) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(ps.all), len(ps.all)+1)
	for i, p := range ps.all {
		errs[i] = p
	}
	if ps.leftOut > 0 {
		errs = append(
			errs, &problem{file: ps.Lines.name, message: fmt.Sprintf("%d more problems are left out", ps.leftOut)})
	}
	return errors.Join(errs...)
}

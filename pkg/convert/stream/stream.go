// Package stream takes files of objects through a converter: objects of any number, one by one, each in the text that
// it came in, or a verdict about each.
package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/validate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Options say what becomes of objects.
type Options struct {
	Choose   Chooser
	Minor    kubever.Minor // that reads the objects, for what it does not know of them; 0 when that is not known
	Asked    bool          // a server was asked what it serves; otherwise it is what the minor does by default
	Defaults bool          // write out defaults that the wanted version does not share
	Format   string        // of the Writer that takes the results: text is made for Same alone
}

// Stream converts the objects of files. It is safe for concurrent use.
type Stream struct {
	converter *convert.Converter
	options   Options
}

// New makes a stream of a converter.
func New(c *convert.Converter, options Options) *Stream {
	options.Choose = remembered(options.Choose)
	return &Stream{converter: c, options: options}
}

// Converted is what became of one object.
type Converted struct {
	File      string         `json:"file,omitempty"`
	Document  int            `json:"document"`
	Line      int            `json:"line"`
	From      string         `json:"from"`
	To        string         `json:"to,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	Losses    []convert.Loss `json:"losses,omitempty"`
	// Changes are the fields that were written so that the object is accepted.
	Changes []validate.Change `json:"changes,omitempty"`
	Refused string            `json:"refused,omitempty"` // why a server refuses the object nevertheless
	Error   string            `json:"error,omitempty"`
}

// Place is where the object stands.
func (o Converted) Place() string { return fmt.Sprintf("%s:%d", o.File, o.Line) }

// String names the object.
func (o Converted) String() string {
	if o.Namespace != "" {
		return o.From + " " + o.Namespace + "/" + o.Name
	}
	return o.From + " " + o.Name
}

// Result is what becomes of a part of a file: an object, or text between objects.
type Result struct {
	Converted
	Object *unstructured.Unstructured // nil for text between objects
	Text   []byte                     // in the file's own format; nil for what has none
	// Duplicates are fields that the text gives twice.
	Duplicates []manifest.Duplicate
	Err        error // nothing becomes of it
}

// Convert converts what it reads of a file: one reader, a worker for each processor, and what they make in the order of
// the file. Memory is bounded by the workers and the largest object.
// Errors: ctx's; emit's own. What cannot be converted is a Result.
func (s *Stream) Convert(ctx context.Context, name string, in io.Reader, emit func(Result) error) error {
	return inOrder(ctx, manifest.Parts(in),
		func(part manifest.Part, err error) Result { return s.convert(name, part, err) }, emit)
}

// Files is Convert for many, one after the other, and writes what becomes of them to out, which it does not close.
// report gets the Result of each part before that is written. An error that it returns ends the run; nil for a Result
// with an Err leaves the object out.
// Errors: those of the sequence, and of the files that it opens; ctx's; report's and out's.
func (s *Stream) Files(ctx context.Context, files iter.Seq2[File, error], out *Writer,
	report func(Result) error) error {
	emit := func(r Result) error {
		err := report(r)
		switch {
		case err != nil || r.Err != nil:
			return err
		case r.Object == nil:
			return out.Between(r.Text)
		}
		return out.Object(r.Object, r.Text)
	}
	type piece struct {
		Result
		begins bool // a file
		unread error
	}
	work := func(p filePart, err error) piece {
		switch {
		case err != nil:
			return piece{unread: err}
		case p.closed:
			return piece{unread: p.err}
		case p.begins:
			return piece{begins: true}
		}
		return piece{Result: s.convert(p.file, p.part, p.err)}
	}
	return inOrder(ctx, partsOf(files), work, func(p piece) error {
		switch {
		case p.unread != nil:
			return p.unread
		case p.begins:
			out.Begin()
			return nil
		}
		return emit(p.Result)
	})
}

// inOrder makes something of each part, with a worker for each processor, and hands it on in the order of the parts.
func inOrder[P, T any](
	ctx context.Context, parts iter.Seq2[P, error], work func(P, error) T, emit func(T) error,
) error {
	type job struct {
		part   P
		err    error
		result T
		done   chan struct{} // closed when the result is set
	}
	workers := runtime.GOMAXPROCS(0)
	ordered := make(chan *job, 4*workers) // as many parts as may be ahead of the one that is handed on next
	waiting := make(chan *job)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ordered)
		defer close(waiting)
		for part, err := range parts {
			j := &job{part: part, err: err, done: make(chan struct{})}
			for _, queue := range []chan<- *job{ordered, waiting} {
				select {
				case queue <- j:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for j := range waiting {
				j.result = work(j.part, j.err)
				close(j.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for j := range ordered {
			select {
			case <-j.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := emit(j.result); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// convert makes of a part what becomes of it.
func (s *Stream) convert(file string, part manifest.Part, err error) (r Result) {
	r.Converted = Converted{File: file, Document: part.Document, Line: part.Line}
	if err != nil {
		r.Err = err
		return r
	}
	if !part.Object {
		r.Text, r.Err = s.frame(part)
		return r
	}
	source, err := decode(s.converter, part)
	if err != nil || source == nil {
		r.Text, r.Err = part.Text, err
		return r
	}
	if source.text != nil {
		r.Duplicates = source.text.Duplicates
	}
	gvk := source.GroupVersionKind()
	r.From = gvk.GroupVersion().String() + " " + gvk.Kind
	r.Namespace, r.Name = source.GetNamespace(), source.GetName()
	to, err := s.target(gvk)
	if err != nil {
		r.Err = err
		return r
	}
	r.To = to.GroupVersion().String() + " " + to.Kind
	made, err := s.become(&source.Unstructured, to, 0)
	if err != nil {
		r.Err = err
		return r
	}
	r.Object, r.Losses, r.Changes, r.Refused = made.object, made.losses, made.changes, made.refused
	switch {
	case s.options.Format != Same || source.text == nil:
	case !made.changed:
		r.Text = part.Text
	default:
		value := made.object.Object
		if source.text.Value["kind"] == nil { // as the items of lists are
			value = maps.Clone(value)
			delete(value, "apiVersion")
			delete(value, "kind")
		}
		r.Text, r.Err = source.text.Rewrite(value)
	}
	fits := r.Text != nil && part.Format == manifest.JSON && len(r.Text) < requestBytes-smallBytes
	if r.Refused == "" && len(part.Text) > smallBytes && !fits {
		r.Refused = s.tooLarge(made.object)
	}
	return r
}

// made is what an object became.
type made struct {
	object  *unstructured.Unstructured
	losses  []convert.Loss
	changes []validate.Change
	refused string // why a server refuses, or may refuse, the object nevertheless
	changed bool   // it is not as it was
}

// limitListDepth bounds lists within lists, each of which puts its place before the paths of all that it holds.
const limitListDepth = 10

// become converts an object, or each object of a list. The depth is the number of lists that the object is in.
func (s *Stream) become(in *unstructured.Unstructured, to schema.GroupVersionKind, depth int) (made, error) {
	if items, ok := in.Object["items"].([]any); ok && strings.HasSuffix(in.GetKind(), "List") {
		if depth > limitListDepth {
			return made{}, fmt.Errorf("a list within more than %d lists: write its objects one after the other",
				limitListDepth)
		}
		return s.makeList(in, items, to, depth+1)
	}
	conversion, err := s.converter.Begin(in, to)
	if err != nil {
		return made{}, err
	}
	m := made{object: conversion.Out, losses: conversion.Losses, changed: in.GroupVersionKind() != to}
	if s.options.Defaults {
		conversion.WriteDefaults(func(string) bool { return true })
	}
	if s.options.Minor != 0 {
		spelled, lost := conversion.Spell(s.options.Minor)
		m.losses, m.changed = append(m.losses, lost...), m.changed || spelled
	}
	done, err := s.complete(conversion, &m)
	if err != nil {
		return made{}, err
	}
	written := make(map[string]bool, len(m.changes))
	for _, change := range m.changes {
		written[change.Path] = true
	}
	m.losses = append(m.losses, conversion.Defaults.LossesBut(written)...)
	if s.options.Minor != 0 {
		m.losses = append(m.losses, done.Unknown...)
	}
	if m.refused == "" {
		m.refused = s.off(to)
	}
	return m, nil
}

// off says that servers of the minor have a kind turned off, unless they are told otherwise; "" for others.
func (s *Stream) off(gvk schema.GroupVersionKind) string {
	if s.options.Minor == 0 || s.options.Asked {
		return ""
	}
	standing := s.converter.StandingIn(gvk, s.options.Minor)
	if !standing.Known || standing.Served || !standing.There {
		return ""
	}
	return fmt.Sprintf("%s serves it only with --runtime-config=%s=true", s.options.Minor, gvk.GroupVersion())
}

// requestBytes is what servers take in a request. What is written with fewer than smallBytes stays far below it.
const (
	requestBytes = 3 << 20
	smallBytes   = 256 << 10
)

// tooLarge says that no request takes an object; "" for others.
func (s *Stream) tooLarge(object *unstructured.Unstructured) string {
	minor := s.options.Minor
	if minor == 0 || !kubever.Behaves(kubever.BehaviourRequestsBounded, minor) {
		return ""
	}
	if size := jsontext.Size(object.Object); size > requestBytes {
		return fmt.Sprintf("%s refuses it: in JSON it has %d bytes, and a request at most %d",
			minor, size, requestBytes)
	}
	return ""
}

// complete makes the object acceptable, or says why it is not: an error if anything of it was changed.
func (s *Stream) complete(conversion *convert.Conversion, m *made) (validate.Completed, error) {
	done, err := validate.Complete(conversion, s.options.Minor)
	var refused *validate.RefusedError
	if errors.As(err, &refused) && (refused.Doubtful || refused.Accepted || refused.OfClient || !m.changed) {
		m.refused, err = err.Error(), nil
	}
	m.losses, m.changes = append(m.losses, done.Losses...), done.Changes
	m.changed = m.changed || len(done.Changes) > 0
	return done, err
}

// makeList converts the objects of a list. Those of a list of one kind need not name it.
func (s *Stream) makeList(in *unstructured.Unstructured, items []any, to schema.GroupVersionKind, depth int) (made,
	error) {
	m := made{object: &unstructured.Unstructured{Object: maps.Clone(in.Object)}, changed: in.GroupVersionKind() != to}
	itemKind, _ := strings.CutSuffix(in.GetKind(), "List")
	converted := make([]any, len(items))
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return made{}, fmt.Errorf("items[%d]: want an object", i)
		}
		u := &unstructured.Unstructured{Object: object}
		named := object["kind"] != nil
		if !named && itemKind != "" {
			u.Object = maps.Clone(object)
			u.SetGroupVersionKind(in.GroupVersionKind().GroupVersion().WithKind(itemKind))
		}
		target, err := s.target(u.GroupVersionKind())
		if err != nil {
			return made{}, fmt.Errorf("items[%d]: %w", i, err)
		}
		one, err := s.become(u, target, depth)
		if err != nil {
			return made{}, fmt.Errorf("items[%d]: %w", i, err)
		}
		if !named {
			delete(one.object.Object, "kind")
			delete(one.object.Object, "apiVersion")
		}
		converted[i] = one.object.Object
		m.changed = m.changed || one.changed
		at := fmt.Sprintf("items[%d].", i)
		for _, loss := range one.losses {
			loss.Path = at + loss.Path
			m.losses = append(m.losses, loss)
		}
		for _, change := range one.changes {
			change.Path = at + change.Path
			m.changes = append(m.changes, change)
		}
		if one.refused != "" && m.refused == "" {
			m.refused = fmt.Sprintf("items[%d]: %s", i, one.refused)
		}
	}
	m.object.Object["items"] = converted
	m.object.SetGroupVersionKind(to)
	return m, nil
}

// listKind is a list of objects of any kind.
var listKind = schema.GroupVersionKind{Version: "v1", Kind: "List"}

// target names the kind that the kind, or the items of a list of it, is to become.
func (s *Stream) target(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	item, list := strings.CutSuffix(gvk.Kind, "List")
	switch {
	case gvk == listKind:
		return gvk, nil
	case !list:
		return s.options.Choose(gvk)
	}
	to, err := s.options.Choose(gvk.GroupVersion().WithKind(item))
	return to.GroupVersion().WithKind(to.Kind + "List"), err
}

var (
	yamlVersionLine = regexp.MustCompile(`(?m)^(apiVersion:[ \t]*)\S+`)
	jsonVersionWord = regexp.MustCompile(`("apiVersion"\s*:\s*)"[^"]*"`)
)

// frame gives the text around the items of a list of one kind the version that its items get.
func (s *Stream) frame(part manifest.Part) ([]byte, error) {
	kind, ok := strings.CutSuffix(part.ListKind, "List")
	if !ok || kind == "" || !bytes.Contains(part.Text, []byte("apiVersion")) {
		return part.Text, nil
	}
	to, err := s.options.Choose(schema.FromAPIVersionAndKind(part.ListVersion, kind))
	if err != nil {
		return nil, err
	}
	version := to.GroupVersion().String()
	if bytes.HasPrefix(bytes.TrimSpace(part.Text), []byte("{")) {
		if at := jsonVersionWord.FindSubmatchIndex(part.Text); at != nil {
			return slices.Concat(part.Text[:at[3]], []byte(`"`+version+`"`), part.Text[at[1]:]), nil
		}
		return part.Text, nil
	}
	return yamlVersionLine.ReplaceAll(part.Text, []byte("${1}"+version)), nil
}

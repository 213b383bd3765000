// Package stream takes files of objects through a converter: objects of any number, one by one, each in the text that
// it came in, or a verdict about each.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Options say what becomes of objects.
type Options struct {
	Choose   Chooser
	Minor    kubever.Minor // that reads the objects, for what it does not know of them; 0 when that is not known
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
	Error     string         `json:"error,omitempty"`
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
	Err    error                      // nothing becomes of it
}

// Convert converts what it reads of a file: one reader, a worker for each processor, and what they make in the order of
// the file. Memory is bounded by the workers and the largest object.
// Errors: ctx's; emit's own. What cannot be converted is a Result.
func (s *Stream) Convert(ctx context.Context, name string, in io.Reader, emit func(Result) error) error {
	workers := runtime.GOMAXPROCS(0)
	ordered := make(chan *job, 4*workers) // as many parts as may be ahead of the one that is written next
	work := make(chan *job)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ordered)
		defer close(work)
		for part, err := range manifest.Parts(in) {
			j := &job{Result: Result{Err: err}, part: part, done: make(chan struct{})}
			for _, queue := range []chan<- *job{ordered, work} {
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
			for j := range work {
				s.convert(name, j)
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
			if err := emit(j.Result); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// job is a part, and what becomes of it.
type job struct {
	Result
	part manifest.Part
	done chan struct{} // closed when the result is set
}

// convert makes of a part what becomes of it. It changes nothing but the job.
func (s *Stream) convert(file string, j *job) {
	part := j.part
	j.Converted = Converted{File: file, Document: part.Document, Line: part.Line}
	if j.Err != nil {
		return
	}
	if !part.Object {
		j.Text, j.Err = s.frame(part)
		return
	}
	source, err := decode(s.converter, part)
	if err != nil || source == nil {
		j.Text, j.Err = part.Text, err
		return
	}
	gvk := source.GroupVersionKind()
	j.From = gvk.GroupVersion().String() + " " + gvk.Kind
	j.Namespace, j.Name = source.GetNamespace(), source.GetName()
	to, err := s.target(gvk)
	if err != nil {
		j.Err = err
		return
	}
	j.To = to.GroupVersion().String() + " " + to.Kind
	result, losses, err := s.convertObject(&source.Unstructured, to)
	if err != nil {
		j.Err = err
		return
	}
	if gvk.Kind != "List" {
		changed, err := s.converter.Defaults(&source.Unstructured, result, s.options.Defaults)
		if err != nil {
			j.Err = err
			return
		}
		losses = append(losses, changed...)
	}
	if s.options.Minor != 0 {
		losses = append(losses, s.converter.LossesIn(result, s.options.Minor)...)
	}
	j.Object, j.Losses = result, losses
	switch {
	case s.options.Format != Same || source.text == nil:
	case to == gvk && gvk.Kind != "List":
		j.Text = part.Text
	default:
		value := result.Object
		if source.text.Value["kind"] == nil { // as the items of lists are
			value = maps.Clone(value)
			delete(value, "apiVersion")
			delete(value, "kind")
		}
		j.Text, j.Err = source.text.Rewrite(value)
	}
}

// target names the kind that the kind, or the items of a list of it, is to become.
func (s *Stream) target(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	item, list := strings.CutSuffix(gvk.Kind, "List")
	if !list || item == "" {
		return s.options.Choose(gvk)
	}
	to, err := s.options.Choose(gvk.GroupVersion().WithKind(item))
	return to.GroupVersion().WithKind(to.Kind + "List"), err
}

// convertObject converts an object, or each object of a List.
func (s *Stream) convertObject(
	in *unstructured.Unstructured, to schema.GroupVersionKind,
) (*unstructured.Unstructured, []convert.Loss, error) {
	items, ok := in.Object["items"].([]any)
	if in.GetKind() != "List" || !ok {
		return s.converter.Convert(in, to)
	}
	out := &unstructured.Unstructured{Object: maps.Clone(in.Object)}
	converted := make([]any, len(items))
	var losses []convert.Loss
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, nil, fmt.Errorf("items[%d]: want an object", i)
		}
		u := &unstructured.Unstructured{Object: object}
		target, err := s.target(u.GroupVersionKind())
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		result, lost, err := s.convertObject(u, target)
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		converted[i] = result.Object
		for _, loss := range lost {
			loss.Path = fmt.Sprintf("items[%d].%s", i, loss.Path)
			losses = append(losses, loss)
		}
	}
	out.Object["items"] = converted
	return out, losses, nil
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

// Package wrap converts above a client that exists already: a controller-runtime Client, Reader or Cache that reads and
// writes one API version serves programs of another. Where a rest.Config is at hand, package client does more: it
// converts every request of every client that is made from it.
package wrap

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Negotiator says how a server serves kinds: a *client.Live, or ForMinor.
type Negotiator interface {
	Kind(ctx context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error)
	Server(ctx context.Context) (*negotiate.Server, error)
}

// Options say what is converted, and what becomes of losses. Converter and Negotiator are required.
type Options struct {
	Converter  *convert.Converter
	Negotiator Negotiator
	// OnLoss, when it is set, is told of what a write loses, and the write goes on. Without it such a write is refused
	// with a *client.LossError.
	OnLoss func(*client.LossError)
}

// ForMinor negotiates with a plain server of a minor, without asking any.
func ForMinor(c *convert.Converter, minor kubever.Minor) Negotiator {
	return facts{c, negotiate.FromFacts(minor)}
}

type facts struct {
	converter *convert.Converter
	server    *negotiate.Server
}

func (f facts) Server(context.Context) (*negotiate.Server, error) { return f.server, nil }

func (f facts) Kind(_ context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error) {
	item, list := f.converter.ItemOf(gvk)
	answer, err := f.server.Negotiate(item, f.converter.Equivalents(item))
	if list {
		answer = answer.OfList()
	}
	return answer, err
}

var errOptions = errors.New("wrapping a client: want a Converter and a Negotiator")

// bridge knows how kinds are served, and converts objects both ways.
type bridge struct {
	Options
	scheme *runtime.Scheme
}

func newBridge(scheme *runtime.Scheme, o Options) (*bridge, error) {
	if o.Converter == nil || o.Negotiator == nil {
		return nil, errOptions
	}
	return &bridge{Options: o, scheme: scheme}, nil
}

// answer says how the kind of an object, or of a list, is served. Kinds that the converter does not know pass.
func (b *bridge) answer(ctx context.Context, of runtime.Object) (negotiate.Answer, error) {
	gvk, err := apiutil.GVKForObject(of, b.scheme)
	if err != nil {
		return negotiate.Answer{}, err
	}
	return b.answerFor(ctx, gvk)
}

func (b *bridge) answerFor(ctx context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error) {
	if item, _ := b.Converter.ItemOf(gvk); !b.Converter.Knows(item) {
		return negotiate.Answer{Asked: gvk, As: gvk, Verdict: negotiate.Pass}, nil
	}
	answer, err := b.Negotiator.Kind(ctx, gvk)
	if err != nil {
		return answer, err
	}
	if answer.Verdict == negotiate.Unsupported {
		server, err := b.Negotiator.Server(ctx)
		if err != nil {
			return answer, err
		}
		return answer, &client.UnsupportedError{Answer: answer, Server: server.Name}
	}
	return answer, nil
}

// blank is an object of a kind, to be read into: of a Go type when the asked one is, and the scheme has one.
func (b *bridge) blank(like runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	var made runtime.Object
	switch like.(type) {
	case *metav1.PartialObjectMetadata:
		made = &metav1.PartialObjectMetadata{}
	case *metav1.PartialObjectMetadataList:
		made = &metav1.PartialObjectMetadataList{}
	case *unstructured.Unstructured:
		made = &unstructured.Unstructured{}
	case *unstructured.UnstructuredList:
		made = &unstructured.UnstructuredList{}
	default:
		typed, err := b.scheme.New(gvk)
		switch {
		case err == nil:
			made = typed
		case meta.IsListType(like):
			made = &unstructured.UnstructuredList{}
		default:
			made = &unstructured.Unstructured{}
		}
	}
	made.GetObjectKind().SetGroupVersionKind(gvk)
	return made
}

func (b *bridge) blankObject(like ctrl.Object, gvk schema.GroupVersionKind) (ctrl.Object, error) {
	object, ok := b.blank(like, gvk).(ctrl.Object)
	if !ok {
		return nil, fmt.Errorf("%s: its Go type is no object with metadata", gvk)
	}
	return object, nil
}

// fields are those of an object that says its kind; the object is not shared.
func fields(object runtime.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", gvk, err)
	}
	content["apiVersion"], content["kind"] = gvk.ToAPIVersionAndKind()
	return content, nil
}

// fill makes an object say what the fields say.
func fill(object runtime.Object, content map[string]any) error {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object = content
		return nil
	}
	reflect.ValueOf(object).Elem().SetZero()
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, object)
}

func (b *bridge) convert(content map[string]any, to schema.GroupVersionKind) (map[string]any, []convert.Loss, error) {
	out, losses, err := b.Converter.Convert(&unstructured.Unstructured{Object: content}, to)
	if err != nil {
		return nil, nil, err
	}
	return out.Object, losses, nil
}

// back fills an object of the asked version with what the server has.
func (b *bridge) back(from runtime.Object, into runtime.Object, answer negotiate.Answer) error {
	if source, ok := from.(*metav1.PartialObjectMetadata); ok {
		target, ok := into.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("%s: want metadata alone", answer.Asked)
		}
		source.DeepCopyInto(target)
		target.SetGroupVersionKind(answer.Asked)
		return nil
	}
	content, err := fields(from, answer.As)
	if err != nil {
		return err
	}
	if content, _, err = b.convert(content, answer.Asked); err != nil {
		return err
	}
	return fill(into, content)
}

// listBack fills a list of the asked version.
func (b *bridge) listBack(from, into ctrl.ObjectList, answer negotiate.Answer) error {
	if source, ok := from.(*metav1.PartialObjectMetadataList); ok {
		target, ok := into.(*metav1.PartialObjectMetadataList)
		if !ok {
			return fmt.Errorf("%s: want metadata alone", answer.Asked)
		}
		source.DeepCopyInto(target)
		target.SetGroupVersionKind(answer.Asked)
		for i := range target.Items {
			target.Items[i].SetGroupVersionKind(itemOf(answer.Asked))
		}
		return nil
	}
	objects, err := meta.ExtractList(from)
	if err != nil {
		return fmt.Errorf("%s: %w", answer.As, err)
	}
	items := make([]any, len(objects))
	for i, object := range objects {
		content, err := fields(object, itemOf(answer.As))
		if err == nil {
			content, _, err = b.convert(content, itemOf(answer.Asked))
		}
		if err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
		items[i] = content
	}
	metadata := map[string]any{"resourceVersion": from.GetResourceVersion()}
	if token := from.GetContinue(); token != "" {
		metadata["continue"] = token
	}
	if left := from.GetRemainingItemCount(); left != nil {
		metadata["remainingItemCount"] = *left
	}
	content := map[string]any{"metadata": metadata, "items": items}
	content["apiVersion"], content["kind"] = answer.Asked.ToAPIVersionAndKind()
	if u, ok := into.(*unstructured.UnstructuredList); ok {
		u.SetUnstructuredContent(content)
		return nil
	}
	return fill(into, content)
}

func itemOf(list schema.GroupVersionKind) schema.GroupVersionKind {
	list.Kind = strings.TrimSuffix(list.Kind, "List")
	return list
}

// outgoing converts what is written. Errors: *client.LossError, unless losses are allowed.
func (b *bridge) outgoing(ctx context.Context, content map[string]any, answer negotiate.Answer, status bool) (
	map[string]any, error) {
	server, err := b.Negotiator.Server(ctx)
	if err != nil {
		return nil, err
	}
	converted, losses, err := client.Outgoing(b.Converter, content, answer.As, server)
	if err != nil {
		return nil, err
	}
	return converted, b.lost(content, answer, server, losses, status)
}

// lost refuses or reports what a write loses. Of a kind with a status, that is written by itself.
func (b *bridge) lost(
	content map[string]any, answer negotiate.Answer, server *negotiate.Server, losses []convert.Loss, status bool,
) error {
	_, hasStatus := answer.Resource.Subresource("status")
	var kept []convert.Loss
	for _, loss := range losses {
		ofStatus := loss.Path == "status" || strings.HasPrefix(loss.Path, "status.")
		if !hasStatus || ofStatus == status {
			kept = append(kept, loss)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	u := unstructured.Unstructured{Object: content}
	name := strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
	e := &client.LossError{Object: u.GetKind() + " " + name, Asked: answer.Asked, As: answer.As, Server: server.Name,
		Losses: kept}
	if b.OnLoss == nil {
		return e
	}
	b.OnLoss(e)
	return nil
}

// Reader reads the versions that programs ask for through a reader of those that the server has. The scheme names the
// kinds of Go types.
// Errors: Options without a Converter or a Negotiator. Reads return a *client.UnsupportedError for kinds of which the
// server has no version, and *convert.ContentError.
func Reader(next ctrl.Reader, scheme *runtime.Scheme, o Options) (ctrl.Reader, error) {
	b, err := newBridge(scheme, o)
	if err != nil {
		return nil, err
	}
	return &reader{b, next}, nil
}

type reader struct {
	*bridge
	next ctrl.Reader
}

// Get reads an object.
func (r *reader) Get(ctx context.Context, key ctrl.ObjectKey, into ctrl.Object, options ...ctrl.GetOption) error {
	answer, err := r.answer(ctx, into)
	if err != nil {
		return err
	}
	if answer.Verdict == negotiate.Pass {
		return r.next.Get(ctx, key, into, options...)
	}
	object, err := r.blankObject(into, answer.As)
	if err != nil {
		return err
	}
	if err := r.next.Get(ctx, key, object, options...); err != nil {
		return err
	}
	return r.back(object, into, answer)
}

// List reads a list. Selectors, limits and continue tokens are the server's.
func (r *reader) List(ctx context.Context, into ctrl.ObjectList, options ...ctrl.ListOption) error {
	answer, err := r.answer(ctx, into)
	if err != nil {
		return err
	}
	if answer.Verdict == negotiate.Pass {
		return r.next.List(ctx, into, options...)
	}
	list, ok := r.blank(into, answer.As).(ctrl.ObjectList)
	if !ok {
		return fmt.Errorf("%s: its Go type is no list", answer.As)
	}
	if err := r.next.List(ctx, list, options...); err != nil {
		return err
	}
	return r.listBack(list, into, answer)
}

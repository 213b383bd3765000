package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Client serves programs of other versions with a client that exists. What a write cannot say in the server's version
// is refused with a *client.LossError; what an update or a patch does not show of the object that the server has stays.
// Subresources other than status take bodies of their own, as they are; without one they are refused where the server
// has another version. Errors: Options without a Converter or a Negotiator.
func Client(next ctrl.Client, o Options) (ctrl.Client, error) {
	b, err := newBridge(next.Scheme(), o)
	if err != nil {
		return nil, err
	}
	return &wrapped{Client: next, reader: reader{b, next}}, nil
}

// WithWatch is Client for one that watches.
func WithWatch(next ctrl.WithWatch, o Options) (ctrl.WithWatch, error) {
	b, err := newBridge(next.Scheme(), o)
	if err != nil {
		return nil, err
	}
	return &watching{wrapped{Client: next, reader: reader{b, next}}, next}, nil
}

type wrapped struct {
	ctrl.Client // for the scheme and the mapper
	reader      reader
}

// attempts bounds how often a write is tried again that the program did not tie to a resource version.
const attempts = 5

// Get reads an object.
func (w *wrapped) Get(ctx context.Context, key ctrl.ObjectKey, into ctrl.Object, options ...ctrl.GetOption) error {
	return w.reader.Get(ctx, key, into, options...)
}

// List reads a list.
func (w *wrapped) List(ctx context.Context, into ctrl.ObjectList, options ...ctrl.ListOption) error {
	return w.reader.List(ctx, into, options...)
}

// Create writes a new object.
func (w *wrapped) Create(ctx context.Context, object ctrl.Object, options ...ctrl.CreateOption) error {
	b := w.reader.bridge
	answer, err := b.answer(ctx, object)
	if err != nil {
		return err
	}
	content, err := fields(object, answer.Asked)
	if err != nil {
		return err
	}
	converted, err := b.outgoing(ctx, content, answer, false)
	if err != nil {
		return err
	}
	convert.KeepUnknown(answer.Asked, content, converted)
	if answer.Verdict == negotiate.Pass {
		return w.Client.Create(ctx, object, options...)
	}
	served, err := b.blankObject(object, answer.As)
	if err == nil {
		err = fill(served, converted)
	}
	if err == nil {
		err = w.Client.Create(ctx, served, options...)
	}
	if err != nil {
		return err
	}
	return b.back(served, object, answer)
}

// Update writes an object over the one that the server has.
func (w *wrapped) Update(ctx context.Context, object ctrl.Object, options ...ctrl.UpdateOption) error {
	answer, err := w.reader.answer(ctx, object)
	if err != nil {
		return err
	}
	return w.update(ctx, object, answer, false, func(served ctrl.Object) error {
		return w.Client.Update(ctx, served, options...)
	})
}

// update converts an object, lays it over the one that the server has, and writes that.
func (w *wrapped) update(
	ctx context.Context, object ctrl.Object, answer negotiate.Answer, status bool, write func(ctrl.Object) error,
) error {
	b := w.reader.bridge
	content, err := fields(object, answer.Asked)
	if err != nil {
		return err
	}
	converted, err := b.outgoing(ctx, content, answer, status)
	if err != nil {
		return err
	}
	if answer.Verdict == negotiate.Pass {
		return write(object)
	}
	tied := object.GetResourceVersion()
	if tied == "0" { // none, to API servers
		tied = ""
	}
	return w.over(ctx, object, answer, tied != "", write, func(current map[string]any) (map[string]any, error) {
		if version := (&unstructured.Unstructured{Object: current}).GetResourceVersion(); tied != "" &&
			tied != version {
			// The server might have that version a moment later, and what it has then was not read.
			resource := schema.GroupResource{Group: answer.Asked.Group, Resource: answer.Resource.Name}
			return nil, conflict(resource, object)
		}
		return w.carried(ctx, current, converted, answer, status)
	})
}

// conflict is what a server says of a write of another resource version than it has.
func conflict(resource schema.GroupResource, object ctrl.Object) error {
	return apierrors.NewConflict(resource, object.GetName(), errors.New("the object has been modified; please apply "+
		"your changes to the latest version and try again"))
}

// carried is a changed object with what the program could not see of the current one.
func (w *wrapped) carried(
	ctx context.Context, current, changed map[string]any, answer negotiate.Answer, status bool,
) (map[string]any, error) {
	b := w.reader.bridge
	server, err := b.Negotiator.Server(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := client.Seen(b.Converter, current, answer, server)
	if err != nil {
		return nil, err
	}
	convert.KeepUnknownAs(current, answer.Asked, seen)
	convert.KeepUnknownAs(current, answer.Asked, changed)
	merged, losses := client.Carry(current, seen, changed)
	return merged, b.lost(changed, answer, server, losses, status)
}

// over reads the object that the server has, lets change say what takes its place, and writes that; again after a
// conflict, unless the program tied the write to a version.
func (w *wrapped) over(
	ctx context.Context, object ctrl.Object, answer negotiate.Answer, tied bool, write func(ctrl.Object) error,
	change func(current map[string]any) (map[string]any, error),
) error {
	b := w.reader.bridge
	for attempt := 1; ; attempt++ {
		served := &unstructured.Unstructured{} // Go types drop what they do not have, and that would be written
		served.SetGroupVersionKind(answer.As)
		if err := w.Client.Get(ctx, ctrl.ObjectKeyFromObject(object), served); err != nil {
			return err
		}
		current, err := fields(served, answer.As)
		if err != nil {
			return err
		}
		version := served.GetResourceVersion()
		next, err := change(current)
		if err != nil {
			return err
		}
		if err := fill(served, next); err != nil {
			return err
		}
		if !tied {
			served.SetResourceVersion(version)
		}
		switch err := write(served); {
		case apierrors.IsConflict(err) && !tied && attempt < attempts:
			continue
		case err != nil:
			return err
		}
		return b.back(served, object, answer)
	}
}

// Patch carries out a patch by reading the object, patching it in the asked version, and writing it.
func (w *wrapped) Patch(ctx context.Context, object ctrl.Object, patch ctrl.Patch, options ...ctrl.PatchOption) error {
	o := (&ctrl.PatchOptions{}).ApplyOptions(options)
	return w.patch(ctx, object, patch, false, o.FieldManager,
		func(object ctrl.Object, patch ctrl.Patch) error {
			return w.Client.Patch(ctx, object, patch, options...)
		},
		func(served ctrl.Object) error {
			return w.Client.Update(ctx, served, &ctrl.UpdateOptions{
				DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation})
		})
}

func (w *wrapped) patch(
	ctx context.Context, object ctrl.Object, patch ctrl.Patch, status bool, manager string,
	pass func(ctrl.Object, ctrl.Patch) error, write func(ctrl.Object) error,
) error {
	b := w.reader.bridge
	answer, err := b.answer(ctx, object)
	if err != nil {
		return err
	}
	if answer.Verdict == negotiate.Pass {
		return pass(object, patch)
	}
	resource := schema.GroupResource{Group: answer.Asked.Group, Resource: answer.Resource.Name}
	text, err := patch.Data(object)
	if err != nil {
		return err
	}
	if patch.Type() == types.ApplyPatchType { //nolint:staticcheck // clients still send it
		return w.patchByApply(ctx, object, text, answer, status, manager, pass)
	}
	apply, err := client.Patcher(patch.Type(), text, answer.Asked, resource, object.GetName())
	if err != nil {
		return err
	}
	return w.over(ctx, object, answer, false, write, func(current map[string]any) (map[string]any, error) {
		before, _, err := b.convert(current, answer.Asked)
		if err != nil {
			return nil, err
		}
		version := (&unstructured.Unstructured{Object: before}).GetResourceVersion()
		after, err := apply(before)
		if err != nil {
			return nil, err
		}
		if wanted := (&unstructured.Unstructured{Object: after}).GetResourceVersion(); wanted != "" &&
			wanted != version {
			return nil, conflict(resource, object)
		}
		changed, err := b.outgoing(ctx, after, answer, status)
		if err != nil {
			return nil, err
		}
		return w.carried(ctx, current, changed, answer, status)
	})
}

// Apply applies a part of an object. It is converted field by field, as package client does.
func (w *wrapped) Apply(ctx context.Context, part runtime.ApplyConfiguration, options ...ctrl.ApplyOption) error {
	manager := (&ctrl.ApplyOptions{}).ApplyOptions(options).FieldManager
	return w.apply(ctx, part, manager, "", func(part runtime.ApplyConfiguration) error {
		return w.Client.Apply(ctx, part, options...)
	})
}

// apply lets a part of an object be applied in the server's version, and shows what came of it in the asked one.
func (w *wrapped) apply(
	ctx context.Context, part runtime.ApplyConfiguration, manager, subresource string,
	send func(runtime.ApplyConfiguration) error,
) error {
	b := w.reader.bridge
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(text, &content); err != nil {
		return err
	}
	asked := (&unstructured.Unstructured{Object: content}).GroupVersionKind()
	answer, err := b.answerFor(ctx, asked)
	if err != nil {
		return err
	}
	switch {
	case answer.Verdict == negotiate.Pass:
		return send(part)
	case subresource != "" && subresource != "status":
		return fmt.Errorf("server-side apply to subresource %s: the server has %s as %s, and only statuses are "+
			"converted; use that version", subresource, answer.Asked, answer.As)
	}
	key := ctrl.ObjectKeyFromObject(&unstructured.Unstructured{Object: content})
	out, err := w.outgoingPart(ctx, key, content, answer, manager, subresource)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: out}
	if err := send(ctrl.ApplyConfigurationFromUnstructured(applied)); err != nil {
		return err
	}
	seen, _, err := b.convert(applied.Object, answer.Asked)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(seen); err != nil {
		return err
	}
	return json.Unmarshal(text, part)
}

// patchByApply is apply for programs that send it as a patch.
func (w *wrapped) patchByApply(
	ctx context.Context, object ctrl.Object, text []byte, answer negotiate.Answer, status bool, manager string,
	send func(ctrl.Object, ctrl.Patch) error,
) error {
	subresource := ""
	if status {
		subresource = "status"
	}
	var part map[string]any
	err := yamltext.BoundAliases(text)
	if err == nil {
		text, err = yaml.YAMLToJSONStrict(text) // JSON is YAML, too
	}
	if err == nil {
		err = utiljson.Unmarshal(text, &part)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("reading the apply patch: %v", err))
	}
	out, err := w.outgoingPart(ctx, ctrl.ObjectKeyFromObject(object), part, answer, manager, subresource)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(out); err != nil {
		return err
	}
	served, _, err := w.reader.served(ctx, object)
	if err != nil {
		return err
	}
	if err := send(served, ctrl.RawPatch(types.ApplyPatchType, text)); err != nil { //nolint:staticcheck // as it came
		return err
	}
	return w.reader.back(served, object, answer)
}

// outgoingPart converts what is applied. Errors: *client.LossError, *client.UnfaithfulError, and 415 of servers that
// do not have server-side apply.
func (w *wrapped) outgoingPart(
	ctx context.Context, key ctrl.ObjectKey, part map[string]any, answer negotiate.Answer, manager, subresource string,
) (map[string]any, error) {
	b := w.reader.bridge
	server, err := b.Negotiator.Server(ctx)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupResource{Group: answer.Asked.Group, Resource: answer.Resource.Name}
	if server.Minor.Known() && !kubever.Behaves(kubever.BehaviourServerSideApply, server.Minor) {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "apply", resource, key.Name,
			fmt.Sprintf("server-side apply: %s does not have it; update the object, or send a merge patch",
				server.Name), 0, false)
	}
	p := &client.Part{Converter: b.Converter, Server: server,
		Request: http.MethodPatch + " " + answer.Resource.Name + "." + answer.Asked.GroupVersion().String(),
		To:      answer.As, Manager: manager, Subresource: subresource, Current: func() (map[string]any, error) {
			served := &unstructured.Unstructured{}
			served.SetGroupVersionKind(answer.As)
			switch err := w.Client.Get(ctx, key, served); {
			case apierrors.IsNotFound(err):
				return nil, nil
			case apierrors.IsForbidden(err):
				return nil, client.ErrUnreadable
			case err != nil:
				return nil, err
			}
			return served.Object, nil
		}}
	before := (&unstructured.Unstructured{Object: part}).DeepCopy() // for what is said of losses
	out, losses, err := p.Convert(part)
	if err != nil {
		return nil, err
	}
	return out, b.lost(before.Object, answer, server, losses, subresource == "status")
}

// served is the object as the server names it: its metadata alone.
func (b *bridge) served(ctx context.Context, object ctrl.Object) (ctrl.Object, negotiate.Answer, error) {
	answer, err := b.answer(ctx, object)
	if err != nil || answer.Verdict == negotiate.Pass {
		return object, answer, err
	}
	served, err := b.blankObject(object, answer.As)
	if err != nil {
		return nil, answer, err
	}
	served.SetNamespace(object.GetNamespace())
	served.SetName(object.GetName())
	served.SetUID(object.GetUID())
	served.SetResourceVersion(object.GetResourceVersion())
	return served, answer, nil
}

// Delete deletes an object. What becomes of its dependents is what the asked version means.
func (w *wrapped) Delete(ctx context.Context, object ctrl.Object, options ...ctrl.DeleteOption) error {
	served, answer, err := w.reader.served(ctx, object)
	if err != nil {
		return err
	}
	o := (&ctrl.DeleteOptions{}).ApplyOptions(options)
	if policy := client.Propagation(answer); policy != "" && o.PropagationPolicy == nil {
		options = append(options[:len(options):len(options)], ctrl.PropagationPolicy(policy))
	}
	return w.Client.Delete(ctx, served, options...)
}

// DeleteAllOf deletes what the options select.
func (w *wrapped) DeleteAllOf(ctx context.Context, object ctrl.Object, options ...ctrl.DeleteAllOfOption) error {
	served, answer, err := w.reader.served(ctx, object)
	if err != nil {
		return err
	}
	o := (&ctrl.DeleteAllOfOptions{}).ApplyOptions(options)
	if policy := client.Propagation(answer); policy != "" && o.PropagationPolicy == nil {
		options = append(options[:len(options):len(options)], ctrl.PropagationPolicy(policy))
	}
	return w.Client.DeleteAllOf(ctx, served, options...)
}

// Status writes statuses.
func (w *wrapped) Status() ctrl.SubResourceWriter { return w.SubResource("status") }

// SubResource reads and writes a subresource.
func (w *wrapped) SubResource(name string) ctrl.SubResourceClient {
	return &subresource{w, name, w.Client.SubResource(name)}
}

type subresource struct {
	of   *wrapped
	name string
	next ctrl.SubResourceClient
}

// Get reads a subresource.
func (s *subresource) Get(ctx context.Context, object, sub ctrl.Object, options ...ctrl.SubResourceGetOption) error {
	served, _, err := s.of.reader.served(ctx, object)
	if err != nil {
		return err
	}
	return s.next.Get(ctx, served, sub, options...)
}

// Create writes to a subresource.
func (s *subresource) Create(ctx context.Context, object, sub ctrl.Object,
	options ...ctrl.SubResourceCreateOption) error {
	served, _, err := s.of.reader.served(ctx, object)
	if err != nil {
		return err
	}
	return s.next.Create(ctx, served, sub, options...)
}

// bodiless refuses to write a subresource whose body is the object, where the server has the object in another version:
// served has its metadata alone, and the write would take everything else away.
func (s *subresource) bodiless(object ctrl.Object, answer negotiate.Answer, body ctrl.Object) error {
	if body != nil || answer.Verdict == negotiate.Pass {
		return nil
	}
	return fmt.Errorf("subresource %s of %s: the server has this kind as %s, and only statuses and bodies of their "+
		"own (SubResourceBody) are written in another version; use that version", s.name, object.GetName(), answer.As)
}

// Update writes the status of an object, or a subresource with a body of its own.
func (s *subresource) Update(ctx context.Context, object ctrl.Object, options ...ctrl.SubResourceUpdateOption) error {
	answer, err := s.of.reader.answer(ctx, object)
	if err != nil {
		return err
	}
	o := (&ctrl.SubResourceUpdateOptions{}).ApplyOptions(options)
	if o.SubResourceBody != nil || s.name != "status" {
		if err := s.bodiless(object, answer, o.SubResourceBody); err != nil {
			return err
		}
		served, _, err := s.of.reader.served(ctx, object)
		if err != nil {
			return err
		}
		return s.next.Update(ctx, served, options...)
	}
	return s.of.update(ctx, object, answer, true, func(served ctrl.Object) error {
		return s.next.Update(ctx, served, options...)
	})
}

// Patch patches the status of an object, or a subresource with a body of its own.
func (s *subresource) Patch(
	ctx context.Context, object ctrl.Object, patch ctrl.Patch, options ...ctrl.SubResourcePatchOption,
) error {
	o := (&ctrl.SubResourcePatchOptions{}).ApplyOptions(options)
	if o.SubResourceBody != nil || s.name != "status" {
		served, answer, err := s.of.reader.served(ctx, object)
		if err == nil {
			err = s.bodiless(object, answer, o.SubResourceBody)
		}
		if err != nil {
			return err
		}
		return s.next.Patch(ctx, served, patch, options...)
	}
	return s.of.patch(ctx, object, patch, true, o.FieldManager,
		func(object ctrl.Object, patch ctrl.Patch) error { return s.next.Patch(ctx, object, patch, options...) },
		func(served ctrl.Object) error {
			return s.next.Update(ctx, served, &ctrl.SubResourceUpdateOptions{UpdateOptions: ctrl.UpdateOptions{
				DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}})
		})
}

// Apply applies a part of the status of an object. What is applied to other subresources, or has a body of its own, is
// sent as it is where the server has the kind in the asked version, and refused elsewhere.
func (s *subresource) Apply(
	ctx context.Context, part runtime.ApplyConfiguration, options ...ctrl.SubResourceApplyOption,
) error {
	o := (&ctrl.SubResourceApplyOptions{}).ApplyOpts(options)
	name := s.name
	if o.SubResourceBody != nil {
		name += " with a body of its own"
	}
	return s.of.apply(ctx, part, o.FieldManager, name, func(part runtime.ApplyConfiguration) error {
		return s.next.Apply(ctx, part, options...)
	})
}

type watching struct {
	wrapped
	next ctrl.WithWatch
}

// Watch converts each event. One that does not convert ends the watch with an error: its object must not look absent.
func (w *watching) Watch(ctx context.Context, list ctrl.ObjectList, options ...ctrl.ListOption) (watch.Interface,
	error) {
	b := w.reader.bridge
	answer, err := b.answer(ctx, list)
	if err != nil {
		return nil, err
	}
	if answer.Verdict == negotiate.Pass {
		return w.next.Watch(ctx, list, options...)
	}
	served, ok := b.blank(list, answer.As).(ctrl.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s: its Go type is no list", answer.As)
	}
	events, err := w.next.Watch(ctx, served, options...)
	if err != nil {
		return nil, err
	}
	item := answer
	item.Asked, item.As = itemOf(answer.Asked), itemOf(answer.As)
	return b.follow(events, item), nil
}

// follow converts events until they end, the reader stops, or one does not convert: then there would be a gap, which a
// reader that goes on would not see.
func (b *bridge) follow(events watch.Interface, item negotiate.Answer) watch.Interface {
	out := make(chan watch.Event)
	reader := watch.NewProxyWatcher(out)
	go func() {
		defer close(out)
		defer events.Stop()
		for ended := false; !ended; {
			var event watch.Event
			select {
			case next, ok := <-events.ResultChan():
				if !ok {
					return
				}
				event = next
			case <-reader.StopChan():
				return
			}
			if event.Type != watch.Error {
				object, err := b.converted(event.Object, item)
				if event.Object = object; err != nil {
					status := apierrors.NewInternalError(fmt.Errorf("converting an event: %w", err)).Status()
					event, ended = watch.Event{Type: watch.Error, Object: &status}, true
				}
			}
			select {
			case out <- event:
			case <-reader.StopChan():
				return
			}
		}
	}()
	return reader
}

// converted is a new object of the asked version.
func (b *bridge) converted(object runtime.Object, answer negotiate.Answer) (runtime.Object, error) {
	made := b.blank(object, answer.Asked)
	if err := b.back(object, made, answer); err != nil {
		return nil, err
	}
	return made, nil
}

package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// attempts bounds how often a write is tried again that the program did not tie to a resource version, when another
// client writes between reading the object and writing it.
const attempts = 5

func (c *call) convert(object map[string]any, to schema.GroupVersionKind) (map[string]any, []convert.Loss, error) {
	out, losses, err := c.converter.Convert(&unstructured.Unstructured{Object: object}, to)
	if err != nil {
		return nil, nil, err
	}
	return out.Object, losses, nil
}

// Outgoing converts what a program writes to what a server takes. What the version of the object defaults otherwise
// than that of the server is written: a DaemonSet of extensions/v1beta1 that says nothing waits for deletions, one of
// apps/v1 rolls. Losses are for the caller to judge.
func Outgoing(c *convert.Converter, object map[string]any, to schema.GroupVersionKind, server *negotiate.Server) (
	map[string]any, []convert.Loss, error) {
	conversion, err := c.Begin(&unstructured.Unstructured{Object: object}, to)
	if err != nil {
		return nil, nil, err
	}
	conversion.Own()
	_, left, err := conversion.KeepDefaults(server.Minor)
	if err != nil {
		return nil, nil, err
	}
	out := conversion.Out.Object
	return out, slices.Concat(conversion.Losses, left, knownFields.unknown(out, to, server)), nil
}

// Seen is what a program of an asked version sees of the object that a server has, in the version of the server and as
// Outgoing writes it: beside it stands what the program writes, so that only what it changed is a change.
func Seen(c *convert.Converter, current map[string]any, answer negotiate.Answer, server *negotiate.Server) (
	map[string]any, error) {
	seen, _, err := c.Convert(&unstructured.Unstructured{Object: current}, answer.Asked)
	if err != nil {
		return nil, err
	}
	back, _, err := Outgoing(c, seen.Object, answer.As, server)
	return back, err
}

// outgoing is Outgoing of what the request writes.
// Errors: *LossError, unless losses are allowed; those of named.
func (c *call) outgoing(object map[string]any) (map[string]any, error) {
	from, err := c.named(object)
	if err != nil {
		return nil, err
	}
	c.sent = from
	to := from
	switch {
	case from == c.answer.Asked && c.answer.Verdict == negotiate.Convert:
		to = c.answer.As
	case from.Kind == "Scale" && c.about.subresource == "scale":
		to = c.servedScale()
	case from.Kind == "Eviction" && c.about.subresource == "eviction":
		to = evictionKind(c.server)
	}
	converted, losses, err := Outgoing(c.converter, object, to, c.server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.request(), err)
	}
	return converted, c.lost(from, to, object, losses)
}

// named is the kind of an object that the program writes: what it does not say is that of the request, as for API
// servers.
// Errors: a Status for another kind than that of the request: what has the fields of one version and the name of
// another would be written as it stands, and the server drops what it does not know.
func (c *call) named(object map[string]any) (schema.GroupVersionKind, error) {
	asked := c.answer.Asked
	named := kindOf(object)
	if c.about.subresource != "" && c.about.subresource != "status" && !named.Empty() {
		return named, nil
	}
	if named.Version == "" {
		named.Group, named.Version = asked.Group, asked.Version
	}
	named.Kind = cmp.Or(named.Kind, asked.Kind)
	if c.answer.Verdict == negotiate.Convert && named != asked {
		return named, apierrors.NewBadRequest(fmt.Sprintf("the object is %s %q, want %s %q", named.GroupVersion(),
			named.Kind, asked.GroupVersion(), asked.Kind))
	}
	object["apiVersion"], object["kind"] = named.ToAPIVersionAndKind()
	return named, nil
}

// refused answers with an error of our own that is a Status, as the server would.
func (c *call) refused(err error) (*http.Response, error) {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return c.status(&apierrors.StatusError{ErrStatus: status.Status()})
	}
	return nil, err
}

func (c *call) servedScale() schema.GroupVersionKind {
	if sub, ok := c.answer.Resource.Subresource("scale"); ok && sub.Kind.Version != "" {
		return sub.Kind
	}
	return kubever.ScaleKind(c.served.GroupVersion)
}

// lost refuses or reports a write that loses something. The server takes the status from writes of the status alone,
// and nothing else from those.
func (c *call) lost(from, to schema.GroupVersionKind, object map[string]any, losses []convert.Loss) error {
	_, hasStatus := c.answer.Resource.Subresource("status")
	losses = slices.DeleteFunc(losses, func(loss convert.Loss) bool {
		ofStatus := loss.Path == "status" || strings.HasPrefix(loss.Path, "status.")
		return c.about.subresource == "status" && !ofStatus || c.about.subresource == "" && hasStatus && ofStatus
	})
	if len(losses) == 0 {
		return nil
	}
	e := &LossError{Object: nameOf(object), Asked: from, As: to, Server: c.server.Name, Losses: losses}
	switch {
	case c.options.Judge != nil:
		return c.options.Judge(object, e)
	case c.options.OnLoss == nil:
		return e
	}
	c.options.OnLoss(e)
	return nil
}

// checked sends a write that needs no conversion as it is, unless the server's minor lacks something of it.
func (c *call) checked() (*http.Response, error) {
	text, err := c.bodyText()
	if err != nil {
		return nil, err
	}
	c.req = c.req.Clone(c.req.Context())
	c.req.Body = io.NopCloser(bytes.NewReader(text))
	if err := c.holds(text); err != nil {
		return nil, err
	}
	return c.next.RoundTrip(c.req)
}

// holds refuses or reports what the server's minor drops of a body that it takes in the asked version.
func (c *call) holds(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	mediaType := c.contentType()
	if c.req.Method == http.MethodPatch && mediaType == string(types.JSONPatchType) {
		return c.holdsPatch(text)
	}
	if isApply(c.req) {
		return nil // the server that knows apply patches says what it does not know
	}
	object, err := c.decode(text)
	if err != nil {
		return err
	}
	if c.req.Method == http.MethodDelete {
		return c.deletable(object)
	}
	gvk := kindOf(object)
	if gvk.Empty() {
		gvk = c.answer.Asked
	}
	return c.lost(gvk, gvk, object, knownFields.unknown(object, gvk, c.server))
}

// holdsPatch is holds for a JSON patch: each value in its place is a part of the object.
func (c *call) holdsPatch(text []byte) error {
	var operations []struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := utiljson.Unmarshal(text, &operations); err != nil {
		return nil // the server says what is wrong with it
	}
	var losses []convert.Loss
	for _, operation := range operations {
		value := operation.Value
		if strings.Count(operation.Path, "/") > 200 {
			continue // no field is that deep
		}
		segments := strings.Split(operation.Path, "/")
		for _, segment := range slices.Backward(segments[1:]) {
			segment = strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
			if _, err := strconv.Atoi(segment); err == nil || segment == "-" {
				value = []any{value}
			} else {
				value = map[string]any{segment: value}
			}
		}
		if object, ok := value.(map[string]any); ok {
			losses = append(losses, knownFields.unknown(object, c.answer.Asked, c.server)...)
		}
	}
	object := map[string]any{"kind": c.answer.Asked.Kind,
		"metadata": map[string]any{"name": c.about.name, "namespace": c.about.namespace}}
	return c.lost(c.answer.Asked, c.answer.As, object, losses)
}

// create posts an object.
func (c *call) create() (*http.Response, error) {
	object, err := c.body()
	if err != nil {
		return nil, err
	}
	if asked := object; asked != nil {
		if object, err = c.outgoing(asked); err != nil {
			return c.refused(err)
		}
		convert.KeepUnknown(c.sent, asked, object)
	}
	response, err := c.do(c.req.Context(), http.MethodPost, c.served, c.req.URL.RawQuery, object)
	if err != nil {
		return nil, err
	}
	return c.answered(response)
}

// update writes an object over the one that the server has. What that one holds and the asked version cannot show was
// never seen by the program: it is carried over, by reading the object once more. The resource version ties the two
// together, the program's own or, without one, that of the object just read.
func (c *call) update() (*http.Response, error) {
	object, err := c.body()
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, c.unfaithful("there is no body")
	}
	changed, err := c.outgoing(object)
	if err != nil {
		return c.refused(err)
	}
	wanted := resourceVersion(object)
	return c.write(wanted != "", func(current map[string]any) (map[string]any, error) {
		if current != nil && wanted != "" && wanted != resourceVersion(current) {
			// The server might have that version a moment later, and what it has then was not read.
			return nil, c.conflict()
		}
		if kindOf(current) == c.answer.As && len(c.options.Kept) > 0 {
			seen, _, err := c.convert(current, c.answer.Asked)
			if err != nil {
				return nil, fmt.Errorf("%s: converting the object: %w", c.request(), err)
			}
			if c.keep(seen, object) {
				if changed, err = c.outgoing(object); err != nil {
					return nil, err
				}
			}
		}
		return c.carried(current, changed)
	})
}

// conflict is what a server says of a write of another resource version than it has.
func (c *call) conflict() error {
	return apierrors.NewConflict(c.about.groupResource(), c.about.name, errors.New("the object has been modified; "+
		"please apply your changes to the latest version and try again"))
}

// keep gives an object the annotations that a conversion wrote and that it does not have; false where it has them all.
func (c *call) keep(seen, object map[string]any) (changed bool) {
	for _, name := range c.options.Kept {
		value, found, err := unstructured.NestedString(seen, "metadata", "annotations", name)
		_, has, _ := unstructured.NestedString(object, "metadata", "annotations", name)
		if !found || err != nil || has {
			continue
		}
		// Where the metadata are no object the server says so.
		changed = unstructured.SetNestedField(object, value, "metadata", "annotations", name) == nil || changed
	}
	return changed
}

// write reads the object, lets change say what to put in its place, and puts it there; again after a conflict, unless
// the program gave the resource version. An update of what is not there is for the server to judge: change gets nil
// then.
func (c *call) write(tied bool, change func(current map[string]any) (map[string]any, error)) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		current, response, err := c.current()
		if err != nil {
			return nil, err
		}
		if response != nil {
			if c.req.Method == http.MethodPatch || response.StatusCode != http.StatusNotFound {
				return response, nil // what cannot be read is not written over
			}
			response.Body.Close()
		}
		next, err := change(current)
		if err != nil {
			return c.refused(err)
		}
		if !tied && current != nil {
			setResourceVersion(next, resourceVersion(current))
		}
		query := c.req.URL.Query()
		query.Del("force")
		response, err = c.do(c.req.Context(), http.MethodPut, c.served, query.Encode(), next)
		if err != nil {
			return nil, err
		}
		if response.StatusCode == http.StatusConflict && !tied && attempt < attempts {
			response.Body.Close()
			continue
		}
		return c.answered(response)
	}
}

// current reads what is written to, in the server's version. Whatever else the server answers comes back as a response.
func (c *call) current() (map[string]any, *http.Response, error) {
	at := c.served
	if at.subresource == "status" {
		at.subresource = ""
	}
	response, err := c.do(c.req.Context(), http.MethodGet, at, "", nil)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK {
		response, err = c.answered(response)
		return nil, response, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: reading the object: %w", c.request(), err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, nil, fmt.Errorf("%s: reading the object: %w", c.request(), err)
	}
	return object, nil, nil
}

// carried is the changed object with what the program could not see of the current one. current is nil when there is
// none. Errors: *LossError where the program changed a list of which it could not see everything.
func (c *call) carried(current, changed map[string]any) (map[string]any, error) {
	if current == nil || kindOf(current) != c.answer.As {
		return changed, nil
	}
	seen, err := Seen(c.converter, current, c.answer, c.server)
	if err != nil {
		return nil, fmt.Errorf("%s: converting the object: %w", c.request(), err)
	}
	convert.KeepUnknownAs(current, c.answer.Asked, seen)
	convert.KeepUnknownAs(current, c.answer.Asked, changed)
	merged, losses := Carry(current, seen, changed)
	return merged, c.lost(c.answer.Asked, c.answer.As, changed, losses)
}

// Carry puts changes into the object that a server has: current is that, seen what a program saw of it, in the server's
// version, and changed what the program made of what it saw. What it did not see stays. A list of which it saw only a
// part, and that it changed, is a loss.
func Carry(current, seen, changed map[string]any) (merged map[string]any, losses []convert.Loss) {
	var m carrier
	merged, _, _ = m.objects(current, seen, changed, nil)
	return merged, m.losses
}

// carrier merges three versions of an object: what is there, what of it the program saw, and what the program made of
// that.
type carrier struct{ losses []convert.Loss }

// place is where something is in an object. It becomes text where there is something to say about it alone: the text of
// each would cost the depth of the object each time.
type place struct {
	within *place
	key    string
}

func (p *place) String() string {
	var keys []string
	for ; p != nil; p = p.within {
		keys = append(keys, p.key)
	}
	slices.Reverse(keys)
	return strings.Join(keys, ".")
}

// objects also says what decides about the object that these are in: whether the program changed nothing, and whether
// it saw everything. Comparing before each merge would cost the size of what is below at each depth.
func (m *carrier) objects(current, seen, changed map[string]any, at *place) (merged map[string]any, same, whole bool) {
	merged = map[string]any{}
	same, whole = len(seen) == len(changed) && (seen == nil) == (changed == nil),
		len(seen) == len(current) && (seen == nil) == (current == nil)
	for key, value := range current {
		saw, wasSeen := seen[key]
		now, remains := changed[key]
		same, whole = same && wasSeen == remains, whole && wasSeen
		switch {
		case !wasSeen && !remains:
			merged[key] = value // never seen, so not removed
		case remains && wasSeen:
			var unchanged, shown bool
			merged[key], unchanged, shown = m.value(value, saw, now, &place{at, key})
			same, whole = same && unchanged, whole && shown
		case remains:
			merged[key] = now
		default: // removed, of which the object around asks whether all was seen
			whole = whole && reflect.DeepEqual(value, saw)
		}
	}
	for key, now := range changed {
		if _, ok := current[key]; !ok {
			saw, wasSeen := seen[key]
			unchanged := wasSeen && reflect.DeepEqual(saw, now)
			if !unchanged { // what the versions make of the absence of a field is no change to it
				merged[key] = now
			}
			same = same && unchanged
		}
	}
	return merged, same, whole
}

func (m *carrier) value(current, seen, changed any, at *place) (merged any, same, whole bool) {
	currents, ok := current.(map[string]any)
	seens, seenOK := seen.(map[string]any)
	changes, changedOK := changed.(map[string]any)
	if ok && seenOK && changedOK {
		merged, same, whole = m.objects(currents, seens, changes, at)
	} else {
		same, whole = reflect.DeepEqual(seen, changed), reflect.DeepEqual(current, seen)
		merged = changed
		if _, isList := current.([]any); isList && !same && !whole {
			m.losses = append(m.losses, convert.Loss{Path: at.String(), Value: current, Meaning: "the list was " +
				"changed, and the asked version does not show all of it"})
		}
	}
	switch {
	case same:
		return current, same, whole
	case whole:
		return changed, same, whole
	}
	return merged, same, whole
}

// patch carries out a patch by reading the object, patching it in the asked version, and writing it: as the server does
// itself.
func (c *call) patch() (*http.Response, error) {
	text, err := c.bodyText()
	if err != nil {
		return nil, err
	}
	apply, err := c.patcher(types.PatchType(c.contentType()), text)
	if err != nil {
		status := &apierrors.StatusError{}
		if errors.As(err, &status) {
			return c.status(status)
		}
		return nil, err
	}
	return c.write(false, func(current map[string]any) (map[string]any, error) {
		before, _, err := c.convert(current, c.kind())
		if err != nil {
			return nil, fmt.Errorf("%s: converting the object: %w", c.request(), err)
		}
		after, err := apply(before)
		if err != nil {
			return nil, err
		}
		c.keep(before, after)
		if version := resourceVersion(after); version != "" && version != resourceVersion(before) {
			return nil, c.conflict()
		}
		changed, err := c.outgoing(after)
		if err != nil {
			return nil, err
		}
		return c.carried(current, changed)
	})
}

// patcher is a patch as a function. Errors: those that a server answers to a patch that cannot be read or does not
// apply.
func (c *call) patcher(kind types.PatchType, text []byte) (func(map[string]any) (map[string]any, error), error) {
	return Patcher(kind, text, c.kind(), c.about.groupResource(), c.about.name)
}

// What a patch may have, and what all copies of a JSON patch together, as for API servers. Thirty copies of a thing and
// its copies are a thousand million of it.
const (
	limitOperations = 10_000
	limitCopyBytes  = 3 << 20
)

// boundCopies tells the library, which has the bound in a variable.
var boundCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = limitCopyBytes })

// Patcher is a patch as a function on objects of a kind. The resource and the name are for errors: those that a server
// answers to a patch that cannot be read or does not apply.
func Patcher(kind types.PatchType, text []byte, gvk schema.GroupVersionKind, resource schema.GroupResource,
	name string) (
	func(map[string]any) (map[string]any, error), error) {
	unprocessable := func(err error) error {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, name,
			err.Error(), 0,
			false)
	}
	unsupported := func(message string) error {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", resource, name, message, 0,
			false)
	}
	onText := func(bound func(object map[string]any, before []byte) error,
		apply func([]byte) ([]byte, error)) func(map[string]any) (map[string]any, error) {
		return func(object map[string]any) (map[string]any, error) {
			before, err := json.Marshal(object)
			if err == nil {
				err = bound(object, before)
			}
			if err != nil {
				return nil, err
			}
			after, err := apply(before)
			if err != nil {
				return nil, unprocessable(err)
			}
			var patched map[string]any
			if err := utiljson.Unmarshal(after, &patched); err != nil {
				return nil, unprocessable(err)
			}
			return patched, nil
		}
	}
	switch kind {
	case types.JSONPatchType:
		boundCopies()
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(patch) > limitOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch has %d operations, more than %d",
				len(patch), limitOperations))
		}
		return onText(func(_ map[string]any, before []byte) error {
			return cmp.Or(boundNested(text, before), boundShifted(len(patch), text, before))
		}, patch.Apply), nil
	case types.MergePatchType:
		if !json.Valid(text) {
			return nil, apierrors.NewBadRequest("the patch is not JSON")
		}
		return onText(func(_ map[string]any, before []byte) error { return boundNested(text, before) },
			func(before []byte) ([]byte, error) { return jsonpatch.MergePatch(before, text) }), nil
	case types.StrategicMergePatchType:
		if n := bytes.Count(text, []byte("{")); n > limitOperations { // each is looked for among those before it
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch has %d objects, more than %d", n,
				limitOperations))
		}
		shape, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, unsupported(
				fmt.Sprintf("strategic merge patch: the fields of %s are not known here; send a merge patch", gvk))
		}
		meta, err := strategicpatch.NewPatchMetaFromStruct(shape)
		if err != nil {
			return nil, unsupported(err.Error())
		}
		return onText(func(object map[string]any, _ []byte) error {
			var changes map[string]any
			if utiljson.Unmarshal(text, &changes) != nil {
				return nil // the library says what is wrong
			}
			return boundSought(meta, changes, object)
		}, func(before []byte) ([]byte, error) {
			return strategicpatch.StrategicMergePatch(before, text, shape)
		}), nil
	default:
		return nil, unsupported(fmt.Sprintf("%q is no patch that converts", kind))
	}
}

// remove deletes an object or a collection.
func (c *call) remove() (*http.Response, error) {
	options, err := c.body()
	if err != nil {
		return nil, err
	}
	query := c.req.URL.Query()
	if options == nil {
		if options, err = OptionsOfDeletion(query, c.about.name == ""); err != nil {
			return c.status(apierrors.NewBadRequest(err.Error()))
		}
	}
	if err := c.deletable(options); err != nil {
		return nil, err
	}
	options["apiVersion"], options["kind"] = "v1", "DeleteOptions"
	c.keepPropagation(options)
	response, err := c.do(c.req.Context(), http.MethodDelete, c.served, query.Encode(), options)
	if err != nil {
		return nil, err
	}
	return c.answered(response)
}

// OptionsOfDeletion takes the options of a deletion out of a query. API servers read them there when the request has no
// body, and do not when it has one; those before 1.12 do not of a collection at all. A resource version is one of them
// for an object, and that of the list for a collection.
func OptionsOfDeletion(query url.Values, collection bool) (map[string]any, error) {
	from := maps.Clone(query)
	if collection {
		from.Del("resourceVersion")
	} else {
		query.Del("resourceVersion")
	}
	var read metav1.DeleteOptions
	if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&from, &read, nil); err != nil {
		return nil, err
	}
	options, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&read)
	if err != nil {
		return nil, err
	}
	for name := range options {
		query.Del(name)
	}
	query.Del("uid") // a precondition
	return options, nil
}

// deletable refuses delete options that the server does not know: without them it would delete more, or more than once
// was asked.
func (c *call) deletable(options map[string]any) error {
	options = runtime.DeepCopyJSON(options)
	options["kind"], options["apiVersion"] = "DeleteOptions", "meta.k8s.io/v1"
	for _, loss := range knownFields.unknown(options,
		schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "DeleteOptions"}, c.server) {
		return c.unfaithful("%s: %s", loss.Path, loss.Meaning)
	}
	return nil
}

// orphaning are the kinds whose dependents stay when a deletion does not say what becomes of them. In other versions of
// these kinds they are deleted.
var orphaning = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1beta1", Kind: "Deployment"}, {Group: "apps", Version: "v1beta1", Kind: "StatefulSet"},
	{Group: "apps", Version: "v1beta2", Kind: "DaemonSet"}, {Group: "apps", Version: "v1beta2", Kind: "Deployment"},
	{Group: "apps", Version: "v1beta2", Kind: "ReplicaSet"}, {Group: "apps", Version: "v1beta2", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1beta1", Kind: "CronJob"}, {Group: "batch", Version: "v2alpha1", Kind: "CronJob"},
	{Group: "extensions", Version: "v1beta1", Kind: "DaemonSet"},
	{Group: "extensions", Version: "v1beta1", Kind: "Deployment"},
	{Group: "extensions", Version: "v1beta1", Kind: "ReplicaSet"},
}

// keepPropagation says for the program what the asked version means by saying nothing, where the server's version means
// something else.
func (c *call) keepPropagation(options map[string]any) {
	for _, name := range []string{"propagationPolicy", "orphanDependents"} {
		if options[name] != nil {
			return
		}
	}
	if policy := Propagation(c.answer); policy != "" {
		options["propagationPolicy"] = string(policy)
	}
}

// Propagation is what the asked version means by saying nothing of what becomes of dependents, where the server's
// version means something else; "" where both mean the same.
func Propagation(answer negotiate.Answer) metav1.DeletionPropagation {
	switch asked, as := slices.Contains(orphaning, answer.Asked), slices.Contains(orphaning, answer.As); {
	case asked && !as:
		return metav1.DeletePropagationOrphan
	case as && !asked:
		return metav1.DeletePropagationBackground
	}
	return ""
}

// resourceVersion is that of an object; "" for none, and for 0, which to API servers is none in a write.
func resourceVersion(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	if version == "0" {
		return ""
	}
	return version
}

func setResourceVersion(object map[string]any, version string) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata["resourceVersion"] = version
	}
}

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// apply carries out a server-side apply. The server merges it, in its own version: what the program says of the object
// is converted, and nothing is added that the manager would own then, but for what the server's version requires and
// the asked one defaults. Entries of managedFields stay as the server has them, each in the version that it names:
// paths of one version are no paths of another.
func (c *call) apply() (*http.Response, error) {
	part, err := c.part()
	if err != nil {
		status := &apierrors.StatusError{}
		if errors.As(err, &status) {
			return c.status(status)
		}
		return nil, err
	}
	out, response, err := c.outgoingPart(part)
	if response != nil || err != nil {
		return response, err
	}
	response, err = c.doAs(c.req.Context(), http.MethodPatch, c.served, c.req.URL.RawQuery,
		string(types.ApplyYAMLPatchType), out)
	if err != nil {
		return nil, err
	}
	return c.answered(response)
}

// part reads what is applied. Errors: those of an API server that cannot read it, or gets one of another kind.
func (c *call) part() (map[string]any, error) {
	text, err := c.bodyText()
	if err != nil {
		return nil, err
	}
	var part map[string]any
	switch {
	case c.contentType() == string(types.ApplyCBORPatchType):
		err = direct.Unmarshal(text, &part)
	case json.Valid(text):
		err = utiljson.Unmarshal(text, &part)
	default:
		if err = yamltext.BoundAliases(text); err == nil {
			text, err = yaml.YAMLToJSONStrict(text)
		}
		if err == nil {
			err = utiljson.Unmarshal(text, &part)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the apply patch: %v", err))
	}
	if want, got := c.kind(), kindOf(part); got != want {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the apply patch is of %s %q, want %s %q",
			got.GroupVersion(), got.Kind, want.GroupVersion(), want.Kind))
	}
	return part, nil
}

// kind is that of what is read and written at the place that the request names.
func (c *call) kind() schema.GroupVersionKind {
	if c.about.subresource == "scale" {
		return kubever.ScaleKind(c.about.GroupVersion)
	}
	return c.answer.Asked
}

// outgoingPart converts what is applied. The response is what the server answers where the object has to be read, and
// cannot be. Errors: *LossError, *UnfaithfulError for what cannot be said of a part of an object.
func (c *call) outgoingPart(part map[string]any) (map[string]any, *http.Response, error) {
	from, to := c.kind(), c.answer.As
	if c.about.subresource == "scale" {
		to = c.servedScale()
	}
	var refused *http.Response
	p := &Part{Converter: c.converter, Server: c.server, Request: c.request(), To: to, Subresource: c.about.subresource,
		Manager: c.req.URL.Query().Get("fieldManager"), Current: func() (map[string]any, error) {
			current, response, err := c.current()
			if response == nil {
				return current, err
			}
			switch response.StatusCode {
			case http.StatusNotFound:
				response.Body.Close()
				return nil, nil
			case http.StatusForbidden:
				response.Body.Close()
				return nil, ErrUnreadable
			}
			refused = response
			return nil, errRefused
		}}
	out, losses, err := p.Convert(part)
	if refused != nil {
		return nil, refused, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return out, nil, c.lost(from, to, part, losses)
}

var errRefused = errors.New("the object cannot be read")

// ErrUnreadable is for Part.Current of an object that may not be read, and may be there or not.
var ErrUnreadable = errors.New("the object may not be read")

// Part says how what a program applies by server-side apply becomes what the server merges, which has the kind in
// another version.
type Part struct {
	Converter *convert.Converter
	Server    *negotiate.Server
	Request   string // for errors: PATCH deployments.apps/v1
	To        schema.GroupVersionKind
	// Manager and Subresource are those of the request.
	Manager, Subresource string
	// Current reads the object as the server has it. Nil without an error where there is none. ErrUnreadable where it
	// may not be read: it may be there, and an apply may create it.
	Current func() (map[string]any, error)
}

// Convert converts what is applied, which is the result's from then on. Losses are for the caller to judge.
// Errors: *UnfaithfulError for what cannot be said of a part of an object; those of Current.
func (p *Part) Convert(part map[string]any) (out map[string]any, losses []convert.Loss, err error) {
	conversion, err := p.Converter.Begin(&unstructured.Unstructured{Object: part}, p.To)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.Request, err)
	}
	conversion.Own()
	out = conversion.Out.Object
	implied, err := p.fieldByField(part, out)
	if err != nil {
		return nil, nil, err
	}
	if p.Subresource == "" {
		// What is left is what the author of the object must say, or says in another part of it.
		written, _, err := conversion.KeepDefaults(p.Server.Minor)
		if err != nil {
			return nil, nil, err
		}
		implied = append(implied, written...)
	}
	if err := p.imply(out, implied); err != nil {
		return nil, nil, err
	}
	return out, append(conversion.Losses, knownFields.unknown(out, p.To, p.Server)...), nil
}

func (p *Part) unfaithful(format string, args ...any) error {
	return &UnfaithfulError{Request: p.Request, Server: p.Server.Name, Reason: fmt.Sprintf(format, args...)}
}

// imply leaves in what is applied the fields that the program does not say, and that the asked version implies or the
// server's requires, where the object is to be created, or the element of a list. The manager owns them then, so that
// of an object that is there they stay as they are: with the manager that owns them, and out of what is applied
// otherwise. Where it is not known whether the object is there only what the server's version requires is left, without
// which it could not be created.
func (p *Part) imply(out map[string]any, implied [][]any) error {
	if len(implied) == 0 {
		return nil
	}
	current, err := p.Current()
	unread := errors.Is(err, ErrUnreadable)
	if !unread && (current == nil || err != nil) {
		return err
	}
	var lists strategicpatch.LookupPatchMeta
	if typed, err := scheme.Scheme.New(p.To); err == nil {
		if of, err := strategicpatch.NewPatchMetaFromStruct(typed); err == nil {
			lists = of
		}
	}
	owned := p.owned(current)
	for _, at := range implied {
		if unread && p.Converter.Requires(p.To, at, p.Server.Minor) {
			continue
		}
		if err := p.withdraw(beside{out, current, owned, lists, unread}, at); err != nil {
			return err
		}
	}
	return nil
}

// beside is a part of what is applied beside that of the object that the server has, and what the manager owns of it.
type beside struct {
	out, current, owned map[string]any

	lists  strategicpatch.LookupPatchMeta // which lists are merged, element by element; nil for none
	unread bool                           // what the server has is not known
}

// withdraw takes an implied field out of what is applied, or puts what the manager owns in its place. What is in a list
// that is applied as a whole stays, and what is in an element that is to be added.
func (p *Part) withdraw(b beside, at []any) error {
	names, rest := namesOf(at)
	if len(rest) == 0 {
		removeWithin(b.out, names)
		value, found := lookUp(b.current, names)
		if _, owns := lookUp(b.owned, fieldsOf(names)); !owns || !found {
			return nil
		}
		if err := unstructured.SetNestedField(b.out, runtime.DeepCopyJSONValue(value), names...); err != nil {
			return fmt.Errorf("%s: %w", p.Request, err)
		}
		return nil
	}
	key, inner := mergedBy(b.lists, names)
	list, _ := lookUp(b.out, names)
	elements, _ := list.([]any)
	index, _ := rest[0].(int)
	if key == "" || index >= len(elements) {
		return nil
	}
	element, _ := elements[index].(map[string]any)
	within := beside{out: element, lists: inner, unread: b.unread}
	if element == nil {
		return nil
	}
	if !b.unread {
		there, _ := lookUp(b.current, names)
		if within.current = elementBy(there, key, element[key]); within.current == nil {
			return nil
		}
		owned, _ := lookUp(b.owned, fieldsOf(names))
		within.owned = ownedBy(owned, key, element[key])
	}
	return p.withdraw(within, rest[1:])
}

// namesOf are the names of a path before the first index, and the rest.
func namesOf(at []any) (names []string, rest []any) {
	for i, step := range at {
		name, ok := step.(string)
		if !ok {
			return names, at[i:]
		}
		names = append(names, name)
	}
	return names, nil
}

// mergedBy is the key by which server-side apply merges the elements of a list, and what is known of those; "" for a
// list that is applied as a whole.
func mergedBy(lists strategicpatch.LookupPatchMeta, names []string) (string, strategicpatch.LookupPatchMeta) {
	for i, name := range names {
		if lists == nil {
			return "", nil
		}
		if i == len(names)-1 {
			inner, list, err := lists.LookupPatchMetadataForSlice(name)
			if err != nil || !slices.Contains(list.GetPatchStrategies(), "merge") {
				return "", nil
			}
			return list.GetPatchMergeKey(), inner
		}
		inner, _, err := lists.LookupPatchMetadataForStruct(name)
		if err != nil {
			return "", nil
		}
		lists = inner
	}
	return "", nil
}

// elementBy is the element of a list with a value of its key; nil for none.
func elementBy(list any, key string, value any) map[string]any {
	elements, _ := list.([]any)
	for _, element := range elements {
		if fields, ok := element.(map[string]any); ok && reflect.DeepEqual(fields[key], value) {
			return fields
		}
	}
	return nil
}

// ownedBy is what managedFields say of such an element.
func ownedBy(list any, key string, value any) map[string]any {
	elements, _ := list.(map[string]any)
	for name, fields := range elements {
		text, ok := strings.CutPrefix(name, "k:")
		var keys map[string]any
		if !ok || utiljson.Unmarshal([]byte(text), &keys) != nil || !reflect.DeepEqual(keys[key], value) {
			continue
		}
		owned, _ := fields.(map[string]any)
		return owned
	}
	return nil
}

// removeWithin removes a field, and the objects around it that have nothing else.
func removeWithin(object map[string]any, at []string) {
	for ; len(at) > 0; at = at[:len(at)-1] {
		unstructured.RemoveNestedField(object, at...)
		around, found := lookUp(object, at[:len(at)-1])
		if fields, _ := around.(map[string]any); !found || len(fields) > 0 {
			return
		}
	}
}

// owned are the fields of an object that the manager of the request applied, in the form of managedFields.
func (p *Part) owned(object map[string]any) map[string]any {
	for _, entry := range (&unstructured.Unstructured{Object: object}).GetManagedFields() {
		if entry.Manager != p.Manager || entry.Operation != metav1.ManagedFieldsOperationApply ||
			entry.Subresource != p.Subresource || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.Raw, &fields) == nil {
			return fields
		}
	}
	return nil
}

// fieldsOf are the names of fields in managedFields.
func fieldsOf(path []string) []string {
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = "f:" + name
	}
	return names
}

// limitMoved bounds the fields of an apply patch that are elsewhere, or something else, in the server's version.
const limitMoved = 1000

// fieldByField refuses a part of an object of which a field becomes something else alone than together with the others,
// or of which something follows that no field says: server-side apply merges field by field, and the manager would own
// what it did not say. Empty values that Go writes of its own accord are taken out. implied is where the asked version
// says something by saying nothing.
func (p *Part) fieldByField(part, out map[string]any) (implied [][]any, err error) {
	before, after := map[string]field{}, map[string]field{}
	if names := limitNames; !fieldsIn(part, nil, before, &names) || !fieldsIn(out, nil, after, &names) {
		return nil, p.unfaithful("server-side apply: the paths of all fields have more than %d names", limitNames)
	}
	gone, come := apart(before, after), apart(after, before)
	if len(gone)+len(come) == 0 {
		return nil, nil
	}
	if len(gone) > limitMoved {
		return nil, p.unfaithful("server-side apply: %d fields, more than %d, are not in their places in %s", len(gone),
			limitMoved, p.To.GroupVersion())
	}
	becomes := func(at []string, value any) (map[string]field, error) {
		alone := map[string]any{"apiVersion": part["apiVersion"], "kind": part["kind"]}
		if len(at) > 0 {
			if err := unstructured.SetNestedField(alone, runtime.DeepCopyJSONValue(value), at...); err != nil {
				return nil, err
			}
		}
		converted, _, err := p.Converter.Convert(&unstructured.Unstructured{Object: alone}, p.To)
		fields, names := map[string]field{}, limitNames
		if err == nil && !fieldsIn(converted.Object, nil, fields, &names) {
			err = fmt.Errorf("more than %d names", limitNames)
		}
		return fields, err
	}
	nothing, err := becomes(nil, nil)
	if err != nil { // then nothing follows from it
		nothing = nil
	}
	emptied := false
	explained := map[string]bool{}
	for _, key := range gone {
		f := before[key]
		emptied = emptied || f.empty()
		fields, err := becomes(f.at, f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Request, f, err)
		}
		for key, now := range fields {
			if now.empty() || now.in(nothing, key) {
				explained[key] = explained[key] || now.empty()
				continue
			}
			if !now.in(after, key) {
				return nil, p.unmerged(now, f)
			}
			explained[key] = true
		}
		if f.value == nil && len(fields) == 0 {
			return nil, p.unfaithful("server-side apply: null of %s is not converted to %s", f, p.To.GroupVersion())
		}
	}
	for _, key := range come {
		switch f := after[key]; {
		case f.empty() && !emptied:
			unstructured.RemoveNestedField(out, f.at...)
		case explained[key] && !f.keeps():
		case !explained[key] && f.in(nothing, key):
			at := make([]any, len(f.at))
			for i, name := range f.at {
				at[i] = name
			}
			implied = append(implied, at)
		default:
			return nil, p.unmerged(f, field{at: []string{"the apply patch"}})
		}
	}
	return implied, nil
}

// unmerged is the error for what a field becomes that is not merged as the field is.
func (p *Part) unmerged(now, was field) error {
	if now.keeps() { // all that several managers say would be in it, and one of them owns it
		return p.unfaithful("server-side apply: %s has no field for all of it, and what %s keeps is not merged; "+
			"update the object, or send a merge patch", p.To.GroupVersion(), now)
	}
	return p.unfaithful("server-side apply: of %s, %s of %s is not converted field by field; update the object, "+
		"or send a merge patch", was, now, p.To.GroupVersion())
}

// field is what an object says at a path of names: a value that is no object, or an empty one.
type field struct {
	at    []string
	value any
}

func (f field) String() string { return strings.Join(f.at, ".") }

// in reports whether there are the same.
func (f field) in(fields map[string]field, key string) bool {
	other, ok := fields[key]
	return ok && reflect.DeepEqual(other.value, f.value)
}

// keeps reports whether the field is an annotation that a conversion keeps several fields in.
func (f field) keeps() bool {
	text, _ := f.value.(string)
	return len(f.at) == 3 && f.at[0] == "metadata" && f.at[1] == "annotations" &&
		(strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["))
}

func (f field) empty() bool {
	switch value := f.value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case bool:
		return !value
	case int64:
		return value == 0
	case float64:
		return value == 0
	case map[string]any:
		return true
	case []any:
		return len(value) == 0
	}
	return false
}

// limitNames bounds the names in the paths of all fields: a hundred thousand fields that are nested in ten thousand
// objects have a thousand million.
const limitNames = 1 << 20

// fieldsIn collects the fields of an object but those that name its kind; false when their paths have more names than
// are left.
func fieldsIn(object map[string]any, at []string, into map[string]field, left *int) bool {
	for name, value := range object {
		if len(at) == 0 && (name == "apiVersion" || name == "kind") {
			continue
		}
		if *left -= len(at) + 1; *left < 0 {
			return false
		}
		here := append(slices.Clone(at), name)
		if inner, ok := value.(map[string]any); !ok || len(inner) == 0 {
			into[strings.Join(here, "\x00")] = field{here, value}
		} else if !fieldsIn(inner, here, into, left) {
			return false
		}
	}
	return true
}

// apart lists the fields that the others do not have, or have with another value.
func apart(fields, others map[string]field) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !fields[key].in(others, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// lookUp finds what is at a path of names.
func lookUp(object map[string]any, at []string) (any, bool) {
	value, found, err := unstructured.NestedFieldNoCopy(object, at...)
	return value, found && err == nil
}

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

const (
	// answerWithin bounds a request about one object, and each silence of an answer. A server that takes longer counts
	// as unreachable.
	answerWithin = 20 * time.Second
	// listWithin bounds the lists that decide about something.
	listWithin = 5 * time.Minute
	// attempts of a request with a transient error; the queues retry later.
	attempts = 2
)

// client is one side's API server, of any version. It keeps metadata only, and of a list that a server sends whole it
// holds one object at a time. Safe for concurrent use.
type client struct {
	side      pair.Side
	server    *apiserver.Server
	limitHeld held
}

func newClient(side pair.Side, config *rest.Config, qps float32) (*client, error) {
	server, err := apiserver.New(config, apiserver.Options{
		Timeout: answerWithin, Attempts: attempts, QPS: qps, UserAgent: "fusionctl-controllers",
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the %s side: %w", side, err)
	}
	return &client{side: side, server: server, limitHeld: limitHeldBytes}, nil
}

// get reads an object's metadata from the store, not from a cache: no resource version is given.
// Errors: discovery.ErrNotFound when, and only when, the API server itself returns that there is no such object.
func (c *client) get(ctx context.Context, r resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	text, err := c.server.ReadMetadata(ctx, r.object(namespace, name))
	var object *metav1.PartialObjectMetadata
	if err == nil {
		object, err = decodeObject(text)
	}
	if err != nil {
		return nil, c.failed("reading", r, namespace, name, err)
	}
	return object, nil
}

// failed wraps an error of a request about one object.
func (c *client) failed(doing string, r resource, namespace, name string, err error) error {
	return fmt.Errorf("%s %s on the %s side: %w", doing, r.describe(namespace, name), c.side, err)
}

// list reads one page of a resource's objects for a watch that is to follow, in all namespaces.
func (c *client) list(ctx context.Context, of collection, options metav1.ListOptions, before held) (
	*metav1.PartialObjectMetadataList, held, error) {
	o := discovery.ListOptions{
		Metadata: of.fields == "", FieldSelector: of.fields, Limit: int(options.Limit), Continue: options.Continue,
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: string(options.ResourceVersionMatch),
	}
	if o.Limit == 0 {
		o.Limit = -1 // as it says
	}
	list, all := &metav1.PartialObjectMetadataList{}, before
	meta, err := c.server.ReadPage(ctx, of.collection(""), o, func() {
		list.Items, all = nil, before
	}, func(text []byte) error {
		item, err := of.decode(text)
		if err == nil {
			list.Items = append(list.Items, *item)
			err = all.add(item, c.limitHeld)
		}
		return err
	})
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("it has no resource version")
	}
	if err != nil {
		return nil, all, fmt.Errorf("listing %s on the %s side: %w", of.resource, c.side, err)
	}
	list.ListMeta = meta
	return list, all, nil
}

// limitHeldBytes bounds what is held of one list: the metadata of a million objects. An extension API server may send a
// list that does not end, and it is trusted with its own group alone.
const limitHeldBytes = 512 << 20

// held is how many bytes are held of a list.
type held int

// add counts an object.
// Errors: there are more than the process can hold.
func (h *held) add(o *metav1.PartialObjectMetadata, limit held) error {
	const each = 400 // the object itself
	*h += held(each + len(o.Name) + len(o.Namespace) + len(o.UID) + len(o.ResourceVersion))
	for _, finalizer := range o.Finalizers {
		*h += held(16 + len(finalizer))
	}
	for i := range o.OwnerReferences {
		ref := &o.OwnerReferences[i]
		*h += held(80 + len(ref.APIVersion) + len(ref.Kind) + len(ref.Name) + len(ref.UID))
	}
	if *h > limit {
		return fmt.Errorf("the list has more than %d MiB of metadata", limit>>20)
	}
	return nil
}

// collection is what a reflector lists and watches.
type collection struct {
	resource
	fields string // selects some of its objects; "" for all
	decode func([]byte) (*metav1.PartialObjectMetadata, error)
}

// listAll reads every page of a list from the store.
func (c *client) listAll(ctx context.Context, r resource, namespace string) ([]metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	var items []metav1.PartialObjectMetadata
	var all held
	for text, err := range c.server.List(ctx, r.collection(namespace),
		discovery.ListOptions{Metadata: true, Consistent: true}) {
		var item *metav1.PartialObjectMetadata
		if err == nil {
			item, err = decodeObject(text)
		}
		if err == nil {
			err = all.add(item, c.limitHeld)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s on the %s side: %w", r, c.side, err)
		}
		items = append(items, *item)
	}
	return items, nil
}

// watch follows a resource's objects in all namespaces.
func (c *client) watch(ctx context.Context, of collection, options metav1.ListOptions) (watch.Interface, error) {
	o := apiserver.WatchOptions{
		Metadata: of.fields == "", FieldSelector: of.fields, ResourceVersion: options.ResourceVersion,
		Bookmarks: options.AllowWatchBookmarks,
	}
	if options.TimeoutSeconds != nil {
		o.Within = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	events, err := c.server.Watch(ctx, of.collection(""), o)
	if err != nil {
		return nil, err // unwrapped: the reflector branches on the error
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "decoding")
	return watch.NewStreamWatcher(&eventDecoder{events, of.decode}, reporter), nil
}

// delete deletes exactly this object in exactly this state; API servers before 1.14 check the UID alone.
func (c *client) delete(ctx context.Context, r resource, o *metav1.PartialObjectMetadata,
	policy metav1.DeletionPropagation) error {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions:     &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
		PropagationPolicy: &policy,
	})
	if err != nil {
		return err
	}
	_, err = c.send(ctx, apiserver.Write{Verb: http.MethodDelete, Path: r.object(o.Namespace, o.Name), Body: body,
		Repeatable: true})
	if err != nil {
		return c.failed("deleting", r, o.Namespace, o.Name, err)
	}
	return nil
}

// patchMetadata sets fields of an object's metadata, if the object is still exactly what was read.
func (c *client) patchMetadata(ctx context.Context, r resource, o *metav1.PartialObjectMetadata,
	fields map[string]any) error {
	metadata := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	for name, value := range fields {
		metadata[name] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = c.send(ctx, apiserver.Write{
		Verb: http.MethodPatch, Path: r.object(o.Namespace, o.Name), ContentType: string(types.MergePatchType),
		Body: body, Repeatable: true,
	})
	if err != nil {
		return c.failed("changing", r, o.Namespace, o.Name, err)
	}
	return nil
}

func (c *client) send(ctx context.Context, w apiserver.Write) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return c.server.Send(ctx, w)
}

// read and write are for whole objects, of which no field may be lost.
func (c *client) read(ctx context.Context, at discovery.Path) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	text, err := c.server.Read(ctx, at)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, utiljson.Unmarshal(text, &object)
}

func (c *client) write(ctx context.Context, verb string, at discovery.Path, object any) error {
	_, err := c.exchange(ctx, verb, at, object)
	return err
}

// exchange writes an object and returns it as the API server stored it.
func (c *client) exchange(ctx context.Context, verb string, at discovery.Path, object any) (map[string]any, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err := c.send(ctx, apiserver.Write{Verb: verb, Path: at, Body: body})
	if err != nil {
		return nil, err
	}
	var made map[string]any
	return made, utiljson.Unmarshal(text, &made)
}

// wireObject is what is read of any object.
type wireObject struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		UID               types.UID               `json:"uid"`
		ResourceVersion   string                  `json:"resourceVersion"`
		CreationTimestamp metav1.Time             `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
		Finalizers        []string                `json:"finalizers"`
	} `json:"metadata"`
}

// decodeObject reads names as servers do, with regard to case: a custom resource may have a field "Metadata" beside its
// metadata. Errors: an object without a UID, or with a name that no request can be about.
func decodeObject(text []byte) (*metav1.PartialObjectMetadata, error) {
	o, err := decodeMetadata(text)
	switch {
	case err != nil:
		return nil, err
	case o.UID == "" || o.Name == "":
		return nil, errors.New("reading an object's metadata: it has no name or no UID")
	case len(content.IsPathSegmentName(o.Name)) > 0 || len(content.IsPathSegmentName(o.Namespace)) > 0:
		return nil, fmt.Errorf("reading an object's metadata: no object has the name %q in namespace %q", o.Name,
			o.Namespace)
	}
	return o, nil
}

func decodeMetadata(text []byte) (*metav1.PartialObjectMetadata, error) {
	var wire wireObject
	if err := utiljson.Unmarshal(text, &wire); err != nil {
		return nil, fmt.Errorf("reading an object's metadata: %w", err)
	}
	m := wire.Metadata
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		OwnerReferences: m.OwnerReferences,
		Finalizers:      m.Finalizers,
	}}, nil
}

// eventDecoder reads the events of a watch.
type eventDecoder struct {
	events *apiserver.Events
	decode func([]byte) (*metav1.PartialObjectMetadata, error)
}

func (d *eventDecoder) Close() { d.events.Close() }

func (d *eventDecoder) Decode() (watch.EventType, runtime.Object, error) {
	event, err := d.events.Next()
	if err != nil {
		return "", nil, err
	}
	switch kind := watch.EventType(event.Type); kind {
	case watch.Error:
		status := &metav1.Status{}
		err := utiljson.Unmarshal(event.Object, status)
		return kind, status, err
	case watch.Bookmark: // it has a resource version and no name
		object, err := decodeMetadata(event.Object)
		return kind, object, err
	default:
		object, err := d.decode(event.Object)
		return kind, object, err
	}
}

// api is the resource as requests need it.
func (r resource) api() discovery.Resource {
	return discovery.Resource{GroupVersion: r.GroupVersion(), Name: r.Resource, Kind: r.kind, Namespaced: r.namespaced}
}

// collection is the path of the resource's objects in a namespace, or with "" of all.
func (r resource) collection(namespace string) discovery.Path { return r.api().Objects(namespace) }

// object is the path of one of them.
func (r resource) object(namespace, name string, subresource ...string) discovery.Path {
	return r.api().Object(namespace, name, subresource...)
}

// describe names one object of the resource for messages.
func (r resource) describe(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", r, name)
}

// String is the resource as access rules name it: deployments.apps.
func (r resource) String() string { return r.GroupResource().String() }

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/rawapi"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// accepts is what one kind of request accepts.
type accepts struct {
	metadata string
	plain    atomic.Bool // the server has refused the metadata form
}

// ask sends a request and, when the server refuses its form, sends it again in plain words.
func (a *accepts) ask(send func(accept string) error) error {
	if !a.plain.Load() {
		err := send(a.metadata)
		if !apierrors.IsNotAcceptable(err) {
			return err
		}
		a.plain.Store(true)
	}
	return send(runtime.ContentTypeJSON)
}

// answerWithin bounds a request about one object. A server that takes longer counts as one that could not be asked.
const answerWithin = 20 * time.Second

// client speaks JSON to one side's API server, of any version. It keeps metadata only, and of a list that a server sends whole it holds one
// object at a time: client-go's own metadata client reads such a list into memory first.
// Safe for concurrent use.
type client struct {
	side      pair.Side
	rest      rest.Interface
	discovery discovery.DiscoveryInterface

	gets, lists, watches accepts
}

func newClient(side pair.Side, config *rest.Config) (*client, error) {
	restClient, err := rawapi.Connect(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the %s side: %w", side, err)
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.Timeout = answerWithin
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the %s side: %w", side, err)
	}
	c := &client{side: side, rest: restClient, discovery: discoveryClient}
	c.gets.metadata, c.lists.metadata, c.watches.metadata = rawapi.AcceptMetadata, rawapi.AcceptMetadataList, rawapi.AcceptMetadata
	return c, nil
}

// version is the server's own, as /version says.
func (c *client) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, err := rawapi.Answer(c.rest.Get().AbsPath("/version").Do(ctx))
	if err != nil {
		return "", fmt.Errorf("asking the %s side for its version: %w", c.side, err)
	}
	var info struct{ GitVersion string }
	if err := json.Unmarshal(data, &info); err != nil || info.GitVersion == "" {
		return "", fmt.Errorf("asking the %s side for its version: no gitVersion in the answer", c.side)
	}
	return info.GitVersion, nil
}

// get reads an object's metadata from the store, not from a cache: no resource version is given.
// Errors: errAbsent when, and only when, the server itself says that there is no such object.
func (c *client) get(ctx context.Context, r resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var data []byte
	err := c.gets.ask(func(accept string) (err error) {
		data, err = rawapi.Answer(c.rest.Get().AbsPath(r.path(namespace, name)).SetHeader("Accept", accept).Do(ctx))
		return err
	})
	if err != nil {
		return nil, c.said("reading", r, namespace, name, err)
	}
	object, err := decodeObject(data)
	if err == nil && (object.UID == "" || object.Name != name) {
		err = errors.New("the answer is not this object")
	}
	if err != nil {
		return nil, c.said("reading", r, namespace, name, err)
	}
	return object, nil
}

// errAbsent is what a server says of an object that it does not have.
var errAbsent = errors.New("there is no such object")

// said words an error of a request about one object.
func (c *client) said(doing string, r resource, namespace, name string, err error) error {
	if rawapi.Absent(err, name) {
		err = errAbsent
	}
	return fmt.Errorf("%s %s on the %s side: %w", doing, r.object(namespace, name), c.side, err)
}

// list reads the metadata of a resource's objects, in one namespace or, with "", in all.
func (c *client) list(ctx context.Context, r resource, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	var body io.ReadCloser
	err := c.lists.ask(func(accept string) (err error) {
		body, err = withOptions(c.rest.Get().AbsPath(r.path(namespace)).SetHeader("Accept", accept), options).Stream(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s on the %s side: %w", r, c.side, err)
	}
	defer body.Close()
	list, err := decodeList(body)
	if err != nil {
		return nil, fmt.Errorf("listing %s on the %s side: %w", r, c.side, err)
	}
	return list, nil
}

// listAll reads every page of a list from the store.
func (c *client) listAll(ctx context.Context, r resource, namespace string) ([]metav1.PartialObjectMetadata, error) {
	var items []metav1.PartialObjectMetadata
	for options := (metav1.ListOptions{Limit: 500}); ; {
		list, err := c.list(ctx, r, namespace, options)
		if err != nil {
			return nil, err
		}
		items = append(items, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return items, nil
		}
	}
}

func withOptions(request *rest.Request, o metav1.ListOptions) *rest.Request {
	set := func(name, value string) {
		if value != "" {
			request.Param(name, value)
		}
	}
	set("resourceVersion", o.ResourceVersion)
	set("resourceVersionMatch", string(o.ResourceVersionMatch))
	set("continue", o.Continue)
	if o.Limit > 0 {
		set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.AllowWatchBookmarks {
		set("allowWatchBookmarks", "true")
	}
	if o.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	return request
}

// watch follows a resource's objects in all namespaces.
func (c *client) watch(ctx context.Context, r resource, options metav1.ListOptions) (watch.Interface, error) {
	var body io.ReadCloser
	err := c.watches.ask(func(accept string) (err error) {
		body, err = withOptions(c.rest.Get().AbsPath(r.path("")).SetHeader("Accept", accept).Param("watch", "true"), options).Stream(ctx)
		return err
	})
	if err != nil {
		return nil, err // unwrapped: the reflector asks what kind of error it is
	}
	return watch.NewStreamWatcher(&eventDecoder{body: body, json: json.NewDecoder(body), decode: decodeObject}, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "decoding")), nil
}

// delete asks for the deletion of exactly this object in exactly this state; servers before 1.14 look at the UID alone.
func (c *client) delete(ctx context.Context, r resource, o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions:     &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
		PropagationPolicy: &policy,
	})
	if err != nil {
		return err
	}
	err = c.rest.Delete().AbsPath(r.path(o.Namespace, o.Name)).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	if err != nil {
		return c.said("deleting", r, o.Namespace, o.Name, err)
	}
	return nil
}

// patchMetadata sets fields of an object's metadata, if the object is still exactly what was read.
func (c *client) patchMetadata(ctx context.Context, r resource, o *metav1.PartialObjectMetadata, fields map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	metadata := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	for name, value := range fields {
		metadata[name] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	err = c.rest.Patch(types.MergePatchType).AbsPath(r.path(o.Namespace, o.Name)).Body(body).Do(ctx).Error()
	if err != nil {
		return c.said("changing", r, o.Namespace, o.Name, err)
	}
	return nil
}

// read and write are for whole objects, of which no field may be lost.
func (c *client) read(ctx context.Context, url string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, err := rawapi.Answer(c.rest.Get().AbsPath(url).Do(ctx))
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, utiljson.Unmarshal(data, &object)
}

func (c *client) write(ctx context.Context, verb, url string, object any) error {
	_, err := c.exchange(ctx, verb, url, object)
	return err
}

// exchange writes an object and returns what the server made of it.
func (c *client) exchange(ctx context.Context, verb, url string, object any) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	data, err := rawapi.Answer(c.rest.Verb(verb).AbsPath(url).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	var made map[string]any
	return made, utiljson.Unmarshal(data, &made)
}

// wireObject is what is read of any object.
type wireObject struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		UID               types.UID               `json:"uid"`
		ResourceVersion   string                  `json:"resourceVersion"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
		Finalizers        []string                `json:"finalizers"`
	} `json:"metadata"`
}

func decodeObject(data []byte) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	return object, decodeInto(object, data)
}

// decodeInto reads names as servers do, with regard to case: a custom resource may have a field "Metadata" beside its metadata.
func decodeInto(object *metav1.PartialObjectMetadata, data []byte) error {
	var wire wireObject
	if err := utiljson.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("reading an object's metadata: %w", err)
	}
	m := wire.Metadata
	object.ObjectMeta = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers,
	}
	return nil
}

// decodeList reads a list as it arrives and keeps the metadata. A list that does not end is an error, not a shorter list.
func decodeList(body io.Reader) (*metav1.PartialObjectMetadataList, error) {
	return decodeListOf(body, decodeObject)
}

// decodeListOf reads each item by a function.
func decodeListOf(body io.Reader, decode func([]byte) (*metav1.PartialObjectMetadata, error)) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	var err error
	list.ListMeta, err = rawapi.ReadList(body, func(raw []byte) error {
		item, err := decode(raw)
		if err != nil {
			return err
		}
		if item.UID == "" || item.Name == "" {
			return errors.New("an item has no name or no UID")
		}
		list.Items = append(list.Items, *item)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if list.ResourceVersion == "" {
		return nil, errors.New("reading the list: it has no resource version")
	}
	return list, nil
}

// eventDecoder reads the events of a watch.
type eventDecoder struct {
	body   io.ReadCloser
	json   *json.Decoder
	decode func([]byte) (*metav1.PartialObjectMetadata, error)
}

func (d *eventDecoder) Close() { d.body.Close() }

func (d *eventDecoder) Decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := d.json.Decode(&event); err != nil {
		return "", nil, err
	}
	if event.Type == watch.Error {
		status := &metav1.Status{}
		err := utiljson.Unmarshal(event.Object, status)
		return event.Type, status, err
	}
	object, err := d.decode(event.Object)
	return event.Type, object, err
}

// path is the URL of the resource, of its objects in a namespace, or of one of them.
func (r resource) path(namespace string, name ...string) string {
	elements := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		elements = []string{"/api", r.Version}
	}
	if r.namespaced && namespace != "" {
		elements = append(elements, "namespaces", namespace)
	}
	return path.Join(append(append(elements, r.Resource), name...)...)
}

// object names one object of the resource for messages.
func (r resource) object(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", r, name)
}

// String is the resource as access rules name it: deployments.apps.
func (r resource) String() string { return r.GroupResource().String() }

// Package live puts an API server behind what a migration acts through. It speaks JSON to servers of any version.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/rawapi"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/migrate"
)

// Server is an API server, or what stands in front of several. Safe for concurrent use.
type Server struct {
	rest rest.Interface
	each map[string]rest.Interface // that are asked one by one how they store, by URL

	mu      sync.Mutex
	version string // of apiextensions; found when first used
}

var (
	_ migrate.Definitions = (*Server)(nil)
	_ migrate.Objects     = Objects{}
	_ migrate.Servers     = Objects{}
)

const (
	answerWithin = 30 * time.Second
	attempts     = 6
	firstPause   = 100 * time.Millisecond
)

// Open connects to the server of config. others are URLs of the API servers behind it, to be asked one by one, with the same credentials;
// without them only the server of config is.
// Errors: an unusable configuration. No server is asked yet.
func Open(config *rest.Config, others []string) (*Server, error) {
	client, err := connect(config, "")
	if err != nil {
		return nil, err
	}
	s := &Server{rest: client, each: map[string]rest.Interface{}}
	for _, url := range others {
		if s.each[url], err = connect(config, url); err != nil {
			return nil, err
		}
	}
	if len(others) == 0 {
		s.each[config.Host] = client
	}
	return s, nil
}

func connect(config *rest.Config, url string) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	if url != "" {
		config.Host = url
	}
	config.QPS = -1 // the workers and --rate are the limit
	config.UserAgent = "fusionctl"
	return rawapi.Connect(config)
}

// Version is the server's own.
func (s *Server) Version(ctx context.Context) (kubever.Version, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := s.get(ctx, "/version", "", &info); err != nil {
		return kubever.Version{}, fmt.Errorf("asking the server for its version: %w", err)
	}
	return kubever.Parse(info.GitVersion)
}

// get reads JSON, with regard to the case of names, and repeats that while it fails in a way that passes.
func (s *Server) get(ctx context.Context, path, accept string, into any) error {
	return persist(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		request := s.rest.Get().RequestURI(path)
		if accept != "" {
			request.SetHeader("Accept", accept)
		}
		data, err := rawapi.Answer(request.Do(ctx))
		if err != nil {
			return err
		}
		return utiljson.Unmarshal(data, into)
	})
}

// send writes JSON. It is repeated only when the server says that it has not begun, or what is written names the state that it replaces.
func (s *Server) send(ctx context.Context, verb, path, contentType string, body []byte, into any) error {
	return persist(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		data, err := rawapi.Answer(s.rest.Verb(verb).RequestURI(path).SetHeader("Content-Type", contentType).Body(body).Do(ctx))
		if err != nil || into == nil {
			return err
		}
		return utiljson.Unmarshal(data, into)
	})
}

// persist repeats a request while its failure may pass, with growing pauses that end with ctx. What the server itself says about the object, as
// a conversion that fails, is repeated a little; a server that does not answer for longer.
func persist(ctx context.Context, request func() error) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := request()
		if err == nil {
			return nil
		}
		away := unreachable(err)
		again := away && attempt < 2*attempts || serverFault(err) && attempt < attempts/2
		if !again || ctx.Err() != nil {
			if away {
				return fmt.Errorf("%w: %w", migrate.ErrUnreachable, err)
			}
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// unreachable reports whether nobody answered, or somebody who is too busy to.
func unreachable(err error) bool {
	switch rawapi.Code(err) {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
		return true
	}
	return rawapi.Unanswered(err) || rawapi.Code(err) == 0 && errors.Is(err, context.DeadlineExceeded)
}

func serverFault(err error) bool { return rawapi.Code(err) >= http.StatusInternalServerError }

// said turns the server's answer about one object into what a migration reads.
func said(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", migrate.ErrConflict, err)
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return fmt.Errorf("%w: %w", migrate.ErrGone, err)
	}
	return err
}

// ErrNoDefinition is wrapped when there is no CRD of that name.
var ErrNoDefinition = errors.New("there is no such CustomResourceDefinition")

const definitions = "customresourcedefinitions"

// crdPath is where CRDs are read and written: v1 where the server has it, v1beta1 otherwise.
func (s *Server) crdPath(ctx context.Context, rest ...string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == "" {
		var group metav1.APIGroup
		err := s.get(ctx, "/apis/"+migrate.GroupCRD, "", &group)
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("%w: the server has none at all", ErrNoDefinition)
		}
		if err != nil {
			return "", fmt.Errorf("asking for the versions of %s: %w", migrate.GroupCRD, err)
		}
		for _, v := range group.Versions {
			if v.Version == "v1" || s.version == "" {
				s.version = v.Version
			}
		}
	}
	return path.Join(append([]string{"/apis", migrate.GroupCRD, s.version, definitions}, rest...)...), nil
}

// Definition reads a CRD.
// Errors: ErrNoDefinition, wrapped.
func (s *Server) Definition(ctx context.Context, name string) (*migrate.Definition, error) {
	url, err := s.crdPath(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &migrate.Definition{}
	if err := s.get(ctx, url, "", d); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoDefinition)
	} else if err != nil {
		return nil, fmt.Errorf("reading the CRD %s: %w", name, err)
	}
	return d, nil
}

// Definitions lists all CRDs. Servers keep few of them, and whole.
func (s *Server) Definitions(ctx context.Context) ([]*migrate.Definition, error) {
	url, err := s.crdPath(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		APIVersion string           `json:"apiVersion"`
		Items      []map[string]any `json:"items"`
	}
	if err := s.get(ctx, url, "", &list); err != nil {
		return nil, fmt.Errorf("listing CRDs: %w", err)
	}
	var result []*migrate.Definition
	for _, item := range list.Items {
		item["apiVersion"], item["kind"] = list.APIVersion, "CustomResourceDefinition" // a list leaves them out
		data, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		d, err := migrate.ParseDefinition(data)
		if err != nil {
			return nil, fmt.Errorf("listing CRDs: %w", err)
		}
		result = append(result, d)
	}
	return result, nil
}

// Update writes the CRD, or its status.
func (s *Server) Update(ctx context.Context, d *migrate.Definition, status bool) (*migrate.Definition, error) {
	at := []string{d.Name()}
	if status {
		at = append(at, "status")
	}
	url, err := s.crdPath(ctx, at...)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	written := &migrate.Definition{}
	if err := said(s.send(ctx, http.MethodPut, url, runtime.ContentTypeJSON, body, written)); err != nil {
		return nil, fmt.Errorf("writing the CRD %s: %w", d.Name(), err)
	}
	return written, nil
}

// BuiltIn finds a resource that is built into the server.
// Shape: name is plural and group, "deployments.apps".
// Errors: no such resource, with what it may be called.
func (s *Server) BuiltIn(ctx context.Context, name string) (r migrate.Resource, served []string, storage string, err error) {
	plural, group := migrate.SplitName(name)
	fact, ok := kubever.ResourceFor(schema.GroupResource{Group: group, Resource: plural})
	if !ok || fact.Pseudo() {
		return r, nil, "", fmt.Errorf("%s: %w, and no resource that is built in", name, ErrNoDefinition)
	}
	r = migrate.Resource{Name: name, Group: group, Plural: plural, Kind: fact.Kind, Namespaced: fact.Namespaced, Key: fact.Key, BuiltIn: true}
	hash, found := "", false
	for _, gv := range fact.GroupVersions() {
		entry, err := s.discover(ctx, s.rest, gv.String(), plural)
		if err != nil {
			return r, nil, "", err
		}
		if entry != nil {
			served, hash, found = append(served, gv.String()), entry.StorageVersionHash, true
		}
	}
	if !found {
		return r, nil, "", fmt.Errorf("%s: %w, and the server does not serve a resource of that name", name, ErrNoDefinition)
	}
	if storage, err = s.storage(ctx, fact, hash); err != nil {
		return r, nil, "", err
	}
	r.Access = served[0]
	if slices.Contains(served, storage) {
		r.Access = storage
	}
	if gv, err := schema.ParseGroupVersion(r.Access); err == nil {
		r.Group = gv.Group
	}
	return r, served, storage, nil
}

// storage is the apiVersion in which the server writes a resource: as its discovery says, or else as its version is known to.
func (s *Server) storage(ctx context.Context, fact kubever.Resource, hash string) (string, error) {
	if hash != "" {
		for _, gv := range fact.GroupVersions() {
			if migrate.StorageHash(gv.String(), fact.Kind) == hash {
				return gv.String(), nil
			}
		}
		return "", nil
	}
	version, err := s.Version(ctx)
	if err != nil {
		return "", err
	}
	stored, ok := fact.StoredAs(version.Minor)
	if !ok {
		return "", nil
	}
	return stored.GroupVersion().String(), nil
}

// discover finds the entry of a resource; nil when the apiVersion is not served, or does not have it.
func (s *Server) discover(ctx context.Context, client rest.Interface, apiVersion, plural string) (*metav1.APIResource, error) {
	var resources metav1.APIResourceList
	one := &Server{rest: client}
	err := one.get(ctx, root(apiVersion), "", &resources)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the resources of %s: %w", apiVersion, err)
	}
	for i, r := range resources.APIResources {
		if r.Name == plural {
			return &resources.APIResources[i], nil
		}
	}
	return nil, nil
}

func root(apiVersion string) string {
	if path.Base(apiVersion) == apiVersion {
		return "/api/" + apiVersion
	}
	return "/apis/" + apiVersion
}

// Objects are those of one resource.
type Objects struct {
	*Server
	Resource migrate.Resource
}

func (o Objects) path(apiVersion string, object *migrate.Object) string {
	elements := []string{root(apiVersion)}
	if object == nil {
		return path.Join(append(elements, o.Resource.Plural)...)
	}
	if object.Namespace != "" {
		elements = append(elements, "namespaces", object.Namespace)
	}
	return path.Join(append(elements, o.Resource.Plural, object.Name)...)
}

// Page lists objects. A server that has forgotten the state of the first page goes on in the present one.
func (o Objects) Page(ctx context.Context, apiVersion, token string, limit int) (migrate.Page, error) {
	page, err := o.page(ctx, apiVersion, token, limit)
	if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		if again := status.Status().ListMeta.Continue; again != "" && again != token {
			page, err = o.page(ctx, apiVersion, again, limit)
		}
	}
	if err != nil {
		return migrate.Page{}, fmt.Errorf("listing %s in %s: %w", o.Resource.Name, apiVersion, err)
	}
	return page, nil
}

func (o Objects) page(ctx context.Context, apiVersion, token string, limit int) (migrate.Page, error) {
	var page migrate.Page
	err := persist(ctx, func() error {
		request := o.rest.Get().AbsPath(o.path(apiVersion, nil)).SetHeader("Accept", rawapi.AcceptMetadataList).Param("limit", strconv.Itoa(limit))
		if token != "" {
			request.Param("continue", token)
		}
		body, err := request.Stream(ctx)
		if apierrors.IsNotAcceptable(err) {
			body, err = request.SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
		}
		if err != nil {
			return err
		}
		defer body.Close()
		page, err = decodePage(body)
		return err
	})
	return page, err
}

// decodePage keeps of an object as much as is used.
func decodePage(body io.Reader) (page migrate.Page, err error) {
	meta, err := rawapi.ReadList(body, func(raw []byte) error {
		var item struct {
			Metadata struct {
				Namespace       string                 `json:"namespace"`
				Name            string                 `json:"name"`
				ResourceVersion string                 `json:"resourceVersion"`
				ManagedFields   []migrate.ManagedField `json:"managedFields"`
			} `json:"metadata"`
		}
		if err := utiljson.Unmarshal(raw, &item); err != nil { // with regard to case: an object may have a field Metadata beside its metadata
			return err
		}
		m := item.Metadata
		if m.Name == "" || m.ResourceVersion == "" {
			return errors.New("an item has no name or no resource version")
		}
		page.Objects = append(page.Objects, migrate.Object{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion})
		page.ManagedFields = append(page.ManagedFields, m.ManagedFields)
		return nil
	})
	page.ResourceVersion, page.Next = meta.ResourceVersion, meta.Continue
	if meta.RemainingItemCount != nil {
		page.Remaining = *meta.RemainingItemCount
	}
	return page, err
}

// Read reads an object in an apiVersion. Without a resource version in the request the server reads it from the store, and converts it.
func (o Objects) Read(ctx context.Context, apiVersion string, object migrate.Object) error {
	var meta metav1.PartialObjectMetadata
	return said(o.get(ctx, o.path(apiVersion, &object), runtime.ContentTypeJSON, &meta))
}

// Patch sends the resource version alone, or metadata with it: an object that was written meanwhile is left alone.
func (o Objects) Patch(ctx context.Context, apiVersion string, object migrate.Object, metadata map[string]any) (string, error) {
	fields := map[string]any{"resourceVersion": object.ResourceVersion}
	for name, value := range metadata {
		fields[name] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return "", err
	}
	var written metav1.PartialObjectMetadata
	err = persist(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		request := o.rest.Patch(types.MergePatchType).AbsPath(o.path(apiVersion, &object)).SetHeader("Accept", rawapi.AcceptMetadata).Body(body)
		result := request.Do(ctx)
		if apierrors.IsNotAcceptable(result.Error()) {
			result = request.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
		}
		data, err := rawapi.Answer(result)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &written)
	})
	return written.ResourceVersion, said(err)
}

// StorageHashes asks every server, or the one that answers.
func (o Objects) StorageHashes(ctx context.Context, apiVersion string) (map[string]string, error) {
	hashes := map[string]string{}
	for url, client := range o.each {
		entry, err := o.discover(ctx, client, apiVersion, o.Resource.Plural)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		if entry == nil {
			hashes[url] = "not served" // not yet
			continue
		}
		hashes[url] = entry.StorageVersionHash
	}
	return hashes, nil
}

// WebhookProblem looks for a service and its endpoints.
func (o Objects) WebhookProblem(ctx context.Context, w migrate.Webhook) (string, error) {
	if w.Name == "" {
		return "", nil
	}
	var meta metav1.PartialObjectMetadata
	err := o.get(ctx, path.Join("/api/v1/namespaces", w.Namespace, "services", w.Name), "", &meta)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("the webhook's %s does not exist", w), nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for the webhook's %s: %w", w, err)
	}
	var endpoints struct {
		Subsets []struct {
			Addresses []struct {
				IP string `json:"ip"`
			} `json:"addresses"`
		} `json:"subsets"`
	}
	err = o.get(ctx, path.Join("/api/v1/namespaces", w.Namespace, "endpoints", w.Name), "", &endpoints)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("looking for the endpoints of the webhook's %s: %w", w, err)
	}
	for _, subset := range endpoints.Subsets {
		if len(subset.Addresses) > 0 {
			return "", nil
		}
	}
	return fmt.Sprintf("the webhook's %s has no endpoint that is ready", w), nil
}

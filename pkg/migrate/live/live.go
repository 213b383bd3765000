// Package live puts an API server behind what a migration acts through. It speaks JSON to servers of any version.
package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Server is an API server, or what stands in front of several. Safe for concurrent use.
type Server struct {
	api  *apiserver.Server
	each map[string]*apiserver.Server // that are queried one by one for how they store, by URL

	mu      sync.Mutex
	version string // of apiextensions; found when first used
}

var (
	_ migrate.Definitions = (*Server)(nil)
	_ migrate.Objects     = Objects{}
	_ migrate.Servers     = Objects{}
)

// options: a migration waits for a server that restarts. The workers and --rate are the limit of requests.
var options = apiserver.Options{Timeout: 30 * time.Second, Attempts: 12, Pause: 100 * time.Millisecond, QPS: -1,
	UserAgent: "fusionctl"}

// Open connects to the server of config. others are URLs of the API servers behind it, to be asked one by one, with the
// same credentials; without them only the server of config is. Errors: an unusable configuration. No server is queried
// yet.
func Open(config *rest.Config, others []string) (*Server, error) {
	return open(config, others, options)
}

func open(config *rest.Config, others []string, options apiserver.Options) (*Server, error) {
	api, err := apiserver.New(config, options)
	if err != nil {
		return nil, err
	}
	s := &Server{api: api, each: map[string]*apiserver.Server{}}
	for _, url := range others {
		config := rest.CopyConfig(config)
		config.Host = url
		if s.each[url], err = apiserver.New(config, options); err != nil {
			return nil, err
		}
	}
	if len(others) == 0 {
		s.each[config.Host] = api
	}
	return s, nil
}

// Version is the server's own.
func (s *Server) Version(ctx context.Context) (kubever.Version, error) {
	identity, err := s.api.Identify(ctx, false)
	if err == nil && identity.Newer {
		_, err = kubever.Parse(identity.GitVersion)
	}
	return identity.Version, away(err)
}

// get reads JSON, with regard to the case of names.
func (s *Server) get(ctx context.Context, at discovery.Path, into any) error {
	text, err := s.api.Read(ctx, at)
	if err != nil {
		return away(err)
	}
	return utiljson.Unmarshal(text, into)
}

// away marks a failure that the server's absence explains.
func away(err error) error {
	if apiserver.Passing(err) {
		return fmt.Errorf("%w: %w", migrate.ErrUnreachable, err)
	}
	return err
}

// said turns the server's answer about one object into what a migration reads.
func said(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", migrate.ErrConflict, err)
	case errors.Is(err, discovery.ErrNotFound):
		return fmt.Errorf("%w: %w", migrate.ErrGone, err)
	}
	return away(err)
}

// ErrNoDefinition is wrapped when there is no CRD of that name.
var ErrNoDefinition = errors.New("there is no such CustomResourceDefinition")

// crds are CRDs as they are read and written: v1 where the server has it, v1beta1 otherwise.
func (s *Server) crds(ctx context.Context) (discovery.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == "" {
		var group metav1.APIGroup
		err := s.get(ctx, discovery.Page("apis", migrate.GroupCRD), &group)
		if apierrors.IsNotFound(err) {
			var versions []string
			if versions, err = s.api.Versions(ctx, migrate.GroupCRD); err == nil && len(versions) == 0 {
				return discovery.Resource{}, fmt.Errorf("%w: the server has none at all", ErrNoDefinition)
			}
			err = cmp.Or(away(err), errors.New("the server lists the group, and has no page of it"))
		}
		if err != nil {
			return discovery.Resource{}, fmt.Errorf("asking for the versions of %s: %w", migrate.GroupCRD, err)
		}
		for _, v := range group.Versions {
			if v.Version == "v1" || s.version == "" {
				s.version = v.Version
			}
		}
	}
	gv := schema.GroupVersion{Group: migrate.GroupCRD, Version: s.version}
	return discovery.Resource{GroupVersion: gv, Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"},
		nil
}

// Definition reads a CRD.
// Errors: ErrNoDefinition, wrapped.
func (s *Server) Definition(ctx context.Context, name string) (*migrate.Definition, error) {
	crds, err := s.crds(ctx)
	if err != nil {
		return nil, err
	}
	d := &migrate.Definition{}
	if err := s.get(ctx, crds.Object("", name), d); errors.Is(err, discovery.ErrNotFound) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoDefinition)
	} else if err != nil {
		return nil, fmt.Errorf("reading the CRD %s: %w", name, err)
	}
	return d, nil
}

// Definitions lists all CRDs. Servers keep few of them, and whole.
func (s *Server) Definitions(ctx context.Context) ([]*migrate.Definition, error) {
	crds, err := s.crds(ctx)
	if err != nil {
		return nil, err
	}
	var result []*migrate.Definition
	for text, err := range s.api.List(ctx, crds.Objects(""), discovery.ListOptions{Limit: -1}) {
		if err != nil {
			return nil, fmt.Errorf("listing CRDs: %w", away(err))
		}
		var item map[string]any
		if err := utiljson.Unmarshal(text, &item); err != nil {
			return nil, fmt.Errorf("listing CRDs: %w", err)
		}
		item["apiVersion"], item["kind"] = crds.GroupVersion.String(), crds.Kind // a list leaves them out
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
	crds, err := s.crds(ctx)
	if err != nil {
		return nil, err
	}
	at := crds.Object("", d.Name())
	if status {
		at = crds.Object("", d.Name(), "status")
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	written := &migrate.Definition{}
	text, err := s.api.Send(ctx, apiserver.Write{Verb: http.MethodPut, Path: at, Body: body, Repeatable: true})
	if err == nil {
		err = utiljson.Unmarshal(text, written)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the CRD %s: %w", d.Name(), said(err))
	}
	return written, nil
}

// BuiltIn finds a resource that is built into the server.
// Shape: name is plural and group, "deployments.apps".
// Errors: no such resource, with what it may be called.
func (s *Server) BuiltIn(ctx context.Context, name string) (r migrate.Resource, served []string, storage string,
	err error) {
	plural, group := migrate.SplitName(name)
	fact, ok := kubever.ResourceFor(schema.GroupResource{Group: group, Resource: plural})
	if !ok || fact.Pseudo() {
		return r, nil, "", fmt.Errorf("%s: %w, and no resource that is built in", name, ErrNoDefinition)
	}
	r = migrate.Resource{Name: name, Group: group, Plural: plural, Kind: fact.Kind, Namespaced: fact.Namespaced,
		Key: fact.Key, BuiltIn: true}
	hash, found := "", false
	for _, gv := range fact.GroupVersions() {
		entry, err := discover(ctx, s.api, gv, plural)
		if err != nil {
			return r, nil, "", err
		}
		if entry != nil {
			served, hash, found = append(served, gv.String()), entry.StorageVersionHash, true
		}
	}
	if !found {
		return r, nil, "", fmt.Errorf("%s: %w, and the server does not serve a resource of that name", name,
			ErrNoDefinition)
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

// storage is the apiVersion in which the server writes a resource: as its discovery says, or else as its version is
// known to.
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
func discover(ctx context.Context, server *apiserver.Server, gv schema.GroupVersion, plural string) (
	*discovery.Resource, error) {
	resources, err := server.GroupVersion(ctx, gv)
	if apierrors.IsNotFound(err) {
		var versions []string
		if versions, err = server.Versions(ctx, gv.Group); err == nil && !slices.Contains(versions, gv.Version) {
			return nil, nil
		}
		err = cmp.Or(err, errors.New("the server lists it, and has no page of it"))
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the resources of %s: %w", gv, away(err))
	}
	for i, r := range resources {
		if r.Name == plural {
			return &resources[i], nil
		}
	}
	return nil, nil
}

// Objects are those of one resource.
type Objects struct {
	*Server
	Resource migrate.Resource
}

// in is the resource in an apiVersion.
func (o Objects) in(apiVersion string) (discovery.Resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return discovery.Resource{GroupVersion: gv, Name: o.Resource.Plural, Kind: o.Resource.Kind,
		Namespaced: o.Resource.Namespaced}, err
}

// Page lists objects. A server that has forgotten the state of the first page goes on in the present one.
func (o Objects) Page(ctx context.Context, list migrate.List) (migrate.Page, error) {
	page, err := o.page(ctx, list)
	if again := apiserver.Continuation(err); again != "" && again != list.Token {
		list.Token = again
		page, err = o.page(ctx, list)
	}
	if err != nil {
		return migrate.Page{}, fmt.Errorf("listing %s in %s: %w", o.Resource.Name, list.APIVersion, away(err))
	}
	return page, nil
}

// page keeps of an object as much as is used.
func (o Objects) page(ctx context.Context, list migrate.List) (page migrate.Page, err error) {
	resource, err := o.in(list.APIVersion)
	if err != nil {
		return page, err
	}
	options := discovery.ListOptions{Metadata: true, Limit: list.Limit, Continue: list.Token}
	meta, err := o.api.ReadPage(ctx, resource.Objects(""), options, func() {
		page = migrate.Page{}
	}, func(raw []byte) error {
		var item struct {
			Metadata struct {
				Namespace       string          `json:"namespace"`
				Name            string          `json:"name"`
				ResourceVersion string          `json:"resourceVersion"`
				ManagedFields   json.RawMessage `json:"managedFields"`
			} `json:"metadata"`
		}
		// with regard to case: an object may have a field Metadata beside its metadata
		if err := utiljson.Unmarshal(raw, &item); err != nil {
			return err
		}
		m := item.Metadata
		if m.Name == "" || m.ResourceVersion == "" {
			return errors.New("an item has no name or no resource version")
		}
		page.Objects = append(page.Objects,
			migrate.Object{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion})
		if list.Managed != "" {
			managed := m.ManagedFields
			if !bytes.Contains(managed, []byte(list.Managed)) {
				managed = nil
			}
			page.ManagedFields = append(page.ManagedFields, managed)
		}
		return nil
	})
	page.ResourceVersion, page.Next = meta.ResourceVersion, meta.Continue
	if meta.RemainingItemCount != nil {
		page.Remaining = *meta.RemainingItemCount
	}
	if err == nil && page.Next != "" && page.Next == list.Token {
		err = errors.New("the server repeats a continue token: the list does not end")
	}
	return page, err
}

// Read reads an object in an apiVersion. Without a resource version in the request the server reads it from the store,
// and converts it.
func (o Objects) Read(ctx context.Context, apiVersion string, object migrate.Object) error {
	resource, err := o.in(apiVersion)
	if err != nil {
		return err
	}
	_, err = o.api.Read(ctx, resource.Object(object.Namespace, object.Name))
	return said(err)
}

// Patch sends the resource version alone, or metadata with it: an object that was written meanwhile is left alone.
func (o Objects) Patch(ctx context.Context, apiVersion string, object migrate.Object, metadata map[string]any) (
	string, error) {
	resource, err := o.in(apiVersion)
	if err != nil {
		return "", err
	}
	fields := map[string]any{"resourceVersion": object.ResourceVersion}
	for name, value := range metadata {
		fields[name] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return "", err
	}
	text, err := o.api.Send(ctx, apiserver.Write{
		Verb: http.MethodPatch, Path: resource.Object(object.Namespace, object.Name),
		ContentType: string(types.MergePatchType),
		Body:        body, Repeatable: true, Metadata: true,
	})
	if err != nil {
		return "", said(err)
	}
	var written metav1.PartialObjectMetadata
	err = utiljson.Unmarshal(text, &written)
	return written.ResourceVersion, err
}

// StorageHashes asks every server, or the one that answers.
func (o Objects) StorageHashes(ctx context.Context, apiVersion string) (map[string]string, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for url, client := range o.each {
		entry, err := discover(ctx, client, gv, o.Resource.Plural)
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

// Sight lists one object of the store of the resource, and reads kube-system and the CRD, all from the store. What the
// user may not read is left out.
func (o Objects) Sight(ctx context.Context, apiVersion string) (witness.Sight, error) {
	seen := witness.Sight{Objects: map[string]witness.Object{}}
	namespaces := discovery.Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "namespaces"}
	if err := o.mark(ctx, &seen, witness.KubeSystem, namespaces.Object("", metav1.NamespaceSystem)); err != nil {
		return seen, err
	}
	var listed discovery.Resource
	var err error
	if o.Resource.BuiltIn {
		listed, err = o.in(apiVersion)
	} else if listed, err = o.crds(ctx); err == nil { // all CRDs and custom resources are in one store
		err = o.mark(ctx, &seen, listed.Name+"/"+o.Resource.Name, listed.Object("", o.Resource.Name))
	}
	if err != nil {
		return seen, err
	}
	meta, err := o.api.ReadPage(ctx, listed.Objects(""), discovery.ListOptions{Metadata: true, Limit: 1}, func() {},
		func([]byte) error { return nil })
	if err == nil {
		seen.Revision, err = strconv.ParseInt(meta.ResourceVersion, 10, 64)
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return seen, fmt.Errorf("listing %s: %w", listed.Name, away(err))
	}
	return seen, nil
}

// mark notes an object of the store. One that is absent is noted as such.
func (o Objects) mark(ctx context.Context, seen *witness.Sight, path string, at discovery.Path) error {
	var object metav1.PartialObjectMetadata
	err := o.get(ctx, at, &object)
	switch {
	case apierrors.IsForbidden(err), errors.Is(err, discovery.ErrNotServed): // it shows nothing of the object
		return nil
	case errors.Is(err, discovery.ErrNotFound):
		seen.Objects[path] = witness.Object{}
		return nil
	case err != nil:
		return err
	}
	revision, err := strconv.ParseInt(object.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: resource version %q is no number", path, object.ResourceVersion)
	}
	seen.Objects[path] = witness.Object{UID: string(object.UID), Revision: revision}
	return nil
}

// WebhookProblem looks for a service and its endpoints.
func (o Objects) WebhookProblem(ctx context.Context, w migrate.Webhook) (string, error) {
	if w.Name == "" {
		return "", nil
	}
	core := schema.GroupVersion{Version: "v1"}
	services := discovery.Resource{GroupVersion: core, Name: "services", Kind: "Service", Namespaced: true}
	_, err := o.api.Read(ctx, services.Object(w.Namespace, w.Name))
	if errors.Is(err, discovery.ErrNotFound) {
		return fmt.Sprintf("the webhook's %s does not exist", w), nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for the webhook's %s: %w", w, away(err))
	}
	var endpoints struct {
		Subsets []struct {
			Addresses []struct {
				IP string `json:"ip"`
			} `json:"addresses"`
		} `json:"subsets"`
	}
	at := discovery.Resource{GroupVersion: core, Name: "endpoints", Kind: "Endpoints", Namespaced: true}.Object(
		w.Namespace, w.Name)
	if err = o.get(ctx, at, &endpoints); err != nil && !errors.Is(err, discovery.ErrNotFound) {
		return "", fmt.Errorf("looking for the endpoints of the webhook's %s: %w", w, err)
	}
	for _, subset := range endpoints.Subsets {
		if len(subset.Addresses) > 0 {
			return "", nil
		}
	}
	return fmt.Sprintf("the webhook's %s has no endpoint that is ready", w), nil
}

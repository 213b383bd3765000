package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Live negotiates with a server by its discovery, which it keeps until something that it showed is not found. Safe for
// concurrent use.
type Live struct {
	api       *apiserver.Server
	converter *convert.Converter
	now       func() time.Time

	mu         sync.Mutex
	generation int
	loaded     time.Time
	server     *negotiate.Server // nil: to be asked
	answers    map[schema.GroupVersionKind]negotiate.Answer
	byResource map[schema.GroupVersionResource]negotiate.Answer
}

// refreshAfter is how old discovery must be to be asked again because it lacks what is wanted: a program that asks for
// an absent kind in a loop shall not make a discovery of each question.
const refreshAfter = 10 * time.Second

// trustFor is how long discovery counts as what the server says now.
const trustFor = time.Second

// NewLive negotiates with the server of a configuration. The server is not asked yet.
func NewLive(config *rest.Config, converter *convert.Converter) (*Live, error) {
	api, err := apiserver.New(config, apiserver.Options{QPS: config.QPS, Unversioned: true})
	if err != nil {
		return nil, err
	}
	return &Live{api: api, converter: converter, now: time.Now}, nil
}

// Fixed negotiates by what a server was found to serve, and asks nothing.
func Fixed(server *negotiate.Server, converter *convert.Converter) *Live {
	return &Live{converter: converter, now: time.Now, server: server,
		answers:    map[schema.GroupVersionKind]negotiate.Answer{},
		byResource: map[schema.GroupVersionResource]negotiate.Answer{}}
}

// Kind answers for a kind, or for the list of a kind. Unsupported is said only of discovery that is younger than
// refreshAfter. Errors: *negotiate.IncompleteError; discovery that could not be had at all, which is queried again at
// the next question.
func (l *Live) Kind(ctx context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error) {
	if item, list := l.converter.ItemOf(gvk); list {
		answer, err := l.Kind(ctx, item)
		return answer.OfList(), err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	answer, err := l.kind(ctx, gvk)
	if err == nil && answer.Verdict != negotiate.Unsupported {
		return answer, nil
	}
	if l.api == nil || l.server != nil && l.now().Sub(l.loaded) < refreshAfter {
		return answer, err
	}
	l.server = nil
	return l.kind(ctx, gvk)
}

func (l *Live) kind(ctx context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error) {
	if err := l.load(ctx); err != nil {
		return negotiate.Answer{}, err
	}
	if answer, ok := l.answers[gvk]; ok {
		return answer, nil
	}
	answer, err := l.server.Negotiate(gvk, l.converter.Equivalents(gvk))
	if err == nil {
		l.answers[gvk] = answer
	}
	return answer, err
}

// Resource answers for a resource by its name in URLs: deployments of apps/v1.
// Errors: as Kind, and *NoResourceError for one that neither the server nor any release has.
func (l *Live) Resource(ctx context.Context, gvr schema.GroupVersionResource) (negotiate.Answer, error) {
	answer, known, _, err := l.resource(ctx, gvr)
	if err == nil && !known {
		err = &NoResourceError{Resource: gvr, Server: l.name()}
	}
	return answer, err
}

func (l *Live) name() string {
	if l.api == nil {
		return l.server.Name
	}
	return l.api.Name()
}

// NoResourceError says that a resource is unknown to a server and to the facts.
type NoResourceError struct {
	Resource schema.GroupVersionResource
	Server   string
}

func (e *NoResourceError) Error() string {
	return fmt.Sprintf("%s does not serve %s in %s, and no release has it", e.Server, e.Resource.Resource,
		e.Resource.GroupVersion())
}

// Server is what the server serves, as discovery last showed it.
func (l *Live) Server(ctx context.Context) (*negotiate.Server, error) { return l.view(ctx) }

// resource answers for the resource of a request; native is false for one that only the server can know, such as a
// custom resource. The generation is for invalidate.
func (l *Live) resource(ctx context.Context, gvr schema.GroupVersionResource) (answer negotiate.Answer, native bool,
	generation int, err error) {
	l.mu.Lock()
	err = l.load(ctx)
	generation = l.generation
	if err != nil {
		l.mu.Unlock()
		return answer, false, generation, err
	}
	if known, ok := l.byResource[gvr]; ok {
		l.mu.Unlock()
		return known, true, generation, nil
	}
	gvk, ok := l.kindOf(gvr)
	l.mu.Unlock()
	if !ok {
		return answer, false, generation, nil
	}
	answer, err = l.Kind(ctx, gvk)
	l.mu.Lock()
	defer l.mu.Unlock()
	generation = l.generation
	if err == nil && answer.Verdict != negotiate.Unsupported && l.server != nil {
		l.byResource[gvr] = answer
	}
	return answer, true, generation, err
}

// kindOf finds the kind behind a resource: as the server says, as some version of Kubernetes says, or as another
// version of its group is named on the server.
func (l *Live) kindOf(gvr schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	for _, resource := range l.server.Served[gvr.GroupVersion()] {
		if resource.Name == gvr.Resource {
			return gvr.GroupVersion().WithKind(resource.Kind), true
		}
	}
	for _, api := range natives() {
		if api.GroupVersion == gvr.GroupVersion() && api.Name == gvr.Resource {
			return api.WithKind(api.Kind), true
		}
	}
	for gv, resources := range l.server.Served {
		for _, resource := range resources {
			if gv.Group == gvr.Group && resource.Name == gvr.Resource &&
				l.converter.Knows(gvr.GroupVersion().WithKind(resource.Kind)) {
				return gvr.GroupVersion().WithKind(resource.Kind), true
			}
		}
	}
	return schema.GroupVersionKind{}, false
}

// natives lists every resource that some minor has, in each of its versions.
var natives = sync.OnceValue(func() []kubever.APIResource {
	var all []kubever.APIResource
	for _, resource := range kubever.Minors() {
		for _, api := range kubever.APIResources(resource) {
			if lastOf(api.Minors) == resource {
				all = append(all, api)
			}
		}
	}
	return all
})

func lastOf(ranges kubever.Ranges) kubever.Minor { return ranges[len(ranges)-1].To }

// invalidate forgets the discovery of a generation: what it showed was not found. A newer one is kept, and so is one
// that is a moment old: then the absence is the truth.
func (l *Live) invalidate(generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api != nil && l.generation == generation && l.now().Sub(l.loaded) >= trustFor {
		l.server = nil
	}
}

// view is the server as discovery last showed it. It is never changed.
func (l *Live) view(ctx context.Context) (*negotiate.Server, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	return l.server, nil
}

// load asks the server unless it has been asked. Who waits for it waits for one discovery.
func (l *Live) load(ctx context.Context) error {
	if l.server != nil {
		return nil
	}
	server, err := l.discover(ctx)
	if err != nil {
		return err
	}
	l.generation++
	l.server, l.loaded = server, l.now()
	l.answers = map[schema.GroupVersionKind]negotiate.Answer{}
	l.byResource = map[schema.GroupVersionResource]negotiate.Answer{}
	return nil
}

// discover reads what a server serves. What it could not list is in Failed.
func (l *Live) discover(ctx context.Context) (*negotiate.Server, error) {
	result, err := l.api.Discover(ctx)
	if err != nil {
		return nil, err
	}
	return negotiate.Of(l.api.Name(), result), nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Live negotiates with a server by its discovery, which it keeps until something that it showed is not found. Safe for concurrent use.
type Live struct {
	name      string
	discovery discovery.DiscoveryInterface
	converter *convert.Converter
	now       func() time.Time

	mu         sync.Mutex
	generation int
	loaded     time.Time
	server     *negotiate.Server // nil: to be asked
	answers    map[schema.GroupVersionKind]negotiate.Answer
	byResource map[schema.GroupVersionResource]negotiate.Answer
}

// refreshAfter is how old discovery must be to be asked again because it lacks what is wanted: a program that asks for an absent kind in a
// loop shall not make a discovery of each question.
const refreshAfter = 10 * time.Second

// trustFor is how long discovery counts as what the server says now.
const trustFor = time.Second

// NewLive negotiates with the server of a configuration. The server is not asked yet.
func NewLive(config *rest.Config, converter *convert.Converter) (*Live, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &Live{name: config.Host, discovery: client, converter: converter, now: time.Now}, nil
}

// Kind answers for a kind. Unsupported is said only of discovery that is younger than refreshAfter.
// Errors: *negotiate.IncompleteError; discovery that could not be had at all, which is asked again at the next question.
func (l *Live) Kind(ctx context.Context, gvk schema.GroupVersionKind) (negotiate.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer, err := l.kind(ctx, gvk)
	if err == nil && answer.Verdict != negotiate.Unsupported {
		return answer, nil
	}
	if l.server != nil && l.now().Sub(l.loaded) < refreshAfter {
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

// resource answers for the resource of a request; native is false for one that only the server can know, such as a custom resource. The
// generation is for invalidate.
func (l *Live) resource(ctx context.Context, gvr schema.GroupVersionResource) (answer negotiate.Answer, native bool, generation int, err error) {
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

// kindOf finds the kind behind a resource: as the server says, as some version of Kubernetes says, or as another version of its group is
// named on the server.
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
			if gv.Group == gvr.Group && resource.Name == gvr.Resource && l.converter.Knows(gvr.GroupVersion().WithKind(resource.Kind)) {
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

// invalidate forgets the discovery of a generation: what it showed was not found. A newer one is kept, and so is one that is a moment old:
// then the absence is the truth.
func (l *Live) invalidate(generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.generation == generation && l.now().Sub(l.loaded) >= trustFor {
		l.server = nil
	}
}

// view is the server as discovery last showed it. It is not changed by anybody.
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
	server, err := Discover(ctx, l.name, l.discovery)
	if err != nil {
		return err
	}
	l.generation++
	l.server, l.loaded = server, l.now()
	l.answers = map[schema.GroupVersionKind]negotiate.Answer{}
	l.byResource = map[schema.GroupVersionResource]negotiate.Answer{}
	return nil
}

// Discover reads what a server serves. What it could not list is in Failed; a server that lists nothing at all, as to a user who may not
// ask, is an error: everything would look unsupported.
func Discover(ctx context.Context, name string, client discovery.DiscoveryInterface) (*negotiate.Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", name, err)
	}
	s := &negotiate.Server{Name: name, Served: map[schema.GroupVersion][]negotiate.Resource{}, Preferred: map[string]string{}, Failed: map[schema.GroupVersion]error{}}
	if s.Minor, err = minorOf(version); err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", name, err)
	}
	groups, lists, err := client.ServerGroupsAndResources()
	if apierrors.IsNotAcceptable(err) { // 1.6, to all in one answer
		groups, lists, err = client.WithLegacy().ServerGroupsAndResources()
	}
	failed := &discovery.ErrGroupDiscoveryFailed{}
	switch {
	case errors.As(err, &failed):
		for gv, err := range failed.Groups {
			s.Failed[gv] = err
		}
	case err != nil:
		return nil, fmt.Errorf("asking %s what it serves: %w", name, err)
	}
	for _, group := range groups {
		s.Preferred[group.Name] = group.PreferredVersion.Version
	}
	for _, list := range lists {
		if err := addList(s, list); err != nil {
			return nil, fmt.Errorf("asking %s what it serves: %w", name, err)
		}
	}
	// What a group announces and nobody listed is no absence either.
	for _, group := range groups {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			if _, listed := s.Served[gv]; !listed && s.Failed[gv] == nil {
				s.Failed[gv] = errors.New("it is announced, and nothing is listed in it")
			}
		}
	}
	if len(s.Served[schema.GroupVersion{Version: "v1"}]) == 0 || len(groups) < 2 {
		return nil, fmt.Errorf("asking %s what it serves: incomplete: it lists %d groups and %d versions; may this user read /api and /apis?", name, len(groups), len(lists))
	}
	return s, nil
}

// minorOf is the minor of a server; 0 for one that is newer than the facts, which leaves nothing out that they know.
// Errors: a version that is older than the facts, or none at all.
func minorOf(version *apiversion.Info) (kubever.Minor, error) {
	parsed, err := kubever.Parse(version.GitVersion)
	if err == nil {
		return parsed.Minor, nil
	}
	minor, numberErr := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	if numberErr == nil && version.Major == "1" && kubever.Minor(minor) > kubever.Newest {
		return 0, nil
	}
	return 0, err
}

func addList(s *negotiate.Server, list *metav1.APIResourceList) error {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return err
	}
	subresources := map[string][]negotiate.Subresource{}
	resources := []negotiate.Resource{}
	for _, r := range list.APIResources {
		if parent, name, ok := strings.Cut(r.Name, "/"); ok {
			kind := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
			subresources[parent] = append(subresources[parent], negotiate.Subresource{Name: name, Kind: kind})
			continue
		}
		resources = append(resources, negotiate.Resource{Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
	}
	for i := range resources {
		resources[i].Subresources = subresources[resources[i].Name]
	}
	s.Served[gv] = resources
	return nil
}

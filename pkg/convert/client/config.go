// Package client lets programs that were written for one version of the Kubernetes API work with a server of another.
// It stands below the clients, where requests go over the wire: whatever is made from its configuration converts, be it
// controller-runtime's manager, client, cache or mapper, or client-go's dynamic, typed, metadata and discovery clients,
// informers included.
//
//	config, err := client.Config(config, client.Options{})
//	manager, err := ctrl.NewManager(config, ctrl.Options{})
//
// A request for a kind that the server has in the asked version goes through as it is. One for a kind that it has in
// another version is sent there, and the answer, each event of a watch, and every error come back in the asked version.
// Discovery shows the versions that are served in this way.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
)

// Options change how a configuration converts. The zero value refuses writes that lose something.
type Options struct {
	// Converter converts; nil for one that knows the native kinds.
	Converter *convert.Converter
	// OnLoss, when it is set, is told of what a write loses, and the write goes on. Without it such a write is refused
	// with a *LossError and nothing is sent. It is called from many goroutines.
	OnLoss func(*LossError)
	// Judge, when it is set, decides about a write that loses something instead of OnLoss: nil lets it go on. object is
	// what is written, as it was sent. Its error is that of the request.
	Judge func(object map[string]any, loss *LossError) error
	// OnRead, when it is set, is told of what the asked version cannot show of objects in an answer. Those of a watch
	// are not among them.
	OnRead func(object string, losses []convert.Loss)
	// Kept are annotations in which a conversion keeps for its way back what the asked version has no field for. A
	// write that leaves one out, as that of a manifest does, leaves it as it is.
	Kept []string
	// Hold, when it is set, is told of what is held of an event of a watch. It is called once for each watch, with the
	// context of that.
	Hold func(context.Context) Holding
}

// Holding bounds what is held of the events of a watch, one at a time, and when they are converted.
type Holding interface {
	// Take is told of a piece of the text of an event when it has been read. Its error ends the watch.
	Take(text []byte) error
	// Work waits until the event may be converted; done is called when it is. Its error ends the watch.
	Work() (done func(), err error)
	// End is called when nothing of the event is held any more. It is not of one in the midst of which the watch is
	// closed.
	End()
}

// Transport converts what goes over next to the server that live negotiates with, as Config does. path is that of the
// server's URL. It holds what it reads in memory: bound the bodies of next where the server is not trusted.
func Transport(next http.RoundTripper, live *Live, path string, options Options) http.RoundTripper {
	return &transport{next: next, live: live, converter: live.converter, options: options,
		base: strings.TrimSuffix(path, "/")}
}

// Config returns a configuration whose clients convert; the given one is not changed, and serves to ask the server for
// its version and discovery. Clients of it send JSON, because what is sent may have to be converted; what they read in
// the server's own version stays protobuf where they ask for that. Errors: a configuration that names no server, or
// that cannot connect. The server is queried at the first request, so that a client can be made before the server is
// up.
func Config(config *rest.Config, options Options) (*rest.Config, error) {
	if options.Converter == nil {
		var err error
		if options.Converter, err = convert.New(); err != nil {
			return nil, err
		}
	}
	live, err := NewLive(config, options.Converter)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	wrapped := apiserver.NoRedirects(config)
	wrapped.ContentType = runtime.ContentTypeJSON
	if wrapped.AcceptContentTypes == "" {
		wrapped.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return Transport(next, live, base.Path, options)
	})
	return wrapped, nil
}

// LossError says what the server cannot hold of an object that is written to it. Nothing was written unless
// Options.OnLoss took it.
type LossError struct {
	Object string                  // Deployment shop/web
	Asked  schema.GroupVersionKind // as the program writes it
	As     schema.GroupVersionKind // as the server takes it
	Server string
	Losses []convert.Loss
}

func (e *LossError) Error() string {
	lines := make([]string, len(e.Losses))
	for i, loss := range e.Losses {
		lines[i] = loss.Path + " (" + loss.Meaning + ")"
	}
	return fmt.Sprintf("%s of %s: %s, which takes %s, would lose %s", e.Object, e.Asked.GroupVersion(), e.Server,
		e.As.GroupVersion(), strings.Join(lines, ", "))
}

// UnsupportedError says that the server has a kind in no version that the asked one converts to.
type UnsupportedError struct {
	negotiate.Answer
	Server string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s %s is not to be had from %s: %s", e.Asked.GroupVersion(), e.Asked.Kind, e.Server, e.Reason)
}

// UnfaithfulError says that the server would do something else than was asked for, and say nothing. Nothing was sent.
type UnfaithfulError struct {
	Request string // PUT deployments.apps/v1
	Server  string
	Reason  string
}

func (e *UnfaithfulError) Error() string {
	return fmt.Sprintf("%s: %s cannot do that as asked: %s", e.Request, e.Server, e.Reason)
}

// target is the resource that a request is about.
type target struct {
	base string // of the server's paths: "/k8s/clusters/c-1", mostly ""
	schema.GroupVersion
	namespace, resource, name, subresource string
}

var errNoResource = errors.New("not a path of a resource")

// parseTarget reads a path below base. Errors: errNoResource for paths of other things: discovery, /version, old
// watches.
func parseTarget(base, path string) (target, error) {
	rest, ok := strings.CutPrefix(path, base+"/")
	if !ok {
		return target{}, errNoResource
	}
	parts := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	t := target{base: base}
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return target{}, errNoResource
	}
	if parts[0] == "watch" || parts[0] == "proxy" {
		return target{}, errNoResource
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	t.subresource = strings.Join(parts[min(2, len(parts)):], "/")
	return t, nil
}

// connects reports whether the request is a way to something else than the API: what goes through it is not for us to
// read.
func (t target) connects() bool {
	to, _, _ := strings.Cut(t.subresource, "/")
	return to == "proxy" || to == "exec" || to == "attach" || to == "portforward"
}

// as is the same target in another version.
func (t target) as(gv schema.GroupVersion, resource string) target {
	t.GroupVersion, t.resource = gv, resource
	return t
}

// onURL is the URL with the path of the target.
func (t target) onURL(u *url.URL) *url.URL {
	parts := []string{t.base, "apis", t.Group, t.Version}
	if t.Group == "" {
		parts = []string{t.base, "api", t.Version}
	}
	if t.namespace != "" {
		parts = append(parts, "namespaces", t.namespace)
	}
	parts = append(parts, t.resource)
	if t.name != "" {
		parts = append(parts, t.name)
	}
	if t.subresource != "" {
		parts = append(parts, t.subresource)
	}
	moved := *u
	moved.Path, moved.RawPath = strings.Join(parts, "/"), ""
	return &moved
}

func (t target) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.resource}
}

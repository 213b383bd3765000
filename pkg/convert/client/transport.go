package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// transport converts what goes to a server and what comes from it. It stands below what authenticates: the requests
// that it adds carry the headers of the one that they serve.
type transport struct {
	next      http.RoundTripper
	live      *Live
	converter *convert.Converter
	options   Options
	base      string // path of the server
}

// WrappedRoundTripper lets client-go find what is below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request as the server can take it. It is sent once more, as discovery then shows things, when the
// server does not know the path that earlier discovery showed.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	about, err := parseTarget(t.base, req.URL.Path)
	if err == nil && about.connects() {
		return t.next.RoundTrip(req)
	}
	if err != nil {
		if response, handled, err := t.discover(req); handled {
			return response, err
		}
		return t.next.RoundTrip(req)
	}
	answer, native, generation, err := t.live.resource(req.Context(), about.WithResource(about.resource))
	if err != nil {
		return nil, err
	}
	if !native { // only the server can know it, and it says so itself
		return t.next.RoundTrip(req)
	}
	response, err := t.send(req, about, answer)
	if err != nil || !unknownPath(response) {
		return response, err
	}
	t.live.invalidate(generation)
	again, native, _, err := t.live.resource(req.Context(), about.WithResource(about.resource))
	if err != nil || !native || again.Verdict == answer.Verdict && again.As == answer.As {
		return response, nil // it is not there, and was not
	}
	retry, err := rewind(req)
	if err != nil {
		return response, nil
	}
	response.Body.Close()
	return t.send(retry, about, again)
}

// rewind is the request with its body from the start.
func rewind(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, nil
	}
	if req.GetBody == nil {
		return nil, errors.New("the body is spent")
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err
}

// unknownPath reports whether the server says that it has no such path; of an object that is absent it says that as a
// Status.
func unknownPath(response *http.Response) bool {
	if response.StatusCode != http.StatusNotFound {
		return false
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return mediaType == "text/plain"
}

// call is one request and what is known about it.
type call struct {
	*transport
	req    *http.Request
	about  target // as asked
	served target // as the server has it
	answer negotiate.Answer
	server *negotiate.Server
	sent   schema.GroupVersionKind // of the body
	// metadataOnly: metadata alone is requested, from a server that sends whole objects.
	metadataOnly bool
}

func (t *transport) send(req *http.Request, about target, answer negotiate.Answer) (*http.Response, error) {
	server, err := t.live.view(req.Context())
	if err != nil {
		return nil, err
	}
	if answer.Verdict == negotiate.Unsupported {
		return nil, &UnsupportedError{Answer: answer, Server: server.Name}
	}
	c := &call{transport: t, req: req, about: about, served: about, answer: answer, server: server}
	if response, err := c.refuse(); response != nil || err != nil {
		return response, err
	}
	accept := req.Header.Get("Accept")
	c.metadataOnly = strings.Contains(accept, "as=PartialObjectMetadata") && c.lacks(kubever.BehaviourMetadataAnswered)
	if answer.Verdict == negotiate.Convert {
		c.served = about.as(answer.As.GroupVersion(), answer.Resource.Name)
		return c.converted()
	}
	switch {
	case about.subresource == "eviction" && req.Method == http.MethodPost:
		return c.create()
	case c.metadataOnly && req.Method == http.MethodGet:
		return c.read()
	case req.Method != http.MethodGet && req.Method != http.MethodHead && req.Body != nil && server.Minor.Known():
		return c.checked()
	}
	return t.next.RoundTrip(req)
}

// lacks reports whether the server is known not to behave so.
func (c *call) lacks(behaviour kubever.Behaviour) bool {
	return c.server.Minor.Known() && !kubever.Behaves(behaviour, c.server.Minor)
}

func (c *call) request() string {
	return c.req.Method + " " + c.about.resource + "." + c.about.GroupVersion.String()
}

func (c *call) unfaithful(format string, args ...any) error {
	return &UnfaithfulError{Request: c.request(), Server: c.server.Name, Reason: fmt.Sprintf(format, args...)}
}

// refuse answers for the server where it would misunderstand a request and not say so.
func (c *call) refuse() (*http.Response, error) {
	query := c.req.URL.Query()
	switch {
	case query.Has("dryRun") && c.lacks(kubever.BehaviourDryRunHeeded):
		return nil, c.unfaithful("%s does not know dryRun and would write", c.server.Minor)
	case discovery.Flag(query, "sendInitialEvents") && c.lacks(kubever.BehaviourWatchListHeeded):
		// As newer servers that have it turned off; informers list instead.
		return c.status(apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch",
			c.about.groupResource(), "", "sendInitialEvents: this server does not know it", 0, false))
	case c.req.Method == http.MethodPatch && isApply(c.req):
		if c.lacks(kubever.BehaviourServerSideApply) {
			return c.status(apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "apply",
				c.about.groupResource(), c.about.name,
				fmt.Sprintf("server-side apply: %s does not have it; update the object, or send a merge patch",
					c.server.Name), 0, false))
		}
	}
	return nil, nil
}

func isApply(req *http.Request) bool {
	mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return mediaType == string(types.ApplyYAMLPatchType) || mediaType == string(types.ApplyCBORPatchType)
}

// status is an answer of our own, as the server would give it.
func (c *call) status(err *apierrors.StatusError) (*http.Response, error) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	text, marshalErr := json.Marshal(&status)
	if marshalErr != nil {
		return nil, marshalErr
	}
	response := &http.Response{Request: c.req, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	setBody(response, int(status.Code), text)
	if c.req.Body != nil {
		c.req.Body.Close()
	}
	return response, nil
}

func setBody(response *http.Response, status int, text []byte) {
	response.StatusCode, response.Status = status, strconv.Itoa(status)+" "+http.StatusText(status)
	response.Header.Set("Content-Type", runtime.ContentTypeJSON)
	response.Header.Del("Content-Encoding")
	response.Header.Set("Content-Length", strconv.Itoa(len(text)))
	response.ContentLength = int64(len(text))
	response.Body = io.NopCloser(bytes.NewReader(text))
}

// converted carries out a request in the version that the server has.
func (c *call) converted() (*http.Response, error) {
	switch c.req.Method {
	case http.MethodGet:
		return c.read()
	case http.MethodPost:
		return c.create()
	case http.MethodPut:
		return c.update()
	case http.MethodPatch:
		if isApply(c.req) {
			return c.apply()
		}
		return c.patch()
	case http.MethodDelete:
		return c.remove()
	default:
		return nil, c.unfaithful("requests of this method are not converted")
	}
}

// body reads what the program sends; nil when that is nothing.
func (c *call) body() (map[string]any, error) {
	text, err := c.bodyText()
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return nil, err
	}
	return c.decode(text)
}

func (c *call) decode(text []byte) (map[string]any, error) {
	switch mediaType := c.contentType(); mediaType {
	case "", runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType):
	default:
		return nil, c.unfaithful("the body is %s; what may have to be converted is sent as %s", mediaType,
			runtime.ContentTypeJSON)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("%s: reading the body: %w", c.request(), err)
	}
	return object, nil
}

func (c *call) contentType() string {
	mediaType, _, _ := mime.ParseMediaType(c.req.Header.Get("Content-Type"))
	return mediaType
}

func (c *call) bodyText() ([]byte, error) {
	if c.req.Body == nil {
		return nil, nil
	}
	defer c.req.Body.Close()
	text, err := io.ReadAll(c.req.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the body: %w", c.request(), err)
	}
	return text, nil
}

// do sends a request to the place where the server has the resource.
func (c *call) do(ctx context.Context, method string, at target, query string, body map[string]any) (*http.Response,
	error) {
	return c.doAs(ctx, method, at, query, runtime.ContentTypeJSON, body)
}

// doAs is do with a body of a content type, which JSON can be.
func (c *call) doAs(ctx context.Context, method string, at target, query, contentType string, body map[string]any) (
	*http.Response, error) {
	req := c.req.Clone(ctx)
	req.Method = method
	req.URL = at.onURL(c.req.URL)
	req.URL.RawQuery = query
	req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	req.Header.Del("Content-Type")
	req.Header.Set("Accept", acceptJSON(c.req.Header.Get("Accept"), c.metadataOnly))
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s: writing the body: %w", c.request(), err)
		}
		req.Header.Set("Content-Type", contentType)
		req.Body = io.NopCloser(bytes.NewReader(text))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		req.ContentLength = int64(len(text))
	}
	return c.next.RoundTrip(req)
}

// acceptJSON leaves the forms of an answer that are JSON: metadata alone and tables need no conversion, other encodings
// cannot be converted.
func acceptJSON(accept string, whole bool) string {
	var kept []string
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, err := mime.ParseMediaType(part)
		if err == nil && mediaType == runtime.ContentTypeJSON && !(whole && strings.Contains(part, "as=")) {
			kept = append(kept, strings.TrimSpace(part))
		}
	}
	if len(kept) == 0 {
		return runtime.ContentTypeJSON
	}
	return strings.Join(kept, ",")
}

// read gets an object or a list, or watches.
func (c *call) read() (*http.Response, error) {
	response, err := c.do(c.req.Context(), http.MethodGet, c.served, c.req.URL.RawQuery, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK && c.watches() {
		var holding Holding
		if c.options.Hold != nil {
			holding = c.options.Hold(c.req.Context())
		}
		response.Body = newEvents(response.Body, holding, c.translate)
		response.ContentLength = -1
		response.Header.Del("Content-Length")
		response.Header.Set("Content-Type", runtime.ContentTypeJSON)
		return response, nil
	}
	return c.answered(response)
}

// answered converts what the server answers. What is not JSON stays as it is.
func (c *call) answered(response *http.Response) (*http.Response, error) {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType != runtime.ContentTypeJSON {
		return response, nil
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: reading the answer: %w", c.request(), err)
	}
	var document map[string]any
	if err := utiljson.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: reading the answer: %w", c.request(), err)
	}
	if document, err = c.translate(document); err != nil {
		return nil, fmt.Errorf("%s: converting the answer: %w", c.request(), err)
	}
	if text, err = json.Marshal(document); err != nil {
		return nil, fmt.Errorf("%s: writing the answer: %w", c.request(), err)
	}
	setBody(response, response.StatusCode, text)
	return response, nil
}

// translate turns a document of the server's into the asked version: an object, a list, a Status.
func (c *call) translate(document map[string]any) (map[string]any, error) {
	gvk := kindOf(document)
	switch {
	case gvk.Kind == "Status" && gvk.Version == "v1" && gvk.Group == "":
		return c.renamed(document), nil
	case gvk.Group == metav1.GroupName: // metadata alone, tables
		return document, c.table(document)
	}
	if items, ok := document["items"].([]any); ok && strings.HasSuffix(gvk.Kind, "List") {
		return c.list(document, gvk, items)
	}
	return c.object(document, gvk)
}

// table converts the objects in the rows of a Table, where there are whole ones.
func (c *call) table(document map[string]any) error {
	rows, _ := document["rows"].([]any)
	for i := range rows {
		row, _ := rows[i].(map[string]any)
		object, _ := row["object"].(map[string]any)
		if kindOf(object) != c.answer.As {
			continue
		}
		name := nameOf(object)
		converted, err := c.object(object, c.answer.As)
		if err != nil {
			return fmt.Errorf("rows[%d]: %s: %w", i, name, err)
		}
		row["object"] = converted
	}
	return nil
}

func (c *call) list(document map[string]any, gvk schema.GroupVersionKind, items []any) (map[string]any, error) {
	item := gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List"))
	for i := range items {
		object, ok := items[i].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d]: want an object", i)
		}
		if _, ok := object["kind"]; !ok { // servers leave both out
			object["apiVersion"], object["kind"] = item.ToAPIVersionAndKind()
		}
		name := nameOf(object)
		converted, err := c.object(object, kindOf(object))
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %s: %w", i, name, err)
		}
		items[i] = converted
	}
	switch {
	case c.metadataOnly:
		document["apiVersion"], document["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	case item == c.answer.As:
		document["apiVersion"], document["kind"] = c.answer.Asked.GroupVersion().String(), c.answer.Asked.Kind+"List"
	}
	return document, nil
}

// object converts an object that was read. It is not used any more then: parts of it become parts of the result.
func (c *call) object(object map[string]any, gvk schema.GroupVersionKind) (map[string]any, error) {
	if c.metadataOnly {
		return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
			"metadata": object["metadata"]}, nil
	}
	to := gvk
	switch {
	case c.answer.Verdict != negotiate.Convert:
	case gvk == c.answer.As:
		to = c.answer.Asked
	case gvk.Kind == "Scale":
		to = kubever.ScaleKind(c.about.GroupVersion)
	}
	if gvk.Kind == "Eviction" && c.sent.Kind == gvk.Kind {
		to = c.sent
	}
	converted := &unstructured.Unstructured{Object: object}
	losses, err := c.converter.ConvertInPlace(converted, to)
	if err != nil {
		return nil, err
	}
	if len(losses) > 0 && c.options.OnRead != nil && !c.watches() {
		c.options.OnRead(nameOf(converted.Object), losses)
	}
	return converted.Object, nil
}

// watches reports whether the answer is a watch: of one object, API servers do not look at the parameter.
func (c *call) watches() bool {
	return c.req.Method == http.MethodGet && c.about.name == "" && discovery.Flag(c.req.URL.Query(), "watch")
}

// renamed makes a Status speak of the resource that was asked for. A server may name a third group: 1.6 calls what it
// serves as apps/v1beta1 deployments.extensions.
func (c *call) renamed(status map[string]any) map[string]any {
	if c.answer.Verdict != negotiate.Convert {
		return status
	}
	message, _ := status["message"].(string)
	details, _ := status["details"].(map[string]any)
	group, _ := details["group"].(string)
	for _, other := range append(c.converter.Equivalents(c.answer.Asked), c.answer.As) {
		for was, is := range map[string]string{
			schema.GroupResource{Group: other.Group, Resource: c.served.resource}.String(): c.about.groupResource().
				String(),
			other.GroupKind().String(): c.answer.Asked.GroupKind().String(),
		} {
			message = strings.ReplaceAll(message, was+` "`, is+` "`)
		}
		if details != nil && group == other.Group &&
			(details["kind"] == c.served.resource || details["kind"] == other.Kind) {
			details["group"] = c.about.Group
			if c.about.Group == "" {
				delete(details, "group")
			}
		}
	}
	if message != "" {
		status["message"] = message
	}
	return status
}

func kindOf(object map[string]any) schema.GroupVersionKind {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// nameOf is how errors call an object: Deployment shop/web.
func nameOf(object map[string]any) string {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if generated, ok := metadata["generateName"].(string); ok && name == "" {
		name = generated + "*"
	}
	if namespace, ok := metadata["namespace"].(string); ok && namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

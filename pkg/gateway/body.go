package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
)

const (
	applyPatch     = "application/apply-patch+yaml"
	applyPatchCBOR = "application/apply-patch+cbor"
)

// readBody reads the body of a request, as JSON. The kind is its content type. What it takes is held beside the
// reservation, until the request ends.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, c *exchange,
	memory *webserver.Reservation) (body []byte, kind string, err error) {
	if r.ContentLength > limitBodyBytes { // it is not asked for
		return nil, "", unread(&http.MaxBytesError{Limit: limitBodyBytes})
	}
	release, err := c.own.reading.Take(r.Context())
	if err != nil {
		busy := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"%d bodies of %s are being read", limitReading, c.id.GetName())
		busy.ErrStatus.Details = unavailableDetails()
		return nil, "", busy
	}
	defer release()
	memory = memory.Another(c.own.bodies)
	c.took.end(memory.Release)
	body, err = readAll(r.Context(), http.MaxBytesReader(w, r.Body, limitBodyBytes), limitBodyBytes, memory)
	if err != nil {
		return nil, "", unread(err)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, "", refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"content encoding %q: want none", coding)
	}
	kind, _, err = mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/json"))
	switch {
	case len(body) == 0:
		return nil, kind, nil
	case err != nil:
		return nil, "", badRequest("content type: %v", err)
	case kind == "application/yaml" || kind == applyPatch:
		if body, c.twice, err = yamlToJSON(r.Context(), body, memory, c.own.workers); err != nil {
			return nil, "", err
		}
		if kind == "application/yaml" {
			kind = "application/json"
		}
	case kind == applyPatchCBOR: // JSON is YAML, and every server that knows apply patches takes that
		if body, err = cborToJSON(r.Context(), body, memory, c.own.workers); err != nil {
			return nil, "", err
		}
		kind = applyPatch
	case kind == runtime.ContentTypeProtobuf:
		if body, err = g.protobufToJSON(r.Context(), body, memory, c.own.workers); err != nil {
			return nil, "", err
		}
		kind = "application/json"
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		return nil, "", refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"objects that are merged or converted are written as application/json, application/yaml or %s, not as %q",
			runtime.ContentTypeProtobuf, kind)
	}
	if err := memory.Grow(r.Context(), jsontext.DecodedBytes(body)); err != nil {
		return nil, "", unread(err)
	}
	if err := memory.Grow(r.Context(), pathBytes(body)); err != nil {
		return nil, "", unread(err)
	}
	err = c.own.workers.do(r.Context(), func() (err error) {
		if !json.Valid(body) {
			var value json.RawMessage
			return badRequest("the body: %v", json.Unmarshal(body, &value))
		}
		if twice := saidTwice(body); len(twice) > 0 {
			c.twice = append(c.twice, twice...)
			if body, err = once(body); err != nil {
				return badRequest("the body: %v", err)
			}
		}
		return nil
	})
	return body, kind, err
}

// pathBytes is about what the paths of all values in a text take, as far as there is anything that asks for them: a
// conversion names what is lost by its path, and refuses what has more.
func pathBytes(text []byte) (sum int64) {
	const (
		partBytes = 16
		most      = 64 << 20
	)
	type around struct {
		own  int64
		list bool
	}
	stack := []around{{}}
	at, name, begun := int64(0), int64(0), -1
	escaped := false
	for i, c := range text {
		top := stack[len(stack)-1]
		switch {
		case escaped:
			escaped = false
		case begun >= 0:
			if escaped = c == '\\'; c == '"' {
				name, begun = int64(i-begun-1), -1
			}
		case c == '"':
			begun = i
		case c == ':':
			at = top.own + name + partBytes
			sum += at
		case c == '{' || c == '[':
			stack = append(stack, around{at, c == '['})
			if c == '[' {
				at += partBytes
				sum += at
			}
		case c == ',' && top.list:
			at = top.own + partBytes
			sum += at
		case (c == '}' || c == ']') && len(stack) > 1:
			at, stack = top.own, stack[:len(stack)-1]
		}
		if sum > most {
			return most
		}
	}
	return sum
}

// protobufToJSON reads a message of a kind that Kubernetes 1.36 has. Clients of typed objects write them so.
func (g *Gateway) protobufToJSON(ctx context.Context, body []byte, memory *webserver.Reservation,
	workers *workers) (converted []byte, err error) {
	size, err := convert.ProtobufBytes(body)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	if err := memory.Grow(ctx, size); err != nil {
		return nil, unread(err)
	}
	err = workers.do(ctx, func() (err error) {
		converted, err = g.readProtobuf(body)
		return err
	})
	return converted, err
}

func (g *Gateway) readProtobuf(body []byte) ([]byte, error) {
	object, err := g.messages.DecodeProtobuf(body)
	var none *convert.UnsupportedError
	switch {
	case errors.As(err, &none):
		return nil, refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "%v", err)
	case err != nil:
		return nil, badRequest("%v", err)
	}
	return json.Marshal(object.Object)
}

// yamlToJSON reads a body as API servers do, but for aliases, by which a few bytes are gigabytes of JSON. twice is what
// it says more than once; the last value counts.
func yamlToJSON(ctx context.Context, body []byte, memory *webserver.Reservation, workers *workers) (converted []byte,
	twice []string, err error) {
	if err := memory.Grow(ctx, yamlBytes(body)); err != nil {
		return nil, nil, unread(err)
	}
	err = workers.do(ctx, func() (err error) {
		converted, twice, err = readYAML(body)
		return err
	})
	return converted, twice, err
}

// yamlBytes is about what reading a body of YAML takes.
func yamlBytes(body []byte) int64 {
	const valueBytes = 512 // of its node in two parsers, and of the value
	marks := int64(0)      // each value but the first is behind one
	for _, c := range body {
		if strings.IndexByte(",[{:?-\n", c) >= 0 {
			marks++
		}
	}
	return marks * valueBytes
}

func readYAML(body []byte) (converted []byte, twice []string, err error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(body, &document); err != nil {
		return nil, nil, badRequest("%v", err)
	}
	if line := aliasIn(&document); line > 0 {
		return nil, nil, badRequest("line %d: aliases of YAML are not read; write the value", line)
	}
	if converted, err = yaml.YAMLToJSON(body); err != nil {
		return nil, nil, badRequest("%v", err)
	}
	_, strict := yaml.YAMLToJSONStrict(body)
	return converted, strictly(strict), nil
}

// cborToJSON reads a body of CBOR as API servers do.
func cborToJSON(ctx context.Context, body []byte, memory *webserver.Reservation, workers *workers) (converted []byte,
	err error) {
	const copies = 72 // of the message, as values of Go and as text: an empty map is a byte of it
	if err := memory.Grow(ctx, copies*int64(len(body))); err != nil {
		return nil, unread(err)
	}
	err = workers.do(ctx, func() (err error) {
		var value any
		if err := direct.Unmarshal(body, &value); err != nil {
			return badRequest("the body is no CBOR: %v", err)
		}
		converted, err = json.Marshal(value)
		return err
	})
	return converted, err
}

// aliasIn is the line of the first alias; 0 for none.
func aliasIn(node *yamlv3.Node) int {
	if node.Kind == yamlv3.AliasNode {
		return node.Line
	}
	for _, inner := range node.Content {
		if line := aliasIn(inner); line > 0 {
			return line
		}
	}
	return 0
}

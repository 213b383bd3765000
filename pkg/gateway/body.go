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
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
)

const applyPatch = "application/apply-patch+yaml"

// readBody reads the body of a request, as JSON. The kind is its content type.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, c *exchange,
	memory *webserver.Reservation) (body []byte, kind string, err error) {
	release, err := c.reading.Take(r.Context())
	if err != nil {
		busy := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"%d bodies of %s are being read", limitReading, c.id.GetName())
		busy.ErrStatus.Details = unavailableDetails()
		return nil, "", busy
	}
	defer release()
	body, err = readAll(r.Context(), http.MaxBytesReader(w, r.Body, limitBytes), limitBytes, memory)
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
		if body, err = yamlToJSON(r.Context(), body, memory); err != nil {
			return nil, "", err
		}
		if kind == "application/yaml" {
			kind = "application/json"
		}
	case kind == runtime.ContentTypeProtobuf:
		if body, err = g.protobufToJSON(r.Context(), body, memory); err != nil {
			return nil, "", err
		}
		kind = "application/json"
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		return nil, "", refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"objects that are merged or converted are written as application/json, application/yaml or %s, not as %q",
			runtime.ContentTypeProtobuf, kind)
	}
	if err := memory.Grow(r.Context(), webserver.DecodedBytes(body)); err != nil {
		return nil, "", unread(err)
	}
	return body, kind, nil
}

// protobufToJSON reads a message of a kind that Kubernetes 1.36 has. Clients of typed objects write them so.
func (g *Gateway) protobufToJSON(ctx context.Context, body []byte, memory *webserver.Reservation) ([]byte, error) {
	size, err := convert.ProtobufBytes(body)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	if err := memory.Grow(ctx, size); err != nil {
		return nil, unread(err)
	}
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

// yamlToJSON reads a body as API servers do, but for aliases, by which a few bytes are gigabytes of JSON.
func yamlToJSON(ctx context.Context, body []byte, memory *webserver.Reservation) ([]byte, error) {
	const valueBytes = 512 // of its node in two parsers, and of the value
	marks := int64(0)      // each value but the first is behind one
	for _, c := range body {
		if strings.IndexByte(",[{:?-\n", c) >= 0 {
			marks++
		}
	}
	if err := memory.Grow(ctx, marks*valueBytes); err != nil {
		return nil, unread(err)
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(body, &document); err != nil {
		return nil, badRequest("%v", err)
	}
	if line := aliasIn(&document); line > 0 {
		return nil, badRequest("line %d: aliases of YAML are not read; write the value", line)
	}
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return converted, nil
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

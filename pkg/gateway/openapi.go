package gateway

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

const (
	openAPI2Path = "/openapi/v2"
	openAPI3Path = "/openapi/v3"
	// limitOpenAPIBytes bounds the document of one side: that of a cluster with many CRDs is large.
	limitOpenAPIBytes = 64 << 20

	jsonType = "application/json"
)

// openAPI2Types are the content types of the document in protobuf that clients ask for. The second is the answer to
// both: an @ is in no media type by the rules, and client-go refuses it in an answer.
var openAPI2Types = []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
	"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}

// openAPI2 keeps what the sides say in OpenAPI v2, and the document of both, until one of them says something else.
type openAPI2 struct {
	mu     sync.Mutex
	said   map[pair.Side]*document2
	merged map[string]*merged2 // by the sides
}

// document2 is what a side said.
type document2 struct {
	path, tag string
	bytes     int64
	packed    []byte // it has megabytes, and is read when one of the sides says something else
	sum       string
}

// merged2 is one document of those of the sides.
type merged2 struct {
	of, tag  string // what it was made of, and what it is
	json, pb form2
}

// form2 is a document in one of its forms. What most clients take is kept.
type form2 struct {
	bytes  int64
	packed []byte
}

// serveOpenAPI2 answers with the schemas of both sides as one document of OpenAPI v2. Where both have a path or a kind
// it is the modern side's.
func (g *Gateway) serveOpenAPI2(w http.ResponseWriter, r *http.Request, c *exchange, kind string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return unsupported("want GET")
	}
	if kind == "" {
		if kind = openAPI2Type(r); kind == "" {
			return refusal(http.StatusNotAcceptable, "NotAcceptable", "%s is served as %s and %s", openAPI2Path,
				jsonType, openAPI2Types[0])
		}
	}
	memory := g.reserve(c)
	defer memory.Release()
	documents := map[pair.Side]*document2{}
	var refused error
	for _, name := range g.names() {
		if _, err := c.id.at(name); apierrors.IsForbidden(err) { // of a side that does not know the client
			continue
		}
		d, no, err := g.openAPI2Of(r, c, name, memory)
		if err != nil {
			return err
		}
		refused = cmp.Or(refused, no)
		if d != nil {
			documents[name] = d
		}
	}
	if len(documents) == 0 {
		return cmp.Or(refused, notFound(r))
	}
	c.took.by(slices.Sorted(maps.Keys(documents))...)
	m, err := g.mergeOpenAPI2(r.Context(), c.view, documents)
	memory.Release() // of what the sides sent: the client may read slowly
	if err != nil {
		return err
	}
	form := m.json
	if kind != jsonType {
		form = m.pb
	}
	var body io.ReadSeeker = bytes.NewReader(form.packed)
	compressed := slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(coding string) bool {
		return strings.TrimSpace(coding) == "gzip"
	})
	if !compressed {
		held := g.reserve(c)
		defer held.Release()
		if err := held.Grow(r.Context(), unpackingBytes); err != nil {
			return unread(err)
		}
		body = &unpacking{form2: form, ctx: r.Context(), turn: turn{workers: c.own.workers}}
		r = r.Clone(r.Context())
		r.Header.Del("Range") // each part would be looked for from the beginning
	}
	header := w.Header()
	if kind == openAPI2Types[0] {
		kind = openAPI2Types[1]
	}
	header.Set("Content-Type", kind)
	header.Set("ETag", strconv.Quote(m.tag))
	header.Add("Vary", "Accept, Accept-Encoding")
	header.Set("Cache-Control", "no-cache, private")
	if compressed {
		header.Set("Content-Encoding", "gzip")
	}
	http.ServeContent(w, r, "", time.Time{}, body)
	return nil
}

// unpackingBytes is what is held of a document that is unpacked while the client reads it.
const unpackingBytes = 64 << 10

// unpacking is a document as a client without gzip reads it: from the beginning to the end, a piece at a time, in turns
// of its user.
type unpacking struct {
	form2
	ctx  context.Context
	turn turn
	z    *gzip.Reader
}

// Seek implements io.Seeker: to the end, by which readers ask how long it is, and to the beginning.
func (u *unpacking) Seek(offset int64, whence int) (int64, error) {
	switch {
	case offset == 0 && whence == io.SeekEnd:
		return u.bytes, nil
	case offset == 0 && whence == io.SeekStart && u.z == nil:
		return 0, nil
	}
	return 0, errors.ErrUnsupported
}

// Read implements io.Reader.
func (u *unpacking) Read(into []byte) (n int, err error) {
	if err := u.turn.begin(u.ctx, 0); err != nil {
		return 0, err
	}
	defer u.turn.end()
	if u.z == nil {
		if u.z, err = gzip.NewReader(bytes.NewReader(u.packed)); err != nil {
			return 0, err
		}
	}
	return u.z.Read(into)
}

// openAPI2Type is the content type that the client likes best; "" where it takes none.
func openAPI2Type(r *http.Request) string {
	best, quality := "", 0.0
	for clause := range strings.SplitSeq(cmp.Or(strings.Join(r.Header.Values("Accept"), ","), "*/*"), ",") {
		// An @ is in no media type by the rules, and in that of this document.
		media, params, _ := strings.Cut(clause, ";")
		media = strings.TrimSpace(media)
		q := 1.0
		for param := range strings.SplitSeq(params, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				var err error
				if q, err = strconv.ParseFloat(value, 64); err != nil {
					q = 0
				}
			}
		}
		if media == "*/*" || media == "application/*" {
			media = jsonType
		}
		if q > quality && (media == jsonType || slices.Contains(openAPI2Types, media)) {
			best, quality = media, q
		}
	}
	return best
}

// openAPI2Of is the document of a side, as it is now: nil where the side has none. A side that lets the client read
// none has none for it; refused is its answer. Errors: a Status.
func (g *Gateway) openAPI2Of(r *http.Request, c *exchange, name pair.Side, memory *webserver.Reservation) (d *document2,
	refused, err error) {
	g.openAPI2.mu.Lock()
	known := g.openAPI2.said[name]
	g.openAPI2.mu.Unlock()
	for _, at := range []string{openAPI2Path, "/swagger.json"} { // the second before 1.10
		q := question{method: http.MethodGet, path: at, accept: jsonType}
		if known != nil && known.path == at {
			q.tag = known.tag
		}
		a, err := g.sides[name].ask(r.Context(), r, c.id, q, limitOpenAPIBytes, memory)
		if err != nil {
			return nil, nil, err
		}
		switch a.code {
		case http.StatusNotModified:
			if q.tag != "" {
				return known, nil, nil
			}
			return nil, nil, unreachable(name, fmt.Errorf("%s: 304 without a condition", at))
		case http.StatusOK:
			sum := sha256.Sum256(a.body)
			d := &document2{path: at, tag: a.header.Get("ETag"), bytes: int64(len(a.body)), packed: packed(a.body),
				sum: hex.EncodeToString(sum[:])}
			g.openAPI2.mu.Lock()
			defer g.openAPI2.mu.Unlock()
			g.openAPI2.said[name] = d
			return d, nil, nil
		case http.StatusForbidden:
			refused = cmp.Or(refused, error(answered{a}))
		case http.StatusNotFound, http.StatusNotAcceptable:
		default:
			return nil, nil, answered{a}
		}
	}
	return nil, refused, nil
}

// mergeOpenAPI2 makes one document of those of the sides, for all clients.
func (g *Gateway) mergeOpenAPI2(ctx context.Context, v *view, documents map[pair.Side]*document2) (*merged2, error) {
	of := sha256.New()
	sides := ""
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		sides += string(name)
		fmt.Fprintln(of, name, documents[name].sum)
	}
	for i := range v.table.Rows {
		row := &v.table.Rows[i]
		fmt.Fprintln(of, row.GroupVersionResource(), row.Way)
	}
	sum := hex.EncodeToString(of.Sum(nil))
	g.openAPI2.mu.Lock()
	defer g.openAPI2.mu.Unlock()
	if m := g.openAPI2.merged[sides]; m != nil && m.of == sum {
		return m, nil
	}
	memory := g.documents.Reserve()
	defer memory.Release()
	var all *spec.Swagger
	for _, name := range []pair.Side{pair.Modern, pair.Legacy} {
		d := documents[name]
		if d == nil {
			continue
		}
		const copies = 6 // of the text, as JSON, as a tree, as protobuf, and compressed
		if err := memory.Grow(ctx, copies*d.bytes); err != nil {
			return nil, unavailable("merging %s: %v", openAPI2Path, err)
		}
		body, err := unpacked(d.packed)
		if err != nil {
			return nil, err
		}
		if err := memory.Grow(ctx, jsontext.DecodedBytes(body)); err != nil {
			return nil, unavailable("merging %s: %v", openAPI2Path, err)
		}
		one, err := g.parse(body, v.table)
		if err != nil {
			return nil, unreachable(name, fmt.Errorf("%s: %w", d.path, err))
		}
		if all == nil {
			all = one
			continue
		}
		if err := addOpenAPI2(all, one); err != nil {
			return nil, unreachable(name, fmt.Errorf("%s: %w", d.path, err))
		}
	}
	if err := describe(all, v.table); err != nil {
		return nil, err
	}
	text, err := all.MarshalJSON()
	if err != nil {
		return nil, err
	}
	document, err := openapi.ParseDocument(text)
	if err != nil {
		return nil, unavailable("%s of both sides: %v", openAPI2Path, err)
	}
	pb, err := proto.MarshalOptions{Deterministic: true}.Marshal(document)
	if err != nil {
		return nil, err
	}
	tag := sha256.Sum256(text)
	m := &merged2{of: sum, tag: strings.ToUpper(hex.EncodeToString(tag[:])),
		json: form2{int64(len(text)), packed(text)}, pb: form2{int64(len(pb)), packed(pb)}}
	g.openAPI2.merged[sides] = m
	return m, nil
}

func packed(text []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(text) // to memory
	_ = z.Close()
	return out.Bytes()
}

func unpacked(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// parse reads the document of a side, as far as it is of resources that the gateway serves.
func (g *Gateway) parse(body []byte, table *routes.Table) (*spec.Swagger, error) {
	document := &spec.Swagger{}
	if err := json.Unmarshal(body, document); err != nil {
		return nil, err
	}
	if document.Paths == nil {
		document.Paths = &spec.Paths{}
	}
	maps.DeleteFunc(document.Paths.Paths, func(path string, _ spec.PathItem) bool {
		gvr, old, ok := g.resourceAt(path)
		if !ok {
			return false
		}
		row := table.Row(gvr)
		return row == nil || row.Way == routes.None ||
			old && (row.Way == routes.Both || row.Way == routes.Converted)
	})
	for _, definition := range document.Definitions {
		for _, kind := range kindsOf(&definition) {
			fields, _ := kind.(map[string]any)
			for _, name := range []string{"Group", "Version", "Kind"} { // as 1.6 writes them
				if value, ok := fields[name]; ok {
					fields[strings.ToLower(name)] = value
					delete(fields, name)
				}
			}
		}
	}
	return document, nil
}

// resourceAt is the resource that a path is of; old for a path of watches as they were before they were lists.
func (g *Gateway) resourceAt(path string) (gvr schema.GroupVersionResource, old, ok bool) {
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		return gvr, false, false
	}
	r.URL.Path = strings.TrimSuffix(path, "/")
	info, err := g.infos.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || strings.HasPrefix(info.Resource, "{") {
		return gvr, false, false
	}
	c := &exchange{info: &request.RequestInfo{APIGroup: info.APIGroup, APIVersion: info.APIVersion}}
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		oldWatch(r, c), true
}

const kindsExtension = "x-kubernetes-group-version-kind"

// addOpenAPI2 adds what a document has beyond all. A kind keeps the one schema that it has: a client that looks for it
// finds one of several at random.
func addOpenAPI2(all, more *spec.Swagger) error {
	if err := onlyBeyond(all, more); err != nil {
		return err
	}
	theirs, known := map[string]bool{}, map[string]bool{}
	for name, definition := range all.Definitions {
		theirs[name] = true
		for _, kind := range kindsOf(&definition) {
			known[fmt.Sprint(kind)] = true
		}
	}
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(all, more); err != nil {
		return err
	}
	for name, definition := range all.Definitions {
		if theirs[name] {
			continue
		}
		kinds := slices.DeleteFunc(slices.Clone(kindsOf(&definition)), func(kind any) bool {
			return known[fmt.Sprint(kind)]
		})
		switch {
		case len(kinds) == len(kindsOf(&definition)):
			continue
		case len(kinds) == 0:
			definition.Extensions = maps.Clone(definition.Extensions)
			delete(definition.Extensions, kindsExtension)
		default:
			definition.Extensions = maps.Clone(definition.Extensions)
			definition.Extensions[kindsExtension] = kinds
		}
		all.Definitions[name] = definition
	}
	return nil
}

var reference = regexp.MustCompile(`"#/definitions/([^"\\]+)"`)

// onlyBeyond leaves in a document the paths that all does not have, and the definitions that these lead to. The merger
// of API machinery would do so where no definition is unused: those that old releases keep under their former names
// would be left, and what they refer to would not.
func onlyBeyond(all, more *spec.Swagger) error {
	maps.DeleteFunc(more.Paths.Paths, func(path string, _ spec.PathItem) bool {
		_, has := all.Paths.Paths[path]
		return has
	})
	text, err := json.Marshal(more.Paths)
	if err != nil {
		return err
	}
	used := spec.Definitions{}
	for todo := [][]byte{text}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, match := range reference.FindAllSubmatch(next, -1) {
			name := string(match[1])
			definition, known := more.Definitions[name]
			if _, seen := used[name]; seen || !known {
				continue
			}
			used[name] = definition
			text, err := definition.MarshalJSON()
			if err != nil {
				return err
			}
			todo = append(todo, text)
		}
	}
	more.Definitions = used
	return nil
}

func kindsOf(definition *spec.Schema) []any {
	kinds, _ := definition.Extensions[kindsExtension].([]any)
	return kinds
}

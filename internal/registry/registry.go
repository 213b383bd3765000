// Package registry reads one file of a container image from its registry, by digests: of the manifest, which the image
// names, and of the layers, which the manifest names. It speaks the distribution protocol over TLS alone, unpacks
// nothing, and holds no more of an image than a buffer.
package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Image is one of a repository, by the digest of its manifest, or of an index of them.
type Image struct {
	Registry   string // host, and port where it is not 443
	Repository string
	Digest     string // sha256:...
}

func (i Image) String() string { return i.Registry + "/" + i.Repository + "@" + i.Digest }

// Client reads from registries.
type Client struct {
	// Credentials is a file in the format of docker's config.json; "" for none.
	Credentials string
	Transport   http.RoundTripper // nil for one with the certificates of the system
	// Architecture is the one of an index that is read, as Go names it; "" for this machine's.
	Architecture string
	// Patience is within which time a registry has to begin an answer, and to send a MiB of it, or the rest; 0 for a
	// minute.
	Patience time.Duration
}

// DigestError says that what was read is not what its digest promised.
type DigestError struct{ What, Want, Found string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("%s: has the digest %s, want %s", e.What, e.Found, e.Want)
}

// Bounds on what a registry sends. The largest program of a release, a hyperkube, has 0.6 GiB in a layer of its own.
const (
	limitManifestBytes = 4 << 20
	limitLayers        = 256
	limitLayerBytes    = 8 << 30  // compressed, and again uncompressed
	limitEntries       = 1 << 20  // of a layer
	limitFileBytes     = 2 << 30  // that is read
	limitTokenBytes    = 64 << 10 // the answer of a token server
	limitRedirects     = 5
	stepBytes          = 1 << 20 // that have to come within Patience: a body that drips has no end
)

// File writes a file of an image, by its absolute path in it, as a container of the image sees it: of the upmost layer
// that has it, over links of the image. When it returns an error, what was written is to be thrown away.
// Errors: *DigestError, wrapped; fs.ErrNotExist, wrapped, when the image has no such file; what a registry answers.
func (c *Client) File(ctx context.Context, image Image, path string, out io.Writer) error {
	s := &session{Client: c, image: image}
	s.client = &http.Client{Transport: c.transport(), CheckRedirect: s.follow}
	layers, err := s.layers(ctx)
	if err == nil {
		err = s.find(ctx, layers, path, out)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	return nil
}

func (c *Client) transport() http.RoundTripper {
	if c.Transport != nil {
		return c.Transport
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = c.patience()
	t.DisableKeepAlives = true // one image is read, and the process goes on
	return t
}

func (c *Client) patience() time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	return time.Minute
}

// session reads one image.
type session struct {
	*Client
	image         Image
	client        *http.Client
	authorization string // of requests to the registry, "" before it asked for one
}

// follow allows redirects over TLS. What authorizes at the registry goes to no other host or port: Go takes it away for
// another domain alone.
func (s *session) follow(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > limitRedirects:
		return fmt.Errorf("more than %d redirects", limitRedirects)
	case next.URL.Scheme != "https":
		return fmt.Errorf("redirected to %s, which is not https", next.URL.Redacted())
	case next.URL.Host != via[0].URL.Host:
		next.Header.Del("Authorization")
	}
	return nil
}

// host is where a registry answers: Docker Hub's name is not that of its server.
func (i Image) host() string {
	if i.Registry == "docker.io" || i.Registry == "index.docker.io" {
		return "registry-1.docker.io"
	}
	return i.Registry
}

func (i Image) repository() string {
	if i.host() == "registry-1.docker.io" && !strings.Contains(i.Repository, "/") {
		return "library/" + i.Repository
	}
	return i.Repository
}

// get asks the registry, and once more with what it wants of a client.
func (s *session) get(ctx context.Context, kind, digest string, accept ...string) (*http.Response, error) {
	url := "https://" + s.image.host() + "/v2/" + s.image.repository() + "/" + kind + "/" + digest
	for again := false; ; again = true {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		for _, a := range accept {
			request.Header.Add("Accept", a)
		}
		if s.authorization != "" {
			request.Header.Set("Authorization", s.authorization)
		}
		response, err := s.client.Do(request)
		if err != nil {
			return nil, err
		}
		asked := response.Request.URL.Host == request.URL.Host && response.StatusCode == http.StatusUnauthorized
		switch {
		case response.StatusCode == http.StatusOK:
			return response, nil
		case !asked || again:
			response.Body.Close()
			return nil, fmt.Errorf("%s: %s", url, response.Status)
		}
		challenge := response.Header.Values("WWW-Authenticate")
		response.Body.Close()
		if s.authorization, err = s.authorize(ctx, challenge); err != nil {
			return nil, err
		}
	}
}

// body is what a response has, as long as enough of it comes.
func (s *session) body(ctx context.Context, kind, digest string, accept ...string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	patience := s.patience()
	late := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("fewer than %d bytes were received in %s", stepBytes, patience))
	})
	response, err := s.get(ctx, kind, digest, accept...)
	if err != nil {
		late.Stop()
		cause := context.Cause(ctx)
		cancel(nil)
		if cause != nil {
			return nil, cause
		}
		return nil, err
	}
	late.Reset(patience)
	return &patient{ctx: ctx, body: response.Body, late: late, patience: patience, cancel: cancel}, nil
}

// patient is a body that breaks off when too little comes.
type patient struct {
	ctx      context.Context
	body     io.ReadCloser
	late     *time.Timer
	patience time.Duration
	read     int64
	cancel   context.CancelCauseFunc
}

func (p *patient) Read(into []byte) (int, error) {
	n, err := p.body.Read(into)
	if (p.read+int64(n))/stepBytes > p.read/stepBytes {
		p.late.Reset(p.patience)
	}
	p.read += int64(n)
	if err != nil { // an end, too: one that broke off may look like it
		if cause := context.Cause(p.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (p *patient) Close() error {
	p.late.Stop()
	p.cancel(nil)
	return p.body.Close()
}

// The media types of manifests and indices. Source: image-spec 1.1 of OCI, and schema 2 of Docker's manifests.
var (
	manifestTypes = []string{"application/vnd.oci.image.manifest.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json"}
	indexTypes = []string{"application/vnd.oci.image.index.v1+json",
		"application/vnd.docker.distribution.manifest.list.v2+json"}
)

// descriptor names a blob or a manifest.
type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
	} `json:"platform"`
}

// document is a manifest or an index.
type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Layers        []descriptor `json:"layers"`
	Manifests     []descriptor `json:"manifests"`
}

// layers are those of the image, of an index those of this machine's platform; the lowest first.
func (s *session) layers(ctx context.Context) ([]descriptor, error) {
	d, err := s.document(ctx, s.image.Digest)
	if err != nil {
		return nil, err
	}
	if len(d.Manifests) > 0 {
		one, err := s.ofPlatform(d.Manifests)
		if err != nil {
			return nil, err
		}
		if d, err = s.document(ctx, one.Digest); err != nil {
			return nil, err
		}
	}
	switch {
	case len(d.Manifests) > 0:
		return nil, errors.New("an index names an index")
	case len(d.Layers) == 0 || len(d.Layers) > limitLayers:
		return nil, fmt.Errorf("has %d layers, want 1 to %d", len(d.Layers), limitLayers)
	}
	for _, l := range d.Layers {
		switch {
		case !isDigest(l.Digest):
			return nil, fmt.Errorf("layer %q: want a digest of sha256", l.Digest)
		case l.Size < 0 || l.Size > limitLayerBytes:
			return nil, fmt.Errorf("layer %s: has %d bytes, want at most %d", l.Digest, l.Size, int64(limitLayerBytes))
		}
	}
	return d.Layers, nil
}

// document reads a manifest or an index, and holds it against its digest.
func (s *session) document(ctx context.Context, digest string) (*document, error) {
	if !isDigest(digest) {
		return nil, fmt.Errorf("manifest %q: want a digest of sha256", digest)
	}
	body, err := s.body(ctx, "manifests", digest, slices.Concat(manifestTypes, indexTypes)...)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, limitManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", digest, err)
	}
	if len(data) > limitManifestBytes {
		return nil, fmt.Errorf("manifest %s: has more than %d bytes", digest, limitManifestBytes)
	}
	sum := sha256.Sum256(data)
	if found := "sha256:" + hex.EncodeToString(sum[:]); found != digest {
		return nil, &DigestError{What: "the manifest", Want: digest, Found: found}
	}
	d := &document{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", digest, err)
	}
	known := d.MediaType == "" || slices.Contains(slices.Concat(manifestTypes, indexTypes), d.MediaType)
	switch {
	case d.SchemaVersion != 2 || !known:
		return nil, fmt.Errorf("manifest %s: is of schema %d, type %q: want a manifest or an index of OCI, or schema "+
			"2 of Docker", digest, d.SchemaVersion, d.MediaType)
	case len(d.Manifests) > 0 && len(d.Layers) > 0: // what it is depends on who reads it: CVE-2021-41190
		return nil, fmt.Errorf("manifest %s: is a manifest and an index at once", digest)
	}
	return d, nil
}

// ofPlatform is the manifest for this machine.
func (s *session) ofPlatform(list []descriptor) (*descriptor, error) {
	architecture := s.Architecture
	if architecture == "" {
		architecture = runtime.GOARCH
	}
	var there []string
	for i := range list {
		p := &list[i].Platform
		if p.OS == "linux" && p.Architecture == architecture {
			return &list[i], nil
		}
		there = append(there, p.OS+"/"+p.Architecture)
	}
	slices.Sort(there)
	return nil, fmt.Errorf("has no manifest for linux/%s, but for %s", architecture,
		strings.Join(slices.Compact(there), ", "))
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(digits) == 2*sha256.Size && strings.Trim(digits, "0123456789abcdef") == ""
}

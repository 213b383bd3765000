package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const repository = "kube/server"

// fake is a registry with blobs and manifests by their digests, and what was asked of it.
type fake struct {
	*httptest.Server
	mutex sync.Mutex
	kept  map[string][]byte
	seen  []string                                          // METHOD PATH AUTHORIZATION
	serve func(w http.ResponseWriter, r *http.Request) bool // true: it was answered
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{kept: map[string][]byte{}}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mutex.Lock()
		f.seen = append(f.seen, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")))
		f.mutex.Unlock()
		if f.serve != nil && f.serve(w, r) {
			return
		}
		data, ok := f.kept[filepath.Base(r.URL.Path)]
		if !ok || !strings.HasPrefix(r.URL.Path, "/v2/"+repository+"/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(f.Server.Close)
	return f
}

func (f *fake) host() string { return strings.TrimPrefix(f.URL, "https://") }

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (f *fake) keep(data []byte) string {
	f.kept[digestOf(data)] = data
	return digestOf(data)
}

// image keeps an image of layers, and returns it.
func (f *fake) image(t *testing.T, layers ...[]byte) Image {
	t.Helper()
	return f.manifest(t, f.layers(layers...))
}

func (f *fake) layers(layers ...[]byte) map[string]any {
	var list []any
	for _, l := range layers {
		list = append(list, map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
			"digest": f.keep(l), "size": len(l)})
	}
	return map[string]any{"schemaVersion": 2, "mediaType": manifestTypes[0], "layers": list}
}

func (f *fake) manifest(t *testing.T, document any) Image {
	t.Helper()
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return Image{Registry: f.host(), Repository: repository, Digest: f.keep(data)}
}

func (f *fake) read(t *testing.T, image Image, path string, c Client) (string, error) {
	t.Helper()
	c.Transport = f.Client().Transport
	var out bytes.Buffer
	err := c.File(t.Context(), image, path, &out)
	return out.String(), err
}

// entry is one of a layer: a file, or what its type says.
type entry struct {
	name, text string // text: of a link, where it leads
	kind       byte
}

func file(name, text string) entry { return entry{name, text, tar.TypeReg} }
func link(name, to string) entry   { return entry{name, to, tar.TypeSymlink} }
func hard(name, to string) entry   { return entry{name, to, tar.TypeLink} }
func folder(name string) entry     { return entry{name, "", tar.TypeDir} }

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o755}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = e.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := w.Write([]byte(e.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(archive(t, entries...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const server = "/usr/local/bin/kube-apiserver"

// TestFileIsWhatAContainerSees: over layers, whiteouts and links. No expected text: the image has no such file.
func TestFileIsWhatAContainerSees(t *testing.T) {
	f := newFake(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	below := zipped(t, file("usr/local/bin/kube-apiserver", "old"), file("bin/x", "x"))
	for name, c := range map[string]struct {
		layers [][]byte
		want   string
	}{
		"one layer":         {[][]byte{zipped(t, file("usr/local/bin/kube-apiserver", "new"))}, "new"},
		"a name with a dot": {[][]byte{zipped(t, file("./usr/local/bin/kube-apiserver", "new"))}, "new"},
		"an absolute name":  {[][]byte{zipped(t, file("/usr/local/bin/kube-apiserver", "new"))}, "new"},
		"not compressed":    {[][]byte{archive(t, file("usr/local/bin/kube-apiserver", "new"))}, "new"},
		"zstd":              {[][]byte{encoder.EncodeAll(archive(t, file(server, "new")), nil)}, "new"},
		"a layer below":     {[][]byte{below, zipped(t, file("etc/x", "x"))}, "old"},
		"replaced":          {[][]byte{below, zipped(t, file(server, "new"))}, "new"},
		"removed":           {[][]byte{below, zipped(t, file("usr/local/bin/.wh.kube-apiserver", ""))}, ""},
		"removed and back": {[][]byte{below, zipped(t, file("usr/local/bin/.wh.kube-apiserver", "")),
			zipped(t, file(server, "new"))}, "new"},
		"directory removed": {[][]byte{below, zipped(t, file("usr/.wh.local", ""))}, ""},
		"directory emptied": {[][]byte{below, zipped(t, file("usr/local/.wh..wh..opq", ""), file(server, "new"))},
			"new"},
		"nothing left of it":  {[][]byte{below, zipped(t, folder("usr/"), file("usr/.wh..wh..opq", ""))}, ""},
		"all emptied":         {[][]byte{below, zipped(t, file(".wh..wh..opq", ""))}, ""},
		"another one removed": {[][]byte{below, zipped(t, file("usr/local/bin/.wh.kube", ""))}, "old"},
		"a link":              {[][]byte{below, zipped(t, link(server, "../../../bin/x"))}, "x"},
		"an absolute link":    {[][]byte{below, zipped(t, link(server, "/bin/x"))}, "x"},
		"out of the image":    {[][]byte{below, zipped(t, link(server, "../../../../../../../bin/x"))}, "x"},
		"another name":        {[][]byte{zipped(t, file("a", "a"), hard(server, "a"))}, "a"},
		"another name, below": {[][]byte{below, zipped(t, hard(server, "bin/x")), zipped(t, file("bin/x", "y"))}, "x"},
		"a linked directory": {[][]byte{zipped(t, file("opt/bin/kube-apiserver", "opt")),
			zipped(t, link("usr/local", "/opt"))}, "opt"},
		"a directory again": {[][]byte{zipped(t, link("usr/local", "/opt"), file("opt/bin/kube-apiserver", "opt")),
			zipped(t, folder("usr/local"), file(server, "new"))}, "new"},
		"a directory above a link": {[][]byte{
			zipped(t, link("usr/local", "/opt"), file("opt/bin/kube-apiserver", "opt")),
			zipped(t, folder("usr/local/"))}, ""},
		"a file for a directory": {[][]byte{below, zipped(t, file("usr/local", "no directory"))}, ""},
		"no such file":           {[][]byte{zipped(t, file("etc/x", "x"))}, ""},
		"links without end":      {[][]byte{zipped(t, link(server, "/a"), link("a", "/b"), link("b", "/a"))}, ""},
	} {
		got, err := f.read(t, f.image(t, c.layers...), server, Client{})
		loop := name == "links without end"
		switch {
		case c.want != "" && (err != nil || got != c.want):
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		case c.want == "" && !loop && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%s: %q, %v; want none", name, got, err)
		case loop && (err == nil || !strings.Contains(err.Error(), "links")):
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestOnlyTheLayersThatAreNeededAreRead: the program is in the last one of most images.
func TestOnlyTheLayersThatAreNeededAreRead(t *testing.T) {
	f := newFake(t)
	if _, err := f.read(t, f.image(t, zipped(t, file("a", "a")), zipped(t, file(server, "new"))), server,
		Client{}); err != nil || len(f.seen) != 2 {
		t.Errorf("asked for %q, %v; want the manifest and one layer", f.seen, err)
	}
}

// TestWhatIsNotWhatItsDigestSaysIsRefused: of manifests and layers, cut, longer or other ones.
func TestWhatIsNotWhatItsDigestSaysIsRefused(t *testing.T) {
	good := zipped(t, file(server, strings.Repeat("program", 1<<16)))
	long := zipped(t, file(server, "new"))
	for name, c := range map[string]struct {
		change func(f *fake, image *Image)
		says   string
	}{
		"another manifest": {func(f *fake, image *Image) { f.kept[image.Digest] = []byte(`{"schemaVersion":2}`) },
			"the manifest: has the digest sha256:"},
		"another layer": {func(f *fake, _ *Image) {
			f.kept[digestOf(good)] = append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)
		}, "digest"},
		"a cut layer":    {func(f *fake, _ *Image) { f.kept[digestOf(good)] = good[:len(good)/2] }, "bytes, want"},
		"an empty layer": {func(f *fake, _ *Image) { f.kept[digestOf(good)] = nil }, "has 0 bytes, want"},
		"a longer layer": {func(f *fake, _ *Image) { f.kept[digestOf(good)] = append(bytes.Clone(good), 0) },
			"has more bytes, want"},
		"another archive": {func(f *fake, _ *Image) {
			f.kept[digestOf(good)] = append(bytes.Clone(long), make([]byte, len(good)-len(long))...)
		}, "want " + digestOf(good)},
		"no layer":       {func(f *fake, _ *Image) { delete(f.kept, digestOf(good)) }, "404"},
		"no manifest":    {func(f *fake, image *Image) { image.Digest = "sha256:" + strings.Repeat("0", 64) }, "404"},
		"another digest": {func(f *fake, image *Image) { image.Digest = "sha512:00" }, "want a digest of sha256"},
	} {
		f := newFake(t)
		image := f.image(t, good)
		c.change(f, &image)
		_, err := f.read(t, image, server, Client{})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s = %v, want %q", name, err, c.says)
		}
	}
	f := newFake(t)
	image := f.image(t, good)
	f.kept[digestOf(good)] = append(bytes.Clone(good[:len(good)-9]), make([]byte, 9)...)
	_, err := f.read(t, image, server, Client{})
	if e, is := errors.AsType[*DigestError](err); !is || e.Want != digestOf(good) || e.Found == e.Want {
		t.Errorf("another layer of the same size = %v, want a *DigestError", err)
	}
}

func TestAnIndexLeadsToThisPlatform(t *testing.T) {
	f := newFake(t)
	var list []any
	for _, p := range [][2]string{{"windows", "amd64"}, {"linux", "arm64"}, {"linux", "amd64"},
		{"unknown", "unknown"}} {
		image := f.image(t, zipped(t, file(server, p[0]+p[1])))
		list = append(list, map[string]any{"mediaType": manifestTypes[0], "digest": image.Digest,
			"size": len(f.kept[image.Digest]), "platform": map[string]any{"os": p[0], "architecture": p[1]}})
	}
	index := map[string]any{"schemaVersion": 2, "mediaType": indexTypes[0], "manifests": list}
	image := f.manifest(t, index)
	for _, architecture := range []string{"arm64", "amd64"} {
		if got, err := f.read(t, image, server, Client{Architecture: architecture}); got != "linux"+architecture {
			t.Errorf("%s: %q, %v", architecture, got, err)
		}
	}
	if _, err := f.read(t, image, server, Client{Architecture: "s390x"}); err == nil ||
		!strings.Contains(err.Error(), "no manifest for linux/s390x, but for linux/amd64, linux/arm64, unknown") {
		t.Errorf("another architecture = %v", err)
	}
	nested := f.manifest(t, map[string]any{"schemaVersion": 2, "manifests": []any{map[string]any{
		"digest": image.Digest, "platform": map[string]any{"os": "linux", "architecture": "amd64"}}}})
	both := f.layers(zipped(t, file(server, "new")))
	both["manifests"] = list
	foreign := f.layers(zipped(t, file(server, "new")))
	foreign["layers"].([]any)[0].(map[string]any)["urls"] = []string{"https://192.0.2.1/layer"}
	for name, c := range map[string]struct {
		image Image
		says  string
	}{
		"an index of an index": {nested, "an index names an index"},
		"both at once":         {f.manifest(t, both), "is a manifest and an index at once"},
		"schema 1":             {f.manifest(t, map[string]any{"schemaVersion": 1}), "is of schema 1"},
		"something else":       {f.manifest(t, map[string]any{"schemaVersion": 2, "mediaType": "x"}), `type "x"`},
		"no layers":            {f.image(t), "has 0 layers"},
		"a foreign layer":      {f.manifest(t, foreign), "lies elsewhere"},
		"no JSON":              {Image{f.host(), repository, f.keep([]byte("{"))}, "unexpected end"},
		"too much":             {Image{f.host(), repository, f.keep(make([]byte, limitManifestBytes+1))}, "more than"},
	} {
		if _, err := f.read(t, c.image, server, Client{Architecture: "amd64"}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s = %v, want %q", name, err, c.says)
		}
	}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	f := newFake(t)
	for name, c := range map[string]struct {
		layer []byte
		says  string
	}{
		"a path out of the layer": {zipped(t, file("../../usr/local/bin/kube-apiserver", "new")), "leads out"},
		"within a path":           {zipped(t, file("usr/../../usr/local/bin/kube-apiserver", "new")), "leads out"},
		"twice":                   {zipped(t, file(server, "a"), file("."+server, "b")), "is there twice"},
		"a directory":             {zipped(t, folder(server)), "is no file"},
		"a device":                {zipped(t, entry{server, "", tar.TypeChar}), "is no file"},
		"no archive":              {[]byte(strings.Repeat("x", 1024)), "header"},
		"broken gzip":             {[]byte("\x1f\x8bxxxxxxxxxxxxxxx"), "gzip"},
		"broken zstd":             {[]byte("\x28\xb5\x2f\xfdxxxxxxxxxxxxxxxxxxxxxxxxxxx"), ""},
	} {
		if _, err := f.read(t, f.image(t, c.layer), server, Client{}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s = %v, want %q", name, err, c.says)
		}
	}
	bomb := &bounded{in: zeros{}, left: 1 << 20}
	if n, err := bytes.NewBuffer(nil).ReadFrom(bomb); n != 1<<20 || err == nil {
		t.Errorf("without an end: %d bytes, %v; want an error after 1 MiB", n, err)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { return len(into), nil }

// TestCredentialsStayAtTheirRegistry: a blob that lies elsewhere is asked for without them, and never without TLS.
func TestCredentialsStayAtTheirRegistry(t *testing.T) {
	f, elsewhere := newFake(t), newFake(t)
	layer := zipped(t, file(server, "new"))
	image := f.image(t, layer)
	elsewhere.kept[digestOf(layer)] = layer
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	to := elsewhere.URL
	f.serve = func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user != "robot" || password != "secret:word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	config := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	login := base64.StdEncoding.EncodeToString([]byte("robot:secret:word"))
	write(`{"auths": {"https://` + f.host() + `/v1/": {"auth": "` + login + `"}}}`)
	if got, err := f.read(t, image, server, Client{Credentials: config}); got != "new" {
		t.Fatalf("over a redirect: %q, %v", got, err)
	}
	if len(elsewhere.seen) != 1 || elsewhere.seen[0] != "GET /v2/"+repository+"/blobs/"+digestOf(layer) {
		t.Errorf("elsewhere: %q, want one request without credentials", elsewhere.seen)
	}
	to = plain.URL
	if _, err := f.read(t, image, server, Client{Credentials: config}); err == nil ||
		!strings.Contains(err.Error(), "is not https") {
		t.Errorf("redirected to http = %v", err)
	}
	to = f.URL // for ever
	if _, err := f.read(t, image, server, Client{Credentials: config}); err == nil ||
		!strings.Contains(err.Error(), "redirects") {
		t.Errorf("redirected in circles = %v", err)
	}
	for text, says := range map[string]string{
		`{}`: "has no entry for it",
		`{"auths": {"other.example.com": {"auth": "` + login + `"}}}`: "has no entry for it",
		`{"auths": {"` + f.host() + `": {"auth": "secret:word"}}}`:    "no user and password in base64",
		`{"auths": {"` + f.host() + `": {}}, "credsStore": "pass"}`:   "is not run",
		`{"auths": secret:word`: "is no JSON",
		`{"auths": {"` + f.host() + `": {"username": "robot", "password": "secret:wor"}}}`: "401",
	} {
		write(text)
		_, err := f.read(t, image, server, Client{Credentials: config})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), login) {
			t.Errorf("%s = %v, want %q and no secret", text, err, says)
		}
	}
	if _, err := f.read(t, image, server, Client{}); err == nil || !strings.Contains(err.Error(), "name a file") {
		t.Errorf("without credentials = %v", err)
	}
}

// TestTokensComeFromTheServerThatIsNamed: with the password, with a token for tokens, and for everyone.
func TestTokensComeFromTheServerThatIsNamed(t *testing.T) {
	f, tokens := newFake(t), newFake(t)
	image := f.image(t, zipped(t, file(server, "new")))
	f.serve = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer granted" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+tokens.URL+`/token",service="here",scope="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	answer, want := `{"token": "granted"}`, ""
	tokens.serve = func(w http.ResponseWriter, r *http.Request) bool {
		_ = r.ParseForm()
		user, password, _ := r.BasicAuth()
		got := strings.Join([]string{r.Method, r.Form.Get("scope"), r.Form.Get("service"), user, password,
			r.Form.Get("refresh_token")}, " ")
		if got != want {
			t.Errorf("asked with %q, want %q", got, want)
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		_, _ = w.Write([]byte(answer))
		return true
	}
	config := filepath.Join(t.TempDir(), "config.json")
	const asked = " repository:kube/server:pull here "
	for _, c := range []struct{ entry, want, answer, says string }{
		{`{}`, "GET" + asked + "  ", `{"token": "granted"}`, ""},
		{`{"username": "robot", "password": "word"}`, "GET" + asked + "robot word ", `{"access_token": "granted"}`, ""},
		{`{"identitytoken": "long"}`, "POST" + asked + "  long", `{"access_token": "granted"}`, ""},
		{`{}`, "GET" + asked + "  ", `{"token": "other"}`, "401"},
		{`{}`, "GET" + asked + "  ", `{}`, "has no token"},
	} {
		if err := os.WriteFile(config, []byte(`{"auths": {"`+f.host()+`": `+c.entry+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		answer, want = c.answer, c.want
		got, err := f.read(t, image, server, Client{Credentials: config})
		if c.says == "" && got != "new" || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %q, %v; want %q", c.entry, got, err, c.says)
		}
	}
	for _, realm := range []string{"http://192.0.2.1/token", "", "file:///etc/passwd", "https://user@192.0.2.1/"} {
		f.serve = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if _, err := f.read(t, image, server, Client{}); err == nil || !strings.Contains(err.Error(), "realm") {
			t.Errorf("realm %q = %v", realm, err)
		}
	}
}

// TestASlowRegistryIsNotWaitedForForEver, before an answer, in the midst of one, and where it sends a byte now and
// then; and a caller may give up.
func TestASlowRegistryIsNotWaitedForForEver(t *testing.T) {
	f := newFake(t)
	layer := zipped(t, file(server, "new"))
	image := f.image(t, layer)
	held := make(chan struct{})
	t.Cleanup(func() { close(held) }) // before the server, which waits for its handlers
	hold := func(http.ResponseWriter, *http.Request) { <-held }
	for name, send := range map[string]func(http.ResponseWriter, *http.Request){
		"no answer": hold,
		"a beginning": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(layer[:8])
			w.(http.Flusher).Flush()
			hold(w, r)
		},
		"a byte now and then": func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range layer {
				if _, err := w.Write(layer[i : i+1]); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		},
	} {
		f.serve = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			send(w, r)
			return true
		}
		if _, err := f.read(t, image, server, Client{Patience: 200 * time.Millisecond}); err == nil ||
			!strings.Contains(err.Error(), "bytes were received in") {
			t.Errorf("%s = %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.serve = func(_ http.ResponseWriter, r *http.Request) bool { cancel(); <-r.Context().Done(); return true }
	err := (&Client{Transport: f.Client().Transport}).File(ctx, image, server, new(bytes.Buffer))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up = %v", err)
	}
}

// FuzzScan: no archive makes it panic, and what is written is of one entry.
func FuzzScan(f *testing.F) {
	f.Add(archive(f, file(server, "x"), link("usr", "/opt"), hard("a", "b")))
	f.Add(archive(f, file("usr/local/bin/.wh.kube-apiserver", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		found, err := scan(tar.NewReader(bytes.NewReader(data)), server, map[string]bool{}, &out)
		if err == nil && !found.written && out.Len() > 0 {
			t.Errorf("wrote %d bytes and found nothing", out.Len())
		}
	})
}

func TestDockerHubHasAnotherServer(t *testing.T) {
	for _, c := range [][4]string{
		{"docker.io", "etcd", "registry-1.docker.io", "library/etcd"},
		{"docker.io", "bitnami/etcd", "registry-1.docker.io", "bitnami/etcd"},
		{"registry.k8s.io", "etcd", "registry.k8s.io", "etcd"},
	} {
		i := Image{Registry: c[0], Repository: c[1]}
		if i.host() != c[2] || i.repository() != c[3] {
			t.Errorf("%s/%s is at %s/%s, want %s/%s", c[0], c[1], i.host(), i.repository(), c[2], c[3])
		}
	}
}

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

func TestReadReturnsTheObject(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.Method+" "+r.URL.String(), "GET /api/v1/namespaces/shop/pods/web"; got != want {
			t.Errorf("request %s, want %s", got, want)
		}
		if accept := r.Header.Get("Accept"); accept != "application/json" {
			t.Errorf("accepts %q, want JSON", accept)
		}
		if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("User-Agent") != "fusionctl" {
			t.Errorf("headers %v, want the token and the agent", r.Header)
		}
		fmt.Fprint(w, podText)
	})
	if text, err := s.Read(t.Context(), web); err != nil || string(text) != podText {
		t.Errorf("Read = %s, %v", text, err)
	}
}

func TestErrorsTellWhoSaidWhat(t *testing.T) {
	classes := []error{discovery.ErrNotFound, discovery.ErrNotServed, discovery.ErrForbidden, discovery.ErrUnreachable,
		discovery.ErrNotKubernetes}
	other := strings.Replace(podText, `"web"`, `"shop"`, 1)
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    error // nil: none of the classes
		says    string
	}{
		"the server's word": {refusing(404, metav1.StatusReasonNotFound, "web"), discovery.ErrNotFound,
			"refused by the test"},
		"about another": {refusing(404, metav1.StatusReasonNotFound, "shop"), discovery.ErrNotServed,
			"refused by the test"},
		"about none":                {refusing(404, metav1.StatusReasonNotFound, ""), discovery.ErrNotServed, ""},
		"404 for another reason":    {refusing(404, metav1.StatusReasonExpired, "web"), discovery.ErrNotServed, ""},
		"a path that is not served": {http.NotFound, discovery.ErrNotServed, ""},
		"a proxy's 404": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"kind":"Status","status":"Success","reason":"NotFound","details":{"name":"web"}}`)
		}, discovery.ErrNotServed, ""},
		"forbidden": {refusing(403, metav1.StatusReasonForbidden, "web"), discovery.ErrForbidden,
			"refused by the test"},
		"unauthorized": {refusing(401, metav1.StatusReasonUnauthorized, ""), discovery.ErrForbidden, ""},
		"a broken line": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, discovery.ErrUnreachable, ""},
		"a portal":       {says("<html>please log in</html>"), discovery.ErrNotKubernetes, "please log in"},
		"nothing":        {says(""), discovery.ErrNotKubernetes, ""},
		"garbage behind": {says(podText + "{}"), discovery.ErrNotKubernetes, ""},
		"another kind":   {says(strings.Replace(podText, "Pod", "Secret", 1)), discovery.ErrNotKubernetes, "Secret"},
		"a status": {says(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), discovery.ErrNotKubernetes,
			"Status"},
		"another object": {says(other), discovery.ErrNotKubernetes, "shop"},
		"of elsewhere":   {says(strings.Replace(podText, `"shop"`, `"other"`, 1)), discovery.ErrNotKubernetes, "other"},
		"of another API": {says(strings.Replace(podText, `"v1"`, `"v2"`, 1)), discovery.ErrNotKubernetes, "v2"},
		"names in another case": {says(`{"APIVersion":"v1","Kind":"Pod","Metadata":{"name":"web","namespace":"shop"}}`),
			discovery.ErrNotKubernetes, ""},
		"a server that is too busy": {refusing(503, metav1.StatusReasonServiceUnavailable, ""), nil,
			"refused by the test"},
	} {
		_, err := serve(t, test.handler).Read(t.Context(), web)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, test.says)
			continue
		}
		for _, class := range classes {
			if is := errors.Is(err, class); is != (class == test.want) {
				t.Errorf("%s: %v: is %q: %v", name, err, class, is)
			}
		}
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	s, err := New(&rest.Config{Host: closed.URL}, Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), web); !errors.Is(err, discovery.ErrUnreachable) || !Passing(err) {
		t.Errorf("a server that is not there: %v", err)
	}
}

func TestServersWordsStayReadable(t *testing.T) {
	_, err := serve(t, refusing(409, metav1.StatusReasonConflict, "web")).Read(t.Context(), web)
	if !apierrors.IsConflict(err) || statusCode(err) != 409 || err.Error() != "refused by the test" {
		t.Errorf("Read = %v (%d), want a conflict in the server's words", err, statusCode(err))
	}
}

func TestMetadataIsAskedForInOldWordsToo(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Accept"))
		if strings.Contains(r.Header.Get("Accept"), "as=") {
			fail(w, status(406, metav1.StatusReasonNotAcceptable, ""))
			return
		}
		fmt.Fprint(w, podText)
	})
	for range 2 {
		if _, err := s.ReadMetadata(t.Context(), web); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) != 3 || asked[1] != "application/json" || asked[2] != "application/json" {
		t.Errorf("asked %q, want the form of metadata once", asked)
	}
	s = serve(t,
		says(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"web","namespace":"shop"}}`))
	if _, err := s.ReadMetadata(t.Context(), web); err != nil {
		t.Errorf("ReadMetadata of metadata: %v", err)
	}
}

// A name of an object is an object's author's to choose: it must not make a request of its own.
func TestImpossibleNamesAreNeverSent(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request %s", r.URL) })
	at := pods.Object("shop", "../../kube-system/pods/http:victim:8080/proxy/admin/shutdown")
	_, err := s.Read(t.Context(), at)
	if !errors.Is(err, discovery.ErrInvalidPath) {
		t.Errorf("Read = %v, want no path", err)
	}
	if _, err := s.Send(t.Context(), Write{Verb: http.MethodDelete, Path: at}); !errors.Is(
		err, discovery.ErrInvalidPath) {
		t.Errorf("Send = %v, want no path", err)
	}
	for _, err := range s.List(t.Context(), pods.Objects(".."), discovery.ListOptions{}) {
		if !errors.Is(err, discovery.ErrInvalidPath) {
			t.Errorf("List = %v, want no path", err)
		}
	}
}

func TestEscapedNamesArriveAsTheyAre(t *testing.T) {
	name := "system:node:a b?watch=true#x"
	var got string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.Path + "|" + r.URL.RawQuery })
	_, _ = s.Read(t.Context(), nodes.Object("", name))
	if want := "/api/v1/nodes/" + name + "|"; got != want {
		t.Errorf("the server sees %q, want %q", got, want)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			t.Errorf("%d: the other host is asked, with %q", code, r.Header.Get("Authorization"))
		}))
		t.Cleanup(other.Close)
		redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/token?"+r.Header.Get("Authorization"), code)
		}))
		t.Cleanup(redirecting.Close)
		config := &rest.Config{Host: redirecting.URL, BearerToken: "secret"}
		s, err := New(config, Options{})
		if err != nil {
			t.Fatal(err)
		}
		host := strings.TrimPrefix(other.URL, "http://")
		_, err = s.Read(t.Context(), web)
		if !errors.Is(err, discovery.ErrNotKubernetes) || !strings.Contains(err.Error(), host) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v, want an error that names %s", code, err, host)
		}
		// Clients of client-go follow redirects by themselves.
		client, err := dynamic.NewForConfig(NoRedirects(config))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Resource(pods.GroupVersionResource()).Namespace("shop").
			Get(t.Context(), "web", metav1.GetOptions{})
		if !errors.Is(err, discovery.ErrNotKubernetes) {
			t.Errorf("%d: client-go: %v, want the same error", code, err)
		}
	}
}

func TestFailuresThatPassAreRetried(t *testing.T) {
	for name, test := range map[string]struct {
		code, requests int
	}{"unavailable": {503, 6}, "too many": {429, 6}, "its own failure": {500, 3}, "forbidden": {403, 1},
		"not implemented": {501, 1}} {
		var requests atomic.Int32
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			fail(w, status(test.code, metav1.StatusReasonUnknown, ""))
		})
		if _, err := s.Read(t.Context(), web); err == nil || int(requests.Load()) != test.requests {
			t.Errorf("%s: %v after %d requests, want %d", name, err, requests.Load(), test.requests)
		}
	}
	var requests atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, podText)
	})
	if _, err := s.Read(t.Context(), web); err != nil {
		t.Errorf("Read = %v, want the third answer", err)
	}
}

// A write that was not answered may have happened.
func TestWritesAreRepeatedOnlyWhenThatIsSafe(t *testing.T) {
	for _, test := range []struct {
		repeatable bool
		code, want int // 0: the connection breaks
	}{{false, 0, 1}, {true, 0, 6}, {false, 503, 1}, {true, 503, 6}, {false, 429, 6}, {false, 500, 1}, {true, 409, 1}} {
		var requests atomic.Int32
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if body, _ := io.ReadAll(r.Body); string(body) != "{}" ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the body is %q of %q", body, r.Header.Get("Content-Type"))
			}
			if test.code == 0 {
				panic(http.ErrAbortHandler)
			}
			fail(w, status(test.code, metav1.StatusReasonUnknown, ""))
		})
		_, err := s.Send(t.Context(), Write{Verb: http.MethodPost, Path: pods.Objects("shop"), Body: []byte("{}"),
			Repeatable: test.repeatable})
		if err == nil || int(requests.Load()) != test.want {
			t.Errorf("repeatable %v, code %d: %v after %d requests, want %d", test.repeatable, test.code, err,
				requests.Load(), test.want)
		}
	}
}

func TestRetryAfterIsHeededUpToABound(t *testing.T) {
	for after, want := range map[int32]time.Duration{5: 5 * time.Second, 100_000: longestPause} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{attempts: 2, pause: time.Millisecond}
			begin := time.Now()
			err := s.retry(t.Context(), true, func() error {
				return apierrors.NewTooManyRequests("later", int(after))
			})
			if waited := time.Since(begin); err == nil || waited != want {
				t.Errorf("Retry-After %d: waited %s (%v), want %s", after, waited, err, want)
			}
		})
	}
}

func TestRetriesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serveWith(t, Options{Pause: time.Hour}, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		fail(w, status(503, metav1.StatusReasonServiceUnavailable, ""))
	})
	if _, err := s.Read(ctx, web); !errors.Is(err, context.Canceled) || errors.Is(err, discovery.ErrUnreachable) {
		t.Errorf("Read = %v, want it cancelled", err)
	}
}

func TestSilenceEndsInTime(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, text := range map[string]string{"no answer": "", "half an answer": podText[:20]} {
		s := serveWith(t, Options{Timeout: 50 * time.Millisecond, Attempts: 1},
			func(w http.ResponseWriter, r *http.Request) {
				if text != "" {
					fmt.Fprint(w, text)
					w.(http.Flusher).Flush()
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			})
		if _, err := s.Read(t.Context(), web); !errors.Is(err, discovery.ErrUnreachable) ||
			!errors.Is(err, errTooLate) {
			t.Errorf("%s: %v, want a timeout", name, err)
		}
	}
}

// trickle sends a byte after each pause, until its context ends.
type trickle struct {
	ctx   context.Context
	pause time.Duration
}

func (r trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(r.pause):
		p[0] = 'x'
		return 1, nil
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

func (trickle) Close() error { return nil }

func TestSlowBodiesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		body := &pacedBody{ReadCloser: trickle{ctx, time.Second}, outer: t.Context(), ctx: ctx, cancel: cancel,
			patience: time.Minute}
		begin := time.Now()
		n, err := io.Copy(io.Discard, body)
		if took := time.Since(begin); !errors.Is(err, errTooLate) || took != time.Minute || n == 0 {
			t.Errorf("the body ended after %s and %d bytes with %v, want a timeout after a minute", took, n, err)
		}
	})
	// A reader who takes his time is no slow body.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		body := &pacedBody{ReadCloser: trickle{ctx, time.Millisecond}, outer: t.Context(), ctx: ctx, cancel: cancel,
			patience: time.Minute}
		for range 100 {
			if _, err := body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestHugeAnswersEnd(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"`)
		line := []byte(strings.Repeat("x", 1<<20))
		for range 2 * limitAnswerBytes / len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	for _, at := range []discovery.Path{web, discovery.Page("metrics")} { // half a page would look like all of it
		text, err := s.Read(t.Context(), at)
		if !errors.Is(err, discovery.ErrNotKubernetes) || !strings.Contains(err.Error(), "larger than 64 MiB") ||
			len(err.Error()) > 1000 || text != nil {
			t.Errorf("Read(%s) = %d bytes, %v, want a bound", at, len(text), err)
		}
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	for file, text := range map[string]string{"missing": "", "empty": "{}", "broken": "clusters: 1"} {
		path := filepath.Join(t.TempDir(), file)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(path, "", Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open of a %s file: %v, want an error that names it", file, err)
		}
	}
}

func TestServersBelowAPath(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.EscapedPath()
	}))
	defer server.Close()
	s, err := New(&rest.Config{Host: server.URL + "/k8s/c-1/"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Read(t.Context(), web)
	if want := "/k8s/c-1/api/v1/namespaces/shop/pods/web"; got != want {
		t.Errorf("request to %s, want %s", got, want)
	}
}

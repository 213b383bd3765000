package kube

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/live"
)

func listOf(t *testing.T, c *Client, metadataAlone bool) (string, error) {
	t.Helper()
	var all []string
	for item, err := range c.List(t.Context(), "/apis/example.test/v1/widgets", metadataAlone) {
		if err != nil {
			return strings.Join(all, ""), err
		}
		all = append(all, string(item))
	}
	return strings.Join(all, ""), nil
}

func TestListAsksForPagesOfMetadata(t *testing.T) {
	var asked []string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			t.Errorf("the request accepts %q, want metadata", r.Header.Get("Accept"))
		}
		switch len(asked) {
		case 1:
			fmt.Fprint(w, `{"kind":"List","items":[{"n":1},{"n":2}],"metadata":{"continue":"next"}}`)
		case 2:
			answer(t, w, 503, failure(503, metav1.StatusReasonServiceUnavailable, ""))
		case 3:
			answer(t, w, 410, failure(410, metav1.StatusReasonExpired, "now"))
		case 4:
			fmt.Fprint(w, `{"metadata":{},"items":[{"n":3}]}`)
		}
	})
	got, err := listOf(t, client, true)
	if want := `{"n":1}{"n":2}{"n":3}`; got != want || err != nil {
		t.Errorf("List = %s, %v; want %s", got, err, want)
	}
	if got, want := strings.Join(asked, " "), "limit=500 continue=next&limit=500 continue=next&limit=500 continue=now&limit=500"; got != want {
		t.Errorf("queries %s, want %s", got, want)
	}
}

// 1.6 refuses what it does not know; it is asked again in plain words.
func TestListOfOldServers(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=") {
			answer(t, w, 406, failure(406, metav1.StatusReasonNotAcceptable, ""))
			return
		}
		fmt.Fprint(w, `{"items":null,"metadata":{}}`)
	})
	if got, err := listOf(t, client, true); got != "" || err != nil {
		t.Errorf("List = %s, %v; want nothing", got, err)
	}
}

func TestListThatBreaksOffIsAnError(t *testing.T) {
	for _, body := range []string{`{"items":[{"n":1}`, `{"items":[{"n":1}],`, `{"items":[{"n":`, `[]`, ``, `{"items":{}}`} {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if _, err := listOf(t, client, false); err == nil {
			t.Errorf("List of %s: no error", body)
		}
	}
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, 403, failure(403, metav1.StatusReasonForbidden, ""))
	})
	if _, err := listOf(t, client, false); err == nil || !strings.Contains(err.Error(), "refused by the test") {
		t.Errorf("List = %v, want the server's words", err)
	}
}

func TestReadTellsAbsenceFromSilence(t *testing.T) {
	const url = "/api/v1/namespaces/shop/pods/web"
	about := func(name string) metav1.Status {
		s := failure(404, metav1.StatusReasonNotFound, "")
		s.Details = &metav1.StatusDetails{Name: name, Kind: "pods"}
		return s
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		absent  bool
	}{
		"the server's word": {func(w http.ResponseWriter, _ *http.Request) { answer(t, w, 404, about("web")) }, true},
		"about another":     {func(w http.ResponseWriter, _ *http.Request) { answer(t, w, 404, about("shop")) }, false},
		"a path not served": {func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, false},
		"without any detail": {func(w http.ResponseWriter, _ *http.Request) {
			answer(t, w, 404, failure(404, metav1.StatusReasonNotFound, ""))
		}, false},
	} {
		_, err := serve(t, test.handler).Read(t.Context(), url)
		if err == nil || errors.Is(err, live.ErrAbsent) != test.absent {
			t.Errorf("%s: %v, want absence = %v", name, err, test.absent)
		}
	}
}

func TestReadTellsTheServersTime(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		fmt.Fprint(w, r.Header.Get("Accept"))
	})
	got, err := client.Read(t.Context(), "/version")
	if err != nil || got.Date.Unix() != 1136214245 || strings.Contains(string(got.Body), "as=") {
		t.Errorf("Read = %s at %v, %v", got.Body, got.Date, err)
	}
	if got, err = client.Read(t.Context(), "/flagz"); err != nil || !strings.Contains(string(got.Body), "as=Flagz") {
		t.Errorf("Read of flags accepts %s (%v), want their structured form", got.Body, err)
	}
}

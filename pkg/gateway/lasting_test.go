package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const widgetsPath = "/apis/example.test/v1/namespaces/a/widgets"

// has lets the side have custom resources, or not.
func (f *fakeSide) has(widgets bool) {
	groups := `{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],
		"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}`
	if widgets {
		groups += `,{"name":"example.test","versions":[{"groupVersion":"example.test/v1","version":"v1"}],
			"preferredVersion":{"groupVersion":"example.test/v1","version":"v1"}}`
	}
	f.say("GET /apis", http.StatusOK, `{"kind":"APIGroupList","groups":[`+groups+`]}`)
	f.say("GET /apis/example.test/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"example.test/v1",
		"resources":[{"name":"widgets","kind":"Widget","namespaced":true,`+verbsJSON+`}]}`)
}

// Custom resources that come to be on the other side, too, and go there again: a watch does not go on with those of
// one side, and a client that goes on from what it has seen is told to list.
func TestWatchesEndWhenTheirObjectsAreElsewhere(t *testing.T) {
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+widgetsPath, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if !r.URL.Query().Has("watch") {
				io.WriteString(w, `{"kind":"WidgetList","apiVersion":"example.test/v1","metadata":{"resourceVersion":"7",
					"continue":"next"},"items":[]}`)
				return
			}
			fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.test/v1","metadata":{
				"name":"w","resourceVersion":"7"}}}`)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
	}
	watch := func(version string) (events *bufio.Reader) {
		t.Helper()
		response := x.open(t.Context(), widgetsPath+"?watch=1&resourceVersion="+version)
		t.Cleanup(func() { response.Body.Close() })
		events = bufio.NewReader(response.Body)
		if line, err := events.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
			t.Fatalf("a watch from %s: %q, %v", version, line, err)
		}
		return events
	}
	ends := func(what string, events *bufio.Reader) {
		t.Helper()
		if rest, err := io.ReadAll(events); err != nil || strings.Contains(string(rest), "ERROR") {
			t.Errorf("%s: the watch breaks off: %q, %v", what, rest, err)
		}
	}
	relists := func(version string) {
		t.Helper()
		for _, query := range []string{"?watch=1&", "?"} {
			x.wants("GET", widgetsPath+query+"resourceVersion="+version, "", http.StatusGone, `"reason":"Expired"`)
		}
	}
	set := func(legacy, modern bool) {
		x.legacy.has(legacy)
		x.modern.has(modern)
		x.gateway.refresh(t.Context())
	}

	set(false, true)
	one := watch("7")
	relists("l7m7")

	// What a side does not say ends nothing: the watch is ended by what it says afterwards.
	x.legacy.say("GET /apis", http.StatusInternalServerError, `{}`)
	x.gateway.refresh(t.Context())
	x.legacy.has(false)
	x.gateway.refresh(t.Context())
	for gvr, route := range x.gateway.lasting.of {
		if route.Err() != nil {
			t.Errorf("a watch of %s ends because a side does not answer", gvr)
		}
	}
	set(true, true)
	ends("the legacy side has them, too", one)
	relists("7")
	list := x.wants("GET", widgetsPath+"?limit=2", "", http.StatusOK, `"resourceVersion":"l7m7"`)
	_, token, _ := strings.Cut(list, `"continue":"`)
	token, _, _ = strings.Cut(token, `"`)

	both := watch("l7m7")
	set(true, false)
	ends("the modern side has them no more", both)
	relists("l7m7")
	x.wants("GET", widgetsPath+"?limit=2&continue="+token, "", http.StatusGone, `"reason":"Expired"`)
	x.wants("GET", widgetsPath+"?resourceVersion=7", "", http.StatusOK, "WidgetList")
}

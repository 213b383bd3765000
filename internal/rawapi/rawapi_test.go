package rawapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ask is one request to a server.
func ask(t *testing.T, handler http.HandlerFunc) ([]byte, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return Answer(client.Get().AbsPath("/api/v1/namespaces/a/pods/web").MaxRetries(0).Do(t.Context()))
}

// saying answers with a Status.
func saying(code int, reason metav1.StatusReason, name, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{Name: name, Kind: "pods"}})
	}
}

func TestAnswerIsTheServersWord(t *testing.T) {
	data, err := ask(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"kind":"Pod"}`) })
	if err != nil || string(data) != `{"kind":"Pod"}` {
		t.Errorf("Answer = %s, %v, want the body", data, err)
	}
	_, err = ask(t, saying(http.StatusForbidden, metav1.StatusReasonForbidden, "web", "alice may not"))
	if err == nil || err.Error() != "alice may not" || Code(err) != http.StatusForbidden {
		t.Errorf("Answer = %v (code %d), want what the server says", err, Code(err))
	}
}

func TestAbsentIsOnlyWhatTheServerSaysOfThisObject(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    bool
	}{
		"the server's word": {saying(http.StatusNotFound, metav1.StatusReasonNotFound, "web", "no web"), true},
		"about another":     {saying(http.StatusNotFound, metav1.StatusReasonNotFound, "shop", "no shop"), false},
		"without a name":    {saying(http.StatusNotFound, metav1.StatusReasonNotFound, "", "nothing"), false},
		"a path not served": {func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, false},
		"forbidden":         {saying(http.StatusForbidden, metav1.StatusReasonForbidden, "web", "no"), false},
		"there":             {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, false},
	} {
		if _, err := ask(t, test.handler); Absent(err, "web") != test.want {
			t.Errorf("%s: Absent(%v) = %v, want %v", name, err, !test.want, test.want)
		}
	}
}

func TestUnansweredIsNobodysWord(t *testing.T) {
	_, broken := ask(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, busy := ask(t, saying(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "", "later"))
	if !Unanswered(broken) || Unanswered(busy) || Unanswered(nil) {
		t.Errorf("Unanswered: a broken connection %v (%v), a busy server %v (%v), want the first alone", Unanswered(broken), broken, Unanswered(busy), busy)
	}
}

const whole = `{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"next"},"items":[{"a":1},{"b":[2]}],"more":{"items":[3]}}`

func TestReadListHandsOverItems(t *testing.T) {
	for text, want := range map[string][]string{whole: {`{"a":1}`, `{"b":[2]}`}, `{"items":null}`: nil, `{}`: nil} {
		var items []string
		meta, err := ReadList(strings.NewReader(text), func(item []byte) error {
			items = append(items, string(item))
			return nil
		})
		if err != nil || !slices.Equal(items, want) || text == whole && (meta.ResourceVersion != "7" || meta.Continue != "next") {
			t.Errorf("ReadList of %s = %+v, %v, items %q", text, meta, err, items)
		}
	}
}

func TestReadListRefusesWhatBreaksOff(t *testing.T) {
	none := func([]byte) error { return nil }
	for end := range len(whole) {
		if _, err := ReadList(strings.NewReader(whole[:end]), none); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("ReadList of %q = %v, want an error that is not the end", whole[:end], err)
		}
	}
	for _, bad := range []string{`[]`, `{"items":{}}`, `{"items":7}`, `{"metadata":[]}`} {
		if _, err := ReadList(strings.NewReader(bad), none); err == nil {
			t.Errorf("ReadList reads %s without an error", bad)
		}
	}
}

func TestReadListEndsWithItsItem(t *testing.T) {
	enough, seen := io.EOF, 0 // whatever it is, it is the callee's
	_, err := ReadList(strings.NewReader(whole), func([]byte) error {
		seen++
		return enough
	})
	if !errors.Is(err, enough) || seen != 1 {
		t.Errorf("ReadList = %v after %d items, want the callee's error after one", err, seen)
	}
}

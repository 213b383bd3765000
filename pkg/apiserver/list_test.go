package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// page is a list of pods with the names.
func page(next string, names ...string) string {
	items := make([]string, len(names))
	for i, name := range names {
		items[i] = fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"}}`, name)
	}
	return fmt.Sprintf(
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`,
		next, strings.Join(items, ","))
}

// listed are the names of a list, up to its error.
func listed(t *testing.T, s *Server, at discovery.Path, o discovery.ListOptions) ([]string, error) {
	t.Helper()
	var names []string
	for item, err := range s.List(t.Context(), at, o) {
		if err != nil {
			return names, err
		}
		var of header
		if err := decode(item, &of); err != nil {
			t.Fatal(err)
		}
		names = append(names, of.Metadata.Name)
	}
	return names, nil
}

func TestListAsksForPages(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			t.Errorf("the request accepts %q, want metadata", r.Header.Get("Accept"))
		}
		switch len(asked) {
		case 1:
			fmt.Fprint(w, page("next", "a", "b"))
		case 2:
			fail(w, status(503, metav1.StatusReasonServiceUnavailable, ""))
		case 3: // the state of the first page is forgotten
			expired := status(410, metav1.StatusReasonExpired, "")
			expired.Continue = "now"
			fail(w, expired)
		default:
			fmt.Fprint(w, page("", "c"))
		}
	})
	got, err := listed(t, s, pods.Objects(""), discovery.ListOptions{Metadata: true, LabelSelector: "app=web"})
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("List = %s, %v; want %s", got, err, want)
	}
	const selected = "&labelSelector=app%3Dweb&limit=500"
	want := []string{selected[1:], "continue=next" + selected, "continue=next" + selected, "continue=now" + selected}
	if !slices.Equal(asked, want) {
		t.Errorf("queries %q, want %q", asked, want)
	}
}

func TestConsistentListsDoNotGoOnInAnotherState(t *testing.T) {
	requests := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 1 {
			fmt.Fprint(w, page("next", "a"))
			return
		}
		expired := status(410, metav1.StatusReasonExpired, "")
		expired.Continue = "now"
		fail(w, expired)
	})
	if _, err := listed(t, s, pods.Objects(""), discovery.ListOptions{Consistent: true}); statusCode(err) != 410 ||
		Continuation(err) != "now" || requests != 2 {
		t.Errorf("List = %v after %d requests, want it to end with 410", err, requests)
	}
}

const whole = `{"items":[{"metadata":{"name":"a","namespace":"shop"}},{"metadata":{"name":"b","namespace":"shop"}}],` +
	`"more":{"items":[3]},"kind":"PodList","metadata":{"resourceVersion":"7","continue":"next"},"apiVersion":"v1"}`

func TestReadPageHandsOverItems(t *testing.T) {
	for text, want := range map[string]int{
		whole: 2, whole + "\n": 2,
		`{"kind":"PodList","apiVersion":"v1","items":null}`: 0,
		`{"kind":"PodList","apiVersion":"v1"}`:              0,
		`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"kind":"PartialObjectMetadata","metadata":{"name":"a"}}]}`: 1,
	} {
		items := 0
		meta, err := serve(t, says(text)).ReadPage(t.Context(), pods.Objects(""), discovery.ListOptions{}, nil,
			func([]byte) error {
				items++
				return nil
			})
		if err != nil || items != want || strings.HasPrefix(text, whole) &&
			(meta.ResourceVersion != "7" || meta.Continue != "next") {
			t.Errorf("ReadPage of %s = %+v, %v, %d items, want %d", text, meta, err, items, want)
		}
	}
}

// A list that is not known to be whole is an error, never a shorter list.
func TestListsThatAreNotWholeAreErrors(t *testing.T) {
	none := func(header, []byte) error { return nil }
	for end := range len(whole) {
		l := newList(strings.NewReader(whole[:end]), pods.Objects(""), none)
		if err := l.read(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("reading %q = %v, want an error that is not the end", whole[:end], err)
		}
	}
	item := func(text string) string { return `{"kind":"PodList","apiVersion":"v1","items":[` + text + `]}` }
	for _, bad := range []string{
		`[]`, `{}`, `null`, `""`, `{"items":[]}`,
		`{"kind":"PodList","apiVersion":"v1","items":{}}`, `{"kind":"PodList","apiVersion":"v1","items":7}`,
		`{"kind":"PodList","apiVersion":"v1","metadata":[]}`,
		`{"kind":"SecretList","apiVersion":"v2","items":[]}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}`,
		`{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		`{"Kind":"PodList","apiVersion":"v1"}`,
		whole + whole, whole + "]", whole + "x",
		`{"kind":"PodList","apiVersion":"v1","items":[],"items":[{"metadata":{"name":"a"}}]}`,
		item(`{}`), item(`7`), item(`null`), item(`{"metadata":{}}`), item(`{"Metadata":{"name":"a"}}`),
		item(`{"metadata":{"name":"../a"}}`), item(`{"metadata":{"name":"a","namespace":".."}}`),
		item(`{"metadata":{"name":"a%2f"}}`),
		item(`{"kind":"Secret","metadata":{"name":"a"}}`),
	} {
		if err := newList(strings.NewReader(bad), pods.Objects(""), none).read(); !errors.Is(
			err, discovery.ErrNotKubernetes) {
			t.Errorf("reading %s = %v, want it refused", bad, err)
		}
	}
}

func TestItemsOfAnotherNamespaceAreRefused(t *testing.T) {
	names, err := listed(t, serve(t, says(page("", "a"))), pods.Objects("other"), discovery.ListOptions{})
	if !errors.Is(err, discovery.ErrNotKubernetes) || len(names) > 0 {
		t.Errorf("List = %v, %v, want no item of namespace shop", names, err)
	}
}

func TestListsThatDoNotEndAreErrors(t *testing.T) {
	for name, next := range map[string]func(n int) string{
		"one token again and again": func(int) string { return "same" },
		"two by turns":              func(n int) string { return fmt.Sprint(n % 2) },
		"a new one each time":       func(n int) string { return fmt.Sprint(n) },
	} {
		for what, items := range map[string][]string{"empty": nil, "the same": {"a", "b"}} {
			requests := 0
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				fmt.Fprint(w, page(next(requests), items...))
			})
			_, err := listed(t, s, pods.Objects(""), discovery.ListOptions{})
			if !errors.Is(err, discovery.ErrNotKubernetes) || !strings.Contains(err.Error(), "does not end") {
				t.Errorf("%s, %s: %v after %d pages, want an error", name, what, err, requests)
			}
			if name != "a new one each time" && requests > 3 {
				t.Errorf("%s, %s: %d pages, want an end when a token comes again", name, what, requests)
			}
		}
	}
}

func TestHugeItemsEnd(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"`)
		line := []byte(strings.Repeat("x", 1<<20))
		for range 4 * limitItemBytes / len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	if _, err := listed(t, s, pods.Objects(""), discovery.ListOptions{}); !errors.Is(err, discovery.ErrNotKubernetes) {
		t.Errorf("List = %v, want a bound", err)
	}
}

func TestPagesThatBreakOffAreReadAgainWhereThatIsAskedFor(t *testing.T) {
	for _, again := range []bool{false, true} {
		requests := 0
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests == 1 {
				fmt.Fprint(w, whole[:70])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, whole)
		})
		items := 0
		var restart func()
		if again {
			restart = func() { items = 0 }
		}
		_, err := s.ReadPage(t.Context(), pods.Objects(""), discovery.ListOptions{}, restart, func([]byte) error {
			items++
			return nil
		})
		if again && (err != nil || items != 2 || requests != 2) ||
			!again && (!errors.Is(err, discovery.ErrUnreachable) || requests != 1) {
			t.Errorf("to be read again %v: %v, %d items after %d requests", again, err, items, requests)
		}
	}
}

func TestReadPageEndsWithItsItem(t *testing.T) {
	enough, seen := io.EOF, 0 // whatever it is, it is the callee's
	_, err := serve(t, says(whole)).ReadPage(t.Context(), pods.Objects(""), discovery.ListOptions{}, func() {},
		func([]byte) error {
			seen++
			return enough
		})
	if !errors.Is(err, enough) || seen != 1 {
		t.Errorf("ReadPage = %v after %d items, want the callee's error after one", err, seen)
	}
	requests := 0
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { requests++; fmt.Fprint(w, page("next", "a", "b")) })
	for range s.List(t.Context(), pods.Objects(""), discovery.ListOptions{}) {
		break
	}
	if requests != 1 {
		t.Errorf("%d pages for one item", requests)
	}
}

func TestWatchHandsOverEvents(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.RawQuery, "allowWatchBookmarks=true&resourceVersion=7&watch=true"; got != want {
			t.Errorf("query %s, want %s", got, want)
		}
		fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`)
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","code":410}}`)
	})
	events, err := s.Watch(t.Context(), pods.Objects(""), WatchOptions{ResourceVersion: "7", Bookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	var types []string
	for {
		event, err := events.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type)
	}
	if want := []string{"ADDED", "ERROR"}; !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	if _, err := serve(t, refusing(410, metav1.StatusReasonExpired, "")).Watch(t.Context(), pods.Objects(""),
		WatchOptions{}); statusCode(err) != 410 {
		t.Errorf("Watch = %v, want 410", err)
	}
}

func FuzzList(f *testing.F) {
	f.Add(whole)
	f.Add(page("next", "a", "b"))
	f.Fuzz(func(t *testing.T, text string) {
		items := 0
		l := newList(strings.NewReader(text), pods.Objects("shop"), func(of header, _ []byte) error {
			if items++; of.Metadata.Namespace != "shop" || strings.Contains(of.Metadata.Name, "/") {
				t.Errorf("%q of %q is handed over", of.Metadata.Name, of.Metadata.Namespace)
			}
			return nil
		})
		if err := l.read(); err == nil && l.header.Kind == "" {
			t.Errorf("%q is a list", text)
		}
	})
}

// BenchmarkList reads pods of about 3 KiB.
func BenchmarkList(b *testing.B) {
	pod := fmt.Sprintf(`{"metadata":{"name":"web","namespace":"shop","uid":"u"},"spec":{"containers":[%s{}]}}`,
		strings.Repeat(`{"name":"main","image":"registry.example.test/shop/web:v1","env":[{"name":"A","value":"b"}]},`,
			30))
	text := `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Repeat(pod+",", 499) + pod + `]}`
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		l := newList(strings.NewReader(text), pods.Objects(""), func(header, []byte) error { return nil })
		if err := l.read(); err != nil {
			b.Fatal(err)
		}
	}
}

package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

const emptyStream = `{"metadata":{"resourceVersion":"1"},"items":[]}`

func unbounded(int64) error { return nil }

// streamed is the list of two answers.
func streamed(legacy, modern string, token Token) ([]byte, error) {
	return streamedBy(func(r io.Reader) io.Reader { return r }, legacy, modern, token)
}

func streamedBy(reader func(io.Reader) io.Reader, legacy, modern string, token Token) ([]byte, error) {
	var lists []*Stream
	for i, text := range []string{legacy, modern} {
		s, err := NewStream(reader(strings.NewReader(text)), pair.Sides()[i], unbounded)
		if err != nil {
			return nil, err
		}
		lists = append(lists, s)
	}
	var out bytes.Buffer
	err := Streams(&out, lists, token)
	return out.Bytes(), err
}

// FuzzStreams: a list is read alike however its text comes, and as encoding/json reads it.
func FuzzStreams(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}`,
		`{"apiVersion":"v1","items":[{"kind":"X","metadata":{"name":"a","namespace":"b"}},{}],"kind":"L","metadata":{}}`,
		` { "metadata" : { } , "items" : [ { } , { "a" : [ 1 , { } ] } ] , "more" : -1.5e7 } `, `{"metadata":{},"items":null}`,
		`{"items":[],"items":[],"metadata":{}}`, `{"metadata":{},"items":[{}],"items":null}`, `{"metadata":{},"items":[7]}`,
		`{"metadata":{},"items":[{},]}`, `{"metadata":{},"items":[,{}]}`, `{"metadata":{},"items":[{}{}]}`,
		`{"metadata":{},"items":[{}`, `{"metadata":{},"items":[]`, `{,"metadata":{},"items":[]}`, `{"metadata":{},,"items":[]}`,
		`{"metadata":{},"items":[],}`, `{"metadata":{},"items":[]}}`, `{"metadata":7,"items":[]}`, `{"metadata":null,"items":[]}`,
		`{"metadata":{"resourceVersion":"1"},"metadata":{"resourceVersion":"2"},"items":[]}`, `{}`, `[]`, `null`, ``, `{`,
		`{"\u0069tems":[{}],"metadata":{}}`, `{"a":tru,"metadata":{},"items":[]}`, `{"a":1e,"metadata":{},"items":[]}`,
		`{"metadata":{},"items":[{"metadata":{"annotations":{"kubefusion.dev/side":"x"},"resourceVersion":"5"}}]}`,
		`{"metadata":{},"items":[{"metadata":{"resourceVersion":"5"},"metadata":7}]}`, `{"metadata":{},"items":"x"}`,
		`{"metadata":{},"items":[{"kind":"Status"},{"kind":"Table","rows":7}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := streamed(text, emptyStream, Token{})
		slow, slowErr := streamedBy(iotest.OneByteReader, text, emptyStream, Token{})
		if (err == nil) != (slowErr == nil) || !bytes.Equal(got, slow) {
			t.Fatalf("%q is %q, %v; byte by byte %q, %v", text, got, err, slow, slowErr)
		}
		if err != nil || !json.Valid([]byte(text)) {
			if err == nil || len(got) > 0 {
				t.Fatalf("%q is %q, %v: encoding/json says valid: %v", text, got, err, json.Valid([]byte(text)))
			}
			return
		}
		objects := func(list []byte) (all []json.RawMessage) {
			var f fields
			if err := errors.Join(json.Unmarshal(list, &f), json.Unmarshal(f["items"], &all)); err != nil {
				t.Fatalf("%q is %q: %v", text, got, err)
			}
			return all
		}
		want, shown := objects([]byte(text)), objects(got)
		if len(want) != len(shown) {
			t.Fatalf("%q has %d objects, and %d are shown", text, len(want), len(shown))
		}
		for i, object := range want {
			decoded, _, err := readDecoded(object, pair.Legacy, Version{})
			if err != nil || !equal(t, shown[i], decoded) {
				t.Fatalf("%q is shown as %q; decoded %q, %v", object, shown[i], decoded, err)
			}
		}
	})
}

func TestWhatIsNoListIsRefused(t *testing.T) {
	for _, text := range []string{`{"kind":"Status","metadata":{}}`, `{}`, `[]`, `{"metadata":{},"items":[7]}`,
		`{"metadata":{},"items":[{}`, `{"metadata":{},"items":[]`, `{"items":[]}`, `<html>`,
		`{"kind":"OtherList","metadata":{},"items":[]}`, `{"metadata":{},"items":[],"kind":"OtherList"}`} {
		if out, err := streamed(text, `{"kind":"PodList","metadata":{},"items":[]}`, Token{}); err == nil || len(out) > 0 {
			t.Errorf("%s is a list: %s, %v", text, out, err)
		}
	}
}

// Custom resources have their metadata behind the objects, since their fields are sorted.
func TestListsWithMetadataAtTheEnd(t *testing.T) {
	modern := `{"apiVersion":"v1","items":[{"metadata":{"name":"b"}}],"kind":"L","metadata":{"resourceVersion":"2"}}`
	for _, legacy := range []string{
		`{"apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"kind":"L","metadata":{"resourceVersion":"1"}}`,
		`{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}`} {
		body, err := streamed(legacy, modern, Token{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the list", body, `{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"l1m2"},"items":[
			{"metadata":{"name":"a","annotations":{"kubefusion.dev/side":"legacy"}}},
			{"metadata":{"name":"b","annotations":{"kubefusion.dev/side":"modern"}}}]}`)
	}
}

// endless is a list without end.
type endless struct {
	head, object string
	read         int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	e.read += len(p)
	return copy(p, strings.Repeat(e.object, len(p)/len(e.object))), nil
}

// A list is written while it is read, and held nowhere: not when its objects are small, and not when one has no end.
func TestStreamsHoldOneObject(t *testing.T) {
	const enough = 64 << 20
	held := int64(0)
	grow := func(more int64) error { held += more; return nil }
	in := &endless{head: `{"metadata":{},"items":[{}`, object: `,{"metadata":{"name":"a","labels":{"a":"b"}}}`}
	s, err := NewStream(in, pair.Modern, grow)
	if err != nil {
		t.Fatal(err)
	}
	out, end := 0, errors.New("enough")
	err = Streams(writerFunc(func(p []byte) (int, error) {
		if out += len(p); out > enough {
			return 0, end
		}
		return len(p), nil
	}), []*Stream{s}, Token{Modern: "x"})
	if !errors.Is(err, end) || held > 2*streamBytes+2*wholeBytes || in.read > enough {
		t.Errorf("a list without end: %v; %d bytes are held, %d were read", err, held, in.read)
	}
	held = 0
	in = &endless{head: `{"metadata":{},"items":[{"a":"`, object: "aaaaaaaa"}
	if _, err := NewStream(in, pair.Modern, grow); err == nil || held > 8*limitObjectBytes {
		t.Errorf("an object without end: %v; %d bytes are held", err, held)
	}
	refused := errors.New("no memory")
	if _, err := NewStream(in, pair.Modern, func(int64) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("without memory: %v", err)
	}
}

// What is not written is held, and is told of.
func TestWhatIsNotWrittenYetIsHeld(t *testing.T) {
	held := int64(0)
	text := `{"metadata":{},"items":[{"a":"` + strings.Repeat("a", wholeBytes/2) + `"}]}`
	s, err := NewStream(strings.NewReader(text), pair.Modern, func(more int64) error { held += more; return nil })
	if err != nil {
		t.Fatal(err)
	}
	read, refused := held, errors.New("no memory")
	if err := Streams(io.Discard, []*Stream{s}, Token{}); err != nil || held < read+wholeBytes/2 {
		t.Errorf("%v; %d bytes are held, and %d were read", err, held, read)
	}
	if s, err = NewStream(strings.NewReader(text), pair.Modern, unbounded); err != nil {
		t.Fatal(err)
	}
	s.grow = func(int64) error { return refused }
	if err := Streams(io.Discard, []*Stream{s}, Token{}); !errors.Is(err, refused) {
		t.Errorf("without memory: %v", err)
	}
}

// Of the fields of a list those that are written are held: a server may send as many as it likes.
func TestFieldsOfListsAreBounded(t *testing.T) {
	s, err := NewStream(strings.NewReader(`{"a":"x","kind":"L","b":[1],"apiVersion":"v1","metadata":{},"items":[]}`),
		pair.Legacy, unbounded)
	if err != nil || len(s.fields) != 2 {
		t.Errorf("%v; of the fields %v are held", err, s.fields)
	}
	for _, field := range []string{"kind", "apiVersion"} {
		if _, err := NewStream(strings.NewReader(`{"`+field+`":"`+strings.Repeat("x", limitKindBytes)+
			`","metadata":{},"items":[]}`), pair.Legacy, unbounded); err == nil {
			t.Errorf("a %s of %d bytes is held", field, limitKindBytes)
		}
	}
}

// A long object is not read from its beginning for each byte that comes.
func TestSlowObjectsAreReadAFewTimes(t *testing.T) {
	text := `"` + strings.Repeat("a", 1<<20) + `" `
	s, tries := &Stream{in: iotest.OneByteReader(strings.NewReader(text)), grow: unbounded}, 0
	value, err := s.value(func(in *scanner) bool { tries++; return in.quoted() })
	if err != nil || len(value) != len(text)-1 || tries > 64 {
		t.Errorf("%d bytes, %v, after %d tries", len(value), err, tries)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// BenchmarkStreams compares with checking the texts by encoding/json alone.
func BenchmarkStreams(b *testing.B) {
	texts := map[string]string{}
	for _, side := range []string{"a", "b"} {
		items := make([]string, 10_000)
		for i := range items {
			items[i] = fmt.Sprintf(`{"metadata":{"name":"%s-%d","namespace":"default","uid":"0c7c1b5e-8d7e-4a53-9c5e-0000",
				"resourceVersion":"12345","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"a"}},"spec":{
				"template":{"spec":{"containers":[{"name":"c","image":"example.test/c:1","env":[{"name":"A","value":%q}],
				"resources":{}}]}},"replicas":3},"status":{"replicas":3}}`, side, i, strings.Repeat("x", 200))
		}
		texts[side] = `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"7"},"items":[` +
			strings.Join(items, ",") + `]}`
	}
	b.SetBytes(int64(len(texts["a"]) + len(texts["b"])))
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			if _, err := streamed(texts["a"], texts["b"], Token{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			for _, text := range texts {
				if !json.Valid([]byte(text)) {
					b.Fatal("invalid")
				}
			}
		}
	})
}

package crdfile

import (
	"errors"
	"strings"
	"testing"
)

const crd = "CustomResourceDefinition"

func TestReadFindsEveryDefinition(t *testing.T) {
	for _, test := range []struct{ what, text, want string }{
		{"nothing", "", ""},
		{"documents of YAML", "kind: " + crd + "\nnumber: 1\n---\n\n---\nkind: Service\n---\nkind: " + crd +
			"\nnumber: 2\n",
			`{"kind":"` + crd + `","number":1} {"kind":"` + crd + `","number":2}`},
		{"JSON, one after the other", `{"kind":"` + crd + `","number":1}{"kind":"` + crd + `","number":2}`,
			`{"kind":"` + crd + `","number":1} {"kind":"` + crd + `","number":2}`},
		{"a list", `{"kind":"List","items":[{"kind":"Service"},{"kind":"` + crd + `","number":1}]}`,
			`{"kind":"` + crd + `","number":1}`},
		{"a list in a list", `{"kind":"List","items":[{"kind":"List","items":[{"kind":"` + crd + `"}]}]}`,
			`{"kind":"` + crd + `"}`},
		{"an empty list", "kind: List\n", ""},
		{"items that leave out what their list says",
			`{"kind":"` + crd + `List","apiVersion":"a/v1","items":[{"number":1}]}`,
			`{"apiVersion":"a/v1","kind":"` + crd + `","number":1}`},
	} {
		var found []string
		err := Read([]byte(test.text), func(crd []byte) error {
			found = append(found, string(crd))
			return nil
		})
		if got := strings.Join(found, " "); err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", test.what, got, err, test.want)
		}
	}
}

func TestReadSkipsNothingThatItCannotRead(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"kind: Service\n---\nkind: [a]\n", "document 2: kind: want a string"},
		{"kind: List\nitems: {a: 1}\n", "document 1: items: want a list"},
		{"kind: List\nitems: [1]\n", "document 1: item 1: want an object"},
		{"kind: " + crd + "List\napiVersion: v1\nitems: [{apiVersion: v1beta1}]\n",
			"item 1: apiVersion v1beta1 in a list of v1"},
		{"kind: " + crd + "List\nitems: [{kind: Service}]\n", "item 1: kind Service in a list of"},
		{"- 1\n", "document 1: want an object"},
		{"kind: {", "document 1: "},
		{strings.Repeat(`{"kind":"List","items":[`, 20) + strings.Repeat("]}", 20),
			"more than 8 lists within each other"},
	} {
		err := Read([]byte(test.text), func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	mine := errors.New("mine")
	err := Read([]byte("kind: List\nitems: [{kind: "+crd+"}]\n"), func([]byte) error { return mine })
	if !errors.Is(err, mine) || err.Error() != "document 1: item 1: mine" {
		t.Errorf("%v, want the caller's error with its place", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("kind: List\nitems: [{kind: " + crd + "}]\n"))
	f.Add([]byte(`{"kind":"` + crd + `"}{}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_ = Read(text, func([]byte) error { return nil })
	})
}

// TestAliasesThatAreBombs: a few kilobytes of CRDs that would be gigabytes when their aliases are written out.
func TestAliasesThatAreBombs(t *testing.T) {
	bomb := "kind: " + crd + "\na: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n"
	read := 0
	err := Read([]byte(bomb), func([]byte) error { read++; return nil })
	if err == nil || !strings.Contains(err.Error(), "aliases") || read > 0 {
		t.Errorf("Read = %v, %d CRDs", err, read)
	}
}

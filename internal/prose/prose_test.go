package prose

import (
	"slices"
	"strings"
	"testing"
)

func TestWrapBreaksBetweenWords(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"one", []string{"one"}},
		{"one two  three", []string{"one two", "three"}},
		{"exactly 10", []string{"exactly 10"}},
		{"äußerst öd", []string{"äußerst öd"}},
		{"a muchlongerword b", []string{"a", "muchlongerword", "b"}},
	} {
		if got := Wrap(strings.Fields(test.text), 10); !slices.Equal(got, test.want) {
			t.Errorf("Wrap(%q, 10) = %q, want %q", test.text, got, test.want)
		}
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	if got, want := Cut([]string{"a", "äöüäöü", "abc"}, 3),
		[]string{"a", "äöü", "äöü", "abc"}; !slices.Equal(got, want) {
		t.Errorf("Cut = %q, want %q", got, want)
	}
}

func TestFirstCountsTheRest(t *testing.T) {
	for want, list := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b and 1 more": {"a", "b", "c"}} {
		if got := First(list, 2); got != want {
			t.Errorf("First(%q, 2) = %q, want %q", list, got, want)
		}
	}
}

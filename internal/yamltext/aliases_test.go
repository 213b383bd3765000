package yamltext

import (
	"fmt"
	"strings"
	"testing"
)

// TestAliasesThatAreBombs: a long text that is used often, short ones that are used by what is used, and an anchor
// within itself. Texts that have none, or few, are left alone.
func TestAliasesThatAreBombs(t *testing.T) {
	nested := "a0: &a0 [x]\n"
	for i := range 9 {
		nested += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	for _, test := range []struct{ text, want string }{
		{"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n", "make more than"},
		{"{a: &a " + strings.Repeat("x", 100_000) + ", b: [" + strings.Repeat("*a,", 1000) + "]}\n", "make more than"},
		{nested, "make more than"},
		{"x: y\n---\n" + nested, "make more than"},
		{"a: &a [*a]\n", "contains itself"},
		{"a: &a {b: *a\n", "line"},
		{"a: &a {b: c}\nd: *a\n", ""},
		{"a: [" + strings.Repeat("{},", 300_000) + "&a x, *a]\n", ""},
		{`{"a":"&x"}{"b":"*x"}`, ""},
		{"a: " + strings.Repeat("x", 20<<20), ""},
	} {
		err := BoundAliases([]byte(test.text))
		if got := fmt.Sprint(err); (err != nil) != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("BoundAliases of %.40q = %v, want %q", test.text, err, test.want)
		}
	}
}

package yamltext

import (
	"fmt"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
)

// TestKeysThatAreBombs: one key again and again, and more keys than are compared with each other.
func TestKeysThatAreBombs(t *testing.T) {
	many := ""
	for i := range limitKeys + 1 {
		many += fmt.Sprintf(" k%d: x\n", i)
	}
	for _, test := range []struct{ text, want string }{
		{strings.Repeat("a: b\n", 5000), `line 2: mapping key "a" already defined at line 1`},
		{"a:\n- {b: c, b: d}\n", `line 2: mapping key "b" already defined at line 2`},
		{"a:\n" + many, "10001 keys; at most 10000"},
		{"a: {b: c}\nd: {b: c}\ne: &e {f: g}\nh: *e\n? [a]\n: b\n", ""},
	} {
		var document yamlv3.Node
		if err := yamlv3.Unmarshal([]byte(test.text), &document); err != nil {
			t.Fatal(err)
		}
		err := BoundKeysOf(&document)
		if (err != nil) != (test.want != "") || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("BoundKeysOf of %.30q = %v, want %q", test.text, err, test.want)
		}
	}
}

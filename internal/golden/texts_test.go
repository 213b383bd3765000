package golden

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFormsTakeSentences(t *testing.T) {
	for _, test := range []struct {
		name     string
		form     Form
		in, want string
		said     string
	}{
		{"comments", Comments,
			"# head\n# goes on\nkind: Pod\nargs:\n  # why\n  - --flag=value # kept\n  # quoted\n  - \"--other=a b\"\n" +
				"# last\n",
			"# ...\nkind: Pod\nargs:\n  # ...\n  - --flag=value # kept\n  # ...\n  - \"--other=a b\"\n# ...\n",
			"kind: head goes on\n--flag: why\n--other: quoted\nthe end: last\n"},
		{"comments", Comments, "# what it is\n# --a, --b: why\n# goes on\n# --c: because\n\n",
			"# ...\n# --a, --b: ...\n# --c: ...\n\n", "--a, --b: what it is\n--a, --b: why goes on\n--c: because\n"},
		{"markdown", Markdown,
			"# Title\n\nA paragraph\nof two lines.\n\n## 1. Step\n\n- one\n- two\n  goes on\n" +
				"\n| a | b |\n|---|---|\n| x | a cell of words |\n\n```sh\nls   # files\nrm x\n```\nend\n",
			"# Title\n\n...\n\n## 1. Step\n\n- ...\n- ...\n\n| a | b |\n|---|---|\n| x | ... |\n\n```sh\nls   # ...\n" +
				"rm x\n```\n...\n",
			"Title: A paragraph of two lines.\n1. Step: one\n1. Step: two goes on\n1. Step: a cell of words\n1. " +
				"Step: files\n1. Step: end\n"},
	} {
		var said strings.Builder
		got := test.form([]byte(test.in), func(text, place string) { fmt.Fprintf(&said, "%s: %s\n", place, text) })
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s leaves (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.said, said.String()); diff != "" {
			t.Errorf("%s says (-want +got):\n%s", test.name, diff)
		}
	}
}

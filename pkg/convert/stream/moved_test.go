package stream

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func TestParseMoved(t *testing.T) {
	got, err := ParseMoved([]byte(`
target-versions: {cert-manager: v1.7.0}
deprecated-versions:
- {version: cert-manager.io/v1alpha2, kind: Issuer, deprecated-in: v1.4, removed-in: v1.6,
   replacement-api: cert-manager.io/v1, replacement-available-in: v1.0, component: cert-manager, source: theirs}
- {version: v1, kind: Binding, removed-in: "1.40", component: k8s}
`))
	want := []kubever.Moved{
		{GroupVersion: schema.GroupVersion{Group: "cert-manager.io", Version: "v1alpha2"}, Kind: "Issuer",
			Project: "cert-manager", Deprecated: "1.4", Removed: "1.6", Replacement: "cert-manager.io/v1",
			Source: "theirs"},
		{GroupVersion: schema.GroupVersion{Version: "v1"}, Kind: "Binding", Project: "kubernetes", Removed: "1.40"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v; -want +got\n%s", err, diff)
	}
}

func TestParseMovedRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"deprecated-versions: [{version: a/v1, component: a}, {version: a/v1}]": "deprecated-versions[1]: want version",
		"deprecated-versions: [{version: a/b/v1, component: a}]":                "deprecated-versions[0]: want version",
		"deprecated-versions: [{version: a/v1, component: a, removed: 1}]":      `unknown field "removed"`,
		"deprecated-versions: {": "yaml",
	} {
		if _, err := ParseMoved([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseMoved: each row that is read says what moved, and of which project.
func FuzzParseMoved(f *testing.F) {
	f.Add([]byte("deprecated-versions:\n- {version: cert-manager.io/v1alpha2, kind: Issuer, component: cm}\n"))
	f.Add([]byte("deprecated-versions: [null]"))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		moved, err := ParseMoved(data)
		for _, m := range moved {
			if err == nil && (m.GroupVersion.Version == "" || m.Project == "") {
				t.Errorf("%+v of %q", m, data)
			}
		}
	})
}

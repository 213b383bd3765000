package cli

import (
	"strings"
	"testing"
)

func TestStoredObjectsWithControlCharactersArePrinted(t *testing.T) {
	var out strings.Builder
	err := printStoredObjects(&out,
		[]storedObject{{Store: "core", Key: "/registry/configmaps/a/b",
			Object: map[string]any{"data": map[string]any{"key": "del\x7f csi\u009b nel\u0085"}}}})
	if want := `key: "del\x7F csi\x9B nel\N"`; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("printStoredObjects = %q, %v, want %s in it", out.String(), err, want)
	}
}

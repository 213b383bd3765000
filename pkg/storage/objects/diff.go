package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// DiffValues describes how two values under a key differ: as a unified diff of the decoded objects, without
// managedFields, or in a sentence. What Secrets hold is never part of it, only whether it is the same.
func DiffValues(path string, left, right []byte) string {
	var texts [2]string
	var trees [2]map[string]any
	var encodings [2]string
	for i, value := range [][]byte{left, right} {
		tree, err := Decode(value)
		if err != nil {
			return fmt.Sprintf("cannot be compared: %s: %v", side(i), err)
		}
		e, _ := storage.ReadEnvelope(value) // Decode did
		encodings[i] = string(e.Encoding)
		DropManagedFields(tree)
		dropNulls(tree)
		trees[i] = tree
	}
	if strings.HasPrefix(path, "secrets/") || slices.ContainsFunc(trees[:], func(tree map[string]any) bool {
		return tree["kind"] == "Secret"
	}) {
		trees[0], trees[1] = withoutSecrets(trees[0], trees[1])
	}
	for i, tree := range trees {
		text, err := yamltext.Marshal(tree)
		if err != nil {
			return fmt.Sprintf("cannot be compared: %s: %v", side(i), err)
		}
		texts[i] = string(text)
	}
	switch {
	case texts[0] != texts[1]:
		return shortened(withoutHeader(diff.Diff("left", []byte(texts[0]), "right", []byte(texts[1]))))
	case encodings[0] != encodings[1]:
		return fmt.Sprintf("the same in other bytes: %s and %s", encodings[0], encodings[1])
	}
	return "the same but for managedFields, or the order of its fields"
}

func side(i int) string { return []string{"left", "right"}[i] }

// shownBytes is how much of a difference is shown.
const shownBytes = 64 << 10

func shortened(text []byte) string {
	if len(text) <= shownBytes {
		return string(text)
	}
	return fmt.Sprintf("%s\n(%d bytes more)\n", strings.ToValidUTF8(string(text[:shownBytes]), ""),
		len(text)-shownBytes)
}

// withoutHeader takes the names of the two sides off a diff.
func withoutHeader(text []byte) []byte {
	lines := strings.SplitAfterN(string(text), "\n", 4)
	return []byte(lines[len(lines)-1])
}

// DropManagedFields removes metadata.managedFields, which are often the larger part of an object and seldom what is
// looked for.
func DropManagedFields(object map[string]any) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
}

// shownOfSecrets are the fields that hold no secret.
var shownOfSecrets = []string{"apiVersion", "kind", "metadata", "type", "immutable"}

// withoutSecrets is what may be shown of two versions of a Secret: which entries there are, and which of them differ.
func withoutSecrets(left, right map[string]any) (l, r map[string]any) {
	l, r = map[string]any{}, map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(union(left, right))) {
		a, b := left[key], right[key]
		if !slices.Contains(shownOfSecrets, key) {
			a, b = masked(a, b)
		}
		put(l, key, a)
		put(r, key, b)
	}
	for _, tree := range []map[string]any{l, r} {
		if metadata, ok := tree["metadata"].(map[string]any); ok {
			if annotations, ok := metadata["annotations"].(map[string]any); ok {
				delete(annotations, "kubectl.kubernetes.io/last-applied-configuration") // holds all of it
			}
		}
	}
	return l, r
}

// masked replaces values by whether they are the same.
func masked(left, right any) (l, r any) {
	a, isMap := left.(map[string]any)
	b, isMap2 := right.(map[string]any)
	if (isMap || left == nil) && (isMap2 || right == nil) {
		first, second := map[string]any{}, map[string]any{}
		for key := range union(a, b) {
			x, y := masked(a[key], b[key])
			put(first, key, x)
			put(second, key, y)
		}
		return first, second
	}
	if fmt.Sprint(left) == fmt.Sprint(right) {
		return "(not shown)", "(not shown)"
	}
	if left != nil {
		l = "(not shown)"
	}
	if right != nil {
		r = "(another, not shown)"
	}
	return l, r
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	return all
}

func put(tree map[string]any, key string, value any) {
	if value != nil {
		tree[key] = value
	}
}

package client

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// What a patch may cost in the libraries that carry it out, which a few hundred kilobytes have at work for minutes
// otherwise. Each bound is a second or two of a core.
const (
	// limitNestedBytes are those that are read again at each depth.
	limitNestedBytes = 1 << 28
	// limitShifted are elements of lists that operations copy.
	limitShifted = 1 << 28
	// limitSought are pairs of elements that are compared.
	limitSought = 1 << 24
)

func tooSlow(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError("the patch would take too long: " + fmt.Sprintf(format, args...))
}

// boundNested refuses what is nested too deeply for its size: the library parses what is within a value once more for
// each object and list around it.
func boundNested(patch, object []byte) error {
	depth, size := max(depthOf(patch), depthOf(object)), len(patch)+len(object)
	if int64(depth)*int64(size) > limitNestedBytes {
		return tooSlow("it and the object have %d bytes, nested %d deep", size, depth)
	}
	return nil
}

// boundShifted refuses operations on lists that are too long for so many: the library copies a list for each element
// that comes or goes. An operation has three commas of its own.
func boundShifted(operations int, patch, object []byte) error {
	comma := []byte(",")
	elements := bytes.Count(object, comma) + max(0, bytes.Count(patch, comma)-3*operations)
	if int64(operations)*int64(elements) > limitShifted {
		return tooSlow("%d operations on an object of %d values", operations, elements)
	}
	return nil
}

// depthOf is how deeply a valid text of JSON is nested.
func depthOf(text []byte) (deepest int) {
	depth, inside, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case inside:
			escaped, inside = c == '\\', c != '"'
		case c == '"':
			inside = true
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// boundSought refuses a strategic merge patch of lists that are too long: the library looks for each element among all
// others.
func boundSought(shape strategicpatch.LookupPatchMeta, patch, object map[string]any) error {
	if pairs := soughtIn(shape, patch, object); pairs > limitSought {
		return tooSlow("%d pairs of elements of its lists and those of the object are compared", pairs)
	}
	return nil
}

// directives stand before the name of a list.
var directives = []string{"$setElementOrder/", "$deleteFromPrimitiveList/"}

// soughtIn counts the pairs of elements in lists that the patch names and that are merged.
func soughtIn(shape strategicpatch.LookupPatchMeta, patch, object map[string]any) (pairs int64) {
	elements := map[string]int64{}
	for name, value := range patch {
		for _, directive := range directives {
			name = strings.TrimPrefix(name, directive)
		}
		if list, ok := value.([]any); ok {
			elements[name] += int64(len(list))
			continue
		}
		inner, ok := value.(map[string]any)
		below, _ := object[name].(map[string]any)
		if shapeOf, _, err := shape.LookupPatchMetadataForStruct(name); ok && err == nil {
			pairs += soughtIn(shapeOf, inner, below)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		shapeOf, meta, err := shape.LookupPatchMetadataForSlice(name)
		if err != nil || !slices.Contains(meta.GetPatchStrategies(), "merge") {
			continue
		}
		list, _ := object[name].([]any)
		all := elements[name] + int64(len(list))
		if pairs += all * all; pairs > limitSought || meta.GetPatchMergeKey() == "" {
			continue
		}
		there := map[string]map[string]any{}
		key := func(element map[string]any) string { return fmt.Sprint(element[meta.GetPatchMergeKey()]) }
		for _, element := range list {
			if of, ok := element.(map[string]any); ok {
				there[key(of)] = of
			}
		}
		changes, _ := patch[name].([]any)
		for _, element := range changes {
			if of, ok := element.(map[string]any); ok {
				pairs += soughtIn(shapeOf, of, there[key(of)])
			}
		}
	}
	return pairs
}

package convert

import (
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// widened puts a field that no type has somewhere into an object, perhaps.
func widened(chance *rand.Rand, object map[string]any) {
	if chance.Intn(20) == 0 {
		object["unheardOf"] = []any{nil, "a"}[chance.Intn(2)]
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch inner := object[name].(type) {
		case map[string]any:
			widened(chance, inner)
		case []any:
			for _, element := range inner {
				if fields, ok := element.(map[string]any); ok {
					widened(chance, fields)
				}
			}
		}
	}
}

// varied is a specimen that is whole, disturbed, or has more than its type.
func (s *specimens) varied(t testing.TB, gvk schema.GroupVersionKind, n int) map[string]any {
	object := s.of(t, gvk)
	switch chance := rand.New(rand.NewSource(int64(n))); n % 3 {
	case 1:
		disturb(chance, object)
	case 2:
		widened(chance, object)
	}
	object["apiVersion"], object["kind"] = gvk.ToAPIVersionAndKind()
	return object
}

// TestWhatIsKnownNeedsNoInspection: of an object of which the type is known to have every field an inspection finds
// nothing, and a conversion that relies on that makes of it what one makes that inspects it.
func TestWhatIsKnownNeedsNoInspection(t *testing.T) {
	s := newSpecimens(t, 17)
	knownOnes, unknownOnes, begun, relabelled := 0, 0, 0, 0
	for gvk := range s.c.hubs {
		for n := range 12 {
			object := s.varied(t, gvk, n)
			_, known, err := s.c.decodeKnown(object, gvk)
			if err != nil || !known {
				unknownOnes++
				continue
			}
			knownOnes++
			var i inspection
			if i.inspect(object, nil, s.c.shapes.of(gvk)); i.wrong != nil || len(i.unknown) > 0 {
				t.Errorf("%s is known, and has %v, %v", kindName(gvk), i.wrong, i.unknown)
			}
		}
	}
	s.nativePairs(func(from, to schema.GroupVersionKind) {
		r, err := s.c.route(from, to)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 { // whole, but for what is disturbed or too much in it
			v, err := s.c.Begin(&unstructured.Unstructured{Object: s.varied(t, from, n)}, to)
			if err != nil || !v.forms.known {
				continue
			}
			begun++
			var i inspection
			if i.inspect(v.Out.Object, nil, r.target); i.wrong != nil || len(i.unknown) > 0 {
				t.Errorf("%s to %s: the result is known, and has %v, %v", kindName(from), kindName(to), i.wrong,
					i.unknown)
			}
		}
		if !r.relabels {
			return
		}
		for n := range 6 {
			in := s.varied(t, from, n)
			before := runtime.DeepCopyJSON(in)
			f := &forms{kept: true}
			out, unknown, ok, err := r.relabel(in, shared, f)
			want, alsoUnknown, alsoOK, alsoErr := r.relabel(in, apart, &forms{})
			if ok != alsoOK || !sameError(err, alsoErr) || !cmp.Equal(out, want) ||
				!slices.Equal(pathsOf(unknown), pathsOf(alsoUnknown)) {
				t.Errorf("%s to %s: relabelled is %t, %v, lost %v; inspected it is %t, %v, lost %v", kindName(from),
					kindName(to), ok, err, pathsOf(unknown), alsoOK, alsoErr, pathsOf(alsoUnknown))
			}
			if !reflect.DeepEqual(in, before) {
				t.Fatalf("%s to %s: the input was changed", kindName(from), kindName(to))
			}
			if f.known {
				relabelled++
			}
		}
	})
	if knownOnes < 500 || unknownOnes < 500 || begun < 200 || relabelled < 300 {
		t.Errorf("%d were known, %d not, of %d the results, %d known ones relabelled: want hundreds of each", knownOnes,
			unknownOnes, begun, relabelled)
	}
}

// sameError reports whether there are errors on both sides; of several wrong values either may be named.
func sameError(a, b error) bool { return (a == nil) == (b == nil) }

// TestWhatIsInDoubtIsAllThatIsFound: of an object of which the type has every field, looking at what is in doubt finds
// what looking at all finds.
func TestWhatIsInDoubtIsAllThatIsFound(t *testing.T) {
	s := newSpecimens(t, 19)
	found, certain := 0, 0
	for gvk := range s.c.hubs {
		for range 3 {
			object := s.of(t, gvk)
			if _, known, err := s.c.decodeKnown(object, gvk); err != nil || !known {
				continue
			}
			u := &unstructured.Unstructured{Object: object}
			for _, minor := range kubever.Minors() {
				shape := s.c.shapeIn(gvk, minor)
				if shape == nil {
					continue
				}
				doubtful := s.c.doubtful(gvk, minor)
				if doubtful == anything {
					certain++
				}
				all, some := s.c.read(u, minor, shape, shape), s.c.read(u, minor, shape, doubtful)
				found += len(all.unknown) + len(all.lacking)
				if diff := cmp.Diff(told(all), told(some)); diff != "" {
					t.Errorf("%s in %s: of all, and of what is in doubt:\n%s", kindName(gvk), minor, diff)
				}
			}
		}
	}
	if found < 1000 || certain < 100 {
		t.Errorf("%d fields were found, %d kinds are without doubt: want many of both", found, certain)
	}
}

// told is what a reading tells of an object.
func told(r Reading) []string {
	return append(append(pathsOf(r.unknown), pathsOf(r.lacking)...), fmt.Sprint(r.misdescribed, r.Losses()))
}

func pathsOf(found []difference) (paths []string) {
	for _, d := range found {
		paths = append(paths, d.at.String()+" "+d.why)
	}
	slices.Sort(paths)
	return paths
}

// Lists of the same objects are found in any order, and very long ones where one of them moved.
func TestReorderedLists(t *testing.T) {
	element := newConverter(t).shapes.of(kind("autoscaling", "v2", "HorizontalPodAutoscaler")).at("spec").
		at("metrics").ofElements()
	metrics := func(count int) []any {
		list := make([]any, count)
		for i := range list {
			list[i] = map[string]any{"type": "External", "external": map[string]any{"target": map[string]any{
				"type": "Value", "value": strconv.Itoa(i)}}}
		}
		return list
	}
	few, many := metrics(20), metrics(5000)
	backwards := slices.Clone(many)
	slices.Reverse(backwards)
	fewBackwards := slices.Clone(few)
	slices.Reverse(fewBackwards)
	for _, test := range []struct {
		name string
		a, b []any
		want bool
	}{
		{"backwards", few, fewBackwards, true},
		{"one twice", few, append(slices.Clone(few[:19]), few[0]), false},
		{"the last one first", many, append(many[len(many)-1:], many[:len(many)-1]...), true},
		{"the first one last", many, append(slices.Clone(many[1:]), many[0]), true},
		{"very many backwards, which are not looked for", many, backwards, false},
	} {
		if got := reordered(test.a, test.b, element); got != test.want {
			t.Errorf("%s: the same in another order = %t, want %t", test.name, got, test.want)
		}
	}
}

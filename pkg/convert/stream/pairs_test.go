package stream

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Objects of every kind, in each version that a minor serves by default, for each other minor, older and newer: what
// comes out is in a version that the minor serves by default, stays as it is when it is converted for the same minor
// again, and comes back as it was but for what is named.
func TestEveryPairOfMinors(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	bases := specimens(t)
	pairs, converted, refused := map[[2]kubever.Minor]int{}, 0, 0
	told, covered := map[string]bool{}, map[schema.GroupVersionKind]bool{}
	tell := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !told[text] && len(told) < 100 {
			told[text] = true
			t.Error(text)
		}
	}
	for _, to := range kubever.Minors() {
		s := New(c, Options{Choose: ForMinor(c, to), Minor: to, Format: JSON})
		for _, base := range bases {
			for _, kind := range append(c.Equivalents(base.GroupVersionKind()), base.GroupVersionKind()) {
				covered[kind] = true
				served := servedBy(kind)
				if len(served) == 0 {
					continue
				}
				in, _, err := c.Convert(base, kind)
				if err != nil {
					t.Fatalf("%s to %s: %v", base.GroupVersionKind(), kind, err)
				}
				target, err := s.target(kind)
				if err != nil {
					refused++
					continue // no version of it there
				}
				out, err := s.become(in, target, 0)
				if err != nil {
					refused++
					continue // acceptance by real servers is for the end-to-end tests
				}
				for _, from := range served {
					pairs[[2]kubever.Minor{from, to}]++
				}
				converted++
				if !slices.Contains(servedBy(target), to) && !strings.Contains(out.refused, "--runtime-config=") {
					tell("%s for %s: %s, which it does not serve by default", kind, to, target)
				}
				again, err := s.become(out.object, target, 0)
				if err != nil || !reflect.DeepEqual(again.object, out.object) || again.refused != out.refused {
					tell("%s for %s: %s converted again: %v", kind, to, target, err)
				}
				back, lostBack, err := c.Convert(out.object, kind)
				if err != nil {
					tell("%s for %s: back: %v", kind, to, err)
					continue
				}
				_, lostSpelling := c.Spell(back, served[len(served)-1])
				before := in.DeepCopy() // annotations as fields, where the kind's last server has them
				_, lostBefore := c.Spell(before, served[len(served)-1])
				named := places{}
				for _, loss := range slices.Concat(out.losses, lostBack, lostSpelling, lostBefore) {
					named[loss.Path] = true
					if _, inSchema, ok := strings.Cut(loss.Path, ".validation."); ok { // of all versions
						named["spec.versions[0].schema."+inSchema] = true
					}
				}
				for _, change := range out.changes {
					named[change.Path] = true
				}
				if version, _, _ := unstructured.NestedString(back.Object, "spec", "version"); version != "" {
					named["spec.versions"] = kind.Kind == "CustomResourceDefinition" // it says the only one, too
				}
				for _, at := range named.missing(before.Object, back.Object, "") {
					tell("%s for %s: %s is not there any more on the way back, and not named", kind, to, at)
				}
			}
		}
	}
	t.Logf("%d pairs of minors, %d conversions, %d refused", len(pairs), converted, refused)
	for _, to := range kubever.Minors() {
		for _, api := range kubever.APIResources(to) {
			kind := api.GroupVersion.WithKind(api.Kind)
			if api.DefaultOn.Has(to) && !covered[kind] && !slices.Contains(unpaired, api.Kind) {
				tell("%s: no object of it is converted", kind)
			}
		}
	}
	if all := len(kubever.Minors()) * len(kubever.Minors()); len(pairs) != all {
		t.Errorf("%d pairs of minors were walked, want %d", len(pairs), all)
	}
}

// unpaired are kinds of requests, which are not kept, and kinds that ended without another in their place.
var unpaired = []string{
	"Binding", "ComponentStatus", "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectReview",
	"SelfSubjectRulesReview", "SubjectAccessReview", "TokenReview",
	"PodPreset", "PodSecurityPolicy", "ReplicationControllerDummy", "ThirdPartyResource",
}

// specimens are the objects that real servers are asked to accept, too, and those of further kinds.
func specimens(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	var text []byte
	for _, file := range []string{"../../../test/e2e/testdata/accept.yaml", "testdata/kinds.yaml"} {
		more, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "\n---\n"...), more...)
	}
	for part, err := range manifest.Parts(bytes.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if !part.Object {
			continue
		}
		object, err := part.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if object != nil {
			objects = append(objects, &unstructured.Unstructured{Object: object.Value})
		}
	}
	return objects
}

// servedBy are the minors that serve a kind by default.
func servedBy(gvk schema.GroupVersionKind) (minors []kubever.Minor) {
	for _, api := range kubever.LifecycleOf(gvk).DefaultOn {
		for minor := api.From; minor <= api.To; minor++ {
			minors = append(minors, minor)
		}
	}
	return minors
}

// places are the paths of what is named.
type places map[string]bool

// missing lists what of a value another one lacks, or has otherwise, and is not named.
func (p places) missing(in, out any, at string) (found []string) {
	if p[at] || says(in) == says(out) {
		return nil
	}
	switch in := in.(type) {
	case map[string]any:
		other, _ := out.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(in)) {
			here := strings.TrimPrefix(at+"."+name, ".")
			if strings.ContainsAny(name, `./[]"`) {
				here = fmt.Sprintf("%s[%q]", at, name)
			}
			found = append(found, p.missing(in[name], other[name], here)...)
		}
		return found
	case []any:
		other, _ := out.([]any)
		for i := range in {
			var element any
			if i < len(other) {
				element = other[i]
			}
			found = append(found, p.missing(in[i], element, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return found
	}
	return []string{at}
}

// says is a value without what says nothing.
func says(value any) string {
	switch value := value.(type) {
	case map[string]any:
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if text := says(value[name]); text != "" {
				fields = append(fields, name+":"+text)
			}
		}
		return strings.Join(fields, ",")
	case []any:
		var elements []string
		for _, element := range value {
			elements = append(elements, "["+says(element)+"]")
		}
		return strings.Join(elements, "")
	case nil, bool, string, int64, float64:
		if value == nil || value == false || value == "" || value == int64(0) {
			return ""
		}
	}
	return fmt.Sprint(value)
}

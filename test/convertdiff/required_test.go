//go:build diff

package convertdiff

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/validate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// definitions of API descriptions, by the names that the tables give them: the names changed over the years.
var definitions = []struct {
	name *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`^io\.k8s\.kubernetes\.pkg\.api\.(v1)\.(\w+)$`), "$1.$2"},
	{regexp.MustCompile(`^io\.k8s\.api\.core\.(v1)\.(\w+)$`), "$1.$2"},
	{regexp.MustCompile(`^io\.k8s\.apimachinery\.pkg\.apis\.meta\.(v1)\.(\w+)$`), "meta.$1.$2"},
	{regexp.MustCompile(`^io\.k8s\.(?:api|kubernetes\.pkg\.apis|apiextensions-apiserver\.pkg\.apis|` +
		`kube-aggregator\.pkg\.apis)\.(\w+)\.(v\w+)\.(\w+)$`), "$1.$2.$3"},
}

// What the API description of a release requires is what the table of required fields says of its minor.
// FUSIONCTL_DIFF_MINORS=20,24-26 asks other releases.
func TestRequiredFieldsAreThoseOfTheDescriptions(t *testing.T) {
	for _, minor := range parse(t, cmp.Or(os.Getenv("FUSIONCTL_DIFF_MINORS"), "6,10,15,24,36,37")) {
		server := module(t, "k8s.io/kubernetes@v"+kubever.Release(minor))
		text, err := os.ReadFile(filepath.Join(server, "api/openapi-spec/swagger.json"))
		if err != nil {
			t.Fatal(err)
		}
		var description struct {
			Definitions map[string]struct {
				Required   []string
				Properties map[string]any
			}
		}
		if err := json.Unmarshal(text, &description); err != nil {
			t.Fatal(err)
		}
		fields := 0
		for name, definition := range description.Definitions {
			typeName := typeOf(name)
			for field := range definition.Properties {
				items := strings.HasSuffix(typeName, "List") && field == "items"
				if items || kubever.FieldType(typeName, field, minor) == "" {
					continue
				}
				want := slices.Contains(definition.Required, field)
				if got := kubever.Required(typeName, field).Has(minor); got != want {
					t.Errorf("%s of %s is required in %s: %t, want %t", field, typeName, minor, got, want)
				}
				if want {
					fields++
				}
			}
		}
		if fields < 200 {
			t.Errorf("the description of %s requires %d fields, want hundreds", minor, fields)
		}
	}
}

func typeOf(definition string) string {
	for _, d := range definitions {
		if match := d.name.FindStringSubmatchIndex(definition); match != nil {
			return string(d.name.ExpandString(nil, d.as, definition, match))
		}
	}
	return ""
}

// lenientFile lists the fields that API descriptions require and that an object may lack nevertheless.
const lenientFile = "testdata/lenient.tsv"

// A field that the API description of a release requires is required by convert, too, or filled in, unless it is one
// of those that servers are known to do without: the end-to-end test takes every field of the same objects away and
// asks real servers of 1.6, 1.10, 1.15, 1.36 and 1.37. -update writes the list.
func TestWhatDescriptionsRequireIsRequired(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(lenientFile)
	if err != nil {
		t.Fatal(err)
	}
	minors := []kubever.Minor{6, 10, 15, 36, 37}
	lenient, tried := map[string][]string{}, 0
	for _, base := range bases(t) {
		for _, minor := range minors {
			standing := c.StandingIn(base.GroupVersionKind(), minor)
			if standing.Target.Empty() || !standing.Served && standing.Target == base.GroupVersionKind() {
				continue
			}
			whole, _, err := c.Convert(base, standing.Target)
			if err != nil {
				t.Fatal(err)
			}
			whole = c.AsRead(whole, minor)
			if judge(c, whole, minor) != nil { // refused for something else
				continue
			}
			for at, place := range requiredIn(whole.Object, kubever.TypeName(standing.Target), minor, nil) {
				without := whole.DeepCopy()
				take(without.Object, place)
				tried++
				if line := at + "\t" + minor.String(); judge(c, without, minor) == nil {
					lenient[at] = append(lenient[at], line)
				}
			}
		}
	}
	var lines []string
	for _, at := range slices.Sorted(maps.Keys(lenient)) {
		slices.Sort(lenient[at])
		lines = append(lines, slices.Compact(lenient[at])...)
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	got := head + "\n" + strings.Join(lines, "\n") + "\n"
	switch {
	case golden.Updating():
		if err := os.WriteFile(lenientFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		known := strings.Split(strings.TrimSuffix(rest, "\n"), "\n")
		for _, line := range lines {
			if !slices.Contains(known, line) {
				t.Errorf("%s: the description requires it, and convert does not", line)
			}
		}
		for _, line := range known {
			if !slices.Contains(lines, line) {
				t.Errorf("%s: %s says that it may be left out, and convert refuses that", line, lenientFile)
			}
		}
	}
	if tried < 500 {
		t.Errorf("%d fields were left out, want hundreds", tried)
	}
}

// judge is what a server of the minor refuses, or may refuse, of an object, or of the pods that are created of it.
func judge(c *convert.Converter, object *unstructured.Unstructured, minor kubever.Minor) error {
	conversion, err := c.Begin(object, object.GroupVersionKind())
	if err == nil {
		_, err = validate.Complete(conversion, minor)
	}
	if refused := new(validate.RefusedError); errors.As(err, &refused) && refused.OfClient {
		return nil
	}
	return err
}

// bases are the objects that the end-to-end test asks servers about.
func bases(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	file, err := os.Open("../e2e/testdata/accept.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for part, err := range manifest.Parts(file) {
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
		objects = append(objects, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object.Value)})
	}
	return objects
}

// requiredIn finds fields of an object that the description of a minor requires, one place for each field of a type.
func requiredIn(object map[string]any, typeName string, minor kubever.Minor, at []any) map[string][]any {
	found := map[string][]any{}
	for name, value := range object {
		here := append(slices.Clone(at), name)
		if len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) {
			continue
		}
		if kubever.Required(typeName, name).Has(minor) {
			found[typeName+"."+name] = here
		}
		inner := kubever.FieldType(typeName, name, minor)
		switch value := value.(type) {
		case map[string]any:
			if !strings.HasPrefix(inner, "map[string]") {
				maps.Copy(found, requiredIn(value, inner, minor, here))
			}
		case []any:
			for i, element := range value {
				if fields, ok := element.(map[string]any); ok {
					maps.Copy(found,
						requiredIn(fields, strings.TrimPrefix(inner, "[]"), minor, append(slices.Clone(here), i)))
				}
			}
		}
	}
	return found
}

func take(value any, at []any) {
	for _, part := range at[:len(at)-1] {
		switch part := part.(type) {
		case string:
			value = value.(map[string]any)[part]
		case int:
			value = value.([]any)[part]
		default:
			panic(fmt.Sprintf("%v is no part of a path", part))
		}
	}
	delete(value.(map[string]any), at[len(at)-1].(string))
}

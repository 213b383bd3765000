//go:build diff

package convertdiff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	openapi "github.com/google/gnostic-models/openapiv2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// kubectl up to 1.24 validates objects by the API description of the server before it sends them, by the functions that
// are asked here. What convert calls good for a release, and what it writes for that, kubectl of the release sends; and
// it refuses what is said to be sent only with --validate=false. The objects are those of the end-to-end test, as they
// are and without each of their fields. FUSIONCTL_DIFF_MINORS=8,20-24 asks other releases.
func TestWhatConvertCallsGoodKubectlSends(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, base := range bases(t) {
		for _, variant := range withoutEach(base.Object) {
			text, err := json.Marshal(variant)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(append(text, '\n'))
		}
	}
	for _, minor := range parse(t, cmp.Or(os.Getenv("FUSIONCTL_DIFF_MINORS"), "6,10,15,24")) {
		if !kubever.Behaves(kubever.BehaviourKubectlRequires, minor) {
			continue
		}
		t.Run(minor.String(), func(t *testing.T) {
			models := described(t, minor)
			s := stream.New(c, stream.Options{
				Choose: stream.ForMinor(c, minor), Minor: minor, Format: stream.JSON,
			})
			good, supplied, refused, told := 0, 0, 0, map[string]bool{}
			tell := func(r stream.Result, what string, errs []error) {
				if text := r.To + ": " + what; !told[text] && len(told) < 50 {
					told[text] = true
					t.Errorf("%s: %v", text, errs)
				}
			}
			err := s.Convert(t.Context(), "objects", bytes.NewReader(all.Bytes()), func(r stream.Result) error {
				if r.Object == nil || r.Err != nil {
					return nil
				}
				model := models[kubever.TypeName(r.Object.GroupVersionKind())]
				if model == nil {
					return nil
				}
				errs := slices.DeleteFunc(validation.ValidateModel(r.Object.Object, model, r.Object.GetKind()),
					func(err error) bool { return isLost(err, r) })
				switch {
				case strings.HasPrefix(r.Refused, "kubectl "):
					if refused++; len(errs) == 0 {
						tell(r, "kubectl sends it, and convert says: "+r.Refused, nil)
					}
				case r.Refused != "":
				case len(errs) > 0:
					tell(r, "is called good, and kubectl does not send it: "+errs[0].Error(), errs)
				default:
					good++
				}
				for _, change := range r.Changes {
					if strings.HasPrefix(change.Meaning, "kubectl ") {
						supplied++
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d good, %d fields written for kubectl, %d refused by it", minor, good, supplied, refused)
			if good < 300 {
				t.Errorf("%d objects are good, want at least 300", good)
			}
			if supplied == 0 && minor < 20 {
				t.Error("nothing was written that kubectl requires")
			}
		})
	}
}

// isLost reports whether kubectl refuses something that is called lost.
func isLost(err error, r stream.Result) bool {
	var invalid validation.ValidationError
	if !errors.As(err, &invalid) {
		return false
	}
	at := invalid.Path
	if unknown, ok := invalid.Err.(validation.UnknownFieldError); ok {
		at += "." + unknown.Field
	}
	return slices.ContainsFunc(r.Losses, func(loss convert.Loss) bool {
		rest, inside := strings.CutPrefix(at, r.Object.GetKind()+"."+loss.Path)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// described reads the API description of a release, by the names that the table of fields gives to types.
func described(t *testing.T, minor kubever.Minor) map[string]proto.Schema {
	t.Helper()
	server := module(t, "k8s.io/kubernetes@v"+kubever.Release(minor))
	text, err := os.ReadFile(filepath.Join(server, "api/openapi-spec/swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]proto.Schema{}
	for _, name := range models.ListModels() {
		if typeName := typeOf(name); typeName != "" {
			named[typeName] = models.LookupModel(name)
		}
	}
	return named
}

// withoutEach are the object, and the object without each of its fields but those that name it.
func withoutEach(object map[string]any) []map[string]any {
	variants := []map[string]any{object}
	var walk func(value any, at []any)
	walk = func(value any, at []any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				if len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
					continue
				}
				here := append(slices.Clone(at), name)
				without := runtime.DeepCopyJSON(object)
				take(without, here)
				variants = append(variants, without)
				walk(inner, here)
			}
		case []any:
			for i, inner := range value {
				walk(inner, append(slices.Clone(at), i))
			}
		}
	}
	walk(object, nil)
	return variants
}

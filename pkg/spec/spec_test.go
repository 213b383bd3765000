package spec_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestLoad reads every case. A good file is shown with all of its defaults, and what was shown is read back as the same
// file; a bad one is shown as its problems.
func TestLoad(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		file, err := spec.Load("spec.yaml", c.Input("spec.yaml"))
		if err != nil {
			c.Want("problems", []byte(err.Error()))
			return
		}
		printed, err := spec.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		c.Want("defaulted.yaml", printed)
		again, err := spec.Load("defaulted.yaml", printed)
		if err != nil {
			t.Fatalf("Load(Marshal(file)):\n%v", err)
		}
		if diff := cmp.Diff(file, again, cmpopts.IgnoreUnexported(spec.File{})); diff != "" {
			t.Errorf("Load(Marshal(file)) is another file (-file +again):\n%s", diff)
		}
	})
}

const minimal = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: minimal}
spec:
  layout: shared
  hosts: [{name: cp-1, address: 10.0.0.11}]
  stores: [{name: core, endpoints: ["http://10.0.0.11:2379"]}]
  legacy: {version: 1.6, apiServer: {}}
  modern: {version: 1.10, apiServer: {}}
  access: [{subjects: [{kind: User, name: alice}], apiGroups: [""], resources: [pods]}]
`

func TestParseBoundsWhatItReads(t *testing.T) {
	_, err := spec.Load("spec.yaml", []byte(minimal+"#"+strings.Repeat("x", 1<<20)))
	if err == nil || !strings.Contains(err.Error(), "spec.yaml: is 1048962 bytes long; a spec may have 1048576") {
		t.Errorf("Load(a file of more than 1 MiB) = %v, want the limit named", err)
	}
}

func TestParseBoundsWhatItReports(t *testing.T) {
	var text strings.Builder
	text.WriteString(minimal)
	for i := range 5000 {
		fmt.Fprintf(&text, "  unknown-field-%d: 1\n", i)
	}
	_, err := spec.Load("spec.yaml", []byte(text.String()))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || lines[100] != "spec.yaml: 4900 more problems are left out" {
		t.Errorf("Load(5000 unknown fields) reports %d lines, the last %q; want 100 and a count", len(lines),
			lines[len(lines)-1])
	}
}

func TestValidateWithoutLinesNamesTheFields(t *testing.T) {
	file, _, err := spec.Parse("spec.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	file.Default()
	if err := spec.Validate(file, spec.Lines{}); err != nil {
		t.Fatalf("Validate(minimal) = %v", err)
	}
	file.Spec.Modern.APIServer.Port = 0
	err = spec.Validate(file, spec.Lines{})
	if want := "spec.modern.apiServer.port: 0: want a port from 1 to 65535"; err == nil || err.Error() != want {
		t.Errorf("Validate(port 0) = %v, want %q", err, want)
	}
}

func TestDefaultTwiceIsDefaultOnce(t *testing.T) {
	once, err := spec.Load("spec.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := spec.Load("spec.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	twice.Default()
	if diff := cmp.Diff(once, twice, cmpopts.IgnoreUnexported(spec.File{})); diff != "" {
		t.Errorf("a second Default() changes the file (-once +twice):\n%s", diff)
	}
}

func TestMarshalWithCommentsShowsAnEmptyFieldThatHasOne(t *testing.T) {
	file, err := spec.Load("spec.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	file.Spec.Access = nil
	printed, err := spec.MarshalWithComments(file, map[string]string{
		"spec.access": "Fill in who may do what.",
		"spec.owners": "Nothing so far.\nTwo lines.",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "  # Nothing so far.\n  # Two lines.\n  owners: []\n  # Fill in who may do what.\n  access: []\n"
	if !strings.HasSuffix(string(printed), want) {
		t.Errorf("MarshalWithComments ends with\n%s\nwant\n%s", printed[max(0, len(printed)-200):], want)
	}
}

// Comments quote what others wrote.
func TestMarshalWithCommentsShowsWhatYAMLForbids(t *testing.T) {
	file, err := spec.Load("spec.yaml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"\x00", "\x1b", "\x7f", "\u0085", "\u009f", "\u2028", "\ufeff", "\ufffe", "\uffff",
		"\xff", "\r", "\r\nspec: {}", "\n\n"} {
		printed, err := spec.MarshalWithComments(file, map[string]string{"spec": "a" + hidden + "b",
			"spec.hosts[0]": hidden})
		if err != nil {
			t.Fatal(err)
		}
		read, err := spec.Load("spec.yaml", printed)
		if diff := cmp.Diff(file, read, cmpopts.IgnoreUnexported(spec.File{})); err != nil || diff != "" {
			t.Errorf("%q in a comment: %v\n%s\n%s", hidden, err, diff, printed)
		}
	}
}

// FuzzParse: no input panics, and what loads is printed so that it loads as the same file.
func FuzzParse(f *testing.F) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		f.Fatalf("no cases: %v", err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range archive.Files {
			if len(section.Data) < 4096 { // what is slow to read is slow to fuzz
				f.Add(section.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := spec.Load("spec.yaml", data)
		if err != nil {
			return
		}
		printed, err := spec.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		again, err := spec.Load("printed.yaml", printed)
		if err != nil {
			t.Fatalf("Load(Marshal(file)): %v\n%s", err, printed)
		}
		if diff := cmp.Diff(file, again, cmpopts.IgnoreUnexported(spec.File{})); diff != "" {
			t.Errorf("Load(Marshal(file)) is another file (-file +again):\n%s", diff)
		}
	})
}

func TestOwningNamesAResourceByAnyOfItsGroups(t *testing.T) {
	deployments, _ := kubever.ResourceFor(schema.GroupResource{Group: "apps", Resource: "deployments"})
	pods, _ := kubever.ResourceFor(schema.GroupResource{Resource: "pods"})
	for _, test := range []struct {
		pattern  string
		resource kubever.Resource
		want     bool
	}{
		{"deployments.extensions", deployments, true},
		{"deployments.apps", deployments, true},
		{"*.extensions", deployments, true},
		{"*.", deployments, false},
		{"*.", pods, true},
		{"pods", pods, true},
		{"pods", deployments, false},
		{"services", pods, false},
	} {
		owning := spec.Owning{Resources: []string{test.pattern}}
		if got := owning.Names(test.resource); got != test.want {
			t.Errorf("Owning{%s}.Names(%s) = %v, want %v", test.pattern, test.resource.Name, got, test.want)
		}
	}
}

func TestOneIdentityServesEveryStore(t *testing.T) {
	text := func(tls string) []byte {
		return []byte(`apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: test}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}]
  stores:
  - {name: core, endpoints: ["https://10.0.0.11:2379"]` + tls + `}
  - {name: modern, endpoints: ["https://10.0.0.11:2479"], managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}}
  legacy: {version: 1.15, apiServer: {}}
  modern: {version: 1.36, apiServer: {}}
  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}]
`)
	}
	f, err := spec.Load("spec.yaml", text(", tls: {ca: /ca, cert: /cert, key: /key}"))
	if err != nil {
		t.Fatal(err)
	}
	modern := f.Spec.Stores[1]
	if modern.TLS == nil || *modern.TLS != (spec.TLS{CA: "/ca", Cert: "/cert", Key: "/key"}) ||
		modern.Managed.ServerTLS.CA != "/ca" {
		t.Errorf("the modern store's files are %v, its members trust %v; want those of the core store", modern.TLS,
			modern.Managed.ServerTLS)
	}
	if _, err := spec.Load("spec.yaml", text("")); err == nil ||
		!strings.Contains(err.Error(), "spec.stores[0].tls: is missing") ||
		!strings.Contains(err.Error(), "spec.stores[1].tls: is missing") {
		t.Errorf("without any: %v, want both stores named", err)
	}
}

// A text that is used again and again by its anchor counts each time: a spec of a megabyte took minutes.
func TestLongTextsOfAnchorsCount(t *testing.T) {
	text := "apiVersion: kubefusion.dev/v1alpha1\nkind: FusedControlPlane\nmetadata: {name: &a " +
		strings.Repeat("x", 300_000) + "}\nspec:\n  hosts: [" + strings.Repeat("{name: *a, address: *a},", 5000) + "]\n"
	_, err := spec.Load("spec.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "use of an anchor") {
		t.Errorf("Load = %.300v, want the limit", err)
	}
}

// TestNamespacesOfAHandOverAreBounded: each has steps of its own.
func TestNamespacesOfAHandOverAreBounded(t *testing.T) {
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for n, refused := range map[int]bool{1000: false, 1001: true} {
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf("team-%d/*", i))
		}
		_, err := spec.Load("spec.yaml", []byte(strings.Replace(string(text), "\nspec:\n", "\nspec:\n  handedOver: ["+
			strings.Join(entries, ", ")+"]\n", 1)))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "want at most 1000 namespaces") {
			t.Errorf("%d namespaces: %v", n, err)
		}
	}
}

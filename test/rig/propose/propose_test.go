package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tablesDir = "../../../pkg/kubever/tables"

func TestTablesAreReadAndPrintedAsTheyAre(t *testing.T) {
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range all {
		data, err := os.ReadFile(filepath.Join(tablesDir, name+".tsv"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(data), table.String()); diff != "" {
			t.Errorf("%s (-file +printed):\n%s", name, diff)
		}
	}
}

// A table that names minors and that the command does not know would stay behind when a minor is added.
func TestEveryTableThatNamesMinorsIsAdded(t *testing.T) {
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	newest := all["releases"].rows[len(all["releases"].rows)-1][0]
	minor, err := strconv.Atoi(newest)
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range all {
		columns := shapes[name]
		if len(columns) == 0 && strings.Contains(strings.Split(table.comments[0], "source")[0], "minors") {
			t.Errorf("%s.tsv speaks of minors: which of its columns have them?", name)
		}
		for column, s := range columns {
			for _, row := range table.rows {
				if column >= len(row) {
					t.Fatalf("%s.tsv has no column %d", name, column)
				}
				if s == minors && row[column] != "-" && parseMinors(row[column]) == nil {
					t.Errorf("%s.tsv, column %d: %q are no minors", name, column, row[column])
				}
			}
		}
	}
	all.remove(minor)
	for name, table := range all {
		for column, s := range shapes[name] {
			for _, row := range table.rows {
				_, valued := valueAt(row[column], minor)
				if s == minors && holds(row[column], minor) || s == values && valued {
					t.Errorf("%s.tsv: %q still has 1.%d", name, row, minor)
				}
			}
		}
	}
}

func TestMinors(t *testing.T) {
	for _, test := range []struct{ before, with, without string }{
		{"-", "36", "-"},
		{"6-35", "6-36", "6-35"},
		{"6-36", "6-36", "6-35"},
		{"6-12", "6-12,36", "6-12"},
		{"36", "36", "-"},
		{"35-37", "35-37", "35,37"},
		{"37", "36-37", "37"},
	} {
		if got := with(test.before, 36); got != test.with {
			t.Errorf("with(%q, 36) = %q, want %q", test.before, got, test.with)
		}
		if got := holding(test.before, 36, false); got != test.without {
			t.Errorf("holding(%q, 36, false) = %q, want %q", test.before, got, test.without)
		}
	}
	for _, test := range []struct{ before, value, want string }{
		{"-", "on", "36=on"},
		{"6-35=on", "on", "6-36=on"},
		{"6-35=on", "off", "6-35=on 36=off"},
		{"6-30=on 31-35=off", "on", "6-30=on 31-35=off 36=on"},
		{"6-36=on", "off", "6-35=on 36=off"},
		{"6-36=", "", "6-36="},
	} {
		if got := withValue(test.before, 36, test.value); got != test.want {
			t.Errorf("withValue(%q, 36, %q) = %q, want %q", test.before, test.value, got, test.want)
		}
	}
	for _, test := range []struct {
		before, name, want string
		has                bool
	}{
		{"-", "status", "status=36", true},
		{"scale=6-35 status=6-35", "scale", "scale=6-36 status=6-35", true},
		{"pods status=36", "status", "pods", false},
	} {
		if got := withName(test.before, test.name, 36, test.has); got != test.want {
			t.Errorf("withName(%q, %s, 36, %t) = %q, want %q", test.before, test.name, test.has, got, test.want)
		}
	}
}

// What programs say becomes rows; what nobody can print is asked.
func TestWhatIsNewIsProposed(t *testing.T) {
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	f := facts{
		components: map[string]component{"kube-apiserver": {}, "kube-scheduler": {}},
		resources: []resource{{Group: "example.k8s.io", Version: "v1alpha1", Name: "widgets", Kind: "Widget",
			Stored: true, Key: "widgets", StoredAs: "example.k8s.io/v1alpha1", Namespaced: true,
			Subresources: []string{"status"}, ShortNames: []string{"wd"}}},
		fields:   map[[2]string]string{{"example.v1alpha1.Widget", "spec"}: "example.v1alpha1.WidgetSpec"},
		required: map[[2]string]bool{{"example.v1alpha1.Widget", "spec"}: true},
	}
	server := f.components["kube-apiserver"]
	server.Flags = append(server.Flags, struct {
		Name, Default, Deprecated string
		SaysDeprecated            bool
	}{"widgets", "7", "use gadgets", false})
	server.Gates = append(server.Gates, struct {
		Name, Stage     string
		Default, Locked bool
	}{"Widgets", "ALPHA", false, false})
	f.components["kube-apiserver"] = server
	f.Controllers = append(f.Controllers, struct {
		Name           string
		Aliases, Gates []string
		Off, Cloud     bool
	}{"widget-controller", nil, []string{"Widgets"}, true, false})
	for _, group := range []string{"example.k8s.io/v1alpha1", "policy/v1"} { // of the second it is a request
		f.Kinds = append(f.Kinds, struct {
			GroupVersion, Kind string
			Deprecated         int
		}{group, "Widget", 0})
	}
	f.Admission, f.AdmissionOn = []string{"WidgetDefaults"}, []string{"WidgetDefaults"}
	decide := strings.Join(all.propose(release{version: "v1.99.1", minor: 99}, f), "\n")
	for name, want := range map[string][]string{
		"releases":        {"99", "1.99.1"},
		"flags":           {"kube-apiserver", "widgets", "99", "99", "-", "99=7"},
		"deprecations":    {"kube-apiserver", "widgets", "99", "use gadgets"},
		"gates":           {"Widgets", "-", "99=ALPHA,off"},
		"gates-only":      {"Widgets", "kube-apiserver", "99"},
		"admission":       {"WidgetDefaults", "99", "99"},
		"admission-order": {"99", "WidgetDefaults"},
		"api":             {"example.k8s.io/v1alpha1", "widgets", "Widget", "yes", "99", "-", "status=99"},
		"short-names":     {"widgets", "wd"},
		"resources":       {"widgets", "widgets", "Widget", "yes", "-", "99=example.k8s.io/v1alpha1", "-", "own"},
		"kinds":           {"example.k8s.io/v1alpha1", "Widget", "99"},
		"required":        {"example.v1alpha1.Widget", "spec", "99"},
		"fields":          {"example.v1alpha1.Widget", "spec", "99=example.v1alpha1.WidgetSpec"},
		"controllers":     {"widget-controller", "?", "99=widget-controller", "-", "99", "99=Widgets", "-", "?"},
	} {
		if got, ok := all[name].find(want[0], want[1]); !ok || !cmp.Equal(got, want) {
			t.Errorf("%s.tsv has %q, want %q", name, got, want)
		}
	}
	if row, ok := all["kinds"].find("policy/v1", "Widget"); ok {
		t.Errorf("kinds.tsv has %q, which is no kind of an object", row)
	}
	for _, want := range []string{"widgets is new", "widget-controller is new"} {
		if !strings.Contains(decide, want) {
			t.Errorf("to be decided:\n%s\nwant %q", decide, want)
		}
	}
}

// A field is required in the minors whose description says so: what an older one requires is not carried over.
func TestRequiredFieldsAreThoseOfTheDescription(t *testing.T) {
	const description = `{"definitions": {
		"io.k8s.api.example.v1.Widget": {"required": ["spec"], "properties": {"spec": {}, "status": {}}},
		"io.k8s.api.example.v1.WidgetList": {"required": ["items"], "properties": {"items": {}, "metadata": {}}},
		"io.k8s.api.example.v1.Menu": {"required": ["items"], "properties": {"items": {}}}%s}}`
	file := filepath.Join(t.TempDir(), "swagger.json")
	read := func(more string) (map[[2]string]string, map[[2]string]bool, error) {
		if err := os.WriteFile(file, fmt.Appendf(nil, description, more), 0o600); err != nil {
			t.Fatal(err)
		}
		return readTypes(file)
	}
	fields, required, err := read("")
	if err != nil {
		t.Fatal(err)
	}
	all := tables{"required": parseTable("# comment\nexample.v1.Widget\tspec\t97-98\n" +
		"example.v1.Widget\tstatus\t97-98\nexample.v2.Widget\tspec\t98\n")}
	p := proposal{tables: all, minor: 99, facts: facts{fields: fields, required: required}}
	p.required()
	const want = "# comment\nexample.v1.Menu\titems\t99\nexample.v1.Widget\tspec\t97-99\n" +
		"example.v1.Widget\tstatus\t97-98\nexample.v2.Widget\tspec\t98\n"
	if diff := cmp.Diff(want, all["required"].String()); diff != "" {
		t.Errorf("required.tsv (-want +proposed):\n%s", diff)
	}
	// Another patch release of the same minor may require less.
	p.facts.required = map[[2]string]bool{{"example.v1.Widget", "spec"}: true}
	p.required()
	if row, ok := all["required"].find("example.v1.Menu"); ok {
		t.Errorf("required.tsv keeps %q, which no minor requires", row)
	}
	if _, _, err := read(`, "io.k8s.api.example.v1.Odd": {"required": ["gone"]}`); err == nil ||
		!strings.Contains(err.Error(), `Odd requires "gone"`) {
		t.Errorf("a required field that the type lacks: %v, want an error that names it", err)
	}
}

// A build of an hour says how far it is; what the compiler says is kept for the error, names of packages are not.
func TestABuildSaysHowFarItIs(t *testing.T) {
	var progress strings.Builder
	c := &compiling{progress: &progress, stale: 201}
	var log strings.Builder
	for i := range 201 {
		fmt.Fprintf(&log, "example.test/package%d\n", i)
	}
	log.WriteString("go: downloading example.test v1.0.0\n# example.test/broken\nbroken.go:1:2: undefined: x\n")
	for text := log.String(); text != ""; { // in pieces, as a pipe brings it
		n := min(7, len(text))
		if written, err := c.Write([]byte(text[:n])); written != n || err != nil {
			t.Fatalf("Write = %d, %v, want %d", written, err, n)
		}
		text = text[n:]
	}
	if got, want := progress.String(), "compiled 100 of 201 packages\ncompiled 200 of 201 packages\n"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
	const want = "go: downloading example.test v1.0.0\n# example.test/broken\nbroken.go:1:2: undefined: x\n"
	if got := c.messages.String(); got != want || c.done != 201 {
		t.Errorf("%d packages and messages %q, want 201 and %q", c.done, got, want)
	}
}

func TestWhatIsNoReleaseIsRefused(t *testing.T) {
	for _, name := range []string{"", "1.36.3", "v1.36", "v1.36.0-rc.1", "latest"} {
		var out, errs strings.Builder
		if code := run(t.Context(), request{release: name}, &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), "such as v1.37.2") {
			t.Errorf("-release %q: code %d, %q; want 2, and what is wanted", name, code, errs.String())
		}
	}
	if _, err := fetch(t.Context(), "v1.24.17"); err == nil || !strings.Contains(err.Error(), "or later") {
		t.Errorf("fetch(v1.24.17) = %v, want that it is too old", err)
	}
}

// What the tables have is not proposed by chance, and nothing is downloaded before that is known.
func TestAMinorThatIsThereIsRefused(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := strconv.Atoi(all["releases"].rows[len(all["releases"].rows)-1][0])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, release string
		update        bool
		code          int
		says          string
	}{
		{"known", fmt.Sprintf("v1.%d.999", newest), false, 2, "-update"},
		{"known, and asked for", fmt.Sprintf("v1.%d.999", newest), true, 1, "downloading"},
		{"new", fmt.Sprintf("v1.%d.999", newest+1), false, 1, "downloading"},
		{"a gap", fmt.Sprintf("v1.%d.999", newest+2), false, 1, fmt.Sprintf("add 1.%d first", newest+1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs strings.Builder
			req := request{release: test.release, tables: tablesDir, update: test.update}
			code := run(t.Context(), req, &out, &errs)
			if code != test.code || !strings.Contains(errs.String(), test.says) || out.Len() > 0 {
				t.Errorf("-release %s: code %d, %q; want %d and %q", test.release, code, errs.String(), test.code,
					test.says)
			}
		})
	}
}

// Sources that cannot be had are an error: "nothing changed" would be a guess.
func TestSourcesThatCannotBeHadAreAnError(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	const file = "staging/src/k8s.io/api/core/v1/types.go"
	without := release{version: "v1.98.0"}
	with := release{version: "v1.99.0", staging: map[string]string{"k8s.io/api": "v0.99.999"}}
	if paths, err := differing(t.Context(), without, with, file); err == nil || !strings.Contains(err.Error(),
		"k8s.io/api@v0.99.999") {
		t.Errorf("differing = %q, %v; want that k8s.io/api cannot be downloaded", paths, err)
	}
	if paths, err := differing(t.Context(), without, without, file); err != nil || len(paths) > 0 {
		t.Errorf("of a module that no release has: %q, %v; want nothing", paths, err)
	}
}

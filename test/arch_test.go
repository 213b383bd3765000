package test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubefusion/fusionctl/"

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// Every package of ours stands in one of the four lists below.

// leaves are ideas that every package may use. They are pure, and import nothing of ours but each other.
var leaves = []string{
	"docs", "examples", "internal/crdfile", "internal/jsontext", "internal/keyindex", "internal/licenses",
	"internal/prose", "internal/quantity", "internal/spelling", "internal/strictyaml", "internal/visible",
	"internal/yamltext", "pkg/discovery", "pkg/finding", "pkg/gc", "pkg/kubever", "pkg/kubever/browse", "pkg/pair",
	"pkg/storage", "pkg/witness", "templates",
}

// core packages turn values into values. They are pure, and import of ours leaves and what is listed here.
var core = map[string][]string{
	"pkg/spec":         nil,
	"pkg/policy":       nil,
	"pkg/policy/roles": {"pkg/policy"},
	"pkg/adopt":        {"pkg/spec"},

	"pkg/storage/objects": nil,
	"pkg/etcd":            nil,
	"pkg/etcd/diff":       {"pkg/etcd"},
	"pkg/etcd/fight":      {"pkg/etcd"},
	"pkg/etcd/move":       {"pkg/etcd"},
	"pkg/etcd/handover":   {"pkg/etcd", "pkg/etcd/move", "pkg/storage/objects"},
	"pkg/etcd/scan":       {"pkg/etcd"},
	"pkg/etcdsplit":       {"pkg/etcd", "pkg/etcd/scan"},

	"pkg/plan":      {"pkg/spec", "pkg/policy"},
	"pkg/rules":     {"pkg/spec", "pkg/policy", "pkg/plan"},
	"pkg/graph":     {"pkg/spec", "pkg/policy", "pkg/plan"},
	"pkg/admission": {"pkg/spec", "pkg/plan"},
	// what the gateway does with a request, without the requests
	"pkg/gateway/routes": {"pkg/plan", "pkg/convert/negotiate"},
	"pkg/gateway/merge":  nil,

	"pkg/render": {"pkg/spec", "pkg/policy", "pkg/plan", "pkg/admission"},
	"pkg/report": {"pkg/policy", "pkg/plan", "pkg/graph", "pkg/render", "pkg/restart"},
	// it compares as render --diff does
	"pkg/live": {"pkg/spec", "pkg/plan", "pkg/adopt", "pkg/render"},

	"pkg/preflight": {"pkg/spec", "pkg/plan", "pkg/render"},
	"pkg/transition": {"pkg/spec", "pkg/policy", "pkg/plan", "pkg/render", "pkg/admission",
		"pkg/etcd/handover"},
	"pkg/transition/playbook": {"pkg/etcd/handover", "pkg/render", "pkg/transition"},
	"pkg/transition/roadmap":  {"pkg/spec", "pkg/plan", "pkg/render", "pkg/transition", "pkg/catalog"},

	"pkg/catalog": {"pkg/policy", "pkg/etcd/scan", "pkg/plan", "pkg/rules", "pkg/live", "pkg/migrate", "pkg/preflight"},

	"pkg/restart":           nil,
	"pkg/convert":           {"pkg/convert/negotiate", "pkg/storage/objects"},
	"pkg/convert/manifest":  nil,
	"pkg/convert/negotiate": nil,
	"pkg/convert/stream":    {"pkg/convert", "pkg/convert/manifest", "pkg/convert/negotiate", "pkg/convert/validate"},
	"pkg/convert/validate":  {"pkg/convert"},
	"pkg/hub":               nil,
	"pkg/operator/api":      {"pkg/spec"},
	"pkg/migrate":           {"pkg/etcd"},
}

// adapters speak to the world: files, servers, clocks. They import leaves, core and each other.
var adapters = []string{
	"internal/demo", "internal/filetree", "internal/localetcd", "internal/monitoring", "internal/pause",
	"internal/registry", "internal/site", "internal/webserver", "pkg/adopt/files", "pkg/apiserver", "pkg/controllers",
	"pkg/convert/client", "pkg/convert/client/wrap", "pkg/etcd/backup", "pkg/etcd/etcdv3", "pkg/etcd/move/files",
	"pkg/etcd/restore", "pkg/etcd/snapshot", "pkg/etcd/watch", "pkg/gateway", "pkg/hub/webhook", "pkg/journal",
	"pkg/kube", "pkg/migrate/live", "pkg/operator", "pkg/operator/agent", "pkg/pki", "pkg/policy/webhook",
	"pkg/preflight/host", "pkg/restart/cri", "pkg/transition/local", "pkg/transition/remote", "pkg/witness/statedir",
}

// tests are what only tests import, and programs of the Makefile. They import what they like.
var tests = []string{
	"internal/browser", "internal/cputest", "internal/debian", "internal/etcdtest", "internal/freeport",
	"internal/golden", "internal/plantest", "internal/site/build", "internal/storetest", "test", "test/adopted",
	"test/convertdiff", "test/e2e", "test/fuzz", "test/rig", "test/rig/build", "test/rig/packages", "test/rig/pod",
	"test/rig/propose",
}

// mayImport says of one of our packages which others of ours it may import; false when no list has the package.
func mayImport(name string) (allowed func(string) bool, known bool) {
	isLeaf := func(other string) bool { return slices.Contains(leaves, other) }
	isCore := func(other string) bool { _, ok := core[other]; return ok }
	isAdapter := func(other string) bool { return slices.Contains(adapters, other) }
	switch {
	case name == "cmd/fusionctl":
		return func(other string) bool { return other == "internal/cli" }, true
	case name == "internal/site":
		return func(other string) bool { return isLeaf(other) || isCore(other) || other == "internal/cli" }, true
	case name == "internal/cli", isAdapter(name):
		return func(other string) bool { return isLeaf(other) || isCore(other) || isAdapter(other) }, true
	case isCore(name):
		return func(other string) bool { return isLeaf(other) || slices.Contains(core[name], other) }, true
	case isLeaf(name):
		return isLeaf, true
	case slices.Contains(tests, name):
		return func(string) bool { return true }, true
	}
	return nil, false
}

// pure lists the packages that turn values into values: no files, no network, no processes, no clock, no randomness, no
// logs.
func pure() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(core)), leaves...)))
}

var impure = []string{"os", "os/exec", "os/signal", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2",
	"crypto/rand", "syscall"}

// clocks are the functions that read the clock or wait for it.
var clocks = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
}

// bans are transitive: whoever imports the package must not inherit these modules.
var bans = []struct {
	module string
	but    []string // packages of the module that anybody may inherit
	except []string // packages of ours that may inherit all of it
	why    string
}{
	{"github.com/spf13/cobra", nil, validation,
		"the command line is one package; Kubernetes' validation names versions by flags"},
	{"go.etcd.io/", nil, nil, "only adapters speak to etcd: a reader of policies must not inherit gRPC"},
	{"google.golang.org/grpc", nil, validation,
		"only adapters speak to servers; Kubernetes' validation of CRDs and policies brings it along"},
	// a scheme of the API's types, and the list of features that Kubernetes' conversions read: no clients
	{"k8s.io/client-go", []string{"k8s.io/client-go/kubernetes/scheme", "k8s.io/client-go/features"}, validation,
		"only adapters speak to servers; Kubernetes' validation of CRDs and policies brings clients along"},
	{"sigs.k8s.io/controller-runtime", nil, nil, "only adapters speak to servers"},
}

// validation are the packages that judge objects as Kubernetes itself does, by its own code.
var validation = []string{"pkg/convert/validate", "pkg/convert/stream"}

func TestEveryPackageIsListedOnce(t *testing.T) {
	packages := list(t)
	listed := map[string]int{"cmd/fusionctl": 1, "internal/cli": 1}
	for _, name := range slices.Concat(leaves, slices.Collect(maps.Keys(core)), adapters, tests) {
		listed[name]++
	}
	for path := range packages {
		if name, ours := strings.CutPrefix(path, module); ours && listed[name] == 0 {
			t.Errorf("%s stands in no list: name it among the leaves, core, adapters or tests of arch_test.go", name)
		}
	}
	for name, times := range listed {
		if _, exists := packages[module+name]; !exists && name != "test/e2e" { // its files have a build tag
			t.Errorf("%s is listed, and there is no such package", name)
		}
		if times > 1 {
			t.Errorf("%s is listed %d times", name, times)
		}
	}
}

func TestImportsPointDownwards(t *testing.T) {
	for path, p := range list(t) {
		name, ours := strings.CutPrefix(path, module)
		allowed, known := mayImport(name)
		if !ours || !known {
			continue
		}
		for _, imported := range p.Imports {
			if other, ours := strings.CutPrefix(imported, module); ours && !allowed(other) {
				t.Errorf("%s imports %s: cmd -> internal/cli -> adapters -> core -> leaves, and of core what its "+
					"list says", name, other)
			}
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	packages := list(t)
	for _, name := range pure() {
		for _, imported := range packages[module+name].Imports {
			if slices.Contains(impure, imported) {
				t.Errorf("%s imports %q: pure packages act only through what they are handed", name, imported)
			}
		}
	}
}

func TestCoreReadsNoClock(t *testing.T) {
	packages := list(t)
	read := 0
	for _, name := range pure() {
		p := packages[module+name]
		for _, file := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			read++
			for _, use := range clockUses(t, name+"/"+file, source) {
				t.Errorf("%s: the time is handed to pure packages", use)
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}

// clockUses finds where a file names one of clocks, called or not.
func clockUses(t *testing.T, name string, source []byte) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	banned := map[string][]string{} // by the name of the import
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		switch {
		case clocks[path] == nil:
		case spec.Name == nil:
			banned[path] = clocks[path]
		default:
			banned[spec.Name.Name] = clocks[path]
		}
	}
	var uses []string
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(banned[x.Name], selector.Sel.Name) {
				uses = append(uses, files.Position(n.Pos()).String()+": "+x.Name+"."+selector.Sel.Name)
			}
		}
		return true
	})
	if banned["."] != nil {
		uses = append(uses, name+": imports a clock without its name")
	}
	return uses
}

func TestClocksAreFound(t *testing.T) {
	for source, want := range map[string][]string{
		`import "time"; var d = time.Second; func f(now time.Time) bool { return now.After(now) }`: nil,
		`import "time"; func f() time.Time { return time.Now() }`: {
			"f.go:1:55: time.Now"},
		`import "time"; var now = time.Now`:                  {"f.go:1:37: time.Now"},
		`import clock "time"; func f() { <-clock.After(1) }`: {"f.go:1:46: clock.After"},
		`import . "time"; func f() { Sleep(1) }`:             {"f.go: imports a clock without its name"},
		`import "context"; var f = context.WithTimeout`:      {"f.go:1:38: context.WithTimeout"},
		`import time "example.com/time"; var f = time.Now`:   nil,
	} {
		if got := clockUses(t, "f.go", []byte("package f; "+source)); !slices.Equal(got, want) {
			t.Errorf("clockUses(%s) = %q, want %q", source, got, want)
		}
	}
}

func TestCoreDoesNotInheritClients(t *testing.T) {
	packages := list(t)
	for _, ban := range bans {
		for _, name := range pure() {
			chain := chainTo(packages, module+name, ban.module, ban.but)
			switch excepted := slices.Contains(ban.except, name); {
			case chain != nil && !excepted:
				t.Errorf("%s reaches %s by %s: %s", name, ban.module, strings.Join(chain, " -> "), ban.why)
			case chain == nil && excepted:
				t.Errorf("%s does not reach %s: it needs no exception", name, ban.module)
			}
		}
	}
	for _, ban := range bans {
		for _, path := range ban.but {
			for _, other := range bans {
				if chain := chainTo(packages, path, other.module, append(other.but, path)); chain != nil {
					t.Errorf("%s, which anybody may inherit, reaches %s by %s", path, other.module,
						strings.Join(chain, " -> "))
				}
			}
		}
	}
}

func TestOnlyTheCommandLineImportsCobra(t *testing.T) {
	for path, p := range list(t) {
		name, ours := strings.CutPrefix(path, module)
		// internal/site walks the tree of commands to document it
		if ours && name != "internal/cli" && name != "internal/site" &&
			slices.Contains(p.Imports, "github.com/spf13/cobra") {
			t.Errorf("%s imports cobra: verbs stand in internal/cli", name)
		}
	}
}

// TestWhatIsPrintedIsShown: the command line prints by internal/visible, which keeps what others have named in its line
// and shows what would move a cursor.
func TestWhatIsPrintedIsShown(t *testing.T) {
	may := map[string]int{
		"demo.go":     -1, // prints what verbs have printed, and the demonstration's own words
		"progress.go": 3,  // draws a line with escapes, and bytes
		"rows.go":     2,  // JSON, and headers of ours
		"render.go":   1,  // data
		"server.go":   1,  // to HTTP
	}
	files, err := filepath.Glob("../internal/cli/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, allowed := strings.Count(string(text), "fmt.Fprint"), may[filepath.Base(file)]
		if allowed >= 0 && n > allowed {
			t.Errorf("%s calls fmt.Fprint... %d times: visible.Fprintf keeps arguments in their line", file, n)
		}
	}
}

// TestTheMapIsWhole holds ARCHITECTURE.md against what there is: each package, and each module that is required
// directly.
func TestTheMapIsWhole(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := list(t)
	for path := range packages {
		if name, ours := strings.CutPrefix(path, module); ours && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not say what %s holds", name)
		}
	}
	for _, named := range regexp.MustCompile("`((?:cmd|internal|pkg)/[a-z0-9/]+)`").FindAllStringSubmatch(string(text),
		-1) {
		if _, err := os.Stat("../" + named[1]); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", named[1], err)
		}
	}
	_, dependencies, _ := strings.Cut(string(text), "## Direct dependencies")
	out, err := exec.Command("go", "mod", "edit", "-json", "../go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil || len(mod.Require) == 0 {
		t.Fatalf("go mod edit: %d modules, %v", len(mod.Require), err)
	}
	for _, required := range mod.Require {
		if required.Indirect {
			continue
		}
		name := regexp.MustCompile(`/v[0-9]+$`).ReplaceAllString(required.Path, "")
		if name = name[strings.LastIndex(name, "/")+1:]; !strings.Contains(dependencies, name) {
			t.Errorf("ARCHITECTURE.md does not say why %s is required", required.Path)
		}
	}
}

// chainTo finds the shortest chain of imports from a package to one whose path starts with the prefix, and is none of
// the others.
func chainTo(packages map[string]pkg, from, prefix string, but []string) []string {
	before := map[string]string{from: ""}
	queue := []string{from}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if path != from && strings.HasPrefix(path, prefix) && !slices.Contains(but, path) {
			var chain []string
			for ; path != ""; path = before[path] {
				chain = append([]string{path}, chain...)
			}
			return chain
		}
		for _, next := range packages[path].Imports {
			if _, seen := before[next]; !seen {
				before[next] = path
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// list asks the go command for every package of ours and all that they import.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", "../...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	packages := map[string]pkg{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	if len(packages) < 10 {
		t.Fatalf("go list named %d packages", len(packages))
	}
	return packages
}

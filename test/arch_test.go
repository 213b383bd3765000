package test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubefusion/fusionctl/"

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// layers say which packages of ours a core package may import. What is not listed is an adapter and stands above the core.
var layers = map[string][]string{
	"cmd/fusionctl":   {"internal/cli"},
	"pkg/kubever":     {"pkg/gc"},
	"pkg/finding":     {},
	"pkg/gc":          {},
	"pkg/pair":        {"pkg/gc"},
	"pkg/spec":        {"pkg/kubever"},
	"pkg/policy":      {"pkg/kubever", "pkg/finding"},
	"pkg/etcdsplit":   {"pkg/pair", "pkg/gc", "pkg/kubever", "pkg/finding"},
	"pkg/restart":     {"pkg/kubever", "pkg/finding"},
	"pkg/plan":        {"pkg/spec", "pkg/policy", "pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/kubever", "pkg/finding"},
	"pkg/rules":       {"pkg/plan", "pkg/spec", "pkg/policy", "pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/kubever", "pkg/finding"},
	"pkg/admission":   {"pkg/plan", "pkg/spec", "pkg/kubever", "pkg/finding"},
	"pkg/graph":       {"pkg/plan", "pkg/policy", "pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/spec", "pkg/kubever"},
	"pkg/render":      {"pkg/admission", "pkg/plan", "pkg/policy", "pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/spec", "pkg/kubever", "pkg/finding", "templates"},
	"pkg/convert":     {"pkg/kubever"},
	"pkg/adopt":       {"pkg/spec", "pkg/kubever"},
	"pkg/migrate":     {"pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/kubever", "pkg/finding"},
	"pkg/live":        {"pkg/render", "pkg/adopt", "pkg/plan", "pkg/spec", "pkg/pair", "pkg/gc", "pkg/etcdsplit", "pkg/kubever", "pkg/finding"}, // it compares as render --diff does
	"pkg/hub":         {"pkg/kubever"},
	"internal/cli":    {"*"},
	"test/rig":        {"*"},
	"internal/golden": {},

	"pkg/convert/negotiate": {"pkg/kubever"},
}

// leaves are shared ideas that import nothing of ours and that every package may use.
var leaves = []string{"internal/prose", "internal/spelling", "internal/strictyaml", "internal/yamltext"}

// pure packages turn values into values: no files, no network, no processes, no clock of their own, no logs.
var pure = []string{"internal/prose", "internal/spelling", "internal/strictyaml", "internal/yamltext", "pkg/kubever", "pkg/finding", "pkg/gc", "pkg/pair", "pkg/spec", "pkg/adopt", "pkg/policy", "pkg/etcdsplit", "pkg/restart", "pkg/plan", "pkg/rules", "pkg/admission", "pkg/graph", "pkg/render", "pkg/convert", "pkg/convert/manifest", "pkg/convert/negotiate", "pkg/migrate", "pkg/live", "pkg/hub"}

var impure = []string{"os", "os/exec", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2"}

// bans are transitive: whoever imports the package must not inherit these modules.
var bans = []struct {
	module string
	except []string // packages that may
	why    string
}{
	{"github.com/spf13/cobra", []string{"cmd/fusionctl", "internal/cli"}, "the command line is one package"},
	{"go.etcd.io/", nil, "only adapters speak to etcd: a reader of policies must not inherit gRPC"},
	{"google.golang.org/grpc", nil, "only adapters speak to servers"},
	{"k8s.io/client-go", []string{"pkg/convert", "pkg/convert/manifest"}, "only adapters speak to servers; Kubernetes' conversions bring its list of features along"},
	{"sigs.k8s.io/controller-runtime", nil, "only adapters speak to servers"},
}

func TestImportsPointDownwards(t *testing.T) {
	packages := list(t)
	for path, p := range packages {
		name, ours := strings.CutPrefix(path, module)
		if !ours {
			continue
		}
		allowed, known := layers[name]
		known = known || slices.Contains(leaves, name)
		for _, imported := range p.Imports {
			dependency, ours := strings.CutPrefix(imported, module)
			if !ours || slices.Contains(leaves, dependency) || (known && (slices.Contains(allowed, dependency) || slices.Contains(allowed, "*"))) || adapter(name) {
				continue
			}
			t.Errorf("%s imports %s: the layers let it import %v; adapters and internal/cli stand above", name, dependency, allowed)
		}
	}
}

// adapter reports whether the package speaks to the world and imports what it adapts.
func adapter(name string) bool {
	_, listed := layers[name]
	return !listed && !slices.Contains(leaves, name)
}

func TestCoreIsPure(t *testing.T) {
	packages := list(t)
	for _, name := range pure {
		p, ok := packages[module+name]
		if !ok {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(impure, imported) {
				t.Errorf("%s imports %q: core packages act only through what they are handed", name, imported)
			}
		}
	}
}

func TestCoreDoesNotInheritClients(t *testing.T) {
	packages := list(t)
	for _, name := range pure {
		for _, ban := range bans {
			if slices.Contains(ban.except, name) {
				continue
			}
			if chain := chainTo(packages, module+name, ban.module); chain != nil {
				t.Errorf("%s reaches %s by %s: %s", name, ban.module, strings.Join(chain, " -> "), ban.why)
			}
		}
	}
}

func TestOnlyTheCommandLineImportsCobra(t *testing.T) {
	for path, p := range list(t) {
		name, ours := strings.CutPrefix(path, module)
		if ours && name != "internal/cli" && slices.Contains(p.Imports, "github.com/spf13/cobra") {
			t.Errorf("%s imports cobra: verbs stand in internal/cli", name)
		}
	}
}

// TestTheMapIsWhole holds ARCHITECTURE.md against what there is: each package, and each module that is required directly.
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
	for _, named := range regexp.MustCompile("`((?:cmd|internal|pkg)/[a-z0-9/]+)`").FindAllStringSubmatch(string(text), -1) {
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

// chainTo finds the shortest chain of imports from a package to one whose path starts with the prefix.
func chainTo(packages map[string]pkg, from, prefix string) []string {
	before := map[string]string{from: ""}
	queue := []string{from}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if path != from && strings.HasPrefix(path, prefix) {
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
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard", "../...")
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

//go:build diff

package convertdiff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// disabledFile is what pkg/kubever holds its table of gates of fields against.
const disabledFile = "../../pkg/kubever/testdata/disabled-fields.tsv"

// What the sources of releases drop or forbid while a feature gate is off, and what the types say of gates in their
// markers, is what the file says of these minors. FUSIONCTL_DIFF_MINORS=15,16 reads other releases of releases.tsv,
// and -update writes into the file what was read.
func TestDisabledFieldsAreThoseOfTheSources(t *testing.T) {
	minors := parse(t, cmp.Or(os.Getenv("FUSIONCTL_DIFF_MINORS"), "15,24,36"))
	text, err := os.ReadFile(disabledFile)
	if err != nil {
		t.Fatal(err)
	}
	head, recorded := "", map[string]map[kubever.Minor]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			head += line
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		cut := strings.LastIndexByte(line, '\t')
		recorded[line[:cut]] = map[kubever.Minor]bool{}
		for _, minor := range parse(t, line[cut+1:]) {
			recorded[line[:cut]][minor] = true
		}
	}
	for _, minor := range minors {
		found := disabledIn(t, minor)
		for line := range found {
			if recorded[line] == nil {
				recorded[line] = map[kubever.Minor]bool{}
			}
			if !recorded[line][minor] && !golden.Updating() {
				t.Errorf("%s has %q, which %s does not know", minor, line, disabledFile)
			}
			recorded[line][minor] = true
		}
		for _, line := range slices.Sorted(maps.Keys(recorded)) {
			if recorded[line][minor] && !found[line] && !golden.Updating() {
				t.Errorf("%s lacks %q of %s", minor, line, disabledFile)
			}
			if !found[line] {
				delete(recorded[line], minor)
			}
		}
		if len(found) < 10 && minor >= 8 { // 1.6 and 1.7 have next to none
			t.Errorf("the sources of %s have %d conditions on feature gates that are off, want more", minor, len(found))
		}
	}
	if !golden.Updating() {
		return
	}
	now := bytes.NewBufferString(head)
	for _, line := range slices.Sorted(maps.Keys(recorded)) {
		if len(recorded[line]) > 0 {
			fmt.Fprintf(now, "%s\t%s\n", line, printed(kubever.Spans(slices.Sorted(maps.Keys(recorded[line])))))
		}
	}
	if err := os.WriteFile(disabledFile, now.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// printed writes ranges as the tables have them: 12-15,18.
func printed(ranges kubever.Ranges) string {
	var parts []string
	for _, r := range ranges {
		part := strconv.Itoa(int(r.From))
		if r.To > r.From {
			part += "-" + strconv.Itoa(int(r.To))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func parse(t *testing.T, text string) (minors []kubever.Minor) {
	t.Helper()
	for part := range strings.SplitSeq(text, ",") {
		first, last, _ := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to, toErr := strconv.Atoi(cmp.Or(last, first))
		if err != nil || toErr != nil {
			t.Fatalf("%q is no minors", text)
		}
		for minor := from; minor <= to; minor++ {
			minors = append(minors, kubever.Minor(minor))
		}
	}
	return minors
}

// disabledIn reads the sources of the release that the tables were read from.
func disabledIn(t *testing.T, minor kubever.Minor) map[string]bool {
	t.Helper()
	release := strings.TrimPrefix(kubever.Release(minor), "1.")
	found := map[string]bool{}
	server := module(t, "k8s.io/kubernetes@v1."+release)
	folders := []string{
		filepath.Join(server, "pkg/api"), filepath.Join(server, "pkg/apis"), filepath.Join(server, "pkg/registry"),
	}
	if extensions := filepath.Join(server, "staging/src/k8s.io/apiextensions-apiserver/pkg"); exists(extensions) {
		folders = append(folders, extensions)
	} else if minor >= 15 && minor != 18 { // modules begin there, and the proxy has none of 1.18
		folders = append(folders, filepath.Join(module(t, "k8s.io/apiextensions-apiserver@v0."+release), "pkg"))
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			return readGuards(file, minor, found)
		})
		if err != nil {
			t.Fatalf("reading the sources of %s: %v", minor, err)
		}
	}
	if minor >= 26 { // markers begin there
		types, err := filepath.Glob(filepath.Join(module(t, "k8s.io/api@v0."+release), "*", "*", "types.go"))
		if err != nil || len(types) < 20 {
			t.Fatalf("%d types of %s, %v", len(types), minor, err)
		}
		for _, file := range types {
			if err := readMarkers(file, minor, found); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// module downloads a module and returns its folder.
func module(t *testing.T, name string) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", name)
	download.Dir = t.TempDir() // outside of every module
	text, err := download.Output()
	var answer struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(text, &answer); decodeErr != nil || answer.Dir == "" {
		t.Fatalf("downloading %s: %s %v", name, answer.Error, cmp.Or(err, decodeErr))
	}
	return answer.Dir
}

var (
	asked  = regexp.MustCompile(`Enabled\(\s*\w*[fF]eatures\.(\w+)\)`)
	marker = regexp.MustCompile(`^\s*//\s*\+featureGate=(.+)`)
	tagged = regexp.MustCompile(`json:"(\w+)`)
)

// isOff reports whether a feature gate is known in a minor and off by default.
func isOff(gate string, minor kubever.Minor) bool {
	state, known := kubever.Gate(gate).At(minor)
	return known && !state.Default
}

// readGuards finds the fields that functions empty or forbid below a condition on a feature gate that is off.
func readGuards(file string, minor kubever.Minor, found map[string]bool) error {
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(text, []byte("Enabled(")) {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := filepath.ToSlash(file)
	at = at[strings.LastIndex(at, "/pkg/")+1:]
	for _, declared := range parsed.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
			g := guards{text: text, base: files.File(function.Pos()).Base(), variables: map[string][]string{}}
			g.tell = func(gates []string, what, name string) {
				for _, gate := range gates {
					if isOff(gate, minor) {
						found[strings.Join([]string{gate, what, at + ":" + function.Name.Name, name}, "\t")] = true
					}
				}
			}
			g.block(function.Body.List, nil)
		}
	}
	return nil
}

// guards walks a function with the feature gates that its conditions ask for.
type guards struct {
	text      []byte
	base      int
	variables map[string][]string // that hold whether gates are on
	tell      func(gates []string, what, name string)
}

func (g *guards) block(statements []ast.Stmt, gates []string) {
	for _, statement := range statements {
		gates = g.statement(statement, gates)
	}
}

// statement returns the gates that the statements behind it depend on.
func (g *guards) statement(statement ast.Stmt, gates []string) []string {
	switch s := statement.(type) {
	case *ast.IfStmt:
		if s.Init != nil {
			gates = g.statement(s.Init, gates)
		}
		within := append(slices.Clone(gates), g.gatesOf(s.Cond)...)
		g.block(s.Body.List, within)
		if s.Else != nil {
			g.statement(s.Else, within)
		}
		if last := len(s.Body.List) - 1; last >= 0 {
			if _, returns := s.Body.List[last].(*ast.ReturnStmt); returns {
				return within
			}
		}
	case *ast.BlockStmt:
		g.block(s.List, gates)
	case *ast.ForStmt:
		g.block(s.Body.List, gates)
	case *ast.RangeStmt:
		g.block(s.Body.List, gates)
	case *ast.SwitchStmt:
		g.block(s.Body.List, gates)
	case *ast.CaseClause:
		for _, of := range s.List {
			gates = append(slices.Clone(gates), g.gatesOf(of)...)
		}
		g.block(s.Body, gates)
	case *ast.AssignStmt:
		g.assign(s, gates)
		g.forbid(s, gates)
	case *ast.ExprStmt, *ast.ReturnStmt:
		g.forbid(s, gates)
		ast.Inspect(s, func(n ast.Node) bool {
			if literal, ok := n.(*ast.FuncLit); ok {
				g.block(literal.Body.List, gates)
				return false
			}
			return true
		})
	}
	return gates
}

func (g *guards) gatesOf(expression ast.Expr) (gates []string) {
	for _, match := range asked.FindAllSubmatch(g.text[int(expression.Pos())-g.base:int(expression.End())-g.base], -1) {
		gates = append(gates, string(match[1]))
	}
	ast.Inspect(expression, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			gates = append(gates, g.variables[name.Name]...)
		}
		return true
	})
	return gates
}

func (g *guards) assign(s *ast.AssignStmt, gates []string) {
	for i, left := range s.Lhs {
		if i >= len(s.Rhs) {
			return
		}
		switch left := left.(type) {
		case *ast.Ident:
			g.variables[left.Name] = g.gatesOf(s.Rhs[i])
		case *ast.SelectorExpr:
			if zero := string(g.text[int(s.Rhs[i].Pos())-g.base : int(s.Rhs[i].End())-g.base]); slices.Contains(
				[]string{"nil", "false", `""`, "0"}, zero) {
				g.tell(gates, "dropped", left.Sel.Name)
			}
		}
	}
}

// forbid finds field.Forbidden(path.Child("name"), ...).
func (g *guards) forbid(within ast.Node, gates []string) {
	ast.Inspect(within, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 || len(gates) == 0 {
			return true
		}
		if called, ok := call.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != "Forbidden" {
			return true
		}
		name := "."
		if child, ok := call.Args[0].(*ast.CallExpr); ok {
			for _, argument := range child.Args {
				if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					name, _ = strconv.Unquote(literal.Value)
				}
			}
		}
		g.tell(gates, "refused", name)
		return true
	})
}

// readMarkers finds the fields of types that name a feature gate that is off.
func readMarkers(file string, minor kubever.Minor, found map[string]bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	version := filepath.Base(filepath.Dir(file))
	group := filepath.Base(filepath.Dir(filepath.Dir(file)))
	if group = group + "."; group == "core." {
		group = ""
	}
	typeName := ""
	var gates []string
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "type "):
			typeName, gates = strings.Fields(line)[1], nil
		case marker.MatchString(line):
			for gate := range strings.SplitSeq(marker.FindStringSubmatch(line)[1], ",") {
				gates = append(gates, strings.TrimSpace(gate))
			}
		case strings.HasPrefix(strings.TrimSpace(line), "//"):
		case tagged.MatchString(line):
			for _, gate := range gates {
				if isOff(gate, minor) {
					found[strings.Join([]string{gate, "marked", group + version + "." + typeName,
						tagged.FindStringSubmatch(line)[1]}, "\t")] = true
				}
			}
			gates = nil
		case strings.TrimSpace(line) == "": // a line without a tag, such as an embedded struct
			gates = nil
		}
	}
	return nil
}

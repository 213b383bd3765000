package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writing are the functions of package os by which files and names come to be, or change.
var writing = []string{"Create", "CreateTemp", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile", "Remove", "Rename",
	"Symlink", "Truncate", "WriteFile"}

// undurable are the functions outside of internal/filetree that write and do not bring it to the disk, and why nobody
// relies on what they write after a power failure.
var undurable = map[string]string{
	"internal/browser.profile": "the profile of a browser",
	"internal/cli.open":        "a log, which grows; it is no record of what was done",
	"internal/cli.runDemo":     "the stores of a demonstration, which are removed at its end",
	"internal/cli.runEtcdBackup": "the message of a pod to its kubelet, which reads it at once; the backup is on the " +
		"disk before",
	"pkg/etcd/backup.prune":           "a backup that is taken away: after a power failure it is there, or is none",
	"pkg/operator.files":              "certificates for the time of a look at stores",
	"pkg/operator.place":              "the same",
	"pkg/journal.Read":                "it is read alone",
	"pkg/journal.OpenPlan":            "it is read alone",
	"pkg/transition/local.putProgram": "a copy that is fetched again",
	"pkg/transition/local.keep":       "copies beyond the most that are kept; one that is there again does no harm",
}

// Everything else that is written goes through internal/filetree, which brings it to the disk, or is followed by
// filetree.Sync in the same function: nothing is relied upon that a power failure takes away.
func TestWhatIsWrittenIsBroughtToTheDisk(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(name), ".."+string(filepath.Separator)))
			if forTests(dir) || dir == "internal/filetree" { // which has a test of its own
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declared := range file.Decls {
				writes, syncs := calls(declared)
				if len(writes) == 0 || syncs {
					continue
				}
				what := "a declaration"
				if f, ok := declared.(*ast.FuncDecl); ok {
					what = f.Name.Name
				}
				if what = dir + "." + what; undurable[what] == "" {
					t.Errorf("%s: %s calls os.%s and not filetree.Sync: use internal/filetree, or say why it need not "+
						"outlive a power failure", name, what, strings.Join(writes, ", os."))
				}
				used[what] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(undurable)) {
		if !used[what] {
			t.Errorf("%s writes nothing, or brings it to the disk", what)
		}
	}
}

// forTests reports whether a package is for tests and for building the documentation.
func forTests(dir string) bool {
	return slices.Contains([]string{"internal/golden", "internal/etcdtest", "internal/storetest", "internal/site",
		"internal/site/build"}, dir)
}

// calls are the functions of package os that write and are called in a declaration, and whether filetree.Sync is.
func calls(in ast.Node) (writes []string, syncs bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		selected, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := selected.X.(*ast.Ident)
		switch {
		case of == nil:
		case of.Name == "os" && slices.Contains(writing, selected.Sel.Name):
			writes = append(writes, selected.Sel.Name)
		case of.Name == "filetree" && selected.Sel.Name == "Sync":
			syncs = true
		}
		return true
	})
	return writes, syncs
}

//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// evidenceFile is where the run writes what it proved, when all of it passed: make evidence writes docs/evidence.md.
var evidenceFile = flag.String("evidence", "", "write what the run proved to this file")

// proof is one line of the evidence.
type proof struct {
	Layout         spec.Layout
	Legacy, Modern string
	Part           part
	Claim          string
	Test           string
}

// part is the section of the evidence that a proof belongs to.
type part string

const (
	safe    part = "What plans keep safe"
	onNode  part = "On real nodes"
	damaged part = "What naive configurations destroy"
)

var evidence struct {
	sync.Mutex
	proofs []proof
}

// proved notes what a test has shown of a pair. Nothing is noted of a test that has failed.
func proved(t *testing.T, layout spec.Layout, legacy, modern string, claims ...string) {
	note(t, safe, layout, legacy, modern, claims)
}

// provedOnNodes notes what a test has shown with kubelets, containers and service proxies.
func provedOnNodes(t *testing.T, legacy, modern string, claims ...string) {
	note(t, onNode, spec.LayoutSplit, legacy, modern, claims)
}

// seenDamage notes what a naive configuration of a pair was seen to destroy.
func seenDamage(t *testing.T, layout spec.Layout, legacy, modern string, claims ...string) {
	note(t, damaged, layout, legacy, modern, claims)
}

func note(t *testing.T, of part, layout spec.Layout, legacy, modern string, claims []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	evidence.Lock()
	defer evidence.Unlock()
	for _, claim := range claims {
		evidence.proofs = append(evidence.proofs, proof{layout, legacy, modern, of, claim, test})
	}
}

func TestMain(m *testing.M) {
	runAsCommand()
	code, err := 0, enterSandbox()
	if err == nil {
		code = m.Run()
	}
	if sandbox, inside := rig.Sandboxed(); err == nil && code == 0 && inside {
		err = writeProofs(filepath.Join(sandbox, proofsFile))
	} else if err == nil && code == 0 && *evidenceFile != "" {
		err = writeEvidence(*evidenceFile)
	}
	removePrograms()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// programDirs are the folders of the programs that all tests share; they are removed when the last test has ended.
var programDirs struct {
	sync.Mutex
	dirs []string
}

func programDir(prefix string) (string, error) {
	programDirs.Lock()
	defer programDirs.Unlock()
	dir, err := os.MkdirTemp("", prefix)
	programDirs.dirs = append(programDirs.dirs, dir)
	return dir, err
}

func removePrograms() {
	programDirs.Lock()
	defer programDirs.Unlock()
	for _, dir := range programDirs.dirs {
		_ = os.RemoveAll(dir)
	}
}

// proofsFile is where a test in a sandbox leaves what it has shown.
const proofsFile = "proofs.json"

func writeProofs(file string) error {
	data, err := json.Marshal(evidence.proofs)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// readProofs adds what a test in a sandbox has shown.
func readProofs(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("the proofs of a test in a sandbox: %v", err)
		return
	}
	var proofs []proof
	must(t, json.Unmarshal(data, &proofs))
	evidence.Lock()
	defer evidence.Unlock()
	evidence.proofs = append(evidence.proofs, proofs...)
}

// writeEvidence writes the page. A run of some tests replaces what they proved before, and keeps the rest.
func writeEvidence(file string) error {
	proofs := slices.Clone(evidence.proofs)
	if flag.Lookup("test.run").Value.String() != "" {
		before, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, p := range proofsOf(string(before)) {
			if !slices.ContainsFunc(evidence.proofs, func(q proof) bool { return q.Test == p.Test }) {
				proofs = append(proofs, p)
			}
		}
	}
	return os.WriteFile(file, evidencePage(proofs), 0o644)
}

// proofsOf reads a page again.
func proofsOf(page string) (proofs []proof) {
	var of part
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			of = part(title)
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 5 || cells[0] == "layout" {
			continue
		}
		last := len(cells) - 1
		proofs = append(proofs, proof{spec.Layout(cells[0]), cells[1], cells[2], of,
			strings.Join(cells[3:last], " | "), cells[last]})
	}
	return proofs
}

// TestEvidenceIsGenerated: the page of the repository is what its proofs print.
func TestEvidenceIsGenerated(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/evidence.md")
	must(t, err)
	proofs := proofsOf(string(page))
	if len(proofs) < 100 {
		t.Errorf("%d proofs were read, want more", len(proofs))
	}
	if got := evidencePage(proofs); string(got) != string(page) {
		t.Errorf("docs/evidence.md is not what make evidence writes:\n%s", diff.Diff(string(page), string(got)))
	}
}

// evidencePage is the page for people; the same proofs give the same page.
func evidencePage(proofs []proof) []byte {
	proofs = slices.Clone(proofs)
	slices.SortFunc(proofs, func(a, b proof) int {
		return cmp.Or(cmp.Compare(a.Layout, b.Layout), cmp.Compare(kubeOrder(a.Legacy), kubeOrder(b.Legacy)),
			cmp.Compare(kubeOrder(a.Modern), kubeOrder(b.Modern)),
			cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Test, b.Test))
	})
	var b strings.Builder
	fmt.Fprintf(&b, `# Evidence

What real API servers and controller managers of both versions did, started with the arguments that
the plans give them. Generated by %smake evidence%s from a run of the end-to-end tests in which everything passed; the
facts behind the plans are of %s.

`, "`", "`", kubever.FactsOf)
	section := func(of part) {
		fmt.Fprintf(&b, "## %s\n\n| layout | legacy | modern | what | test |\n|---|---|---|---|---|\n", of)
		last := proof{}
		for _, p := range proofs {
			if p.Part != of || p == last {
				continue
			}
			last = p
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.Layout, p.Legacy, p.Modern, p.Claim, p.Test)
		}
		fmt.Fprintln(&b)
	}
	for _, of := range []part{safe, onNode, damaged} {
		section(of)
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

// kubeOrder sorts versions by number.
func kubeOrder(version string) int {
	v, err := kubever.Parse(version)
	if err != nil {
		return 0
	}
	return int(v.Minor)*1000 + v.Patch
}

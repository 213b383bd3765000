//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/rules"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

var (
	// everyPair runs the pairs of all releases that are built, and not only those for which every change has time.
	everyPair = flag.Bool("every-pair", false, "run every pair of the built releases that can be planned")
	// provenFile is read for the pairs that need not be run, and gets each that was, at once.
	provenFile = flag.String("proven", "", "leave out the pairs in this file, and add those that pass")
)

// fixedPairs are run with every change.
var fixedPairs = []struct {
	layout         spec.Layout
	legacy, modern kubever.Minor
}{
	{spec.LayoutSplit, 6, 10}, {spec.LayoutSplit, 6, 36}, {spec.LayoutSplit, 10, 36}, {spec.LayoutSplit, 15, 36},
	{spec.LayoutShared, 6, 10}, {spec.LayoutShared, 6, 36},
}

// possiblePairs are the pairs of the built releases that can be planned: those that are run with every change, and the
// others.
func possiblePairs(t *testing.T) (fixed, others []rig.PairSpec) {
	t.Helper()
	all := releases(t)
	for _, layout := range []spec.Layout{spec.LayoutSplit, spec.LayoutShared} {
		pairs, err := rules.Matrix(layout)
		must(t, err)
		for _, pair := range pairs {
			legacy := slices.IndexFunc(all, func(r rig.Release) bool { return r.Minor == pair.Legacy })
			modern := slices.IndexFunc(all, func(r rig.Release) bool { return r.Minor == pair.Modern })
			if !pair.Possible || legacy < 0 || modern < 0 || legacy == modern {
				continue
			}
			s := rig.PairSpec{Layout: layout, Legacy: all[legacy].Version.String(),
				Modern: all[modern].Version.String(), More: access}
			if layout == spec.LayoutShared {
				s.More, s.NoModernManager = sharedAccess, true
			}
			if slices.Contains(fixedPairs, struct {
				layout         spec.Layout
				legacy, modern kubever.Minor
			}{layout, pair.Legacy, pair.Modern}) {
				fixed = append(fixed, s)
			} else {
				others = append(others, s)
			}
		}
	}
	if len(fixed) != len(fixedPairs) {
		t.Fatalf("%d of the %d pairs that are run with every change can be planned", len(fixed), len(fixedPairs))
	}
	return fixed, others
}

// pairsToProve are the fixed pairs and one more, another with each commit, or every pair.
func pairsToProve(t *testing.T) []rig.PairSpec {
	t.Helper()
	fixed, others := possiblePairs(t)
	if *everyPair {
		return append(fixed, others...)
	}
	if len(others) > 0 {
		fixed = append(fixed, ofThisCommit(t, others, ""))
	}
	return fixed
}

// ofThisCommit chooses one of the pairs, another with each commit and for each purpose.
func ofThisCommit(t *testing.T, pairs []rig.PairSpec, purpose string) rig.PairSpec {
	t.Helper()
	commit, _ := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output() // none: always the same
	sum := fnv.New32a()
	sum.Write(append(commit, purpose...))
	return pairs[int(sum.Sum32()%uint32(len(pairs)))]
}

// runOf is the run that a test of the pair would be: what it runs, today.
func runOf(t *testing.T, s rig.PairSpec) rules.Run {
	t.Helper()
	run := rules.Run{Layout: s.Layout, Day: time.Now().UTC().Format(time.DateOnly)}
	sum := sha256.New()
	for version, into := range map[string]*kubever.Version{s.Legacy: &run.Legacy, s.Modern: &run.Modern} {
		v, err := kubever.Parse(version)
		must(t, err)
		*into = v
	}
	for _, v := range []kubever.Version{run.Legacy, run.Modern} {
		for _, program := range []string{kubever.APIServer, kubever.ControllerManager} {
			name, err := rig.Binary(program, v.Minor)
			must(t, err)
			file, err := os.Open(name)
			must(t, err)
			_, err = io.Copy(sum, file)
			file.Close()
			must(t, err)
		}
	}
	run.Programs = hex.EncodeToString(sum.Sum(nil))[:12]
	return run
}

var provenLock sync.Mutex

// runsKept reads the file of runs; none is an empty one.
func runsKept(t *testing.T) []rules.Run {
	t.Helper()
	data, err := os.ReadFile(*provenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	runs, err := rules.ParseRuns(string(data))
	must(t, err)
	return runs
}

// known reports whether the same programs were run before. Without a file nothing is.
func known(t *testing.T, run rules.Run) bool {
	t.Helper()
	if *provenFile == "" {
		return false
	}
	provenLock.Lock()
	defer provenLock.Unlock()
	return slices.ContainsFunc(runsKept(t), func(before rules.Run) bool {
		before.Day = run.Day
		return before == run
	})
}

// keep adds a run to the file.
func keep(t *testing.T, run rules.Run) {
	t.Helper()
	if *provenFile == "" {
		return
	}
	provenLock.Lock()
	defer provenLock.Unlock()
	must(t, os.WriteFile(*provenFile, []byte(rules.FormatRuns(append(runsKept(t), run))), 0o644))
}

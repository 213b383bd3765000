// Command propose adds a minor version of Kubernetes to the tables of pkg/kubever.
//
//	go run ./test/rig/propose -release v1.37.2 [-write] [-tables DIR] [-update | -remove]
//
// It downloads k8s.io/kubernetes of that release from the Go module proxy, builds three small programs with the
// release's own packages, which print the flags, feature gates, admission plugins, controllers, kinds and stored
// versions of kube-apiserver, kube-controller-manager and kube-scheduler, and reads the description of the API that the
// module brings along. From that come rows; what no program prints is carried over from the minor before, and the
// report lists which sources of it changed since then. Without -write nothing is written, and the proposal is printed
// as a difference. A minor that the tables have already is refused, unless -update proposes what another release of it
// changes, or -remove proposes all of it anew.
//
// It ends with 0 when the tables say the same already or were written, with 1 when it could not find out, with 2 when
// the arguments are wrong, and with 3 when there is a proposal that was not written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
)

type request struct {
	release, tables       string
	write, update, remove bool
}

func main() {
	var req request
	flag.StringVar(&req.release, "release", "", "the release that is read for its minor, such as v1.37.2")
	flag.StringVar(&req.tables, "tables", filepath.Join("pkg", "kubever", "tables"), "the tables")
	flag.BoolVar(&req.write, "write", false, "write the tables, and raise kubever.Newest")
	flag.BoolVar(&req.update, "update", false, "propose for a minor that the tables have; what people decided stays")
	flag.BoolVar(&req.remove, "remove", false, "take the minor out of the tables first, and propose it anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, req, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, req request, out, errs io.Writer) int {
	minor, ok := minorOf(req.release)
	if !ok || flag.NArg() > 0 {
		fmt.Fprintf(errs, "-release %q: want a release of Kubernetes, such as v1.37.2\n", req.release)
		return 2
	}
	changed, err := work(ctx, req, minor, out, errs)
	switch {
	case errors.Is(err, errKnown):
		fmt.Fprintln(errs, err)
		return 2
	case err != nil:
		fmt.Fprintln(errs, err)
		return 1
	case changed && !req.write:
		return 3
	}
	return 0
}

// errKnown is a minor that the tables have.
var errKnown = errors.New("the tables have this minor")

func work(ctx context.Context, req request, minor int, out, errs io.Writer) (changed bool, err error) {
	all, err := readTables(req.tables)
	if err != nil {
		return false, err
	}
	if of, known := all.releaseOf(minor); known && !req.update && !req.remove {
		return false, fmt.Errorf("%s: %w, from %s; UPDATE=1 (-update) proposes what this release changes, -remove "+
			"proposes the minor anew, without what people decided", req.release, errKnown, of)
	}
	before, ok := all.releaseOf(minor - 1)
	if !ok {
		return false, fmt.Errorf("%s: add 1.%d first: what no program prints is carried over from it", req.release,
			minor-1)
	}
	was := map[string]string{}
	for name, t := range all {
		was[name] = t.String()
	}
	fmt.Fprintf(errs, "downloading k8s.io/kubernetes@%s\n", req.release)
	r, err := fetch(ctx, req.release)
	if err != nil {
		return false, err
	}
	if req.remove {
		all.remove(r.minor)
	}
	fmt.Fprintf(errs, "building programs with its packages: a minute when Go's build cache has them, as after "+
		"building test/rig/kube-1.%d at this very release, and some 15 minutes of computing when not\n", r.minor)
	start := time.Now()
	f, err := r.read(ctx, errs)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(errs, "built and asked in %s\n", time.Since(start).Round(time.Second))
	decide := all.propose(r, f)
	fmt.Fprintf(errs, "comparing sources with those of %s\n", before)
	old, err := fetch(ctx, before)
	if err != nil {
		return false, err
	}
	drift, err := all.drift(ctx, old, r)
	if err != nil {
		return false, err
	}
	files := []string{}
	for name, t := range all {
		if t.String() != was[name] {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	for _, name := range files {
		path := filepath.Join(req.tables, name+".tsv")
		if !req.write {
			_, _ = out.Write(diff.Diff(path, []byte(was[name]), path, []byte(all[name].String())))
		} else if err := os.WriteFile(path, []byte(all[name].String()), 0o644); err != nil {
			return true, err
		}
	}
	if req.write {
		if err := raiseNewest(filepath.Join(req.tables, "..", "version.go"), r.minor); err != nil {
			return true, err
		}
	}
	report(out, req, files, decide, drift)
	return len(files) > 0, nil
}

func report(out io.Writer, req request, files, decide, drift []string) {
	if len(files) == 0 {
		fmt.Fprintf(out, "The tables say of %s what its programs say.\n", req.release)
	} else {
		fmt.Fprintf(out, "Changed: %s.\n", strings.Join(files, ", "))
	}
	fmt.Fprintln(out, "\nTo be decided by a person:")
	for _, line := range append(decide, "releases.tsv: which facts came after the first release of the minor (columns "+
		"\"missing in the .0 release of\" and behaviours.tsv): compare with a proposal for its .0") {
		fmt.Fprintln(out, "- "+line)
	}
	fmt.Fprintln(out, "\nCarried over; read what changed in the sources since:")
	for _, line := range drift {
		fmt.Fprintln(out, "- "+line)
	}
	if req.write {
		fmt.Fprintln(out, "\nThen: go test ./pkg/kubever ./pkg/plan ./pkg/rules; a folder test/rig/kube-1.N and make "+
			"facts-verify hold the rows against running programs; make golden.")
	}
}

// releaseOf is the release whose source was read for a minor.
func (all tables) releaseOf(minor int) (string, bool) {
	row, ok := all["releases"].find(strconv.Itoa(minor))
	if !ok {
		return "", false
	}
	return "v" + row[1], true
}

var (
	newest  = regexp.MustCompile(`(?m)^(\s+Newest Minor = )(\d+)$`)
	factsOf = regexp.MustCompile(`(?m)^(const FactsOf = )".*"$`)
)

// raiseNewest writes the newest minor, and the day, into pkg/kubever.
func raiseNewest(file string, minor int) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	match := newest.FindSubmatch(data)
	if match == nil || !factsOf.Match(data) {
		return fmt.Errorf("%s: no constants Newest and FactsOf", file)
	}
	if known, _ := strconv.Atoi(string(match[2])); known < minor {
		data = newest.ReplaceAll(data, []byte("${1}"+strconv.Itoa(minor)))
	}
	data = factsOf.ReplaceAll(data, []byte(`${1}"`+time.Now().UTC().Format(time.DateOnly)+`"`))
	return os.WriteFile(file, data, 0o644)
}

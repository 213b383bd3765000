package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// specLimitBytes bounds the spec files that are read: thousands of times what one needs.
const specLimitBytes = 4 << 20

// loadPlan reads a spec and plans it. What is wrong with the file or cannot be planned is bad input.
func loadPlan(streams Streams, file string) (*plan.Plan, error) {
	return loadPlanFor(streams, file, plan.OnHosts)
}

// loadPlanFor is loadPlan for a target.
func loadPlanFor(streams Streams, file string, target plan.Target) (*plan.Plan, error) {
	p, _, err := loadPlanAndText(streams, file, target)
	return p, err
}

// loadPlanAndText is loadPlanFor that returns the text of the spec, too, for the lines of what follows from it.
func loadPlanAndText(streams Streams, file string, target plan.Target) (*plan.Plan, []byte, error) {
	data, err := readInput(streams, file, specLimitBytes)
	if err != nil {
		return nil, nil, err
	}
	f, err := spec.Load(file, data)
	if err != nil {
		return nil, nil, badInput(err, "fusionctl init split prints a commented spec to compare with")
	}
	p, err := plan.New(f, target)
	if err != nil {
		return nil, nil, badInput(err, "")
	}
	return p, data, nil
}

// readInput reads a whole file, or standard input for "-". A file that cannot be read is bad input.
func readInput(streams Streams, file string, limitBytes int64) ([]byte, error) {
	in, err := openInput(streams, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	tooLarge := usagef("%s: larger than %d bytes", file, limitBytes)
	if f, ok := in.(*os.File); ok { // not read to be refused
		if info, err := f.Stat(); err == nil && info.Size() > limitBytes {
			return nil, tooLarge
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, limitBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if int64(len(data)) > limitBytes {
		return nil, tooLarge
	}
	return data, nil
}

// openInput opens a file, or standard input for "-". What is no file, or cannot be opened, is bad input; a named pipe
// would block until a writer opens it.
func openInput(streams Streams, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(streams.In), nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, badInput(err, "")
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, usagef("%s: is a directory, want a file", file)
	case !mode.IsRegular():
		return nil, badInput(fmt.Errorf("%s: is a pipe or a device, want a file", file),
			"- reads standard input, which may be a pipe")
	}
	f, err := filetree.Open(file) // it may have been exchanged
	if err != nil {
		return nil, badInput(err, "")
	}
	return f, nil
}

// inputFiles lists files as they were given, and those of directories that hold manifests, by name.
func inputFiles(names []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, name := range names {
			info, err := os.Stat(name)
			if name == "-" || err != nil || !info.IsDir() {
				if !yield(name, nil) { // opening it says what is wrong
					return
				}
				continue
			}
			found := false
			err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				hidden := strings.HasPrefix(entry.Name(), ".") && path != name
				switch {
				case err != nil:
					return err
				case hidden && entry.IsDir():
					return fs.SkipDir
				case hidden || entry.IsDir() ||
					!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
					return nil
				}
				found = true
				if !yield(path, nil) {
					return fs.SkipAll
				}
				return nil
			})
			if err == nil && !found {
				err = fmt.Errorf("%s: no .yaml, .yml or .json file in it", name)
			}
			if err != nil {
				yield(name, badInput(err, ""))
				return
			}
		}
	}
}

// checkStdinOnce refuses files of which several are standard input.
func checkStdinOnce(files []string) error {
	n := 0
	for _, file := range files {
		if file == "-" {
			n++
		}
	}
	if n > 1 {
		return usagef("standard input can be read once, and - is given %d times", n)
	}
	return nil
}

// parseVersionFlag reads the version that a flag names.
func parseVersionFlag(flag, value string) (kubever.Version, error) {
	version, err := kubever.Parse(value)
	if err != nil {
		return version, badInput(fmt.Errorf("--%s: %w", flag, err), "fusionctl versions lists the known ones")
	}
	return version, nil
}

// policyLimitBytes bounds the policy files that are read: more than a million rules.
const policyLimitBytes = 256 << 20

// readPolicy reads a policy as the server does. A file that the server would refuse is bad input.
func readPolicy(streams Streams, file string) ([]policy.Rule, error) {
	return readPolicyBy(streams, file, policy.Parse)
}

// readPolicyBy is readPolicy with the function that parses.
func readPolicyBy(streams Streams, file string, parse func(string, io.Reader) ([]policy.Rule, error)) ([]policy.Rule,
	error) {
	in, err := openInput(streams, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	rules, err := parse(file, &limitedReader{r: in, left: policyLimitBytes, limit: policyLimitBytes})
	if err != nil {
		return nil, badInput(err, "fusionctl policy validate "+file+" shows how to write it")
	}
	return rules, nil
}

// limitedReader fails at a limit, where io.LimitReader would pretend that the file ends.
type limitedReader struct {
	r           io.Reader
	left, limit int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("larger than %d bytes", l.limit)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// crdsLimitBytes bounds the files with CustomResourceDefinitions that are read: a cluster's, many times over.
const crdsLimitBytes = 64 << 20

// catalogWith is what is known of APIs, with the CustomResourceDefinitions of files.
func catalogWith(streams Streams, files []string) (*policy.Catalog, error) {
	catalog := policy.NewCatalog()
	for _, file := range files {
		data, err := readInput(streams, file, crdsLimitBytes)
		if err != nil {
			return nil, err
		}
		if err := catalog.AddCRDs(file, data); err != nil {
			return nil, badInput(err, "")
		}
	}
	return catalog, nil
}

// readAuditLog hands each event of a log to add. What add says is an error of ours, and not of the log.
func readAuditLog(ctx context.Context, streams Streams, file string, add func(policy.AuditEvent) error) error {
	in, err := openInput(streams, file)
	if err != nil {
		return err
	}
	defer in.Close()
	var failed error
	err = policy.ReadAudit(file, in, func(e policy.AuditEvent) error {
		if failed = ctx.Err(); failed == nil {
			failed = add(e)
		}
		return failed
	})
	if failed != nil {
		return failed
	}
	return badInput(err, "")
}

// contextReader ends reading when the context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// confirm asks on a terminal; elsewhere it wants --yes.
func confirm(streams Streams, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := streams.In.(*os.File)
	if !ok || !isTerminal(in) {
		return usagef("not asked on a terminal: --yes is required")
	}
	visible.Fprintf(streams.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// interruptibly reads something that may be a pipe, until the context ends. The reader is left behind then.
func interruptibly[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// keyLimitBytes bounds the certificate and key files that are read.
const keyLimitBytes = 1 << 20

// planLimitBytes bounds the plans that are read: many times what one of the largest is.
const planLimitBytes = 32 << 20

// loadPair plans a spec.
func loadPair(streams Streams, file string) (*plan.Runtime, error) {
	p, err := loadPlan(streams, file)
	if err != nil {
		return nil, err
	}
	return p.Runtime(), nil
}

// plannedPair reads a plan from its file, or makes it from a spec where there is no file.
func plannedPair(streams Streams, specFile, planFile string) (*plan.Runtime, error) {
	if planFile == "" {
		return loadPair(streams, specFile)
	}
	data, err := readInput(streams, planFile, planLimitBytes)
	if err != nil {
		return nil, err
	}
	p, err := plan.ParseRuntime(data)
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", planFile, err),
			"run fusionctl render again, which writes it in the format of this fusionctl")
	}
	return p, nil
}

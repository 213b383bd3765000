// Fuzz runs every fuzz target of the module for a while, one after the other.
//
//	go run ./test/fuzz -time 10s -within 7m [PACKAGE...]
//
// It instruments the packages of this module alone: what they stand on is compiled as for tests, which takes minutes
// less. An input that fails is written to the testdata/fuzz of its package, as go test does, and inputs that reach
// something new to the go command's cache.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	each := flag.Duration("time", 10*time.Second, "for each target")
	within := flag.Duration("within", 0, "for all together, compilation included: the last ones are cut short; 0 is "+
		"no limit")
	workers := flag.Int("parallel", 2, "processes that fuzz one target")
	flag.Parse()
	if err := run(ctx, *each, *within, *workers, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// target is one fuzz test.
type target struct{ dir, name string }

func run(ctx context.Context, each, within time.Duration, workers int, only []string) error {
	targets, err := find(".", only)
	if err != nil {
		return err
	}
	built, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	cache := filepath.Join(strings.TrimSpace(string(out)), "fuzz", "github.com/kubefusion/fusionctl")
	start := time.Now()
	var failed []error
	for i, t := range targets {
		binary := filepath.Join(built, strings.ReplaceAll(t.dir, "/", "_")+".test")
		if _, err := os.Stat(binary); err != nil {
			if err := build(ctx, t.dir, binary); err != nil {
				return err
			}
		}
		long := each
		if within > 0 {
			long = max(time.Second, min(each, (within-time.Since(start))/time.Duration(len(targets)-i)))
		}
		if err := fuzz(ctx, t, binary, filepath.Join(cache, t.dir), long, workers); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
	}
	fmt.Printf("%d targets, %d failed, %s\n", len(targets), len(failed), time.Since(start).Round(time.Second))
	return errors.Join(failed...)
}

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// find lists the targets below a folder, by package; of the packages that are named, if any. Modules within are left
// out.
func find(root string, only []string) ([]target, error) {
	var targets []target
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") || len(only) > 0 && !slices.Contains(only, dir) {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range declaration.FindAllSubmatch(source, -1) {
			targets = append(targets, target{dir, string(found[1])})
		}
		return nil
	})
	if err == nil && len(targets) == 0 {
		err = fmt.Errorf("no fuzz targets in %s", strings.Join(append([]string{root}, only...), " "))
	}
	return targets, err
}

func build(ctx context.Context, dir, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-gcflags=github.com/kubefusion/fusionctl/...=-d=libfuzzer",
		"-o",
		binary, "./"+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", dir, err, out)
	}
	return nil
}

func fuzz(ctx context.Context, t target, binary, cache string, long time.Duration, workers int) error {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+long.String(),
		fmt.Sprintf("-test.parallel=%d", workers), "-test.fuzzminimizetime=5s", "-test.fuzzcachedir="+cache)
	cmd.Dir, cmd.Cancel = t.dir, func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil && strings.Contains(out.String(), "without coverage guidance") {
		err = errors.New("the binary is not instrumented")
	}
	// A worker that is busy when the time is over may be reported as its end; an input that hangs is reported
	// otherwise.
	if err != nil && strings.Contains(out.String(), "context deadline exceeded") &&
		!strings.Contains(out.String(), "Failing input") {
		err = nil
	}
	if err != nil {
		fmt.Printf("FAIL %s %s\n%s\n", t.dir, t.name, out.String())
		return fmt.Errorf("fuzzing %s of %s: %w", t.name, t.dir, err)
	}
	lines := slices.DeleteFunc(strings.Split(out.String(), "\n"),
		func(line string) bool { return !strings.Contains(line, "execs:") })
	if len(lines) == 0 {
		return fmt.Errorf("fuzzing %s of %s: nothing was executed\n%s", t.name, t.dir, out.String())
	}
	fmt.Printf("ok   %s %s %s\n", t.dir, t.name, strings.TrimPrefix(lines[len(lines)-1], "fuzz: "))
	return nil
}

//go:build unix

// Command build makes the real servers that the end-to-end tests run: for every folder kube-1.N of the rig the programs
// that its go.mod names as tools, such as k8s.io/kubernetes/cmd/kube-apiserver, built as bin/kube-apiserver-1.N, and
// for every folder etcd-3.N the server, built as bin/etcd-3.N.
//
// Their main packages are the releases' own, compiled out of the Go module cache. Where a release does not build as it
// was published (see build.yaml beside the go.mod), its module is copied into the folder .build first and changed
// there. Versions on request (build.yaml says which) are left out unless they are named, or all are. What is built
// already, from the same description, is left alone. Before, Debian's packages that tests with nodes need are
// installed.
//
//	go run ./test/rig/build [-rig DIR] [-sources] [1.N | etcd-3.N ... | all]
//
// With -sources it makes the changed copies alone, for a program that imports the types of a release.
//
// It ends with 0 when everything is built, with 1 when a version did not build (the others are built nevertheless),
// with 2 when the folders or the arguments cannot be read, and with 130 when it was interrupted.
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
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubefusion/fusionctl/internal/pause"
)

// jobs is the number of versions built at the same time. The largest package of a release takes one compiler 2 GiB.
const jobs = 2

func main() {
	rig := flag.String("rig", filepath.Join("test", "rig"), "the folder that holds kube-1.N and etcd-3.N")
	sources := flag.Bool("sources", false, "make the changed copies of modules, and build nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	work := run
	if *sources {
		work = copySources
	} else {
		installPackages(ctx, os.Stderr)
	}
	code := work(ctx, *rig, flag.Args(), os.Stderr)
	stop()
	os.Exit(code)
}

// run builds what is missing.
func run(ctx context.Context, rig string, only []string, out io.Writer) int {
	return alone(ctx, rig, only, out, func(versions []*version) error {
		missing, err := missingOf(versions)
		if err != nil || len(missing) == 0 {
			return err
		}
		announce(out, missing)
		return buildAll(ctx, missing, out)
	})
}

// copySources makes the copies that building starts with.
func copySources(ctx context.Context, rig string, only []string, out io.Writer) int {
	return alone(ctx, rig, only, out, func(versions []*version) error {
		for _, v := range versions {
			key, err := v.key()
			if err == nil {
				err = v.prepare(ctx, key)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", v.folder, err)
			}
		}
		return nil
	})
}

// alone works on versions while no other process does on the same rig, and returns the exit code.
func alone(ctx context.Context, rig string, only []string, out io.Writer, work func([]*version) error) int {
	versions, err := readVersions(ctx, rig, only)
	if err != nil {
		fmt.Fprintf(out, "rig: %v\n", err)
		return 2
	}
	unlock, err := lock(ctx, filepath.Join(rig, ".build"), out)
	if err != nil {
		return failed(ctx, out, err)
	}
	defer unlock()
	if err := work(versions); err != nil {
		return failed(ctx, out, err)
	}
	return 0
}

// failed prints why there are no binaries and says with which code to leave.
func failed(ctx context.Context, out io.Writer, err error) int {
	if ctx.Err() != nil {
		fmt.Fprintln(out, "rig: interrupted; what was finished is kept")
		return 130
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(out, "rig: "+line)
	}
	return 1
}

// lock lets one build run at a time per rig folder: a second one waits, and then finds everything built. The system
// drops the lock with the process, however that ends.
func lock(ctx context.Context, dir string, out io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	waiting := false
	err = pause.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return true, err
		}
		if !waiting {
			fmt.Fprintln(out, "rig: waiting for another build of the same rig")
		}
		waiting = true
		return false, nil
	})
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	return func() { file.Close() }, nil
}

func missingOf(versions []*version) ([]*version, error) {
	var missing []*version
	for _, v := range versions {
		built, err := v.isBuilt()
		if err != nil {
			return nil, err
		}
		if !built {
			missing = append(missing, v)
		}
	}
	return missing, nil
}

// announce says beforehand what is going to be built and how long that takes.
func announce(out io.Writer, missing []*version) {
	cores := runtime.NumCPU()
	total := 0
	for _, v := range missing {
		total += v.CPUMinutes
		fmt.Fprintf(out, "rig: %s: will build %d programs of %s, about %s of computing\n", v.folder, len(v.programs),
			v.release, minutes(v.CPUMinutes))
	}
	fmt.Fprintf(out, "rig: in all about %s on %d cores; less when the Go build cache holds parts of it\n",
		minutes((total+cores-1)/cores), cores)
}

func minutes(n int) string {
	if n == 1 {
		return "1 minute"
	}
	return fmt.Sprintf("%d minutes", n)
}

// buildAll builds the versions, a few at a time, and reports every one that fails.
func buildAll(ctx context.Context, versions []*version, out io.Writer) error {
	var (
		group  sync.WaitGroup
		slots  = make(chan struct{}, jobs)
		failed = make([]error, len(versions))
		print  sync.Mutex
	)
	say := func(format string, args ...any) {
		print.Lock()
		defer print.Unlock()
		fmt.Fprintf(out, "rig: "+format+"\n", args...)
	}
	for i, v := range versions {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			group.Wait()
			return ctx.Err()
		}
		group.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			say("%s: building", v.folder)
			if failed[i] = v.build(ctx); failed[i] == nil {
				say("%s: built in %s (%s of computing)", v.folder, time.Since(start).Round(time.Second),
					v.computing.Round(time.Second))
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// Command release makes the files of a release: archives, Debian packages, a container image, manifests of package
// managers, lists of what the programs contain, and checksums. Equal source and an equal Go release give equal bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

// everyPlatform is what a release is for.
const everyPlatform = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

func main() {
	var r release
	platforms := flag.String("platforms", everyPlatform, "what to build for")
	flag.StringVar(&r.version, "version", "", "version of the release, such as v1.2.3")
	flag.StringVar(&r.source, "source", "../..", "checkout of fusionctl")
	flag.StringVar(&r.out, "out", "../../dist", "directory to write to, which must not exist")
	flag.BoolVar(&r.modified, "modified", false, "also take a checkout that is not as it was committed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

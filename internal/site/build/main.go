// Command build writes manual pages, completions and the site into directories.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/kubefusion/fusionctl/internal/site"
)

func main() {
	man := flag.String("man", "", "directory for manual pages")
	completions := flag.String("completions", "", "directory for completions")
	pages := flag.String("site", "", "directory for the site")
	checkout := flag.String("checkout", ".", "whose pages the site has")
	version := flag.String("version", "", "version that manual pages name")
	date := flag.Int64("date", 0, "seconds since 1970 that manual pages name")
	flag.Parse()
	for dir, write := range map[string]func(string) error{
		*man:         func(dir string) error { return site.Man(dir, *version, time.Unix(*date, 0).UTC()) },
		*completions: site.Completions,
		*pages:       func(dir string) error { return site.Site(*checkout, dir) },
	} {
		if dir == "" {
			continue
		}
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = write(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

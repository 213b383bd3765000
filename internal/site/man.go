// Package site turns the documentation into what people open: manual pages, completions of shells, a site of static
// pages.
package site

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/kubefusion/fusionctl/internal/cli"
)

// Man writes a manual page for each command into a directory, which exists.
func Man(dir, version string, date time.Time) error {
	root := cli.Tree()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "fusionctl " + version, Date: &date,
		Manual: "fusionctl"}, dir)
}

// Completions writes the completions of each shell into a directory, which exists, as fusionctl.SHELL.
func Completions(dir string) error {
	root := cli.Tree()
	for shell, generate := range map[string]func(*bytes.Buffer) error{
		"bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh":  func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var text bytes.Buffer
		if err := generate(&text); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "fusionctl."+shell), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Package examples holds specs that work as they stand. README.md says what each of them shows.
package examples

import "embed"

// FS holds the specs, by file name.
//
//go:embed *.yaml
var FS embed.FS

// Package templates holds the skeletons of the files that pkg/render writes and that are not YAML. They range over what
// they are given and print it; whatever has to be computed, quoted or chosen was so before it got here.
package templates

import "embed"

// Files are the skeletons by name: systemd.service.tmpl, RUNBOOK.md.tmpl.
//
//go:embed *.tmpl
var Files embed.FS

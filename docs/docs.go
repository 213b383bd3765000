// Package docs holds what the program shows of its own documentation.
package docs

import _ "embed"

// Evidence is the page of what real servers did: one table row for each claim, with layout, legacy version, modern
// version, claim and test.
//
//go:embed evidence.md
var Evidence string

// Package licenses holds the texts of the licenses of what the program contains, as they ship with it.
package licenses

import _ "embed" // of the texts

// Text names each module and the licenses of its packages that the program contains, then each license once, with whom
// it is of.
//
//go:embed THIRD_PARTY_LICENSES
var Text string

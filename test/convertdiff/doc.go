// Package convertdiff holds the losses that pkg/convert names against the Go types of old releases: what those types
// keep of an object is never called lost, what they drop always is. Run it with "make diff".
package convertdiff

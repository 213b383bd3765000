//go:build !unix

package filetree

// noWait is nothing where files have no pipes among them.
const noWait = 0

// NoFollow is nothing where opening has no such flag.
const NoFollow = 0

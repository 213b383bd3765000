//go:build !unix

package filetree

// noWait is nothing where files have no pipes among them.
const noWait = 0

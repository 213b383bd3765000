//go:build e2e && !linux

package e2e

// enterSandbox has nothing to do: only Linux has sandboxes.
func enterSandbox() error { return nil }

//go:build !linux

package rig

import "syscall"

// diesWithParent has nothing to offer outside of Linux: there a test's process that is killed leaves its children
// behind.
func diesWithParent() *syscall.SysProcAttr { return nil }

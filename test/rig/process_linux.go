package rig

import "syscall"

// diesWithParent makes the kernel kill the child when the test's process ends without ending it.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

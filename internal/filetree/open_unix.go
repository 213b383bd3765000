//go:build unix

package filetree

import "syscall"

// noWait opens a pipe without its other end, which is then refused.
const noWait = syscall.O_NONBLOCK

// NoFollow opens no link.
const NoFollow = syscall.O_NOFOLLOW

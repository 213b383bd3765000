//go:build unix

package filetree

import "syscall"

// noWait opens a pipe without its other end, which is then refused.
const noWait = syscall.O_NONBLOCK

// NoFollow opens no link, and does not wait for the other end of a pipe.
const NoFollow = syscall.O_NOFOLLOW | noWait

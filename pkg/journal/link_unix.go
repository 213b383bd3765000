//go:build unix

package journal

import "syscall"

const noFollow = syscall.O_NOFOLLOW

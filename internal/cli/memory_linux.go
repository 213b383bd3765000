package cli

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram gives back the memory of the program's own file that starting up has used: what is needed again comes
// back from the system's cache. Starting up visits every package that is linked, and a verb uses few of them: without
// this, its own memory would come on top of all of that.
func releaseProgram() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-05a3f000 r-xp 00000000 fe:00 1234  /usr/local/bin/fusionctl
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != self || strings.Contains(fields[1], "w") {
			continue // what can be written is not only in the file
		}
		low, high, _ := strings.Cut(fields[0], "-")
		from, err := strconv.ParseUint(low, 16, 64)
		to, err2 := strconv.ParseUint(high, 16, 64)
		if err == nil && err2 == nil {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}

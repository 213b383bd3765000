package host

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/preflight"
)

// listening is the state of a TCP socket that listens. Source: include/net/tcp_states.h of Linux.
const listening = "0A"

// sockets reads the TCP sockets on which processes listen, and which processes those are.
func (r *reader) sockets(proc string) {
	inodes := map[string][]int{} // by inode, the sockets
	found := false
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue // a machine without IPv6
		}
		found = true
		for line := range strings.Lines(string(data)) {
			if socket, inode, ok := parseSocket(line); ok {
				inodes[inode] = append(inodes[inode], len(r.host.World.Listening))
				r.host.World.Listening = append(r.host.World.Listening, socket)
			}
		}
	}
	if !found {
		r.incomplete("ports: %s/net/tcp cannot be read", proc)
		return
	}
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		for _, i := range inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] {
			socket := &r.host.World.Listening[i]
			if command := commandLine(filepath.Dir(filepath.Dir(link))); socket.Process == nil {
				socket.Process = command
			}
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				r.host.World.Addresses = append(r.host.World.Addresses, prefix.Addr().Unmap().String())
			}
		}
	}
}

// commandLine is how a process was started, nil when that cannot be read.
func commandLine(process string) []string {
	data, err := os.ReadFile(filepath.Join(process, "cmdline"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

// parseSocket reads a line of /proc/net/tcp or tcp6: number, local address, remote address, state, ..., the inode as
// the tenth field. false of a line of another state, and of the head.
func parseSocket(line string) (socket preflight.Socket, inode string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening {
		return preflight.Socket{}, "", false
	}
	address, port, _ := strings.Cut(fields[1], ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return preflight.Socket{}, "", false
	}
	ip, err := parseAddress(address)
	if err != nil {
		return preflight.Socket{}, "", false
	}
	socket.Port = int(number)
	if !ip.IsUnspecified() {
		socket.Address = ip.Unmap().String()
	}
	return socket, fields[9], true
}

// parseAddress reads an address as /proc prints it: words of 32 bits, each in the order of the machine, which is
// little-endian wherever Kubernetes runs.
func parseAddress(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return netip.Addr{}, fmt.Errorf("address %q", text)
	}
	for i := 0; i < len(raw); i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.Addr{}, fmt.Errorf("address %q", text)
	}
	return ip, nil
}

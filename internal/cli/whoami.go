package cli

import (
	"cmp"
	"os"
	"os/user"
	"strings"
)

// whoami names the person for a log, as far as this machine knows.
func whoami() string {
	name := os.Getenv("SUDO_USER")
	if current, err := user.Current(); err == nil {
		name = strings.TrimPrefix(cmp.Or(name, current.Username), "@")
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

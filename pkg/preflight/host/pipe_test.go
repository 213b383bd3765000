//go:build unix

package host

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Anybody may start a process that is called kubelet, with a pipe for its configuration.
func TestKubeletOpensNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "config.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReader()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.kubelet([]string{"kubelet", "--config=" + pipe}, "/etc/kubernetes/manifests")
	}()
	select {
	case <-ended:
		if r.host.World.Kubelet != nil || len(r.host.Incomplete) != 1 {
			t.Errorf("%+v, incomplete %q", r.host.World.Kubelet, r.host.Incomplete)
		}
	case <-time.After(time.Minute):
		t.Error("reading the configuration waits for the other end of a pipe")
	}
}

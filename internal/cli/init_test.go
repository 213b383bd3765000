package cli

import "testing"

func TestHostOfReadsThisMachineForItsOwnUnitsOnly(t *testing.T) {
	for _, from := range []string{"/etc/systemd/system", "/etc/systemd/system/", "/usr/lib/systemd/system"} {
		if hostOf(from) == nil {
			t.Errorf("hostOf(%s) = nil, want the root of this machine", from)
		}
	}
	for _, from := range []string{"/srv/copy/etc/systemd/system", "units", "/etc/kubernetes/manifests", "/"} {
		if hostOf(from) != nil {
			t.Errorf("hostOf(%s) is the root of this machine: environment files of another one would be mixed in", from)
		}
	}
}

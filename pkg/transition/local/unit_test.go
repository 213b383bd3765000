package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// A unit that runs when a transition starts it may run by the files of before: something that wants it had it started
// since it was stopped.
func TestUnitsAreStartedByTheFilesThatAreThere(t *testing.T) {
	got := toldSystemd(t, "", func() error {
		return (&Host{}).Do(t.Context(), "cp-1", &transition.Action{Kind: transition.StartUnit,
			Unit: "kube-apiserver-modern.service"})
	})
	want := "daemon-reload\nenable kube-apiserver-modern.service\nrestart kube-apiserver-modern.service\n"
	if got != want {
		t.Errorf("systemd is told\n%s, want\n%s", got, want)
	}
}

// A unit that is stopped for good is none that has failed, whenever its program ended.
func TestStoppedUnitsHaveNotFailed(t *testing.T) {
	for answer, want := range map[string]string{
		"[ $1 != is-failed ]": "disable --now etcd.service\nis-failed --quiet etcd.service\n",
		"": "disable --now etcd.service\nis-failed --quiet etcd.service\n" +
			"reset-failed etcd.service\n",
	} {
		got := toldSystemd(t, answer, func() error { return stopUnit(t.Context(), "etcd.service") })
		if got != want {
			t.Errorf("systemd is told\n%s, want\n%s", got, want)
		}
	}
}

// TestUnitsThatWereStopped: one that is neither enabled nor runs was stopped for good; one that fails, and is started
// again and again, was not, nor was one that a person has started.
func TestUnitsThatWereStopped(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		on     bool
	}{
		"enabled":               {"exit 0", true},
		"started":               {"[ $1 = is-active ] && echo active", true},
		"failing, not enabled":  {"[ $1 = is-active ] && echo activating; exit 3", true},
		"stopped":               {"[ $1 = is-active ] && echo inactive; exit 3", false},
		"failed, not enabled":   {"[ $1 = is-active ] && echo failed; exit 3", false},
		"a program that is not": {"[ $1 = is-active ] && kill $$; exit 1", false},
	} {
		toldSystemd(t, test.answer, func() error {
			err := (&Host{}).Check(t.Context(), "cp-1", &transition.Check{Kind: transition.UnitOn,
				Path: "/etc/systemd/system/etcd.service"})
			if (err == nil) != test.on {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
}

// toldSystemd is what systemd is told meanwhile, a line each time; a command of the shell says how it ends.
func toldSystemd(t *testing.T, answer string, do func() error) string {
	t.Helper()
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >> "+said+"\n"+answer+
		"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := do(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

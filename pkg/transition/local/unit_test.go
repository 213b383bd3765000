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
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >> "+said+"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	h := &Host{}
	if err := h.Do(t.Context(), "cp-1", &transition.Action{Kind: transition.StartUnit,
		Unit: "kube-apiserver-modern.service"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	want := "daemon-reload\nenable kube-apiserver-modern.service\nrestart kube-apiserver-modern.service\n"
	if string(got) != want {
		t.Errorf("systemd is told\n%s, want\n%s", got, want)
	}
}

//go:build unix

package cli_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/pki"
)

// writers are the verbs that write files, with the flags that name them. Everything else is printed.
var writers = map[string][]string{
	"init":              {"out"},
	"pki":               {"out"},
	"render":            {"out"},
	"report":            {"output"},
	"policy generate":   {"out"},
	"policy validate":   {"fix"},
	"crd plan":          {"out"},
	"crd apply":         {"journal"},
	"crd undo":          {"journal"},
	"etcd backup":       {"out"},
	"etcd restore":      {"data-dir"},
	"operator report":   {"output"},
	"etcd move plan":    {"out"},
	"etcd move apply":   {"journal", "backup"},
	"etcd move undo":    {"journal", "backup"},
	"transition plan":   {"out"},
	"transition apply":  {"journal", "snapshots", "lock"},
	"transition undo":   {"journal", "snapshots", "lock"},
	"transition status": {"journal"},

	"transition restore":     {"out"},
	"transition acknowledge": {"journal"},

	// The modes of what these write are compared where it is written: pkg/operator/agent, pkg/transition/local,
	// pkg/witness/statedir.
	"agent":                   {"state-dir", "snapshots", "lock"},
	"transition agent":        {"lock"},
	"controllers":             {"state-dir"},
	"controllers acknowledge": {"state-dir"},
}

// TestWhatWritesFilesIsKnown finds every flag that names a file to write, by its name or its help.
func TestWhatWritesFilesIsKnown(t *testing.T) {
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			names := slices.Contains([]string{"out", "fix", "journal", "backup", "data-dir", "snapshots", "state-dir",
				"lock"}, f.Name)
			if names || strings.Contains(f.Usage, "to write") && !strings.Contains(f.Usage, "how") {
				if !slices.Contains(writers[path], f.Name) {
					t.Errorf("fusionctl %s --%s writes a file: it belongs into the list, and into the test of modes",
						path, f.Name)
				}
			}
		})
		for _, child := range cmd.Commands() {
			walk(child, strings.TrimSpace(path+" "+child.Name()))
		}
	}
	walk(cli.NewRootCmd(cli.Streams{}), "")
}

// TestEveryFileThatIsWritten lists, for every verb that writes, each file and directory with its mode, under umasks
// that take nothing and everything from others. What holds a secret, or may, is its owner's alone.
func TestEveryFileThatIsWritten(t *testing.T) {
	t.Parallel()
	servers := twoServers(t)
	servers["core"].Put(t, map[string][]byte{"/registry/leases/default/lease": []byte("a lease")})
	self, err := filepath.Abs(splitSpec)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := fakeServer(t, "")
	_, management := newManagement(t, fourPlanes())
	for _, umask := range []string{"000", "077"} {
		t.Run("umask "+umask, func(t *testing.T) {
			dir := t.TempDir()
			given := func(name, text string, mode fs.FileMode) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			given("spec.yaml", cli.PKISpec, 0o644)
			given("policy.jsonl", "{\"user\":\"alice\",\"namespace\":\"*\",\"resource\":\"pods\",\"readonly\":true}\n",
				0o640)
			if err := os.CopyFS(filepath.Join(dir, "running"), os.DirFS("../../examples/manifests-1.6")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "running", "etcd.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"ca", "etcd"} {
				_, pair, err := pki.NewAuthority(name, pki.LifetimeOf(time.Now(), 24*time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				given(name+".crt", string(pair.Certificate), 0o600)
				given(name+".key", string(pair.Key), 0o600)
			}
			before := modes(t, dir, nil)
			run := func(codes []int, args ...string) {
				t.Helper()
				cmd := program(t, args...)
				cmd.Args = slices.Concat([]string{"/bin/sh", "-c", `umask ` + umask + `; exec "$0" "$@"`}, cmd.Args)
				cmd.Path, cmd.Dir = "/bin/sh", dir
				out, err := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); !slices.Contains(codes, code) {
					t.Errorf("fusionctl %s: exit code %d (%v), want one of %v\n%s", strings.Join(args, " "), code, err,
						codes, out)
				}
			}
			run([]int{0}, "init", "split", "-o", "new.yaml")
			run([]int{0}, "init", "--from", "running", "-o", "adopted.yaml")
			run([]int{0}, "pki", "spec.yaml", "--ca-cert", "ca.crt", "--ca-key", "ca.key",
				"--etcd-ca-cert", "etcd.crt", "--etcd-ca-key", "etcd.key", "--out", "pki")
			for _, target := range []string{"static-pod", "systemd", "hosted"} {
				run([]int{0, 3}, "render", "spec.yaml", "--target", target, "--out", "rendered-"+target)
			}
			run([]int{0, 3}, "report", "spec.yaml", "-o", "report.html")
			run([]int{0, 3}, "report", "spec.yaml", "-o", "report.md")
			run([]int{0, 3}, "operator", "report", "good", "-o", "object.html", "--kubeconfig", management)
			run([]int{0}, "policy", "generate", "spec.yaml", "--out", "generated.jsonl")
			run([]int{0, 3}, "policy", "validate", "policy.jsonl", "--fix")
			run([]int{0, 3}, "crd", "plan", "pizzas.g.example", "--kubeconfig", kubeconfig, "--storage", "v1", "--out",
				"crd.plan")
			// as far as that server goes
			run([]int{0, 1, 3}, "crd", "apply", "crd.plan", "--kubeconfig", kubeconfig, "--yes")
			// and the plan that was begun stays
			run([]int{2}, "crd", "plan", "pizzas.g.example", "--kubeconfig", kubeconfig, "--storage", "v1", "--out",
				"crd.plan")
			at := endpoints(servers)
			run([]int{0}, slices.Concat([]string{"etcd", "backup", self, "--out", "backups"}, at)...)
			saved, err := filepath.Glob(filepath.Join(dir, "backups", "*", "core.db"))
			if err != nil || len(saved) != 1 {
				t.Fatalf("snapshots %q, %v: want one of the store core", saved, err)
			}
			// The second keeps what the first wrote; a pod that is killed when it is done is followed by another one.
			for _, id := range []string{"one", "two", "two"} {
				run([]int{0}, "etcd", "restore", saved[0], "--data-dir", "member", "--id", id, "--name", "cp-1",
					"--peer-url", "http://127.0.0.1:2380", "--cluster", "cp-1=http://127.0.0.1:2380", "--token", id)
			}
			run([]int{0}, "etcd", "restore", "--back", "--data-dir", "member", "--id", "two")
			run([]int{0}, slices.Concat([]string{"etcd", "move", "plan", self, "--out", "move.plan"}, at)...)
			run([]int{0}, slices.Concat([]string{"etcd", "move", "apply", self, "move.plan", "--yes"}, at)...)
			run([]int{0}, slices.Concat([]string{"etcd", "move", "undo", self, "move.plan", "--yes"}, at)...)

			run([]int{0}, "transition", "plan", "none", "spec.yaml", "--out", "install.steps")
			run([]int{0}, "transition", "apply", "install.steps", "--rehearse", "hosts", "--yes")
			run([]int{0}, "transition", "undo", "install.steps", "--rehearse", "hosts", "--yes")
			run([]int{0}, "transition", "status", "install.steps")
			run([]int{0}, "transition", "acknowledge", "install.steps", "--yes")
			if err := os.RemoveAll(filepath.Join(dir, "hosts")); err != nil {
				t.Fatal(err)
			}

			got := modes(t, dir, before)
			for file, want := range map[string]string{
				"new.yaml": "0644", "adopted.yaml": "0600", "generated.jsonl": "0644", "policy.jsonl.fixed": "0640",
				"install.steps": "0600", "install.steps.journal": "0600", "crd.plan": "0600",
				"crd.plan.journal": "0600", "move.plan": "0600", "move.plan.journal": "0600",
				"move.plan.backup": "0600", "report.html": "0600", "report.md": "0600",
				"object.html": "0600",
				"pki":         "d0700", "rendered-static-pod": "d0700", "rendered-systemd": "d0700",
				"rendered-hosted": "d0700", "backups": "d0700", "member": "d0700",
			} {
				if got[file] != want {
					t.Errorf("%s has mode %q, want %s", file, got[file], want)
				}
				delete(got, file)
			}
			for file, mode := range got {
				top, below, _ := strings.Cut(file, "/")
				want := "0644"
				switch {
				case below == "":
					want = "nothing of that name"
				case (top == "backups" || top == "member") && strings.HasPrefix(mode, "d"):
					want = "d0700"
				case strings.HasPrefix(mode, "d"):
					want = "d0755" // below one that is closed; they may be copied to a host
				case top == "pki" && strings.HasSuffix(file, ".key"), top == "backups", top == "member",
					top != "pki" && !isPublic(below):
					want = "0600"
				}
				if mode != want {
					t.Errorf("%s has mode %s, want %s", file, mode, want)
				}
			}
			if len(got) < 100 {
				t.Errorf("only %d files below the directories, want those of all targets", len(got))
			}
		})
	}
}

// isPublic reports whether a rendered file holds nothing of the spec that may be secret: neither arguments nor
// variables.
func isPublic(file string) bool {
	base := filepath.Base(file)
	public := []string{"RUNBOOK.md", ".fusionctl-render", "legacy-access.yaml"}
	return strings.HasSuffix(base, ".service") || slices.Contains(public, base)
}

// modes lists what is below a directory and was not before, as 0644, or d0755 for a directory.
func modes(t *testing.T, dir string, before map[string]string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if _, known := before[relative]; known {
			return err
		}
		found[relative] = fmt.Sprintf("%04o", info.Mode().Perm())
		switch {
		case info.IsDir():
			found[relative] = "d" + found[relative]
		case !info.Mode().IsRegular():
			found[relative] = info.Mode().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

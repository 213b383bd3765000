//go:build unix

package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// otherMachine is a command that stands for ssh: it runs what it is told in a network of its own, which has the address
// of the host that is meant.
func otherMachine(t *testing.T) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "ssh")
	text := `#!/bin/sh
address=$1; shift
exec unshare --net sh -c 'ip address add "$0/32" dev lo && eval exec "$1"' "$address" "$*"
`
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), script, "192.0.2.7", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace to be had: %v: %s", err, out)
	}
	return script
}

// stepsFile is a transition of one file on each of the hosts.
func stepsFile(t *testing.T, hosts ...transition.Host) (name, put string) {
	t.Helper()
	dir := t.TempDir()
	put = filepath.Join(dir, "there", "file")
	file := &transition.File{Path: put, Mode: 0o600, Data: []byte("data")}
	steps := transition.Transition{From: "a", To: "b", Hosts: hosts}
	for _, h := range hosts {
		steps.Steps = append(steps.Steps, transition.Step{ID: "00" + h.Name[len(h.Name)-1:], Host: h.Name,
			Title: "put " + put, Do: &transition.Action{Kind: transition.PutFile, File: file},
			Undo: &transition.Action{Kind: transition.RemoveFile, File: file,
				After: []transition.Check{{Kind: transition.FileIs, Path: put}}}})
	}
	data, err := steps.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(dir, "steps")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, put
}

func TestTransitionOverSSH(t *testing.T) {
	ssh, lock := otherMachine(t), filepath.Join(t.TempDir(), "lock")
	agent := program(t)
	steps, put := stepsFile(t, transition.Host{Name: "cp-1", Address: "192.0.2.7"})
	transit := func(verb string, args ...string) (int, string) {
		t.Helper()
		code, out, stderr := run(t, append([]string{"transition", verb, steps, "--yes"}, args...)...)
		return code, out + stderr
	}
	if code, said := transit("apply"); code != 2 || !strings.Contains(said, "--ssh does the steps") {
		t.Errorf("steps of another host without --ssh: %d, %s", code, said)
	}
	// The program of the tests is the agent when its environment says so.
	line := agent.Path + " "
	for _, v := range agent.Env {
		if strings.HasPrefix(v, asProgram+"=") {
			line = "env " + v + " " + line
		}
	}
	over := []string{"--ssh=" + ssh, "--ssh-program=" + strings.TrimSpace(line), "--lock", lock}
	if code, said := transit("apply", over...); code != 0 || !strings.Contains(said, "001 of 001") ||
		!strings.Contains(said, "by "+ssh+" 192.0.2.7") {
		t.Errorf("apply: %d, %s", code, said)
	}
	if text, err := os.ReadFile(put); err != nil || string(text) != "data" {
		t.Errorf("%s = %q, %v", put, text, err)
	}
	if code, said := transit("undo", over...); code != 0 {
		t.Errorf("undo: %d, %s", code, said)
	}
	if _, err := os.Stat(put); !os.IsNotExist(err) {
		t.Errorf("undone, and %s is there: %v", put, err)
	}
	direct := filepath.Join(t.TempDir(), "direct")
	if err := os.WriteFile(direct, []byte("#!/bin/sh\nshift\neval exec \"$*\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	over[0] = "--ssh=" + direct
	if code, said := transit("apply", over...); code != 1 || !strings.Contains(said, "is none of this machine's") {
		t.Errorf("an agent on a machine that is not meant: %d, %s", code, said)
	}
}

func TestOneTransitionAtATimeOnAMachine(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	first, put := stepsFile(t, transition.Host{Name: "cp-1", Address: "127.0.0.1"})
	held, err := local.Lock(t.Context(), lock, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"transition", "apply", first, "--yes", "--lock", lock, "--wait"}
	if code, out, stderr := run(t, append(args, "1ms")...); code != 1 ||
		!strings.Contains(out+stderr, "another transition") {
		t.Errorf("beside another transition: %d, %s%s", code, out, stderr)
	}
	if _, err := os.Stat(put); !os.IsNotExist(err) {
		t.Errorf("beside another transition a step was done: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := run(t, append(args, "1m")...); code != 0 {
		t.Errorf("after it: %d, %s%s", code, out, stderr)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Steps that are done are done, and a reader of what is printed is told that it is not all.
func TestTransitionSaysThatItCouldNotPrint(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		steps, put := stepsFile(t, transition.Host{Name: "cp-1", Address: "127.0.0.1"})
		var stderr strings.Builder
		streams := cli.Streams{In: strings.NewReader(""), Out: fullDisk{}, Err: &stderr}
		code := cli.Main(t.Context(), []string{"transition", "apply", steps, "--yes", "-o", output,
			"--lock", filepath.Join(t.TempDir(), "lock")}, streams)
		if code != 1 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("-o %s: exit code %d, %s", output, code, stderr.String())
		}
		if _, err := os.Stat(put); err != nil {
			t.Errorf("-o %s: %v", output, err)
		}
	}
}

// TestTransitionStatusWhileAnotherRuns: status neither waits nor fails while a process has the journal open.
func TestTransitionStatusWhileAnotherRuns(t *testing.T) {
	steps, _ := stepsFile(t, transition.Host{Name: "cp-1", Address: "192.0.2.7"})
	text, err := os.ReadFile(steps)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := journal.Open[transition.Record](journal.Of(steps), journal.ID(text))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := kept.Append(transition.Record{Step: "001", Event: transition.Begun}); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := run(t, "transition", "status", steps)
	if code != 3 || out != "steps: 0 of 1 step done; step 001 was begun\n" || stderr != "" {
		t.Errorf("status = %d, %q, %q", code, out, stderr)
	}
}

// TestJournalsThatWereEdited: a stop that says nothing of stores is refused, as by apply, and ends no command.
func TestJournalsThatWereEdited(t *testing.T) {
	steps, _ := stepsFile(t, transition.Host{Name: "cp-1", Address: "127.0.0.1"})
	text, err := os.ReadFile(steps)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := journal.Open[transition.Record](journal.Of(steps), journal.ID(text))
	if err != nil {
		t.Fatal(err)
	}
	stop := transition.Record{Step: "001", Event: transition.Halted}
	if err := errors.Join(kept.Append(stop), kept.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status", steps}, {"acknowledge", steps, "--yes"}, {"apply", steps, "--yes"},
		{"undo", steps, "--yes"}} {
		code, _, stderr := run(t, append([]string{"transition"}, args...)...)
		if code != 2 || !strings.Contains(stderr, "the journal belongs to another transition") {
			t.Errorf("%s: %d, %s", args[0], code, stderr)
		}
	}
}

// TestTransitionAcknowledge: a stop is shown by status and by acknowledge, and is over when a person says so.
func TestTransitionAcknowledge(t *testing.T) {
	steps, _ := stepsFile(t, transition.Host{Name: "cp-1", Address: "127.0.0.1"})
	if code, _, stderr := run(t, "transition", "acknowledge", steps, "--yes"); code != 2 ||
		!strings.Contains(stderr, "apply begins a journal") {
		t.Errorf("without a journal: %d, %s", code, stderr)
	}
	text, err := os.ReadFile(steps)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := journal.Open[transition.Record](journal.Of(steps), journal.ID(text))
	if err != nil {
		t.Fatal(err)
	}
	stop := transition.Record{Step: "001", Event: transition.Halted, Looked: &transition.Looked{
		Stores: map[string]witness.Sight{"core": {Cluster: "new"}}, Why: []string{"store core: it is another\x1b[2J"}}}
	if err := errors.Join(kept.Append(stop), kept.Close()); err != nil {
		t.Fatal(err)
	}
	code, out, _ := run(t, "transition", "status", steps)
	if code != 3 || !strings.Contains(out, "  stopped: store core: it is another") {
		t.Errorf("status = %d, %q; want 3 and the reason", code, out)
	}
	if code, _, stderr := run(t, "transition", "acknowledge", steps); code == 0 {
		t.Errorf("acknowledged without an answer: %s", stderr)
	}
	code, out, stderr := run(t, "transition", "acknowledge", steps, "--yes", "--why", "restored")
	if code != 0 || out != "acknowledged: apply and undo go on\n" || !strings.Contains(stderr, "it is another") ||
		strings.Contains(stderr, "\x1b") {
		t.Errorf("acknowledge = %d, %q, %q", code, out, stderr)
	}
	if code, out, _ = run(t, "transition", "acknowledge", steps, "--yes"); code != 0 ||
		!strings.HasPrefix(out, "nothing to acknowledge") {
		t.Errorf("once more: %d, %q", code, out)
	}
	if code, out, _ = run(t, "transition", "status", steps); code != 0 || strings.Contains(out, "stopped") {
		t.Errorf("status afterwards = %d, %q", code, out)
	}
	if text, err := os.ReadFile(journal.Of(steps)); err != nil || !strings.Contains(string(text), `"why":["restored"]`) {
		t.Errorf("the journal does not say why: %s", text)
	}
	code, out, stderr = run(t, "transition", "apply", steps, "--yes", "--lock", filepath.Join(t.TempDir(), "lock"))
	if code != 0 {
		t.Errorf("apply afterwards = %d, %s%s", code, out, stderr)
	}
}

// TestTransitionPlanReadsStores: stores that do not agree are an answer, with every error of theirs.
func TestTransitionPlanReadsStores(t *testing.T) {
	servers := liveStores(t)
	text, err := os.ReadFile(splitSpec)
	if err != nil {
		t.Fatal(err)
	}
	spec := regexp.MustCompile(`(?m)^    tls: .*\n`).ReplaceAllString(string(text), "")
	for name, at := range map[string]string{"core": "https://10.0.0.11:2379", "modern": "https://10.0.0.11:2479"} {
		spec = strings.Replace(spec, at, servers[name].Endpoint, 1)
	}
	file := filepath.Join(t.TempDir(), "live.yaml")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := run(t, "transition", "plan", file, file, "--read-stores"); code != 0 {
		t.Errorf("stores that agree: %d, %s%s", code, out, stderr)
	}
	servers["modern"].Put(t, map[string][]byte{"/registry/pods/default/stray": []byte("pod"),
		"/registry/minions/stray": []byte("node")})
	code, out, stderr := run(t, "transition", "plan", file, file, "--read-stores")
	if code != 3 || out != "" || !strings.Contains(stderr, "pods") || !strings.Contains(stderr, "minions") {
		t.Errorf("stores that do not agree: %d, %q, %q; want 3 and both errors", code, out, stderr)
	}
}

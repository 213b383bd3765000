package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// tutorialCodes are the exit codes of commands of the tutorial that report something.
var tutorialCodes = map[string]string{
	"fusionctl check mine.yaml":                                   "0",
	"fusionctl render mine.yaml --diff /etc/kubernetes/manifests": "3",
}

// fillInBefore is the command before which the tutorial asks its reader to fill in two places.
const fillInBefore = "fusionctl check mine.yaml"

// TestTutorial does what the tutorial says, command by command, in one directory. What it says that a command shows is
// there.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Abs("../examples/manifests-1.6")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	done := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !ok {
			continue
		}
		if command == fillInBefore {
			script.WriteString("exec sh -c '" + `sed -i -e "s#endpoints: \[\]#endpoints: [https://10.0.0.11:2479]` +
				`\n    tls: {ca: /etc/kubernetes/pki/etcd/ca.crt, cert: /etc/kubernetes/pki/etcd/c.crt, ` +
				`key: /etc/kubernetes/pki/etcd/c.key}#" ` +
				`-e "s#^  access: \[\]#  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [apps], ` +
				`resources: [deployments]}]#" mine.yaml` + "'\n")
		}
		code := tutorialCodes[command]
		if code == "" {
			code = "0"
		}
		done[command] = true
		run := strings.ReplaceAll(command, "/etc/kubernetes/manifests", manifests)
		run = strings.ReplaceAll(run, "less ", "cat ") // there is no terminal
		script.WriteString("exits " + code + " sh -c '" + strings.ReplaceAll(run, "'", `'"'"'`) + "'\n")
		switch command {
		case `fusionctl check shared.yaml; echo "exit code $?"`:
			script.WriteString("stdout FUS030\nstdout '^exit code 3$'\n")
		case "fusionctl check fused.yaml":
			script.WriteString("stdout '^0 errors, '\n")
		}
	}
	for command := range tutorialCodes {
		if !done[command] {
			t.Errorf("the tutorial has no %q", command)
		}
	}
	if len(done) < 10 {
		t.Fatalf("the tutorial has %d commands, want more", len(done))
	}
	file := filepath.Join(t.TempDir(), "tutorial.txtar")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Files: []string{file},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits}})
}

package render

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// commandsOf are the lines of the shell blocks of a runbook.
func commandsOf(t *testing.T, runbook string) []string {
	t.Helper()
	var lines []string
	inside := false
	for line := range strings.Lines(runbook) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "```sh":
			inside = true
		case line == "```":
			inside = false
		case inside && line != "":
			lines = append(lines, line)
		}
	}
	if inside || len(lines) == 0 {
		t.Fatalf("%d commands, a block open at the end: %v", len(lines), inside)
	}
	return lines
}

func runbookOf(t *testing.T, p *plan.Plan, o Options) string {
	t.Helper()
	data, err := runbook(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A shell reads every command, whatever the paths of the spec contain.
func TestRunbookCommandsAreShell(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash to ask")
	}
	for _, target := range Targets {
		plans := examplesFor(t, Target(target))
		odd := examplesFor(t, Target(target))["split-1.6-1.10"]
		odd.PKI.CA = "/etc/it's a \"CA\" `here`/$HOME/ca.crt"
		odd.PolicyFile = "/etc/a b/policy\n.jsonl"
		odd.Stores[0].TLS.CA = "/etc/a;b/ca.crt"
		plans["odd"] = odd
		for name, p := range plans {
			text := strings.Join(
				commandsOf(t, runbookOf(t, p, Options{Target: Target(target), Spec: "my spec's.yaml"})), "\n")
			cmd := exec.Command(shell, "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", name, target, err, out)
			}
		}
	}
}

func TestShellQuotesForEveryShell(t *testing.T) {
	asked := 0
	for _, name := range []string{"sh", "dash", "bash"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		asked++
		for _, word := range hostile {
			quoted := shell(word)
			out, err := exec.Command(program, "-c", "printf '%s.' "+quoted).CombinedOutput()
			if err != nil || string(out) != word+"." {
				t.Errorf("%s: shell(%q) = %s, which is %q: %v", name, word, quoted, out, err)
			}
		}
	}
	if asked == 0 {
		t.Skip("no shell to ask")
	}
}

// Everything that is put into place is in the tree, and everything in the tree is put into place.
func TestRunbookInstallsTheTree(t *testing.T) {
	install := regexp.MustCompile(`^install -D -m (\d+) \.(/\S+) (/\S+)$`)
	for name, p := range examples(t) {
		for _, target := range []Target{StaticPod, Systemd} {
			files, err := Files(p, Options{Target: target})
			if err != nil {
				t.Fatal(err)
			}
			installed := map[string]string{}
			for _, line := range commandsOf(t, string(find(files, RunbookFile).Data)) {
				if m := install.FindStringSubmatch(line); m != nil {
					if m[2] != m[3] {
						t.Errorf("%s: %s", name, line)
					}
					installed[m[2]] = m[1]
				}
			}
			for _, f := range files {
				host, file, ok := strings.Cut(f.Path, "/")
				if !ok || strings.HasPrefix(file, strings.TrimPrefix(existingDirectory, "/")) {
					continue
				}
				mode, ok := installed["/"+file]
				if !ok {
					t.Errorf("%s, %s: nothing installs /%s on %s", name, target, file, host)
				} else if want := strings.TrimPrefix(f.Mode.String(), "-"); (mode == "0600") != (want == "rw-------") {
					t.Errorf("%s: /%s is installed with mode %s, and has %s", name, file, mode, want)
				}
			}
			for file := range installed {
				if find(files, p.Hosts[0].Name+file) == nil {
					t.Errorf("%s, %s: %s is installed and is not in the tree", name, target, file)
				}
			}
		}
	}
}

func TestRunbookNamesWhatChangesInARunningSide(t *testing.T) {
	p := examples(t)["vendor-1.6-1.36"]
	text := runbookOf(t, p, Options{Target: StaticPod})
	for _, c := range p.Components {
		if !runsAlready(p, &c) {
			continue
		}
		for _, a := range c.Args {
			if named := strings.Contains(text, "`"+a.String()+"`"); named != (a.Origin != plan.FromSpec) {
				t.Errorf("%s: %s is named: %v, origin %s", c.Name, a, named, a.Origin)
			}
		}
		if strings.Contains(text, "install -D -m 0600 ./etc/kubernetes/manifests/"+c.Name+".yaml") {
			t.Errorf("%s runs already and would be installed", c.Name)
		}
	}
}

func TestRunbookSaysWhatIsNotCollected(t *testing.T) {
	p := examples(t)["split-1.6-1.10"]
	for i := range p.Controllers {
		if p.Controllers[i].ID == "garbage-collector-controller" {
			p.Controllers[i].On, p.Controllers[i].Why = false, "because of the test"
		}
	}
	text := runbookOf(t, p, Options{Target: StaticPod})
	if !strings.Contains(text, "With both off, deleting a Deployment leaves") ||
		strings.Count(text, "because of the test") < 2 {
		t.Errorf("both collectors are off, and the runbook does not say what that means")
	}
	for i := range p.Controllers {
		if p.Controllers[i].ID == "garbage-collector-controller" {
			p.Controllers[i].On = true
		}
	}
	if text := runbookOf(t, p, Options{Target: StaticPod}); strings.Contains(text, "What is not collected") {
		t.Errorf("both collectors are on, and the runbook says that something is not collected")
	}
}

// The short names that step 0 defines for the rest of the runbook do what they say.
func TestRunbookDefinesItsShortNames(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash to ask")
	}
	for _, target := range Targets {
		definitions := "export MODERN=m LEGACY=l LEGACY_KUBECTL='echo old' CLUSTER=c\nkubectl() { echo kubectl " +
			"\"$@\"; }\n"
		for _, line := range commandsOf(
			t, runbookOf(t, examplesFor(t, Target(target))["split-1.6-1.10"], Options{Target: Target(target)})) {
			if strings.Contains(line, "() {") {
				definitions += line + "\n"
			}
		}
		// a program of two words, for the test
		definitions = strings.ReplaceAll(definitions, `"$LEGACY_KUBECTL"`, `$LEGACY_KUBECTL`)
		for command, want := range map[string]string{
			"modern get pods": "kubectl --kubeconfig m get pods\n",
			"legacy get pods": "old --kubeconfig l get pods\n",
		} {
			out, err := exec.Command(bash, "-c", definitions+command).CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%s: %s is %q, want %q: %v", target, command, out, want, err)
			}
		}
	}
}

// Errors stand before everything else, warnings where a person looks for what is different.
func TestRunbookNamesFindings(t *testing.T) {
	findings := []finding.Finding{
		{Rule: "FUS002", Severity: finding.Error, Subject: "ingresses", Message: "one `object` and every list fails",
			Fix: "leave them out"},
		{Rule: "FUS130", Severity: finding.Warning, Subject: "namespaces", Message: "are shared | here"},
		{Rule: "FUS999", Severity: finding.Info, Subject: "nothing", Message: "worth a line"},
	}
	text := runbookOf(t, handmade(36), Options{Target: StaticPod, Findings: findings})
	if !strings.HasPrefix(text, "# Runbook: handmade\n\n**Do not apply this.**") {
		t.Errorf("the runbook begins with %.100q", text)
	}
	for _, want := range []string{
		"\n- FUS002, ingresses: one 'object' and every list fails. Fix: leave them out.\n",
		"\n- FUS130, namespaces: are shared \\| here\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the runbook lacks %q", want)
		}
	}
	if strings.Contains(text, "FUS999") {
		t.Error("a remark is not for the runbook")
	}
	if text := runbookOf(t, handmade(36), Options{Target: StaticPod}); strings.Contains(text, "Do not do this") ||
		strings.Contains(text, "**Warnings**") {
		t.Error("a plan without findings is warned about")
	}
}

// TestNoWordEndsABlockOfCode: a runbook is Markdown, in which a line of backticks or tildes ends the block of the
// commands: what stands behind it would be read as a step.
func TestNoWordEndsABlockOfCode(t *testing.T) {
	fence := regexp.MustCompile("(?m)^[ \t]*(```|~~~)")
	for _, word := range []string{"\n```\n\n# A step\n\n```sh\n", "a\r```\rb", "a\r\n   ~~~\r\nb'", "\n\n````\n"} {
		got := shell(word)
		if fence.MatchString(strings.ReplaceAll(got, "\r", "\n")) {
			t.Errorf("%q is written as %q", word, got)
		}
		if sh, err := exec.LookPath("sh"); err == nil {
			out, err := exec.Command(sh, "-c", "printf '%s.' "+got).CombinedOutput()
			if err != nil || string(out) != word+"." {
				t.Errorf("%q is read as %q, %v", got, out, err)
			}
		}
	}
}

// TestFindingsBringNoMarkup: what a finding says of a spec loads nothing and leads nowhere.
func TestFindingsBringNoMarkup(t *testing.T) {
	const hostile = "![a](http://a.example) \\[b](http://b.example) <img src=c> <http://d.example>\n# e"
	for name, p := range examples(t) {
		for _, target := range []Target{StaticPod, Hosted} {
			if target == Hosted && p.Target != plan.Hosted || target != Hosted && p.Target == plan.Hosted {
				continue
			}
			files, err := Files(p, Options{Target: target, Findings: []finding.Finding{{Rule: "FUS060",
				Severity: finding.Warning, Subject: hostile, Message: hostile, Fix: hostile}}})
			if err != nil {
				t.Fatal(err)
			}
			text := string(find(files, RunbookFile).Data)
			if n := strings.Count(text, "http://a.example"); n < 2 {
				t.Errorf("%s: the finding is said %d times", name, n)
			}
			if markup := regexp.MustCompile(`(?m)(^|[^\\])(\\\\)*\[[ab]\]|<img|<http:|^# e`).FindString(text); markup != "" {
				t.Errorf("%s: markup of a finding: %q", name, markup)
			}
		}
	}
}

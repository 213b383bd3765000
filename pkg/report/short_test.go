package report

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

// TestShortSaysWhatHappens: what stands at the top of the page about each example.
func TestShortSaysWhatHappens(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var text strings.Builder
	for _, file := range files {
		in := inputOf(t, file)
		in.Evidence = "" // it grows
		fmt.Fprintf(&text, "%s\n", filepath.Base(file))
		for _, p := range in.short() {
			fmt.Fprintf(&text, "  %s (#%s)\n    %s\n", p.Title, p.Part, p.Text)
		}
	}
	golden.File(t, "testdata/short.txt", []byte(strings.ReplaceAll(text.String(), kubever.FactsOf, "DATE")))
}

// said is the text of a point.
func said(t *testing.T, in *Input, title string) string {
	t.Helper()
	for _, p := range in.short() {
		if p.Title == title {
			return p.Text
		}
	}
	return ""
}

func TestShortOfWhatWasAsked(t *testing.T) {
	in := inputOf(t, "../../examples/vendor-1.6-1.36.yaml")
	const legacy = "What changes on the legacy side"
	for name, test := range map[string]struct {
		differences []render.Difference
		want, not   string
	}{
		"nothing differs": {[]render.Difference{{Component: "kube-apiserver", Host: "cp-1", State: render.Same},
			{Component: "kube-apiserver-modern", Host: "cp-1", State: render.New}},
			"Against /etc/kubernetes, nothing differs.", "one legacy API server"},
		"the API server differs": {[]render.Difference{{Component: "kube-apiserver", Host: "cp-1",
			State: render.Changed, Changes: make([]render.Change, 2)}},
			"kube-apiserver on cp-1 (2 differences). There is one legacy API server: while it starts",
			"nothing differs"},
		"another one differs": {[]render.Difference{{Component: "kube-controller-manager", Host: "cp-1",
			State: render.Changed, Changes: make([]render.Change, 1)}},
			"kube-controller-manager on cp-1 (1 difference).", "one legacy API server"},
		"what runs is not found": {[]render.Difference{{Component: "kube-scheduler", Host: "cp-1",
			State: render.Missing}}, "Not found there: kube-scheduler on cp-1.", "one legacy API server"},
	} {
		in.DiffOf, in.Differences = "/etc/kubernetes", test.differences
		if got := said(t, in, legacy); !strings.Contains(got, test.want) || strings.Contains(got, test.not) {
			t.Errorf("%s: %q, want %q and not %q", name, got, test.want, test.not)
		}
	}
	in.Differences = nil
	for _, c := range in.Plan.Components {
		in.Differences = append(in.Differences, render.Difference{Component: c.Name, Host: c.Host, State: render.Same})
	}
	if got := said(t, in, "What starts"); got != "Nothing: every component runs already." {
		t.Errorf("all of it runs: %q", got)
	}
	modern := in.difference("kube-apiserver-modern", "cp-1")
	modern.State, modern.Changes = render.Changed, make([]render.Change, 1)
	in.difference("fusionctl-controllers", "cp-1").State = render.New
	if got := said(t, in, "What starts"); got != "fusionctl-controllers, on cp-1. Started again with other flags: "+
		"kube-apiserver-modern on cp-1 (1 difference)." {
		t.Errorf("a part of it runs: %q", got)
	}
	in.Restarts = &Restarts{Totals: restart.Totals{Pods: 7, Summary: restart.Count{Restart: 3, Keep: 9, Unknown: 1}}}
	if got := said(t, in, "Pods and nodes"); !strings.Contains(got, "restart 3 containers of 7 pods, and keep 9.") ||
		!strings.Contains(got, "Of 1 it is not known.") {
		t.Errorf("restarts: %q", got)
	}
	in.Restarts.Incomplete = "the file ends"
	if got := said(t, in, "Pods and nodes"); strings.Contains(got, "keep 9") {
		t.Errorf("an answer that ends early counts: %q", got)
	}
	if got := said(t, in, "Not looked at"); strings.Contains(got, "--diff") || strings.Contains(got, "--restarts") ||
		!strings.Contains(got, "--contents") {
		t.Errorf("not looked at: %q, want the contents alone", got)
	}
	in.Contents = &Contents{}
	if got := said(t, in, "Not looked at"); got != "" {
		t.Errorf("not looked at: %q, and everything was", got)
	}
	in.Plan.Nodes = []plan.Node{{Name: "node-1"}, {Name: "node-2"}}
	if got := said(t, in, "Pods and nodes"); !strings.Contains(got, "but for those of node-1 and node-2") {
		t.Errorf("nodes: %q", got)
	}
	in.Plan.Nodes, in.Plan.ModernKubelet = nil, &in.Plan.Modern.Version
	if got := said(t, in, "Pods and nodes"); !strings.Contains(got, "Others, 1.36.3, may be connected") {
		t.Errorf("kubelets of the modern side: %q", got)
	}
	accepted := finding.Accepted{Finding: in.Check.Findings[0], Reason: "agreed with the teams."}
	in.Check.Accepted = []finding.Accepted{accepted, accepted}
	if got := said(t, in, "What was accepted"); strings.Count(got, "because: agreed with the teams.") != 1 ||
		!strings.Contains(got, "("+accepted.Rule+")") {
		t.Errorf("accepted: %q", got)
	}
	in = inputOf(t, "../../examples/ha-three-hosts-1.15-1.36.yaml")
	in.Plan = plantest.ExampleFor(t, "ha-three-hosts-1.15-1.36.yaml", plan.Hosted)
	if got := said(t, in, "What starts"); !strings.Contains(got, "as pods of the cluster that hosts them") {
		t.Errorf("hosted: %q", got)
	}
	if got := said(t, in, legacy); !strings.Contains(got, "started again with these, as pods of the cluster that") {
		t.Errorf("hosted: %q", got)
	}
	in.Runbook = nil
	for _, p := range in.short() {
		if p.Part == "runbook" || strings.Contains(p.Text, "The runbook notes") {
			t.Errorf("there is no runbook: %+v", p)
		}
	}
}

// TestMarkdownHasPictureAndRunbook: comments of a script stay comments, and headings lie below the page's.
func TestMarkdownHasPictureAndRunbook(t *testing.T) {
	in := inputOf(t, "../../examples/split-1.15-1.36.yaml")
	in.Mermaid = []byte("flowchart LR\n")
	in.Runbook = []byte("# Runbook: x\n\n## 1. One\n\n```sh\n# a comment\n## another\n```\n\n### Details\n")
	var out bytes.Buffer
	if err := Markdown(&out, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n## Picture\n\n```mermaid\nflowchart LR\n```\n",
		"\n## Runbook\n\n### 1. One\n\n```sh\n# a comment\n## another\n```\n\n#### Details\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

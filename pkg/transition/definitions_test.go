package transition

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// definedAndKept are definitions, what both sides have afterwards, and what custom resources control.
const definedAndKept = "customresourcedefinitions.apiextensions.k8s.io, priorityclasses.scheduling.k8s.io, " +
	"deployments.apps, poddisruptionbudgets.policy"

// shortened is what an action does with objects.
func shortened(a *Action) string {
	if a == nil {
		return "-"
	}
	o, text := a.Objects, string(a.Kind)
	if a.Kind == RunChecks && len(a.Before) > 0 {
		o, text = a.Before[0].Objects, string(a.Before[0].Kind)
	}
	if o != nil && o.Plan.Definitions != "" {
		text += " custom"
	}
	if o != nil && o.Plan.Copy {
		text += " (copy)"
	}
	return text
}

// TestDefinitionsGoBetweenTheirObjects: the copies are there before a definition that would show them, and no original
// goes before the definition has; on the way back the same. Nothing collects meanwhile, and what they control follows.
func TestDefinitionsGoBetweenTheirObjects(t *testing.T) {
	from, to := handing(t, splitExample, "", render.Systemd), handing(t, splitExample, definedAndKept, render.Systemd)
	tr, err := New(from, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	var steps []string
	deployments := -1
	for i, s := range tr.Steps {
		if s.Title == "hand replicasets, deployments over to the modern side" {
			deployments = i
		}
		for _, a := range []*Action{s.Do, s.Undo} {
			if strings.Contains(shortened(a), "custom") || a != nil && strings.Contains(s.Title, "customresource") {
				steps = append(steps, shortened(s.Do)+" | "+shortened(s.Undo))
				break
			}
		}
	}
	want := []string{"may go | -", "may go custom (copy) | -", "- | adopted", "- | adopted custom",
		"hand over custom (copy) | hand back custom", "- | defined", "hand over | hand back", "defined | -",
		"hand over custom | hand back custom (copy)", "adopted | -", "adopted custom | -", "- | may go",
		"- | may go custom (copy)"}
	if !slices.Equal(steps, want) {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	goes := position(t, &tr, "that moves originals", func(s Step) bool {
		return s.Title == "hand what customresourcedefinitions define over to the modern side"
	})
	kept := position(t, &tr, "that copies classes", func(s Step) bool {
		return s.Title == "copy priorityclasses to the modern side"
	})
	stop := position(t, &tr, "that stops", func(s Step) bool { return s.Title == "stop fusionctl-controllers" })
	start := position(t, &tr, "that starts", func(s Step) bool { return s.Title == "start fusionctl-controllers" })
	if kept > stop || stop > goes || goes > deployments || deployments > start {
		t.Errorf("copied at %d, stopped at %d, custom resources at %d, Deployments at %d, started at %d", kept, stop,
			goes, deployments, start)
	}
	if o := tr.Steps[deployments].Do.Objects; !o.Plan.Custom {
		t.Error("what custom resources control does not know that these go before")
	}
}

// TestDefinitionsStayWhereOwnersAreCollected: a collector of either side would find what custom resources own without
// them.
func TestDefinitionsStayWhereOwnersAreCollected(t *testing.T) {
	from, to := handing(t, splitExample, "", render.Systemd), handing(t, splitExample, definedAndKept, render.Systemd)
	collecting := func(p *plan.Plan) *plan.Plan {
		of := *p
		of.Controllers = slices.Clone(p.Controllers)
		for i := range of.Controllers {
			if c := &of.Controllers[i]; c.ID == "garbage-collector-controller" && c.Side == "legacy" {
				c.On = true
			}
		}
		return &of
	}
	var refused *RefusedError
	_, err := New(Setup{Plan: collecting(from.Plan), Target: from.Target}, Setup{Plan: collecting(to.Plan),
		Target: to.Target}, Facts{})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the garbage collector of the legacy side runs") {
		t.Errorf("New = %v", err)
	}
}

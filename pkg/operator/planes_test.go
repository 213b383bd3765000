package operator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestAPreviewIsWhatTheOperatorBegins: the steps are from the record of what runs, an approval is announced where the
// operator would wait for one, and a record that cannot be read is no answer.
func TestAPreviewIsWhatTheOperatorBegins(t *testing.T) {
	e := newEnding(t)
	planes := &Planes{e.Client}
	runs := judge(example(t))
	r := &record{Runs: runs.digest, Plan: runs.plan}
	if err := r.write(t.Context(), e.Client, "hosted"); err != nil {
		t.Fatal(err)
	}
	if p, err := planes.Preview(t.Context(), example(t)); err != nil || len(p.Steps) > 0 || p.Waits ||
		p.Runs != runs.digest || p.Plan != p.Runs {
		t.Errorf("of what runs: %+v, %v", p, err)
	}
	f := seesBoth(t)
	wants := judge(f)
	steps, err := transition.NewHosted(runs.plan, wants.plan, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := planes.Preview(t.Context(), f)
	if err != nil || len(p.Steps) != len(steps.Steps) || p.Plan != wants.digest || p.Waits {
		t.Fatalf("of an edit: %+v, %v; want %d steps", p, err, len(steps.Steps))
	}
	for i, s := range p.Steps {
		if s.Title != steps.Steps[i].Title || s.Final {
			t.Errorf("step %+v, want %q", s, steps.Steps[i].Title)
		}
	}
	f = exampleWith(t, map[string]any{"approval": "Manual", "gateway": map[string]any{"image": "a/b:v1"}})
	if p, err := planes.Preview(t.Context(), f); err != nil || !p.Waits {
		t.Errorf("with approvals by hand: %+v, %v", p, err)
	}
	secret := &corev1.Secret{}
	at := types.NamespacedName{Namespace: "hosted", Name: RecordName}
	if err := e.Client.Get(t.Context(), at, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[recordKey] = []byte("no record")
	if err := e.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if p, err := planes.Preview(t.Context(), f); err == nil || !strings.Contains(err.Error(), "unreadable") {
		t.Errorf("without a record: %+v, %v", p, err)
	}
}

package operator

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// describe puts into the status what follows from the spec alone, and takes out what the last look saw.
func (p *plane) describe() {
	s, v := &p.object.Status, &p.verdict
	s.Phase, s.Plan = api.Pending, v.digest
	s.Findings, s.Summary = v.findings(), finding.Summarize(v.report.Findings)
	if v.err != nil {
		s.Summary.Errors = len(s.Findings)
	}
	p.condition(api.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
	p.condition(api.ConditionProgressing, metav1.ConditionFalse, "Settled", "")
	if refusal := v.refusal(); refusal != "" {
		p.condition(api.ConditionSafe, metav1.ConditionFalse, "Findings", refusal)
	} else {
		p.condition(api.ConditionSafe, metav1.ConditionTrue, "Checked", "no finding of the plan is an error")
	}
	if meta.FindStatusCondition(s.Conditions, api.ConditionReady) == nil {
		p.condition(api.ConditionReady, metav1.ConditionFalse, "Pending", "nothing runs yet")
	}
}

// recorded puts into the status what the record says.
func (p *plane) recorded() {
	s, r := &p.object.Status, p.record
	s.Runs, s.History, s.Transition = r.Runs, r.History, nil
	if o := r.Open; o != nil {
		t := &o.Transition
		s.Transition = &api.TransitionStatus{From: t.From, To: t.To, Plan: o.To, Back: o.Back, Steps: len(t.Steps),
			Error: brief(o.Why), Since: o.Since}
		if state, err := transition.StateOf(t, o.Journal); err == nil {
			s.Transition.Done = state.Done
			if at := o.at(); at != nil {
				s.Transition.Step = at.Title
			}
		}
	}
}

func (p *plane) phase(to api.Phase) { p.object.Status.Phase = to }

// refuse says why the plan is not carried out; what runs is left alone.
func (p *plane) refuse(reason, message string) {
	p.phase(api.Refused)
	p.condition(api.ConditionProgressing, metav1.ConditionFalse, reason, message)
}

// degraded says that something does not work, or cannot be read.
func (p *plane) degraded(reason string, err error) {
	if p.object.Status.Phase != api.Refused {
		p.phase(api.Degraded)
	}
	p.condition(api.ConditionDegraded, metav1.ConditionTrue, reason, err.Error())
}

// limitMessageBytes is what a message of the status may have.
const limitMessageBytes = 4096

// brief is a text of the status or of an event: bounded, and visible on a terminal. It may name what a spec or a store
// says: errors about a store name up to a thousand objects.
func brief(text string) string { return cut(text, limitMessageBytes) }

// cut makes a text visible, and cuts what is beyond a limit.
func cut(text string, limitBytes int) string {
	const more = " ..."
	long := len(text) > limitBytes
	text = visible.Text(text[:min(len(text), limitBytes)])
	if !long && len(text) <= limitBytes {
		return text
	}
	return strings.ToValidUTF8(text[:min(len(text), limitBytes-len(more))], "") + more
}

func (p *plane) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.object.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: brief(message), ObservedGeneration: p.object.Generation})
}

package finding

import "slices"

// Acceptance is an entry of spec.accept: a finding for which the author of the spec takes responsibility, and why.
type Acceptance struct {
	Rule    string `json:"rule"`              // FUS152
	Subject string `json:"subject,omitempty"` // only the findings about this subject; "" for all of the rule
	Reason  string `json:"reason"`
}

// Covers reports whether the entry is about the finding.
func (a Acceptance) Covers(f Finding) bool {
	return a.Rule == f.Rule && (a.Subject == "" || a.Subject == f.Subject)
}

// Accepted is a finding with the reason for which it is accepted.
type Accepted struct {
	Finding
	Reason string `json:"reason"`
}

// Report is what was found, and what of it is accepted. Accepted findings count in no summary and in no exit code.
type Report struct {
	Findings []Finding  `json:"findings"`
	Accepted []Accepted `json:"accepted,omitempty"`
}

// Accept sets aside the findings that the entries accept, and says which entries were used. The order stays.
func Accept(found []Finding, entries []Acceptance) (report Report, used []bool) {
	report.Findings = []Finding{}
	used = make([]bool, len(entries))
	for _, f := range found {
		at := slices.IndexFunc(entries, func(a Acceptance) bool { return a.Covers(f) })
		if at < 0 {
			report.Findings = append(report.Findings, f)
			continue
		}
		used[at] = true
		report.Accepted = append(report.Accepted, Accepted{Finding: f, Reason: entries[at].Reason})
	}
	return report, used
}

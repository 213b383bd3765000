package finding

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSortPutsTheWorstFirst(t *testing.T) {
	findings := []Finding{
		{Rule: "FUS152", Severity: Warning, Subject: "b"},
		{Rule: "FUS060", Severity: Error, Subject: "pods"},
		{Rule: "FUS152", Severity: Warning, Subject: "a"},
		{Rule: "FUS001", Severity: Info},
		{Rule: "FUS002", Severity: Error},
	}
	Sort(findings)
	var order []string
	for _, f := range findings {
		order = append(order, f.Rule+f.Subject)
	}
	if diff := cmp.Diff([]string{"FUS002", "FUS060pods", "FUS152a", "FUS152b", "FUS001"}, order); diff != "" {
		t.Errorf("Sort: (-want +got)\n%s", diff)
	}
	if got := Worst(findings); got != Error {
		t.Errorf("Worst = %v, want error", got)
	}
	if got, want := Summarize(findings), (Summary{Errors: 2, Warnings: 2, Infos: 1}); got != want {
		t.Errorf("Summarize = %+v, want %+v", got, want)
	}
}

func TestSeverityIsAWordInJSON(t *testing.T) {
	text, err := json.Marshal(Finding{Rule: "FUS060", Severity: Error, Subject: "pods", Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"rule":"FUS060","severity":"error","subject":"pods","message":"m"}`
	if string(text) != want {
		t.Errorf("Marshal = %s, want %s", text, want)
	}
	var back Finding
	if err := json.Unmarshal(text, &back); err != nil || back.Severity != Error {
		t.Errorf("Unmarshal = %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"severity":"fatal"}`), &back); err == nil {
		t.Error(`Unmarshal of severity "fatal" passed, want an error`)
	}
	if _, err := json.Marshal(Finding{}); err == nil {
		t.Error("Marshal of a finding without a severity passed, want an error")
	}
}

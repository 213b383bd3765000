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

func TestKeyAndCountInJSON(t *testing.T) {
	f := Finding{Rule: "FUS060", Severity: Error, Subject: "pods", Message: "m",
		Key: Key("FUS060", "pods", "", "legacy")}
	for count, want := range map[Count]string{0: "", 1: "", 2: `,"count":2`} {
		f.Count = count
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		want = `{"rule":"FUS060","severity":"error","subject":"pods","message":"m","key":"FUS060|pods|legacy"` + want +
			`}`
		if string(text) != want {
			t.Errorf("Marshal with count %d = %s, want %s", count, text, want)
		}
	}
}

func TestAccept(t *testing.T) {
	found := []Finding{{Rule: "FUS152", Subject: "pods"}, {Rule: "FUS152", Subject: "nodes"},
		{Rule: "FUS060", Subject: "pods"}}
	report, used := Accept(found, []Acceptance{
		{Rule: "FUS152", Subject: "pods", Reason: "first"}, {Rule: "FUS060", Reason: "second"},
		{Rule: "FUS152", Subject: "secrets", Reason: "third"},
	})
	want := Report{Findings: found[1:2], Accepted: []Accepted{{found[0], "first"}, {found[2], "second"}}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("Accept: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]bool{true, true, false}, used); diff != "" {
		t.Errorf("used: (-want +got)\n%s", diff)
	}
}

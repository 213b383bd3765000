package browse

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Every component has facts of each of its kinds, and of no other.
func TestOfEveryComponent(t *testing.T) {
	for _, component := range kubever.Components() {
		kinds := KindsOf(component)
		if len(kinds) == 0 {
			t.Errorf("%s has no facts", component)
		}
		for _, kind := range Kinds() {
			data, err := json.Marshal(Of(component, []string{kind}, kubever.Minors()))
			if err != nil {
				t.Fatal(err)
			}
			var parts map[string]any
			if err := json.Unmarshal(data, &parts); err != nil {
				t.Fatal(err)
			}
			if has := parts[kind] != nil; slices.Contains(kinds, kind) && !has {
				t.Errorf("%s: no facts of kind %s", component, kind)
			}
		}
	}
	if kinds := KindsOf("kube-proxy"); kinds != nil {
		t.Errorf("KindsOf of what has no facts = %v", kinds)
	}
}

// Minors that agree stand together.
func TestValuesStandTogether(t *testing.T) {
	minors := []kubever.Minor{6, 7, 8, 10}
	at := map[kubever.Minor]string{6: "a", 7: "a", 8: "b", 10: "b"}
	got := valuesOver(minors, func(m kubever.Minor) (string, bool) { return at[m], true })
	want := []Value{{"1.6-1.7", "a"}, {"1.8", "b"}, {"1.10", "b"}}
	if !slices.Equal(got, want) {
		t.Errorf("valuesOver = %v, want %v", got, want)
	}
	if got := minorsWhere(minors, func(m kubever.Minor) bool { return m > 7 }); got != "1.8,1.10" {
		t.Errorf("minorsWhere = %q", got)
	}
	if got := minorsWhere(minors, func(kubever.Minor) bool { return false }); got != "never" {
		t.Errorf("minorsWhere of none = %q", got)
	}
}

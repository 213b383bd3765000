package cli

import (
	"strings"
	"testing"
)

// TestAManualStepIsDoneByItsName: what checks found is agreed to as it was shown, and no number stands for it.
func TestAManualStepIsDoneByItsName(t *testing.T) {
	const found = "0123456789abcdef"
	for _, test := range []struct {
		done, found string
		is          bool
	}{
		{"012", "", true}, {"011", "", false}, {"", "", false}, {"012." + found, "", false},
		{"012." + found, found, true}, {"012", found, false}, {"012.fedcba9876543210", found, false},
		{"011." + found, found, false},
	} {
		p := stepPrinter{req: transitionRequest{done: strings.Fields(test.done)}, at: "012"}
		err := p.byHand("see that each may stay", test.found)
		if (err == nil) != test.is {
			t.Errorf("--done %q, found %q: %v", test.done, test.found, err)
		}
		want := strings.TrimSuffix("--done 012."+test.found, ".")
		if err != nil && !strings.HasSuffix(hintOf(err), want) {
			t.Errorf("--done %q, found %q: %v; want a way out with %s", test.done, test.found, err, want)
		}
	}
}

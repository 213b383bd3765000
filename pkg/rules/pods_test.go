package rules

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

// TestPodsWantTheControllersOnEveryHost: the modern server of a host asks nobody else.
func TestPodsWantTheControllersOnEveryHost(t *testing.T) {
	for more, want := range map[string]string{
		"pods: {}": "",
		"pods: {}\ncontrollers: {disabled: true}": "this plan runs none",
	} {
		p := plantest.Of(t, example{legacy: "1.10.13", access: toAccounts, more: more}.String())
		var messages []string
		for _, f := range inClusterConfiguration(p) {
			messages = append(messages, f.Message)
		}
		if got := strings.Join(messages, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", more, got, want)
		}
	}
}

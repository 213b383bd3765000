package rules

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
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

// TestDaemonSetsThatAdmissionPlaces: it does not see every pod, and a plan whose admission may be passed by runs no
// controller for them.
func TestDaemonSetsThatAdmissionPlaces(t *testing.T) {
	for more, want := range map[string]struct {
		severity finding.Severity
		says     string
	}{
		"pods: {}": {finding.Info, "not in kube-system and where it is turned off"},
		"pods: {admission: {failurePolicy: Ignore}}": {finding.Warning, "no controller acts on them"},
	} {
		p := plantest.Of(t, example{legacy: "1.10.13", access: daemonSetAccess, more: more}.String())
		found := of(Check(p), "FUS162")
		if len(found) != 1 || found[0].Severity != want.severity || !strings.Contains(found[0].Message, want.says) {
			t.Errorf("%s: %+v, want %+v", more, found, want)
		}
	}
}

package rules

import (
	"fmt"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

// TestInsecureAddresses: --address of an API server is --insecure-bind-address of before, whatever its spelling, and
// --port its --insecure-port; 0 turns it off.
func TestInsecureAddresses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want finding.Severity
	}{
		{[]string{"address=0.0.0.0"}, finding.Error},
		{[]string{"address=10.0.0.11"}, finding.Error},
		{[]string{"address=0.0.0.0", "port=8888"}, finding.Error},
		{[]string{"insecure-bind-address=0.0.0.0"}, finding.Error},
		{[]string{"insecure_bind_address=0.0.0.0"}, finding.Error},
		{[]string{"address=127.0.0.1"}, finding.Warning},
		{[]string{"port=8080"}, finding.Warning}, // on loopback by default
		{[]string{"address=0.0.0.0", "port=0"}, 0},
		{[]string{"address=0.0.0.0", "insecure-port=0"}, 0},
	} {
		server := append([]string{"etcd-servers=http://10.0.0.11:2379", "authorization-mode=RBAC",
			"client-ca-file=/etc/kubernetes/pki/ca.crt", "allow-privileged=true"}, c.args...)
		e := example{legacySide: "existing: true", legacyServer: args(server...)}
		found := of(Check(plantest.Of(t, e.String())), "FUS155")
		if got := finding.Worst(found); got != c.want {
			t.Errorf("%s: %v, want severity %v", fmt.Sprint(c.args), found, c.want)
		}
	}
}

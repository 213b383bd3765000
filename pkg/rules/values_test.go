package rules

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

func TestUnknownValuesOfArguments(t *testing.T) {
	for name, test := range map[string]struct {
		e        example
		severity finding.Severity // 0: silent
		message  string
	}{
		"a controller of another version": {example{legacy: "1.6.13",
			legacyManager: args("controllers=*,-statefulset")}, finding.Error, `no controller "statefulset"`},
		"the name that 1.6 has": {example{legacy: "1.6.13", legacyManager: args("controllers=*,-statefuleset")}, 0,
			""},
		"an alias": {
			example{modernManager: args("controllers=deployment,replicaset,root-ca-cert-publisher,job")}, 0, ""},
		"a gate that nobody has": {example{modernServer: args("feature-gates=CustomResourceValidaton=true")},
			finding.Error, "no feature gate"},
		"a gate that is locked": {example{modernServer: args("feature-gates=DisableAllocatorDualWrite=false")},
			finding.Error, "locked to true"},
		"a locked gate as it is": {
			example{modernServer: args("feature-gates=DisableAllocatorDualWrite=true,AllAlpha=false")}, 0, ""},
		"a plugin that went": {example{modernServer: args("enable-admission-plugins=PodSecurityPolicy")},
			finding.Error, `no admission plugin "PodSecurityPolicy"`},
		"a plugin that is there": {
			example{legacyServer: args("enable-admission-plugins=NodeRestriction,PodSecurityPolicy")}, 0, ""},
		"a mode that nobody has": {example{legacyServer: args("authorization-mode=Node,RBCA")}, finding.Error,
			`no authorization mode "RBCA"`},
		"a reconciler": {example{modernServer: args("endpoint-reconciler-type=leases")}, finding.Error,
			`no endpoint reconciler "leases"`},
		"cipher suites without HTTP/2's": {
			example{modernServer: args("tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")}, finding.Error,
			"does not start: HTTP/2 needs one of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		"cipher suites with it": {example{modernServer: args(
			"tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")}, 0, ""},
		"cipher suites beside TLS 1.3": {example{modernServer: args("tls-min-version=VersionTLS13",
			"tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")}, 0, ""},
		"a port without effect": {example{modern: "1.22.17", modernManager: args("port=10253")}, finding.Error,
			"kube-controller-manager 1.22 takes only 0 of this flag and does not start with 10253"},
		"a port that has an effect": {example{modern: "1.21.14", modernManager: args("port=10253")}, finding.Info,
			"deprecated"},
		"underscores": {example{legacyServer: args("audit_log_path=/var/log/audit.log")}, 0, ""},
		"a build that runs with it": {example{legacy: "1.6.13", legacySide: "existing: true",
			legacyServer: args("acme-magic=1"), legacyManager: args("controllers=*,acme")}, finding.Warning,
			"unless the build adds it"},
		"a vendor's build": {example{legacy: "1.6.13-acme.4", legacyServer: args("acme-magic=1")}, finding.Warning,
			"unless the build adds it"},
	} {
		var found []finding.Finding
		for _, f := range Check(plantest.Of(t, test.e.String())) {
			if f.Rule == "FUS074" {
				found = append(found, f)
			}
		}
		if test.severity == 0 {
			if len(found) > 0 {
				t.Errorf("%s: %v, want silence", name, found)
			}
			continue
		}
		if len(found) == 0 || found[0].Severity != test.severity || !strings.Contains(found[0].Message, test.message) {
			t.Errorf("%s: %v, want %v with %q", name, found, test.severity, test.message)
		}
	}
}

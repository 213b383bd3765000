package preflight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

const (
	oldForm = "kind: EncryptionConfig\napiVersion: v1\n"
	newForm = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n"
)

func providers(list ...string) string {
	return "resources:\n- resources: [secrets]\n  providers: [" + strings.Join(list, ", ") + "]\n"
}

func aes(name, secret string) string {
	return fmt.Sprintf("{aescbc: {keys: [{name: %s, secret: %s}]}}", name, secret)
}

// TestCheckReadsEncryptionConfigurations: both sides have a configuration of their own.
func TestCheckReadsEncryptionConfigurations(t *testing.T) {
	const identity, one, two = "{identity: {}}", "a2V5LW9uZQ==", "a2V5LXR3bw=="
	v1, v2 := "{kms: {name: k, endpoint: unix:///kms}}", "{kms: {name: k, apiVersion: v2, endpoint: unix:///kms}}"
	bothV1 := [2]string{oldForm + providers(v1), oldForm + providers(v1)}
	same := oldForm + providers(aes("a", one), identity)
	for _, test := range []struct {
		name           string
		legacy         kubever.Minor
		files          [2]string // of the legacy, of the modern side
		gates          string    // of the modern API server
		want, wantSays string
	}{
		{"the same", 15, [2]string{same, same}, "", "", ""},
		{"the same in both forms", 15, [2]string{newForm + providers(identity), same}, "", "FUS070",
			"the modern side encrypts with aescbc:a"},
		{"a form that 1.10 does not read", 10, [2]string{newForm + providers(aes("a", one)), same}, "", "FUS070",
			"1.10 reads v1 EncryptionConfig, and not"},
		{"neither form", 15, [2]string{same, "kind: Config\napiVersion: v1\n" + providers(aes("a", one))}, "", "FUS070",
			`and not "v1 Config"`},
		{"another key of the same name", 15, [2]string{same, oldForm + providers(aes("a", two))}, "", "FUS070 FUS070",
			"aescbc:a"},
		{"a rotation that has begun", 15, [2]string{oldForm + providers(aes("a", one), aes("b", two)),
			oldForm + providers(aes("b", two), aes("a", one))}, "", "", ""},
		{"a rotation out of order", 15, [2]string{same, oldForm + providers(aes("b", two), aes("a", one))}, "",
			"FUS070", "which the configuration of the legacy side does not have"},
		{"KMS v1 without its gate", 15, bothV1, "", "FUS070 FUS070",
			"while the feature gate KMSv1 is off"},
		{"KMS v1 that 1.24 reads", 24, bothV1, "KMSv1=true", "", ""},
		{"KMS v1 that 1.23 does not read", 23, bothV1, "KMSv1=true", "FUS070",
			"1.36 uses AES-GCM, which 1.23 does not decrypt"},
		{"KMS v1 to read with", 15, [2]string{oldForm + providers(aes("a", one), v1),
			oldForm + providers(aes("a", one), v1)}, "KMSv1=true", "", ""},
		{"KMS v2", 15, [2]string{oldForm + providers(v2), oldForm + providers(v2)}, "", "FUS070",
			"1.15 knows no provider kms/v2, and does not start"},
		{"an unknown provider", 15, [2]string{same, oldForm + providers(aes("a", one), "{rot13: {}}")}, "", "FUS070",
			"rot13"},
		{"no configuration", 15, [2]string{same, "- what\n"}, "", "FUS070", "is no encryption configuration"},
		{"an empty file", 15, [2]string{same, "\n"}, "", "FUS070", "is no encryption configuration"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := needsOf(t, "split-1.15-1.36", render.StaticPod, func(s string) string { return s })
			h := &Host{Files: map[string]File{}}
			for i, side := range pair.Sides() {
				file := fmt.Sprintf("/etc/kubernetes/encryption-%s.yaml", side)
				h.Files[file] = File{Data: []byte(test.files[i]), Mode: 0o600}
				for j := range n.Plan.Components {
					if c := &n.Plan.Components[j]; c.Side == side && c.Kind == kubever.APIServer {
						c.Args = append(c.Args, plan.Arg{Name: "encryption-provider-config", Value: file})
						if test.gates != "" {
							c.Args = append(c.Args, plan.Arg{Name: "feature-gates", Value: test.gates})
						}
					}
				}
			}
			n.Plan.Legacy.Version.Minor = test.legacy
			var rules, says []string
			for _, f := range Check(n, h, time.Now()) {
				if f.Rule == Undecryptable {
					rules, says = append(rules, f.Rule), append(says, f.Subject+": "+f.Message)
				}
				if f.Rule == Undecryptable && f.Severity != finding.Error {
					t.Errorf("%s is %s, want an error", f.Message, f.Severity)
				}
				for _, secret := range []string{one, two} {
					if strings.Contains(f.Message+f.Fix+f.Key, secret) {
						t.Errorf("%s prints a key", f.Message)
					}
				}
			}
			if got := strings.Join(rules, " "); got != test.want ||
				!strings.Contains(strings.Join(says, "\n"), test.wantSays) {
				t.Errorf("found %q, want %q that says %q: %q", got, test.want, test.wantSays, says)
			}
		})
	}
}

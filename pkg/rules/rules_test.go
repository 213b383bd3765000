package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

func of(found []finding.Finding, rule string) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return f.Rule != rule })
}

// Two cronjob controllers create two jobs for a schedule where they name them differently, and one otherwise.
func TestCronJobControllersThatNameJobsAlike(t *testing.T) {
	for _, test := range []struct {
		legacy, modern, controllers string
		want                        finding.Severity
		says                        string
	}{
		{"1.20.15", "1.36.3", "cronjob-controller,job-controller", finding.Error, "can list none of them any more"},
		{"1.15.12", "1.21.14", "cronjob,job", finding.Error, "creates a job for every schedule"},
		{"1.24.17", "1.36.3", "cronjob-controller,job-controller", finding.Warning, "one name"},
		{"1.10.13", "1.15.12", "cronjob,job", finding.Warning, "one name"},
	} {
		e := example{legacy: test.legacy, modern: test.modern,
			modernManager: args("controllers=" + test.controllers),
			more:          `owners: [{resources: [cronjobs.batch, jobs.batch], owner: legacy}]`}
		found := of(Check(plantest.Of(t, e.String())), "FUS085")
		if len(found) != 1 || found[0].Severity != test.want || !strings.Contains(found[0].Message, test.says) {
			t.Errorf("%s + %s: FUS085 = %+v, want %s that says %q", test.legacy, test.modern, found, test.want,
				test.says)
		}
	}
}

func TestBadExamplesFireAndGoodOnesAreSilent(t *testing.T) {
	for _, rule := range all() {
		if rule.ID == UnusedAccept {
			continue // package catalog runs it
		}
		t.Run(rule.ID, func(t *testing.T) {
			bad := of(Check(plantest.Of(t, rule.Bad)), rule.ID)
			if len(bad) == 0 {
				t.Errorf("the bad example of %s (%s) has no finding", rule.ID, rule.Title)
			}
			worst := finding.Worst(bad)
			if worst > rule.Severity {
				t.Errorf("%s reports %s, its severity is %s", rule.ID, worst, rule.Severity)
			}
			for _, f := range bad {
				if f.Subject == "" || f.Message == "" || f.Fix == "" {
					t.Errorf("a finding of %s lacks subject, message or fix: %+v", rule.ID, f)
				}
			}
			good := Check(plantest.Of(t, rule.Good))
			for _, f := range good {
				if f.Rule == rule.ID || f.Severity == finding.Error {
					t.Errorf("the good example of %s: %s %s %s: %s", rule.ID, f.Rule, f.Severity, f.Subject, f.Message)
				}
			}
		})
	}
}

func TestRulesAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range all() {
		if seen[rule.ID] {
			t.Errorf("%s stands twice", rule.ID)
		}
		seen[rule.ID] = true
		if rule.Title == "" || rule.Why == "" || rule.Severity == 0 || rule.Evidence.Read == "" || rule.Bad == "" ||
			rule.Good == "" || rule.check == nil {
			t.Errorf("%s lacks something: %+v", rule.ID, rule)
		}
		if strings.HasSuffix(rule.Title, ".") || len(strings.Fields(rule.Title)) > 14 {
			t.Errorf("%s: title %q: want a short clause without a full stop", rule.ID, rule.Title)
		}
		if rule.Bad == rule.Good {
			t.Errorf("%s: the bad and the good example are the same", rule.ID)
		}
	}
}

func TestEncryptionIsJudgedByWhatEachSideReads(t *testing.T) {
	const both = `pki: {encryptionConfiguration: /etc/kubernetes/encryption.yaml}`
	for _, test := range []struct {
		name string
		spec example
		want finding.Severity
		text string
	}{
		{"nobody encrypts", example{}, 0, ""},
		{"one file that both read", example{more: both}, 0, ""},
		{"a version that cannot", example{legacy: "1.6.13", more: both}, finding.Error, "can have none"},
		{"the legacy side alone", example{legacyServer: args("encryption-provider-config=/a.yaml")}, finding.Error,
			"has no keys"},
		{"two files", example{legacyServer: args("encryption-provider-config=/a.yaml"), more: both}, finding.Warning,
			"/a.yaml"},
		{"a version that reads the old form", example{legacy: "1.10.13", more: both}, finding.Info,
			"EncryptionConfig, apiVersion v1"},
	} {
		found := of(Check(plantest.Of(t, test.spec.String())), "FUS070")
		if got := finding.Worst(found); got != test.want ||
			len(found) > 0 && !strings.Contains(found[0].Message, test.text) {
			t.Errorf("%s: FUS070 = %+v, want severity %v with %q", test.name, found, test.want, test.text)
		}
	}
}

func TestDeprecatedArgumentsAreARemark(t *testing.T) {
	text := example{legacyServer: args("insecure-bind-address=127.0.0.1")}.String()
	found := of(Check(plantest.Of(t, text)), "FUS074")
	if len(found) != 1 || found[0].Severity != finding.Info || !strings.Contains(found[0].Message, "deprecated") {
		t.Errorf("FUS074 = %+v, want a remark that --insecure-bind-address is deprecated", found)
	}
}

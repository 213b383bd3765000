package promrules

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const files = "../../examples/monitoring/"

// series gives the labels of each series that fusionctl serves, by name.
func series(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../internal/monitoring/testdata/metrics.json")
	if err != nil {
		t.Fatal(err)
	}
	var parts []struct {
		Metrics []struct {
			Name, Kind string
			Labels     []string
		}
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for _, p := range parts {
		for _, m := range p.Metrics {
			known[m.Name] = m.Labels
			if m.Kind == "histogram" {
				delete(known, m.Name)
				known[m.Name+"_count"], known[m.Name+"_sum"] = m.Labels, m.Labels
				known[m.Name+"_bucket"] = append(slices.Clone(m.Labels), "le")
			}
		}
	}
	return known
}

// check parses an expression, and holds its names and labels against the series. Labels of the target are job and
// instance.
func check(t *testing.T, where, text string, known map[string][]string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	all := []string{"job", "instance"}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			of, found := known[v.Name]
			if !found {
				t.Errorf("%s: there is no series %s", where, v.Name)
			}
			all = append(all, of...)
			for _, m := range v.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(of, m.Name) {
					t.Errorf("%s: %s has no label %s", where, v.Name, m.Name)
				}
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !slices.Contains(all, label) {
					t.Errorf("%s: grouped by %s, which no series has", where, label)
				}
			}
		}
		return nil
	})
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(files+"rules.yaml", false, model.UTF8Validation,
		parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	var list []rulefmt.Rule
	for _, g := range groups.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

func TestRules(t *testing.T) {
	known := series(t)
	list := rules(t)
	if len(list) < 20 {
		t.Errorf("%d rules, want more", len(list))
	}
	for _, r := range list {
		check(t, r.Alert, r.Expr, known)
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	known := series(t)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			check(t, p.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), known)
		}
	}
}

// healthy are series of a pair in order, over two hours; each case below replaces what it names.
const healthy = `
fusionctl_certificate_good{job="a",instance="i",file="a.crt"} 1x120
fusionctl_certificate_remaining_seconds{job="a",instance="i",file="a.crt"} 8000000-60x120
fusionctl_etcd_findings{job="a",instance="i",rule="FUS060",severity="warning"} 3x120
fusionctl_etcd_fights{job="a",instance="i"} 0x120
fusionctl_etcd_check_complete{job="a",instance="i"} 1x120
fusionctl_etcd_last_check_timestamp_seconds{job="a",instance="i"} 0+60x120
fusionctl_etcd_changes_total{job="a",instance="i",store="core"} 0+10x120
fusionctl_etcd_missed_total{job="a",instance="i",store="core"} 0x120
fusionctl_etcd_checks_total{job="a",instance="i"} 0+1x120
fusionctl_controllers_stopped{job="a",instance="i"} 0x120
fusionctl_controllers_leading{job="a",instance="i"} 1x120
fusionctl_controllers_leading{job="a",instance="j"} 0x120
fusionctl_controllers_changes_total{job="a",instance="i",side="modern",resource="pods",what="delete",result="done"} 0+5x120
fusionctl_controllers_changes_total{job="a",instance="i",side="modern",resource="pods",what="delete",result="error"} 1x120
fusionctl_controllers_unlisted{job="a",instance="i",side="modern",resource="pods"} 0x120
fusionctl_controllers_doubts_total{job="a",instance="i"} 7x120
fusionctl_controllers_orphans{job="a",instance="i"} 0x120
fusionctl_controllers_queued{job="a",instance="i"} 12x120
fusionctl_controllers_review_seconds_count{job="a",instance="i",result="error"} 2x120
fusionctl_controllers_review_seconds_bucket{job="a",instance="i",result="changed",le="0.1"} 0+10x120
fusionctl_controllers_review_seconds_bucket{job="a",instance="i",result="changed",le="5"} 0+10x120
fusionctl_controllers_review_seconds_bucket{job="a",instance="i",result="changed",le="+Inf"} 0+10x120
fusionctl_policy_file_good{job="a",instance="i"} 1x120
fusionctl_policy_bad_reviews_total{job="a",instance="i"} 3x120
fusionctl_policy_rules{job="a",instance="i"} 10x120
fusionctl_policy_review_seconds_bucket{job="a",instance="i",le="0.1"} 0+10x120
fusionctl_policy_review_seconds_bucket{job="a",instance="i",le="1"} 0+10x120
fusionctl_policy_review_seconds_bucket{job="a",instance="i",le="+Inf"} 0+10x120
fusionctl_gateway_discovery_stale{job="a",instance="i",side="legacy"} 0x120
fusionctl_gateway_discovery_stale{job="a",instance="i",side="modern"} 0x120
fusionctl_gateway_requests_total{job="a",instance="i",route="both",code="200"} 0+10x120
fusionctl_gateway_requests_total{job="a",instance="i",route="none",code="501"} 0+1x120
fusionctl_gateway_requests_total{job="a",instance="i",route="both",code="503"} 2x120
fusionctl_gateway_requests_total{job="a",instance="i",route="both",code="aborted"} 2x120
fusionctl_gateway_flowcontrol_rejected_requests_total{job="a",instance="i",priority_level="users",reason="time-out"} 2x120
fusionctl_gateway_flowcontrol_rejected_requests_total{job="a",instance="i",priority_level="users",reason="cancelled"} 0+1x120
fusionctl_gateway_policy_good{job="a",instance="i"} 1x120
fusionctl_gateway_rules_good{job="a",instance="i"} 1x120
fusionctl_gateway_audit_errors_total{job="a",instance="i"} 3x120
fusionctl_operator_backed_up{job="a",control_plane="c"} 1x120
fusionctl_operator_backup_timestamp_seconds{job="a",control_plane="c"} 0x120
fusionctl_conversion_rules_good{job="a",instance="i"} 1x120
fusionctl_conversion_bad_reviews_total{job="a",instance="i"} 3x120
fusionctl_conversion_reviews_total{job="a",instance="i",result="Success"} 0+10x120
fusionctl_conversion_reviews_total{job="a",instance="i",result="Failure"} 4x120
fusionctl_conversion_crds{job="a",instance="i"} 2x120
fusionctl_conversion_review_seconds_bucket{job="a",instance="i",le="0.1"} 0+10x120
fusionctl_conversion_review_seconds_bucket{job="a",instance="i",le="10"} 0+10x120
fusionctl_conversion_review_seconds_bucket{job="a",instance="i",le="+Inf"} 0+10x120
`

// bad has for each alert the series that make it fire, of the name before the value; "" takes them all away.
var bad = map[string][2]string{
	"FusionctlEtcdFindings": {`fusionctl_etcd_findings{job="a",instance="i",rule="FUS060",severity=`,
		`"error"} 1x120`},
	"FusionctlEtcdFights":          {"fusionctl_etcd_fights{", `job="a",instance="i"} 1x120`},
	"FusionctlEtcdCheckIncomplete": {"fusionctl_etcd_check_complete{", `job="a",instance="i"} 0x120`},
	"FusionctlEtcdCheckOld":        {"fusionctl_etcd_last_check_timestamp_seconds{", `job="a",instance="i"} 60x120`},
	"FusionctlEtcdChangesMissed":   {"fusionctl_etcd_missed_total{", `job="a",instance="i",store="core"} 0+1x120`},
	"FusionctlEtcdWatchAbsent":     {"fusionctl_etcd_checks_total{", ""},

	"FusionctlControllersStopped":    {"fusionctl_controllers_stopped{", `job="a",instance="i"} 1x120`},
	"FusionctlControllersNotLeading": {"fusionctl_controllers_leading{", `job="a",instance="i"} 0x120`},
	"FusionctlControllersTwoLeaders": {`fusionctl_controllers_leading{job="a",instance="j"`, `} 1x120`},
	"FusionctlControllersAbsent":     {"fusionctl_controllers_leading{", ""},
	"FusionctlControllersErrors": {"fusionctl_controllers_changes_total{",
		`job="a",instance="i",side="modern",resource="pods",what="delete",result="error"} 0+1x120`},
	"FusionctlControllersUnlisted": {"fusionctl_controllers_unlisted{",
		`job="a",instance="i",side="modern",resource="pods"} 1x120`},
	"FusionctlControllersDoubts":  {"fusionctl_controllers_doubts_total{", `job="a",instance="i"} 0+1x120`},
	"FusionctlControllersOrphans": {"fusionctl_controllers_orphans{", `job="a",instance="i"} 5x120`},
	"FusionctlControllersQueue":   {"fusionctl_controllers_queued{", `job="a",instance="i"} 50000x120`},
	"FusionctlControllersReviewErrors": {"fusionctl_controllers_review_seconds_count{",
		`job="a",instance="i",result="error"} 0+1x120`},
	"FusionctlControllersReviewSlow": {
		`fusionctl_controllers_review_seconds_bucket{job="a",instance="i",result="changed",le="0.1"}`, ` 0+5x120`},

	"FusionctlPolicyFileBad":    {"fusionctl_policy_file_good{", `job="a",instance="i"} 0x120`},
	"FusionctlPolicyBadReviews": {"fusionctl_policy_bad_reviews_total{", `job="a",instance="i"} 0+1x120`},
	"FusionctlPolicySlow":       {`fusionctl_policy_review_seconds_bucket{job="a",instance="i",le="0.1"}`, ` 0+5x120`},
	"FusionctlPolicyAbsent":     {"fusionctl_policy_rules{", ""},

	"FusionctlConversionRulesBad": {"fusionctl_conversion_rules_good{", `job="a",instance="i"} 0x120`},
	"FusionctlConversionFailures": {"fusionctl_conversion_reviews_total{",
		`job="a",instance="i",result="Failure"} 0+1x120`},
	"FusionctlConversionBadReviews": {"fusionctl_conversion_bad_reviews_total{", `job="a",instance="i"} 0+1x120`},
	"FusionctlConversionSlow": {`fusionctl_conversion_review_seconds_bucket{job="a",instance="i",le="0.1"}`,
		` 0+5x120`},
	"FusionctlConversionAbsent": {"fusionctl_conversion_crds{", ""},

	"FusionctlGatewayDiscoveryStale": {"fusionctl_gateway_discovery_stale{",
		`job="a",instance="i",side="legacy"} 1x120`},
	"FusionctlGatewayClusterStale": {"fusionctl_gateway_cluster_stale{",
		`job="a",instance="i",cluster="far"} 1x120`},
	"FusionctlGatewayUnavailable": {`fusionctl_gateway_requests_total{job="a",instance="i",route="both",code="503"`,
		`} 0+1x120`},
	"FusionctlGatewayAborted": {`fusionctl_gateway_requests_total{job="a",instance="i",route="both",code="aborted"`,
		`} 0+1x120`},
	"FusionctlGatewaySaturated": {`fusionctl_gateway_flowcontrol_rejected_requests_total{job="a",instance="i",` +
		`priority_level="users",reason="time-out"`, `} 0+1x120`},
	"FusionctlGatewayPolicyBad":  {"fusionctl_gateway_policy_good{", `job="a",instance="i"} 0x120`},
	"FusionctlGatewayRulesBad":   {"fusionctl_gateway_rules_good{", `job="a",instance="i"} 0x120`},
	"FusionctlGatewayAuditFails": {"fusionctl_gateway_audit_errors_total{", `job="a",instance="i"} 0+1x120`},
	"FusionctlGatewayAbsent":     {"fusionctl_gateway_discovery_stale{", ""},

	"FusionctlOperatorNotBackedUp": {"fusionctl_operator_backed_up{", `job="a",control_plane="c"} 0x120`},
	"FusionctlOperatorBackupOld": {"fusionctl_operator_backup_timestamp_seconds{",
		`job="a",control_plane="c"} -700000x120`},

	"FusionctlCertificateKept": {"fusionctl_certificate_good{", `job="a",instance="i",file="a.crt"} 0x120`},
	"FusionctlCertificateExpires": {"fusionctl_certificate_remaining_seconds{",
		`job="a",instance="i",file="a.crt"} 500000x120`},
}

// TestAlertsFire: on healthy series no alert fires; on each bad series its alert does, and no other.
func TestAlertsFire(t *testing.T) {
	list := rules(t)
	for name, change := range bad {
		var lines []string
		for line := range strings.Lines(healthy) {
			if !strings.HasPrefix(line, change[0]) {
				lines = append(lines, line)
			}
		}
		if change[1] != "" {
			lines = append(lines, change[0]+change[1]+"\n")
		}
		if got := firing(t, list, strings.Join(lines, "")); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: fires %v", name, got)
		}
	}
	if got := firing(t, list, healthy); got != nil {
		t.Errorf("on healthy series %v fire", got)
	}
	for _, r := range list {
		if _, found := bad[r.Alert]; !found {
			t.Errorf("no case has %s fire", r.Alert)
		}
	}
}

// firing are the alerts whose expression has a value after 100 minutes.
func firing(t *testing.T, list []rulefmt.Rule, load string) (names []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(strings.TrimSpace(load), "\n", "\n  ")+"\n")
	defer storage.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute})
	defer engine.Close()
	for _, r := range list {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, r.Expr, time.Unix(6000, 0))
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		if len(vector) > 0 {
			names = append(names, r.Alert)
		}
		query.Close()
	}
	return names
}

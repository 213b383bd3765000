package monitoring

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Runbooks is the page that has a section for each alert.
const Runbooks = "https://github.com/kubefusion/fusionctl/blob/main/docs/alerts.md"

// Alert is a Prometheus alert.
type Alert struct {
	Part     string // whose metrics it is about
	Name     string
	Expr     string
	For      string
	Severity string // critical: data or pods are at risk now; warning: look at it in office hours
	Summary  string
}

// Alerts are all of them. Each has a section of its name in docs/alerts.md.
var alerts = []Alert{
	{"etcd", "FusionctlEtcdFindings", `max by (job, rule) (fusionctl_etcd_findings{severity="error"}) > 0`, "5m",
		"critical", "{{ $labels.rule }}: {{ $value }} findings in the stores; fusionctl etcd check lists the keys"},
	{"etcd", "FusionctlEtcdFights", `max by (job) (fusionctl_etcd_fights) > 0`, "10m", "critical",
		"Both sides overwrite {{ $value }} keys alternately"},
	{"etcd", "FusionctlEtcdCheckIncomplete", `min by (job, instance) (fusionctl_etcd_check_complete) == 0`, "15m",
		"warning", "The last check on {{ $labels.instance }} could not read all stores"},
	{"etcd", "FusionctlEtcdCheckOld",
		`(time() - max by (job, instance) (fusionctl_etcd_last_check_timestamp_seconds) > 1800)` +
			` and on (job, instance) (sum by (job, instance) (increase(fusionctl_etcd_changes_total[30m])) > 0)`, "5m",
		"warning", "The stores change, and {{ $labels.instance }} has not checked them for half an hour"},
	{"etcd", "FusionctlEtcdChangesMissed",
		`sum by (job, store) (increase(fusionctl_etcd_missed_total[1h])) > 3`, "0m", "warning",
		"Changes of store {{ $labels.store }} were missed {{ $value | humanize }} times within an hour"},
	{"etcd", "FusionctlEtcdWatchAbsent", `absent(fusionctl_etcd_checks_total)`, "15m", "warning",
		"No fusionctl etcd watch is scraped: the stores are not checked"},

	{"controllers", "FusionctlControllersStopped", `max by (job) (fusionctl_controllers_stopped) == 1`, "1m",
		"critical", "Deletions have stopped: a store is not the one that it was"},
	{"controllers", "FusionctlControllersNotLeading", `sum by (job) (fusionctl_controllers_leading) == 0`, "5m",
		"critical", "No process of the controllers acts: nothing is collected, no namespace is finalized"},
	{"controllers", "FusionctlControllersTwoLeaders", `sum by (job) (fusionctl_controllers_leading) > 1`, "2m",
		"critical", "{{ $value }} processes of the controllers act concurrently"},
	{"controllers", "FusionctlControllersAbsent", `absent(fusionctl_controllers_leading)`, "15m", "critical",
		"No fusionctl controllers is scraped"},
	{"controllers", "FusionctlControllersErrors",
		`sum by (job, side, resource, what) (rate(fusionctl_controllers_changes_total{result="error"}[15m])) > 0`,
		"15m", "warning",
		"{{ $labels.what }} of {{ $labels.resource }} on the {{ $labels.side }} side fails"},
	{"controllers", "FusionctlControllersUnlisted",
		`max by (job, side, resource) (fusionctl_controllers_unlisted) == 1`, "15m", "warning",
		"{{ $labels.resource }} of the {{ $labels.side }} side cannot be listed"},
	{"controllers", "FusionctlControllersDoubts",
		`sum by (job) (rate(fusionctl_controllers_doubts_total[15m])) > 0`, "1h", "warning",
		"Objects are left alone because a side that could hold an owner is unreachable"},
	{"controllers", "FusionctlControllersOrphans", `max by (job) (fusionctl_controllers_orphans) > 0`, "1h",
		"warning", "{{ $value }} objects are in namespaces that exist on no side"},
	{"controllers", "FusionctlControllersQueue", `max by (job) (fusionctl_controllers_queued) > 10000`, "30m",
		"warning", "{{ $value }} objects wait for the controllers"},
	{"controllers", "FusionctlControllersReviewErrors",
		`sum by (job) (rate(fusionctl_controllers_review_seconds_count{result="error"}[10m])) > 0`, "5m", "critical",
		"Admission reviews of pods fail"},
	{"controllers", "FusionctlControllersReviewSlow",
		`histogram_quantile(0.99, sum by (job, le) (rate(fusionctl_controllers_review_seconds_bucket[10m]))) > 1`,
		"10m", "warning", "One of a hundred admission reviews of pods takes {{ $value | humanizeDuration }}"},

	{"policy", "FusionctlPolicyFileBad", `min by (job, instance) (fusionctl_policy_file_good) == 0`, "5m",
		"critical", "The policy file of {{ $labels.instance }} is invalid; the previous one is in use"},
	{"policy", "FusionctlPolicyBadReviews",
		`sum by (job, instance) (rate(fusionctl_policy_bad_reviews_total[10m])) > 0`, "10m", "warning",
		"{{ $labels.instance }} gets authorization requests that it cannot read or answer in time"},
	{"policy", "FusionctlPolicySlow",
		`histogram_quantile(0.99, sum by (job, le) (rate(fusionctl_policy_review_seconds_bucket[10m]))) > 0.5`, "10m",
		"warning", "One of a hundred authorization requests takes {{ $value | humanizeDuration }}"},
	{"policy", "FusionctlPolicyAbsent", `absent(fusionctl_policy_rules)`, "15m", "critical",
		"No fusionctl policy serve is scraped: requests that ask it are denied"},

	{"conversion", "FusionctlConversionRulesBad", `min by (job, instance) (fusionctl_conversion_rules_good) == 0`,
		"5m", "critical", "The rules of {{ $labels.instance }} are invalid; the previous ones are in use"},
	{"conversion", "FusionctlConversionFailures",
		`sum by (job) (rate(fusionctl_conversion_reviews_total{result!="Success"}[10m])) > 0`, "10m", "critical",
		"Custom resources cannot be converted: their reads and writes fail"},
	{"conversion", "FusionctlConversionBadReviews",
		`sum by (job, instance) (rate(fusionctl_conversion_bad_reviews_total[10m])) > 0`, "10m", "warning",
		"{{ $labels.instance }} gets conversion reviews that it cannot read or answer in time"},
	{"conversion", "FusionctlConversionSlow",
		`histogram_quantile(0.99, sum by (job, le) (rate(fusionctl_conversion_review_seconds_bucket[10m]))) > 5`,
		"10m", "warning", "One of a hundred conversion reviews takes {{ $value | humanizeDuration }}"},
	{"conversion", "FusionctlConversionAbsent", `absent(fusionctl_conversion_crds)`, "15m", "critical",
		"No fusionctl crd webhook is scraped: custom resources in other versions cannot be read"},

	{"gateway", "FusionctlGatewayDiscoveryStale",
		`max by (job, instance, side) (fusionctl_gateway_discovery_stale) == 1`,
		"5m", "critical", "{{ $labels.instance }}: what the {{ $labels.side }} side serves is what it said earlier"},
	{"gateway", "FusionctlGatewayClusterStale",
		`max by (job, instance, cluster) (fusionctl_gateway_cluster_stale) == 1`, "10m", "warning",
		"{{ $labels.instance }}: the further cluster {{ $labels.cluster }} does not say what it serves"},
	{"gateway", "FusionctlGatewayUnavailable",
		`sum by (job, route) (rate(fusionctl_gateway_requests_total{code=~"5..",code!="501"}[10m])) > 0`, "10m",
		"warning",
		"requests at the gateway ({{ $labels.route }}) are answered with a server's error"},
	{"gateway", "FusionctlGatewayAborted",
		`sum by (job, route) (rate(fusionctl_gateway_requests_total{code="aborted"}[10m])) > 0`, "10m", "warning",
		"answers of the gateway ({{ $labels.route }}) break off in the middle"},
	{"gateway", "FusionctlGatewaySaturated",
		`sum by (job, instance) (rate(fusionctl_gateway_flowcontrol_rejected_requests_total{reason="time-out"}[10m]))` +
			` > 0`,
		"5m", "warning", "{{ $labels.instance }}: requests are refused because their turn does not come"},
	{"gateway", "FusionctlGatewayPolicyBad", `min by (job, instance) (fusionctl_gateway_policy_good) == 0`, "5m",
		"critical", "The gateway policy of {{ $labels.instance }} is invalid; the previous one is in use"},
	{"gateway", "FusionctlGatewayRulesBad", `min by (job, instance) (fusionctl_gateway_rules_good) == 0`, "5m",
		"critical", "The conversion rules of {{ $labels.instance }} are invalid; the previous ones are in use"},
	{"gateway", "FusionctlGatewayAuditFails",
		`sum by (job, instance) (increase(fusionctl_gateway_audit_errors_total[10m])) > 0`, "1m", "critical",
		"{{ $labels.instance }}: events cannot be written to the gateway's audit log"},
	{"gateway", "FusionctlGatewayAbsent", `absent(fusionctl_gateway_discovery_stale)`, "15m", "critical",
		"No fusionctl gateway is scraped"},

	{"operator", "FusionctlOperatorNotBackedUp",
		`max by (job, control_plane) (fusionctl_operator_backed_up) == 0`, "30m", "critical",
		"The last backup of {{ $labels.control_plane }} failed, or two that were due are missing"},
	{"operator", "FusionctlOperatorBackupOld",
		`time() - max by (job, control_plane) (fusionctl_operator_backup_timestamp_seconds) > 8 * 86400`, "1h", "warning",
		"The last good backup of {{ $labels.control_plane }} was made {{ $value | humanizeDuration }} ago"},

	{"certificates", "FusionctlCertificateKept", `min by (job, instance, file) (fusionctl_certificate_good) == 0`,
		"5m", "warning",
		"{{ $labels.instance }} serves with a previous certificate: the files of {{ $labels.file }} are invalid"},
	{"certificates", "FusionctlCertificateExpires",
		`min by (job, instance, file) (fusionctl_certificate_remaining_seconds) < 7 * 86400`, "15m", "critical",
		"The certificate {{ $labels.file }} of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}"},
}

// Alerts lists the alerts of the parts.
func Alerts(parts []Part) (list []Alert) {
	for _, a := range alerts {
		if slices.ContainsFunc(parts, func(p Part) bool { return p.Name == a.Part }) {
			list = append(list, a)
		}
	}
	return list
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// Rules is a file of Prometheus alert rules: a group for each part, each alert with the link of its runbook.
func Rules(parts []Part) ([]byte, error) {
	var file struct {
		Groups []group `json:"groups"`
	}
	for _, p := range parts {
		g := group{Name: "fusionctl-" + p.Name}
		for _, a := range Alerts([]Part{p}) {
			g.Rules = append(g.Rules, rule{Alert: a.Name, Expr: a.Expr, For: a.For,
				Labels: map[string]string{"severity": a.Severity},
				Annotations: map[string]string{"summary": a.Summary,
					"runbook_url": Runbooks + "#" + strings.ToLower(a.Name)}})
		}
		file.Groups = append(file.Groups, g)
	}
	text, err := yaml.Marshal(file)
	return append([]byte("# Prometheus alert rules, generated by fusionctl monitoring rules.\n"), text...), err
}

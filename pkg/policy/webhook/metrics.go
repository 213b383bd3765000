package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// Metrics counts what the webhook does. All are named fusionctl_policy_*.
type Metrics struct {
	*webserver.Metrics
	decisions *prometheus.CounterVec
}

// NewMetrics registers the metrics. It panics, as prometheus does, when they are registered already.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	const prefix = "fusionctl_policy_"
	m := &Metrics{
		Metrics: webserver.NewMetrics(registry, webserver.Names{
			Prefix: prefix, Files: "policy file", Good: "file_good", Size: "rules",
			SizeHelp: "Rules of the policy in use.",
			Buckets:  prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "decisions_total",
			Help: "Reviews served, by decision (allow, deny, no-opinion) and by version of the review.",
		}, []string{"decision", "version"}),
	}
	registry.MustRegister(m.decisions)
	return m
}

func (m *Metrics) decided(version string, status authorizationv1.SubjectAccessReviewStatus, took time.Duration) {
	decision := "no-opinion"
	switch {
	case status.Allowed:
		decision = "allow"
	case status.Denied:
		decision = "deny"
	}
	m.decisions.WithLabelValues(decision, version).Inc()
	m.Seconds.Observe(took.Seconds())
}

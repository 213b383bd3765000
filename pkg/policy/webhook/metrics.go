package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Metrics counts what the webhook does. All are named fusionctl_policy_*.
type Metrics struct {
	decisions *prometheus.CounterVec
	bad       prometheus.Counter
	seconds   prometheus.Histogram
	reloads   *prometheus.CounterVec
	loaded    prometheus.Gauge
	good      prometheus.Gauge
	rules     prometheus.Gauge
}

// NewMetrics registers the metrics. It panics, as prometheus does, when they are registered already.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fusionctl_policy_decisions_total", Help: "Reviews answered, by decision (allow, deny, no-opinion) and by version of the review.",
		}, []string{"decision", "version"}),
		bad: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fusionctl_policy_bad_reviews_total", Help: "Reviews that could not be read and were not answered by a decision.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fusionctl_policy_review_seconds", Help: "Time from the first byte of a review to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fusionctl_policy_reloads_total", Help: "Changes of the policy file, by result (loaded, kept).",
		}, []string{"result"}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fusionctl_policy_loaded_timestamp_seconds", Help: "When the policy in use was loaded.",
		}),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fusionctl_policy_file_good", Help: "1 if the policy in use is the one in the file, 0 if the file is bad and an older one is kept.",
		}),
		rules: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fusionctl_policy_rules", Help: "Rules of the policy in use.",
		}),
	}
	registry.MustRegister(m.decisions, m.bad, m.seconds, m.reloads, m.loaded, m.good, m.rules)
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
	m.seconds.Observe(took.Seconds())
}

func (m *Metrics) refused() { m.bad.Inc() }

func (m *Metrics) load(rules int, now time.Time) {
	m.reloads.WithLabelValues("loaded").Inc()
	m.loaded.Set(float64(now.Unix()))
	m.good.Set(1)
	m.rules.Set(float64(rules))
}

func (m *Metrics) keep() {
	m.reloads.WithLabelValues("kept").Inc()
	m.good.Set(0)
}

package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

// metrics are those of a watch.
type metrics struct {
	registry  *prometheus.Registry
	findings  *prometheus.GaugeVec
	keys      *prometheus.GaugeVec
	bytes     *prometheus.GaugeVec
	complete  prometheus.Gauge
	lastCheck prometheus.Gauge
	duration  prometheus.Gauge
	checks    prometheus.Counter
	fights    prometheus.Gauge
	changes   *prometheus.CounterVec
	missed    *prometheus.CounterVec
}

// Describe registers the metrics of a watch that does not run, for what shows them.
func Describe(registry prometheus.Registerer) { registry.MustRegister(newMetrics().collectors()...) }

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name,
			Help: help})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name,
			Help: help}, labels)
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name, Help: help}
	}
	store := []string{"store"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		findings: gauges("findings", "Findings at present, by rule and severity.", "rule", "severity"),
		keys:     gauges("keys", "Keys of each resource in each store, at the last check.", "store", "resource"),
		bytes: gauges("value_bytes", "Bytes of the values of each resource in each store, at the last check.",
			"store", "resource"),
		complete:  gauge("check_complete", "1 when the last check could read all stores to their end, else 0."),
		lastCheck: gauge("last_check_timestamp_seconds", "When the last check ended."),
		duration:  gauge("last_check_duration_seconds", "How long the last check took."),
		checks:    prometheus.NewCounter(counter("checks_total", "Checks of all stores.")),
		fights:    gauge("fights", "Keys that both sides overwrite in turn, at present."),
		changes:   prometheus.NewCounterVec(counter("changes_total", "Changes seen in each store."), store),
		missed: prometheus.NewCounterVec(
			counter("missed_total", "How often changes of a store were missed, so that it was checked anew."), store),
	}
	m.registry.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.findings, m.keys, m.bytes, m.complete, m.lastCheck, m.duration, m.checks,
		m.fights, m.changes, m.missed}
}

// mostSeries of a store have a resource of their own, and those that the plan knows beyond that: whatever a key says is
// one.
const mostSeries = 500

func (m *metrics) checked(report *scan.Report, took time.Duration) {
	m.keys.Reset()
	m.bytes.Reset()
	series := map[string]int{} // by store
	for _, r := range report.Resources {
		if series[r.Store]++; series[r.Store] > mostSeries && r.Owner == "" {
			r.Resource = "(others)"
		}
		m.keys.WithLabelValues(r.Store, r.Resource).Add(float64(r.Keys))
		m.bytes.WithLabelValues(r.Store, r.Resource).Add(float64(r.Bytes))
	}
	m.complete.Set(0)
	if report.Complete {
		m.complete.Set(1)
	}
	m.checks.Inc()
	m.duration.Set(took.Seconds())
	m.lastCheck.SetToCurrentTime()
}

func (m *metrics) found(findings []finding.Finding) {
	m.findings.Reset()
	for _, f := range findings {
		m.findings.WithLabelValues(f.Rule, f.Severity.String()).Inc()
	}
}

package webserver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Names are what a webhook's metrics are called.
type Names struct {
	Prefix         string // of every one: "fusionctl_policy_"
	Files          string // what is read again when it changes: "policy file"
	Good           string // the metric that is 1 while what is in use is what the files hold
	Size, SizeHelp string // the metric of how much is in use
	Buckets        []float64
}

// Metrics are those that every webhook has.
type Metrics struct {
	Bad     prometheus.Counter   // reviews that were not answered by a decision
	Seconds prometheus.Histogram // of the others

	reloads *prometheus.CounterVec
	loaded  prometheus.Gauge
	good    prometheus.Gauge
	size    prometheus.Gauge
}

// NewMetrics registers the metrics. It panics, as prometheus does, when they are registered already.
func NewMetrics(registry prometheus.Registerer, n Names) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: n.Prefix + name, Help: help})
	}
	m := &Metrics{
		Bad: prometheus.NewCounter(prometheus.CounterOpts{
			Name: n.Prefix + "bad_reviews_total", Help: "Reviews that could not be read, or not be answered in time.",
		}),
		Seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: n.Prefix + "review_seconds", Help: "Time from the first byte of a review to its answer.",
			Buckets: n.Buckets,
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: n.Prefix + "reloads_total", Help: "Changes of the " + n.Files + ", by result (loaded, kept).",
		}, []string{"result"}),
		loaded: gauge("loaded_timestamp_seconds", "When the configuration in use was loaded."),
		good: gauge(n.Good, "1 if the configuration in use is that of the "+n.Files+
			", 0 if that is invalid and the previous one is in use."),
		size: gauge(n.Size, n.SizeHelp),
	}
	registry.MustRegister(m.Bad, m.Seconds, m.reloads, m.loaded, m.good, m.size)
	return m
}

func (m *Metrics) taken(size int, now time.Time) {
	m.reloads.WithLabelValues("loaded").Inc()
	m.loaded.Set(float64(now.Unix()))
	m.good.Set(1)
	m.size.Set(float64(size))
}

func (m *Metrics) kept() {
	m.reloads.WithLabelValues("kept").Inc()
	m.good.Set(0)
}

package controllers

import "github.com/prometheus/client_golang/prometheus"

// metrics of one run, in a registry of their own.
type metrics struct {
	registry *prometheus.Registry
	changes  *prometheus.CounterVec
	doubts   prometheus.Counter
	orphans  prometheus.Gauge
	unsynced *prometheus.GaugeVec
	reviews  *prometheus.HistogramVec
	stopped  prometheus.Gauge
}

// Describe registers the metrics of a run that does not run, for what shows them.
func Describe(registry prometheus.Registerer) {
	m, zero := newMetrics(), func() int { return 0 }
	for _, c := range append(m.collectors(), m.sizes(zero, zero, zero)...) {
		registry.MustRegister(c)
	}
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fusionctl_controllers_changes_total",
			Help: "Deletions and changes of objects, by operation, side, resource and result."},
			[]string{"what", "side", "resource", "result"}),
		doubts: prometheus.NewCounter(prometheus.CounterOpts{Name: "fusionctl_controllers_doubts_total",
			Help: "Objects that were kept because the lookup of an owner failed or was incomplete."}),
		orphans: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fusionctl_controllers_orphans",
			Help: "Objects whose namespace is on no side, at the last scan."}),
		unsynced: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fusionctl_controllers_unlisted",
			Help: "1 for each resource whose objects could not be listed yet."}, []string{"side", "resource"}),
	}
	m.reviews = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fusionctl_controllers_review_seconds",
		Help:    "Latency of admission reviews of pods, by result: changed, unchanged, refused, error.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .1, .5, 1, 5}}, []string{"result"})
	m.stopped = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fusionctl_controllers_stopped",
		Help: "1 while deletions are stopped because a store changed, until an operator acknowledges."})
	m.registry.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.changes, m.doubts, m.orphans, m.unsynced, m.reviews, m.stopped}
}

// sizes registers gauges that are computed when they are scraped.
func (m *metrics) sizes(objects, queued, leading func() int) []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return float64(value())
		})
	}
	list := []prometheus.Collector{
		gauge("fusionctl_controllers_objects", "Objects of both sides whose metadata is held.", objects),
		gauge("fusionctl_controllers_queued", "Objects in the queue of the garbage collector.", queued),
		gauge("fusionctl_controllers_leading", "1 while this process is the leader, 0 while it stands by.", leading),
	}
	m.registry.MustRegister(list...)
	return list
}

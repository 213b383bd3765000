package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the webhook does. All are named fusionctl_conversion_*.
type Metrics struct {
	reviews *prometheus.CounterVec
	objects prometheus.Counter
	bad     prometheus.Counter
	seconds prometheus.Histogram
	reloads *prometheus.CounterVec
	good    prometheus.Gauge
	crds    prometheus.Gauge
}

// NewMetrics registers the metrics. It panics, as prometheus does, when they are registered already.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fusionctl_conversion_reviews_total", Help: "Reviews answered, by result (Success, Failure).",
		}, []string{"result"}),
		objects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fusionctl_conversion_objects_total", Help: "Objects converted.",
		}),
		bad: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fusionctl_conversion_bad_reviews_total", Help: "Reviews that could not be read, or not be answered in time.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fusionctl_conversion_review_seconds", Help: "Time from the first byte of a review to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 11),
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fusionctl_conversion_reloads_total", Help: "Changes of the rules, by result (loaded, kept).",
		}, []string{"result"}),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fusionctl_conversion_rules_good", Help: "1 if the rules in use are those in the files, 0 if the files are bad and older rules are kept.",
		}),
		crds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fusionctl_conversion_crds", Help: "CRDs that there are rules for.",
		}),
	}
	registry.MustRegister(m.reviews, m.objects, m.bad, m.seconds, m.reloads, m.good, m.crds)
	return m
}

func (m *Metrics) answered(answer *response, took time.Duration) {
	m.reviews.WithLabelValues(answer.Result.Status).Inc()
	m.objects.Add(float64(len(answer.ConvertedObjects)))
	m.seconds.Observe(took.Seconds())
}

package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// Metrics counts what the webhook does. All are named fusionctl_conversion_*.
type Metrics struct {
	*webserver.Metrics
	reviews *prometheus.CounterVec
	objects prometheus.Counter
	refused prometheus.Counter
}

// NewMetrics registers the metrics. It panics, as prometheus does, when they are registered already.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	const prefix = "fusionctl_conversion_"
	m := &Metrics{
		Metrics: webserver.NewMetrics(registry, webserver.Names{
			Prefix: prefix, Files: "rules directory", Good: "rules_good", Size: "crds",
			SizeHelp: "CRDs that there are rules for.",
			Buckets:  prometheus.ExponentialBuckets(0.0001, 3, 11),
		}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "reviews_total", Help: "Reviews answered, by result (Success, Failure).",
		}, []string{"result"}),
		objects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "objects_total", Help: "Objects converted.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "kept_refused_total",
			Help: "Values of annotations not put back, because the schema of the version does not allow them.",
		}),
	}
	registry.MustRegister(m.reviews, m.objects, m.refused)
	return m
}

func (m *Metrics) answered(answer *response, took time.Duration) {
	m.reviews.WithLabelValues(answer.Result.Status).Inc()
	m.objects.Add(float64(len(answer.ConvertedObjects)))
	m.Seconds.Observe(took.Seconds())
}

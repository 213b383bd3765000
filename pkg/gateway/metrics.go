package gateway

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	stale    *prometheus.GaugeVec
	policy   prometheus.Gauge
}

// Describe registers the metrics of a gateway that does not run, for what shows them.
func Describe(registry prometheus.Registerer) { newMetrics(registry) }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fusionctl_gateway_requests_total",
			Help: "Requests, by how they were served and the code of the answer; aborted where a side broke it off, " +
				"gone where the client did."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fusionctl_gateway_request_seconds",
			Help:    "Time from a request to the end of its answer, streams included, by how it was served.",
			Buckets: prometheus.ExponentialBuckets(0.002, 4, 8)}, []string{"route"}),
		stale: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fusionctl_gateway_discovery_stale",
			Help: "1 while discovery of a side fails and older results serve."}, []string{"side"}),
	}
	m.policy = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fusionctl_gateway_policy_good",
		Help: "0 while an earlier policy decides, because the file is invalid; 1 without a policy."})
	m.policy.Set(1)
	registry.MustRegister(m.requests, m.seconds, m.stale, m.policy)
	return m
}

func (m *metrics) count(route, end string, took time.Duration) {
	m.requests.WithLabelValues(route, end).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// counter remembers the code of an answer.
type counter struct {
	http.ResponseWriter
	code int
}

func (c *counter) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

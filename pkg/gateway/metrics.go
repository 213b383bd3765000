package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	stale    *prometheus.GaugeVec
}

// Describe registers the metrics of a gateway that does not run, for what shows them.
func Describe(registry prometheus.Registerer) { newMetrics(registry) }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fusionctl_gateway_requests_total",
			Help: "Requests, by how they were served and the code of the answer."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fusionctl_gateway_request_seconds",
			Help:    "Time from a request to the end of its answer, streams included, by how it was served.",
			Buckets: prometheus.ExponentialBuckets(0.002, 4, 8)}, []string{"route"}),
		stale: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fusionctl_gateway_discovery_stale",
			Help: "1 while what a side serves is what it said earlier."}, []string{"side"}),
	}
	registry.MustRegister(m.requests, m.seconds, m.stale)
	return m
}

func (m *metrics) count(route string, code int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(code)).Inc()
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

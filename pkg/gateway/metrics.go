package gateway

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	stale    *prometheus.GaugeVec
	clusters *prometheus.GaugeVec
	policy   prometheus.Gauge
	rules    prometheus.Gauge

	audited, unaudited prometheus.Counter

	// of requests that wait for a seat, by priority level, in the words of API priority and fairness
	waiting, executing *prometheus.GaugeVec
	refused            *prometheus.CounterVec
	wait               *prometheus.HistogramVec
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
		clusters: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fusionctl_gateway_cluster_stale",
			Help: "1 while discovery of a further cluster fails and older results serve, if there are any."},
			[]string{"cluster"}),
	}
	m.policy = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fusionctl_gateway_policy_good",
		Help: "0 while an earlier policy decides, because the file is invalid; 1 without a policy."})
	m.policy.Set(1)
	m.rules = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fusionctl_gateway_rules_good",
		Help: "0 while earlier rules convert custom resources, because the files are invalid; 1 without rules."})
	m.rules.Set(1)
	m.audited = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusionctl_gateway_audit_events_total",
		Help: "Events written to the audit log."})
	m.unaudited = prometheus.NewCounter(prometheus.CounterOpts{Name: "fusionctl_gateway_audit_errors_total",
		Help: "Events that could not be written to the audit log."})
	m.waiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fusionctl_gateway_flowcontrol_current_inqueue_requests",
		Help: "Requests that wait for their turn, by priority level."}, []string{"priority_level"})
	m.executing = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fusionctl_gateway_flowcontrol_current_executing_requests",
		Help: "Requests that are served, watches, streams and slow ones left out, by priority level."},
		[]string{"priority_level"})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fusionctl_gateway_flowcontrol_rejected_requests_total",
		Help: "Requests that were refused: time-out where their turn did not come, cancelled where the client did " +
			"not wait for it, concurrency-limit where their user, or watches of all users, are too many."},
		[]string{"priority_level", "reason"})
	m.wait = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fusionctl_gateway_flowcontrol_request_wait_duration_seconds",
		Help:    "How long requests waited for their turn, by priority level and whether it came.",
		Buckets: []float64{0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15}}, []string{"priority_level", "execute"})
	for _, component := range []bool{false, true} { // rates need a series from the start
		m.waiting.WithLabelValues(level(component))
		m.executing.WithLabelValues(level(component))
		for _, reason := range []string{"time-out", "cancelled", "concurrency-limit"} {
			m.refused.WithLabelValues(level(component), reason)
		}
	}
	registry.MustRegister(m.waiting, m.executing, m.refused, m.wait)
	registry.MustRegister(m.requests, m.seconds, m.stale, m.clusters, m.policy, m.rules, m.audited, m.unaudited)
	return m
}

func (m *metrics) count(route, end string, took time.Duration) {
	m.requests.WithLabelValues(route, end).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// waited counts a request that has, or has not, got its turn.
func (m *metrics) waited(component, execute bool, took time.Duration) {
	m.wait.WithLabelValues(level(component), strconv.FormatBool(execute)).Observe(took.Seconds())
}

// refuses counts a request that is refused for its number.
func (m *metrics) refuses(component bool, reason string) {
	m.refused.WithLabelValues(level(component), reason).Inc()
}

// counter remembers the code of an answer, and lets the audit log see the answer.
type counter struct {
	http.ResponseWriter
	code  int
	begun bool
	audit *record // nil for none

	extension *extension // nil where the answer has no end of its own
}

func (c *counter) begin(code int) {
	if c.begun {
		return
	}
	c.code, c.begun = code, true
	c.extension.answers()
	if c.audit != nil {
		c.audit.answers(code, c.Header())
	}
}

// WriteHeader implements http.ResponseWriter.
func (c *counter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols { // others are not the answer yet
		c.begin(code)
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (c *counter) Write(p []byte) (int, error) {
	c.begin(http.StatusOK)
	if c.audit != nil {
		c.audit.answer.add(p)
	}
	return c.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker: the connection is another program's from now on.
func (c *counter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err == nil {
		c.begin(http.StatusSwitchingProtocols)
	}
	return connection, buffer, err
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

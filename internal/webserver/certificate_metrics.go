package webserver

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CertificateMetrics are those of the certificates that a process serves with. The files are looked at when they are
// scraped, so that bad ones show before a client connects. The zero value has none. Safe for concurrent use.
type CertificateMetrics struct {
	mu  sync.Mutex
	all []*Certificates
}

var (
	certificateGood = prometheus.NewDesc("fusionctl_certificate_good",
		"1 if the certificate in use is that of its files, 0 if those are invalid and the previous one is in use.",
		[]string{"file"}, nil)
	certificateRemaining = prometheus.NewDesc("fusionctl_certificate_remaining_seconds",
		"How long the certificate in use is still valid; negative once it has expired.", []string{"file"}, nil)
)

// Add adds a certificate.
func (m *CertificateMetrics) Add(c *Certificates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, c)
}

// Describe describes the metrics.
func (m *CertificateMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- certificateGood
	to <- certificateRemaining
}

// Collect looks at the files. Two listeners with one certificate are one series, which shows the worse.
func (m *CertificateMetrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	all := slices.Clone(m.all)
	m.mu.Unlock()
	good, until := map[string]float64{}, map[string]time.Time{}
	for _, c := range all {
		isGood, end := c.state()
		value := 0.0
		if isGood {
			value = 1
		}
		if before, twice := good[c.Cert]; twice {
			value = min(value, before)
			if until[c.Cert].Before(end) {
				end = until[c.Cert]
			}
		}
		good[c.Cert], until[c.Cert] = value, end
	}
	for _, file := range slices.Sorted(maps.Keys(good)) {
		to <- prometheus.MustNewConstMetric(certificateGood, prometheus.GaugeValue, good[file], file)
		to <- prometheus.MustNewConstMetric(certificateRemaining, prometheus.GaugeValue,
			time.Until(until[file]).Seconds(), file)
	}
}

// state reports whether the files are those in use, and until when the certificate in use is valid.
func (c *Certificates) state() (good bool, until time.Time) {
	config, err := c.current()
	if err != nil {
		return false, time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why == "", config.Certificates[0].Leaf.NotAfter
}

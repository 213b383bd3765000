package webserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// scraped are the values of the metrics by name and file.
func scraped(t *testing.T, m *CertificateMetrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values[family.GetName()+" "+filepath.Base(metric.GetLabel()[0].GetValue())] = metric.GetGauge().GetValue()
		}
	}
	return values
}

// A reload that failed shows when the metrics are scraped, without a connection, and so does its end.
func TestMetricsShowACertificateThatIsKept(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert, key := ca.issue(t, "server")
	c := &Certificates{Cert: write("server.crt", cert), Key: write("server.key", key)}
	withClients := &Certificates{Cert: c.Cert, Key: c.Key, ClientCA: write("ca.crt", ca.pem)}
	m := &CertificateMetrics{}
	for _, c := range []*Certificates{c, withClients} {
		if _, err := c.Config(); err != nil {
			t.Fatal(err)
		}
		m.Add(c)
	}
	wants := func(when string, good float64) {
		t.Helper()
		got := scraped(t, m)
		if left := got["fusionctl_certificate_remaining_seconds server.crt"]; len(got) != 2 ||
			got["fusionctl_certificate_good server.crt"] != good || left <= 0 || left > 3600 {
			t.Errorf("%s: %v, want good %g and at most an hour left", when, got, good)
		}
	}
	wants("at the start", 1)
	write("ca.crt", []byte("no certificate of a CA"))
	wants("with a bad CA of clients of one of two listeners", 0)
	write("ca.crt", ca.pem)
	wants("with the CA as it was", 1)
	write("server.crt", []byte("none"))
	wants("with a bad certificate", 0)
	if err := os.Remove(c.Key); err != nil {
		t.Fatal(err)
	}
	wants("without a key", 0)
	cert, key = ca.issue(t, "the next server")
	write("server.crt", cert)
	write("server.key", key)
	wants("with the next certificate", 1)
}

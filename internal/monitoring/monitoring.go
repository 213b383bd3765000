// Package monitoring generates what shows and watches the metrics of fusionctl's servers: a Grafana dashboard, computed
// from the metrics that exist, and Prometheus alert rules.
package monitoring

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/controllers"
	"github.com/kubefusion/fusionctl/pkg/etcd/watch"
	"github.com/kubefusion/fusionctl/pkg/gateway"
	conversion "github.com/kubefusion/fusionctl/pkg/hub/webhook"
	"github.com/kubefusion/fusionctl/pkg/operator"
	policy "github.com/kubefusion/fusionctl/pkg/policy/webhook"
)

// Kind is how a metric behaves.
type Kind string

// The kinds that fusionctl has.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one family of series.
type Metric struct {
	Name   string   `json:"name"`
	Kind   Kind     `json:"kind"`
	Help   string   `json:"help"`
	Labels []string `json:"labels,omitempty"`
}

// Part is a server of fusionctl that serves metrics, or what all of them have.
type Part struct {
	Name    string   `json:"name"` // etcd, controllers, policy, conversion, gateway, operator, certificates
	Command string   `json:"command"`
	Metrics []Metric `json:"metrics"`
}

// Parts lists what serves metrics, with all of them, by name.
func Parts() []Part {
	parts := []Part{
		{Name: "etcd", Command: "fusionctl etcd watch"},
		{Name: "controllers", Command: "fusionctl controllers"},
		{Name: "policy", Command: "fusionctl policy serve"},
		{Name: "conversion", Command: "fusionctl crd webhook"},
		{Name: "gateway", Command: "fusionctl gateway"},
		{Name: "operator", Command: "fusionctl operator"},
		{Name: "certificates", Command: "certificates of every server"},
	}
	for i, describe := range []func(prometheus.Registerer){
		watch.Describe,
		controllers.Describe,
		func(r prometheus.Registerer) { policy.NewMetrics(r) },
		func(r prometheus.Registerer) { conversion.NewMetrics(r) },
		gateway.Describe,
		operator.Describe,
		func(r prometheus.Registerer) { r.MustRegister(&webserver.CertificateMetrics{}) },
	} {
		var found recorder
		describe(&found)
		slices.SortFunc(found.metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
		parts[i].Metrics = found.metrics
	}
	return parts
}

// PartNames lists the names of the parts.
func PartNames() (names []string) {
	for _, p := range Parts() {
		names = append(names, p.Name)
	}
	return names
}

// recorder is a registry that remembers what is registered.
type recorder struct{ metrics []Metric }

func (r *recorder) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 16)
	c.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		m, err := described(d)
		if err != nil {
			return err
		}
		m.Kind = kindOf(c)
		r.metrics = append(r.metrics, m)
	}
	return nil
}

func (r *recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

func kindOf(c prometheus.Collector) Kind {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return Histogram
	case prometheus.Gauge: // it can do what a counter can
		return Gauge
	case *prometheus.CounterVec, prometheus.Counter:
		return Counter
	default:
		return Gauge
	}
}

// description is how client_golang prints a Desc, which does not give its parts away.
var description = regexp.MustCompile(
	`^Desc\{fqName: "(\w+)", help: "((?:[^"\\]|\\.)*)", constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

func described(d *prometheus.Desc) (Metric, error) {
	found := description.FindStringSubmatch(d.String())
	if found == nil {
		return Metric{}, fmt.Errorf("monitoring: internal error: %s is printed in another way", d)
	}
	m := Metric{Name: found[1], Help: found[2]}
	if found[3] != "" {
		m.Labels = strings.Split(found[3], ",")
	}
	return m, nil
}

package monitoring

import (
	"encoding/json"
	"strings"
)

// The shapes below are those of a Grafana dashboard, as far as it is used: Grafana 9 and later read them.
type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Label string `json:"label"`
	Query string `json:"query"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     position     `json:"gridPos"`
	Collapsed   *bool        `json:"collapsed,omitempty"`
	Datasource  *source      `json:"datasource,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
}

type position struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults struct {
		Unit string `json:"unit"`
		Min  *int   `json:"min,omitempty"`
	} `json:"defaults"`
	Overrides []struct{} `json:"overrides"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

const (
	columns     = 24 // of Grafana's grid
	panelWidth  = 8
	panelHeight = 7
)

// Dashboard is a Grafana dashboard of the parts: a row for each, with a panel for each metric that it has.
func Dashboard(parts []Part) ([]byte, error) {
	d := dashboard{UID: "fusionctl", Title: "fusionctl", SchemaVersion: 39, Refresh: "1m", Tags: []string{"fusionctl"},
		Description: "The servers of fusionctl: one row each, one panel for each metric.",
		Time:        timeRange{From: "now-6h", To: "now"},
		Templating: templating{List: []variable{
			{Name: "datasource", Type: "datasource", Label: "Data source", Query: "prometheus"}}},
	}
	y := 0
	add := func(p panel) {
		p.ID = len(d.Panels) + 1
		d.Panels = append(d.Panels, p)
	}
	for _, part := range parts {
		add(panel{Type: "row", Title: part.Command, GridPos: position{H: 1, W: columns, Y: y}, Collapsed: new(bool)})
		y++
		for i, m := range part.Metrics {
			p := m.panel()
			p.GridPos = position{H: panelHeight, W: panelWidth, X: i * panelWidth % columns,
				Y: y + i*panelWidth/columns*panelHeight}
			add(p)
		}
		y += (len(part.Metrics)*panelWidth + columns - 1) / columns * panelHeight
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// panel shows a metric: counters by their rate, histograms by their quantiles, times by how long ago they are.
func (m Metric) panel() panel {
	p := panel{Type: "timeseries", Title: m.title(), Description: m.Name + ": " + m.Help,
		Datasource: &source{Type: "prometheus", UID: "${datasource}"}, FieldConfig: new(fieldConfig)}
	p.FieldConfig.Overrides = []struct{}{}
	p.FieldConfig.Defaults.Min = new(int)
	by := strings.Join(append([]string{"instance"}, m.Labels...), ", ")
	legend := "{{instance}}"
	for _, label := range m.Labels {
		legend += " {{" + label + "}}"
	}
	unit := &p.FieldConfig.Defaults.Unit
	switch {
	case m.Kind == Histogram:
		*unit = "s"
		for i, q := range []string{"0.5", "0.99"} {
			p.Targets = append(p.Targets, target{RefID: string(rune('A' + i)),
				Expr: "histogram_quantile(" + q + ", sum by (le, " + by + ") (rate(" + m.Name +
					"_bucket[$__rate_interval])))",
				LegendFormat: legend + " p" + strings.TrimPrefix(q+"0", "0.")[:2]})
		}
		return p
	case m.Kind == Counter:
		*unit = "cps"
		p.Targets = []target{{Expr: "sum by (" + by + ") (rate(" + m.Name + "[$__rate_interval]))"}}
	case strings.HasSuffix(m.Name, "_timestamp_seconds"):
		*unit = "s"
		p.Targets = []target{{Expr: "time() - max by (" + by + ") (" + m.Name + ")"}}
	default:
		*unit = "short"
		if strings.HasSuffix(m.Name, "_bytes") {
			*unit = "bytes"
		} else if strings.HasSuffix(m.Name, "_seconds") {
			*unit = "s"
		}
		p.Targets = []target{{Expr: "max by (" + by + ") (" + m.Name + ")"}}
	}
	p.Targets[0].RefID, p.Targets[0].LegendFormat = "A", legend
	return p
}

// title is the name without what every metric of the part has in common.
func (m Metric) title() string {
	words := strings.Split(m.Name, "_")[2:]
	last := len(words) - 1
	switch {
	case m.Kind == Counter && words[last] == "total":
		words = append(words[:last:last], "per", "second")
	case last > 0 && words[last-1] == "timestamp":
		words = append([]string{"time", "since"}, words[:last-1]...)
	case words[last] == "seconds":
		words = words[:last]
	}
	title := strings.Join(words, " ")
	return strings.ToUpper(title[:1]) + title[1:]
}

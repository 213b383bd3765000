package operator

import (
	"bytes"
	"context"
	"html/template"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/docs"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/report"
)

// Report is what the page of a control plane is made of: that of fusionctl report, for what its spec says. Errors: a
// spec that leads to no plan.
func Report(ctx context.Context, f *api.FusedControlPlane) (*report.Input, error) {
	v := judge(f)
	if v.err != nil {
		return nil, v.err
	}
	in, err := report.New(v.plan, f.Name, v.target, v.report)
	if err != nil {
		return nil, err
	}
	in.Rules, in.Evidence = catalog.Rules(), docs.Evidence
	in.Picture, err = graph.SVG(ctx, report.Graph(v.plan))
	return in, err
}

// PagesPath is where pages of control planes are served.
const PagesPath = "/reports/"

// Pages serves a page of each control plane, below PagesPath, to who reaches the loopback address of this process, as
// kubectl port-forward does. They are made when they are asked for, one at a time, and have no keys.
type Pages struct {
	Client client.Reader
	turn   chan struct{}
}

// NewPages reads control planes by a client.
func NewPages(c client.Reader) *Pages { return &Pages{Client: c, turn: make(chan struct{}, 1)} }

var listOfPages = template.Must(template.New("pages").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Control planes</title></head><body><h1>Control planes</h1><ul>
{{range .}}<li><a href="` + PagesPath + `{{.Name}}">{{.Name}}</a>, {{.Status.Phase}}</li>
{{end}}</ul></body></html>
`))

// ServeHTTP serves a page, or the list of them.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		// a page of another site, whose name leads here
		http.Error(w, "want a loopback address as the host", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-r.Context().Done():
		return
	}
	var page bytes.Buffer
	if err := p.write(r.Context(), &page, strings.TrimPrefix(r.URL.Path, PagesPath)); err != nil {
		code := http.StatusInternalServerError
		if apierrors.IsNotFound(err) {
			code = http.StatusNotFound
		}
		http.Error(w, visible.Text(brief(err.Error())), code)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = page.WriteTo(w) // a client that has gone
}

func (p *Pages) write(ctx context.Context, page *bytes.Buffer, name string) error {
	if name == "" {
		list := &api.FusedControlPlaneList{}
		if err := p.Client.List(ctx, list); err != nil {
			return err
		}
		return listOfPages.Execute(page, list.Items)
	}
	f := &api.FusedControlPlane{}
	if err := p.Client.Get(ctx, types.NamespacedName{Name: name}, f); err != nil {
		return err
	}
	in, err := Report(ctx, f)
	if err != nil {
		return err
	}
	return report.HTML(page, in)
}

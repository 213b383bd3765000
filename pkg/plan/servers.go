package plan

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Server is the API server of a side, on all of its hosts.
type Server struct {
	Component string    `json:"component"`
	Side      pair.Side `json:"side"`
	Version   string    `json:"version"`
	Hosts     []string  `json:"hosts"`
}

// ServersOf lists the API servers that keep something in one of the stores.
func (p *Plan) ServersOf(stores ...string) []Server {
	servers := []Server{}
	for _, side := range pair.Sides() {
		uses := func(store string) bool {
			return p.Side(side).Store == store ||
				slices.ContainsFunc(p.Resources, func(r Resource) bool { return r.View(side).Store == store })
		}
		if !slices.ContainsFunc(stores, uses) {
			continue
		}
		server := Server{Component: kubever.APIServer, Side: side, Version: p.Side(side).Version.String()}
		for _, c := range p.ComponentsOf(side, kubever.APIServer) {
			server.Component = c.Name
			server.Hosts = append(server.Hosts, c.Host)
		}
		servers = append(servers, server)
	}
	return servers
}

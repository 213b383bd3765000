package gateway

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
)

// lasting ends watches whose objects come to be elsewhere, as when the other side gets a definition of the same custom
// resources: a watch that goes on would be one of half of them. A client that watches again is answered 410 by the new
// route, because the resource version is of the old one, and lists. The zero value has no watches.
type lasting struct {
	mu sync.Mutex
	of map[schema.GroupVersionResource]*lastingRoute
}

type lastingRoute struct {
	has string // where the objects are
	context.Context
	end context.CancelFunc
}

// hasOf is where the objects of a row are: those of one place have the same resource versions.
func hasOf(row *routes.Row) string {
	if row.Way == routes.Both || row.Way == routes.None {
		return string(row.Way)
	}
	return string(row.Read)
}

// as is done when the gateway is, or when the objects of the row are elsewhere.
func (l *lasting) as(gateway context.Context, row *routes.Row) context.Context {
	if isCluster(row.Read) && row.Way != routes.Both { // a server alone has all that it has
		return gateway
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	gvr := row.GroupVersionResource()
	route := l.of[gvr]
	if route == nil || route.has != hasOf(row) {
		if route != nil {
			route.end()
		}
		route = &lastingRoute{has: hasOf(row)}
		route.Context, route.end = context.WithCancel(gateway)
		if l.of == nil {
			l.of = map[schema.GroupVersionResource]*lastingRoute{}
		}
		l.of[gvr] = route
	}
	return route
}

// end ends the watches that the table serves otherwise. What a side does not say at the moment ends none.
func (l *lasting) end(table *routes.Table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for gvr, route := range l.of {
		if row := table.Row(gvr); row != nil && row.Way != routes.Unknown && hasOf(row) != route.has {
			route.end()
			delete(l.of, gvr)
		}
	}
}

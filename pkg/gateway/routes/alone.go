package routes

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Alone computes the table of one API server that is no side of a pair: it serves what it has, and what is converted in
// versions that it does not have. Where rows of a pair name a side, these name the server.
func Alone(name pair.Side, result *discovery.Result, conversions Conversions) *Table {
	return alone(name, fmt.Sprintf("cluster %q", string(name)), result, conversions)
}

func alone(name pair.Side, called string, result *discovery.Result, conversions Conversions) *Table {
	b := builder{sources: Sources{Modern: Served{Result: result}, Conversions: conversions},
		lists:   map[pair.Side]*lists{name: listsOf(result)},
		servers: map[pair.Side]*negotiate.Server{name: negotiate.Of(called, result)}}
	t := newTable()
	for _, r := range result.Resources {
		if _, known := t.index[r.GroupVersionResource()]; !known {
			t.add(Row{Resource: r, Way: Owner, Read: name, Write: name, Why: called + " serves it"})
		}
	}
	t.hears(name, result)
	for asked := range t.absent(conversions.Custom) {
		found, err := b.converted(name, asked)
		if err != nil || found == nil || !oneResource(asked.GroupResource(), found.GroupResource()) {
			continue
		}
		row := Row{Resource: *asked, Way: Converted, Read: name, Write: name,
			Why: fmt.Sprintf("%s does not serve this version: it is converted from and to %s", called,
				found.GroupVersion)}
		row.convert(name, found)
		row.Verbs = slices.Sorted(slices.Values(found.Verbs))
		row.Subresources = subresourcesOf(asked, found, found)
		t.add(row)
	}
	return t
}

// oneResource reports whether two names are of the same objects.
func oneResource(a, b schema.GroupResource) bool {
	if a == b {
		return true
	}
	x, known := kubever.ResourceFor(a)
	y, also := kubever.ResourceFor(b)
	return known && also && x.Key == y.Key
}

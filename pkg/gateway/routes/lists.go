package routes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// lists find what a server says of itself: it may list 100,000 resources, and each is looked for.
type lists struct {
	served   map[schema.GroupVersionResource]*discovery.Resource
	named    map[schema.GroupResource]bool
	failures []error        // in the order of their versions
	failed   map[string]int // the first of a group
}

func listsOf(result *discovery.Result) *lists {
	l := &lists{served: make(map[schema.GroupVersionResource]*discovery.Resource, len(result.Resources)),
		named: map[schema.GroupResource]bool{}, failed: map[string]int{}}
	for i := range result.Resources {
		r := &result.Resources[i]
		if _, known := l.served[r.GroupVersionResource()]; !known { // the first counts
			l.served[r.GroupVersionResource()] = r
		}
		l.named[r.GroupResource()] = true
	}
	for _, gv := range slices.SortedFunc(maps.Keys(result.Failed), func(a, b schema.GroupVersion) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		if _, known := l.failed[gv.Group]; !known {
			l.failed[gv.Group] = len(l.failures)
		}
		l.failures = append(l.failures, fmt.Errorf("listing the resources of %s: %w", gv, result.Failed[gv]))
	}
	return l
}

// failure is why not all versions of the groups are known; nil when they are.
func (l *lists) failure(groups []string) error {
	first := len(l.failures)
	for _, group := range groups {
		if i, failed := l.failed[group]; failed {
			first = min(first, i)
		}
	}
	if first == len(l.failures) {
		return nil
	}
	return l.failures[first]
}

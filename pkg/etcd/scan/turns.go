package scan

import (
	"context"
	"errors"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Turn is what became of a finding between two scans.
type Turn string

// The turns of a finding.
const (
	Appeared    Turn = "appeared"
	Disappeared Turn = "disappeared"
	Grew        Turn = "changed" // the same trouble, with other numbers or other keys
)

// Turned is a finding and what became of it.
type Turned struct {
	Turn    Turn            `json:"event"`
	Finding finding.Finding `json:"finding"`
}

// Turns compares the findings of two looks. A finding stays the same while its Key does.
func Turns(before, after []finding.Finding) []Turned {
	var turned []Turned
	old := map[string][]finding.Finding{}
	for _, f := range before {
		old[f.Key] = append(old[f.Key], f)
	}
	for _, f := range after {
		if len(old[f.Key]) == 0 {
			turned = append(turned, Turned{Appeared, f})
			continue
		}
		was := old[f.Key][0]
		old[f.Key] = old[f.Key][1:]
		if was.Message != f.Message || was.Severity != f.Severity || !slices.Equal(was.Related, f.Related) {
			turned = append(turned, Turned{Grew, f})
		}
	}
	for _, key := range sortedKeys(old) {
		for _, f := range old[key] {
			turned = append(turned, Turned{Disappeared, f})
		}
	}
	return turned
}

// Glance reads changed keys alone, and reports what each shows by itself: keys in the wrong store, values that a
// reader cannot decode, resources that neither version has. What takes two objects to detect, and what has ended,
// only a scan reports.
func Glance(ctx context.Context, m *pair.Map, changes map[string][]etcd.Change) ([]finding.Finding, error) {
	var stores []etcd.Store
	for _, name := range sortedKeys(changes) {
		stores = append(stores, etcd.Store{Name: name, Walker: glimpse(changes[name])})
	}
	report, err := Stores(ctx, m, stores, Options{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(report.Findings, func(f finding.Finding) bool {
		return !slices.Contains(seenAtAGlance, f.Rule)
	}), nil
}

var seenAtAGlance = []string{"FUS000", "FUS002", "FUS003", "FUS004", "FUS010", "FUS072", "FUS090", "FUS231"}

// glimpse is a store of nothing but the newest changes. It is never whole: what it does not hold may be there.
type glimpse []etcd.Change

func (g glimpse) Walk(_ context.Context, _ int, visitor func() func(etcd.Entry) error) (etcd.Walked, error) {
	visit := visitor()
	newest := map[string]int{}
	for i, c := range g {
		newest[string(c.Key)] = i
	}
	for i, c := range g {
		if newest[string(c.Key)] != i || c.Deleted {
			continue
		}
		if err := visit(c.Entry); err != nil {
			return etcd.Walked{}, err
		}
	}
	return etcd.Walked{}, errGlimpse
}

var errGlimpse = errors.New("only the newest changes were looked at")

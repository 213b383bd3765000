// Package plantest makes the plans that tests start from.
package plantest

import (
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Of is the plan of a spec, on hosts. The test ends where there is none.
func Of(t testing.TB, text string) *plan.Plan {
	t.Helper()
	return For(t, text, plan.OnHosts)
}

// Example is the plan of a spec of package examples, on hosts.
func Example(t testing.TB, name string) *plan.Plan {
	t.Helper()
	return ExampleFor(t, name, plan.OnHosts)
}

// ExampleFor is Example for a target.
func ExampleFor(t testing.TB, name string, target plan.Target) *plan.Plan {
	t.Helper()
	text, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return For(t, string(text), target)
}

// For is the plan of a spec for a target.
func For(t testing.TB, text string, target plan.Target) *plan.Plan {
	t.Helper()
	f, err := spec.Load("spec.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := plan.New(f, target)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

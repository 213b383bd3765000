package routes

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// A server alone has all that it serves itself, and converts what other releases serve.
func TestAServerAlone(t *testing.T) {
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	facts := Facts(planOf(t, "1.6", "1.36"))
	old := facts.Legacy.Result
	table := Alone("edge", old, Conversions{Equivalents: converter.Equivalents})
	for asked, want := range map[schema.GroupVersionResource]string{
		{Group: "apps", Version: "v1", Resource: "deployments"}:                 "apps/v1beta1 autoscaling/v1",
		{Group: "apps", Version: "v1beta2", Resource: "deployments"}:            "apps/v1beta1 apps/v1beta2",
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}:      "extensions/v1beta1 ",
		{Group: "apps", Version: "v1beta1", Resource: "deployments"}:            "- ",
		{Version: "v1", Resource: "pods"}:                                       "- ",
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}:      "policy/v1beta1 ",
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "routes"}: "",
	} {
		row, got := table.Row(asked), ""
		if row != nil {
			got = "- "
			if as, ok := row.As["edge"]; ok {
				got = as.GroupVersion().String() + " "
				for _, sub := range row.Subresources {
					if sub.Name == "scale" {
						got += sub.Kind.GroupVersion().String()
					}
				}
			}
			if (row.Way == Converted) != (got != "- ") || row.Read != "edge" || row.Write != "edge" ||
				!slices.Equal(row.Sides(), []pair.Side{"edge"}) || !slices.Contains(row.Verbs, "create") {
				t.Errorf("%s: %+v", asked, row)
			}
		}
		if got != want {
			t.Errorf("%s is served as %q, want %q", asked, got, want)
		}
	}
	if group := table.Documents(nil).Group("apps"); group.PreferredVersion.Version != "v1beta1" {
		t.Errorf("a version that it does not serve is preferred: %+v", group)
	}
	// While it does not say what a group has, nothing is made of what it may have.
	old.Failed = map[schema.GroupVersion]error{{Group: "extensions", Version: "v1beta1"}: errors.New("starting")}
	table = Alone("edge", old, Conversions{Equivalents: converter.Equivalents})
	if row := table.Row(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
		Resource: "ingresses"}); row != nil {
		t.Errorf("a row of half a discovery: %+v", row)
	}
	side, err := table.Silent(schema.GroupVersion{Group: "extensions", Version: "v1beta1"})
	if side != "edge" || err == nil {
		t.Errorf("the group is silent on %q: %v", side, err)
	}
}

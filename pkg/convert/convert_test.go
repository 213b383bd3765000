package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func newConverter(t testing.TB) *Converter {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// parse reads an object as a client does: whole numbers stay whole.
func parse(t testing.TB, text []byte) *unstructured.Unstructured {
	t.Helper()
	data, err := utilyaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestConversions: each case names a kind (apps/v1 Deployment) in its comment, and holds the object, what it becomes,
// and the losses.
func TestConversions(t *testing.T) {
	c := newConverter(t)
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, g *golden.Case) {
		in := parse(t, g.Input("in.yaml"))
		gv, kind, ok := strings.Cut(strings.TrimSpace(string(g.Input("to"))), " ")
		if !ok {
			t.Fatalf("section to: want a version and a kind")
		}
		to := schema.FromAPIVersionAndKind(gv, kind)
		out, losses, err := c.Convert(in, to)
		if err != nil {
			g.Want("error", []byte(err.Error()))
			return
		}
		text, err := yaml.Marshal(out.Object)
		if err != nil {
			t.Fatal(err)
		}
		g.Want("out.yaml", text)
		var report bytes.Buffer
		for _, loss := range losses {
			value, err := json.Marshal(loss.Value)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&report, "%s = %s: %s\n", loss.Path, value, loss.Meaning)
		}
		g.Want("losses", report.Bytes())
	})
}

// everyKind lists the kinds of every minor.
func everyKind() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, minor := range kubever.Minors() {
		for _, a := range kubever.APIResources(minor) {
			if gvk := a.GroupVersion.WithKind(a.Kind); !slices.Contains(kinds, gvk) {
				kinds = append(kinds, gvk)
			}
		}
	}
	return kinds
}

// TestEveryKind: each kind of each minor converts to every other version of itself, or says why not.
func TestEveryKind(t *testing.T) {
	c := newConverter(t)
	kinds := everyKind()
	for _, from := range kinds {
		if !c.Knows(from) {
			t.Errorf("%s is not known", kindName(from))
		}
		for _, to := range kinds {
			if from.Kind != to.Kind || from.Group != to.Group || from == to {
				continue
			}
			_, err := c.route(from, to)
			var unsupported *UnsupportedError
			if err != nil && (!errors.As(err, &unsupported) || alone[from] == "" && alone[to] == "" &&
				newAlone[from] == "" && newAlone[to] == "" && deadEnds[from] == "" && deadEnds[to] == "") {
				t.Errorf("%v", err)
			}
		}
	}
	for gvk := range alone {
		if reached := c.Equivalents(gvk); len(reached) > 0 || !slices.Contains(kinds, gvk) {
			t.Errorf("%s is said to lead nowhere, but leads to %v", kindName(gvk), reached)
		}
	}
}

func TestEquivalents(t *testing.T) {
	c := newConverter(t)
	for _, test := range []struct {
		kind schema.GroupVersionKind
		want string
	}{
		{kind("extensions", "v1beta1", "Deployment"),
			"apps/v1 Deployment, apps/v1beta2 Deployment, apps/v1beta1 Deployment"},
		{kind("networking.k8s.io", "v1", "Ingress"), "networking.k8s.io/v1beta1 Ingress, extensions/v1beta1 Ingress"},
		{kind("batch", "v2alpha1", "ScheduledJob"), "batch/v1 CronJob, batch/v1beta1 CronJob, batch/v2alpha1 CronJob"},
		{kind("", "v1", "Event"), "events.k8s.io/v1 Event, events.k8s.io/v1beta1 Event"},
		{kind("", "v1", "Secret"), ""},
	} {
		var names []string
		for _, k := range c.Equivalents(test.kind) {
			names = append(names, kindName(k))
		}
		if got := strings.Join(names, ", "); got != test.want {
			t.Errorf("Equivalents(%s) = %s, want %s", kindName(test.kind), got, test.want)
		}
	}
}

// What an element of a list names as a version counts: that of a subject of no kind of v1alpha1 is lost.
func TestVersionsWithinListsAreLost(t *testing.T) {
	c := newConverter(t)
	in := parse(t, []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1alpha1","kind":"RoleBinding",`+
		`"metadata":{"name":"a"},"subjects":[`+
		`{"kind":"User","name":"a","apiVersion":"rbac.authorization.k8s.io/v1alpha1"},`+
		`{"kind":"Robot","name":"b","apiVersion":"robots/v1"}],`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}}`))
	_, losses, err := c.Convert(in, kind("rbac.authorization.k8s.io", "v1", "RoleBinding"))
	if err != nil || len(losses) != 1 || losses[0].Path != "subjects[1].apiVersion" || losses[0].Value != "robots/v1" {
		t.Errorf("losses %v, %v; want subjects[1].apiVersion alone", losses, err)
	}
}

// A number that does not fit the type of its field is refused, as servers do, in conversions and in objects that stay.
func TestNumbersThatDoNotFit(t *testing.T) {
	c := newConverter(t)
	scaler := `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":` +
		`{"maxReplicas":%s,"scaleTargetRef":{"kind":"Deployment","name":"a"}}}`
	in := parse(t, []byte(fmt.Sprintf(scaler, "3000000000")))
	if out, _, err := c.Convert(in, kind("autoscaling", "v2", "HorizontalPodAutoscaler")); err == nil {
		t.Errorf("maxReplicas of 3000000000 becomes %v", out.Object["spec"])
	}
	for number, fits := range map[string]bool{
		"3": true, "3.0": true, "2147483647": true, "2147483648": false, "-2147483649": false, "3000000000.0": false,
		"99999999999999999999": false, "1e300": false, "1.5": false,
	} {
		for _, version := range []string{"apps/v1", "apps/v1beta2"} {
			in := parse(t, []byte(fmt.Sprintf(workload, version, "Deployment", `"replicas":`+number+`,`)))
			_, _, err := c.Convert(in, kind("apps", "v1", "Deployment"))
			if version == "apps/v1" {
				_, _, err = c.Internal(in)
			}
			var content *ContentError
			named := errors.As(err, &content) && strings.Contains(err.Error(), "spec.replicas: ")
			if fits != (err == nil) || !fits && !named {
				t.Errorf("replicas of %s in %s: %v; want that it fits: %t", number, version, err, fits)
			}
		}
	}
}

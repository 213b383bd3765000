package hub

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func definition(t testing.TB, text []byte) *Definition {
	t.Helper()
	definitions, err := ParseDefinitions("crd.yaml", text)
	if err != nil || len(definitions) != 1 {
		t.Fatalf("ParseDefinitions = %d, %v", len(definitions), err)
	}
	return definitions[0]
}

func converter(t testing.TB, rules, crd []byte) *Converter {
	t.Helper()
	r, err := Parse("rules.yaml", rules)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(r, definition(t, crd))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const pizza = "../../examples/pizza/"

func TestPizzaBecomesV1AndComesBack(t *testing.T) {
	for _, crd := range []string{"crd.yaml", "v1beta1/crd.yaml"} {
		c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+crd))
		alpha := object(t, string(read(t, pizza+"margherita.yaml")))
		v1, err := c.Convert(alpha, "v1")
		if err != nil {
			t.Fatal(err)
		}
		want := object(t, `
apiVersion: restaurant.example.com/v1
kind: Pizza
metadata: {name: margherita, namespace: default}
spec:
  size: Medium
  toppings: [{name: mozzarella, quantity: 1}, {name: tomato, quantity: 1}]
  cheeses: [gorgonzola]
  delivery: {name: Alice, address: 1 Main Street}
  oven: Stone
  sides: [{name: Salad, quantity: 1}, {name: Bread, quantity: 2, spicy: true}]
status: {price: {cents: 950}}
`)
		plain, _ := takeKept(v1)
		if diff := cmp.Diff(want, plain); diff != "" {
			t.Errorf("%s: v1 (-want +got):\n%s", crd, diff)
		}
		back, err := c.Convert(v1, "v1alpha1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(alpha, back); diff != "" {
			t.Errorf("%s: the way back (-want +got):\n%s", crd, diff)
		}
	}
}

// random is a small generator of random numbers: splitmix64.
func random(seed uint64) func() uint64 {
	return func() uint64 {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
}

func TestTrialOfThePizzaFindsNothing(t *testing.T) {
	for _, crd := range []string{"crd.yaml", "v1beta1/crd.yaml"} {
		c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+crd))
		report, err := c.Try(Trial{Objects: 150, Random: random(1)})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Failures {
			t.Errorf("%s: %s to %s: %s: %s\n%v\n%v\n%v", crd, f.From, f.To, f.What, f.Message, f.Object, f.Result,
				f.Back)
		}
		if len(report.Incomplete) > 0 || len(report.Ways) != 2 || report.Ways[0].Edited < 30 {
			t.Errorf("%s: %+v", crd, report)
		}
	}
}

package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/pkg/hub"
	"github.com/kubefusion/fusionctl/pkg/hub/webhook"
)

const (
	restaurant = "/apis/restaurant.example.com"
	pizzas     = "/namespaces/a/pizzas"
)

// serving lets the side have pizzas in the versions, the first one preferred.
func (f *fakeSide) serving(versions ...string) {
	var list []string
	for _, v := range versions {
		list = append(list, fmt.Sprintf(`{"groupVersion":"restaurant.example.com/%s","version":"%s"}`, v, v))
		f.say("GET "+restaurant+"/"+v, http.StatusOK, `{"kind":"APIResourceList","groupVersion":
			"restaurant.example.com/`+v+`","resources":[{"name":"pizzas","singularName":"pizza","kind":"Pizza",
			"namespaced":true,`+verbsJSON+`},{"name":"pizzas/status","kind":"Pizza","namespaced":true,
			"verbs":["get","patch","update"]}]}`)
	}
	f.say("GET /apis", http.StatusOK, `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":
		"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},{"name":
		"restaurant.example.com","versions":[`+strings.Join(list, ",")+`],"preferredVersion":`+list[0]+`}]}`)
}

// pizzeria is a gateway by the rules of examples/pizza: the legacy side has a margherita of v1alpha1, the modern one a
// bianca of v1.
func pizzeria(t *testing.T, more ...func(*Options)) (x *fixture, margherita, bianca *stored) {
	t.Helper()
	source, err := webhook.Open("../../examples/pizza", webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	more = append([]func(*Options){func(o *Options) { o.Rules = func() Rules { return Rules(source.Current()) } }},
		more...)
	x = newFixture(t, more...)
	x.legacy.serving("v1alpha1")
	x.modern.serving("v1")
	x.gateway.refresh(t.Context())
	const old, new = restaurant + "/v1alpha1" + pizzas, restaurant + "/v1" + pizzas
	margheritaText := `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1alpha1","metadata":{"name":"margherita",
		"namespace":"a","uid":"u1"},"spec":{"size":"M","toppings":["tomato"],"remark":"not too hot"},"status":{"cost":950}}`
	biancaText := `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1","metadata":{"name":"bianca","namespace":"a",
		"uid":"u2"},"spec":{"size":"Large","oven":"Electric","allergens":["milk"]}}`
	margherita = x.legacy.store(t, old+"/margherita", margheritaText, "")
	bianca = x.modern.store(t, new+"/bianca", biancaText, "")
	list := func(version, object string) string {
		return `{"kind":"PizzaList","apiVersion":"restaurant.example.com/` + version + `","metadata":{
			"resourceVersion":"7"},"items":[` + strings.Replace(object, `"uid"`, `"resourceVersion":"5","uid"`, 1) + `]}`
	}
	x.legacy.say("GET "+old, http.StatusOK, list("v1alpha1", margheritaText))
	x.modern.say("GET "+new, http.StatusOK, list("v1", biancaText))
	return x, margherita, bianca
}

func TestCustomResourcesAreConverted(t *testing.T) {
	x, margherita, bianca := pizzeria(t)
	const v1, v1alpha1 = restaurant + "/v1" + pizzas, restaurant + "/v1alpha1" + pizzas
	for path, want := range map[string][]string{
		v1: {`"kind":"PizzaList"`, `"apiVersion":"restaurant.example.com/v1"`, `"size":"Medium"`, `"size":"Large"`,
			`"oven":"Stone"`},
		v1alpha1:                 {`"apiVersion":"restaurant.example.com/v1alpha1"`, `"size":"M"`, `"size":"L"`},
		v1 + "/margherita":       {`"size":"Medium"`, `"cents":950`, `"kubefusion.dev/side":"legacy"`},
		v1alpha1 + "/bianca":     {`"size":"L"`, `"kubefusion.dev/side":"modern"`, `kept`, `Electric`},
		v1 + "/bianca":           {`"size":"Large"`, `"oven":"Electric"`},
		v1alpha1 + "/margherita": {`"size":"M"`, `"remark":"not too hot"`},
	} {
		text := x.wants("GET", path, "", http.StatusOK, want[0])
		for _, each := range want {
			if !strings.Contains(text, each) {
				t.Errorf("GET %s: no %s in %s", path, each, text)
			}
		}
		if strings.Contains(text, `"size":"M"`) && strings.Contains(text, `"size":"Large"`) {
			t.Errorf("GET %s: two versions in %s", path, text)
		}
	}
	for _, side := range []*fakeSide{x.legacy, x.modern} { // each has one of them
		for _, v := range []string{"v1", "v1alpha1"} {
			for _, name := range []string{"margherita", "bianca"} {
				side.mu.Lock()
				at := "GET " + restaurant + "/" + v + pizzas + "/" + name
				if side.pages[at] == nil {
					side.pages[at] = func(w http.ResponseWriter, _ *http.Request) {
						status(w, http.StatusNotFound, "NotFound")
					}
				}
				side.mu.Unlock()
			}
		}
	}
	wrote := func(s *stored, field, want string) {
		t.Helper()
		if got := s.at("spec", field); got != want {
			t.Errorf("the side has %s %s, want %s", field, got, want)
		}
	}
	x.wants("PATCH", v1+"/margherita", `{"spec":{"size":"Large"}}`, http.StatusOK, `"size":"Large"`,
		"Content-Type: application/merge-patch+json")
	wrote(margherita, "size", `"L"`)
	wrote(margherita, "remark", `"not too hot"`)
	x.wants("PATCH", v1alpha1+"/bianca", `[{"op":"replace","path":"/spec/size","value":"S"}]`, http.StatusOK,
		`"size":"S"`, "Content-Type: application/json-patch+json")
	wrote(bianca, "size", `"Small"`)
	wrote(bianca, "oven", `"Electric"`)
	// A manifest has no annotations of a conversion.
	x.wants("PUT", v1alpha1+"/bianca", `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1alpha1","metadata":{
		"name":"bianca","namespace":"a"},"spec":{"size":"M"}}`, http.StatusOK, `"size":"M"`)
	wrote(bianca, "size", `"Medium"`)
	wrote(bianca, "oven", `"Electric"`)
	wrote(bianca, "allergens", `["milk"]`)
	x.wants("PATCH", v1+"/margherita", `{"kind":"Pizza"}`, http.StatusUnsupportedMediaType, "strategic",
		"Content-Type: application/strategic-merge-patch+json")
	x.wants("PATCH", v1+"/margherita", `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1"}`,
		http.StatusUnsupportedMediaType, "server-side apply", "Content-Type: application/apply-patch+yaml")
	x.wants("PUT", v1+"/margherita/status", `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1","metadata":{
		"name":"margherita","namespace":"a"},"spec":{"size":"Small"},"status":{"price":{"cents":1}}}`, http.StatusOK,
		`"cents":1`)
	if got := margherita.at("status", "cost"); got != "1" {
		t.Errorf("the status has the cost %s, want 1", got)
	}
	wrote(margherita, "size", `"L"`)

	x.legacy.say("GET "+v1alpha1+"/marinara", http.StatusNotFound, "{}")
	x.modern.page("POST "+v1, func(w http.ResponseWriter, r *http.Request) {
		body := x.modern.body(r)
		if !strings.Contains(body, `"size":"Small"`) || !strings.Contains(body, hub.KeptAnnotation) {
			t.Errorf("the modern side is sent %s", body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, strings.Replace(body, `"name"`, `"uid":"u3","resourceVersion":"8","name"`, 1))
	})
	x.wants("POST", v1alpha1, `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1alpha1","metadata":{
		"name":"marinara","namespace":"a"},"spec":{"size":"S","remark":"hot"}}`, http.StatusCreated, `"remark":"hot"`)

	x.modern.say("GET "+v1, http.StatusOK, `{"type":"ADDED","object":{"kind":"Pizza","apiVersion":
		"restaurant.example.com/v1","metadata":{"name":"bianca","namespace":"a","resourceVersion":"9"},"spec":{
		"size":"Large","oven":"Stone"}}}`+"\n")
	x.legacy.page("GET "+v1alpha1, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	x.wants("GET", v1alpha1+"?watch=true&resourceVersion=l7m7", "", http.StatusOK, `"size":"L"`)

	text := x.wants("GET", restaurant, "", http.StatusOK, "restaurant.example.com/v1alpha1")
	if !strings.Contains(text, `"preferredVersion":{"groupVersion":"restaurant.example.com/v1"`) {
		t.Errorf("discovery: %s", text)
	}
	for _, v := range []string{"v1", "v1alpha1"} {
		x.wants("GET", restaurant+"/"+v, "", http.StatusOK, `"pizzas/status"`)
	}
}

// An object that the rules cannot convert is an error, as that of a conversion webhook, and half a list is none.
func TestCustomResourcesThatDoNotConvert(t *testing.T) {
	x, _, _ := pizzeria(t)
	const v1, v1alpha1 = restaurant + "/v1" + pizzas, restaurant + "/v1alpha1" + pizzas
	bad := `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1alpha1","metadata":{"name":"bad","namespace":"a",
		"resourceVersion":"5"},"spec":{"size":"XXL"}}`
	x.legacy.say("GET "+v1alpha1+"/bad", http.StatusOK, bad)
	x.modern.say("GET "+v1+"/bad", http.StatusNotFound, "{}")
	x.legacy.say("GET "+v1alpha1, http.StatusOK, `{"kind":"PizzaList","apiVersion":"restaurant.example.com/v1alpha1",
		"metadata":{"resourceVersion":"7"},"items":[`+bad+`]}`)
	x.wants("GET", v1+"/bad", "", http.StatusInternalServerError, "XXL")
	x.wants("GET", v1, "", http.StatusInternalServerError, "XXL")
	x.wants("GET", v1alpha1+"/bad", "", http.StatusOK, "XXL")
	x.wants("POST", v1alpha1, strings.NewReplacer(`"resourceVersion":"5"`, `"uid":""`, "bad", "worse").Replace(bad),
		http.StatusUnprocessableEntity, "XXL")
}

// What the rules drop is a loss, as that of a built-in kind is.
func TestDroppedFieldsOfCustomResources(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crd.yaml", widgets)
	write(t, dir, "rules.yaml", widgetRules)
	source, err := webhook.Open(dir, webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	x := newFixture(t, func(o *Options) { o.Rules = func() Rules { return Rules(source.Current()) } })
	x.modern.say("GET /apis", http.StatusOK, `{"kind":"APIGroupList","groups":[{"name":"example.test","versions":[{
		"groupVersion":"example.test/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.test/v1",
		"version":"v1"}}]}`)
	x.modern.say("GET /apis/example.test/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"example.test/v1",
		"resources":[{"name":"widgets","kind":"Widget",`+verbsJSON+`}]}`)
	x.gateway.refresh(t.Context())
	const v2, v1 = "/apis/example.test/v2/widgets", "/apis/example.test/v1/widgets"
	widget := func(version, spec string) string {
		return `{"kind":"Widget","apiVersion":"example.test/` + version + `","metadata":{"name":"w"},"spec":{` + spec + `}}`
	}
	x.modern.say("POST "+v1, http.StatusCreated, widget("v1", `"old":"a"`))
	x.wants("POST", v2, widget("v2", `"new":"b"`), http.StatusUnprocessableEntity, "spec.new")
	allowed := strings.Replace(widget("v2", `"new":"b"`), `"name":"w"`,
		`"name":"w","annotations":{"kubefusion.dev/allow-loss":"true"}`, 1)
	code, header, text := x.ask("POST", v2, allowed)
	if code != http.StatusCreated || !strings.Contains(header.Get("Warning"), "spec.new") {
		t.Errorf("a loss that is allowed: %d %v %s", code, header["Warning"], text)
	}
	x.modern.say("GET "+v1+"/w", http.StatusOK, widget("v1", `"old":"a"`))
	code, header, text = x.ask("GET", v2+"/w", "")
	if code != http.StatusOK || !strings.Contains(header.Get("Warning"), "spec.old") || strings.Contains(text, "old") {
		t.Errorf("what is lost in an answer: %d %v %s", code, header["Warning"], text)
	}
}

// Rules are taken into use with the next discovery; those that cannot be used are not.
func TestRulesAreReadAgain(t *testing.T) {
	source, err := webhook.Open("../../examples/pizza", webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	rules := Rules{}
	set := func(r Rules) {
		mu.Lock()
		defer mu.Unlock()
		rules = r
	}
	x := newFixture(t, func(o *Options) {
		o.Rules = func() Rules {
			mu.Lock()
			defer mu.Unlock()
			return rules
		}
	})
	x.modern.serving("v1")
	x.gateway.refresh(t.Context())
	const bianca = restaurant + "/v1alpha1" + pizzas + "/bianca"
	x.modern.say("GET "+restaurant+"/v1"+pizzas+"/bianca", http.StatusOK, `{"kind":"Pizza","apiVersion":
		"restaurant.example.com/v1","metadata":{"name":"bianca"},"spec":{"size":"Large","oven":"Stone"}}`)
	x.wants("GET", bianca, "", http.StatusNotFound, "nothing serves")
	set(Rules(source.Current()))
	x.gateway.refresh(t.Context())
	x.wants("GET", bianca, "", http.StatusOK, `"size":"L"`)
	if metric(t, x.registry, "fusionctl_gateway_rules_good") != 1 {
		t.Error("good rules are not called good")
	}
	native := Rules(maps.Clone(source.Current()))
	for kind, by := range native {
		delete(native, kind)
		kind.Group, kind.Kind = "apps", "Deployment"
		native[kind] = by
	}
	set(native)
	x.gateway.refresh(t.Context())
	x.wants("GET", bianca, "", http.StatusOK, `"size":"L"`)
	if metric(t, x.registry, "fusionctl_gateway_rules_good") != 0 {
		t.Error("rules of a built-in kind are called good")
	}
	if _, _, err := Converting(native); err == nil || !strings.Contains(err.Error(), "Kubernetes itself") {
		t.Errorf("rules of a built-in kind: %v", err)
	}
	set(Rules{})
	x.gateway.refresh(t.Context())
	x.wants("GET", bianca, "", http.StatusNotFound, "nothing serves")
}

func TestCustomResourcesOfFurtherClusters(t *testing.T) {
	source, err := webhook.Open("../../examples/pizza", webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	x, far := withCluster(t, func(o *Options) { o.Rules = func() Rules { return Rules(source.Current()) } })
	far.serving("v1alpha1")
	x.gateway.refreshCluster(t.Context(), x.gateway.clusters["far"])
	far.say("GET "+restaurant+"/v1alpha1"+pizzas+"/margherita", http.StatusOK, `{"kind":"Pizza","apiVersion":
		"restaurant.example.com/v1alpha1","metadata":{"name":"margherita"},"spec":{"size":"M"}}`)
	x.wants("GET", "/clusters/far"+restaurant+"/v1"+pizzas+"/margherita", "", http.StatusOK, `"size":"Medium"`)
	x.wants("GET", restaurant+"/v1"+pizzas+"/margherita", "", http.StatusNotFound, "nothing serves")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.test}
spec:
  group: example.test
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {old: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {new: {type: string}}}}}}
`
	widgetRules = `apiVersion: kubefusion.dev/v1alpha1
kind: ConversionRules
spec:
  crd: widgets.example.test
  hub: v2
  versions:
  - name: v1
    rules:
    - drop: {field: spec.old}
    - drop: {hub: spec.new}
`
)

// What is applied is converted field by field: what the rules keep in one annotation for all fields is refused.
func TestAppliesOfCustomResources(t *testing.T) {
	x, _, _ := pizzeria(t)
	const v1, v1alpha1 = restaurant + "/v1" + pizzas, restaurant + "/v1alpha1" + pizzas
	const patch, yaml = "Content-Type: application/apply-patch+yaml", "apiVersion: restaurant.example.com/v1alpha1\n" +
		"kind: Pizza\nspec: "
	x.legacy.say("GET "+v1alpha1+"/bianca", http.StatusNotFound, "{}")
	x.modern.page("PATCH "+v1+"/bianca", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, strings.Replace(x.modern.body(r), `"spec"`,
			`"metadata":{"name":"bianca","namespace":"a","uid":"u2","resourceVersion":"8","managedFields":[{"manager":"ci",
			"operation":"Apply","apiVersion":"restaurant.example.com/v1"}]},"spec"`, 1))
	})
	// Owners of fields keep the version of their paths.
	text := x.wants("PATCH", v1alpha1+"/bianca?fieldManager=ci&force=true", yaml+"{size: S}\n", http.StatusOK,
		`"apiVersion":"restaurant.example.com/v1alpha1"`, patch)
	for _, want := range []string{`"size":"S"`, `"m8"`, `"apiVersion":"restaurant.example.com/v1","manager":"ci"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	r, sent := x.modern.last(v1 + "/bianca")
	if want := `{"apiVersion":"restaurant.example.com/v1","kind":"Pizza","spec":{"size":"Small"}}`; sent != want ||
		r.Header.Get("Content-Type") != "application/apply-patch+yaml" ||
		r.URL.RawQuery != "fieldManager=ci&force=true" {
		t.Errorf("the side is sent %s %v %s, want %s", r.URL, r.Header, sent, want)
	}
	x.wants("PATCH", v1alpha1+"/bianca?fieldManager=ci", yaml+"{size: S, remark: hot}\n", http.StatusBadRequest,
		hub.KeptAnnotation, patch)
	x.wants("PATCH", v1alpha1+"/bianca?fieldManager=ci", yaml+"{size: XXL}\n", http.StatusUnprocessableEntity, "XXL",
		patch)
	x.wants("PATCH", v1alpha1+"/bianca?fieldManager=ci", yaml+"[]\n", http.StatusUnprocessableEntity, "spec", patch)
	x.wants("PATCH", v1alpha1+"/bianca?fieldManager=ci", "\xff", http.StatusBadRequest, "CBOR",
		"Content-Type: application/apply-patch+cbor")
	// One that neither side has is created.
	x.legacy.say("GET "+v1alpha1+"/fresh", http.StatusNotFound, "{}")
	x.modern.say("GET "+v1+"/fresh", http.StatusNotFound, "{}")
	x.modern.say("PATCH "+v1+"/fresh", http.StatusCreated, `{"kind":"Pizza","apiVersion":"restaurant.example.com/v1",
		"metadata":{"name":"fresh","namespace":"a","uid":"u3","resourceVersion":"9"},"spec":{"size":"Small"}}`)
	x.wants("PATCH", v1alpha1+"/fresh?fieldManager=ci", yaml+"{size: S}\n", http.StatusCreated, `"size":"S"`, patch)
}

// TestAConversionThatPanicsIsOne: of one object, and not the end of the process.
func TestAConversionThatPanicsIsOne(t *testing.T) {
	by := &hub.Converter{} // without the rules that it counts on
	object, err := to(by, "v1")(map[string]any{"apiVersion": "example.com/v1beta1", "kind": "Example"})
	if object != nil || err == nil || !strings.Contains(err.Error(), "did not finish") {
		t.Errorf("%v, %v", object, err)
	}
}

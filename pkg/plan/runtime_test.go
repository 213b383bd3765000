package plan_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func readPlan(t *testing.T, file string) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return planOf(t, string(text))
}

// whole is a plan as `fusionctl plan -o json` prints it.
func whole(t *testing.T, p *plan.Plan) []byte {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(data, []byte("{"), []byte(`{"schema":"`+plan.Schema+`",`), 1)
}

// A component that reads the file goes by what one that computes the plan goes by, and so does one that reads the whole
// plan.
func TestRuntimeReadsWhatItPrints(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		p := readPlan(t, file)
		want := p.Runtime()
		data, err := want.Format()
		if err != nil {
			t.Fatal(err)
		}
		for form, data := range map[string][]byte{"printed": data, "the whole plan": whole(t, p)} {
			got, err := plan.ParseRuntime(data)
			if err != nil {
				t.Fatalf("%s, %s: %v", file, form, err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s: -plan +read:\n%s", file, form, diff)
			}
			if diff := cmp.Diff(p.StaleReaders(), got.StaleReaders(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s: sides that may read what is stale: -plan +read:\n%s", file, form, diff)
			}
			for i := range p.Resources {
				row := &p.Resources[i]
				if found := got.Resource(row.Key); (found == nil) != row.Pseudo {
					t.Errorf("%s, %s: Resource(%q) = %v", file, form, row.Key, found)
				}
			}
		}
	}
}

// reasons calls each for every string of a field that is named Why, or ends so, within the value.
func reasons(v reflect.Value, each func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			reasons(v.Elem(), each)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			reasons(v.Index(i), each)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() && strings.HasSuffix(field.Name, "Why") && field.Type.Kind() == reflect.String {
				each(v.Field(i))
			} else if field.IsExported() {
				reasons(v.Field(i), each)
			}
		}
	}
}

// A reason is for people: it is in no file that components read, whatever fields a plan gets.
func TestRuntimeHoldsNoReason(t *testing.T) {
	for _, file := range []string{"pods-1.10-1.36.yaml", "gateway-1.15-1.36.yaml"} {
		p := readPlan(t, "../../examples/"+file)
		set := 0
		reasons(reflect.ValueOf(p), func(v reflect.Value) { v.SetString("a reason"); set++ })
		if set < 100 {
			t.Errorf("%s: %d reasons in the plan, want hundreds", file, set)
		}
		reasons(reflect.ValueOf(p.Runtime()), func(v reflect.Value) {
			if v.String() != "" {
				t.Errorf("%s: a Runtime has a reason", file)
			}
		})
		data, err := p.Runtime().Format()
		if err != nil || bytes.Contains(data, []byte("a reason")) {
			t.Errorf("%s: the file has a reason, or none was printed: %v", file, err)
		}
	}
}

// What no component reads is in no file on a host: it may be a secret.
func TestRuntimeHoldsNothingElse(t *testing.T) {
	p := readPlan(t, "../../examples/pods-1.10-1.36.yaml")
	data, err := p.Runtime().Format()
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	want := []string{"customResources", "kubelet", "legacy", "modern", "name", "pods", "resources", "schema"}
	if got := slices.Sorted(maps.Keys(file)); !slices.Equal(got, want) {
		t.Errorf("the file holds %v, want %v", got, want)
	}
	if bytes.Contains(file["pods"], []byte(`hy":`)) {
		t.Errorf("the file holds reasons: %s", file["pods"])
	}
}

// The controllers of both sides judge by the file what an API server serves, and whether its reads are fresh.
func TestRuntimeHasTheArgumentsThatAnswersDependOn(t *testing.T) {
	p := readPlan(t, "../../examples/split-1.6-1.10.yaml")
	for i := range p.Components {
		if c := &p.Components[i]; c.Side == pair.Legacy && c.Kind == kubever.APIServer {
			c.Args = []plan.Arg{{Name: "runtime-config", Value: "batch/v2alpha1=true,apps/v1beta1"},
				{Name: "runtime_config", Value: "extensions/v1beta1=False"},
				{Name: "etcd-quorum-read", Value: "false"}, {Name: "token", Value: "s3cr3t"}}
			other := *c // of another host, where other arguments are set
			other.Host, other.Args = "cp-2", []plan.Arg{{Name: "runtime-config",
				Value: "batch/v2alpha1=0, extensions/v1beta1=true"}, {Name: "etcd-quorum-read", Value: "true"}}
			p.Components = append(p.Components, other)
			break
		}
	}
	data, err := p.Runtime().Format()
	if err != nil {
		t.Fatal(err)
	}
	got, err := plan.ParseRuntime(data)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"batch/v2alpha1": false, "apps/v1beta1": true, "extensions/v1beta1": false}
	if !maps.Equal(got.Legacy.RuntimeConfig, want) {
		t.Errorf("RuntimeConfig of the legacy side = %v, want %v", got.Legacy.RuntimeConfig, want)
	}
	if len(got.Modern.RuntimeConfig) > 0 {
		t.Errorf("RuntimeConfig of the modern side = %v, want none", got.Modern.RuntimeConfig)
	}
	if stale := got.StaleReaders(); !slices.Equal(stale, []pair.Side{pair.Legacy}) {
		t.Errorf("StaleReaders = %v, want the legacy side, of which one has --etcd-quorum-read=false", stale)
	}
	if bytes.Contains(data, []byte("s3cr3t")) {
		t.Error("the file holds an argument that no component reads")
	}
}

// The narrowest setting of --runtime-config counts.
func TestTurnsOff(t *testing.T) {
	for _, tc := range []struct {
		settings string
		off, on  []string // group/version/resource, of 1.20
	}{
		{settings: "api/all=false", off: []string{"discovery.k8s.io/v1beta1/endpointslices"},
			on: []string{"discovery.k8s.io/v1alpha1/endpointslices"}}, // which such a word does not reach
		{settings: "discovery.k8s.io/v1alpha1=false", off: []string{"discovery.k8s.io/v1alpha1/endpointslices"}},
		{settings: "", on: []string{"apps/v1/deployments", "/v1/pods", "batch/v2alpha1/cronjobs"}},
		{settings: "apps/v1=false", off: []string{"apps/v1/deployments"}, on: []string{"apps/v1beta1/deployments"}},
		{settings: "api/all=false,api/v1=true", off: []string{"apps/v1/deployments"}, on: []string{"/v1/pods"}},
		{settings: "api/beta=false,batch/v1beta1=true", off: []string{"apps/v1beta1/deployments"},
			on: []string{"batch/v1beta1/cronjobs", "batch/v2alpha1/cronjobs", "apps/v1/deployments"}},
		{settings: "api/alpha=false", off: []string{"batch/v2alpha1/cronjobs"}, on: []string{"apps/v1/deployments"}},
		{settings: "api/ga=false", off: []string{"apps/v1/deployments"}, on: []string{"apps/v1beta1/deployments"}},
		{settings: "extensions/v1beta1=false,extensions/v1beta1/ingresses=true",
			off: []string{"extensions/v1beta1/replicasets"}, on: []string{"extensions/v1beta1/ingresses"}},
	} {
		servers := plan.APIServers{Version: kubever.Version{Minor: 20}, RuntimeConfig: map[string]bool{}}
		for setting := range strings.SplitSeq(tc.settings, ",") {
			key, value, _ := strings.Cut(setting, "=")
			servers.RuntimeConfig[key] = value == "true"
		}
		for off, resources := range map[bool][]string{true: tc.off, false: tc.on} {
			for _, r := range resources {
				part := strings.Split(r, "/")
				gvr := schema.GroupVersionResource{Group: part[0], Version: part[1], Resource: part[2]}
				if got := servers.TurnsOff(gvr); got != off {
					t.Errorf("--runtime-config=%s: TurnsOff(%s) = %t, want %t", tc.settings, r, got, off)
				}
			}
		}
	}
}

func TestParseRuntimeRefusesWhatIsNoPlan(t *testing.T) {
	p := readPlan(t, "../../examples/split-1.15-1.36.yaml")
	data, err := p.Runtime().Format()
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	swapped, twice, blind := p.Runtime(), p.Runtime(), *p
	swapped.Resources[0], swapped.Resources[1] = swapped.Resources[1], swapped.Resources[0]
	twice.Resources[1] = twice.Resources[0]
	format := func(r *plan.Runtime) string {
		data, err := r.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	blind.Components = slices.DeleteFunc(slices.Clone(p.Components), func(c plan.Component) bool {
		return c.Kind == kubever.APIServer && c.Side == pair.Legacy
	})
	for name, tc := range map[string]struct{ text, want string }{
		"nothing": {"", "EOF"},
		"a spec":  {"apiVersion: kubefusion.dev/v1alpha1\n", "invalid character"},
		"another schema": {strings.Replace(text, plan.RuntimeSchema, "fusionctl/runtime/v2", 1),
			"fusionctl/runtime/v2"},
		"no schema":     {strings.Replace(text, `"schema"`, `"scheme"`, 1), `schema ""`},
		"a newer field": {strings.Replace(text, `"kubelet"`, `"fromTheFuture": 1, "kubelet"`, 1), "fromTheFuture"},
		"a newer field of a whole plan": {strings.Replace(string(whole(t, p)), `"layout"`,
			`"fromTheFuture": 1, "layout"`, 1), "fromTheFuture"},
		"a field of a plan in a file": {
			strings.Replace(text, `"kubelet"`, `"layout": "split", "kubelet"`, 1), "layout"},
		"no end":                          {text[:len(text)/2], "EOF"},
		"two plans":                       {text + text, "trailing data"},
		"no resources":                    {`{"schema": "fusionctl/runtime/v1"}`, "names no versions"},
		"resources that are out of order": {format(swapped), "in order"},
		"a resource that is there twice":  {format(twice), "each once"},
		"a plan whose legacy API server is not known": {string(whole(t, &blind)), "no API server of the legacy side"},
	} {
		got, err := plan.ParseRuntime([]byte(tc.text))
		if err == nil {
			t.Errorf("ParseRuntime of %s = %v, want an error", name, got.Name)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("ParseRuntime of %s: %v, want %q in it", name, err, tc.want)
		}
	}
}

// FuzzParseRuntime: what is read is written, and then the same.
func FuzzParseRuntime(f *testing.F) {
	text, err := plantest.Example(f, "split-1.15-1.36.yaml").Runtime().Format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"schema":"` + plan.RuntimeSchema + `"}`))
	f.Add([]byte(`{"schema":"` + plan.Schema + `","resources":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := plan.ParseRuntime(data)
		if err != nil {
			return
		}
		once, err := r.Format()
		if err != nil {
			t.Fatal(err)
		}
		again, err := plan.ParseRuntime(once)
		if err != nil {
			t.Fatalf("%s becomes %s: %v", data, once, err)
		}
		if twice, err := again.Format(); err != nil || string(twice) != string(once) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
	})
}

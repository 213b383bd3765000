package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

const older = "/apis/extensions/v1beta1/namespaces/a/deployments"

// stored is one object of a side, which keeps its resource version as API servers do.
type stored struct {
	t         *testing.T
	mu        sync.Mutex
	object    map[string]any
	version   int
	meddlings int // how many writes find that another client was quicker
	writes    int
}

// store lets the side have the object at a path, and its status and scale.
func (f *fakeSide) store(t *testing.T, path, object, scale string) *stored {
	s := &stored{t: t, version: 5}
	if err := json.Unmarshal([]byte(object), &s.object); err != nil {
		t.Fatal(err)
	}
	f.page("GET "+path, s.show)
	f.page("PUT "+path, func(w http.ResponseWriter, r *http.Request) { s.put(w, f.body(r), "") })
	f.page("PUT "+path+"/status", func(w http.ResponseWriter, r *http.Request) { s.put(w, f.body(r), "status") })
	scaled := func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		spec := s.object["spec"].(map[string]any)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Scale","apiVersion":%q,"metadata":{"name":"old","namespace":"a",
			"resourceVersion":"%d"},"spec":{"replicas":%v},"status":{"replicas":1,%s}}`, scale, s.version, spec["replicas"],
			map[bool]string{true: `"selector":{"a":"b"}`, false: `"selector":"a=b"`}[scale == "extensions/v1beta1"])
	}
	f.page("GET "+path+"/scale", scaled)
	f.page("PUT "+path+"/scale", func(w http.ResponseWriter, r *http.Request) {
		var sent struct {
			APIVersion string
			Spec       struct{ Replicas float64 }
		}
		if err := json.Unmarshal([]byte(f.body(r)), &sent); err != nil || sent.APIVersion != scale {
			t.Errorf("the side is sent a scale %+v, %v, want %s", sent, err, scale)
		}
		s.mu.Lock()
		s.object["spec"].(map[string]any)["replicas"] = sent.Spec.Replicas
		s.mu.Unlock()
		scaled(w, r)
	})
	return s
}

// body is what the side was sent with a request.
func (f *fakeSide) body(r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, asked := range f.asked {
		if asked == r {
			return f.bodies[i]
		}
	}
	return ""
}

func (s *stored) show(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(s.object); err != nil {
		s.t.Error(err)
	}
}

func (s *stored) put(w http.ResponseWriter, body, part string) {
	var sent map[string]any
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	s.writes++
	if s.meddlings > 0 {
		s.meddlings--
		s.version++
		s.object["metadata"].(map[string]any)["labels"] = map[string]any{"meddled": fmt.Sprint(s.version)}
	}
	metadata, _ := sent["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	tied := version != "" && version != "0" // otherwise API servers write over whatever is there
	if sent["apiVersion"] != s.object["apiVersion"] || tied && version != fmt.Sprint(s.version) {
		s.mu.Unlock()
		status(w, http.StatusConflict, "Conflict")
		return
	}
	s.version++
	if part != "" {
		s.object[part] = sent[part]
	} else {
		s.object = sent
	}
	s.mu.Unlock()
	s.show(w, nil)
}

// at is a field of the object, as text.
func (s *stored) at(path ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var value any = s.object
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	text, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func oldDeployment(version string) string {
	return `{"kind":"Deployment","apiVersion":"` + version + `","metadata":{"name":"old","namespace":"a","uid":"u"},
		"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}},"strange":{"revision":2}},
		"status":{"replicas":1}}`
}

// converted is a gateway whose legacy side has a Deployment in extensions/v1beta1 alone.
func converted(t *testing.T) (*fixture, *stored) {
	t.Helper()
	x := newFixture(t)
	x.old()
	x.legacy.say("GET /apis/extensions/v1beta1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":
		"extensions/v1beta1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true,`+verbsJSON+`},
		{"name":"deployments/status","kind":"Deployment","namespaced":true,"verbs":["get","patch","update"]},
		{"name":"deployments/scale","kind":"Scale","namespaced":true,"verbs":["get","patch","update"]}]}`)
	x.modern.say("GET /apis/apps/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[
		{"name":"deployments","singularName":"deployment","kind":"Deployment","namespaced":true,`+verbsJSON+`},
		{"name":"deployments/status","kind":"Deployment","namespaced":true,"verbs":["get","patch","update"]},
		{"name":"deployments/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true,
		"verbs":["get","patch","update"]}]}`)
	x.gateway.refresh(t.Context())
	x.modern.say("GET "+collection+"/old", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	return x, x.legacy.store(t, older+"/old", oldDeployment("extensions/v1beta1"), "extensions/v1beta1")
}

// A patch is carried out on the object in the asked version, and written as a whole with the resource version that was
// read: what another client wrote between the two is not lost.
func TestPatchesOfConvertedObjects(t *testing.T) {
	const merge, strategic, jsonPatch = "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/json-patch+json"
	for _, test := range []struct {
		name, kind, patch string
		sub               string
		meddlings         int
		code              int
		says              string // in the answer
		at                []string
		want              string // of the stored object, there
		writes            int
	}{
		{"merge", merge, `{"spec":{"replicas":3}}`, "", 0, 200, `"apiVersion":"apps/v1"`,
			[]string{"spec", "replicas"}, "3", 1},
		{"merge removes", merge, `{"metadata":{"labels":null},"spec":{"paused":true}}`, "", 0, 200, `"paused":true`,
			[]string{"spec", "paused"}, "true", 1},
		{"strategic, by the name of a container", strategic,
			`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k"}]}}}}`, "", 0, 200, `"image":"k"`,
			[]string{"spec", "template", "spec", "containers"},
			`[{"image":"i","name":"c"},{"image":"k","name":"d"}]`, 1},
		{"strategic deletes", strategic,
			`{"spec":{"template":{"spec":{"containers":[{"name":"d","$patch":"delete"}]}}}}`, "", 0, 200, "",
			[]string{"spec", "template", "spec", "containers"}, `[{"image":"i","name":"c"}]`, 1},
		{"JSON", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas",
			"value":4}]`, "", 0, 200, `"replicas":4`, []string{"spec", "replicas"}, "4", 1},
		{"JSON whose test fails", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":9}]`, "", 0, 422, "",
			[]string{"spec", "replicas"}, "1", 0},
		{"JSON of nothing", jsonPatch, `[{"op":"remove","path":"/spec/none"}]`, "", 0, 422, "",
			[]string{"spec", "replicas"}, "1", 0},
		{"no JSON", merge, `{"spec"`, "", 0, 400, "", []string{"spec", "replicas"}, "1", 0},
		{"after conflicts", merge, `{"spec":{"replicas":3}}`, "", 2, 200, `"replicas":3`,
			[]string{"metadata", "labels", "meddled"}, `"7"`, 3},
		{"never in peace", merge, `{"spec":{"replicas":3}}`, "", 100, 409, "", []string{"spec", "replicas"}, "1", 5},
		{"of a resource version, in conflict", merge, `{"metadata":{"resourceVersion":"l4"},"spec":{"replicas":3}}`, "",
			0, 409, "", []string{"spec", "replicas"}, "1", -1},
		{"of the resource version", merge, `{"metadata":{"resourceVersion":"l5"},"spec":{"replicas":3}}`, "", 0, 200,
			"", []string{"spec", "replicas"}, "3", 1},
		{"what stays is never seen", merge, `{"spec":{"replicas":3}}`, "", 0, 200, "",
			[]string{"spec", "strange"}, `{"revision":2}`, 1},
		{"status", merge, `{"status":{"replicas":2}}`, "/status", 0, 200, `"apiVersion":"apps/v1"`,
			[]string{"status", "replicas"}, "2", 1},
		{"scale", merge, `{"spec":{"replicas":6}}`, "/scale", 0, 200, `"apiVersion":"autoscaling/v1"`,
			[]string{"spec", "replicas"}, "6", 0},
		{"apply", "application/apply-patch+yaml", `{"spec":{"replicas":3}}`, "", 0, 415, "server-side apply",
			[]string{"spec", "replicas"}, "1", 0},
		{"into another version", merge, `{"apiVersion":"extensions/v1beta1","spec":{"replicas":3}}`, "", 0, 400,
			`want apps/v1`, []string{"spec", "replicas"}, "1", 0},
		{"into another kind", jsonPatch, `[{"op":"replace","path":"/kind","value":"Scale"}]`, "", 0, 400, `"Scale`,
			[]string{"spec", "replicas"}, "1", 0},
		{"without a kind", merge, `{"kind":null,"spec":{"replicas":3}}`, "", 0, 200, `"Deployment"`,
			[]string{"spec", "replicas"}, "3", 1},
		{"of any resource version", merge, `{"metadata":{"resourceVersion":"0"},"spec":{"replicas":3}}`, "", 1, 200,
			"", []string{"metadata", "labels", "meddled"}, `"6"`, 2},
		{"another kind", "application/x+json", `{}`, "", 0, 415, "", []string{"spec", "replicas"}, "1", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, s := converted(t)
			s.meddlings = test.meddlings
			x.wants("PATCH", collection+"/old"+test.sub, test.patch, test.code, test.says, "Content-Type: "+test.kind)
			if got := s.at(test.at...); got != test.want {
				t.Errorf("%v is %s, want %s", test.at, got, test.want)
			}
			if s.writes != test.writes && test.writes >= 0 {
				t.Errorf("%d writes, want %d", s.writes, test.writes)
			}
			if r, _ := x.modern.last(collection + "/old"); r != nil && r.Method != http.MethodGet {
				t.Errorf("the other side is sent %s", r.Method)
			}
		})
	}
}

// Objects, their status and their scale are written in the version of the side, and answered in that of the client.
func TestWritesOfConvertedObjects(t *testing.T) {
	x, s := converted(t)
	const spec = `"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}}`
	object := func(version, more string) string {
		return `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"old","resourceVersion":"` + version +
			`"},` + spec + more + `}`
	}
	x.wants("PUT", collection+"/old", object("l4", ""), http.StatusConflict, "")
	x.wants("PUT", collection+"/old", object("l5", ""), http.StatusOK, `"apiVersion":"apps/v1"`)
	if s.at("spec", "replicas") != "2" || s.at("spec", "strange") != `{"revision":2}` {
		t.Errorf("the side has %s", s.at())
	}
	x.wants("PUT", collection+"/old/status", object("l6", `,"status":{"replicas":7}`), http.StatusOK, `"replicas":7`)
	if s.at("status", "replicas") != "7" || s.at("spec", "strange") != `{"revision":2}` {
		t.Errorf("the side has %s", s.at())
	}
	got := x.wants("GET", collection+"/old/scale", "", http.StatusOK, `"apiVersion":"autoscaling/v1"`)
	if !strings.Contains(got, `"selector":"a=b"`) {
		t.Errorf("the scale is %s", got)
	}
	x.wants("PUT", collection+"/old/scale", `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"old"},
		"spec":{"replicas":9}}`, http.StatusOK, `"replicas":9`)
	if s.at("spec", "replicas") != "9" {
		t.Errorf("the side has %s", s.at("spec"))
	}
}

// What the asked version cannot show stays, whatever resource version a client says: API servers take 0 for none, and
// one that is still to come may be there when the object is written.
func TestWritesOfAnyVersionKeepWhatIsNotSeen(t *testing.T) {
	object := func(version, apiVersion string) string {
		return `{"kind":"Deployment","apiVersion":"` + apiVersion + `","metadata":{"name":"old","resourceVersion":"` +
			version + `"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":
			{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	}
	for version, code := range map[string]int{"0": http.StatusOK, "": http.StatusOK, "l5": http.StatusConflict,
		"l6": http.StatusConflict, "l99": http.StatusConflict, "l0m0": http.StatusOK} {
		x, s := converted(t)
		s.meddlings = 1 // another client writes 6 between what is read here and what is written
		x.wants("PUT", collection+"/old", object(version, "apps/v1"), code, "")
		if got := s.at("spec", "strange"); got != `{"revision":2}` {
			t.Errorf("resource version %q: what is not seen is %s", version, got)
		}
	}
	x, s := converted(t)
	x.wants("PUT", collection+"/old", object("l5", "extensions/v1beta1"), http.StatusBadRequest, "want apps/v1")
	x.gateway.options.Create = pair.Legacy
	x.modern.say("GET "+collection+"/new", http.StatusNotFound, "{}")
	x.wants("POST", collection, strings.Replace(object("", "extensions/v1beta1"), `"old"`, `"new"`, 1),
		http.StatusBadRequest, "want apps/v1")
	if s.writes > 0 {
		t.Errorf("%d writes", s.writes)
	}
}

// Of one object, API servers do not look at the parameter watch.
func TestOneConvertedObjectIsNoWatch(t *testing.T) {
	x, _ := converted(t)
	x.wants("GET", collection+"/old?watch=true", "", http.StatusOK, `"name":"old"`)
	x, far := withCluster(t)
	far.say("GET "+strings.Replace(collection, "/v1/", "/v1beta2/", 1)+"/d", http.StatusOK,
		strings.Replace(deployment("d", "u"), "apps/v1", "apps/v1beta2", 1))
	x.wants("GET", "/clusters/far"+collection+"/d?watch=true", "", http.StatusOK, `"apiVersion":"apps/v1"`)
}

// Tables and metadata alone have the objects of both sides, whole ones in the asked version.
func TestFormsOfConvertedObjects(t *testing.T) {
	x, _ := converted(t)
	const meta = `"metadata":{"name":"%s","namespace":"a","uid":"u","resourceVersion":"5"}`
	answer := func(path, version, name string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			meta := fmt.Sprintf(meta, name)
			whole := `{"kind":"Deployment","apiVersion":"` + version + `",` + meta + `,"spec":{"replicas":1,"selector":{
				"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}}`
			partial := `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` + meta + `}`
			w.Header().Set("Content-Type", "application/json")
			switch as := r.Header.Get("Accept"); {
			case strings.Contains(as, "as=Table"):
				object := map[string]string{"": partial, "Metadata": partial, "Object": whole,
					"None": "null"}[r.URL.Query().Get("includeObject")]
				fmt.Fprintf(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},
					"columnDefinitions":[{"name":"Name","type":"string"}],"rows":[{"cells":[%q],"object":%s}]}`,
					name, object)
			case strings.Contains(as, "as=PartialObjectMetadataList"):
				fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
					"metadata":{"resourceVersion":"7"},"items":[%s]}`, partial)
			default:
				fmt.Fprintf(w, `{"kind":"DeploymentList","apiVersion":%q,"metadata":{"resourceVersion":"7"},
					"items":[%s]}`, version, whole)
			}
		}
	}
	x.legacy.page("GET "+older, answer(older, "extensions/v1beta1", "old"))
	x.modern.page("GET "+collection, answer(collection, "apps/v1", "new"))
	const table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for path, version := range map[string]string{older: "extensions/v1beta1", collection: "apps/v1"} {
		for _, test := range []struct{ query, form, kind, object string }{
			{"", table, "Table", "meta.k8s.io/v1"},
			{"?includeObject=Metadata", table, "Table", "meta.k8s.io/v1"},
			{"?includeObject=Object", table, "Table", version},
			{"", "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
				"PartialObjectMetadataList", "meta.k8s.io/v1"},
			{"", "Accept: application/json", "DeploymentList", version},
		} {
			code, _, text := x.ask("GET", path+test.query, "", test.form)
			type object struct {
				APIVersion string
				Metadata   struct {
					Name, ResourceVersion string
					Annotations           map[string]string
				}
			}
			var got struct {
				Kind  string
				Items []object
				Rows  []struct{ Object object }
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.Kind != test.kind {
				t.Errorf("%s%s %s: %d %s", path, test.query, test.form, code, text)
				continue
			}
			for _, row := range got.Rows {
				got.Items = append(got.Items, row.Object)
			}
			sides := map[string]string{"old": "legacy", "new": "modern"}
			for _, item := range got.Items {
				m := item.Metadata
				side := sides[m.Name]
				if item.APIVersion != test.object && item.APIVersion != "" || side == "" ||
					m.Annotations["kubefusion.dev/side"] != side || m.ResourceVersion != side[:1]+"5" {
					t.Errorf("%s%s %s: %+v in %s", path, test.query, test.form, item, text)
				}
			}
			if len(got.Items) != 2 {
				t.Errorf("%s%s %s: %s", path, test.query, test.form, text)
			}
		}
	}
	x.wants("GET", collection, "", http.StatusOK, `"Table"`, // kubectl before 1.16
		"Accept: application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json")
	if r, _ := x.modern.last(collection); !strings.Contains(r.Header.Get("Accept"), "as=Table;v=v1beta1;") {
		t.Errorf("the side is asked for %q", r.Header.Get("Accept"))
	}
	x.wants("GET", collection, "", http.StatusNotAcceptable, "",
		"Accept: application/json;as=Table;v=v2;g=meta.k8s.io")
}

// A client of a version that no side serves works with the objects of both.
func TestVersionsThatNoSideServes(t *testing.T) {
	x := newFixture(t)
	const beta = "/apis/apps/v1beta2/namespaces/a/deployments"
	list := `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"7"},"items":[` +
		oldDeployment("apps/v1") + `]}`
	x.legacy.say("GET "+collection, http.StatusOK, list)
	x.modern.say("GET "+collection, http.StatusOK, strings.ReplaceAll(list, `"name":"old"`, `"name":"new"`))
	x.wants("GET", "/apis/apps/v1beta2", "", http.StatusOK, `"deployments"`)
	text := x.wants("GET", beta, "", http.StatusOK, `"apiVersion":"apps/v1beta2"`)
	if !strings.Contains(text, `"name":"old"`) || !strings.Contains(text, `"name":"new"`) ||
		strings.Contains(text, `"apps/v1"`) || !strings.Contains(text, `"resourceVersion":"l7m7"`) {
		t.Errorf("the list is %s", text)
	}
	s := x.legacy.store(t, collection+"/old", strings.Replace(oldDeployment("apps/v1"), `,"strange":{"revision":2}`, "",
		1), "autoscaling/v1")
	x.modern.say("GET "+collection+"/old", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	x.wants("PATCH", beta+"/old", `{"spec":{"replicas":3}}`, http.StatusOK, `"apiVersion":"apps/v1beta2"`,
		"Content-Type: application/merge-patch+json")
	if s.at("spec", "replicas") != "3" || s.at("apiVersion") != `"apps/v1"` {
		t.Errorf("the side has %s", s.at())
	}
	x.wants("GET", beta+"/old/scale", "", http.StatusOK, `"apiVersion":"apps/v1beta2"`)
	x.modern.page("POST "+collection, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, x.modern.body(r))
	})
	x.wants("POST", beta, strings.Replace(strings.Replace(oldDeployment("apps/v1beta2"), `"old"`, `"third"`, 1),
		`,"strange":{"revision":2}`, "", 1), http.StatusCreated, `"apiVersion":"apps/v1beta2"`)
	if _, body := x.modern.last(collection); !strings.Contains(body, `"apiVersion":"apps/v1"`) {
		t.Errorf("the modern side is sent %s", body)
	}
}

// A quantity of twelve bytes took a core for a minute, and one of thirteen all memory. pkg/convert holds that they are
// refused in JSON, too.
func TestQuantitiesThatAreBombs(t *testing.T) {
	x, s := converted(t)
	const bomb = "1e-100000000"
	begin := time.Now()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Overhead: corev1.ResourceList{"cpu": resource.MustParse("12345678901n")}}}
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Raw: bytes.Replace(message, []byte("12345678901n"), []byte(bomb), 1)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	x.wants("PUT", collection+"/old", "k8s\x00"+string(wrapped), http.StatusBadRequest, "exponent",
		"Content-Type: application/vnd.kubernetes.protobuf")
	if s.writes > 0 {
		t.Errorf("the side has %s", s.at())
	}
	if took := time.Since(begin); took > 10*time.Second { // a busy machine takes some
		t.Errorf("a request took %s", took)
	}
}

// Metadata alone, as informers of metadata want it, is made of what a side answers with that is too old to.
func TestMetadataOfOldSides(t *testing.T) {
	x := newFixture(t)
	x.isOld()
	const metadata = `"metadata":{"name":"%s","namespace":"a","uid":"u","resourceVersion":"5"}`
	whole := fmt.Sprintf(`{"kind":"Deployment","apiVersion":"apps/v1",`+metadata+`,"spec":{"replicas":1}}`, "old")
	partial := fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+metadata+`}`, "new")
	answer := func(wants, object, list string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); !strings.HasPrefix(got, wants) {
				t.Errorf("%s is asked for as %q, want %q", r.URL, got, wants)
			}
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Query().Has("watch"):
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", strings.ReplaceAll(object, "\n", ""))
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			case strings.HasSuffix(r.URL.Path, "deployments"):
				fmt.Fprintf(w, list, object)
			default:
				io.WriteString(w, object)
			}
		}
	}
	const list = `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[%%s]}`
	x.legacy.page("GET "+collection, answer("application/json", whole, fmt.Sprintf(list, "DeploymentList", "apps/v1")))
	x.legacy.page("GET "+collection+"/old", answer("application/json", whole, ""))
	x.modern.page("GET "+collection, answer("application/json;as=PartialObjectMetadata", partial,
		fmt.Sprintf(list, "PartialObjectMetadataList", "meta.k8s.io/v1")))
	const accept = "Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata%[1]s;g=meta.k8s.io;v=v1," +
		"application/json;as=PartialObjectMetadata%[1]s;g=meta.k8s.io;v=v1,application/json"
	for path, form := range map[string]string{collection: "List", collection + "/old": ""} {
		text := x.wants("GET", path, "", http.StatusOK, `"resourceVersion":"l5"`, fmt.Sprintf(accept, form))
		if strings.Contains(text, "spec") || strings.Contains(text, `"Deployment`) ||
			!strings.Contains(text, `"kind":"PartialObjectMetadata`+form+`"`) {
			t.Errorf("%s: %s", path, text)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+collection+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	name, value, _ := strings.Cut(fmt.Sprintf(accept, ""), ": ")
	r.Header.Set(name, value)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := json.NewDecoder(response.Body)
	for range 2 {
		var e struct{ Object map[string]any }
		if err := events.Decode(&e); err != nil || e.Object["kind"] != "PartialObjectMetadata" ||
			e.Object["spec"] != nil {
			t.Errorf("an event: %v, %v", e.Object, err)
		}
	}
}

package restart

import (
	"bytes"
	"errors"

	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// describe reads objects and names what it got: "Pod shop/web [app sidecar:proxy]; Service shop/web".
func describe(r io.Reader) (string, error) {
	var list []string
	for o, err := range Objects(r) {
		if err != nil {
			return strings.Join(list, "; "), err
		}
		text := o.String()
		switch {
		case o.Pod != nil:
			var containers []string
			for kind, c := range Containers(&o.Pod.Spec) {
				name := c.Name
				if kind != AppContainer {
					name = string(kind) + ":" + name
				}
				containers = append(containers, name)
			}
			text += " [" + strings.Join(containers, " ") + "]"
			if o.IsTemplate {
				text += " template"
			}
		case o.Budget != nil:
			text += " " + o.APIVersion + " budget"
		case o.Container != nil:
			text += " " + o.Container.Image
		}
		list = append(list, text)
	}
	return strings.Join(list, "; "), nil
}

const (
	podJSON  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"app"}]}}`
	bareJSON = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"app"}]}}`
	template = `"template":{"spec":{"containers":[{"name":"app"}]}}`
)

func TestObjectsReadsWhatPeopleHave(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"white space", " \n\t ", ""},
		{"a pod", podJSON, "Pod shop/web [app]"},
		{"kind last", `{"spec":{"containers":[{"name":"app"}]},"metadata":{"name":"web"},"kind":"Pod"}`,
			"Pod web [app]"},
		{"a list as kubectl prints it, its kind last",
			`{"apiVersion":"v1","items":[` + podJSON +
				`,{"kind":"Service","metadata":{"name":"s"}}],"kind":"List","metadata":{}}`,
			"Pod shop/web [app]; Service s"},
		{"a list whose items do not say what they are",
			`{"kind":"PodList","apiVersion":"v1","items":[` + bareJSON + `]}`, "Pod shop/web [app]"},
		{"the same, its kind last", `{"items":[` + bareJSON + `],"kind":"PodList"}`, "Pod shop/web [app]"},
		{"an empty list", `{"kind":"PodList","items":[]}`, ""},
		{"a list of null", `{"kind":"PodList","items":null}`, ""},
		{"an array", `[` + podJSON + `, ` + podJSON + `]`, "Pod shop/web [app]; Pod shop/web [app]"},
		{"one per line", podJSON + "\n" + podJSON + "\n", "Pod shop/web [app]; Pod shop/web [app]"},
		{"a container", `{"name":"app","image":"a:1"}`, "container app a:1"},
		{"a deployment", `{"kind":"Deployment","metadata":{"name":"d"},"spec":{` + template + `}}`,
			"Deployment d [app] template"},
		{"a cron job", `{"kind":"CronJob","metadata":{"name":"d"},"spec":{"jobTemplate":{"spec":{` + template + `}}}}`,
			"CronJob d [app] template"},
		{"a pod template", `{"kind":"PodTemplate","metadata":{"name":"d"},` + template + `}`,
			"PodTemplate d [app] template"},
		{"a custom workload", `{"kind":"Rollout","metadata":{"name":"d"},"spec":{` + template + `}}`,
			"Rollout d [app] template"},
		{"something else with a template", `{"kind":"Certificate","metadata":{"name":"d"},"spec":{"template":"x"}}`,
			"Certificate d"},
		{"a budget",
			`{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"b","namespace":"n"}}`,
			"PodDisruptionBudget n/b policy/v1beta1 budget"},
		{"all kinds of containers",
			`{"kind":"Pod","metadata":{"name":"p"},"spec":{"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}],` +
				`"containers":[{"name":"a"},{"name":"b"}],"ephemeralContainers":[{"name":"e"}]}}`,
			"Pod p [a b init:i sidecar:s ephemeral:e]"},
		{"names of another case",
			`{"kind":"Pod","metadata":{"name":"p"},"spec":{"Containers":[{"name":"a"}],"containers":[{"name":"b","Name":"c"}]}}`, "Pod p [b]"},
		{"fields nobody knows",
			`{"kind":"Pod","x":{"y":[1]},"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","zz":1}]}}`,
			"Pod p [a]"},
		{"YAML", "# a comment\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n    resources: " +
			"{limits: {cpu: 1}}\n", "Pod p [a]"},
		{"YAML, a list", "kind: List\nitems:\n- {kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}\n",
			"Pod p [a]"},
		{"YAML, documents", "---\n# nothing\n---\nname: a\nimage: b\n---\nkind: Pod\nmetadata: {name: p}\n---\n",
			"container a b; Pod p []"},
		{"YAML, one document of JSON", "---\n" + podJSON, "Pod shop/web [app]"},
	} {
		for i, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			if got, err := describe(r); err != nil || got != c.want {
				t.Errorf("%s, reader %d: %q, %v, want %q", c.name, i, got, err, c.want)
			}
		}
	}
}

func TestObjectsNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a quantity", `{"kind":"List","items":[` + podJSON +
			`,{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"x"}}}]}}]}`,
			"object 2: Pod n/p: quantities must match"},
		{"a type", `{"kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":1}]}}`,
			"object 1: Pod p: json: cannot unmarshal number into Go struct field Container.spec.containers.name of " +
				"type string"},
		{"no kind", `{"data":{}}`, "object 1: it has no kind"},
		{"a number", `[1]`, "object 1: 1: want an object"},
		{"a string", `"x"`, "object 1: x: want an object"},
		{"a kind that is no name", `{"kind":{},"spec":{}}`, "object 1: kind: json: cannot unmarshal"},
		{"items that are none", `{"kind":"List","items":{}}`, "items: {: want an array"},
		{"an end in the middle", `{"kind":"List","items":[` + podJSON, "object 2: unexpected EOF"},
		{"an end in a pod", podJSON[:40], "object 1: unexpected EOF"},
		{"no JSON", `{"kind":"Pod",}`, "object 1: invalid character"},
		{"no YAML", "a: b: c", "object 1: yaml: mapping values are not allowed"},
		{"a template", `{"kind":"Deployment","metadata":{"name":"d"},"spec":{"template":1}}`,
			"object 1: Deployment d: json: cannot unmarshal number"},
	} {
		if _, err := describe(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
	broken := errors.New("broken pipe")
	if _, err := describe(io.MultiReader(strings.NewReader(podJSON+"\n"), iotest.ErrReader(broken))); !errors.Is(
		err, broken) {
		t.Errorf("a reader that fails: %v, want %v", err, broken)
	}
}

// endless repeats a text for a number of bytes.
type endless struct {
	text string
	left int
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	e.left -= n
	return n, nil
}

func TestObjectsRefusesAnObjectWithoutEnd(t *testing.T) {
	for name, text := range map[string]string{
		"JSON": `{"kind":"Pod","metadata":{"name":"`,
		"YAML": "kind: Pod\nmetadata:\n  name: ",
	} {
		const limit = 1 << 20
		in := &endless{text: "x", left: 10 * limit}
		var got error
		for _, err := range objects(io.MultiReader(strings.NewReader(text), in), limit) {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), "larger than 1 MiB") {
			t.Errorf("%s: %.200v, want an error that names the limit", name, got)
		}
		if read := 10*limit - in.left; read > 2*limit {
			t.Errorf("%s: it read %d KiB of an object that may have %d", name, read>>10, limit>>10)
		}
	}
}

// TestObjectsRefusesMoreThanFitsInMemory: an empty container takes three bytes of text, and 200 times as many decoded.
func TestObjectsRefusesMoreThanFitsInMemory(t *testing.T) {
	many := `{"spec":{"containers":[` + strings.Repeat("{},", 1<<20) + `{}]}}`
	for name, in := range map[string]string{
		"a pod":        `{"kind":"Pod",` + many[1:],
		"no kind":      many,
		"a template":   `{"kind":"Rollout","metadata":{"name":"d"},"spec":{"template":` + many + `}}`,
		"in a list":    `{"kind":"List","items":[` + podJSON + `,{"kind":"Pod",` + many[1:] + `]}`,
		"of one field": `{"kind":"Pod","spec":{"containers":[{"args":[` + strings.Repeat(`"",`, 3<<20) + `""]}]}}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := describe(strings.NewReader(in))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 128 MiB decoded") {
			t.Errorf("%s: %.200v, want an error that names the limit", name, err)
		}
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 20*len(in) {
			t.Errorf("%s: it took %d MiB to refuse %d", name, took>>20, len(in)>>20)
		}
	}
}

func TestObjectsHoldsOneItemOfAList(t *testing.T) {
	pod := strings.Replace(podJSON, `"app"`, `"app","env":[{"name":"A","value":"`+strings.Repeat("x", 10_000)+`"}]`, 1)
	const items = 4000
	in := io.MultiReader(strings.NewReader(`{"kind":"List","items":[`),
		&endless{text: pod + ",", left: items * (len(pod) + 1)}, strings.NewReader(pod+`]}`))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n, most := 0, uint64(0)
	for _, err := range Objects(in) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%1000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
		}
	}
	if n < items {
		t.Errorf("%d pods, want %d at least", n, items)
	}
	if most > 1<<20 {
		t.Errorf("it holds %d KiB while reading a list of %d MiB, want one item", most>>10, items*len(pod)>>20)
	}
}

func TestObjectsEndsWhenTheCallerDoes(t *testing.T) {
	for range Objects(strings.NewReader(podJSON + podJSON + "{")) {
		break
	}
}

// FuzzObjects reads anything. What can be read is judged: no panic, and a verdict with a reason for every container.
func FuzzObjects(f *testing.F) {
	for _, text := range []string{podJSON, bareJSON, "[" + podJSON + "]", `{"kind":"List","items":[` + podJSON + `]}`,
		"kind: Pod\n---\nname: a\n",
		`{"kind":"CronJob","spec":{"jobTemplate":{"spec":{` + template + `}}}}`, `{"items":null}`} {
		f.Add([]byte(text), 12, 36)
	}
	f.Fuzz(func(t *testing.T, data []byte, from, to int) {
		if longExponent.Match(data) {
			t.Skip()
		}
		minors := len(kubever.Minors())
		stops := []int{((from % minors) + minors) % minors, ((to % minors) + minors) % minors}
		r := Route{Stops: []kubever.Version{{Minor: kubever.Minors()[stops[0]]}, {Minor: kubever.Minors()[stops[1]]}}}
		for o, err := range Objects(bytes.NewReader(data)) {
			if err != nil || o.Pod == nil {
				continue
			}
			for _, outcome := range r.Judge(o.Pod, nil) {
				if outcome.Verdict == "" || len(outcome.Why) == 0 {
					t.Errorf("%s: %+v, want a verdict and a reason", o, outcome)
				}
			}
		}
	})
}

// TestAliasesThatAreBombs: a few kilobytes of pods that would be gigabytes when their aliases are written out.
func TestAliasesThatAreBombs(t *testing.T) {
	bomb := "kind: Pod\na: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n"
	if got, err := describe(strings.NewReader(bomb)); err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("Objects = %q, %v", got, err)
	}
}

// TestQuantitiesThatAreBombs: to parse twelve bytes took a minute.
func TestQuantitiesThatAreBombs(t *testing.T) {
	pod := "kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - name: a\n    resources: {limits: " +
		"{cpu: \"1e-100000000\"}}\n"
	if got, err := describe(strings.NewReader(pod)); err == nil || !strings.Contains(err.Error(), "exponent") {
		t.Errorf("Objects = %q, %v", got, err)
	}
}

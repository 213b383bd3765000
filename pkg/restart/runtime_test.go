package restart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	criLabels = `"labels":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u1"}`
	criHash   = `"annotations":{"io.kubernetes.container.hash":"48c72f38","io.kubernetes.container.restartCount":"2"}`
)

func TestParseRuntimeReadsCrictlAndDocker(t *testing.T) {
	cri := Record{Namespace: "shop", Pod: "web-0", UID: "u1", Container: "app", ID: "c1", Key: annotationHash,
		Hash: "48c72f38", Starts: 2}
	shim := cri
	shim.Docker, shim.Key = true, "annotation.io.kubernetes.container.hash"
	tools := cri
	tools.Docker, tools.Legacy, tools.Starts = true, true, 0
	for _, c := range []struct {
		name, in string
		want     []Record
	}{
		{"crictl ps", `{"containers":[
{"id":"c1","podSandboxId":"s1","metadata":{"name":"app","attempt":2},"state":"CONTAINER_RUNNING","createdAt":"1589000000000000000",` + criLabels + `,` + criHash + `},
{"id":"c0","state":"CONTAINER_EXITED",` + criLabels + `,` + criHash + `},
{"id":"x","state":"CONTAINER_RUNNING","labels":{},"annotations":{}}]}`, []Record{cri}},
		{"crictl ps of nothing", `{"containers": []}`, nil},
		{"crictl inspect", `{"status":{"id":"c1","state":"CONTAINER_RUNNING","createdAt":"2020-05-09T04:53:20Z",` +
			criLabels + `,` + criHash + `},"info":{"pid":1}}`, []Record{cri}},
		{"crictl inspect of two, one after the other", `{"status":{"id":"c0","state":"CONTAINER_EXITED"}}
{"status":{"id":"c1","state":"CONTAINER_RUNNING",` + criLabels + `,` + criHash + `}}`, []Record{cri}},
		{"crictl inspect of two, as an array",
			`[{"status":{"id":"c0","state":"CONTAINER_EXITED"}},{"status":{"id":"c1","state":"CONTAINER_RUNNING",` +
				criLabels + `,` + criHash + `}}]`, []Record{cri}},
		{"docker inspect",
			`[{"Id":"c1","State":{"Status":"running","Running":true},"Config":{"Labels":{"annotation.io.kubernetes.container.hash":"48c72f38",
"annotation.io.kubernetes.container.restartCount":"2","io.kubernetes.docker.type":"container","io.kubernetes.container.name":"app",
"io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u1"}}},
{"Id":"p1","State":{"Running":true},"Config":{"Labels":{"io.kubernetes.docker.type":"podsandbox","io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"web-0"}}},
{"Id":"c0","State":{"Running":false},"Config":{"Labels":{"io.kubernetes.docker.type":"container","io.kubernetes.pod.name":"web-0"}}},
{"Id":"x","State":{"Running":true},"Config":{"Labels":null}}]`, []Record{shim}},
		{"docker inspect, started by dockertools",
			`[{"Id":"c1","State":{"Running":true},"Config":{"Labels":{"io.kubernetes.container.hash":"48c72f38",
"io.kubernetes.container.restartCount":"2","io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u1"}}},
{"Id":"p1","State":{"Running":true},"Config":{"Labels":{"io.kubernetes.container.hash":"1","io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"web-0"}}}]`, []Record{tools}},
		{"nothing", "", nil},
	} {
		rt := new(Runtime)
		added, err := ParseRuntime(strings.NewReader(c.in), rt)
		got := rt.records[podKey{"shop", "web-0"}]
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" || added != len(c.want) {
			t.Errorf("%s: %d added, %v (-want +got):\n%s", c.name, added, err, diff)
		}
	}
}

func TestParseRuntimeReadsSandboxes(t *testing.T) {
	labels := `"labels":{"io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u1"}`
	pods := `{"items":[{"id":"s1","metadata":{"name":"web-0"},"state":"SANDBOX_READY","createdAt":"2",` + labels + `},
{"id":"s0","state":"SANDBOX_NOTREADY","createdAt":"1",` + labels + `},{"id":"x","state":"SANDBOX_READY"}]}`
	inspect := `{"status":{"id":"s1","state":"SANDBOX_READY","createdAt":"2020-05-09T04:53:20Z","network":{"ip":"10.0.0.7"},
"linux":{"namespaces":{"options":{"network":"NODE"}}},` + labels + `}}`
	s := Sandbox{Namespace: "shop", Pod: "web-0", UID: "u1"}
	ready, old, full := s, s, s
	ready.Ready, ready.Created = true, 2
	old.Created = 1
	full.Ready, full.HasNetwork, full.HostNetwork, full.IP = true, true, true, "10.0.0.7"
	for _, c := range []struct {
		name, in string
		want     []Sandbox
	}{
		{"crictl pods", pods, []Sandbox{ready, old}},
		{"crictl inspectp", inspect, []Sandbox{full}},
	} {
		rt := new(Runtime)
		added, err := ParseRuntime(strings.NewReader(c.in), rt)
		if diff := cmp.Diff(c.want, rt.sandboxes[podKey{"shop", "web-0"}]); err != nil || diff != "" || added != 0 {
			t.Errorf("%s: %d containers, %v (-want +got):\n%s", c.name, added, err, diff)
		}
	}
}

func TestParseRuntimeRefusesOtherJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                         "want the JSON of crictl ps",
		`{"kind":"PodList"}`:         "want the JSON of crictl ps",
		`{"items":[{"kind":"Pod"}]}`: "want the JSON of crictl ps",
		`{"containers":{}}`:          "cannot unmarshal",
		`[{"Id":"a"},{}]`:            "[1]: want the JSON",
		`CONTAINER ID IMAGE`:         "invalid character",
		`{"containers":[`:            "unexpected EOF",
		`3`:                          "cannot unmarshal",
		`[[{"Id":"a"}]]`:             "[0]: json: cannot unmarshal array", // each level would be held once more
		`{"containers":[` + strings.Repeat("{},", 1<<19) + `{}]}`:         "more than 128 MiB decoded",
		`[{"Id":"a"},{"items":[` + strings.Repeat("{},", 1<<19) + `{}]}]`: "[1]: so many values",
	} {
		_, err := ParseRuntime(strings.NewReader(in), new(Runtime))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRuntime(%.100s): %v, want an error with %q", in, err, want)
		}
	}
}

func TestFindPrefersTheContainerThatWasStartedLast(t *testing.T) {
	pod := running()
	rt := recorded(pod, "1")
	rt.Add(Record{Namespace: "shop", Pod: "web-0", UID: "u1", Container: "app", Hash: "3", Starts: 2})
	rt.Add(Record{Namespace: "shop", Pod: "web-0", UID: "u1", Container: "app", Hash: "2", Starts: 1})
	rt.Add(Record{Namespace: "shop", Pod: "web-0", UID: "u0", Container: "app", Hash: "4", Starts: 9})
	if got, ok := rt.find(pod, "app"); !ok || got.Hash != "3" {
		t.Errorf("find = %+v, %t, want hash 3", got, ok)
	}
	if got, ok := rt.find(pod, "proxy"); ok {
		t.Errorf("find(proxy) = %+v, want none", got)
	}
	withStatic(pod) // the runtime knows a static pod by another UID
	if got, ok := rt.find(pod, "app"); !ok || got.Hash != "4" {
		t.Errorf("find of a static pod = %+v, %t, want hash 4", got, ok)
	}
}

func FuzzParseRuntime(f *testing.F) {
	f.Add([]byte(`{"containers":[{"state":"CONTAINER_RUNNING",` + criLabels + `,` + criHash + `}]}`))
	f.Add([]byte(`[{"Id":"c1","State":{"Running":true},"Config":{"Labels":{"io.kubernetes.pod.name":"web-0"}}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rt := new(Runtime)
		added, err := ParseRuntime(strings.NewReader(string(data)), rt)
		if added != rt.Records() {
			t.Errorf("%d added, %d there, %v", added, rt.Records(), err)
		}
	})
}

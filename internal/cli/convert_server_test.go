package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// convert --for-server chooses the version of which the server has most, names what its release drops, and does without
// a version where a proxy answers none.
func TestConvertForAServer(t *testing.T) {
	for _, test := range []struct {
		version string
		named   bool // what the release drops
	}{{`{"gitVersion":"v1.15.12","major":"1","minor":"15"}`, true}, {"", false}} {
		list := func(gv, resources string) string {
			return fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[%s]}`, gv,
				resources)
		}
		scaler := `{"name":"horizontalpodautoscalers","kind":"HorizontalPodAutoscaler","namespaced":true,` +
			`"verbs":["get","create"]}`
		group := func(name string, versions ...string) string {
			var listed []string
			for _, version := range versions {
				listed = append(listed, fmt.Sprintf(`{"groupVersion":"%s/%s","version":%q}`, name, version, version))
			}
			return fmt.Sprintf(`{"name":%q,"versions":[%s],"preferredVersion":%s}`, name, strings.Join(listed, ","),
				listed[0])
		}
		answers := map[string]string{
			"/version": test.version,
			"/readyz":  "ok", "/healthz": "ok",
			"/api": `{"kind":"APIVersions","versions":["v1"]}`,
			"/api/v1": list("v1", `{"name":"namespaces","kind":"Namespace","namespaced":false,"verbs":["get","list"]},`+
				`{"name":"pods","kind":"Pod","namespaced":true,"verbs":["get","create"]}`),
			"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[` +
				group("autoscaling", "v1", "v2beta1", "v2beta2") + "]}",
			"/apis/autoscaling/v1":      list("autoscaling/v1", scaler),
			"/apis/autoscaling/v2beta1": list("autoscaling/v2beta1", scaler),
			"/apis/autoscaling/v2beta2": list("autoscaling/v2beta2", scaler),
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			answer, ok := answers[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, answer)
		}))
		t.Cleanup(server.Close)
		dir := t.TempDir()
		for name, text := range map[string]string{
			"server.conf": kubeconfig(server),
			"objects.yaml": `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: a, image: a}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := run(t, "convert", "-f", filepath.Join(dir, "objects.yaml"), "--for-server",
			filepath.Join(dir, "server.conf"))
		if code != 0 || !strings.Contains(out, "apiVersion: autoscaling/v2beta2\n") {
			t.Errorf("version %q: exit code %d\n%s%s", test.version, code, out, errs)
		}
		if named := strings.Contains(errs, "spec.topologySpreadConstraints is lost: 1.15 "); named != test.named {
			t.Errorf("version %q names what is lost: %t, want %t\n%s", test.version, named, test.named, errs)
		}
	}
}

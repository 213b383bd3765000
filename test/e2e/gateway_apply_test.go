//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/test/rig"
)

// appliedKind is a kind in a version that the modern side does not serve, what of it is applied, first and then, and
// the same in the version that it serves.
type appliedKind struct {
	version, resource, kind, served string
	first, then                     string // fields of the spec, of the asked version
	native                          string // what the first is natively
}

const templateYAML = "template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: example.test/c}]}}"

// extensionsYAML is what extensions/v1beta1 makes of a Deployment that says nothing, and apps/v1 does not.
const extensionsYAML = "progressDeadlineSeconds: 2147483647, revisionHistoryLimit: 2147483647, " +
	"strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}, "

// What versions make of absent fields otherwise than the served one is applied with the rest, so that it holds.
var appliedKinds = []appliedKind{
	{version: "extensions/v1beta1", resource: "deployments", kind: "Deployment", served: "apps/v1",
		first: "{replicas: 0, minReadySeconds: 5, selector: {matchLabels: {app: x}}, " + templateYAML + "}",
		then:  "{replicas: 0, selector: {matchLabels: {app: x}}, " + templateYAML + "}",
		native: "{replicas: 0, minReadySeconds: 5, selector: {matchLabels: {app: x}}, " + extensionsYAML +
			templateYAML + "}"},
	{version: "apps/v1beta1", resource: "deployments", kind: "Deployment", served: "apps/v1",
		first: "{replicas: 0, paused: false, selector: {matchLabels: {app: x}}, " + templateYAML + "}",
		then:  "{replicas: 0, selector: {matchLabels: {app: x}}, " + templateYAML + "}",
		native: "{replicas: 0, paused: false, selector: {matchLabels: {app: x}}, revisionHistoryLimit: 2, " +
			templateYAML + "}"},
	// A selector is what its version defaults to, and what apps/v1 requires.
	{version: "extensions/v1beta1", resource: "deployments", kind: "Deployment", served: "apps/v1",
		first: "{replicas: 0, minReadySeconds: 5, " + templateYAML + "}",
		then:  "{replicas: 0, " + templateYAML + "}",
		native: "{replicas: 0, minReadySeconds: 5, selector: {matchLabels: {app: x}}, " + extensionsYAML +
			templateYAML + "}"},
	{version: "networking.k8s.io/v1beta1", resource: "ingresses", kind: "Ingress", served: "networking.k8s.io/v1",
		first: "{backend: {serviceName: s, servicePort: 80}, rules: [{host: h.example.test, " +
			"http: {paths: [{path: /, backend: {serviceName: s, servicePort: web}}]}}]}",
		then: "{rules: [{host: h.example.test, " +
			"http: {paths: [{path: /, backend: {serviceName: s, servicePort: web}}]}}]}",
		native: "{defaultBackend: {service: {name: s, port: {number: 80}}}, " +
			"rules: [{host: h.example.test, http: {paths: [{path: /, pathType: ImplementationSpecific, " +
			"backend: {service: {name: s, port: {name: web}}}}]}}]}"},
	{version: "autoscaling/v2beta2", resource: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler",
		served: "autoscaling/v2",
		first: "{minReplicas: 2, maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}, " +
			"metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]}",
		then: "{maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}, " +
			"metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]}"},
	{version: "batch/v1beta1", resource: "cronjobs", kind: "CronJob", served: "batch/v1",
		first: "{schedule: 0 0 1 1 *, suspend: true, startingDeadlineSeconds: 10, jobTemplate: {spec: {template: {" +
			"spec: {restartPolicy: Never, containers: [{name: c, image: example.test/c}]}}}}}",
		then: "{schedule: 0 0 1 1 *, suspend: true, jobTemplate: {spec: {template: {spec: " +
			"{restartPolicy: Never, containers: [{name: c, image: example.test/c}]}}}}}"},
	{version: "policy/v1beta1", resource: "poddisruptionbudgets", kind: "PodDisruptionBudget", served: "policy/v1",
		first: "{minAvailable: 1, selector: {matchLabels: {app: x}}}",
		then:  "{selector: {matchLabels: {app: x}}}"},
}

// manifest is an object that is applied.
func (a appliedKind) manifest(version, name, spec string) string {
	return "apiVersion: " + version + "\nkind: " + a.kind + "\nmetadata: {name: " + name +
		", labels: {app: x}}\nspec: " + spec + "\n"
}

// applies: `kubectl apply --server-side` of versions that the modern side does not serve. Who owns what is what a
// client of its own version owns, a second apply changes nothing, and what is left out is removed.
func (g *gatewayed) applies(t *testing.T) {
	flags := []string{"apply", "--server-side", "--field-manager=ci", "-f", "-"}
	for i, a := range appliedKinds {
		t.Run(a.kind+" "+a.version, func(t *testing.T) {
			g := g.with(t, g.client)
			name := "applied-" + string(rune('a'+i))
			path := "/apis/" + a.served + "/namespaces/default/" + a.resource + "/"
			read := func(name string) (o struct {
				Metadata metav1.ObjectMeta
				Spec     map[string]any
			}) {
				t.Helper()
				must(t, g.admin[pair.Modern].Call(t.Context(), http.MethodGet, path+name, nil, &o))
				return o
			}
			owned := func(name string) string {
				t.Helper()
				for _, entry := range read(name).Metadata.ManagedFields {
					if entry.Manager == "ci" && entry.Operation == metav1.ManagedFieldsOperationApply {
						var fields bytes.Buffer
						must(t, json.Indent(&fields, entry.FieldsV1.Raw, "", " "))
						return entry.APIVersion + "\n" + fields.String()
					}
				}
				t.Fatalf("%s: ci owns nothing: %v", name, read(name).Metadata.ManagedFields)
				return ""
			}
			says(t, g.ok(a.manifest(a.version, name, a.first), append(flags, "--dry-run=server")...),
				"serverside-applied")
			if err := g.admin[pair.Modern].Call(t.Context(), http.MethodGet, path+name, nil, nil); rig.Code(err) !=
				http.StatusNotFound {
				t.Fatalf("after a dry run: %v", err)
			}
			says(t, g.ok(a.manifest(a.version, name, a.first), flags...), "serverside-applied")
			native := a.first
			if a.native != "" {
				native = a.native
			}
			g.ok(a.manifest(a.served, name+"-native", native), flags...)
			if got, want := owned(name), owned(name+"-native"); got != want {
				t.Errorf("ci owns %s\nand natively %s", got, want)
			}
			before := read(name)
			answer := g.ok(a.manifest(a.version, name, a.first), append(flags, "-o", "yaml",
				"--show-managed-fields")...)
			says(t, answer, "apiVersion: "+a.version+"\n", "manager: ci\n", "apiVersion: "+a.served+"\n")
			if after := read(name); after.Metadata.ResourceVersion != before.Metadata.ResourceVersion {
				t.Errorf("a second apply changes %v\nto %v", before, after)
			}
			g.ok(a.manifest(a.version, name, a.then), flags...)
			if after := read(name); len(after.Spec) >= len(before.Spec) && a.kind == "Ingress" ||
				after.Metadata.ResourceVersion == before.Metadata.ResourceVersion {
				t.Errorf("what is left out stays: %v", after.Spec)
			}
			if strings.Contains(owned(name), "minReadySeconds") {
				t.Errorf("ci still owns %s", owned(name))
			}

			// Another manager, the same and another value: a conflict names the first one.
			other := []string{"apply", "--server-side", "--field-manager=other", "-f", "-"}
			g.ok(a.manifest(a.version, name, a.then), other...)
			changed := strings.Replace(a.manifest(a.version, name, a.then), "app: x", "app: z", 1) // the label
			_, err := g.kubectl(changed, other...)
			if err == nil || !strings.Contains(err.Error(), `conflict with "ci"`) ||
				!strings.Contains(err.Error(), ".metadata.labels.app") {
				t.Errorf("a conflict: %v", err)
			}
			g.ok(changed, append(other, "--force-conflicts")...)
			if after := read(name); after.Metadata.Labels["app"] != "z" {
				t.Errorf("forced: %v", after.Metadata.Labels)
			}
			g.ok("", "delete", a.resource+"."+strings.Split(a.served, "/")[0], name, name+"-native")
		})
	}
	t.Run("after a client-side apply", func(t *testing.T) {
		a := appliedKinds[0]
		g.ok(a.manifest(a.version, "moved", a.first), "apply", "-f", "-")
		g.ok(a.manifest(a.version, "moved", a.first), "apply", "--server-side", "-f", "-")
		g.ok(a.manifest(a.version, "moved", a.then), "apply", "--server-side", "-f", "-")
		if text := g.ok("", "get", "deployment", "moved", "-o", "yaml"); strings.Contains(text, "minReadySeconds: 5") {
			t.Errorf("what is left out stays: %s", text)
		}
		g.ok("", "delete", "deployment", "moved")
	})
	t.Run("refused", func(t *testing.T) {
		_, err := g.kubectl(appliedKinds[0].manifest("extensions/v1beta1", "refused", "{strange: 1}"),
			append(flags, "--validate=false")...)
		if err == nil || !strings.Contains(err.Error(), "spec.strange") {
			t.Errorf("what apps/v1 cannot say: %v", err)
		}
		// The legacy side has no server-side apply.
		_, err = g.kubectl(deploymentYAML("old", 0), flags...)
		if err == nil || !strings.Contains(err.Error(), "apply") {
			t.Errorf("a side without server-side apply: %v", err)
		}
	})
}

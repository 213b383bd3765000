package validate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// What servers let go of since is refused for those before, by the field, and for none after.
func TestWhatOldServersRefuse(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	many := "a.example" + strings.Repeat(", a.example", 6)
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60)
	for _, test := range []struct {
		spec, field string
		from, to    kubever.Minor // that refuse it
	}{
		{"containers: [{name: c, image: i, env: [{name: a-b, value: x}]}]", "containers[0].env[0].name", 6, 7},
		{"containers: [{name: c, image: i, env: [{name: a.b, value: x}]}]", "containers[0].env[0].name", 6, 7},
		{"containers: [{name: c, image: i, env: [{name: 1a, value: x}]}]", "containers[0].env[0].name", 6, 31},
		{"containers: [{name: c, image: i, env: [{name: 'a b', value: x}]}]", "containers[0].env[0].name", 6, 31},
		{"containers: [{name: c, image: i, env: [{name: ok}, {name: ..a, value: x}]}]",
			"containers[0].env[1].name", 6, 31},
		{"initContainers: [{name: d, image: i, env: [{name: 'a:b', value: x}]}], containers: [{name: c, image: i}]",
			"initContainers[0].env[0].name", 6, 31},
		{"containers: [{name: c, image: i, envFrom: [{prefix: 1a_, configMapRef: {name: a}}]}]",
			"containers[0].envFrom[0].prefix", 7, 31},
		{"dnsConfig: {searches: [" + many + "]}, containers: [{name: c, image: i}]", "dnsConfig.searches", 10, 25},
		{"dnsConfig: {searches: [" + long + ", " + long + "]}, containers: [{name: c, image: i}]",
			"dnsConfig.searches", 10, 25},
		{"dnsConfig: {searches: [a.example, _b.example]}, containers: [{name: c, image: i}]",
			"dnsConfig.searches[1]", 10, 32},
		{"dnsConfig: {searches: [.]}, containers: [{name: c, image: i}]", "dnsConfig.searches[0]", 10, 32},
		{"dnsConfig: {searches: [a.example.]}, containers: [{name: c, image: i}]", "", 0, 0},
		{"securityContext: {sysctls: [{name: net/ipv4/tcp_syncookies, value: '1'}]}, containers: [{name: c, image: i}]",
			"securityContext.sysctls[0].name", 11, 24},
		{"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
			"{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}, containers: [{name: c, image: i}]",
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]." +
				"matchExpressions",
			6, 9},
		{"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: " +
			"{matchExpressions: []}}]}}, containers: [{name: c, image: i}]", "affinity.nodeAffinity." +
			"preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions", 6, 9},
		{"containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 0}}}}]",
			"containers[0].lifecycle.preStop.sleep.seconds", 30, 32},
		{"containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {}}}}]",
			"containers[0].lifecycle.preStop.sleep.seconds", 30, 32},
		{"containers: [{name: c, image: i, env: [{name: A, valueFrom: {fieldRef: " +
			"{fieldPath: \"metadata.labels['a']\"}}}]}]",
			"containers[0].env[0].valueFrom.fieldRef.fieldPath", 6, 8},
		{"containers: [{name: c, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}]",
			"containers[0].env[0].valueFrom.fieldRef.fieldPath", 6, 7},
		{"volumes: [{name: a, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['a']\"}}]}}], " +
			"containers: [{name: c, image: i}]", "volumes[0].downwardAPI.items[0].fieldRef.fieldPath", 6, 8},
		{"volumes: [{name: a, projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: " +
			"{fieldPath: \"metadata.annotations['a']\"}}]}}]}}], containers: [{name: c, image: i}]",
			"volumes[0].projected.sources[0].downwardAPI.items[0].fieldRef.fieldPath", 6, 8},
		{"hostNetwork: true, hostAliases: [{ip: 10.0.0.1, hostnames: [a]}], containers: [{name: c, image: i}]",
			"hostAliases", 7, 7},
		{"containers: [{name: c, image: i, restartPolicy: Always}]", "containers[0].restartPolicy", 28, 33},
		{"initContainers: [{name: d, image: i, restartPolicy: Never}], containers: [{name: c, image: i}]",
			"initContainers[0].restartPolicy", 29, 33},
		{"initContainers: [{name: d, image: i, restartPolicy: Always}], containers: [{name: c, image: i}]", "", 0, 0},
		{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: " +
			"{matchLabels: {a: b}}, matchLabelKeys: [a]}], containers: [{name: c, image: i}]",
			"topologySpreadConstraints[0].matchLabelKeys[0]", 27, 33},
		{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: " +
			"{matchExpressions: [{key: a, operator: Exists}]}, matchLabelKeys: [b, a]}], " +
			"containers: [{name: c, image: i}]",
			"topologySpreadConstraints[0].matchLabelKeys[1]", 27, 33},
	} {
		for _, in := range []struct{ text, at string }{
			{"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {" + test.spec + "}", "spec."},
			{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: " +
				"{matchLabels: {a: b}}, template: " +
				"{metadata: {labels: {a: b}}, spec: {" + test.spec + "}}}", "spec.template.spec."},
		} {
			for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
				object := parse(t, in.text)
				to := c.StandingIn(object.GroupVersionKind(), minor).Target
				err := judged(c, object, to, minor)
				want := minor >= test.from && minor <= test.to
				refused := err != nil && strings.Contains(err.Error(), in.at+test.field+": ") &&
					!strings.Contains(err.Error(), test.field+": Required")
				if refused != want || test.field == "" && minor >= 10 && err != nil {
					t.Errorf("%s of %s: %v; want refused %v", test.spec, minor, err, want)
				}
			}
		}
	}
}

func TestNamesOfServices(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range []kubever.Minor{6, 35, 36} {
		in := parse(t, "apiVersion: v1\nkind: Service\nmetadata: {name: 1a}\nspec: {ports: [{port: 1}]}")
		err := judged(c, in, in.GroupVersionKind(), minor)
		if refused := err != nil && strings.Contains(err.Error(), "metadata.name"); refused != (minor < 36) {
			t.Errorf("a name with a digit first in %s: %v", minor, err)
		}
	}
	for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
		in := parse(t, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {defaultBackend: "+
			"{service: {name: 1a, port: {number: 1}}}, rules: [{http: {paths: [{path: /, pathType: "+
			"ImplementationSpecific, backend: {service: {name: a, port: {number: 1}}}}, {path: /b, pathType: "+
			"ImplementationSpecific, backend: {service: {name: 1b, port: {number: 1}}}}]}}]}")
		to := c.StandingIn(in.GroupVersionKind(), minor).Target
		err := judged(c, in, to, minor)
		var refused *RefusedError
		errors.As(err, &refused)
		var got, want []string
		if refused != nil {
			for _, err := range refused.Errors {
				got = append(got, err.Field)
			}
		}
		switch {
		case minor >= 36:
		case to.Version == "v1":
			want = []string{"spec.defaultBackend.service.name", "spec.rules[0].http.paths[1].backend.service.name"}
		default:
			want = []string{"spec.backend.serviceName", "spec.rules[0].http.paths[1].backend.serviceName"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("names of services with a digit first in an Ingress of %s: refused %q, want %q", minor, got, want)
		}
	}
	custom := parse(t, "apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: a}\n"+
		"spec: {template: {spec: {containers: [{env: [{name: 1}]}]}}}")
	custom.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Deployment"})
	if err := judged(c, custom, custom.GroupVersionKind(), 6); err != nil {
		t.Errorf("a custom resource is judged as a Deployment: %v", err)
	}
}

func TestNamespacesOfEvents(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const timed = "eventTime: '2020-01-01T00:00:00.000000Z'\naction: a\nreason: r\nreportingComponent: a.example/c\n" +
		"reportingInstance: i\n"
	for _, test := range []struct {
		name, namespace, about, more string
		from, to                     kubever.Minor // that refuse it
	}{
		{"of a Node in default", "default", "kind: Node, name: a, apiVersion: v1", "", 0, 0},
		{"of a Node elsewhere", "demo", "kind: Node, name: a, apiVersion: v1", "", 6, kubever.Newest},
		{"of a Node with a namespace", "default", "kind: Node, name: a, namespace: default", "", 6, 10},
		{"of a Pod in its namespace", "demo", "kind: Pod, name: a, namespace: demo, apiVersion: v1", "", 0, 0},
		{"of a Pod elsewhere", "default", "kind: Pod, name: a, namespace: demo, apiVersion: v1", "", 6,
			kubever.Newest},
		{"of a Pod without a namespace", "default", "kind: Pod, name: a, apiVersion: v1", "", 6, 10},
		{"of what the server does not know", "default", "kind: X, name: p, apiVersion: x.example/v1", "", 0, 0},
		{"timed, of a Pod elsewhere", "default", "kind: Pod, name: a, namespace: demo, apiVersion: v1", timed, 6, 8},
		{"timed, of a Node in default", "default", "kind: Node, name: a, apiVersion: v1", timed, 9, 18},
		{"timed, of a Node in kube-system", "kube-system", "kind: Node, name: a, apiVersion: v1", timed, 6, 8},
	} {
		for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
			in := parse(t, "apiVersion: v1\nkind: Event\nmetadata: {name: a, namespace: "+test.namespace+
				"}\ninvolvedObject: {"+test.about+"}\n"+test.more)
			err := judged(c, in, in.GroupVersionKind(), minor)
			refused := err != nil && strings.Contains(err.Error(), "involvedObject.namespace")
			if want := minor >= test.from && minor <= test.to; refused != want {
				t.Errorf("an Event %s, of %s: %v; want refused %t", test.name, minor, err, want)
			}
		}
	}
}

const (
	hooks = "apiVersion: admissionregistration.k8s.io/%s\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\n" +
		"webhooks: [{name: a.b.c, clientConfig: {url: 'https://a'}, sideEffects: None, admissionReviewVersions: [%s]}]"
	peers = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, " +
		"policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}, {%s}]}], egress: [{to: [{%s}]}]}"
	converting = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: " +
		"{name: xs.g.example}\nspec: {group: g.example, version: v1, scope: Cluster, names: {plural: xs, " +
		"singular: x, kind: X, listKind: XList}, %s, validation: {openAPIV3Schema: {type: object}}, " +
		"conversion: {strategy: Webhook, webhookClientConfig: {url: 'https://a'}, conversionReviewVersions: [%s]}}"
	ruled = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.g.example}\n" +
		"spec: {group: g.example, scope: Cluster, names: {plural: xs, singular: x, kind: X, listKind: XList}, " +
		"versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, " +
		"properties: {spec: {type: object, properties: {a: {type: array, maxItems: 9, " +
		"items: {type: string, maxLength: 99, x-kubernetes-validations: [{rule: %q%s}]}}}}}}}}]}"
	costly = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.g.example}\n" +
		"spec: {group: g.example, scope: Cluster, names: {plural: xs, singular: x, kind: X, listKind: XList}, " +
		"versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, " +
		"properties: {spec: {type: array, items: {type: object, properties: {a: {type: string}, b: {type: string}}, " +
		"x-kubernetes-validations: [{rule: has(self.a) && !has(self.b) || !has(self.a) && has(self.b)}]}}}}}}]}"
	rules     = "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.x-kubernetes-validations[0]."
	admission = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n" +
		"spec: {failurePolicy: Fail, matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], " +
		"operations: [CREATE], resources: [pods]}]}, validations: [{expression: %q}]%s}"
	matching = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n" +
		"metadata: {name: a}\nwebhooks: [{name: a.b.c, clientConfig: {url: 'https://a'}, sideEffects: None, " +
		"admissionReviewVersions: [v1, v1beta1], matchConditions: [{name: a, expression: %q}]}]"
	annotated = "apiVersion: %s\nmetadata: {name: a}\nspec: {serviceName: a, selector: {matchLabels: {a: b}}, " +
		"template: {metadata: {labels: {a: b}, annotations: {%q: %q}}, spec: {containers: [{name: c, image: i}]}}}"
)

// What servers of some minors refuse of whole objects is refused for these, by the field, and for no others.
func TestWhatOldServersRefuseOfObjects(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const none = kubever.Minor(0)
	deployment, set := "apps/v1\nkind: Deployment", "apps/v1\nkind: StatefulSet"
	for _, test := range []struct {
		text, field string
		from, to    kubever.Minor // that refuse it
	}{
		{fmt.Sprintf(hooks, "v1beta1", "v1"), "webhooks[0].admissionReviewVersions", 15, 16},
		{fmt.Sprintf(hooks, "v1", "v1"), "webhooks[0].admissionReviewVersions", 15, 16},
		{fmt.Sprintf(hooks, "v1", "v1, v1beta1"), "webhooks[0].admissionReviewVersions", none, none},
		{fmt.Sprintf(converting, "preserveUnknownFields: false", "v1"), "spec.conversion.conversionReviewVersions",
			15, 16},
		{fmt.Sprintf(converting, "preserveUnknownFields: false", "v1beta1"), "spec.conversion.strategy", none,
			none},
		{fmt.Sprintf(converting, "preserveUnknownFields: true", "v1beta1"), "spec.conversion.strategy", 15, 21},
		{fmt.Sprintf(converting, "subresources: {}", "v1beta1"), "spec.conversion.strategy", 15, 21},
		{"apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1}], ports: []}]",
			"subsets[0].ports", 6, 7},
		{"apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1}]}]",
			"subsets[0].ports", 6, 7},
		{fmt.Sprintf(peers, "podSelector: {}, namespaceSelector: {}", "podSelector: {}"),
			"spec.ingress[0].from[1]", 6, 10},
		{fmt.Sprintf(peers, "podSelector: {}", "podSelector: {}, namespaceSelector: {}"),
			"spec.egress[0].to[0]", 8, 10},
		{fmt.Sprintf(peers, "podSelector: {}", "namespaceSelector: {}"), "spec", none, none},
		{fmt.Sprintf(annotated, deployment, "container.apparmor.security.beta.kubernetes.io/c", "unconfined"),
			"spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]", 6, 8},
		{fmt.Sprintf(annotated, set, "container.apparmor.security.beta.kubernetes.io/c", "unconfined"),
			"spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]", 6, 8},
		{fmt.Sprintf(annotated, deployment, "container.apparmor.security.beta.kubernetes.io/c", "runtime/default"),
			"spec", none, none},
		{fmt.Sprintf(annotated, deployment, "security.alpha.kubernetes.io/sysctls", "net/ipv4/x=1"),
			"spec.template.metadata.annotations[security.alpha.kubernetes.io/sysctls]", 6, 10},
		{fmt.Sprintf(annotated, deployment, "security.alpha.kubernetes.io/sysctls", "a.b"),
			"spec.template.metadata.annotations[security.alpha.kubernetes.io/sysctls]", 6, 10},
		{fmt.Sprintf(annotated, deployment, "security.alpha.kubernetes.io/sysctls", "a.b=1,c.d=2"), "spec", none, none},
		{"apiVersion: v1\nkind: Node\nmetadata: {generateName: a-}", "spec.externalID", 6, 10},
		{"apiVersion: v1\nkind: Node\nmetadata: {generateName: a-}\nspec: {externalID: a}", "spec", none, none},
		{"apiVersion: v1\nkind: Node\nmetadata: {name: a}", "spec", none, none},
		{"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteOnce], " +
			"resources: {requests: {storage: 1Gi}}, dataSource: {kind: VolumeSnapshot, name: a, " +
			"apiGroup: snapshot.storage.k8s.io}}", "spec.dataSource", 12, 13},
		{"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {pods: 1}, scopeSelector: " +
			"{matchExpressions: [{scopeName: PriorityClass, operator: Exists}]}}", "spec.scopeSelector", 11, 11},
		{fmt.Sprintf(ruled, "self.startsWith('a') && url(self).getHost() != ''", ""), rules, none, none},
		{costly, "spec.validation.openAPIV3Schema.properties[spec].items.x-kubernetes-validations[0].rule", 28, 28},
		{fmt.Sprintf(ruled, "isQuantity(self)", ""), rules + "rule", 25, 28},
		{fmt.Sprintf(ruled, "isIP(self)", ""), rules + "rule", 25, 30},
		{fmt.Sprintf(ruled, "!format.dns1123Label().validate(self).hasValue()", ""), rules + "rule", 25, 31},
		{fmt.Sprintf(ruled, "isSemver(self, true)", ""), rules + "rule", 25, 33},
		{fmt.Sprintf(ruled, "self != ''", ", messageExpression: \"string(isIP(self))\""),
			rules + "messageExpression", 27, 30},
		{fmt.Sprintf(admission, "object.metadata.name != ''", ""), "spec", none, none},
		{fmt.Sprintf(admission, "isIP(object.metadata.name)", ""), "spec.validations[0].expression", 30, 30},
		{fmt.Sprintf(admission, "variables.x", ", variables: [{name: x, expression: 'isIP(object.metadata.name)'}]"),
			"spec.variables[0].expression", 30, 30},
		{fmt.Sprintf(admission, "!format.dns1123Label().validate(object.metadata.name).hasValue()", ""),
			"spec.validations[0].expression", 30, 31},
		{fmt.Sprintf(admission, "true", ", auditAnnotations: [{key: k, "+
			"valueExpression: 'string(isSemver(object.metadata.name, true))'}]"),
			"spec.auditAnnotations[0].valueExpression", 30, 33},
		{fmt.Sprintf(admission, "true",
			", matchConditions: [{name: a, expression: 'object.spec.a.distinct().size() == 1'}]"),
			"spec.matchConditions[0].expression", 30, 34},
		{fmt.Sprintf(matching, "isIP(request.name)"), "webhooks[0].matchConditions[0].expression", 28, 30},
		{fmt.Sprintf(matching, "request.name != ''"), "webhooks", none, none},
	} {
		for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
			object := parse(t, test.text)
			to := c.StandingIn(object.GroupVersionKind(), minor).Target
			if to.Empty() {
				continue
			}
			err := judged(c, object, to, minor)
			var refused *RefusedError
			found := errors.As(err, &refused) && !refused.Doubtful &&
				slices.ContainsFunc(refused.Errors, func(err *field.Error) bool {
					return err.Field == test.field || test.from == none && strings.HasPrefix(err.Field, test.field)
				})
			if want := minor >= test.from && minor <= test.to; found != want {
				t.Errorf("%s\nfor %s: %v; want %s refused: %t", test.text, minor, err, test.field, want)
			}
		}
	}
}

// A StatefulSet whose pods its servers refuse is accepted up to 1.33: what is said of it says so.
func TestPodsOfStatefulSetsThatAreRefused(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {serviceName: a, selector: " +
		"{matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {%s}}}"
	const labels = "containers: [{name: c, image: i, env: [{name: A, valueFrom: {fieldRef: " +
		"{fieldPath: \"metadata.labels['x']\"}}}]}]"
	for _, test := range []struct {
		spec  string
		minor kubever.Minor
		want  string // part of what is said
	}{
		{labels, 6, "1.6 accepts it, and refuses what is created of it: spec.template.spec.containers[0].env[0]"},
		{labels, 15, ""},
		{"containers: []", 33, "1.33 accepts it, and refuses what is created of it: spec.template.spec.containers"},
		{"containers: []", 34, "1.34 refuses it: spec.template.spec.containers"},
		{"restartPolicy: Never, containers: [{name: c, image: i}]", 10, "1.10 may refuse it"},
		{"restartPolicy: Never, " + labels, 6, "1.6 may refuse it, as 1.36 does: spec.template.spec.restartPolicy"},
	} {
		in := parse(t, fmt.Sprintf(set, test.spec))
		to := c.StandingIn(in.GroupVersionKind(), test.minor).Target
		err := judged(c, in, to, test.minor)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: %v; want %q", test.spec, test.minor, err, test.want)
		}
	}
}

// What a release drops as a whole it does not refuse for what is in it.
func TestDroppedSchemasAreNotRefused(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	in := parse(t, "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: "+
		"{name: xs.g.example}\nspec: {group: g.example, version: v1, scope: Cluster, names: {plural: xs, singular: x, "+
		"kind: X, listKind: XList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: "+
		"{properties: {a: {default: 1}, b: {additionalProperties: {type: string}}}}}}]}")
	if err := judged(c, in, in.GroupVersionKind(), 10); err != nil {
		t.Errorf("schemas of versions, which 1.10 drops: %v", err)
	}
	if err := judged(c, in, in.GroupVersionKind(), 15); err == nil {
		t.Error("a default in the schema of a version: not refused for 1.15")
	}
}

// What 1.36 refuses of an object because a release drops a field of it, which 1.36 knows, the release may accept.
func TestWhatDependsOnADroppedFieldIsDoubtful(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	in := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}], "+
		"volumes: [{name: v, azureDisk: {kind: Managed, diskName: d, diskURI: /subscriptions/s/disks/d}}]}")
	var refused *RefusedError
	err = judged(c, in, in.GroupVersionKind(), 6)
	if !errors.As(err, &refused) || !refused.Doubtful {
		t.Errorf("a disk whose kind 1.6 drops: %v; want a doubt", err)
	}
	if err := judged(c, in, in.GroupVersionKind(), 10); err != nil {
		t.Errorf("a disk whose kind 1.10 knows: %v", err)
	}
}

// Scopes of quotas came one by one.
func TestScopesOfQuotas(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]string{
		"CrossNamespacePodAffinity": "pods", "VolumeAttributesClass": "persistentvolumeclaims",
	}
	for scope, from := range map[string]kubever.Minor{"CrossNamespacePodAffinity": 22, "VolumeAttributesClass": 33} {
		for minor := kubever.Minor(12); minor <= kubever.Newest; minor++ { // scopeSelector
			in := parse(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {"+
				counted[scope]+": 1}, scopeSelector: {matchExpressions: [{scopeName: "+scope+
				", operator: Exists}]}}")
			err := judged(c, in, in.GroupVersionKind(), minor)
			refused := err != nil && strings.Contains(err.Error(), minor.String()+" refuses it: ")
			if refused != (minor < from) {
				t.Errorf("scope %s of %s: %v; want refused %t", scope, minor, err, minor < from)
			}
		}
	}
}

// Servers merge the keys of labels of a pod into its selectors before they validate it, from the minor on that does.
func TestKeysOfLabelsAreMerged(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		spec, labels string
		want         bool
	}{
		{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: " +
			"{matchLabels: {a: b}}, matchLabelKeys: [a]}]", "a: b", true},
		{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: " +
			"{matchLabels: {a: b}}, matchLabelKeys: [c]}]", "a: b, c: d", false},
		{"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, labelSelector: " +
			"{matchLabels: {a: b}}, matchLabelKeys: [a]}]}}", "a: b", true},
		{"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, labelSelector: " +
			"{matchLabels: {a: b}}, matchLabelKeys: [a]}]}}", "c: d", false},
		{"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, " +
			"podAffinityTerm: " +
			"{topologyKey: z, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [a]}}]}}", "a: b", true},
		{"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, " +
			"podAffinityTerm: " +
			"{topologyKey: z, labelSelector: {matchLabels: {a: b}}, mismatchLabelKeys: [c]}}]}}", "c: d", false},
	} {
		in := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {"+test.labels+"}}\nspec: {"+test.spec+
			", containers: [{name: c, image: i}]}")
		err := judged(c, in, in.GroupVersionKind(), kubever.Library)
		if refused := err != nil && strings.Contains(err.Error(), "exists in both"); refused != test.want ||
			!test.want && err != nil {
			t.Errorf("%s of a pod with %s: %v; want refused %t", test.spec, test.labels, err, test.want)
		}
	}
}

// 1.6 took no topologyKey for any in preferred anti-affinity.
func TestTopologyOfPreferredAntiAffinity(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	in := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {affinity: {podAntiAffinity: "+
		"{preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}}}]}}, "+
		"containers: [{name: c, image: i}]}")
	for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
		err := judged(c, in, in.GroupVersionKind(), minor)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Doubtful != (minor < 7) {
			t.Errorf("no topologyKey in %s: %v; want a doubt %t", minor, err, minor < 7)
		}
	}
}

// Mutating policies are served by default since 1.36 alone: servers of before are asked for them by flag.
func TestMutationsOfLaterFunctions(t *testing.T) {
	later := "string(isSemver(object.metadata.name, true))"
	policy := &admissionregistration.MutatingAdmissionPolicy{Spec: admissionregistration.MutatingAdmissionPolicySpec{
		Variables: []admissionregistration.Variable{{Name: "x", Expression: later}},
		Mutations: []admissionregistration.Mutation{
			{JSONPatch: &admissionregistration.JSONPatch{Expression: "[JSONPatch{op: 'add', path: '/a', value: " +
				later + "}]"}},
			{ApplyConfiguration: &admissionregistration.ApplyConfiguration{Expression: "Object{metadata: " +
				"Object.metadata{generateName: " + later + "}}"}},
		}}}
	for minor, want := range map[kubever.Minor]int{32: 3, 33: 3, 34: 0, 35: 0} {
		if errs := laterExpressions(policy, minor); len(errs) != want {
			t.Errorf("%s: %v", minor, errs)
		}
	}
}

// kubectl up to 1.24 sends no null in a list, and since 1.8 none in a map; where it is a field, nothing is there.
func TestNullsThatKubectlDoesNotSend(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const deployment = "apiVersion: %s\nkind: Deployment\nmetadata: {name: a, annotations: %s}\nspec: {selector: " +
		"{matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i, " +
		"args: %s}]}}}"
	const args, annotations = "spec.template.spec.containers[0].args[1]", "metadata.annotations.x"
	for _, test := range []struct {
		text, field string
		from        kubever.Minor
	}{
		{fmt.Sprintf(deployment, "apps/v1", "{x: a}", "[a, null]"), args, 6},
		{fmt.Sprintf(deployment, "extensions/v1beta1", "{x: a}", "[a, null]"), args, 6},
		{fmt.Sprintf(deployment, "apps/v1", "{x: null}", "[a]"), annotations, 8},
		{fmt.Sprintf(deployment, "extensions/v1beta1", "{x: null}", "[a]"), annotations, 8},
		{"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {pods: null}}", "spec.hard.pods", 8},
		{fmt.Sprintf(deployment, "apps/v1", "null", "null"), "", kubever.Newest},
	} {
		for minor := kubever.Minor(6); minor <= kubever.Newest; minor++ {
			in := parse(t, test.text)
			err := judged(c, in, c.StandingIn(in.GroupVersionKind(), minor).Target, minor)
			var refused *RefusedError
			found := errors.As(err, &refused) && refused.OfClient && refused.Errors[0].Field == test.field
			if want := minor >= test.from && minor <= 24; found != want || !want && err != nil {
				t.Errorf("%s\nfor %s: %v; want %s refused by kubectl: %t", test.text, minor, err, test.field, want)
			}
		}
	}
}

package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

const (
	schemaOf = "spec.versions[0].schema.openAPIV3Schema"
	workload = "spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}"
	hook     = "webhooks: [{name: a.b.c, clientConfig: {url: 'https://a'}, sideEffects: None%s}]"
	crdV1    = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.g.example}\n" +
		"spec: {group: g.example, scope: Namespaced, names: {plural: xs, kind: X}, versions: [{name: v1, " +
		"served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {%s}}}]}"
	crd = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: {name: " +
		"xs.g.example}\n" +
		"spec: {group: g.example, version: v1, names: {plural: xs, kind: X}%s}"
)

const behaving = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: " +
	"{maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, behavior: {scaleDown: " +
	"{stabilizationWindowSeconds: 3}}}"

const scalingToZero = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: " +
	"{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, minReplicas: 0, maxReplicas: 1, metrics: " +
	"[{type: External, external: {metric: {name: a}, target: {type: Value, value: 1}}}]}"

// projecting is a PodTemplate with a volume of one source.
func projecting(source string) string {
	return "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: a}\ntemplate: {metadata: {labels: {a: b}}, spec: " +
		"{containers: [{name: a, image: a}], volumes: [{name: v, projected: {sources: [{" + source + "}]}}]}}"
}

// judged is what a server of the minor refuses of an object in a version.
func judged(c *convert.Converter, in *unstructured.Unstructured, to schema.GroupVersionKind,
	minor kubever.Minor) error {
	conversion, err := c.Begin(in, to)
	if err == nil {
		_, err = Complete(conversion, minor)
	}
	return err
}

// What 1.36 requires and the old version defaults is written, and nothing else; what cannot be had is refused by name.
func TestComplete(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		in, to string
		minor  kubever.Minor
		paths  string // that are written
		lost   string
		want   string // part of the error
	}{
		{in: "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}\n" + workload, to: "apps/v1",
			paths: "spec.selector"},
		{in: "apiVersion: apps/v1beta1\nkind: StatefulSet\nmetadata: {name: a}\n" + workload, to: "apps/v1",
			paths: "spec.selector"},
		{in: "apiVersion: extensions/v1beta1\nkind: DaemonSet\nmetadata: {name: a}\n" + workload, to: "apps/v1",
			minor: 15,
			paths: "spec.selector"},
		{in: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" + workload, to: "extensions/v1beta1",
			minor: 6},
		{in: "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}", to: "apps/v1",
			want: "spec.template.spec.containers: Required value"},
		{in: "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n" +
			"spec: {rules: [{http: {paths: [{backend: {serviceName: a, servicePort: 1}}]}}]}",
			to:    "networking.k8s.io/v1",
			paths: "spec.rules[0].http.paths[0].pathType"},
		{in: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfiguration\nmetadata: {name: " +
			"a}\n" +
			strings.ReplaceAll(hook, "%s", ""), to: "admissionregistration.k8s.io/v1",
			paths: "webhooks[0].admissionReviewVersions"},
		{in: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfiguration\nmetadata: {name: " +
			"a}\n" +
			strings.ReplaceAll(hook, "sideEffects: None%s", "sideEffects: Unknown"),
			to:   "admissionregistration.k8s.io/v1",
			want: `webhooks[0].sideEffects: Unsupported value: "Unknown"`},
		{in: "apiVersion: certificates.k8s.io/v1beta1\nkind: CertificateSigningRequest\nmetadata: {name: a}\n" +
			"spec: {signerName: kubernetes.io/legacy-unknown, usages: [client auth]}", to: "certificates.k8s.io/v1",
			want: "spec.signerName: Invalid value"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: None, ports: [{port: 1}]}",
			to: "v1"},
		// What is behind a gate that is off by default in 1.36 is judged where the release has it on.
		{in: projecting("clusterTrustBundle: {name: a}"), to: "v1", minor: 36},
		{in: projecting("clusterTrustBundle: {name: a}"), to: "v1", minor: 37,
			want: "clusterTrustBundle.path: Required value"},
		{in: projecting("podCertificate: {signerName: a.b/c, keyType: ED25519}"), to: "v1", minor: 37,
			want: "podCertificate"},
		{in: projecting("configMap: {name: a}"), to: "v1", minor: 37},
		{in: "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: a}\ntemplate: {spec: {containers: [{name: a, " +
			"image: a}], securityContext: {seLinuxChangePolicy: MountOption}}}", to: "v1", minor: 37},
		{in: "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: a}\ntemplate: {spec: {containers: [{name: a, " +
			"image: a}], securityContext: {seLinuxChangePolicy: MountOption}}}", to: "v1", minor: 36,
			want: "seLinuxChangePolicy: Unsupported value"},
		{in: scalingToZero, to: "autoscaling/v2", minor: 37},
		// A version that came after 1.36 is judged by one that 1.36 has.
		{in: "apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata: {name: a}\n" +
			"spec: {trustBundle: x}",
			to: "certificates.k8s.io/v1", minor: 37, want: "1.37 may refuse it, as 1.36 does: spec.trustBundle"},
		{in: "apiVersion: storagemigration.k8s.io/v1beta1\nkind: StorageVersionMigration\nmetadata: {name: a}\n" +
			"spec: {}",
			to: "storagemigration.k8s.io/v1", minor: 37, want: "1.37 refuses it: spec.resource"},
		{in: scalingToZero, to: "autoscaling/v2", minor: 36, want: "spec.minReplicas: Invalid value: 0"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n" + // the server allocates the port of health checks
			"spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 1}]}", to: "v1"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n" +
			"spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 70000, ports: [{port: 1}]}",
			to: "v1", want: "spec.healthCheckNodePort: Invalid value"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\n" +
			"spec: {type: LoadBalancer, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]}",
			to: "v1", minor: 23, want: "spec.ports: Invalid value: \"TCP, UDP\""},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\n" +
			"spec: {type: LoadBalancer, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]}",
			to: "v1", minor: 24},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\n" +
			"spec: {ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]}", to: "v1", minor: 10},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, appProtocol: http}]}",
			to: "v1", minor: 18, want: "spec.ports[0].appProtocol: Forbidden"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, appProtocol: http}]}",
			to: "v1", minor: 19},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a, " +
			"resources: {limits: {cpu: 1, ephemeral-storage: 1Gi}}}]}", to: "v1", minor: 9,
			want: `spec.containers[0].resources.limits.ephemeral-storage: Invalid value: "ephemeral-storage": 1.9 does`},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a, " +
			"resources: {limits: {cpu: 1, ephemeral-storage: 1Gi}}}]}", to: "v1", minor: 10},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" + // servers run with --allow-privileged
			"spec: {containers: [{name: a, image: a, securityContext: {privileged: true}}]}", to: "v1"},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: true, securityContext: " +
			"{windowsOptions: {hostProcess: true}}, containers: [{name: a, image: a}]}", to: "v1"},
		{in: "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '* * * * *', " +
			"jobTemplate: " +
			"{spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}", to: "batch/v1"},
		{in: fmt.Sprintf(crdV1, "type: object, properties: {a: {type: string, default: x}, default: {type: string}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 14,
			lost: "spec.validation.openAPIV3Schema.properties.a.default"},
		{in: fmt.Sprintf(crdV1, "type: object, properties: {a: {type: string, default: x}}"),
			to: "apiextensions.k8s.io/v1", minor: 16},
		{in: fmt.Sprintf(crdV1, "type: object, description: d, properties: {status: {type: object}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 11, lost: "spec.validation.openAPIV3Schema.type"},
		{in: fmt.Sprintf(crdV1, "type: object, description: d, properties: {status: {type: object}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 12},
		{in: strings.ReplaceAll(crd, "%s", ", validation: {openAPIV3Schema: {properties: {a: {default: 1}}}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 10,
			want: "spec.validation.openAPIV3Schema.properties.a.default: Forbidden"},
		{in: strings.ReplaceAll(crd, "%s",
			", validation: {openAPIV3Schema: {properties: {default: {enum: [{default: 1}]}}}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 11, paths: "spec.scope"},
		{in: strings.ReplaceAll(crd, "%s",
			", validation: {openAPIV3Schema: {properties: {default: {enum: [{default: 1}]}}}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 10, want: "kubectl 1.10 sends it only with --validate=false: " +
				"spec.validation.openAPIV3Schema.properties.default.enum[0]: Forbidden"},
		{in: "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\nrules: null",
			to: "rbac.authorization.k8s.io/v1", minor: 13, paths: "rules"},
		{in: "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}",
			to: "rbac.authorization.k8s.io/v1", minor: 14},
		{in: "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n" +
			"roleRef: {kind: Role, name: a}\nsubjects: []", to: "rbac.authorization.k8s.io/v1beta1", minor: 10,
			paths: "roleRef.apiGroup"},
		{in: "apiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: a}\nspec: {seLinux: {rule: " +
			"RunAsAny}, runAsUser: {rule: MustRunAs, ranges: [{max: 7}]}, fsGroup: {rule: RunAsAny}, " +
			"supplementalGroups: {rule: RunAsAny}}", to: "policy/v1beta1", minor: 15,
			paths: "spec.runAsUser.ranges[0].min"},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster") + "\nstatus: {acceptedNames: {kind: X}}",
			to: "apiextensions.k8s.io/v1beta1", minor: 15,
			paths: "status.acceptedNames.plural status.conditions status.storedVersions"},
		{in: "apiVersion: events.k8s.io/v1beta1\nkind: Event\nmetadata: {name: a, namespace: default}\n" +
			"regarding: {kind: Pod, namespace: default}", to: "events.k8s.io/v1beta1", minor: 10,
			want: "kubectl 1.10 sends it only with --validate=false: eventTime: Required value"},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{image: a}]}", to: "v1", minor: 15,
			want: "1.15 refuses it: spec.containers[0].name: Required value"},
		{in: strings.ReplaceAll(crd, "%s", ""), to: "apiextensions.k8s.io/v1",
			paths: "spec.preserveUnknownFields spec.versions[0].schema.openAPIV3Schema spec.scope"},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, preserveUnknownFields: false, "+
			"validation: {openAPIV3Schema: {properties: {spec: {type: object}}}}"), to: "apiextensions.k8s.io/v1",
			paths: "spec.versions[0].schema.openAPIV3Schema.type"},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, preserveUnknownFields: false, validation: "+
			"{openAPIV3Schema: {type: object, properties: {a: {oneOf: [{type: string}, {type: integer}]}, b: "+
			"{additionalProperties: false, properties: {c: {}}}, d: {anyOf: [{properties: {e: {pattern: "+
			"x}}}]}}}}"), to: "apiextensions.k8s.io/v1",
			paths: schemaOf + ".properties.a.x-kubernetes-int-or-string " + schemaOf + ".properties.b.type " +
				schemaOf + ".properties.b.properties.c.x-kubernetes-preserve-unknown-fields " +
				schemaOf + ".properties.d.x-kubernetes-preserve-unknown-fields " +
				schemaOf + ".properties.d.properties.e",
			lost: "spec.versions[0].schema.openAPIV3Schema.properties.b.additionalProperties"},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, validation: {openAPIV3Schema: {properties: {a: "+
			"{properties: {b: {type: object}}}, metadata: {}}}}"), to: "apiextensions.k8s.io/v1",
			paths: "spec.preserveUnknownFields spec.versions[0].schema.openAPIV3Schema.type " +
				"spec.versions[0].schema.openAPIV3Schema.x-kubernetes-preserve-unknown-fields " +
				"spec.versions[0].schema.openAPIV3Schema.properties.a.type " +
				"spec.versions[0].schema.openAPIV3Schema.properties.metadata.type"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, protocol: SCTP}]}", to: "v1",
			minor: 19},
		{in: behaving, to: "autoscaling/v1", minor: 7}, // which does not heed the annotation
		{in: behaving, to: "autoscaling/v1", minor: 18, want: "spec.behavior.scaleDown.policies: Required value"},
		{in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, protocol: SCTP}]}", to: "v1",
			minor: 18, want: `spec.ports[0].protocol: Invalid value: "SCTP": 1.18 does not accept the value, 1.19 does`},
		{in: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\n" +
			"spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}", to: "v1", minor: 15,
			want: "spec.accessModes[0]: Invalid value"},
		{in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a, " +
			"lifecycle: {preStop: {sleep: {seconds: 3}}}}]}", to: "v1", minor: 15,
			want: "1.15 refuses it: spec.containers[0].lifecycle.preStop: Required value"},
		{in: "apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 1.1.1.1}]}]", to: "v1",
			minor: 7, want: "1.7 refuses it: subsets[0].ports: Required value"},
		{in: "apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 1.1.1.1}]}]", to: "v1",
			minor: 8},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, preserveUnknownFields: false, validation: "+
			"{openAPIV3Schema: {properties: {a: {}}}}"), to: "apiextensions.k8s.io/v1beta1", minor: 15,
			want: "openAPIV3Schema.type: Required value"},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, preserveUnknownFields: false, validation: "+
			"{openAPIV3Schema: {properties: {a: {}}}}"), to: "apiextensions.k8s.io/v1beta1", minor: 10},
		{in: strings.ReplaceAll(crd, "%s", ", scope: Cluster, validation: {openAPIV3Schema: {properties: {a: {}}}}"),
			to: "apiextensions.k8s.io/v1beta1", minor: 15},
		{in: strings.ReplaceAll(crd, "%s", ", scope: '', preserveUnknownFields: false, validation: {openAPIV3Schema: "+
			"{type: object, properties: {metadata: {type: object, description: x}}}}"), to: "apiextensions.k8s.io/v1",
			paths: "spec.scope", lost: "spec.versions[0].schema.openAPIV3Schema.properties.metadata.description"},
	} {
		in := parse(t, test.in)
		gv, _ := schema.ParseGroupVersion(test.to)
		conversion, err := c.Begin(in, gv.WithKind(in.GetKind()))
		if err != nil {
			t.Fatalf("%s: %v", test.in, err)
		}
		done, err := Complete(conversion, test.minor)
		var refused *RefusedError
		if test.want != "" {
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s to %s: %v, want an error with %q", test.in, test.to, err, test.want)
			}
			continue
		}
		var paths, lost []string
		for _, change := range done.Changes {
			paths = append(paths, change.Path)
		}
		for _, loss := range done.Losses {
			lost = append(lost, loss.Path)
		}
		if err != nil || strings.Join(paths, " ") != test.paths || strings.Join(lost, " ") != test.lost {
			t.Errorf("%s to %s: %v, written %q, lost %q; want %q and %q", test.in, test.to, err, paths, lost,
				test.paths, test.lost)
		}
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// Every kind that 1.36 serves and that can be created has its validation.
func TestEveryKindIsValidated(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, api := range kubever.APIResources(kubever.Library) {
		switch api.Kind {
		case "TokenReview", "SelfSubjectReview", "SubjectAccessReview", "LocalSubjectAccessReview",
			"SelfSubjectAccessReview",
			"SelfSubjectRulesReview", "Binding", "ComponentStatus":
			continue // they are answered, not kept
		}
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a/b"}}}
		object.SetGroupVersionKind(api.WithKind(api.Kind))
		internal, native, err := c.Internal(object)
		if err != nil || !native {
			t.Errorf("%s %s: native %v, %v", api.GroupVersion, api.Kind, native, err)
			continue
		}
		if errs := Created(internal, api.GroupVersion, api.Namespaced); len(errs) == 0 {
			t.Errorf("%s %s: nothing is refused of an object with an impossible name", api.GroupVersion, api.Kind)
		}
	}
}

// Objects of 1.36 that say nothing but their kind are refused, not a reason to panic.
func FuzzCreated(f *testing.F) {
	c, err := convert.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[null]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"ReplicationController","spec":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if json.Unmarshal(data, &object) != nil || object == nil {
			return
		}
		u := &unstructured.Unstructured{Object: object}
		if internal, native, err := c.Internal(u); err == nil && native {
			Created(internal, u.GroupVersionKind().GroupVersion(), true)
		}
	})
}

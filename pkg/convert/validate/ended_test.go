package validate

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Objects of kinds that ended, and reviews, are refused for the field that servers name; and what they take is not.
func TestKindsWithoutValidationToday(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const (
		policy     = "apiVersion: extensions/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: a}\nspec:\n  "
		rest       = "runAsUser: {rule: RunAsAny}, seLinux: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}, "
		rules      = "{" + rest + "supplementalGroups: {rule: RunAsAny}"
		preset     = "apiVersion: settings.k8s.io/v1alpha1\nkind: PodPreset\nmetadata: {name: a}\nspec: "
		tpr        = "apiVersion: extensions/v1beta1\nkind: ThirdPartyResource\nmetadata: {name: %s}\n"
		definition = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\n" +
			"metadata: {name: foos.g.example}\nspec: {group: g.example, names: {plural: foos, singular: foo, " +
			"kind: Foo, listKind: FooList}, "
		review  = "apiVersion: authorization.k8s.io/v1\nkind: "
		seccomp = "metadata.annotations[seccomp.security.alpha.kubernetes.io/allowedProfileNames]"
	)
	profiled := func(annotation string) string {
		return strings.Replace(policy, "name: a", "name: a, annotations: {"+annotation+"}", 1) + rules + "}"
	}
	for _, test := range []struct {
		text, refused string // the field; "" for none
		minor         kubever.Minor
	}{
		{policy + rules + "}", "", 6},
		{policy + rules + ", volumes: ['*', cephFS, configMap]}", "", 6},
		{policy + rules + ", volumes: [projected]}", "", 6},
		{policy + rules + ", volumes: [csi]}", "spec.volumes[0]", 10},
		{policy + rules + ", volumes: [configMap, cephfs]}", "spec.volumes[1]", 10},
		{policy + "{" + rest + "supplementalGroups: {rule: MayRunAs, ranges: [{min: 1, max: 2}]}}",
			"spec.supplementalGroups.rule", 10},
		{policy + "{" + rest + "supplementalGroups: {rule: MayRunAs, ranges: [{min: 1, max: 2}]}}", "", 15},
		{policy + "{" + rest + "supplementalGroups: {rule: MustRunAs, ranges: [{min: 3, max: 2}]}}",
			"spec.supplementalGroups.ranges[0].min", 15},
		{policy + "{" + rest + "supplementalGroups: {rule: MustRunAs, ranges: [{min: -1, max: 2}]}}",
			"spec.supplementalGroups.ranges[0].min", 15},
		{policy + "{" + rest + "}", "spec.supplementalGroups.rule", 6},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: '*'"), seccomp, 7},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: '*'"), "", 8},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: 'docker/default,localhost/a/b'"), "", 6},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: 'docker/default,localhost/../b'"),
			seccomp, 15},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: runtime/default"), seccomp, 10},
		{profiled("seccomp.security.alpha.kubernetes.io/allowedProfileNames: runtime/default"), "", 11},
		{profiled("seccomp.security.alpha.kubernetes.io/defaultProfileName: '*'"),
			"metadata.annotations[seccomp.security.alpha.kubernetes.io/defaultProfileName]", 15},
		{profiled("apparmor.security.beta.kubernetes.io/allowedProfileNames: 'runtime/default,localhost/a'"), "", 6},
		{profiled("apparmor.security.beta.kubernetes.io/allowedProfileNames: unconfined"),
			"metadata.annotations[apparmor.security.beta.kubernetes.io/allowedProfileNames]", 8},
		{profiled("apparmor.security.beta.kubernetes.io/allowedProfileNames: unconfined"), "", 9},
		{policy + rules + ", runAsGroup: {rule: MustRunAs}}", "spec.runAsGroup.ranges", 15},
		{policy + rules + ", runAsGroup: {rule: MustRunAs}}", "", 10}, // which does not know the field
		{policy + rules + ", requiredDropCapabilities: [ALL], allowedCapabilities: [ALL]}",
			"spec.allowedCapabilities[0]", 6},
		{policy + rules + ", requiredDropCapabilities: [ALL], allowedCapabilities: ['*']}",
			"spec.requiredDropCapabilities", 15},
		{policy + rules + ", allowPrivilegeEscalation: false, defaultAllowPrivilegeEscalation: true}",
			"spec.defaultAllowPrivilegeEscalation", 15},
		{policy + rules + ", allowedHostPaths: [{pathPrefix: /a/../b}]}", "spec.allowedHostPaths[0].pathPrefix", 15},
		{policy + rules + ", allowedHostPaths: [{readOnly: true}]}", "spec.allowedHostPaths[0].pathPrefix", 15},
		{policy + rules + ", allowedFlexVolumes: [{}]}", "spec.allowedFlexVolumes[0].driver", 15},
		{strings.Replace(policy, "name: a", "name: a_b", 1) + rules + "}", "metadata.name", 15},

		{preset + "{env: [{name: A, value: b}]}", "", 6},
		{preset + "{selector: {}}", "spec", 6},
		{preset + "{env: [{value: b}]}", "spec.env[0].name", 6},
		{preset + "{volumeMounts: [{name: v, mountPath: /v}]}", "spec.volumeMounts[0].name", 6},
		{preset + "{volumeMounts: [{name: v, mountPath: /v}], volumes: [{name: v, emptyDir: {}}]}", "", 6},
		{preset + "{volumes: [{name: V, emptyDir: {}}]}", "spec.volumes[0].name", 6},

		{strings.Replace(tpr, "%s", "crumb.a.example", 1) + "versions: [{name: v1}]", "", 6},
		{strings.Replace(tpr, "%s", "crumb.example", 1) + "versions: [{name: v1}]", "metadata.name", 6},
		{strings.Replace(tpr, "%s", "crumb.a.example", 1), "versions", 6},
		{strings.Replace(tpr, "%s", "crumb.a.example", 1) + "versions: [{name: v1}, {name: v1}]",
			"versions[1].name", 6},

		{review + "SubjectAccessReview\nspec: {user: a, resourceAttributes: {verb: get}}", "", kubever.Library},
		{review + "SubjectAccessReview\nspec: {user: a}", "spec.resourceAttributes", kubever.Library},
		{review + "SubjectAccessReview\nspec: {resourceAttributes: {verb: get}}", "spec.user", 15},
		{review + "SelfSubjectAccessReview\nspec: {}", "spec.resourceAttributes", kubever.Library},
		{review + "LocalSubjectAccessReview\nmetadata: {namespace: a}\n" +
			"spec: {user: a, resourceAttributes: {namespace: b}}",
			"spec.resourceAttributes.namespace", kubever.Library},
		{review + "SelfSubjectRulesReview\nspec: {}", "spec.namespace", kubever.Library},
		{"apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {}", "spec.token", kubever.Library},
		{"apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {}", "spec.token", 8},

		{"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: x, ports: [{port: 1}]}",
			"spec.clusterIP", 15},
		{"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {podCIDR: x}", "spec.podCIDR", 10},
		{"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {podCIDR: x}", "spec.podCIDRs[0]", kubever.Library},
		{definition + "scope: Elsewhere, version: v1}", "spec.scope", 10},
		{definition + "version: v1}", "", 10},
	} {
		object := parse(t, test.text)
		err := judged(c, object, object.GroupVersionKind(), test.minor)
		var refused *RefusedError
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s\nfor %s: %v; want no error", test.text, test.minor, err)
		case test.refused != "" && (!errors.As(err, &refused) || refused.Errors[0].Field != test.refused):
			t.Errorf("%s\nfor %s: %v; want one of %s", test.text, test.minor, err, test.refused)
		}
	}
}

// What 1.36 refuses of an address that the object had before as well, an older release may take.
func TestAddressesThatOldServersMayTake(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	node := parse(t, "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {podCIDR: 10.0.0.1/24}")
	err = judged(c, node, node.GroupVersionKind(), 15)
	var refused *RefusedError
	if !errors.As(err, &refused) || !refused.Doubtful {
		t.Errorf("a podCIDR with bits beyond its prefix: %v; want that 1.15 may refuse it", err)
	}
}

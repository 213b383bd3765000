package policy

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

const (
	abacSource = "kubernetes v1.6 to v1.36 pkg/auth/authorizer/abac, pkg/apis/abac"
	policyLine = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",`
)

// decided is the evidence of a check whose lines were given to real servers.
func decided(read string) finding.Evidence {
	return finding.Evidence{
		Seen:   "1.6, 1.10, 1.15 and 1.36 with --authorization-mode=ABAC decide so",
		Damage: []string{"TestServersDecideAsThePolicySays"}, Read: read,
	}
}

// Checks lists what Validate looks for, by ID. The severity is that of most findings; a few are less severe.
func Checks() []finding.Rule {
	known := kubever.Oldest.String() + " to " + kubever.Newest.String()
	return finding.Of(finding.Policies, []finding.Rule{
		{
			ID: "FUS150", Title: "A line without apiVersion allows everything", Severity: finding.Error,
			Why: "The server falls back to version 0 of the format, in which the fields are at the top level beside " +
				"kind and a missing one matches anything. A rule inside spec is then ignored, and the line allows " +
				"every authenticated user every resource, namespace and path. {} and null are such lines, and so is " +
				"YAML. The server only logs a warning.",
			Fix: "write the rule inside spec, with apiVersion and kind: policy validate --fix does; or " +
				"delete the line",
			Bad:      `{"kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource + "/v0"},
		},
		{
			ID: "FUS151", Title: "A field that the server ignores", Severity: finding.Error,
			Why: "Unknown fields are ignored, and case matters inside spec: \"readOnly\":true leaves a rule " +
				"read-write, \"apigroup\" leaves it in the core group. " +
				"Fields beside spec are ignored as well. Servers of 1.8 to 1.10 read fields in any case before " +
				"their patch releases of mid-2018, so that such a rule means one thing to them, and another to all " +
				"others.",
			Fix: "spell the field as the server does (readonly, apiGroup, nonResourcePath), inside spec, or " +
				"delete it",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readOnly":true}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readonly":true}}`,
			Evidence: decided(abacSource),
		},
		{
			ID: "FUS152", Title: "Reading includes exec and proxies", Severity: finding.Warning,
			Why: "ABAC does not compare the subresource, and of the verb only whether it is a read. kubectl exec, " +
				"attach and port-forward over a websocket are a GET on pods/exec and so on, which a read-only rule " +
				"for pods allows. Since 1.35 the server also authorizes create, but by attributes that ABAC takes " +
				"for a read; a webhook sees the create. A GET through the proxy subresource of pods, services and " +
				"nodes is a read, too; through nodes it reaches the kubelet's API.",
			Fix: "name the resources that are to be read, without pods, nodes and services; or accept it " +
				"for subjects that may exec",
			Bad: policyLine + `"spec":{"group":"viewers","resource":"pods","namespace":"*","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"viewers","resource":"configmaps","namespace":"*","readonly":true}}`,
			Evidence: decided("kubernetes v1.36 pkg/registry/core/pod/rest/authorize.go: overrideVerb leaves " +
				"IsReadOnly as it was"),
		},
		{
			ID: "FUS153", Title: "A rule for system:masters", Severity: finding.Warning,
			Why: "In every version the authorizer for the privileged group comes before all others. A rule for " +
				"it has no effect, and no policy file can limit it: only issuing no such certificates does.",
			Fix: "delete the rule, and give the subject a certificate of another group, for which a rule " +
				"can be written",
			Bad:      policyLine + `"spec":{"group":"system:masters","resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"admins","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: "kubernetes v1.36 pkg/kubeapiserver/authorizer/reload.go"},
		},
		{
			ID: "FUS200", Title: "A line that stops the server", Severity: finding.Error,
			Why: "The API server exits at start when it cannot parse one line: an object over several lines, " +
				"two objects on one line, a comment after a rule, a list, a wrong kind or version, a value of a " +
				"wrong type, a line of 64 KiB or more.",
			Fix:      "write the rule as one JSON object on one line, as policy validate --fix does where it can",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}} # alice`,
			Good:     "# alice\n" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS201", Title: "A duplicate rule", Severity: finding.Warning,
			Why: "It has no effect, and removing the other one does not remove the permission.",
			Fix: "delete one of the two lines",
			Bad: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}` + "\n" + policyLine +
				`"spec":{"user":"alice","namespace":"a","resource":"configmaps"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS202", Title: "A rule that others cover", Severity: finding.Warning,
			Why: "Rules only allow, so a rule inside a broader one has no effect. Often the broader one is the " +
				"mistake.",
			Fix: "delete the line, or narrow the broader one if that is the mistake",
			Bad: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readonly":true}}` +
				"\n" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS203", Title: "A rule without a subject, or without an object", Severity: finding.Warning,
			Why: "A rule needs a user or a group, and a resource or a path; a missing one matches nothing here, " +
				"unlike in version 0. A group's name in the field user matches no request either.",
			Fix:      "add a user or a group, and a resource or a path; or delete the line",
			Bad:      policyLine + `"spec":{"resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"devs","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS204", Title: "A value that no request has", Severity: finding.Warning,
			Why: "Values are compared byte by byte with those of the request: the plural name of the resource " +
				"without its subresource, the group without its version. \"*\" is no pattern, except at the end of a " +
				"path.",
			Fix:      "write the value as requests have it: the plural of the resource, the group without its version",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"pods/log","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS205", Title: "An API group that does not exist", Severity: finding.Warning,
			Why: "No Kubernetes version from " + known + ", none of the presets and no given " +
				"CustomResourceDefinition has the group. Without a near name and without given " +
				"CustomResourceDefinitions it is an info.",
			Fix: "correct the group; give the file of its CustomResourceDefinitions with --crd if it is yours",
			Bad: policyLine +
				`"spec":{"user":"alice","apiGroup":"networking.istio.oi","resource":"*","namespace":"*"}}`,
			Good: policyLine +
				`"spec":{"user":"alice","apiGroup":"networking.istio.io","resource":"*","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: "OpenAPI descriptions of " + known + "; the presets' sources"},
		},
		{
			ID: "FUS206", Title: "A resource that the API group does not have", Severity: finding.Warning,
			Why: "The rule matches nothing. Most often apiGroup is missing, which means the core group, or the name " +
				"is singular.",
			Fix: "correct the resource or its apiGroup; fusionctl versions kube-apiserver --facts resources lists them",
			Bad: policyLine + `"spec":{"user":"alice","resource":"deployments","namespace":"a"}}`,
			Good: policyLine +
				`"spec":{"user":"alice","apiGroup":"apps","resource":"deployments","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: "OpenAPI descriptions of " + known + "; the presets' sources"},
		},
		{
			ID: "FUS207", Title: "A namespace that does not fit the resource", Severity: finding.Warning,
			Why: "A missing namespace matches only requests without one: cluster-scoped objects, and lists over " +
				"all namespaces. A named one never matches cluster-scoped objects.",
			Fix: "write \"namespace\":\"*\" for a namespaced resource in every namespace, and none for a " +
				"cluster-scoped one",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS208", Title: "A \"*\" that overrides the other condition", Severity: finding.Error,
			Why: "When user or group is \"*\", the server replaces both by group system:authenticated: user " +
				"alice with group \"*\" matches every authenticated user.",
			Fix:      "write the user or the group alone, or \"*\" alone",
			Bad:      policyLine + `"spec":{"user":"alice","group":"*","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource + "/v1beta1/conversion.go"},
		},
		{
			ID: "FUS209", Title: "Permissions of anonymous requests", Severity: finding.Warning,
			Why: "Every client that reaches the port has them. Writes, and resources of any kind, are an error; " +
				"reading more than the health and the version of the server is a warning.",
			Fix: "delete the rule, or allow no more than GET of /healthz, /livez, /readyz and /version",
			Bad: policyLine + `"spec":{"group":"system:unauthenticated","nonResourcePath":"*","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"system:unauthenticated","nonResourcePath":"/healthz","readonly":true}}`,
			Evidence: finding.Evidence{Read: "kubernetes v1.36 plugin/pkg/auth/authorizer/rbac/bootstrappolicy: " +
				"system:public-info-viewer"},
		},
		{
			ID: "FUS210", Title: "A broad rule that includes secrets", Severity: finding.Warning,
			Why: "Every core resource includes secrets: a subject that reads those of kube-system can act as any " +
				"controller.",
			Fix: "name the core resources that are needed in rules of their own, without secrets",
			Bad: policyLine + `"spec":{"group":"viewers","resource":"*","namespace":"a","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"viewers","resource":"configmaps","namespace":"a","readonly":true}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS211", Title: "A broad rule that includes impersonation", Severity: finding.Warning,
			Why: "Impersonation is the verb impersonate on the core resources users and groups, which are " +
				"cluster-scoped. A read-write rule for every core resource in every namespace allows it: its " +
				"subjects can act as group system:masters, and the rest of the policy does not limit them.",
			Fix:      "name the core resources that are needed in rules of their own, without users and groups",
			Bad:      policyLine + `"spec":{"group":"devs","resource":"*","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"devs","resource":"configmaps","namespace":"*"}}`,
			Evidence: decided("kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation"),
		},
		{
			ID: "FUS212", Title: "A write that the plan forbids", Severity: finding.Error,
			Why: "Found with a spec only: the modern side must not write what the legacy side owns.",
			Fix: "make the rule read-only: \"readonly\":true; or leave out the resources that the legacy side owns",
			Bad: policyLine +
				`"spec":{"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"*"}}`,
			Good: policyLine +
				`"spec":{"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"*","readonly":true}}`,
			Evidence: finding.Evidence{Read: "the owners of the plan"},
		},
		{
			ID: "FUS213", Title: "A duplicate field in one line", Severity: finding.Error,
			Why: "The server silently takes the last one that is not null, and merges a second spec into the first. " +
				"Who reads the line may see another rule. Equal values are a warning.",
			Fix:      "write the field once, with the value that is meant",
			Bad:      policyLine + `"spec":{"user":"alice","user":"bob","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"bob","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS214", Title: "A line that is not JSON", Severity: finding.Warning,
			Why: "The server's decoder tries YAML as well, so it reads a line after a byte order mark, and one " +
				"such as \"--- {kind: Policy}\". Other tools do not, and without an apiVersion such a line allows " +
				"everything.",
			Fix:      "write the line as JSON, without a byte order mark: policy validate --fix does",
			Bad:      "\uFEFF" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS215", Title: "A policy without rules", Severity: finding.Warning,
			Why: "The server starts with an empty file and allows no request, those of its own components included.",
			Fix: "write the rules: fusionctl policy generate does, from the spec",
			Bad: "# nothing yet", Good: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS216", Title: "A rule that allows everything", Severity: finding.Warning,
			Why:      "Its subject is a cluster administrator, whatever else the file contains.",
			Fix:      "name the groups and resources that the subject needs",
			Bad:      policyLine + `"spec":{"group":"admins","apiGroup":"*","resource":"*","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"admins","apiGroup":"apps","resource":"*","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
	})
}

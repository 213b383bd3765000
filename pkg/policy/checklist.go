package policy

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
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
	return finding.Of(finding.Policies, []finding.Rule{
		{
			ID: "FUS150", Title: "A line without apiVersion allows everything", Severity: finding.Error,
			Why: "The server falls back to version 0 of the format, in which the fields stand beside kind and a " +
				"missing one matches anything. " +
				"So a rule inside spec names nothing, and the line is for every authenticated user, every resource, " +
				"every namespace and every path. {} and null are such lines, and so is YAML. " +
				"The server only logs a warning.",
			Bad:      `{"kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource + "/v0"},
		},
		{
			ID: "FUS151", Title: "A field that the server ignores", Severity: finding.Error,
			Why: "Unknown fields are ignored, and case matters inside spec: \"readOnly\":true leaves a rule " +
				"read-write, \"apigroup\" leaves it in the core group. " +
				"Fields beside spec are ignored as well.",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readOnly":true}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readonly":true}}`,
			Evidence: decided(abacSource),
		},
		{
			ID: "FUS152", Title: "Reading includes exec and proxies", Severity: finding.Warning,
			Why: "ABAC compares neither the subresource nor more of the verb than whether it reads. kubectl exec, " +
				"attach and port-forward over a websocket are a GET on pods/exec " +
				"and so on, which a read-only rule for pods allows. Since 1.35 the server asks for create as well, " +
				"but in a way that ABAC takes for a read again; a webhook sees the create. " +
				"A GET through the proxy subresource of pods, services and nodes is a read, too; through nodes it " +
				"reaches the kubelet's API.",
			Bad: policyLine + `"spec":{"group":"viewers","resource":"pods","namespace":"*","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"viewers","resource":"configmaps","namespace":"*","readonly":true}}`,
			Evidence: decided("kubernetes v1.36 pkg/registry/core/pod/rest/authorize.go: overrideVerb leaves " +
				"IsReadOnly as it was"),
		},
		{
			ID: "FUS153", Title: "A rule for system:masters", Severity: finding.Warning,
			Why: "An authorizer for the privileged group stands before all others in every version. A rule for it " +
				"changes nothing, and no policy file can take its rights away: only not issuing such certificates " +
				"does.",
			Bad:      policyLine + `"spec":{"group":"system:masters","resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"admins","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: "kubernetes v1.36 pkg/kubeapiserver/authorizer/reload.go"},
		},
		{
			ID: "FUS200", Title: "A line that stops the server", Severity: finding.Error,
			Why: "One line that cannot be read, and the API server exits when it starts: an object spread over " +
				"several lines, two objects on one line, a comment behind a rule, " +
				"a list, a wrong kind or version, a value of a wrong type, a line of 64 KiB or more.",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}} # alice`,
			Good:     "# alice\n" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS201", Title: "A rule that stands in the file twice", Severity: finding.Warning,
			Why: "It does nothing, and whoever removes the other one believes to have taken a right away.",
			Bad: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}` + "\n" + policyLine +
				`"spec":{"user":"alice","namespace":"a","resource":"configmaps"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS202", Title: "A rule that others cover", Severity: finding.Warning,
			Why: "Rules only add up, so a rule inside a broader one does nothing. Often the broader one is the " +
				"mistake.",
			Bad: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readonly":true}}` +
				"\n" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS203", Title: "A rule for nobody, or for nothing", Severity: finding.Warning,
			Why: "A rule needs a user or a group, and a resource or a path; a missing one matches nothing here, " +
				"unlike in version 0. A group's name in the field of the user matches nobody either.",
			Bad:      policyLine + `"spec":{"resource":"configmaps","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"devs","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS204", Title: "A value that no request has", Severity: finding.Warning,
			Why: "Values are compared byte by byte with those of the request: the plural name of the resource " +
				"without its subresource, the group without its version. \"*\" is no pattern, except at the end of a " +
				"path.",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"pods/log","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS205", Title: "An API group that does not exist", Severity: finding.Warning,
			Why: "No Kubernetes version from 1.6 to 1.36, none of the presets and no given CustomResourceDefinition " +
				"has the group. Without a near name and without given CustomResourceDefinitions it is only an " +
				"information.",
			Bad: policyLine +
				`"spec":{"user":"alice","apiGroup":"networking.istio.oi","resource":"*","namespace":"*"}}`,
			Good: policyLine +
				`"spec":{"user":"alice","apiGroup":"networking.istio.io","resource":"*","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: "OpenAPI descriptions of 1.6 to 1.36; the presets' sources"},
		},
		{
			ID: "FUS206", Title: "A resource that the API group does not have", Severity: finding.Warning,
			Why: "The rule matches nothing. Most often apiGroup is missing, which means the core group, or the name " +
				"is singular.",
			Bad: policyLine + `"spec":{"user":"alice","resource":"deployments","namespace":"a"}}`,
			Good: policyLine +
				`"spec":{"user":"alice","apiGroup":"apps","resource":"deployments","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: "OpenAPI descriptions of 1.6 to 1.36; the presets' sources"},
		},
		{
			ID: "FUS207", Title: "A namespace that does not fit the resource", Severity: finding.Warning,
			Why: "A missing namespace matches only requests without one: objects outside of namespaces, and lists " +
				"over all namespaces. A named one never matches objects that are in none.",
			Bad:      policyLine + `"spec":{"user":"alice","resource":"configmaps"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS208", Title: "A star that drops the other condition", Severity: finding.Error,
			Why: "When user or group is \"*\", the server replaces both by group system:authenticated: user alice " +
				"with group \"*\" is not alice, but everybody.",
			Bad:      policyLine + `"spec":{"user":"alice","group":"*","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource + "/v1beta1/conversion.go"},
		},
		{
			ID: "FUS209", Title: "Rights of anonymous requests", Severity: finding.Warning,
			Why: "Whoever reaches the port has them. Writes, and resources of any kind, are an error; reading more " +
				"than the health and the version of the server is a warning.",
			Bad: policyLine + `"spec":{"group":"system:unauthenticated","nonResourcePath":"*","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"system:unauthenticated","nonResourcePath":"/healthz","readonly":true}}`,
			Evidence: finding.Evidence{Read: "kubernetes v1.36 plugin/pkg/auth/authorizer/rbac/bootstrappolicy: " +
				"system:public-info-viewer"},
		},
		{
			ID: "FUS210", Title: "A broad rule that includes secrets", Severity: finding.Warning,
			Why: "Every core resource includes secrets: whoever reads those of kube-system acts as any " +
				"controller.",
			Bad: policyLine + `"spec":{"group":"viewers","resource":"*","namespace":"a","readonly":true}}`,
			Good: policyLine +
				`"spec":{"group":"viewers","resource":"configmaps","namespace":"a","readonly":true}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS211", Title: "A broad rule that includes impersonation", Severity: finding.Warning,
			Why: "Impersonation is the verb impersonate on the core resources users and groups, outside of " +
				"namespaces. A read-write rule for every core resource in every namespace allows it: " +
				"its subjects act as group system:masters whenever they like, and the rest of the policy limits " +
				"nobody.",
			Bad:      policyLine + `"spec":{"group":"devs","resource":"*","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"devs","resource":"configmaps","namespace":"*"}}`,
			Evidence: decided("kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation"),
		},
		{
			ID: "FUS212", Title: "A write that the plan forbids", Severity: finding.Error,
			Why: "Found with a spec only: the modern side must not write what the legacy side owns.",
			Bad: policyLine +
				`"spec":{"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"*"}}`,
			Good: policyLine +
				`"spec":{"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"*","readonly":true}}`,
			Evidence: finding.Evidence{Read: "the owners of the plan"},
		},
		{
			ID: "FUS213", Title: "A field given twice in one line", Severity: finding.Warning,
			Why:      "The server takes the last one and says nothing; a second spec is merged into the first.",
			Bad:      policyLine + `"spec":{"user":"alice","user":"bob","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"bob","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS214", Title: "A line that is not JSON", Severity: finding.Warning,
			Why: "The server's decoder tries YAML as well, so a line behind a byte order mark is read, and one such " +
				"as \"--- {kind: Policy}\". Other tools do not, and without an apiVersion such a line allows " +
				"everything.",
			Bad:      "\uFEFF" + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Good:     policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS215", Title: "A policy without rules", Severity: finding.Warning,
			Why: "The server starts with an empty file and allows nobody anything, its own components included.",
			Bad: "# nothing yet", Good: policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
		{
			ID: "FUS216", Title: "A rule that allows everything", Severity: finding.Warning,
			Why:      "Its subject is an administrator of the whole cluster, whatever else the file says.",
			Bad:      policyLine + `"spec":{"group":"admins","apiGroup":"*","resource":"*","namespace":"*"}}`,
			Good:     policyLine + `"spec":{"group":"admins","apiGroup":"apps","resource":"*","namespace":"*"}}`,
			Evidence: finding.Evidence{Read: abacSource},
		},
	})
}

package admission

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Name is the name of the admission configuration on the modern API server.
const Name = "pods.kubefusion.dev"

// group of the registrations; a version of it is chosen by the caller, who has the server's discovery.
const group = "admissionregistration.k8s.io"

type object = map[string]any

// rules are the requests that the change is about.
func (c *Change) rules() (pods, ephemeral object, templates []any) {
	rule := func(groups []string, resource string, operations ...any) object {
		var list []any
		for _, group := range groups {
			list = append(list, group)
		}
		return object{"apiGroups": list, "apiVersions": []any{"*"}, "operations": operations,
			"resources": []any{resource}, "scope": "Namespaced"}
	}
	for _, t := range c.templates {
		templates = append(templates, rule(t.groups, t.resource, Create, Update))
	}
	return rule([]string{""}, "pods", Create), rule([]string{""}, "pods/ephemeralcontainers", Update), templates
}

// namespaces leaves out the control plane's own, and those that are labelled so. Before 1.21 namespaces have no label
// with their name: there the label OptOut on the control plane's, which fusionctl controllers put there, is what
// counts.
func namespaces() object {
	return object{"matchExpressions": []any{
		object{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []any{SystemNamespace}},
		object{"key": OptOut, "operator": "NotIn", "values": []any{Off}},
	}}
}

// Webhook is the registration that makes the modern API server ask the webhook at the URL; caBundle is PEM in base 64.
// Fields that a version does not know are dropped by it. Shape: a MutatingWebhookConfiguration of the version given, v1
// or v1beta1
func (c *Change) Webhook(a plan.PodAdmission, version, url, caBundle string) map[string]any {
	pods, ephemeral, templates := c.rules()
	return object{
		"apiVersion": group + "/" + version, "kind": "MutatingWebhookConfiguration", "metadata": object{"name": Name},
		"webhooks": []any{object{
			"name":         Name,
			"clientConfig": object{"url": url, "caBundle": caBundle},
			"rules":        append([]any{pods, ephemeral}, templates...),
			// Whatever others add afterwards, such as the containers of a mesh, is connected to the modern API server
			// too.
			"reinvocationPolicy":      "IfNeeded",
			"matchPolicy":             "Equivalent",
			"failurePolicy":           string(a.FailurePolicy),
			"timeoutSeconds":          int64(a.TimeoutSeconds),
			"sideEffects":             "NoneOnDryRun",
			"admissionReviewVersions": []any{"v1", "v1beta1"},
			"namespaceSelector":       namespaces(),
		}},
	}
}

// Policies are the objects with which the modern API server makes the change by itself, without a webhook: for
// each a MutatingAdmissionPolicy and its binding.
func (c *Change) Policies(a plan.PodAdmission) []map[string]any {
	pods, ephemeral, templates := c.rules()
	var objects []map[string]any
	add := func(name string, rules []any, conditions []any, mutations ...string) {
		var list []any
		for _, expression := range mutations {
			list = append(list, object{"patchType": "JSONPatch", "jsonPatch": object{"expression": expression}})
		}
		conditions = append([]any{condition("not-turned-off", "object.metadata", "")}, conditions...)
		objects = append(objects,
			object{"apiVersion": group + "/v1", "kind": "MutatingAdmissionPolicy", "metadata": object{"name": name},
				"spec": object{
					"failurePolicy": string(a.FailurePolicy), "reinvocationPolicy": "IfNeeded",
					"matchConstraints": object{"matchPolicy": "Equivalent", "resourceRules": rules,
						"namespaceSelector": namespaces()},
					"matchConditions": conditions, "mutations": list,
				}},
			object{"apiVersion": group + "/v1", "kind": "MutatingAdmissionPolicyBinding",
				"metadata": object{"name": name}, "spec": object{"policyName": name}})
	}
	notMirror := object{"name": "no-mirror", "expression": "!(has(object.metadata.annotations) && " +
		"'kubernetes.io/config.mirror' in object.metadata.annotations)"}
	add("pods."+Name, []any{pods}, []any{notMirror},
		c.labelExpression("object", "", "true"), c.envExpression("initContainers", ""),
		c.envExpression("containers", ""))
	add("ephemeralcontainers."+Name, []any{ephemeral}, nil,
		c.envExpression("ephemeralContainers", "!(has(oldObject.spec.ephemeralContainers) && "+
			"oldObject.spec.ephemeralContainers.exists(r, r.name == c.name))"))
	for i, t := range c.templates {
		template := "object." + strings.Join(t.path, ".")
		old := "oldObject." + strings.Join(t.path, ".")
		add(t.resource+"."+Name, templates[i:i+1], []any{
			condition("template-not-turned-off", template+".metadata", "has("+template+".metadata)"),
			object{"name": "not-a-controllers", "expression": "!(has(object.metadata.ownerReferences) && " +
				"object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller))"},
			object{"name": "keeps-its-label", "expression": fmt.Sprintf("oldObject == null || "+
				"(has(%[1]s.metadata.labels) && %[2]q in %[1]s.metadata.labels && %[1]s.metadata.labels[%[2]q] == "+
				"%[3]q)", old, c.label, c.side)},
		}, c.labelExpression(template, "/"+strings.Join(t.path, "/"), "has("+template+".metadata)"))
	}
	return objects
}

// condition holds unless metadata turn the change off.
func condition(name, metadata, guard string) object {
	expression := fmt.Sprintf("!(has(%[1]s.annotations) && %[2]q in %[1]s.annotations && %[1]s.annotations[%[2]q] == "+
		"%[3]q)", metadata, OptOut, Off)
	if guard != "" {
		expression = fmt.Sprintf("!(%s) || %s", guard, expression)
	}
	return object{"name": name, "expression": expression}
}

// labelExpression adds the side label below of, whose JSON pointer is at; hasMetadata says whether there is metadata to
// add it to.
func (c *Change) labelExpression(of, at, hasMetadata string) string {
	labels := of + ".metadata.labels"
	return fmt.Sprintf(`!(%[1]s) ? [JSONPatch{op: "add", path: %[2]q, value: {"labels": {%[5]q: %[6]q}}}] :
!has(%[3]s) ? [JSONPatch{op: "add", path: %[4]q, value: {%[5]q: %[6]q}}] :
!(%[5]q in %[3]s) ? [JSONPatch{op: "add", path: %[4]q + "/" + jsonpatch.escapeKey(%[5]q), value: %[6]q}] : []`,
		hasMetadata, at+"/metadata", labels, at+"/metadata/labels", c.label, c.side)
}

// envExpression adds the variables to containers that do not set them, ahead of their own. only, where it is not "",
// says to which. A container without variables gets both in one list. For others each is inserted as the first: the
// port, then the host before it.
func (c *Change) envExpression(kind, only string) string {
	if only == "" {
		only = "true"
	}
	variable := func(name, value string) string { return fmt.Sprintf("{\"name\": %q, \"value\": %q}", name, value) }
	host, port := variable(hostVariable, c.host), variable(portVariable, c.port)
	each := func(condition, path, value string) string {
		return fmt.Sprintf(`(has(object.spec.%[1]s) ? object.spec.%[1]s : []).transformList(i, c, (%[2]s) && %[3]s,
  JSONPatch{op: "add", path: "/spec/%[1]s/" + string(i) + %[4]q, value: %[5]s})`, kind, only, condition, path, value)
	}
	const some = "has(c.env) && size(c.env) > 0"
	lacks := func(name string) string { return fmt.Sprintf("%s && !c.env.exists(e, e.name == %q)", some, name) }
	return strings.Join([]string{
		each("!("+some+")", "/env", "["+host+", "+port+"]"),
		each(lacks(portVariable), "/env/0", port),
		each(lacks(hostVariable), "/env/0", host),
	}, "\n+ ")
}

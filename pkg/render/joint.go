package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// What the legacy side has to allow to components that see both sides, at the root of the tree: no host has a dot in
// its name.
const (
	legacyRolesFile  = "legacy-access.yaml"
	legacyPolicyFile = "legacy-access.jsonl"
)

// jointRole names the role of the controllers and its binding, on the legacy side.
const jointRole = "kubefusion:controllers"

// permit is what the runbook says of the controllers' way into both sides.
type permit struct {
	Words         []string // what the legacy side has to allow
	Commands      []string // that allow it, from where a person works
	Host, Program string
	Rehearse      string // shows on that host what they would do
	Leader        string // asks on that host who of them acts
	Kubectl       string // on that host, for the side through which namespaces are changed
	Ready         string // asks those of a host whether they delete
	Acknowledge   string // on a host, lets them go on that have stopped
	Borrowed      bool   // a pod runs the host's program in another image
}

func newPermit(p *plan.Plan, target Target) permit {
	components := p.ComponentsOf("", plan.JointControllers)
	if p.Joint == nil || len(components) == 0 {
		return permit{}
	}
	first := &components[0]
	v := permit{Host: first.Host, Program: inline(first.Program), Kubectl: kubectlAs(p, first, "namespaces"),
		Borrowed: target == StaticPod && first.Command[0] == first.Program}
	v.Leader = kubectlAs(p, first, "configmaps") + " -n kube-system get configmap " + plan.JointControllers +
		` -o jsonpath='{.metadata.annotations.control-plane\.alpha\.kubernetes\.io/leader}{"\n"}'`
	switch modes := p.Joint.Legacy.Modes; {
	case slices.Contains(modes, "AlwaysAllow"):
		v.Words = []string{"The legacy API server allows every request."}
	case slices.Contains(modes, "RBAC"):
		v.Words = []string{fmt.Sprintf("The legacy API server must allow them what `%s` has: get, list and watch of "+
			"everything, and deletes and patches through its side. From your machine:", legacyRolesFile)}
		v.Commands = []string{"legacy apply -f " + legacyRolesFile,
			"legacy get clusterrolebinding " + jointRole + "    # one"}
	case slices.Contains(modes, "ABAC"):
		v.Words = []string{
			fmt.Sprintf("The legacy API server must allow them what the lines of `%s` allow: add them to the file of "+
				"its `--authorization-policy-file`, and restart it, one host after the other.", legacyPolicyFile),
			"Where it has custom resources with owners, add a line for each of their groups as well: only a line for " +
				"all groups, which would allow impersonation, covers groups that are not known beforehand."}
	default:
		v.Words = []string{fmt.Sprintf("The legacy API server authorizes by %s: it must allow them what `%s` has.",
			strings.Join(modes, ", "), legacyRolesFile)}
	}
	words := []string{"timeout 60", shell(first.Program), "controllers"}
	for _, a := range first.Args {
		if slices.Contains([]string{"plan", "legacy-kubeconfig", "modern-kubeconfig", "collect", "delete-orphans"},
			a.Name) {
			words = append(words, shell(a.String()))
		}
	}
	if q := first.Liveness; q != nil {
		v.Ready = fmt.Sprintf("curl -s http://%s/readyz", plan.HostPort(q.Host, q.Port))
	}
	if directory, ok := first.Arg("state-dir"); ok {
		v.Acknowledge = shell(first.Program) + " controllers acknowledge --state-dir " + shell(directory)
	}
	v.Rehearse = strings.Join(words, " ") + " --listen= --dry-run > would-do.json"
	return v
}

// kubectlAs is kubectl as the controllers, for the side through which they change a resource.
func kubectlAs(p *plan.Plan, c *plan.Component, key string) string {
	flag := "modern-kubeconfig"
	if row := p.Resource(key); row != nil && row.Route().Write == pair.Legacy {
		flag = "legacy-kubeconfig"
	}
	file, _ := c.Arg(flag)
	return "kubectl --kubeconfig " + shell(file)
}

// legacyRoles are a cluster role, a role for each namespace of the rules, and their bindings.
func legacyRoles(p *plan.Plan, u *legacyUser) ([]byte, error) {
	rules := withoutCovered(u.Access.Rules)
	namespaces := []string{""}
	for _, r := range rules {
		if !slices.Contains(namespaces, r.Namespace) {
			namespaces = append(namespaces, r.Namespace)
		}
	}
	var out bytes.Buffer
	comment := fmt.Sprintf("Written by fusionctl render: permissions of %s on the legacy side of %s, beside the "+
		"modern side's policy.\n", u.Name, p.Name)
	for _, namespace := range namespaces {
		kind := "ClusterRole"
		if namespace != "" {
			kind = "Role"
		}
		inNamespace := slices.DeleteFunc(slices.Clone(rules), func(r plan.Right) bool {
			return r.Namespace != namespace
		})
		for _, o := range []*yaml.Node{role(u, kind, namespace, inNamespace), binding(u, kind, namespace)} {
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			data, err := document(comment, o)
			if err != nil {
				return nil, err
			}
			out.Write(data)
			comment = ""
		}
	}
	return out.Bytes(), nil
}

func role(u *legacyUser, kind, namespace string, rules []plan.Right) *yaml.Node {
	return object(
		field{"apiVersion", text(u.Access.RBACVersion)},
		field{"kind", text(kind)},
		field{"metadata", object(field{"name", text(u.Role)}, field{"namespace", optional(namespace)})},
		field{"rules", listOf(rules, func(r plan.Right) *yaml.Node {
			node := object(
				field{"apiGroups", flow(r.APIGroups)},
				field{"resources", flow(r.Resources)},
				field{"nonResourceURLs", flow(r.NonResourcePaths)},
				field{"verbs", flow(r.Verbs)},
			)
			commented(node, r.Why)
			return node
		})},
	)
}

func binding(u *legacyUser, kind, namespace string) *yaml.Node {
	const group = "rbac.authorization.k8s.io"
	return object(
		field{"apiVersion", text(u.Access.RBACVersion)},
		field{"kind", text(kind + "Binding")},
		field{"metadata", object(field{"name", text(u.Role)}, field{"namespace", optional(namespace)})},
		field{"roleRef", object(field{"apiGroup", text(group)}, field{"kind", text(kind)},
			field{"name", text(u.Role)})},
		field{"subjects",
			list(object(field{"apiGroup", text(group)}, field{"kind", text("User")},
				field{"name", text(u.Name)}))},
	)
}

// flow is a list on one line.
func flow(values []string) *yaml.Node {
	node := listOf(values, text)
	if node != nil {
		node.Style = yaml.FlowStyle
	}
	return node
}

// withoutCovered leaves out what a rule about everything allows as well.
func withoutCovered(rules []plan.Right) []plan.Right {
	return slices.DeleteFunc(slices.Clone(rules), func(r plan.Right) bool {
		return slices.ContainsFunc(rules, func(all plan.Right) bool {
			return !everything(r) && everything(all) && slices.Equal(all.Verbs, r.Verbs) &&
				(all.Namespace == "" || all.Namespace == r.Namespace) && len(r.Resources) > 0
		})
	})
}

func everything(r plan.Right) bool {
	return slices.Contains(r.APIGroups, "*") && slices.Contains(r.Resources, "*")
}

// legacyPolicy is the same in lines of an ABAC policy, which knows no verbs: permission to change a resource includes
// creating it. A "*" is left out for writes: it would include impersonation.
func legacyPolicy(p *plan.Plan) ([]byte, error) {
	var intent policy.Intent
	for _, u := range legacyUsers(p) {
		intent.Grants = append(intent.Grants, legacyGrants(&u)...)
	}
	if p.Kubelets != nil {
		intent.Grants = append(intent.Grants, kubeletGrant(p.Kubelets))
	}
	sections, err := policy.Generate(intent)
	if err != nil {
		return nil, err
	}
	return policy.Format(sections), nil
}

// legacyGrants are the rules of one user.
func legacyGrants(u *legacyUser) []policy.Grant {
	var grants []policy.Grant
	for _, r := range u.Access.Rules {
		reads := !slices.ContainsFunc(r.Verbs, func(verb string) bool {
			return verb != "get" && verb != "list" && verb != "watch"
		})
		if everything(r) && !reads {
			continue
		}
		g := policy.Grant{Subjects: []policy.Subject{{Kind: policy.KindUser, Name: u.Name}},
			NonResourcePaths: r.NonResourcePaths, ReadOnly: reads, Why: r.Why}
		if len(r.Resources) > 0 {
			g.APIGroups, g.Resources, g.Namespaces = r.APIGroups, parents(r.Resources), []string{"*"}
			if r.Namespace != "" {
				g.Namespaces = []string{r.Namespace}
			}
		}
		grants = append(grants, g)
	}
	return grants
}

// parents are the resources of which some are subresources.
func parents(resources []string) []string {
	var list []string
	for _, r := range resources {
		parent, _, _ := strings.Cut(r, "/")
		list = append(list, parent)
	}
	return list
}

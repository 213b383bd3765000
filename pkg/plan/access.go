package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// healthPaths are served to unauthenticated clients: the kubelet probes without a certificate.
var healthPaths = []string{"/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version",
	"/version/"}

// discoveryPaths are what every client asks before it does anything.
var discoveryPaths = []string{"/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*",
	"/swagger-2.0.0.json", "/swagger-2.0.0.pb-v1", "/swagger.json", "/swaggerapi", "/swaggerapi/*"}

// metricGroups are the groups of extension API servers that a controller reads; no table of built-in resources has
// them.
var metricGroups = map[string][]string{
	"horizontal-pod-autoscaler-controller": {"custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"},
}

const (
	controllerManagerUser = "system:kube-controller-manager"
	authenticatedGroup    = "system:authenticated"
	anonymousGroup        = "system:unauthenticated"
)

// access is what the policy of the modern API server allows: what the spec says, what every client and what the side's
// own components need, and what the controllers that see both sides do.
func (b *basis) access(locks []pair.Lock, joint *duties) policy.Intent {
	if b.retired() {
		return policy.Intent{} // roles allow what is allowed
	}
	intent := policy.Intent{Grants: slices.Concat(userAccess(b.file.Spec.Access), clientAccess())}
	if manager := b.file.Spec.Modern.ControllerManager; manager != nil {
		each, given := lastValue(manager.ExtraArgs, "use-service-account-credentials")
		for _, g := range managerAccess(b.rows, b.controllers, locks, b.modern, given && each == "false") {
			g.Purpose = policy.ForControllers
			intent.Grants = append(intent.Grants, g)
		}
	}
	if joint != nil {
		intent.Grants = append(intent.Grants, b.jointGrants()...)
	}
	if b.gatewayWanted() {
		intent.Grants = append(intent.Grants, gatewayGrants()...)
	}
	if b.file.Spec.Kubelet.Modern != nil {
		intent.Grants = append(intent.Grants, nodeAccess(b.rows, b.modern)...)
	}
	return intent
}

// userAccess is what the spec says.
func userAccess(rules []spec.Access) []policy.Grant {
	var grants []policy.Grant
	for _, rule := range rules {
		grant := policy.Grant{
			APIGroups: rule.APIGroups, Resources: rule.Resources, Namespaces: rule.Namespaces,
			NonResourcePaths: rule.NonResourcePaths, ReadOnly: rule.ReadOnly, Purpose: policy.ForUsers,
			Why: "what the spec allows to users",
		}
		for _, s := range rule.Subjects {
			grant.Subjects = append(grant.Subjects,
				policy.Subject{Kind: policy.SubjectKind(s.Kind), Name: s.Name, Namespace: s.Namespace})
		}
		grants = append(grants, grant)
	}
	return grants
}

// clientAccess is what every client, and every probe, asks.
func clientAccess() []policy.Grant {
	everybody := []policy.Subject{{Kind: policy.KindGroup, Name: authenticatedGroup}}
	return []policy.Grant{
		{Subjects: everybody, NonResourcePaths: slices.Concat(discoveryPaths, healthPaths), ReadOnly: true,
			Purpose: policy.ForClients,
			Why:     "discovery: every client reads what the API server serves"},
		{Subjects: everybody, APIGroups: []string{"authorization.k8s.io"},
			Resources:  []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
			Namespaces: []string{"*"}, Purpose: policy.ForClients,
			Why: "self subject access reviews: a client may read its own permissions"},
		{Subjects: []policy.Subject{{Kind: policy.KindGroup, Name: anonymousGroup}}, NonResourcePaths: healthPaths,
			ReadOnly: true, Purpose: policy.ForClients,
			Why: "probes: the kubelet sends no certificate"},
	}
}

// managerAccess is what the modern controller manager needs, as its own user and as each of its controllers.
// Without --use-service-account-credentials, asOne, its controllers are the manager's user too.
func managerAccess(rows []Resource, controllers []Controller, locks []pair.Lock, m kubever.Minor,
	asOne bool) []policy.Grant {
	manager := []policy.Subject{{Kind: policy.KindUser, Name: controllerManagerUser}}
	const own = "the modern controller manager: its lock, its controllers' service accounts, authentication of " +
		"requests to its own port"
	grants := []policy.Grant{
		{Subjects: manager, APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
			Namespaces: []string{metav1.NamespaceSystem}, Why: own},
		{Subjects: manager, APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"},
			Namespaces: []string{metav1.NamespaceSystem}, ReadOnly: true, Why: own},
		{Subjects: manager, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
			Namespaces: []string{"*"}, Why: own},
		{Subjects: manager, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"},
			Namespaces: []string{"*"}, Why: own},
		{Subjects: manager, APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"},
			Namespaces: []string{"*"}, Why: own},
	}
	if !kubever.Behaves(kubever.BehaviourIssuerRequired, m) {
		// Where the server may issue no tokens, the manager takes those of its controllers from their secrets.
		grants = append(grants, policy.Grant{Subjects: manager, APIGroups: []string{""}, Resources: []string{"secrets"},
			Namespaces: []string{metav1.NamespaceSystem}, ReadOnly: true, Why: own})
	}
	for _, l := range locks {
		if row := rowOf(rows, l.Resource); row != nil {
			grants = append(grants, grantsFor(manager, row, m, []string{l.Namespace}, false, own)...)
		}
	}
	var watched []string
	facts := kubever.Controllers(m)
	for _, c := range controllers {
		if c.Side != pair.Modern || !c.On {
			continue
		}
		fact := facts[slices.IndexFunc(facts, func(f kubever.Controller) bool { return f.Name == c.ID })]
		subject := manager
		if fact.ServiceAccount != "" && !asOne {
			subject = []policy.Subject{
				{Kind: policy.KindServiceAccount, Namespace: metav1.NamespaceSystem, Name: fact.ServiceAccount}}
		}
		why := fmt.Sprintf("%s: %s", c.Name, c.Why)
		written := slices.Concat(fact.Writes, fact.Deletes)
		watched = append(watched, fact.Reads...)
		watched = append(watched, written...)
		for _, key := range written {
			if key == "*" {
				grants = append(grants,
					policy.Grant{Subjects: subject, APIGroups: []string{"*"}, Resources: []string{"*"},
						Namespaces: []string{"*"}, Why: why})
			} else if row := rowOf(rows, key); row != nil {
				grants = append(grants, grantsFor(subject, row, m, []string{"*"}, false, why)...)
			}
		}
		for _, key := range fact.Reads {
			if key == "*" {
				grants = append(grants,
					policy.Grant{Subjects: subject, APIGroups: []string{"*"}, Resources: []string{"*"},
						Namespaces: []string{"*"}, ReadOnly: true, Why: why})
			} else if row := rowOf(rows, key); row != nil {
				grants = append(grants, grantsFor(subject, row, m, []string{"*"}, true, why)...)
			}
		}
		for _, group := range metricGroups[c.ID] {
			grants = append(grants,
				policy.Grant{Subjects: subject, APIGroups: []string{group}, Resources: []string{"*"},
					Namespaces: []string{"*"}, ReadOnly: true, Why: why})
		}
		grants = append(grants, policy.Grant{Subjects: subject, APIGroups: []string{"", "events.k8s.io"},
			Resources: []string{"events"}, Namespaces: []string{"*"}, Why: why})
	}
	slices.Sort(watched)
	const caches = "the modern controller manager: its controllers share caches that it fills as its own user"
	for _, key := range slices.Compact(watched) {
		if row := rowOf(rows, key); row != nil {
			grants = append(grants, grantsFor(manager, row, m, []string{"*"}, true, caches)...)
		} else if key == "*" {
			grants = append(grants, policy.Grant{Subjects: manager, APIGroups: []string{"*"}, Resources: []string{"*"},
				Namespaces: []string{"*"}, ReadOnly: true, Why: caches})
		}
	}
	return grants
}

// grantsFor allows a resource in every group under which the version serves it.
func grantsFor(subjects []policy.Subject, row *Resource, m kubever.Minor, namespaces []string, readOnly bool,
	why string) []policy.Grant {
	if row.Name == "" || len(row.Modern.Serves) == 0 {
		return nil
	}
	var groups []string
	for _, served := range row.Modern.Serves {
		if gv, err := schema.ParseGroupVersion(served); err == nil && !slices.Contains(groups, gv.Group) {
			groups = append(groups, gv.Group)
		}
	}
	slices.SortFunc(groups, strings.Compare)
	return []policy.Grant{{Subjects: subjects, APIGroups: groups, Resources: []string{row.Name}, Namespaces: namespaces,
		ReadOnly: readOnly, Why: why}}
}

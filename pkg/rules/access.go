package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// policyRules are about what the policy of the modern API server lets users do.
func policyRules() []rule {
	return []rule{
		{finding.Rule{
			ID: "FUS152", Title: "The policy allows exec into pods and the proxies of nodes and services",
			Why: "An ABAC rule matches a resource with all its subresources: a subject that may write pods may exec " +
				"into them, and so may one that may read pods, because a websocket is opened by a GET. (Since 1.35 " +
				"the server also authorizes create on pods/exec, but by attributes that ABAC takes for a read.) The " +
				"same holds for the proxies of nodes, services and pods, which reach kubelets and every listener in " +
				"the cluster.",
			Fix: "leave nodes, pods and services out of spec.access for subjects that must not, or accept it, with " +
				"the reason",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Seen: "a read-only rule for pods lets GET pods/exec pass on 1.6, 1.10, 1.15 " +
				"and 1.36 with --authorization-mode=ABAC; 1.36 with a webhook authorizes create",
				Damage: []string{"TestServersDecideAsThePolicySays"},
				Read:   "pkg/auth/authorizer/abac of 1.6 to 1.36; registry/core/pod/rest/authorize.go of 1.36.3"},
			Bad:  example{access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("configmaps")}.String(),
		}, execAndProxies},
		{finding.Rule{
			ID: "FUS153", Title: "system:masters bypasses the policy",
			Why: "Every API server allows all requests of the group system:masters before it consults the policy. " +
				"With a certificate of that group the policy of the modern API server has no effect.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "a certificate of system:masters was allowed everything by 1.36.3 with " +
				"--authorization-mode=ABAC", Damage: []string{"TestServersDecideAsThePolicySays"},
				Read: "apiserver server/config.go and pkg/kubeapiserver/authorizer of 1.6 to 1.36"},
			Bad:  example{access: `[{subjects: [{kind: Group, name: "system:masters"}], apiGroups: [example.org], resources: ["*"]}]`}.String(),
			Good: example{}.String(),
		}, masters},
		{finding.Rule{
			ID: "FUS157", Title: "All modern controllers share one user in the policy",
			Why: "With --use-service-account-credentials each controller has a service account, and the policy " +
				"allows each what it writes. Without it all controllers act as the user of the controller manager, " +
				"which is allowed what any of them is: the policy does not stop a controller that should be off.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "cmd/kube-controller-manager/app/controllermanager.go and " +
				"client_builder of 1.6.13, 1.15.12 and 1.36.3"},
			Bad:  example{modernManager: args("use-service-account-credentials=false")}.String(),
			Good: example{}.String(),
		}, oneUserForAll},
		{finding.Rule{
			ID: "FUS224", Title: "The policy gives access to service accounts of the control plane",
			Why: "Service accounts of controllers and add-ons are in kube-system and have permission to " +
				"everything. A subject with permission to write service accounts there can request a token of any of " +
				"them; to write or read secrets there, create or read one; to create pods there, run as any of them. " +
				"The token is also valid at the legacy API server, where the policy of the modern one does not " +
				"apply. The same holds of a namespace with an account to which spec.access gives more than that " +
				"namespace.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "a secret token that the controller managers of 1.6.13, 1.10.13 and 1.15.12 created is " +
					"accepted by them and by 1.36.3",
				Read: "pkg/auth/authorizer/abac of 1.6 to 1.36: a rule about serviceaccounts covers " +
					"serviceaccounts/token",
			},
			Bad:  example{access: toDevelopers("secrets")}.String(),
			Good: example{access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [secrets], namespaces: [shop]}]`}.String(),
		}, systemAccounts},
	}
}

// UnusedAccept is the rule about an entry of spec.accept that no finding uses. Package catalog reports it, which knows
// who else could find what the entry accepts.
const UnusedAccept = "FUS220"

// ownRules are about the spec itself.
func ownRules() []rule {
	return []rule{
		{finding.Rule{
			ID: UnusedAccept, Title: "An accepted finding does not exist",
			Why: "An entry of spec.accept suppresses a finding for a reason. When the plan no longer has the " +
				"finding, the entry would suppress the next finding of that rule without a review.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "derived from spec.accept"},
			Bad:      example{more: `accept: [{rule: FUS073, reason: "the store was migrated"}]`}.String(),
			Good:     example{}.String(),
		}, func(*plan.Plan) []finding.Finding { return nil }},
		{finding.Rule{
			ID: "FUS221", Title: "The policy lets users write resources of the legacy side",
			Why: "The owner of a resource is the side that writes it. Where the policy lets users write it " +
				"through the modern API server nevertheless, its objects are stored in the format of the modern " +
				"version and bypass the admission of the legacy side.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "derived from spec.owners and spec.access"},
			Bad: example{more: "owners: [{resources: [limitranges], owner: legacy}]",
				access: toDevelopers("limitranges")}.String(),
			Good: example{more: "owners: [{resources: [limitranges], owner: legacy}]",
				access: toDevelopers("secrets")}.String(),
		}, foreignWrites},
		{finding.Rule{
			ID: "FUS222", Title: "No kubelet sees the pods of the modern side",
			Why: "Kubelets and the scheduler are connected to the legacy API server. Pods that the modern side " +
				"keeps in another store are never scheduled and never run; the Deployments and Jobs that own them " +
				"never complete.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "with pods in two stores 1.15.12 answers 404 for a pod that was created " +
				"through 1.36.3, and its scheduler places none",
				Damage: []string{"TestControllersThatDoNotSeeTheOtherSide"}, Read: "derived from the store of pods"},
			Bad: example{more: "owners: [{resources: [pods], owner: split}]",
				access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("pods")}.String(),
		}, unseenPods},
	}
}

func execAndProxies(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, o := range policy.Powers() {
		row := rowOf(p, o)
		if o.Opens == "" || row == nil || len(row.Modern.Serves) == 0 {
			continue
		}
		var writers, readers []string
		for _, g := range userGrants(p) {
			switch {
			case !covers(g, row):
			case g.ReadOnly:
				readers = append(readers, subjects(g)...)
			default:
				writers = append(writers, subjects(g)...)
			}
		}
		readers = slices.DeleteFunc(readers, func(s string) bool { return slices.Contains(writers, s) })
		if len(writers) > 0 {
			found = append(found, finding.Finding{Subject: row.Name, Key: "write",
				Message: fmt.Sprintf("permission to write %s includes %s, for %s", row.Name, o.Opens, names(writers)),
				Fix:     acceptFix("FUS152", row.Name)})
		}
		if len(readers) > 0 {
			found = append(found, finding.Finding{Subject: row.Name, Key: "read",
				Message: fmt.Sprintf("permission to read %s includes %s, for %s", row.Name, o.OpensRead,
					names(readers)),
				Fix: acceptFix("FUS152", row.Name)})
		}
	}
	return found
}

func acceptFix(rule, subject string) string {
	return fmt.Sprintf("leave %s out of spec.access, or accept it: accept: [{rule: %s, subject: %s, reason: ...}]",
		subject, rule, subject)
}

func masters(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, g := range userGrants(p) {
		if slices.ContainsFunc(g.Subjects, func(s policy.Subject) bool {
			return s.Kind == policy.KindGroup && s.Name == policy.GroupMasters
		}) {
			found = append(found, finding.Finding{Subject: "spec.access", Message: fmt.Sprintf("names the group %s, "+
				"which bypasses the policy", policy.GroupMasters),
				Fix: "name another group, and issue no client certificate of that group to users of the modern API " +
					"server"})
		}
	}
	for _, c := range p.Certificates {
		if slices.Contains(c.Organizations, policy.GroupMasters) && !c.Existing {
			found = append(found, finding.Finding{Subject: c.Cert, Message: fmt.Sprintf("is a certificate of the "+
				"group %s, which bypasses the policy", policy.GroupMasters), Fix: "issue it for another group"})
		}
	}
	return found
}

// oneUserForAll reports a modern controller manager whose controllers share its user although the policy was made for
// each.
func oneUserForAll(p *plan.Plan) []finding.Finding {
	value, _ := modernArg(p, kubever.ControllerManager, "use-service-account-credentials")
	if value != "false" {
		return nil
	}
	return []finding.Finding{{Subject: "--use-service-account-credentials of the modern controller manager",
		Message: "is false: every controller is allowed what the policy allows any of them",
		Fix:     "remove the argument from extraArgs; the plan sets true"}}
}

// systemAccounts reports permissions that allow acting as an account of kube-system, or as one to which the spec gives
// more than its namespace.
func systemAccounts(p *plan.Plan) []finding.Finding {
	found := accountsOf(p, metav1.NamespaceSystem, nil)
	accounts := powerfulAccounts(p)
	for _, namespace := range slices.Sorted(maps.Keys(accounts)) {
		found = append(found, accountsOf(p, namespace, accounts[namespace])...)
	}
	return found
}

// powerfulAccounts are the service accounts that may write in other namespaces than theirs, by namespace.
func powerfulAccounts(p *plan.Plan) map[string][]string {
	accounts := map[string][]string{}
	for _, g := range userGrants(p) {
		for _, s := range g.Subjects {
			elsewhere := slices.ContainsFunc(g.Namespaces, func(n string) bool { return n != s.Namespace })
			name := s.Namespace + "/" + s.Name
			if s.Kind == policy.KindServiceAccount && s.Namespace != metav1.NamespaceSystem && !g.ReadOnly &&
				elsewhere && !slices.Contains(accounts[s.Namespace], name) {
				accounts[s.Namespace] = append(accounts[s.Namespace], name)
			}
		}
	}
	return accounts
}

// accountsOf reports permissions that allow acting as an account of a namespace. Those for every namespace are reported
// of kube-system alone, whose accounts are nil, for all are powerful.
func accountsOf(p *plan.Plan, namespace string, accounts []string) []finding.Finding {
	var found []finding.Finding
	for _, by := range policy.Powers() {
		row := rowOf(p, by)
		if by.Account == "" || row == nil || len(row.Modern.Serves) == 0 ||
			by.PodsBy != "" && !madeSomewhere(p, row, by) {
			continue
		}
		var writers, readers []string
		for _, g := range userGrants(p) {
			who := slices.DeleteFunc(subjects(g), func(s string) bool {
				return slices.Contains(accounts, strings.TrimPrefix(s, "serviceaccount "))
			})
			switch {
			case !covers(g, row) || !slices.Contains(g.Namespaces, namespace) &&
				!(accounts == nil && slices.Contains(g.Namespaces, "*")):
			case !g.ReadOnly:
				writers = append(writers, who...)
			case by.AccountRead != "":
				readers = append(readers, who...)
			}
		}
		what, who := by.Account, writers
		if len(who) == 0 {
			what, who = by.AccountRead, readers
		}
		if len(who) == 0 {
			continue
		}
		if accounts != nil {
			what += fmt.Sprintf(", such as %s, to which spec.access gives more than this namespace",
				strings.Join(accounts, ", "))
		}
		found = append(found, finding.Finding{Subject: row.Name + " in " + namespace,
			Message: fmt.Sprintf("%s %s", names(who), what),
			Fix: fmt.Sprintf("list the namespaces in which they may be used in spec.access, without %s and others "+
				"with powerful service accounts", namespace)})
	}
	return found
}

// foreignWrites reports what users may write through the modern side although it is the legacy side's. What the legacy
// side could not even read afterwards is FUS002's.
func foreignWrites(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Pseudo || r.Owner != pair.OwnerLegacy || !r.VisibleToBoth() || len(r.Modern.Serves) == 0 ||
			!slices.Contains(r.Legacy.Decodes, r.Modern.StoredAs) || !userWrites(p, r) {
			continue
		}
		found = append(found, finding.Finding{Subject: r.Name,
			Message: fmt.Sprintf("the policy lets users write them through the modern API server, and their owner is "+
				"legacy: %s", r.Why),
			Fix: fmt.Sprintf("leave %s out of spec.access, or make it readOnly", r.Name)})
	}
	return found
}

func unseenPods(p *plan.Plan) []finding.Finding {
	if !apartOnBoth(p, "pods") || !makesPods(p) {
		return nil
	}
	return []finding.Finding{{Subject: "pods", Message: fmt.Sprintf("those created through %s are in store %s, and "+
		"kubelets read those in %s: they never run", p.Modern.Version.Minor, p.Resource("pods").Modern.Store,
		p.Resource("pods").Legacy.Store),
		Fix: "remove pods from spec.owners"}}
}

// subjects names who a grant is for.
func subjects(g policy.Grant) []string {
	var names []string
	for _, s := range g.Subjects {
		name := s.Name
		if s.Namespace != "" {
			name = s.Namespace + "/" + name
		}
		names = append(names, strings.ToLower(string(s.Kind))+" "+name)
	}
	return names
}

func names(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

// madeSomewhere reports whether a controller of either side creates pods for objects of a row that are written through
// the modern API server.
func madeSomewhere(p *plan.Plan, row *plan.Resource, power policy.Power) bool {
	return visible(p, "pods") && (runs(p, pair.Modern, power.PodsBy) ||
		row.VisibleToBoth() && runs(p, pair.Legacy, power.PodsBy))
}

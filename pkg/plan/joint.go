package plan

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// JointControllers is the kind, and the name, of the component that sees both sides: fusionctl's own controllers. Their
// user is called so too.
const JointControllers = policy.UserControllers

// planFile is where a host has what the plan says to components that go by it.
const planFile = modernDirectory + "/plan.json"

// stateDirectory is where a host's controllers remember what the stores showed of themselves: outside of the stores,
// and through restarts.
const stateDirectory = "/var/lib/fusionctl-controllers"

// duties are what the controllers that see both sides have to do.
type duties struct {
	why      []string
	collects bool
}

// duties is nil when there is nothing to do for them, or when they are not wanted.
func (b *basis) duties(pods *Pods) *duties {
	if b.retired() || b.file.Spec.Controllers == nil || b.file.Spec.Controllers.Disabled {
		return nil
	}
	uncollected := b.uncollected()
	why := slices.Concat(uncollected, b.endedTooEarly(), podsWithoutThem(pods))
	if len(why) == 0 {
		return nil
	}
	return &duties{why: why, collects: len(uncollected) > 0}
}

// joint is what the plan says about the controllers with these duties, beside a legacy API server that is one of the
// components.
func (b *basis) joint(d *duties, components []Component, pods *Pods) *Joint {
	if d == nil || b.target == Hosted && !b.joinsAsPods() {
		return nil
	}
	return &Joint{Why: d.why, Collects: d.collects, User: JointControllers, PlanFile: planFile,
		Legacy: b.legacyAccess(components, pods)}
}

// uncollected says on which sides the plan keeps the garbage collector off. One that the spec itself disables is not
// among them.
func (b *basis) uncollected() []string {
	var why []string
	for _, side := range pair.Sides() {
		if c := controllerOf(b.controllers, side, garbageCollector); c != nil && !c.On &&
			len(b.collectorDangers(side, b.rows, b.controllers)) > 0 {
			why = append(why, fmt.Sprintf("the garbage collector of the %s side is off, because %s", side, c.Why))
		}
	}
	return why
}

// endedTooEarly says which side's objects outlive a namespace that the other side ends.
func (b *basis) endedTooEarly() []string {
	var why []string
	for _, side := range pair.Sides() {
		ending := side.Other()
		if c := controllerOf(b.controllers, ending, namespaceControl); c == nil || !c.On {
			continue
		}
		if len(unseenInNamespaces(side, b.minor(side), b.rows, b.customResources())) > 0 {
			why = append(why, fmt.Sprintf("the %s side finalizes the namespaces that both share, and does not see "+
				"the %s side's own objects in them", ending, side))
		}
	}
	return why
}

// podsWithoutThem says what pods of the modern side would lack.
func podsWithoutThem(pods *Pods) []string {
	if pods == nil {
		return nil
	}
	why := []string{fmt.Sprintf("pods of the modern side find it by the service %s/%s, which has no endpoints "+
		"without them", pods.Service.Namespace, pods.Service.Name)}
	if pods.Admission.By == ByWebhook {
		why = append(why, "they serve the admission webhook for pods of the modern side: "+pods.Admission.Why)
	}
	return why
}

// UnseenInNamespaces lists the resources of which a side has objects in shared namespaces that the other side does not
// see. Empty where namespaces are not shared.
func (p *Plan) UnseenInNamespaces(side pair.Side) []string {
	return unseenInNamespaces(side, p.Side(side).Version.Minor, p.Resources, p.CustomResources)
}

func unseenInNamespaces(side pair.Side, m kubever.Minor, rows []Resource, custom pair.Resource) []string {
	if row := rowOf(rows, "namespaces"); row == nil || !row.VisibleToBoth() {
		return nil
	}
	var unseen []string
	for i := range rows {
		r := &rows[i]
		if here := r.View(side); r.Namespaced && !r.Pseudo && !r.VisibleToBoth() && len(here.Serves) > 0 &&
			here.Store != "" {
			unseen = append(unseen, r.Name)
		}
	}
	if store := custom.View(side).Store; store != "" && kubever.Behaves(kubever.BehaviourCRDServed, m) &&
		custom.View(side.Other()).Store != store {
		unseen = append(unseen, "custom resources")
	}
	return unseen
}

// joins reports whether the controllers that see both sides run on a host, or for it in a cluster.
func (b *basis) joins(host spec.Host, joint *duties) bool {
	if joint == nil || b.target == Hosted {
		return joint != nil && b.joinsAsPods() && b.addresses(host, false) != nil
	}
	return len(b.file.Spec.Controllers.Hosts) == 0 || slices.Contains(b.file.Spec.Controllers.Hosts, host.Name)
}

// joinsAsPods reports whether they can run as pods of a cluster: a pod has no program of a host, and what they do for
// pods of the modern side (a webhook on loopback of each host, a Service with the hosts' addresses) takes hosts.
func (b *basis) joinsAsPods() bool {
	return b.file.Spec.Controllers.Image != "" && b.file.Spec.Pods == nil
}

// jointControllers is the component on a host.
func (b *basis) jointControllers(host spec.Host, joint *duties, pods *Pods, configs []Kubeconfig) Component {
	s := b.file.Spec.Controllers
	at := b.addresses(host, false)
	c := b.ofFusionctl(at, JointControllers, "controllers", s.Image, s.Binary, s.Port)
	c.Mounts = append(c.Mounts, Mount{Path: stateDirectory, Directory: true})
	l := &argList{}
	say := func(name, value, why string) {
		l.args = append(l.args, wantedArg{Arg: Arg{Name: name, Value: value, Why: why, Origin: FromPlan}})
	}
	say("plan", planFile, "the resources that both sides see; an API server of another pair is refused")
	say("legacy-kubeconfig", JointKubeconfig(pair.Legacy), b.whyServer(pair.Legacy))
	say("modern-kubeconfig", JointKubeconfig(pair.Modern), b.whyServer(pair.Modern))
	if !joint.collects {
		say("collect", "false", "no side's garbage collector is off because of the other side")
	}
	say("state-dir", stateDirectory, "a replaced, emptied or restored store is distinguished from one in which "+
		"objects were deleted")
	if b.target == Hosted {
		say("leader-elect", "true", "one of the pods is the leader")
		say("listen", "", "metrics are without TLS, and a pod has remote clients alone")
		say("health-listen", HostPort(everywhere, s.Port), "the kubelet asks")
	} else {
		say("leader-elect", "true", "one of the hosts is the leader")
		say("listen", HostPort(loopback, s.Port), "health and metrics; no remote clients")
	}
	if pods != nil && pods.Admission.By == ByWebhook {
		const why = "the modern API server of the same host sends admission requests for pods"
		say("webhook-cert", pods.Admission.Cert, why)
		say("webhook-key", pods.Admission.Key, why)
		say("webhook-ca", pods.Admission.CA, why)
		if pods.Admission.ClientName != "" {
			const why = "other processes of the host cannot ask it about pods"
			say("webhook-client-ca", pods.Admission.ClientCA, why)
			say("webhook-client-name", pods.Admission.ClientName, why)
		}
	}
	c.Args = l.with(s.ExtraArgs)
	c.Liveness, c.Startup = at.probes(Probe{Scheme: "HTTP", Host: loopback, Port: s.Port, Path: "/healthz",
		DelaySeconds: 15, TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}, true)
	c.Mounts = named(append(c.Mounts, mounts(&c, nil, configs)...))
	return c
}

// whyServer is why a component that sees both sides asks the API server that its kubeconfig names.
func (b *basis) whyServer(side pair.Side) string {
	if b.target == Hosted {
		return "the " + string(side) + " API servers"
	}
	return "the " + string(side) + " API server of the same host"
}

// JointKubeconfig is the path of the file by which the controllers of both sides reach a side's API server.
func JointKubeconfig(side pair.Side) string {
	return modernDirectory + "/controllers-" + string(side) + ".conf"
}

// jointKubeconfigs are the two files, one for each side, with which a component of a host or a cluster, of its own name
// as a user, reaches both API servers. One certificate is good for both: the sides have one CA for their clients.
func (b *basis) jointKubeconfigs(host spec.Host, component string, file func(pair.Side) string) []Kubeconfig {
	base, at := b.file.Spec.PKI.Directory+"/modern/"+component, b.addresses(host, false)
	var list []Kubeconfig
	for _, side := range b.runningSides() {
		s := b.side(side)
		address := b.addresses(host, s.Existing).server(side)
		if s.Existing && address == loopback {
			// who made the certificate of a server that runs already need not have thought of loopback
			address = host.Address
		}
		list = append(list, Kubeconfig{
			Host: at.host(), Component: component, Path: file(side),
			Server: "https://" + HostPort(address, s.APIServer.Port),
			CA:     b.servingCA(side), Cert: base + ".crt", Key: base + ".key", User: component,
		})
	}
	return list
}

// servingCA is the CA of the serving certificate of a side's API server. A legacy side that runs already may have
// another one than for its clients: it tells pods which.
func (b *basis) servingCA(side pair.Side) string {
	legacy := &b.file.Spec.Legacy
	if side == pair.Legacy && legacy.Existing {
		if value, ok := legacy.RunsWith(kubever.ControllerManager, "root-ca-file"); ok && path.IsAbs(value) {
			file, _ := legacy.ControllerManager.OnHost(value)
			return file
		}
	}
	return b.file.Spec.PKI.CA
}

// The reasons of what the controllers that see both sides may do.
const (
	jointReads = "fusionctl controllers: an owner may be of any kind, and an owner that cannot be listed is not " +
		"known to be absent"
	jointTells  = "fusionctl controllers: an event says that they have stopped deleting"
	jointWrites = "fusionctl controllers: they delete objects without a live owner, remove references to absent " +
		"owners, and finalize namespaces"
)

// jointGrants is what they need of the modern API server: to read everything; and to change what can be garbage there,
// which is what is changed through this side of what the version builds in, and of other groups what the spec lets
// users make.
func (b *basis) jointGrants() []policy.Grant {
	subject := []policy.Subject{{Kind: policy.KindUser, Name: JointControllers}}
	everywhere := []string{"*"}
	grants := []policy.Grant{{
		Subjects: subject, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: everywhere, ReadOnly: true,
		Purpose: policy.ForControllers, Why: jointReads,
	}}
	for _, r := range collectable(b.rows, pair.Modern) {
		grants = append(grants, policy.Grant{Subjects: subject, APIGroups: []string{r.Group},
			Resources: []string{r.Resource}, Namespaces: everywhere, Purpose: policy.ForControllers, Why: jointWrites})
	}
	if b.writtenThrough("events") != pair.Legacy {
		grants = append(grants, policy.Grant{Subjects: subject, APIGroups: []string{""}, Resources: []string{"events"},
			Namespaces: []string{metav1.NamespaceSystem}, Purpose: policy.ForControllers, Why: jointTells})
	}
	builtIn := map[string]bool{}
	for _, a := range kubever.APIResources(b.modern) {
		builtIn[a.Group] = true
	}
	for _, rule := range b.file.Spec.Access {
		groups := slices.DeleteFunc(slices.Clone(rule.APIGroups), func(group string) bool { return builtIn[group] })
		if len(groups) > 0 && len(rule.Resources) > 0 && !rule.ReadOnly {
			grants = append(grants, policy.Grant{Subjects: subject, APIGroups: groups, Resources: rule.Resources,
				Namespaces: rule.Namespaces, Purpose: policy.ForControllers, Why: jointWrites})
		}
	}
	return grants
}

// collectable are the resources that a version builds in and whose objects are changed through its side. Events are
// garbage by age.
func collectable(rows []Resource, side pair.Side) []schema.GroupResource {
	var list []schema.GroupResource
	for i := range rows {
		r := &rows[i]
		if home := r.Route().Write; r.Pseudo || r.Name == "" || r.Name == "events" || home != "" && home != side {
			continue
		}
		var groups []string
		for _, served := range r.View(side).Serves {
			if gv, err := schema.ParseGroupVersion(served); err == nil {
				groups = append(groups, gv.Group)
			}
		}
		if len(groups) > 0 {
			list = append(list, schema.GroupResource{Group: PreferredGroup(groups), Resource: r.Name})
		}
	}
	return list
}

// PreferredGroup is the group under which objects are looked at that several groups serve: not the one that is on its
// way out in every version.
func PreferredGroup(groups []string) string {
	return slices.MinFunc(groups, func(a, b string) int {
		const old = "extensions"
		return cmp.Or(rankOf(a == old)-rankOf(b == old), cmp.Compare(a, b))
	})
}

func rankOf(last bool) int {
	if last {
		return 1
	}
	return 0
}

// legacyAccess is what the legacy API server, one of the components, has to allow to the controllers that see both
// sides.
func (b *basis) legacyAccess(components []Component, pods *Pods) LegacyAccess {
	a := LegacyAccess{Modes: legacyModes(components), RBACVersion: b.rbacVersion()}
	a.Rules = []Right{
		{NonResourcePaths: bothSidesPaths, Verbs: []string{"get"},
			Why: "discovery, whether it is complete, and whether it is the API server of the plan"},
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
			Why: "an owner may be of any kind, and an owner that cannot be listed is not known to be absent"},
	}
	a.Rules = append(a.Rules, b.legacyChanges(pods)...)
	return a
}

// legacyModes are the authorization modes of the legacy API server, one of the components.
func legacyModes(components []Component) []string {
	for i := range components {
		server := &components[i]
		if server.Side == pair.Legacy && server.Kind == kubever.APIServer {
			return AuthorizationModes(server)
		}
	}
	return []string{alwaysAllow}
}

const alwaysAllow = "AlwaysAllow"

// AuthorizationModes are those of an API server, by its arguments.
func AuthorizationModes(server *Component) []string {
	if value, ok := server.Arg("authorization-mode"); ok {
		return splitList(value)
	}
	return []string{alwaysAllow}
}

// rbacVersion is the newest group and version in which the legacy version takes roles, "" for none.
func (b *basis) rbacVersion() string {
	newestGroup := ""
	for _, r := range kubever.APIResources(b.legacy) {
		if r.Group == "rbac.authorization.k8s.io" && r.Name == "clusterroles" && r.DefaultOn.Has(b.legacy) {
			_, newest, _ := strings.Cut(newestGroup, "/")
			if version.CompareKubeAwareVersionStrings(r.Version, newest) > 0 {
				newestGroup = r.GroupVersion.String()
			}
		}
	}
	return newestGroup
}

// legacyChanges are the rights to change what is changed through the legacy side.
func (b *basis) legacyChanges(pods *Pods) []Right {
	var rules []Right
	changing := []string{"delete", "patch"}
	const why = "deletion of objects without a live owner, and references to absent owners"
	byGroup := map[string][]string{}
	var groups []string
	for _, r := range collectable(b.rows, pair.Legacy) {
		if byGroup[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		byGroup[r.Group] = append(byGroup[r.Group], r.Resource)
	}
	slices.Sort(groups)
	for _, group := range groups {
		slices.Sort(byGroup[group])
		rules = append(rules, Right{APIGroups: []string{group}, Resources: byGroup[group], Verbs: changing, Why: why})
	}
	if custom := b.customResources(); !custom.VisibleToBoth() {
		rules = append(rules, Right{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: changing,
			Why: "custom resources of the legacy side, whose groups are not known beforehand"})
	}
	if b.writtenThrough("namespaces") == pair.Legacy {
		rules = append(rules, Right{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"},
			Verbs: []string{"update"}, Why: "a namespace is finalized when it is empty on both sides"})
	}
	rules = append(rules, b.podRights(pods)...)
	if b.writtenThrough("configmaps") == pair.Legacy {
		rules = append(rules, Right{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"create", "update"}, Namespace: metav1.NamespaceSystem,
			Why: "their leader-election lock"})
	}
	if b.writtenThrough("events") == pair.Legacy {
		rules = append(rules, Right{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"},
			Namespace: metav1.NamespaceSystem, Why: "an event that says that they have stopped deleting"})
	}
	return rules
}

// podRights are the rights to keep the service of the modern API servers, and to make Secrets of tokens, as far as that
// is done through the legacy side.
func (b *basis) podRights(pods *Pods) []Right {
	if pods == nil {
		return nil
	}
	const why = "the service by which pods find the modern API servers"
	keep := []string{"create", "update"}
	var rights []Right
	keeps := func(group, resource, name string) {
		if row := rowOf(b.rows, name); row != nil && len(row.Legacy.Serves) > 0 &&
			(!row.VisibleToBoth() || pods.Service.Side == pair.Legacy) {
			rights = append(rights, Right{APIGroups: []string{group}, Resources: []string{resource}, Verbs: keep,
				Namespace: pods.Service.Namespace, Why: why})
		}
	}
	if pods.Service.Side == pair.Legacy {
		keeps("", "services", "services/specs")
	}
	keeps("", "endpoints", "services/endpoints")
	if row := rowOf(b.rows, "endpointslices"); row != nil && row.Legacy.Store != "" && len(row.Legacy.Serves) > 0 {
		rights = append(rights, Right{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
			Verbs: keep, Namespace: pods.Service.Namespace, Why: why})
	}
	if pods.Tokens == TokensSecret && b.writtenThrough("secrets") != pair.Modern {
		rights = append(rights, Right{APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"create"}, Why: "the token of a service account that has none"})
	}
	return rights
}

// writtenThrough is the side through which objects of a resource are written that both sides see; "" where each side
// has its own.
func (b *basis) writtenThrough(key string) pair.Side {
	row := rowOf(b.rows, key)
	if row == nil {
		return ""
	}
	return row.Route().Write
}

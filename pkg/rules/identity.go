package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// identityRules are about who is the leader, and about tokens.
func identityRules() []rule {
	return []rule{
		{finding.Rule{
			ID: "FUS065", Title: "Both sides use one leader-election lock",
			Why: "Two controller managers with one lock are replicas of each other: only one of them leads, and " +
				"which one may change with every restart. The controllers of the other side do not run.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.15.12 and 1.36.3 with one lease: no Deployment of 1.36.3 gets pods, and after a restart of " +
					"the manager of 1.15.12 none of 1.15.12 does",
				Damage: []string{"TestManagersThatShareALock"},
				Read:   "leaderelection.go and resourcelock of client-go 1.6 to 1.36"},
			Bad: example{legacy: "1.20.15",
				modernManager: args("leader-elect-resource-name=kube-controller-manager")}.String(),
			Good: example{legacy: "1.20.15"}.String(),
		}, oneLock},
		{finding.Rule{
			ID: "FUS066", Title: "The legacy endpoints controller deletes the modern side's lock",
			Why: "At each start the endpoints controller of 1.6 deletes endpoints without a service. A " +
				"leader-election lock in endpoints is one of them: the modern side's leader loses its lock and " +
				"restarts.",
			Legacy: kubever.Range{From: 6, To: 6}, Modern: kubever.Range{From: 6, To: 27}, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "checkLeftoverEndpoints of 1.6.13 and 1.7.0"},
			Bad: example{legacy: "1.6.13", modern: "1.19.16",
				modernManager: args("leader-elect-resource-lock=endpointsleases",
					"leader-elect-resource-name=kube-controller-manager-modern")}.String(),
			Good: example{legacy: "1.6.13", modern: "1.19.16"}.String(),
		}, deletedLock},
		{finding.Rule{
			ID: "FUS100", Title: "Secrets and service accounts of pods are visible to one side only",
			Why: "Kubelets get the objects that a pod mounts from the legacy API server, and each API server " +
				"accepts a token only when it finds the token's secret and service account in its own store. Where " +
				"pods are shared and secrets, config maps or service accounts are not, pods that are created through " +
				"the modern API server wait for objects that kubelets never see, and tokens of one side are invalid " +
				"on the other.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "secrets and service accounts shared, one key for both sides: a secret token created by the " +
					"controller managers of 1.6.13, 1.10.13 and 1.15.12 is accepted by them and by 1.36.3; with " +
					"service accounts in two stores 1.15.12 answered a token of 1.10.13 with 401",
				Damage: []string{"TestServersThatTheirPlanForbids"},
				Read:   "pkg/serviceaccount/legacy.go and serviceaccount/util.go of 1.6.13 and 1.36.3",
			},
			Bad: example{more: `owners: [{resources: [secrets], owner: split}]`,
				access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("pods")}.String(),
		}, identitiesApart},
		{finding.Rule{
			ID: "FUS101", Title: "The legacy API server rejects bound tokens of the modern side",
			Why: "A bound token that the modern API server issues has an issuer. Servers before 1.12 have no " +
				"bound tokens; later ones accept a token only with the same issuer and key. Clients with such a " +
				"token cannot use the legacy API server.",
			Legacy: anyVersion, Modern: kubever.Range{From: 12, To: kubever.Newest}, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "a bound token of 1.36.3 is accepted by 1.36.3 and, with the same issuer and audience, by " +
					"1.15.12; 1.6.13 and 1.10.13 answer 401",
				Read: "pkg/serviceaccount/jwt.go of 1.6.13 and 1.10.13",
			},
			Bad:  example{legacy: "1.10.13", access: toAccounts}.String(),
			Good: example{legacy: "1.20.15", access: toAccounts}.String(),
		}, foreignIssuer},
		{finding.Rule{
			ID: "FUS102", Title: "The modern API server lacks keys with which the legacy side signs tokens",
			Why: "The controller manager of the legacy side signs service-account tokens. The modern API server " +
				"accepts them only when it has every public key with which the legacy API server verifies them.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "with one key for both sides secret tokens work on both servers of 1.6.13, 1.10.13 and 1.15.12 " +
					"beside 1.36.3",
				Read: "authentication options of every minor",
			},
			Bad: example{legacyServer: args("service-account-key-file=/etc/kubernetes/pki/old.pub")}.String(),
			Good: example{legacyServer: args("service-account-key-file=/etc/kubernetes/pki/old.pub"),
				more: `pki: {serviceAccountPublicKeys: [/etc/kubernetes/pki/old.pub, /etc/kubernetes/pki/sa.pub]}`}.String(),
		}, unknownKeys},
		{finding.Rule{
			ID: "FUS103", Title: "No controller publishes the config map that pods mount",
			Why: "Since 1.21 a pod that is created through an API server mounts the config map kube-root-ca.crt " +
				"of its namespace. Controller managers publish it by default since 1.20: where neither side does, " +
				"pods that are created through the modern API server wait for it for ever.",
			Legacy: kubever.Range{From: 6, To: 19}, Modern: kubever.Range{From: 21, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "without a modern controller manager a pod created through 1.36.3 mounted a config map that " +
					"was not there",
				Damage:     []string{"TestCollectorDeletesPodsOfCustomResources"},
				Prevention: []string{"TestOldServersEmptyTheTokenSource"},
				Read: "admission plugin ServiceAccount and pkg/controller/certificates/rootcacertpublisher of 1.19 " +
					"to 1.36"},
			Bad: example{modernManager: args("controllers=deployment-controller,replicaset-controller"),
				access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("pods")}.String(),
		}, unpublishedCA},
		{finding.Rule{
			ID: "FUS160", Title: "Pods that should use the modern API server are connected to the legacy one",
			Why: "Kubelets give each pod the address of the service kubernetes, whose endpoints are the legacy " +
				"side's. A controller in a pod with the in-cluster configuration is connected to the legacy API " +
				"server, which does not have its custom resources.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Seen: "with --endpoint-reconciler-type=none 1.36.3 writes no endpoints of the " +
				"service kubernetes: they remain the legacy side's", Prevention: []string{"TestPods"},
				Read: "kubelet_pods.go of 1.6.13 and 1.36.3"},
			Bad:  example{access: toAccounts}.String(),
			Good: example{access: toAccounts, more: `pods: {}`}.String(),
		}, inClusterConfiguration},
		{finding.Rule{
			ID: "FUS161", Title: "Pods created through the modern API server get no token",
			Why: "A modern API server gives pods a projected token volume instead of a token secret. Legacy " +
				"servers before 1.11 drop the source of the token, and kubelets before 1.11 do not know it: the pod " +
				"runs without a token. A kubelet of 1.11 refuses to mount it: the pod never starts. From 1.12 on the " +
				"kubelet requests the token from the legacy API server, which must have an issuer and a signing key: " +
				"without them the pod never starts either.",
			Legacy: kubever.Range{From: 6, To: 19}, Modern: kubever.Range{From: 21, To: kubever.Newest},
			Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "a pod created through 1.36.3 and read through 1.6.13 and 1.10.13 has an empty token " +
					"source; 1.15.12 keeps it",
				Damage:     []string{"TestOldServersEmptyTheTokenSource"},
				Prevention: []string{"TestPods"},
				Read:       "the field table: v1.VolumeProjection; authentication options of every minor",
			},
			Bad:  example{legacy: "1.10.13", access: toDevelopers("pods")}.String(),
			Good: example{legacy: "1.10.13", access: toDevelopers("pods"), more: `pods: {}`}.String(),
		}, noToken},
		{finding.Rule{
			ID: "FUS165", Title: "No controller writes EndpointSlices in the modern side's store",
			Why: "Meshes and gateways read EndpointSlices, and so does an API server of 1.37 for the proxy " +
				"subresource of services. Only an endpointslice controller creates them; without one the modern " +
				"API server has none, and such clients see services without endpoints.",
			Legacy: anyVersion, Modern: kubever.Range{From: 16, To: kubever.Newest}, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "pkg/controller/endpointslice of 1.16 to 1.36; " +
				"registry/core/service/storage of 1.36.3 and 1.37.2"},
			Bad:  example{modernManager: "-", access: toSliceReaders}.String(),
			Good: example{access: toSliceReaders}.String(),
		}, noSlices},
	}
}

const (
	toAccounts     = `[{subjects: [{kind: ServiceAccount, namespace: notebooks, name: controller}], apiGroups: [example.org], resources: ["*"]}]`
	toSliceReaders = `[{subjects: [{kind: Group, name: mesh}], apiGroups: [discovery.k8s.io], resources: [endpointslices], readOnly: true}]`
)

func oneLock(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, a := range p.Modern.Locks {
		if !visible(p, a.Resource) || !slices.ContainsFunc(p.Legacy.Locks, func(b pair.Lock) bool {
			return a.Resource == b.Resource && a.Namespace == b.Namespace && a.Name == b.Name
		}) {
			continue
		}
		found = append(found, finding.Finding{Subject: "lock " + a.Namespace + "/" + a.Name,
			Message: fmt.Sprintf("the %s of both sides use it as their lock, in %s: only one of them leads",
				a.Component,
				a.Resource),
			Fix: fmt.Sprintf("remove leader-elect-resource-* from the extraArgs of the modern %s; the plan sets them",
				a.Component)})
	}
	return found
}

func deletedLock(p *plan.Plan) []finding.Finding {
	if !kubever.BehavesIn(kubever.BehaviourEndpointsDeletesLocks, p.Legacy.Version) ||
		!runs(p, pair.Legacy, "endpoints-controller") || !visible(p, endpointsKey) {
		return nil
	}
	var found []finding.Finding
	for _, l := range p.Modern.Locks {
		if l.Resource == endpointsKey {
			found = append(found, finding.Finding{Subject: "lock " + l.Namespace + "/" + l.Name,
				Message: fmt.Sprintf("is in endpoints, and each start of the controller manager of %s deletes "+
					"endpoints without a service", p.Legacy.Version.Minor),
				Fix: "let the plan set it: remove leader-elect-resource-lock from the extraArgs of the modern " +
					l.Component})
		}
	}
	return found
}

// identitiesApart reports what pods mount and tokens are checked against, where pods are shared and it is not.
func identitiesApart(p *plan.Plan) []finding.Finding {
	if !visible(p, "pods") || !makesPods(p) {
		return nil
	}
	var found []finding.Finding
	for _, key := range []string{"configmaps", "secrets", "serviceaccounts"} {
		if !apartOnBoth(p, key) {
			continue
		}
		found = append(found, finding.Finding{Subject: p.Resource(key).Name,
			Message: fmt.Sprintf("pods are shared and %s are not: kubelets do not see those of the modern side, and "+
				"tokens of one side are invalid on the other", key),
			Fix: fmt.Sprintf("remove %s from spec.owners: they must be in the store of pods", key)})
	}
	return found
}

// issuer is how a side's API server calls itself in the tokens that it issues; "" when it issues none.
func issuer(p *plan.Plan, side pair.Side) string {
	if !kubever.Behaves(kubever.BehaviourBoundTokens, p.Side(side).Version.Minor) {
		return ""
	}
	if key, _ := sideArg(p, side, kubever.APIServer, "service-account-signing-key-file"); key == "" {
		return ""
	}
	value, _ := sideArg(p, side, kubever.APIServer, "service-account-issuer")
	return value
}

func foreignIssuer(p *plan.Plan) []finding.Finding {
	modern, legacy := issuer(p, pair.Modern), issuer(p, pair.Legacy)
	if modern == "" || modern == legacy || !toServiceAccounts(p) ||
		p.Pods != nil && p.Pods.Tokens == plan.TokensSecret {
		return nil
	}
	f := finding.Finding{Subject: "bound service-account tokens",
		Message: fmt.Sprintf("%s issues them as %s, which %s does not accept: its issuer is %q", p.Modern.Version.Minor,
			modern, p.Legacy.Version.Minor, legacy),
		Fix: issuerFix(p)}
	if legacy == "" {
		f.Message = fmt.Sprintf("%s issues them as %s; %s has no issuer and answers 401", p.Modern.Version.Minor,
			modern, p.Legacy.Version.Minor)
	}
	if !kubever.Behaves(kubever.BehaviourBoundTokens, p.Legacy.Version.Minor) {
		f.Message = fmt.Sprintf("%s issues them, and %s does not have bound tokens: it answers 401",
			p.Modern.Version.Minor, p.Legacy.Version.Minor)
		f.Fix = "use the token of a service account's secret, which both servers accept"
	}
	return []finding.Finding{f}
}

// issuerFix gives the legacy API server the issuer and the key with which the modern one issues tokens.
func issuerFix(p *plan.Plan) string {
	value, key := issuer(p, pair.Modern), p.PKI.ServiceAccountKey
	return setLegacy(p, "apiServer", "service-account-issuer="+value, "service-account-signing-key-file="+key,
		audiencesFlag(p.Legacy.Version.Minor)+"="+value)
}

// audiencesFlag is the flag for the audiences of tokens, under the name that the version has.
func audiencesFlag(m kubever.Minor) string {
	if kubever.Flag(kubever.APIServer, "api-audiences").In(m) {
		return "api-audiences"
	}
	return "service-account-api-audiences"
}

// unknownKeys compares the files: their names without their endings, since a private key verifies as its public one
// does.
func unknownKeys(p *plan.Plan) []finding.Finding {
	if !visible(p, "secrets") {
		return nil
	}
	legacy, modern := keyFiles(p, pair.Legacy), keyFiles(p, pair.Modern)
	var missing []string
	for _, file := range legacy {
		if !slices.ContainsFunc(modern, func(other string) bool {
			return keyName(file) == keyName(other)
		}) && !slices.Contains(missing, file) {
			missing = append(missing, file)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []finding.Finding{{Subject: "service-account keys",
		Message: fmt.Sprintf("the legacy API server verifies tokens with %s, the modern one does not: it rejects "+
			"tokens that are signed with that key", strings.Join(missing, ", ")),
		Fix: fmt.Sprintf("set spec.pki.serviceAccountPublicKeys: [%s]",
			strings.Join(slices.Concat(missing, modern), ", ")),
		Related: missing}}
}

// keyFiles are the files of the host with which a side's API server verifies tokens; a server that is given none takes
// its serving key.
func keyFiles(p *plan.Plan, side pair.Side) []string {
	servers := p.ComponentsOf(side, kubever.APIServer)
	if len(servers) == 0 {
		return nil
	}
	var files []string
	for _, a := range servers[0].Args {
		if kubever.FlagName(a.Name) == "service-account-key-file" && a.Value != "" {
			files = append(files, servers[0].OnHost(a.Value))
		}
	}
	if len(files) == 0 {
		if key, ok := servers[0].Arg("tls-private-key-file"); ok {
			files = append(files, servers[0].OnHost(key))
		}
	}
	return files
}

func keyName(file string) string { return strings.TrimSuffix(file, path.Ext(file)) }

const rootCAPublisher = "root-ca-certificate-publisher-controller"

func unpublishedCA(p *plan.Plan) []finding.Finding {
	if p.Pods != nil && p.Pods.Tokens == plan.TokensSecret {
		return nil // the volume with the config map is replaced too
	}
	if !projectsTokens(p) || !visible(p, "pods") || !visible(p, "configmaps") || !makesPods(p) ||
		runs(p, pair.Modern, rootCAPublisher) {
		return nil
	}
	if kubever.Behaves(kubever.BehaviourRootCAPublished, p.Legacy.Version.Minor) &&
		runs(p, pair.Legacy, rootCAPublisher) {
		return nil
	}
	fix := "run the modern controller manager, spec.modern.controllerManager: {}, whose controller publishes it"
	if len(p.ComponentsOf(pair.Modern, kubever.ControllerManager)) > 0 {
		fix = fmt.Sprintf("remove --controllers of the modern controller manager from extraArgs, or add %s to it",
			rootCAPublisher)
	}
	return []finding.Finding{{Subject: "configmaps kube-root-ca.crt",
		Message: fmt.Sprintf("pods created through %s mount it, and no controller of either side publishes it: they "+
			"never start", p.Modern.Version.Minor), Fix: fix}}
}

// projectsTokens reports whether the modern API server gives pods a projected token volume, as it is started.
func projectsTokens(p *plan.Plan) bool {
	return kubever.Behaves(kubever.BehaviourTokenVolumeProjected, p.Modern.Version.Minor) &&
		!hasGate(p, pair.Modern, "BoundServiceAccountTokenVolume=false")
}

func inClusterConfiguration(p *plan.Plan) []finding.Finding {
	if p.Pods != nil {
		return podsUnattended(p)
	}
	if !toServiceAccounts(p) || reconciler(p, pair.Modern) != "none" && visible(p, endpointsKey) {
		return nil
	}
	return []finding.Finding{{Subject: "in-cluster configuration",
		Message: "the policy lets service accounts use the modern API server, and pods get the address of the legacy " +
			"one",
		Fix: "add spec.pods: {}: a service of the modern API servers, whose address pods get"}}
}

// podsUnattended reports hosts without a webhook for the modern API server's admission requests, and a service without
// a controller.
func podsUnattended(p *plan.Plan) []finding.Finding {
	running := p.ComponentsOf("", plan.JointControllers)
	if len(running) == 0 {
		fix := "remove disabled: true from spec.controllers"
		if p.Target == plan.Hosted {
			fix = "run fusionctl controllers on the hosts of the legacy API servers, or leave spec.pods out"
		}
		return []finding.Finding{{Subject: "spec.pods", Fix: fix,
			Message: "fusionctl controllers reconcile the service of the modern API servers and serve the admission " +
				"webhook for pods, and this plan runs none"}}
	}
	if p.Pods.Admission.By != plan.ByWebhook {
		return nil
	}
	var found []finding.Finding
	for _, host := range p.Hosts {
		if !slices.ContainsFunc(running, func(c plan.Component) bool { return c.Host == host.Name }) {
			found = append(found, finding.Finding{Subject: "host " + host.Name,
				Message: "its modern API server sends admission requests for pods to fusionctl controllers on the " +
					"same host, and they do not run there",
				Fix: fmt.Sprintf("add %s to spec.controllers.hosts, or remove that field", host.Name)})
		}
	}
	return found
}

func noToken(p *plan.Plan) []finding.Finding {
	if p.Pods != nil || !projectsTokens(p) || !visible(p, "pods") || !makesPods(p) {
		return nil
	}
	legacy, kubelet := p.Legacy.Version.Minor, p.Kubelet.Minor
	f := finding.Finding{Subject: "pods", Severity: finding.Warning,
		Fix: "add spec.pods: {}: pods get the token of a Secret"}
	switch {
	case !kubever.Behaves(kubever.BehaviourTokenProjectionKept, legacy):
		f.Message = fmt.Sprintf("%s gives them a projected token volume whose source %s drops: they get no token",
			p.Modern.Version.Minor, legacy)
	case !kubever.Behaves(kubever.BehaviourTokenProjectionKept, kubelet):
		f.Message = fmt.Sprintf("%s gives them a projected token volume whose source kubelets of %s do not know: "+
			"they get no token", p.Modern.Version.Minor, kubelet)
	case !kubever.Behaves(kubever.BehaviourTokenProjectionMountable, kubelet):
		f.Severity = finding.Error
		f.Message = fmt.Sprintf("%s gives them a projected token volume, which kubelets of %s refuse to mount: they "+
			"never start", p.Modern.Version.Minor, kubelet)
	case issuer(p, pair.Legacy) == "":
		f.Severity = finding.Error
		f.Message = fmt.Sprintf("%s gives them a projected token volume; kubelets request the token from %s, which "+
			"issues none: the pods never start", p.Modern.Version.Minor, legacy)
		if kubever.Behaves(kubever.BehaviourBoundTokens, legacy) {
			f.Fix = issuerFix(p)
		}
	default:
		return nil
	}
	return []finding.Finding{f}
}

func noSlices(p *plan.Plan) []finding.Finding {
	const controller = "endpointslice-controller"
	row := p.Resource("endpointslices")
	if row == nil || len(row.Modern.Serves) == 0 || runs(p, pair.Modern, controller) ||
		row.VisibleToBoth() && runs(p, pair.Legacy, controller) {
		return nil
	}
	if !slices.ContainsFunc(userGrants(p), func(g policy.Grant) bool {
		return covers(g, row) && !slices.Contains(g.Resources, "*")
	}) {
		return nil // no grant names them
	}
	fix := "run the modern controller manager: spec.modern.controllerManager: {}"
	if len(p.ComponentsOf(pair.Modern, kubever.ControllerManager)) > 0 {
		fix = leaveControllers
	}
	return []finding.Finding{{Subject: "endpointslices", Message: "the policy lets users read them through the " +
		"modern API server, and no controller writes them there", Fix: fix}}
}

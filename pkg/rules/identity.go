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
			ID: "FUS065", Title: "Both sides elect on one lock",
			Why: "Two controller managers that elect on one object are replicas of each other: only one of them " +
				"runs, and which one changes with every restart. The " +
				"controllers of the other side stand still.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "leaderelection.go and resourcelock of client-go 1.6 to 1.36"},
			Bad: example{legacy: "1.20.15",
				modernManager: args("leader-elect-resource-name=kube-controller-manager")}.String(),
			Good: example{legacy: "1.20.15"}.String(),
		}, oneLock},
		{finding.Rule{
			ID: "FUS066", Title: "The legacy endpoints controller deletes the modern side's lock",
			Why: "At each start the endpoints controller of 1.6 deletes endpoints that belong to no service. A " +
				"leader lock that is held in endpoints is one of them: the " +
				"modern side's leader loses its lock and restarts.",
			Legacy: kubever.Range{From: 6, To: 6}, Modern: kubever.Range{From: 6, To: 27}, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "checkLeftoverEndpoints of 1.6.13 and 1.7.0"},
			Bad: example{legacy: "1.6.13", modern: "1.19.16",
				modernManager: args("leader-elect-resource-lock=endpointsleases",
					"leader-elect-resource-name=kube-controller-manager-modern")}.String(),
			Good: example{legacy: "1.6.13", modern: "1.19.16"}.String(),
		}, deletedLock},
		{finding.Rule{
			ID: "FUS100", Title: "Pods meet the secrets and accounts of one side only",
			Why: "Kubelets ask the legacy server for what a pod mounts, and each server accepts a token only when it " +
				"finds the token's secret and account in its own view. Where pods " +
				"are shared and secrets, config maps or service accounts are not, pods made through the modern " +
				"server wait for objects that the kubelets never see, and " +
				"tokens of one side are invalid on the other.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "secrets and service accounts shared, one key for both sides: a secret token made by the " +
					"controller managers of 1.6.13, 1.10.13 and 1.15.12 is accepted by them and by 1.36.3",
				Read: "pkg/serviceaccount/legacy.go and serviceaccount/util.go of 1.6.13 and 1.36.3",
			},
			Bad: example{more: `owners: [{resources: [secrets], owner: split}]`,
				access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("pods")}.String(),
		}, identitiesApart},
		{finding.Rule{
			ID: "FUS101", Title: "Bound tokens of the modern side are refused by the legacy server",
			Why: "A token that the modern server issues on request names its issuer. Servers before 1.12 know no " +
				"such tokens, later ones accept it only with the same issuer and " +
				"key. Software that is given such a token cannot use the legacy server.",
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
			ID: "FUS102", Title: "The modern server verifies tokens with other keys than the legacy side signs",
			Why: "The controller manager of the legacy side signs the tokens of service accounts. The modern server " +
				"accepts them only when it is given every public key " +
				"with which the legacy server verifies them.",
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
			ID: "FUS103", Title: "Nobody publishes the config map that pods mount",
			Why: "Since 1.21 a pod made through a server mounts the config map kube-root-ca.crt of its namespace. " +
				"Controller managers publish it by default since 1.20: where neither " +
				"side does, pods made through the modern server wait for it for ever.",
			Legacy: kubever.Range{From: 6, To: 19}, Modern: kubever.Range{From: 21, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Prevention: []string{"TestOldServersEmptyTheTokenSource"},
				Read: "admission plugin ServiceAccount and pkg/controller/certificates/rootcacertpublisher of 1.19 " +
					"to 1.36"},
			Bad: example{modernManager: args("controllers=deployment-controller,replicaset-controller"),
				access: toDevelopers("pods")}.String(),
			Good: example{access: toDevelopers("pods")}.String(),
		}, unpublishedCA},
		{finding.Rule{
			ID: "FUS160", Title: "Pods that should use the modern server are led to the legacy one",
			Why: "Kubelets tell each pod the address of the service kubernetes, whose endpoints are the legacy " +
				"side's. A controller that runs as a pod and uses its in-cluster " +
				"configuration speaks to the legacy server, where its custom resources do not exist.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Seen: "with --endpoint-reconciler-type=none 1.36.3 writes no endpoints of the " +
				"service kubernetes: they remain the legacy side's", Prevention: []string{"TestPods"},
				Read: "kubelet_pods.go of 1.6.13 and 1.36.3"},
			Bad:  example{access: toAccounts}.String(),
			Good: example{access: toAccounts, more: `pods: {}`}.String(),
		}, inClusterConfiguration},
		{finding.Rule{
			ID: "FUS161", Title: "Pods made through the modern server get no token",
			Why: "A modern server gives pods a projected token volume instead of a token secret. Legacy servers " +
				"before 1.11 drop the source of the token, and kubelets before 1.11 do not " +
				"know it: the pod runs without a token. A kubelet of 1.11 knows it and refuses to mount it: the pod " +
				"never starts. From 1.12 on the kubelet asks the legacy server for the token, " +
				"which must have an issuer and a signing key: without them the pod never starts either.",
			Legacy: kubever.Range{From: 6, To: 19}, Modern: kubever.Range{From: 21, To: kubever.Newest},
			Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "a pod made through 1.36.3 and read through 1.6.13 and 1.10.13 has an empty token " +
					"source; 1.15.12 keeps it",
				Damage:     []string{"TestOldServersEmptyTheTokenSource"},
				Prevention: []string{"TestPods"},
				Read:       "the field table: v1.VolumeProjection; authentication options of every minor",
			},
			Bad:  example{legacy: "1.10.13", access: toDevelopers("pods")}.String(),
			Good: example{legacy: "1.10.13", access: toDevelopers("pods"), more: `pods: {}`}.String(),
		}, noToken},
		{finding.Rule{
			ID: "FUS165", Title: "Nobody writes EndpointSlices where the modern side looks for them",
			Why: "Meshes and gateways read EndpointSlices. Only an endpointslice controller makes them; without one " +
				"the modern server has none, and such software sees services " +
				"without endpoints.",
			Legacy: anyVersion, Modern: kubever.Range{From: 16, To: kubever.Newest}, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "pkg/controller/endpointslice of 1.16 to 1.36"},
			Bad:      example{modernManager: "-", access: toSliceReaders}.String(),
			Good:     example{access: toSliceReaders}.String(),
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
			Message: fmt.Sprintf("the %s of both sides elect on it, in %s: only one of them runs", a.Component,
				a.Resource),
			Fix: fmt.Sprintf("leave the election to the plan: remove leader-elect-resource-* from the extraArgs of "+
				"the modern %s", a.Component)})
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
				Message: fmt.Sprintf("is held in endpoints, and each start of the controller manager of %s deletes "+
					"endpoints without a service", p.Legacy.Version.Minor),
				Fix: "leave the election to the plan: remove leader-elect-resource-lock from the extraArgs of the " +
					"modern " + l.Component})
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
				"tokens of one side are not good on the other", key),
			Fix: fmt.Sprintf("remove %s from spec.owners: they belong with the pods", key)})
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
		f.Message = fmt.Sprintf("%s issues them, and %s does not know their kind: it answers 401",
			p.Modern.Version.Minor, p.Legacy.Version.Minor)
		f.Fix = "use the token of a service account's secret, which both servers accept"
	}
	return []finding.Finding{f}
}

// issuerFix gives the legacy server the issuer and the key with which the modern one issues tokens.
func issuerFix(p *plan.Plan) string {
	value, key := issuer(p, pair.Modern), p.PKI.ServiceAccountKey
	return fmt.Sprintf("add to the extraArgs of the legacy API server: service-account-issuer=%s, "+
		"service-account-signing-key-file=%s and %s=%s", value, key, audiencesFlag(p.Legacy.Version.Minor), value)
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
		Message: fmt.Sprintf("the legacy server verifies tokens with %s, the modern one does not: it refuses tokens "+
			"that were signed with that key", strings.Join(missing, ", ")),
		Fix: fmt.Sprintf("set spec.pki.serviceAccountPublicKeys: [%s]",
			strings.Join(slices.Concat(missing, modern), ", ")),
		Related: missing}}
}

// keyFiles are the files with which a side's API server verifies tokens; a server that is given none takes its serving
// key.
func keyFiles(p *plan.Plan, side pair.Side) []string {
	servers := p.ComponentsOf(side, kubever.APIServer)
	if len(servers) == 0 {
		return nil
	}
	var files []string
	for _, a := range servers[0].Args {
		if kubever.FlagName(a.Name) == "service-account-key-file" && a.Value != "" {
			files = append(files, a.Value)
		}
	}
	if len(files) == 0 {
		if key, ok := servers[0].Arg("tls-private-key-file"); ok {
			files = append(files, key)
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
		fix = fmt.Sprintf("leave --controllers of the modern controller manager to the plan, or add %s to it",
			rootCAPublisher)
	}
	return []finding.Finding{{Subject: "configmaps kube-root-ca.crt",
		Message: fmt.Sprintf("pods made through %s mount it, and no controller of either side publishes it: they "+
			"never start", p.Modern.Version.Minor), Fix: fix}}
}

// projectsTokens reports whether the modern server gives pods a projected token volume, as it is started.
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
		Message: "the policy lets service accounts use the modern server, and pods are told the address of the " +
			"legacy one",
		Fix: "add spec.pods: {}: a service of the modern servers, and pods that are told its address"}}
}

// podsUnattended reports hosts on which nobody answers the modern server about pods, and a service that nobody keeps.
func podsUnattended(p *plan.Plan) []finding.Finding {
	running := p.ComponentsOf("", plan.JointControllers)
	if len(running) == 0 {
		fix := "take disabled: true out of spec.controllers"
		if p.Target == plan.Hosted {
			fix = "run fusionctl controllers on the hosts of the legacy API servers, or leave spec.pods out"
		}
		return []finding.Finding{{Subject: "spec.pods", Fix: fix,
			Message: "fusionctl controllers keep the service of the modern servers and have pods changed, and this " +
				"plan runs none"}}
	}
	if p.Pods.Admission.By != plan.ByWebhook {
		return nil
	}
	var found []finding.Finding
	for _, host := range p.Hosts {
		if !slices.ContainsFunc(running, func(c plan.Component) bool { return c.Host == host.Name }) {
			found = append(found, finding.Finding{Subject: "host " + host.Name,
				Message: "its modern API server asks fusionctl controllers of the same host about pods, and they do " +
					"not run there",
				Fix: fmt.Sprintf("add %s to spec.controllers.hosts, or leave that field out", host.Name)})
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
		Fix: "add spec.pods: {}: pods are given the token of a Secret"}
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
		f.Message = fmt.Sprintf("%s gives them a projected token volume; kubelets ask %s for the token, which issues "+
			"none: the pods never start", p.Modern.Version.Minor, legacy)
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
		return nil // nobody was meant to read them
	}
	fix := "run the modern controller manager: spec.modern.controllerManager: {}"
	if len(p.ComponentsOf(pair.Modern, kubever.ControllerManager)) > 0 {
		fix = leaveControllers
	}
	return []finding.Finding{{Subject: "endpointslices", Message: "the policy lets users read them through the " +
		"modern server, and no controller writes them there", Fix: fix}}
}

package rules

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// argumentRules are about arguments of the components.
func argumentRules() []rule {
	legacyServer := func(pairs ...string) example { return example{legacyServer: args(pairs...)} }
	return []rule{
		{finding.Rule{
			ID: "FUS004", Title: "An override names a group under which the version does not store the resource",
			Why: "A resource that several groups serve is stored under one of them, and which one depends on the " +
				"version. An entry of --etcd-servers-overrides under another group is silently ignored, and the " +
				"objects stay in the default store.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "storage_factory.go and AddCohabitatingResources of every minor",
				Damage: []string{"TestArgumentsThatTheirPlanForbids"},
				Seen: "1.36.3 accepts events.k8s.io/events and unknown groups, and keeps events where they were; " +
					"1.10.13 kept a Deployment where it was in spite of an entry for extensions"},
			Bad:  legacyServer("etcd-servers-overrides=extensions/deployments#http://10.0.0.11:2379").String(),
			Good: legacyServer("etcd-servers-overrides=apps/deployments#http://10.0.0.11:2379").String(),
		}, func(p *plan.Plan) []finding.Finding { return legacyOverrides(p, true) }},
		{finding.Rule{
			ID: "FUS010", Title: "An override without effect",
			Why: "CRDs, custom resources and APIServices stay in the default store in every version, the ranges " +
				"of the allocators follow services, and resources that the version does not have cannot be moved. " +
				"Such entries are accepted and ignored.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "apiserver options/etcd.go of 1.8, 1.15, 1.24 and 1.36; " +
				"kubernetes#81508", Seen: "1.36.3 accepts and ignores overrides of CRDs, custom resources, " +
				"APIServices, serviceipallocations and unknown groups, and 1.10.13 one of CRDs",
				Damage: []string{"TestArgumentsThatTheirPlanForbids"}},
			Bad: legacyServer(
				"etcd-servers-overrides=apiextensions.k8s.io/customresourcedefinitions#http://10.0.0.11:2379").String(),
			Good: legacyServer("etcd-servers-overrides=/events#http://10.0.0.11:2379").String(),
		}, func(p *plan.Plan) []finding.Finding { return legacyOverrides(p, false) }},
		{finding.Rule{
			ID: "FUS070", Title: "One side cannot decrypt what the other encrypts",
			Why: "A value that a server cannot decrypt makes its lists fail; from 1.7 to 1.12 a server that has " +
				"other keys silently leaves it out of lists, so that secrets seem absent. Both sides need the same " +
				"providers and keys, and versions before 1.13 read only the old format of the file, kind " +
				"EncryptionConfig, apiVersion v1.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "one secret that 1.15.12 encrypted: 1.10.13, without keys, " +
				"answered every list of secrets with 500",
				Damage: []string{"TestServersThatTheirPlanForbids"},
				Read:   "store.go of apiserver 1.6 to 1.13; options of every minor"},
			Bad: example{legacy: "1.6.13",
				more: `pki: {encryptionConfiguration: /etc/kubernetes/encryption.yaml}`}.String(),
			Good: example{legacy: "1.15.12",
				more: `pki: {encryptionConfiguration: /etc/kubernetes/encryption.yaml}`}.String(),
		}, encryption},
		{finding.Rule{
			ID: "FUS072", Title: "The modern side stores CBOR",
			Why: "With the feature gate CBORServingAndStorage a server stores custom resources as CBOR, which " +
				"versions before 1.32 cannot decode.",
			Legacy: kubever.Range{From: 6, To: 31}, Modern: kubever.Range{From: 32, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "one custom resource stored by 1.36.3 with the gate: every list of its " +
				"kind through 1.24.17 was answered with 500",
				Damage: []string{"TestStoredCBORBlindsTheLegacySide"},
				Read:   "storage_codec.go of 1.36.3"},
			Bad:  example{modernServer: args("feature-gates=CBORServingAndStorage=true")}.String(),
			Good: example{}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			const gate = "CBORServingAndStorage"
			_, exists := kubever.Gate(gate).At(p.Modern.Version.Minor)
			all := exists && hasGate(p, pair.Modern, "AllAlpha=true") && !hasGate(p, pair.Modern, gate+"=false")
			if !all && !hasGate(p, pair.Modern, gate+"=true") {
				return nil
			}
			return []finding.Finding{{Subject: "--feature-gates of the modern API server",
				Message: fmt.Sprintf("%s: %s cannot decode CBOR", gate, p.Legacy.Version.Minor),
				Fix:     "set " + gate + "=false, or remove the argument that enables it"}}
		}},
		{finding.Rule{
			ID: "FUS073", Title: "The legacy side stores in etcd 2",
			Why: "Up to 1.12 an API server can be configured to use the version 2 API of etcd, whose keys are " +
				"separate from those of version 3: the modern side sees none of them.",
			Legacy: kubever.Range{From: 6, To: 12}, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.10.13 with etcd2 on etcd 3.4: its config maps have no keys by version 3, and 1.15.12 " +
					"answers 404",
				Damage: []string{"TestEtcd2HidesTheLegacySide"},
				Read:   "storage backend options of every minor"},
			Bad:  example{legacy: "1.10.13", legacyServer: args("storage-backend=etcd2")}.String(),
			Good: example{legacy: "1.10.13", legacyServer: args("storage-backend=etcd3")}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			if value, _ := sideArg(p, pair.Legacy, kubever.APIServer, "storage-backend"); value != "etcd2" {
				return nil
			}
			return []finding.Finding{{Subject: "--storage-backend of the legacy API server",
				Message: "etcd2: the modern side sees none of its objects",
				Fix:     "migrate the store to version 3 first"}}
		}},
		{finding.Rule{
			ID: "FUS074", Title: "A component does not know an argument",
			Why: "A component exits when it is given an unknown flag, controller, feature gate or admission " +
				"plugin, or another value than 0 for a port that it serves no longer. Some flags were added by a " +
				"patch release: earlier releases of the minor refuse them.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "the flag sets of every minor, equal to what real 1.6.13, 1.10.13, " +
				"1.15.12 and 1.36.3 accept",
				Damage: []string{"TestArgumentsThatTheirPlanForbids"},
				Seen: "1.36.3 exits with `unknown flag`, kube-controller-manager 1.22.17 with `only zero is " +
					"allowed`"},
			Bad:  example{modernServer: args("audit-log-paht=/var/log/audit.log")}.String(),
			Good: example{modernServer: args("audit-log-path=/var/log/audit.log")}.String(),
		}, unknownArguments},
		{finding.Rule{
			ID: "FUS154", Title: "The modern API server does not decide by the policy alone",
			Why: "Authorizers are consulted in order, and the first that allows wins. With any mode beside ABAC, " +
				"or without ABAC, more is allowed than the policy allows; without any mode everything is. Where " +
				"kubelets are connected to this API server, the plan adds Node, which allows a kubelet what " +
				"belongs to its node, and other clients nothing.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "pkg/kubeapiserver/authorizer of 1.6 to 1.36",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Seen: "with RBAC among its modes 1.36.3 bootstraps 133 roles and bindings; with ABAC alone none; a " +
					"user of those of 1.15.12 listed pods that the policy does not allow"},
			Bad:  example{modernServer: args("authorization-mode=ABAC,RBAC")}.String(),
			Good: example{}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			mode, _ := modernArg(p, kubever.APIServer, "authorization-mode")
			wanted, _ := plan.ModernAuthorization(p.ModernKubelet != nil)
			decides := "ABAC"
			if p.Legacy.Retired {
				wanted, decides = "Node,RBAC", "RBAC"
			}
			modes := strings.Split(mode, ",")
			more := slices.DeleteFunc(slices.Clone(modes), func(m string) bool {
				return slices.Contains(strings.Split(wanted, ","), m)
			})
			if len(more) == 0 && slices.Contains(modes, decides) {
				return nil
			}
			return []finding.Finding{{Subject: "--authorization-mode of the modern API server",
				Message: fmt.Sprintf("%q: requests must be authorized by %s alone", mode, wanted),
				Fix:     "remove the argument from extraArgs; the plan sets " + wanted}}
		}},
		{finding.Rule{
			ID: "FUS155", Title: "An API server serves anonymous clients on its insecure port",
			Why: "Up to 1.19 an API server opens a port without authentication and authorization, on localhost by " +
				"default: every client that reaches it is allowed everything.",
			Legacy: kubever.Range{From: 6, To: 19}, Modern: kubever.Range{From: 6, To: 19}, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "1.15.12 listed secrets at its insecure port without credentials",
				Damage: []string{"TestControllersThatTheirPlanForbids"}, Read: "serving options of 1.6 to 1.20"},
			Bad: example{legacy: "1.15.12",
				legacyServer: args("insecure-port=8080", "insecure-bind-address=0.0.0.0")}.String(),
			Good: example{legacy: "1.15.12"}.String(),
		}, insecurePorts},
		{finding.Rule{
			ID: "FUS156", Title: "The legacy API server allows every request",
			Why: "Without --authorization-mode every version authorizes every request. Requests that the policy " +
				"of the modern API server denies succeed through the legacy API server.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "authorization options of 1.6, 1.9, 1.15, 1.20, 1.24 and 1.36"},
			Bad:      example{legacyServer: args("authorization-mode=AlwaysAllow")}.String(),
			Good:     example{}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			mode, ok := sideArg(p, pair.Legacy, kubever.APIServer, "authorization-mode")
			if _, file := sideArg(p, pair.Legacy, kubever.APIServer, "authorization-config"); file ||
				p.Legacy.Retired ||
				ok && !slices.Contains(strings.Split(mode, ","), "AlwaysAllow") {
				return nil
			}
			return []finding.Finding{{Subject: "--authorization-mode of the legacy API server",
				Message: "every request is allowed there",
				Fix:     setLegacy(p, "apiServer", "authorization-mode=RBAC")}}
		}},
		{finding.Rule{
			ID: "FUS254", Title: "Exec, attach and port-forward fail through an API server that follows no redirect",
			Why: "Kubelets up to 1.10 answer exec, attach and port-forward with a redirect to the container runtime. " +
				"API servers follow it up to 1.21; from 1.22 on the feature gate StreamingProxyRedirects is off, and " +
				"since 1.24 it is gone: exec and attach end with `redirect not allowed`, port-forward with `invalid " +
				"upgrade response: status code 302`. Logs are not affected.",
			Legacy: kubever.Range{From: 6, To: 10}, Modern: kubever.Range{From: 22, To: kubever.Newest},
			Severity: finding.Info,
			Evidence: finding.Evidence{Read: "kubernetes#64006; feature gates of 1.21 to 1.24",
				Seen: "exec through 1.36.3 to kubelet 1.10.13 fails, through 1.10.13 it works"},
			Bad:  example{legacy: "1.10.13"}.String(),
			Good: example{legacy: "1.15.12"}.String(),
		}, redirectedStreams},
		{finding.Rule{
			ID: "FUS163", Title: "Logs and exec fail through an API server without a kubelet client certificate",
			Why: "For logs, exec and port-forward the API server is a client of the kubelet; without a client " +
				"certificate the kubelet refuses it.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "kubelet client options of every minor"},
			Bad:      example{modernServer: args("kubelet-client-certificate=", "kubelet-client-key=")}.String(),
			Good:     example{}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			if value, _ := modernArg(p, kubever.APIServer, "kubelet-client-certificate"); value != "" {
				return nil
			}
			return []finding.Finding{{Subject: "--kubelet-client-certificate of the modern API server",
				Message: "is empty: kubelets refuse logs, exec and port-forward through this API server",
				Fix:     "set spec.pki.kubeletClientCert and kubeletClientKey"}}
		}},
		{finding.Rule{
			ID: "FUS166", Title: "A store of an etcd release on which an API server may not work",
			Why: "API servers were run on three members of each etcd minor from 3.1 on, of which one was killed, " +
				"with TLS, and from 3.3 on with users: `fusionctl versions kube-apiserver --facts etcd` lists them. " +
				"An API server on another etcd may call what its members do not have, or not be able to decode what " +
				"they answer. Those of 1.22 and 1.23 end at their start on etcd 3.5.35 and 3.6.16 with TLS: the " +
				"members end their streams, because the client names a host that their HTTP library refuses.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "fifteen minors from 1.6.13 to 1.37.2 on 3.1.20, 3.3.27, 3.4.21, 3.5.35, 3.6.8 and 3.7.3; " +
					"1.22.17 ends on 3.5.35 and 3.6.16; the pairs 1.6.13 and 1.10.13, 1.6.13 and 1.36.3 in both " +
					"layouts, 1.10.13 and 1.36.3, 1.15.12 and 1.36.3 on each, of 3.6.8 on one member",
				Prevention: []string{"TestAPIServersOnEtcdReleases", "TestPairsOnEtcdReleases"},
				Read:       "no source was read about others"},
			Bad:  strings.Replace(example{}.String(), `{name: core, `, `{name: core, version: 3.0.17, `, 1),
			Good: strings.Replace(example{}.String(), `{name: core, `, `{name: core, version: 3.3.10, `, 1),
		}, unseenStores},
		{finding.Rule{
			ID: "FUS167", Title: "API servers cannot fail over to another member of their store",
			Why: "API servers of 1.13 to 1.16 verify the certificate of every etcd member against the host of the " +
				"first endpoint in --etcd-servers. Where the certificate of each member has its own names alone, " +
				"they use the first member and no other: while it is down, they write nothing and do not start, " +
				"although the store has a majority. The plan issues certificates with the names of all endpoints " +
				"for the members that it runs; those of other members are not known to it.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "1.15.12 on three members, each with a certificate for its own address: with the first one " +
					"killed no write was answered for 30 s; with certificates for all three addresses writes " +
					"went on after each member",
				Damage: []string{"TestEtcdMemberIsKilled"}, Prevention: []string{"TestEtcdMemberIsKilled"},
				Read: "kubernetes#72102, #83028",
			},
			Bad:  strings.Replace(example{}.String(), oneEndpoint, twoMembers, 1),
			Good: strings.Replace(example{legacy: "1.10.13"}.String(), oneEndpoint, twoMembers, 1),
		}, firstMembers},
	}
}

// legacyOverrides judges the entries of --etcd-servers-overrides that the legacy API server has: those under a group
// that its version does not choose, or those that move nothing.
func legacyOverrides(p *plan.Plan, wrongGroup bool) []finding.Finding {
	value, ok := sideArg(p, pair.Legacy, kubever.APIServer, "etcd-servers-overrides")
	if !ok {
		return nil
	}
	minor := p.Legacy.Version.Minor
	var found []finding.Finding
	for entry := range strings.SplitSeq(value, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(entry), "#")
		group, resource, _ := strings.Cut(name, "/")
		if resource == "*" {
			continue
		}
		fact, known := overridden(group, resource, minor)
		switch {
		case known && fact.Overridable() && fact.ChosenGroup(minor) != group:
			if wrongGroup {
				found = append(found, finding.Finding{Subject: name, Message: fmt.Sprintf("%s stores %s under group "+
					"%q: the entry is ignored", minor, fact.Name, fact.ChosenGroup(minor)),
					Fix: fmt.Sprintf("write %s/%s", fact.ChosenGroup(minor), fact.OverrideName())})
			}
		case !known || !fact.Overridable():
			if !wrongGroup {
				found = append(found, finding.Finding{Subject: name, Message: fmt.Sprintf("%s cannot be moved by an "+
					"override: the entry is ignored", minor), Fix: "remove the entry"})
			}
		}
	}
	return found
}

// overridden finds the resource that an override names under any of its groups.
func overridden(group, resource string, m kubever.Minor) (kubever.Resource, bool) {
	for _, fact := range kubever.Resources() {
		if fact.OverrideName() == resource && fact.In(m) && slices.Contains(fact.Groups(), group) {
			return fact, true
		}
	}
	return kubever.Resource{}, false
}

// encryptionFlags in the order of the versions that have them.
var encryptionFlags = []string{"encryption-provider-config", "experimental-encryption-provider-config"}

func encryption(p *plan.Plan) []finding.Finding {
	if !visible(p, "secrets") {
		return nil
	}
	legacy, modern := encryptionFile(p, pair.Legacy), encryptionFile(p, pair.Modern)
	f := finding.Finding{Subject: "encryption at rest"}
	switch {
	case legacy == "" && modern == "":
		return nil
	case legacy == "" || modern == "":
		with, without := pair.Legacy, pair.Modern
		if legacy == "" {
			with, without = without, with
		}
		minor := p.Side(without).Version.Minor
		f.Message = fmt.Sprintf("the %s side encrypts values in the store, and the %s side, %s, has no keys", with,
			without,
			minor)
		f.Fix = "set spec.pki.encryptionConfiguration to a file with the providers and keys of both sides"
		if !kubever.Behaves(kubever.BehaviourEncryptionAtRest, minor) {
			f.Message += " and can have none"
			f.Fix = fmt.Sprintf("do not encrypt: %s cannot decrypt", minor)
		}
	case legacy != modern:
		f.Severity = finding.Warning
		f.Message = fmt.Sprintf("the legacy side reads its keys from %s, the modern side from %s: one side cannot "+
			"decrypt values under a key that only the other has", legacy, modern)
		f.Fix = "put the providers and keys of both sides into both files, or use one file: " +
			"spec.pki.encryptionConfiguration"
	case !kubever.Behaves(kubever.BehaviourEncryptionConfigV1, p.Legacy.Version.Minor):
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("%s reads only the old format of the file: kind EncryptionConfig, apiVersion v1; %s "+
			"reads that too", p.Legacy.Version.Minor, p.Modern.Version.Minor)
		f.Fix = "write " + legacy + " in the old format"
	default:
		return nil
	}
	return []finding.Finding{f}
}

// encryptionFile is where a side's API server reads its keys, "" when it encrypts nothing.
func encryptionFile(p *plan.Plan, side pair.Side) string {
	for _, flag := range encryptionFlags {
		if file, ok := sideFile(p, side, kubever.APIServer, flag); ok && file != "" {
			return file
		}
	}
	return ""
}

func unknownArguments(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	seen := map[string]bool{}
	for _, c := range p.Components {
		if c.Side == "" {
			continue // no component of Kubernetes
		}
		for _, a := range c.Args {
			key := c.Name + " " + a.Name
			f, bad := judgeArgument(p, &c, a)
			if !bad || seen[key] {
				continue
			}
			seen[key] = true
			found = append(found, f)
		}
	}
	return append(found, unknownValues(p)...)
}

// judgeArgument reports an argument that the component's version does not have, may not have, or calls deprecated.
func judgeArgument(p *plan.Plan, c *plan.Component, a plan.Arg) (finding.Finding, bool) {
	minor := p.Side(c.Side).Version.Minor
	flag := kubever.FlagGiven(c.Kind, a.Name, minor)
	f := finding.Finding{Subject: fmt.Sprintf("--%s of %s", a.Name, c.Name), Fix: "remove it from extraArgs"}
	switch {
	case !flag.In(minor):
		f.Message = fmt.Sprintf("%s %s has no such flag and does not start with it", c.Kind, minor)
		if near, ok := spelling.Nearest(kubever.FlagName(a.Name), flagNames(c.Kind, minor)); ok {
			f.Fix = fmt.Sprintf("did you mean --%s? %s", near, f.Fix)
		}
		return lenient(p, c, f), true
	case lateFlag(p, c, flag):
		f.Severity = finding.Warning
		f.Message = fmt.Sprintf("%s %s has the flag since a patch release: %s may refuse it", c.Kind, minor,
			c.Version)
		f.Fix = "check that the build has the flag, or remove it"
		return lenient(p, c, f), true
	case a.Origin == plan.FromSpec && flag.DeprecatedIn(minor) && !p.Side(c.Side).Existing:
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("the flag is deprecated in %s %s", c.Kind, minor)
		if why := flag.DeprecationMessage(minor); why != "" {
			f.Message += ": " + why
		}
		f.Fix = "it still works in this version; replace it before an upgrade"
		return f, true
	}
	return f, false
}

// lateFlag reports whether the flag came after the first release of a minor and the component is that release, or may
// be.
func lateFlag(p *plan.Plan, c *plan.Component, flag kubever.FlagFact) bool {
	version := p.Side(c.Side).Version
	return flag.NotInDotZero(version.Minor) && version.HasPatch && version.Patch == 0
}

func flagNames(component string, m kubever.Minor) []string {
	var names []string
	for _, f := range kubever.Flags(component, m) {
		names = append(names, f.Name)
	}
	return names
}

func insecurePorts(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		minor := p.Side(side).Version.Minor
		if p.Side(side).Retired || !kubever.Behaves(kubever.BehaviourInsecurePort, minor) ||
			effective(p, side, "insecure-port") == "0" {
			continue
		}
		address := effective(p, side, "insecure-bind-address")
		f := finding.Finding{Subject: fmt.Sprintf("--insecure-port of the %s API server", side),
			Message: fmt.Sprintf("serves every client that reaches %s without authentication", address),
			Fix:     "set --insecure-port=0, and give the components that use it a kubeconfig"}
		if side == pair.Legacy && p.Legacy.Existing {
			f.Fix = setLegacy(p, "apiServer", "insecure-port=0") + ", and give the components that use it a kubeconfig"
		}
		if ip, err := netip.ParseAddr(address); err == nil && ip.IsLoopback() && side == pair.Legacy {
			f.Severity = finding.Warning
		}
		found = append(found, f)
	}
	return found
}

// unseenStores reports stores of an etcd on which an API server that uses them was not run. What the spec does not say,
// preflight asks the members.
func unseenStores(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, s := range p.Stores {
		if s.Version == "" {
			continue
		}
		var minors []kubever.Minor
		for _, server := range p.ServersOf(s.Name) {
			minors = append(minors, p.Side(server.Side).Version.Minor)
		}
		if message, fix := kubever.UnseenOnEtcd(s.Version, minors...); message != "" {
			found = append(found, finding.Finding{Subject: "store " + s.Name, Message: message, Fix: fix})
		}
	}
	return found
}

// oneEndpoint is the legacy side's store of examples.
const oneEndpoint = `{name: core, endpoints: ["http://10.0.0.11:2379"]}`

// twoMembers is the same of several members, with certificates.
const twoMembers = `{name: core, endpoints: ["https://etcd-1.example.com:2379", "https://etcd-2.example.com:2379"], ` +
	`tls: {ca: /etc/etcd/ca.crt, cert: /etc/etcd/client.crt, key: /etc/etcd/client.key}}`

// firstMembers reports stores of several members that the plan does not run, of API servers which verify each by the
// name of the first.
func firstMembers(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		minor := p.Side(side).Version.Minor
		if !kubever.Behaves(kubever.BehaviourEtcdFirstName, minor) {
			continue
		}
		for i := range p.Stores {
			s := &p.Stores[i]
			hosts := hostsOf(s)
			if s.Managed != nil || len(hosts) < 2 || s.Name != p.Side(side).Store && side == pair.Legacy {
				continue
			}
			found = append(found, finding.Finding{Subject: "store " + s.Name, Key: string(side),
				Message: fmt.Sprintf("the %s API server %s verifies the certificates of all members against the host "+
					"of the first endpoint: it cannot use a member whose certificate has other names", side, minor),
				Fix: "issue the certificate of every member for " + strings.Join(hosts, ", ") +
					"; accept this where they are so"})
		}
	}
	return found
}

// hostsOf are the hosts of a store's endpoints with TLS, each once.
func hostsOf(s *plan.Store) []string {
	var hosts []string
	for _, endpoint := range s.Endpoints {
		if u, err := url.Parse(endpoint); err == nil && u.Scheme == "https" && !slices.Contains(hosts, u.Hostname()) {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// redirectsGate makes API servers follow the redirects of old kubelets.
const redirectsGate = "StreamingProxyRedirects"

func redirectedStreams(p *plan.Plan) []finding.Finding {
	if !kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, p.Kubelet.Minor) {
		return nil
	}
	state, known := kubever.Gate(redirectsGate).At(p.Modern.Version.Minor)
	follows := known && state.Default && !hasGate(p, pair.Modern, redirectsGate+"=false")
	if follows || known && hasGate(p, pair.Modern, redirectsGate+"=true") {
		return nil
	}
	fix := "exec, attach and port-forward through the legacy API server"
	if known {
		fix += ", or set --feature-gates=" + redirectsGate + "=true on the modern one"
	}
	return []finding.Finding{{Subject: fmt.Sprintf("kubelets of %s", p.Kubelet.Minor),
		Message: fmt.Sprintf("exec, attach and port-forward through the modern API server %s fail "+
			"(`redirect not allowed`): these kubelets redirect them to the container runtime", p.Modern.Version.Minor),
		Fix: fix + ", whose users need permission to create pods/exec, pods/attach and pods/portforward there"}}
}

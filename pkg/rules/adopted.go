package rules

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// adoptedRules are about a modern side beside a legacy side that the plan does not configure.
func adoptedRules() []rule {
	running := func(more ...string) example {
		server := args(
			append([]string{"etcd-servers=http://10.0.0.11:2379", "insecure-port=0", "authorization-mode=RBAC",
				"client-ca-file=/etc/kubernetes/pki/ca.crt", "allow-privileged=true"}, more...)...)
		return example{legacySide: "existing: true", legacyServer: server}
	}
	good := running()
	unprovidedFile := good
	unprovidedFile.modernServer = args("tracing-config-file=/etc/kubernetes/tracing.yaml")
	providedFile := unprovidedFile
	providedFile.more = "hostFiles: [/etc/kubernetes/tracing.yaml]"
	names := []string{"requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
		"requestheader-allowed-names=front-proxy-client,metrics",
		"proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
		"proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key"}
	fewer := running(names...)
	fewer.modernServer = args("requestheader-allowed-names=front-proxy-client")
	return []rule{
		{finding.Rule{
			ID: "FUS250", Title: "A component reads a file that nothing provides",
			Why: "A component that does not find a file which its arguments name exits. Files are known when an " +
				"argument of the running legacy side names them, when fusionctl pki issues them, when render writes " +
				"them, or when the spec says that they are on every host. A file of a Secret or a ConfigMap, as " +
				"self-hosted control planes have them, is on no host, and a kubelet starts no static pod that refers " +
				"to an object.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "a rule of our own, from the files of the plan",
				Seen:       "1.36.3 exits with `no such file or directory`",
				Damage:     []string{"TestArgumentsThatTheirPlanForbids"},
				Prevention: []string{"TestAnAdoptedControlPlaneStarts"}},
			Bad: unprovidedFile.String(), Good: providedFile.String(),
		}, unprovidedFiles},
		{finding.Rule{
			ID: "FUS251", Title: "Names of front proxies differ between the sides",
			Why: "Both API servers publish the names which extension API servers accept in the certificate of a " +
				"front proxy, in one ConfigMap, kube-system/extension-apiserver-authentication. Up to 1.16 a server " +
				"overwrites it at its start, since 1.17 servers add their names to those that are there, and no " +
				"names stand for every name. A name too few cuts off the aggregated APIs of the side that uses it, " +
				"and one too many lets more certificates act as users.",
			Legacy: anyVersion, Modern: kubever.Range{From: 7, To: kubever.Newest}, Severity: finding.Error,
			Evidence: finding.Evidence{
				Read: "pkg/master/client_ca_hook.go of 1.6.13 to 1.16.15; clusterauthenticationtrust of 1.17.17 " +
					"and 1.36.3",
				Seen: "1.10.13 and 1.36.3 merge the names into one ConfigMap; with one name on the modern side " +
					"Kubernetes' own front-proxy authenticator refused the legacy side's certificate",
				Damage: []string{"TestFrontProxyNamesAreBothSides"},
			},
			Bad: fewer.String(), Good: running(names...).String(),
		}, frontProxyNames},
		{finding.Rule{
			ID: "FUS252", Title: "What protects the legacy API server does not protect the modern one",
			Why: "Both API servers reach the same nodes, and what both sides see can be read and written through " +
				"either. Whom one of them does not know, does not record or does not hold back goes through that one.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "authentication, audit and admission options of every minor"},
			Bad:      running("basic-auth-file=/etc/kubernetes/users.csv").String(),
			Good:     running("token-auth-file=/etc/kubernetes/tokens.csv").String(),
		}, lostProtection},
		{finding.Rule{
			ID: "FUS253", Title: "The legacy side has more hosts than the spec",
			Why: "What is changed of a control plane is changed on every host. A host that the spec does not have " +
				"keeps its controller manager as it is, with the collectors that the plan switches off, and its lock " +
				"may pass to that one at any time.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "a rule of our own, from the arguments of the running legacy side",
				Damage: []string{"TestHostsAndNodesThatTheirPlanForbids"},
				Seen: "when the lock passed from the plan's manager of 1.15.12 to one with the default controllers, " +
					"as on a host that the plan does not have, that one deleted the pods of Deployments of 1.36.3"},
			Bad:  running("apiserver-count=3").String(),
			Good: running("apiserver-count=1").String(),
		}, missingHosts},
		{finding.Rule{
			ID: "FUS255", Title: "Pods do not trust the certificate of the modern API server",
			Why: "Pods verify an API server by the bundle that the legacy controller manager has as --root-ca-file: " +
				"it is in their token secrets, and the modern side publishes the same one. A cluster with one CA for " +
				"clients and another for serving certificates has the latter there, and the certificate of the " +
				"modern API server is of the former.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "pkg/controller/serviceaccount/tokens_controller.go and " +
				"pkg/controller/certificates/rootcacertpublisher of 1.36.3; client-go's rest.InClusterConfig",
				Damage: []string{"TestHostsAndNodesThatTheirPlanForbids"},
				Seen: "the bundle in a token secret of 1.15.12 was that of its --root-ca-file, and with it the " +
					"certificate of 1.36.3 was signed by an unknown authority"},
			Bad:  twoAuthorities("/etc/kubernetes/pki/server-ca.crt").String(),
			Good: twoAuthorities("/etc/kubernetes/pki/ca.crt").String(),
		}, untrustedByPods},
		{finding.Rule{
			ID: "FUS257", Title: "A store serves clients without a certificate",
			Why: "An API server is the only client of etcd that identifies its users. A store whose members ask no " +
				"client for a certificate gives every Secret to each process that reaches their port, and takes " +
				"objects of both sides from it, past authentication, authorization and admission. Pods of the host " +
				"network reach it, and others where no firewall forbids it. What the policy of the modern API server " +
				"refuses is no more than advice then.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "client/pkg/transport/listener.go of etcd 3.6.8, TLSInfo.ServerConfig: " +
				"without ClientCertAuth no certificate is required; pkg/storage/storagebackend/factory/etcd3.go of " +
				"1.6.13 to 1.36.3: a CA file alone makes a client without a certificate",
				Prevention: []string{"TestAnAdoptedControlPlaneStarts"}},
			Bad:  strings.Replace(example{}.String(), oneEndpoint, oneAnonymous, 1),
			Good: strings.Replace(example{}.String(), oneEndpoint, oneIdentified, 1),
		}, anonymousStores},
		{finding.Rule{
			ID: "FUS259", Title: "A store has the CA of the clients of API servers",
			Why: "A member of etcd takes every certificate of its --trusted-ca-file for a client that may read and " +
				"write everything. Where that CA also signs the certificates of the cluster's clients, each kubelet, " +
				"each component and each user with a certificate has the whole store, past authentication, " +
				"authorization and admission, from wherever its port can be reached. Installers that make one CA " +
				"for everything do so.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "client/pkg/transport/listener.go of etcd 3.6.8, TLSInfo.ServerConfig: " +
				"any certificate of the CA is accepted",
				Seen: "with the certificate of a user to whom 1.36.3 answered 403, etcd 3.6.8 gave the Secret, until " +
					"it had users of its own",
				Damage:     []string{"TestACertificateOfTheClusterOpensAStore"},
				Prevention: []string{"TestACertificateOfTheClusterOpensAStore"}},
			Bad:  strings.Replace(example{}.String(), oneEndpoint, oneOfTheCluster, 1),
			Good: strings.Replace(example{}.String(), oneEndpoint, oneIdentified, 1),
		}, storesOfClients},
	}
}

const (
	oneAnonymous  = `{name: core, endpoints: ["https://10.0.0.11:2379"], tls: {ca: /etc/etcd/ca.crt}}`
	oneIdentified = `{name: core, endpoints: ["https://10.0.0.11:2379"], ` +
		`tls: {ca: /etc/etcd/ca.crt, cert: /etc/etcd/client.crt, key: /etc/etcd/client.key}}`
	oneOfTheCluster = `{name: core, endpoints: ["https://10.0.0.11:2379"], ` +
		`tls: {ca: /etc/kubernetes/pki/ca.crt, cert: /etc/etcd/client.crt, key: /etc/etcd/client.key}}`
)

// anonymousStores are those to which the API servers show no certificate, though they verify theirs.
func anonymousStores(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for i := range p.Stores {
		s := &p.Stores[i]
		if s.TLS == nil || s.TLS.Identifies() {
			continue
		}
		found = append(found, finding.Finding{Subject: "store " + s.Name,
			Message: fmt.Sprintf("asks no client for a certificate: a client that reaches %s reads its Secrets and "+
				"writes objects of both sides, whatever the policy of the modern API server says",
				strings.Join(s.Endpoints, ", ")),
			Fix: fmt.Sprintf("give its members --client-cert-auth and --trusted-ca-file, and the API servers a "+
				"certificate: tls: {ca: %s, cert: ..., key: ...}; or let no host but those of the control plane "+
				"reach these addresses, and accept this", s.TLS.CA)})
	}
	return found
}

// storesOfClients are those whose members have certificates of the CA by which an API server knows its clients: the
// plan does not say which CA the members of a store that it does not run hold their own clients to, and it is this one
// nearly everywhere.
func storesOfClients(p *plan.Plan) []finding.Finding {
	servers := map[string][]string{} // the sides, by the file of the CA
	for _, side := range pair.Sides() {
		if file, _ := sideFile(p, side, kubever.APIServer, "client-ca-file"); file != "" {
			servers[file] = append(servers[file], string(side))
		}
	}
	var found []finding.Finding
	for i := range p.Stores {
		s := &p.Stores[i]
		if s.TLS == nil || !s.TLS.Identifies() {
			continue // no certificate opens it
		}
		ca, takes := s.TLS.CA, "where its members hold their clients to it, as they usually do,"
		if s.Managed != nil && s.Managed.ServerTLS != nil {
			ca, takes = s.Managed.ServerTLS.CA, "with it,"
		}
		if sides := servers[ca]; len(sides) > 0 {
			found = append(found, finding.Finding{Subject: "store " + s.Name,
				Message: fmt.Sprintf("has the CA %s, by which the %s API server knows its clients: %s every "+
					"kubelet and user with a client certificate reads and writes everything in the store", ca,
					strings.Join(sides, " and the "), takes),
				Fix: "give the members a CA of their own, and the API servers a certificate of it; or create a user " +
					"root and one for the certificate of the API servers in the store (etcdctl user add, etcdctl " +
					"auth enable), and accept this"})
		}
	}
	return found
}

// twoAuthorities is a legacy side whose pods trust the bundle in a file, and whose clients are known by that in ca.crt.
func twoAuthorities(bundle string) example {
	return example{legacySide: "existing: true", legacyServer: args("client-ca-file=/etc/kubernetes/pki/ca.crt"),
		legacyManager: args("root-ca-file=" + bundle), access: toDevelopers("pods"), more: "pods: {}"}
}

// untrustedByPods compares what pods trust with the issuer of what the modern API server presents to them. Whichever
// legacy manager leads publishes its bundle, to the pods of every host.
func untrustedByPods(p *plan.Plan) []finding.Finding {
	if p.Pods == nil || !p.Legacy.Existing {
		return nil
	}
	var found []finding.Finding
	seen := map[string]bool{}
	for _, manager := range p.ComponentsOf(pair.Legacy, kubever.ControllerManager) {
		bundle, ok := manager.Arg("root-ca-file")
		if !ok || bundle == "" {
			continue
		}
		bundle = manager.OnHost(bundle)
		for _, server := range p.ComponentsOf(pair.Modern, kubever.APIServer) {
			cert, _ := server.Arg("tls-cert-file")
			for _, c := range p.Certificates {
				if c.Cert != cert || c.Host != server.Host || c.CA == bundle || seen[c.CA+" "+bundle] {
					continue
				}
				seen[c.CA+" "+bundle] = true
				found = append(found, finding.Finding{Subject: "--tls-cert-file of " + server.Name, Key: bundle,
					Message: fmt.Sprintf("is of the CA in %s, and pods trust the bundle in %s: unless it holds that "+
						"CA too, no pod can connect to the modern API server", c.CA, bundle),
					Fix: fmt.Sprintf("append the certificate in %s to %s on every host and restart the legacy "+
						"controller manager, or have the certificate issued by a CA of the bundle; then accept: "+
						"[{rule: FUS255, reason: ...}]", c.CA, bundle)})
			}
		}
	}
	return found
}

func unprovidedFiles(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	seen := map[string]bool{}
	for _, u := range p.Unprovided {
		subject := fmt.Sprintf("--%s of %s", u.Flag, u.Component)
		if seen[subject+u.File] {
			continue
		}
		seen[subject+u.File] = true
		f := finding.Finding{Subject: subject, Key: u.File,
			Message: fmt.Sprintf("%s on %s: no argument of the legacy side names it, and neither pki nor render "+
				"provides it",
				u.File, u.Host),
			Fix: fmt.Sprintf("put it on every host and say so: spec.hostFiles: [%s]", u.File)}
		if u.Object != "" {
			f.Message = fmt.Sprintf("%s: the legacy side has the file in %s and not on its hosts, and a static pod "+
				"cannot refer to that", u.File, u.Object)
			f.Fix = fmt.Sprintf("copy the files of %s to %s on every host, with mode 0600, and say so: "+
				"spec.hostFiles: [%s]", u.Object, path.Dir(u.File), path.Dir(u.File))
		}
		found = append(found, f)
	}
	return found
}

// allowedNames are the names that a side's API server publishes; all is true when it publishes that every name will do,
// known is false when it publishes nothing about front proxies.
func allowedNames(p *plan.Plan, side pair.Side) (names []string, all, known bool) {
	if file, _ := sideArg(p, side, kubever.APIServer, "requestheader-client-ca-file"); file == "" {
		return nil, false, false
	}
	servers := p.ComponentsOf(side, kubever.APIServer)
	for _, server := range servers[:min(1, len(servers))] { // those of all hosts publish one list
		for _, a := range server.Args {
			if kubever.FlagName(a.Name) == "requestheader-allowed-names" {
				names = append(names, splitWords(a.Value)...)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names, len(names) == 0, true
}

// splitWords splits a list of the command line.
func splitWords(value string) []string {
	var words []string
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

func frontProxyNames(p *plan.Plan) []finding.Finding {
	legacy, anyLegacy, inLegacy := allowedNames(p, pair.Legacy)
	modern, anyModern, inModern := allowedNames(p, pair.Modern)
	if !visible(p, "configmaps") || !inLegacy || !inModern || anyLegacy && anyModern || slices.Equal(legacy, modern) {
		return nil
	}
	f := finding.Finding{Subject: "--requestheader-allowed-names of the modern API server",
		Fix: "remove it from the extraArgs of the modern API server: the plan gives it the legacy side's names"}
	missing := slices.DeleteFunc(slices.Clone(legacy), func(name string) bool { return slices.Contains(modern, name) })
	switch {
	case anyLegacy:
		f.Message = fmt.Sprintf("%s: the legacy side accepts every name, and its extension API servers accept these "+
			"alone once both are published", strings.Join(modern, ","))
	case anyModern:
		f.Severity = finding.Warning
		f.Message = fmt.Sprintf("every name is accepted, the legacy side accepts %s: any certificate of %s may act "+
			"as a user on the modern API server", strings.Join(legacy, ","), p.PKI.RequestHeaderCA)
	case len(missing) > 0:
		f.Message = fmt.Sprintf("lacks %s of the legacy side: aggregated APIs that are reached under it are cut off",
			strings.Join(missing, ", "))
	default:
		f.Severity = finding.Warning
		f.Message = fmt.Sprintf("%s: the legacy side publishes %s, and up to 1.16 overwrites what is published at "+
			"each start",
			strings.Join(modern, ","), strings.Join(legacy, ","))
	}
	return []finding.Finding{f}
}

// enforcing lists admission plugins that the modern version may lack, and what is then allowed.
var enforcing = map[string]string{
	"DenyEscalatingExec":    "exec into privileged pods is refused; remove pods from spec.access, or exec by a webhook",
	"DenyExecOnPrivileged":  "exec into privileged pods is refused; remove pods from spec.access, or exec by a webhook",
	"PodSecurityPolicy":     "pods are held to a PodSecurityPolicy; label namespaces for PodSecurity instead",
	"SecurityContextDeny":   "pods with a security context are refused; label namespaces for PodSecurity instead",
	"PersistentVolumeLabel": "volumes get the labels of their zone",
	"NamespaceExists":       "objects of absent namespaces are refused",
	initializers:            "objects wait for initializers, where an InitializerConfiguration names some",
}

// initializers is a plugin that does nothing without objects of an alpha version, and that installers turned on.
const initializers = "Initializers"

func lostProtection(p *plan.Plan) []finding.Finding {
	return slices.Concat(lostArguments(p), lostAuthorizer(p), changedEvents(p), lostPlugins(p))
}

// lostAuthorizer reports a webhook that authorizes requests on the legacy side alone.
func lostAuthorizer(p *plan.Plan) []finding.Finding {
	subject, who := "--authorization-webhook-config-file", "a webhook authorizes requests, too"
	modes, _ := sideArg(p, pair.Legacy, kubever.APIServer, "authorization-mode")
	if file, _ := sideArg(p, pair.Legacy, kubever.APIServer, "authorization-config"); file != "" {
		subject, who = "--authorization-config", "the authorizers of "+file+", which may be webhooks, decide"
	} else if !slices.Contains(strings.Split(modes, ","), "Webhook") {
		return nil
	}
	return []finding.Finding{{Subject: subject,
		Message: "on the legacy side " + who + "; the modern API server asks the policy alone, so that what a " +
			"webhook refuses is refused there only where the policy does not allow it",
		Fix: "give no more by spec.access than the webhook allows, or accept it: accept: [{rule: FUS252, subject: " +
			subject + ", reason: ...}]"}}
}

// changedEvents reports audit events that reach a webhook in another version than before.
func changedEvents(p *plan.Plan) []finding.Finding {
	const webhook, version = "audit-webhook-config-file", "audit-webhook-version"
	of := func(side pair.Side) string {
		if value, ok := sideArg(p, side, kubever.APIServer, version); ok && value != "" {
			return value
		}
		fallback, _ := kubever.Flag(kubever.APIServer, version).Default(p.Side(side).Version.Minor)
		return fallback
	}
	before, _ := sideArg(p, pair.Legacy, kubever.APIServer, webhook)
	after, _ := sideArg(p, pair.Modern, kubever.APIServer, webhook)
	legacy, modern := of(pair.Legacy), of(pair.Modern)
	if before == "" || after == "" || legacy == modern {
		return nil
	}
	if legacy == "" {
		legacy = "a version before audit.k8s.io/v1"
	}
	return []finding.Finding{{Subject: "--" + version, Severity: finding.Info,
		Message: fmt.Sprintf("the webhook gets events of %s from the legacy API server, and of %s from the modern one",
			legacy, modern),
		Fix: "make sure that the receiver reads both, then accept it: accept: [{rule: FUS252, subject: --" + version +
			", reason: ...}]"}}
}

func lostArguments(p *plan.Plan) []finding.Finding {
	modernMinor := p.Modern.Version.Minor
	var found []finding.Finding
	for _, protection := range plan.Protections() {
		before, given := sideArg(p, pair.Legacy, kubever.APIServer, protection.Flag)
		if protection.Flag == "allow-privileged" {
			before, given = strconv.FormatBool(p.Legacy.Existing && before != "true"), p.Legacy.Existing &&
				before != "true"
		}
		if !given || before == "" || protection.Flag == "anonymous-auth" && before != "false" {
			continue
		}
		f := finding.Finding{Subject: "--" + protection.Flag}
		after, has := sideArg(p, pair.Modern, kubever.APIServer, protection.Flag)
		if issuer, _ := sideArg(p, pair.Modern, kubever.APIServer, "service-account-issuer"); protection.Flag ==
			"api-audiences" && !has && before == issuer {
			continue // its default (pkg/kubeapiserver/options/authentication.go of 1.13-1.36)
		}
		switch {
		case !kubever.Flag(kubever.APIServer, protection.Flag).In(modernMinor):
			f.Message = fmt.Sprintf("on the legacy side %s; %s has no such flag, so that this is not so on the "+
				"modern one",
				protection.Lost, modernMinor)
			f.Fix = "enforce it in another way, or accept it: accept: [{rule: FUS252, subject: --" + protection.Flag +
				", reason: ...}]"
		case protection.Flag == "audit-policy-file" && p.AuditPolicyFile != "":
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("%s may be of a form that %s does not read: the modern API server records every "+
				"request without its body, by %s", before, modernMinor, p.AuditPolicyFile)
			f.Fix = "for a policy of your own, of apiVersion audit.k8s.io/v1: audit-policy-file in the extraArgs of " +
				"spec.modern.apiServer, and the file in spec.hostFiles"
		case protection.Flag == "allow-privileged" && after == "true",
			protection.Flag == "anonymous-auth" && after != "false",
			protection.Flag != "allow-privileged" && (!has || after == ""):
			f.Message = fmt.Sprintf("on the legacy side %s, on the modern one this is not so", protection.Lost)
			f.Fix = "remove --" + protection.Flag +
				" from the extraArgs of the modern API server: the plan takes it over"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

func lostPlugins(p *plan.Plan) []finding.Finding {
	modern := p.Plugins(pair.Modern)
	minor := p.Modern.Version.Minor
	byDefault := kubever.AdmissionDefaultOn(p.Legacy.Version.Minor)
	var found []finding.Finding
	for _, plugin := range p.Plugins(pair.Legacy) {
		if slices.Contains(modern, plugin) || slices.Contains(byDefault, plugin) || plan.OfTheTime(plugin) {
			continue
		}
		f := finding.Finding{Subject: "admission plugin " + plugin, Fix: "enforce it in another way, or accept it: " +
			"accept: [{rule: FUS252, subject: admission plugin " + plugin + ", reason: ...}]"}
		what := enforcing[plugin]
		switch {
		case slices.Contains(kubever.AdmissionPlugins(minor), plugin):
			f.Message = "runs on the legacy side, and is off on the modern one"
			f.Fix = "remove it from disable-admission-plugins of the modern API server, or leave " +
				"enable-admission-plugins to the plan"
		case what != "":
			f.Message = fmt.Sprintf("%s has no such plugin: on the legacy side %s", minor, what)
			if plugin == initializers {
				f.Severity = finding.Info
				f.Fix = "see whether there are any: kubectl get initializerconfigurations; have a webhook do their work"
			}
		default:
			f.Message = fmt.Sprintf("runs on the legacy side, and %s has no such plugin", minor)
		}
		found = append(found, f)
	}
	return found
}

// missingHosts counts the hosts of a running legacy side by its own arguments.
func missingHosts(p *plan.Plan) []finding.Finding {
	servers := p.ComponentsOf(pair.Legacy, kubever.APIServer)
	if !p.Legacy.Existing || len(servers) == 0 {
		return nil
	}
	count := 0
	for _, a := range servers[0].Args {
		if kubever.FlagName(a.Name) == "apiserver-count" {
			value := a.Value
			if a.Origin == plan.FromBoth {
				value = a.Was
			}
			count, _ = strconv.Atoi(value)
		}
	}
	const fix = "read every host: fusionctl init --from HOST1 HOST2 ..., or add them to spec.hosts"
	if count > len(p.Hosts) {
		return []finding.Finding{{Subject: "spec.hosts", Key: "apiserver-count", Fix: fix,
			Message: fmt.Sprintf("has %d, and --apiserver-count=%d of the legacy API server counts %d", len(p.Hosts),
				count, count)}}
	}
	members := map[string]bool{}
	if store := p.Store(p.Legacy.Store); store != nil && store.Managed == nil {
		for _, endpoint := range store.Endpoints {
			if u, err := url.Parse(endpoint); err == nil {
				members[u.Hostname()] = true
			}
		}
	}
	if len(p.Hosts) == 1 && len(members) > 1 {
		return []finding.Finding{{Subject: "spec.hosts", Key: "etcd", Fix: fix + "; where the stores have hosts of " +
			"their own and the control plane has one: accept: [{rule: FUS253, reason: ...}]",
			Message: fmt.Sprintf("has one, and the legacy side's etcd has %d members on hosts of their own: they are "+
				"usually those of the control plane", len(members))}}
	}
	return nil
}

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// apiServer is a side's API server on a host, or for it in a cluster. The pods are nil where no webhook admits them,
// and as long as that is not decided.
func (b *basis) apiServer(host spec.Host, at addresses, side pair.Side, pods *Pods) Component {
	s := b.side(side)
	c := b.component(at, side, kubever.APIServer, &s.APIServer.Component)
	l := &argList{component: kubever.APIServer, minor: s.Version.Minor}
	b.servingArgs(l, at, side)
	b.storeArgs(l, host, side)
	b.networkArgs(l, side)
	b.identityArgs(l, host, side)
	b.authorizationArgs(l, side)
	if side == pair.Modern {
		b.restraintArgs(l)
		b.protectionArgs(l, host)
		if pods != nil && pods.Admission.ConfigFile != "" {
			l.set(admissionFlag, pods.Admission.ConfigFile,
				"the certificate that the admission webhook for pods wants")
		}
	} else {
		l.set("allow-privileged", "true", "both sides run workloads on the same nodes")
		admissionList(l)
		b.expectModernServers(l)
	}
	b.arguments(host, at, &c, l, &s.APIServer.Component)
	c.Port, c.Service = s.APIServer.Port, b.serviceOf(s.APIServer.Service)
	c.Liveness, c.Startup = at.probes(b.apiServerProbe(&c), true)
	extra := s.APIServer.ExtraMounts
	if side == pair.Modern {
		extra = slices.Concat(extra, b.legacyMounts(&c))
	}
	var configs []Kubeconfig
	if side == pair.Modern {
		configs = webhookKubeconfigs(host, b.file.Spec.PKI.Directory, pods)
	}
	c.Mounts = mounts(&c, extra, configs)
	return c
}

func (b *basis) servingArgs(l *argList, at addresses, side pair.Side) {
	server := b.side(side).APIServer
	advertise, listen := at.advertise(), at.listen(server.Address, "the spec's")
	l.set("advertise-address", advertise.value, advertise.why)
	l.set("bind-address", listen.value, listen.why)
	l.set("secure-port", strconv.Itoa(server.Port), "the spec's")
	if kubever.Behaves(kubever.BehaviourInsecurePort, l.minor) {
		l.set("insecure-port", "0", "without it this version serves every client on the host, unauthenticated, on "+
			"port 8080")
	}
	l.set("tls-cert-file", server.Cert, "serving certificate")
	l.set("tls-private-key-file", server.Key, "serving certificate")
	l.set("profiling", "false", "not needed")
	// Seen on 1.36.3 with four watches: 60.2 s from SIGTERM to the end without it, 1.2 s with it.
	l.set("shutdown-watch-termination-grace-period", "10s", "on a restart it ends its watches; without it, it refuses "+
		"every request for a minute while it waits for clients to end them")
}

func (b *basis) storeArgs(l *argList, host spec.Host, side pair.Side) {
	own := storeOf(b.stores, b.side(side).Store)
	l.set("etcd-servers", strings.Join(b.servers(host, own.Name), ","),
		fmt.Sprintf("store %s is this side's default", own.Name))
	if kubever.Behaves(kubever.BehaviourSerializableReads, l.minor) {
		l.need(quorumReadFlag, "true", "without it this version reads from one etcd member, which may be stale: an "+
			"owner that exists seems absent, and its dependents are deleted")
	}
	l.set("etcd-prefix", b.file.Spec.Stores[0].Prefix,
		"the same on both sides: overrides change servers, never the prefix")
	if side == pair.Modern {
		if value := b.overrides(host); value != "" {
			l.set("etcd-servers-overrides", value, "resources that both sides must see are in the legacy side's store")
		}
	}
	if tls := b.identityAtStores(own); tls != nil {
		l.set("etcd-cafile", tls.CA, "one TLS identity serves every store of an API server")
		if tls.Identifies() {
			l.set("etcd-certfile", tls.Cert, "one TLS identity serves every store of an API server")
			l.set("etcd-keyfile", tls.Key, "one TLS identity serves every store of an API server")
		}
	}
	if file := b.file.Spec.PKI.EncryptionConfiguration; file != "" {
		l.first([]string{"encryption-provider-config", "experimental-encryption-provider-config"}, file,
			"both sides must be able to decrypt each other's values")
	}
}

// identityAtStores is the one of a side's default store, or of another that its overrides lead to. One with a client
// certificate is for all of them.
func (b *basis) identityAtStores(own *Store) *spec.TLS {
	identity := own.TLS
	for i := range b.stores {
		if tls := b.stores[i].TLS; identity == nil || !identity.Identifies() && tls.Identifies() {
			identity = tls
		}
	}
	return identity
}

// quorumReadFlag makes an API server read what a majority of the members of etcd has agreed on.
const quorumReadFlag = "etcd-quorum-read"

// StaleReaders are the sides with an API server that may answer from an etcd member that lags behind: what it does not
// find may exist.
func (p *Plan) StaleReaders() []pair.Side {
	var sides []pair.Side
	for _, side := range pair.Sides() {
		fallback, exists := kubever.Flag(kubever.APIServer, quorumReadFlag).Default(p.Side(side).Version.Minor)
		stale := func(c Component) bool {
			value := fallback
			for _, arg := range c.Args {
				if kubever.FlagName(arg.Name) == quorumReadFlag {
					value = cmp.Or(arg.Value, "true") // the flag alone
				}
			}
			quorum, err := strconv.ParseBool(value)
			return err != nil || !quorum
		}
		if exists && slices.ContainsFunc(p.ComponentsOf(side, kubever.APIServer), stale) {
			sides = append(sides, side)
		}
	}
	return sides
}

// overrides is --etcd-servers-overrides of the modern API server.
func (b *basis) overrides(host spec.Host) string {
	var entries []string
	for _, r := range b.rows {
		for _, name := range r.Overrides {
			entries = append(entries, name+"#"+strings.Join(b.servers(host, r.Modern.Store), ";"))
		}
	}
	return strings.Join(entries, ",")
}

func (b *basis) networkArgs(l *argList, side pair.Side) {
	network := b.file.Spec.Network
	cidrs, why := network.ServiceCIDRs, "the same on both sides: otherwise each repairs the other's allocations away"
	if side == pair.Modern && len(network.ModernServiceCIDRs) > 0 {
		cidrs, why = network.ModernServiceCIDRs,
			"another range: neither side sees the other's allocations"
	}
	l.set("service-cluster-ip-range", strings.Join(cidrs, ","), why)
	l.set("service-node-port-range", network.NodePortRange, "the same on both sides")
}

// identityArgs are about who a client is: certificates, tokens, and the aggregation layer.
func (b *basis) identityArgs(l *argList, host spec.Host, side pair.Side) {
	pki := b.file.Spec.PKI
	l.set("client-ca-file", pki.CA, "one CA for the clients of both sides")
	for _, key := range pki.ServiceAccountPublic {
		l.set("service-account-key-file", key, "both sides accept tokens that the legacy controller manager signs")
	}
	switch {
	case kubever.Behaves(kubever.BehaviourIssuerRequired, l.minor):
		l.set("service-account-issuer", pki.ServiceAccountIssuer, "this version does not start without it")
		if issuers := b.legacyValues(host, "service-account-issuer"); side == pair.Modern && len(issuers) > 1 {
			for _, other := range issuers[1:] {
				l.set("service-account-issuer", other, "tokens that the legacy side has issued are good on both sides")
			}
		}
		l.set("service-account-signing-key-file", pki.ServiceAccountKey, "this version does not start without it")
	case b.issuesForModernPods(l.minor):
		const why = "kubelets request from this server the tokens of pods that were created through the modern one"
		l.set("service-account-issuer", pki.ServiceAccountIssuer, why)
		l.set("service-account-signing-key-file", pki.ServiceAccountKey, why)
		l.first([]string{"api-audiences", "service-account-api-audiences"}, pki.ServiceAccountIssuer, why)
	}
	b.frontProxyArgs(l, host, side)
	l.set("kubelet-client-certificate", pki.KubeletClientCert, "logs, exec and port-forward reach the kubelets")
	l.set("kubelet-client-key", pki.KubeletClientKey, "logs, exec and port-forward reach the kubelets")
	types, why := "InternalIP,ExternalIP,Hostname", "names of nodes may not resolve here"
	if values := b.legacyValues(host, "kubelet-preferred-address-types"); side == pair.Modern && len(values) > 0 {
		types, why = strings.Join(values, ","), "as on the legacy side"
	}
	l.set("kubelet-preferred-address-types", types, why)
}

// frontProxyArgs are about extension API servers: as whom the server calls them, and whom they are told to believe. The
// server believes the same front proxies itself, of which fusionctl gateway is one: so it has these arguments before
// there was an aggregator, too.
func (b *basis) frontProxyArgs(l *argList, host spec.Host, side pair.Side) {
	pki := b.file.Spec.PKI
	l.set("proxy-client-cert-file", pki.ProxyClientCert, "extension API servers")
	l.set("proxy-client-key-file", pki.ProxyClientKey, "extension API servers")
	headers := b.requestHeaders(host)
	if side == pair.Modern && headers.names == "" && pki.RequestHeaderCA == pki.CA {
		return // it refuses front proxies of any name from the CA of its clients; the legacy side has published them
	}
	l.set("requestheader-client-ca-file", pki.RequestHeaderCA,
		"extension API servers; both sides publish it in one config map, so it is one CA")
	if headers.names != "" { // every name otherwise
		l.set("requestheader-allowed-names", headers.names,
			"extension API servers; both sides publish the names in one config map")
	}
	l.set("requestheader-username-headers", headers.user, "extension API servers")
	l.set("requestheader-group-headers", headers.group, "extension API servers")
	l.set("requestheader-extra-headers-prefix", headers.extra, "extension API servers")
}

// issuesForModernPods reports whether pods created through the modern API server carry a projected token that kubelets
// can mount and that this version, the legacy one, can issue when it is told how.
func (b *basis) issuesForModernPods(m kubever.Minor) bool {
	return kubever.Behaves(kubever.BehaviourTokenVolumeProjected, b.modern) &&
		kubever.Behaves(kubever.BehaviourTokenProjectionMountable, b.file.Spec.Kubelet.Version.Minor) &&
		kubever.Behaves(kubever.BehaviourBoundTokens, m)
}

func (b *basis) authorizationArgs(l *argList, side pair.Side) {
	if side == pair.Modern && !b.retired() {
		mode, why := ModernAuthorization(b.file.Spec.Kubelet.Modern != nil)
		l.set("authorization-mode", mode, why)
		l.set("authorization-policy-file", policyFile, "what may be written through this API server")
		return
	}
	modes := []string{"RBAC"}
	if slices.Contains(kubever.AuthorizationModes(l.minor), "Node") {
		modes = []string{"Node", "RBAC"}
	}
	l.set("authorization-mode", strings.Join(modes, ","), "without it every request is allowed")
}

// restraintArgs keep the modern API server from writing what the legacy side owns or cannot read.
func (b *basis) restraintArgs(l *argList) {
	if b.retired() {
		b.onlyServerArgs(l)
		return
	}
	if !l.set(reconcilerFlag, "none", "the endpoints of the service kubernetes stay the legacy side's") {
		l.set("apiserver-count", b.serversOfBothSides(), "this version always reconciles the endpoints of the "+
			"service kubernetes: it must expect the API servers of both sides")
	}
	gates := b.startupArgs(l)
	b.modernAdmission(l)
	why := map[string]string{}
	for _, gate := range gates {
		why[gate] = fmt.Sprintf("%s cannot decode what it would write", b.legacy)
	}
	if kubever.Behaves(kubever.BehaviourTokenVolumeProjected, l.minor) &&
		!kubever.Behaves(kubever.BehaviourTokenProjectionMountable, b.file.Spec.Kubelet.Version.Minor) {
		if state, ok := kubever.Gate("BoundServiceAccountTokenVolume").At(l.minor); ok && !state.Locked {
			why["BoundServiceAccountTokenVolume=false"] = fmt.Sprintf("the kubelets (%s) cannot mount projected "+
				"tokens", b.file.Spec.Kubelet.Version.Minor)
		}
	}
	for gate, reason := range b.bitmapGates(l.minor) {
		why[gate] = reason
	}
	if len(why) > 0 {
		var reasons []string
		gates = slices.Sorted(maps.Keys(why))
		for _, gate := range gates {
			reasons = append(reasons, why[gate])
		}
		l.set("feature-gates", strings.Join(gates, ","), strings.Join(reasons, "; "))
	}
}

// bitmapGates are the gates by which the modern API server writes the bitmap of ClusterIPs that the legacy side
// allocates from, and leaves one alone that has another range, with why.
func (b *basis) bitmapGates(m kubever.Minor) map[string]string {
	services := rowOf(b.rows, "services/specs")
	if services == nil || !services.VisibleToBoth() {
		return nil
	}
	gates, own := map[string]string{}, b.file.Spec.Network.ModernServiceCIDRs
	allocators := kubever.AllocatorsIn(m)
	if gate := allocators.KeepBitmap; gate != "" && len(own) == 0 && services.Owner == pair.OwnerShared &&
		!kubever.AllocatorsIn(b.legacy).FromObjects {
		gates[gate] = "the legacy side's allocator must see the ClusterIPs allocated here"
	}
	if gate := allocators.EndBitmap; gate != "" && len(own) > 0 &&
		!slices.Equal(own, b.file.Spec.Network.ServiceCIDRs) {
		gates[gate] = "the bitmap of ClusterIPs has the legacy side's range"
	}
	return gates
}

// expectModernServers keeps the legacy API server from removing the addresses of a modern one that cannot be told not
// to add its own.
func (b *basis) expectModernServers(l *argList) {
	if !kubever.Flag(kubever.APIServer, reconcilerFlag).In(b.modern) {
		l.need("apiserver-count", b.serversOfBothSides(), fmt.Sprintf("%s adds its address to the endpoints of the "+
			"service kubernetes: both sides must expect the API servers of both", b.modern))
	}
}

func (b *basis) serversOfBothSides() string { return strconv.Itoa(len(b.file.Spec.Hosts) * 2) }

// companions go with a group that is not served: what in the API server cannot work without it.
var companions = map[string]struct{ flag, value, admission string }{
	"flowcontrol.apiserver.k8s.io": {flag: "enable-priority-and-fairness", value: "false"},
	"scheduling.k8s.io":            {admission: "Priority"},
}

// startupArgs keep the modern API server from writing by itself what the legacy side cannot read. Feature gates are
// returned, since they are one flag for all purposes.
func (b *basis) startupArgs(l *argList) (gates []string) {
	var groups []string
	for _, w := range b.poison {
		switch w.OffFlag {
		case "runtime-config":
			groups = append(groups, splitList(w.OffValue)...)
			if c := companions[groupOf(w)]; c.flag != "" {
				l.set(c.flag, c.value, "needs "+groupOf(w)+", which this API server must not serve")
			}
		case "feature-gates":
			gates = append(gates, w.OffValue)
		}
	}
	if len(groups) > 0 {
		slices.Sort(groups)
		l.set("runtime-config", strings.Join(slices.Compact(groups), ","),
			fmt.Sprintf("%s cannot decode what this API server would write there at start", b.legacy))
	}
	return gates
}

// groupOf is the group that keeps what is written.
func groupOf(w kubever.StartupWrite) string {
	fact, _ := kubever.ResourceByKey(w.Resource)
	if groups := fact.Groups(); len(groups) > 0 {
		return groups[0]
	}
	return ""
}

// basicAdmission is what versions without defaults must be told to run, in the order of the server's own
// recommendation.
var basicAdmission = []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "DefaultStorageClass",
	"DefaultTolerationSeconds",
	"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ResourceQuota"}

// admissionList sets --admission-control where it is the version's only way, and reports whether it is.
func admissionList(l *argList, more ...string) bool {
	if kubever.Flag(l.component, "enable-admission-plugins").In(l.minor) {
		return false
	}
	known := kubever.AdmissionPlugins(l.minor)
	list := slices.DeleteFunc(slices.Clone(more), func(plugin string) bool {
		return slices.Contains(basicAdmission, plugin)
	})
	list = slices.Insert(slices.Clone(basicAdmission), len(basicAdmission)-1, list...) // what is refused takes no quota
	list = slices.DeleteFunc(list, func(plugin string) bool { return !slices.Contains(known, plugin) })
	l.set("admission-control", strings.Join(list, ","), "this version runs none by default")
	return true
}

// modernAdmission keeps the plugins that protect the legacy side, and turns off those that leave in shared objects what
// only a modern controller would clear away.
func (b *basis) modernAdmission(l *argList) {
	keep := b.pluginsToKeep(l.minor)
	if admissionList(l, keep...) {
		return
	}
	why := asOnTheLegacySide
	if b.file.Spec.Kubelet.Modern != nil && !slices.Contains(keep, nodeRestriction) {
		why = "a kubelet at this API server changes its own node and pods alone"
		if len(keep) > 0 {
			why = asOnTheLegacySide + "; " + why
		}
		keep = append(slices.Clone(keep), nodeRestriction)
	}
	if len(keep) > 0 {
		l.set("enable-admission-plugins", strings.Join(keep, ","), why)
	}
	var off, reasons []string
	if b.finalizerWithoutController("persistentvolumeclaims", "persistentvolumeclaim-protection-controller") ||
		b.finalizerWithoutController("persistentvolumes", "persistentvolume-protection-controller") {
		off = append(off, "StorageObjectInUseProtection")
		reasons = append(reasons, fmt.Sprintf("its finalizer on claims and volumes is one that %s never removes",
			b.legacy))
	}
	for _, w := range b.poison {
		if plugin := companions[groupOf(w)].admission; plugin != "" && w.OffFlag == "runtime-config" {
			off, reasons = append(off, plugin),
				append(reasons, "it needs "+groupOf(w)+", which this API server must not serve")
		}
	}
	off = slices.DeleteFunc(off, func(plugin string) bool {
		return !slices.Contains(kubever.AdmissionDefaultOn(l.minor), plugin) || slices.Contains(keep, plugin)
	})
	if len(off) == 0 {
		return
	}
	slices.Sort(off)
	l.set("disable-admission-plugins", strings.Join(slices.Compact(off), ","), strings.Join(reasons, "; "))
}

// finalizerWithoutController reports whether both sides see the resource and neither side's controller would remove a
// finalizer that protects it.
func (b *basis) finalizerWithoutController(key, controller string) bool {
	row := rowOf(b.rows, key)
	if row == nil || !row.VisibleToBoth() {
		return false
	}
	for _, side := range pair.Sides() {
		if c := controllerOf(b.controllers, side, controller); c != nil && c.On {
			return false
		}
	}
	return true
}

// apiServerProbe asks /healthz where the server is known to serve it to unauthenticated clients, and whether it accepts
// connections where it is not.
func (b *basis) apiServerProbe(c *Component) Probe {
	probe := Probe{Scheme: "HTTPS", Host: loopback, Port: c.Port, Path: "/healthz",
		DelaySeconds: 15, TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}
	if port, ok := c.Arg("secure-port"); ok {
		if n, err := strconv.Atoi(port); err == nil {
			probe.Port = n
		}
	}
	if address, ok := c.Arg("bind-address"); ok && isAddress(address) {
		probe.Host = address
	}
	mode, _ := c.Arg("authorization-mode")
	anonymous, given := c.Arg("anonymous-auth")
	wanted := "RBAC" // whose bootstrap roles allow it
	if c.Side == pair.Modern && !b.retired() {
		wanted = "ABAC"
	}
	if b.side(c.Side).Existing || !slices.Contains(splitList(mode), wanted) || (given && anonymous == "false") {
		probe.Scheme, probe.Path = "", ""
	}
	return probe
}

func isUnspecified(address string) bool {
	return address == "" || address == "0.0.0.0" || address == "::"
}

// isAddress reports whether an argument is one address of a machine, at which a server serves. It goes into commands.
func isAddress(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && !address.IsUnspecified() && address.Zone() == ""
}

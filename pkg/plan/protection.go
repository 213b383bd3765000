package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Protection is an argument by which an API server knows its clients, records what they do, holds them back, or reaches
// the network of the nodes. What the legacy API server has of them the modern one has: both reach the same nodes.
type Protection struct {
	Flag string
	Lost string // what is not the case on a server without it, a clause
}

// protections lists them. The order is that of the arguments of the modern API server.
var protections = []Protection{
	{"anonymous-auth", "requests without credentials are refused"},
	{"oidc-issuer-url", "users log in with tokens of the identity provider"},
	{"oidc-client-id", "users log in with tokens of the identity provider"},
	{"oidc-ca-file", "users log in with tokens of the identity provider"},
	{"oidc-username-claim", "users have the names of this claim"},
	{"oidc-username-prefix", "users of the identity provider are told from others by this prefix"},
	{"oidc-groups-claim", "users have the groups of this claim"},
	{"oidc-groups-prefix", "groups of the identity provider are told from others by this prefix"},
	{"oidc-signing-algs", "tokens of the identity provider that are signed in other ways are refused"},
	{"oidc-required-claim", "tokens of the identity provider without the claim are refused"},
	{"authentication-config", "users log in as this file says"},
	{"authentication-token-webhook-config-file", "tokens are checked by the webhook"},
	{"authentication-token-webhook-version", "tokens are checked by the webhook"},
	{"authentication-token-webhook-cache-ttl", "tokens are checked by the webhook again after this time"},
	{"token-auth-file", "users log in with the tokens of the file"},
	{"basic-auth-file", "users log in with the passwords of the file"},
	{"experimental-keystone-url", "users log in with passwords that Keystone knows"},
	{"experimental-keystone-ca-file", "users log in with passwords that Keystone knows"},
	{"api-audiences", "tokens for other audiences are refused"},
	{"service-account-max-token-expiration", "tokens of service accounts end by then"},
	{"service-account-extend-token-expiration", "tokens of pods are valid for as long as this says"},
	{"audit-policy-file", "requests are recorded as the policy says"},
	{"audit-log-path", "requests are recorded in a file"},
	{"audit-webhook-config-file", "requests are reported to the webhook"},
	{"admission-control-config-file", "admission plugins are configured"},
	{"kubelet-certificate-authority", "serving certificates of kubelets are verified"},
	{"egress-selector-config-file", "kubelets, pods and webhooks are reached through the proxies of this file"},
	{"tls-min-version", "older versions of TLS are refused"},
	{"tls-cipher-suites", "other cipher suites are refused"},
	{"allow-privileged", "privileged containers are refused"},
}

// auditFlags say how audit events are written; they go along with the events.
var auditFlags = []string{
	"audit-log-batch-buffer-size", "audit-log-batch-max-size", "audit-log-batch-max-wait",
	"audit-log-batch-throttle-burst",
	"audit-log-batch-throttle-enable", "audit-log-batch-throttle-qps", "audit-log-compress", "audit-log-format",
	"audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize", "audit-log-mode", "audit-log-truncate-enabled",
	"audit-log-truncate-max-batch-size", "audit-log-truncate-max-event-size",
	"audit-webhook-batch-buffer-size", "audit-webhook-batch-max-size", "audit-webhook-batch-max-wait",
	"audit-webhook-batch-throttle-burst", "audit-webhook-batch-throttle-enable", "audit-webhook-batch-throttle-qps",
	"audit-webhook-initial-backoff", "audit-webhook-mode", "audit-webhook-truncate-enabled",
	"audit-webhook-truncate-max-batch-size", "audit-webhook-truncate-max-event-size",
}

// refers lists the arguments whose files name further files: their readers see what the legacy API server sees.
var refers = append([]string{"audit-webhook-config-file", "authentication-token-webhook-config-file",
	"admission-control-config-file", "authentication-config"}, connects...)

// connects lists those whose files may name a socket: of a KMS plugin, of a proxy into the network of the nodes. Who
// connects to it wants no right to write where it lies, and legacy servers often have one.
var connects = []string{"encryption-provider-config", "experimental-encryption-provider-config",
	"egress-selector-config-file"}

// Protections lists the arguments that protect an API server, and what is lost without each.
func Protections() []Protection { return slices.Clone(protections) }

// auditPolicyFile is the policy that fusionctl renders where the legacy side's is none that the modern version reads.
const auditPolicyFile = modernDirectory + "/audit-policy.yaml"

const asOnTheLegacySide = "as on the legacy side: both servers reach the same nodes"

// protectionArgs give the modern API server what protects the legacy one, in the form of its version.
func (b *basis) protectionArgs(l *argList, host spec.Host) {
	for _, p := range protections {
		switch p.Flag {
		case "allow-privileged":
			b.allowPrivileged(l)
		case "audit-policy-file", "audit-log-path", "audit-webhook-config-file":
			// audit() has them
		default:
			for _, value := range b.legacyValues(host, p.Flag) {
				l.set(p.Flag, value, asOnTheLegacySide)
			}
		}
	}
	b.audit(l, host)
}

// legacyValues are the values of an argument of the legacy API server on a host, files by where they lie on the host.
// One that the first host's has in an object of the cluster is left out: it is on no host.
func (b *basis) legacyValues(host spec.Host, flag string) []string {
	c := &b.file.Spec.Legacy.APIServer.Component
	args := c.ExtraArgs
	if b.file.Spec.Legacy.Existing {
		args = replaced(b.runsWith(host, kubever.APIServer), c.ChangeArgs)
	}
	var values []string
	for _, a := range args {
		if kubever.Meant(kubever.APIServer, a.Name, b.legacy) != flag || a.Value == "" {
			continue
		}
		value := a.Value
		if ReadsFile(flag) || writtenFlags[flag] {
			value, _ = c.OnHost(value)
		}
		values = append(values, value)
	}
	return values
}

// legacyValue is the one that counts; "" for none.
func (b *basis) legacyValue(host spec.Host, flag string) string {
	values := b.legacyValues(host, flag)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// allowPrivileged follows a side that runs already. Its version's default is to refuse.
func (b *basis) allowPrivileged(l *argList) {
	value, why := "true", "both sides run workloads on the same nodes"
	if b.file.Spec.Legacy.Existing {
		value, why = "false", asOnTheLegacySide+", and it refuses privileged containers"
		if given, ok := b.file.Spec.Legacy.RunsWith(kubever.APIServer, "allow-privileged"); ok && given == "true" {
			value, why = "true", asOnTheLegacySide
		}
	}
	l.set("allow-privileged", value, why)
}

// audit records what goes through the modern API server as the legacy one records what goes through it. Two servers do
// not share a log: each rotates its own.
func (b *basis) audit(l *argList, host spec.Host) {
	log, webhook := b.legacyValue(host, "audit-log-path"), b.legacyValue(host, "audit-webhook-config-file")
	if log == "" && webhook == "" {
		return
	}
	if file := b.legacyValue(host, "audit-policy-file"); file != "" && b.readsAuditPolicy(l.minor) {
		l.set("audit-policy-file", file, asOnTheLegacySide)
	} else {
		l.set("audit-policy-file", auditPolicyFile,
			"a policy of the version's own form: every request is recorded, its "+
				"body is not")
	}
	switch {
	case log != "" && b.target == Hosted:
		l.set("audit-log-path", "-", "as on the legacy side; the log of a pod is its standard output")
	case log != "":
		l.set("audit-log-path", besideLog(log), "as on the legacy side, in a file of its own")
	}
	if webhook != "" {
		l.set("audit-webhook-config-file", webhook, asOnTheLegacySide)
	}
	for _, flag := range auditFlags {
		if value := b.legacyValue(host, flag); value != "" {
			l.set(flag, value, asOnTheLegacySide)
		}
	}
}

// rendersAuditPolicy is the audit policy that one of the components has and render writes; "" for none.
func rendersAuditPolicy(components []Component) string {
	for i := range components {
		if file, _ := components[i].Arg("audit-policy-file"); file == auditPolicyFile {
			return file
		}
	}
	return ""
}

// readsAuditPolicy reports whether the version certainly reads the policy file of the legacy side: it reads every form,
// or the legacy version reads no older one.
func (b *basis) readsAuditPolicy(m kubever.Minor) bool {
	return kubever.Behaves(kubever.BehaviourOldAuditPolicies, m) ||
		!kubever.Behaves(kubever.BehaviourOldAuditPolicies, b.legacy)
}

// besideLog is the file for the modern API server beside a log of the legacy one: /var/log/audit-modern.log. - is the
// standard output, of which each has one.
func besideLog(file string) string {
	if file == "-" {
		return file
	}
	ending := path.Ext(file)
	return strings.TrimSuffix(file, ending) + "-modern" + ending
}

// legacyPlugins are the admission plugins that the legacy API server is told to run.
func (b *basis) legacyPlugins() []string {
	s := &b.file.Spec.Legacy
	var plugins []string
	for _, flag := range []string{"admission-control", "enable-admission-plugins"} {
		for _, value := range b.legacyValues(b.file.Spec.Hosts[0], flag) {
			plugins = append(plugins, splitList(value)...)
		}
	}
	off, _ := s.RunsWith(kubever.APIServer, "disable-admission-plugins")
	plugins = slices.DeleteFunc(plugins, func(p string) bool { return slices.Contains(splitList(off), p) })
	slices.Sort(plugins)
	return slices.Compact(plugins)
}

// ofTheTime are plugins that protect nothing and mean nothing to a version that has what they were for.
var ofTheTime = []string{"AlwaysAdmit", "AlwaysDeny", "GenericAdmissionWebhook", "InitialResources",
	"PVCProtection", "PersistentVolumeLabel", "PodPreset"}

// pluginsToKeep are the plugins of the legacy side that the modern version has and does not run by itself.
func (b *basis) pluginsToKeep(m kubever.Minor) []string {
	return slices.DeleteFunc(b.legacyPlugins(), func(plugin string) bool {
		return slices.Contains(kubever.AdmissionDefaultOn(m), plugin) || slices.Contains(ofTheTime, plugin) ||
			!slices.Contains(kubever.AdmissionPlugins(m), plugin)
	})
}

// Plugins are the admission plugins that an API server of a side is told to run, and those that its version runs by
// itself.
func (p *Plan) Plugins(side pair.Side) []string {
	servers := p.ComponentsOf(side, kubever.APIServer)
	minor := p.Side(side).Version.Minor
	plugins := slices.Clone(kubever.AdmissionDefaultOn(minor))
	off := []string{}
	for _, server := range servers[:min(1, len(servers))] { // those of all hosts have the same
		for _, a := range server.Args {
			switch kubever.FlagName(a.Name) {
			case "admission-control":
				plugins = splitList(a.Value) // exactly these
			case "enable-admission-plugins":
				plugins = append(plugins, splitList(a.Value)...)
			case "disable-admission-plugins":
				off = append(off, splitList(a.Value)...)
			}
		}
	}
	plugins = slices.DeleteFunc(plugins, func(name string) bool { return slices.Contains(off, name) })
	slices.Sort(plugins)
	return slices.Compact(plugins)
}

// OfTheTime reports whether an admission plugin protects nothing.
func OfTheTime(plugin string) bool { return slices.Contains(ofTheTime, plugin) }

// legacyMounts are what the modern API server sees of its host because the legacy one does: files of its arguments name
// files in them.
func (b *basis) legacyMounts(c *Component) []spec.Mount {
	has := func(flag string) bool { value, _ := c.Arg(flag); return value != "" }
	if !slices.ContainsFunc(refers, has) || !b.file.Spec.Legacy.Existing {
		return nil
	}
	sockets := slices.ContainsFunc(connects, has)
	var list []spec.Mount
	for _, m := range b.file.Spec.Legacy.APIServer.ExtraMounts {
		if m.HostPath != "" && (m.ReadOnly || sockets && !isWritten(m, c)) {
			m.Name, m.ReadOnly = "", true
			list = append(list, m)
		}
	}
	return list
}

// isWritten reports whether a mount is for what a component writes: a log, of the host or of this component.
func isWritten(m spec.Mount, c *Component) bool {
	const logs = "/var/log"
	if liesIn(logs, m.HostPath) {
		return true
	}
	return slices.ContainsFunc(c.Args, func(a Arg) bool {
		return writtenFlags[kubever.FlagName(a.Name)] && liesIn(m.At(), path.Dir(a.Value))
	})
}

// liesIn reports whether a path is a directory or lies below it.
func liesIn(directory, file string) bool {
	return file == directory || strings.HasPrefix(file, strings.TrimSuffix(directory, "/")+"/")
}

// requestHeaders is how the modern API server knows extension API servers and they know it: as the legacy one says, for
// both write what they say into one ConfigMap.
type requestHeaders struct {
	names, user, group, extra string
	commonName                string // of a certificate that has to be issued
}

func (b *basis) requestHeaders(host spec.Host) requestHeaders {
	h := requestHeaders{names: "front-proxy-client", user: "X-Remote-User", group: "X-Remote-Group",
		extra: "X-Remote-Extra-", commonName: "front-proxy-client"}
	if b.legacyValue(host, "requestheader-client-ca-file") == "" {
		return h
	}
	joined := func(flag, fallback string) string {
		if values := b.legacyValues(host, flag); len(values) > 0 {
			return strings.Join(values, ",")
		}
		return fallback
	}
	h.names = joined("requestheader-allowed-names", "")
	h.user, h.group = joined("requestheader-username-headers", h.user), joined("requestheader-group-headers", h.group)
	h.extra = joined("requestheader-extra-headers-prefix", h.extra)
	if first := splitList(h.names); len(first) > 0 && !slices.Contains(first, h.commonName) {
		h.commonName = first[0]
	}
	return h
}

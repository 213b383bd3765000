package plan

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Pods is what pods that are created through the modern API server are given, so that they find it and have a token for
// it.
type Pods struct {
	Service   PodService   `json:"service"`
	SideLabel string       `json:"sideLabel"` // with the value spec.SideLabelModern
	Tokens    Tokens       `json:"tokens"`
	TokensWhy string       `json:"tokensWhy,omitempty"` // one sentence
	Admission PodAdmission `json:"admission"`
	// UnknownFields says what becomes of pods and templates with fields that the legacy side drops.
	UnknownFields spec.UnknownFields `json:"unknownFields"`
	// PlacesDaemonPods: pods of DaemonSets are bound to their node in admission, because the legacy scheduler does not
	// know the field that names it.
	PlacesDaemonPods bool `json:"placesDaemonPods,omitempty"`
}

// PodService is the service through which pods reach the modern API servers. It selects no pods: fusionctl controllers
// write its endpoints.
type PodService struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	ClusterIP string    `json:"clusterIP"`
	Port      int       `json:"port"`
	Addresses []string  `json:"addresses"`     // of the modern API servers, one on every host
	Target    int       `json:"targetPort"`    // where they serve
	Side      pair.Side `json:"side"`          // through whose server it is made
	Why       string    `json:"why,omitempty"` // why through that one, one sentence
}

// Tokens says how pods of the modern side get the token of their service account.
type Tokens string

const (
	TokensProjected Tokens = "projected" // the kubelet asks the legacy API server for it and projects it
	TokensSecret    Tokens = "secret"    // a Secret holds it
)

// PodAdmission is the component that mutates pods in admission of the modern API server.
type PodAdmission struct {
	By            AdmissionBy        `json:"by"`
	Why           string             `json:"why,omitempty"` // one sentence
	FailurePolicy spec.FailurePolicy `json:"failurePolicy"`
	// The rest is the webhook's.
	TimeoutSeconds int    `json:"timeoutSeconds,omitempty"`
	Port           int    `json:"port,omitempty"` // on loopback of every host
	Cert           string `json:"cert,omitempty"` // serving certificate
	Key            string `json:"key,omitempty"`
	CA             string `json:"ca,omitempty"` // which the modern API server trusts for it
	// ClientName is the common name of the certificate that the modern API server presents to it, and ClientCA who
	// signed that; "" where it presents none. ConfigFile is the admission configuration that says so, which render
	// writes.
	ClientName string `json:"clientName,omitempty"`
	ClientCA   string `json:"clientCA,omitempty"`
	ConfigFile string `json:"configFile,omitempty"`
}

// AdmissionBy is what changes pods.
type AdmissionBy string

const (
	ByPolicy  AdmissionBy = "policy"  // the API server itself, by a MutatingAdmissionPolicy
	ByWebhook AdmissionBy = "webhook" // fusionctl controllers
)

// podServicePort is where the service answers, as the service kubernetes does.
const podServicePort = 443

const (
	podWebhooks = "mutatingwebhookconfigurations"
	podPolicies = "mutatingadmissionpolicies"
)

// podsOf decides how pods of the modern side find their server; nil when the spec leaves them alone.
func (b *basis) podsOf() (*Pods, error) {
	s := b.file.Spec.Pods
	if s == nil {
		return nil, nil
	}
	p := &Pods{SideLabel: s.SideLabel, UnknownFields: s.UnknownFields, Service: b.podService(s),
		PlacesDaemonPods: b.placesDaemonPods()}
	p.Tokens, p.TokensWhy = b.podTokens()
	p.Admission = PodAdmission{By: ByWebhook, FailurePolicy: s.Admission.FailurePolicy}
	a := &p.Admission
	switch {
	case p.UnknownFields != spec.UnknownFieldsIgnore:
		a.Why = "an admission policy of the API server does not know the fields that the legacy side drops"
	case p.Tokens == TokensSecret:
		a.Why = "an admission policy of the API server cannot look up the Secret of a service account"
	case p.PlacesDaemonPods:
		a.Why = "the webhook places pods of DaemonSets, which the policy does not"
	case !servedByDefault(podPolicies, b.modern) ||
		!slices.Contains(kubever.AdmissionDefaultOn(b.modern), "MutatingAdmissionPolicy") ||
		!gateOn("MutatingAdmissionPolicy", b.modern):
		a.Why = fmt.Sprintf("%s has no MutatingAdmissionPolicy that is on by default", b.modern)
	default:
		a.By, a.Why = ByPolicy, "it looks nothing up, and the API server depends on no webhook"
		return p, nil
	}
	if !servedByDefault(podWebhooks, b.modern) {
		return nil, b.file.Errorf("spec.pods",
			"the API server of %s does not support admission webhooks for pods; leave the field out, or use 1.9 or "+
				"later", b.modern)
	}
	if row := rowOf(b.rows, podWebhooks); row != nil && row.VisibleToBoth() {
		return nil, b.file.Errorf("spec.pods", "the legacy API server would see the webhook configuration and call "+
			"it for its own pods; keep mutatingwebhookconfigurations.admissionregistration.k8s.io apart with layout "+
			"split")
	}
	a.TimeoutSeconds, a.Port = s.Admission.TimeoutSeconds, s.Admission.Port
	directory := path.Join(b.file.Spec.PKI.Directory, "modern")
	a.Cert, a.Key, a.CA = directory+"/pods-webhook.crt", directory+"/pods-webhook.key", b.file.Spec.PKI.CA
	if b.presents() {
		a.ClientName, a.ClientCA, a.ConfigFile = WebhookClientUser, b.file.Spec.PKI.CA, admissionFile
	}
	return p, nil
}

// WebhookClientUser is the name in the certificate that the modern API server presents to the admission webhook for
// pods. It is in no group, and no policy names it.
const WebhookClientUser = "kube-apiserver-webhook-client"

// admissionFile is the configuration of the admission plugins, and webhookConfig the kubeconfig that it names.
const (
	admissionFile = modernDirectory + "/admission.yaml"
	webhookConfig = modernDirectory + "/pods-webhook.conf"
)

const admissionFlag = "admission-control-config-file"

// presents reports whether the plan can have the modern API server present a certificate to admission webhooks. The
// file that says so is one for all plugins; one of the spec, or of the legacy side, is left alone.
func (b *basis) presents() bool {
	if b.target == Hosted {
		return false // the webhook is on hosts
	}
	if _, given := lastValue(b.file.Spec.Modern.APIServer.ExtraArgs, admissionFlag); given {
		return false
	}
	return !slices.ContainsFunc(b.file.Spec.Hosts, func(host spec.Host) bool {
		return b.legacyValue(host, admissionFlag) != ""
	})
}

// webhookKubeconfigs are the certificate of a host's modern API server for the admission webhook for pods: none where
// it presents none.
func webhookKubeconfigs(host spec.Host, pkiDirectory string, pods *Pods) []Kubeconfig {
	if pods == nil || pods.Admission.ClientName == "" {
		return nil
	}
	a, base := pods.Admission, pkiDirectory+"/modern/pods-webhook-client"
	at := HostPort(loopback, a.Port)
	return []Kubeconfig{{Host: host.Name, Component: kubever.APIServer + "-modern", Path: webhookConfig,
		Server: "https://" + at, CA: a.CA, Cert: base + ".crt", Key: base + ".key", User: a.ClientName, Webhook: at}}
}

func servedByDefault(resource string, m kubever.Minor) bool {
	return slices.ContainsFunc(kubever.APIResources(m), func(a kubever.APIResource) bool {
		return a.Name == resource && a.DefaultOn.Has(m)
	})
}

func gateOn(name string, m kubever.Minor) bool {
	state, known := kubever.Gate(name).At(m)
	return known && state.Default
}

// podService is made where the nodes see it, through the server whose allocator answers for its address.
func (b *basis) podService(s *spec.Pods) PodService {
	service := PodService{Namespace: s.Service.Namespace, Name: s.Service.Name, ClusterIP: s.Service.ClusterIP,
		Port:   podServicePort,
		Target: b.file.Spec.Modern.APIServer.Port, Side: pair.Legacy}
	for _, host := range b.file.Spec.Hosts {
		service.Addresses = append(service.Addresses, host.Address)
	}
	row := rowOf(b.rows, "services/specs")
	switch {
	case row == nil || !row.VisibleToBoth():
		service.Why = "nodes resolve it there, and services are not shared"
	case row.Owner == pair.OwnerModern:
		service.Side, service.Why = pair.Modern, "services are the modern side's"
	case within(service.ClusterIP, b.file.Spec.Network.ModernServiceCIDRs):
		service.Side, service.Why = pair.Modern, "its address is in the modern side's own range"
	default:
		service.Why = "its allocator knows every allocated address of the range"
	}
	return service
}

func within(address string, ranges []string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(ranges, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(ip)
	})
}

// podTokens decides where pods get the token of their service account. A projected one takes a legacy server that keeps
// its source and issues it in a name that the modern API server accepts, and kubelets that can mount it.
func (b *basis) podTokens() (Tokens, string) {
	first := b.file.Spec.Hosts[0]
	legacy := b.apiServer(first, onHost{b, first}, pair.Legacy, nil)
	modern := b.apiServer(first, onHost{b, first}, pair.Modern, nil)
	issuer := func(c *Component) string {
		if key, _ := c.Arg("service-account-signing-key-file"); key == "" {
			return ""
		}
		value, _ := c.Arg("service-account-issuer")
		return value
	}
	switch {
	case !kubever.Behaves(kubever.BehaviourTokenVolumeProjected, b.modern):
		return TokensSecret, fmt.Sprintf("%s itself mounts the Secret of the service account", b.modern)
	case !kubever.Behaves(kubever.BehaviourTokenProjectionKept, b.legacy):
		return TokensSecret, fmt.Sprintf("%s drops the source of a projected token", b.legacy)
	case !kubever.Behaves(kubever.BehaviourTokenProjectionMountable, b.file.Spec.Kubelet.Version.Minor):
		return TokensSecret, fmt.Sprintf("kubelets of %s cannot mount a projected token",
			b.file.Spec.Kubelet.Version.Minor)
	case issuer(&legacy) == "":
		return TokensSecret, "kubelets would request a projected token from the legacy API server, which issues none"
	case issuer(&legacy) != issuer(&modern):
		return TokensSecret, fmt.Sprintf("the legacy API server issues tokens as %s, and the modern one accepts "+
			"those of %s", issuer(&legacy), issuer(&modern))
	default:
		return TokensProjected, fmt.Sprintf("%s keeps its source and issues it, and kubelets of %s mount it", b.legacy,
			b.file.Spec.Kubelet.Version.Minor)
	}
}

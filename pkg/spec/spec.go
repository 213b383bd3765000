// Package spec is the user's file: one fused control plane, decoded strictly, defaulted and validated. Nothing else in
// fusionctl reads this YAML, and nothing here knows what follows from it: that is pkg/plan.
package spec

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// APIVersion and Kind head every spec file.
const (
	APIVersion = "kubefusion.dev/v1alpha1"
	Kind       = "FusedControlPlane"
)

// File is a whole spec file.
// Shape:  {apiVersion: kubefusion.dev/v1alpha1, kind: FusedControlPlane, metadata: {name: ...}, spec: {...}}
type File struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	lines Lines // where the fields stand, when the file was read from a text
}

// Metadata names the fused control plane. The name is a DNS label; file names, units and pods of the modern side do not
// depend on it.
type Metadata struct {
	Name string `json:"name"`
}

// Spec is the fused control plane: one set of nodes, two sides, the stores they keep their objects in.
type Spec struct {
	Layout  Layout  `json:"layout"` // default split
	Hosts   []Host  `json:"hosts"`  // one directory of manifests for each; at least one
	Kubelet Kubelet `json:"kubelet"`
	Network Network `json:"network"`
	PKI     PKI     `json:"pki"`
	Stores  []Store `json:"stores"` // at least one
	Legacy  Side    `json:"legacy"`
	Modern  Side    `json:"modern"`
	// Controllers says how fusionctl's own controllers run, which see both sides. The plan decides whether they are
	// needed; left out, they run with the defaults then.
	Controllers *Controllers `json:"controllers,omitempty"`
	// Gateway has fusionctl gateway, one endpoint over both API servers, as a component; without it there is none.
	Gateway *Gateway `json:"gateway,omitempty"`
	// overrides of the layout's owners; the last entry that names a resource wins
	Owners []Owning `json:"owners,omitempty"`
	// HandedOver are workloads, custom resources and Ingresses of the legacy side that are the modern side's now, and
	// roles, webhooks and priority classes of which it has copies: RESOURCE.GROUP. NAMESPACE/RESOURCE.GROUP are those
	// of one namespace, NAMESPACE/* all that can go of it. Transitions hand them over.
	HandedOver []string `json:"handedOver,omitempty"`
	// absent: pods that are created through the modern API server are left as they are
	Pods *Pods `json:"pods,omitempty"`
	// what the policy of the modern API server allows to its users
	Access []Access `json:"access"`
	// findings that the owner of the file takes responsibility for
	Accept []finding.Acceptance `json:"accept,omitempty"`
	// files, and directories of files, that are on every host besides those that arguments of an existing legacy side
	// name
	HostFiles []string `json:"hostFiles,omitempty"`
	// Programs are those of units, and kubelets, that transitions put into their places; others are there already.
	Programs []Program `json:"programs,omitempty"`

	Operation `json:",inline"`
}

// Operation is what fusionctl operator heeds of an object, and no other verb.
type Operation struct {
	// the operator changes nothing, and goes on looking
	Paused bool `json:"paused,omitempty"`
	// which transitions of what runs wait until a person has approved their plan; default Automatic
	Approval Approval `json:"approval,omitempty"`
	// what becomes of the pods of a control plane whose object is deleted; default Keep
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// when transitions of what runs may begin; absent: at any time. One that has begun goes on.
	Windows []Window `json:"windows,omitempty"`
	// absent: the stores are not saved
	Backup *Backup `json:"backup,omitempty"`
	// what runs the components: pods of the operator's cluster, or the hosts, through their agents; default hosted
	Target Target `json:"target,omitempty"`
	// what agents do with files and units of a host that are not as the plan has them; default Report
	Repair Repair `json:"repair,omitempty"`
}

// Target is what runs the components of a control plane that is an object.
type Target string

const (
	TargetHosted    Target = "hosted"     // pods of the operator's cluster
	TargetStaticPod Target = "static-pod" // the kubelets of the hosts
	TargetSystemd   Target = "systemd"    // systemd of the hosts
)

// Targets lists the targets, for help texts and validation.
var Targets = []string{string(TargetHosted), string(TargetStaticPod), string(TargetSystemd)}

// Repair says what becomes of what was changed on a host by others.
type Repair string

const (
	RepairReport Repair = "Report" // the status names it
	RepairMend   Repair = "Repair" // it is put back, too, and what was there is kept beside the agent's state
)

// Repairs lists the words, for help texts and validation.
var Repairs = []string{string(RepairReport), string(RepairMend)}

// Backup says when the stores are saved: by a pod of the control plane, into a volume of its namespace, or on hosts by
// an agent, into a directory there.
type Backup struct {
	Schedule string `json:"schedule"`           // five fields of cron: minute, hour, day, month, day of the week
	TimeZone string `json:"timeZone,omitempty"` // of the schedule, as Europe/Berlin; default UTC
	// how many backups are kept; default 7
	Keep int `json:"keep,omitempty"`
	// directory of the first of the hosts, with spec.target static-pod or systemd: its agent saves the stores there
	Directory string `json:"directory,omitempty"`
	// image that has fusionctl in its PATH, for pods; it has to run as any user
	Image string `json:"image,omitempty"`
	// PersistentVolumeClaim of the control plane's namespace; it is made where there is none; default fusionctl-backup
	Claim string `json:"claim,omitempty"`
	// what is claimed, of a claim that is made; default 20Gi
	Size string `json:"size,omitempty"`
}

// Of Backup.Keep.
const (
	DefaultBackupsKept = 7
	MostBackupsKept    = 60 // a pod tells which there are
)

// Approval says which transitions wait for a person. None does that begins with nothing.
type Approval string

const (
	ApprovalAutomatic Approval = "Automatic" // those with a step that has no way back
	ApprovalManual    Approval = "Manual"    // all
)

// Approvals lists the words, for help texts and validation.
var Approvals = []string{string(ApprovalAutomatic), string(ApprovalManual)}

// DeletionPolicy says what becomes of the pods, the Secrets and the data of a control plane whose object is deleted.
type DeletionPolicy string

const (
	DeletionKeep   DeletionPolicy = "Keep"   // they stay, and run on without the operator
	DeletionDelete DeletionPolicy = "Delete" // the whole namespace is deleted, with the stores in it
)

// DeletionPolicies lists the policies, for help texts and validation.
var DeletionPolicies = []string{string(DeletionKeep), string(DeletionDelete)}

// Layout is a set of defaults for owners and locations.
type Layout string

const (
	LayoutShared Layout = "shared" // both sides keep everything in one store
	// the modern side has a store of its own; the core resources are shared through overrides
	LayoutSplit Layout = "split"
)

// Layouts lists the layouts, for help texts and validation.
var Layouts = []string{string(LayoutShared), string(LayoutSplit)}

// Owners lists the owners, for help texts and validation.
var Owners = []string{string(pair.OwnerLegacy), string(pair.OwnerModern), string(pair.OwnerShared),
	string(pair.OwnerSplit)}

// Host is one control-plane machine.
type Host struct {
	Name    string `json:"name"`    // a DNS label; the name of its directory of manifests
	Address string `json:"address"` // an IP address; what its API servers advertise
	// Legacy says with which arguments and images the components of an existing legacy side run here that are others
	// than in the fields of the side, which are the first host's.
	Legacy *HostArgs `json:"legacy,omitempty"`
}

// HostArgs are the arguments and images of the components that are others on one host.
type HostArgs struct {
	APIServer         []Change    `json:"apiServer,omitempty"`
	ControllerManager []Change    `json:"controllerManager,omitempty"`
	Scheduler         []Change    `json:"scheduler,omitempty"`
	Images            *HostImages `json:"images,omitempty"`
}

// HostImages are the images of the components that are others on one host: hosts that are updated one after the other,
// or have registries of their own.
type HostImages struct {
	APIServer         string `json:"apiServer,omitempty"`
	ControllerManager string `json:"controllerManager,omitempty"`
	Scheduler         string `json:"scheduler,omitempty"`
}

// Image is the one that a component of a running legacy side has on this host alone, "" for that of the side.
func (h *Host) Image(kind string) string {
	if h.Legacy == nil || h.Legacy.Images == nil {
		return ""
	}
	switch i := h.Legacy.Images; kind {
	case kubever.APIServer:
		return i.APIServer
	case kubever.ControllerManager:
		return i.ControllerManager
	case kubever.Scheduler:
		return i.Scheduler
	}
	return ""
}

// Change is an argument that is another, or not there: it takes the place of all of its name.
// Shape:  {name: etcd-quorum-read, value: "true"}, {name: insecure-bind-address, remove: true}
type Change struct {
	Name   string `json:"name"`                         // without dashes
	Value  string `json:"value,omitempty" scalar:"any"` // "true" for a switch
	Remove bool   `json:"remove,omitempty"`             // it is not given; without a value
}

// Kubelet is what runs the static pods and the workloads.
type Kubelet struct {
	Version kubever.Version `json:"version"` // default: the legacy version
	// Modern are the kubelets that are connected to the modern API server, node by node; nil while there are none, and
	// none is to be.
	Modern *ModernKubelet `json:"modern,omitempty"`
}

// ModernKubelet is a kubelet that is connected to the modern API server.
type ModernKubelet struct {
	Version kubever.Version `json:"version"` // default: the modern version
	// Nodes are those whose kubelets transitions connect to the modern API server; other ones are connected by hand.
	Nodes []ModernNode `json:"nodes,omitempty"`
	// Unit of systemd that runs the kubelet on each of these nodes; default kubelet.service
	Unit string `json:"unit,omitempty"`
	// Program is the kubelet of the version on each of them; default /opt/kubernetes/VERSION/bin/kubelet
	Program string `json:"program,omitempty"`
	// Args are all of its arguments but --kubeconfig, those of the same root directory and runtime as before.
	Args []Arg `json:"args,omitempty"`
	// CA of both API servers, as the nodes have it; default that of pki
	CA string `json:"ca,omitempty"`
	// Cert is the kubelet's client certificate, which may stay what it is; default
	// /var/lib/kubelet/pki/kubelet-client-current.pem
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"` // default: in the same file
	// Runtime is the socket of the container runtime; default unix:///run/containerd/containerd.sock
	Runtime string `json:"runtime,omitempty"`
}

// ModernNode is a node whose kubelet is connected to the modern API server.
type ModernNode struct {
	Name    string `json:"name"`           // of the Node object
	Address string `json:"address"`        // an IP address at which the machine is reached
	Args    []Arg  `json:"args,omitempty"` // beside those of all nodes
}

// Network is what both sides must agree on.
type Network struct {
	ServiceCIDRs []string `json:"serviceCIDRs"` // one, or one of each IP family; default 10.96.0.0/12
	// ModernServiceCIDRs is a range from which the modern API server alone allocates addresses, apart from
	// ServiceCIDRs; default: the same as ServiceCIDRs. Versions that no longer write the bitmap of old servers need it,
	// or an address is allocated twice.
	ModernServiceCIDRs []string `json:"modernServiceCIDRs,omitempty"`
	NodePortRange      string   `json:"nodePortRange,omitempty"` // FROM-TO, both included; default 30000-32767
	PodCIDR            string   `json:"podCIDR,omitempty"`       // "" when another component allocates pod addresses
	ClusterDomain      string   `json:"clusterDomain,omitempty"` // default cluster.local
}

// PKI is where the certificates and keys are on every host. Paths are those that the components see.
type PKI struct {
	// absolute; default /etc/kubernetes/pki
	Directory string `json:"directory"`
	// the cluster's CA; default DIRECTORY/ca.crt
	CA string `json:"ca,omitempty"`
	// signs kubelet certificates; default DIRECTORY/ca.key
	CAKey string `json:"caKey,omitempty"`
	// private, signs tokens; default DIRECTORY/sa.key
	ServiceAccountKey string `json:"serviceAccountKey,omitempty"`
	// verify tokens; default [DIRECTORY/sa.pub]
	ServiceAccountPublic []string `json:"serviceAccountPublicKeys,omitempty"`
	// default https://kubernetes.default.svc.CLUSTERDOMAIN
	ServiceAccountIssuer string `json:"serviceAccountIssuer,omitempty"`
	RequestHeaderCA      string `json:"requestHeaderCA,omitempty"` // default DIRECTORY/front-proxy-ca.crt
	// default DIRECTORY/front-proxy-client.crt
	ProxyClientCert string `json:"proxyClientCert,omitempty"`
	// default DIRECTORY/front-proxy-client.key
	ProxyClientKey string `json:"proxyClientKey,omitempty"`
	// default DIRECTORY/apiserver-kubelet-client.crt
	KubeletClientCert string `json:"kubeletClientCert,omitempty"`
	// default DIRECTORY/apiserver-kubelet-client.key
	KubeletClientKey string `json:"kubeletClientKey,omitempty"`
	// the file for both sides; "" for no encryption at rest
	EncryptionConfiguration string `json:"encryptionConfiguration,omitempty"`
}

// TLS names the files with which a component of the control plane speaks to a server, or a server to its clients. Cert
// and Key are both set, or, with a store that asks no client for a certificate, neither is.
type TLS struct {
	CA   string `json:"ca"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Identifies reports whether a client has a certificate to show; false of nil too.
func (t *TLS) Identifies() bool { return t != nil && t.Cert != "" }

// Files are those that are named.
func (t *TLS) Files() []string {
	if t.Identifies() {
		return []string{t.CA, t.Cert, t.Key}
	}
	return []string{t.CA}
}

// Store is an etcd cluster.
type Store struct {
	Name      string   `json:"name"`             // a DNS label
	Endpoints []string `json:"endpoints"`        // URLs, one per member: https://10.0.0.11:2379
	Prefix    string   `json:"prefix,omitempty"` // default /registry; the same for every store
	// of https endpoints; default that of the first store that has one
	TLS     *TLS   `json:"tls,omitempty"`
	Version string `json:"version,omitempty" scalar:"any"` // etcd's version where it is known: 3.4.23
	// absent: the store exists, and the plan does not run it
	Managed *ManagedEtcd `json:"managed,omitempty"`
}

// ManagedEtcd makes fusionctl render the members of a store, one on every host.
type ManagedEtcd struct {
	Version string `json:"version" scalar:"any"` // 3.6.8
	DataDir string `json:"dataDir"`              // absolute
	Image   string `json:"image,omitempty"`      // default registry.k8s.io/etcd:VERSION-0
	// ServerTLS and PeerTLS are the members' own certificates; both default to files of PKI.Directory named for the
	// store: DIRECTORY/etcd-STORE/{server.crt,server.key} and {peer.crt,peer.key}, of the CA that the store's TLS
	// names.
	ServerTLS *TLS `json:"serverTLS,omitempty"`
	PeerTLS   *TLS `json:"peerTLS,omitempty"`
	PeerPort  int  `json:"peerPort,omitempty"` // default: the client port + 1
}

// Side is the legacy or the modern half.
type Side struct {
	Version kubever.Version `json:"version"`
	// Image runs every component of the side (a hyperkube), unless a component names its own. When both are empty, each
	// component has its release image: registry.k8s.io/kube-apiserver:vVERSION.
	Image string `json:"image,omitempty"`
	// the default store, by name; default core, and modern for the modern side of a split layout
	Store string `json:"store"`
	// Existing says that the components run already with the arguments in extraArgs: a plan takes these as they are and
	// changes only what it can show to be needed. Only the legacy side may be existing.
	Existing bool `json:"existing,omitempty"`
	// Retired says that the components of the side run no more: the modern side runs everything by itself, and what the
	// side had is in its store. Only the legacy side may be retired.
	Retired           bool       `json:"retired,omitempty"`
	APIServer         *APIServer `json:"apiServer"`                   // required
	ControllerManager *Component `json:"controllerManager,omitempty"` // absent: not rendered
	Scheduler         *Component `json:"scheduler,omitempty"`         // absent: not rendered
}

// Component is what may be said about any component of a side.
type Component struct {
	Image string `json:"image,omitempty"`
	// what comes before the arguments; default the component's binary name
	Command []string `json:"command,omitempty"`
	// in order; an argument named here replaces the plan's own of that name. Of an existing side: what the component
	// runs with.
	ExtraArgs []Arg `json:"extraArgs,omitempty"`
	// ChangeArgs is what is to be changed of the arguments of a component that runs already: the runbook, the manifests
	// and render --diff have it.
	ChangeArgs  []Change `json:"changeArgs,omitempty"`
	ExtraMounts []Mount  `json:"extraMounts,omitempty"`
	ExtraEnv    []EnvVar `json:"extraEnv,omitempty"`
	Kubeconfig  string   `json:"kubeconfig,omitempty"` // where the component's kubeconfig lies on the host
}

// APIServer is a side's API server.
type APIServer struct {
	Component `json:",inline"`
	Port      int `json:"port,omitempty"` // secure port; default 6443 legacy, 7443 modern
	// serving certificate; default DIRECTORY/apiserver.crt, of the modern side DIRECTORY/modern/apiserver.crt
	Cert    string `json:"cert,omitempty"`
	Key     string `json:"key,omitempty"`         // default as Cert, with .key
	Address string `json:"bindAddress,omitempty"` // default 0.0.0.0, or :: when a host has an IPv6 address
	// CertSANs are names and addresses by which clients reach it beside those that the plan knows, such as a load
	// balancer's: the serving certificate is for these, too.
	CertSANs []string `json:"certSANs,omitempty"`
	// Service is the type of its Service where it runs as pods: ClusterIP, the default, or LoadBalancer.
	Service ServiceType `json:"service,omitempty"`
}

// ServiceType is who reaches what runs as pods.
type ServiceType string

const (
	ServiceClusterIP    ServiceType = "ClusterIP"    // clients within the cluster
	ServiceLoadBalancer ServiceType = "LoadBalancer" // clients outside, at an address that the cluster's provider gives
)

// ServiceTypes lists the types, for help texts and validation.
var ServiceTypes = []string{string(ServiceClusterIP), string(ServiceLoadBalancer)}

// Gateway is `fusionctl gateway` as a component of the control plane: one endpoint over both API servers, one process
// on each of its hosts.
type Gateway struct {
	Disabled bool `json:"disabled,omitempty"` // not a component of the plan; the other fields say what one does by hand
	// Create is the side on which objects are created of which each side has its own: legacy or modern, the default.
	Create pair.Side `json:"create,omitempty"`
	// SharedIdentities says that a name and its groups stand for the same user on both sides, whichever side's token
	// they come from. Without it, a token counts on the sides that know it.
	SharedIdentities bool `json:"sharedIdentities,omitempty"`
	// Clusters are further API servers, of any version, which it serves below /clusters/NAME.
	Clusters []GatewayCluster `json:"clusters,omitempty"`
	// Image has fusionctl in its PATH. Without one a pod runs the host's own program, Binary, in the image of the
	// modern API server, which is on the host already.
	Image  string   `json:"image,omitempty"`
	Binary string   `json:"binary,omitempty"` // the program on every host; default /usr/local/bin/fusionctl
	Port   int      `json:"port,omitempty"`   // where it serves, on every address of its hosts; default 8443
	Hosts  []string `json:"hosts,omitempty"`  // by name; default all
	// CertSANs are names and addresses by which clients reach it beside those of its hosts, such as a load balancer's:
	// the serving certificate is for these, too.
	CertSANs []string `json:"certSANs,omitempty"`
	// Service is the type of its Service where it runs as pods: ClusterIP, the default, or LoadBalancer.
	Service   ServiceType `json:"service,omitempty"`
	ExtraArgs []Arg       `json:"extraArgs,omitempty"` // of GatewayFlags
}

// GatewayCluster is a further API server behind the gateway.
type GatewayCluster struct {
	Name string `json:"name"`
	// Kubeconfig is a file on every host of the gateway, of an identity that may impersonate users and groups there.
	Kubeconfig string `json:"kubeconfig"`
}

// GatewayFlags are the flags of `fusionctl gateway` that extraArgs may name; the plan says the others.
var GatewayFlags = []string{"audit-log-batch-buffer-size", "audit-log-batch-max-size", "audit-log-batch-max-wait",
	"audit-log-batch-throttle-burst", "audit-log-batch-throttle-enable", "audit-log-batch-throttle-qps",
	"audit-log-compress", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize",
	"audit-log-mode", "audit-log-path", "audit-policy-file", "conversion-rules", "discovery-interval",
	"max-requests-inflight", "metrics-listen", "policy", "user-requests", "user-watches", "verbose"}

// Controllers is `fusionctl controllers` as a component of the control plane: a garbage collector and a namespace
// controller that see both sides, one process on each of its hosts, of which one acts.
type Controllers struct {
	Disabled bool `json:"disabled,omitempty"` // not rendered even where the plan needs them
	// Image has fusionctl in its PATH. Without one a pod runs the host's own program, Binary, in the image of the
	// modern API server, which is on the host already.
	Image     string   `json:"image,omitempty"`
	Binary    string   `json:"binary,omitempty"`    // the program on every host; default /usr/local/bin/fusionctl
	Port      int      `json:"port,omitempty"`      // of health and metrics, on loopback; default 10270
	Hosts     []string `json:"hosts,omitempty"`     // by name; default all
	ExtraArgs []Arg    `json:"extraArgs,omitempty"` // of ControllersFlags
}

// ControllersFlags are the flags of `fusionctl controllers` that extraArgs may name; the plan says the others.
var ControllersFlags = []string{"brake-owners", "brake-share", "changes-per-second", "delete-orphans", "dry-run",
	"leader-elect", "qps", "verbose",
	"workers"}

// Arg is one argument of a component, --NAME=VALUE.
type Arg struct {
	Name  string `json:"name"`               // without dashes
	Value string `json:"value" scalar:"any"` // "true" for a switch
}

// Mount is a path of the host that a component sees, or, of a component that runs already, an object of the cluster.
// Shape:  {name: pki, hostPath: /opt/cluster/pki, mountPath: /etc/kubernetes/pki, readOnly: true}
type Mount struct {
	Name      string `json:"name"`
	HostPath  string `json:"hostPath,omitempty"`
	MountPath string `json:"mountPath,omitempty"` // where the component sees it; default hostPath
	ReadOnly  bool   `json:"readOnly,omitempty"`
	// Secret and ConfigMap are objects in place of a path of the host. Only a component that runs already may have
	// them: a kubelet starts no static pod that refers to an object.
	Secret    string `json:"secret,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	// Volume is what another volume in place of a path of the host is, such as an emptyDir that a container of the pod
	// fills: its files are on no host either.
	Volume string `json:"volume,omitempty"`
}

// At is where the component sees the mount.
func (m Mount) At() string { return cmp.Or(m.MountPath, m.HostPath) }

// OnHost is where a file of the component lies on its host: a component sees what is mounted at another place. It is
// false for a file of a Secret, a ConfigMap or another volume, which lies on no host.
func (c *Component) OnHost(file string) (string, bool) {
	m := c.mountOf(file)
	switch {
	case m == nil:
		return file, true
	case m.Secret != "" || m.ConfigMap != "" || m.Volume != "":
		return file, false
	}
	return path.Join(m.HostPath, strings.TrimPrefix(file, strings.TrimSuffix(m.At(), "/"))), true
}

// mountOf is the innermost mount that has the file, nil for none.
func (c *Component) mountOf(file string) *Mount {
	var inner *Mount
	for i := range c.ExtraMounts {
		m := &c.ExtraMounts[i]
		at := strings.TrimSuffix(m.At(), "/")
		within := file == at || strings.HasPrefix(file, at+"/")
		if within && (inner == nil || len(at) > len(strings.TrimSuffix(inner.At(), "/"))) {
			inner = m
		}
	}
	return inner
}

// Object names the Secret, the ConfigMap or the volume in which a file of the component is, "" for a file of its host.
func (c *Component) Object(file string) string {
	switch m := c.mountOf(file); {
	case m == nil:
		return ""
	case m.Secret != "":
		return "Secret " + m.Secret
	case m.ConfigMap != "":
		return "ConfigMap " + m.ConfigMap
	case m.Volume != "":
		return m.Volume + " " + m.Name
	}
	return ""
}

// EnvVar is an environment variable of a component.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value" scalar:"any"`
}

// Owning gives resources to an owner.
// Shape:  {resources: [ingresses.extensions, "*.networking.k8s.io", pods], owner: legacy}
type Owning struct {
	// RESOURCE.GROUP, *.GROUP; the core group has no suffix; "*." is the whole core group
	Resources []string `json:"resources"`
	// Owner says who writes the objects of the resources, and whether both sides look at the same ones.
	Owner pair.Owner `json:"owner"`
}

// Program is an executable file of hosts, and where it comes from.
// Shape:  {path: /opt/kubernetes/1.36.3/bin/kubelet, sha256: 5f70..., file: /srv/kubernetes/1.36.3/kubelet}
type Program struct {
	Path   string `json:"path"`   // where a unit starts it; absolute
	SHA256 string `json:"sha256"` // of the program, in hexadecimal digits
	File   string `json:"file"`   // where it comes from: a file of the host, or of the image; absolute
	// Image has the file, by its digest: registry.k8s.io/kube-apiserver@sha256:...; absent: the host has it
	Image string   `json:"image,omitempty"`
	Hosts []string `json:"hosts,omitempty"` // hosts and nodes, by name; default all that start it
}

// On reports whether the program is one of a host or node.
func (p *Program) On(host string) bool { return len(p.Hosts) == 0 || slices.Contains(p.Hosts, host) }

// Pods makes the pods that are created through the modern API server find it, with a token that the kubelets can mount.
// {} is enough.
type Pods struct {
	Service ModernService `json:"service"`
	// SideLabel is a label, with the value "modern", of the pods and of the pod templates that are created through the
	// modern API server; default kubefusion.dev/side.
	SideLabel string    `json:"sideLabel,omitempty"`
	Admission Admission `json:"admission"`
	// UnknownFields says what happens to pods and templates with fields that the legacy side drops; default warn.
	UnknownFields UnknownFields `json:"unknownFields,omitempty"`
}

// ModernService is the service through which pods reach the modern API server.
type ModernService struct {
	Namespace string `json:"namespace,omitempty"` // default default
	Name      string `json:"name,omitempty"`      // default kubernetes-modern
	// ClusterIP is its address, in the serving certificate of the modern API server and in the environment of pods;
	// default the second address of modernServiceCIDRs or, without them, of serviceCIDRs.
	ClusterIP string `json:"clusterIP,omitempty"`
}

// Admission is how the modern API server asks for the changes to pods, where it does not make them by itself.
type Admission struct {
	FailurePolicy  FailurePolicy `json:"failurePolicy,omitempty"`  // when the webhook is unreachable; default Fail
	TimeoutSeconds int           `json:"timeoutSeconds,omitempty"` // 1 to 30; default 5
	// where fusionctl controllers answer, on every host; default 10271
	Port int `json:"port,omitempty"`
}

// FailurePolicy says what becomes of a request about which the webhook did not answer.
type FailurePolicy string

const (
	FailurePolicyFail   FailurePolicy = "Fail"   // it is refused
	FailurePolicyIgnore FailurePolicy = "Ignore" // it goes on unchanged: such a pod uses the legacy API server
)

// FailurePolicies lists the policies, for help texts and validation.
var FailurePolicies = []string{string(FailurePolicyFail), string(FailurePolicyIgnore)}

// UnknownFields says what happens to an object with fields that the legacy side does not know.
type UnknownFields string

const (
	UnknownFieldsWarn   UnknownFields = "warn"   // the client is warned, of each field
	UnknownFieldsRefuse UnknownFields = "refuse" // the object is refused
	UnknownFieldsIgnore UnknownFields = "ignore" // nothing
)

// UnknownFieldsWords lists the words, for help texts and validation.
var UnknownFieldsWords = []string{string(UnknownFieldsWarn), string(UnknownFieldsRefuse), string(UnknownFieldsIgnore)}

// SideLabelModern is the value of the side label.
const SideLabelModern = "modern"

// Access is a rule of the modern API server's policy, read like an RBAC rule without verbs.
type Access struct {
	Subjects         []Subject `json:"subjects"`
	APIGroups        []string  `json:"apiGroups,omitempty"`
	Resources        []string  `json:"resources,omitempty"`
	Namespaces       []string  `json:"namespaces,omitempty"` // default ["*"]
	NonResourcePaths []string  `json:"nonResourcePaths,omitempty"`
	ReadOnly         bool      `json:"readOnly,omitempty"`
}

// Subject is who may: {kind: Group, name: "system:authenticated"}, {kind: ServiceAccount, namespace: istio-system,
// name: istiod}.
type Subject struct {
	Kind      string `json:"kind"` // User, Group or ServiceAccount
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // of a ServiceAccount
}

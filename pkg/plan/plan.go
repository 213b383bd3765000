// Package plan turns a spec into a plan: every resource with its owner and its places, every component with its
// arguments and the reason for each, every controller that runs or does not, the policy, the locks, the certificates. A
// plan is plain data; its holder no longer needs the spec, and of the facts only what is about versions in general.
package plan

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Plan is what follows from a spec and the facts about its two versions. Shape: JSON and YAML as in `fusionctl plan -o
// yaml`; lists are in a fixed order, so that two plans of one spec are the same bytes. Errors: New reports what cannot
// be planned; what can be planned but is dangerous is found by pkg/rules.
type Plan struct {
	Target  Target          `json:"target,omitempty"`
	Name    string          `json:"name"`
	Layout  spec.Layout     `json:"layout"`
	Hosts   []spec.Host     `json:"hosts"`
	Kubelet kubever.Version `json:"kubelet"`
	// ModernKubelet is the version of the kubelets that are connected to the modern API server; nil for none.
	ModernKubelet *kubever.Version `json:"modernKubelet,omitempty"`
	// Nodes are those whose kubelets transitions connect to the modern API server.
	Nodes []Node `json:"nodes,omitempty"`

	Network      spec.Network  `json:"network"`
	PKI          spec.PKI      `json:"pki"`
	Prefix       string        `json:"prefix"` // --etcd-prefix of both sides
	Stores       []Store       `json:"stores"`
	Legacy       Side          `json:"legacy"`
	Modern       Side          `json:"modern"`
	Resources    []Resource    `json:"resources"`   // by key
	Controllers  []Controller  `json:"controllers"` // of both controller managers, by side and name
	Components   []Component   `json:"components"`  // by host, etcd first, then legacy, then modern
	Kubeconfigs  []Kubeconfig  `json:"kubeconfigs"`
	Certificates []Certificate `json:"certificates"`
	// the controllers that see both sides; nil where they are not needed, or not wanted
	Joint      *Joint        `json:"joint,omitempty"`
	Policy     policy.Intent `json:"policy"`     // what the policy file of the modern API server allows
	PolicyFile string        `json:"policyFile"` // where that file lies on every host
	// AuditPolicyFile is where the audit policy lies that render writes; "" where none is needed.
	AuditPolicyFile string `json:"auditPolicyFile,omitempty"`
	// TokenKey is the pair of keys of the service accounts that pki makes; nil where the running legacy side has one.
	TokenKey *TokenKey `json:"tokenKey,omitempty"`
	// Kubelets is what the legacy side has to allow to the kubelet client certificate that pki issues; nil for none.
	Kubelets *KubeletAccess `json:"kubelets,omitempty"`
	// Unprovided are the files that nothing provides; a component that reads one does not start.
	Unprovided []Unprovided `json:"unprovided,omitempty"`

	Accept []finding.Acceptance `json:"accept,omitempty"`
	Pods   *Pods                `json:"pods,omitempty"` // nil: pods of the modern side are left as they are

	// Programs are those of hosts that transitions put into their places.
	Programs []spec.Program `json:"programs,omitempty"`

	// Gateway is what one endpoint over both sides does where there is a choice, and how it runs; nil for the defaults,
	// and where the plan has none.
	Gateway *Gateway `json:"gateway,omitempty"`

	CustomResources pair.Resource  `json:"customResources"` // the places of every custom resource
	StartupWrites   []pair.BootKey `json:"startupWrites"`   // what the API servers write by themselves
}

// Store is an etcd cluster of the plan.
type Store struct {
	Name      string            `json:"name"`
	Endpoints []string          `json:"endpoints"`
	TLS       *spec.TLS         `json:"tls,omitempty"`
	Version   string            `json:"version,omitempty"` // etcd's, "" when the spec does not say
	Managed   *spec.ManagedEtcd `json:"managed,omitempty"`
}

// Side is what the plan says about one side as a whole.
type Side struct {
	Name     pair.Side         `json:"name"`
	Version  kubever.Version   `json:"version"`
	Store    string            `json:"store"`             // its default store
	Existing bool              `json:"existing"`          // its components run already: only what must change is changed
	Retired  bool              `json:"retired,omitempty"` // its components run no more
	Port     int               `json:"port"`              // the API server's secure port
	Locks    []pair.Lock       `json:"locks"`             // what its components elect on
	Facts    pair.ControlPlane `json:"facts"`             // what a scan of the stores needs to know of this version
}

// Resource is one row of the ownership map and why it is so.
type Resource struct {
	pair.Resource
	Pseudo bool   `json:"pseudo,omitempty"` // no API resource: what an API server keeps for itself
	Why    string `json:"why"`              // one sentence
	// Overrides are the entries of the modern API server's --etcd-servers-overrides for this row, GROUP/RESOURCE, one
	// for each group under which its version may keep it; empty when the row lies in the side's default store.
	Overrides []string `json:"overrides,omitempty"`
}

// Controller is one controller of a side's controller manager.
type Controller struct {
	Side pair.Side `json:"side"`
	Name string    `json:"name"` // as --controllers of that version wants it
	ID   string    `json:"id"`   // the name since 1.28, the same for every version
	On   bool      `json:"on"`
	Why  string    `json:"why"` // one sentence
}

// Component is one process on one host.
type Component struct {
	Host string    `json:"host"`
	Side pair.Side `json:"side,omitempty"` // "" for etcd and for what sees both sides
	Kind string    `json:"kind"`           // etcd, a component of kubever, JointControllers, or JointGateway
	// of the pod, the unit and the file: kube-apiserver, kube-apiserver-modern, etcd-modern
	Name    string        `json:"name"`
	Version string        `json:"version,omitempty"` // "" of fusionctl itself
	Image   string        `json:"image"`
	Program string        `json:"program,omitempty"` // what a unit starts, where that does not follow from the command
	Command []string      `json:"command"`           // before the arguments
	Args    []Arg         `json:"args"`              // complete and in order
	Removed []Arg         `json:"removed,omitempty"` // what a component that runs already is to run without
	Env     []spec.EnvVar `json:"env,omitempty"`
	Mounts  []Mount       `json:"mounts"`
	Port    int           `json:"port"` // what it serves on
	// Liveness and Startup are kinds that the kubelet of the plan knows; Startup is nil where it has none.
	Liveness *Probe `json:"liveness,omitempty"`
	Startup  *Probe `json:"startup,omitempty"`
	Store    string `json:"store,omitempty"` // of an etcd member
	// Service is the type of the Service by which clients reach the pods, where it is another than ClusterIP.
	Service spec.ServiceType `json:"service,omitempty"`
}

// Arg is one argument, --NAME=VALUE, and why it is there.
type Arg struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Was    string `json:"was,omitempty"` // what a component that runs already has in its place
	Why    string `json:"why"`
	Origin Origin `json:"origin"`
}

// String prints the argument as the component wants it.
func (a Arg) String() string { return "--" + a.Name + "=" + a.Value }

// Origin says who put an argument there.
type Origin string

const (
	FromSpec Origin = "spec" // extraArgs
	FromPlan Origin = "plan"
	FromBoth Origin = "both" // extraArgs, changed by the plan because it must be
)

// Mount is a path of the host that a component sees, or, of one that runs already, an object of the cluster.
type Mount struct {
	Name      string `json:"name"`
	Path      string `json:"path"`         // of the host; "" of an object
	At        string `json:"at,omitempty"` // where the component sees it; "" for Path
	ReadOnly  bool   `json:"readOnly"`
	Directory bool   `json:"directory"`          // it is created when it is missing, unless Required; a file must exist
	Required  bool   `json:"required,omitempty"` // it holds files that the component reads, so it is never created
	// Unchecked is a path that the spec names and no argument: it may be a file as well, and a kubelet that is told
	// which starts no pod where it is the other.
	Unchecked bool   `json:"unchecked,omitempty"`
	Secret    string `json:"secret,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
}

// Seen is where the component sees the mount.
func (m Mount) Seen() string { return cmp.Or(m.At, m.Path) }

// Joint is what the plan says about the controllers that see both sides, fusionctl's own: one component of kind
// JointControllers on each of some hosts.
type Joint struct {
	Why      []string     `json:"why"`      // what is left undone without them, each a sentence
	Collects bool         `json:"collects"` // they collect garbage; otherwise they only finalize namespaces
	User     string       `json:"user"`     // the name in their certificate, on both sides
	PlanFile string       `json:"planFile"` // where they find the plan, on each of their hosts
	Legacy   LegacyAccess `json:"legacy"`
}

// LegacyAccess is what the legacy API server has to allow to a component that sees both sides; Policy says what the
// modern one allows.
type LegacyAccess struct {
	Modes []string `json:"modes"` // that server's authorization modes
	// the group and version in which it takes roles; "" where its version has none
	RBACVersion string  `json:"rbac,omitempty"`
	Rules       []Right `json:"rules"`
}

// Right is a rule as RBAC has it.
type Right struct {
	APIGroups        []string `json:"apiGroups,omitempty"`
	Resources        []string `json:"resources,omitempty"`
	NonResourcePaths []string `json:"nonResourcePaths,omitempty"`
	Verbs            []string `json:"verbs"`
	Namespace        string   `json:"namespace,omitempty"` // "" is everywhere
	Why              string   `json:"why"`                 // one sentence
}

// Probe asks a component whether it is well.
type Probe struct {
	Scheme           string `json:"scheme,omitempty"` // HTTP, HTTPS; "" for a TCP probe
	Host             string `json:"host"`
	Port             int    `json:"port"`
	Path             string `json:"path,omitempty"` // "" for a TCP probe
	DelaySeconds     int    `json:"delaySeconds"`
	TimeoutSeconds   int    `json:"timeoutSeconds"`
	PeriodSeconds    int    `json:"periodSeconds"`
	FailureThreshold int    `json:"failureThreshold"`
}

// Kubeconfig is a file with which a component reaches its API server. It refers to key files; it holds none.
type Kubeconfig struct {
	Host      string `json:"host"`
	Path      string `json:"path"`
	Server    string `json:"server"`
	CA        string `json:"ca"`
	Cert      string `json:"cert"`
	Key       string `json:"key"`
	User      string `json:"user"` // the name in the certificate
	Component string `json:"component"`
	// Webhook is the address, with its port, to which an API server presents the certificate; "" for the kubeconfig of
	// a component for its API server.
	Webhook string `json:"webhook,omitempty"`
}

// Certificate is one that the plan needs on a host.
type Certificate struct {
	Host          string   `json:"host"`
	Cert          string   `json:"cert"` // path
	Key           string   `json:"key"`
	CA            string   `json:"ca"` // path of the issuer's certificate
	CommonName    string   `json:"commonName"`
	Organizations []string `json:"organizations,omitempty"`
	DNSNames      []string `json:"dnsNames,omitempty"`
	IPs           []string `json:"ips,omitempty"`
	Usages        []string `json:"usages,omitempty"`    // UsageServer, UsageClient; none of an authority
	Authority     bool     `json:"authority,omitempty"` // it signs others; one and the same on every host
	Existing      bool     `json:"existing"`            // the cluster has it already: it is not issued
	Why           string   `json:"why"`
}

// Side returns the side of the name.
func (p *Plan) Side(name pair.Side) *Side {
	if name == pair.Legacy {
		return &p.Legacy
	}
	return &p.Modern
}

// RunningSides are the sides of which components run.
func (p *Plan) RunningSides() []pair.Side {
	return slices.DeleteFunc(pair.Sides(), func(side pair.Side) bool { return p.Side(side).Retired })
}

// Store returns the store of the name, nil when there is none.
func (p *Plan) Store(name string) *Store {
	return storeOf(p.Stores, name)
}

func storeOf(stores []Store, name string) *Store {
	for i := range stores {
		if stores[i].Name == name {
			return &stores[i]
		}
	}
	return nil
}

// Resource returns the row of the key, nil when there is none.
func (p *Plan) Resource(key string) *Resource {
	return rowOf(p.Resources, key)
}

// rowOf finds a row among those that are ordered by key.
func rowOf(rows []Resource, key string) *Resource {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].Key >= key }) // copies no row: they are large
	if i == len(rows) || rows[i].Key != key {
		return nil
	}
	return &rows[i]
}

// Row returns what the plan holds about the resource that an API server names, nil for a custom resource or one of an
// extension API server.
func (p *Plan) Row(gr schema.GroupResource) *Resource {
	fact, known := kubever.ResourceFor(gr)
	if !known {
		return nil
	}
	return p.Resource(fact.Key)
}

// Controller returns a controller of a side by its name since 1.28, nil when that side's version has none of the name.
func (p *Plan) Controller(side pair.Side, id string) *Controller {
	return controllerOf(p.Controllers, side, id)
}

func controllerOf(controllers []Controller, side pair.Side, id string) *Controller {
	for i := range controllers {
		if controllers[i].Side == side && controllers[i].ID == id {
			return &controllers[i]
		}
	}
	return nil
}

// ComponentsOf lists the components of a kind on a side, one for every host that runs it.
func (p *Plan) ComponentsOf(side pair.Side, kind string) []Component {
	var found []Component
	for _, c := range p.Components {
		if c.Side == side && c.Kind == kind {
			found = append(found, c)
		}
	}
	return found
}

// CertificateHosts lists the hosts to which certificates are issued, or HostedName.
func (p *Plan) CertificateHosts() []string {
	var hosts []string
	for _, c := range p.Certificates {
		if !slices.Contains(hosts, c.Host) {
			hosts = append(hosts, c.Host)
		}
	}
	return hosts
}

// OnHost is where a file that the component sees lies on its host, or would lie.
func (c *Component) OnHost(file string) string {
	found, inner := file, ""
	for _, m := range c.Mounts {
		at := strings.TrimSuffix(m.Seen(), "/")
		if m.Path != "" && len(at) > len(inner) && (file == at || strings.HasPrefix(file, at+"/")) {
			found, inner = path.Join(m.Path, strings.TrimPrefix(file, at)), at
		}
	}
	return found
}

// Arg returns the last value of an argument, and whether the component has it.
func (c *Component) Arg(name string) (string, bool) {
	for i := len(c.Args) - 1; i >= 0; i-- {
		if c.Args[i].Name == name {
			return c.Args[i].Value, true
		}
	}
	return "", false
}

// Ownership is the ownership map of the plan, as a scan of the stores wants it.
func (p *Plan) Ownership() pair.Map {
	m := pair.Map{
		Prefix:          p.Prefix,
		Legacy:          p.Legacy.Facts,
		Modern:          p.Modern.Facts,
		CustomResources: p.CustomResources,
		Boot:            p.StartupWrites,
		Locks:           slices.Concat(p.Legacy.Locks, p.Modern.Locks),
		ServiceCIDRs:    slices.Concat(p.Network.ServiceCIDRs, p.Network.ModernServiceCIDRs),
		NodePortRange:   p.Network.NodePortRange,
	}
	for _, s := range p.Stores {
		m.Stores = append(m.Stores, s.Name)
	}
	for _, r := range p.Resources {
		row := r.Resource
		if row.VisibleToBoth() {
			row.Legacy.Drops, row.Legacy.Implied = drops(&row, pair.Legacy, p.Legacy.Version.Minor,
				p.Modern.Version.Minor)
			row.Modern.Drops, row.Modern.Implied = drops(&row, pair.Modern, p.Modern.Version.Minor,
				p.Legacy.Version.Minor)
		}
		m.Resources = append(m.Resources, row)
		if row.Key == "thirdpartyresources" {
			data := pair.Resource{Key: "ThirdPartyResourceData/*", Name: "third-party resources", Namespaced: true,
				Owner: row.Owner}
			data.Legacy.Store, data.Modern.Store = row.Legacy.Store, row.Modern.Store
			m.Resources = append(m.Resources, data)
		}
	}
	return m
}

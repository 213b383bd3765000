package render

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// hostedName stands for the host of a hosted plan: its components are pods, and run wherever they are put.
const hostedName = "hosted"

// HostedPlan is the plan with its components as pods of another cluster, in a namespace of the plan's name: what was a host's address
// is a pod's or a service's, and there is one "host", whose components run as often as the plan has hosts. Components that run already
// are not in it, and neither are the controllers that see both sides. Certificates have the names under which pods are asked.
// Errors: none; the plan that is given stays as it is.
func HostedPlan(p *plan.Plan) *plan.Plan {
	h := *p
	hosted := spec.Host{Name: hostedName}
	h.Hosts = []spec.Host{hosted}
	first := p.Hosts[0]
	h.Stores = slices.Clone(p.Stores)
	moved := map[string]string{} // endpoints of managed stores
	for i := range h.Stores {
		if s := &h.Stores[i]; s.Managed != nil {
			s.Endpoints = nil
			for n, endpoint := range p.Stores[i].Endpoints {
				moved[endpoint] = memberURL(p, s.Name, strconv.Itoa(n), endpoint)
				s.Endpoints = append(s.Endpoints, moved[endpoint])
			}
		}
	}
	h.Components, h.Kubeconfigs, h.Certificates, h.Joint = nil, nil, nil, nil
	for _, c := range p.Components {
		if c.Host == first.Name && !runsAlready(p, &c) && c.Kind != plan.JointControllers {
			h.Components = append(h.Components, hostedComponent(p, c, moved))
		}
	}
	for _, k := range p.Kubeconfigs {
		if k.Host == first.Name && k.Component != plan.JointControllers {
			h.Kubeconfigs = append(h.Kubeconfigs, hostedKubeconfig(p, k))
		}
	}
	for _, c := range p.Certificates {
		if c.Host == first.Name && c.CommonName != plan.JointControllers {
			h.Certificates = append(h.Certificates, hostedCertificate(p, c, first))
		}
	}
	return &h
}

// serviceName is the DNS name of a service of the plan's namespace, good in every cluster whatever its domain.
func serviceName(p *plan.Plan, service string) string { return service + "." + p.Name + ".svc" }

// memberName is the DNS name of a member of a managed store.
func memberName(p *plan.Plan, store, ordinal string) string {
	service := plan.Etcd + "-" + store
	return service + "-" + ordinal + "." + serviceName(p, service)
}

// memberURL is an endpoint with the address of a member for that of a host.
func memberURL(p *plan.Plan, store, ordinal, endpoint string) string {
	scheme, port := "http", ""
	if s, rest, ok := strings.Cut(endpoint, "://"); ok {
		scheme = s
		port = rest[strings.LastIndexByte(rest, ':')+1:]
	}
	return scheme + "://" + memberName(p, store, ordinal) + ":" + port
}

// hostedComponent is a component as the containers of its pods run it.
func hostedComponent(p *plan.Plan, c plan.Component, moved map[string]string) plan.Component {
	c.Host = hostedName
	c.Args = slices.Clone(c.Args)
	for i := range c.Args {
		a := &c.Args[i]
		if c.Kind == plan.Etcd {
			hostedMemberArg(p, &c, a)
		} else {
			hostedArg(&c, a, moved)
		}
	}
	if c.Liveness != nil {
		probe := *c.Liveness
		probe.Host = ""
		c.Liveness = &probe
		patient := probe
		patient.DelaySeconds, patient.FailureThreshold = 10, 24
		c.Startup = &patient
	}
	return c
}

// hostedArg changes what a plan for hosts says of addresses. What the spec says stays.
func hostedArg(c *plan.Component, a *plan.Arg, moved map[string]string) {
	switch name := kubever.FlagName(a.Name); {
	case name == "etcd-servers" || name == "etcd-servers-overrides":
		a.Value = replaceEndpoints(a.Value, moved)
	case a.Origin != plan.FromPlan:
	case name == "advertise-address":
		a.Value, a.Why = "$("+podIP+")", "the pod's"
	case name == "bind-address" || name == "address":
		a.Value, a.Why = "0.0.0.0", "whoever asks comes from outside of the pod"
	}
}

// replaceEndpoints replaces whole URLs of a list, whatever separates them.
func replaceEndpoints(value string, moved map[string]string) string {
	var out strings.Builder
	for value != "" {
		end := strings.IndexAny(value, ",;#")
		if end < 0 {
			end = len(value)
		}
		if to, ok := moved[value[:end]]; ok {
			out.WriteString(to)
		} else {
			out.WriteString(value[:end])
		}
		if end < len(value) {
			out.WriteByte(value[end])
			end++
		}
		value = value[end:]
	}
	return out.String()
}

// hostedMemberArg changes an argument of a member: it is known by the name of its pod, and listens on every address of it.
func hostedMemberArg(p *plan.Plan, c *plan.Component, a *plan.Arg) {
	here := func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		return scheme + "://0.0.0.0:" + rest[strings.LastIndexByte(rest, ':')+1:]
	}
	self := "$(" + podName + ")." + serviceName(p, c.Name)
	named := func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		return scheme + "://" + self + ":" + rest[strings.LastIndexByte(rest, ':')+1:]
	}
	first, _, _ := strings.Cut(a.Value, ",")
	switch a.Name {
	case "name":
		a.Value, a.Why = "$("+podName+")", "the member's name is the pod's"
	case "listen-client-urls", "listen-peer-urls", "listen-metrics-urls":
		a.Value, a.Why = here(first), "whoever asks comes from outside of the pod"
	case "advertise-client-urls", "initial-advertise-peer-urls":
		a.Value, a.Why = named(first), "the pod's name stays, its address does not"
	case "initial-cluster":
		var members []string
		for n, member := range strings.Split(a.Value, ",") {
			_, url, _ := strings.Cut(member, "=")
			ordinal := strconv.Itoa(n)
			members = append(members, c.Name+"-"+ordinal+"="+memberURL(p, c.Store, ordinal, url))
		}
		a.Value, a.Why = strings.Join(members, ","), "one member in every pod"
	}
}

// hostedKubeconfig reaches the API server of its side by the server's service.
func hostedKubeconfig(p *plan.Plan, k plan.Kubeconfig) plan.Kubeconfig {
	k.Host = hostedName
	for _, c := range p.Components {
		if c.Name != k.Component {
			continue
		}
		for _, server := range p.ComponentsOf(c.Side, kubever.APIServer) {
			k.Server = "https://" + hostPort(serviceName(p, server.Name), p.Side(c.Side).Port)
		}
		break
	}
	return k
}

// hostedCertificate has the names of services and pods for those of hosts.
func hostedCertificate(p *plan.Plan, c plan.Certificate, first spec.Host) plan.Certificate {
	c.Host = hostedName
	c.DNSNames = slices.DeleteFunc(slices.Clone(c.DNSNames), func(n string) bool { return n == first.Name })
	c.IPs = slices.DeleteFunc(slices.Clone(c.IPs), func(ip string) bool { return ip == first.Address })
	for _, component := range p.Components {
		if component.Host != first.Name || !presents(&component, c.Cert) {
			continue
		}
		c.DNSNames = append(c.DNSNames, component.Name, component.Name+"."+p.Name, serviceName(p, component.Name))
		if component.Kind == plan.Etcd {
			c.CommonName = component.Name
			for n := range p.Hosts {
				c.DNSNames = append(c.DNSNames, memberName(p, component.Store, strconv.Itoa(n)))
			}
		}
	}
	return c
}

// presents reports whether a component serves with a certificate.
func presents(c *plan.Component, file string) bool {
	return slices.ContainsFunc(c.Args, func(a plan.Arg) bool {
		return a.Value == file && slices.Contains([]string{"tls-cert-file", "cert-file", "peer-cert-file"}, kubever.FlagName(a.Name))
	})
}

// secretFile is a file that a pod has from its Secret.
type secretFile struct {
	Key  string // in the Secret
	Path string // in the pod
}

// secretOf names the Secret that holds the files of a component, and no others.
func secretOf(c *plan.Component) string { return c.Name + "-files" }

// secretFiles are the files that the arguments and the kubeconfig of a component name and that the plan does not write itself.
func secretFiles(p *plan.Plan, c *plan.Component) []secretFile {
	var paths []string
	for _, a := range c.Args {
		if path.IsAbs(a.Value) && a.Value != p.PolicyFile && kubeconfigAt(p, c, a.Value) == nil && mountOf(c, a.Value) != nil {
			paths = append(paths, path.Clean(a.Value))
		}
	}
	for _, k := range p.Kubeconfigs {
		if k.Component == c.Name && k.Host == c.Host {
			paths = append(paths, path.Clean(k.CA), path.Clean(k.Cert), path.Clean(k.Key))
		}
	}
	slices.Sort(paths)
	var files []secretFile
	taken := map[string]bool{}
	for _, file := range slices.Compact(paths) {
		key := secretKey(path.Base(file))
		for n := 2; taken[key]; n++ {
			key = secretKey(path.Base(path.Dir(file))) + "." + secretKey(path.Base(file))
			if taken[key] {
				key += "." + strconv.Itoa(n)
			}
		}
		taken[key] = true
		files = append(files, secretFile{Key: key, Path: file})
	}
	return files
}

// secretKey is a file name as the key of a Secret may be: letters, digits, - _ and dots.
func secretKey(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)) {
			return r
		}
		return '_'
	}, name)
}

// mountOf is the innermost read-only mount below which a file lies, nil for none.
func mountOf(c *plan.Component, file string) *plan.Mount {
	var found *plan.Mount
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.ReadOnly && within(path.Clean(file), path.Clean(m.Path)) && (found == nil || len(m.Path) > len(found.Path)) {
			found = m
		}
	}
	return found
}

// kubeconfigAt is the kubeconfig of a component that lies at the path, nil for none.
func kubeconfigAt(p *plan.Plan, c *plan.Component, file string) *plan.Kubeconfig {
	for i := range p.Kubeconfigs {
		if k := &p.Kubeconfigs[i]; k.Component == c.Name && k.Host == c.Host && k.Path == file {
			return k
		}
	}
	return nil
}

// hostedFiles are the manifests of a hosted plan, numbered in the order in which they are applied.
func hostedFiles(p *plan.Plan) ([]File, error) {
	h := HostedPlan(p)
	rules, err := policyData(p)
	if err != nil {
		return nil, err
	}
	policyMap := string(rules)
	files := []File{}
	add := func(file string, data []byte, err error) error {
		files = append(files, File{Path: file, Mode: private, Data: data})
		return err
	}
	data, err := document("Written by fusionctl render. Change the spec, not this file.", hostedNamespace(h))
	if err := add(hostedName+"/00-namespace.yaml", data, err); err != nil {
		return nil, err
	}
	for i := range h.Components {
		c := &h.Components[i]
		if err := checkHosted(h, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		data, err := hostedManifest(h, c, len(p.Hosts), policyMap)
		if err := add(hostedFile(i, c), data, err); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// checkHosted refuses what a pod of another cluster cannot have: a file of a host that nothing in the plan names one by one.
func checkHosted(p *plan.Plan, c *plan.Component) error {
	for _, k := range p.Kubeconfigs {
		if k.Component != c.Name {
			continue
		}
		for _, file := range []string{k.Path, k.CA, k.Cert, k.Key} {
			if mountOf(c, file) == nil {
				return fmt.Errorf("%s: no mount of the component holds it", file)
			}
		}
	}
	return nil
}

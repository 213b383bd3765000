// Package render turns a plan into files: static pods, systemd units or manifests for another cluster, the kubeconfigs
// and the policy beside them, and a runbook for exactly this plan. It computes contents; who writes them is not its
// concern.
package render

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// Target is what runs the components.
type Target string

const (
	StaticPod Target = "static-pod" // the kubelets of the control-plane machines
	Systemd   Target = "systemd"    // systemd of the control-plane machines
	Hosted    Target = "hosted"     // another cluster, as ordinary pods
)

// Targets lists the targets, the default first.
var Targets = []string{string(StaticPod), string(Systemd), string(Hosted)}

// Plan is where the components of a plan for the target run.
func (t Target) Plan() plan.Target {
	if t == Hosted {
		return plan.Hosted
	}
	return plan.OnHosts
}

// File is one file of the rendered tree.
type File struct {
	Path string // relative, with slashes: cp-1/etc/kubernetes/manifests/kube-apiserver.yaml
	Mode fs.FileMode
	Data []byte
}

// Modes of rendered files. Whatever names a key, or may hold a secret in an argument or a variable, is its owner's
// alone.
const (
	private fs.FileMode = 0o600
	public  fs.FileMode = 0o644
)

// Options choose what is rendered.
type Options struct {
	Target Target
	Host   string // only the tree of this host; "" for all
	Spec   string // the name of the spec file, for the commands of the runbook
	// Findings are what the rules say of the plan. The runbook begins with the errors and ends with the warnings.
	Findings []finding.Finding
}

// ManifestDirectory is where manifests of static pods lie on every host.
const ManifestDirectory = "/etc/kubernetes/manifests"

// The other directories of a host's tree.
const (
	unitDirectory = "/etc/systemd/system"
	// existingDirectory holds what the plan makes of components that run already. It stands beside the mirror of the
	// host's file system, so that copying the mirror replaces nothing of a running legacy side.
	existingDirectory = "/existing"
)

// RunbookFile is the name of the runbook at the root of the tree.
const RunbookFile = "RUNBOOK.md"

// Files renders a plan, sorted by path; the same plan gives the same bytes.
//
// Shape: hosted/NN-NAME.yaml are applied in the order of their names; otherwise HOST/... mirrors the file system of
// each host; HOST/existing/... holds components that run already, as the plan would have them; legacy-access.* is what
// the legacy API server has to allow to components that see both sides; RUNBOOK.md says in which order what is
// done, how each step is verified and how to go back. Errors: a plan for another target; a host that the plan does not
// have; what the target cannot express; two files in one place.
func Files(p *plan.Plan, o Options) ([]File, error) {
	if o.Target.Plan() != p.Target {
		return nil, fmt.Errorf("target %q: the plan is for another one", o.Target)
	}
	if o.Host != "" && o.Target == Hosted {
		return nil, fmt.Errorf("host %q: the target hosted has no hosts: its components run as pods of another "+
			"cluster", o.Host)
	}
	if o.Host != "" && !slices.ContainsFunc(p.Components, func(c plan.Component) bool { return c.Host == o.Host }) {
		return nil, fmt.Errorf("host %q: the plan has %s", o.Host, strings.Join(hostNames(p), ", "))
	}
	if err := checkText(p); err != nil {
		return nil, err
	}
	var files []File
	var err error
	switch o.Target {
	case StaticPod, Systemd:
		files, err = hostFiles(p, o)
	case Hosted:
		files, err = hostedFiles(p)
	default:
		return nil, fmt.Errorf("target %q: want one of %s", o.Target, strings.Join(Targets, ", "))
	}
	if err != nil {
		return nil, err
	}
	access, err := legacyAccess(p)
	if err != nil {
		return nil, err
	}
	files = append(files, access...)
	steps, err := runbook(p, o)
	if err != nil {
		return nil, err
	}
	files = append(files, File{Path: RunbookFile, Mode: public, Data: steps})
	if p.Pods != nil && p.Pods.Admission.By == plan.ByPolicy {
		policies, err := podPolicies(p)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: podPoliciesFile, Mode: public, Data: policies})
	}
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for i := 1; i < len(files); i++ {
		if files[i].Path == files[i-1].Path {
			return nil, fmt.Errorf("%s: two files of the plan have this path; change one of them",
				files[i].Path)
		}
	}
	return files, nil
}

// hostFiles are the trees of the hosts.
func hostFiles(p *plan.Plan, o Options) ([]File, error) {
	var files []File
	for i := range p.Components {
		c := &p.Components[i]
		if o.Host != "" && c.Host != o.Host {
			continue
		}
		rendered, err := componentFiles(p, c, o.Target)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", c.Name, c.Host, err)
		}
		files = append(files, rendered...)
		if file, config := admissionFile(p, c); file != "" {
			data, err := admissionConfiguration(p, config)
			if err != nil {
				return nil, err
			}
			files = append(files, File{Path: hostPath(c.Host, file), Mode: private, Data: data})
		}
		if file, data, err := ownPlan(p, c); err != nil {
			return nil, err
		} else if file != "" {
			files = append(files, File{Path: hostPath(c.Host, file), Mode: private, Data: data})
		}
	}
	for i := range p.Kubeconfigs {
		k := &p.Kubeconfigs[i]
		if o.Host != "" && k.Host != o.Host {
			continue
		}
		data, err := kubeconfig(k)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: hostPath(k.Host, k.Path), Mode: private, Data: data})
	}
	rules, err := policyData(p)
	if err != nil {
		return nil, err
	}
	audit, err := auditPolicy()
	if err != nil {
		return nil, err
	}
	for _, host := range hostNames(p) {
		if o.Host != "" && host != o.Host {
			continue
		}
		if p.PolicyFile != "" {
			files = append(files, File{Path: hostPath(host, p.PolicyFile), Mode: private, Data: rules})
		}
		if p.AuditPolicyFile != "" {
			files = append(files, File{Path: hostPath(host, p.AuditPolicyFile), Mode: private, Data: audit})
		}
	}
	return files, nil
}

// componentFiles are the manifest, or the unit and its environment, of one component.
func componentFiles(p *plan.Plan, c *plan.Component, target Target) ([]File, error) {
	root := ""
	if runsAlready(p, c) {
		root = existingDirectory
	}
	if target == StaticPod {
		data, err := staticPod(p, c)
		if err != nil {
			return nil, err
		}
		return []File{{Path: hostPath(c.Host, root+ManifestDirectory+"/"+c.Name+".yaml"), Mode: private, Data: data}},
			nil
	}
	unit, err := systemdUnit(p, c)
	if err != nil {
		return nil, err
	}
	// systemd shows units to everybody whatever their mode, and complains about one that it alone can read.
	files := []File{{Path: hostPath(c.Host, root+unitDirectory+"/"+unitName(c)), Mode: public, Data: unit}}
	if len(c.Env) > 0 {
		environment, err := environmentFile(c)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: hostPath(c.Host, root+environmentPath(c)), Mode: private, Data: environment})
	}
	return files, nil
}

// policyData is the policy file of the modern API server.
func policyData(p *plan.Plan) ([]byte, error) {
	sections, err := policy.Generate(p.Policy)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return policy.Format(sections), nil
}

// hostPath is where a path of a host lies in the tree. It stays within the host's directory whatever the path is.
func hostPath(host, file string) string { return host + path.Clean("/"+file) }

func hostNames(p *plan.Plan) []string {
	var names []string
	for _, h := range p.Hosts {
		names = append(names, h.Name)
	}
	return names
}

// runsAlready reports whether the component is one of a side that runs without this plan.
func runsAlready(p *plan.Plan, c *plan.Component) bool {
	return c.Side != "" && p.Side(c.Side).Existing
}

// checkText refuses what no process can be given: arguments and variables are text that ends at the first NUL.
func checkText(p *plan.Plan) error {
	for _, c := range p.Components {
		values := []string{c.Image}
		values = append(values, c.Command...)
		for _, a := range c.Args {
			values = append(values, a.Name, a.Value)
		}
		for _, e := range c.Env {
			values = append(values, e.Name, e.Value)
		}
		for _, m := range c.Mounts {
			values = append(values, m.Path)
		}
		for _, v := range values {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return fmt.Errorf("%s on %s: %q: want UTF-8 without NUL", c.Name, c.Host, v)
			}
		}
	}
	return nil
}

package render

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// hostedName is the directory of what runs in a cluster.
const hostedName = plan.HostedName

// hostedComponents are those that run in the cluster.
func hostedComponents(p *plan.Plan) []plan.Component {
	return slices.DeleteFunc(slices.Clone(p.Components), func(c plan.Component) bool { return c.Host != hostedName })
}

// secretFile is a file that a pod has from its Secret.
type secretFile struct {
	Key  string // in the Secret
	Path string // in the pod
}

// secretOf names the Secret that holds the files of a component, and no others.
func secretOf(c *plan.Component) string { return c.Name + "-files" }

// secretFiles are the files that the arguments and the kubeconfig of a component name and that the plan does not write
// itself.
func secretFiles(p *plan.Plan, c *plan.Component) []secretFile {
	var paths []string
	for _, a := range c.Args {
		if path.IsAbs(a.Value) && a.Value != p.PolicyFile && a.Value != p.AuditPolicyFile &&
			kubeconfigAt(p, c, a.Value) == nil &&
			mountOf(c, a.Value) != nil {
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
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_.", r)) {
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
		if m.ReadOnly && within(path.Clean(file), path.Clean(m.Path)) &&
			(found == nil || len(m.Path) > len(found.Path)) {
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
	data, err := document("Written by fusionctl render. Change the spec, not this file.", hostedNamespace(p))
	if err := add(hostedName+"/00-namespace.yaml", data, err); err != nil {
		return nil, err
	}
	components := hostedComponents(p)
	for i := range components {
		c := &components[i]
		if err := checkHosted(p, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		data, err := hostedManifest(p, c, len(p.Hosts), policyMap)
		if err := add(hostedFile(i, c), data, err); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// checkHosted refuses what a pod of another cluster cannot have: a file of a host that nothing in the plan names one by
// one.
func checkHosted(p *plan.Plan, c *plan.Component) error {
	for _, k := range p.Kubeconfigs {
		if k.Component != c.Name {
			continue
		}
		for _, file := range []string{k.Path, k.CA, k.Cert, k.Key} {
			if mountOf(c, file) == nil {
				return fmt.Errorf("%s: no mount of the component has it", file)
			}
		}
	}
	return nil
}

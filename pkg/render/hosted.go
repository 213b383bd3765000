package render

import (
	"bytes"
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
		if path.IsAbs(a.Value) && !plan.ReadsDirectory(a.Name) && a.Value != p.PolicyFile &&
			a.Value != p.AuditPolicyFile && kubeconfigAt(p, c, a.Value) == nil &&
			!(a.Name == "plan" && plan.SeesBoth(c.Kind)) &&
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
	data, err := document("Written by fusionctl render. Change the spec, not this file.", hostedNamespace(p))
	if err != nil {
		return nil, err
	}
	files := []File{{Path: hostedName + "/00-namespace.yaml", Mode: private, Data: data}}
	components := hostedComponents(p)
	for i := range components {
		c := &components[i]
		if err := checkHosted(p, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		data, err := hostedManifest(p, c, len(p.Hosts), policyMap)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: hostedFile(i, c), Mode: private, Data: data})
	}
	return files, nil
}

// HostedPart is one component of a hosted plan, and its objects.
type HostedPart struct {
	Component *plan.Component
	Manifest  []byte // documents of YAML: what Files writes for the component
	Pods      []byte // the last of these documents: of the object that has the pods
	Kind      string // of the object that has the pods: Deployment or StatefulSet; its name is the component's
	Secrets   []HostedSecret
}

// HostedSecret is a Secret that the pods of a component have files from, which no manifest holds.
type HostedSecret struct {
	Name string
	// Files are the paths of the plan by their keys in the Secret. Without any, the component reads a directory of
	// which the plan knows no file: its owner fills the Secret.
	Files     map[string]string
	Directory string // that the component sees, of one without Files
}

// HostedParts are the components of a hosted plan that run in a cluster, in the plan's order. Errors: those of Files.
func HostedParts(p *plan.Plan) ([]HostedPart, error) {
	if p.Target != plan.Hosted {
		return nil, fmt.Errorf("target %q: want a hosted plan", p.Target)
	}
	if err := checkText(p); err != nil {
		return nil, err
	}
	files, err := hostedFiles(p)
	if err != nil {
		return nil, err
	}
	components := hostedComponents(p)
	parts := make([]HostedPart, 0, len(components))
	for i := range components {
		c := &components[i]
		part := HostedPart{Component: c, Manifest: files[i+1].Data, Kind: HostedKind(c)} // after the namespace
		part.Pods = part.Manifest
		if at := bytes.LastIndex(part.Manifest, []byte("\n---\n")); at >= 0 {
			part.Pods = part.Manifest[at+len("\n---\n"):]
		}
		if named := secretFiles(p, c); len(named) > 0 {
			s := HostedSecret{Name: secretOf(c), Files: map[string]string{}}
			for _, f := range named {
				s.Files[f.Key] = f.Path
			}
			part.Secrets = append(part.Secrets, s)
		}
		texts, err := configTexts(p, c, "")
		if err != nil {
			return nil, err
		}
		for j := range c.Mounts {
			if m := &c.Mounts[j]; m.ReadOnly && !holdsAny(p, c, m, texts) {
				part.Secrets = append(part.Secrets, HostedSecret{Name: directorySecret(c, m),
					Directory: path.Clean("/" + m.Path)})
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// HostedKind is the kind of the object that has the pods of a component.
func HostedKind(c *plan.Component) string {
	if directory, _ := keeps(c); directory != "" {
		return statefulSet
	}
	return "Deployment"
}

const statefulSet = "StatefulSet"

// HostedClaim is the name of the PersistentVolumeClaim of a pod that keeps something.
func HostedClaim(pod string) string { return dataVolume + "-" + pod }

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
	for _, a := range c.Args { // it becomes a Secret with what is in it, which is not known here
		if m := mountOf(c, a.Value); plan.ReadsDirectory(a.Name) &&
			(m == nil || path.Clean(m.Path) != path.Clean(a.Value)) {
			return fmt.Errorf("--%s %s: other files of the component are in a directory above it; want a directory of "+
				"its own, such as /etc/fusionctl/%s", a.Name, a.Value, a.Name)
		}
	}
	return nil
}

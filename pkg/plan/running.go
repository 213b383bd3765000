package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// runningKinds are the components of the legacy side, whose files a plan knows of when they run already.
var runningKinds = []string{kubever.APIServer, kubever.ControllerManager, kubever.Scheduler}

// legacyComponent is what the spec says of a component of the legacy side, nil for none.
func (b *basis) legacyComponent(kind string) *spec.Component {
	s := &b.file.Spec.Legacy
	switch kind {
	case kubever.APIServer:
		return &s.APIServer.Component
	case kubever.ControllerManager:
		return s.ControllerManager
	}
	return s.Scheduler
}

// runsWith are the arguments with which a component of an existing legacy side runs on a host: those of the spec, which
// are the first host's, with the host's own in their places.
func (b *basis) runsWith(host spec.Host, kind string) []spec.Arg {
	c := b.legacyComponent(kind)
	if c == nil {
		return nil
	}
	args := b.onHost(host, c.ExtraArgs)
	if host.Legacy == nil {
		return args
	}
	own := map[string][]spec.Change{
		kubever.APIServer: host.Legacy.APIServer, kubever.ControllerManager: host.Legacy.ControllerManager,
		kubever.Scheduler: host.Legacy.Scheduler,
	}[kind]
	return replaced(args, own)
}

// replaced puts changes in the places of the arguments of their names; an argument that was not there follows the
// others.
func replaced(args []spec.Arg, changes []spec.Change) []spec.Arg {
	var list []spec.Arg
	placed := map[string]bool{}
	add := func(name string) {
		for _, c := range changes {
			if kubever.FlagName(c.Name) == name && !c.Remove {
				list = append(list, spec.Arg{Name: c.Name, Value: c.Value})
			}
		}
		placed[name] = true
	}
	for _, a := range args {
		name := kubever.FlagName(a.Name)
		switch {
		case !slices.ContainsFunc(changes, func(c spec.Change) bool { return kubever.FlagName(c.Name) == name }):
			list = append(list, a)
		case !placed[name]:
			add(name)
		}
	}
	for _, c := range changes {
		if name := kubever.FlagName(c.Name); !placed[name] {
			add(name)
		}
	}
	return list
}

// runningFiles are the files of a host that arguments of the running legacy side name. Nothing else shows that a file
// exists.
func (b *basis) runningFiles(host spec.Host) map[string]bool {
	files := map[string]bool{}
	if !b.file.Spec.Legacy.Existing {
		return files
	}
	for _, kind := range runningKinds {
		c := b.legacyComponent(kind)
		for _, a := range b.runsWith(host, kind) {
			if ReadsFile(a.Name) && path.IsAbs(a.Value) {
				if file, ok := c.OnHost(a.Value); ok {
					files[file] = true
				}
			}
		}
	}
	return files
}

// onHosts reports whether the operator says of a file that it is on every host.
func (b *basis) onHosts(file string) bool {
	return slices.ContainsFunc(b.file.Spec.HostFiles, func(said string) bool {
		return file == said || strings.HasPrefix(file, strings.TrimSuffix(said, "/")+"/")
	})
}

// exists reports whether files are on the host before anything of the plan is there, or in an object of the cluster
// from which they are copied.
func (b *basis) exists(host spec.Host, files ...string) bool {
	running, own := b.runningFiles(host), b.file.Spec.PKI.Directory+"/modern/"
	return !slices.ContainsFunc(files, func(file string) bool {
		if strings.HasPrefix(file, own) { // whatever is said of the directory
			return !running[file]
		}
		return !running[file] && !b.onHosts(file) && b.objectWith(file) == ""
	})
}

// fileOn is where a file lies on a host that the spec names as it lies on the first one: the argument that names it
// there names it here.
func (b *basis) fileOn(host spec.Host, file string) string {
	if host.Legacy == nil || file == "" {
		return file
	}
	for _, kind := range runningKinds {
		c := b.legacyComponent(kind)
		if c == nil {
			continue
		}
		here := b.runsWith(host, kind)
		for i, a := range c.ExtraArgs {
			name := kubever.FlagName(a.Name)
			first, ok := c.OnHost(a.Value)
			if !ok || first != file || !ReadsFile(name) {
				continue
			}
			if own, ok := c.OnHost(sameArgument(c.ExtraArgs, i, here)); ok && own != "" {
				return own
			}
		}
	}
	return file
}

// sameArgument is the value that a list has for the argument at an index of another list: of several of one name the
// one at the same place among them, the last where the list has fewer.
func sameArgument(list []spec.Arg, at int, other []spec.Arg) string {
	name, nth := kubever.FlagName(list[at].Name), 0
	for _, a := range list[:at] {
		if kubever.FlagName(a.Name) == name {
			nth++
		}
	}
	value := ""
	for _, a := range other {
		if kubever.FlagName(a.Name) == name {
			if value = a.Value; nth == 0 {
				break
			}
			nth--
		}
	}
	return value
}

// filesOn puts the files of the host in the places of the first host's.
func (b *basis) filesOn(host spec.Host, args []Arg) {
	for i := range args {
		if ReadsFile(args[i].Name) {
			args[i].Value = b.fileOn(host, args[i].Value)
		}
	}
}

// Unprovided is a file that a component of the plan reads and that nothing provides: no argument of the running legacy
// side names it, pki does not issue it, and render does not write it.
type Unprovided struct {
	Host      string `json:"host"`
	Component string `json:"component"`
	Flag      string `json:"flag"`
	File      string `json:"file"`
	Object    string `json:"object,omitempty"` // in which the legacy side has it: a Secret, a ConfigMap, another volume
}

// unprovided looks at what is to be started beside a legacy side that runs already. Of one that does not, the spec is
// all that there is: what it names is there.
func (b *basis) unprovided(all parts) []Unprovided {
	if !b.file.Spec.Legacy.Existing || b.target == Hosted {
		return nil
	}
	var list []Unprovided
	for _, host := range b.file.Spec.Hosts {
		known := b.providedFiles(host, all)
		for i := range all.components {
			c := &all.components[i]
			if c.Host != host.Name || c.Side == pair.Legacy {
				continue
			}
			for _, a := range c.Args {
				name := kubever.FlagName(a.Name)
				if !ReadsFile(name) || a.Value == "" || known[a.Value] || b.onHosts(a.Value) {
					continue
				}
				list = append(list, Unprovided{Host: host.Name, Component: c.Name, Flag: name, File: a.Value,
					Object: b.objectWith(a.Value)})
			}
		}
	}
	return list
}

// providedFiles are the files of a host that are there, are issued, or are rendered.
func (b *basis) providedFiles(host spec.Host, all parts) map[string]bool {
	known := b.runningFiles(host)
	for _, c := range all.certificates {
		if c.Host == host.Name && !c.Existing {
			known[c.Cert], known[c.Key] = true, true
		}
	}
	for _, k := range all.kubeconfigs {
		if k.Host == host.Name {
			known[k.Path] = true
		}
	}
	if key := b.tokenKey(); key != nil {
		known[key.Private], known[key.Public] = true, true
	}
	for _, file := range []string{policyFile, planFile, gatewayPlan, auditPolicyFile, admissionFile} {
		known[file] = true
	}
	for i := range b.file.Spec.Stores { // of stores that other people run
		if tls := b.file.Spec.Stores[i].TLS; tls != nil && !b.fromRunning(tls) {
			for _, file := range tls.Files() {
				known[file] = true
			}
		}
	}
	return known
}

// fromRunning reports whether files for an etcd client are those of the running legacy side, whose arguments tell where
// they are.
func (b *basis) fromRunning(tls *spec.TLS) bool {
	for i, flag := range []string{"etcd-cafile", "etcd-certfile"}[:min(len(tls.Files()), 2)] {
		if value, ok := b.file.Spec.Legacy.RunsWith(kubever.APIServer, flag); !ok || value != tls.Files()[i] {
			return false
		}
	}
	return true
}

// objectWith names the object of the cluster in which the legacy side has a file, "" for none.
func (b *basis) objectWith(file string) string {
	for _, kind := range runningKinds {
		if c := b.legacyComponent(kind); c != nil {
			if object := c.Object(file); object != "" {
				return object
			}
		}
	}
	return ""
}

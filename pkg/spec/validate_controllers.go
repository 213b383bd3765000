package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
)

// ofControllers are flags of `fusionctl controllers` that follow from the rest of the file, and what says them.
var ofControllers = map[string]string{
	"collect": "the plan itself", "listen": "spec.controllers.port", "plan": "the plan itself",
	"spec": "the plan itself", "legacy-kubeconfig": "spec.legacy", "modern-kubeconfig": "spec.modern",
	"webhook-ca": "spec.pods", "webhook-cert": "spec.pods", "webhook-key": "spec.pods", "webhook-listen": "spec.pods",
	"webhook-url": "spec.pods",
}

func (v *validator) controllers() {
	const at = "spec.controllers"
	c := v.file.Spec.Controllers
	if c == nil {
		return
	}
	v.image(at+".image", c.Image)
	if v.absolute(at+".binary", c.Binary, true) && strings.Contains(c.Binary, "$") {
		v.expect(at+".binary", c.Binary, "want a program without $ in its name, which units cannot say")
	}
	if v.port(at+".port", c.Port) {
		for _, side := range []struct {
			at     string
			server *APIServer
		}{{"spec.legacy.apiServer.port", v.file.Spec.Legacy.APIServer},
			{"spec.modern.apiServer.port", v.file.Spec.Modern.APIServer}} {
			if side.server != nil && side.server.Port == c.Port {
				v.addf(at+".port", "%d: is %s too, and both listen on the same hosts", c.Port, side.at)
			}
		}
	}
	v.controllersHosts(at+".hosts", c.Hosts)
	for i, arg := range c.ExtraArgs {
		v.controllersFlag(index(at+".extraArgs", i)+".name", arg.Name)
	}
	runs := len(c.Hosts)
	if runs == 0 {
		runs = len(v.file.Spec.Hosts)
	}
	i := slices.IndexFunc(c.ExtraArgs, func(a Arg) bool { return a.Name == "leader-elect" && a.Value == "false" })
	if i >= 0 && runs > 1 {
		v.addf(index(at+".extraArgs", i)+".value", "they run on %d hosts, and without leader election all of them "+
			"act; want one host in spec.controllers.hosts, or leader election", runs)
	}
}

func (v *validator) controllersHosts(at string, hosts []string) {
	var names []string
	for _, h := range v.file.Spec.Hosts {
		names = append(names, h.Name)
	}
	once := seen[string]{}
	for i, name := range hosts {
		at := index(at, i)
		if slices.Contains(names, name) {
			once.once(v, at, name)
			continue
		}
		want := "want one of spec.hosts: " + strings.Join(names, ", ")
		if near, ok := spelling.Nearest(name, names); ok {
			want += fmt.Sprintf("; did you mean %q?", near)
		}
		v.expect(at, name, want)
	}
}

func (v *validator) controllersFlag(at, name string) {
	if slices.Contains(ControllersFlags, name) {
		return
	}
	if says, ok := ofControllers[name]; ok {
		v.addf(at, "%q: follows from %s", name, says)
		return
	}
	want := "want one of " + strings.Join(ControllersFlags, ", ")
	if near, ok := spelling.Nearest(name, ControllersFlags); ok {
		want += fmt.Sprintf("; did you mean %q?", near)
	}
	v.expect(at, name, want)
}

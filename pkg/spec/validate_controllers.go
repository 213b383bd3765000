package spec

import (
	"fmt"
	"slices"
	"strings"
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
	v.binary(at+".binary", c.Binary)
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
	v.someHosts(at+".hosts", c.Hosts)
	for i, arg := range c.ExtraArgs {
		v.flagOf(index(at+".extraArgs", i)+".name", arg.Name, ControllersFlags, ofControllers)
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

// binary wants the program of fusionctl on a host.
func (v *validator) binary(at, file string) {
	if v.absolute(at, file, true) && strings.Contains(file, "$") {
		v.expect(at, file, "want a program without $ in its name, which units cannot say")
	}
}

// someHosts wants names of spec.hosts, each once.
func (v *validator) someHosts(at string, hosts []string) {
	var names []string
	for _, h := range v.file.Spec.Hosts {
		names = append(names, h.Name)
	}
	once, known := seen[string]{}, map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for i, name := range hosts {
		at := index(at, i)
		if known[name] {
			once.once(v, at, name)
			continue
		}
		if v.Full() {
			v.expect(at, name, "want one of spec.hosts")
			continue
		}
		want := "want one of spec.hosts: " + strings.Join(names, ", ")
		if near, ok := v.nearest(name, names); ok {
			want += fmt.Sprintf("; did you mean %q?", near)
		}
		v.expect(at, name, want)
	}
}

// flagOf wants one of the flags; follows has those that other fields say.
func (v *validator) flagOf(at, name string, flags []string, follows map[string]string) {
	if slices.Contains(flags, name) {
		return
	}
	if says, ok := follows[name]; ok {
		v.addf(at, "%q: follows from %s", name, says)
		return
	}
	want := "want one of " + strings.Join(flags, ", ")
	if near, ok := v.nearest(name, flags); ok {
		want += fmt.Sprintf("; did you mean %q?", near)
	}
	v.expect(at, name, want)
}

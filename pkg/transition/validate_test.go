package transition

import (
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// A file of steps may come from somebody else: what it does is what its titles say, on its hosts alone.
func TestValidateWantsWhatNewWrites(t *testing.T) {
	file := func(path string) *File { return &File{Path: path, Mode: 0o600} }
	put := func(path string) Step {
		return Step{ID: "001", Host: "cp-1", Title: "put " + path, Do: &Action{Kind: PutFile, File: file(path)},
			Undo: &Action{Kind: RemoveFile, File: file(path)}}
	}
	unit := func(unit, title string) Step {
		return Step{ID: "001", Host: "cp-1", Title: title, Do: &Action{Kind: StartUnit, Unit: unit}}
	}
	with := func(change func(*Step)) Step {
		s := put("/etc/a")
		change(&s)
		return s
	}
	here := Host{Name: "cp-1", Address: "192.0.2.1"}
	handOver := func(name, key, kind, pods string) Step {
		return Step{ID: "001", Host: "cp-1", Title: "hand " + name + " over to the modern side",
			Do: &Action{Kind: HandOver, Objects: &Objects{Record: "hand-over", Names: []string{name}, Pods: "core",
				From: plan.Store{Name: "core"}, To: plan.Store{Name: "modern"}, Plan: handover.Plan{Prefix: "/registry",
					Pods: pods, Resources: []handover.Resource{{Key: key, Kind: kind, StoredAs: "apps/v1"}}}}}}
	}
	for name, c := range map[string]struct {
		host Host
		step Step
		ok   bool
	}{
		"a put":                  {here, put("/etc/a"), true},
		"a unit":                 {here, unit("etcd.service", "start etcd"), true},
		"an option of ssh":       {Host{"cp-1", "-oProxyCommand=id"}, put("/etc/a"), false},
		"a zone":                 {Host{"cp-1", "fe80::1%$(id)"}, put("/etc/a"), false},
		"a host above":           {Host{"..", "192.0.2.1"}, with(func(s *Step) { s.Host = ".." }), false},
		"no host":                {here, with(func(s *Step) { s.Host = "cp-2" }), false},
		"a path above":           {here, put("/../../etc/a"), false},
		"a relative path":        {here, put("etc/a"), false},
		"another title":          {here, with(func(s *Step) { s.Do.File = file("/etc/shadow") }), false},
		"another way back":       {here, with(func(s *Step) { s.Undo.File = file("/etc/shadow") }), false},
		"another file before":    {here, with(func(s *Step) { s.Do.Was = file("/etc/shadow") }), false},
		"no file":                {here, with(func(s *Step) { s.Do.File = nil }), false},
		"set user id":            {here, with(func(s *Step) { s.Do.File.Mode = 1<<23 | 0o755 }), false},
		"an unknown action":      {here, with(func(s *Step) { s.Do.Kind = "other" }), false},
		"an option of systemctl": {here, unit("--root=x.service", "start --root=x"), false},
		"another unit":           {here, unit("sshd.service", "start etcd"), false},
		"a store above": {here, Step{ID: "001", Host: "cp-1", Title: "snapshot store ../a",
			Do: &Action{Kind: Snapshot, Store: &plan.Store{Name: "../a"}}}, false},
		"a release": {here, Step{ID: "001", Host: "cp-1", Undo: &Action{Kind: Release, Marks: &Marks{}},
			Title: "take out what the controllers of both sides leave behind"}, true},
		"a release of another title": {here, Step{ID: "001", Host: "cp-1", Title: "wait",
			Undo: &Action{Kind: Release, Marks: &Marks{}}}, false},
		"a program that is run": {here, with(func(s *Step) {
			s.Do.Before = []Check{{Kind: Program, Path: "/tmp/x"}}
		}), false},
		"a hand-over":            {here, handOver("deployments", "deployments", "Deployment", "pods"), true},
		"ingresses":              {here, handOver("ingresses", "ingress", "Ingress", "pods"), true},
		"what no title names":    {here, handOver("deployments", "daemonsets", "DaemonSet", "pods"), false},
		"what stays where it is": {here, handOver("secrets", "secrets", "Secret", "pods"), false},
		"another kind":           {here, handOver("deployments", "deployments", "Secret", "pods"), false},
		"pods elsewhere":         {here, handOver("deployments", "deployments", "Deployment", "secrets"), false},
		"more than the names": {here, func() Step {
			s := handOver("deployments", "deployments", "Deployment", "pods")
			resources := &s.Do.Objects.Plan.Resources
			*resources = append(*resources, (*resources)[0])
			return s
		}(), false},
		"a check of nothing": {here, with(func(s *Step) { s.Do.After = []Check{{Kind: Ready}} }), false},
	} {
		tr := Transition{Hosts: []Host{c.host}, Steps: []Step{c.step}}
		if err := tr.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v, want valid %v", name, err, c.ok)
		}
	}
	twice := Transition{Hosts: []Host{here}, Steps: []Step{put("/etc/a"), put("/etc/a")}}
	if twice.Validate() == nil {
		t.Error("a number twice is valid")
	}
}

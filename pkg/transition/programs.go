package transition

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// programOf is what a plan says of a program of a host, nil for nothing.
func programOf(p *plan.Plan, host, file string) *spec.Program {
	if p == nil {
		return nil
	}
	for i := range p.Programs {
		if q := &p.Programs[i]; q.Path == file && q.On(host) {
			return q
		}
	}
	return nil
}

// digestOf is that of the program, "" where the plan does not say it.
func digestOf(p *plan.Plan, host, file string) string {
	if q := programOf(p, host, file); q != nil {
		return q.SHA256
	}
	return ""
}

// binaryOf is where the program comes from, nil where the plan says nothing of it.
func binaryOf(p *plan.Plan, host, file string) *Binary {
	q := programOf(p, host, file)
	if q == nil {
		return nil
	}
	return &Binary{Path: q.Path, SHA256: q.SHA256, File: q.File, Image: q.Image}
}

// started are the programs that units, kubelets and pods of hosts start.
func started(s Setup) (map[place]bool, error) {
	files := map[place]bool{}
	if s.Plan == nil {
		return files, nil
	}
	parts, err := render.Parts(s.Plan, s.Target)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		p, c := &parts[i], parts[i].Component
		if p.Program != "" {
			files[place{c.Host, p.Program}] = true
		}
		for _, m := range c.Mounts { // a pod has the program of its host mounted
			if m.Path == c.Program && c.Program != "" {
				files[place{c.Host, c.Program}] = true
			}
		}
	}
	for _, n := range s.Plan.Nodes {
		files[place{n.Name, n.Program}] = true
	}
	return files, nil
}

// refusePrograms lists programs of the second plan that nothing starts: a version in their paths may be an old one. And
// those of kubelets that would be another file in the same place: a kubelet is restarted, and not stopped in between.
func refusePrograms(from, to Setup) []string {
	if to.Plan == nil || len(to.Plan.Programs) == 0 {
		return nil
	}
	files, err := started(to)
	if err != nil {
		return nil // which New says
	}
	var reasons []string
	for i := range to.Plan.Programs {
		p := &to.Plan.Programs[i]
		if slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(at place) bool {
			return at.path == p.Path && p.On(at.host)
		}) {
			continue
		}
		var others []string
		for at := range files {
			if p.On(at.host) && path.Base(at.path) == path.Base(p.Path) {
				others = append(others, at.path)
			}
		}
		reason := fmt.Sprintf("spec.programs[%d].path: nothing starts %s", i, p.Path)
		if slices.Sort(others); len(others) > 0 {
			reason += "; what is started is " + prose.First(slices.Compact(others), mostNamed)
		} else if to.Target == render.StaticPod {
			reason += ": the components are pods, of images"
		}
		reasons = append(reasons, reason)
	}
	if from.Plan == nil {
		return reasons
	}
	for _, n := range to.Plan.Nodes {
		was := slices.IndexFunc(from.Plan.Nodes, func(o plan.Node) bool { return o.Name == n.Name })
		before, after := digestOf(from.Plan, n.Name, n.Program), digestOf(to.Plan, n.Name, n.Program)
		if was >= 0 && from.Plan.Nodes[was].Program == n.Program && before != "" && after != "" && before != after {
			reasons = append(reasons, fmt.Sprintf("spec.kubelet.modern.program: %s would be another program on %s "+
				"while the kubelet runs it: another one needs a path of its own", n.Program, n.Name))
		}
	}
	return reasons
}

// anotherProgram reports whether a component starts another program in the same place.
func (b *builder) anotherProgram(c change) bool {
	if c.was == nil || c.is.Program == "" || c.was.Program != c.is.Program {
		return false
	}
	host := c.is.Component.Host
	before, after := digestOf(b.from.Plan, host, c.is.Program), digestOf(b.to.Plan, host, c.is.Program)
	return before != "" && after != "" && before != after
}

// putsProgram reports whether a program of the second plan is put, and not there by the first one: that lists it for
// hosts that it does not have, too, and for those on which nothing starts it.
func (b *builder) putsProgram(host string, p *spec.Program) bool {
	return !b.started[place{host, p.Path}] || digestOf(b.from.Plan, host, p.Path) != p.SHA256
}

// putProgram adds the step that puts a program into its place.
func (b *builder) putProgram(phase Phase, host string, p *spec.Program) {
	program := Binary{Path: p.Path, SHA256: p.SHA256, File: p.File, Image: p.Image}
	undone := program
	s := Step{Phase: phase, Host: host, Do: &Action{Kind: PutProgram, Program: &program},
		Undo: &Action{Kind: RemoveProgram, Program: &undone}}
	s.Title = s.Do.changes()
	b.placed[place{host, p.Path}] = true
	b.add(s)
}

// programInPlace puts the program of a component that has stopped, and of which the one of before was in the same
// place.
func (b *builder) programInPlace(phase Phase, c change) {
	if c.was == nil || c.is.Program == "" || c.was.Program != c.is.Program {
		return
	}
	host := c.is.Component.Host
	if p := programOf(b.to.Plan, host, c.is.Program); p != nil && !b.placed[place{host, p.Path}] &&
		b.putsProgram(host, p) {
		b.putProgram(phase, host, p)
	}
}

// programs puts the other ones, while what runs goes on: nothing that runs starts them. Where something does that does
// not change, the program that is there has to be that one.
func (b *builder) programs() {
	if b.to.Plan == nil || len(b.to.Plan.Programs) == 0 {
		return
	}
	files, err := started(b.to)
	if err != nil {
		return // which New says
	}
	for _, h := range HostsOf(b.to.Plan) {
		for i := range b.to.Plan.Programs {
			p := &b.to.Plan.Programs[i]
			if at := (place{h.Name, p.Path}); p.On(h.Name) && files[at] && !b.placed[at] && b.putsProgram(h.Name, p) {
				b.putProgram(Prepare, h.Name, p)
			}
		}
	}
}

func (p *Binary) validate() error {
	switch {
	case p == nil:
		return errors.New("has no program")
	case !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || p.Path == "/" || strings.ContainsRune(p.Path, 0),
		!path.IsAbs(p.File) || path.Clean(p.File) != p.File || strings.ContainsRune(p.File, 0):
		return fmt.Errorf("program %q from %q: want absolute and clean paths", p.Path, p.File)
	case !spec.IsSHA256(p.SHA256) || p.Before != nil && *p.Before != "" && !spec.IsSHA256(*p.Before):
		return fmt.Errorf("program %s: %q: want a SHA-256", p.Path, p.SHA256)
	}
	if _, _, _, ok := spec.ImageByDigest(p.Image); p.Image != "" && !ok {
		return fmt.Errorf("program %s: image %q: want one by its digest", p.Path, p.Image)
	}
	return nil
}

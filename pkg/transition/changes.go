package transition

import (
	"bytes"
	"maps"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// place is a path on a host.
type place struct{ host, path string }

// change is a component as it was and as it will be; nil where it is not there.
type change struct{ was, is *render.Part }

func (c change) component() *plan.Component {
	if c.is != nil {
		return c.is.Component
	}
	return c.was.Component
}

// read renders both plans and finds the components and kubelets that differ.
func (b *builder) read() error {
	if err := b.readNodes(); err != nil {
		return err
	}
	was, err := partsOf(b.whole, b.disk)
	if err != nil {
		return err
	}
	if b.started, err = started(b.from); err != nil {
		return err
	}
	was = slices.DeleteFunc(was, func(p render.Part) bool { return slices.Contains(b.lost, p.Component.Host) })
	maps.DeleteFunc(b.disk, func(at place, _ render.File) bool { return slices.Contains(b.lost, at.host) })
	is, err := partsOf(b.to, b.final)
	if err != nil {
		return err
	}
	for i := range is {
		c := change{is: &is[i]}
		if at := slices.IndexFunc(was, func(p render.Part) bool { return same(&p, &is[i]) }); at >= 0 {
			c.was = &was[at]
		}
		if c.was == nil || c.was.Unit != c.is.Unit || !sameFiles(c.was.Start, c.is.Start) ||
			!sameFiles(c.was.Beside, c.is.Beside) || b.anotherProgram(c) || b.otherCertificates(c) {
			b.changes = append(b.changes, c)
		}
	}
	for i := range was {
		if !slices.ContainsFunc(is, func(p render.Part) bool { return same(&p, &was[i]) }) {
			b.changes = append(b.changes, change{was: &was[i]})
		}
	}
	b.readHandOver(was, is)
	return nil
}

func partsOf(s Setup, files map[place]render.File) ([]render.Part, error) {
	if s.Plan == nil {
		return nil, nil
	}
	for host, certificates := range s.Certificates {
		for _, f := range certificates {
			files[place{host, f.Path}] = f
		}
	}
	parts, err := render.Parts(s.Plan, s.Target)
	for _, p := range parts {
		for _, f := range slices.Concat(p.Start, p.Beside) {
			files[place{p.Component.Host, f.Path}] = f
		}
	}
	if err != nil {
		return nil, err
	}
	kubelets, err := kubeletsOf(s)
	for name, k := range kubelets {
		files[place{name, k.kubeconfig.Path}], files[place{name, k.dropIn.Path}] = k.kubeconfig, k.dropIn
	}
	return parts, err
}

func same(a, b *render.Part) bool {
	return a.Component.Host == b.Component.Host && a.Component.Name == b.Component.Name
}

func sameFiles(a, b []render.File) bool { return slices.EqualFunc(a, b, sameFile) }

func sameFile(a, b render.File) bool {
	return a.Path == b.Path && a.Mode == b.Mode && bytes.Equal(a.Data, b.Data)
}

func (b *builder) changed(of func(*plan.Component) bool) []change {
	var found []change
	for _, c := range b.changes {
		if of(c.component()) {
			found = append(found, c)
		}
	}
	return found
}

// daemon selects the controller managers and schedulers of a side.
func daemon(side pair.Side) func(*plan.Component) bool {
	return func(c *plan.Component) bool {
		return c.Side == side && c.Kind != kubever.APIServer && c.Kind != plan.Etcd
	}
}

func server(side pair.Side) func(*plan.Component) bool {
	return func(c *plan.Component) bool { return c.Side == side && c.Kind == kubever.APIServer }
}

func joint(c *plan.Component) bool { return c.Kind == plan.JointControllers }

func gateway(c *plan.Component) bool { return c.Kind == plan.JointGateway }

func etcd(c *plan.Component) bool { return c.Kind == plan.Etcd }

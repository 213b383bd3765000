package transition

import (
	"fmt"
	"path"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Upkeep is what of a plan is on a host while no transition goes on: a component, or the kubelet of a node. An
// agent of the host compares it, and may put it back. Plain data, and JSON.
type Upkeep struct {
	Name string `json:"name"`
	// Unit runs it, "" for a static pod. Program is what the unit starts, Args are its arguments.
	Unit    string `json:"unit,omitempty"`
	Program string `json:"program,omitempty"`
	// ProgramSHA256 is what the plan says of that program, "" where it says nothing.
	ProgramSHA256 string `json:"programSHA256,omitempty"`
	// Binary is where that program comes from, nil where the plan says nothing of it.
	Binary  *Binary  `json:"binary,omitempty"`
	Args    []string `json:"args,omitempty"`
	Image   string   `json:"image,omitempty"` // of a static pod
	Version string   `json:"version,omitempty"`
	// Start are the files that start it, and that it is started anew for. Beside are what it reads.
	Start  []File  `json:"start,omitempty"`
	Beside []File  `json:"beside,omitempty"`
	Ready  []Check `json:"ready,omitempty"` // that it serves
}

// UpkeepOf is what of a setup is on each host, by the host's name, in the plan's order. Errors: what cannot be
// rendered.
func UpkeepOf(s Setup) (map[string][]Upkeep, error) {
	kept := map[string][]Upkeep{}
	if s.Plan == nil {
		return kept, nil
	}
	parts, err := render.Parts(s.Plan, s.Target)
	if err != nil {
		return nil, err
	}
	b := &builder{to: s}
	for i := range parts {
		p, c := &parts[i], parts[i].Component
		u := Upkeep{Name: c.Name, Unit: p.Unit, Program: p.Program, Version: c.Version, Ready: b.ready(s.Plan, c)}
		u.ProgramSHA256, u.Binary = digestOf(s.Plan, c.Host, u.Program), binaryOf(s.Plan, c.Host, u.Program)
		for _, a := range c.Args {
			u.Args = append(u.Args, a.String())
		}
		if p.Unit == "" {
			u.Image = c.Image
		}
		for _, f := range p.Start {
			u.Start = append(u.Start, *stored(f))
		}
		for _, f := range p.Beside {
			u.Beside = append(u.Beside, *stored(f))
		}
		kept[c.Host] = append(kept[c.Host], u)
	}
	kubelets, err := kubeletsOf(s)
	if err != nil {
		return nil, err
	}
	for host, k := range kubelets {
		kept[host] = append(kept[host], Upkeep{Name: "kubelet", Unit: k.node.Unit, Program: k.node.Program,
			ProgramSHA256: digestOf(s.Plan, host, k.node.Program),
			Binary:        binaryOf(s.Plan, host, k.node.Program), Version: k.version.String(),
			Start: []File{*stored(k.dropIn)}, Beside: []File{*stored(k.kubeconfig)}})
	}
	return kept, nil
}

// HostsOf are the machines of a plan: those of the control plane, and the nodes whose kubelets it changes.
func HostsOf(p *plan.Plan) []Host {
	var hosts []Host
	seen := map[string]bool{}
	add := func(name, address string) {
		if !seen[name] {
			seen[name] = true
			hosts = append(hosts, Host{Name: name, Address: address})
		}
	}
	for _, h := range p.Hosts {
		add(h.Name, h.Address)
	}
	for _, n := range p.Nodes {
		add(n.Name, n.Address)
	}
	return hosts
}

// Validate checks what UpkeepOf keeps to, of one that was read from elsewhere.
func (u *Upkeep) Validate() error {
	if !spec.IsLabel(u.Name) {
		return fmt.Errorf("component %q: want a DNS label", u.Name)
	}
	if u.Unit != "" {
		if err := (&Action{Unit: u.Unit}).validateUnit(); err != nil {
			return fmt.Errorf("component %s: %w", u.Name, err)
		}
	}
	if u.Program != "" && (!path.IsAbs(u.Program) || path.Clean(u.Program) != u.Program) {
		return fmt.Errorf("component %s: program %q: want an absolute and clean path", u.Name, u.Program)
	}
	if u.ProgramSHA256 != "" && (u.Program == "" || !spec.IsSHA256(u.ProgramSHA256)) {
		return fmt.Errorf("component %s: program %q, %q: want one with a digest", u.Name, u.Program, u.ProgramSHA256)
	}
	if b := u.Binary; b != nil {
		if err := b.validate(); err != nil {
			return fmt.Errorf("component %s: %w", u.Name, err)
		}
		if b.Path != u.Program || b.SHA256 != u.ProgramSHA256 || b.Before != nil {
			return fmt.Errorf("component %s: program %q comes from that of %q", u.Name, u.Program, b.Path)
		}
	}
	for _, f := range slices.Concat(u.Start, u.Beside) {
		if err := (&Action{Kind: PutFile, File: &f}).validate(); err != nil {
			return fmt.Errorf("component %s: %w", u.Name, err)
		}
	}
	for _, c := range u.Ready {
		if c.Kind != Ready {
			return fmt.Errorf("component %s: check %q: want those that it serves, and no others", u.Name, c.Kind)
		}
	}
	return (&Action{Kind: RunChecks, Before: u.Ready}).validate()
}

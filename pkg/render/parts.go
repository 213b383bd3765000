package render

import (
	"fmt"
	"path"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Part is one component of a plan and the files of its host that belong to it.
type Part struct {
	Component *plan.Component
	Unit      string // the systemd unit; "" for a static pod
	Program   string // what the unit starts; "" for a static pod
	// Start are the files that start it: the manifest, or the unit and its environment. Beside are what it reads:
	// kubeconfigs, the policy, the plan. Paths are those on the host, absolute and clean.
	Start, Beside []File
}

// Parts are the components of a plan that the plan itself runs, in the plan's order: those of a side that runs already
// have none. Every file of a host that Files renders in its place belongs to exactly one part of that host. Errors:
// those of Files.
func Parts(p *plan.Plan, target Target) ([]Part, error) {
	if target == Hosted || target.Plan() != p.Target {
		return nil, fmt.Errorf("target %q: want a plan for hosts, and static-pod or systemd", target)
	}
	if err := checkText(p); err != nil {
		return nil, err
	}
	var parts []Part
	for i := range p.Components {
		c := &p.Components[i]
		if runsAlready(p, c) {
			continue
		}
		files, err := componentFiles(p, c, target)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", c.Name, c.Host, err)
		}
		part := Part{Component: c}
		for _, f := range files {
			f.Path = f.Path[len(c.Host):]
			part.Start = append(part.Start, f)
		}
		if target == Systemd {
			part.Unit, part.Program = unitName(c), programFile(c)
		}
		if part.Beside, err = besideFiles(p, c); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// besideFiles are the files that a component reads and that the plan writes.
func besideFiles(p *plan.Plan, c *plan.Component) ([]File, error) {
	var files []File
	add := func(name string, data []byte, err error) error {
		files = append(files, File{Path: path.Clean("/" + name), Mode: private, Data: data})
		return err
	}
	if file, ok := c.Arg("authorization-policy-file"); ok && file == p.PolicyFile {
		data, err := policyData(p)
		if err := add(file, data, err); err != nil {
			return nil, err
		}
	}
	if file, ok := c.Arg("audit-policy-file"); ok && c.Side == pair.Modern && file == p.AuditPolicyFile {
		data, err := auditPolicy()
		if err := add(file, data, err); err != nil {
			return nil, err
		}
	}
	if file, config := admissionFile(p, c); file != "" {
		data, err := admissionConfiguration(p, config)
		if err := add(file, data, err); err != nil {
			return nil, err
		}
	}
	if file, data, err := ownPlan(p, c); err != nil {
		return nil, err
	} else if file != "" {
		if err := add(file, data, nil); err != nil {
			return nil, err
		}
	}
	for i := range p.Kubeconfigs {
		if k := &p.Kubeconfigs[i]; k.Host == c.Host && k.Component == c.Name {
			data, err := kubeconfig(k)
			if err := add(k.Path, data, err); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// LegacyAccess is what the legacy API server has to allow to components that see both sides, as files for its
// authorization modes; none where it allows everything, or where the plan has no such components.
func LegacyAccess(p *plan.Plan) ([]File, error) {
	if len(legacyUsers(p)) == 0 {
		return nil, nil
	}
	return legacyAccess(p)
}

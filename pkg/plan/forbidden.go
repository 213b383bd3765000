package plan

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// ForbiddenWrites lists what the modern side must not write: what the legacy side owns, in every group that the modern
// side serves it in.
func (p *Plan) ForbiddenWrites() []policy.Forbidden {
	var forbidden []policy.Forbidden
	for _, r := range p.Resources {
		if r.Owner != pair.OwnerLegacy {
			continue
		}
		for _, served := range r.Modern.Serves {
			f := policy.Forbidden{APIGroup: groupOfVersion(served), Resource: r.Name, Why: r.Why}
			if !slices.Contains(forbidden, f) {
				forbidden = append(forbidden, f)
			}
		}
	}
	return forbidden
}

package live

import (
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// What only running servers show.
const (
	Overlap     = "FUS240"
	Mislabelled = "FUS241"
	Differs     = "FUS242"
)

// sideModern is the value of the side label.
const sideModern = spec.SideLabelModern

// sideLabel is the label of the modern side's pods, "" where the spec names none.
func sideLabel(p *plan.Plan) string {
	if p.Pods == nil {
		return ""
	}
	return p.Pods.SideLabel
}

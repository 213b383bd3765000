package render

import (
	"bytes"
	"fmt"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// podPoliciesFile is where the policies stand at the root of the tree, for people to read: the controllers of the plan
// write them.
const podPoliciesFile = "pods-admission.yaml"

// podPolicies are the policies with which the modern API server changes pods, one document for each.
func podPolicies(p *plan.Plan) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Pods that are created through the modern API server are mutated by these. fusionctl controllers " +
		"create and reconcile them.\n")
	for _, object := range admission.For(p.Runtime()).Policies(p.Pods.Admission) {
		text, err := yamltext.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", podPoliciesFile, err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

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

// podPolicies are the policies with which the modern server changes pods, one document for each.
func podPolicies(p *plan.Plan) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Pods that are made through the modern server are changed by these. fusionctl controllers write " +
		"them there, and correct them.\n")
	for _, object := range admission.For(p).Policies(p.Pods.Admission) {
		text, err := yamltext.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", podPoliciesFile, err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

package rules

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// podRules are about what becomes of the modern side's pods on the legacy side's nodes.
func podRules() []rule {
	return []rule{{finding.Rule{
		ID: "FUS164", Title: "Pods of the modern side do not run as specified",
		Why: "The scheduler and the kubelets read pods through the legacy API server, which drops the fields that " +
			"its version does not know: a pod without its startup probe is killed while it starts, one without its " +
			"spread constraints is scheduled to any node, a sidecar becomes an init container that never ends. No " +
			"component reports it, except the modern API server's admission when spec.pods is set.",
		Legacy: kubever.Range{From: 6, To: 35}, Modern: anyVersion, Severity: finding.Warning,
		Evidence: finding.Evidence{
			Seen: "a pod created through 1.36.3 with topologySpreadConstraints: one status update through 1.6.13 " +
				"or 1.10.13, as a kubelet sends it, and they are gone",
			Damage: []string{"TestStatusUpdateErasesFields"}, Prevention: []string{"TestPods"},
			Read: "the field table: pods of every minor, as the API descriptions have them",
		},
		Bad:  example{access: toDevelopers("pods")}.String(),
		Good: example{access: toDevelopers("pods"), more: `pods: {}`}.String(),
	}, unheardFields}, {finding.Rule{
		ID: "FUS228", Title: "The admission webhook for pods does not know its client",
		Why: "The modern API server presents a client certificate to admission webhooks only where " +
			"--admission-control-config-file names a kubeconfig for them. The plan writes that file, and the webhook " +
			"serves no other client, unless the spec or the running legacy side has a file of its own, which the " +
			"plan leaves alone: then every process of a control-plane host may send the webhook pods, and reads in " +
			"the answer which Secret holds the token of a service account. API servers present certificates to " +
			"admission webhooks from 1.9 on; to conversion webhooks none does.",
		Legacy: anyVersion, Modern: kubever.Range{From: 9, To: kubever.Newest}, Severity: finding.Info,
		Evidence: finding.Evidence{Prevention: []string{"TestPods"},
			Read: "apiserver pkg/admission/plugin/webhook of 1.9.11, 1.10.13 and 1.36.3"},
		Bad: example{access: toDevelopers("pods"), legacy: "1.10.13", more: `pods: {}`,
			modernServer: args("admission-control-config-file=/etc/kubernetes/admission.yaml")}.String(),
		Good: example{access: toDevelopers("pods"), legacy: "1.10.13", more: `pods: {}`}.String(),
	}, anonymousAdmission}}
}

// anonymousAdmission reports a webhook to which the modern API server presents no certificate.
func anonymousAdmission(p *plan.Plan) []finding.Finding {
	if p.Pods == nil || p.Pods.Admission.By != plan.ByWebhook || p.Pods.Admission.ClientName != "" ||
		p.Target == plan.Hosted {
		return nil
	}
	return []finding.Finding{{Subject: "the admission webhook for pods",
		Message: fmt.Sprintf("the modern API server has an --admission-control-config-file that the plan does not "+
			"write, so the webhook on port %d of loopback serves every process of the host", p.Pods.Admission.Port),
		Fix: "leave --admission-control-config-file to the plan; or name a kubeconfig for MutatingAdmissionWebhook " +
			"in the file, with a user of the webhook's address, and give --webhook-client-ca and " +
			"--webhook-client-name to fusionctl controllers"}}
}

// podTypes are the types that a pod is made of, as far as their loss is given a meaning.
var podTypes = []string{"v1.Container", "v1.Lifecycle", "v1.LifecycleHandler", "v1.NodeSelectorTerm",
	"v1.PodAffinityTerm", "v1.PodSecurityContext", "v1.PodSpec", "v1.Probe",
	"v1.SecurityContext", "v1.Toleration", "v1.TopologySpreadConstraint", "v1.Volume", "v1.VolumeMount"}

// unheardFields reports the fields of pods that decide how they run and that the legacy side silently drops.
func unheardFields(p *plan.Plan) []finding.Finding {
	if !visible(p, "pods") || !makesPods(p) || p.Pods != nil && p.Pods.UnknownFields != spec.UnknownFieldsIgnore {
		return nil
	}
	legacy, modern := p.Side(pair.Legacy).Version.Minor, p.Side(pair.Modern).Version.Minor
	var lost []string
	for _, typeName := range podTypes {
		for _, field := range kubever.Fields(typeName, modern) {
			if meanings[typeName+"."+field] != "" && kubever.FieldType(typeName, field, legacy) == "" {
				lost = append(lost, strings.TrimPrefix(typeName, "v1.")+"."+field)
			}
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return []finding.Finding{{Subject: "pods", Related: lost,
		Message: fmt.Sprintf("%d fields that decide how a pod is scheduled or runs are silently dropped by %s: %s",
			len(lost), legacy, strings.Join(first(lost, 5), ", ")),
		Fix: "add spec.pods: {unknownFields: warn}, or refuse: the modern API server then warns or refuses when such " +
			"a pod is created; fusionctl check --objects reports it for manifests"}}
}

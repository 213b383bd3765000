package transition

import (
	"cmp"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// admits waits until pods of the modern side are changed on their creation: the leader of the controllers registers
// that some time after it has started, and a pod of the time before cannot run on kubelets of the legacy version. Where
// no host has both the API server and the certificate with which it can be asked, a person looks.
func (b *builder) admits(started []change) {
	p := b.to.Plan
	if p.Pods == nil {
		return
	}
	const title = "wait for the admission of pods"
	for i := range started {
		host := started[i].is.Component.Host
		at := slices.IndexFunc(p.Components, func(c plan.Component) bool {
			return c.Host == host && c.Kind == kubever.APIServer && c.Side == pair.Modern && c.Liveness != nil
		})
		access := jointAccess(p, host, pair.Modern)
		if at < 0 || access == nil {
			continue
		}
		probe := *p.Components[at].Liveness
		probe.Path = admissionPath(p)
		b.add(Step{Phase: Joint, Host: host, Title: title,
			Do: &Action{Kind: RunChecks, Before: []Check{{Kind: Ready, Probe: &probe, CA: access.CA, Cert: access.Cert,
				Key: access.Key, Program: "the admission of pods",
				Hint: "the log of " + started[0].is.Component.Name + " says why it is not registered"}}}})
		return
	}
	b.add(Step{Phase: Joint, Host: started[0].is.Component.Host, Title: title,
		Do: &Action{Kind: ByHand, Text: "no host has both a modern API server and the certificate of user " +
			p.Joint.User + ", with which it could be asked: before any pod is created through the modern API server, " +
			"make sure that it has " + admissionPath(p)}})
}

// jointAccess is how the controllers of both sides reach the API server of a side from a host; nil where they do not.
func jointAccess(p *plan.Plan, host string, side pair.Side) *Access {
	if p.Joint == nil {
		return nil
	}
	for _, k := range p.Kubeconfigs {
		if k.Host == host && k.Component == plan.JointControllers && plan.JointKubeconfig(side) == k.Path {
			return &Access{Side: side, Server: k.Server, CA: k.CA, Cert: k.Cert, Key: k.Key}
		}
	}
	return nil
}

// registrations are the kinds of what the controllers of both sides register for pods, each before what it refers to.
var registrations = []Registration{
	{Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding"},
	{Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy"},
	{Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
}

const registrationGroup = "admissionregistration.k8s.io"

// registrationVersion is the version in which a minor serves a kind of registration; "" where it does not.
func registrationVersion(resource string, m kubever.Minor) string {
	version := ""
	for _, r := range kubever.APIResources(m) {
		if r.Group == registrationGroup && r.Name == resource && r.DefaultOn.Has(m) {
			if version = r.Version; version == "v1" {
				break
			}
		}
	}
	return version
}

// admissionPath is where the modern API server has the registration by which it changes pods.
func admissionPath(p *plan.Plan) string {
	resource, name := "mutatingwebhookconfigurations", admission.Name
	if p.Pods.Admission.By == plan.ByPolicy {
		resource, name = "mutatingadmissionpolicybindings", "pods."+admission.Name
	}
	version := cmp.Or(registrationVersion(resource, p.Modern.Version.Minor), "v1")
	return "/apis/" + registrationGroup + "/" + version + "/" + resource + "/" + name
}

// release takes what the controllers of both sides leave behind out of the API once they have stopped: their finalizer,
// with which no namespace could be deleted any more, and their registration for pods, with which the modern API server
// would wait for a webhook that is gone.
func (b *builder) release(p *plan.Plan, step func(*Action) Step) {
	s := step(releaseOf(p, jointHost(p)))
	s.Host, s.Title = jointHost(p), releaseOf(p, jointHost(p)).changes()
	b.add(s)
}

// settle checks, while they still run, that the controllers of both sides have finished what they began: a namespace
// whose finalizer were taken out would be deleted before what is in it on the other side.
func (b *builder) settle(p *plan.Plan, step func(*Action) Step) {
	a := releaseOf(p, jointHost(p))
	if a.Marks.Namespaces == nil {
		return
	}
	s := step(&Action{Kind: RunChecks, Text: "make sure that no namespace is being deleted: kubectl get namespaces " +
		"shows none that is Terminating", Before: []Check{{Kind: Settled, Marks: a.Marks, Hint: "the controllers of " +
		"both sides delete what is in it: wait until it is gone, then run this again"}}})
	s.Host, s.Title = jointHost(p), "no namespace waits for the controllers of both sides"
	b.add(s)
}

// jointHost is the first host on which the controllers of both sides run.
func jointHost(p *plan.Plan) string {
	for _, c := range p.Components {
		if c.Kind == plan.JointControllers {
			return c.Host
		}
	}
	return p.Hosts[0].Name
}

func releaseOf(p *plan.Plan, host string) *Action {
	marks := &Marks{}
	if row := p.Resource("namespaces"); row != nil {
		if side := row.Route().Write; side != "" {
			marks.Namespaces = jointAccess(p, host, side)
		}
	}
	if p.Pods != nil {
		marks.Modern = jointAccess(p, host, pair.Modern)
		for _, r := range registrations {
			if r.Version = registrationVersion(r.Resource, p.Modern.Version.Minor); r.Version != "" {
				marks.Registrations = append(marks.Registrations, r)
			}
		}
	}
	text := "take the finalizer kubefusion.dev/both-sides out of spec.finalizers of every namespace (the runbook has " +
		"the commands), or no namespace can be deleted any more"
	if p.Pods != nil {
		text += "; delete the admission registration for pods on the modern API server, or it waits for a webhook " +
			"that is gone"
	}
	return &Action{Kind: Release, Marks: marks, Text: text,
		After: []Check{{Kind: Released, Marks: marks, Hint: "stop every fusionctl controllers of this cluster first"}}}
}

package render

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// criticalAnnotation marks a pod that must not be evicted for kubelets that know no priority.
const criticalAnnotation = "scheduler.alpha.kubernetes.io/critical-pod"

// cpuRequests keep the pods out of the best-effort class, which is starved and killed first. They are small, so that a
// machine that runs the legacy side already admits the modern one beside it.
var cpuRequests = map[string]string{
	kubever.APIServer: "100m", kubever.ControllerManager: "50m", kubever.Scheduler: "50m", plan.Etcd: "100m",
	plan.JointControllers: "50m", plan.JointGateway: "100m",
}

// knows says whether the kubelet of a plan reads a field of a type.
type knows func(typeName, fieldName string) bool

func kubeletOf(p *plan.Plan) knows {
	return func(typeName, fieldName string) bool { return kubever.Field(typeName, fieldName).Has(p.Kubelet.Minor) }
}

// when is the node where the condition holds, and left out where it does not.
func when(condition bool, node *yaml.Node) *yaml.Node {
	if !condition {
		return nil
	}
	return node
}

// staticPod prints the manifest of a component for the kubelet of its host. It has no field that this kubelet does not
// know.
func staticPod(p *plan.Plan, c *plan.Component) ([]byte, error) {
	kubelet := kubeletOf(p)
	prioritized := kubelet("v1.PodSpec", "priorityClassName")
	return document(header(p, c), object(
		field{"apiVersion", text("v1")},
		field{"kind", text("Pod")},
		field{"metadata", object(
			field{"name", text(c.Name)},
			field{"namespace", text(metav1.NamespaceSystem)},
			field{"labels", object(
				field{"component", text(c.Name)},
				field{"tier", text("control-plane")},
			)},
			field{"annotations", when(!prioritized, object(field{criticalAnnotation, text("")}))},
		)},
		field{"spec", object(
			field{"hostNetwork", boolean(true)},
			field{"priorityClassName", when(prioritized, text("system-node-critical"))},
			field{"securityContext", when(kubelet("v1.PodSecurityContext", "seccompProfile"),
				object(field{"seccompProfile", object(field{"type", text("RuntimeDefault")})}))},
			field{"containers", list(object(
				field{"name", text(c.Kind)},
				field{"image", text(c.Image)},
				field{"imagePullPolicy", text("IfNotPresent")},
				field{"command", commandWords(c.Command, names(c.Env))},
				field{"args", arguments(c.Args, names(c.Env))},
				field{"env", list(variables(c.Env)...)},
				field{"resources", object(field{"requests", object(field{"cpu", text(cpuRequests[c.Kind])})})},
				field{"livenessProbe", probe(p, c, c.Liveness)},
				field{"startupProbe", when(kubelet("v1.Container", "startupProbe"), probe(p, c, c.Startup))},
				field{"volumeMounts", listOf(c.Mounts, volumeMount)},
			))},
			field{"volumes", listOf(c.Mounts, func(m plan.Mount) *yaml.Node { return hostVolume(kubelet, m) })},
		)},
	))
}

// header describes a file at its top, for readers on the machine.
func header(p *plan.Plan, c *plan.Component) string {
	side := ""
	if c.Side != "" {
		side = fmt.Sprintf(" of the %s side", c.Side)
	}
	place := ", for " + c.Host
	if c.Host == hostedName {
		place = ", for the cluster that hosts it"
	}
	lines := fmt.Sprintf("Written by fusionctl render: %s%s of %s%s. Change the spec, not this file.\n",
		strings.TrimSpace(c.Kind+" "+c.Version), side, p.Name, place)
	if runsAlready(p, c) {
		lines += "It runs already. This is the plan's version of it; resources, annotations and probes of its own " +
			"are not in the spec.\n"
		lines += "Do not copy this file over the one that it runs from: make the changes of the runbook there.\n"
	}
	return lines
}

// arguments are --name=value in order, each run of them below the reason that they have in common.
func arguments(args []plan.Arg, environment map[string]bool) *yaml.Node {
	var nodes []*yaml.Node
	before := ""
	for _, a := range args {
		why := reason(a)
		node := text(unexpanded(a.String(), environment))
		if why != before {
			commented(node, why)
		}
		before = why
		nodes = append(nodes, node)
	}
	return list(nodes...)
}

func commandWords(words []string, environment map[string]bool) *yaml.Node {
	return listOf(words, func(word string) *yaml.Node { return text(unexpanded(word, environment)) })
}

// names are the variables to which an argument may refer.
func names(env []spec.EnvVar) map[string]bool {
	set := map[string]bool{}
	for _, e := range env {
		set[e.Name] = true
	}
	return set
}

// unexpanded is a text from which a kubelet makes the text again: it fills in $(NAME) where there is such a variable,
// which is wanted here of those of the component alone, and takes $$ for a single one. Of others it has more than a
// spec says: KUBERNETES_SERVICE_HOST, and those of Services.
func unexpanded(s string, environment map[string]bool) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' {
			out.WriteByte(s[i])
			continue
		}
		if name := reference.FindString(s[i:]); name != "" && environment[name[2:len(name)-1]] {
			out.WriteString(name)
			i += len(name) - 1
			continue
		}
		out.WriteByte('$')
		if rest := s[i+1:]; strings.HasPrefix(rest, "$") || strings.HasPrefix(rest, "(") {
			out.WriteByte('$')
		}
	}
	return out.String()
}

// reason is why an argument is there. Who wrote it himself knows.
func reason(a plan.Arg) string {
	if a.Origin == plan.FromSpec {
		return ""
	}
	return oneLine(a.Why)
}

// variables are the environment; one may refer to those before it. Values are always quoted: 1, yes and null are
// strings here.
func variables(env []spec.EnvVar) []*yaml.Node {
	var nodes []*yaml.Node
	for i, e := range env {
		value := text(unexpanded(e.Value, names(env[:i])))
		value.Style = yaml.DoubleQuotedStyle
		nodes = append(nodes, object(field{"name", text(e.Name)}, field{"value", value}))
	}
	return nodes
}

func volumeMount(m plan.Mount) *yaml.Node {
	return object(
		field{"name", text(m.Name)},
		field{"mountPath", text(m.Seen())},
		field{"readOnly", when(m.ReadOnly, boolean(true))},
	)
}

func hostVolume(kubelet knows, m plan.Mount) *yaml.Node {
	switch {
	case m.Secret != "":
		return object(field{"name", text(m.Name)}, field{"secret", object(field{"secretName", text(m.Secret)})})
	case m.ConfigMap != "":
		return object(field{"name", text(m.Name)}, field{"configMap", object(field{"name", text(m.ConfigMap)})})
	}
	kind := "File"
	switch {
	case m.Unchecked:
		kind = "" // a runtime makes a directory where there is nothing
	case m.Directory && m.Required:
		kind = "Directory" // keys are never found in one that was made for the lack of it
	case m.Directory:
		kind = "DirectoryOrCreate"
	}
	return object(
		field{"name", text(m.Name)},
		field{"hostPath", object(
			field{"path", text(m.Path)},
			field{"type", when(kind != "" && kubelet("v1.HostPathVolumeSource", "type"), text(kind))},
		)},
	)
}

// probe is a probe that the kubelet of the plan can make, nil where it can make none that is right.
func probe(p *plan.Plan, c *plan.Component, q *plan.Probe) *yaml.Node {
	if q == nil {
		return nil
	}
	action := field{"httpGet", object(
		field{"host", optional(q.Host)},
		field{"path", text(q.Path)},
		field{"port", number(q.Port)},
		field{"scheme", optional(q.Scheme)},
	)}
	if q.Path == "" {
		host := optional(q.Host)
		if !kubeletOf(p)("v1.TCPSocketAction", "host") {
			if !listensOnPodIP(c) {
				return nil // asked at the pod's address, a healthy component would be found dead and killed
			}
			host = nil
		}
		action = field{"tcpSocket", object(field{"host", host}, field{"port", number(q.Port)})}
	}
	return object(
		action,
		field{"initialDelaySeconds", number(q.DelaySeconds)},
		field{"timeoutSeconds", number(q.TimeoutSeconds)},
		field{"periodSeconds", number(q.PeriodSeconds)},
		field{"failureThreshold", number(q.FailureThreshold)},
	)
}

// listensOnPodIP reports whether a component of the host's network certainly listens on the address that its pod has:
// all of them.
func listensOnPodIP(c *plan.Component) bool {
	for i := len(c.Args) - 1; i >= 0; i-- {
		if name := kubever.FlagName(c.Args[i].Name); name == "bind-address" || name == "address" {
			return c.Args[i].Value == "0.0.0.0" || c.Args[i].Value == "::" || c.Args[i].Value == ""
		}
	}
	return true
}

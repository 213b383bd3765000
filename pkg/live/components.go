package live

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// mirrorAnnotation is on the pods by which a kubelet shows its static pods.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// components collects what shows how the control plane is started.
type components struct {
	pods       []mirrorPod
	kubelets   map[string][]string // version -> nodes
	collectors map[pair.Side]bool  // whether the garbage collector runs, where it was seen
}

// mirrorPod is a static pod as its kubelet shows it.
type mirrorPod struct {
	node, address string
	processes     []adopt.Process
	name          string
}

// meet keeps the static pods of the control plane and the versions of the kubelets.
func (m *components) meet(in *collection, o *object, body []byte) {
	switch {
	case in.name == "minions":
		var status struct {
			NodeInfo struct {
				KubeletVersion string `json:"kubeletVersion"`
			} `json:"nodeInfo"`
		}
		if utiljson.Unmarshal(o.Status, &status) == nil && status.NodeInfo.KubeletVersion != "" {
			if m.kubelets == nil {
				m.kubelets = map[string][]string{}
			}
			m.kubelets[status.NodeInfo.KubeletVersion] = append(m.kubelets[status.NodeInfo.KubeletVersion],
				o.Metadata.Name)
		}
	case in.name == "pods" && o.Metadata.Namespace == metav1.NamespaceSystem &&
		o.Metadata.Annotations[mirrorAnnotation] != "":
		var spec struct {
			NodeName string `json:"nodeName"`
		}
		var status struct {
			HostIP string `json:"hostIP"`
		}
		if utiljson.Unmarshal(o.Spec, &spec) != nil || spec.NodeName == "" {
			return
		}
		_ = utiljson.Unmarshal(o.Status, &status) // a node's name may be enough
		p := mirrorPod{node: spec.NodeName, address: status.HostIP, name: o.Metadata.Name}
		// The kubelet has put the node's name behind the pod's.
		static, _ := strings.CutSuffix(o.Metadata.Name, "-"+spec.NodeName)
		p.processes = adopt.ReadManifest(o.title(), bytes.Clone(body)).Processes
		for i := range p.processes {
			p.processes[i].Name = static
		}
		if len(p.processes) > 0 {
			m.pods = append(m.pods, p)
		}
	}
}

// judgeComponents compares how the components run with how the plan starts them.
func (c *checker) judgeComponents(ctx context.Context) {
	c.judgeKubelets()
	if c.options.NoFlags {
		return
	}
	for _, host := range c.plan.Hosts {
		var running []render.Running
		for _, p := range c.components.pods {
			if p.node != host.Name && p.address != host.Address {
				continue
			}
			for i := range p.processes {
				process := &p.processes[i]
				args, notes := process.Args(render.MinorOf(c.plan, process.Name))
				for _, n := range notes {
					if !n.Kept { // it is compared as any other
						c.incomplete("pod %s: %s", title(metav1.NamespaceSystem, p.name), n.Text)
					}
				}
				running = append(running,
					render.Running{Name: process.Name, Kind: process.Component,
						Place: "pod " + title(metav1.NamespaceSystem, p.name), Image: process.Image, Args: args,
						Env: process.Env})
			}
		}
		for _, d := range render.Diff(c.plan, host.Name, running) {
			c.judgeDifference(ctx, &d)
		}
		c.noteCollectors(running)
	}
}

// noteCollectors reads from the arguments of controller managers whether they collect garbage; one that does is enough.
func (c *checker) noteCollectors(running []render.Running) {
	for _, r := range running {
		at := slices.IndexFunc(c.plan.Components, func(of plan.Component) bool {
			return of.Name == r.Name && of.Kind == r.Kind
		})
		if r.Kind != kubever.ControllerManager || at < 0 {
			continue
		}
		last := func(name string) (value string) {
			for _, a := range r.Args {
				if a.Name == name {
					value = a.Value
				}
			}
			return value
		}
		if c.components.collectors == nil {
			c.components.collectors = map[pair.Side]bool{}
		}
		side := c.plan.Components[at].Side
		on := plan.CollectorOn(c.plan.Side(side).Version.Minor, last("controllers"), last("enable-garbage-collector"))
		c.components.collectors[side] = c.components.collectors[side] || on
	}
}

func (c *checker) judgeDifference(ctx context.Context, d *render.Difference) {
	at := slices.IndexFunc(c.plan.Components, func(of plan.Component) bool {
		return of.Name == d.Component && of.Host == d.Host
	})
	if at < 0 || c.plan.Components[at].Kind == plan.Etcd {
		return // etcd is no API server's business to know
	}
	of := &c.plan.Components[at]
	if d.State == render.New || d.State == render.Missing {
		c.withoutPod(ctx, of)
		return
	}
	for _, change := range d.Changes {
		c.add(differs(of, change, d.Place))
	}
}

// keepApart are the arguments on which it rests that the two sides do not damage each other.
var keepApart = []string{
	"apiserver-count", "authorization-mode", "authorization-policy-file", "controllers", "disable-admission-plugins",
	"emulated-version", "enable-garbage-collector",
	"encryption-provider-config", "endpoint-reconciler-type", "etcd-prefix", "etcd-quorum-read", "etcd-servers",
	"etcd-servers-overrides", "experimental-encryption-provider-config", "feature-gates",
	"insecure-bind-address", "insecure-port", "leader-elect", "leader-elect-resource-lock",
	"leader-elect-resource-name", "leader-elect-resource-namespace", "lock-object-name",
	"min-compatibility-version", "root-ca-file", "runtime-config", "service-account-key-file",
	"service-cluster-ip-range", "service-node-port-range", "storage-backend", "storage-versions",
}

// differs words one argument that is not the plan's.
func differs(of *plan.Component, change render.Change, place string) finding.Finding {
	f := finding.Finding{Rule: Differs, Severity: finding.Warning,
		Subject: fmt.Sprintf("%s of %s on %s", change.What, of.Name, of.Host), Related: []string{place}}
	if change.What == "image" {
		f.Severity = finding.Info
	}
	if name, flag := strings.CutPrefix(change.What, "--"); flag && slices.Contains(keepApart, name) {
		f.Severity = finding.Error
	}
	is, want := strings.Join(change.Old, " and "), strings.Join(change.New, " and ")
	switch {
	case len(change.New) == 0:
		f.Message = fmt.Sprintf("is %q, and the plan does not set it", is)
		f.Fix = "remove it, or add it to the spec and run fusionctl check"
	case len(change.Old) == 0:
		f.Message = fmt.Sprintf("is not set, and the plan has %q: %s", want, change.Why)
		f.Fix = fmt.Sprintf("set %s=%s", change.What, want)
	default:
		f.Message = fmt.Sprintf("is %q, and the plan has %q: %s", is, want, change.Why)
		f.Fix = fmt.Sprintf("set %s=%s, or change the spec and run fusionctl check", change.What, want)
		if more, less, lists := entries(change); lists {
			f.Message = strings.TrimPrefix(more+less, ", and ") + ": " + change.Why
			f.Fix = fmt.Sprintf("set %s as fusionctl plan prints it, or change the spec and run fusionctl check",
				change.What)
		}
	}
	return f
}

// entries says in words how two long lists differ.
func entries(change render.Change) (more, less string, lists bool) {
	const shown = 5
	beyond, lacks, lists := change.Entries()
	some := func(list []string) string {
		if len(list) > shown {
			list = append(list[:shown:shown], fmt.Sprintf("%d more", len(list)-shown))
		}
		return strings.Join(list, ", ")
	}
	if len(beyond) > 0 {
		more = "has " + some(beyond) + " beyond the plan"
	}
	if len(lacks) > 0 {
		less = ", and lacks " + some(lacks)
	}
	return more, less, lists
}

// withoutPod looks at a component that no static pod shows in another way, or says that it could not look.
func (c *checker) withoutPod(ctx context.Context, of *plan.Component) {
	if of.Kind == kubever.APIServer && len(c.plan.Hosts) == 1 && c.flagz(ctx, of) {
		return
	}
	c.incomplete("the arguments of %s on %s: no static pod of that name is in %s, and no server shows them; "+
		"fusionctl render --diff compares files, --no-flags leaves this out", of.Name, of.Host, metav1.NamespaceSystem)
	if of.Kind == kubever.APIServer && len(c.plan.Hosts) == 1 {
		c.judgeGates(ctx, of)
	}
}

// flagz compares the arguments that an API server shows at /flagz, where it does; false where it does not.
func (c *checker) flagz(ctx context.Context, of *plan.Component) bool {
	body, err := c.servers[of.Side].Read(ctx, discovery.Page("flagz"))
	if err != nil {
		return false
	}
	var page struct {
		Flags map[string]string `json:"flags"`
	}
	if utiljson.Unmarshal(body, &page) != nil || page.Flags["etcd-servers"] == "" {
		return false // something else: the page for people has another delimiter each time
	}
	values := page.Flags
	minor := c.plan.Side(of.Side).Version.Minor
	for i, a := range of.Args {
		name := kubever.FlagName(a.Name)
		if slices.ContainsFunc(of.Args[i+1:], func(b plan.Arg) bool { return b.Name == a.Name }) {
			continue // the last one counts, or they are a list
		}
		is, shown := values[name]
		if !shown || sameValue(is, a.Value) {
			continue
		}
		c.add(differs(of, render.Change{What: "--" + name, Old: []string{is}, New: []string{a.Value}, Why: a.Why},
			"/flagz"))
	}
	for _, name := range keepApart {
		is, shown := values[name]
		if _, given := of.Arg(name); given || !shown {
			continue
		}
		if byDefault, ok := kubever.Flag(of.Kind, name).Default(minor); ok && !sameValue(is, byDefault) {
			c.add(differs(of, render.Change{What: "--" + name, Old: []string{is}, New: nil}, "/flagz"))
		}
	}
	return true
}

// sameValue compares the values of a flag as people and as programs write them: lists in brackets and in any order, 60s
// and 1m0s.
func sameValue(a, b string) bool {
	if x, err := time.ParseDuration(a); err == nil {
		if y, err := time.ParseDuration(b); err == nil {
			return x == y
		}
	}
	entries := func(s string) []string {
		list := strings.FieldsFunc(strings.Trim(s, `[]"`), func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(list)
		return list
	}
	return slices.Equal(entries(a), entries(b))
}

// gateMetric is how API servers since 1.26 show which feature gates are on.
const gateMetric = "kubernetes_feature_enabled{"

// judgeGates compares the feature gates that an API server shows among its metrics. It is all that can be seen of one
// without a pod.
func (c *checker) judgeGates(ctx context.Context, of *plan.Component) {
	body, err := c.servers[of.Side].Read(ctx, discovery.Page("metrics"))
	if err != nil {
		return
	}
	minor := c.plan.Side(of.Side).Version.Minor
	text, _ := of.Arg("feature-gates")
	planned := map[string]string{}
	for entry := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
		planned[name] = value
	}
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, gateMetric)
		if !ok {
			continue
		}
		_, rest, _ = strings.Cut(rest, `name="`)
		name, rest, _ := strings.Cut(rest, `"`)
		_, value, _ := strings.Cut(strings.TrimSpace(rest), "} ")
		is := strconv.FormatBool(strings.TrimSpace(value) == "1")
		want, why := planned[name], "the plan's --feature-gates"
		if want == "" && planned["AllAlpha"]+planned["AllBeta"] != "" {
			continue // the defaults are not the version's then
		}
		if want == "" {
			state, known := kubever.Gate(name).At(minor)
			if !known {
				continue
			}
			want, why = strconv.FormatBool(state.Default), "what the version does by itself"
		}
		if is != want {
			c.add(differs(of, render.Change{What: "--feature-gates", Old: []string{name + "=" + is},
				New: []string{name + "=" + want}, Why: why}, "/metrics"))
		}
	}
}

// judgeKubelets compares the versions of the kubelets with the one that the plan counts with.
func (c *checker) judgeKubelets() {
	for text, nodes := range c.components.kubelets {
		version, err := kubever.Parse(text)
		if err == nil && version.Minor == c.plan.Kubelet.Minor {
			continue
		}
		slices.Sort(nodes)
		c.add(finding.Finding{Rule: Differs, Severity: finding.Warning, Subject: "kubelets of " + text,
			Message: fmt.Sprintf("%s, and the plan is made for kubelets of %s: which pod fields they know depends on "+
				"it", prose.Counted(len(nodes), "node"), c.plan.Kubelet),
			Fix:     "set spec.kubelet.version to the oldest kubelet, and run fusionctl check again",
			Count:   finding.Count(len(nodes)),
			Related: nodes[:min(len(nodes), samples)]})
	}
}

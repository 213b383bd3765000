//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// liveAccess lets an auditor read everything through the modern API server.
const liveAccess = access +
	`  - {subjects: [{kind: User, name: auditor}], apiGroups: ["*"], resources: ["*"], readOnly: true}
  - {subjects: [{kind: User, name: auditor}], nonResourcePaths: ["*"], readOnly: true}
`

// checkedLive is a pair that check --live looks at.
type checkedLive struct {
	*rig.Rig
	*rig.Pair
	t           *testing.T
	admin, user *rig.Client
	arguments   []string
}

// liveAnswer is what check --live prints.
type liveAnswer struct {
	Complete   bool
	Incomplete []string
	Objects    int
	Findings   []finding.Finding
}

// check runs the command as an operator does.
func (c *checkedLive) check(more ...string) (code int, answer liveAnswer) {
	c.t.Helper()
	var out, errs bytes.Buffer
	started := time.Now()
	code = cli.Main(c.t.Context(),
		slices.Concat([]string{"check", c.SpecFile, "--live", "-o", "json", "--fail-on", "warning"}, c.arguments, more),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		c.t.Fatalf("check --live exits %d: %v\n%s%s", code, err, &out, &errs)
	}
	c.t.Logf("check --live %v: exit %d in %v, %d objects, %d findings, incomplete %q", more, code,
		time.Since(started).Round(time.Millisecond), answer.Objects, len(answer.Findings), answer.Incomplete)
	return code, answer
}

// of are the findings of a rule.
func (a *liveAnswer) of(rule string) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(a.Findings), func(f finding.Finding) bool { return f.Rule != rule })
}

// wants checks that a rule has a finding about a subject that says something.
func (c *checkedLive) wants(rule string, severity finding.Severity, subject, says string) {
	c.t.Helper()
	code, answer := c.check()
	if !slices.ContainsFunc(answer.of(rule), func(f finding.Finding) bool {
		return f.Severity == severity && f.Subject == subject &&
			strings.Contains(f.Message+strings.Join(f.Related, " "), says)
	}) || code != 3 {
		c.t.Errorf("check --live exits %d, want 3 and a finding %s (%s) about %s that says %q: %+v", code, rule,
			severity, subject, says, answer)
	}
}

// mirror shows a component as its kubelet would: the rendered static pod, under the name of the node.
func (c *checkedLive) mirror(name string, change func(args []string) []string) {
	c.t.Helper()
	files, err := render.Files(c.Plan, render.Options{Target: render.StaticPod})
	must(c.t, err)
	host := c.Plan.Hosts[0].Name
	at := slices.IndexFunc(files, func(f render.File) bool {
		return strings.HasPrefix(f.Path, host+"/") && strings.HasSuffix(f.Path, "/"+name+".yaml")
	})
	if at < 0 {
		c.t.Fatalf("no file of %s is rendered", name)
	}
	var pod object
	must(c.t, yaml.Unmarshal(files[at].Data, &pod))
	pod["metadata"].(object)["name"] = name + "-" + host
	pod["metadata"].(object)["annotations"] = object{"kubernetes.io/config.mirror": "e2e",
		"kubernetes.io/config.source": "file"}
	spec := pod["spec"].(object)
	spec["nodeName"] = host
	delete(spec, "priorityClassName") // there is no such class in a new cluster of the rig
	container := spec["containers"].([]any)[0].(object)
	if change != nil {
		var args []string
		for _, a := range container["args"].([]any) {
			args = append(args, a.(string))
		}
		container["args"] = change(args)
		must(c.t, c.admin.Call(c.t.Context(), http.MethodDelete,
			"/api/v1/namespaces/kube-system/pods/"+name+"-"+host+"?gracePeriodSeconds=0", nil, nil))
	}
	must(c.t, c.admin.Call(c.t.Context(), http.MethodPost, "/api/v1/namespaces/kube-system/pods", pod, nil))
}

func TestCheckLive(t *testing.T) {
	t.Parallel()
	for _, legacy := range []string{"1.6.13", "1.10.13"} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			c := &checkedLive{Rig: r, t: t,
				Pair: r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: "1.36.3",
					More: liveAccess, NoControllers: true})}
			c.admin, c.user = demo(t, r, c.Pair)
			old, err := r.PKI.Kubeconfig("auditor-legacy", c.Legacy.URL, "auditor", "system:masters")
			must(t, err)
			modern, err := r.PKI.Kubeconfig("auditor-modern", c.Modern.URL, "auditor")
			must(t, err)
			c.arguments = []string{"--legacy-kubeconfig", old, "--modern-kubeconfig", modern}
			proveLive(t, c, legacy)
		})
	}
}

func proveLive(t *testing.T, c *checkedLive, legacy string) {
	ctx := t.Context()
	deployments := deploymentsPath(c.Plan.Legacy.Version.Minor)
	must(t, c.admin.Call(ctx, http.MethodPost, deployments, deployment("legacy"), nil))
	must(t, c.user.Call(ctx, http.MethodPost, deploymentsPath(36), deployment("modern"), nil))
	for _, name := range []string{"legacy", "modern"} {
		podsOf(c.Rig, c.admin, name, 3)
	}
	host := c.Plan.Hosts[0].Name
	must(t, c.admin.Call(ctx, http.MethodPost, "/api/v1/nodes",
		object{"metadata": object{"name": host}, "status": object{"nodeInfo": object{"kubeletVersion": "v" + legacy}}},
		nil))

	// No static pod shows the components: that is not clean.
	if code, answer := c.check(); code != 1 || answer.Complete ||
		!strings.Contains(strings.Join(answer.Incomplete, "\n"), "kube-controller-manager-modern") {
		t.Errorf("check --live without static pods exits %d, want 1 and kube-controller-manager-modern among what it "+
			"could not look at: %+v", code, answer)
	} else if found := answer.of("FUS242"); len(found) != 1 ||
		!strings.HasPrefix(found[0].Subject, "--authorization-policy-file of kube-apiserver-modern") {
		// 1.36 shows its flags. This one is the rig's: it runs with a policy in a folder of its own.
		t.Errorf("the flags that 1.36.3 shows: %+v, want one that differs, the policy's file", found)
	}
	if code, answer := c.check("--no-flags"); code != 0 || !answer.Complete {
		t.Errorf("check --live --no-flags of a healthy pair exits %d, want 0: %+v", code, answer)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-apiserver-modern",
		"kube-controller-manager-modern"} {
		c.mirror(name, nil)
	}
	c.Eventually("check --live of a healthy pair is clean", func(context.Context) error {
		code, answer := c.check()
		if code != 0 || !answer.Complete || answer.Objects < 30 {
			return fmt.Errorf("it exits %d, want 0: %+v", code, answer)
		}
		return nil
	})

	// A selector that selects the other side's pods.
	shared := deployment("shop")
	must(t, c.admin.Call(ctx, http.MethodPost, deployments, shared, nil))
	overlapping := deployment("shop")
	overlapping["spec"].(object)["selector"] = object{
		"matchExpressions": []object{{"key": "deployment", "operator": "In", "values": []string{"shop", "other"}}}}
	must(t, c.user.Call(ctx, http.MethodPost, deploymentsPath(36), overlapping, nil))
	must(t, c.admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services",
		object{"metadata": object{"name": "shop"},
			"spec": object{"ports": []object{{"port": 80}}, "selector": object{"deployment": "shop"}}}, nil))
	c.wants("FUS240", finding.Error, "Deployment demo/shop", "belongs to the legacy side")
	c.wants("FUS240", finding.Error, "Deployment demo/shop", "belongs to the modern side")
	c.wants("FUS240", finding.Warning, "Service demo/shop", "selects pods of both sides")

	// Owners that a side looks for in vain. No collector may run on either side: what has no live owner stays.
	owner := object{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "gone",
		"uid": "6bb1d2c5-6a3a-4c2f-9d5e-52d8cbb1c0aa"}
	must(t, c.user.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps",
		object{"metadata": object{"name": "owned", "ownerReferences": []object{owner}}}, nil))
	c.wants("FUS135", finding.Warning, "configmaps", "ConfigMap demo/owned (owner gone)")

	// One name, two locks, two holders.
	record := object{"holderIdentity": "old", "leaseDurationSeconds": 3600, "acquireTime": now(), "renewTime": now(),
		"leaderTransitions": 0}
	text, err := json.Marshal(record)
	must(t, err)
	must(t, c.admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/kube-system/endpoints",
		object{"metadata": object{"name": "shop-operator",
			"annotations": object{"control-plane.alpha.kubernetes.io/leader": string(text)}}}, nil))
	must(t, c.Modern.Client("root", "system:masters").Call(ctx, http.MethodPost,
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		object{"metadata": object{"name": "shop-operator"},
			"spec": object{"holderIdentity": "new", "leaseDurationSeconds": 3600, "acquireTime": microNow(),
				"renewTime": microNow()}}, nil))
	c.wants("FUS065", finding.Warning, "lock kube-system/shop-operator", "by old")

	// A component that runs otherwise than planned.
	c.mirror("kube-controller-manager-modern", func(args []string) []string {
		return append(slices.DeleteFunc(args, func(a string) bool {
			return strings.HasPrefix(a, "--controllers=")
		}), "--controllers=*", "--kube-api-qps=33")
	})
	c.wants("FUS242", finding.Error, "--controllers of kube-controller-manager-modern on "+host,
		"has * beyond the plan")
	c.wants("FUS242", finding.Warning, "--kube-api-qps of kube-controller-manager-modern on "+host, "33")

	// A list that fails, and a side that is out of reach.
	saved := c.arguments
	nobody, err := c.PKI.Kubeconfig("nobody-modern", c.Modern.URL, "alice", "developers")
	must(t, err)
	c.arguments = []string{"--legacy-kubeconfig", saved[1], "--modern-kubeconfig", nobody}
	if code, answer := c.check("--no-flags"); code != 1 || answer.Complete {
		t.Errorf("check --live by somebody who may not list everything exits %d, want 1: %+v", code, answer)
	}
	c.arguments = []string{"--legacy-kubeconfig", saved[1], "--modern-kubeconfig", saved[1]}
	if code, answer := c.check(); code != 1 || answer.Complete || len(answer.Findings) > 0 {
		t.Errorf("check --live with one server for both sides exits %d, want 1: %+v", code, answer)
	}
	c.arguments = saved
	c.Modern.Stop()
	if code, answer := c.check(); code != 1 || answer.Complete {
		t.Errorf("check --live without the modern API server exits %d, want 1: %+v", code, answer)
	}
	proved(t, spec.LayoutSplit, legacy, "1.36.3", "check --live is clean on a healthy pair and finds overlapping "+
		"selectors, owners that are gone, a lock that is held twice and flags that are not the plan's; what it "+
		"cannot look at is incomplete")
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func microNow() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }

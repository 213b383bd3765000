package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// handed plans an example that has handed resources over.
func handed(t *testing.T, name, resources string) (*plan.Plan, error) {
	t.Helper()
	text, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := spec.Load(name, []byte(strings.Replace(string(text), "\nspec:\n",
		"\nspec:\n  handedOver: ["+resources+"]\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	return plan.New(f, plan.OnHosts)
}

// TestWhatIsHandedOverHasOneController: on the modern side; what goes with it, too, and nothing else.
func TestWhatIsHandedOverHasOneController(t *testing.T) {
	p, err := handed(t, "split-1.15-1.36.yaml", "deployments.extensions")
	if err != nil {
		t.Fatal(err)
	}
	over := map[string]bool{"deployments": true, "replicasets": true}
	for _, row := range p.Resources {
		if row.HandedOver != over[row.Key] {
			t.Errorf("%s: handed over: %t, want %t", row.Key, row.HandedOver, over[row.Key])
		}
		if row.HandedOver && (row.Owner != pair.OwnerSplit || row.VisibleToBoth()) {
			t.Errorf("%s: is %s, in %s and %s", row.Key, row.Owner, row.Legacy.Store, row.Modern.Store)
		}
	}
	for _, set := range kubever.HandOvers() {
		for _, name := range set.Controllers {
			legacy, modern := p.Controller(pair.Legacy, name), p.Controller(pair.Modern, name)
			if !modern.On || legacy.On == over[set.Keys[0]] {
				t.Errorf("%s: legacy %t, modern %t", name, legacy.On, modern.On)
			}
		}
	}
	const want = "-deployment,-garbagecollector,-replicaset"
	value, _ := p.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0].Arg("controllers")
	if !strings.HasSuffix(value, want) {
		t.Errorf("--controllers=%s, want %s at its end", value, want)
	}
}

// TestNamespacesThatAreHandedOver: each side goes on to have its own, and controllers for them, so that nothing of the
// legacy side changes.
func TestNamespacesThatAreHandedOver(t *testing.T) {
	p, err := handed(t, "split-1.15-1.36.yaml", "team-b/*, team-a/deployments.apps, cronjobs.batch, jobs.batch")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]string{"deployments": {"team-a", "team-b"}, "replicasets": {"team-a", "team-b"},
		"controllerrevisions": {"team-b"}, "ingress": {"team-b"}, "poddisruptionbudgets": {"team-b"}, "jobs": nil,
		"roles": nil, "pods": nil, "apiextensions.k8s.io/customresourcedefinitions": nil} {
		row := p.Resource(key)
		if !slices.Equal(row.HandedOverIn, want) || row.HandedOver != (key == "jobs") {
			t.Errorf("%s: handed over: %t, in %q, want %q", key, row.HandedOver, row.HandedOverIn, want)
		}
	}
	if why := p.Resource("deployments").Why; !strings.Contains(why, "of both in team-a, team-b") {
		t.Errorf("deployments are %s", why)
	}
	value, _ := p.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0].Arg("controllers")
	if !strings.Contains(value, "-cronjob,-garbagecollector,-job") || strings.Contains(value, "-deployment") {
		t.Errorf("the legacy controllers are %s", value)
	}
	if _, err := handed(t, "pods-1.10-1.36.yaml", "team-a/*"); err == nil ||
		!strings.Contains(err.Error(), "name the other resources one by one") {
		t.Errorf("New = %v", err)
	}
}

// TestAGatewayKnowsWhatIsHandedOver where it would create it on the legacy side; others do not start again for it.
func TestAGatewayKnowsWhatIsHandedOver(t *testing.T) {
	for _, side := range pair.Sides() {
		p, err := handed(t, "split-1.15-1.36.yaml", "team-a/deployments.apps, cronjobs.batch, jobs.batch]\n"+
			"  gateway:\n    create: "+string(side)+"\n    certSANs: [a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		knows := 0
		for _, row := range p.Runtime().Resources {
			if row.HandedOver || len(row.HandedOverIn) > 0 {
				knows++
			}
		}
		if want := map[pair.Side]int{pair.Legacy: 4}[side]; knows != want {
			t.Errorf("created on the %s side: the gateway knows %d resources, want %d", side, knows, want)
		}
	}
}

func TestHandOverToControllersThatAreOff(t *testing.T) {
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "\nspec:\n", "\nspec:\n  handedOver: [deployments.apps]\n", 1)
	at := strings.Index(changed, "\n  modern:\n")
	changed = changed[:at] + strings.Replace(changed[at:], "controllerManager: {}",
		"controllerManager: {extraArgs: [{name: controllers, value: replicaset-controller}]}", 1)
	f, err := spec.Load("spec.yaml", []byte(changed))
	if err != nil {
		t.Fatal(err)
	}
	const want = `spec.handedOver[0]: "deployments.apps": the modern side does not run its deployment-controller`
	if _, err := plan.New(f, plan.OnHosts); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New = %v, want %q", err, want)
	}
}

// TestDaemonSetsStayWhereTheirPodsCannotBePlaced: admission does not see the pods of kube-system.
func TestDaemonSetsStayWhereTheirPodsCannotBePlaced(t *testing.T) {
	_, err := handed(t, "pods-1.10-1.36.yaml", "statefulsets.apps, daemonsets.apps")
	if err == nil || !strings.Contains(err.Error(), "the scheduler of 1.10 finds no node for pods") {
		t.Errorf("New = %v", err)
	}
	if _, err := handed(t, "pods-1.10-1.36.yaml", "deployments.apps"); err != nil {
		t.Errorf("New of Deployments = %v", err)
	}
	set, _ := kubever.HandOverOf("statefulsets")
	for minors, stay := range map[[2]kubever.Minor]bool{{10, 36}: true, {11, 12}: true, {12, 36}: false,
		{10, 11}: false} {
		if why := plan.Stays(set, minors[0], minors[1]); (why != "") != stay {
			t.Errorf("Stays of %v = %q, want a reason: %t", minors, why, stay)
		}
	}
}

// TestDisabledFieldsAreDropped: a version that describes a field and has its feature gate off by default keeps it in
// nothing that is handed back, unless its API servers turn the gate on.
func TestDisabledFieldsAreDropped(t *testing.T) {
	p, err := handed(t, "split-1.15-1.36.yaml", "jobs.batch, cronjobs.batch, deployments.apps")
	if err != nil {
		t.Fatal(err)
	}
	const ttl, policy = "spec.ttlSecondsAfterFinished", "spec.template.spec.preemptionPolicy"
	if paths, _ := p.Drops("jobs", pair.Legacy); !slices.Contains(paths, ttl) {
		t.Errorf("1.15 drops %q of a Job, want %s among them", paths, ttl)
	}
	paths, implied := p.Drops("deployments", pair.Legacy)
	if !slices.Contains(paths, policy) || implied[policy] != "PreemptLowerPriority" {
		t.Errorf("1.15 drops %q of a Deployment, which mean %q anyway", paths, implied)
	}
	if paths, _ := p.Drops("jobs", pair.Modern); slices.Contains(paths, ttl) {
		t.Errorf("1.36 drops %q of a Job", paths)
	}
	servers := 0
	for i := range p.Components {
		if c := &p.Components[i]; c.Side == pair.Legacy && c.Kind == kubever.APIServer {
			gates := plan.Arg{Name: "feature-gates", Value: "A=false, TTLAfterFinished=true"}
			c.Args, servers = append(c.Args, gates), servers+1
		}
	}
	if paths, _ := p.Drops("jobs", pair.Legacy); servers == 0 || slices.Contains(paths, ttl) {
		t.Errorf("with the gate on, 1.15 drops %q of a Job", paths)
	}
}

// TestFieldsOfIngresses that 1.15 does not know, and which of them say what it does anyway.
func TestFieldsOfIngresses(t *testing.T) {
	p, err := handed(t, "split-1.15-1.36.yaml", "ingresses.extensions")
	if err != nil {
		t.Fatal(err)
	}
	paths, implied := p.Drops("ingress", pair.Legacy)
	const pathType = "spec.rules[].http.paths[].pathType"
	for _, path := range []string{pathType, "spec.ingressClassName"} {
		if !slices.Contains(paths, path) {
			t.Errorf("1.15 drops %q, want %s among them", paths, path)
		}
	}
	if implied[pathType] != "ImplementationSpecific" {
		t.Errorf("implied are %q", implied)
	}
	if paths, _ := p.Drops("ingress", pair.Modern); len(paths) > 0 {
		t.Errorf("1.36 drops %q", paths)
	}
	if paths, _ := p.Drops("cronjobs", pair.Legacy); !slices.Contains(paths, "spec.timeZone") {
		t.Errorf("1.15 drops %q of a CronJob, which would run at another time", paths)
	}
}

// TestStatefulSetsStayWhereTheyWouldBeRolled: beside controllers that do not know the revisions of older versions.
func TestStatefulSetsStayWhereTheyWouldBeRolled(t *testing.T) {
	const unknown = "do not know the revisions that older versions wrote"
	for _, test := range []struct{ modern, resources, gates, want string }{
		{"1.34.0", "statefulsets.apps, daemonsets.apps", "",
			"the controllers of 1.34.0 " + unknown + "; those of 1.34.2 do"},
		{"1.34.1", "statefulsets.apps, daemonsets.apps", "", unknown},
		{"1.34.2", "statefulsets.apps, daemonsets.apps", "", ""},
		{"1.34", "statefulsets.apps, daemonsets.apps", "", ""},
		{"1.33.1", "statefulsets.apps, daemonsets.apps", "", ""},
		{"1.34.1", "deployments.apps", "", ""},
		{"1.36.3", "statefulsets.apps, daemonsets.apps", "StatefulSetSemanticRevisionComparison=false", "turns"},
		{"1.36.3", "statefulsets.apps, daemonsets.apps", "StatefulSetSemanticRevisionComparison=true", ""},
		{"1.36.3", "deployments.apps", "StatefulSetSemanticRevisionComparison=false", ""},
	} {
		args := ""
		if test.gates != "" {
			args = "feature-gates=" + test.gates
		}
		handed := "  handedOver: [" + test.resources + "]\n"
		_, err := tryPlan(withModern(splitSpec("1.15.12", test.modern, handed), "", args))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %s, gates %q: %v, want %q", test.modern, test.resources, test.gates, err, test.want)
		}
	}
}

const rbacResources = "clusterroles.rbac.authorization.k8s.io, roles.rbac.authorization.k8s.io, " +
	"clusterrolebindings.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io"

// TestRolesAreCopiedWhereRolesAllow what the legacy API server does; they stay each side's own.
func TestRolesAreCopiedWhereRolesAllow(t *testing.T) {
	for args, says := range map[string]string{
		"":                                "",
		"authorization-mode, value: RBAC": "",
		"authorization-mode, value: \"RBAC,AlwaysAllow\"": "handedOver[0]: " +
			"\"clusterroles.rbac.authorization.k8s.io\": the legacy API server allows every request",
		"authorization-config, value: /etc/authz.yaml": "authorizes by /etc/authz.yaml, which is not read",
	} {
		text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), "\nspec:\n", "\nspec:\n  handedOver: ["+rbacResources+"]\n", 1)
		if args != "" {
			changed = strings.Replace(changed, "apiServer: {port: 6443}",
				"apiServer: {port: 6443, extraArgs: [{name: "+args+"}]}", 1)
		}
		f, err := spec.Load("x", []byte(changed))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(f, plan.OnHosts)
		if says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", args, err, says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		for _, row := range p.Resources {
			if is := slices.Contains(row.Groups, "rbac.authorization.k8s.io"); row.Copied != is || row.HandedOver ||
				is && row.Owner != pair.OwnerSplit {
				t.Errorf("%s: %s is %s, copied: %t, handed over: %t", args, row.Key, row.Owner, row.Copied,
					row.HandedOver)
			}
		}
	}
}

// TestNoControllersAreNeeded where none act for what is handed over.
func TestNoControllersAreNeeded(t *testing.T) {
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bare := strings.ReplaceAll(string(text), "    controllerManager: {}\n", "")
	if bare == string(text) {
		t.Fatal("the example has no controller managers that can be left out")
	}
	for resources, refused := range map[string]bool{"ingresses.networking.k8s.io": false, rbacResources: false,
		"ingresses.networking.k8s.io, deployments.apps": true} {
		f, err := spec.Load("x", []byte(strings.Replace(bare, "\nspec:\n",
			"\nspec:\n  handedOver: ["+resources+"]\n", 1)))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "want the controller managers") {
			t.Errorf("%s: %v", resources, err)
		}
		if err == nil {
			if _, err = plan.New(f, plan.OnHosts); err != nil {
				t.Errorf("%s: %v", resources, err)
			}
		}
	}
}

package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// sides are the example in each target, with a legacy side that fusionctl renders and with one of its own files.
func sides(t *testing.T, test func(t *testing.T, base string, setup func(text string) Setup)) {
	for name, target := range map[string]render.Target{"pods": render.StaticPod, "units": render.Systemd} {
		base := strings.Replace(example(t, splitExample), "  kubelet: {", "  kubelet: {modern: {}, ", 1)
		setup := func(text string) Setup { return Setup{Plan: planOf(t, splitExample, text), Target: target} }
		t.Run(name, func(t *testing.T) { test(t, base, setup) })
		base = strings.Replace(base, "\n  legacy:\n", "\n  legacy:\n    existing: true\n", 1)
		base = strings.Replace(base, "apiServer: {port: 6443}", "apiServer: {port: 6443, extraArgs: [{name: "+
			"authorization-mode, value: RBAC}, {name: secure-port, value: '6443'}]}", 1)
		t.Run(name+", existing", func(t *testing.T) { test(t, base, setup) })
	}
}

// handedIn is a spec with more in its handedOver.
func handedIn(text string, more ...string) string {
	if strings.Contains(text, "handedOver: [") {
		return strings.Replace(text, "handedOver: [", "handedOver: ["+strings.Join(more, ", ")+", ", 1)
	}
	return strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+strings.Join(more, ", ")+"]\n", 1)
}

// TestTheModernSideStaysWhileSomethingIsHandedOver: no file differs by it where the legacy side runs from files of its
// own, nor anywhere by namespaces, Ingresses and custom resources. Neither undo of the installation nor a plan to none
// from the spec of before leaves it in a store that nothing serves.
func TestTheModernSideStaysWhileSomethingIsHandedOver(t *testing.T) {
	sides(t, func(t *testing.T, base string, setup func(text string) Setup) {
		stale, err := New(setup(base), Setup{}, facts())
		if err != nil {
			t.Fatal(err)
		}
		for _, resources := range []string{"deployments.apps", "team-a/deployments.apps", "ingresses.networking.k8s.io",
			"customresourcedefinitions.apiextensions.k8s.io"} {
			w := wayFrom(t)
			w.to(t, "install", setup(base))
			w.to(t, "hand", setup(handedIn(base, resources)))
			w.refuses(t, "install", "undo the later transition first")
			w.steps["stale"], w.records["stale"] = &stale, nil
			if err := w.run(t, "stale", Apply); err == nil || len(w.did) > 0 {
				t.Errorf("%s: a plan to none from the spec of before: %v after %v", resources, err, w.did)
			}
			if err := w.run(t, "hand", Undo); err != nil {
				t.Fatalf("%s: %v", resources, err)
			}
			if err := w.run(t, "install", Undo); err != nil {
				t.Errorf("%s, handed back: %v", resources, err)
			}
		}
		w := wayFrom(t)
		w.to(t, "install", setup(base))
		w.to(t, "copies", setup(handedIn(base, "priorityclasses.scheduling.k8s.io")))
		if err := w.run(t, "install", Undo); err != nil {
			t.Errorf("copies that both sides have: %v", err)
		}
	})
}

// TestNothingGoesBackToALegacySideThatIsRetired: what is handed back would be served by nothing, and a modern API
// server that authorizes by roles alone refuses every client without them. No file says so.
func TestNothingGoesBackToALegacySideThatIsRetired(t *testing.T) {
	sides(t, func(t *testing.T, base string, setup func(text string) Setup) {
		roles := handedIn(base, rbacResources()...)
		copies := handedIn(roles, "priorityclasses.scheduling.k8s.io",
			"validatingwebhookconfigurations.admissionregistration.k8s.io")
		ingresses := handedIn(copies, "ingresses.networking.k8s.io")
		handed := handedIn(ingresses, "deployments.apps")
		defined := handedIn(handed, "customresourcedefinitions.apiextensions.k8s.io")
		w := wayFrom(t)
		way := []string{"install", "roles", "copies", "ingresses", "handed", "defined", "retire"}
		for i, text := range []string{base, roles, copies, ingresses, handed, defined, retired(defined)} {
			w.to(t, way[i], setup(text))
		}
		w.cluster.gone = func(c *Check) bool { return c.Program == kubever.APIServer }
		for _, name := range way[:len(way)-1] {
			w.refuses(t, name, "undo the later transition first")
		}
		stale, err := New(setup(roles), setup(base), facts())
		if err != nil {
			t.Fatal(err)
		}
		w.steps["stale"], w.records["stale"] = &stale, nil
		if err := w.run(t, "stale", Apply); err == nil || strings.Contains(kindsOf(w.did), string(RemoveRoles)) {
			t.Errorf("a plan without the roles, from the spec of before: %v after %v", err, w.did)
		}
		w.cluster.gone = nil
		for i := len(way) - 1; i >= 0; i-- {
			if err := w.run(t, way[i], Undo); err != nil {
				t.Errorf("undo of %s in its turn: %v", way[i], err)
			}
		}
		if d := differs(w.cluster, newCluster(t, Setup{})); d != "" {
			t.Error(d)
		}
	})
}

func kindsOf(kinds []Kind) string {
	var text []string
	for _, k := range kinds {
		text = append(text, string(k))
	}
	return strings.Join(text, ", ")
}

// TestRolesAreNotRemovedForALostHost unless the legacy API server of the one that does it serves.
func TestRolesAreNotRemovedForALostHost(t *testing.T) {
	base := threeHostsWith(t)
	roles := threeHostsWith(t, "1.36.3", "1.36.2", "\nspec:\n",
		"\nspec:\n  handedOver: ["+strings.Join(rbacResources(), ", ")+"]\n")
	tr, err := New(base, roles, facts())
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, base)
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	removes := func(s Step) bool { return s.Undo != nil && s.Undo.Kind == RemoveRoles }
	ready := func(s Step) *Check {
		at := slices.IndexFunc(s.Undo.Before, func(c Check) bool { return c.Kind == Ready })
		if at < 0 {
			t.Fatalf("roles are removed after %+v", s.Undo.Before)
		}
		return &s.Undo.Before[at]
	}
	// one that listens on the address of its host, and one that listens on all of them
	for host, want := range map[string]string{"10.0.0.11": "10.0.0.12", "127.0.0.1": "127.0.0.1"} {
		ready(tr.Steps[position(t, &tr, "that removes roles", removes)]).Probe.Host = host
		without, err := tr.Without(c.records, []string{"cp-1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		s := without.Steps[position(t, without, "that removes roles", removes)]
		if s.Host != "cp-2" || ready(s).Probe.Host != want {
			t.Errorf("roles are removed from %s, when %s serves, want %s", s.Host, ready(s).Probe.Host, want)
		}
	}
}

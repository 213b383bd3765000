package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// beforeRetiring is an example with its roles copied and its kubelets at the modern API server, and more of its legacy
// side.
func beforeRetiring(t *testing.T, legacy string) string {
	t.Helper()
	text := strings.Replace(example(t, splitExample), "\nspec:\n", "\nspec:\n  handedOver: ["+
		strings.Join(rbacResources(), ", ")+"]\n", 1)
	text = strings.Replace(text, "  kubelet: {", "  kubelet: {modern: {}, ", 1)
	return strings.Replace(text, "\n  legacy:\n", "\n  legacy:\n"+legacy, 1)
}

func retired(text string) string {
	text = strings.Replace(text, "\n  legacy:\n", "\n  legacy:\n    retired: true\n", 1)
	return strings.Replace(text, "\n  modern:\n", "\n  modern:\n    scheduler: {}\n", 1)
}

// retiring are the steps that retire the legacy side of the example.
func retiring(t *testing.T, target render.Target) (Transition, Setup, Setup) {
	t.Helper()
	text := beforeRetiring(t, "")
	from := Setup{Plan: planOf(t, splitExample, text), Target: target}
	to := Setup{Plan: planOf(t, splitExample, retired(text)), Target: target}
	tr, err := New(from, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	return tr, from, to
}

// TestTheGatewayOutlivesTheLegacySide: it is started again when the modern side acts for everything, without its file
// of the legacy side, and what it may do itself stays allowed. One that the plan ends leaves no permission.
func TestTheGatewayOutlivesTheLegacySide(t *testing.T) {
	const gateway = "\nspec:\n  gateway: {}\n"
	before := strings.Replace(beforeRetiring(t, ""), "\nspec:\n", gateway, 1)
	for serves, after := range map[bool]string{true: retired(before),
		false: strings.Replace(retired(before), gateway, "\nspec:\n", 1)} {
		tr, err := New(Setup{Plan: planOf(t, splitExample, before), Target: render.Systemd},
			Setup{Plan: planOf(t, splitExample, after), Target: render.Systemd}, Facts{})
		if err == nil {
			err = tr.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		started, worked, removed, allowed, byHand := -1, -1, false, false, false
		for at, s := range tr.Steps {
			if s.Do == nil {
				continue
			}
			if s.Do.Kind == StartUnit && s.Do.Unit == plan.JointGateway+".service" {
				started = at
			}
			if checks(s.Do, Works) {
				worked = at
			}
			if s.Do.Kind == RemoveFile && strings.HasSuffix(s.Do.File.Path, "/gateway-legacy.conf") {
				removed = true
			}
			if s.Do.Kind == CopyRoles { // the last one stays
				allowed = strings.Contains(s.Do.Roles.Rules, plan.JointGateway) &&
					!slices.Contains(s.Do.Roles.Ended, plan.JointGateway)
			}
			byHand = byHand || s.Do.Kind == ByHand && strings.Contains(s.Do.Text, "on the legacy API server what")
		}
		if serves != (started > worked && worked > 0) || allowed != serves || !removed || byHand {
			t.Errorf("serves %t: started at %d after %d, allowed %t, its file of the legacy side is removed %t, a "+
				"person allows something there %t", serves, started, worked, allowed, removed, byHand)
		}
	}
}

// TestTheLegacySideEndsBeforeOthersActForIt: what it alone has, and kubelets that it alone has, are looked for before
// anything changes; roles come while it serves; it is gone before the modern API server authorizes by them; addresses
// are known, and a person has agreed, before the modern controllers act for everything; then everything is tried.
func TestTheLegacySideEndsBeforeOthersActForIt(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		tr, from, to := retiring(t, target)
		kind := func(k Kind) func(Step) bool { return func(s Step) bool { return s.Do != nil && s.Do.Kind == k } }
		check := func(k CheckKind, from int) int {
			t.Helper()
			at := slices.IndexFunc(tr.Steps[from:], func(s Step) bool { return checks(s.Do, k) })
			if at < 0 {
				t.Fatalf("%s: no step from %d on checks %q", target, from, k)
			}
			return from + at
		}
		starts := func(name string) func(Step) bool {
			return func(s Step) bool {
				put := s.Do != nil && s.Do.File != nil && s.Do.Kind == PutFile
				return put && strings.HasSuffix(s.Do.File.Path, "/"+name+".yaml") ||
					s.Do != nil && s.Do.Kind == StartUnit && s.Do.Unit == name+".service"
			}
		}
		stops := func(name string) func(Step) bool {
			return func(s Step) bool {
				return s.Undo != nil && starts(name)(Step{Do: s.Undo}) && s.Do.Kind != PutFile
			}
		}
		first := slices.IndexFunc(tr.Steps, func(s Step) bool { return s.Phase != Prepare })
		roles := position(t, &tr, "copies roles", kind(CopyRoles))
		proof := check(RolesEqual, 0)
		legacy := position(t, &tr, "stops the legacy API server", stops("kube-apiserver"))
		alive := check(Beats, first)
		again := check(NothingLeft, first)
		cleared := position(t, &tr, "clears endpoints", kind(ClearEndpoints))
		wakes := check(NoneWakes, 0)
		server := position(t, &tr, "starts the modern API server", starts("kube-apiserver-modern"))
		masters := check(MastersAre, 0)
		ranges := position(t, &tr, "adds ranges", kind(AddRanges))
		person := position(t, &tr, "a person agrees to", kind(ByHand))
		manager := position(t, &tr, "starts the modern controllers", starts("kube-controller-manager-modern"))
		works := check(Works, 0)
		order := []int{check(NothingLeft, 0), first, roles, proof, legacy, alive, again, cleared, wakes, server,
			masters, ranges, person, manager, check(RangesAdded, 0), works}
		if !slices.IsSorted(order) || check(Beats, 0) > first || order[0] > first {
			t.Errorf("%s: the steps come in the order %d", target, order)
		}
		if !checks(tr.Steps[again].Do, StoresAgree) || !checks(tr.Steps[again].Undo, StoresAgree) ||
			tr.Steps[again].Undo.Before[0].Map.Resources[0].Legacy.Store == "" {
			t.Errorf("%s: the stores are read as %+v", target, tr.Steps[again])
		}
		last := tr.Steps[len(tr.Steps)-1]
		if last.Do != nil || !checks(last.Undo, MayRewrite) {
			t.Errorf("%s: the way back begins with %+v", target, last)
		}
		written := position(t, &tr, "writes objects again", func(s Step) bool {
			return s.Do == nil && s.Undo.Kind == RewriteObjects
		})
		if written < again || written > server {
			t.Errorf("%s: on the way back objects are written again in step %d: want it before the stores are "+
				"looked at, %d, and after the modern API server serves beside the legacy one, %d", target, written,
				again, server)
		}
		for _, s := range tr.Steps[:person] {
			if s.Do != nil && s.Do.Kind == ByHand {
				t.Errorf("%s: %s is done by a person, too", target, s.Title)
			}
		}
		if r := tr.Steps[ranges].Do.Ranges; !slices.Equal(r.CIDRs, []string{"10.96.0.0/16"}) || r.Version != "v1" ||
			r.Store.Name != "core" || tr.Steps[ranges].Undo.Kind != RemoveRanges {
			t.Errorf("%s: the ranges are %+v", target, r)
		}
		if m := tr.Steps[cleared].Do.Masters; m.Endpoints.Name != "core" || m.Slices.Name != "modern" ||
			m.Port != to.Plan.Modern.Port || !slices.Equal(m.Addresses, []string{"10.0.0.11"}) {
			t.Errorf("%s: the endpoints are %+v", target, m)
		}
		for at, s := range tr.Steps {
			if s.Do == nil || s.Do.Kind != CopyRoles {
				continue
			}
			lines := s.Do.Roles.Rules
			if !strings.Contains(lines, "platform:developers") || s.Do.Roles.Stored != (at == roles) {
				t.Errorf("%s: step %d gives roles by %s, those stored %t", target, at, lines, s.Do.Roles.Stored)
			}
			for _, r := range []*Roles{s.Do.Roles, s.Undo.Roles} { // that decide from the modern API server's start on
				if (r.InPlaceOf != nil) != (at > server) || at > server && (r.Stored || len(r.Policies) > 0) {
					t.Errorf("%s: step %d copies %+v once roles decide", target, at, r)
				}
			}
			if more := strings.Contains(lines, "system:kube-controller-manager"); more != (at == roles) {
				t.Errorf("%s: step %d gives the controllers' rights: %t", target, at, more)
			}
			if ended := slices.Contains(s.Do.Roles.Ended, plan.JointControllers); ended != (at > works) {
				t.Errorf("%s: step %d leaves the controllers of both sides out: %t", target, at, ended)
			}
			back := s.Undo.Roles.Rules
			if at == roles && back != "" || at > works && back != tr.Steps[roles].Do.Roles.Rules {
				t.Errorf("%s: step %d is taken back to %q", target, at, s.Undo.Roles.Rules)
			}
		}
		if _, err := New(to, from, Facts{}); err == nil || !strings.Contains(err.Error(), "transition undo") {
			t.Errorf("%s: back by a plan: %v", target, err)
		}
	}
}

// TestNothingIsWrittenOnceItWasSeen: all modern API servers have stopped before one starts that authorizes by roles,
// and what comes into force with these is looked at by the step that stops the last one, before and afterwards.
func TestNothingIsWrittenOnceItWasSeen(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		text := strings.Replace(example(t, threeHosts), "\nspec:\n", "\nspec:\n  handedOver: ["+
			strings.Join(rbacResources(), ", ")+"]\n", 1)
		text = strings.Replace(text, "  kubelet: {", "  kubelet: {modern: {}, ", 1)
		tr, err := New(Setup{Plan: planOf(t, threeHosts, text), Target: target},
			Setup{Plan: planOf(t, threeHosts, retired(text)), Target: target}, facts())
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		is := func(a *Action, kinds ...Kind) bool {
			const name = "kube-apiserver-modern"
			return a != nil && slices.Contains(kinds, a.Kind) && (a.Unit == name+".service" ||
				a.File != nil && strings.HasSuffix(a.File.Path, "/manifests/"+name+".yaml"))
		}
		var stops, starts, looks []int
		for at, s := range tr.Steps {
			if is(s.Do, StopUnit) || is(s.Do, RemoveFile) {
				stops = append(stops, at)
			}
			if is(s.Do, StartUnit) || s.Do != nil && s.Do.Unit == "" && is(s.Do, PutFile) {
				starts = append(starts, at)
			}
			if s.Do != nil && checks(s.Do, NoneWakes) {
				looks = append(looks, at)
			}
		}
		if len(stops) != 3 || len(starts) != 3 || stops[2] > starts[0] || !slices.Equal(looks, stops[2:]) {
			t.Fatalf("%s: API servers stop in the steps %d and start in %d; what comes into force is looked at in %d",
				target, stops, starts, looks)
		}
		last := tr.Steps[stops[2]]
		wakes := func(c Check) bool { return c.Kind == NoneWakes && c.Roles.Stored && c.Roles.Rules != "" }
		if end := len(last.Do.After) - 1; last.Host != "cp-1" || !slices.ContainsFunc(last.Do.Before, wakes) ||
			!wakes(last.Do.After[end]) || last.Do.After[0].Kind != Gone {
			t.Errorf("%s: it is looked at on %s by %+v", target, last.Host, last.Do)
		}
		if !is(last.Undo, StartUnit, PutFile) || len(last.Undo.Before) > 0 {
			t.Errorf("%s: taken back by %+v", target, last.Undo)
		}
	}
}

// TestAPersonStopsALegacySideOfItsOwn: it is not there any more before anything goes on, and there again on the way
// back before anything else does.
func TestAPersonStopsALegacySideOfItsOwn(t *testing.T) {
	text := beforeRetiring(t, "    existing: true\n")
	text = strings.Replace(text, "apiServer: {port: 6443}", "apiServer: {port: 6443, extraArgs: [{name: "+
		"authorization-mode, value: RBAC}, {name: secure-port, value: '6443'}]}", 1)
	from := Setup{Plan: planOf(t, splitExample, text), Target: render.StaticPod}
	to := Setup{Plan: planOf(t, splitExample, retired(text)), Target: render.StaticPod}
	tr, err := New(from, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	at := position(t, &tr, "stops the legacy side", func(s Step) bool {
		return strings.HasPrefix(s.Title, "stop the legacy side of")
	})
	s := tr.Steps[at]
	ports := func(a *Action, kind CheckKind) (ports []int) {
		for _, c := range a.After {
			if c.Kind == kind {
				ports = append(ports, c.Probe.Port)
			}
		}
		return ports
	}
	if s.Do.Kind != ByHand || s.Undo.Kind != ByHand || len(ports(s.Do, Gone)) != 3 ||
		!slices.Equal(ports(s.Do, Gone), ports(s.Undo, Ready)) {
		t.Errorf("the step is %+v", s)
	}
	for _, later := range []Kind{ClearEndpoints, AddRanges} {
		if i := slices.IndexFunc(tr.Steps, func(s Step) bool { return s.Do != nil && s.Do.Kind == later }); i < at {
			t.Errorf("%s comes in step %d, before the legacy side has stopped in step %d", later, i, at)
		}
	}
}

func TestWhatIsNotRetired(t *testing.T) {
	fused := beforeRetiring(t, "")
	alone := retired(fused)
	setup := func(text string) Setup { return Setup{Plan: planOf(t, splitExample, text), Target: render.StaticPod} }
	replace := func(text, old, new string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("the spec has no %q", old)
		}
		return strings.Replace(text, old, new, 1)
	}
	for name, test := range map[string]struct {
		from, to Setup
		says     string
	}{
		"from nothing": {Setup{}, setup(alone), "install beside the legacy side"},
		"to nothing":   {setup(alone), Setup{}, "nothing of the legacy side runs any more"},
		"without copies": {setup(replace(fused, strings.Join(rbacResources(), ", "), "")), setup(alone),
			"has no copies of the roles"},
		"with an upgrade": {setup(replace(fused, "version: 1.36.3", "version: 1.35.0")), setup(alone),
			"the modern version changes at the same time"},
		"kubelets that are not over": {setup(replace(fused, "modern: {}, ", "")), setup(alone), "spec.kubelet.modern"},
		"what is not handed over": {setup(fused), setup(replace(alone, "handedOver: [",
			"handedOver: [deployments.apps, ")),
			"hand over before"},
		"with nodes": {setup(fused), setup(replace(alone, "modern: {}, ", "modern: {"+nodeOne+"}, ")),
			"take nodes over before"},
		"with an address": {setup(fused), setup(strings.ReplaceAll(alone, "10.0.0.11", "10.0.0.19")), "spec.hosts"},
		"another target":  {Setup{Plan: setup(fused).Plan, Target: render.Systemd}, setup(alone), "the target changes"},
		"kubelets of a side alone": {setup(alone), setup(replace(alone, "modern: {}, ", "modern: {version: 1.35.0}, ")),
			"upgraded by hand"},
		"an allocator that takes no further range": {setup(replace(fused, "version: 1.36.3", "version: 1.30.14")),
			setup(replace(alone, "version: 1.36.3", "version: 1.30.14")), "upgrade the modern side first"},
	} {
		if _, err := New(test.from, test.to, Facts{StoresAgree: true}); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: New = %v, want it refused: %q", name, err, test.says)
		}
	}
	tr, err := New(setup(alone), setup(replace(replace(alone, "version: 1.36.3",
		"version: 1.36.2"), "modern: {}, ", "modern: {version: 1.36.3}, ")), Facts{})
	if err != nil || len(tr.Steps) == 0 {
		t.Errorf("a patch level of a side that runs alone: %d steps, %v", len(tr.Steps), err)
	}
}

// TestWhatTheLegacySideMayHave: each resource of its own is looked for, and of each the way over is named.
func TestWhatTheLegacySideMayHave(t *testing.T) {
	tr, from, _ := retiring(t, render.StaticPod)
	at := position(t, &tr, "looks", func(s Step) bool { return checks(s.Do, NothingLeft) })
	left := tr.Steps[at].Do.Before[0].Left
	keys := map[string]string{}
	for _, row := range left.Rows {
		keys[row.Key] = row.Hint
	}
	for i := range from.Plan.Resources {
		row := &from.Plan.Resources[i]
		own := !row.Pseudo && !row.VisibleToBoth() && row.Legacy.Store != "" && !row.Copied
		_, anew := derived[row.Key]
		if _, looked := keys[row.Key]; own && !anew && !looked {
			t.Errorf("%s is not looked for", row.Key)
		}
	}
	for key, says := range map[string]string{"deployments": "spec.handedOver", "podsecuritypolicy": "delete them",
		"poddisruptionbudgets": "", apiServices: ""} {
		if hint, looked := keys[key]; !looked || !strings.Contains(hint, says) {
			t.Errorf("%s: looked for %t, %q", key, looked, hint)
		}
	}
	if _, looked := keys["csinodes"]; looked {
		t.Error("csinodes are looked for: kubelets write them anew")
	}
	if !slices.ContainsFunc(left.Boot, func(k pair.BootKey) bool { return k.Side == pair.Legacy }) {
		t.Errorf("what API servers write by themselves is %+v", left.Boot)
	}
}

// TestWhatTheModernSideStoredAloneIsRead: on the way back from retirement what its controllers and users store in
// versions that the legacy side does not know is written again in those that both sides know, and nothing else is.
func TestWhatTheModernSideStoredAloneIsRead(t *testing.T) {
	const unread = "discovery.k8s.io/v1beta1"
	for version, want := range map[string][]string{"1.6.13": {"networkpolicies"},
		"1.15.12": {"csidrivers", "runtimeclasses"},
		"1.18.19": {"endpointslices", "runtimeclasses"}, "1.20.15": {"endpointslices"}, "1.24.17": nil} {
		text := strings.Replace(example(t, splitExample), "1.15.12", version, -1)
		roles := "  handedOver: [" + strings.Join(rbacResources(), ", ") + "]\n"
		text = strings.Replace(text, "\nspec:\n", "\nspec:\n"+roles, 1)
		text = strings.Replace(text, "  kubelet: {", "  kubelet: {modern: {}, ", 1)
		p := planOf(t, splitExample, text)
		r := rewriteForLegacy(p, planOf(t, splitExample, retired(text)))
		var got []string
		if r != nil {
			for _, row := range r.Resources {
				got = append(got, row.Key)
				if row.Key == "endpointslices" && (row.Store != "core" || !slices.Equal(row.To, []string{unread})) {
					t.Errorf("%s: %+v", version, row)
				}
			}
			if err := r.validate(); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("of what 1.36 stores %s does not read %v, want %v", version, got, want)
		}
	}
}

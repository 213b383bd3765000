package roadmap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// text is an example with changes, OLD, NEW.
func text(t *testing.T, name string, changes ...string) []byte {
	t.Helper()
	data, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(data), changes[i]) {
			t.Fatalf("%s has no %q", name, changes[i])
		}
		data = []byte(strings.Replace(string(data), changes[i], changes[i+1], 1))
	}
	return data
}

func of(data []byte) func() (*spec.File, error) {
	return func() (*spec.File, error) {
		f, _, err := spec.Parse("spec.yaml", data)
		return f, err
	}
}

func version(t *testing.T, text string) kubever.Version {
	t.Helper()
	v, err := kubever.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const split = "split-1.15-1.36.yaml"

// TestEachReleaseDecodesWhatTheOneBeforeItWrites: from every modern version to the newest, through as few as possible.
func TestEachReleaseDecodesWhatTheOneBeforeItWrites(t *testing.T) {
	several, newest := 0, version(t, kubever.Release(kubever.Newest))
	for _, from := range kubever.Minors() {
		data := text(t, split, "version: 1.36.3", "version: "+kubever.Release(from))
		r := &router{file: of(data), target: render.StaticPod}
		at, err := r.begin()
		if err != nil {
			t.Fatal(err)
		}
		first, err := r.plan(at)
		if err != nil {
			t.Logf("modern 1.%d: %v", from, err) // not every version can be the modern side of this spec
			continue
		}
		m, err := New(of(data), render.StaticPod, newest, false)
		if err != nil {
			t.Errorf("modern 1.%d: %v", from, err)
			continue
		}
		last, hops := first, 0
		for i, s := range m.Stages {
			if s.Kind != ModernUp {
				continue
			}
			hops++
			v := version(t, s.Modern)
			at.modern = v
			next, err := r.plan(at)
			if err != nil {
				t.Fatal(err)
			}
			if keys := rewrites(last, next); len(keys) > 0 && !slices.Equal(keys, s.Rewrite) {
				t.Errorf("modern 1.%d, stage %d: %s does not decode %v of %s, and the stage says %v", from, i+1,
					s.Modern,
					keys, last.Modern.Version, s.Rewrite)
			} else if len(keys) > 0 && !s.Blocked() {
				t.Errorf("modern 1.%d, stage %d is not blocked", from, i+1)
			}
			last = next
		}
		if last.Modern.Version != newest {
			t.Errorf("modern 1.%d: the stages end at %s", from, last.Modern.Version)
		}
		at.modern = newest
		if direct, err := r.plan(at); err != nil || hops > 1 && len(rewrites(first, direct)) == 0 {
			t.Errorf("modern 1.%d: %d stages, %v; one would do", from, hops, err)
		}
		if hops > 1 { // what the first of them wrote has to be written again on the way
			several++
			if up := m.Stages[hops]; len(up.Migrate) == 0 {
				t.Errorf("modern 1.%d: nothing is to be rewritten before %s", from, up.Modern)
			} else if !up.Blocked() {
				t.Errorf("modern 1.%d: objects are to be written again before %s, and nothing waits", from, up.Modern)
			} else {
				t.Logf("modern 1.%d: before %s objects of %v are rewritten", from, up.Modern, up.Migrate)
			}
		}
		t.Logf("modern 1.%d: %d stages up", from, hops)
	}
	if several == 0 {
		t.Error("no version needs one between: the test would prove nothing")
	}
}

func TestStagesSayWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		data  []byte
		to    string
		kinds []Kind
		check func(m *Roadmap) string // what is wrong
	}{
		{"at the newest already", text(t, split), "1.36", []Kind{Install, HandOver, Nodes}, func(m *Roadmap) string {
			if h := m.Stages[1]; len(h.Brought) > 0 || len(h.Unread) > 0 || h.Blocked() || !slices.Equal(h.Change,
				[]string{"spec.handedOver: [deployments.apps, statefulsets.apps, daemonsets.apps, jobs.batch, " +
					"cronjobs.batch, horizontalpodautoscalers.autoscaling, ingresses.networking.k8s.io, " +
					"clusterroles.rbac.authorization.k8s.io, roles.rbac.authorization.k8s.io, " +
					"clusterrolebindings.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io, " +
					"poddisruptionbudgets.policy, priorityclasses.scheduling.k8s.io, " +
					"mutatingwebhookconfigurations.admissionregistration.k8s.io, " +
					"validatingwebhookconfigurations.admissionregistration.k8s.io, " +
					"customresourcedefinitions.apiextensions.k8s.io]"}) ||
				h.ByHand != 2 {
				return fmt.Sprintf("the stage that hands over is %+v", h)
			}
			n := m.Stages[2]
			if !slices.Contains(n.Unread, "csinodes") || !slices.Equal(n.Started, []string{"cp-1/kube-apiserver-modern",
				"cp-1/fusionctl-controllers"}) || n.Blocked() {
				return fmt.Sprintf("the nodes' stage is %+v", n)
			}
			return ""
		}},
		{"two minors apart", text(t, split, "version: 1.36.3", "version: 1.24"), "1.36.2",
			[]Kind{Install, ModernUp, HandOver, Nodes},
			func(m *Roadmap) string {
				up := m.Stages[1]
				if up.Modern != "1.36.2" || !slices.Contains(up.Lost, "autoscaling/v2beta2") ||
					!slices.Contains(up.Unread, "podsecuritypolicy") ||
					!slices.Contains(up.Gained, "resource.k8s.io/v1") {
					return fmt.Sprintf("the stage is %+v", up)
				}
				return ""
			}},
		{"nodes there already", text(t, split, "  kubelet: {", "  kubelet: {modern: {}, "), "1.36",
			[]Kind{HandOver}, nil},
		// They are what they are: the server goes up without them, and they follow.
		{"older nodes there already", text(t, split, "  kubelet: {", "  kubelet: {modern: {}, ", "version: 1.36.3",
			"version: 1.33.1"), "1.36", []Kind{ModernUp, HandOver, Nodes}, func(m *Roadmap) string {
			up, nodes := m.Stages[0], m.Stages[2]
			if !slices.Contains(up.Change, "spec.kubelet.modern.version: 1.33.1, what they are") ||
				!slices.Contains(nodes.Change, "spec.kubelet.modern.version: 1.36.3") || !nodes.Blocked() ||
				!strings.Contains(nodes.Outside, "spec.kubelet.modern.nodes: list them") {
				return fmt.Sprintf("the changes are %q and %q", up.Change, nodes.Change)
			}
			return ""
		}},
		{"a patch", text(t, split, "version: 1.36.3", "version: 1.36.2"), "1.36.3",
			[]Kind{Install, ModernUp, HandOver, Nodes}, nil},
		// Up to 1.13 the legacy side has heartbeats and DaemonSets that stand against it, from 1.14 on neither.
		{"heartbeats unseen", text(t, "pods-1.10-1.36.yaml"), "1.36", []Kind{Install, LegacyUp, HandOver, Nodes}, func(
			m *Roadmap) string {
			up, nodes := m.Stages[1], m.Stages[3]
			if up.Legacy != "1.14.10" || len(up.Why) != 2 || !strings.Contains(up.Why[1], "FUS084") || !up.Prepare ||
				len(up.Instead) != 2 || !strings.Contains(up.Instead[0], "create them again") || nodes.Blocked() ||
				!slices.Contains(up.Empty, "initializerconfigurations") || !slices.Contains(up.Unread, "leases") {
				return fmt.Sprintf("the stages are %+v and %+v", up, nodes)
			}
			return ""
		}},
		{"images of another version", text(t, "shared-1.6-1.10.yaml"), "1.11", []Kind{Install, ModernUp, Nodes},
			func(m *Roadmap) string {
				if up := m.Stages[1]; len(up.Change) != 2 {
					return fmt.Sprintf("the change is %q, want images named", up.Change)
				}
				return ""
			}},
	} {
		m, err := New(of(c.data), render.StaticPod, version(t, c.to), false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var kinds []Kind
		for i := range m.Stages {
			s := &m.Stages[i]
			kinds = append(kinds, s.Kind)
			kubeletsAlone := s.Kind == Nodes && len(s.Started) == 0
			if !kubeletsAlone && (len(s.Refused) > 0 || s.Steps == 0 || s.Waits == 0) {
				t.Errorf("%s, stage %d: %d steps, %d waits, refused %q", c.name, i+1, s.Steps, s.Waits, s.Refused)
			}
		}
		want, ends := c.kinds, slices.Contains(c.kinds, HandOver)
		if ends { // with its roles copied, the legacy side can be retired
			want = append(slices.Clone(want), Retire)
			last := &m.Stages[len(m.Stages)-1]
			if m.NotRetired != "" || len(m.Left) > 0 || last.Seconds < 30 || last.ByHand == 0 ||
				!slices.Contains(last.Empty, "deployments") || slices.Contains(last.Empty, "roles") ||
				!slices.Contains(last.Lost, "extensions/v1beta1") {
				t.Errorf("%s: not retired: %q, left are %v, the last stage is %+v", c.name, m.NotRetired, m.Left, last)
			}
		} else if m.NotRetired == "" {
			t.Errorf("%s: the legacy side is retired", c.name)
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("%s: stages %v, want %v", c.name, kinds, want)
		} else if c.check != nil {
			if wrong := c.check(m); wrong != "" {
				t.Errorf("%s: %s", c.name, wrong)
			}
		}
		if !ends && (slices.Contains(m.Left, "nodes") || !slices.Contains(m.Left, "roles") ||
			!slices.Contains(m.Left, "deployments")) {
			t.Errorf("%s: left are %v", c.name, m.Left)
		}
	}
}

// midway is a spec between the first stage and the last.
func midway(t *testing.T, handed string, changes ...string) []byte {
	t.Helper()
	return text(t, split, append(changes, "  layout: split", "  layout: split\n  handedOver: "+handed)...)
}

const roles = "clusterroles.rbac.authorization.k8s.io, roles.rbac.authorization.k8s.io, " +
	"clusterrolebindings.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io"

// TestWhatIsLeft of a way of which a part is done.
func TestWhatIsLeft(t *testing.T) {
	full, err := New(of(text(t, split)), render.StaticPod, version(t, "1.36"), false)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.TrimPrefix(full.Stages[1].Change[0], "spec.handedOver: ")
	alone := []string{"  kubelet: {", "  kubelet: {modern: {}, ",
		"    store: core\n", "    store: core\n    retired: true\n",
		"    apiServer: {port: 7443}", "    apiServer: {port: 7443}\n    scheduler: {}"}
	for _, c := range []struct {
		name      string
		data      []byte
		installed bool
		kinds     []Kind
		handed    string // the first stage's
	}{
		{"installed", text(t, split), true, []Kind{HandOver, Nodes, Retire}, all},
		{"some", midway(t, "[deployments.extensions, poddisruptionbudgets.policy]"), false,
			[]Kind{HandOver, Nodes, Retire},
			"[deployments.extensions, poddisruptionbudgets.policy, statefulsets.apps, "},
		{"namespaces", midway(t, `[team-a/deployments.apps, "team-b/*", `+roles+`]`), false,
			[]Kind{HandOver, Nodes, Retire}, "[" + roles + ", deployments.apps, statefulsets.apps, "},
		{"workloads", midway(t, all), false, []Kind{Nodes, Retire}, ""},
		{"nodes", midway(t, all, "  kubelet: {", "  kubelet: {modern: {}, "), false, []Kind{Retire}, ""},
		{"nothing", midway(t, all, alone...), false, nil, ""},
		{"alone, of an older version", midway(t, all, append(alone, "version: 1.36.3", "version: 1.35.6")...), false,
			[]Kind{ModernUp, Nodes}, ""},
	} {
		m, err := New(of(c.data), render.StaticPod, version(t, "1.36"), c.installed)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var kinds []Kind
		for _, s := range m.Stages {
			kinds = append(kinds, s.Kind)
			if len(s.Refused) > 0 {
				t.Errorf("%s: %s is refused: %q", c.name, s.Kind, s.Refused)
			}
		}
		if !slices.Equal(kinds, c.kinds) || m.NotRetired != "" || len(m.Left) > 0 || c.installed == (m.Running != "") {
			t.Errorf("%s: stages %v, want %v; left %v, not retired %q, running %q", c.name, kinds, c.kinds, m.Left,
				m.NotRetired, m.Running)
		} else if c.handed != "" && (!strings.HasPrefix(m.Stages[0].Change[0], "spec.handedOver: "+c.handed) ||
			strings.Contains(m.Stages[0].Change[0], "team-")) {
			t.Errorf("%s: the change is %q, want %q", c.name, m.Stages[0].Change, c.handed)
		}
	}
}

// change is a spec with the changes that a stage prints, as a person makes them.
func change(t *testing.T, data []byte, changes []string) []byte {
	t.Helper()
	var file map[string]any
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		field, value, _ := strings.Cut(strings.TrimSuffix(c, whatTheyAre), ": ")
		if side, is := strings.CutPrefix(field, "images of spec."); is {
			of := file["spec"].(map[string]any)[side].(map[string]any)
			delete(of, "image")
			for _, component := range of {
				if m, is := component.(map[string]any); is {
					delete(m, "image")
				}
			}
			continue
		}
		if strings.HasPrefix(field, "extraArgs of ") {
			continue
		}
		var parsed any
		if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatalf("%q: %v", c, err)
		}
		if field == "spec.legacy.version" || strings.HasSuffix(field, ".version") {
			parsed = value
		}
		at, path := file, strings.Split(field, ".")
		for _, name := range path[:len(path)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[path[len(path)-1]] = parsed
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEveryStageIsPlanned: the spec is changed as the stages print it, and each is planned from the one before, without
// a refusal, until the modern side runs alone where the layout lets it.
func TestEveryStageIsPlanned(t *testing.T) {
	one, three, shared := split, "ha-three-hosts-1.15-1.36.yaml", "shared-1.6-1.10.yaml"
	for _, c := range []struct{ file, legacy, modern, to string }{
		{one, "1.6.13", "1.36.3", "1.36"}, {one, "1.8.15", "1.24.17", "1.36"}, {one, "1.10.13", "1.36.3", "1.36"},
		{one, "1.12.10", "1.36.3", "1.36"}, {one, "1.15.12", "1.33.1", "1.36"}, {one, "1.20.15", "1.36.3", "1.37"},
		{one, "1.24.17", "1.36.3", "1.36"}, {three, "1.6.13", "1.36.3", "1.36"}, {three, "1.10.13", "1.36.3", "1.36"},
		{three, "1.15.12", "1.36.3", "1.36"}, {"pods-1.10-1.36.yaml", "1.10.13", "1.36.3", "1.36"},
		{"vendor-1.6-1.36.yaml", "1.6.13-acme.4", "1.36.3", "1.36"},
		{"split-1.6-1.10.yaml", "1.6.13", "1.10.13", "1.36"},
		{shared, "1.6.13", "1.10.13", "1.11"},
	} {
		t.Run(fmt.Sprintf("%s_%s_%s", c.file, c.legacy, c.modern), func(t *testing.T) {
			t.Parallel()
			data := string(text(t, c.file))
			for _, of := range []string{one, three} {
				if c.file == of {
					data = strings.NewReplacer("version: 1.15.12", "version: "+c.legacy, "version: 1.36.3",
						"version: "+c.modern).Replace(data)
				}
			}
			m, err := New(of([]byte(data)), render.Systemd, version(t, c.to), false)
			if err != nil {
				t.Fatal(err)
			}
			r := &router{target: render.Systemd}
			var last *plan.Plan
			var kinds []Kind
			for _, s := range m.Stages {
				kinds = append(kinds, s.Kind)
				data = string(change(t, []byte(data), s.Change))
				r.file = of([]byte(data))
				at, err := r.begin()
				if err != nil {
					t.Fatal(err)
				}
				p, err := r.plan(at)
				if err != nil {
					t.Fatalf("%s: %v", s.Kind, err)
				}
				made, refused, err := r.transition(last, p, s.Prepare)
				if err != nil || len(refused) > 0 || len(made.Steps) != s.Steps || s.Steps == 0 {
					t.Fatalf("%s: %d steps, want %d; refused %q, %v", s.Kind, len(made.Steps), s.Steps, refused, err)
				}
				last = p
			}
			if retires := last.Layout == spec.LayoutSplit; retires != last.Legacy.Retired {
				t.Errorf("stages %v; not retired: %q", kinds, m.NotRetired)
			}
			early := version(t, c.legacy).Minor < 14
			if up := slices.Contains(kinds, LegacyUp); up != (early && c.file != shared) {
				t.Errorf("stages %v, with the legacy side at %s", kinds, c.legacy)
			}
		})
	}
}

func TestHostedHasNoRoadmap(t *testing.T) {
	if _, err := New(of(text(t, "hosted-1.15-1.36.yaml")), render.Hosted, version(t, "1.36"), false); err == nil ||
		!strings.Contains(err.Error(), "fusionctl operator") {
		t.Errorf("New = %v, want it refused", err)
	}
}

func TestNoRoadLeadsDown(t *testing.T) {
	for _, to := range []string{"1.33", "1.36.2"} {
		if _, err := New(of(text(t, split)), render.StaticPod, version(t, to), false); err == nil ||
			!strings.Contains(err.Error(), "is at 1.36.3 already") {
			t.Errorf("New to %s = %v, want it refused", to, err)
		}
	}
}

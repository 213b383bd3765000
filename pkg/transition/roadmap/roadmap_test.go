package roadmap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/kubever"
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
		first, err := r.plan(nil, false)
		if err != nil {
			t.Logf("modern 1.%d: %v", from, err) // not every version can be the modern side of this spec
			continue
		}
		m, err := New(of(data), render.StaticPod, newest)
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
			next, err := r.plan(&v, false)
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
		if direct, err := r.plan(&newest, false); err != nil || hops > 1 && len(rewrites(first, direct)) == 0 {
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
			[]Kind{Install, HandOver}, nil},
		// They are what they are: the server goes up without them, and they follow.
		{"older nodes there already", text(t, split, "  kubelet: {", "  kubelet: {modern: {}, ", "version: 1.36.3",
			"version: 1.33.1"), "1.36", []Kind{Install, ModernUp, HandOver, Nodes}, func(m *Roadmap) string {
			up, nodes := m.Stages[1], m.Stages[3]
			if !slices.Contains(up.Change, "spec.kubelet.modern.version: 1.33.1, what they are") ||
				!slices.Contains(nodes.Change, "spec.kubelet.modern.version: 1.36.3") || len(nodes.Refused) != 1 ||
				!strings.Contains(nodes.Refused[0], "spec.kubelet.modern.nodes: list them") {
				return fmt.Sprintf("the changes are %q and %q", up.Change, nodes.Change)
			}
			return ""
		}},
		{"a patch", text(t, split, "version: 1.36.3", "version: 1.36.2"), "1.36.3",
			[]Kind{Install, ModernUp, HandOver, Nodes}, nil},
		{"heartbeats unseen", text(t, "pods-1.10-1.36.yaml"), "1.36", []Kind{Install, HandOver, Nodes}, func(
			m *Roadmap) string {
			if n := m.Stages[2]; !n.Blocked() || len(n.Brought) == 0 || n.Brought[0].Rule != "FUS084" {
				return fmt.Sprintf("the nodes' stage is %+v, want FUS084", n)
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
		m, err := New(of(c.data), render.StaticPod, version(t, c.to))
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

func TestNoRoadLeadsDown(t *testing.T) {
	for _, to := range []string{"1.33", "1.36.2"} {
		if _, err := New(of(text(t, split)), render.StaticPod, version(t, to)); err == nil ||
			!strings.Contains(err.Error(), "is at 1.36.3 already") {
			t.Errorf("New to %s = %v, want it refused", to, err)
		}
	}
}

package transition

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// legacyAt is an example with another version of its legacy side, rendered or existing.
func legacyAt(t *testing.T, version string, existing bool) Setup {
	t.Helper()
	text := strings.Replace(example(t, splitExample), "    version: 1.15.12", "    version: "+version, 1)
	text = strings.Replace(text, "kubelet: {version: 1.15.12", "kubelet: {version: 1.10.13", 1)
	p := planOf(t, splitExample, text)
	p.Legacy.Existing = existing
	return Setup{Plan: p, Target: render.Systemd}
}

// TestLegacyGoesUp: over one minor and over several, rendered and existing, no API server of the older minor runs when
// one of the newer starts, keys go to another store while no API server of either side looks for them, and kinds that
// end are looked for.
func TestLegacyGoesUp(t *testing.T) {
	const newKinds = "csidrivers, csinodes, leases, runtimeclasses"
	for _, test := range []struct {
		from, to string
		existing bool
		moved    string
		ends     []string
	}{
		{"1.14.10", "1.15.12", false, "", nil},
		{"1.10.13", "1.15.12", false, newKinds, []string{"initializerconfigurations"}},
		{"1.10.13", "1.15.12", true, newKinds, []string{"initializerconfigurations"}},
		{"1.6.13", "1.10.13", false, "volumeattachments", []string{"thirdpartyresources"}},
	} {
		t.Run(strings.ReplaceAll(test.from+" to "+test.to, " ", "_"), func(t *testing.T) {
			from, to := legacyAt(t, test.from, test.existing), legacyAt(t, test.to, test.existing)
			tr, err := New(from, to, Facts{StoresAgree: true, Prepare: true, Empty: Moves(from, to)})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Validate(); err != nil {
				t.Fatal(err)
			}
			at := func(what string, found func(s *Step) bool) int {
				t.Helper()
				i := slices.IndexFunc(tr.Steps, func(s Step) bool { return found(&s) })
				if i < 0 {
					t.Fatalf("no step: %s", what)
				}
				return i
			}
			titled := func(title string) int {
				return at(title, func(s *Step) bool { return s.Title == title })
			}
			stop, start := "stop kube-apiserver", "start kube-apiserver"
			if test.existing {
				stop, start = "stop the legacy side of cp-1", "start the legacy side of cp-1"
			}
			stopped, started := titled(stop), titled(start)
			if test.moved != "" {
				stopped = max(stopped, titled("stop kube-apiserver-modern"))
				moved := at("move keys", func(s *Step) bool { return s.Do != nil && s.Do.Kind == MoveKeys })
				m := tr.Steps[moved].Do.Moving
				if m.names() != test.moved || m.From.Name != "modern" || m.To.Name != "core" {
					t.Errorf("%s go from %s to %s, want %s", m.names(), m.From.Name, m.To.Name, test.moved)
				}
				if back := tr.Steps[moved].Undo.Moving; back.From.Name != "core" || back.names() != test.moved {
					t.Errorf("%s come back from %s", back.names(), back.From.Name)
				}
				if moved < stopped || moved > started {
					t.Errorf("keys go in step %d, servers stop until %d and start in %d", moved, stopped, started)
				}
			}
			if stopped > started {
				t.Errorf("servers stop until step %d, and start in %d", stopped, started)
			}
			if test.existing {
				for i, want := range map[int]string{stopped: "", started: test.to} {
					for _, c := range tr.Steps[i].Do.After {
						if c.Kind == Ready && c.Program == "kube-apiserver" && (c.Version != want ||
							c.Probe.Path != "/version" || c.Cert == "") {
							t.Errorf("step %d wants version %q at %q by %q, want %q", i, c.Version, c.Probe.Path,
								c.Cert, want)
						}
					}
				}
				for _, c := range tr.Steps[titled(stop)].Undo.After {
					if c.Program == "kube-apiserver" && c.Version != test.from {
						t.Errorf("on the way back it wants version %q, want %q", c.Version, test.from)
					}
				}
			}
			var ends []string
			for _, s := range tr.Steps {
				if s.Phase == Prepare && s.Do != nil && len(s.Do.Before) > 0 && s.Do.Before[0].Kind == NothingLeft {
					for _, row := range s.Do.Before[0].Left.Rows {
						ends = append(ends, row.Key)
					}
				}
			}
			if !slices.Equal(ends, test.ends) {
				t.Errorf("%q end, want %q", ends, test.ends)
			}
			titled("the stores are readable by " + test.to)
			titled("all that is stored is readable by " + test.to)
			titled("on the way back: the stores are readable by " + test.from)
		})
	}
}

// TestLegacyUpIsRefused with what changes at the same time, backwards, and without a look at the stores or at keys.
func TestLegacyUpIsRefused(t *testing.T) {
	older, newer := legacyAt(t, "1.10.13", false), legacyAt(t, "1.15.12", false)
	both := newer
	both.Plan = planOf(t, splitExample, strings.NewReplacer("version: 1.36.3", "version: 1.33.1").Replace(
		example(t, splitExample)))
	read := Facts{StoresAgree: true, Prepare: true, Empty: Moves(older, newer)}
	for _, test := range []struct {
		from, to Setup
		facts    Facts
		says     string
	}{
		{older, newer, Facts{}, "the stores have to be read first"},
		{older, newer, Facts{StoresAgree: true}, "leases (modern to core)"},
		{newer, older, Facts{StoresAgree: true, Empty: Moves(newer, older)}, "comes back by fusionctl transition undo"},
		{older, both, read, "the modern version changes at the same time"},
	} {
		var refused *RefusedError
		if _, err := New(test.from, test.to, test.facts); !errors.As(err, &refused) ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("New = %v, want it refused: %q", err, test.says)
		}
	}
	var refused *RefusedError
	const hosted = "hosted-1.15-1.36.yaml"
	before := strings.ReplaceAll(example(t, hosted), "version: 1.15.12", "version: 1.14.10")
	_, err := NewHosted(planOf(t, hosted, before), planOf(t, hosted, example(t, hosted)), Facts{StoresAgree: true})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the minor of a hosted legacy side stays") {
		t.Errorf("NewHosted = %v, want it refused", err)
	}
}

// TestKeysThatMoveAreReadThere: a version that one of the sides does not read is none in which a key may go.
func TestKeysThatMoveAreReadThere(t *testing.T) {
	older, newer := legacyAt(t, "1.10.13", false), legacyAt(t, "1.15.12", false)
	moving := MovingOf(older, newer)
	if len(moving) != 1 {
		t.Fatalf("%d stores are left", len(moving))
	}
	for _, row := range moving[0].Resources {
		for _, v := range row.Reads {
			for _, side := range pair.Sides() {
				if !slices.Contains(newer.Plan.Resource(row.Key).View(side).Decodes, v) {
					t.Errorf("%s go as %s, which the %s side does not decode", row.Key, v, side)
				}
			}
		}
	}
	fewer := *newer.Plan
	fewer.Stores = slices.DeleteFunc(slices.Clone(fewer.Stores), func(s plan.Store) bool {
		return s.Name == moving[0].From.Name
	})
	if moving := MovingOf(older, Setup{Plan: &fewer, Target: newer.Target}); moving != nil { // New refuses it
		t.Errorf("keys move out of a store that is not there: %v", moving)
	}
	if MovingOf(newer, newer) != nil {
		t.Error("keys move where nothing changes")
	}
}

// TestObjectsThatNoVersionOfBothHas are written for the side that reads next: on the way back they are written again.
func TestObjectsThatNoVersionOfBothHas(t *testing.T) {
	older, newer := legacyAt(t, "1.6.13", false), legacyAt(t, "1.10.13", false)
	for _, way := range [][2]Setup{{older, newer}, {newer, older}} {
		r := Rewrites(way[0], way[1])
		at := slices.IndexFunc(r.Resources, func(row Rewritten) bool { return row.Key == "deployments" })
		if at < 0 || len(r.Resources[at].To) == 0 {
			t.Fatalf("Deployments for %s: %+v", way[1].Plan.Legacy.Version, r.Resources)
		}
		for _, v := range r.Resources[at].To {
			if !way[1].Plan.Resource("deployments").Legacy.Reads(v) {
				t.Errorf("Deployments are written as %s, which %s does not read", v, way[1].Plan.Legacy.Version)
			}
		}
	}
}

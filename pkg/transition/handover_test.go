package transition

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// handing is the example of a pair that has handed resources over.
func handing(t *testing.T, name, resources string, target render.Target) Setup {
	t.Helper()
	text := example(t, name)
	if resources != "" {
		text = strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+resources+"]\n", 1)
	}
	return Setup{Plan: planOf(t, name, text), Target: target}
}

const splitExample = "split-1.15-1.36.yaml"

// TestHandOverWhileNoControllerActs: the objects go when the controllers of both sides have stopped that act for them,
// or collect what they own, and these start afterwards; on the way back the same.
func TestHandOverWhileNoControllerActs(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		from := handing(t, splitExample, "", target)
		to := handing(t, splitExample, "deployments.apps", target)
		tr, err := New(from, to, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		at := position(t, &tr, "that hands over", func(s Step) bool { return s.Do != nil && s.Do.Kind == HandOver })
		s := tr.Steps[at]
		if s.Undo.Kind != HandBack || s.Do.Objects.Record != s.Undo.Objects.Record ||
			s.Do.Objects.From.Name != s.Undo.Objects.To.Name || s.Do.Objects.Pods != "core" ||
			s.Undo.Objects.Pods != "core" || s.Undo.Objects.Plan.Absent != nil ||
			!slices.Equal(s.Do.Objects.Plan.Absent, []string{"horizontalpodautoscalers"}) {
			t.Errorf("the step is %+v, its inverse %+v", s.Do.Objects, s.Undo.Objects)
		}
		stopped := func(a *Action) bool { return a != nil && (a.Kind == StopUnit || a.Kind == RemoveFile) }
		started := func(a *Action) bool { return a != nil && (a.Kind == StartUnit || a.Kind == PutFile) }
		for _, name := range []string{"kube-controller-manager-modern", "fusionctl-controllers"} {
			about := func(s Step) bool { return strings.Contains(s.Title, name) && !strings.Contains(s.Title, ".conf") }
			stop := position(t, &tr, "that stops "+name, func(s Step) bool { return about(s) && stopped(s.Do) })
			start := position(t, &tr, "that starts "+name, func(s Step) bool { return about(s) && started(s.Do) })
			if stop > at || start < at || !started(tr.Steps[stop].Undo) || !stopped(tr.Steps[start].Undo) {
				t.Errorf("%s: %s stops at %d and starts at %d, handed over at %d", target, name, stop, start, at)
			}
		}
		args := func(p *plan.Plan) string {
			value, _ := p.ComponentsOf("legacy", "kube-controller-manager")[0].Arg("controllers")
			return value
		}
		if got := args(to.Plan); !strings.Contains(got, "-deployment,") || !strings.HasSuffix(got, ",-replicaset") ||
			strings.Contains(args(from.Plan), "-deployment") {
			t.Errorf("the legacy controllers are %s, before %s", got, args(from.Plan))
		}
		for kind, after := range map[CheckKind]bool{MayGo: false, Adopted: true} {
			forth := position(t, &tr, "that checks", func(s Step) bool { return checks(s.Do, kind) })
			back := position(t, &tr, "that checks on the way back", func(s Step) bool { return checks(s.Undo, kind) })
			if (forth > at) != after || (back < at) != after {
				t.Errorf("%s: %q is asked at %d, on the way back at %d", target, kind, forth, back)
			}
		}
	}
}

// TestIngressesAreInBothStoresUntilTheirControllersServeThem: nothing of the control plane stops for that, and a person
// says when the originals may go; on the way back, when the copies may.
func TestIngressesAreInBothStoresUntilTheirControllersServeThem(t *testing.T) {
	from, to := handing(t, splitExample, "", render.StaticPod), handing(t, splitExample, "ingresses.extensions",
		render.StaticPod)
	tr, err := New(from, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	short := func(a *Action) string {
		if a == nil {
			return "-"
		}
		o, text := a.Objects, string(a.Kind)
		for _, c := range a.Before {
			if c.Kind != Ready {
				o, text = c.Objects, string(c.Kind)
			}
		}
		if o != nil && o.Plan.Copy {
			text += " (copy)"
		}
		return text
	}
	var steps []string
	for _, s := range tr.Steps {
		steps = append(steps, short(s.Do)+" | "+short(s.Undo))
	}
	want := []string{"may go (copy) | -", "snapshot store | -", "snapshot store | -", "- | adopted",
		"hand over (copy) | hand back", "by hand | by hand", "hand over | hand back (copy)", "adopted | may go (copy)"}
	if !slices.Equal(steps, want) {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	// with what controllers act for, they go while all runs
	tr, err = New(from, handing(t, splitExample, "ingresses.extensions, deployments.apps", render.StaticPod), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	goes := position(t, &tr, "that removes them", func(s Step) bool {
		return s.Title == "hand ingresses over to the modern side"
	})
	stops := position(t, &tr, "that stops", func(s Step) bool { return s.Phase == Stop })
	if goes > stops {
		t.Errorf("they go by step %d, after %q", goes, tr.Steps[stops].Title)
	}
}

// TestTheJournalKnowsTheRecordOfCopies: that of the last step that changed it; the first one begins it anew.
func TestTheJournalKnowsTheRecordOfCopies(t *testing.T) {
	from := handing(t, splitExample, "", render.StaticPod)
	tr, err := New(from, handing(t, splitExample, "ingresses.extensions", render.StaticPod), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, from)
	told := map[string]string{}
	c.judged = func(kind string, o *Objects) error {
		if o.Plan.Copy {
			kind += " copy"
		}
		told[kind] = "nothing"
		if o.Known != nil {
			told[kind] = o.Known.Digest
		}
		if kind == "hand over copy" || kind == "hand over" {
			c.kept = &handover.Known{Directory: "/kept", Digest: "after " + kind}
		}
		return nil
	}
	c.kept = &handover.Known{Directory: "/kept"}
	for _, do := range []func() error{
		func() error { return Apply(t.Context(), &tr, c, c, nil) },
		func() error { return Undo(t.Context(), &tr, c, c, nil) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	const last = "after hand over"
	for kind, want := range map[string]string{"hand over copy": "", "hand over": "", "hand back copy": last,
		"hand back": last, "adopted": last} {
		if told[kind] != want {
			t.Errorf("%s is told of the record %q, want %q", kind, told[kind], want)
		}
	}
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil || told["may go copy"] != "nothing" {
		t.Errorf("once more: %v, told of the record %q", err, told["may go copy"])
	}
}

// TestTheLegacySideGivesUpBeforeAnythingStops: where it runs from files of its own, a person has changed its arguments
// before, and changes them back after the objects are back.
func TestTheLegacySideGivesUpBeforeAnythingStops(t *testing.T) {
	const vendor = "vendor-1.6-1.36.yaml"
	tr, err := New(handing(t, vendor, "", render.StaticPod), handing(t, vendor, "deployments.apps", render.StaticPod),
		Facts{})
	if err != nil {
		t.Fatal(err)
	}
	at := position(t, &tr, "that hands over", func(s Step) bool { return s.Do != nil && s.Do.Kind == HandOver })
	gives := position(t, &tr, "that checks the arguments", func(s Step) bool { return checks(s.Do, Runs) })
	stops := position(t, &tr, "that stops", func(s Step) bool { return s.Phase == Stop })
	if gives > stops || stops > at || !checks(tr.Steps[gives].Undo, Runs) {
		t.Errorf("the arguments are checked at %d, components stop at %d, objects go at %d: %+v", gives, stops, at,
			tr.Steps[gives])
	}
	if guard := tr.Steps[at+1]; guard.Do != nil || !checks(guard.Undo, Runs) ||
		!strings.Contains(guard.Undo.Before[0].Args[0], "-replicaset") {
		t.Errorf("before objects come back, %+v is checked", guard)
	}
}

func TestHandOverRefusals(t *testing.T) {
	none := handing(t, splitExample, "", render.StaticPod)
	handed := handing(t, splitExample, "deployments.apps", render.StaticPod)
	newer := none
	changed := *handed.Plan
	changed.Modern.Version.Minor = 33
	newer.Plan = &changed
	for name, test := range map[string]struct {
		from, to Setup
		says     string
	}{
		"with the installation": {Setup{}, handed, "install without it, then hand over"},
		"back":                  {handed, none, "replicasets, deployments: only the steps that handed them over"},
		"removed":               {handed, Setup{}, "only the steps that handed them over"},
		"with another version":  {none, newer, "the modern version changes at the same time"},
		"with another target": {none, handing(t, splitExample, "deployments.apps", render.Systemd),
			"the target changes at the same time"},
	} {
		if _, err := New(test.from, test.to, Facts{StoresAgree: true}); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if tr, err := New(handed, handed, Facts{}); err != nil || len(tr.Steps) > 0 {
		t.Errorf("to itself: %d steps, %v", len(tr.Steps), err)
	}
}

// TestOwnersGetAVersionThatIsServed: of each kind that is handed over, in either direction.
func TestOwnersGetAVersionThatIsServed(t *testing.T) {
	const pods = "pods-1.10-1.36.yaml"
	tr, err := New(handing(t, pods, "", render.StaticPod),
		handing(t, pods, "deployments.apps", render.StaticPod), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(record string) (forth, back *Objects) {
		s := tr.Steps[position(t, &tr, record, func(s Step) bool {
			return s.Do != nil && s.Do.Objects != nil && s.Do.Kind == HandOver && s.Do.Objects.Record == record
		})]
		return s.Do.Objects, s.Undo.Objects
	}
	forth, back := of("hand-over-deployments")
	if forth.Plan.APIVersions["ReplicaSet"]["extensions/v1beta1"] != "apps/v1" ||
		len(back.Plan.APIVersions["ReplicaSet"]) != 0 || len(forth.Plan.Absent) != 1 ||
		!back.Plan.DropManagedFields || forth.Plan.DropManagedFields {
		t.Errorf("deployments go by %+v and %+v", forth.Plan, back.Plan)
	}
}

// TestTheJournalKnowsTheRecord: from before a hand-over begins the journal says where its record lies, and when it is
// done which one it is. All that is done on the way back is told so; nothing is before, and nothing afterwards.
func TestTheJournalKnowsTheRecord(t *testing.T) {
	setups := journeys(t)["hand over"]
	tr, err := New(setups[0], setups[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, setups[0])
	c.kept = &handover.Known{Directory: strings.Repeat("/kept", 1000), Digest: "before"}
	if err := Apply(t.Context(), &tr, c, c, nil); err == nil || !strings.Contains(err.Error(), "4096 bytes") {
		t.Errorf("a directory of %d bytes is kept: %v", len(c.kept.Directory), err)
	}
	c.asked = nil
	// What is gone a person acknowledges, and no host.
	c.kept = &handover.Known{Directory: "/kept", Digest: "before", Gone: "all"}
	told, killed := map[string]*handover.Known{}, false
	c.judged = func(kind string, o *Objects) error {
		if o.Plan.Back {
			kind += " back"
		}
		told[kind] = o.Known
		if kind == string(HandOver) && !killed {
			killed = true
			return errKilled
		}
		if kind == string(HandOver) {
			c.kept.Digest = "after"
		}
		return nil
	}
	if err := Apply(t.Context(), &tr, c, c, nil); !errors.Is(err, errKilled) || len(c.asked) != 1 || c.asked[0] != nil {
		t.Fatalf("killed while objects go: %v; asked for the record with %+v", err, c.asked)
	}
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	if k := told["may go"]; k != nil {
		t.Errorf("before it has begun, %+v is known", k)
	}
	if len(c.asked) != 3 || c.asked[1] == nil || c.asked[1].Directory != "/kept" {
		t.Errorf("begun again, the record is asked for with %+v", c.asked)
	}
	if k := told["hand over"]; k == nil || *k != (handover.Known{Directory: "/kept"}) {
		t.Errorf("while objects go, %+v is known", k)
	}
	done := handover.Known{Directory: "/kept", Digest: "after"}
	if k := told["adopted"]; k == nil || *k != done {
		t.Errorf("when it is done, %+v is known", k)
	}
	if err := Undo(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"may go back", "hand back back", "adopted back"} {
		if k := told[kind]; k == nil || *k != done {
			t.Errorf("%s: %+v is known", kind, k)
		}
	}
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	if k := told["may go"]; k != nil {
		t.Errorf("when it begins anew, %+v is known", k)
	}
	// a journal in which no record is kept, of a program that did not
	for i := range c.records {
		c.records[i].Kept = nil
	}
	if err := Undo(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	if k := told["hand back back"]; k == nil {
		t.Error("what is done has no record")
	}
}

// TestAStepSaysWhatItLooksAt: that controllers act, where objects show it.
func TestAStepSaysWhatItLooksAt(t *testing.T) {
	tr, err := New(handing(t, splitExample, "", render.StaticPod), handing(t, splitExample,
		"deployments.apps, horizontalpodautoscalers.autoscaling", render.StaticPod), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for title, record := range map[string]string{
		"the modern controllers act for replicasets, deployments, and their pods stay": "hand-over-deployments",
		"the pods of horizontalpodautoscalers stay; the objects do not show whether the modern controllers act": "" +
			"hand-over-horizontalpodautoscalers",
	} {
		position(t, &tr, title, func(s Step) bool {
			return checks(s.Do, Adopted) && s.Do.Before[0].Objects.Record == record && s.Title == title
		})
	}
}

// TestObjectsThatAreGoneStopTheWayBack until a person acknowledges these, and no others.
func TestObjectsThatAreGoneStopTheWayBack(t *testing.T) {
	setups := journeys(t)["hand over"]
	tr, err := New(setups[0], setups[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{string(MayGo), string(HandBack)} {
		c, gone := newCluster(t, setups[0]), ""
		c.kept = &handover.Known{Directory: "/kept", Digest: "after"}
		c.judged = func(kind string, o *Objects) error {
			if o.Plan.Back && kind == at && o.Known.Gone != gone {
				return &handover.GoneError{Keys: []string{"/registry/deployments/default/web"}, Gone: 1, Of: 1,
					Digest: gone}
			}
			return nil
		}
		if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
		for _, gone = range []string{"one", "another"} {
			for range 2 {
				err := Undo(t.Context(), &tr, c, c, nil)
				if !errors.Is(err, ErrOtherStore) || !strings.Contains(err.Error(), "deployments/default/web") {
					t.Fatalf("%s, %s are gone: %v", at, gone, err)
				}
			}
			stop := Stopped(c.records)
			if stop == nil || !strings.Contains(strings.Join(stop.Looked.Why, ""), "are in neither store") {
				t.Fatalf("%s: the journal stops for %+v", at, stop)
			}
			if err := Acknowledge(c, stop, "me", ""); err != nil || Stopped(c.records) != nil {
				t.Fatal(err, Stopped(c.records))
			}
		}
		if err := Undo(t.Context(), &tr, c, c, nil); err != nil {
			t.Errorf("%s, acknowledged: %v", at, err)
		}
	}
}

// TestAPersonMayKnowWhatBecameOfPods: of those that were shown, and nothing else that is asked about objects.
func TestAPersonMayKnowWhatBecameOfPods(t *testing.T) {
	setups := journeys(t)["hand over"]
	tr, err := New(setups[0], setups[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	undone, said, found := errors.New("to be done by hand"), "", ""
	for _, pods := range []bool{true, false} {
		c, pod := newCluster(t, setups[0]), "default/web-1"
		said, found = "", ""
		c.judged = func(kind string, _ *Objects) error {
			switch {
			case kind != string(Adopted):
				return nil
			case pods:
				return &handover.PodsError{Pods: []string{pod + ": is gone"}}
			}
			return errors.New("no controller has looked at it yet")
		}
		c.byHand = func(a *Action) error { said, found = a.Text, a.Found; return undone }
		err := Apply(t.Context(), &tr, c, c, nil)
		if err == nil || errors.Is(err, undone) != pods || strings.Contains(said, "web-1: is gone") != pods {
			t.Errorf("pods %t: %v, said %q", pods, err, said)
		}
		agreed := found
		if pods && !IsFound(agreed) {
			t.Errorf("what was found is named %q", agreed)
		}
		said = ""
		c.byHand = func(a *Action) error {
			if said, found = a.Text, a.Found; found == agreed {
				return nil
			}
			return undone
		}
		pod = "default/web-2"
		if err := Apply(t.Context(), &tr, c, c, nil); errors.Is(err, undone) != pods {
			t.Errorf("pods %t, of others than were shown: %v, said %q", pods, err, said)
		}
		pod, said = "default/web-1", ""
		if err := Apply(t.Context(), &tr, c, c, nil); (err == nil) != pods {
			t.Errorf("pods %t, done by hand: %v", pods, err)
		}
	}
}

// TestAStopEndsWithItsStores: that other stores are as they were says nothing of the one that is not.
func TestAStopEndsWithItsStores(t *testing.T) {
	about := func(event Event, stores ...string) Record {
		r := Record{Step: "001", Event: event, Looked: &Looked{Stores: map[string]witness.Sight{}}}
		for _, s := range stores {
			r.Looked.Stores[s] = witness.Sight{}
		}
		return r
	}
	stop := about(Halted, "core", "modern")
	for _, test := range []struct {
		then  []Record
		stops bool
	}{
		{nil, true},
		{[]Record{about(Seen, "core")}, true},
		{[]Record{about(Seen, "core"), about(Seen, "modern")}, false},
		{[]Record{about(Seen, "core", "modern")}, false},
		{[]Record{about(Acknowledged, "core", "modern")}, false},
		{[]Record{about(Acknowledged, "core", "modern"), stop}, true},
	} {
		if got := Stopped(append([]Record{stop}, test.then...)); (got != nil) != test.stops {
			t.Errorf("a stop, then %+v: stopped %v", test.then, got)
		}
	}
}

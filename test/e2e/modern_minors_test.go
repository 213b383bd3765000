//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/test/rig"
)

// storedAnew are resources of which a newer minor stores a version that an older one does not read, with the spec of
// an object that each version of them takes.
var storedAnew = []struct{ group, resource, spec string }{
	{"policy", "poddisruptionbudgets", `{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}`},
	{"batch", "cronjobs", `{"schedule":"0 3 * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",` +
		`"containers":[{"name":"c","image":"example.test/c:1"}]}}}}}`},
	{"autoscaling", "horizontalpodautoscalers", `{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1",` +
		`"kind":"Deployment","name":"web"}}`},
}

// TestModernGoesUpAndBack: the modern API server of a pair goes from minor to minor by transitions, and back over each,
// fusionctl killed after every record. What a newer minor stored and an older one cannot read is named, object by
// object, and written again. Every version serves all objects, older and newer.
func TestModernGoesUpAndBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		legacy kubever.Minor
		way    []kubever.Minor
		named  []string // of the first way back
	}{
		{10, []kubever.Minor{15, 36}, []string{
			"store modern: /registry/poddisruptionbudgets/demo/from-1.36, policy/v1 PodDisruptionBudget",
			"store modern: /registry/cronjobs/demo/from-1.36, batch/v1 CronJob"}},
		{15, []kubever.Minor{24, 33, 36}, nil},
		{15, []kubever.Minor{36, 37}, nil},
	} {
		var names []string
		for _, minor := range test.way {
			names = append(names, minor.String())
		}
		t.Run(strings.Join(names, " "), func(t *testing.T) {
			t.Parallel()
			w := &modernWay{t: t, Rig: rig.New(t), versions: map[kubever.Minor]string{}}
			for _, minor := range append([]kubever.Minor{test.legacy}, test.way...) {
				w.versions[minor] = builtRelease(t, minor)
			}
			w.start(test.legacy, test.way[0])
			var ups []*minorUp
			for i, minor := range test.way[1:] {
				ups = append(ups, w.goesUp(test.way[i], minor))
			}
			for i := len(ups) - 1; i >= 0; i-- {
				named := w.goesBack(ups[i], test.way[i+1], test.way[i])
				if i > 0 {
					continue
				}
				for _, want := range test.named {
					if !slices.Contains(named, want) {
						t.Errorf("%s is not named:\n%s", want, strings.Join(named, "\n"))
					}
				}
			}
			if w.killed < 10*len(ups) {
				t.Errorf("killed at %d points", w.killed)
			}
			proved(t, spec.LayoutSplit, w.versions[test.legacy], w.versions[test.way[len(test.way)-1]],
				"the modern API server went by minors "+strings.Join(names, ", ")+" and back over each by a "+
					"transition, killed after every record: what the newer had stored was named, object by object, "+
					"and written again; each served all of it")
		})
	}
}

// modernWay is a pair whose modern API server changes its minor.
type modernWay struct {
	*rig.Rig
	t        *testing.T
	versions map[kubever.Minor]string
	hosts    *unitHosts
	file     string // of the spec
	text     string // with the first version
	first    kubever.Minor
	modern   *rig.Client
	objects  []string // names
	killed   int
}

func (w *modernWay) start(legacyMinor, first kubever.Minor) {
	t := w.t
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: [policy, batch, " +
		"autoscaling], resources: [\"*\"]}\n"
	p := w.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: w.versions[legacyMinor], Modern: w.versions[first],
		More: rights, NoControllers: true, NoModernManager: true,
		Network: "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}"})
	p.StartLegacy()
	p.LegacyManager.Stop()
	legacy := p.Legacy.Client("admin", "system:masters")
	must(t, legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	u := newUnitHosts(t, w.Rig)
	u.skipped = []transition.CheckKind{transition.Executable, transition.Certificate}
	u.addresses["cp-1"] = "127.0.0.1"
	u.rewrite = func(host, word string) string {
		for _, dir := range []string{"/etc/kubernetes/", "/var/lib/"} {
			word = strings.ReplaceAll(word, "="+dir, "="+filepath.Join(u.root, host, dir)+"/")
		}
		return word
	}
	u.program = func(path string) (string, error) { // /opt/kubernetes/1.36.3/bin/kube-apiserver
		version, err := kubever.Parse(strings.Split(path, "/")[3])
		if err != nil {
			return "", err
		}
		return rig.Binary(kubever.APIServer, version.Minor)
	}
	text, err := os.ReadFile(p.SpecFile)
	must(t, err)
	w.hosts, w.file, w.text, w.first = u, p.SpecFile, string(text), first
	older := w.setup(first)
	install, err := transition.New(transition.Setup{}, older, transition.Facts{})
	must(t, err)
	install.Steps = slices.DeleteFunc(install.Steps, func(s transition.Step) bool {
		return s.Phase != transition.Modern
	})
	install.Watch = nil
	must(t, transition.Apply(t.Context(), &install, u, &memoryJournal{left: -1}, nil))
	url := ""
	for _, c := range older.Plan.ComponentsOf(pair.Modern, kubever.APIServer) {
		url = "https://" + plan.HostPort("127.0.0.1", c.Port)
	}
	w.modern = w.ClientOf(url, "alice", "developers")
	w.creates(first)
}

// setup is the plan with the modern side in a minor.
func (w *modernWay) setup(minor kubever.Minor) transition.Setup {
	w.t.Helper()
	f, err := spec.Load(w.file, []byte(strings.Replace(w.text, "version: "+w.versions[w.first],
		"version: "+w.versions[minor], 1)))
	must(w.t, err)
	planned, err := plan.New(f, plan.OnHosts)
	must(w.t, err)
	return transition.Setup{Plan: planned, Target: render.Systemd}
}

// creates has objects that a minor stores.
func (w *modernWay) creates(minor kubever.Minor) {
	w.t.Helper()
	name := "from-" + minor.String()
	for _, o := range storedAnew {
		must(w.t, w.modern.Call(w.t.Context(), http.MethodPost, w.path(minor, o.group, o.resource),
			object{"metadata": object{"name": name}, "spec": json.RawMessage(o.spec)}, nil))
	}
	w.objects = append(w.objects, name)
}

// path is where a minor serves a resource, in the newest of its versions.
func (w *modernWay) path(minor kubever.Minor, group, resource string) string {
	w.t.Helper()
	for _, version := range []string{"v2", "v1", "v1beta1"} {
		for _, a := range kubever.APIResources(minor) {
			if a.Group == group && a.Name == resource && a.Version == version && a.DefaultOn.Has(minor) {
				return "/apis/" + group + "/" + version + "/namespaces/demo/" + resource
			}
		}
	}
	w.t.Fatalf("%s does not serve %s", minor, resource)
	return ""
}

// serves: the API server serves every object, and lists them: one that cannot be read breaks the list.
func (w *modernWay) serves(minor kubever.Minor) {
	w.t.Helper()
	for _, o := range storedAnew {
		path := w.path(minor, o.group, o.resource)
		for _, name := range w.objects {
			must(w.t, w.modern.Call(w.t.Context(), http.MethodGet, path+"/"+name, nil, nil))
		}
		must(w.t, w.modern.Call(w.t.Context(), http.MethodGet, path, nil, nil))
	}
}

// minorUp is a transition with its journal.
type minorUp struct {
	transition.Transition
	journal memoryJournal
}

// goes does something with a transition, killed after every second or third record, to its end.
func (w *modernWay) goes(what string, up *minorUp, do func(context.Context, *transition.Transition, transition.Runner,
	transition.Journal, transition.Progress) error) {
	w.t.Helper()
	for up.journal.left = 2; ; up.journal.left = 2 + w.killed%2 {
		err := do(w.t.Context(), &up.Transition, w.hosts, &up.journal, nil)
		if err == nil {
			return
		}
		if w.killed++; !errors.Is(err, errKilled) {
			w.t.Fatalf("%s, killed %d times: %v", what, w.killed, err)
		}
	}
}

func (w *modernWay) goesUp(from, to kubever.Minor) *minorUp {
	t := w.t
	t.Helper()
	older, newer := w.setup(from), w.setup(to)
	facts, err := local.Facts(t.Context(), older, newer, true, local.Telling{})
	must(t, err)
	up, err := transition.New(older, newer, facts)
	must(t, err)
	must(t, up.Validate())
	way := &minorUp{Transition: up}
	w.goes("to "+to.String(), way, transition.Apply)
	w.serves(to)
	w.creates(to)
	return way
}

// goesBack returns what was in the way.
func (w *modernWay) goesBack(up *minorUp, from, to kubever.Minor) []string {
	t := w.t
	t.Helper()
	var disagree local.DisagreeError
	_, err := local.Facts(t.Context(), w.setup(from), w.setup(to), false, local.Telling{})
	if as := new(local.DisagreeError); errors.As(err, &as) {
		disagree = *as
	} else {
		must(t, err)
	}
	t.Logf("from %s to %s there are in the way:\n%s", from, to, strings.Join(disagree.Objects, "\n"))
	w.goes("back to "+to.String(), up, transition.Undo)
	w.serves(to)
	return disagree.Objects
}

//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"os"
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

// TestLegacyGoesUpFrom16: the API server of a legacy side becomes 1.10.13 from 1.6.13 at once, killed after every
// record. A ThirdPartyResource, of which 1.10 knows nothing, is named; every other object is served, and may be
// changed. There is no way back, which is said before anything stops: 1.6 reads no APIServices, which 1.10 writes when
// it starts.
func TestLegacyGoesUpFrom16(t *testing.T) {
	t.Parallel()
	w := &legacyWay{modernWay: newModernWay(t, 6, 10, 36)}
	w.startBoth()
	const resources = "/apis/extensions/v1beta1/thirdpartyresources"
	must(t, w.legacy.Call(t.Context(), http.MethodPost, resources, object{
		"metadata": object{"name": "thing.example.test"}, "versions": []object{{"name": "v1"}}}, nil))
	w.makes()
	before := w.uids()

	older, newer := w.at(6), w.at(10)
	var left *local.LeftError
	_, err := local.Facts(t.Context(), older, newer, true, local.Telling{})
	if !errors.As(err, &left) || !strings.Contains(err.Error(), "thirdpartyresources: thing.example.test") {
		t.Fatalf("with a ThirdPartyResource: %v, want it named", err)
	}
	must(t, w.legacy.Call(t.Context(), http.MethodDelete, resources+"/thing.example.test", nil, nil))
	facts, err := local.Facts(t.Context(), older, newer, true, local.Telling{})
	must(t, err)
	planned, err := transition.New(older, newer, facts)
	must(t, err)
	must(t, planned.Validate())
	up := &minorUp{Transition: planned}
	w.goes("to 1.10", up, transition.Apply)
	w.isMinor(10)
	w.keeps(before)
	for _, o := range objectsOf16 { // 1.10 stores them in its own version
		must(t, w.legacy.Call(t.Context(), http.MethodPatch, o.path+"/kept",
			object{"metadata": object{"annotations": object{"by": "1.10"}}}, nil))
	}
	up.journal.left = -1
	err = transition.Undo(t.Context(), &up.Transition, w.hosts, &up.journal, nil)
	if disagree := new(local.DisagreeError); !errors.As(err, &disagree) ||
		!strings.Contains(err.Error(), "core:apiregistration.k8s.io/apiservices") {
		t.Errorf("undo = %v, want the APIServices named", err)
	}
	w.isMinor(10)
	w.keeps(before)
	if w.killed < 20 {
		t.Errorf("killed at %d points", w.killed)
	}
	proved(t, spec.LayoutSplit, w.versions[6], w.versions[36],
		"the legacy API server became 1.10.13 in one transition, killed after every record: a ThirdPartyResource was "+
			"named before anything changed, every other object is served, and the way back is refused for the "+
			"APIServices of 1.10")
}

type legacyWay struct{ *modernWay }

// objectsOf16 are of the kinds whose stored version differs between 1.6 and 1.10, and of some that stay.
var objectsOf16 = []struct {
	path string
	body object
}{
	{"/api/v1/namespaces/demo/configmaps", object{"data": object{"a": "1"}}},
	{"/apis/extensions/v1beta1/namespaces/demo/deployments", object{"spec": object{"replicas": 2,
		"template": labelled("a", runs("pause"))}}},
	{"/apis/extensions/v1beta1/namespaces/demo/daemonsets", object{"spec": object{
		"template": labelled("b", runs("pause"))}}},
	{"/apis/apps/v1beta1/namespaces/demo/statefulsets", object{"spec": object{"serviceName": "x",
		"template": labelled("c", runs("pause"))}}},
	{"/apis/extensions/v1beta1/namespaces/demo/ingresses", object{"spec": object{"backend": object{
		"serviceName": "x", "servicePort": 80}}}},
	{"/apis/autoscaling/v1/namespaces/demo/horizontalpodautoscalers", object{"spec": object{"maxReplicas": 2,
		"scaleTargetRef": object{"apiVersion": "extensions/v1beta1", "kind": "Deployment", "name": "kept"}}}},
	{"/apis/rbac.authorization.k8s.io/v1beta1/namespaces/demo/roles", object{"rules": []object{{
		"apiGroups": []string{""}, "resources": []string{"configmaps"}, "verbs": []string{"get"}}}}},
	{"/apis/batch/v1/namespaces/demo/jobs", object{"spec": object{"template": labelled("d", once(runs("echo")))}}},
}

func (w *legacyWay) makes() {
	w.t.Helper()
	for _, o := range objectsOf16 {
		body := object{"metadata": object{"name": "kept"}}
		for key, value := range o.body {
			body[key] = value
		}
		must(w.t, w.legacy.Call(w.t.Context(), http.MethodPost, o.path, body, nil))
	}
}

// uids are those of the objects, by path; each list is read as a whole.
func (w *legacyWay) uids() map[string]string {
	w.t.Helper()
	uids := map[string]string{}
	for _, o := range objectsOf16 {
		var got struct{ Metadata struct{ UID string } }
		must(w.t, w.legacy.Call(w.t.Context(), http.MethodGet, o.path+"/kept", nil, &got))
		must(w.t, w.legacy.Call(w.t.Context(), http.MethodGet, o.path, nil, nil))
		uids[o.path] = got.Metadata.UID
	}
	for _, path := range []string{"clusterroles", "clusterrolebindings"} { // what each version writes when it starts
		must(w.t, w.legacy.Call(w.t.Context(), http.MethodGet, "/apis/rbac.authorization.k8s.io/v1beta1/"+path, nil,
			nil))
	}
	return uids
}

func (w *legacyWay) keeps(want map[string]string) {
	w.t.Helper()
	for path, uid := range w.uids() {
		if uid != want[path] {
			w.t.Errorf("%s/kept has the UID %s, want %s", path, uid, want[path])
		}
	}
}

func (w *legacyWay) isMinor(minor kubever.Minor) {
	w.t.Helper()
	var version struct{ GitVersion string }
	must(w.t, w.legacy.Call(w.t.Context(), http.MethodGet, "/version", nil, &version))
	if !strings.HasPrefix(version.GitVersion, "v"+w.versions[minor]) {
		w.t.Errorf("the legacy API server is of %s, want %s", version.GitVersion, w.versions[minor])
	}
}

// at is the plan with the legacy side in a minor.
func (w *legacyWay) at(minor kubever.Minor) transition.Setup {
	w.t.Helper()
	f, err := spec.Load(w.file, []byte(strings.Replace(w.text, "  legacy:\n    version: "+w.versions[6],
		"  legacy:\n    version: "+w.versions[minor], 1)))
	must(w.t, err)
	planned, err := plan.New(f, plan.OnHosts)
	must(w.t, err)
	return transition.Setup{Plan: planned, Target: render.Systemd}
}

// startBoth starts the API servers of both sides as units.
func (w *legacyWay) startBoth() {
	t := w.t
	p := w.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: w.versions[6], Modern: w.versions[36],
		More: access + "  kubelet: {version: " + w.versions[6] + "}\n", NoControllers: true,
		NoModernManager: true, Network: w.network})
	w.hosts = w.unitsOfLoopback()
	text, err := os.ReadFile(p.SpecFile)
	must(t, err)
	w.file, w.text = p.SpecFile, string(text)
	older := w.at(6)
	install, err := transition.New(transition.Setup{}, older, transition.Facts{})
	must(t, err)
	install.Steps = slices.DeleteFunc(install.Steps, func(s transition.Step) bool {
		return !slices.Contains([]transition.Phase{transition.Legacy, transition.LegacyMgr, transition.Modern}, s.Phase)
	})
	install.Watch = nil
	must(t, transition.Apply(t.Context(), &install, w.hosts, &memoryJournal{left: -1}, nil))
	url := func(side pair.Side) string {
		for _, c := range older.Plan.ComponentsOf(side, kubever.APIServer) {
			return "https://" + plan.HostPort("127.0.0.1", c.Port)
		}
		return ""
	}
	w.legacy = w.ClientOf(url(pair.Legacy), "admin", "system:masters")
	must(t, w.legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
		object{"metadata": object{"name": "demo"}}, nil))
}

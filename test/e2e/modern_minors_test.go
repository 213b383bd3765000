//go:build e2e

package e2e

import (
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

// modernObjects are of kinds of which 1.36 stores a version that 1.15 does not read: paths of both, and their spec.
var modernObjects = []struct{ older, newer, name, rest string }{
	{"/apis/policy/v1beta1/namespaces/demo/poddisruptionbudgets",
		"/apis/policy/v1/namespaces/demo/poddisruptionbudgets", "budget",
		`{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}`},
	{"/apis/batch/v1beta1/namespaces/demo/cronjobs", "/apis/batch/v1/namespaces/demo/cronjobs", "night",
		`{"schedule":"0 3 * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":` +
			`[{"name":"c","image":"example.test/c:1"}]}}}}}`},
}

// TestModernGoesUpAndBack: the modern API server of a pair goes from 1.15.12 to 1.36.3 by a transition, fusionctl
// killed after every record, and back: what it stored meanwhile is named, object by object, and written again where the
// transition was planned to. Both versions serve all objects, old and new.
func TestModernGoesUpAndBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: [policy, batch], " +
		"resources: [\"*\"]}\n"
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.10.13", Modern: "1.15.12", More: rights,
		NoControllers: true, NoModernManager: true,
		Network: "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}"})
	p.StartLegacy()
	p.LegacyManager.Stop()
	legacy := p.Legacy.Client("admin", "system:masters")
	must(t, legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	u := newUnitHosts(t, r)
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
	setup := func(modern string) transition.Setup {
		changed := strings.Replace(string(text), "version: 1.15.12", "version: "+modern, 1)
		f, err := spec.Load(p.SpecFile, []byte(changed))
		must(t, err)
		planned, err := plan.New(f, plan.OnHosts)
		must(t, err)
		return transition.Setup{Plan: planned, Target: render.Systemd}
	}
	older, newer := setup("1.15.12"), setup("1.36.3")
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
	modern := r.ClientOf(url, "alice", "developers")
	create := func(path, name, rest string) {
		t.Helper()
		must(t, modern.Call(t.Context(), http.MethodPost, path, object{"metadata": object{"name": name},
			"spec": json.RawMessage(rest)}, nil))
	}
	for _, o := range modernObjects {
		create(o.older, "old-"+o.name, o.rest)
	}

	facts, err := local.Facts(t.Context(), older, newer, true, nil)
	must(t, err)
	up, err := transition.New(older, newer, facts)
	must(t, err)
	must(t, up.Validate())
	j, points := &memoryJournal{}, 0
	for j.left = 2; ; j.left = 2 + points%2 {
		err := transition.Apply(t.Context(), &up, u, j, nil)
		if err == nil {
			break
		}
		if points++; !errors.Is(err, errKilled) {
			t.Fatalf("apply, killed %d times: %v", points, err)
		}
	}
	for _, o := range modernObjects {
		must(t, modern.Call(t.Context(), http.MethodGet, o.newer+"/old-"+o.name, nil, nil))
		create(o.newer, "new-"+o.name, o.rest)
	}

	var disagree *local.DisagreeError
	if _, err := local.Facts(t.Context(), newer, older, false, nil); !errors.As(err, &disagree) {
		t.Fatalf("the stores for 1.15.12 = %v, want what is in the way", err)
	}
	for _, key := range []string{"/registry/poddisruptionbudgets/demo/new-budget, policy/v1 PodDisruptionBudget",
		"/registry/cronjobs/demo/new-night, batch/v1 CronJob"} {
		if !strings.Contains(strings.Join(disagree.Objects, "\n"), key) {
			t.Errorf("%s is not named:\n%v", key, disagree)
		}
	}
	for j.left = 2; ; j.left = 2 + points%2 {
		err := transition.Undo(t.Context(), &up, u, j, nil)
		if err == nil {
			break
		}
		if points++; !errors.Is(err, errKilled) {
			t.Fatalf("undo, killed %d times: %v", points, err)
		}
	}
	for _, o := range modernObjects {
		for _, name := range []string{"old-", "new-"} {
			must(t, modern.Call(t.Context(), http.MethodGet, o.older+"/"+name+o.name, nil, nil))
		}
		must(t, modern.Call(t.Context(), http.MethodGet, o.older, nil, nil)) // one that cannot be read breaks the list
	}
	if points < 10 {
		t.Errorf("killed at %d points", points)
	}
	t.Logf("killed at %d points", points)
	proved(t, spec.LayoutSplit, "1.10.13", "1.36.3", "the modern API server went from 1.15.12 to 1.36.3 and back by a "+
		"transition, killed after every record: what 1.36.3 had stored was named, object by object, and written "+
		"again; both versions served all of it")
}

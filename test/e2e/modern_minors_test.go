//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
			w := newModernWay(t, append([]kubever.Minor{test.legacy}, test.way...)...)
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

// TestServicesComeBackToTheBitmap: 1.36 allocates ClusterIPs without the bitmap from which 1.15 beside it does, and
// 1.33 writes it. On the way back what it lacks is noted, and stops nothing; then neither side allocates an address or
// a node port of a Service twice: with --prepare at once, without when 1.15 has added what 1.36 had allocated.
func TestServicesComeBackToTheBitmap(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{true, false} {
		t.Run(fmt.Sprintf("prepare %v", prepare), func(t *testing.T) {
			t.Parallel()
			w := newModernWay(t, 15, 33, 36)
			w.network, w.prepare = "{serviceCIDRs: [10.96.0.0/24]}", prepare
			w.start(15, 33)
			up := w.goesUp(33, 36)
			const most = 80
			created := 0
			for w.atRest() == nil { // until 1.15 has added them, every three minutes
				if created == most {
					t.Fatalf("after %d services the bitmap lacks none", created)
				}
				w.allocates(w.modern, fmt.Sprintf("only-%d", created), 40)
				created += 40
			}
			w.hosts.Notes()
			w.goes("back to 1.33", up, transition.Undo)
			lacks := regexp.MustCompile(`ranges/serviceips: the bitmap lacks \d+ allocations? of services: 1\.15\.12 adds`)
			if notes := w.hosts.Notes(); !slices.ContainsFunc(notes, lacks.MatchString) {
				t.Errorf("no note of a bitmap that lacks addresses:\n%s", strings.Join(notes, "\n"))
			}
			w.serves(33)
			if prepare {
				must(t, w.atRest())
			} else {
				w.Eventually("1.15 adds what 1.36 has allocated", func(context.Context) error { return w.atRest() })
			}
			const each = 40
			var both sync.WaitGroup
			for name, client := range map[string]*rig.Client{"modern": w.modern, "legacy": w.legacy} {
				both.Go(func() { w.allocates(client, name, each) })
			}
			both.Wait()
			addresses, ports := w.allocated()
			if want := 1 + created + 2*each; len(addresses) != want || len(ports) != (created+2*each)/2 {
				t.Errorf("%d addresses, %d node ports; want %d, %d", len(addresses), len(ports), want,
					(created+2*each)/2)
			}
			for _, of := range [][]string{addresses, ports} {
				slices.Sort(of)
				if different := len(slices.Compact(slices.Clone(of))); different != len(of) {
					t.Errorf("%d are allocated twice: %q", len(of)-different, of)
				}
			}
			w.Eventually("all records agree", func(context.Context) error { return w.atRest() })
			proved(t, spec.LayoutSplit, w.versions[15], w.versions[33], fmt.Sprintf("over one range, the modern side "+
				"came back from 1.36, which had allocated addresses without the bitmap, by a transition (--prepare: "+
				"%v), "+
				"killed after every record: %d services of each side created at once have %d addresses and no node "+
				"port twice", prepare, each, 2*each))
		})
	}
}

// TestARangeOfItsOwnBesideTheBitmap: 1.33 finds free addresses in its objects where the bitmap has the range of 1.15,
// and notes the addresses that services ask for in it, which fails unless it leaves the bitmap alone, as plans tell it.
func TestARangeOfItsOwnBesideTheBitmap(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"feature-gates=DisableAllocatorDualWrite=false"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			legacy, modern := builtRelease(t, 15), builtRelease(t, 33)
			p := rig.New(t).StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern,
				More: access, Network: twoRanges, ModernServerArgs: args, NoControllers: true, NoModernManager: true})
			admin, user := p.Legacy.Client("admin", "system:masters"), p.Modern.Client("alice", "developers")
			must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
				object{"metadata": object{"name": "demo"}}, nil))
			create := func(client *rig.Client, name, address string) error {
				body := service(name)
				if address != "" {
					body["spec"].(object)["clusterIP"] = address
				}
				return client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/services", body, nil)
			}
			for i := range 5 {
				must(t, create(user, fmt.Sprintf("modern-%d", i), ""))
				must(t, create(admin, fmt.Sprintf("legacy-%d", i), ""))
			}
			const asked = "10.97.0.50"
			err := create(user, "asks", asked)
			if args == nil {
				must(t, err)
				proved(t, spec.LayoutSplit, legacy, modern, "with a service range of the modern side's own, services "+
					"are created on both sides, also those that ask for an address")
				return
			}
			if err == nil || !strings.Contains(err.Error(), "does not match the current range") {
				t.Fatalf("a service that asks for %s: %v, want it refused", asked, err)
			}
			seenDamage(t, spec.LayoutSplit, legacy, modern, "where the modern side writes the bitmap of another "+
				"range, services that ask for an address are refused")
		})
	}
}

const twoRanges = "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}"

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
	legacy   *rig.Client
	network  string
	prepare  bool     // what an older minor does not read
	objects  []string // names
	killed   int
}

func newModernWay(t *testing.T, minors ...kubever.Minor) *modernWay {
	t.Helper()
	w := &modernWay{t: t, Rig: rig.New(t), versions: map[kubever.Minor]string{}, prepare: true,
		network: twoRanges}
	for _, minor := range minors {
		w.versions[minor] = builtRelease(t, minor)
	}
	return w
}

func (w *modernWay) start(legacyMinor, first kubever.Minor) {
	t := w.t
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: [policy, batch, " +
		"autoscaling], resources: [\"*\"]}\n"
	p := w.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: w.versions[legacyMinor], Modern: w.versions[first],
		More: rights, NoControllers: true, NoModernManager: true,
		Network: w.network})
	p.StartLegacy()
	p.LegacyManager.Stop()
	w.legacy = p.Legacy.Client("admin", "system:masters")
	must(t, w.legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
		object{"metadata": object{"name": "demo"}}, nil))
	u := w.unitsOfLoopback()
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

// unitsOfLoopback run what the plan starts below /opt/kubernetes, on loopback.
func (w *modernWay) unitsOfLoopback() *unitHosts {
	u := newUnitHosts(w.t, w.Rig)
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
		return rig.Binary(filepath.Base(path), version.Minor)
	}
	return u
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
	facts, err := local.Facts(t.Context(), older, newer, w.prepare, local.Telling{})
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

// allocates creates services, every second one with a node port.
func (w *modernWay) allocates(client *rig.Client, name string, many int) {
	for i := range many {
		body := service(fmt.Sprintf("%s-%d", name, i))
		if i%2 == 0 {
			body["spec"].(object)["type"] = "NodePort"
		}
		if err := client.Call(w.t.Context(), http.MethodPost, "/api/v1/namespaces/demo/services", body,
			nil); err != nil {
			w.t.Errorf("service %s-%d: %v", name, i, err)
		}
	}
}

// allocated are the ClusterIPs and node ports of all services.
func (w *modernWay) allocated() (addresses, ports []string) {
	w.t.Helper()
	var list struct {
		Items []struct {
			Spec struct {
				ClusterIP string
				Ports     []struct{ NodePort int }
			}
		}
	}
	must(w.t, w.legacy.Call(w.t.Context(), http.MethodGet, "/api/v1/services", nil, &list))
	for _, s := range list.Items {
		addresses = append(addresses, s.Spec.ClusterIP)
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				ports = append(ports, strconv.Itoa(p.NodePort))
			}
		}
	}
	return addresses, ports
}

// atRest is what the stores have against the allocators of 1.15 and 1.33, as fusionctl etcd check says it.
func (w *modernWay) atRest() error {
	w.t.Helper()
	setup := w.setup(33)
	check := transition.StoresCheck(setup, setup, nil)
	var notes []string
	err := local.StoresAgree(w.t.Context(), &check, local.Telling{Note: func(text string) {
		notes = append(notes, text)
	}})
	if err == nil && len(notes) > 0 {
		err = errors.New(strings.Join(notes, "\n"))
	}
	return err
}

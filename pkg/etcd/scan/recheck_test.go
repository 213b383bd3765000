package scan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// changing are live stores that become others after their scan: what is asked for at the newest revision once that was
// read at the start.
func changing(t *testing.T, before, after map[string]storetest.Contents) []etcd.Store {
	var stores []etcd.Store
	for _, name := range []string{"core", "modern"} {
		pager, later := before[name].Pager(t), after[name].Pager(t)
		heads := 0
		pager.OnPage = func(f *storetest.Pager, r etcd.Request) error {
			if r.Revision == 0 {
				if heads++; heads == 2 {
					f.Keys, f.Value, f.Revision = later.Keys, later.Value, 43
				}
			}
			return nil
		}
		stores = append(stores, etcd.Store{Name: name, Pager: pager})
	}
	return stores
}

func cloneStores(stores map[string]storetest.Contents) map[string]storetest.Contents {
	return map[string]storetest.Contents{"core": maps.Clone(stores["core"]), "modern": maps.Clone(stores["modern"])}
}

// TestScanRulesOutThatStoresWereReadAtDifferentMoments plants what a scan finds, and then what would have happened in
// the moment between the two stores: the finding must go, and must stay when nothing happens.
func TestScanRulesOutThatStoresWereReadAtDifferentMoments(t *testing.T) {
	replicaSet := func(uid string) []byte { return storetest.Put("apps/v1", "ReplicaSet", "default", "late", uid, nil) }
	lateOwner := [4]string{"apps/v1", "ReplicaSet", "late", "uid-late"}
	address := func(ip, service string) []byte {
		parent := storetest.Field(storetest.Field(storetest.Field(nil, 2, []byte("services")), 3, []byte("default")), 4,
			[]byte(service))
		return storetest.Put("networking.k8s.io/v1", "IPAddress", "", ip, "u-"+ip,
			storetest.Field(nil, 2, storetest.Field(nil, 1, parent)))
	}
	for _, test := range []struct {
		name, rule, where string
		plant             func(m *pair.Map, core, modern storetest.Contents)
		meanwhile         func(core, modern storetest.Contents)
	}{
		{"the owner is created", "FUS060", "core:pods", func(m *pair.Map, core, _ storetest.Contents) {
			m.Legacy.Collector.Runs = true
			core["pods/default/late-1"] = storetest.Pod("default", "late-1", lateOwner)
		}, func(core, modern storetest.Contents) {
			core["replicasets/default/late"], modern["replicasets/default/late"] = replicaSet("uid-late"),
				replicaSet("uid-late")
		}},
		{"the dependent is deleted", "FUS060", "core:pods", func(m *pair.Map, core, _ storetest.Contents) {
			m.Legacy.Collector.Runs = true
			core["pods/default/late-1"] = storetest.Pod("default", "late-1", lateOwner)
		}, func(core, _ storetest.Contents) { delete(core, "pods/default/late-1") }},
		{"the service account is created", "FUS100", "core:secrets", func(_ *pair.Map, core, _ storetest.Contents) {
			core["secrets/default/token"] = storetest.Object{APIVersion: "v1", Kind: "Secret", Namespace: "default",
				Name: "token", UID: "uid-t",
				Annotations: map[string]string{"kubernetes.io/service-account.uid": "uid-sa",
					"kubernetes.io/service-account.name": "builder"},
				Raw: storetest.Field(nil, 3, []byte("kubernetes.io/service-account-token"))}.Protobuf()
		}, func(core, _ storetest.Contents) {
			core["serviceaccounts/default/builder"] = storetest.Put("v1", "ServiceAccount", "default", "builder",
				"uid-sa", nil)
		}},
		{"the namespace is created", "FUS130", "core:pods", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/gone/web"] = storetest.Pod("gone", "web")
		},
			func(core, _ storetest.Contents) {
				core["namespaces/gone"] = storetest.Put("v1", "Namespace", "", "gone", "uid-gone", nil)
			}},
		{"the object in the namespace is deleted", "FUS130", "core:pods",
			func(_ *pair.Map, core, _ storetest.Contents) {
				core["pods/gone/web"] = storetest.Pod("gone", "web")
			},
			func(core, _ storetest.Contents) { delete(core, "pods/gone/web") }},
		{"a copy is deleted", "FUS230", "modern:pods", func(_ *pair.Map, core, modern storetest.Contents) {
			core["pods/default/both"], modern["pods/default/both"] = storetest.Pod("default", "both"),
				storetest.Pod("default", "both")
		}, func(core, _ storetest.Contents) { delete(core, "pods/default/both") }},
		{"a ClusterIP changes hands", "FUS050", "core:services/specs", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.1", 0)
		}, func(core, modern storetest.Contents) {
			modern["services/specs/default/a"] = storetest.Service("default", "a", "", 0)
		}},
		{"a node port is given back", "FUS050", "core:services/specs", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"], core["services/specs/default/b"] = storetest.Service("default", "a", "",
				30001),
				storetest.Service("default", "b", "", 30001)
		}, func(core, _ storetest.Contents) { delete(core, "services/specs/default/b") }},
		{"the IPAddress is created", "FUS050", "modern:ipaddresses", func(_ *pair.Map, _, modern storetest.Contents) {
			delete(modern, "ipaddresses/10.96.0.1")
		},
			func(_, modern storetest.Contents) {
				modern["ipaddresses/10.96.0.1"] = address("10.96.0.1", "kubernetes")
			}},
	} {
		for _, happens := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", test.name, happens), func(t *testing.T) {
				m, before := storetest.SplitMap(), storetest.Clean()
				test.plant(m, before["core"], before["modern"])
				after := cloneStores(before)
				if happens {
					test.meanwhile(after["core"], after["modern"])
				}
				report, err := Stores(t.Context(), m, changing(t, before, after), Options{})
				if err != nil || !report.Complete {
					t.Fatalf("Scan = %v, incomplete %q", err, report.Incomplete)
				}
				found := slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
					return f.Rule == test.rule && f.Subject == test.where && f.Severity > finding.Info
				})
				if found == happens {
					t.Errorf("%s about %s found: %v, want %v; findings:\n%s", test.rule, test.where, found, !happens,
						findingText(report.Findings))
				}
			})
		}
	}
}

// TestScanCountsWhatStillDangles: of many objects, only those are taken off that were a matter of the moment.
func TestScanCountsWhatStillDangles(t *testing.T) {
	m, before := storetest.SplitMap(), storetest.Clean()
	m.Legacy.Collector.Runs = true
	for i := range 30 {
		name := fmt.Sprintf("lost-%02d", i)
		before["core"]["pods/default/"+name] = storetest.Pod("default", name,
			[4]string{"apps/v1", "ReplicaSet", fmt.Sprintf("owner-%d", i%3), fmt.Sprintf("uid-owner-%d", i%3)})
	}
	after := cloneStores(before)
	for _, store := range after {
		store["replicasets/default/owner-1"] = storetest.Put("apps/v1", "ReplicaSet", "default", "owner-1",
			"uid-owner-1", nil)
	}
	report, err := Stores(t.Context(), m, changing(t, before, after), Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool {
		return f.Rule == "FUS060" && f.Severity == finding.Error
	})
	if i < 0 || !strings.Contains(report.Findings[i].Message, "deletes 20 pods") ||
		!slices.Contains(report.Findings[i].Related, "pods/default/lost-02 (owner owner-2)") {
		t.Errorf("findings:\n%s\nwant 20 pods of owners 0 and 2", findingText(report.Findings))
	}
}

// TestScanNamesTheSameObjectsOfAFile: the smallest keys of each group, in whatever order workers come upon them.
func TestScanNamesTheSameObjectsOfAFile(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	m.Legacy.Collector.Runs = true
	for i := range 300 {
		name := fmt.Sprintf("lost-%03d", (i*7)%300)
		kind := [2]string{"ReplicaSet", "DaemonSet"}[i%2]
		stores["core"]["pods/default/"+name] = storetest.Pod("default", name,
			[4]string{"apps/v1", kind, "gone", "uid-gone"})
	}
	live := scanStores(t, m, stores, Options{})
	var files []etcd.Store
	for name, c := range stores {
		files = append(files, etcd.Store{Name: name, Walker: c})
	}
	for _, workers := range []int{1, 2, 5} {
		report, err := Stores(t.Context(), m, files, Options{Parallel: workers})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(live.Findings, report.Findings); diff != "" {
			t.Errorf("with %d workers the findings of the files differ from those of the live stores:\n%s", workers,
				diff)
		}
	}
}

// TestScanStandsByAFindingThatItCannotLookAtAgain: doubt is no safety.
func TestScanStandsByAFindingThatItCannotLookAtAgain(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	m.Legacy.Collector.Runs = true
	stores["core"]["pods/default/late-1"] = storetest.Pod("default", "late-1",
		[4]string{"apps/v1", "ReplicaSet", "late", "uid-late"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live := changing(t, stores, stores)
	for i := range live {
		pager := live[i].Pager.(*storetest.Pager)
		heads := 0
		pager.OnPage = func(_ *storetest.Pager, r etcd.Request) error {
			if r.Revision == 0 {
				if heads++; heads == 2 {
					return errors.New("member on fire")
				}
			}
			return nil
		}
	}
	report, err := Stores(ctx, m, live, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
		return f.Rule == "FUS060" && strings.Contains(f.Message, "deletes 1 pod ")
	}) {
		t.Errorf("the finding is gone:\n%s", findingText(report.Findings))
	}
}

// TestSecondLooksAreBatched: hundreds of absent namespaces, and hundreds of dependents of one absent owner, cost no
// request each.
func TestSecondLooksAreBatched(t *testing.T) {
	requests := func(namespaces, dependents int) (n int, found []finding.Finding) {
		m, stores := storetest.SplitMap(), storetest.Clean()
		m.Legacy.Collector.Runs = true
		for i := range namespaces {
			for _, resource := range []string{"pods", "configmaps"} {
				stores["core"][fmt.Sprintf("%s/gone-%03d/x", resource, i)] = storetest.Pod(fmt.Sprintf("gone-%03d", i),
					"x")
			}
		}
		for i := range dependents {
			name := fmt.Sprintf("lost-%03d", i)
			stores["core"]["pods/default/"+name] = storetest.Pod("default", name,
				[4]string{"apps/v1", "ReplicaSet", "owner", "uid-owner"})
		}
		var live []etcd.Store
		for _, name := range []string{"core", "modern"} {
			pager := stores[name].Pager(t)
			pager.OnPage = func(*storetest.Pager, etcd.Request) error { n++; return nil }
			live = append(live, etcd.Store{Name: name, Pager: pager})
		}
		report, err := Stores(t.Context(), m, live, Options{Parallel: 1})
		if err != nil || !report.Complete {
			t.Fatalf("Scan = %v, incomplete %q", err, report.Incomplete)
		}
		return n, report.Findings
	}
	few, _ := requests(1, 1)
	many, found := requests(500, 500)
	if many > few+40 {
		t.Errorf("%d requests for 500 absent namespaces and 500 dependents, %d for one of each: want about as many",
			many, few)
	}
	for _, want := range []struct {
		rule  string
		count finding.Count
	}{{"FUS130", 500}, {"FUS060", 500}} {
		if !slices.ContainsFunc(found, func(f finding.Finding) bool {
			return f.Rule == want.rule && f.Subject == "core:pods" && f.Count == want.count
		}) {
			t.Errorf("no %s about %d pods:\n%s", want.rule, want.count, findingText(found))
		}
	}
}

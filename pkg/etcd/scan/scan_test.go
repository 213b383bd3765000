package scan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

func scanStores(t *testing.T, m *pair.Map, stores map[string]storetest.Contents, options Options) *Report {
	t.Helper()
	var list []etcd.Store
	for name, c := range stores {
		list = append(list, etcd.Store{Name: name, Pager: c.Pager(t)})
	}
	report, err := Stores(t.Context(), m, list, options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestScanFindsNothingInCleanStores(t *testing.T) {
	for _, depth := range Depths() {
		report := scanStores(t, storetest.SplitMap(), storetest.Clean(), Options{Depth: depth})
		if !report.Complete || len(report.Findings) > 0 {
			t.Errorf("depth %s: complete %v %q, findings %+v; want none", depth, report.Complete, report.Incomplete,
				report.Findings)
		}
	}
}

// TestScanMissesNothingThatItCannotRead has encrypted and damaged values: what is in them is there all the same.
func TestScanMissesNothingThatItCannotRead(t *testing.T) {
	const crd = storage.CRDResource + "/notebooks.kubeflow.io"
	for _, value := range []string{"k8s:enc:aescbc:v1:key1:xx", "damaged"} {
		for name, test := range map[string]struct {
			hide func(core, modern storetest.Contents)
			rule string
			in   string // resource about which nothing is to be found
		}{
			"owners": {func(core, _ storetest.Contents) {
				core["replicasets/default/web"] = []byte(value)
				core["pods/default/web-2"] = storetest.Pod("default", "web-2",
					[4]string{"apps/v1", "ReplicaSet", "web", "uid-rs"})
			}, "FUS060", "core:pods"},
			"services that use a bit": {func(core, _ storetest.Contents) {
				core["services/specs/default/kubernetes"] = []byte(value)
			}, "FUS050", "core:ranges/serviceips"},
			"services of an address": {func(core, _ storetest.Contents) {
				core["services/specs/default/kubernetes"] = []byte(value)
			}, "FUS050", "modern:ipaddresses"},
			"addresses of services": {func(_, modern storetest.Contents) {
				modern["ipaddresses/10.96.0.1"] = []byte(value)
			}, "FUS050", "modern:ipaddresses"},
			"CRDs of custom resources": {func(_, modern storetest.Contents) {
				modern[crd] = []byte(value)
			}, "FUS232", "modern:kubeflow.io/notebooks"},
			"CRDs of APIServices": {func(_, modern storetest.Contents) {
				modern[crd] = []byte(value)
				modern[storage.APIServiceResource+"/v1.kubeflow.io"] = storetest.APIService("v1", "kubeflow.io")
			}, "FUS030", "modern:" + storage.APIServiceResource},
		} {
			stores := storetest.Clean()
			test.hide(stores["core"], stores["modern"])
			// Of files, where nothing can be looked at again.
			report, err := Stores(t.Context(), storetest.SplitMap(),
				[]etcd.Store{{Name: "core", Walker: stores["core"]}, {Name: "modern", Walker: stores["modern"]}},
				Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if f.Rule == test.rule && f.Subject == test.in &&
					!strings.Contains(f.Message, "modern side (1.36.3), which is off") {
					t.Errorf("%s, %q: %s %s: %s", name, value, f.Rule, f.Subject, f.Message)
				}
			}
			notes := strings.Join(report.Stores[1].Notes, "\n")
			if hidden := strings.HasPrefix(name, "CRDs"); strings.Contains(notes, "some CRDs are") != hidden {
				t.Errorf("%s, %q: notes %q", name, value, notes)
			}
		}
	}
}

// TestScanMissesNoCRDOfARangeThatFailed: what they define is no leftover.
func TestScanMissesNoCRDOfARangeThatFailed(t *testing.T) {
	stores := storetest.Clean()
	stores["modern"][storage.APIServiceResource+"/v1.kubeflow.io"] = storetest.APIService("v1", "kubeflow.io")
	modern := stores["modern"].Pager(t)
	modern.OnPage = func(_ *storetest.Pager, r etcd.Request) error {
		return failAt(r, "/registry/"+storage.CRDResource+"/", errors.New("member on fire"))
	}
	report, err := Stores(t.Context(), storetest.SplitMap(),
		[]etcd.Store{{Name: "core", Pager: stores["core"].Pager(t)}, {Name: "modern", Pager: modern}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) > 0 || report.Complete {
		t.Errorf("complete %v, findings:\n%s", report.Complete, findingText(report.Findings))
	}
}

// TestScanWarnsOfWhatEncryptionHides: one side alone reads each of these, and has the key.
func TestScanWarnsOfWhatEncryptionHides(t *testing.T) {
	for _, test := range []struct {
		key      string
		collects bool
		want     finding.Severity
	}{
		{storage.CRDResource + "/a", false, finding.Warning}, {"ipaddresses/10.96.0.9", false, finding.Warning},
		{"ranges/serviceips", false, finding.Warning}, {"flowschemas/a", false, finding.Info},
		{"flowschemas/a", true, finding.Warning}, {"kubeflow.io/notebooks/default/a", true, finding.Warning},
		{"secrets/default/a", true, finding.Info},
	} {
		m, stores := storetest.SplitMap(), storetest.Clean()
		m.Modern.Collector.Runs = test.collects
		store := "modern"
		switch {
		case strings.HasPrefix(test.key, "ranges/"):
			store = "core"
		case strings.HasPrefix(test.key, "secrets/"):
			i := slices.IndexFunc(m.Resources, func(r pair.Resource) bool { return r.Key == "secrets" })
			m.Resources[i].Owner, m.Resources[i].Modern.Store = pair.OwnerSplit, "modern"
		}
		stores[store][test.key] = []byte("k8s:enc:aescbc:v1:key1:xx")
		report := scanStores(t, m, stores, Options{})
		i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == "FUS070" })
		if i < 0 || report.Findings[i].Severity != test.want || strings.Contains(report.Findings[i].Message,
			"findings about other objects") != (test.want == finding.Warning) {
			t.Errorf("%s, collector runs %v: %s; want FUS070 as %s", test.key, test.collects,
				findingText(report.Findings), test.want)
		}
	}
}

// TestScanShowsWhatLiesOutsideThePrefix leaves out the key that every API server has there.
func TestScanShowsWhatLiesOutsideThePrefix(t *testing.T) {
	stores := storetest.Clean()
	stores["core"]["!compact_rev_key"] = []byte("1")
	if findings := scanStores(t, storetest.SplitMap(), stores, Options{}).Findings; len(findings) > 0 {
		t.Errorf("findings about compact_rev_key:\n%s", findingText(findings))
	}
	stores["core"]["!/other/pods/default/a"] = []byte("x")
	stores["core"]["!zzz"] = []byte("x")
	findings := scanStores(t, storetest.SplitMap(), stores, Options{}).Findings
	if len(findings) != 1 || findings[0].Rule != "FUS231" || findings[0].Severity != finding.Info ||
		!strings.Contains(findings[0].Message, `2 keys outside the prefix "/registry"`) ||
		!slices.Equal(findings[0].Related, []string{"/other/pods/default/a", "zzz"}) {
		t.Errorf("findings = %s, want one remark about two keys", findingText(findings))
	}
}

// TestScanFinds plants one violation at a time into clean stores.
func TestScanFinds(t *testing.T) {
	rs := [4]string{"apps/v1", "ReplicaSet", "web", "uid-gone"}
	for _, test := range []struct {
		name  string
		plant func(m *pair.Map, core, modern storetest.Contents)
		rule  string
		where string // subject
		says  string // part of the message
		shows string // among Related
	}{
		{"a key of the legacy side written by the modern one", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["deployments/default/api"] = storetest.Put("apps/v1", "Deployment", "default", "api", "uid-x", nil)
		}, "FUS004", "modern:deployments", "1 key written by the modern side, but the owner is legacy",
			"deployments/default/api"},
		{"a key in a store from which nobody reads it", func(_ *pair.Map, core, _ storetest.Contents) {
			core["flowschemas/x"] = storetest.Put("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "x", "uid-x",
				nil)
		}, "FUS004", "core:flowschemas", "from which no side reads this resource; they belong in store modern, which " +
			"does not hold them: no API server serves", "flowschemas/x"},
		{"a copy in a store from which nobody reads it", func(_ *pair.Map, core, modern storetest.Contents) {
			core["flowschemas/system"] = modern["flowschemas/system"]
		},
			"FUS004", "core:flowschemas", "1 key in a store from which no side reads this resource; they belong in " +
				"store modern", "flowschemas/system"},
		{"custom resources in the store of the other side", func(m *pair.Map, core, _ storetest.Contents) {
			m.CustomResources.Owner = pair.OwnerModern
			core["kubeflow.io/notebooks/default/nb2"] = storetest.CustomResource("kubeflow.io/v1", "Notebook", "nb2")
		}, "FUS010", "core:kubeflow.io/notebooks", "they belong in store modern", "kubeflow.io/notebooks/default/nb2"},
		{"one object in both stores", func(_ *pair.Map, core, modern storetest.Contents) {
			modern["deployments/default/web"] = core["deployments/default/web"]
		}, "FUS230", "modern:deployments", "1 object in both stores core and modern with the same UID",
			"deployments/default/web"},
		{"one name in both stores", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["deployments/default/web"] = storetest.Put("apps/v1", "Deployment", "default", "web", "uid-other",
				nil)
		}, "FUS230", "modern:deployments", "different UIDs", "deployments/default/web"},
		{"a version that the legacy side cannot decode", func(_ *pair.Map, core, _ storetest.Contents) {
			core["deployments/default/new"] = storetest.Put("apps/v2", "Deployment", "default", "new", "uid-x", nil)
		}, "FUS002", "core:deployments", "every list and watch of deployments (apps/v1) through it fails",
			"deployments/default/new"},
		{"a version that breaks watches", func(_ *pair.Map, core, _ storetest.Contents) {
			core["replicasets/default/old"] = storetest.Put("extensions/v1beta1", "ReplicaSet", "default", "old",
				"uid-x", nil)
		}, "FUS003", "core:replicasets", "in lists but not in watches", "replicasets/default/old"},
		{"what an API server writes at its start", func(m *pair.Map, core, _ storetest.Contents) {
			m.Boot = append(m.Boot, pair.BootKey{Side: pair.Modern, Key: "namespaces/poison"})
			core["namespaces/poison"] = storetest.Put("v2", "Namespace", "", "poison", "uid-x", nil)
		}, "FUS090", "core:namespaces", "stored as v2", "namespaces/poison"},
		{"another kind", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/node"] = storetest.Put("v1", "Node", "default", "node", "uid-x", nil)
		}, "FUS000", "core:pods", "kind v1 Node where Pod belongs", "pods/default/node"},
		{"a damaged value", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/bad"] = []byte("k8s\x00\x0a\xff")
		},
			"FUS000", "core:pods", "1 value cannot be read", "pods/default/bad"},
		{"an encrypted value", func(_ *pair.Map, core, _ storetest.Contents) {
			core["secrets/default/s"] = []byte("k8s:enc:aescbc:v1:key1:xx")
		},
			"FUS070", "core:secrets", "with other keys the legacy side silently omits them from lists; " +
				"without any, every list of secrets through it fails", "secrets/default/s"},
		{"CBOR", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/c"] = storetest.Object{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "c",
				UID: "uid-c"}.CBOR()
		}, "FUS072", "core:pods", "stored as CBOR", "pods/default/c"},
		{"a CRD without versions", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.CRDResource+"/notebooks.kubeflow.io"] = storetest.CRD("kubeflow.io", "notebooks", "Notebook",
				`,"version":"v1"},"status":{}}`)
		}, "FUS031", "modern:" + storage.CRDResource, "has lost spec.versions and status.storedVersions",
			storage.CRDResource + "/notebooks.kubeflow.io"},
		{"a CRD that was stored in versions that it does not list", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.CRDResource+"/as.kubeflow.io"] = storetest.CRD("kubeflow.io", "as", "A",
				`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":false},`+
					`"status":{"storedVersions":["v2","v3","v4","v5","v6","v7","v8"]}}`)
		}, "FUS031", "modern:" + storage.CRDResource, "may be stored as v2, v3, v4, v5, v6, ..., which",
			storage.CRDResource + "/as.kubeflow.io"},
		{"a CRD of two versions, whose only reader knows one", func(m *pair.Map, core, _ storetest.Contents) {
			m.Legacy.CRDFields = []string{"spec.group", "spec.names", "spec.version"}
			core[storage.CRDResource+"/as.kubeflow.io"] = storetest.CRD("kubeflow.io", "as", "as",
				`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true}]},"status":{"storedVersions":["v1"]}}`)
		}, "FUS031", "core:" + storage.CRDResource, "1 CRD of several versions: 1.10.13 knows spec.version alone",
			storage.CRDResource + "/as.kubeflow.io"},
		{"CRDs that an old reader has rewritten, and a new one since", func(m *pair.Map, _, modern storetest.Contents) {
			m.Legacy.Store = "modern"
			row := storage.RowOf(m, storage.Key{Form: storage.FormGrouped, Resource: storage.CRDResource})
			row.Legacy.Store = "modern"
			for _, plural := range []string{"as", "bs"} {
				modern[storage.CRDResource+"/"+plural+".kubeflow.io"] = storetest.CRD("kubeflow.io", plural, plural,
					`,"version":"v1","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":true},"status":{"storedVersions":["v1"]}}`)
			}
		}, "FUS031", "modern:" + storage.CRDResource, "2 CRDs have lost spec.preserveUnknownFields=false, and with it",
			storage.CRDResource + "/as.kubeflow.io"},
		{"a CRD whose schemas an old reader has dropped", func(m *pair.Map, _, modern storetest.Contents) {
			m.Legacy.Store = "modern"
			row := storage.RowOf(m, storage.Key{Form: storage.FormGrouped, Resource: storage.CRDResource})
			row.Legacy.Store = "modern"
			modern[storage.CRDResource+"/as.kubeflow.io"] = storetest.CRD("kubeflow.io", "as", "as",
				`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":true},"status":{"storedVersions":["v1"]}}`)
		}, "FUS031", "modern:" + storage.CRDResource, "1 CRD has lost every schema",
			storage.CRDResource + "/as.kubeflow.io"},
		{"a stored version that the CRD does not have", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["kubeflow.io/notebooks/default/old"] = storetest.CustomResource("kubeflow.io/v1alpha1", "Notebook",
				"old")
		}, "FUS031", "modern:kubeflow.io/notebooks", "a version that the CRD does not list",
			"kubeflow.io/notebooks/default/old"},
		{"a stored version that storedVersions does not list", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.CRDResource+"/notebooks.kubeflow.io"] = storetest.CRD("kubeflow.io", "notebooks", "Notebook",
				`,"version":"v1","versions":[{"name":"v1","served":true},{"name":"v2","served":true,"storage":true}],"preserveUnknownFields":false},"status":{"storedVersions":["v2"]}}`)
		}, "FUS031", "modern:kubeflow.io/notebooks", "status.storedVersions does not list",
			"kubeflow.io/notebooks/default/nb"},
		{"custom resources without a CRD", func(_ *pair.Map, _, modern storetest.Contents) {
			delete(modern, storage.CRDResource+"/notebooks.kubeflow.io")
		},
			"FUS232", "modern:kubeflow.io/notebooks", "without a CRD", "kubeflow.io/notebooks/default/nb"},
		{"the APIService of a CRD that is gone", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.APIServiceResource+"/v1.gone.io"] = storetest.APIService("v1", "gone.io")
		}, "FUS030", "modern:" + storage.APIServiceResource,
			"1 APIService of group/versions that no CRD in this store has",
			storage.APIServiceResource + "/v1.gone.io"},
		{"an APIService that another version of the only server left", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.APIServiceResource+"/v1beta1.extensions"] = bytes.Replace(
				storetest.APIService("v1beta1", "extensions"), []byte(`"uid":"u"`),
				[]byte(`"uid":"u","labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}`), 1)
		}, "FUS030", "modern:" + storage.APIServiceResource,
			"1 APIService that an API server of another version has written",
			storage.APIServiceResource + "/v1beta1.extensions"},
		{"an APIService that nobody serves", func(_ *pair.Map, _, modern storetest.Contents) {
			modern[storage.APIServiceResource+"/v1beta1.extensions"] = storetest.APIService("v1beta1", "extensions")
		}, "FUS030", "modern:" + storage.APIServiceResource, "does not serve",
			storage.APIServiceResource + "/v1beta1.extensions"},
		{"pods of owners that the running collector does not find", func(m *pair.Map, core, _ storetest.Contents) {
			m.Modern.Collector.Runs = true
			core["pods/default/web-2"] = storetest.Pod("default", "web-2", rs)
			core["pods/default/web-3"] = storetest.Pod("default", "web-3", rs)
		}, "FUS060", "core:pods", "the garbage collector of the modern side (1.36.3) deletes 2 pods owned by apps/v1 " +
			"ReplicaSet", "pods/default/web-2 (owner web)"},
		{"pods of an owner in a version that a blind collector takes for absent",
			func(m *pair.Map, core, _ storetest.Contents) {
				m.Legacy.Collector = gc.Collector{Runs: true, UnservedVersion: gc.Deleted, AbsentOwner: gc.Deleted}
				core["pods/default/web-2"] = storetest.Pod("default", "web-2",
					[4]string{"apps/v9", "ReplicaSet", "web", "uid-rs"})
			}, "FUS061", "core:pods", "deletes 1 pod owned by apps/v9 ReplicaSet", "pods/default/web-2 (owner web)"},
		{"pods of an owner in another namespace", func(_ *pair.Map, core, _ storetest.Contents) {
			core["namespaces/other"] = storetest.Put("v1", "Namespace", "", "other", "uid-other", nil)
			core["pods/other/web-2"] = storetest.Pod("other", "web-2",
				[4]string{"apps/v1", "ReplicaSet", "web", "uid-rs"})
		}, "FUS060", "core:pods", "would delete 1 pod owned by apps/v1 ReplicaSet: it serves that kind and does not " +
			"find the owner in the object's namespace in store core", "pods/other/web-2 (owner web)"},
		{"pods of an owner of which the UID is that of another kind", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/web-2"] = storetest.Pod("default", "web-2",
				[4]string{"apps/v1", "ReplicaSet", "web", "uid-d"})
		}, "FUS060", "core:pods", "would delete 1 pod owned by apps/v1 ReplicaSet", "pods/default/web-2 (owner web)"},
		{"pods of an owner of another name", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/web-2"] = storetest.Pod("default", "web-2",
				[4]string{"apps/v1", "ReplicaSet", "webb", "uid-rs"})
		}, "FUS060", "core:pods", "the legacy side (1.10.13), which is off, would delete 1 pod owned by apps/v1 " +
			"ReplicaSet", "pods/default/web-2 (owner webb)"},
		{"an object in no namespace with an owner in one", func(m *pair.Map, core, _ storetest.Contents) {
			m.Legacy.Collector = gc.Collector{Runs: true, AbsentOwner: gc.Deleted, NamespacedOwner: gc.Deleted}
			core["minions/n2"] = storetest.Put("v1", "Node", "", "n2", "uid-n2", nil,
				[4]string{"v1", "Pod", "web-1", "uid-pod-default-web-1"})
		}, "FUS061", "core:minions", "deletes 1 node owned by v1 Pod: it looks up a namespaced owner, and the object " +
			"is in no namespace", "minions/n2 (owner web-1)"},
		{"an owner of a kind that the collector knows and its server does not serve",
			func(m *pair.Map, core, _ storetest.Contents) {
				m.Legacy.Collector = gc.Collector{Runs: true, UnservedVersion: gc.Deleted, KnowsUnserved: true}
				m.Resources[slices.IndexFunc(m.Resources, func(r pair.Resource) bool {
					return r.Key == "replicasets"
				})].Legacy.Serves = nil
				core["pods/default/web-2"] = storetest.Pod("default", "web-2", rs)
			}, "FUS061", "core:pods", "deletes 1 pod owned by apps/v1 ReplicaSet: it knows that kind but not in this " +
				"version", "pods/default/web-2 (owner web)"},
		{"mirror pods and a collector that looks for nodes in namespaces",
			func(m *pair.Map, core, _ storetest.Contents) {
				m.Legacy.Collector = gc.Collector{Runs: true, ClusterOwner: gc.Deleted}
				core["pods/default/mirror"] = storetest.Pod("default", "mirror",
					[4]string{"v1", "Node", "n1", "uid-n1"})
			}, "FUS062", "core:pods", "looks up the cluster-scoped owner in the namespace",
			"pods/default/mirror (owner n1)"},
		{"objects in a namespace that is gone", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/gone/web"] = storetest.Pod("gone", "web")
		},
			"FUS130", "core:pods", "in 1 namespace that store core does not have (gone)", "pods/gone/web"},
		{"custom resources in a namespace that only the other store has not",
			func(_ *pair.Map, _, modern storetest.Contents) {
				modern["kubeflow.io/notebooks/gone/nb"] = storetest.CustomResource("kubeflow.io/v1", "Notebook", "nb")
			}, "FUS130", "modern:kubeflow.io/notebooks", "store core does not have", "kubeflow.io/notebooks/gone/nb"},
		{"one ClusterIP twice", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.1", 0)
		}, "FUS050", "core:services/specs", "1 ClusterIP allocated to more than one service",
			"10.96.0.1: core:default/a, core:default/kubernetes"},
		{"a misplaced service with the ClusterIP of another", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.1", 0)
		}, "FUS050", "core:services/specs", "1 ClusterIP allocated",
			"10.96.0.1: core:default/kubernetes, modern:default/a"},
		{"one ClusterIP in two sets of services", func(m *pair.Map, _, modern storetest.Contents) {
			row := storage.RowOf(m, storage.Key{Form: storage.FormObject, Resource: "services/specs"})
			row.Owner, row.Modern.Store = pair.OwnerSplit, "modern"
			modern["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.1", 0)
		}, "FUS052", "core:services/specs", "1 ClusterIP allocated",
			"10.96.0.1: core:default/kubernetes, modern:default/a"},
		{"one node port twice", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "", 30001)
			core["services/specs/default/b"] = storetest.Service("default", "b", "", 30001)
		}, "FUS050", "core:services/specs", "1 node port allocated", "30001/TCP: core:default/a, core:default/b"},
		{"a ClusterIP that the bitmap takes for free", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.9", 0)
		}, "FUS050", "core:ranges/serviceips", "lacks 1 allocation of services", "default/a 10.96.0.9"},
		{"a node port that the bitmap takes for free", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "", 30003)
			core["ranges/servicenodeports"] = storetest.Allocation("30000-30015", 1)
		}, "FUS050", "core:ranges/servicenodeports", "lacks 1 allocation", "default/a 30003"},
		{"a ClusterIP without an IPAddress", func(_ *pair.Map, _, modern storetest.Contents) {
			delete(modern, "ipaddresses/10.96.0.1")
		},
			"FUS050", "modern:ipaddresses", "1 ClusterIP of services without an IPAddress object",
			"default/kubernetes 10.96.0.1"},
		{"two services on one ClusterIP that no allocator knows", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.6", 0)
			core["services/specs/default/b"] = storetest.Service("default", "b", "10.96.0.6", 0)
		}, "FUS050", "modern:ipaddresses", "1 ClusterIP of services without an IPAddress object",
			"default/b 10.96.0.6"},
		{"two services on one bit of a bitmap", func(_ *pair.Map, core, _ storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.6", 0)
			core["services/specs/default/b"] = storetest.Service("default", "b", "10.96.0.6", 0)
		}, "FUS050", "core:ranges/serviceips", "lacks 1 allocation of services", "default/b 10.96.0.6"},
		{"services on two node ports that the bitmap takes for free", func(_ *pair.Map, core, _ storetest.Contents) {
			for i, name := range []string{"a", "b", "c", "d"} {
				core["services/specs/default/"+name] = storetest.Service("default", name, "", 30003+i%2)
			}
			core["ranges/servicenodeports"] = storetest.Allocation("30000-30015", 1)
		}, "FUS050", "core:ranges/servicenodeports", "lacks 2 allocations", "default/d 30004"},
		{"a misplaced service with the node port of another", func(_ *pair.Map, core, modern storetest.Contents) {
			core["services/specs/default/a"] = storetest.Service("default", "a", "", 30001)
			modern["services/specs/default/b"] = storetest.Service("default", "b", "", 30001)
		}, "FUS050", "core:services/specs", "1 node port allocated to more than one service",
			"30001/TCP: core:default/a, modern:default/b"},
		{"another range", func(_ *pair.Map, core, _ storetest.Contents) {
			core["ranges/serviceips"] = storetest.Allocation("10.0.0.0/24", 0)
		},
			"FUS051", "core:ranges/serviceips", `holds the range "10.0.0.0/24", want 10.96.0.0/24`, ""},
		{"another service CIDR", func(_ *pair.Map, _, modern storetest.Contents) {
			modern["servicecidrs/kubernetes"] = storetest.Put("networking.k8s.io/v1", "ServiceCIDR", "", "kubernetes",
				"u",
				storetest.Field(nil, 2, storetest.Field(nil, 1, []byte("10.0.0.0/24"))))
		}, "FUS053", "modern:servicecidrs", `"10.0.0.0/24"`, ""},
		{"a lock of both sides", func(m *pair.Map, core, _ storetest.Contents) {
			lock := pair.Lock{Side: pair.Legacy, Component: "kube-controller-manager", Resource: "services/endpoints",
				Namespace: "kube-system", Name: "kcm"}
			m.Locks = []pair.Lock{lock, lock}
			m.Locks[1].Side = pair.Modern
			core["namespaces/kube-system"] = storetest.Put("v1", "Namespace", "", "kube-system", "uid-ks", nil)
			core["services/endpoints/kube-system/kcm"] = storetest.Object{APIVersion: "v1", Kind: "Endpoints",
				Namespace: "kube-system", Name: "kcm", UID: "uid-kcm",
				Annotations: map[string]string{
					"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity":"cp-1_abc"}`}}.Protobuf()
		}, "FUS065", "core:services/endpoints/kube-system/kcm", "held by cp-1_abc", ""},
		{"a token of a service account that is gone", func(_ *pair.Map, core, _ storetest.Contents) {
			core["secrets/default/token"] = storetest.Object{APIVersion: "v1", Kind: "Secret", Namespace: "default",
				Name: "token", UID: "uid-t",
				Annotations: map[string]string{"kubernetes.io/service-account.uid": "uid-sa",
					"kubernetes.io/service-account.name": "builder"},
				Raw: storetest.Field(nil, 3, []byte("kubernetes.io/service-account-token"))}.Protobuf()
		}, "FUS100", "core:secrets", "1 token secret of service accounts that the legacy side does not have",
			"secrets/default/token (owner builder)"},
		{"tokens that were marked invalid", func(_ *pair.Map, core, _ storetest.Contents) {
			for name, of := range map[string]string{"token": "kubernetes.io/service-account-token",
				"another": "Opaque"} { // whose label anyone may set
				core["secrets/default/"+name] = fmt.Appendf(nil, `{"kind":"Secret","apiVersion":"v1","metadata":`+
					`{"name":%q,"namespace":"default","uid":"uid-%s","labels":`+
					`{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}},"type":%q}`, name, name, of)
			}
		}, "FUS088", "core:secrets", "1 token secret marked invalid", "secrets/default/token"},
		{"a resource that neither version has", func(_ *pair.Map, core, _ storetest.Contents) {
			core["widgets/default/w"] = storetest.Pod("default", "w")
		},
			"FUS231", "core:widgets", "neither version knows", "widgets/default/w"},
		{"a key that is no object's", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/web"] = storetest.Pod("", "web")
		},
			"FUS231", "core:pods", "cannot be the key of an object", "pods/web"},
		{"a value under such a key, which lists read", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/a/b"] = []byte("x")
		},
			"FUS000", "core:pods", "1 value cannot be read: it starts with \"x\"; every list and watch of pods (v1) " +
				"through the legacy side and the modern side fails", "pods/default/a/b"},
		{"JSON that is cut off", func(_ *pair.Map, core, _ storetest.Contents) {
			core["pods/default/cut"] = []byte(`{"kind":"Pod","apiVersion":"v1","meta`)
		},
			"FUS000", "core:pods", "1 value cannot be read: its JSON is cut off or invalid; every list",
			"pods/default/cut"},
		{"a damaged value that nobody reads", func(_ *pair.Map, core, _ storetest.Contents) {
			core["widgets/default/w"] = []byte("x")
		},
			"FUS000", "core:widgets", "no side reads this resource", "widgets/default/w"},
		{"keys that name no resource", func(_ *pair.Map, core, _ storetest.Contents) { core["/a"] = []byte("x") },
			"FUS231", "core", "1 key below the prefix without a resource", "/a"},
		{"a list that a side does not serve", func(m *pair.Map, core, _ storetest.Contents) {
			m.Resources[slices.IndexFunc(m.Resources, func(r pair.Resource) bool {
				return r.Key == "deployments"
			})].Legacy.Serves = nil
			core["deployments/default/new"] = storetest.Put("apps/v2", "Deployment", "default", "new", "uid-x", nil)
		}, "FUS002", "core:deployments", "it serves no deployments as it is configured", "deployments/default/new"},
		{"an empty store", func(_ *pair.Map, _, modern storetest.Contents) { clear(modern) },
			"FUS233", "modern", "holds no key below the prefix", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, stores := storetest.SplitMap(), storetest.Clean()
			test.plant(m, stores["core"], stores["modern"])
			report := scanStores(t, m, stores, Options{})
			keys := map[string]bool{}
			for _, f := range report.Findings {
				if keys[f.Key] || !strings.HasPrefix(f.Key, f.Rule+"|"+f.Subject) {
					t.Errorf("the key %q is not that of one finding: %s", f.Key, f.Message)
				}
				keys[f.Key] = true
				for side, name := range map[string]string{"legacy": "garbagecollector",
					"modern": "garbage-collector-controller"} {
					if strings.HasPrefix(f.Message, "the garbage collector of the "+side+" side") &&
						f.Severity == finding.Error && !strings.HasPrefix(f.Fix, gc.TurnOff(side, name)) {
						t.Errorf("%s: fix %q, want %q", f.Message, f.Fix, gc.TurnOff(side, name))
					}
				}
				if i := slices.IndexFunc(Rules(), func(c finding.Rule) bool {
					return c.ID == f.Rule
				}); i < 0 || Rules()[i].Severity < f.Severity {
					t.Errorf("%s at severity %s is not documented so", f.Rule, f.Severity)
				}
			}
			if !report.Complete {
				t.Errorf("incomplete: %q", report.Incomplete)
			}
			if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
				return f.Rule == test.rule && f.Subject == test.where && strings.Contains(f.Message, test.says) &&
					(test.shows == "" || slices.Contains(f.Related, test.shows))
			}) {
				t.Errorf("no finding %s about %q that says %q and shows %q among:\n%s", test.rule, test.where,
					test.says, test.shows, findingText(report.Findings))
			}
			// An offline store in another order of keys must give the same answer.
			var offline []etcd.Store
			for name, c := range stores {
				offline = append(offline, etcd.Store{Name: name, Walker: c})
			}
			walked, err := Stores(t.Context(), m, offline, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(report.Findings, walked.Findings); diff != "" {
				t.Errorf("findings online and offline differ:\n%s", diff)
			}
		})
	}
}

func TestChecksAreSortedAndWhole(t *testing.T) {
	checks := Rules()
	if !slices.IsSortedFunc(checks, func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("checks are not in the order of their ids")
	}
	for _, c := range checks {
		if c.Title == "" || c.Why == "" || !strings.HasSuffix(c.Why, ".") || c.Severity == 0 {
			t.Errorf("%s is not documented: %+v", c.ID, c)
		}
	}
}

func findingText(findings []finding.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s %s: %s %q\n", f.Rule, f.Severity, f.Subject, f.Message, f.Related)
	}
	return b.String()
}

// TestWhatAPairToComeRepairsIsAWarning: what a bitmap or the objects lack is an error between two allocators that go on
// to disagree, and a warning, with who repairs it and when, where the servers that follow do.
func TestWhatAPairToComeRepairsIsAWarning(t *testing.T) {
	const bitmap = "core:ranges/serviceips"
	dual := func(m *pair.Map) { m.Modern.Allocates = pair.AllocatesBoth }
	apart := func(m *pair.Map) { m.Modern.ServiceCIDRs = []string{"10.97.0.0/24"} }
	for name, test := range map[string]struct {
		pair     func(m *pair.Map)
		starting []pair.Side
		where    string
		severity finding.Severity
		says     string
	}{
		"a pair at rest": {dual, nil, bitmap, finding.Error, "allocates them again"},
		"the other goes on without the bitmap": {func(*pair.Map) {}, []pair.Side{pair.Modern}, bitmap, finding.Error,
			"allocates them again"},
		"the other writes it from now on": {dual, []pair.Side{pair.Modern}, bitmap, finding.Warning,
			"lacks 1 allocation of services: 1.10.13 adds them within 3 minutes, and may allocate"},
		"the other has the bitmap, too": {func(m *pair.Map) {
			m.Modern.Version, m.Modern.Allocates = "1.31.14", pair.AllocatesBitmap
		}, []pair.Side{pair.Modern}, bitmap, finding.Warning, "1.31.14 adds them when it starts, before it is ready"},
		"the one with the bitmap comes back": {apart, []pair.Side{pair.Legacy}, bitmap, finding.Warning,
			"1.10.13 adds them when it starts"},
		"the one with the bitmap comes back, and the other goes on without it": {func(*pair.Map) {},
			[]pair.Side{pair.Legacy}, bitmap, finding.Warning, "1.10.13 adds them when it starts"},
		"the other may write no services": {func(m *pair.Map) {
			storage.RowOf(m, storage.Key{Form: storage.FormObject, Resource: "services/specs"}).Owner = pair.OwnerLegacy
		}, []pair.Side{pair.Legacy}, bitmap, finding.Warning, "1.10.13 adds them when it starts"},
		"node ports at rest": {func(*pair.Map) {}, nil, "core:ranges/servicenodeports", finding.Error,
			"allocates them again"},
		"node ports, of which every version keeps the bitmap": {func(*pair.Map) {}, []pair.Side{pair.Modern},
			"core:ranges/servicenodeports", finding.Warning, "1.36.3 adds them when it starts"},
		"objects at rest": {dual, nil, "modern:ipaddresses", finding.Warning, "until its repair loop runs"},
		"objects": {dual, []pair.Side{pair.Modern}, "modern:ipaddresses", finding.Warning,
			"1.36.3 creates them when it starts, before it is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			m, stores := storetest.SplitMap(), storetest.Clean()
			test.pair(m)
			m.Starting = test.starting
			stores["core"]["services/specs/default/a"] = storetest.Service("default", "a", "10.96.0.9", 30003)
			stores["core"]["ranges/servicenodeports"] = storetest.Allocation("30000-30015", 1)
			report := scanStores(t, m, stores, Options{})
			if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
				return f.Rule == "FUS050" && f.Subject == test.where && f.Severity == test.severity &&
					strings.Contains(f.Message, test.says)
			}) {
				t.Errorf("no %s about %s with %q:\n%s", test.severity, test.where, test.says,
					findingText(report.Findings))
			}
		})
	}
}

// TestAnAddressInTheBitmapNeedsNoObject: an API server that writes both allocates no address that is in either, and
// creates no IPAddress for services of old API servers, whose clusterIPs it sees when it starts.
func TestAnAddressInTheBitmapNeedsNoObject(t *testing.T) {
	for allocates, want := range map[string]bool{pair.AllocatesBoth: false, pair.AllocatesAddresses: true} {
		m, stores := storetest.SplitMap(), storetest.Clean()
		m.Modern.Allocates = allocates
		delete(stores["modern"], "ipaddresses/10.96.0.1")
		report := scanStores(t, m, stores, Options{})
		if got := slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
			return f.Rule == "FUS050" && f.Subject == "modern:ipaddresses"
		}); got != want {
			t.Errorf("%s: found %v, want %v:\n%s", allocates, got, want, findingText(report.Findings))
		}
	}
}

func TestScanKeepsAnObjectThatOneOwnerHolds(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	m.Legacy.Collector.Runs = true
	stores["core"]["pods/default/two"] = storetest.Pod("default", "two",
		[4]string{"apps/v1", "ReplicaSet", "gone", "uid-gone"},
		[4]string{"apps/v1", "ReplicaSet", "web", "uid-rs"})
	for _, f := range scanStores(t, m, stores, Options{}).Findings {
		if strings.Contains(f.Message, "legacy side (1.10.13) deletes") {
			t.Errorf("an object with one owner present is said to be deleted: %s", f.Message)
		}
	}
}

// TestScanTakesTheCRDThatIsServed: of two with one kind it is the one whose names were accepted.
func TestScanTakesTheCRDThatIsServed(t *testing.T) {
	stores := storetest.Clean()
	for plural, accepted := range map[string]string{"abooks": "False", "books": "True", "cbooks": "False"} {
		stores["modern"][storage.CRDResource+"/"+plural+".kubeflow.io"] = storetest.CRD("kubeflow.io", plural, "Book",
			`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":false},`+
				`"status":{"storedVersions":["v1"],"conditions":[{"type":"NamesAccepted","status":"`+accepted+`"}]}}`)
	}
	stores["modern"]["kubeflow.io/books/default/b"] = storetest.CustomResource("kubeflow.io/v1", "Book", "b")
	stores["modern"]["replicasets/default/x"] = storetest.Put("apps/v1", "ReplicaSet", "default", "x", "uid-x", nil,
		[4]string{"kubeflow.io/v1", "Book", "b", "u-b"})
	if report := scanStores(t, storetest.SplitMap(), stores, Options{}); len(report.Findings) > 0 {
		t.Errorf("findings:\n%s", findingText(report.Findings))
	}
}

// TestScanAdvisesNoDeletionForWhatAnOldFileLacks: the namespace may have come since.
func TestScanAdvisesNoDeletionForWhatAnOldFileLacks(t *testing.T) {
	stores := storetest.Clean()
	stores["core"]["pods/gone/web"] = storetest.Pod("gone", "web")
	findings := scanStores(t, storetest.SplitMap(), stores, Options{}).Findings
	if len(findings) != 1 || !strings.Contains(findings[0].Fix, "where the running cluster does not have it either") {
		t.Errorf("findings %+v, want one that says where to look", findings)
	}
}

func TestScanWantsNoAddressObjectOutsideOfASidesOwnRange(t *testing.T) {
	says := func(own []string) bool {
		m, stores := storetest.SplitMap(), storetest.Clean()
		m.Modern.ServiceCIDRs = own
		for key := range stores["modern"] {
			if strings.HasPrefix(key, "ipaddresses/") {
				delete(stores["modern"], key)
			}
		}
		return slices.ContainsFunc(scanStores(t, m, stores, Options{}).Findings, func(f finding.Finding) bool {
			return strings.Contains(f.Message, "without an IPAddress object")
		})
	}
	if !says(nil) {
		t.Error("one range, no IPAddress objects: no finding")
	}
	if says([]string{"10.97.0.0/24"}) {
		t.Error("addresses that the modern side does not give out are said to lack an IPAddress object")
	}
}

// Through v1beta1 users make CRDs without schemas, which nobody has dropped.
func TestScanWantsNoSchemasWhereCRDsNeedNone(t *testing.T) {
	handedOver := false
	says := func(versions ...string) bool {
		m, stores := storetest.SplitMap(), storetest.Clean()
		for i := range m.Resources {
			if m.Resources[i].Key == storage.CRDResource {
				m.Resources[i].HandedOver = handedOver
			}
		}
		m.Modern.GroupVersions = slices.DeleteFunc(slices.Clone(m.Modern.GroupVersions), func(gv string) bool {
			return strings.HasPrefix(gv, "apiextensions.k8s.io/")
		})
		m.Modern.GroupVersions = append(m.Modern.GroupVersions, versions...)
		stores["modern"][storage.CRDResource+"/as.kubeflow.io"] = storetest.CRD("kubeflow.io", "as", "as",
			`,"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":true},`+
				`"status":{"storedVersions":["v1"]}}`)
		return slices.ContainsFunc(scanStores(t, m, stores, Options{}).Findings, func(f finding.Finding) bool {
			return strings.Contains(f.Message, "lost every schema")
		})
	}
	if !says("apiextensions.k8s.io/v1") {
		t.Error("a CRD without schemas at a server that refuses to create one: no finding")
	}
	if says("apiextensions.k8s.io/v1beta1") || says("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1") {
		t.Error("a CRD without schemas, which a user may have made, is said to have lost them")
	}
	if handedOver = true; says("apiextensions.k8s.io/v1") {
		t.Error("a CRD without schemas, which was made through the legacy API server, is said to have lost them")
	}
}

// A later version takes spec.version for the list of versions that an earlier one has not written.
func TestScanTakesWhatAnEarlierVersionHasWritten(t *testing.T) {
	for _, shared := range []bool{false, true} {
		m, stores := storetest.SplitMap(), storetest.Clean()
		m.Legacy.CRDFields = []string{"spec.version", "spec.versions", "status.storedVersions"}
		if shared { // with a reader that drops them
			row := storage.RowOf(m, storage.Key{Form: storage.FormGrouped, Resource: storage.CRDResource})
			row.Modern.Store, m.Modern.CRDFields = row.Legacy.Store, []string{"spec.version"}
		}
		stores["core"][storage.CRDResource+"/as.kubeflow.io"] = storetest.CRD("kubeflow.io", "as", "as",
			`,"version":"v1"},"status":{}}`)
		lost := slices.ContainsFunc(scanStores(t, m, stores, Options{}).Findings, func(f finding.Finding) bool {
			return strings.Contains(f.Message, "has lost spec.versions")
		})
		if lost != shared {
			t.Errorf("shared %v: said to have lost spec.versions: %v", shared, lost)
		}
	}
}

// What the plan copies is in both stores, with one UID.
func TestScanRemarksCopiesOfThePlan(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	stores["modern"]["deployments/default/web"] = stores["core"]["deployments/default/web"]
	for i := range m.Resources {
		if m.Resources[i].Key == "deployments" {
			m.Resources[i].Copied = true
		}
	}
	var got []finding.Finding
	for _, f := range scanStores(t, m, stores, Options{}).Findings {
		if f.Rule == "FUS230" {
			got = append(got, f)
		}
	}
	if len(got) != 1 || got[0].Severity != finding.Info || got[0].Count != 1 {
		t.Errorf("copies: %+v", got)
	}
}

// TestScanWarnsOfWhatIsLeftOfAHandOver: on the legacy side, of the resource as a whole, or in the namespaces that have
// handed it over.
func TestScanWarnsOfWhatIsLeftOfAHandOver(t *testing.T) {
	says := func(everywhere bool, namespaces ...string) (messages []string) {
		m, stores := storetest.SplitMap(), storetest.Clean()
		stores["modern"]["deployments/elsewhere/web"] = stores["modern"]["deployments/default/web"]
		for i := range m.Resources {
			if row := &m.Resources[i]; row.Key == "deployments" {
				row.HandedOver, row.HandedOverIn = everywhere, namespaces
			}
		}
		for _, depth := range []Depth{DepthKeys, DepthObjects} {
			for _, f := range scanStores(t, m, stores, Options{Depth: depth}).Findings {
				if f.Rule == "FUS235" {
					messages = append(messages, fmt.Sprintf("%s %d %s", f.Severity, f.Count, f.Message))
				}
			}
		}
		return messages
	}
	if got := says(false, "elsewhere", "none"); len(got) > 0 {
		t.Errorf("a namespace without any on the legacy side: %q", got)
	}
	for want, got := range map[string][]string{
		"warning 1 1 key in namespace default, which has handed the resource over": says(false, "default", "elsewhere"),
		"warning 1 1 key of a resource that is handed over":                        says(true),
	} {
		if len(got) != 2 || !strings.HasPrefix(got[0], want) || !strings.HasPrefix(got[1], want) {
			t.Errorf("%q, want %q at each depth", got, want)
		}
	}
}

// What the plan foresees is a remark: the owner stores its own form, and the side that only reads cannot watch it.
func TestScanRemarksThatAReaderCannotWatchWhatTheOwnerStores(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	for i := range m.Resources {
		if r := &m.Resources[i]; r.Key == "replicasets" {
			r.Owner = pair.OwnerLegacy
			r.Modern = pair.View{Store: "core", StoredAs: "extensions/v1beta1",
				Decodes: []string{"apps/v1", "extensions/v1beta1"}, WatchBreaks: []string{"apps/v1"}}
		}
	}
	found := false
	for _, f := range scanStores(t, m, stores, Options{}).Findings {
		if f.Rule == "FUS003" {
			found = true
			if f.Severity != finding.Info {
				t.Errorf("%s: severity %s, want info", f.Message, f.Severity)
			}
		}
	}
	if !found {
		t.Error("no FUS003 about replicasets")
	}
}

func TestScanStartsARangeOverAfterCompaction(t *testing.T) {
	stores := storetest.Clean()
	core := stores["core"].Pager(t)
	core.OnPage = func(f *storetest.Pager, r etcd.Request) error {
		if r.Revision == 42 && strings.HasPrefix(r.From, "/registry/pods/") {
			f.Revision, f.CompactBefore = 50, 45
		}
		return nil
	}
	report, err := Stores(t.Context(), storetest.SplitMap(),
		[]etcd.Store{{Name: "core", Pager: core}, {Name: "modern", Pager: stores["modern"].Pager(t)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Complete || len(report.Findings) != 0 {
		t.Errorf("complete %v %q, findings %s; want a clean report", report.Complete, report.Incomplete,
			findingText(report.Findings))
	}
	if got := report.Stores[0]; got.Keys != int64(len(stores["core"])) || got.Revision != 50 ||
		!slices.ContainsFunc(got.Notes, func(n string) bool {
			return strings.Contains(n, "read again at revision 50")
		}) {
		t.Errorf("store = %+v, want all %d keys, revision 50 and a note about it", got, len(stores["core"]))
	}
}

func TestScanReadsOnWhenCompactionIsFasterThanARange(t *testing.T) {
	core := storetest.Contents{}
	for i := range 3000 {
		core[fmt.Sprintf("pods/default/p-%04d", i)] = storetest.Pod("default", fmt.Sprintf("p-%04d", i))
	}
	core["namespaces/default"] = storetest.Put("v1", "Namespace", "", "default", "uid-ns", nil)
	pager := core.Pager(t)
	pages := 0
	pager.OnPage = func(f *storetest.Pager, r etcd.Request) error {
		if pages++; pages%4 == 0 { // a range of pods takes more pages than that
			f.Revision++
			f.CompactBefore = f.Revision
		}
		return nil
	}
	report, err := Stores(t.Context(), storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: pager}},
		Options{Parallel: 1, Limits: etcd.Limits{Keys: 200}})
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Stores[0]; got.Keys != int64(len(core)) || !slices.ContainsFunc(got.Notes, func(n string) bool {
		return strings.Contains(n, "read on at revision")
	}) {
		t.Errorf("read %d of %d keys, incomplete %q, notes %q", got.Keys, len(core), report.Incomplete, got.Notes)
	}
}

func TestScanIsNeverCleanWhenItCouldNotLook(t *testing.T) {
	broken := errors.New("member on fire")
	for name, test := range map[string]struct {
		onPage func(f *storetest.Pager, r etcd.Request) error
		says   string
	}{
		"no answer at all": {func(*storetest.Pager, etcd.Request) error {
			return broken
		}, "reading the newest revision: member on fire"},
		"one range fails": {func(_ *storetest.Pager, r etcd.Request) error {
			return failAt(r, "/registry/pods/", broken)
		}, `reading "/registry/pods/" to`},
		"every range fails": {func(_ *storetest.Pager, r etcd.Request) error {
			return failAt(r, "/registry/", failUnless(r.LimitKeys == 1, broken))
		}, "further ranges were not tried"},
	} {
		t.Run(name, func(t *testing.T) {
			stores := storetest.Clean()
			core := stores["core"].Pager(t)
			core.OnPage = test.onPage
			report, err := Stores(t.Context(), storetest.SplitMap(),
				[]etcd.Store{{Name: "core", Pager: core}, {Name: "modern", Pager: stores["modern"].Pager(t)}},
				Options{})
			if err != nil {
				t.Fatal(err)
			}
			if report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), test.says) {
				t.Errorf("complete %v, incomplete %q; want it to say %q", report.Complete, report.Incomplete, test.says)
			}
		})
	}
}

func failAt(r etcd.Request, prefix string, err error) error {
	if strings.HasPrefix(r.From, prefix) {
		return err
	}
	return nil
}

func failUnless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

func TestScanSaysSoWhenAStoreWasNotRead(t *testing.T) {
	report := scanStores(t, storetest.SplitMap(), map[string]storetest.Contents{"core": storetest.Clean()["core"]},
		Options{})
	if report.Complete || !slices.Contains(report.Incomplete, "store modern: it was not read") {
		t.Errorf("complete %v, incomplete %q; want it to name the store modern", report.Complete, report.Incomplete)
	}
}

// TestScanSaysSoWhenThereAreTooManyKindsOfOwners: anyone who may write a ConfigMap may name any number in it.
func TestScanSaysSoWhenThereAreTooManyKindsOfOwners(t *testing.T) {
	stores := storetest.Clean()
	var owners [][4]string
	for i := range 66_000 {
		owners = append(owners, [4]string{"a/v1", fmt.Sprint("Kind", i), "a", "uid-a"})
	}
	stores["core"]["configmaps/default/many"] = storetest.Put("v1", "ConfigMap", "default", "many", "uid-m", nil,
		owners...)
	stores["core"]["pods/default/web-2"] = storetest.Pod("default", "web-2",
		[4]string{"apps/v1", "ReplicaSet", "gone", "uid-gone"})
	report := scanStores(t, storetest.SplitMap(), stores, Options{Depth: DepthEnvelope})
	const says = "more than 65535 kinds of owners, most of them of configmaps"
	if report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), says) {
		t.Errorf("complete %v, incomplete %q; want it to say %q; findings:\n%s", report.Complete, report.Incomplete,
			says, findingText(report.Findings))
	}
}

func TestScanSaysSoWhenThePrefixDiffers(t *testing.T) {
	stores := storetest.Clean()
	stores["core"] = storetest.Contents{"!/k8s/pods/default/web": storetest.Pod("default", "web"),
		"!compact_rev_key": []byte("1")}
	report := scanStores(t, storetest.SplitMap(), stores, Options{})
	if want := `it holds 2 keys and none below the prefix "/registry"; the first is "/k8s/pods/default/web"`; report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), want) {
		t.Errorf("complete %v, incomplete %q; want %q", report.Complete, report.Incomplete, want)
	}
}

func TestScanEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stores := storetest.Clean()
	core := stores["core"].Pager(t)
	core.OnPage = func(_ *storetest.Pager, r etcd.Request) error {
		if strings.HasPrefix(r.From, "/registry/minions/") {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	report, err := Stores(ctx, storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: core}}, Options{Parallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	if report.Complete || !slices.Contains(report.Incomplete, "store core: reading was interrupted") ||
		report.Stores[0].Keys == 0 {
		t.Errorf("complete %v, incomplete %q, %d keys; want a partial report marked as such", report.Complete,
			report.Incomplete, report.Stores[0].Keys)
	}
}

func TestScanCutsALargeStoreAtNamespaces(t *testing.T) {
	core := storetest.Contents{}
	for ns := range 50 {
		core[fmt.Sprintf("namespaces/ns-%02d", ns)] = storetest.Put("v1", "Namespace", "", "x", "uid", nil)
		for i := range 500 {
			core[fmt.Sprintf("pods/ns-%02d/p-%03d", ns, i)] = storetest.Pod("ns", "p")
		}
	}
	pager := core.Pager(t)
	ranges := map[string]bool{}
	pager.OnPage = func(_ *storetest.Pager, r etcd.Request) error {
		if strings.HasPrefix(r.From, "/registry/pods/ns-") && strings.HasSuffix(r.From, "/") {
			ranges[r.From] = true
		}
		return nil
	}
	report, err := Stores(t.Context(), storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: pager}},
		Options{Parallel: 1, Depth: DepthKeys})
	if err != nil || report.Stores[0].Keys != int64(len(core)) {
		t.Fatalf("read %d of %d keys: %v", report.Stores[0].Keys, len(core), err)
	}
	if len(ranges) < 4 {
		t.Errorf("pods were cut at %d namespaces, want several", len(ranges))
	}
}

func TestScanRefusesBadInput(t *testing.T) {
	bad := storetest.SplitMap()
	bad.Resources[0].Owner = "nobody"
	bad.Resources[1].Legacy.Store = "nowhere"
	for name, test := range map[string]struct {
		m      *pair.Map
		stores []etcd.Store
		says   string
	}{
		"owner":         {bad, nil, `resources[0] (pods).owner: "nobody"`},
		"store":         {bad, nil, `resources[1] (services/specs).legacy.store: store "nowhere"`},
		"unknown store": {storetest.SplitMap(), []etcd.Store{{Name: "other"}}, `store "other"`},
		"twice": {storetest.SplitMap(),
			[]etcd.Store{{Name: "core", Walker: storetest.Contents{}}, {Name: "core", Walker: storetest.Contents{}}},
			"given twice"},
	} {
		if _, err := Stores(t.Context(), test.m, test.stores, Options{}); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Scan = %v, want an error that says %s", name, err, test.says)
		}
	}
}

// A stray key in front of a resource's own says nothing about them: they are the same resource with it and without.
// TestScanTellsAFewTypesApart, however many a damaged store holds.
func TestScanTellsAFewTypesApart(t *testing.T) {
	stores := storetest.Clean()
	for i := range 5000 {
		stores["core"][fmt.Sprintf("pods/default/odd-%04d", i)] = storetest.Put(fmt.Sprintf("odd/v%d", i), "Pod",
			"default",
			fmt.Sprintf("odd-%04d", i), fmt.Sprint("u-odd-", i), nil)
		stores["core"][fmt.Sprintf("pods/default/secret-%04d", i)] = fmt.Appendf(nil, "k8s:enc:aescbc:v1:key%d:xx", i)
	}
	report := scanStores(t, storetest.SplitMap(), stores, Options{})
	i := slices.IndexFunc(report.Resources, func(r ResourceReport) bool {
		return r.Resource == "pods" && r.Store == "core"
	})
	if got := report.Resources[i]; len(got.Types) > 2*mostTypes+3 {
		t.Errorf("%d types are told apart, want about %d", len(got.Types), mostTypes)
	} else if n := got.Types; !slices.ContainsFunc(n, func(s StoredReport) bool {
		return s.APIVersion == "others" && s.Keys > 4000
	}) {
		t.Errorf("the other types are not counted: %+v", n)
	}
	if len(report.Findings) > 4*mostTypes {
		t.Errorf("%d findings", len(report.Findings))
	}
}

func TestScanIsNotMisledByAStrayKey(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	stores["core"]["pods"] = []byte("x") // as somebody who tried etcdctl left it
	stores["core"]["pods/"] = nil
	stores["core"]["pods/default/new"] = storetest.Put("v2", "Pod", "default", "new", "uid-new", nil)
	stores["modern"]["kubeflow.org/notebooks/a/b/c/d"] = []byte("x")
	for _, f := range scanStores(t, m, stores, Options{}).Findings {
		if strings.Contains(f.Message, "neither version knows") {
			t.Errorf("%s %s: %s %q", f.Rule, f.Subject, f.Message, f.Related)
		}
		if f.Subject == "core:pods" && f.Rule == "FUS002" {
			m = nil // seen
		}
	}
	if m != nil {
		t.Error("a pod that neither side can decode goes unnoticed behind a stray key")
	}
}

// Whether the home of misplaced keys holds them as well is unknown when it was not read: no better than if it did not.
func TestScanDoesNotTakeAnUnreadHomeForOneThatHoldsTheKeys(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	stores["core"]["flowschemas/system"] = stores["modern"]["flowschemas/system"]
	find := func(modern etcd.Store) finding.Finding {
		report, err := Stores(t.Context(), m, []etcd.Store{{Name: "core", Pager: stores["core"].Pager(t)}, modern},
			Options{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool {
			return f.Rule == "FUS004" && f.Subject == "core:flowschemas"
		})
		if i < 0 {
			t.Fatalf("no FUS004 about core:flowschemas among:\n%s", findingText(report.Findings))
		}
		return report.Findings[i]
	}
	if f := find(etcd.Store{Name: "modern", Pager: stores["modern"].Pager(t)}); f.Severity != finding.Warning {
		t.Errorf("a copy: %s %s, want a warning", f.Severity, f.Message)
	}
	broken := stores["modern"].Pager(t)
	broken.OnPage = func(_ *storetest.Pager, r etcd.Request) error {
		return failAt(r, "/registry/flowschemas/", errors.New("member on fire"))
	}
	if f := find(etcd.Store{Name: "modern", Pager: broken}); f.Severity != finding.Error ||
		!strings.Contains(f.Message, "whether store modern holds them is not known") {
		t.Errorf("an unread home: %s %s, want an error that says so", f.Severity, f.Message)
	}
}

// A scan keeps what CRDs say about versions to its end, but not their schemas, which are nearly all of their size.
func TestScanDoesNotKeepSchemas(t *testing.T) {
	const crds, size = 100, 300_000
	schema := `{"openAPIV3Schema":{"type":"object","description":"` + strings.Repeat("x", size/3) + `"}}`
	rest := fmt.Sprintf(`,"version":"v1","validation":%s,"conversion":{"webhook":%s},"versions":[{"name":"v1","served":true,"storage":true,"schema":%s}]},"status":{"storedVersions":["v1"]}}`, schema, schema, schema)
	live := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	kept := make([]crd, crds)
	before := live()
	for i := range kept {
		envelope, err := storage.ReadEnvelope(storetest.CRD("example.com", fmt.Sprintf("widgets%d", i), "Widget", rest))
		if err != nil {
			t.Fatal(err)
		}
		if kept[i], err = readCRD(&envelope); err != nil || !kept[i].hasSchema() {
			t.Fatalf("readCRD = %+v, %v, want a CRD with schemas", kept[i], err)
		}
	}
	if after := live(); after > before && after-before > 1<<20 {
		t.Errorf("%d CRDs of %d bytes: %d bytes are kept, want less than a MiB", crds, size, after-before)
	}
	runtime.KeepAlive(kept)
	for _, none := range []string{`"validation":null`, `"validation":{}`, `"versions":[{"name":"v1","schema":null}]`,
		`"versions":[{"name":"v1"}]`} {
		envelope, err := storage.ReadEnvelope(storetest.CRD("example.com", "widgets", "Widget", ","+none+"}}"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := readCRD(&envelope); err != nil || c.hasSchema() {
			t.Errorf("%s: readCRD = %+v, %v, want a CRD without schemas", none, c, err)
		}
	}
}

// TestAcceptedFindingsBearNoVerdict: what is accepted counts for no resource, and what is not still does.
func TestAcceptedFindingsBearNoVerdict(t *testing.T) {
	stores := storetest.Clean()
	stores["core"]["flowschemas/x"] = storetest.Put("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "x", "u", nil)
	stores["core"]["pods/default/bad"] = []byte("k8s\x00\x0a\xff")
	for _, test := range []struct {
		entries []finding.Acceptance
		want    map[string]string
	}{
		{nil, map[string]string{"flowschemas": "error [FUS004]", "pods": "error [FUS000]"}},
		{[]finding.Acceptance{{Rule: "FUS004"}},
			map[string]string{"flowschemas": "accepted [FUS004]", "pods": "error [FUS000]"}},
		{[]finding.Acceptance{{Rule: "FUS004", Subject: "core:pods"}},
			map[string]string{"flowschemas": "error [FUS004]", "pods": "error [FUS000]"}},
	} {
		report := scanStores(t, storetest.SplitMap(), stores, Options{})
		report.Accept(test.entries)
		for _, r := range report.Resources {
			want, ok := test.want[r.Resource]
			if got := fmt.Sprint(r.Verdict, " ", r.Rules); ok && r.Store == "core" && got != want {
				t.Errorf("accepting %v: %s is %s, want %s", test.entries, r.Resource, got, want)
			}
		}
	}
}

// TestMarksAreNoObjects: what a transition marks as handed over is beside the objects, and nothing to report.
func TestMarksAreNoObjects(t *testing.T) {
	m, stores := storetest.SplitMap(), storetest.Clean()
	mark := []byte(`{"apiVersion":"kubefusion.dev/v1alpha1","kind":"HandOver","by":"fusionctl transition: deployments"}`)
	want := len(scanStores(t, m, stores, Options{}).Findings)
	stores["modern"][storage.MarksResource+"/hand-over-deployments.team-a"] = mark
	stores["modern"][storage.MarksResource+"/hand-over-ingress"] = mark
	if got := scanStores(t, m, stores, Options{}).Findings; len(got) != want {
		t.Errorf("with marks there are %d findings, without them %d: %+v", len(got), want, got)
	}
}

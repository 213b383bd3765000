package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// A Deployment of the modern side with pods labelled app=web, tier=front in namespace shop; a selector of the legacy
// side's.
func TestSelectorsOverlapExactly(t *testing.T) {
	for selector, overlaps := range map[string]bool{
		`{matchLabels: {app: web}}`:                                                                                   true,
		`{matchLabels: {app: web, tier: back}}`:                                                                       false,
		`{matchExpressions: [{key: app, operator: In, values: [api, web]}]}`:                                          true,
		`{matchExpressions: [{key: app, operator: In, values: [api, db]}]}`:                                           false,
		`{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}`:                                            false,
		`{matchExpressions: [{key: app, operator: NotIn, values: [api]}]}`:                                            true,
		`{matchExpressions: [{key: tier, operator: Exists}]}`:                                                         true,
		`{matchExpressions: [{key: tier, operator: DoesNotExist}]}`:                                                   false,
		`{matchExpressions: [{key: version, operator: DoesNotExist}]}`:                                                true,
		`{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [back]}]}`:                    false,
		`{matchLabels: {app: web}, matchExpressions: [{key: version, operator: NotIn, values: [v1]}]}`:                true,
		`{matchExpressions: [{key: app, operator: Exists}, {key: tier, operator: NotIn, values: [front]}]}`:           false,
		`{matchLabels: {}, matchExpressions: [{key: "example.test/part", operator: In, values: [""]}]}`:               false,
		`{matchExpressions: [{key: app, operator: In, values: [web]}, {key: app, operator: NotIn, values: [other]}]}`: true,
	} {
		for _, kind := range []string{"deployments", "statefulsets", "daemonsets", "replicasets"} {
			p := newPair(t, "1.10.13", "")
			p.modern.put("/apis/apps/v1/deployments",
				`{metadata: {name: new, namespace: shop, uid: d2}, spec: {selector: {matchLabels: {app: web, tier: front}}, template: {metadata: {labels: {app: web, tier: front}}}}}`)
			p.legacy.put("/apis/apps/v1/"+kind,
				fmt.Sprintf(`{metadata: {name: old, namespace: shop, uid: d1}, spec: {selector: %s, template: {metadata: {labels: {app: other}}}}}`, selector))
			p.legacy.put("/apis/apps/v1/"+kind,
				fmt.Sprintf(`{metadata: {name: elsewhere, namespace: office, uid: d3}, spec: {selector: %s, template: {metadata: {labels: {app: other}}}}}`, selector))
			if !overlaps {
				p.wants()
				continue
			}
			p.wants("FUS240 error", "shop/old", "belongs to the legacy side and would select pods of the modern side",
				"the pods that Deployment shop/new makes")
			if text := lines(p.check()); strings.Count(text, "\n") != 1 {
				t.Errorf("%s: want one finding:\n%s", selector, text)
			}
		}
	}
}

// fused has a Deployment on each side and one pod of each.
func fused(t *testing.T, modernLabels string) *fakePair {
	p := newPair(t, "1.10.13", "")
	p.legacy.put("/apis/apps/v1/replicasets",
		`{metadata: {name: old-1, namespace: shop, uid: r1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: old, uid: d1, controller: true}]}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}}}`)
	p.legacy.put("/apis/apps/v1/deployments",
		`{metadata: {name: old, namespace: shop, uid: d1}, spec: {selector: {matchLabels: {app: web, side: old}}, template: {metadata: {labels: {app: web, side: old}}}}}`)
	p.modern.put("/apis/apps/v1/replicasets",
		`{metadata: {name: new-1, namespace: shop, uid: r2}, spec: {selector: {matchLabels: {x: none}}, template: {metadata: {labels: {x: none}}}}}`)
	p.shared("/api/v1/pods",
		`{metadata: {name: old-1-a, namespace: shop, uid: p1, labels: {app: web, side: old}, ownerReferences: [{apiVersion: extensions/v1beta1, kind: ReplicaSet, name: old-1, uid: r1, controller: true}]}, status: {phase: Running}}`)
	p.shared("/api/v1/pods",
		fmt.Sprintf(`{metadata: {name: new-1-a, namespace: shop, uid: p2, labels: %s, ownerReferences: [{apiVersion: example.test/v9, kind: Thing, name: new-1, uid: r2, controller: true}]}, status: {phase: Running}}`, modernLabels))
	return p
}

func TestServicesAndBudgetsThatSelectBothSides(t *testing.T) {
	fused(t, `{app: web}`).wants()
	p := fused(t, `{app: web}`)
	p.shared("/api/v1/services", `{metadata: {name: web, namespace: shop, uid: s1}, spec: {selector: {app: web}}}`)
	p.wants("FUS240 warning", "Service shop/web: selects pods of both sides (app=web)", "legacy: pod shop/old-1-a",
		"modern: pod shop/new-1-a")
	if found := p.check().Findings; len(found) != 1 || found[0].Count != 2 {
		t.Errorf("findings %+v, want one that counts both pods", found)
	}
	for name, service := range map[string]string{
		"of one side's pods": `spec: {selector: {app: web, side: old}}`, "without a selector": `spec: {}`,
		"an empty one":     `spec: {selector: {}}`,
		"a name elsewhere": `spec: {type: ExternalName, selector: {app: web}}`,
	} {
		p := fused(t, `{app: web}`)
		p.shared("/api/v1/services", `{metadata: {name: web, namespace: shop, uid: s1}, `+service+`}`)
		t.Log(name)
		p.wants()
	}
	p = fused(t, `{app: web}`)
	p.shared("/api/v1/services", `{metadata: {name: web, namespace: office, uid: s1}, spec: {selector: {app: web}}}`)
	p.wants()

	p = fused(t, `{app: web}`)
	p.legacy.put("/apis/policy/v1beta1/poddisruptionbudgets",
		`{metadata: {name: web, namespace: shop, uid: b1}, spec: {selector: {matchLabels: {app: web}}}}`)
	p.wants("FUS240 warning", "PodDisruptionBudget shop/web: belongs to the legacy side and selects 1 pod of the "+
		"modern side", "blocks evictions")
	p = fused(t, `{app: web}`)
	p.legacy.put("/apis/policy/v1beta1/poddisruptionbudgets",
		`{metadata: {name: all, namespace: shop, uid: b1}, spec: {selector: {}}}`)
	p.wants() // selects nothing up to v1beta1
	p = fused(t, `{app: web}`)
	p.modern.put("/apis/policy/v1/poddisruptionbudgets",
		`{metadata: {name: all, namespace: shop, uid: b1}, spec: {selector: {}}}`)
	p.wants("FUS240 warning", "PodDisruptionBudget shop/all", "to the modern side and selects 1 pod of the legacy side")
}

func TestPodsThatNobodyActsOnAreLeftOut(t *testing.T) {
	for _, state := range []string{`status: {phase: Succeeded}`, `status: {phase: Failed}`} {
		p := fused(t, `{app: other}`)
		p.legacy.put("/apis/apps/v1/statefulsets",
			`{metadata: {name: db, namespace: shop, uid: t1}, spec: {selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}}}}`)
		p.shared("/api/v1/pods",
			`{metadata: {name: new-1-b, namespace: shop, uid: p3, labels: {app: db}, ownerReferences: [{apiVersion: example.test/v9, kind: Thing, name: new-1, uid: r2, controller: true}]}, `+state+`}`)
		p.wants()
	}
	p := fused(t, `{app: other}`)
	p.legacy.put("/apis/apps/v1/statefulsets",
		`{metadata: {name: db, namespace: shop, uid: t1}, spec: {selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}}}}`)
	p.shared("/api/v1/pods", `{metadata: {name: nobody, namespace: shop, uid: p3, labels: {app: db}}}`)
	p.wants() // nothing tells whose the pod is
}

// The spec names a side label: what is known to be a side's own must carry it, or not.
func TestSideLabel(t *testing.T) {
	labelled := func(modernPod, legacyTemplate string) *fakePair {
		p := fused(t, modernPod)
		p.plan.Pods = &plan.Pods{SideLabel: "example.test/side"}
		template := p.modern.objects["/apis/apps/v1/replicasets"][0]["spec"].(obj)["template"].(obj)
		template["metadata"].(obj)["labels"].(obj)["example.test/side"] = "modern"
		p.legacy.put("/apis/apps/v1/daemonsets",
			`{metadata: {name: agent, namespace: shop, uid: a1}, spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: `+legacyTemplate+`}}}}`)
		return p
	}
	labelled(`{app: other, example.test/side: modern}`, `{app: agent}`).wants()
	labelled(`{app: other}`, `{app: agent}`).wants("FUS241 warning",
		"pods of the modern side: 1 of them has no label example.test/side", "shop/new-1-a")
	labelled(`{app: other, example.test/side: legacy}`, `{app: agent}`).
		wants("FUS241 warning", "carries example.test/side=legacy, want modern")
	labelled(`{app: other, example.test/side: modern}`, `{app: agent, example.test/side: modern}`).
		wants("FUS241 warning", "templates of the legacy side: 1 of them carries example.test/side=modern",
			"DaemonSet shop/agent")

	// A selector that names it chooses knowingly.
	p := labelled(`{app: web, example.test/side: modern}`, `{app: agent}`)
	p.shared("/api/v1/services",
		`{metadata: {name: web, namespace: shop, uid: s1}, spec: {selector: {app: web, example.test/side: modern}}}`)
	p.wants()
	// A pod without a controller is whose its label says.
	p = labelled(`{app: other, example.test/side: modern}`, `{app: agent}`)
	p.shared("/api/v1/pods",
		`{metadata: {name: alone, namespace: shop, uid: p9, labels: {app: agent, example.test/side: modern}}}`)
	p.wants("FUS240 error", "DaemonSet shop/agent: belongs to the legacy side and selects 1 pod of the modern side",
		"pod shop/alone")
}

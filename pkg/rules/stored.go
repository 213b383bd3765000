package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

const (
	crdKey        = "apiextensions.k8s.io/customresourcedefinitions"
	apiServiceKey = "apiregistration.k8s.io/apiservices"
)

const (
	toIngresses = `[{subjects: [{kind: Group, name: developers}], apiGroups: [networking.k8s.io], resources: [ingresses]}]`
	toWebhooks  = `[{subjects: [{kind: Group, name: operators}], apiGroups: [admissionregistration.k8s.io], resources: ["*"]}]`
)

// storedRules are about what one side stores where the other reads.
func storedRules() []rule {
	return []rule{
		{finding.Rule{
			ID: "FUS001", Title: "The legacy side erases fields that it does not know",
			Why: "A client that updates an object writes all of it, in the API version of its server. Fields that " +
				"an older version does not know are dropped when it decodes the object and are gone after it writes " +
				"the object back, even if it only changed the status: a kubelet's heartbeat through the legacy API " +
				"server strips the spec of a pod that was created through the modern one. Custom resources keep " +
				"their spec.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{
				Seen: "one PUT of a pod's status through 1.6.13, the pod created through 1.36.3: " +
					"topologySpreadConstraints, preemptionPolicy and managedFields were gone from the stored object; " +
					"a status PUT through 1.10.13 stripped the same",
				Damage: []string{"TestStatusUpdateErasesFields"},
				Read: "generated.pb.go and registry/core/pod/strategy.go of 1.6.13; store.go of apiserver 1.6.13 " +
					"and 1.36.3",
			},
			Bad:  example{}.String(),
			Good: example{layout: "split", legacy: "1.24.17", modern: "1.24.17", network: ""}.String(),
		}, erasedFields},
		{finding.Rule{
			ID: "FUS002", Title: "One side cannot read what the other stores",
			Why: "One object under a resource's prefix that a server cannot decode makes every list of that " +
				"resource fail and closes every watch: informers never sync, and what depends on them (admission, " +
				"garbage collectors, controllers) stops. A server chooses the stored version; since 1.14 no flag " +
				"changes it.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.15.12 and 1.36.3 on one store: one Ingress, CronJob or HorizontalPodAutoscaler written " +
					"through 1.36.3 makes 1.15.12 answer 500 to every list of that resource; one Deployment patched " +
					"through 1.10.13 does the same to 1.6.13",
				Damage:     []string{"TestSharedStoreBlindsTheLegacySide", "TestPatchedDeploymentBlindsTheLegacySide"},
				Prevention: []string{"TestPairs"},
				Read: "storage/etcd3/store.go of 1.6.13 and 1.36.3; the golden storage data and install " +
					"packages of every minor",
			},
			Bad:  example{layout: "shared", modernManager: "-", access: toIngresses}.String(),
			Good: example{access: toIngresses}.String(),
		}, unreadable},
		{finding.Rule{
			ID: "FUS003", Title: "A watch fails at objects of a cohabiting group",
			Why: "Before 1.11 a server lists objects that were stored under another group of the same resource " +
				"(apps and extensions), but its watch ends with an error at every such write: informers reconnect " +
				"for ever and miss events in between.",
			Legacy: kubever.Range{From: 6, To: 13}, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.10.13 lists pod security policies that 1.15.12 has created; its watch of them ends with an " +
					"error at each",
				Damage: []string{"TestWatchEndsAtACohabitingGroup"},
				Read:   "storage_codec.go of every minor from 1.6 to 1.15; kubernetes#73478"},
			Bad: example{legacy: "1.9.11", modern: "1.10.13",
				more: `owners: [{resources: [networkpolicies.networking.k8s.io, deployments.apps], owner: shared}]`}.String(),
			Good: example{legacy: "1.9.11", modern: "1.10.13"}.String(),
		}, brokenWatches},
		{finding.Rule{
			ID: "FUS030", Title: "The servers delete each other's APIServices",
			Why: "At start an API server deletes the APIServices of built-in groups that it does not serve " +
				"itself, and the other API server does not create them again before its own next start: groups " +
				"vanish from its discovery, and from its garbage collector, quota and namespace controllers. No " +
				"override moves APIServices; only different default stores keep them apart.",
			Legacy: kubever.Range{From: 7, To: kubever.Newest}, Modern: kubever.Range{From: 7, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen:   "starting 1.36.3 on the store of 1.15.12 removes the group extensions from 1.15.12's /apis",
				Damage: []string{"TestSharedStoreBlindsTheLegacySide"}, Prevention: []string{"TestPairs"},
				Read: "autoregister_controller.go of 1.7.0, 1.8.15 and 1.36.3; kubernetes#75704, #51912",
			},
			Bad:  example{layout: "shared", legacy: "1.15.12", modern: "1.16.15", modernManager: "-"}.String(),
			Good: example{legacy: "1.15.12", modern: "1.16.15"}.String(),
		}, sharedAPIServices},
		{finding.Rule{
			ID: "FUS031", Title: "The legacy side truncates CRDs",
			Why: "Every version stores CustomResourceDefinitions as v1beta1, so an old server reads those of a " +
				"new one and writes them back without the fields that it does not know: versions, conversion, " +
				"schemas, status.storedVersions. Custom resources are then read in the wrong version.",
			Legacy: kubever.Range{From: 7, To: 15}, Modern: kubever.Range{From: 8, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "30 CRDs of two versions created through 1.36.3 in a row on the store of 1.10.13: 29 were " +
					"rewritten with one version and without schema",
				Damage: []string{"TestLegacyTruncatesCRDs"}, Prevention: []string{"TestPairs"},
				Read: "apiextensions v1beta1 types.go and naming_controller.go of every minor",
			},
			Bad:  example{layout: "shared", legacy: "1.10.13", modern: "1.12.10", modernManager: "-"}.String(),
			Good: example{legacy: "1.10.13", modern: "1.12.10"}.String(),
		}, truncatedCRDs},
		{finding.Rule{
			ID: "FUS090", Title: "The modern API server writes at start what the legacy side cannot decode",
			Why: "At start an API server writes objects as a member of system:masters, which bypasses the policy. " +
				"Where such an object is in a store that the legacy side reads, in a version that it cannot decode, " +
				"the legacy side's lists of that resource fail from then on.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "a fresh 1.36.3 writes 57 keys at start, flow schemas, priority levels, priority " +
					"classes, leases and APIServices among them; where priority classes were in one store, 1.10.13, " +
					"which serves them as v1alpha1, answered every list of them with 500",
				Damage:     []string{"TestArgumentsThatTheirPlanForbids"},
				Prevention: []string{"TestPairs"},
				Read:       "post-start hooks of every minor",
			},
			Bad: example{legacy: "1.12.10", modern: "1.36.3",
				more: `owners: [{resources: [leases.coordination.k8s.io], owner: shared}]`}.String(),
			Good: example{legacy: "1.12.10", modern: "1.36.3"}.String(),
		}, startupPoison},
		{finding.Rule{
			ID: "FUS121", Title: "Admission of one side does not apply to writes through the other",
			Why: "Webhook configurations and admission policies apply to the API server in whose store they are. " +
				"What a webhook of the legacy side refuses or defaults can be written through the modern API server " +
				"without it, and vice versa. The same holds for PodSecurityPolicies, which the modern API server " +
				"does not have.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "admission plugins of every minor"},
			Bad:      example{access: toDevelopers("pods")}.String(),
			Good:     example{access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods], readOnly: true}]`}.String(),
		}, oneSidedAdmission},
		{finding.Rule{
			ID: "FUS122", Title: "Claims and volumes get a finalizer that no controller removes",
			Why: "Since 1.10 an API server adds a finalizer to claims and volumes, which a controller removes " +
				"when they are no longer used. Where neither side runs that controller, their deletion never " +
				"completes.",
			Legacy: kubever.Range{From: 6, To: 8}, Modern: kubever.Range{From: 10, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "a claim created through 1.10.13 beside 1.6.13 and deleted was still " +
				"there, with the finalizer",
				Damage: []string{"TestPatchedDeploymentBlindsTheLegacySide"},
				Read: "admission plugin StorageObjectInUseProtection and pkg/controller/volume/pvcprotection of 1.9, " +
					"1.10 and 1.36"},
			Bad: example{legacy: "1.6.13", modernServer: args("disable-admission-plugins=Priority"),
				access: toDevelopers("persistentvolumeclaims")}.String(),
			Good: example{legacy: "1.6.13", access: toDevelopers("persistentvolumeclaims")}.String(),
		}, stuckVolumes},
		{finding.Rule{
			ID: "FUS120", Title: "Unreadable webhook configurations block every write",
			Why: "A server whose informer of webhook configurations cannot sync refuses every write, because it " +
				"does not know which webhooks to call.",
			Legacy: kubever.Range{From: 9, To: 15}, Modern: kubever.Range{From: 21, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "one webhook configuration stored by 1.36.3: 1.15.12, started again, " +
				"refused every write as not yet ready to handle the request",
				Damage: []string{"TestSharedStoreBlindsTheLegacySide"},
				Read:   "admission/plugin/webhook/generic/webhook.go of 1.15.12; the stored version of every minor"},
			Bad:  example{layout: "shared", modernManager: "-", access: toWebhooks}.String(),
			Good: example{access: toWebhooks}.String(),
		}, blockedByWebhooks},
	}
}

// erasedFields reports once what the legacy side strips when it writes objects that the modern side made.
func erasedFields(p *plan.Plan) []finding.Finding {
	legacy, modern := p.Legacy.Version.Minor, p.Modern.Version.Minor
	var hit []string
	lost := 0
	for i := range p.Resources {
		r := &p.Resources[i]
		if !r.VisibleToBoth() || r.Pseudo || (r.Owner != pair.OwnerShared && r.Owner != pair.OwnerModern) {
			continue
		}
		spec, before := specType(r), lost
		for _, field := range kubever.Fields(spec, modern) {
			if kubever.FieldType(spec, field, legacy) == "" {
				lost++
			}
		}
		if lost > before {
			hit = append(hit, r.Name)
		}
	}
	if len(hit) == 0 {
		return nil
	}
	return []finding.Finding{{
		Subject: "shared resources",
		Message: fmt.Sprintf("%s erases fields of %s when it writes an object that was created through %s, %d of "+
			"them at the top level of their specs alone", legacy, strings.Join(hit, ", "), modern, lost),
		Fix:     "do not depend on fields that the legacy version does not know in objects of these kinds",
		Related: hit,
	}}
}

// specType is the type that holds what a client wants of a resource: the spec of its kind, or the kind where it has
// none.
func specType(r *plan.Resource) string {
	gv, err := schema.ParseGroupVersion(r.Modern.StoredAs)
	if err != nil {
		return "" // the type of no resource
	}
	kind := kubever.TypeName(gv.WithKind(r.Kind))
	if kubever.HasFields(kind + "Spec") {
		return kind + "Spec"
	}
	return kind
}

func unreadable(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Pseudo {
			continue
		}
		if r.Poisons(pair.Modern, r.Modern.StoredAs) && modernWrites(p, r) {
			found = append(found, finding.Finding{Subject: r.Name,
				Message: fmt.Sprintf("%s stores them as %s in store %s, which %s cannot decode: with one such object "+
					"every list of %s through the legacy side fails",
					p.Modern.Version.Minor, r.Modern.StoredAs, r.Modern.Store, p.Legacy.Version.Minor, r.Name),
				Fix: apart(p, r)})
		}
		if r.Poisons(pair.Legacy, r.Legacy.StoredAs) && legacyWrites(r) && modernReads(p, r) {
			found = append(found, finding.Finding{Subject: r.Name,
				Message: fmt.Sprintf("%s stores them as %s in store %s, which %s cannot decode: every list of %s "+
					"through the modern side fails",
					p.Legacy.Version.Minor, r.Legacy.StoredAs, r.Legacy.Store, p.Modern.Version.Minor, r.Name),
				Fix: apart(p, r)})
		}
	}
	return found
}

// apart says how to keep what the two sides store of a resource in different places.
func apart(p *plan.Plan, r *plan.Resource) string {
	name := qualified(r)
	switch {
	case r.Owner == pair.OwnerLegacy && userWrites(p, r):
		return fmt.Sprintf("leave %s out of spec.access (\"*\" includes it), or make it readOnly", name)
	case p.Layout == spec.LayoutShared:
		return "use layout: split, with another store for the modern side"
	default:
		return fmt.Sprintf("add %s with owner: split to spec.owners", name)
	}
}

// qualified is a resource's name as spec.owners wants it: RESOURCE.GROUP, in a group that the modern side serves where
// there is one.
func qualified(r *plan.Resource) string {
	group := ""
	switch {
	case len(r.Modern.Serves) > 0:
		group = groupOf(r.Modern.Serves[0])
	case len(r.Groups) > 0:
		group = r.Groups[0]
	}
	if group == "" {
		return r.Name
	}
	return r.Name + "." + group
}

// groupOf is the group of an apiVersion, "" for the core group's.
func groupOf(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// brokenWatches judges each side as a reader of what the other writes. A side without readers breaks nothing.
func brokenWatches(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	report := func(r *plan.Resource, reader pair.Side, severity finding.Severity) {
		writer := reader.Other()
		found = append(found, finding.Finding{Subject: r.Name, Severity: severity, Key: string(reader),
			Message: fmt.Sprintf("%s stores them as %s; a watch of %s through the %s side, %s, ends at every such "+
				"write", p.Side(writer).Version.Minor, r.View(writer).StoredAs, r.Name, reader,
				p.Side(reader).Version.Minor),
			Fix: apart(p, r)})
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		if !r.VisibleToBoth() || r.Pseudo {
			continue
		}
		if slices.Contains(r.Legacy.WatchBreaks, r.Modern.StoredAs) && modernWrites(p, r) {
			report(r, pair.Legacy, finding.Error)
		}
		if slices.Contains(r.Modern.WatchBreaks, r.Legacy.StoredAs) && legacyWrites(r) && modernReads(p, r) {
			report(r, pair.Modern, finding.Warning)
		}
	}
	return found
}

func sharedAPIServices(p *plan.Plan) []finding.Finding {
	r := p.Resource(apiServiceKey)
	if r == nil || !r.VisibleToBoth() {
		return nil
	}
	lostByLegacy, lostByModern := without(p.Legacy.Facts.GroupVersions, p.Modern.Facts.GroupVersions),
		without(p.Modern.Facts.GroupVersions, p.Legacy.Facts.GroupVersions)
	lost := slices.Concat(lostByLegacy, lostByModern)
	if len(lost) == 0 {
		return nil
	}
	how := "at its next start each server deletes those of the other that it does not serve"
	if kubever.BehavesIn(kubever.BehaviourAPIServicesDuel, p.Legacy.Version) {
		how = "both servers delete and create each other's without end"
	}
	return []finding.Finding{{Subject: "apiservices", Message: fmt.Sprintf("both servers keep them in store %s: %s, "+
		"%s", r.Legacy.Store, how, strings.Join(first(lost, 5), ", ")), Related: lost,
		Fix: "use layout: split, with another store for the modern side: no override moves APIServices"}}
}

// without lists what is in the first list and not in the second.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

func truncatedCRDs(p *plan.Plan) []finding.Finding {
	r := p.Resource(crdKey)
	if r == nil || !r.VisibleToBoth() {
		return nil
	}
	var lost []string
	for _, field := range p.Modern.Facts.CRDFields {
		if !slices.Contains(p.Legacy.Facts.CRDFields, field) {
			lost = append(lost, field)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return []finding.Finding{{Subject: "customresourcedefinitions",
		Message: fmt.Sprintf("both servers keep them in store %s, and %s writes them back without %s", r.Legacy.Store,
			p.Legacy.Version.Minor, strings.Join(lost, ", ")),
		Fix: "use layout: split, with another store for the modern side: no override moves CRDs", Related: lost}}
}

func startupPoison(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Pseudo || !r.Poisons(pair.Modern, r.Modern.StoredAs) {
			continue
		}
		for _, key := range p.StartupWrites {
			if key.Side != pair.Modern || key.Key != r.Key && !strings.HasPrefix(key.Key, r.Key+"/") ||
				reconcilesNothing(p, key.Key) {
				continue
			}
			found = append(found, finding.Finding{Subject: key.Key,
				Message: fmt.Sprintf("%s writes it at start, as %s, into store %s, where %s cannot decode it: its "+
					"lists of %s fail from then on",
					p.Modern.Version.Minor, r.Modern.StoredAs, r.Modern.Store, p.Legacy.Version.Minor, r.Name),
				Fix: apart(p, r)})
		}
	}
	return found
}

// reconcilesNothing reports whether the modern API server is told not to write the key, which is one of its own
// address.
func reconcilesNothing(p *plan.Plan, key string) bool {
	own := strings.HasPrefix(key, "services/endpoints/") || strings.HasPrefix(key, "endpointslices/") ||
		strings.HasPrefix(key, "masterleases/")
	value, _ := modernArg(p, kubever.APIServer, "endpoint-reconciler-type")
	return own && value == "none"
}

func blockedByWebhooks(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, key := range webhookKeys {
		r := p.Resource(key)
		if r == nil || !r.Poisons(pair.Modern, r.Modern.StoredAs) ||
			len(r.Legacy.Serves) == 0 || !userWrites(p, r) && r.Owner == pair.OwnerLegacy {
			continue
		}
		found = append(found, finding.Finding{Subject: r.Name,
			Message: fmt.Sprintf("one of them stored as %s makes %s refuse every write", r.Modern.StoredAs,
				p.Legacy.Version.Minor), Fix: apart(p, r)})
	}
	return found
}

// webhookKeys are the resources that say which webhooks a server asks.
var webhookKeys = []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}

func oneSidedAdmission(p *plan.Plan) []finding.Finding {
	var both []string // what can be written through either server
	for i := range p.Resources {
		if r := &p.Resources[i]; r.VisibleToBoth() && !r.Pseudo && r.Key != "events" && legacyWrites(r) &&
			len(r.Modern.Serves) > 0 && userWrites(p, r) {
			both = append(both, r.Name)
		}
	}
	if visible(p, "pods") && makesPods(p) && !slices.Contains(both, "pods") {
		both = append(both, "pods") // by controllers of the modern side, for what users may create there
	}
	if len(both) == 0 {
		return nil
	}
	var found []finding.Finding
	for _, key := range webhookKeys {
		if r := p.Resource(key); r != nil && !r.VisibleToBoth() && len(r.Modern.Serves) > 0 {
			found = append(found, finding.Finding{Subject: r.Name, Severity: finding.Info, Related: both,
				Message: fmt.Sprintf("those of one side are not called for writes through the other; users have "+
					"permission to write %s through both", strings.Join(first(both, 5), ", ")),
				Fix: fmt.Sprintf("register webhooks that guard %s on both sides", first(both, 1)[0])})
		}
	}
	if guard := "PodSecurityPolicy"; admits(p, pair.Legacy, guard) && !admits(p, pair.Modern, guard) &&
		slices.Contains(both, "pods") {
		found = append(found, finding.Finding{Subject: guard,
			Message: fmt.Sprintf("the legacy API server admits pods by it, and users may create pods through the "+
				"modern API server, where it does not apply: %s", p.Modern.Version.Minor),
			Fix: "leave pods out of spec.access, or label the namespaces for PodSecurity"})
	}
	return found
}

// admits reports whether a side's API server is told by name to run an admission plugin.
func admits(p *plan.Plan, side pair.Side, plugin string) bool {
	for _, flag := range []string{"enable-admission-plugins", "admission-control"} {
		if value, ok := sideArg(p, side, kubever.APIServer, flag); ok &&
			slices.Contains(strings.Split(value, ","), plugin) {
			return true
		}
	}
	return false
}

func stuckVolumes(p *plan.Plan) []finding.Finding {
	const plugin = "StorageObjectInUseProtection"
	minor := p.Modern.Version.Minor
	off, _ := modernArg(p, kubever.APIServer, "disable-admission-plugins")
	if !kubever.Behaves(kubever.BehaviourProtectionFinalizersAdded, minor) ||
		slices.Contains(strings.Split(off, ","), plugin) ||
		!slices.Contains(kubever.AdmissionDefaultOn(minor), plugin) && !admits(p, pair.Modern, plugin) {
		return nil
	}
	var found []finding.Finding
	for key, controller := range map[string]string{
		"persistentvolumeclaims": "persistentvolumeclaim-protection-controller",
		"persistentvolumes":      "persistentvolume-protection-controller",
	} {
		r := p.Resource(key)
		if r == nil || !r.VisibleToBoth() || !modernWrites(p, r) || runs(p, pair.Legacy, controller) ||
			runs(p, pair.Modern, controller) {
			continue
		}
		found = append(found, finding.Finding{Subject: key, Message: fmt.Sprintf("those created through %s get a "+
			"finalizer that no controller of either side removes: their deletion never completes", minor),
			Fix: fmt.Sprintf("add %s to --disable-admission-plugins of the modern API server, or remove the argument "+
				"from extraArgs", plugin)})
	}
	return found
}

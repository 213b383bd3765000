package convert

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// valueDrop is a field that servers drop or reset for what it holds.
type valueDrop struct {
	typeName, field string
	minors          kubever.Ranges // whose servers may drop it; nil for all
	source          string
	// why says what a minor does with the field of an object that has it, at a place; "" when it keeps it.
	why func(of map[string]any, at trail, minor kubever.Minor) string
}

// valueDrops are what the functions that drop disabled fields look into values for.
var valueDrops = []valueDrop{
	{
		typeName: "meta.v1.ObjectMeta", field: "clusterName", minors: kubever.Ranges{{From: 6, To: 24}},
		source: "apiserver pkg/registry/rest/create.go@1.6.13,1.12.10,1.14.10,1.24.17; run: 1.6.13, 1.10.13, " +
			"1.12.10, 1.15.12 and 1.18.19 drop it",
		why: ofObjects("no server saves it"),
	},
	{
		typeName: "meta.v1.ObjectMeta", field: "initializers", minors: kubever.Ranges{{From: 8, To: 15}},
		source: "apiserver pkg/registry/rest/create.go@1.10.13,1.13.12,1.14.10,1.15.12, absent@1.7.0; until 1.13 by " +
			"the feature gate Initializers, see gates.tsv; run: 1.10.13, 1.12.10 and 1.15.12 drop it",
		why: ofObjects("it is alpha, and off by default"),
	},
	{
		typeName: "v1.PersistentVolumeClaimSpec", field: "dataSource",
		minors: kubever.Ranges{{From: 16, To: kubever.Newest}},
		source: "pkg/api/persistentvolumeclaim/util.go@1.16.15,1.18.20,1.22.17,1.36.3; until 1.15 see field-gates.tsv",
		why: func(of map[string]any, _ trail, minor kubever.Minor) string {
			if !has(of["dataSource"], "kind") { // no server takes it
				return ""
			}
			referenced := !isEmpty(of["dataSourceRef"]) && kept("AnyVolumeDataSource", minor) &&
				kubever.FieldType("v1.PersistentVolumeClaimSpec", "dataSourceRef", minor) != "" &&
				!crosses(object(of, "dataSourceRef"), minor)
			switch source := object(of, "dataSource"); {
			case isClaim(source), referenced:
				return ""
			case !isSnapshot(source):
				return minor.String() + " drops it: it keeps PersistentVolumeClaims and VolumeSnapshots alone"
			case !kept("VolumeSnapshotDataSource", minor):
				return offByDefault(minor, "VolumeSnapshotDataSource")
			}
			return ""
		},
	},
	{
		typeName: "v1.PersistentVolumeClaimSpec", field: "dataSourceRef",
		source: "pkg/api/persistentvolumeclaim/util.go@1.28.15,1.36.3",
		why: func(of map[string]any, _ trail, minor kubever.Minor) string {
			if crosses(object(of, "dataSourceRef"), minor) {
				return minor.String() + " drops it, all of it, because it names a namespace: its feature gate " +
					crossNamespace + " is off by default"
			}
			return ""
		},
	},
	{
		typeName: "v1.ServiceSpec", field: "sessionAffinityConfig",
		source: "SetDefaults_Service in pkg/api/v1/defaults.go@1.8.15 and pkg/apis/core/v1/defaults.go@1.36.3; run",
		why: func(of map[string]any, _ trail, minor kubever.Minor) string {
			if affinity, _ := of["sessionAffinity"].(string); affinity == "" || affinity == "None" {
				return minor.String() + " drops it: there is no session affinity"
			}
			return ""
		},
	},
	{
		typeName: "v1.SecurityContext", field: "procMount",
		source: "pkg/api/pod/util.go@1.12.10,1.24.17,1.31.14",
		why: func(of map[string]any, _ trail, minor kubever.Minor) string {
			const gate = "ProcMountType"
			if value, _ := of["procMount"].(string); value != "" && value != "Default" && !kept(gate, minor) {
				return minor.String() + " makes it Default: its feature gate " + gate + " is off by default"
			}
			return ""
		},
	},
	{
		typeName: "v1.Container", field: "restartPolicy",
		source: "pkg/api/pod/util.go@1.28.15,1.34.4; run: 1.28.15, 1.34.4; what others refuse is in package validate",
		why: func(of map[string]any, at trail, minor kubever.Minor) string {
			const sidecars, rules = "SidecarContainers", "ContainerRestartRules"
			ofInit := len(at) > 2 && at[len(at)-3].field == "initContainers"
			if ofInit && !kept(sidecars, minor) {
				return offByDefault(minor, sidecars)
			}
			if !kept(rules, minor) && !(ofInit && of["restartPolicy"] == "Always") {
				return offByDefault(minor, rules)
			}
			return ""
		},
	},
}

// ofObjects is why a field of the metadata of objects is dropped; that of templates is kept.
func ofObjects(why string) func(map[string]any, trail, kubever.Minor) string {
	return func(_ map[string]any, at trail, minor kubever.Minor) string {
		if len(at) != 2 || at[0].field != "metadata" {
			return ""
		}
		return minor.String() + " drops it: " + why
	}
}

// keeps reports whether servers of a minor keep a field of a claim for what it holds.
func keeps(field string, claim map[string]any, minor kubever.Minor) bool {
	const claimSpec = "v1.PersistentVolumeClaimSpec"
	if _, off := kubever.DisabledField(claimSpec, field, minor); off ||
		kubever.FieldType(claimSpec, field, minor) == "" {
		return false
	}
	for _, drop := range valueDrops {
		if drop.typeName == claimSpec && drop.field == field && drop.why(claim, nil, minor) != "" {
			return false
		}
	}
	return true
}

// crossNamespace is the feature gate of references to the data of other namespaces.
const crossNamespace = "CrossNamespaceVolumeDataSource"

// crosses reports whether servers of a minor drop a reference because of the namespace that it names.
func crosses(reference map[string]any, minor kubever.Minor) bool {
	return has(reference, "namespace") && !kept(crossNamespace, minor)
}

// ofTemplates says of a field of a claim that a template holds when it is lost: servers keep templates as they are, and
// drop the field of the claims that are created of them.
func ofTemplates(gvk schema.GroupVersionKind, d difference, meaning string, minor kubever.Minor) string {
	if d.in == nil || d.in.typeName != "v1.PersistentVolumeClaimSpec" || gvk.Kind == "PersistentVolumeClaim" {
		return meaning
	}
	drops := minor.String() + " drops it"
	if rest, ok := strings.CutPrefix(meaning, drops); ok {
		return drops + " of the claims that are created of this" + rest
	}
	return meaning
}

// kept reports whether a feature gate of a minor is on by default, or gone because it cannot be turned off any more.
func kept(gate string, minor kubever.Minor) bool {
	state, known := kubever.Gate(gate).At(minor)
	return !known || state.Default
}

func offByDefault(minor kubever.Minor, gate string) string {
	return minor.String() + " drops it: its feature gate " + gate + " is off by default"
}

func has(value any, field string) bool {
	fields, _ := value.(map[string]any)
	return !isEmpty(fields[field])
}

func isClaim(source map[string]any) bool {
	return source["kind"] == "PersistentVolumeClaim" && isEmpty(source["apiGroup"])
}

func isSnapshot(source map[string]any) bool {
	return source["kind"] == "VolumeSnapshot" && source["apiGroup"] == "snapshot.storage.k8s.io"
}

package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Older is the version that rewrites objects, and what it gets to see of them.
type Older struct {
	Minor kubever.Minor
	// Sees reports whether this version's server reads the objects of a resource; nil for one that reads all.
	Sees func(key string) bool
}

// LegacyOf is the legacy side of a plan: it sees what lies where both sides look.
func LegacyOf(p *plan.Runtime) Older {
	return Older{Minor: p.Legacy.Version.Minor, Sees: p.VisibleToBoth}
}

// Losses names every field of an object that the older version silently drops when it writes the object back, and says
// since when the field exists and what its loss means. Of an object that the older version does not see, what ends in
// objects that it does see is looked at: the templates of pods and of claims. Shape: object is a decoded manifest; a
// kind List is a list of them. Errors: a manifest without apiVersion or kind, a kind that its group never had; a custom
// resource is no error: it keeps its fields.
func (o Older) Losses(object map[string]any) ([]finding.Finding, error) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if apiVersion == "" || kind == "" {
		return nil, errors.New("a manifest has apiVersion and kind")
	}
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		return o.lossesOfAll(items)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	name := nameOf(kind, object)
	fact, known := resourceOfKind(gv.WithKind(kind))
	if !known {
		if group := kindsOf(gv.Group); len(group) > 0 {
			if near, ok := spelling.Nearest(kind, group); ok {
				return nil, fmt.Errorf("%s: no version knows kind %q in %q; did you mean %q?", name, kind, apiVersion,
					near)
			}
			return nil, fmt.Errorf("%s: no version knows kind %q in %q", name, kind, apiVersion)
		}
		return []finding.Finding{{Rule: lossRule, Key: finding.Key(lossRule, name), Severity: finding.Info,
			Subject: name,
			Message: fmt.Sprintf("%s is no built-in API: a custom resource keeps its fields", apiVersion)}}, nil
	}
	w := lossWalk{older: o, name: name, seen: o.Sees == nil || o.Sees(fact.Key)}
	typeName := kubever.TypeName(gv.WithKind(kind))
	theirs := typeName
	if kubever.Fields(theirs, o.Minor) == nil {
		// it cannot read the object in this version at all; what becomes of templates still counts
		theirs, w.seen = "", false
		w.add(finding.Finding{Severity: finding.Info, Subject: name,
			Message: fmt.Sprintf("%s does not know %s of %s: the whole object is invisible there", o.Minor, kind,
				apiVersion)})
	}
	w.walk(object, "", typeName, theirs)
	return w.found, nil
}

func (o Older) lossesOfAll(items []any) ([]finding.Finding, error) {
	var found []finding.Finding
	var problems []error
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			problems = append(problems, fmt.Errorf("items[%d]: want an object", i))
			continue
		}
		of, err := o.Losses(object)
		if err != nil {
			problems = append(problems, fmt.Errorf("items[%d]: %w", i, err))
		}
		found = append(found, of...)
	}
	return found, errors.Join(problems...)
}

// lossRule is the rule that a loss is an instance of.
const lossRule = "FUS001"

// lossWalk goes down an object along two descriptions of it at a time: the newest one of each field, and the older
// version's.
type lossWalk struct {
	older Older
	name  string
	seen  bool // the older version reads and writes what the walk is in
	found []finding.Finding
}

func (w *lossWalk) add(f finding.Finding) {
	f.Rule, f.Key = lossRule, finding.Key(lossRule, f.Subject)
	w.found = append(w.found, f)
}

// serverFields are written by servers, not by users: their loss loses no intent.
var serverFields = []string{"managedFields", "status"}

// walk judges the fields of a value of the type; theirs is the same type as the older version describes it, "" where it
// has none.
func (w *lossWalk) walk(value map[string]any, path, typeName, theirs string) {
	if key, ok := templateTypes[typeName]; ok && !w.seen {
		inside := *w
		inside.seen = w.older.Sees == nil || w.older.Sees(key)
		inside.walk(value, path, typeName, typeName)
		w.found = inside.found
		return
	}
	for _, field := range slices.Sorted(maps.Keys(value)) {
		if slices.Contains(serverFields, field) || path == "" && (field == "apiVersion" || field == "kind") {
			continue
		}
		ranges := kubever.Field(typeName, field)
		at := path + field
		if len(ranges) == 0 {
			w.unknown(at, field, typeName)
			continue
		}
		if w.seen && !ranges.Has(w.older.Minor) && !kubever.Field(theirs, field).Has(w.older.Minor) {
			if !kubever.Implied(typeName, field, fmt.Sprint(value[field])) {
				w.lost(at, typeName, field, ranges)
			}
			continue
		}
		newest := ranges[len(ranges)-1].To
		w.descend(value[field], at, kubever.FieldType(typeName, field, newest),
			kubever.FieldType(theirs, field, w.older.Minor))
	}
}

// descend walks what a field holds: an object, a list of them, or a map of them.
func (w *lossWalk) descend(value any, at, typeName, theirs string) {
	if schema, ok := kubever.SchemaType(typeName); ok {
		theirs, _ = kubever.SchemaType(theirs)
		typeName = schema
	}
	element, isMap := strings.CutPrefix(typeName, "map[string]")
	switch v := value.(type) {
	case map[string]any:
		if !isMap {
			if kubever.HasFields(typeName) {
				w.walk(v, at+".", typeName, theirs)
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.descend(v[key], at+"."+key, element, strings.TrimPrefix(theirs, "map[string]"))
		}
	case []any:
		for i, item := range v {
			w.descend(item, fmt.Sprintf("%s[%d]", at, i), strings.TrimPrefix(typeName, "[]"),
				strings.TrimPrefix(theirs, "[]"))
		}
	}
}

// templateTypes are what controllers make objects from, with the key of those objects.
var templateTypes = map[string]string{"v1.PodTemplateSpec": "pods",
	"v1.PersistentVolumeClaim": "persistentvolumeclaims", "v1.PersistentVolumeClaimTemplate": "persistentvolumeclaims"}

func (w *lossWalk) lost(path, typeName, field string, ranges kubever.Ranges) {
	f := finding.Finding{Severity: finding.Warning, Subject: w.name + " " + path,
		Message: fmt.Sprintf("%s does not know it (since %s) and drops it", w.older.Minor, ranges[0].From),
		Fix:     "remove the field, and do without its effect"}
	if last := ranges[len(ranges)-1].To; last < w.older.Minor {
		f.Message = fmt.Sprintf("%s no longer knows it (until %s) and drops it", w.older.Minor, last)
	}
	if meaning, ok := meanings[typeName+"."+field]; ok {
		f.Severity = finding.Error
		f.Message += ": " + meaning
	}
	w.add(f)
}

func (w *lossWalk) unknown(path, field, typeName string) {
	f := finding.Finding{Severity: finding.Warning, Subject: w.name + " " + path,
		Message: "no version knows this field: every server drops it", Fix: "remove it"}
	if near, ok := spelling.Nearest(field, kubever.Fields(typeName, kubever.Newest)); ok {
		f.Fix = fmt.Sprintf("did you mean %q?", near)
	}
	w.add(f)
}

// meanings say what the loss of a field does to scheduling and running; a loss without one changes less than that.
var meanings = map[string]string{
	"apps.v1.StatefulSetSpec.minReadySeconds": "an update goes on to the next pod at once",
	"batch.v1.CronJobSpec.timeZone": "the schedule runs in the controller manager's time " +
		"zone",
	"batch.v1.JobSpec.backoffLimit":                   "a failing job is retried without end",
	"batch.v1.JobSpec.completionMode":                 "pods get no index: all of them do the same work",
	"batch.v1.JobSpec.podFailurePolicy":               "failures that should fail the job are retried",
	"batch.v1.JobSpec.suspend":                        "the job starts at once",
	"batch.v1.JobSpec.ttlSecondsAfterFinished":        "finished jobs are never removed",
	"networking.v1beta1.IngressSpec.ingressClassName": "every ingress controller takes the Ingress for its own",
	"v1.AzureDiskVolumeSource.kind":                   "the disk is looked for among blobs",
	"v1.Container.resizePolicy":                       "the disk is looked up as a blob",
	"v1.Container.restartPolicy": "a sidecar becomes an ordinary init container: it " +
		"never ends, and the pod never starts",
	"v1.Container.startupProbe": "the liveness probe counts from the start: a slow " +
		"container is killed over and over",
	"v1.Container.volumeDevices": "the block device is missing from the container",
	"v1.EnvVarSource.fileKeyRef": "the variable has no value, and the pod is refused",
	"v1.Lifecycle.stopSignal":    "the container is stopped by the stop signal of its image",
	"v1.LifecycleHandler.sleep": "the hook has no effect: the container stops while requests " +
		"still arrive",
	"v1.NodeSelectorTerm.matchFields":                "a term of them alone matches no node",
	"v1.PersistentVolumeClaimSpec.dataSource":        "the volume is empty instead of a copy",
	"v1.PersistentVolumeClaimSpec.dataSourceRef":     "the volume is empty instead of filled",
	"v1.PersistentVolumeClaimSpec.volumeMode":        "a block volume becomes a file system",
	"v1.PersistentVolumeSpec.csi":                    "the volume has no source: it cannot be mounted",
	"v1.PersistentVolumeSpec.mountOptions":           "the volume is mounted with other options",
	"v1.PersistentVolumeSpec.nodeAffinity":           "pods are scheduled to nodes that cannot reach the volume",
	"v1.PersistentVolumeSpec.volumeMode":             "a block volume becomes a file system",
	"v1.PodAffinityTerm.namespaceSelector":           "affinity counts the pods of the pod's own namespace only",
	"v1.PodSecurityContext.appArmorProfile":          "the pod runs without the profile",
	"v1.PodSecurityContext.runAsGroup":               "processes run in the image's group",
	"v1.PodSecurityContext.seccompProfile":           "the pod runs unconfined",
	"v1.PodSecurityContext.supplementalGroupsPolicy": "processes get the groups of the image too",
	"v1.PodSecurityContext.sysctls":                  "the kernel keeps its settings",
	"v1.PodSpec.affinity":                            "the pod is scheduled to any node",
	"v1.PodSpec.dnsConfig":                           "names are resolved by the DNS servers of the cluster only",
	"v1.PodSpec.ephemeralContainers":                 "debugging containers do not start",
	"v1.PodSpec.hostAliases":                         "names of /etc/hosts are missing",
	"v1.PodSpec.hostUsers":                           "root in the pod is root on the node",
	"v1.PodSpec.os":                                  "the pod may be scheduled to a node of another operating system",
	"v1.PodSpec.overhead": "the overhead of the sandbox is not counted, and the node is " +
		"overcommitted",
	"v1.PodSpec.preemptionPolicy":  "the pod preempts others to be scheduled",
	"v1.PodSpec.priority":          "the pod has no priority: it is evicted first and preempts no other",
	"v1.PodSpec.priorityClassName": "the pod has no priority: it is evicted first and preempts no other",
	"v1.PodSpec.readinessGates":    "the pod becomes ready too early",
	"v1.PodSpec.resourceClaims":    "the pod starts without its devices",
	"v1.PodSpec.resources":         "the pod as a whole has no requests and limits",
	"v1.PodSpec.runtimeClassName": "the pod runs in the default runtime, outside of its " +
		"sandbox",
	"v1.PodSpec.schedulingGates":                  "the pod is scheduled at once",
	"v1.PodSpec.setHostnameAsFQDN":                "the host name lacks its domain",
	"v1.PodSpec.shareProcessNamespace":            "containers do not see each other's processes",
	"v1.PodSpec.topologySpreadConstraints":        "pods are scheduled without being spread",
	"v1.Probe.grpc":                               "the probe has no handler: the pod is refused, or never probed",
	"v1.ProjectedVolumeSource.sources":            "the volume is empty",
	"v1.ResourceRequirements.claims":              "the container starts without its devices",
	"v1.SecurityContext.allowPrivilegeEscalation": "processes may gain privileges",
	"v1.SecurityContext.appArmorProfile":          "the container runs without the profile",
	"v1.SecurityContext.procMount":                "/proc is masked as usual",
	"v1.SecurityContext.runAsGroup":               "processes run in the image's group",
	"v1.SecurityContext.seccompProfile":           "the container runs unconfined",
	"v1.ServicePort.appProtocol":                  "a mesh or gateway guesses the protocol",
	"v1.ServiceSpec.externalTrafficPolicy":        "traffic is sent to other nodes, and the client's address is lost",
	"v1.ServiceSpec.internalTrafficPolicy":        "traffic leaves the node",
	"v1.ServiceSpec.ipFamilies": "the service has one address, of the server's own " +
		"family",
	"v1.ServiceSpec.loadBalancerClass":           "another load balancer claims the service",
	"v1.ServiceSpec.publishNotReadyAddresses":    "peers of a starting set do not find each other",
	"v1.ServiceSpec.sessionAffinityConfig":       "a client moves to another pod after three hours",
	"v1.Toleration.tolerationSeconds":            "the pod stays on a failed node",
	"v1.TopologySpreadConstraint.matchLabelKeys": "pods of all revisions are counted together",
	"v1.TopologySpreadConstraint.minDomains":     "pods may be packed into fewer zones",
	"v1.Volume.csi": "the volume has no source: the pod is refused or " +
		"does not start",
	"v1.Volume.ephemeral": "the volume has no source: the pod is refused or " +
		"does not start",
	"v1.Volume.image": "the volume has no source: the pod is refused or " +
		"does not start",
	"v1.VolumeMount.mountPropagation":  "mounts of the container stay inside it",
	"v1.VolumeMount.recursiveReadOnly": "mounts below are writable",
	"v1.VolumeMount.subPathExpr": "the whole volume is mounted instead of a directory " +
		"of it",
	"v1.VolumeProjection.clusterTrustBundle":                   "the file is missing",
	"v1.VolumeProjection.podCertificate":                       "the pod gets no certificate",
	"v1.VolumeProjection.serviceAccountToken":                  "the pod gets no token",
	"autoscaling.v2beta2.HorizontalPodAutoscalerSpec.behavior": "scaling is as fast as it can be",
}

// resourceOfKind finds the resource that some version knows under the group, version and kind.
func resourceOfKind(gvk schema.GroupVersionKind) (kubever.Resource, bool) {
	for _, fact := range kubever.Resources() {
		if fact.Kind != gvk.Kind {
			continue
		}
		if slices.Contains(fact.GroupVersions(), gvk.GroupVersion()) {
			return fact, true
		}
	}
	return kubever.Resource{}, false
}

// kindsOf lists the kinds of a built-in group.
func kindsOf(group string) []string {
	var kinds []string
	for _, fact := range kubever.Resources() {
		if !fact.Pseudo() && slices.Contains(fact.Groups(), group) {
			kinds = append(kinds, fact.Kind)
		}
	}
	return kinds
}

// nameOf is how findings call an object: Deployment shop/web.
func nameOf(kind string, object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if generated, _ := metadata["generateName"].(string); name == "" && generated != "" {
		name = generated + "*"
	}
	if namespace, _ := metadata["namespace"].(string); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

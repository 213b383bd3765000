package convert

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// edge joins a version that Kubernetes 1.36 no longer has to one that is nearer to it. Shapes of the removed versions:
// the API descriptions of the minors that had them (pkg/kubever), and their last types.go.
type edge struct {
	from, to schema.GroupVersionKind
	up, down Func
}

// as keeps the object: the fields are the same, those that one side lacks aside.
func as(object map[string]any) (map[string]any, error) { return object, nil }

func kind(group, version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

var removed = []edge{
	{kind("autoscaling", "v2alpha1", "HorizontalPodAutoscaler"),
		kind("autoscaling", "v2beta1", "HorizontalPodAutoscaler"), as, as},
	{kind("autoscaling", "v2beta1", "HorizontalPodAutoscaler"),
		kind("autoscaling", "v2beta2", "HorizontalPodAutoscaler"), scalerUp, scalerDown},
	{kind("autoscaling", "v2beta2", "HorizontalPodAutoscaler"), kind("autoscaling", "v2", "HorizontalPodAutoscaler"),
		as, as},
	{kind("batch", "v2alpha1", "ScheduledJob"), kind("batch", "v2alpha1", "CronJob"), as, as},
	{kind("batch", "v2alpha1", "CronJob"), kind("batch", "v1beta1", "CronJob"), as, as},
	{kind("certificates.k8s.io", "v1alpha1", "PodCertificateRequest"),
		kind("certificates.k8s.io", "v1beta1", "PodCertificateRequest"), as, as},
	{kind("coordination.k8s.io", "v1alpha1", "LeaseCandidate"),
		kind("coordination.k8s.io", "v1alpha2", "LeaseCandidate"), candidateUp, candidateDown},
	{kind("discovery.k8s.io", "v1alpha1", "EndpointSlice"), kind("discovery.k8s.io", "v1beta1", "EndpointSlice"),
		sliceUp, as},
	{kind("extensions", "v1beta1", "PodSecurityPolicy"), kind("policy", "v1beta1", "PodSecurityPolicy"), as, as},
	{kind("flowcontrol.apiserver.k8s.io", "v1alpha1", "FlowSchema"),
		kind("flowcontrol.apiserver.k8s.io", "v1beta1", "FlowSchema"), as, as},
	{kind("flowcontrol.apiserver.k8s.io", "v1alpha1", "PriorityLevelConfiguration"),
		kind("flowcontrol.apiserver.k8s.io", "v1beta1", "PriorityLevelConfiguration"), as, as},
	{kind("networking.k8s.io", "v1alpha1", "IPAddress"), kind("networking.k8s.io", "v1beta1", "IPAddress"), as, as},
	{kind("networking.k8s.io", "v1alpha1", "ServiceCIDR"), kind("networking.k8s.io", "v1beta1", "ServiceCIDR"), as, as},
	{kind("resource.k8s.io", "v1alpha1", "PodScheduling"), kind("resource.k8s.io", "v1alpha2", "PodSchedulingContext"),
		as, as},
	{kind("resource.k8s.io", "v1alpha1", "ResourceClaim"), kind("resource.k8s.io", "v1alpha2", "ResourceClaim"),
		claimUp, claimDown},
	{kind("resource.k8s.io", "v1alpha1", "ResourceClaimTemplate"),
		kind("resource.k8s.io", "v1alpha2", "ResourceClaimTemplate"), as, as},
	{kind("resource.k8s.io", "v1alpha1", "ResourceClass"), kind("resource.k8s.io", "v1alpha2", "ResourceClass"), as,
		as},
	{kind("resource.k8s.io", "v1alpha2", "PodSchedulingContext"),
		kind("resource.k8s.io", "v1alpha3", "PodSchedulingContext"), as, as},
	{kind("resource.k8s.io", "v1alpha3", "DeviceClass"), kind("resource.k8s.io", "v1beta1", "DeviceClass"), as, as},
	{kind("resource.k8s.io", "v1alpha3", "ResourceClaim"), kind("resource.k8s.io", "v1beta1", "ResourceClaim"), as, as},
	{kind("resource.k8s.io", "v1alpha3", "ResourceClaimTemplate"),
		kind("resource.k8s.io", "v1beta1", "ResourceClaimTemplate"), as, as},
	{kind("resource.k8s.io", "v1alpha3", "ResourceSlice"), kind("resource.k8s.io", "v1beta1", "ResourceSlice"),
		capacityUp, capacityDown},
	{kind("scheduling.k8s.io", "v1alpha1", "PriorityClass"), kind("scheduling.k8s.io", "v1beta1", "PriorityClass"), as,
		as},
	{kind("storagemigration.k8s.io", "v1alpha1", "StorageVersionMigration"),
		kind("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration"), migrationUp, migrationDown},
}

const (
	noPodSecurity = "pod security policies ended in 1.25 and no kind took their place: label namespaces for Pod " +
		"Security admission, or write an admission policy"
	noClassicDRA = "claims for the control plane controllers of 1.26 to 1.31 name a class and parameters that only " +
		"their driver understands; the device requests of later versions cannot be derived from them"
)

// alone are kinds whose versions lead nowhere else, and why.
var alone = map[schema.GroupVersionKind]string{
	kind("admissionregistration.k8s.io", "v1alpha1", "ExternalAdmissionHookConfiguration"): "hooks of 1.7 and 1.8 " +
		"speak another protocol than the webhooks that followed them: write a ValidatingWebhookConfiguration " +
		"for a webhook of today",
	kind("admissionregistration.k8s.io", "v1alpha1", "InitializerConfiguration"): "initializers ended in 1.14 and no " +
		"kind took their place: write a MutatingWebhookConfiguration",
	kind("auditregistration.k8s.io", "v1alpha1", "AuditSink"): "audit sinks ended in 1.19 and no kind took " +
		"their place: use --audit-policy-file and --audit-webhook-config-file",
	kind("extensions", "v1beta1", "ReplicationControllerDummy"): "the kind only carries the scale subresource of " +
		"replication controllers and has no content",
	kind("extensions", "v1beta1", "ThirdPartyResource"): "third-party resources ended in 1.8; a " +
		"CustomResourceDefinition needs what they do not say (plural, scope), and their objects are stored elsewhere",
	kind("networking.k8s.io", "v1alpha1", "ClusterCIDR"): "cluster CIDRs ended in 1.29 and no kind took " +
		"their place",
	kind("resource.k8s.io", "v1alpha2", "ResourceClaimParameters"): noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "ResourceClassParameters"): noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "ResourceSlice"): "slices of 1.30 hold named resources of one " +
		"model; devices of later versions have attributes and capacities that cannot be derived from them",
	kind("scheduling.k8s.io", "v1alpha1", "Workload"): "the pod groups inside a workload of 1.35 became objects of " +
		"their own in 1.36: one object would be several",
	kind("settings.k8s.io", "v1alpha1", "PodPreset"): "pod presets ended in 1.20 and no kind took their place: write " +
		"a MutatingWebhookConfiguration or a MutatingAdmissionPolicy",
}

// deadEnds are versions that convert to some others, but not to those of today, and why.
var deadEnds = map[schema.GroupVersionKind]string{
	kind("extensions", "v1beta1", "PodSecurityPolicy"):           noPodSecurity,
	kind("policy", "v1beta1", "PodSecurityPolicy"):               noPodSecurity,
	kind("resource.k8s.io", "v1alpha1", "PodScheduling"):         noClassicDRA,
	kind("resource.k8s.io", "v1alpha1", "ResourceClaim"):         noClassicDRA,
	kind("resource.k8s.io", "v1alpha1", "ResourceClaimTemplate"): noClassicDRA,
	kind("resource.k8s.io", "v1alpha1", "ResourceClass"):         noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "PodSchedulingContext"):  noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "ResourceClaim"):         noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "ResourceClaimTemplate"): noClassicDRA,
	kind("resource.k8s.io", "v1alpha2", "ResourceClass"):         noClassicDRA,
	kind("resource.k8s.io", "v1alpha3", "PodSchedulingContext"):  noClassicDRA,
}

// object returns the object in a field, nil when there is none.
func object(parent map[string]any, field string) map[string]any {
	child, _ := parent[field].(map[string]any)
	return child
}

// elements returns the objects of a list.
func elements(parent map[string]any, field string) []map[string]any {
	list, _ := parent[field].([]any)
	var found []map[string]any
	for _, element := range list {
		if object, ok := element.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}

// move takes a field from one object to another under a new name.
func move(from map[string]any, field string, to map[string]any, name string) {
	if value, ok := from[field]; ok {
		delete(from, field)
		to[name] = value
	}
}

// candidateUp: a list of strategies became one.
func candidateUp(candidate map[string]any) (map[string]any, error) {
	spec := object(candidate, "spec")
	if strategies, _ := spec["preferredStrategies"].([]any); len(strategies) > 0 {
		spec["strategy"] = strategies[0]
	}
	delete(spec, "preferredStrategies")
	return candidate, nil
}

func candidateDown(candidate map[string]any) (map[string]any, error) {
	spec := object(candidate, "spec")
	if strategy, ok := spec["strategy"]; ok {
		spec["preferredStrategies"] = []any{strategy}
		delete(spec, "strategy")
	}
	return candidate, nil
}

// sliceUp: the address type IP of 1.16 was split into IPv4 and IPv6, which the addresses tell.
func sliceUp(slice map[string]any) (map[string]any, error) {
	if slice["addressType"] != "IP" {
		return slice, nil
	}
	families := map[string]bool{}
	for _, endpoint := range elements(slice, "endpoints") {
		addresses, _ := endpoint["addresses"].([]any)
		for _, address := range addresses {
			text, _ := address.(string)
			switch ip, err := netip.ParseAddr(text); {
			case err != nil:
				families["IP"] = true
			case ip.Is4():
				families["IPv4"] = true
			default:
				families["IPv6"] = true
			}
		}
	}
	if len(families) == 1 {
		for family := range families {
			slice["addressType"] = family
		}
	}
	return slice, nil
}

// claimUp: the one handle of an allocation became a list with the driver of each.
func claimUp(claim map[string]any) (map[string]any, error) {
	status := object(claim, "status")
	allocation := object(status, "allocation")
	if data, ok := allocation["resourceHandle"]; ok {
		handle := map[string]any{"data": data}
		if driver, ok := status["driverName"]; ok {
			handle["driverName"] = driver
		}
		allocation["resourceHandles"] = []any{handle}
		delete(allocation, "resourceHandle")
	}
	return claim, nil
}

func claimDown(claim map[string]any) (map[string]any, error) {
	status := object(claim, "status")
	allocation := object(status, "allocation")
	handles := elements(allocation, "resourceHandles")
	if len(handles) == 1 && (handles[0]["driverName"] == nil || handles[0]["driverName"] == status["driverName"]) {
		if data, ok := handles[0]["data"]; ok {
			allocation["resourceHandle"] = data
		}
	}
	delete(allocation, "resourceHandles")
	return claim, nil
}

// capacityUp: a capacity became an object with its value in a field.
func capacityUp(slice map[string]any) (map[string]any, error) {
	for _, device := range elements(object(slice, "spec"), "devices") {
		capacity := object(object(device, "basic"), "capacity")
		for name, value := range capacity {
			capacity[name] = map[string]any{"value": value}
		}
	}
	return slice, nil
}

func capacityDown(slice map[string]any) (map[string]any, error) {
	for _, device := range elements(object(slice, "spec"), "devices") {
		capacity := object(object(device, "basic"), "capacity")
		for name := range capacity {
			capacity[name] = object(capacity, name)["value"]
		}
	}
	return slice, nil
}

// migrationUp: the version of the migrated resource was dropped, and conditions became those of all kinds.
func migrationUp(migration map[string]any) (map[string]any, error) {
	for _, condition := range elements(object(migration, "status"), "conditions") {
		move(condition, "lastUpdateTime", condition, "lastTransitionTime")
	}
	return migration, nil
}

func migrationDown(migration map[string]any) (map[string]any, error) {
	for _, condition := range elements(object(migration, "status"), "conditions") {
		move(condition, "lastTransitionTime", condition, "lastUpdateTime")
	}
	return migration, nil
}

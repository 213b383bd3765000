package kubever

import (
	"strconv"
	"strings"
	"sync"
)

// Names of behaviours for Behaves. tables/behaviours.tsv says what each means and where it was read.
const (
	// BehaviourAggregator: kube-apiserver runs the aggregator inside and keeps APIServices.
	BehaviourAggregator = "aggregator"
	// BehaviourAPIServicesDuel: APIServices of built-in groups are managed without end: two servers delete and recreate each other's; later 1.7 releases may have the fix.
	BehaviourAPIServicesDuel = "apiservices-duel"
	// BehaviourAPIServicesStartCleanup: at start the API server deletes the built-in APIServices of another version that it does not serve itself.
	BehaviourAPIServicesStartCleanup = "apiservices-start-cleanup"
	// BehaviourBoundTokens: kube-apiserver signs and verifies bound service-account tokens, given an issuer and a key; 1.10 and 1.11 refuse the flags without the gate TokenRequest.
	BehaviourBoundTokens = "bound-tokens"
	// BehaviourClientCAOverwritten: at start the API server overwrites kube-system/extension-apiserver-authentication instead of merging the client CAs.
	BehaviourClientCAOverwritten = "client-ca-overwritten"
	// BehaviourCRDServed: kube-apiserver serves CustomResourceDefinitions.
	BehaviourCRDServed = "crd-served"
	// BehaviourCRDSingleVersion: custom resources are served and stored in spec.version alone, spec.versions is dropped.
	BehaviourCRDSingleVersion = "crd-single-version"
	// BehaviourCRDTruncated: CRD controllers and clients write CustomResourceDefinitions back without fields of newer versions: versions, conversion, preserveUnknownFields or schema extensions.
	BehaviourCRDTruncated = "crd-truncated"
	// BehaviourCronjobMinuteNames: the cronjob controller names jobs by the minute; older ones by the second, so that two of them run every schedule twice.
	BehaviourCronjobMinuteNames = "cronjob-minute-names"
	// BehaviourDaemonPodsByAffinity: the daemonset controller pins pods by node affinity on metadata.name and leaves placement to the scheduler.
	BehaviourDaemonPodsByAffinity = "daemon-pods-by-affinity"
	// BehaviourDecodeCoercingWatch: a watch decodes objects that were stored under another cohabiting group.
	BehaviourDecodeCoercingWatch = "decode-coercing-watch"
	// BehaviourDeploymentHashFNV: the deployment controller hashes pod templates with FNV; 1.6 with adler32: names of ReplicaSets differ, equality of templates decides.
	BehaviourDeploymentHashFNV = "deployment-hash-fnv"
	// BehaviourDryRunHeeded: kube-apiserver carries out or refuses a request with dryRun; older ones do not know it and write.
	BehaviourDryRunHeeded = "dry-run-heeded"
	// BehaviourDualStackServices: kube-apiserver takes two service ranges, one of each IP family, without being told by a gate; 1.16 to 1.20 take them with IPv6DualStack=true, older ones refuse them.
	BehaviourDualStackServices = "dual-stack-services"
	// BehaviourEncryptionAtRest: kube-apiserver can encrypt resources in etcd.
	BehaviourEncryptionAtRest = "encryption-at-rest"
	// BehaviourEncryptionConfigV1: the encryption file may be apiserver.config.k8s.io/v1 EncryptionConfiguration; all from 1.7 on read the old v1 EncryptionConfig.
	BehaviourEncryptionConfigV1 = "encryption-config-v1"
	// BehaviourEndpointPortsReset: at start the API server resets the ports of service and endpoints default/kubernetes to its own.
	BehaviourEndpointPortsReset = "endpoint-ports-reset"
	// BehaviourEndpointRemovedAtStop: on start and stop the API server removes its own address from default/kubernetes.
	BehaviourEndpointRemovedAtStop = "endpoint-removed-at-stop"
	// BehaviourEndpointsDeletesLocks: the endpoints controller deletes Endpoints without a Service, leader locks included, when it starts.
	BehaviourEndpointsDeletesLocks = "endpoints-deletes-locks"
	// BehaviourEtcd2Backend: --storage-backend=etcd2 works.
	BehaviourEtcd2Backend = "etcd2-backend"
	// BehaviourGarbageStaticMapper: the garbage collector knows every kind that is compiled in, served or not, and no other.
	BehaviourGarbageStaticMapper = "garbage-static-mapper"
	// BehaviourInsecurePort: --insecure-port opens a port without authentication; 1.20 to 1.23 take only 0.
	BehaviourInsecurePort = "insecure-port"
	// BehaviourInsecurePortOnByDefault: the insecure port is open on localhost:8080 unless --insecure-port=0.
	BehaviourInsecurePortOnByDefault = "insecure-port-on-by-default"
	// BehaviourIssuerRequired: --service-account-issuer, --service-account-key-file and a signer are required.
	BehaviourIssuerRequired = "issuer-required"
	// BehaviourJobTrackingFinalizer: pods of jobs carry batch.kubernetes.io/job-tracking, which only a job controller that knows it removes.
	BehaviourJobTrackingFinalizer = "job-tracking-finalizer"
	// BehaviourJSONShortEscapes: encoding/json of the Go release that it was built with writes a backspace and a form feed as \b and \f; older ones as \u0008 and \u000c.
	BehaviourJSONShortEscapes = "json-short-escapes"
	// BehaviourKubeletLeaseHeartbeat: kubelets send heartbeats as Leases and update node status rarely.
	BehaviourKubeletLeaseHeartbeat = "kubelet-lease-heartbeat"
	// BehaviourLegacyTokenInvalidation: kube-apiserver refuses Secret tokens labelled kubernetes.io/legacy-token-invalid-since.
	BehaviourLegacyTokenInvalidation = "legacy-token-invalidation"
	// BehaviourLegacyTokenTracking: kube-apiserver labels Secret tokens with the day they were last used.
	BehaviourLegacyTokenTracking = "legacy-token-tracking"
	// BehaviourMetadataAnswered: kube-apiserver answers with metadata alone (meta.k8s.io/v1 PartialObjectMetadata) when asked to; older ones send whole objects, 1.6 answers 406.
	BehaviourMetadataAnswered = "metadata-answered"
	// BehaviourMirrorPodsOwned: mirror pods carry an owner reference to their Node.
	BehaviourMirrorPodsOwned = "mirror-pods-owned"
	// BehaviourNamespaceStaticDiscovery: the namespace controller deletes only the resources that it discovered when it started.
	BehaviourNamespaceStaticDiscovery = "namespace-static-discovery"
	// BehaviourNodeLeasesRead: the controller manager takes Leases as heartbeats of nodes.
	BehaviourNodeLeasesRead = "node-leases-read"
	// BehaviourOverrideMistakesIgnored: a malformed entry of --etcd-servers-overrides is logged and skipped; later versions refuse to start.
	BehaviourOverrideMistakesIgnored = "override-mistakes-ignored"
	// BehaviourProtectionFinalizersAdded: admission adds kubernetes.io/pvc-protection and pv-protection to claims and volumes; controllers of 1.9 and later remove them.
	BehaviourProtectionFinalizersAdded = "protection-finalizers-added"
	// BehaviourRootCAPublished: config map kube-root-ca.crt is written to every namespace by default.
	BehaviourRootCAPublished = "root-ca-published"
	// BehaviourSerializableReads: kube-apiserver reads from one member of etcd, which may lag behind, unless --etcd-quorum-read=true; 1.9 to 1.12 do so only with false.
	BehaviourSerializableReads = "serializable-reads"
	// BehaviourServerSideApply: kube-apiserver takes apply patches; 1.14 and 1.15 only with a gate.
	BehaviourServerSideApply = "server-side-apply"
	// BehaviourTokenLookupDefault: --service-account-lookup is on by default: the Secret of a token must exist in this server's view.
	BehaviourTokenLookupDefault = "token-lookup-default"
	// BehaviourTokenProjectionKept: the API keeps the serviceAccountToken source of a projected volume; older ones leave an empty source.
	BehaviourTokenProjectionKept = "token-projection-kept"
	// BehaviourTokenProjectionMountable: kubelets mount the serviceAccountToken source of a projected volume.
	BehaviourTokenProjectionMountable = "token-projection-mountable"
	// BehaviourTokenSecretsCreated: the controller manager makes a token Secret for every service account.
	BehaviourTokenSecretsCreated = "token-secrets-created"
	// BehaviourTokenVolumeProjected: ServiceAccount admission gives pods a projected token volume instead of the Secret.
	BehaviourTokenVolumeProjected = "token-volume-projected"
	// BehaviourUndecryptableItemsOmitted: objects that cannot be decrypted are left out of lists without an error.
	BehaviourUndecryptableItemsOmitted = "undecryptable-items-omitted"
	// BehaviourUnseenOnEtcdBefore34: kube-apiserver was never seen on an etcd before 3.4; older versions were released with such ones.
	BehaviourUnseenOnEtcdBefore34 = "unseen-on-etcd-before-3.4"
	// BehaviourWatchListHeeded: kube-apiserver carries out or refuses a watch with sendInitialEvents; older ones do not know it, and the client waits without end for the mark behind the initial events.
	BehaviourWatchListHeeded = "watch-list-heeded"
	// BehaviourWebsocketExecNeedsCreate: exec, attach and port-forward over websocket need create as well as get, unless ABAC
	// decides: its question about create still calls itself read-only.
	BehaviourWebsocketExecNeedsCreate = "websocket-exec-needs-create"
)

// Behaviour is something that some versions of a component do and others do not, beyond what the other tables say.
type Behaviour struct {
	Name    string
	Minors  Ranges
	Meaning string // a clause: "kube-apiserver serves CustomResourceDefinitions"
	Source  string

	firstPatch map[Minor]int
}

var behaviourTable = sync.OnceValue(decodeBehaviours)

func decodeBehaviours() []Behaviour {
	var behaviours []Behaviour
	for _, r := range readTable("behaviours.tsv", 5) {
		b := Behaviour{Name: r.text(0), Minors: r.ranges(1), Meaning: r.text(3), Source: r.text(4), firstPatch: make(map[Minor]int)}
		for _, word := range r.words(2) {
			minor, patch, _ := strings.Cut(word, "=")
			n, err := strconv.Atoi(patch)
			if err != nil {
				r.fail("%q: want minor=patch", word)
			}
			b.firstPatch[r.parseMinor(minor)] = n
		}
		behaviours = append(behaviours, b)
	}
	return behaviours
}

// Behaviours lists all behaviours, by name.
func Behaviours() []Behaviour { return append([]Behaviour(nil), behaviourTable()...) }

// Behaves reports whether the minor behaves as named; true also when only its later patch releases do. It panics on a name
// that is none of the constants.
func Behaves(name string, m Minor) bool { return behaviour(name).Minors.Has(m) }

// BehavesIn is Behaves for one release: where a behaviour came with a later patch release of its minor, an earlier one lacks
// it. A version without a patch counts as the last.
func BehavesIn(name string, v Version) bool {
	b := behaviour(name)
	return b.Minors.Has(v.Minor) && (!v.HasPatch || v.Patch >= b.firstPatch[v.Minor])
}

// BehavesSince returns the first patch release of the minor that behaves as named; 0 when all of them do, or none.
func BehavesSince(name string, m Minor) int { return behaviour(name).firstPatch[m] }

func behaviour(name string) Behaviour {
	for _, b := range behaviourTable() {
		if b.Name == name {
			return b
		}
	}
	panic("kubever: internal error: no behaviour " + name)
}

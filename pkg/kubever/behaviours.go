package kubever

import (
	"slices"
	"strconv"
	"sync"
)

// Behaviour is something that some versions of a component do and others do not, beyond what the other tables hold.
type Behaviour int

// The behaviours that decide something. BehaviourFacts has more.
const (
	// BehaviourAdmissionConfigV1: kube-apiserver reads AdmissionConfiguration of apiserver.config.k8s.io/v1; older ones
	// that of apiserver.k8s.io/v1alpha1.
	BehaviourAdmissionConfigV1 Behaviour = iota
	// BehaviourAPIServicesDuel: APIServices of built-in groups are managed without end: two servers delete and
	// recreate each other's; later 1.7 releases may have the fix.
	BehaviourAPIServicesDuel
	// BehaviourBoundTokens: kube-apiserver signs and verifies bound service-account tokens, given an issuer and a
	// key; 1.10 and 1.11 refuse the flags without the gate TokenRequest.
	BehaviourBoundTokens
	// BehaviourCRDAdditionalRefused: kube-apiserver refuses a CustomResourceDefinition with a schema, or false, in
	// additionalProperties: it reads as false.
	BehaviourCRDAdditionalRefused
	// BehaviourCRDConversionPrunes: kube-apiserver refuses a CustomResourceDefinition of v1beta1 that converts by a
	// webhook and does not prune.
	BehaviourCRDConversionPrunes
	// BehaviourCRDDefaultsRefused: kube-apiserver refuses defaults in the schemas of a CustomResourceDefinition of
	// v1beta1.
	BehaviourCRDDefaultsRefused
	// BehaviourCRDRootRefused: kube-apiserver refuses a CustomResourceDefinition with the status subresource and more
	// than properties, required and description at the root of a schema.
	BehaviourCRDRootRefused
	// BehaviourCRDServed: kube-apiserver serves CustomResourceDefinitions.
	BehaviourCRDServed
	// BehaviourCRDVersionRequired: kube-apiserver refuses a CustomResourceDefinition without spec.version; later ones
	// take spec.versions instead.
	BehaviourCRDVersionRequired
	// BehaviourCronJobMinuteNames: the cronjob controller names jobs by the minute of their schedule; older ones by the
	// second.
	BehaviourCronJobMinuteNames
	// BehaviourCronJobsMissed: the cronjob controller starts a CronJob no more that has missed more than 100 of its
	// times.
	BehaviourCronJobsMissed
	// BehaviourDaemonPodsByAffinity: the daemonset controller pins pods by node affinity on metadata.name and
	// leaves placement to the scheduler.
	BehaviourDaemonPodsByAffinity
	// BehaviourDecodeCoercingWatch: a watch decodes objects that were stored under another cohabiting group.
	BehaviourDecodeCoercingWatch
	// BehaviourDryRunHeeded: kube-apiserver carries out or refuses a request with dryRun; older ones do not know it
	// and write.
	BehaviourDryRunHeeded
	// BehaviourDualStackServices: kube-apiserver takes two service ranges, one of each IP family, without being
	// told by a gate; 1.16 to 1.20 take them with IPv6DualStack=true, older ones refuse them.
	BehaviourDualStackServices
	// BehaviourEncryptionAtRest: kube-apiserver can encrypt resources in etcd.
	BehaviourEncryptionAtRest
	// BehaviourEncryptionConfigV1: the encryption file may be apiserver.config.k8s.io/v1 EncryptionConfiguration;
	// all from 1.7 on read the old v1 EncryptionConfig.
	BehaviourEncryptionConfigV1
	// BehaviourEndpointRemovedAtStop: on start and stop the API server removes its own address from
	// default/kubernetes.
	BehaviourEndpointRemovedAtStop
	// BehaviourEndpointsDeletesLocks: the endpoints controller deletes Endpoints without a Service, leader locks
	// included, when it starts.
	BehaviourEndpointsDeletesLocks
	// BehaviourEndpointsPortlessDropped: kube-apiserver drops subsets of Endpoints without ports.
	BehaviourEndpointsPortlessDropped
	// BehaviourEndpointsPortsRequired: kube-apiserver refuses subsets of Endpoints without ports.
	BehaviourEndpointsPortsRequired
	// BehaviourEventKindsKnown: kube-apiserver refuses an Event about an object of one of its own kinds by whether that
	// kind has a namespace.
	BehaviourEventKindsKnown
	// BehaviourEventTimeHeeded: kube-apiserver compares no namespaces of an Event with an eventTime; one about an
	// object without a namespace has to be in kube-system.
	BehaviourEventTimeHeeded
	// BehaviourEventNamespaceMatched: kube-apiserver refuses an Event whose namespace is not that of the object that it
	// is about.
	BehaviourEventNamespaceMatched
	// BehaviourEtcdFirstName: kube-apiserver verifies the certificate of every member of its etcd against the host of
	// the first endpoint in --etcd-servers.
	BehaviourEtcdFirstName
	// BehaviourGarbageStaticMapper: the garbage collector knows every kind that is compiled in, served or not, and
	// no other.
	BehaviourGarbageStaticMapper
	// BehaviourInsecurePort: --insecure-port opens a port without authentication; 1.20 to 1.23 take only 0.
	BehaviourInsecurePort
	// BehaviourIssuerRequired: --service-account-issuer, --service-account-key-file and a signer are required.
	BehaviourIssuerRequired
	// BehaviourJobTrackingFinalizer: pods of jobs carry batch.kubernetes.io/job-tracking, which only a job
	// controller that knows it removes.
	BehaviourJobTrackingFinalizer
	// BehaviourJSONCaseIgnored: kube-apiserver reads fields of JSON whatever their case.
	BehaviourJSONCaseIgnored
	// BehaviourJSONShortEscapes: encoding/json of the Go release that it was built with writes a backspace and a
	// form feed as \b and \f; older ones as \u0008 and \u000c.
	BehaviourJSONShortEscapes
	// BehaviourKMSGCMRead: kube-apiserver decrypts what a plugin of the first interface of KMS has the key of, whether
	// that was encrypted by AES-GCM or by AES-CBC; older ones by AES-CBC alone.
	BehaviourKMSGCMRead
	// BehaviourKMSGCMWritten: kube-apiserver encrypts by AES-GCM with a plugin of the first interface of KMS; older
	// ones by AES-CBC.
	BehaviourKMSGCMWritten
	// BehaviourKubeletConnectionsChecked: kubelets ask for a sign of life on idle connections to the API server; older
	// ones may go on using a closed one.
	BehaviourKubeletConnectionsChecked
	// BehaviourKubeletLeaseHeartbeat: kubelets send heartbeats as Leases and update node status rarely.
	BehaviourKubeletLeaseHeartbeat
	// BehaviourNodeExternalIDRequired: kube-apiserver refuses Nodes with neither a name nor an external ID.
	BehaviourNodeExternalIDRequired
	// BehaviourNodeTermsRequired: kube-apiserver refuses terms of node affinity without matchExpressions.
	BehaviourNodeTermsRequired
	// BehaviourPolicyAnySeccomp: a PodSecurityPolicy may allow all seccomp profiles.
	BehaviourPolicyAnySeccomp
	// BehaviourKubectlNullsRefused: kubectl sends no null in a list.
	BehaviourKubectlNullsRefused
	// BehaviourKubectlNullValuesRefused: kubectl sends no null in a map, such as that of labels.
	BehaviourKubectlNullValuesRefused
	// BehaviourKubectlRequires: kubectl validates objects by the API description before it sends them.
	BehaviourKubectlRequires
	// BehaviourKubectlRawRefused: kubectl refuses values that the description takes for the fields of RawExtension.
	BehaviourKubectlRawRefused
	// BehaviourKubectlSchemasRefused: kubectl refuses words of schemas, which the description takes for Go types.
	BehaviourKubectlSchemasRefused
	// BehaviourKubeletRedirectsStreams: kubelets answer exec, attach and port-forward with a redirect to the container
	// runtime; later ones carry the stream themselves.
	BehaviourKubeletRedirectsStreams
	// BehaviourKubeletWritesCSINodes: a kubelet creates a CSINode of its name when it starts, whether or not there is a
	// CSI driver.
	BehaviourKubeletWritesCSINodes
	// BehaviourLegacyTokenTracking: kube-apiserver labels Secret tokens with the day they were last used.
	BehaviourLegacyTokenTracking
	// BehaviourListMatchHeeded: kube-apiserver lists by resourceVersionMatch; older ones do not know it, and list
	// what is at least as new where an exact version is asked for.
	BehaviourListMatchHeeded
	// BehaviourMetadataAnswered: kube-apiserver answers with metadata alone (meta.k8s.io/v1 PartialObjectMetadata)
	// when asked to; older ones send whole objects, 1.6 answers 406.
	BehaviourMetadataAnswered
	// BehaviourMirrorPodsOwned: mirror pods carry an owner reference to their Node.
	BehaviourMirrorPodsOwned
	// BehaviourDNSSearchesFew: kube-apiserver refuses pods with more than 6 search domains, or more than 256
	// characters of them.
	BehaviourDNSSearchesFew
	// BehaviourDNSSearchesStrict: kube-apiserver refuses search domains of pods that are no DNS subdomains.
	BehaviourDNSSearchesStrict
	// BehaviourEnvFromUnjudged: kube-apiserver does not validate envFrom of containers.
	BehaviourEnvFromUnjudged
	// BehaviourEnvNamesIdentifiers: kube-apiserver refuses names of environment variables that are no
	// identifiers of C.
	BehaviourEnvNamesIdentifiers
	// BehaviourEnvNamesStrict: kube-apiserver refuses names of environment variables with more than letters,
	// digits, dashes, underscores and dots, or a digit first.
	BehaviourEnvNamesStrict
	// BehaviourExpressionsOfMinorBefore: kube-apiserver takes new expressions of CEL only with what the minor before
	// knows.
	BehaviourExpressionsOfMinorBefore
	// BehaviourFieldsValidated: kube-apiserver heeds fieldValidation, and warns of fields that it does not know or that
	// an object has twice where a request does not say; older ones do not know it, and warn of nothing.
	BehaviourFieldsValidated
	// BehaviourFieldSubscriptsRefused: kube-apiserver refuses references to one label or annotation of a
	// pod.
	BehaviourFieldSubscriptsRefused
	// BehaviourRequestsBounded: kube-apiserver takes requests of at most 3 MiB.
	BehaviourRequestsBounded
	// BehaviourServiceNamesStrict: kube-apiserver refuses Services whose names start with a digit, and Ingresses to
	// them.
	BehaviourServiceNamesStrict
	// BehaviourAppArmorUnconfinedRefused: kube-apiserver refuses AppArmor annotations of pods that say unconfined.
	BehaviourAppArmorUnconfinedRefused
	// BehaviourAdmissionReviewsV1beta1: kube-apiserver refuses configurations of webhooks with one that understands no
	// v1beta1 of AdmissionReview.
	BehaviourAdmissionReviewsV1beta1
	// BehaviourConversionReviewsV1beta1: kube-apiserver refuses a CustomResourceDefinition whose webhook understands no
	// v1beta1 of ConversionReview.
	BehaviourConversionReviewsV1beta1
	// BehaviourNetworkPeersSingle: kube-apiserver refuses a peer of a NetworkPolicy with both a podSelector and a
	// namespaceSelector.
	BehaviourNetworkPeersSingle
	// BehaviourStatefulSetPodsUnjudged: kube-apiserver does not validate the pods and the claims of a StatefulSet.
	BehaviourStatefulSetPodsUnjudged
	// BehaviourSysctlAnnotationsJudged: kube-apiserver refuses annotations of sysctls that are no list of name=value,
	// and names in them that are none of sysctls.
	BehaviourSysctlAnnotationsJudged
	// BehaviourSleepZeroRefused: kube-apiserver refuses hooks of containers that sleep for 0 seconds.
	BehaviourSleepZeroRefused
	// BehaviourSpreadKeysDisjoint: kube-apiserver refuses topology spread constraints with a key both in matchLabelKeys
	// and in the labelSelector.
	BehaviourSpreadKeysDisjoint
	// BehaviourRestartPolicySidecarsAlone: kube-apiserver refuses a restartPolicy of containers but Always of init
	// containers.
	BehaviourRestartPolicySidecarsAlone
	// BehaviourHostAliasesOfPodNetwork: kube-apiserver refuses hostAliases of pods on the network of their host.
	BehaviourHostAliasesOfPodNetwork
	// BehaviourSysctlSlashesRefused: kube-apiserver refuses names of sysctls with slashes.
	BehaviourSysctlSlashesRefused
	// BehaviourMixedProtocolsRefused: kube-apiserver refuses a Service of type LoadBalancer with ports of several
	// protocols.
	BehaviourMixedProtocolsRefused
	// BehaviourNodeLeasesRead: the controller manager takes Leases as heartbeats of nodes.
	BehaviourNodeLeasesRead
	// BehaviourOldAuditPolicies: kube-apiserver reads audit policies of audit.k8s.io/v1beta1 too.
	BehaviourOldAuditPolicies
	// BehaviourPresenceTestsCost: kube-apiserver counts has() in what it estimates that an expression of a CRD costs.
	BehaviourPresenceTestsCost
	// BehaviourProtectionFinalizersAdded: admission adds kubernetes.io/pvc-protection and pv-protection to claims
	// and volumes; controllers of 1.9 and later remove them.
	BehaviourProtectionFinalizersAdded
	// BehaviourReadyzServed: kube-apiserver serves /readyz and /livez; older ones have /healthz alone.
	BehaviourReadyzServed
	// BehaviourRootCAPublished: config map kube-root-ca.crt is written to every namespace by default.
	BehaviourRootCAPublished
	// BehaviourSeccompRuntimeDefault: seccomp annotations know runtime/default; older ones call it docker/default.
	BehaviourSeccompRuntimeDefault
	// BehaviourSerializableReads: kube-apiserver reads from one member of etcd, which may lag behind, unless
	// --etcd-quorum-read=true; 1.9 to 1.12 do so only with false.
	BehaviourSerializableReads
	// BehaviourServerSideApply: kube-apiserver takes apply patches; 1.14 and 1.15 only with a gate.
	BehaviourServerSideApply
	// BehaviourStatefulSetRevisionsCompared: the statefulset controller knows revisions that an older version wrote by
	// what they mean, and rolls no StatefulSet for being another version.
	BehaviourStatefulSetRevisionsCompared
	// BehaviourTokenProjectionKept: the API keeps the serviceAccountToken source of a projected volume; older ones
	// leave an empty source.
	BehaviourTokenProjectionKept
	// BehaviourTokenProjectionMountable: kubelets mount the serviceAccountToken source of a projected volume.
	BehaviourTokenProjectionMountable
	// BehaviourTokenSecretsCreated: the controller manager makes a token Secret for every service account.
	BehaviourTokenSecretsCreated
	// BehaviourTokenVolumeProjected: ServiceAccount admission gives pods a projected token volume instead of the
	// Secret.
	BehaviourTokenVolumeProjected
	// BehaviourUndecryptableItemsOmitted: objects that a server with other keys cannot decrypt are left out of lists
	// without an error.
	BehaviourUndecryptableItemsOmitted
	// BehaviourWatchListHeeded: kube-apiserver carries out or refuses a watch with sendInitialEvents; older ones do
	// not know it, and the client waits without end for the mark behind the initial events.
	BehaviourWatchListHeeded
	// BehaviourContainerHashJSON: kubelets hash the JSON of a container.
	BehaviourContainerHashJSON
	// BehaviourContainerHashNameImage: kubelets hash the name and the image of a container alone.
	BehaviourContainerHashNameImage
	// BehaviourContainerHashStruct: kubelets hash the dump of a container's struct.
	BehaviourContainerHashStruct
	// BehaviourDockershim: kubelets run docker without a CRI.
	BehaviourDockershim
	// BehaviourDockertools: kubelets can run containers in a way that records adler32 of the dump.
	BehaviourDockertools
	// BehaviourSandboxWithoutIP: kubelets make a new sandbox for a pod that has no IP address.
	BehaviourSandboxWithoutIP
	// BehaviourSidecarContainers: kubelets know init containers with restartPolicy Always.
	BehaviourSidecarContainers
	// BehaviourSidecarHashCompared: kubelets compare the hashes of sidecars.
	BehaviourSidecarHashCompared
	// BehaviourStaticPodFieldsAsBefore: the types of a pod have the same fields as in the minor before.
	BehaviourStaticPodFieldsAsBefore
	// BehaviourStaticPodUIDByFNV: kubelets compute the UID of a static pod by FNV.
	BehaviourStaticPodUIDByFNV
	// BehaviourStaticPodUIDWithHost: kubelets hash the host and the file into the UID of a static pod.
	BehaviourStaticPodUIDWithHost
)

// behaviourNames are the names in tables/behaviours.tsv.
var behaviourNames = [...]string{
	BehaviourAdmissionConfigV1:            "admission-config-v1",
	BehaviourAPIServicesDuel:              "apiservices-duel",
	BehaviourBoundTokens:                  "bound-tokens",
	BehaviourCRDAdditionalRefused:         "crd-strict-additional",
	BehaviourCRDConversionPrunes:          "crd-conversion-prunes",
	BehaviourCRDDefaultsRefused:           "crd-defaults-refused",
	BehaviourCRDRootRefused:               "crd-root-refused",
	BehaviourCRDServed:                    "crd-served",
	BehaviourCRDVersionRequired:           "crd-version-required",
	BehaviourCronJobMinuteNames:           "cronjob-minute-names",
	BehaviourCronJobsMissed:               "cronjob-times-missed",
	BehaviourDaemonPodsByAffinity:         "daemon-pods-by-affinity",
	BehaviourDecodeCoercingWatch:          "decode-coercing-watch",
	BehaviourDryRunHeeded:                 "dry-run-heeded",
	BehaviourDualStackServices:            "dual-stack-services",
	BehaviourEncryptionAtRest:             "encryption-at-rest",
	BehaviourEncryptionConfigV1:           "encryption-config-v1",
	BehaviourEndpointRemovedAtStop:        "endpoint-removed-at-stop",
	BehaviourEndpointsDeletesLocks:        "endpoints-deletes-locks",
	BehaviourEndpointsPortlessDropped:     "endpoints-portless-dropped",
	BehaviourEndpointsPortsRequired:       "endpoints-ports-required",
	BehaviourEventKindsKnown:              "event-kinds-known",
	BehaviourEventTimeHeeded:              "event-time-heeded",
	BehaviourEventNamespaceMatched:        "event-namespace-matched",
	BehaviourEtcdFirstName:                "etcd-first-name",
	BehaviourGarbageStaticMapper:          "garbage-static-mapper",
	BehaviourInsecurePort:                 "insecure-port",
	BehaviourIssuerRequired:               "issuer-required",
	BehaviourJobTrackingFinalizer:         "job-tracking-finalizer",
	BehaviourJSONCaseIgnored:              "json-case-ignored",
	BehaviourJSONShortEscapes:             "json-short-escapes",
	BehaviourKMSGCMRead:                   "kms-aes-gcm-read",
	BehaviourKMSGCMWritten:                "kms-aes-gcm-written",
	BehaviourKubectlRawRefused:            "kubectl-raw-refused",
	BehaviourNodeExternalIDRequired:       "node-external-id-required",
	BehaviourNodeTermsRequired:            "node-terms-required",
	BehaviourPolicyAnySeccomp:             "policy-any-seccomp",
	BehaviourKubectlNullsRefused:          "kubectl-nulls-refused",
	BehaviourKubectlNullValuesRefused:     "kubectl-null-values-refused",
	BehaviourKubectlRequires:              "kubectl-requires",
	BehaviourKubectlSchemasRefused:        "kubectl-schemas-refused",
	BehaviourKubeletConnectionsChecked:    "kubelet-connections-checked",
	BehaviourKubeletLeaseHeartbeat:        "kubelet-lease-heartbeat",
	BehaviourKubeletRedirectsStreams:      "kubelet-redirects-streams",
	BehaviourKubeletWritesCSINodes:        "kubelet-writes-csinodes",
	BehaviourLegacyTokenTracking:          "legacy-token-tracking",
	BehaviourListMatchHeeded:              "list-match-heeded",
	BehaviourMetadataAnswered:             "metadata-answered",
	BehaviourMirrorPodsOwned:              "mirror-pods-owned",
	BehaviourDNSSearchesFew:               "dns-searches-few",
	BehaviourDNSSearchesStrict:            "dns-searches-strict",
	BehaviourEnvFromUnjudged:              "env-from-unjudged",
	BehaviourEnvNamesIdentifiers:          "env-names-identifiers",
	BehaviourEnvNamesStrict:               "env-names-strict",
	BehaviourExpressionsOfMinorBefore:     "expressions-of-minor-before",
	BehaviourFieldsValidated:              "fields-validated",
	BehaviourFieldSubscriptsRefused:       "field-subscripts-refused",
	BehaviourRequestsBounded:              "requests-bounded",
	BehaviourServiceNamesStrict:           "service-names-strict",
	BehaviourAppArmorUnconfinedRefused:    "apparmor-unconfined-refused",
	BehaviourAdmissionReviewsV1beta1:      "admission-reviews-v1beta1",
	BehaviourConversionReviewsV1beta1:     "conversion-reviews-v1beta1",
	BehaviourNetworkPeersSingle:           "network-peers-single",
	BehaviourStatefulSetPodsUnjudged:      "statefulset-pods-unjudged",
	BehaviourSysctlAnnotationsJudged:      "sysctl-annotations-judged",
	BehaviourSleepZeroRefused:             "sleep-zero-refused",
	BehaviourSpreadKeysDisjoint:           "spread-keys-disjoint",
	BehaviourRestartPolicySidecarsAlone:   "restart-policy-sidecars-alone",
	BehaviourHostAliasesOfPodNetwork:      "host-aliases-of-pod-network",
	BehaviourSysctlSlashesRefused:         "sysctl-slashes-refused",
	BehaviourMixedProtocolsRefused:        "mixed-protocols-refused",
	BehaviourNodeLeasesRead:               "node-leases-read",
	BehaviourOldAuditPolicies:             "old-audit-policies",
	BehaviourPresenceTestsCost:            "presence-tests-cost",
	BehaviourProtectionFinalizersAdded:    "protection-finalizers-added",
	BehaviourReadyzServed:                 "readyz-served",
	BehaviourRootCAPublished:              "root-ca-published",
	BehaviourSeccompRuntimeDefault:        "profile-runtime-default",
	BehaviourSerializableReads:            "serializable-reads",
	BehaviourServerSideApply:              "server-side-apply",
	BehaviourStatefulSetRevisionsCompared: "statefulset-revisions-compared",
	BehaviourTokenProjectionKept:          "token-projection-kept",
	BehaviourTokenProjectionMountable:     "token-projection-mountable",
	BehaviourTokenSecretsCreated:          "token-secrets-created",
	BehaviourTokenVolumeProjected:         "token-volume-projected",
	BehaviourUndecryptableItemsOmitted:    "undecryptable-items-omitted",
	BehaviourWatchListHeeded:              "watch-list-heeded",
	BehaviourContainerHashJSON:            "container-hash-json",
	BehaviourContainerHashNameImage:       "container-hash-name-image",
	BehaviourContainerHashStruct:          "container-hash-struct",
	BehaviourDockershim:                   "dockershim",
	BehaviourDockertools:                  "dockertools",
	BehaviourSandboxWithoutIP:             "sandbox-recreated-without-ip",
	BehaviourSidecarContainers:            "sidecar-containers",
	BehaviourSidecarHashCompared:          "sidecar-hash-compared",
	BehaviourStaticPodFieldsAsBefore:      "static-pod-fields-as-before",
	BehaviourStaticPodUIDByFNV:            "static-pod-uid-fnv",
	BehaviourStaticPodUIDWithHost:         "static-pod-uid-with-host",
}

// String is the name of the behaviour in the table: "bound-tokens".
func (b Behaviour) String() string {
	if b < 0 || int(b) >= len(behaviourNames) {
		return "Behaviour(" + strconv.Itoa(int(b)) + ")"
	}
	return behaviourNames[b]
}

// BehaviourFact is what the table holds about a behaviour.
type BehaviourFact struct {
	Name    string
	Minors  Ranges
	Meaning string // a clause: "kube-apiserver serves CustomResourceDefinitions"
	Source  string

	firstPatch map[Minor]int
}

var behaviourTable = sync.OnceValue(decodeBehaviours)

func decodeBehaviours() []BehaviourFact {
	var facts []BehaviourFact
	for _, r := range readTable("behaviours.tsv", 5) {
		b := BehaviourFact{Name: r.text(0), Minors: r.ranges(1), Meaning: r.text(3), Source: r.text(4),
			firstPatch: r.patches(2)}
		facts = append(facts, b)
	}
	return facts
}

// BehaviourFacts lists what is known of all behaviours, by name; of some that no constant names, too.
func BehaviourFacts() []BehaviourFact { return slices.Clone(behaviourTable()) }

// Since returns the first patch release of the minor that behaves so; 0 when all of them do, or none.
func (f BehaviourFact) Since(m Minor) int { return f.firstPatch[m] }

// Behaves reports whether the minor behaves so; true also when only its later patch releases do.
func Behaves(b Behaviour, m Minor) bool { return b.fact().Minors.Has(m) }

// Minors are those that behave so; also those of which only later patch releases do.
func (b Behaviour) Minors() Ranges { return slices.Clone(b.fact().Minors) }

// BehavesIn is Behaves for one release: where a behaviour came with a later patch release of its minor, an earlier one
// lacks it. A version without a patch counts as the last.
func BehavesIn(b Behaviour, v Version) bool {
	fact := b.fact()
	return fact.Minors.Has(v.Minor) && (!v.HasPatch || v.Patch >= fact.firstPatch[v.Minor])
}

// BehavesSince returns the first patch release of the minor that behaves so; 0 when all of them do, or none.
func BehavesSince(b Behaviour, m Minor) int { return b.fact().Since(m) }

// fact finds the row of the behaviour. No version behaves as a number that is none of the constants.
func (b Behaviour) fact() *BehaviourFact {
	if facts := namedBehaviours(); b >= 0 && int(b) < len(facts) {
		return &facts[b]
	}
	return &BehaviourFact{}
}

// namedBehaviours are the rows of the constants, by their numbers: conversions ask for a dozen with each object.
var namedBehaviours = sync.OnceValue(func() []BehaviourFact {
	facts := make([]BehaviourFact, len(behaviourNames))
	for _, fact := range behaviourTable() {
		if b := slices.Index(behaviourNames[:], fact.Name); b >= 0 {
			facts[b] = fact
		}
	}
	return facts
})

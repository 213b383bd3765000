package preflight

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// The rules about hosts. The age of a store, and its CA, are what a plan may show as well.
const (
	UnseenStore    = "FUS166"
	StoreOfClients = "FUS259"
	Missing        = "FUS260"
	Readable       = "FUS261"
	Expired        = "FUS262"
	OtherCA        = "FUS263"
	OtherName      = "FUS264"
	WrongKey       = "FUS265"
	NotAdmitted    = "FUS266"
	WrongTokens    = "FUS267"
	PortInUse      = "FUS268"
	NoStore        = "FUS269"
	NoImage        = "FUS270"
	OtherManifests = "FUS271"
	NoStreams      = "FUS272"
	Stale          = "FUS273"
	Undecryptable  = "FUS070"
)

// Rules lists what Check finds, by ID.
func Rules() []finding.Rule {
	const bad, warn = finding.Error, finding.Warning
	return finding.Of(finding.Hosts, []finding.Rule{
		{
			ID: UnseenStore, Title: "A member of an etcd release on which an API server may not work", Severity: warn,
			Legacy: kubever.Range{From: 6, To: kubever.Newest}, Modern: kubever.Range{From: 6, To: kubever.Newest},
			Why: "API servers were run on etcd from 3.1 on; `fusionctl versions kube-apiserver --facts etcd` lists " +
				"them, and those that do not work. A member of the store says that it is of such a release.",
		},
		{
			ID: StoreOfClients, Title: "A store takes clients of the CA of the cluster's clients", Severity: warn,
			Legacy: kubever.Range{From: 6, To: kubever.Newest}, Modern: kubever.Range{From: 6, To: kubever.Newest},
			Why: "The certificate that the modern API server shows to the store was issued by the CA by which an API " +
				"server knows its clients. The store takes every certificate of that CA, unless it has users of its " +
				"own: each kubelet and each user with a certificate reads and writes everything in it.",
		},
		{
			ID: Missing, Title: "A file that a component needs is missing", Severity: bad,
			Why: "A component that does not find a file that its arguments, its kubeconfig or its mounts name does " +
				"not start. A static pod then restarts for ever; systemd gives up on a unit.",
		},
		{
			ID: Readable, Title: "Credentials that other users of the host can read", Severity: bad,
			Why: "A private key, a token or a kubeconfig is as good as the user whom it stands for. Keys have mode " +
				"0600. That the group of a file may read it, or that others may read a file that need not hold a " +
				"secret, is a warning.",
		},
		{
			ID: Expired, Title: "A certificate that has expired, or will within 30 days", Severity: bad,
			Why: "No client and no server accepts an expired certificate, or one whose time has not come. That one " +
				"will expire within 30 days is a warning.",
		},
		{
			ID: OtherCA, Title: "A certificate of another CA", Severity: bad,
			Why: "A component holds the certificates that are presented to it to one CA. One that another CA issued " +
				"is refused: a store closes the connection, an API server treats the client as anonymous.",
		},
		{
			ID: OtherName, Title: "A certificate of another name or user", Severity: bad,
			Why: "Clients compare the name or address that they connect to with the subject alternative names of the " +
				"serving certificate. API servers take user and groups of a client from its certificate; the policy " +
				"of the plan knows the users that the plan names, and members of system:masters pass it unasked.",
		},
		{
			ID: WrongKey, Title: "A key that does not belong to its certificate", Severity: bad,
			Why: "A component does not start with a key that belongs to another certificate, or with a file that " +
				"holds none.",
		},
		{
			ID: NotAdmitted, Title: "A front-proxy certificate whose name extension API servers do not admit",
			Severity: bad,
			Why: "An API server passes requests on to extension API servers as a front proxy, with the user in a " +
				"header. They believe it when its certificate has a name of --requestheader-allowed-names, which " +
				"they read in the ConfigMap kube-system/extension-apiserver-authentication.",
			Evidence: finding.Evidence{Read: "apiserver/pkg/authentication/request/headerrequest of 1.6.13 to 1.36.3"},
		},
		{
			ID: WrongTokens, Title: "Tokens of service accounts that an API server cannot verify", Severity: bad,
			Why: "An API server accepts a token when one of its --service-account-key-file holds the public key of " +
				"the key with which it was signed. Pods whose tokens it does not accept get 401.",
		},
		{
			ID: PortInUse, Title: "A port on which another process listens", Severity: bad,
			Why: "A component that cannot listen on its port ends. The component itself, started before, is not " +
				"another process.",
		},
		{
			ID: NoStore, Title: "A store that the host does not reach", Severity: bad,
			Why: "An API server that does not reach its store does not start; one that does not reach a store of its " +
				"--etcd-servers-overrides is not ready.",
		},
		{
			ID: NoImage, Title: "An image that is not on the host", Severity: warn,
			Why: "The kubelet pulls the image when the static pod starts. Where the registry is unreachable, or " +
				"wants credentials, the component does not start.",
		},
		{
			ID: OtherManifests, Title: "A kubelet that does not start what is put into the directory of the manifests",
			Severity: bad,
			Why: "A kubelet starts static pods from the directory that staticPodPath or --pod-manifest-path names, " +
				"and from no other.",
		},
		{
			ID: NoStreams, Title: "Streams of exec and attach that their server does not reach", Severity: warn,
			Why: "exec, attach and port-forward are streams of the container runtime. Kubelets up to 1.10 redirect " +
				"the API server to the runtime's address, which must not be loopback then; later ones connect to it " +
				"themselves. It is looked at on the hosts of the control plane; other nodes are not read.",
		},
		{
			ID: Stale, Title: "A file that differs from what render writes", Severity: bad,
			Why: "The policy, the kubeconfigs and the plan of the controllers are part of what was checked. A " +
				"component that reads another file does what another plan says.",
		},
		{
			ID: Undecryptable, Title: "An encryption configuration that a side cannot use", Severity: bad,
			Legacy: kubever.Range{From: 7, To: kubever.Newest}, Modern: kubever.Range{From: 7, To: kubever.Newest},
			Why: "An API server does not start with a configuration of a kind, or with a provider, that its version " +
				"does not know. Where one side encrypts with a key that the other does not have, every list of the " +
				"resource through the other fails, or silently omits what is encrypted. A KMS plugin of the first " +
				"interface is no way to share: since 1.25 data keys are used with AES-GCM, which versions before " +
				"1.24 do not decrypt.",
			Evidence: finding.Evidence{
				Seen: "1.15.12 and 1.36.3 read each other's secrets with aescbc, aesgcm and secretbox, while keys " +
					"were rotated; 1.36.3 with KMS v2; with KMS v1 1.36.3 reads what 1.15.12 has written, and one " +
					"secret of 1.36.3 makes every list through 1.15.12 fail",
				Damage:     []string{"TestKMSOfTheFirstVersion"},
				Prevention: []string{"TestSecretsAreReadByBothSidesWhateverEncryptsThem"},
				Read:       "encryptionconfig of apiserver 1.7.0 to 1.36.3",
			},
		},
	})
}

package kubever

// fileFlags are the flags whose value is a file that a component reads.
var fileFlags = map[string]bool{
	"admission-control-config-file": true, "audit-policy-file": true, "audit-webhook-config-file": true,
	"authentication-config": true, "authentication-kubeconfig": true, "authentication-token-webhook-config-file": true,
	"authorization-config": true, "authorization-kubeconfig": true, "authorization-policy-file": true,
	"authorization-webhook-config-file": true, "basic-auth-file": true, "client-ca-file": true, "cloud-config": true,
	"cluster-signing-cert-file": true, "cluster-signing-key-file": true, "config": true,
	"cluster-signing-kube-apiserver-client-cert-file": true, "cluster-signing-kube-apiserver-client-key-file": true,
	"cluster-signing-kubelet-client-cert-file": true, "cluster-signing-kubelet-client-key-file": true,
	"cluster-signing-kubelet-serving-cert-file": true, "cluster-signing-kubelet-serving-key-file": true,
	"cluster-signing-legacy-unknown-cert-file": true, "cluster-signing-legacy-unknown-key-file": true,
	"egress-selector-config-file": true, "encryption-provider-config": true, "etcd-cafile": true, "etcd-certfile": true,
	"etcd-keyfile": true, "experimental-encryption-provider-config": true, "experimental-keystone-ca-file": true,
	"kubeconfig": true, "kubelet-certificate-authority": true, "kubelet-client-certificate": true,
	"kubelet-client-key": true, "leader-migration-config": true, "oidc-ca-file": true, "peer-ca-file": true,
	"policy-config-file":     true,
	"proxy-client-cert-file": true, "proxy-client-key-file": true, "requestheader-client-ca-file": true,
	"pv-recycler-pod-template-filepath-hostpath": true, "pv-recycler-pod-template-filepath-nfs": true,
	"root-ca-file": true, "service-account-key-file": true, "service-account-private-key-file": true,
	"service-account-signing-key-file": true, "ssh-keyfile": true, "tls-ca-file": true, "tls-cert-file": true,
	"tls-private-key-file": true, "token-auth-file": true, "tracing-config-file": true,
}

// writtenFlags are the flags whose value is a file or a directory that a component writes.
var writtenFlags = map[string]bool{
	"audit-log-path": true, "cert-dir": true, "flex-volume-plugin-dir": true, "log-dir": true, "log-file": true,
}

// ReadsFile reports whether the value of a flag is a file that a component reads.
func ReadsFile(flag string) bool { return fileFlags[FlagName(flag)] }

// HasPath reports whether the value of a flag is a path, of what a component reads or writes.
func HasPath(flag string) bool { return ReadsFile(flag) || writtenFlags[FlagName(flag)] }

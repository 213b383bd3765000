package rig

import (
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// sampleAPIServer is k8s.io/sample-apiserver, of the release that the go.mod of its folder names.
const sampleAPIServer = "sample-apiserver"

// unknownPlugins are those whose configurations old API servers do not serve, or in other versions: without them the
// plugin refuses every write.
const unknownPlugins = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook,MutatingAdmissionPolicy," +
	"ValidatingAdmissionPolicy"

// StartExtension starts an extension API server behind an API server, with a store of its own: it serves flunders of
// wardle.example.com, and asks the API server as the user for its authentication and authorization. It is reached as
// host, which is what its certificate is good for, on a port of loopback. WaitReady waits for it.
//
// Clients of 1.35 and later begin a watch with what is there. API servers that do not know that send no mark behind it,
// and the client waits for ever: behind such a server it must not.
func (r *Rig) StartExtension(name string, behind *APIServer, user, host string) (extension *APIServer, port int) {
	r.t.Helper()
	program, err := Program(sampleAPIServer)
	if err != nil {
		r.t.Fatal(err)
	}
	kubeconfig, err := r.PKI.Kubeconfig(name, behind.URL, user)
	if err != nil {
		r.t.Fatal(err)
	}
	certFile, keyFile, err := r.PKI.Serving(name, host, "127.0.0.1")
	if err != nil {
		r.t.Fatal(err)
	}
	port = r.Port()
	args := append(r.StartEtcd(name).Flags(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+certFile,
		"--tls-private-key-file="+keyFile,
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--authentication-tolerate-lookup-failure=false",
		"--disable-admission-plugins="+unknownPlugins,
		"--enable-priority-and-fairness=false", // whose objects old API servers do not have
	)
	var env []string
	if !kubever.Behaves(kubever.BehaviourWatchListHeeded, behind.Minor) {
		env = []string{"KUBE_FEATURE_WatchListClient=false"}
	}
	return &APIServer{Process: r.StartProgram(name, program, args, env...), Minor: kubever.Library,
		URL: fmt.Sprintf("https://127.0.0.1:%d", port)}, port
}

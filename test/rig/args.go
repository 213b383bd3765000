package rig

import (
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// ServiceCIDR is what the plain servers of a rig use; its first address is in their certificates.
const ServiceCIDR = "10.96.0.0/16"

// arg is a row of an argument table: releases that do not have the flag go without it.
type arg struct {
	flag, value string
	in          kubever.Ranges // nil: wherever the flag is
}

var (
	since12 = kubever.Ranges{{From: 12, To: kubever.Newest}}
	only12  = kubever.Ranges{{From: 12, To: 12}}
	to9     = kubever.Ranges{{From: kubever.Oldest, To: 9}}
)

// argsFor writes the rows as arguments of the release.
func argsFor(component string, minor kubever.Minor, rows []arg) []string {
	var args []string
	for _, row := range rows {
		if kubever.Flag(component, row.flag).In(minor) && (row.in == nil || row.in.Has(minor)) {
			args = append(args, "--"+row.flag+"="+row.value)
		}
	}
	return args
}

// APIServerArgs are the arguments of a plain kube-apiserver of the release on an etcd: what a server without a plan
// beside it has. It serves on a free port and authorizes everybody.
func (r *Rig) APIServerArgs(minor kubever.Minor, etcd *Etcd) []string {
	r.t.Helper()
	port := fmt.Sprint(r.Port())
	certFile, keyFile, err := r.PKI.Serving("apiserver-"+port, r.host, "10.96.0.1", "kubernetes.default.svc")
	if err != nil {
		r.t.Fatal(err)
	}
	return append(etcd.Flags(), argsFor(kubever.APIServer, minor, []arg{
		{flag: "bind-address", value: r.host},
		{flag: "secure-port", value: port},
		{flag: "insecure-port", value: "0"},
		{flag: "allow-privileged", value: "true"},
		{flag: "advertise-address", value: r.advertised()},
		{flag: "tls-cert-file", value: certFile},
		{flag: "tls-private-key-file", value: keyFile},
		{flag: "client-ca-file", value: r.PKI.File("ca.crt")},
		{flag: "service-cluster-ip-range", value: ServiceCIDR},
		{flag: "service-account-key-file", value: r.PKI.File("sa.pub")},
		// an alpha feature before, and refused
		{flag: "service-account-issuer", value: "https://kubernetes.default.svc", in: since12},
		{flag: "service-account-signing-key-file", value: r.PKI.File("sa.key"), in: since12},
		// 1.12 wants it beside these two; later versions take the issuer for it
		{flag: "service-account-api-audiences", value: "https://kubernetes.default.svc", in: only12},
		// Plugins that are on by default came with 1.10; before, these were what its documentation recommended.
		{flag: "admission-control",
			value: "NamespaceLifecycle,LimitRanger,ServiceAccount,DefaultStorageClass,ResourceQuota", in: to9},
	})...)
}

// ControllerManagerArgs are the arguments of a plain kube-controller-manager of the release.
func (r *Rig) ControllerManagerArgs(minor kubever.Minor, server *APIServer) []string {
	r.t.Helper()
	port := fmt.Sprint(r.Port())
	kubeconfig, err := r.PKI.Kubeconfig("controller-manager-"+port, server.URL, "system:kube-controller-manager",
		"system:masters")
	if err != nil {
		r.t.Fatal(err)
	}
	secure := port
	serving := []arg{{flag: "bind-address", value: "127.0.0.1"}}
	flag := kubever.Flag(kubever.ControllerManager, "port")
	if _, none := flag.OnlyValue(minor); flag.In(minor) && !none { // the port without authentication
		serving, secure = append(serving, arg{flag: "address", value: "127.0.0.1"}, arg{flag: "port", value: port}), "0"
	}
	return argsFor(kubever.ControllerManager, minor, append(serving, []arg{
		{flag: "kubeconfig", value: kubeconfig},
		{flag: "secure-port", value: secure},
		{flag: "leader-elect", value: "false"}, // there is one; waiting for a lease takes up to 20 seconds
		{flag: "root-ca-file", value: r.PKI.File("ca.crt")},
		{flag: "service-account-private-key-file", value: r.PKI.File("sa.key")},
		{flag: "cluster-signing-cert-file", value: r.PKI.File("ca.crt")},
		{flag: "cluster-signing-key-file", value: r.PKI.File("ca.key")},
	}...))
}

// advertised is what the service `kubernetes` points at: no release takes a loopback address for that, and without
// nodes nothing connects to it.
func (r *Rig) advertised() string {
	if r.host == Bridge {
		return Bridge
	}
	return "192.0.2.1"
}

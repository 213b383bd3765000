package render

import (
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// hostile are values that break whoever pastes them into YAML, a unit or a shell.
var hostile = []string{
	"", " ", "  leading", "trailing  ", "yes", "No", "null", "~", "1", "1e3", "0x10", "010", "1_000", "12:30:45",
	"true", "2026-01-02", "=", "<<",
	"a: b", "a:", ": ", "a #b", "#", "# comment", "- a", "? a", "{a: b}", "[a, b]", "&anchor", "*alias", "!tag", "|",
	">", "%", "%h %% %n", "@", "`cmd`",
	`"`, `'`, `"quoted"`, `it's`, `\`, `\n`, `C:\dir\`, "line\nbreak", "line\r\nbreak", "\ttab", "trailing\n", "\n",
	"\x01\x1f\x7f", "\u2028", "\u0085", "\ufeff", "ünïcödé 日本語 🎈",
	"{{", "{{ .Name }}", "{{`", "}}", "$HOME", "${HOME}", "$$", "$$HOME", "$(HOME)", "$$(HOME)", "$", "a;b", ";",
	"a && b", "--flag", "-", "---", "...", "a\\", "a \\",
}

// handmade is a plan of one host, made by hand, for a kubelet of the minor.
func handmade(kubelet kubever.Minor) *plan.Plan {
	mounts := []plan.Mount{
		{Name: "etc-kubernetes-pki", Path: "/etc/kubernetes/pki", ReadOnly: true, Directory: true},
		{Name: "policy", Path: "/etc/kubernetes/modern/policy.jsonl", ReadOnly: true},
	}
	https := &plan.Probe{Scheme: "HTTPS", Host: "127.0.0.1", Port: 7443, Path: "/healthz", DelaySeconds: 15,
		TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}
	p := &plan.Plan{
		Name:    "handmade",
		Layout:  spec.LayoutSplit,
		Hosts:   []spec.Host{{Name: "cp-1", Address: "10.0.0.11"}},
		Kubelet: kubever.Version{Minor: kubelet},
		Prefix:  "/registry",
		Stores: []plan.Store{
			{Name: "core", Endpoints: []string{"https://10.0.0.11:2379"}},
			{Name: "modern", Endpoints: []string{"https://10.0.0.11:2479"},
				Managed: &spec.ManagedEtcd{Version: "3.6.8", DataDir: "/var/lib/etcd-modern"}},
		},
		Legacy: plan.Side{Name: pair.Legacy, Version: kubever.Version{Minor: 6, Patch: 13, HasPatch: true},
			Store: "core", Port: 6443},
		Modern: plan.Side{Name: pair.Modern, Version: kubever.Version{Minor: 36, Patch: 3, HasPatch: true},
			Store: "modern", Port: 7443},
		Components: []plan.Component{
			{Host: "cp-1", Kind: plan.Etcd, Name: "etcd-modern", Version: "3.6.8",
				Image: "registry.k8s.io/etcd:3.6.8-0", Command: []string{"etcd"}, Store: "modern", Port: 2479,
				Args: []plan.Arg{{Name: "name", Value: "cp-1", Why: "the member's name is the host's",
					Origin: plan.FromPlan}, {Name: "data-dir", Value: "/var/lib/etcd-modern", Origin: plan.FromPlan}},
				Mounts: []plan.Mount{{Name: "data", Path: "/var/lib/etcd-modern", Directory: true}},
				Liveness: &plan.Probe{Scheme: "HTTP", Host: "127.0.0.1", Port: 2481, Path: "/health", DelaySeconds: 15,
					TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}},
			{Host: "cp-1", Side: pair.Legacy, Kind: kubever.APIServer, Name: "kube-apiserver", Version: "1.6.13",
				Image: "registry.example.com/hyperkube:v1.6.13", Command: []string{"/hyperkube", "apiserver"},
				Args: []plan.Arg{{Name: "bind-address", Value: "0.0.0.0", Why: "the spec's own",
					Origin: plan.FromSpec}, {Name: "audit-log-path", Value: "/var/log/kubernetes/audit.log",
					Origin: plan.FromSpec}},
				Mounts: append([]plan.Mount{{Name: "logs", Path: "/var/log/kubernetes", Directory: true}},
					mounts[:1]...),
				Liveness: &plan.Probe{Host: "127.0.0.1", Port: 6443, DelaySeconds: 15, TimeoutSeconds: 15,
					PeriodSeconds: 10, FailureThreshold: 8}},
			{Host: "cp-1", Side: pair.Modern, Kind: kubever.APIServer, Name: "kube-apiserver-modern", Version: "1.36.3",
				Image: "registry.k8s.io/kube-apiserver:v1.36.3", Command: []string{"kube-apiserver"},
				Args: []plan.Arg{{Name: "authorization-mode", Value: "ABAC",
					Why: "alone: a second mode would allow what the policy does not", Origin: plan.FromPlan}},
				Mounts: mounts, Port: 7443, Liveness: https, Startup: https},
			{Host: "cp-1", Side: pair.Modern, Kind: kubever.ControllerManager, Name: "kube-controller-manager-modern",
				Version: "1.36.3", Image: "registry.k8s.io/kube-controller-manager:v1.36.3",
				Command: []string{"kube-controller-manager"},
				Args: []plan.Arg{{Name: "kubeconfig", Value: "/etc/kubernetes/modern/controller-manager.conf",
					Why: "the modern API server of the same host", Origin: plan.FromPlan}},
				Mounts: mounts[:1], Port: 11257, Liveness: https, Startup: https},
		},
		Kubeconfigs: []plan.Kubeconfig{{Host: "cp-1", Path: "/etc/kubernetes/modern/controller-manager.conf",
			Server: "https://127.0.0.1:7443", CA: "/etc/kubernetes/pki/ca.crt",
			Cert: "/etc/kubernetes/pki/modern/controller-manager.crt",
			Key:  "/etc/kubernetes/pki/modern/controller-manager.key", User: "system:kube-controller-manager",
			Component: "kube-controller-manager-modern"}},
		Policy: policy.Intent{Grants: []policy.Grant{{Subjects: []policy.Subject{{Kind: policy.KindGroup,
			Name: "system:authenticated"}}, NonResourcePaths: []string{"/version"}, ReadOnly: true, Why: "discovery"}}},
		PolicyFile: "/etc/kubernetes/modern/policy.jsonl",
	}
	return p
}

// find returns the file of the path, nil when there is none.
func find(files []File, path string) *File {
	for i := range files {
		if files[i].Path == path {
			return &files[i]
		}
	}
	return nil
}

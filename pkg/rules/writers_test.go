package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Of its own accord no plan has a resource that the other side goes on writing.
func TestDefaultPlansHaveOneWriter(t *testing.T) {
	for _, layout := range []spec.Layout{spec.LayoutSplit, spec.LayoutShared} {
		base, err := defaultSpec(layout, kubever.Oldest, kubever.Newest)
		if err != nil {
			t.Fatal(err)
		}
		for _, legacy := range kubever.Minors() {
			for _, modern := range []kubever.Minor{legacy, 10, 13, 16, 20, 21, 24, 25, 26, 31, 33, 36} {
				if modern < legacy {
					continue
				}
				f, err := between(base, legacy, modern)
				if err != nil {
					t.Fatal(err)
				}
				p, err := plan.New(f, plan.OnHosts)
				if err != nil {
					continue // what cannot be planned is said by the plan
				}
				for _, found := range append(foreignControllers(p), storedOtherwise(p)...) {
					t.Errorf("%s %s %s: %+v", layout, legacy, modern, found)
				}
			}
		}
	}
}

func TestForeignWriters(t *testing.T) {
	for _, test := range []struct {
		owners, subject, says string
	}{
		{"{resources: [endpoints], owner: modern}", "endpoints", "endpoint, persistentvolume-binder"},
		{"{resources: [leases.coordination.k8s.io], owner: modern}", "leases", kubelets},
		{"{resources: [serviceaccounts], owner: modern}", "serviceaccounts", "serviceaccount"},
		{"{resources: [pods], owner: modern}", "pods", kubelets},
		{"{resources: [configmaps], owner: legacy}", "", ""},
	} {
		found := of(Check(plantest.Of(t, example{more: "owners: [" + test.owners + "]"}.String())), "FUS223")
		if test.subject == "" {
			if len(found) > 0 {
				t.Errorf("%s: %+v, want silence", test.owners, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Subject != test.subject ||
			!strings.Contains(found[0].Message+strings.Join(found[0].Related, " "), test.says) {
			t.Errorf("%s: %+v, want one about %s that says %q", test.owners, found, test.subject, test.says)
		}
	}
}

func TestArgumentsThatChangeWhatIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		e        example
		severity finding.Severity // 0: silent
		says     string
	}{
		"stored as the version does": {example{legacy: "1.10.13",
			legacyServer: args("storage-versions=apps/v1,batch/v1,extensions/v1beta1")}, 0, ""},
		"stored in an older version": {example{legacy: "1.10.13",
			legacyServer: args("storage-versions=apps/v1beta1")}, finding.Error,
			"deployments as apps/v1beta1, not apps/v1"},
		"stored as another group's": {example{legacy: "1.9.11",
			legacyServer: args("storage-versions=extensions=apps/v1")}, finding.Error,
			"deployments as apps/v1, not extensions/v1beta1"},
		"an older server": {example{modernServer: args("emulated-version=kube=1.33")}, finding.Error,
			"what 1.33 does"},
		"the server that it is":       {example{modernServer: args("emulated-version=kube=1.36")}, 0, ""},
		"another component's version": {example{modernServer: args("emulated-version=wardle=1.2")}, 0, ""},
		"a manager of another version": {example{modernManager: args("emulated-version=1.34")}, finding.Error,
			"what 1.34 does"},
		"readable by older servers": {example{modernServer: args("min-compatibility-version=1.33")},
			finding.Error, "servers from 1.33 on"},
		"readable by the one before": {example{modernServer: args("min-compatibility-version=1.35")}, 0, ""},
		"a group that is on besides": {
			example{legacyServer: args("runtime-config=batch/v2alpha1=true,api/all=true")}, 0, ""},
		"a version that is off": {example{modernServer: args("runtime-config=apps/v1=false")},
			finding.Warning, "deployments"},
		"the group in which they are kept": {example{legacy: "1.10.13",
			legacyServer: args("runtime-config=apps/v1=false,apps/v1beta1=false,apps/v1beta2=false")}, finding.Error,
			"deployments as one of extensions/v1beta1, not apps/v1"},
		"one version of several": {example{legacy: "1.10.13",
			legacyServer: args("runtime-config=apps/v1=false")}, finding.Warning, "deployments"},
		"what is off anyway": {
			example{legacy: "1.10.13", legacyServer: args("runtime-config=batch/v2alpha1=false")}, 0, ""},
		"an unknown group that is off": {example{modernServer: args("runtime-config=example.org/v1=false")}, 0, ""},
		"every alpha gate": {example{modernServer: args("feature-gates=AllAlpha=true")},
			finding.Warning, "AllAlpha=true"},
		"the new allocator of an old side": {example{legacy: "1.31.14",
			legacyServer: args("feature-gates=MultiCIDRServiceAllocator=true")}, finding.Warning,
			"MultiCIDRServiceAllocator=true"},
		"the gate that keeps the bitmap": {example{legacy: "1.15.12", modern: "1.34.4",
			modernServer: args("feature-gates=DisableAllocatorDualWrite=false")}, 0, ""},
		"a gate that stores nothing": {example{modernServer: args("feature-gates=WatchList=false")}, 0, ""},
	} {
		found := of(Check(plantest.Of(t, test.e.String())), "FUS225")
		if test.severity == 0 && len(found) > 0 ||
			test.severity != 0 && (len(found) != 1 || found[0].Severity != test.severity ||
				!strings.Contains(found[0].Message, test.says)) {
			t.Errorf("%s: %+v, want severity %v with %q", name, found, test.severity, test.says)
		}
	}
}

// TestARangeOfItsOwnLeavesTheBitmapAlone: 1.33 writes the bitmap unless it is told not to, which a plan does where the
// bitmap has the legacy side's range; 1.32 cannot be told.
func TestARangeOfItsOwnLeavesTheBitmapAlone(t *testing.T) {
	const own = "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]"
	for _, test := range []struct {
		e   example
		fix string // "": silent
	}{
		{example{modern: "1.33.13", network: own}, ""},
		{example{modern: "1.34.4", network: own}, ""},
		{example{modern: "1.32.13", network: own}, "use one range"},
		{example{modern: "1.33.13", network: own, modernServer: args("feature-gates=DisableAllocatorDualWrite=false")},
			"set DisableAllocatorDualWrite=true"},
		{example{modern: "1.34.4", network: own, modernServer: args("feature-gates=DisableAllocatorDualWrite=false")},
			"use one range"},
	} {
		all := Check(plantest.Of(t, test.e.String()))
		found := of(all, "FUS051")
		if test.fix == "" && len(found) > 0 ||
			test.fix != "" && (len(found) != 1 || !strings.Contains(found[0].Fix, test.fix)) {
			t.Errorf("%s: %+v, want a fix with %q", test.e.modern, found, test.fix)
		}
		if test.fix == "" && len(of(all, "FUS225")) > 0 {
			t.Errorf("%s: %+v", test.e.modern, of(all, "FUS225"))
		}
	}
}

func TestAccessToTheSystemsAccounts(t *testing.T) {
	rule := func(rest string) example {
		return example{access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [""], ` + rest + `}]`}
	}
	for name, test := range map[string]struct {
		e        example
		subjects string
	}{
		"one namespace": {rule(`resources: [secrets, pods, serviceaccounts], namespaces: [shop]`), ""},
		"the system's own": {rule(`resources: [secrets, pods, serviceaccounts], namespaces: [kube-system]`),
			"pods secrets serviceaccounts"},
		"all of them": {rule(`resources: ["*"]`), "pods replicationcontrollers secrets serviceaccounts"},
		"workloads": {example{access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [apps, batch], ` +
			`resources: [deployments, jobs], namespaces: [kube-system]}]`}, "deployments jobs"},
		"what workloads are made of": {example{access: `[{subjects: [{kind: Group, name: developers}], ` +
			`apiGroups: ["", apps, autoscaling], resources: [podtemplates, controllerrevisions, ` +
			`horizontalpodautoscalers], namespaces: [kube-system]}]`}, "controllerrevisions"},
		"reading pods":            {rule(`resources: [pods, serviceaccounts], readOnly: true`), ""},
		"reading secrets":         {rule(`resources: [secrets], readOnly: true`), "secrets"},
		"what tells nobody apart": {rule(`resources: [configmaps, services]`), ""},
		"the namespace of an account that reaches others": {withAccount(`["*"]`, "mesh"),
			"deployments in mesh secrets in mesh"},
		"the namespace of one that reaches another": {withAccount(`[mesh, shop]`, "mesh"),
			"deployments in mesh secrets in mesh"},
		"the namespace of one that stays there": {withAccount(`[mesh]`, "mesh"), ""},
		"another namespace":                     {withAccount(`["*"]`, "shop"), ""},
	} {
		var about []string
		for _, f := range of(Check(plantest.Of(t, test.e.String())), "FUS224") {
			about = append(about, strings.TrimSuffix(f.Subject, " in kube-system"))
			if strings.HasSuffix(f.Subject, " in mesh") && !strings.Contains(f.Message, "such as mesh/pilot, ") {
				t.Errorf("%s: %s: %s, want the account", name, f.Subject, f.Message)
			}
		}
		if got := strings.Join(about, " "); got != test.subjects {
			t.Errorf("%s: about %q, want %q", name, got, test.subjects)
		}
	}
}

// withAccount gives developers workloads and secrets of a namespace beside an account of mesh that writes services in
// some.
func withAccount(reaches, namespace string) example {
	return example{access: `[{subjects: [{kind: ServiceAccount, namespace: mesh, name: pilot}], apiGroups: [""], ` +
		`resources: [services], namespaces: ` + reaches + `}, {subjects: [{kind: Group, name: developers}], ` +
		`apiGroups: ["", apps], resources: [secrets, deployments], namespaces: [` + namespace + `]}]`}
}

func TestReadsWithoutQuorum(t *testing.T) {
	running := func(version, server string) example {
		return example{legacy: version, legacySide: "existing: true", legacyServer: server}
	}
	for name, test := range map[string]struct {
		e        example
		severity finding.Severity // 0: silent
	}{
		"the plan's own 1.6": {example{legacy: "1.6.13"}, 0},
		// the plan insists
		"1.6 told not to":                 {example{legacy: "1.6.13", legacyServer: args("etcd-quorum-read=false")}, 0},
		"a running 1.6":                   {running("1.6.13", args("secure-port=6443")), finding.Warning},
		"a running 1.8 told not to":       {running("1.8.15", args("etcd_quorum_read=false")), finding.Warning},
		"a running 1.8 that has a quorum": {running("1.8.15", args("etcd-quorum-read=true")), 0},
		"a running 1.9":                   {running("1.9.11", args("secure-port=6443")), 0},
		"a running 1.12 told not to":      {running("1.12.10", args("etcd-quorum-read=false")), finding.Error},
		"1.15, which has no such flag":    {example{}, 0},
	} {
		found := of(Check(plantest.Of(t, test.e.String())), "FUS226")
		if test.severity == 0 && len(found) > 0 ||
			test.severity != 0 && (len(found) != 1 || found[0].Severity != test.severity) {
			t.Errorf("%s: %+v, want severity %v", name, found, test.severity)
		}
	}
}

// A ThirdPartyResource of the legacy side and a CRD of the modern one may be of one kind.
func TestCollectorsBesideThirdPartyResources(t *testing.T) {
	const collects = "controllers=*"
	for name, test := range map[string]struct {
		e    example
		want int
	}{
		"the plan beside 1.6":          {example{legacy: "1.6.13"}, 0},
		"modern's own list beside 1.6": {example{legacy: "1.6.13", modernManager: args(collects)}, 1},
		"modern's own list beside 1.7": {example{legacy: "1.7.16", modernManager: args(collects)}, 1},
		"the legacy collector of 1.6":  {example{legacy: "1.6.13", modernManager: "-", legacyManager: "-"}, 0},
	} {
		found := of(Check(plantest.Of(t, test.e.String())), "FUS227")
		if len(found) != test.want || test.want > 0 && found[0].Subject != "modern garbage-collector-controller" {
			t.Errorf("%s: %+v, want %d", name, found, test.want)
		}
	}
}

// Dangers of spellings and versions that the examples do not have.
func TestDangersInOtherWords(t *testing.T) {
	for name, test := range map[string]struct {
		e      example
		rule   string
		silent bool
	}{
		"CBOR among all alpha gates": {example{modernServer: args("feature-gates=AllAlpha=true")}, "FUS072",
			false},
		"all alpha gates but that one": {
			example{modernServer: args("feature-gates=AllAlpha=true,CBORServingAndStorage=false")}, "FUS072", true},
		"all alpha gates of an older server": {
			example{modern: "1.30.14", modernServer: args("feature-gates=AllAlpha=true")}, "FUS072", true},
		"new kubelets over an old controller":  {example{legacy: "1.12.10", kubelet: "1.17.17"}, "FUS084", false},
		"new kubelets over one that reads":     {example{legacy: "1.13.12", kubelet: "1.17.17"}, "FUS084", true},
		"Jobs that nobody may make":            {example{modernManager: "-"}, "FUS134", true},
		"pods that nobody may make":            {example{legacy: "1.10.13"}, "FUS161", true},
		"pods that nobody may make, and loses": {example{}, "FUS164", true},
		"Deployments and their controller":     {example{access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [apps], resources: [deployments]}]`}, "FUS164", false},
		"Deployments without a controller": {example{modernManager: "-",
			access: `[{subjects: [{kind: Group, name: developers}], apiGroups: [apps], resources: [deployments]}]`},
			"FUS164", true},
		"an issuer that the legacy side lacks": {example{legacy: "1.15.12", legacySide: "existing: true",
			legacyServer: args("authorization-mode=RBAC"), access: toDevelopers("pods")}, "FUS161", false},
	} {
		if found := of(Check(plantest.Of(t, test.e.String())), test.rule); (len(found) == 0) != test.silent {
			t.Errorf("%s: %s = %+v, want silence = %v", name, test.rule, found, test.silent)
		}
	}
}

// TestOneAPIServerOfASideIsStartedInAnotherWay: what one of several API servers of a side does is what the side does:
// one that leaves the bitmap alone allocates what the other side takes for free, and one that writes it writes its
// range. The host is named.
func TestOneAPIServerOfASideIsStartedInAnotherWay(t *testing.T) {
	for _, test := range []struct {
		rule, network, first, second, says string
	}{
		{"FUS050", "serviceCIDRs: [10.96.0.0/24]", "false", "true", "a bitmap that 1.34 on cp-2 does not write"},
		{"FUS050", "serviceCIDRs: [10.96.0.0/24]", "true", "false", "a bitmap that 1.34 on cp-1 does not write"},
		{"FUS050", "serviceCIDRs: [10.96.0.0/24]", "true", "true", "a bitmap that 1.34 does not write"},
		{"FUS050", "serviceCIDRs: [10.96.0.0/24]", "false", "false", ""},
		{"FUS051", "serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]", "true", "false",
			`the modern side on cp-2 "10.97.0.0/24"`},
		{"FUS051", "serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]", "true", "true", ""},
	} {
		text := example{legacy: "1.15.12", modern: "1.34.4", network: test.network,
			access: toDevelopers("services")}.String()
		text = strings.Replace(text, "  hosts: [", "  hosts: [{name: cp-2, address: 10.0.0.12}, ", 1)
		p := plantest.Of(t, text)
		for i := range p.Components {
			c := &p.Components[i]
			if c.Side != pair.Modern || c.Kind != kubever.APIServer {
				continue
			}
			value := map[string]string{"cp-1": test.first, "cp-2": test.second}[c.Host]
			c.Args = slices.DeleteFunc(slices.Clone(c.Args), func(a plan.Arg) bool { return a.Name == "feature-gates" })
			c.Args = append(c.Args, plan.Arg{Name: "feature-gates", Value: "DisableAllocatorDualWrite=" + value})
		}
		var said []string
		for _, f := range Check(p) {
			if f.Rule == test.rule {
				said = append(said, f.Message)
			}
		}
		if got := strings.Join(said, "\n"); (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
			t.Errorf("%s with gates %s, %s: %q, want %q", test.rule, test.first, test.second, got, test.says)
		}
	}
}

package rules

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// reader is a controller that decides about some resources by reading another, and what it does when it cannot see that
// one.
type reader struct {
	controllers []string // IDs
	acts        []string // keys of what it acts on
	reads       []string // keys that it must see the same objects of
	does        string
}

// doubled are controllers that do harm when they run on both sides over the same objects.
type doubled struct {
	controllers []string // IDs: one loop, under the names that it has had
	key         string   // the objects
	does        string
	severity    finding.Severity
}

// controllerRules are about controllers that act on what they should not, or without seeing what they should.
func controllerRules() []rule {
	run := func(names string) string { return args("controllers=" + names) }
	return []rule{
		splitReader("FUS080", "The pod garbage collector deletes pods whose node it cannot see",
			"It deletes pods that are bound to a node that does not exist, immediately and without a grace period. "+
				"Where it sees the shared pods and not the nodes, it deletes all bound pods.",
			reader{[]string{"pod-garbage-collector-controller"}, []string{"pods"}, []string{"minions"},
				"deletes every pod that is bound to a node"},
			finding.Evidence{Seen: "with nodes in two stores 1.15.12 deleted a pod of a node of 1.10.13 at its start",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read:   "pkg/controller/podgc of 1.6.13, 1.17.17 and 1.36.3"},
			example{modernManager: run("pod-garbage-collector-controller"),
				more: `owners: [{resources: [nodes], owner: split}]`}, example{}),
		splitReader("FUS081", "The volume binder reclaims volumes whose claim it cannot see",
			"A volume whose claim does not exist is released, and its reclaim policy is applied: with Delete the "+
				"disk is deleted.",
			reader{[]string{"persistentvolume-binder-controller"}, []string{"persistentvolumes"},
				[]string{"persistentvolumeclaims"}, "releases volumes and deletes their disks"},
			finding.Evidence{Seen: "with claims in two stores 1.15.12 deleted the folder of a volume " +
				"that 1.10.13 had bound",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read:   "pkg/controller/volume/persistentvolume/pv_controller.go of 1.6.13 and 1.36.3"},
			example{modernManager: run("persistentvolume-binder-controller"),
				more: `owners: [{resources: [persistentvolumeclaims], owner: split}]`}, example{}),
		splitReader("FUS082", "The attach/detach controller detaches volumes of pods that it cannot see",
			"It detaches volumes that no pod on the node uses, after six minutes by force even if they are mounted: "+
				"file systems are corrupted.",
			reader{[]string{"persistentvolume-attach-detach-controller"}, []string{"minions"},
				[]string{"pods", "persistentvolumeclaims", "persistentvolumes"},
				"detaches volumes that running pods use"},
			finding.Evidence{Seen: "with pods in two stores 1.36.3 detached the volume of a pod of 1.15.12, which no " +
				"kubelet had reported as mounted, within a second of its start",
				Damage: []string{"TestControllersThatDoNotSeeTheOtherSide"},
				Read:   "pkg/controller/volume/attachdetach/reconciler of 1.6.13 and 1.36.3"},
			example{modernManager: run("persistentvolume-attach-detach-controller"),
				more: `owners: [{resources: [pods], owner: split}]`}, example{}),
		splitReader("FUS083", "The endpoints controller deletes endpoints of services that it cannot see",
			"At start it deletes endpoints of services that do not exist for it, and it fills the others with the "+
				"pods that it sees.",
			reader{[]string{"endpoints-controller"}, []string{"services/endpoints"}, []string{"services/specs", "pods"},
				"deletes or empties the endpoints of the other side's services"},
			finding.Evidence{Seen: "with services in two stores 1.15.12 deleted the endpoints of a " +
				"service of 1.10.13 at its start",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read:   "pkg/controller/endpoint of 1.6.13 and 1.36.3"},
			example{modernManager: run("endpoints-controller"),
				more: `owners: [{resources: [services], owner: split}]`}, example{}),
		heartbeats(splitReader("FUS084", "The node controller marks nodes as unknown whose heartbeats it cannot see",
			"Since 1.14 kubelets renew a lease as their heartbeat and update the node status only every few minutes. "+
				"A node controller that does not see the leases, or is older than 1.13 and does not read them, marks "+
				"every node as unknown. It evicts their pods as long as it takes some node for ready: each is for a "+
				"moment, when its kubelet writes the status.",
			reader{[]string{"node-lifecycle-controller", "node-controller"}, []string{"minions", "pods"},
				[]string{"leases", "minions", "pods"}, "marks every node as unknown and evicts its pods"},
			finding.Evidence{Seen: "with leases in two stores 1.36.3 marked a node as unknown after 50 s whose lease " +
				"was renewed through 1.15.12, and beside a node with a fresh status had its pods evicted; of a " +
				"single node it evicted none",
				Damage: []string{"TestControllersThatDoNotSeeTheOtherSide"},
				Read: "pkg/controller/nodelifecycle of 1.12.10, 1.13.0 and 1.36.3; kubelet defaults.go of every " +
					"minor"},
			example{modernManager: run("node-lifecycle-controller"),
				more: `owners: [{resources: [leases.coordination.k8s.io], owner: split}]`}, example{})),
		{finding.Rule{
			ID: "FUS085", Title: "Two cronjob controllers over the same CronJobs",
			Why: "The cronjob controller of 1.21 and later names a job by the minute of its schedule, older ones by " +
				"the second: of one of each, both create a job for every schedule. Two that name jobs alike create " +
				"each once, and write each other's status. Where the modern one stores CronJobs in a version that " +
				"the legacy side cannot decode, as from 1.22 on beside 1.20 and older, its first status ends the " +
				"legacy side's lists of CronJobs.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "pkg/controller/cronjob/utils.go of 1.10.13, 1.15.12, 1.20.15, 1.21.14 " +
				"and 1.36.3",
				Damage: []string{"TestHostsAndNodesThatTheirPlanForbids"},
				Seen: "beside 1.15.12, 1.36.3 wrote the status of a CronJob when its first job was due: 1.15.12 " +
					"listed none any more, and created no job"},
			Bad: example{legacy: "1.20.15", modernManager: run("cronjob-controller,job-controller"),
				more: `owners: [{resources: [cronjobs.batch, jobs.batch], owner: legacy}]`}.String(),
			Good: example{legacy: "1.20.15"}.String(),
		}, doubledCronJobs},
		{finding.Rule{
			ID: "FUS086", Title: "Two controllers of one kind over the same objects",
			Why: "Two controllers that create pods each create missing ones and delete surplus ones, from " +
				"separate caches: pods are created twice, adopted and deleted alternately. Two node controllers " +
				"allocate the same pod CIDRs and evict by different rules; two volume controllers bind, attach and " +
				"delete the same disks.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "of five replication controllers with 20 replicas each 1.10.13 and " +
				"1.15.12 created more pods than that, and deleted the surplus",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read: "pkg/controller/replicaset, daemon, statefulset, job, deployment, nodeipam, nodelifecycle and " +
					"volume of 1.6.13, 1.15.12 and 1.36.3"},
			Bad:  example{modernManager: run("replicationcontroller-controller,node-ipam-controller")}.String(),
			Good: example{}.String(),
		}, doubledControllers},
		{finding.Rule{
			ID: "FUS087", Title: "Two token controllers rewrite every token secret",
			Why: "Each writes its own CA bundle into every service-account token secret that has another one, " +
				"without end. Two of old versions, which create a token secret for every service account, may create " +
				"two.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "1.10.13 and 1.15.12 with bundles of their own wrote one secret six " +
				"times in a row, within seconds",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read: "pkg/controller/serviceaccount/tokens_controller.go and " +
					"controllermanager.go of 1.6.13, 1.10.13, 1.15.12, 1.24.17 and 1.36.3"},
			Bad: example{modernManager: args("controllers=serviceaccount-token-controller",
				"service-account-private-key-file=/etc/kubernetes/pki/sa.key",
				"root-ca-file=/etc/kubernetes/pki/modern-ca.crt")}.String(),
			Good: example{modernManager: args("controllers=serviceaccount-token-controller",
				"service-account-private-key-file=/etc/kubernetes/pki/sa.key",
				"root-ca-file=/etc/kubernetes/pki/ca.crt")}.String(),
		}, tokenControllers},
		{finding.Rule{
			ID: "FUS088", Title: "The legacy token cleaner invalidates tokens of the legacy side",
			Why: "It takes a token secret for unused when no API server has recorded its use, which servers do " +
				"since 1.27. Tokens that are used through the legacy API server alone are invalidated after a year " +
				"and deleted after another.",
			Legacy: kubever.Range{From: 6, To: 26}, Modern: kubever.Range{From: 28, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.36.3 marked the token of an account of 1.15.12 as invalid, and refused it from then on; " +
					"1.15.12 accepts it",
				Damage: []string{"TestControllersThatDoNotSeeTheOtherSide"},
				Read:   "legacy_serviceaccount_token_cleaner.go and pkg/serviceaccount/legacy.go of 1.36.3"},
			Bad:  example{modernManager: run("legacy-serviceaccount-token-cleaner-controller")}.String(),
			Good: example{}.String(),
		}, func(p *plan.Plan) []finding.Finding {
			if !runs(p, pair.Modern, "legacy-serviceaccount-token-cleaner-controller") || !visible(p, "secrets") ||
				kubever.Behaves(kubever.BehaviourLegacyTokenTracking, p.Legacy.Version.Minor) {
				return nil
			}
			return []finding.Finding{{Subject: "modern legacy-serviceaccount-token-cleaner-controller",
				Message: fmt.Sprintf("%s does not record the use of tokens: tokens that are used through it alone "+
					"are invalidated",
					p.Legacy.Version.Minor), Fix: leaveControllers}}
		}},
		{finding.Rule{
			ID: "FUS089", Title: "Two quota controllers count different sets of objects",
			Why: "Each writes its count into the status of the quota. Where some of the counted objects are in " +
				"two stores, the usage flaps and neither value is right. Over the same set of objects they agree.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "pkg/controller/resourcequota of 1.6.13 and 1.36.3"},
			Bad: example{modernManager: run("resourcequota-controller"), network: ownRange,
				more: splitServices}.String(),
			Good: example{modernManager: run("resourcequota-controller")}.String(),
		}, quotaControllers},
		{finding.Rule{
			ID: "FUS133", Title: "The modern namespace controller deletes shared objects",
			Why: "It deletes everything that it can list in a terminating namespace, including objects in the " +
				"legacy side's store. Where each side has namespaces of its own, deleting one on the modern side " +
				"deletes the pods, services and secrets in the legacy side's namespace of that name.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "with namespaces in two stores a namespace was deleted through 1.15.12: " +
				"a running pod in that of 1.10.13 was deleted",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read:   "namespaced_resources_deleter.go of 1.6.13 and 1.36.3"},
			Bad: example{modernManager: run("namespace-controller"),
				more: `owners: [{resources: [namespaces], owner: split}]`}.String(),
			Good: example{}.String(),
		}, namespacesApart},
		{finding.Rule{
			ID: "FUS134", Title: "Pods of modern Jobs terminate for ever",
			Why: "Since 1.25 the pods of a Job have a finalizer that only a job controller of those versions " +
				"removes. Without one on the modern side they stay terminating for ever.",
			Legacy: anyVersion, Modern: kubever.Range{From: 25, To: kubever.Newest}, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "pkg/controller/job of 1.22.17 to 1.36.3"},
			Bad:      example{modernManager: "-", access: jobAccess}.String(),
			Good:     example{access: jobAccess}.String(),
		}, trackedJobs},
		{finding.Rule{
			ID: "FUS162", Title: "DaemonSets of the modern side create no pods",
			Why: "Since 1.12 the daemonset controller pins its pods to nodes by a field that older servers drop, " +
				"and leaves binding to the scheduler. A scheduler before 1.12 finds no node for such a pod. So the " +
				"controller is off, and DaemonSets that are created through the modern API server have no effect, " +
				"unless admission sees every pod and binds those: with spec.pods and failurePolicy Fail.",
			Legacy: kubever.Range{From: 6, To: 11}, Modern: kubever.Range{From: 12, To: kubever.Newest},
			Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "pkg/controller/daemon of 1.11.10 and 1.12.10; the field table: " +
				"NodeSelectorTerm.matchFields; NodeSelectorRequirementsAsSelector of 1.6.13 and 1.10.13",
				Prevention: []string{"TestWorkloadsOnRealNodes"}},
			Bad:  example{legacy: "1.6.13", access: daemonSetAccess}.String(),
			Good: example{legacy: "1.6.13"}.String(),
		}, daemonSets},
	}
}

const (
	leaveControllers = "remove --controllers of the modern controller manager from extraArgs; the plan sets it"
	jobAccess        = `[{subjects: [{kind: Group, name: developers}], apiGroups: [batch], resources: [jobs]}]`
	daemonSetAccess  = `[{subjects: [{kind: Group, name: developers}], apiGroups: [apps], resources: [daemonsets]}]`
)

// splitReader is the rule about a controller that decides by reading what it cannot see.
func splitReader(id, title, why string, r reader, evidence finding.Evidence, bad, good example) rule {
	return rule{finding.Rule{ID: id, Title: title, Why: why, Legacy: anyVersion, Modern: anyVersion,
		Severity: finding.Error, Evidence: evidence, Bad: bad.String(), Good: good.String()}, r.check}
}

// check reports the controller on a side when it sees what it acts on and the other side's objects of what it reads are
// elsewhere.
func (r reader) check(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		for _, id := range r.controllers {
			if !runs(p, side, id) || !slices.ContainsFunc(r.acts, func(key string) bool { return visible(p, key) }) {
				continue
			}
			for _, key := range r.reads {
				row := p.Resource(key)
				if row == nil || row.VisibleToBoth() || slices.Contains(r.acts, key) && len(r.acts) == 1 ||
					!reads(id, p.Side(side).Version.Minor, key) {
					continue
				}
				if row.Legacy.Store == "" || row.Modern.Store == "" {
					continue // only one side has it: the other's objects need none
				}
				if side == pair.Legacy && p.ModernKubelet == nil && slices.Contains(keptByKubelets, key) {
					continue // kubelets write them through the legacy API server, so that side sees all that run
				}
				found = append(found, finding.Finding{Subject: string(side) + " " + p.Controller(side, id).Name,
					Key: key,
					Message: fmt.Sprintf("sees the shared %s and only the %s of its own side: it %s",
						p.Resource(r.acts[0]).Name,
						row.Name, r.does),
					Fix: fmt.Sprintf("share %s: remove them from spec.owners; or disable the controller on the %s side",
						row.Name, side)})
			}
		}
	}
	return found
}

// keptByKubelets are the resources by which kubelets say what runs; unless the spec says otherwise,
// they speak to the legacy API server alone.
var keptByKubelets = []string{"leases", "minions", "pods"}

// reads reports whether a version of the controller reads the resource to decide.
func reads(id string, m kubever.Minor, key string) bool {
	for _, c := range kubever.Controllers(m) {
		if c.Name == id {
			return slices.Contains(c.Reads, key)
		}
	}
	return false
}

// heartbeats adds to the rule about nodes a legacy controller that is too old for the heartbeats of the kubelets.
func heartbeats(nodes rule) rule {
	unseen := nodes.check
	nodes.check = func(p *plan.Plan) []finding.Finding {
		found := append(unseen(p), modernHeartbeats(p)...)
		legacy := p.Legacy.Version.Minor
		if !kubever.Behaves(kubever.BehaviourKubeletLeaseHeartbeat, p.Kubelet.Minor) ||
			kubever.Behaves(kubever.BehaviourNodeLeasesRead, legacy) {
			return found
		}
		for _, id := range []string{"node-controller", "node-lifecycle-controller"} {
			if runs(p, pair.Legacy, id) {
				found = append(found, finding.Finding{Subject: "legacy " + p.Controller(pair.Legacy, id).Name,
					Key: "heartbeats",
					Message: fmt.Sprintf("kubelets of %s update the node status every few minutes and renew leases "+
						"in between, which %s does not read: it marks nodes as unknown and evicts their pods",
						p.Kubelet.Minor, legacy),
					Fix: "keep the kubelets below 1.14"})
			}
		}
		return found
	}
	return nodes
}

// modernHeartbeats reports kubelets at the modern API server that a legacy controller takes for dead.
func modernHeartbeats(p *plan.Plan) []finding.Finding {
	kubelet, ok := p.KubeletAt(pair.Modern)
	if !ok || !kubever.Behaves(kubever.BehaviourKubeletLeaseHeartbeat, kubelet) ||
		kubever.Behaves(kubever.BehaviourNodeLeasesRead, p.Legacy.Version.Minor) && visible(p, "leases") {
		return nil
	}
	var found []finding.Finding
	for _, id := range []string{"node-controller", "node-lifecycle-controller"} {
		if runs(p, pair.Legacy, id) {
			found = append(found, finding.Finding{Subject: "legacy " + p.Controller(pair.Legacy, id).Name,
				Key: "heartbeats of modern kubelets",
				Message: fmt.Sprintf("kubelets of %s at the modern API server update the node status every few "+
					"minutes and renew Leases in between, which the legacy side does not see: it marks nodes as "+
					"unknown and evicts their pods", kubelet),
				Fix: "set nodeStatusReportFrequency: 10s in the configuration of these kubelets, and accept this " +
					"finding for that reason"})
		}
	}
	return found
}

// doubledCronJobs judges two cronjob controllers over the same objects by how they name jobs, and by whether the legacy
// one can still read a CronJob of which the modern one has written the status.
func doubledCronJobs(p *plan.Plan) []finding.Finding {
	d := doubled{[]string{"cronjob-controller"}, "cronjobs", "each creates a job for every schedule, of another name",
		finding.Error}
	byMinute := kubever.BehaviourCronJobMinuteNames
	row := p.Resource(d.key)
	switch {
	case row != nil && row.Poisons(pair.Modern, row.Modern.StoredAs):
		d.does = fmt.Sprintf("the modern one stores what it writes of their status as %s, and the legacy side can "+
			"list none of them any more", row.Modern.StoredAs)
	case kubever.Behaves(byMinute, p.Legacy.Version.Minor) == kubever.Behaves(byMinute, p.Modern.Version.Minor):
		d.does, d.severity = "both give the job of a schedule one name, so that it runs once, and write each other's "+
			"status", finding.Warning
	}
	return d.check(p)
}

// check compares the sides by what a controller does, since its name has changed where one was split in two.
func (d doubled) check(p *plan.Plan) []finding.Finding {
	running := func(side pair.Side) *plan.Controller {
		for _, id := range d.controllers {
			if c := p.Controller(side, id); c != nil && c.On {
				return c
			}
		}
		return nil
	}
	legacy, modern := running(pair.Legacy), running(pair.Modern)
	row := p.Resource(d.key)
	if legacy == nil || modern == nil || row == nil || !row.VisibleToBoth() {
		return nil
	}
	return []finding.Finding{{Subject: modern.Name, Severity: d.severity, Key: d.controllers[0],
		Message: fmt.Sprintf("runs on both sides over the same %s: %s", row.Name, d.does), Fix: leaveControllers}}
}

// doubles are the controllers that must not run on both sides over the same objects.
var doubles = []doubled{
	{[]string{"replicaset-controller"}, "replicasets", doublePods, finding.Error},
	{[]string{"replicationcontroller-controller"}, "controllers", doublePods, finding.Error},
	{[]string{"daemonset-controller"}, "daemonsets", doublePods, finding.Error},
	{[]string{"statefulset-controller"}, "statefulsets", doublePods, finding.Error},
	{[]string{"job-controller"}, "jobs", doublePods, finding.Error},
	{[]string{"deployment-controller"}, "deployments", "both create and scale ReplicaSets", finding.Error},
	{[]string{"node-lifecycle-controller", "node-controller"}, "minions",
		"both set their conditions and evict their pods, by different rules", finding.Error},
	{[]string{"node-ipam-controller", "node-controller"}, "minions",
		"both allocate pod CIDRs, and neither sees the other's allocations", finding.Error},
	{[]string{"persistentvolume-binder-controller"}, "persistentvolumes", "both bind, provision and delete them",
		finding.Error},
	{[]string{"persistentvolume-attach-detach-controller"}, "minions", "both attach and detach their volumes",
		finding.Error},
	{[]string{"persistentvolume-expander-controller"}, "persistentvolumeclaims", "both resize their volumes",
		finding.Warning},
	{[]string{"endpoints-controller"}, endpointsKey, "each writes them in the format of its version", finding.Warning},
	{[]string{"endpointslice-controller"}, "endpointslices", "each creates slices for all services", finding.Error},
	{[]string{"horizontal-pod-autoscaler-controller"}, "horizontalpodautoscalers", "both scale their targets",
		finding.Error},
}

const doublePods = "both create and delete their pods"

func doubledControllers(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, d := range doubles {
		found = append(found, d.check(p)...)
	}
	return found
}

const (
	tokenController = "serviceaccount-token-controller"
	ownRange        = "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]"
)

// tokenControllers judges two of them; one that has no key to sign with does not start.
func tokenControllers(p *plan.Plan) []finding.Finding {
	modernKey, _ := sideArg(p, pair.Modern, kubever.ControllerManager, "service-account-private-key-file")
	if !runs(p, pair.Legacy, tokenController) || !runs(p, pair.Modern, tokenController) || modernKey == "" ||
		!visible(p, "secrets") {
		return nil
	}
	const flag = "root-ca-file"
	theirs, known := sideFile(p, pair.Legacy, kubever.ControllerManager, flag)
	ours, _ := sideFile(p, pair.Modern, kubever.ControllerManager, flag)
	f := finding.Finding{Subject: "modern " + p.Controller(pair.Modern, tokenController).Name, Fix: leaveControllers}
	switch {
	case known && theirs != "" && ours != "" && theirs != ours:
		f.Message = fmt.Sprintf("--%s is %s on the modern side and %s on the legacy side: unless the files are equal "+
			"each rewrites the token secrets of the other, without end", flag, ours, theirs)
	case kubever.Behaves(kubever.BehaviourTokenSecretsCreated, p.Legacy.Version.Minor) &&
		kubever.Behaves(kubever.BehaviourTokenSecretsCreated, p.Modern.Version.Minor):
		f.Severity = finding.Warning
		f.Message = "both sides create a token secret for every new service account: it may get two"
	default:
		return nil
	}
	return []finding.Finding{f}
}

// countedKeys are what quotas count without being told by name.
var countedKeys = []string{"configmaps", "controllers", "persistentvolumeclaims", "pods", "secrets", "services/specs"}

func quotaControllers(p *plan.Plan) []finding.Finding {
	const id = "resourcequota-controller"
	if !runs(p, pair.Legacy, id) || !runs(p, pair.Modern, id) || !visible(p, "resourcequotas") {
		return nil
	}
	var apart []string
	for _, key := range countedKeys {
		if apartOnBoth(p, key) {
			apart = append(apart, p.Resource(key).Name)
		}
	}
	if len(apart) == 0 {
		return nil
	}
	return []finding.Finding{{Subject: "modern " + p.Controller(pair.Modern, id).Name,
		Message: fmt.Sprintf("both sides count into the same quotas, and each sees only its own %s: the usage flaps",
			strings.Join(apart, ", ")), Fix: leaveControllers, Related: apart}}
}

func namespacesApart(p *plan.Plan) []finding.Finding {
	if !apartOnBoth(p, "namespaces") {
		return nil
	}
	var shared []string
	for i := range p.Resources {
		if r := &p.Resources[i]; r.Namespaced && !r.Pseudo && r.VisibleToBoth() {
			shared = append(shared, r.Name)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	f := finding.Finding{Subject: "namespaces", Severity: finding.Warning, Related: shared,
		Fix: "share namespaces: remove them from spec.owners",
		Message: fmt.Sprintf("each side has its own, and %d resources in them are shared: an object that is created "+
			"through one side may be in a namespace that the other does not have, and deleting a namespace on the "+
			"legacy side deletes the modern side's objects in the namespace of that name", len(shared))}
	if runs(p, pair.Modern, "namespace-controller") {
		f.Severity = finding.Error
		f.Message = fmt.Sprintf("each side has its own, and %d resources in them are shared: deleting a namespace on "+
			"the modern side deletes the legacy side's objects in the namespace of that name", len(shared))
	}
	return []finding.Finding{f}
}

func trackedJobs(p *plan.Plan) []finding.Finding {
	jobs := p.Resource("jobs")
	if !kubever.Behaves(kubever.BehaviourJobTrackingFinalizer, p.Modern.Version.Minor) || jobs == nil ||
		jobs.VisibleToBoth() || jobs.Modern.Store == "" ||
		runs(p, pair.Modern, "job-controller") || !userWrites(p, jobs) {
		return nil
	}
	return []finding.Finding{{Subject: "jobs", Message: "the policy lets users create Jobs on the modern side, which " +
		"runs no job controller: they get no pods, and existing pods with the tracking finalizer terminate for ever",
		Fix: "run the modern controller manager: spec.modern.controllerManager: {}"}}
}

func daemonSets(p *plan.Plan) []finding.Finding {
	row := p.Resource("daemonsets")
	c := p.Controller(pair.Modern, "daemonset-controller")
	if row == nil || row.VisibleToBoth() || row.Modern.Store == "" || c == nil || !userWrites(p, row) {
		return nil
	}
	if !kubever.Behaves(kubever.BehaviourDaemonPodsByAffinity, p.Modern.Version.Minor) ||
		kubever.Behaves(kubever.BehaviourDaemonPodsByAffinity, p.Legacy.Version.Minor) {
		return nil
	}
	f := finding.Finding{Subject: "daemonsets", Message: "the policy lets users create them through the modern API " +
		"server, where no controller acts on them",
		Fix: "let admission bind their pods: spec.pods: {}; or create DaemonSets through the legacy API server, and " +
			"leave daemonsets out of spec.access"}
	if c.On && p.Pods != nil && p.Pods.PlacesDaemonPods {
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("admission binds their pods, but not in %s and where it is turned off: there the "+
			"scheduler of %s finds no node for them, and they stay pending", metav1.NamespaceSystem,
			p.Legacy.Version.Minor)
		f.Fix = "create those DaemonSets through the legacy API server"
		return []finding.Finding{f}
	}
	if c.On {
		f.Severity = finding.Error
		f.Message = fmt.Sprintf("the modern side's controller pins their pods by a field that %s drops: its "+
			"scheduler finds no node for them", p.Legacy.Version.Minor)
		f.Fix = leaveControllers
	}
	return []finding.Finding{f}
}

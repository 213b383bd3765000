package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// New computes the plan of a spec that spec.Load has returned, for where its components are to run. It is pure: the
// same spec gives the same plan. Each step takes what steps before it have returned, and changes none of it. Errors:
// what cannot be planned at all, with the field of the spec; dangers are no errors here but findings of pkg/rules.
func New(f *spec.File, target Target) (*Plan, error) {
	if err := plannable(f, target); err != nil {
		return nil, err
	}
	places, err := newPlacement(f)
	if err != nil {
		return nil, err
	}
	rows, err := places.place()
	if err != nil {
		return nil, err
	}
	controllers, err := places.decideControllers(rows)
	if err != nil {
		return nil, err
	}
	b := &basis{placement: places, target: target, stores: storesOf(f, target), rows: rows, controllers: controllers}
	held := b.legacyLocks()
	elected, err := b.elect(held)
	if err != nil {
		return nil, err
	}
	pods, err := b.podsOf()
	if err != nil {
		return nil, err
	}
	served := pods
	if b.retired() {
		pods = nil // they find the modern side as the only one
	}
	duties := b.duties(pods)
	runs, err := b.parts(elected, duties, pods, served)
	if err != nil {
		return nil, err
	}
	if err := b.checkCopied(runs.components); err != nil {
		return nil, err
	}
	s := &f.Spec
	var modernKubelet *kubever.Version
	if k := s.Kubelet.Modern; k != nil {
		modernKubelet = &k.Version
	}
	programs := s.Programs
	if target == Hosted { // of which no host is asked for anything
		programs = nil
	}
	p := &Plan{
		Target: target, Name: f.Metadata.Name, Layout: s.Layout, Hosts: s.Hosts, Kubelet: s.Kubelet.Version,
		ModernKubelet: modernKubelet, Nodes: b.nodes(), Network: s.Network,
		PKI: s.PKI, Prefix: s.Stores[0].Prefix, Stores: b.stores,
		Legacy: b.sideAsAWhole(pair.Legacy, held), Modern: b.sideAsAWhole(pair.Modern, elected.locks),
		Resources: rows, CustomResources: b.customResources(), Controllers: b.controllers, StartupWrites: b.bootKeys(),
		Components: runs.components, Kubeconfigs: runs.kubeconfigs, Certificates: runs.certificates,
		Joint: b.joint(duties, runs.components, pods), Pods: pods, Policy: b.access(elected.locks, duties),
		PolicyFile: b.policyFile(), AuditPolicyFile: rendersAuditPolicy(runs.components), Accept: s.Accept,
		Gateway:  b.gateway(runs.components),
		Programs: programs,
		TokenKey: b.tokenKey(), Kubelets: b.kubeletAccess(runs.components, runs.certificates),
		Unprovided: b.unprovided(runs),
	}
	for _, side := range pair.Sides() {
		p.Side(side).Facts.Allocates = p.allocates(side)
	}
	return p, nil
}

// parts are what runs, and the files that it needs.
type parts struct {
	components   []Component
	kubeconfigs  []Kubeconfig
	certificates []Certificate
}

// parts are those of every host, or of a cluster. Served are the pods that find the modern API server by its service.
func (b *basis) parts(elected election, joint *duties, pods, served *Pods) (parts, error) {
	var all parts
	for _, host := range b.file.Spec.Hosts {
		configs := b.kubeconfigs(host, joint, pods)
		components, err := b.components(host, elected, joint, pods, configs)
		if err != nil {
			return parts{}, err
		}
		all.kubeconfigs = append(all.kubeconfigs, configs...)
		all.certificates = append(all.certificates, b.certificates(host, pods, served, configs, components)...)
		all.components = append(all.components, components...)
	}
	return all, nil
}

// computed are arguments that the plan alone decides: resources, stores and owners of the spec say what they say.
var computed = map[string]string{
	"etcd-servers":           "spec.modern.store names the store",
	"etcd-servers-overrides": "spec.owners sets the owners",
	"etcd-prefix":            "spec.stores[].prefix is the same for both sides",
	"etcd-cafile":            "spec.stores[].tls names the file",
	"etcd-certfile":          "spec.stores[].tls names the file",
	"etcd-keyfile":           "spec.stores[].tls names the file",
	// The policy is what keeps the modern API server from writing what the legacy one owns.
	"authorization-policy-file": "spec.access sets what the policy allows",
	"authorization-config":      "spec.access sets what the policy allows",
}

// plannable refuses what no plan can honour.
func plannable(f *spec.File, target Target) error {
	var problems []error
	s := &f.Spec
	for i, arg := range s.Modern.APIServer.ExtraArgs {
		if instead, ok := computed[kubever.FlagName(arg.Name)]; ok {
			problems = append(problems, f.Errorf(fmt.Sprintf("spec.modern.apiServer.extraArgs[%d]", i),
				"%q follows from the spec, and must be left out: %s", arg.Name, instead))
		}
	}
	if s.Legacy.Retired && target == Hosted {
		problems = append(problems, f.Errorf("spec.legacy.retired", "true: a control plane that runs as pods of a "+
			"cluster cannot be planned without its legacy side"))
	}
	if s.Modern.Scheduler != nil && !s.Legacy.Retired {
		problems = append(problems, f.Errorf("spec.modern.scheduler", "must be left out: the legacy side's scheduler "+
			"binds the pods of both sides; a second one would bind the same pods"))
	}
	if s.Kubelet.Modern != nil && !slices.Contains(kubever.AuthorizationModes(s.Modern.Version.Minor), "Node") {
		problems = append(problems, f.Errorf("spec.kubelet.modern", "must be left out: %s has no authorizer for "+
			"kubelets",
			s.Modern.Version.Minor))
	}
	ranges := s.Network.ModernServiceCIDRs
	at := "spec.network.modernServiceCIDRs"
	if len(ranges) == 0 {
		ranges, at = s.Network.ServiceCIDRs, "spec.network.serviceCIDRs"
	}
	problems = append(problems, rangesTaken(f, "spec.network.serviceCIDRs", s.Network.ServiceCIDRs, &s.Legacy),
		rangesTaken(f, at, ranges, &s.Modern))
	return errors.Join(problems...)
}

// largestBitmap is how many bits of an address may follow the mask of a service range whose allocations are noted in a
// bitmap.
const largestBitmap = 20

// rangesTaken reports service ranges with which the API server of the side does not start.
func rangesTaken(f *spec.File, at string, ranges []string, side *spec.Side) error {
	m := side.Version.Minor
	gates, _ := lastValue(side.APIServer.ExtraArgs, "feature-gates")
	if len(ranges) > 1 && !kubever.Behaves(kubever.BehaviourDualStackServices, m) &&
		!slices.Contains(splitList(gates), "IPv6DualStack=true") {
		if _, known := kubever.Gate("IPv6DualStack").At(m); known {
			return f.Errorf(at, "the API server of %s takes a second range with the gate IPv6DualStack=true only; "+
				"name it in its extraArgs, or leave one range", m)
		}
		return f.Errorf(at, "the API server of %s takes one range; want one", m)
	}
	if !kubever.AllocatorsIn(m).With(gates).Bitmap {
		return nil
	}
	for i, text := range ranges {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().BitLen()-prefix.Bits() > largestBitmap {
			return f.Errorf(fmt.Sprintf("%s[%d]", at, i), "%q: is too large for %s; want a mask of at least /%d", text,
				m, prefix.Addr().BitLen()-largestBitmap)
		}
	}
	return nil
}

func newPlacement(f *spec.File) (*placement, error) {
	moved, err := movedByLegacy(f)
	if err != nil {
		return nil, err
	}
	return &placement{
		file: f, legacy: f.Spec.Legacy.Version.Minor, modern: f.Spec.Modern.Version.Minor,
		legacyStore: f.Spec.Legacy.Store, modernStore: f.Spec.Modern.Store,
		moved: moved, poison: preventable(f),
	}, nil
}

// movedByLegacy reads the overrides that the legacy API server has already: keys that it keeps in another store than
// its default.
func movedByLegacy(f *spec.File) (map[string]string, error) {
	args := f.Spec.Legacy.APIServer.ExtraArgs
	i := lastIndex(args, "etcd-servers-overrides")
	if i < 0 {
		return nil, nil
	}
	at := fmt.Sprintf("spec.legacy.apiServer.extraArgs[%d].value", i)
	moved := map[string]string{}
	minor := f.Spec.Legacy.Version.Minor
	for _, entry := range splitList(args[i].Value) {
		name, servers, found := strings.Cut(entry, "#")
		group, resource, slash := strings.Cut(name, "/")
		if !found || !slash {
			return nil, f.Errorf(at, "--etcd-servers-overrides: %q: want GROUP/RESOURCE#URL;URL", entry)
		}
		store := storeWith(f.Spec.Stores, strings.Split(servers, ";"))
		if store == "" {
			return nil, f.Errorf(at, "--etcd-servers-overrides: %q: no store of spec.stores has the endpoints %q; "+
				"add one", entry, servers)
		}
		for _, fact := range kubever.Resources() {
			if !fact.In(minor) || !fact.Overridable() || fact.ChosenGroup(minor) != group {
				continue
			}
			if resource == "*" || resource == fact.OverrideName() {
				moved[fact.Key] = store
			}
		}
	}
	return moved, nil
}

// storeWith names the store that has one of the endpoints.
func storeWith(stores []spec.Store, endpoints []string) string {
	for _, s := range stores {
		for _, endpoint := range endpoints {
			if slices.ContainsFunc(s.Endpoints, func(e string) bool { return sameEndpoint(e, endpoint) }) {
				return s.Name
			}
		}
	}
	return ""
}

func sameEndpoint(a, b string) bool {
	x, errX := url.Parse(strings.TrimRight(strings.TrimSpace(a), "/"))
	y, errY := url.Parse(strings.TrimRight(strings.TrimSpace(b), "/"))
	return errX == nil && errY == nil && x.Scheme == y.Scheme && x.Host == y.Host
}

// preventable are the writes of the modern API server's start that would make the lists of the legacy side fail and
// that one of its flags turns off. A plan is made with them turned off, so this is decided before there are rows; what
// poisons in spite of that is what rules report (pair.Resource.Poisons).
func preventable(f *spec.File) []kubever.StartupWrite {
	legacy, modern := f.Spec.Legacy.Version.Minor, f.Spec.Modern.Version.Minor
	if f.Spec.Legacy.Store != f.Spec.Modern.Store {
		return nil // what cannot be shared is not: its location is decided row by row
	}
	var poison []kubever.StartupWrite
	for _, w := range kubever.StartupWrites(modern) {
		fact, ok := kubever.ResourceByKey(w.Resource)
		if !ok || w.OnlyWithRBAC || w.OffFlag == "" || w.OffFlag == reconcilerFlag || !fact.In(legacy) {
			continue
		}
		if stored, ok := fact.StoredAs(modern); ok && !kubever.CanDecode(stored, legacy) {
			poison = append(poison, w)
		}
	}
	return poison
}

// customResources is where the custom resources of either side lie: in its default store, in every version.
func (p *placement) customResources() pair.Resource {
	r := pair.Resource{Key: "*", Name: "custom resources", Owner: pair.OwnerModern,
		Modern: pair.View{Store: p.modernStore}}
	if kubever.Behaves(kubever.BehaviourCRDServed, p.legacy) {
		r.Legacy.Store = p.legacyStore
		r.Owner = pair.OwnerSplit
		if p.legacyStore == p.modernStore {
			r.Owner = pair.OwnerShared
		}
	}
	return r
}

// legacyLocks are what the components of the legacy side elect on.
func (b *basis) legacyLocks() []pair.Lock {
	s := &b.file.Spec.Legacy
	var held []pair.Lock
	if s.Retired {
		return held
	}
	for _, of := range []struct {
		kind string
		c    *spec.Component
	}{{kubever.ControllerManager, s.ControllerManager}, {kubever.Scheduler, s.Scheduler}} {
		var args []spec.Arg
		if of.c != nil {
			args = of.c.ExtraArgs
		}
		held = append(held, runningElection(pair.Legacy, of.kind, b.legacy, args).locks...)
	}
	return held
}

// elect decides on what the modern controller manager and scheduler elect, beside what the legacy side holds.
func (b *basis) elect(held []pair.Lock) (election, error) {
	e, err := b.electManager(held)
	if s := b.file.Spec.Modern.Scheduler; err == nil && s != nil {
		e.locks = slices.Concat(e.locks, runningElection(pair.Modern, kubever.Scheduler, b.modern, s.ExtraArgs).locks)
	}
	return e, err
}

func (b *basis) electManager(held []pair.Lock) (election, error) {
	manager := b.file.Spec.Modern.ControllerManager
	if manager == nil {
		return election{}, nil
	}
	if electsByItself(manager.ExtraArgs) {
		return runningElection(pair.Modern, kubever.ControllerManager, b.modern, manager.ExtraArgs), nil
	}
	e, found := distinctElection(kubever.ControllerManager, b.modern, held, b.rows)
	if !found {
		return election{}, b.file.Errorf("spec.modern.version", "the lock of the %s of %s can neither be renamed nor "+
			"moved away from the legacy side's", kubever.ControllerManager, b.modern)
	}
	return e, nil
}

// electsByItself reports whether the spec's arguments decide about the election.
func electsByItself(args []spec.Arg) bool {
	return slices.ContainsFunc(args, func(a spec.Arg) bool {
		return strings.HasPrefix(kubever.FlagName(a.Name), "leader-elect-resource") ||
			kubever.FlagName(a.Name) == "leader-elect" && a.Value == "false"
	})
}

// sideAsAWhole is what the plan says about a side that elects on the locks.
func (b *basis) sideAsAWhole(name pair.Side, locks []pair.Lock) Side {
	s, m := b.side(name), b.minor(name)
	side := Side{Name: name, Version: s.Version, Store: s.Store, Existing: s.Existing, Retired: s.Retired,
		Port:  s.APIServer.Port,
		Locks: append([]pair.Lock{}, locks...)}
	side.Facts = pair.ControlPlane{
		Version: s.Version.String(), Store: s.Store, GroupVersions: groupVersions(b.rows, name, m),
		Collector: b.collector(name), CRDFields: kubever.CRDFields(m),
		Undecryptable: undecryptable(m),
	}
	if name == pair.Modern {
		side.Facts.ServiceCIDRs = b.file.Spec.Network.ModernServiceCIDRs
	}
	return side
}

// groupVersions are all that a side serves, as its discovery shows them: also those of kinds that are never stored,
// such as token reviews.
func groupVersions(rows []Resource, side pair.Side, m kubever.Minor) []string {
	var gvs []string
	for _, a := range kubever.APIResources(m) {
		if a.DefaultOn.Has(m) {
			gvs = append(gvs, a.GroupVersion.String())
		}
	}
	for i := range rows {
		gvs = append(gvs, rows[i].View(side).Serves...)
	}
	slices.Sort(gvs)
	gvs = slices.Compact(gvs)
	slices.SortFunc(gvs, func(a, b string) int {
		return cmp.Or(cmp.Compare(groupOfVersion(a), groupOfVersion(b)), cmp.Compare(a, b))
	})
	return gvs
}

// groupOfVersion is the group of an apiVersion, "" for the core group's.
func groupOfVersion(apiVersion string) string {
	if group, _, grouped := strings.Cut(apiVersion, "/"); grouped {
		return group
	}
	return ""
}

func (b *basis) collector(name pair.Side) gc.Collector {
	c := kubever.GarbageCollectorIn(b.minor(name))
	if controller := controllerOf(b.controllers, name, garbageCollector); controller != nil {
		c.Runs = controller.On
	}
	return c
}

// Allocators is how the API servers of a side allocate ClusterIPs, as they are started: they write the bitmap when
// every one of them does.
func (p *Plan) Allocators(side pair.Side) kubever.Allocators {
	a := kubever.AllocatorsIn(p.Side(side).Version.Minor)
	if writes, leaves := p.BitmapWriters(side); len(writes)+len(leaves) > 0 {
		a.Bitmap = len(leaves) == 0
	}
	return a
}

// BitmapWriters are the hosts whose API servers of a side write the bitmap of ClusterIPs, and those whose leave it
// alone: existing ones may be started with other gates on one host.
func (p *Plan) BitmapWriters(side pair.Side) (writes, leaves []string) {
	for _, c := range p.ComponentsOf(side, kubever.APIServer) {
		gates, _ := c.Arg("feature-gates")
		if kubever.AllocatorsIn(p.Side(side).Version.Minor).With(gates).Bitmap {
			writes = append(writes, c.Host)
		} else {
			leaves = append(leaves, c.Host)
		}
	}
	return writes, leaves
}

func (p *Plan) allocates(side pair.Side) string {
	a := p.Allocators(side)
	switch {
	case a.Bitmap && a.Objects:
		return pair.AllocatesBoth
	case a.Objects:
		return pair.AllocatesAddresses
	default:
		return pair.AllocatesBitmap
	}
}

func undecryptable(m kubever.Minor) string {
	if kubever.Behaves(kubever.BehaviourUndecryptableItemsOmitted, m) {
		return pair.UndecryptableOmitted
	}
	return pair.UndecryptableFails
}

// bootKeys are what the API servers of both sides write by themselves.
func (b *basis) bootKeys() []pair.BootKey {
	var keys []pair.BootKey
	for _, side := range b.runningSides() {
		for _, w := range kubever.StartupWrites(b.minor(side)) {
			fact, _ := kubever.ResourceByKey(w.Resource)
			if row := rowOf(b.rows, w.Resource); row == nil || row.View(side).Store == "" ||
				w.OnlyWithRBAC && side == pair.Modern && !b.retired() {
				continue // this server does not write it here
			}
			stored, _ := fact.StoredAs(b.minor(side))
			for _, key := range w.Keys {
				keys = append(keys, pair.BootKey{Side: side, Key: key, StoredAs: stored.GroupVersion().String()})
			}
		}
	}
	return keys
}

package transition

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Validate checks what New keeps to by itself, of a transition that was read from a file: hosts are those of a spec,
// paths are absolute and clean, and the title of a step that changes something says what is changed. The first step
// that does not is the error.
func (t *Transition) Validate() error {
	hosts, ids := map[string]bool{}, map[string]bool{}
	for _, h := range t.Hosts {
		address, err := netip.ParseAddr(h.Address)
		if err != nil || address.Zone() != "" || !spec.IsNodeName(h.Name) || hosts[h.Name] { // a zone may be any text
			return fmt.Errorf("host %q, %q: want a DNS label, once, and an IP address", h.Name, h.Address)
		}
		hosts[h.Name] = true
	}
	watched := map[string]bool{}
	if w := t.Watch; w != nil {
		if !hosts[w.Host] || !strings.HasPrefix(w.Prefix, "/") {
			return fmt.Errorf("the stores are reached from %q, with the prefix %q: want one of the hosts, and a path",
				w.Host, w.Prefix)
		}
		for _, store := range w.Stores {
			watched[store.Name] = true
		}
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		err := s.validate()
		switch {
		case s.ID == "" || strings.Trim(s.ID, "0123456789") != "" || ids[s.ID]:
			err = errors.New("want a number, once")
		case !hosts[s.Host]:
			err = fmt.Errorf("%q is none of the hosts", s.Host)
		case slices.ContainsFunc(s.Stores, func(name string) bool { return !watched[name] }):
			err = fmt.Errorf("%q are not all among the stores that are looked at", s.Stores)
		}
		if err != nil {
			return fmt.Errorf("step %q, %q: %w", s.ID, s.Title, err)
		}
		ids[s.ID] = true
	}
	return nil
}

// back are the kinds that may be the inverse of one.
var back = map[Kind][]Kind{PutFile: {PutFile, RemoveFile}, RemoveFile: {PutFile}, StartUnit: {StopUnit},
	StopUnit: {StartUnit}, PutProgram: {RemoveProgram},
	ChangeKubelet: {ChangeKubelet, RestoreKubelet}, RestoreKubelet: {ChangeKubelet},
	HandOver: {HandBack}, CopyRoles: {RemoveRoles, CopyRoles}, RemoveRoles: {CopyRoles}, RaiseStore: {LowerStore},
	LowerStore: {RaiseStore}, ClearEndpoints: {ClearEndpoints}, AddRanges: {RemoveRanges}, AddMember: {RemoveMember},
	MoveKeys:      {MoveKeys},
	PromoteMember: {RemoveMember}, RemoveMember: {AddMember, PromoteMember}, RestoreMember: {PutBackMember}}

// aboutNodes are the checks that are about a node.
var aboutNodes = []CheckKind{NodeRights, NodeReady, NodePods, Budgets}

func (s *Step) validate() error {
	for _, a := range []*Action{s.Do, s.Undo} {
		if a == nil {
			continue
		}
		if err := a.validate(); err != nil {
			return err
		}
	}
	if s.Do != nil && s.Do.changes() != "" && s.Title != s.Do.changes() {
		return fmt.Errorf("what it does is %q", s.Do.changes())
	}
	switch {
	case s.Undo == nil || s.Undo.changes() == "":
	case slices.Contains([]Kind{Release, RewriteObjects, SetDataAside}, s.Undo.Kind): // there is nothing of it before
		if s.Do != nil || s.Title != s.Undo.changes() {
			return fmt.Errorf("what it takes back is %q, alone", s.Undo.changes())
		}
	case s.Do == nil || !slices.Contains(back[s.Do.Kind], s.Undo.Kind) || s.Undo.object() != s.Do.object():
		return fmt.Errorf("%q is not its inverse", s.Undo.changes())
	}
	return nil
}

// object is the file, the unit or the record of objects that an action changes.
func (a *Action) object() string {
	switch {
	case a.File != nil:
		return a.File.Path
	case a.Objects != nil:
		return a.Objects.Record
	case a.Roles != nil:
		return a.Roles.names()
	case a.Moving != nil:
		return a.Moving.names()
	case a.Members != nil:
		return a.Members.Store.Name
	case a.Masters != nil:
		return a.Masters.Endpoints.Name
	case a.Program != nil:
		return a.Program.Path
	case a.Joining != nil:
		return a.Joining.Store.Name + "/" + a.Joining.Name
	case a.Ranges != nil:
		return strings.Join(a.Ranges.CIDRs, ",")
	case a.Member != nil:
		return a.Member.Store + "/" + a.Member.Name + " " + a.Member.ID
	}
	return a.Unit
}

// changes says what an action changes, as New writes it into titles; "" for what changes nothing by itself.
func (a *Action) changes() string {
	switch a.Kind {
	case PutFile:
		return "put " + a.File.Path
	case RemoveFile:
		return "remove " + a.File.Path
	case PutProgram:
		return "put program " + a.Program.Path
	case RemoveProgram:
		return "remove program " + a.Program.Path
	case StartUnit:
		return "start " + strings.TrimSuffix(a.Unit, ".service")
	case StopUnit:
		return "stop " + strings.TrimSuffix(a.Unit, ".service")
	case Snapshot:
		return "snapshot store " + a.Store.Name
	case Release:
		return "take out what the controllers of both sides leave behind"
	case ChangeKubelet:
		return "change the kubelet of " + a.Node.Name + ", to " + a.Node.To.String() + " at the modern API server"
	case RestoreKubelet:
		return "restore the kubelet of " + a.Node.Name + ", to " + a.Node.To.String() + " at the legacy API server"
	case CopyRoles:
		if a.Roles.InPlaceOf != nil {
			return "bring " + a.Roles.names() + " of the modern side in line with its policy"
		}
		return "copy " + a.Roles.names() + " to the modern side"
	case RemoveRoles:
		return "remove the copies of " + a.Roles.names() + " from the modern side"
	case RewriteObjects:
		return a.Rewrite.changes()
	case MoveKeys:
		return a.Moving.changes()
	case SettleMember:
		return "let the log of a member of store " + a.Members.Store.Name + " leave requests of version 2 behind"
	case RaiseStore, LowerStore:
		return "let the members of store " + a.Members.Store.Name + " agree on " + a.Members.Cluster
	case AddMember:
		return "add " + a.Joining.Name + " to store " + a.Joining.Store.Name + " as a learner"
	case PromoteMember:
		return "let " + a.Joining.Name + " vote in store " + a.Joining.Store.Name
	case RemoveMember:
		return "remove " + a.Joining.Name + " from store " + a.Joining.Store.Name
	case SetDataAside:
		return "set the data of " + a.Joining.Name + " aside"
	case RestoreMember:
		return "restore " + a.Member.Name + " of store " + a.Member.Store + " from backup " + a.Member.Backup
	case PutBackMember:
		return "put " + a.Member.Name + " of store " + a.Member.Store + " back to what it had"
	case ClearEndpoints:
		return "clear the endpoints of the service kubernetes"
	case AddRanges:
		return "add " + strings.Join(a.Ranges.CIDRs, ", ") + " to the ranges of the modern allocator"
	case RemoveRanges:
		return "take " + strings.Join(a.Ranges.CIDRs, ", ") + " from the ranges of the modern allocator"
	case HandOver, HandBack:
		side := pair.Modern
		if a.Kind == HandBack {
			side = pair.Legacy
		}
		switch names := a.Objects.what(); {
		case a.Objects.Plan.Copy:
			return fmt.Sprintf("copy %s to the %s side", names, side)
		case a.Objects.Plan.Kept:
			return "remove the copies of " + names + " from the modern side"
		case a.Kind == HandOver:
			return "hand " + names + " over to the modern side"
		default:
			return "hand " + names + " back to the legacy side"
		}
	}
	return ""
}

// unitDirectory is where units of plans are.
const unitDirectory = "/etc/systemd/system/"

func (a *Action) validateUnit() error {
	if name, ok := strings.CutSuffix(a.Unit, ".service"); !ok || !spec.IsLabel(name) {
		return fmt.Errorf("unit %q: want a DNS label and .service", a.Unit)
	}
	return nil
}

// Validate checks of one action what Transition.Validate checks of all: that it is one which New writes for a host.
func (a *Action) Validate() error { return a.validate() }

func (a *Action) validate() error {
	switch a.Kind {
	case PutFile, RemoveFile:
		if a.File == nil {
			return errors.New("has no file")
		}
	case ChangeKubelet, RestoreKubelet:
		dir := "/etc/systemd/system/" + a.Unit + ".d"
		switch {
		case a.File == nil || a.Node == nil || path.Dir(a.File.Path) != dir:
			return fmt.Errorf("want a file in %s, and a node", dir)
		case !spec.IsNodeName(a.Node.Name) || !spec.IsLabel(a.Node.Record):
			return fmt.Errorf("node %q, record %q: want the name of one, and a DNS label", a.Node.Name, a.Node.Record)
		}
		if err := a.validateUnit(); err != nil {
			return err
		}
	case StartUnit, StopUnit:
		if err := a.validateUnit(); err != nil {
			return err
		}
	case PutProgram, RemoveProgram:
		if err := a.Program.validate(); err != nil {
			return err
		}
	case Snapshot:
		if a.Store == nil || !spec.IsLabel(a.Store.Name) {
			return errors.New("has no store with a DNS label as its name")
		}
	case Release:
		if a.Marks == nil {
			return errors.New("names nothing to release")
		}
	case HandOver, HandBack:
		if err := a.Objects.validate(); err != nil {
			return err
		}
		if a.Objects.Plan.Back != (a.Kind == HandBack) {
			return errors.New("goes in the other direction")
		}
	case CopyRoles, RemoveRoles:
		if err := a.Roles.validate(); err != nil {
			return err
		}
	case RewriteObjects:
		if err := a.Rewrite.validate(); err != nil {
			return err
		}
	case MoveKeys:
		if err := a.Moving.validate(); err != nil {
			return err
		}
	case SettleMember:
		if err := a.Members.validate(); err != nil {
			return err
		}
		if m := a.Members.Store.Managed; m == nil || !path.IsAbs(m.DataDir) || path.Clean(m.DataDir) != m.DataDir {
			return errors.New("want a store with an absolute and clean data directory")
		}
	case RaiseStore, LowerStore:
		if err := a.Members.validate(); err != nil {
			return err
		}
		if want := map[Kind]int{RaiseStore: 1, LowerStore: 0}[a.Kind]; a.Members.Cluster != a.Members.Minors[want] {
			return fmt.Errorf("leads to %q, of %q", a.Members.Cluster, a.Members.Minors)
		}
	case AddMember, PromoteMember, RemoveMember, SetDataAside:
		if err := a.Joining.validate(); err != nil {
			return err
		}
	case RestoreMember, PutBackMember:
		if err := a.Member.onHost(); err != nil {
			return err
		}
	case ClearEndpoints:
		if err := a.Masters.validate(); err != nil {
			return err
		}
	case AddRanges, RemoveRanges:
		if err := a.Ranges.validate(); err != nil {
			return err
		}
	case RunChecks, ByHand:
	default:
		return fmt.Errorf("action %q: not known", a.Kind)
	}
	if a.First != nil && (a.First.Kind != LowerStore || a.First.First != nil) { // nothing else that no title says
		return fmt.Errorf("does %q before it", a.First.Kind)
	} else if a.First != nil {
		if err := a.First.validate(); err != nil {
			return err
		}
	}
	for _, f := range []*File{a.File, a.Was} {
		if f != nil && (!path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" ||
			strings.ContainsRune(f.Path, 0) || f.Mode&^0o777 != 0) {
			return fmt.Errorf("file %q, mode %s: want an absolute and clean path, and permissions alone", f.Path,
				f.Mode)
		}
	}
	if a.Was != nil && a.Was.Path != a.File.Path {
		return fmt.Errorf("replaces %q", a.Was.Path)
	}
	for _, c := range slices.Concat(a.Before, a.After) {
		if c.Kind == Program && (a.Kind != ChangeKubelet || !path.IsAbs(c.Path) || path.Clean(c.Path) != c.Path) {
			return fmt.Errorf("check %q of %q: want an absolute path, before a kubelet is changed", c.Kind, c.Path)
		}
		noNode := slices.Contains(aboutNodes, c.Kind) && (c.Node == nil || !spec.IsNodeName(c.Node.Name)) ||
			c.Kind == NodePods && !spec.IsLabel(c.Node.Record) || c.Kind == Budgets && len(c.Asked) == 0
		noDigest := c.SHA256 != "" && (c.Kind != Executable || !spec.IsSHA256(c.SHA256))
		incomplete := noNode || noDigest || c.Kind == Certificate && c.Certificate == nil ||
			(c.Kind == Ready || c.Kind == Gone) && c.Probe == nil || c.Kind == StoresAgree && c.Map == nil ||
			c.Kind == MayRewrite && (c.Map == nil || c.Rewrite.validate() != nil) ||
			c.Kind == MayMove && c.Moving.validate() != nil ||
			c.Kind == NoKeys && (len(c.Stores) == 0 || len(c.Keys) == 0) ||
			(c.Kind == Settled || c.Kind == Released) && c.Marks == nil ||
			slices.Contains(aboutRoles, c.Kind) && c.Roles.validate() != nil ||
			(c.Kind == MembersAre || c.Kind == MayComeBack) && c.Members.validate() != nil ||
			(c.Kind == OneCluster || c.Kind == SameData) && len(c.Stores) == 0 ||
			c.Kind == Silent && len(c.Addresses) == 0 ||
			c.Kind == UnitOn && (&Action{Unit: strings.TrimPrefix(c.Path, unitDirectory)}).validateUnit() != nil ||
			c.Kind == NoData && (!path.IsAbs(c.Path) || path.Clean(c.Path) != c.Path) ||
			(c.Kind == Beats || c.Kind == NotNewer) && (c.Heartbeats == nil || c.Heartbeats.Nodes == "") ||
			c.Kind == NothingLeft && c.Left == nil || c.Kind == MastersAre && c.Masters.validate() != nil ||
			c.Kind == RangesAdded && c.Ranges.validate() != nil || c.Kind == Works && len(c.Asked) == 0 ||
			(c.Kind == MayGo || c.Kind == Adopted) && c.Objects.validate() != nil ||
			(c.Kind == MemberIs || c.Kind == BackupIs) && c.Member.onHost() != nil ||
			c.Kind == Defined && (c.Objects.validate() != nil || len(c.Asked) != 2)
		if c.Kind == FileIs && (!path.IsAbs(c.Path) || path.Clean(c.Path) != c.Path) || incomplete {
			return fmt.Errorf("check %q of %q: is incomplete", c.Kind, c.Path)
		}
	}
	return nil
}

// what is handed over, in words.
func (o *Objects) what() string {
	names := strings.Join(o.Names, ", ")
	switch {
	case o.Plan.Definitions != "":
		return "what " + names + " define"
	case o.Plan.Namespace != "":
		return names + " of namespace " + o.Plan.Namespace
	}
	return names
}

// hasRecord reports whether the record has the name of a file, one for each namespace.
func (o *Objects) hasRecord() bool {
	name, namespace, inOne := strings.Cut(o.Record, ".")
	return spec.IsLabel(name) && namespace == o.Plan.Namespace && (!inOne || spec.IsLabel(namespace))
}

// validate checks what a hand-over goes by.
func (o *Objects) validate() error {
	if o == nil || !o.hasRecord() || len(o.Names) == 0 || len(o.Plan.Resources) == 0 ||
		o.Plan.Prefix == "" || o.Plan.Pods == "" || o.From.Name == o.To.Name ||
		o.Pods != o.From.Name && o.Pods != o.To.Name {
		return errors.New("want objects with a record, names, resources, and two stores of which one has the pods")
	}
	if k := o.Known; k != nil && k.Directory != "" &&
		(!path.IsAbs(k.Directory) || path.Clean(k.Directory) != k.Directory) {
		return fmt.Errorf("the record of the hand-over is in %q: want an absolute and clean path", k.Directory)
	}
	if len(o.Names) != len(o.Plan.Resources) || o.Plan.Pods != "pods" {
		return fmt.Errorf("%q, with pods at %q: are not the names of what is handed over", o.Names, o.Plan.Pods)
	}
	if d := o.Plan.Definitions; d != "" && (len(o.Plan.Resources) != 1 || o.Plan.Resources[0].Key != d ||
		o.Definitions == o.Record || !spec.IsLabel(o.Definitions)) {
		return fmt.Errorf("%q, with the record %q: want definitions alone, and the record of these", d, o.Definitions)
	}
	for i, r := range o.Plan.Resources {
		fact, known := kubever.ResourceByKey(r.Key)
		if set, goes := kubever.HandOverOf(r.Key); !known || !goes || fact.Kind != r.Kind || r.StoredAs == "" ||
			o.Plan.Namespace != "" && !set.ByNamespace() {
			return fmt.Errorf("resource %q of kind %q: is none that is handed over", r.Key, r.Kind)
		}
		if fact.Name != o.Names[i] { // which titles have
			return fmt.Errorf("resource %q: its name is %q, not %q", r.Key, fact.Name, o.Names[i])
		}
	}
	return nil
}

package transition

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Joining is a member of a managed store that joins it, or leaves it.
type Joining struct {
	Store   plan.Store `json:"store"`   // with the endpoints of members that are there before and after
	Name    string     `json:"name"`    // as etcd has it
	PeerURL string     `json:"peerURL"` // by which it is known: one that has not started has no name
	DataDir string     `json:"dataDir"` // on its host
}

func (j *Joining) validate() error {
	switch {
	case j == nil || !spec.IsLabel(j.Store.Name) || len(j.Store.Endpoints) == 0 || !spec.IsNodeName(j.Name):
		return errors.New("want a store with endpoints, and the name of a member")
	case !path.IsAbs(j.DataDir) || path.Clean(j.DataDir) != j.DataDir || j.DataDir == "/" ||
		strings.ContainsRune(j.DataDir, 0):
		return fmt.Errorf("member %s: data directory %q: want an absolute and clean path", j.Name, j.DataDir)
	}
	u, err := url.Parse(j.PeerURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("member %s: peer URL %q: want one", j.Name, j.PeerURL)
	}
	return nil
}

// kept are the endpoints that a store has in both plans.
func kept(was, is *plan.Store) []string {
	return slices.DeleteFunc(slices.Clone(is.Endpoints), func(e string) bool {
		return !slices.Contains(was.Endpoints, e)
	})
}

// refuseMembers says why a store cannot have other endpoints; "" where it can.
func refuseMembers(was, is *plan.Store) string {
	stay := len(kept(was, is))
	if stay == len(was.Endpoints) && stay == len(is.Endpoints) {
		return "" // in another order
	}
	if stay == 0 {
		return fmt.Sprintf("store %q: no endpoint is in both plans, and nothing shows that it is the same store: add "+
			"some first, and remove the others in a transition of its own", was.Name)
	}
	if was.Managed == nil {
		return ""
	}
	if was.Managed.Version != is.Managed.Version {
		return fmt.Sprintf("store %q: other members, and etcd %s and %s: each is a transition of its own", was.Name,
			was.Managed.Version, is.Managed.Version)
	}
	minor, _ := kubever.ParseEtcd(is.Managed.Version)
	if server, _ := kubever.EtcdServerOf(minor); !server.Learners {
		return fmt.Sprintf("store %q: etcd %s: it is not known that its members join as learners: add and remove them "+
			"with etcdctl member, and set the endpoints in FROM", was.Name, is.Managed.Version)
	}
	return ""
}

// moving is a member that joins a store or leaves it, and how.
type moving struct {
	change
	Joining
	meanwhile *render.Part // as it starts first: with the members of that moment
}

// readMembers finds the stores of both plans that have other endpoints, and the members that join and leave them.
func (b *builder) readMembers() error {
	if b.from.Plan == nil || b.to.Plan == nil {
		return nil
	}
	for _, store := range b.to.Plan.Stores {
		was := b.whole.Plan.Store(store.Name)
		if was == nil || slices.Equal(was.Endpoints, store.Endpoints) {
			continue
		}
		by := b.to.Plan.Hosts[0].Name
		if store.Managed == nil {
			b.sameStore(by, store)
			continue
		}
		store.Endpoints = kept(was, &store)
		for i := range b.to.Plan.Components {
			c := &b.to.Plan.Components[i]
			if own, _ := c.Arg("advertise-client-urls"); isMember(c, &store) && own == store.Endpoints[0] {
				by = c.Host
			}
		}
		b.sameStore(by, store)
		b.readLost(store, by)
		if err := b.readMoving(store); err != nil {
			return err
		}
	}
	return nil
}

// readMoving finds the members of a store that join or leave it, in the order in which they do.
func (b *builder) readMoving(store plan.Store) error {
	add := func(c change, in Setup, members []string) error {
		own := c.component()
		m := moving{change: c, Joining: Joining{Store: store, DataDir: store.Managed.DataDir}}
		m.Name, _ = own.Arg("name")
		m.PeerURL, _ = own.Arg("initial-advertise-peer-urls")
		var err error
		if m.meanwhile, err = partWith(in, own, map[string]string{"initial-cluster-state": "existing",
			"initial-cluster": strings.Join(members, ",")}); err != nil {
			return err
		}
		b.moving = append(b.moving, m)
		return nil
	}
	members := membersOf(b.from.Plan, &store)
	var leave []change
	for _, c := range b.changed(etcd) {
		switch {
		case !isMember(c.component(), &store):
		case c.is == nil:
			leave = append(leave, c)
		case c.was == nil:
			members = append(members, asMember(c.is.Component))
			if err := add(c, b.to, slices.Clone(members)); err != nil {
				return err
			}
			b.alike = append(b.alike, withoutData(Prepare, c.is.Component.Host, store.Managed.DataDir))
		}
	}
	for i, c := range leave { // as each would come back: after those that leave later
		members := membersOf(b.to.Plan, &store)
		for _, later := range leave[i:] {
			members = append(members, asMember(later.was.Component))
		}
		if err := add(c, b.whole, members); err != nil {
			return err
		}
	}
	return nil
}

func isMember(c *plan.Component, store *plan.Store) bool { return etcd(c) && c.Store == store.Name }

// asMember is a member as --initial-cluster lists it.
func asMember(c *plan.Component) string {
	name, _ := c.Arg("name")
	peers, _ := c.Arg("initial-advertise-peer-urls")
	return name + "=" + peers
}

func membersOf(p *plan.Plan, store *plan.Store) (members []string) {
	for i := range p.Components {
		if c := &p.Components[i]; isMember(c, store) {
			members = append(members, asMember(c))
		}
	}
	return members
}

// partWith renders a component with other values of some arguments.
func partWith(s Setup, c *plan.Component, values map[string]string) (*render.Part, error) {
	p := *s.Plan
	p.Components = slices.Clone(p.Components)
	for i := range p.Components {
		own := &p.Components[i]
		if own.Host != c.Host || own.Name != c.Name {
			continue
		}
		own.Args = slices.Clone(own.Args)
		for n, arg := range own.Args {
			if value, ok := values[arg.Name]; ok {
				own.Args[n].Value = value
			}
		}
	}
	parts, err := render.Parts(&p, s.Target)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(parts, func(p render.Part) bool {
		return p.Component.Host == c.Host && p.Component.Name == c.Name
	})
	return &parts[at], nil
}

// sameStore has the endpoints looked at before anything changes.
func (b *builder) sameStore(host string, store plan.Store) {
	b.alike = append(b.alike, Step{Phase: Prepare, Host: host,
		Title: "the endpoints of store " + store.Name + " are members of one cluster",
		Do: &Action{Kind: RunChecks, Before: []Check{{Kind: OneCluster, Stores: []plan.Store{store},
			Hint: "etcdctl member list of each endpoint says of which it is"}}}})
}

// joining are the steps by which a member joins: as a learner, which has no vote, started with the members of that
// moment; then with a vote. It is asked for on its own host: one that was removed joins again without its data.
func (b *builder) joining(phase Phase, m *moving) {
	own := m.meanwhile.Component.Host
	add := func(do, undo Kind) {
		s := Step{Phase: phase, Host: own, Undo: &Action{Kind: undo, Joining: &m.Joining}}
		if do != "" {
			s.Do = &Action{Kind: do, Joining: &m.Joining}
		}
		s.Title = titleOf(&s)
		b.add(s)
	}
	b.add(withoutData(phase, own, m.DataDir))
	add("", SetDataAside)
	add(AddMember, RemoveMember)
	b.startOne(phase, change{is: m.meanwhile}, false)
	add(PromoteMember, RemoveMember)
}

// withoutData looks whether a member can start there with the data of the others.
func withoutData(phase Phase, host, dir string) Step {
	return Step{Phase: phase, Host: host, Title: "there is no data of a member in " + dir,
		Do: &Action{Kind: RunChecks, Before: []Check{{Kind: NoData, Path: dir, Hint: "a member that joins copies all " +
			"data of the others: move what is there elsewhere, if nothing needs it"}}}}
}

// joined has the members of stores that both plans have join, one after the other, then start as the plan has them.
func (b *builder) joined() {
	for i := range b.moving {
		if b.moving[i].is != nil {
			b.joining(Stores, &b.moving[i])
		}
	}
	for _, m := range b.moving {
		if m.is != nil {
			b.startOne(Stores, change{was: m.meanwhile, is: m.is}, true)
		}
	}
}

// leave has members of stores that both plans have leave, one after the other, when nothing looks for them any more:
// how they would join again, taken back. So they can.
func (b *builder) leave() {
	for i := range b.moving {
		m := &b.moving[i]
		if m.is != nil {
			continue
		}
		away := func() {
			for _, f := range slices.Concat(m.was.Start, m.was.Beside) {
				delete(b.disk, place{m.was.Component.Host, f.Path})
			}
		}
		before := b.steps
		b.steps = nil
		away()
		b.joining(Tidy, m)
		b.startOne(Tidy, change{was: m.meanwhile, is: m.was}, true)
		away()
		b.steps = append(before, takenBack(b.steps)...)
	}
}

// takenBack are steps in the other direction.
func takenBack(steps []Step) []Step {
	steps = slices.Clone(steps)
	slices.Reverse(steps)
	for i := range steps {
		s := &steps[i]
		s.Do, s.Undo = s.Undo, s.Do
		if title := titleOf(s); title != "" {
			s.Title = title
		}
	}
	return steps
}

// titleOf says what a step changes; "" for one that changes nothing.
func titleOf(s *Step) string {
	for _, a := range []*Action{s.Do, s.Undo} {
		if a != nil && a.changes() != "" {
			return a.changes()
		}
	}
	return ""
}

// joinsOrLeaves reports whether a change is a member that joins or leaves a store that both plans have.
func (b *builder) joinsOrLeaves(c change) bool {
	return slices.ContainsFunc(b.moving, func(m moving) bool { return m.was == c.was && m.is == c.is })
}

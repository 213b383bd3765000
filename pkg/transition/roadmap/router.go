package roadmap

import (
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// router plans a spec in other states.
type router struct {
	file         func() (*spec.File, error) // a new one each time: its defaults follow from its versions
	target       render.Target
	hasImages    map[pair.Side]bool // the sides of the spec that name images
	hasScheduler bool               // the modern side has one
	hasKubelet   bool               // the version of kubelets at the legacy API server does not follow from that
}

// state is what the roadmap changes of a spec.
type state struct {
	legacy, modern kubever.Version
	kubelet        kubever.Version  // of those at the legacy API server
	nodes          *kubever.Version // of those at the modern API server; nil for none
	handed         []string
	retired        bool
}

// begin is the state that the spec has.
func (r *router) begin() (state, error) {
	f, err := r.file()
	if err != nil {
		return state{}, err
	}
	s := &f.Spec
	r.hasImages = map[pair.Side]bool{pair.Legacy: named(images(&s.Legacy)), pair.Modern: named(images(&s.Modern))}
	r.hasScheduler, r.hasKubelet = s.Modern.Scheduler != nil, s.Kubelet.Version.Minor != 0
	f.Default()
	at := state{legacy: s.Legacy.Version, modern: s.Modern.Version, kubelet: s.Kubelet.Version, handed: s.HandedOver,
		retired: s.Legacy.Retired}
	if k := s.Kubelet.Modern; k != nil {
		at.nodes = &k.Version
	}
	return at, nil
}

// plan plans the spec in a state.
func (r *router) plan(at state) (*plan.Plan, error) {
	f, err := r.file()
	if err != nil {
		return nil, err
	}
	s := &f.Spec
	s.HandedOver = slices.Clone(at.handed)
	setVersion(&s.Modern, at.modern)
	if at.legacy != s.Legacy.Version {
		setVersion(&s.Legacy, at.legacy)
		s.Kubelet.Version = at.kubelet
	}
	if at.retired {
		s.Legacy.Retired = true
		if s.Modern.Scheduler == nil {
			s.Modern.Scheduler = &spec.Component{}
		}
	}
	if at.nodes != nil {
		if s.Kubelet.Modern == nil {
			s.Kubelet.Modern = &spec.ModernKubelet{}
		}
		s.Kubelet.Modern.Version = *at.nodes
	}
	f.Default()
	if err := spec.Validate(f, spec.Lines{}); err != nil {
		return nil, err
	}
	return plan.New(f, plan.OnHosts)
}

func setVersion(s *spec.Side, v kubever.Version) {
	if v == s.Version {
		return
	}
	s.Version = v
	for _, image := range images(s) {
		*image = "" // its tag is that of the version before
	}
}

func named(images []*string) bool {
	return slices.ContainsFunc(images, func(image *string) bool { return *image != "" })
}

// images are those that a side names.
func images(s *spec.Side) []*string {
	list := []*string{&s.Image}
	if s.APIServer != nil {
		list = append(list, &s.APIServer.Image)
	}
	for _, c := range []*spec.Component{s.ControllerManager, s.Scheduler} {
		if c != nil {
			list = append(list, &c.Image)
		}
	}
	return list
}

// hops are the fewest versions that lead from one to another, each of which decodes what the one before it writes; the
// last one alone where there are none.
func (r *router) hops(at state, to kubever.Version) ([]kubever.Version, error) {
	versions := []kubever.Version{at.modern}
	for _, m := range kubever.Minors() {
		v, err := kubever.Parse(kubever.Release(m))
		if err == nil && m > at.modern.Minor && m < to.Minor {
			versions = append(versions, v)
		}
	}
	versions = append(versions, to)
	plans := make([]*plan.Plan, len(versions))
	for i := range versions {
		at.modern = versions[i]
		p, err := r.plan(at)
		if err != nil && (i == 0 || i == len(versions)-1) {
			return nil, fmt.Errorf("with spec.modern.version %s: %w", versions[i], err)
		}
		plans[i] = p // nil: this version cannot be planned, so that no way leads through it
	}
	const never = -1
	before := make([]int, len(versions)) // breadth first: the first way found is one of the shortest
	for i := range before {
		before[i] = never
	}
	queue := []int{0}
	for len(queue) > 0 && before[len(versions)-1] == never {
		at := queue[0]
		queue = queue[1:]
		for next := len(versions) - 1; next > at; next-- {
			if before[next] == never && plans[next] != nil && len(rewrites(plans[at], plans[next])) == 0 {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	if before[len(versions)-1] == never {
		return []kubever.Version{to}, nil
	}
	var way []kubever.Version
	for at := len(versions) - 1; at != 0; at = before[at] {
		way = append(way, versions[at])
	}
	slices.Reverse(way)
	return way, nil
}

// rewrites are the resources of which the modern side of the second plan does not decode what that of the first writes.
func rewrites(a, b *plan.Plan) (keys []string) {
	for i := range a.Resources {
		was, is := a.Resources[i].Modern, b.Resource(a.Resources[i].Key)
		if was.StoredAs == "" || is == nil || is.Modern.Store == "" { // a kind that is gone is no longer read
			continue
		}
		if !slices.Contains(is.Modern.Decodes, was.StoredAs) {
			keys = append(keys, a.Resources[i].Key)
		}
	}
	return keys
}

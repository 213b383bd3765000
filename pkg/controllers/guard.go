package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/pkg/witness/statedir"
)

// guard keeps anything from being deleted that is absent because a store has forgotten it, or is another one. It
// remembers, outside of the stores, what they show of themselves, and looks again before an absence is believed.
type guard struct {
	*cluster
	probes    []probe
	directory *statedir.Directory // nil: what was seen is forgotten when the process ends

	looking sync.Mutex  // one look at a time
	begun   time.Time   // the last one that found nothing wrong
	looked  atomic.Bool // one has, since a person last acknowledged

	mutex      sync.Mutex // of what follows
	memory     witness.Memory
	vanishings witness.Vanishings
	saved      time.Time
	learned    map[string]time.Time // when the objects of a store to be remembered were last chosen
	announced  string               // the stop of which an event tells
}

// errStopped says that nothing is deleted until a person says that it may be.
var errStopped = errors.New("deletions have stopped")

const (
	lookEvery   = 30 * time.Second
	pollEvery   = 2 * time.Second // whether a person has acknowledged
	saveEvery   = 10 * time.Second
	learnEvery  = 10 * time.Minute
	marksOfEach = 3 // objects that are remembered of each store
)

// probe is a store as one side's API server shows it.
type probe struct {
	name      string // for people, and of what is remembered
	side      pair.Side
	resources []resource // that lie in it, that every API server has objects of, and that are never many
}

// holds is the resource of a path; nil for one that the store does not hold, by this plan.
func (p *probe) holds(path string) *resource {
	plural, _, _ := strings.Cut(path, "/")
	for i := range p.resources {
		if p.resources[i].String() == plural {
			return &p.resources[i]
		}
	}
	return nil
}

// bootKeys are rows of a plan by whose objects a store is known: those that API servers make themselves come first.
var bootKeys = []string{"namespaces", "apiregistration.k8s.io/apiservices",
	"apiextensions.k8s.io/customresourcedefinitions",
	"prioritylevelconfigurations", "flowschemas", "priorityclasses", "clusterroles", "storageclasses", "minions"}

// probes are how each store that a side uses is looked at.
func (l layout) probes() []probe {
	var list []probe
	for _, side := range pair.Sides() {
		servers := l.plan.Side(side)
		for _, key := range bootKeys {
			row := l.plan.Resource(key)
			if row == nil || row.View(side).Store == "" {
				continue
			}
			name := fmt.Sprintf("%s side, store %s", side, row.View(side).Store)
			for _, served := range row.View(side).Serves {
				gv, err := schema.ParseGroupVersion(served)
				if gvr := gv.WithResource(row.Name); err == nil && !servers.TurnsOff(gvr) {
					i := slices.IndexFunc(list, func(p probe) bool { return p.name == name })
					if i < 0 {
						list = append(list, probe{name: name, side: side})
						i = len(list) - 1
					}
					list[i].resources = append(list[i].resources,
						resource{side: side, GroupVersionResource: gvr, kind: row.Kind, namespaced: row.Namespaced,
							verbs: "gl"})
					break
				}
			}
		}
	}
	return list
}

func newGuard(c *cluster, o Options) (*guard, error) {
	g := &guard{cluster: c, probes: c.layout.probes(), learned: map[string]time.Time{},
		memory:     witness.Memory{Pair: c.layout.plan.Name, Stores: map[string]witness.Sight{}},
		vanishings: witness.Vanishings{Limit: cmp.Or(o.Brake, DefaultBrake)}}
	if o.StateDirectory == "" || o.DryRun {
		return g, nil
	}
	var err error
	if g.directory, err = statedir.Open(o.StateDirectory); err != nil {
		return nil, fmt.Errorf("opening what is remembered of the stores: %w", err)
	}
	known, err := g.directory.Load()
	switch {
	case err != nil:
		g.stop("what was remembered of the stores cannot be read: " + err.Error())
	case known == nil:
		g.log.Warn("nothing is remembered of the stores yet: they are taken for the right ones", "directory",
			o.StateDirectory)
	case known.Pair != c.layout.plan.Name:
		g.stop(fmt.Sprintf("%s remembers the stores of %q", o.StateDirectory, known.Pair))
	default:
		g.memory = *known
		if g.memory.Stores == nil {
			g.memory.Stores = map[string]witness.Sight{}
		}
		if g.memory.Stop != nil {
			g.say()
		}
	}
	return g, nil
}

// stopped is why nothing is deleted; nil while nothing is wrong.
func (g *guard) stopped() error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if s := g.memory.Stop; s != nil {
		return fmt.Errorf("%w since %s, until fusionctl controllers acknowledge: %s", errStopped,
			s.Since.Format(time.RFC3339), strings.Join(s.Why, "; "))
	}
	return nil
}

// stop ends all deletions.
func (g *guard) stop(why ...string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.memory.Stop != nil {
		return
	}
	g.memory.Stop = &witness.Stop{ID: string(uuid.NewUUID()), Since: g.now(), Why: why}
	g.say()
	g.save()
}

// say tells that deletions have stopped. The mutex is held, or nobody else knows the guard yet.
func (g *guard) say() {
	g.metrics.stopped.Set(1)
	g.log.Error("deletions have stopped, until a person says that they may go on", "why", g.memory.Stop.Why,
		"since", g.memory.Stop.Since, "way", "fusionctl controllers acknowledge")
}

// vanished hears that an owner is gone of whose kind so many are left on its side.
func (g *guard) vanished(r *resource, left int) {
	g.mutex.Lock()
	why := g.vanishings.Add(fmt.Sprintf("%s of the %s side", r, r.side), left, g.now())
	g.mutex.Unlock()
	if why != "" {
		g.stop(why)
	}
}

// since makes sure, by a look that began after the moment, that each store is the one that it was. What was found
// absent before that moment is absent from that store. Errors: errStopped; a store that could not be looked at.
func (g *guard) since(ctx context.Context, moment time.Time) error {
	if err := g.stopped(); err != nil {
		return err
	}
	g.looking.Lock()
	defer g.looking.Unlock()
	if !g.begun.After(moment) {
		begun := g.now()
		if err := g.look(ctx); err != nil {
			return err
		}
		g.begun = begun
		g.looked.Store(true)
	}
	return g.stopped()
}

// look looks at every store and remembers what it saw.
func (g *guard) look(ctx context.Context) error {
	sights := make([]witness.Sight, len(g.probes))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range g.probes {
		group.Go(func() (err error) {
			sights[i], err = g.sight(ctx, p)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("making sure that each store is the one that it was: %w", err)
	}
	var why []string
	g.mutex.Lock()
	for i, p := range g.probes {
		known := g.memory.Stores[p.name]
		for _, change := range known.Changes(&sights[i]) {
			why = append(why, p.name+": "+change)
		}
	}
	if len(why) == 0 {
		for i, p := range g.probes {
			known := g.memory.Stores[p.name]
			g.memory.Stores[p.name] = known.Merge(&sights[i])
		}
		if g.now().Sub(g.saved) >= saveEvery {
			g.save()
		}
	}
	g.mutex.Unlock()
	if len(why) > 0 {
		g.stop(why...)
	}
	return nil
}

// sight reads what a store shows of itself: its revision, and the objects that are remembered of it. Where too few are,
// others are chosen.
func (g *guard) sight(ctx context.Context, p probe) (witness.Sight, error) {
	g.mutex.Lock()
	known, chosen := g.memory.Stores[p.name].Objects, g.learned[p.name]
	g.mutex.Unlock()
	paths := make([]string, 0, marksOfEach)
	for path := range known {
		if p.holds(path) != nil {
			paths = append(paths, path)
		}
	}
	now := g.now()
	if len(paths) < marksOfEach && now.Sub(chosen) >= learnEvery {
		oldest, err := g.oldest(ctx, p)
		if err != nil {
			return witness.Sight{}, err
		}
		for _, path := range oldest {
			if len(paths) < marksOfEach && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		g.mutex.Lock()
		g.learned[p.name] = now
		g.mutex.Unlock()
	}
	s := witness.Sight{At: now, Objects: map[string]witness.Object{}}
	for _, path := range paths {
		object, err := g.mark(ctx, p, path)
		if err != nil {
			return s, err
		}
		if _, remembered := known[path]; remembered || object.UID != "" {
			s.Objects[path] = object
		}
	}
	page, err := g.client(p.side).list(ctx, collection{p.resources[0], "", decodeObject}, metav1.ListOptions{Limit: 1})
	if err == nil {
		s.Revision, err = strconv.ParseInt(page.ResourceVersion, 10, 64)
	}
	return s, err
}

// mark reads an object, from the store, by what is remembered as its path; the zero object is absent.
func (g *guard) mark(ctx context.Context, p probe, path string) (witness.Object, error) {
	_, name, _ := strings.Cut(path, "/")
	o, err := g.client(p.side).get(ctx, *p.holds(path), "", name)
	if errors.Is(err, discovery.ErrNotFound) {
		return witness.Object{}, nil
	}
	if err != nil {
		return witness.Object{}, err
	}
	revision, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
	return witness.Object{UID: string(o.UID), Revision: revision}, err
}

// oldest lists the paths of objects that have been in the store for the longest.
func (g *guard) oldest(ctx context.Context, p probe) ([]string, error) {
	type aged struct {
		path string
		made time.Time
	}
	var all []aged
	for _, r := range p.resources {
		items, err := g.client(p.side).listAll(ctx, r, "")
		if err != nil {
			return nil, err
		}
		for i := range items {
			all = append(all, aged{r.String() + "/" + items[i].Name, items[i].CreationTimestamp.Time})
		}
		if len(all) > 10*marksOfEach {
			break
		}
	}
	slices.SortFunc(all, func(a, b aged) int {
		if first := a.path == witness.KubeSystem; first != (b.path == witness.KubeSystem) {
			return map[bool]int{true: -1, false: 1}[first]
		}
		return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.path, b.path))
	})
	var paths []string
	for _, a := range all[:min(len(all), 2*marksOfEach)] {
		paths = append(paths, a.path)
	}
	return paths, nil
}

// save brings what is remembered to the disk. The mutex is held.
func (g *guard) save() {
	g.saved = g.now()
	if g.directory == nil {
		return
	}
	if err := g.directory.Save(&g.memory); err != nil {
		g.log.Error("what was seen of the stores is not remembered", "why", err)
	}
}

// run looks again and again, whether this process leads or not, and hears when a person says that deletions may go on.
func (g *guard) run(ctx context.Context) {
	if g.directory == nil && !g.dryRun() {
		g.log.Warn("without --state-dir what was seen of the stores is forgotten when this process ends")
	}
	said := ""
	for ctx.Err() == nil {
		err := g.since(ctx, g.now())
		if text := fmt.Sprint(err); err != nil && text != said && ctx.Err() == nil && !errors.Is(err, errStopped) {
			g.log.Warn("a store could not be looked at", "why", err)
			said = text
		}
		for waited := time.Duration(0); waited < lookEvery && ctx.Err() == nil; waited += pollEvery {
			g.announce(ctx)
			if g.listen() {
				break
			}
			pause(ctx, pollEvery)
		}
	}
}

// ready reports why nothing is deleted.
func (g *guard) ready() error {
	if err := g.stopped(); err != nil {
		return err
	}
	if !g.looked.Load() {
		return errors.New("waiting for the first look at the stores")
	}
	return nil
}

// listen goes on when a person has said so: what is there now is taken for right.
func (g *guard) listen() (goes bool) {
	g.looking.Lock() // a look that has begun is held against what was remembered then
	defer g.looking.Unlock()
	if goes = g.resume(); goes {
		g.begun = time.Time{}
		g.looked.Store(false)
		g.cluster.forget()
	}
	return goes
}

func (g *guard) resume() bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.memory.Stop == nil || g.directory == nil {
		return false
	}
	word, err := g.directory.Acknowledged()
	if err != nil {
		g.log.Warn("whether a person has acknowledged is not known", "why", err)
		return false
	}
	if word == nil || word.Stop != g.memory.Stop.ID {
		return false
	}
	g.log.Warn("deletions go on", "by", word.By, "at", word.At, "because", word.Why, "stopped", g.memory.Stop.Why)
	g.memory.Stop, g.memory.Stores = nil, map[string]witness.Sight{}
	g.learned = map[string]time.Time{}
	g.vanishings.Forget()
	g.metrics.stopped.Set(0)
	g.save()
	return true
}

// announce makes an event of a stop, once.
func (g *guard) announce(ctx context.Context) {
	g.mutex.Lock()
	stop := g.memory.Stop
	told := stop == nil || g.announced == stop.ID
	g.mutex.Unlock()
	if told {
		return
	}
	events := resource{GroupVersionResource: schema.GroupVersion{Version: "v1"}.WithResource("events"), kind: "Event",
		namespaced: true}
	side := cmp.Or(g.layout.home(events.GroupResource()), pair.Modern)
	at := metav1.NewTime(stop.Since)
	message := strings.Join(stop.Why, "; ")
	const limitMessage = 1000 // servers take 1024 bytes
	if len(message) > limitMessage {
		message = message[:limitMessage]
	}
	err := g.writer.write(ctx, side, http.MethodPost, events.collection(LockNamespace), map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": LockName + "." + stop.ID, "namespace": LockNamespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": LockNamespace,
			"name": LockName},
		"reason": "DeletionsStopped", "message": message, "type": "Warning", "count": 1,
		"source": map[string]any{"component": LockName}, "firstTimestamp": at, "lastTimestamp": at,
	})
	if err != nil {
		g.log.Warn("no event tells that deletions have stopped", "why", err)
	}
	g.mutex.Lock()
	g.announced = stop.ID
	g.mutex.Unlock()
}

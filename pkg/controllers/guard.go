package controllers

import (
	"cmp"
	"context"
	"encoding/json"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/pkg/witness/statedir"
)

// guard stops deletions of objects whose owners are absent because a store lost them, or is another one. It keeps,
// outside of the stores, what identifies them, and compares again before an absent owner counts.
type guard struct {
	*cluster
	probes    []probe
	directory *statedir.Directory // nil: kept in memory alone
	stops     chan struct{}       // one is in it after deletions have stopped

	looking sync.Mutex  // one comparison at a time
	begun   time.Time   // of the last comparison that found no change
	looked  atomic.Bool // there was one, since the last acknowledgement

	mutex      sync.Mutex // of what follows
	memory     witness.Memory
	vanishings witness.Vanishings
	saved      time.Time
	learned    map[string]time.Time // when the objects that identify a store were last chosen
	announced  string               // the stop that has an event
}

// errStopped: nothing is deleted until an operator acknowledges.
var errStopped = errors.New("deletions have stopped")

const (
	lookEvery   = 30 * time.Second
	pollEvery   = 2 * time.Second // for an acknowledgement
	saveEvery   = 10 * time.Second
	learnEvery  = 10 * time.Minute
	marksOfEach = 3 // objects that identify each store
)

// probe is a store, read through one side's API server.
type probe struct {
	name      string // in messages and in the state directory
	side      pair.Side
	resources []resource // in it, few, and of which every API server has objects
	passing   bool       // objects of its resources come and go: its revision alone identifies it
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

// bootKeys are rows of a plan by whose objects a store is identified: those that API servers create come first.
var bootKeys = []string{"namespaces", "apiregistration.k8s.io/apiservices",
	"apiextensions.k8s.io/customresourcedefinitions",
	"prioritylevelconfigurations", "flowschemas", "priorityclasses", "clusterroles", "storageclasses", "minions"}

// probes are the stores of each side. One in which a side keeps none of these resources, and that an argument names for
// others, is seen through the first of those.
func (l layout) probes() []probe {
	var list []probe
	for _, side := range pair.Sides() {
		servers := l.plan.Side(side)
		add := func(row *pair.Resource, passing bool) {
			if row == nil || row.View(side).Store == "" || isEvent(schema.GroupResource{Resource: row.Name}) {
				return
			}
			name := fmt.Sprintf("%s side, store %s", side, row.View(side).Store)
			i := slices.IndexFunc(list, func(p probe) bool { return p.name == name })
			if i >= 0 && passing {
				return
			}
			for _, served := range row.View(side).Serves {
				gv, err := schema.ParseGroupVersion(served)
				if gvr := gv.WithResource(row.Name); err == nil && !servers.TurnsOff(gvr) {
					if i < 0 {
						list = append(list, probe{name: name, side: side, passing: passing})
						i = len(list) - 1
					}
					list[i].resources = append(list[i].resources,
						resource{side: side, GroupVersionResource: gvr, kind: row.Kind, namespaced: row.Namespaced,
							verbs: "gl"})
					break
				}
			}
		}
		for _, key := range bootKeys {
			add(l.plan.Resource(key), false)
		}
		for i := range l.plan.Resources {
			add(&l.plan.Resources[i], true)
		}
	}
	return list
}

func newGuard(c *cluster, o Options) (*guard, error) {
	g := &guard{cluster: c, probes: c.layout.probes(), learned: map[string]time.Time{}, stops: make(chan struct{}, 1),
		memory:     witness.Memory{Pair: c.layout.plan.Name, Stores: map[string]witness.Sight{}},
		vanishings: witness.Vanishings{Limit: cmp.Or(o.Brake, DefaultBrake)}}
	if o.StateDirectory == "" || o.DryRun {
		return g, nil
	}
	var err error
	if g.directory, err = statedir.Open(o.StateDirectory); err != nil {
		return nil, fmt.Errorf("opening the state directory: %w", err)
	}
	known, err := g.directory.Load()
	switch {
	case err != nil:
		g.stop("the state directory cannot be read: " + err.Error())
	case known == nil:
		g.log.Warn("state directory empty; stores trusted as they are", "directory",
			o.StateDirectory)
	case known.Pair != c.layout.plan.Name:
		g.stop(fmt.Sprintf("%s is the state directory of the pair %q", o.StateDirectory, known.Pair))
	default:
		g.memory = *known
		slices.Sort(g.memory.Kinds)
		if g.memory.Stores == nil {
			g.memory.Stores = map[string]witness.Sight{}
		}
		if g.memory.Stop != nil {
			g.say()
		}
	}
	return g, nil
}

// stopped is why nothing is deleted; nil while deletions go on.
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
	select {
	case g.stops <- struct{}{}:
	default:
	}
}

// say logs that deletions have stopped. The mutex is held, or no other goroutine has the guard yet.
func (g *guard) say() {
	g.metrics.stopped.Set(1)
	g.log.Error("deletions stopped until acknowledged", "reasons", g.memory.Stop.Why, "since", g.memory.Stop.Since,
		"command", "fusionctl controllers acknowledge")
}

// vanished counts an owner that is gone, of whose kind so many are left on its side.
func (g *guard) vanished(r *resource, namespace string, left int) {
	g.mutex.Lock()
	why := g.vanishings.Add(fmt.Sprintf("%s of the %s side", r, r.side), namespace, left, g.now())
	g.mutex.Unlock()
	if why != "" {
		g.stop(why)
	}
}

// kindOf is a kind of a side as it is remembered.
func kindOf(r resource) string { return kindKey(r.side, r.Group, r.kind) }

func kindKey(side pair.Side, group, kind string) string {
	return fmt.Sprintf("%s side, %s", side, schema.GroupKind{Group: group, Kind: kind})
}

// limitKindBytes bounds the names of kinds as JSON, which the authors of definitions and extension API servers choose:
// annotations have room for 256 KiB, and a character may take six bytes.
const limitKindBytes = 64 << 10

// rememberKind notes whether objects of a kind own others. What a version builds in is not to be remembered: a side
// that does not list that is not believed.
func (g *guard) rememberKind(r resource, owns bool) {
	if g.layout.serves(r.side, schema.GroupKind{Group: r.Group, Kind: r.kind}) {
		return
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	key := kindOf(r)
	i, known := slices.BinarySearch(g.memory.Kinds, key)
	switch {
	case known == owns:
		return
	case known:
		g.memory.Kinds = slices.Delete(g.memory.Kinds, i, i+1)
	case len(kindsText(append(slices.Clone(g.memory.Kinds), key))) > limitKindBytes:
		g.log.Warn("too many kinds that own objects; this process alone remembers the kind", "kind", key)
		return
	default:
		g.memory.Kinds = slices.Insert(g.memory.Kinds, i, key)
	}
	g.save()
}

// owned reports whether objects of a kind, of any of the groups, owned others when the side last served it.
func (g *guard) owned(side pair.Side, groups []string, kind string) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.ContainsFunc(groups, func(group string) bool {
		_, known := slices.BinarySearch(g.memory.Kinds, kindKey(side, group, kind))
		return known
	})
}

// kinds are those that are remembered, as the lock carries them.
func (g *guard) kinds() string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return kindsText(g.memory.Kinds)
}

func kindsText(kinds []string) string {
	text, _ := json.Marshal(append([]string{}, kinds...)) // strings
	return string(text)
}

// takeOverKinds remembers what the process that leads does; "" is of one that does not say so.
func (g *guard) takeOverKinds(text string) {
	if text == "" {
		return
	}
	var kinds []string
	if len(text) > 2*limitKindBytes || json.Unmarshal([]byte(text), &kinds) != nil {
		g.log.Warn("the lock has kinds that cannot be read; those that are remembered stay", "annotation",
			KindsAnnotation)
		return
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !slices.Equal(kinds, g.memory.Kinds) {
		g.memory.Kinds = kinds
		g.save()
	}
}

// since makes sure, by a comparison that began after the moment, that each store is the same. What was absent before
// that moment is absent from that store. Errors: errStopped; a store that could not be read.
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

// look compares every store with what identifies it, and keeps what is new.
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
		return fmt.Errorf("comparing the stores with what identified them: %w", err)
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

// sight reads what identifies a store: its revision, and the objects that were chosen. Where too few are left, others
// are chosen.
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
	if !p.passing && len(paths) < marksOfEach && now.Sub(chosen) >= learnEvery {
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
	page, _, err := g.client(p.side).list(ctx, collection{p.resources[0], "", decodeObject},
		metav1.ListOptions{Limit: 1}, 0)
	if err == nil {
		s.Revision, err = strconv.ParseInt(page.ResourceVersion, 10, 64)
	}
	return s, err
}

// mark reads an object, from the store, by its path in the state directory; the zero object is absent.
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

// oldest lists the paths of the oldest objects of the store.
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

// save writes the state directory. The mutex is held.
func (g *guard) save() {
	g.saved = g.now()
	if g.directory == nil {
		return
	}
	if err := g.directory.Save(&g.memory); err != nil {
		g.log.Error("writing the state directory failed", "err", err)
	}
}

// run compares the stores periodically, whether this process is the leader or not, and reads acknowledgements.
func (g *guard) run(ctx context.Context) {
	if g.directory == nil && !g.dryRun() {
		g.log.Warn("no --state-dir; a store that changes while this process is down is not detected")
	}
	said := ""
	for ctx.Err() == nil {
		err := g.since(ctx, g.now())
		if text := fmt.Sprint(err); err != nil && text != said && ctx.Err() == nil && !errors.Is(err, errStopped) {
			g.log.Warn("reading a store failed", "err", err)
			said = text
		}
		for waited := time.Duration(0); waited < lookEvery && ctx.Err() == nil; waited += pollEvery {
			g.announce(ctx)
			if g.listen() {
				break
			}
			_ = pause.For(ctx, pollEvery)
		}
	}
}

// handOver is the stop as the lock carries it; "" while deletions go on. Without a state directory no operator can
// acknowledge, so the stop stays with this process.
func (g *guard) handOver() string {
	if g == nil || g.directory == nil {
		return ""
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.memory.Stop == nil {
		return ""
	}
	text, err := json.Marshal(g.memory.Stop)
	if err != nil { // a time, and strings
		g.log.Error("writing the stop on the lock failed", "err", err)
	}
	return string(text)
}

// takeOver stops deletions as the process that last wrote the lock did, until they are acknowledged on this host as
// well. A stop that was acknowledged here stays so. What cannot be read is a stop, too.
func (g *guard) takeOver(text string) {
	if g == nil || g.directory == nil || text == "" {
		return
	}
	stop := &witness.Stop{}
	if err := json.Unmarshal([]byte(text), stop); err != nil || stop.ID == "" {
		g.stop(fmt.Sprintf("annotation %s of %s %s/%s cannot be read", StopAnnotation, lockResource.Name,
			LockNamespace, LockName))
		return
	}
	word, err := g.directory.Acknowledged()
	if err != nil {
		g.log.Warn("reading the acknowledgement failed", "err", err)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.memory.Stop != nil || word != nil && word.Stop == stop.ID {
		return
	}
	g.memory.Stop = stop
	g.say()
	g.save()
}

// ready reports why nothing is deleted.
func (g *guard) ready() error {
	if err := g.stopped(); err != nil {
		return err
	}
	if !g.looked.Load() {
		return errors.New("waiting for the first comparison of the stores")
	}
	return nil
}

// listen resumes deletions when an operator has acknowledged: the stores are trusted as they are now.
func (g *guard) listen() (goes bool) {
	g.looking.Lock() // a comparison that has begun is with what was kept then
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
		g.log.Warn("reading the acknowledgement failed", "err", err)
		return false
	}
	if word == nil || word.Stop != g.memory.Stop.ID {
		return false
	}
	g.log.Warn("deletions resumed", "by", word.By, "at", word.At, "reason", word.Why, "stopped", g.memory.Stop.Why)
	g.memory.Stop, g.memory.Stores = nil, map[string]witness.Sight{}
	g.learned = map[string]time.Time{}
	g.vanishings.Forget()
	g.metrics.stopped.Set(0)
	g.save()
	return true
}

// announce creates an event about a stop, once.
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
	const limitMessage = 1000 // API servers accept 1024 bytes
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
	if err != nil && !apierrors.IsAlreadyExists(err) { // of a stop that was taken over, the leader has created it
		g.log.Warn("creating the event DeletionsStopped failed", "err", err)
	}
	g.mutex.Lock()
	g.announced = stop.ID
	g.mutex.Unlock()
}

package scan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// samples keeps the smallest few of many keys, so that a report names the same ones however the ranges were scheduled.
type samples []string

const sampleKeys = 5

func (s *samples) add(key string) {
	if len(*s) == sampleKeys && key >= (*s)[sampleKeys-1] {
		return
	}
	at, found := slices.BinarySearch(*s, key)
	if found {
		return
	}
	*s = slices.Insert(*s, at, strings.Clone(key))
	if len(*s) > sampleKeys {
		*s = (*s)[:sampleKeys]
	}
}

// wants reports whether add would keep the key, or something that begins with it.
func (s *samples) wants(key string) bool { return len(*s) < sampleKeys || key < (*s)[len(*s)-1] }

func (s *samples) merge(other samples) {
	for _, key := range other {
		s.add(key)
	}
}

// counted is how many keys share a property, and a few of them.
type counted struct {
	keys    int64
	samples samples
}

func (c *counted) add(key string) { c.keys++; c.samples.add(key) }

// addShown adds a key, and keeps it as a sample only if it may be shown.
func (c *counted) addShown(key string, shown bool) {
	c.keys++
	if shown {
		c.samples.add(key)
	}
}

// count is what a finding about the keys stands for.
func (c *counted) count() finding.Count { return finding.Count(c.keys) }

func (c *counted) merge(other *counted) { c.keys += other.keys; c.samples.merge(other.samples) }

// stored is a type as which values are stored.
type stored struct {
	APIVersion, Kind string
	Encoding         storage.Encoding
}

// key distinguishes stored types in the keys of findings.
func (s stored) key() string {
	return strings.Join([]string{s.APIVersion, s.Kind, string(s.Encoding)}, " ")
}

// storedTally counts the values of one stored type.
type storedTally struct {
	stored
	counted
	shown bool  // its keys are kept as samples: a reader may be unable to decode the type
	boot  int64 // how many of them an API server writes at its start
}

// resourceTally is what one range, and later one store, holds of a resource.
type resourceTally struct {
	name       string
	start      string // of its keys: prefix, name and a slash
	number     uint16
	form       storage.Form
	scope      storage.Scope
	group      string
	row        *pair.Resource // of the map; nil: the map does not know it
	atStart    []*pair.BootKey
	shown      bool // its keys are kept as samples: they may be in the wrong place, or in two
	telling    bool // its objects determine findings about other resources
	keys       int64
	bytes      int64
	boot       counted // written by an API server at its start
	others     counted // all the rest
	types      map[stored]*storedTally
	lastType   *storedTally        // of the previous value
	encrypted  map[string]*counted // by "provider:key"
	unreadable map[string]*counted // by what is wrong
	unshaped   counted
	namespaces map[string]*inside
	last       *inside // of the previous key
	dropped    map[dropped]*counted
}

func newResourceTally(name string, number uint16, k storage.Key, row *pair.Resource) *resourceTally {
	return &resourceTally{
		name: name, number: number, form: k.Form, group: strings.Clone(k.Group), row: row,
		types: map[stored]*storedTally{}, encrypted: map[string]*counted{}, unreadable: map[string]*counted{},
		namespaces: map[string]*inside{}, dropped: map[dropped]*counted{},
	}
}

// inside counts the keys in a namespace. They are named when it turns out that there is none.
type inside struct {
	namespace string
	hash      uint32
	keys      int64
}

// inNamespace counts a key of a namespace, which is often that of the previous key.
func (t *resourceTally) inNamespace(namespace string, h keyindex.Hasher) (hash uint32) {
	if t.last == nil || t.last.namespace != namespace {
		in, ok := t.namespaces[namespace]
		if !ok {
			in = &inside{namespace: strings.Clone(namespace), hash: h.NamespaceHash(namespace)}
			t.namespaces[in.namespace] = in
		}
		t.last = in
	}
	t.last.keys++
	return t.last.hash
}

// mostTypes are distinguished among the values of a resource: a damaged or hostile store may hold any number.
const mostTypes = 100

// known is the type under which values are counted: their own, or "others" when there are too many.
func (t *resourceTally) known(as stored) stored {
	if _, ok := t.types[as]; ok || len(t.types) < mostTypes {
		return as
	}
	return stored{"others", "others", as.Encoding}
}

// startup reports whether an API server writes the key at its start.
func (t *resourceTally) startup(rest string) bool {
	for _, b := range t.atStart {
		if b.Matches(rest) {
			return true
		}
	}
	return false
}

func (t *resourceTally) merge(other *resourceTally) {
	if t.form == storage.FormUnshaped {
		t.form, t.group = other.form, other.group
	}
	if t.row == nil {
		t.row = other.row
	}
	t.keys += other.keys
	t.bytes += other.bytes
	t.boot.merge(&other.boot)
	t.others.merge(&other.others)
	t.unshaped.merge(&other.unshaped)
	mergeReasons(t.encrypted, other.encrypted)
	mergeReasons(t.unreadable, other.unreadable)
	for namespace, from := range other.namespaces {
		if to, ok := t.namespaces[namespace]; ok {
			to.keys += from.keys
		} else {
			t.namespaces[namespace] = from
		}
	}
	mergeCounted(t.dropped, other.dropped)
	for key, from := range other.types {
		key = t.known(key)
		if to, ok := t.types[key]; ok {
			to.merge(&from.counted)
			to.boot += from.boot
		} else {
			t.types[key] = from
		}
	}
}

// dropped is a field that objects hold and that a side drops, or with an empty path objects that hold such fields.
type dropped struct {
	side    pair.Side
	path    string
	matters bool // the loss of the field, or for objects that of one of them
}

func mergeCounted[K comparable](into, from map[K]*counted) {
	for key, c := range from {
		if to, ok := into[key]; ok {
			to.merge(c)
		} else {
			into[key] = c
		}
	}
}

// mergeReasons is mergeCounted for what count has counted.
func mergeReasons(into, from map[string]*counted) {
	for _, name := range sortedKeys(from) {
		reasonOf(into, name).merge(from[name])
	}
}

// count adds the key to the entry, which is made when it is missing. The name may be a view of a page.
func count(m map[string]*counted, name, key string) { reasonOf(m, name).add(key) }

// reasonOf is the entry of the name, or that of all others when there are too many: values may be wrong in any number
// of ways, and name any number of keys that have encrypted them.
func reasonOf(m map[string]*counted, name string) *counted {
	if m[name] == nil && len(m) >= mostTypes {
		name = "others"
	}
	if m[name] == nil {
		m[strings.Clone(name)] = &counted{}
	}
	return m[name]
}

// addTo adds the key to the entry, which is made when it is missing.
func addTo[K comparable](m map[K]*counted, entry K, key string) {
	c, ok := m[entry]
	if !ok {
		c = &counted{}
		m[entry] = c
	}
	c.add(key)
}

// objectRef identifies an object in a fact.
type objectRef struct{ Namespace, Name string }

func (r objectRef) String() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func compareRefs(a, b objectRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// facts are the contents of the few objects that determine findings about others.
type facts struct {
	namespaces  map[string]bool
	services    map[objectRef]service
	allocations map[string]allocation // ranges/serviceips, ranges/servicenodeports, by the part behind ranges/
	addresses   map[string]addressParent
	cidrs       map[string][]string
	crds        map[string]crdFact // by <group>/<plural>
	apiServices map[string]apiServiceFact
	holders     map[string]string // by lock object, as Lock.key
	invalidated counted           // tokens with kubernetes.io/legacy-token-invalid-since
}

type crdFact struct {
	crd
	name   string
	fields []string // the members of spec and status: "spec.versions", "status.storedVersions"
}

type apiServiceFact struct {
	apiService
	automanaged string
}

func newFacts() facts {
	return facts{
		namespaces: map[string]bool{}, services: map[objectRef]service{}, allocations: map[string]allocation{},
		addresses: map[string]addressParent{}, cidrs: map[string][]string{}, crds: map[string]crdFact{},
		apiServices: map[string]apiServiceFact{}, holders: map[string]string{},
	}
}

func (f *facts) merge(other *facts) {
	maps.Copy(f.namespaces, other.namespaces)
	maps.Copy(f.services, other.services)
	maps.Copy(f.allocations, other.allocations)
	maps.Copy(f.addresses, other.addresses)
	maps.Copy(f.cidrs, other.cidrs)
	maps.Copy(f.crds, other.crds)
	maps.Copy(f.apiServices, other.apiServices)
	maps.Copy(f.holders, other.holders)
	f.invalidated.merge(&other.invalidated)
}

// reference is an owner that an object names. References of one object are adjacent; all but the last have
// more set.
type reference struct {
	uid       uint64 // keyindex.UIDHash of the owner's
	namespace uint32 // namespaceHash of the object's own
	kind      uint16 // number of the referenceKind
	more      bool
}

// referenceKind is what references have in common.
type referenceKind struct {
	Dependent  string // resource of the object
	Namespaced bool   // is the object
	APIVersion string // of the owner
	Kind       string
	Token      bool // not an ownerReference, but the service account of a token secret
}

// tally is what one range of a store holds, and later the whole store.
type tally struct {
	resources  map[string]*resourceTally
	ids        keyindex.Chunks[keyindex.ID] // when there is another store to compare with
	uids       keyindex.Chunks[uint64]      // otherwise
	references keyindex.Chunks[reference]
	facts      facts
	keys       int64
	bytes      int64
}

func newTally() *tally {
	return &tally{resources: map[string]*resourceTally{}, facts: newFacts()}
}

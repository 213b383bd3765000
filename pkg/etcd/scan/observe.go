package scan

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Depth is how much of a store is read.
type Depth string

// The depths of a scan; each sees what the one before sees, and more.
const (
	DepthKeys     Depth = "keys"     // which key lies where
	DepthEnvelope Depth = "envelope" // and as which type it is stored, its owners, the content of allocators and CRDs
	DepthObjects  Depth = "objects"  // and which fields would be lost
)

// Depths lists the depths, the default first.
func Depths() []Depth { return []Depth{DepthEnvelope, DepthKeys, DepthObjects} }

// FieldFinder finds fields in objects. It is safe for concurrent use.
type FieldFinder interface {
	// Find calls found with each of the paths, those of Side.Drops, under which the object holds a value, and says
	// whether that is what Side.Implied has for it. Errors: the object cannot be read as its type.
	Find(e *storage.Envelope, side *pair.View, found func(path string, implied bool)) error
}

// common is what the ranges of a scan share.
type common struct {
	m          *pair.Map
	classifier *storage.Classifier
	hasher     keyindex.Hasher
	depth      Depth
	fields     FieldFinder
	locks      map[string]bool // Lock.key
	compare    bool            // there is more than one store

	mu        sync.Mutex
	numbers   map[string]uint16
	resources []string // by number
	kindOf    map[referenceKind]uint16
	kinds     []referenceKind
	moreKinds bool // than numbers
}

const (
	maxResources = 1<<keyindex.ResourceBits - 1 // the last number stands for all the resources beyond
)

func (c *common) number(resource string) uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.numbers[resource]; ok {
		return n
	}
	if len(c.resources) >= maxResources {
		return maxResources
	}
	n := uint16(len(c.resources))
	resource = strings.Clone(resource)
	c.numbers[resource] = n
	c.resources = append(c.resources, resource)
	return n
}

// kindNumber numbers the kind, and returns a copy of it that may be kept. Number 0 is the empty kind, which stands for
// all kinds beyond the first 65535: nothing is decided about them, and the report is incomplete.
func (c *common) kindNumber(k referenceKind) (uint16, referenceKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.kindOf[k]; ok {
		return n, c.kinds[n]
	}
	k.Dependent, k.APIVersion, k.Kind = strings.Clone(k.Dependent), strings.Clone(k.APIVersion), strings.Clone(k.Kind)
	n := uint16(len(c.kinds))
	if len(c.kinds) > math.MaxUint16 {
		c.moreKinds = true
		return 0, k
	}
	c.kindOf[k] = n
	c.kinds = append(c.kinds, k)
	return n, k
}

// observer adds entries of one store to a tally. It belongs to one goroutine.
type observer struct {
	*common
	store string
	t     *tally

	last     *resourceTally   // of the previous entry
	envelope storage.Envelope // of the value that is looked at, here so that it is not allocated for each
	meta     storage.Meta
	lastKind referenceKind
	kind     uint16
	hasKind  bool
}

func (o *observer) observe(e *etcd.Entry) {
	key := storage.Text(e.Key)
	k := o.classify(key)
	if k.Form == storage.FormCompaction || k.Form == storage.FormForeign {
		return // counted as outside the prefix
	}
	rest := key[len(o.classifier.Prefix()):]
	o.t.keys++
	o.t.bytes += int64(len(e.Value))
	r := o.resource(k, rest)
	r.keys++
	r.bytes += int64(len(e.Value))
	if k.Form == storage.FormUnshaped {
		r.unshaped.add(rest)
		if o.depth != DepthKeys && r.row != nil && len(rest) > len(r.name) && rest[len(r.name)] == '/' {
			o.observeStray(r, rest, e) // a list of the resource includes it
		}
		return
	}
	boot := r.startup(rest)
	if boot {
		r.boot.add(rest)
	} else {
		r.others.addShown(rest, r.shown)
	}
	var namespace uint32
	if k.Namespace != "" {
		namespace = r.inNamespace(k.Namespace, o.hasher)
	} else if k.Resource == "namespaces" {
		o.t.facts.namespaces[strings.Clone(k.Name)] = true
	}
	var uid uint64
	if o.depth != DepthKeys {
		uid = keyindex.Placed(keyindex.UIDHash(o.observeValue(r, k, rest, e, boot, namespace), k.Name, o.hasher),
			r.number, namespace)
	}
	if o.compare {
		o.t.ids.Add(keyindex.NewID(rest, r.number, uid, boot, o.hasher))
	} else if uid != 0 {
		o.t.uids.Add(uid)
	}
}

// classify is Classify, called only when the resource differs from that of the previous key.
func (o *observer) classify(key string) storage.Key {
	if o.last != nil && o.last.form == storage.FormObject {
		if path, ok := strings.CutPrefix(key, o.last.start); ok && utf8.ValidString(path) {
			return storage.ObjectKeyOf(o.last.name, path, o.last.scope)
		}
	}
	return o.classifier.Classify(key)
}

// resource finds the tally of the key's resource, which is nearly always that of the previous key.
func (o *observer) resource(k storage.Key, rest string) *resourceTally {
	name := k.Resource
	switch name {
	case "":
		name, _, _ = strings.Cut(rest, "/")
		k.Resource = name
	case storage.RangesResource:
		name = rest // each allocator has an owner of its own
	}
	if o.last != nil && o.last.name == name {
		o.shape(o.last, k)
		return o.last
	}
	r, ok := o.t.resources[name]
	if !ok {
		name = strings.Clone(name)
		r = newResourceTally(name, o.number(name), k, storage.RowOf(o.m, k))
		o.place(r)
		o.t.resources[name] = r
	}
	o.shape(r, k)
	o.last = r
	return r
}

// shape takes the form of a resource's keys, and its row, from the first key of an object: a stray key before it has
// neither.
func (o *observer) shape(r *resourceTally, k storage.Key) {
	if r.form != storage.FormUnshaped || k.Form == storage.FormUnshaped {
		return
	}
	r.form, r.group = k.Form, strings.Clone(k.Group)
	if r.row == nil {
		r.row = storage.RowOf(o.m, k)
		o.place(r)
	}
}

// tellings are the resources whose objects determine findings about other resources.
var tellings = []string{"services/specs", "ipaddresses", "servicecidrs", "secrets", storage.CRDResource,
	storage.APIServiceResource}

func tells(resource string) bool {
	return slices.Contains(tellings, resource) || strings.HasPrefix(resource, storage.RangesResource+"/")
}

// place notes the row of the resource in this store.
func (o *observer) place(r *resourceTally) {
	r.start = o.classifier.Prefix() + r.name + "/"
	r.scope = o.classifier.Scope(r.name)
	r.telling = tells(r.name) ||
		slices.ContainsFunc(o.m.Locks, func(l pair.Lock) bool { return l.Resource == r.name })
	r.atStart = o.bootKeys(r.name, r.row)
	r.shown = r.row == nil || r.row.Owner == pair.OwnerSplit || r.row.Kind == "" ||
		!slices.Contains(r.row.Homes(), o.store)
}

// bootKeys are the keys of a resource that a side which keeps it in this store writes at its start.
func (o *observer) bootKeys(name string, row *pair.Resource) []*pair.BootKey {
	var keys []*pair.BootKey
	for i := range o.m.Boot {
		b := &o.m.Boot[i]
		if row != nil && strings.HasPrefix(b.Key, name) && row.View(b.Side).Store == o.store {
			keys = append(keys, b)
		}
	}
	return keys
}

// observeValue reads the envelope and the metadata and returns the UID.
func (o *observer) observeValue(r *resourceTally, k storage.Key, rest string, e *etcd.Entry, boot bool,
	namespace uint32) []byte {
	envelope := &o.envelope
	if err := envelope.Read(e.Value); err != nil {
		count(r.unreadable, reason(err), rest)
		return nil
	}
	if envelope.Encoding == storage.Encrypted {
		count(r.encrypted, string(envelope.Provider)+":"+string(envelope.KeyName), rest)
		return nil
	}
	st := o.storedAs(r, envelope)
	st.addShown(rest, st.shown)
	if boot {
		st.boot++
	}
	readMeta := envelope.ReadIdentity
	if r.telling {
		readMeta = envelope.ReadMeta
	}
	if err := readMeta(&o.meta); err != nil {
		count(r.unreadable, reason(err), rest)
		return nil
	}
	o.addReferences(k, namespace)
	if r.telling {
		if err := o.addFacts(k, rest, envelope); err != nil {
			count(r.unreadable, reason(err), rest)
		}
	}
	if o.depth == DepthObjects && o.fields != nil && r.row != nil {
		if err := o.findDropped(r, rest, envelope); err != nil {
			count(r.unreadable, reason(err), rest)
		}
	}
	return o.meta.UID
}

// observeStray reads the type of a value that lies among those of a resource, under a key that cannot be an object's.
func (o *observer) observeStray(r *resourceTally, rest string, e *etcd.Entry) {
	if err := o.envelope.Read(e.Value); err != nil {
		count(r.unreadable, reason(err), rest)
		return
	}
	if o.envelope.Encoding != storage.Encrypted {
		st := o.storedAs(r, &o.envelope)
		st.addShown(rest, st.shown)
	}
}

// reason is an error about a value as a key of a tally: without the first words, which all have in common, and short,
// since it may quote the value.
func reason(err error) string {
	why := strings.TrimPrefix(err.Error(), storage.ErrUnreadable.Error()+": ")
	return why[:min(len(why), 200)]
}

func (o *observer) storedAs(r *resourceTally, e *storage.Envelope) *storedTally {
	key := stored{storage.Text(e.APIVersion), storage.Text(e.Kind), e.Encoding}
	if r.lastType != nil && r.lastType.stored == key {
		return r.lastType
	}
	st, ok := r.types[r.known(key)]
	if !ok {
		key = r.known(key)
		key.APIVersion, key.Kind = strings.Clone(key.APIVersion), strings.Clone(key.Kind)
		st = &storedTally{stored: key, shown: r.row == nil || !readable(r.row, o.store, key)}
		r.types[key] = st
	}
	r.lastType = st
	return st
}

// findDropped notes the fields that a side which reads the resource from this store would drop from the object.
func (o *observer) findDropped(r *resourceTally, rest string, e *storage.Envelope) error {
	var errs []error
	for _, name := range r.row.Readers(o.store) {
		side := r.row.View(name)
		// What it cannot decode it does not rewrite, and that is a finding of its own.
		if len(side.Drops) == 0 || storage.Text(e.Kind) != r.row.Kind ||
			!slices.Contains(side.Decodes, storage.Text(e.APIVersion)) {
			continue
		}
		holds, matters, managed := false, false, false
		errs = append(errs, o.fields.Find(e, side, func(path string, implied bool) {
			if strings.HasPrefix(path, pair.ManagedFields) { // a part of a reference has no meaning without the others
				managed = true
				return
			}
			holds, matters = true, matters || !implied
			addTo(r.dropped, dropped{name, path, !implied}, rest)
		}))
		if managed {
			addTo(r.dropped, dropped{side: name, path: pair.ManagedFields}, rest)
		}
		if holds || managed {
			addTo(r.dropped, dropped{side: name, matters: matters}, rest)
		}
	}
	return errors.Join(errs...)
}

// tokenSecret is the type of a secret that is the token of a service account.
const tokenSecret = "kubernetes.io/service-account-token"

// references calls visit with what an object refers to by UID: its owners, in order, and the service account of a token
// secret.
func references(k storage.Key, e *storage.Envelope, m *storage.Meta,
	visit func(kind referenceKind, uid, name []byte, more bool)) {
	for i := range m.Owners {
		owner := &m.Owners[i]
		kind := referenceKind{Dependent: k.Resource, Namespaced: k.Namespace != "",
			APIVersion: storage.Text(owner.APIVersion),
			Kind:       storage.Text(owner.Kind)}
		visit(kind, owner.UID, owner.Name, i < len(m.Owners)-1)
	}
	if k.Resource != "secrets" {
		return
	}
	if secretType, err := readSecretType(e); err != nil || secretType != tokenSecret {
		return // addFacts reports the error
	}
	uid, _ := m.Annotation("kubernetes.io/service-account.uid")
	if name, _ := m.Annotation("kubernetes.io/service-account.name"); len(uid) > 0 && len(name) > 0 {
		visit(referenceKind{Dependent: k.Resource, Namespaced: true, APIVersion: "v1", Kind: "ServiceAccount",
			Token: true}, uid, name, false)
	}
}

func (o *observer) addReferences(k storage.Key, namespace uint32) {
	if len(o.meta.Owners) == 0 && k.Resource != "secrets" {
		return // as most
	}
	references(k, &o.envelope, &o.meta, func(kind referenceKind, uid, name []byte, more bool) {
		if !o.hasKind || o.lastKind != kind {
			o.kind, o.lastKind = o.kindNumber(kind)
			o.hasKind = true
		}
		o.t.references.Add(reference{uid: keyindex.UIDHash(uid, storage.Text(name), o.hasher), namespace: namespace,
			kind: o.kind,
			more: more})
	})
}

// addFacts keeps what the object defines for others.
func (o *observer) addFacts(k storage.Key, rest string, e *storage.Envelope) error {
	f := &o.t.facts
	if o.locks[rest] {
		f.holders[strings.Clone(rest)] = strings.Clone(readHolder(e, &o.meta))
	}
	ref := func() objectRef { return objectRef{strings.Clone(k.Namespace), strings.Clone(k.Name)} }
	switch k.Resource {
	case "services/specs":
		s, err := readService(e)
		if err == nil && (len(s.ClusterIPs) > 0 || len(s.NodePorts) > 0) {
			f.services[ref()] = s
		}
		return err
	case storage.RangesResource:
		a, err := readAllocation(e)
		f.allocations[strings.Clone(k.Name)] = a
		return err
	case "ipaddresses":
		a, err := readAddress(e)
		f.addresses[strings.Clone(k.Name)] = a
		return err
	case "servicecidrs":
		cidrs, err := readServiceCIDRs(e)
		f.cidrs[strings.Clone(k.Name)] = cidrs
		return err
	case "secrets":
		secretType, err := readSecretType(e)
		if _, ok := o.meta.Label("kubernetes.io/legacy-token-invalid-since"); ok && secretType == tokenSecret {
			f.invalidated.add(rest)
		}
		return err
	case storage.CRDResource:
		c, err := readCRD(e)
		if err == nil {
			f.crds[c.Spec.Group+"/"+c.Spec.Names.Plural] = crdFact{crd: c, name: strings.Clone(k.Name),
				fields: memberNames(e.Body)}
		}
		return err
	case storage.APIServiceResource:
		a, err := readAPIService(e)
		automanaged, _ := o.meta.Label(kubever.LabelAutoManaged)
		f.apiServices[strings.Clone(k.Name)] = apiServiceFact{a, string(automanaged)}
		return err
	}
	return nil
}

// memberNames lists the members of spec and status of a JSON object, sorted.
func memberNames(body []byte) []string {
	var names []string
	for _, part := range []string{"spec", "status"} {
		// ReadMeta and readCRD walked the same JSON: it has no errors left.
		_ = storage.JSONMembers(body, func(key, value []byte) bool {
			if string(key) == part {
				_ = storage.JSONMembers(value, func(key, _ []byte) bool {
					names = append(names, part+"."+string(key))
					return true
				})
			}
			return true
		})
	}
	slices.Sort(names)
	return names
}

// readable reports whether every side that reads the resource from the store reads what is stored as the type.
func readable(r *pair.Resource, store string, as stored) bool {
	for _, side := range r.Readers(store) {
		s := r.View(side)
		if !slices.Contains(s.Decodes, as.APIVersion) || slices.Contains(s.WatchBreaks, as.APIVersion) {
			return false
		}
	}
	return as.Kind == r.Kind && as.Encoding != storage.CBOR
}

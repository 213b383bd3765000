package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// kitchen is an API server with its store, as far as a migration can tell: a CRD, objects that are written in its
// storage version and are converted when they are read. It checks after every change that no version is stored which
// the server does not remember.
type kitchen struct {
	t  *testing.T
	mu sync.Mutex

	crd      *Definition
	revision int64
	objects  map[Object]*dish // without resource version
	broken   bool             // conversion
	lags     int              // requests for which the server still writes as before the last switch
	wrote    string           // the storage version from before it
	silent   bool             // discovery does not say how it stores
	// elsewhere: the store that is given is another one
	elsewhere bool
	dropped   bool // a field of every CRD that is written

	now  time.Time
	dies int // calls until the process is killed; 0 for never
	died bool

	system string // UID of kube-system
	log    []Record
}

type dish struct {
	version  string // stored
	revision int64
	bad      bool // cannot be converted
	managed  []ManagedField
}

var errKilled = errors.New("killed")

func newKitchen(t *testing.T, d *Definition, objects int) *kitchen {
	k := &kitchen{t: t, crd: d.Clone(), revision: 100, objects: map[Object]*dish{}, now: time.Unix(1_700_000_000, 0)}
	k.crd.object["metadata"].(map[string]any)["uid"] = "u1"
	k.bump(k.crd.Generation())
	for i := range objects {
		k.revision++
		k.objects[Object{Namespace: fmt.Sprint("n", i%2), Name: fmt.Sprintf("p%03d", i)}] = &dish{version: d.Storage(),
			revision: k.revision,
			managed: []ManagedField{
				{"manager": "old", "operation": "Apply", "apiVersion": d.Resource().APIVersion(d.Storage())}}}
	}
	return k
}

// backup is the store as it is now; restore puts it back, as a new cluster or not.
func (k *kitchen) backup() (restore func()) {
	crd, revision, objects := k.crd.Clone(), k.revision, map[Object]*dish{}
	for o, d := range k.objects {
		copied := *d
		copied.managed = slices.Clone(d.managed)
		objects[o] = &copied
	}
	return func() { k.crd, k.revision, k.objects = crd, revision, objects }
}

// enter is called at the beginning of every call: it is where the process may be killed. What a call does happens, or
// does not.
func (k *kitchen) enter() error {
	k.mu.Lock()
	if k.died {
		return errKilled
	}
	if k.dies > 0 {
		if k.dies--; k.dies == 0 {
			k.died = true
		}
	}
	return nil
}

// leave is called at the end. A process that was killed has lost the answer.
func (k *kitchen) leave() error {
	defer k.mu.Unlock()
	stored := k.crd.StoredVersions()
	for o, d := range k.objects {
		if !slices.Contains(stored, d.version) {
			k.t.Errorf("%s is stored as %s, and status.storedVersions is %v", o, d.version, stored)
		}
	}
	if k.died {
		return errKilled
	}
	return nil
}

// at revision r of the CRD.
func (k *kitchen) bump(generation int64) {
	k.revision++
	meta := k.crd.object["metadata"].(map[string]any)
	meta["generation"], meta["resourceVersion"] = generation, strconv.FormatInt(k.revision, 10)
}

func (k *kitchen) Definition(context.Context, string) (*Definition, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return nil, err
	}
	d := k.crd.Clone()
	return d, k.leave()
}

func (k *kitchen) Update(_ context.Context, d *Definition, status bool) (*Definition, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return nil, err
	}
	if d.ResourceVersion() != k.crd.ResourceVersion() {
		k.mu.Unlock()
		return nil, ErrConflict
	}
	before, generation := k.crd, k.crd.Generation()
	k.crd = d.Clone()
	for _, v := range list(k.crd.spec(), "versions") {
		if schema, ok := at(v, "schema", "openAPIV3Schema").(map[string]any); ok && k.dropped {
			delete(schema, "description")
		}
	}
	if status {
		k.crd.object["spec"] = clone(before.object["spec"])
	} else {
		k.crd.object["status"] = clone(before.object["status"])
		if !before.says(k.crd) || !k.crd.says(before) {
			generation++
		}
		if s := k.crd.Storage(); s != before.Storage() {
			k.wrote = before.Storage()
			if stored := k.crd.StoredVersions(); !slices.Contains(stored, s) {
				k.crd.setStored(append(stored, s)...)
			}
		}
		for _, name := range k.crd.StoredVersions() {
			if _, ok := k.crd.Version(name); !ok {
				k.t.Errorf("version %s is removed, and status.storedVersions has it", name)
			}
		}
	}
	k.bump(generation)
	written := k.crd.Clone()
	return written, k.leave()
}

func (k *kitchen) sorted() []Object {
	var objects []Object
	for o := range k.objects {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.String(), b.String()) })
	return objects
}

func (k *kitchen) served(apiVersion string) error {
	v, ok := k.crd.Version(apiVersion[strings.LastIndexByte(apiVersion, '/')+1:])
	if !ok || !v.Served {
		return fmt.Errorf("%s is not served", apiVersion)
	}
	return nil
}

func (k *kitchen) convert(d *dish, apiVersion string) error {
	if version := apiVersion[strings.LastIndexByte(apiVersion, '/')+1:]; d.version != version && (d.bad || k.broken) {
		return errors.New("conversion webhook failed")
	}
	return nil
}

func (k *kitchen) Page(_ context.Context, list List) (Page, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return Page{}, err
	}
	page, err := Page{ResourceVersion: strconv.FormatInt(k.revision, 10)}, k.served(list.APIVersion)
	for _, o := range k.sorted() {
		d := k.objects[o]
		if err != nil || o.String() <= list.Token {
			continue
		}
		if len(page.Objects) == list.Limit {
			page.Next, page.Remaining = page.Objects[list.Limit-1].String(), 1
			break
		}
		err = k.convert(d, list.APIVersion)
		listed := o
		listed.ResourceVersion = strconv.FormatInt(d.revision, 10)
		managed, jsonErr := json.Marshal(d.managed)
		if err = errors.Join(err, jsonErr); list.Managed == "" {
			managed = nil
		}
		page.Objects, page.ManagedFields = append(page.Objects, listed), append(page.ManagedFields, managed)
	}
	for i := range page.Objects { // without resource versions, as a token
		page.Next = strings.TrimSuffix(page.Next, "@"+page.Objects[i].ResourceVersion)
	}
	return page, errors.Join(err, k.leave())
}

func (k *kitchen) Read(_ context.Context, apiVersion string, o Object) error {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return err
	}
	o.ResourceVersion = ""
	err := k.served(apiVersion)
	if d := k.objects[o]; err == nil && d == nil {
		err = ErrGone
	} else if err == nil {
		err = k.convert(d, apiVersion)
	}
	return errors.Join(err, k.leave())
}

func (k *kitchen) Patch(_ context.Context, apiVersion string, o Object, metadata map[string]any) (string, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return "", err
	}
	resourceVersion := o.ResourceVersion
	o.ResourceVersion = ""
	d := k.objects[o]
	err := k.served(apiVersion)
	switch {
	case err != nil:
	case d == nil:
		err = ErrGone
	case resourceVersion != strconv.FormatInt(d.revision, 10):
		err = ErrConflict
	default:
		err = k.convert(d, apiVersion)
	}
	if err == nil {
		storage := k.crd.Storage()
		if k.lags > 0 {
			k.lags--
			storage = k.wrote
		}
		if storage != d.version || metadata != nil {
			k.revision++
			d.version, d.revision = storage, k.revision
		}
		if fields, ok := metadata["managedFields"].(json.RawMessage); ok {
			d.managed = nil
			err = json.Unmarshal(fields, &d.managed)
		}
		resourceVersion = strconv.FormatInt(d.revision, 10)
	}
	return resourceVersion, errors.Join(err, k.leave())
}

func (k *kitchen) StorageHashes(context.Context, string) (map[string]string, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return nil, err
	}
	hash := StorageHash(k.crd.Resource().APIVersion(k.crd.Storage()), k.crd.Resource().Kind)
	if k.silent {
		hash = ""
	}
	return map[string]string{"server": hash}, k.leave()
}

func (k *kitchen) Sight(context.Context, string) (witness.Sight, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return witness.Sight{}, err
	}
	return witness.Sight{Revision: k.revision, Objects: map[string]witness.Object{
		witness.KubeSystem: {UID: k.system, Revision: 5}}}, k.leave()
}

func (k *kitchen) WebhookProblem(context.Context, Webhook) (string, error) { return "", nil }

// Page of the store.
type kitchenStore struct{ *kitchen }

func (k kitchenStore) Page(_ context.Context, q etcd.Request) (etcd.Page, error) {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return etcd.Page{}, err
	}
	page := etcd.Page{Revision: k.revision}
	within := func(key string) bool { return key >= q.From && (q.To == "" || key < q.To) }
	crd := "/registry/apiextensions.k8s.io/customresourcedefinitions/" + k.crd.Name()
	if revision, err := strconv.ParseInt(k.crd.ResourceVersion(), 10, 64); within(crd) && !k.elsewhere {
		page.RangeKeys++
		page.Entries = append(page.Entries, etcd.Entry{Key: []byte(crd), Value: []byte("{}"), ModRevision: revision})
		if err != nil {
			k.t.Error(err)
		}
	}
	for _, o := range k.sorted() {
		key := "/registry/" + k.crd.Resource().Key + "/" + o.String()
		if !within(key) || k.elsewhere {
			continue
		}
		page.RangeKeys++
		if len(page.Entries) == q.LimitKeys {
			page.More = true
			continue
		}
		d := k.objects[o]
		value, err := json.Marshal(
			map[string]any{"apiVersion": k.crd.Resource().APIVersion(d.version), "kind": "Pizza"})
		if err != nil {
			k.t.Error(err)
		}
		page.Entries = append(page.Entries, etcd.Entry{Key: []byte(key), Value: value, ModRevision: d.revision})
	}
	return page, k.leave()
}

func (k *kitchen) Records() []Record { return k.log }

func (k *kitchen) Append(r Record) error {
	if err := k.enter(); err != nil {
		k.mu.Unlock()
		return err
	}
	data, err := json.Marshal(r) // as a file would hold it
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		k.t.Error(err)
	}
	k.log = append(k.log, r)
	return k.leave()
}

// world is a process that works in the kitchen. It is killed after so many calls, 0 for never.
func (k *kitchen) world(store bool, dies int) *World {
	k.dies, k.died = dies, false
	w := &World{Definitions: k, Objects: k, Servers: k, Journal: k, Workers: 3, PageObjects: 4,
		Now: func() time.Time { return k.now },
		Sleep: func(_ context.Context, d time.Duration) error {
			k.now = k.now.Add(d)
			return nil
		}}
	if store {
		w.Store = &Store{Store: etcd.Store{Name: "core", Pager: kitchenStore{k}}, Prefix: "/registry"}
	}
	return w
}

func (k *kitchen) count() map[string]int {
	counts := map[string]int{}
	for _, d := range k.objects {
		counts[d.version]++
	}
	return counts
}

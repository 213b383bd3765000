package etcdv3_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

func TestWriterGuardsWhatItWrites(t *testing.T) {
	server := etcdtest.Start(t)
	w := &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})}
	ctx := t.Context()
	const lease = 4711
	for range 2 { // the second time there is one
		if err := w.Grant(ctx, lease, 500); err != nil {
			t.Fatal(err)
		}
	}
	if ttl, err := w.TimeToLive(ctx, lease); err != nil || ttl < 400 || ttl > 500 {
		t.Errorf("TimeToLive = %d, %v; want about 500", ttl, err)
	}
	if ttl, err := w.TimeToLive(ctx, 12345); err != nil || ttl > 0 {
		t.Errorf("TimeToLive of no lease = %d, %v; want at most 0", ttl, err)
	}
	entries := []etcd.Entry{{Key: []byte("/a"), Value: []byte("1")},
		{Key: []byte("/b"), Value: []byte("2"), Lease: lease}}
	if created, err := w.Create(ctx, entries); err != nil || !created {
		t.Fatalf("Create = %v, %v", created, err)
	}
	if _, err := w.Create(ctx, []etcd.Entry{{Key: []byte("/d"), Value: []byte("2"), Lease: 4712}}); !errors.Is(
		err, move.ErrLeaseGone) {
		t.Errorf("Create with a lease that is gone = %v, want %v", err, move.ErrLeaseGone)
	}
	if created, err := w.Create(
		ctx, []etcd.Entry{{Key: []byte("/c"), Value: []byte("3")}, entries[0]}); err != nil || created {
		t.Errorf("Create over an existing key = %v, %v; want false", created, err)
	}
	got, err := w.Read(ctx, []string{"/b", "/c", "/a"})
	if err != nil || got[1] != nil || string(got[0].Value) != "2" || got[0].Lease != lease ||
		string(got[2].Value) != "1" {
		t.Fatalf("Read = %+v, %v", got, err)
	}
	at := []move.KeyAt{{Key: "/a", ModRevision: got[2].ModRevision}, {Key: "/b", ModRevision: got[0].ModRevision + 1}}
	if deleted, err := w.Delete(ctx, at); err != nil || deleted {
		t.Errorf("Delete at another revision = %v, %v; want false", deleted, err)
	}
	if deleted, err := w.Delete(ctx, at[:1]); err != nil || !deleted {
		t.Errorf("Delete = %v, %v; want true", deleted, err)
	}
}

// killer ends a run at an operation on a real store, just before or just after it.
type killer struct {
	move.Store
	left  *int
	after bool
}

var errKilled = errors.New("killed")

func (k killer) around(do func() error) error {
	*k.left--
	if *k.left == 0 && !k.after {
		return errKilled
	}
	if err := do(); err != nil {
		return err
	}
	if *k.left == 0 {
		return errKilled
	}
	return nil
}

func (k killer) Create(ctx context.Context, entries []etcd.Entry) (ok bool, err error) {
	err = k.around(func() error { ok, err = k.Store.Create(ctx, entries); return err })
	return ok, err
}

func (k killer) Delete(ctx context.Context, keys []move.KeyAt) (ok bool, err error) {
	err = k.around(func() error { ok, err = k.Store.Delete(ctx, keys); return err })
	return ok, err
}

// memory is a journal and a backup that survive a kill.
type memory struct {
	records []move.Record
	saved   []move.SavedKey
}

func (m *memory) Journal() ([]move.Record, error) { return m.records, nil }
func (m *memory) Append(r move.Record) error      { m.records = append(m.records, r); return nil }

func (m *memory) Saved() (bool, error) { return m.saved != nil, nil }

func (m *memory) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	m.saved = []move.SavedKey{}
	for key, err := range keys {
		if err != nil {
			return err
		}
		m.saved = append(m.saved, key)
	}
	return nil
}

func (m *memory) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		for _, key := range m.saved {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// TestMoveBetweenRealStoresSurvivesKills moves keys to and fro between two members, killed at every write.
func TestMoveBetweenRealStoresSurvivesKills(t *testing.T) {
	ctx := t.Context()
	servers := map[string]*etcdtest.Server{"core": etcdtest.Start(t), "modern": etcdtest.Start(t)}
	values := map[string][]byte{}
	for i := range 150 {
		values[fmt.Sprintf("/registry/deployments/default/d-%03d", i)] = fmt.Appendf(nil, "deployment %d", i)
	}
	servers["core"].Put(t, values)
	real := map[string]move.Store{}
	for name, s := range servers {
		real[name] = &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{s.Endpoint}})}
	}
	m := &pair.Map{Prefix: "/registry", Stores: []string{"core", "modern"},
		CustomResources: pair.Resource{Owner: pair.OwnerModern}, Resources: []pair.Resource{
			{Key: "deployments", Namespaced: true, Owner: pair.OwnerModern, Legacy: pair.View{Store: "core"},
				Modern: pair.View{Store: "modern"}},
		}}
	hold := func(name string) int {
		page, err := real[name].Page(ctx, etcd.Request{From: "/registry/", To: "/registry0", LimitKeys: 1000})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range page.Entries {
			if string(values[string(e.Key)]) == string(e.Value) {
				n++
			}
		}
		return n
	}
	for _, after := range []bool{false, true} {
		for killAt := 1; killAt <= 4; killAt++ { // two batches are created, two deleted
			var moves []move.Move
			header, err := move.New(ctx, m, real, move.Options{}, func(m move.Move) error {
				moves = append(moves, m)
				return nil
			})
			if err != nil || len(moves) != 150 {
				t.Fatalf("planned %d moves, %v; want 150", len(moves), err)
			}
			plan := move.Plan{Header: header, Moves: func() iter.Seq2[move.Move, error] {
				return func(yield func(move.Move, error) bool) {
					for _, m := range moves {
						if !yield(m, nil) {
							return
						}
					}
				}
			}}
			files, left := &memory{}, killAt
			job := func(stores map[string]move.Store) move.Job {
				return move.Job{Map: m, Stores: stores, Plan: plan, Files: files, Run: "a journal", By: "a test"}
			}
			deadly := map[string]move.Store{"core": killer{real["core"], &left, after},
				"modern": killer{real["modern"], &left, after}}
			if _, err := move.Apply(ctx, job(deadly)); !errors.Is(err, errKilled) {
				t.Fatalf("kill %d: Apply = %v, want it killed", killAt, err)
			}
			if core, modern := hold("core"), hold("modern"); core+modern < 150 {
				t.Fatalf("kill %d: %d keys in core and %d in modern, want 150 at least", killAt, core, modern)
			}
			if _, err := move.Apply(ctx, job(real)); err != nil {
				t.Fatalf("kill %d: run again: %v", killAt, err)
			}
			if core, modern := hold("core"), hold("modern"); core != 0 || modern != 150 {
				t.Fatalf("kill %d, run again: %d keys in core and %d in modern, want 0 and 150", killAt, core, modern)
			}
			left = killAt
			if _, err := move.Undo(ctx, job(deadly)); !errors.Is(err, errKilled) {
				t.Fatalf("kill %d: Undo = %v, want it killed", killAt, err)
			}
			if _, err := move.Undo(ctx, job(real)); err != nil {
				t.Fatalf("kill %d: undone again: %v", killAt, err)
			}
			if core, modern := hold("core"), hold("modern"); core != 150 || modern != 0 {
				t.Fatalf("kill %d, undone again: %d keys in core and %d in modern, want 150 and 0", killAt, core,
					modern)
			}
		}
	}
}

// TestLockGuardsEveryWrite: of two runs of one journal only the one that came last writes.
func TestLockGuardsEveryWrite(t *testing.T) {
	server := etcdtest.Start(t)
	ctx := t.Context()
	writer := func() *etcdv3.Writer {
		return &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})}
	}
	first, second, other := writer(), writer(), writer()
	entry := []etcd.Entry{{Key: []byte("/a"), Value: []byte("1")}}
	release, err := first.Lock(ctx, "/lock", move.Owner{Run: "1", Store: "core", By: "the first"})
	if err != nil {
		t.Fatal(err)
	}
	if created, err := first.Create(ctx, entry); !created || err != nil {
		t.Fatalf("Create with the lock = %v, %v", created, err)
	}
	var locked *move.LockedError
	for _, owner := range []move.Owner{{Run: "2", Store: "core"}, {Run: "1", Store: "modern"}} {
		if _, err := other.Lock(ctx, "/lock", owner); !errors.As(err, &locked) || locked.By != "the first" ||
			locked.Seconds < 30 || locked.Seconds > 60 {
			t.Errorf("Lock for %+v = %v, want it held by the first", owner, err)
		}
	}
	releaseSecond, err := second.Lock(ctx, "/lock", move.Owner{Run: "1", Store: "core", By: "the second"})
	if err != nil {
		t.Fatal(err)
	}
	at, err := second.Read(ctx, []string{"/a"})
	if err != nil || at[0] == nil {
		t.Fatal(err)
	}
	if _, err := first.Delete(ctx, []move.KeyAt{{Key: "/a", ModRevision: at[0].ModRevision}}); !errors.Is(
		err, move.ErrLockLost) {
		t.Errorf("Delete without the lock = %v, want %v", err, move.ErrLockLost)
	}
	if _, err := first.Create(ctx, []etcd.Entry{{Key: []byte("/b")}}); !errors.Is(err, move.ErrLockLost) {
		t.Errorf("Create without the lock = %v, want %v", err, move.ErrLockLost)
	}
	if err := release(ctx); err != nil { // it does not take the second one's
		t.Error(err)
	}
	if deleted, err := second.Delete(ctx, []move.KeyAt{{Key: "/a", ModRevision: at[0].ModRevision + 1}}); deleted ||
		err != nil {
		t.Errorf("Delete at another revision = %v, %v; want false, nil", deleted, err)
	}
	if deleted, err := second.Delete(ctx, []move.KeyAt{{Key: "/a", ModRevision: at[0].ModRevision}}); !deleted ||
		err != nil {
		t.Errorf("Delete with the lock = %v, %v", deleted, err)
	}
	if err := releaseSecond(ctx); err != nil {
		t.Error(err)
	}
	if at, err := other.Read(ctx, []string{"/lock", "/a", "/b"}); err != nil || at[0] != nil || at[1] != nil ||
		at[2] != nil {
		t.Errorf("in the end there are %v, %v; want nothing", at, err)
	}
}

// TestAStoreThatIsFull tells its room before, takes no lock, names the one that is there, and deletes.
func TestAStoreThatIsFull(t *testing.T) {
	t.Parallel()
	const quota = 4 << 20
	server := etcdtest.StartWith(t, func(c *embed.Config) { c.QuotaBackendBytes = quota })
	writer := func() *etcdv3.Writer {
		return &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})}
	}
	first, second := writer(), writer()
	if room, known := first.Room(t.Context()); !known || room <= 0 || room >= quota {
		t.Errorf("Room = %d, %v; want most of %d", room, known, quota)
	}
	server.Put(t, map[string][]byte{"/registry/copy": []byte("copy")})
	release, err := first.Lock(t.Context(), "/lock", move.Owner{Run: "1", Store: "core", By: "the first"})
	if err != nil {
		t.Fatal(err)
	}
	filler := strings.Repeat("x", 1<<20)
	for i := 0; err == nil && i < 100; i++ {
		_, err = server.Client(t).Put(t.Context(), fmt.Sprintf("/elsewhere/%d", i), filler)
	}
	if err == nil {
		t.Fatal("it is never full")
	}
	var locked *move.LockedError
	if _, err := second.Lock(t.Context(), "/lock", move.Owner{Run: "2", Store: "core"}); !errors.As(err, &locked) ||
		locked.By != "the first" {
		t.Errorf("Lock beside another = %v, want the other named", err)
	}
	if err := release(t.Context()); err != nil {
		t.Errorf("release = %v", err)
	}
	if _, err := second.Lock(t.Context(), "/lock", move.Owner{Run: "2", Store: "core"}); !errors.Is(err, move.ErrFull) {
		t.Errorf("Lock = %v, want %v", err, move.ErrFull)
	}
	if _, err := second.Create(t.Context(), []etcd.Entry{{Key: []byte("/registry/new")}}); !errors.Is(
		err, move.ErrFull) {
		t.Errorf("Create = %v, want %v", err, move.ErrFull)
	}
	entries, err := second.Read(t.Context(), []string{"/registry/copy"})
	if err != nil {
		t.Fatal(err)
	}
	if deleted, err := second.Delete(t.Context(),
		[]move.KeyAt{{Key: "/registry/copy", ModRevision: entries[0].ModRevision + 1}}); err != nil || deleted {
		t.Errorf("Delete at another revision = %v, %v; want it refused", deleted, err)
	}
	if deleted, err := second.Delete(t.Context(),
		[]move.KeyAt{{Key: "/registry/copy", ModRevision: entries[0].ModRevision}}); err != nil || !deleted {
		t.Errorf("Delete = %v, %v; want it done", deleted, err)
	}
}

// TestMoveSurvivesLostAnswers loses one request or one answer after the other, of both stores: a move does not notice.
func TestMoveSurvivesLostAnswers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	lossy, clean := map[string]move.Store{}, map[string]move.Store{}
	proxies, servers := map[string]*etcdtest.Requests{}, map[string]*etcdtest.Server{}
	for _, name := range []string{"core", "modern"} {
		servers[name] = etcdtest.Start(t)
		proxies[name] = etcdtest.NewRequests(t, servers[name])
		lossy[name] = &etcdv3.Writer{
			Client: open(t, etcdv3.Config{Endpoints: []string{proxies[name].Endpoint}, Timeout: 5 * time.Second})}
		clean[name] = &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{servers[name].Endpoint}})}
	}
	lease, err := servers["core"].Client(t).Grant(ctx, 3000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 120 {
		var options []clientv3.OpOption
		if i%4 == 0 {
			options = append(options, clientv3.WithLease(lease.ID))
		}
		if _, err := servers["core"].Client(t).Put(ctx, fmt.Sprintf("/registry/deployments/default/d-%03d", i),
			fmt.Sprintf("deployment %d", i), options...); err != nil {
			t.Fatal(err)
		}
	}
	m := &pair.Map{Prefix: "/registry", Stores: []string{"core", "modern"},
		CustomResources: pair.Resource{Owner: pair.OwnerModern}, Resources: []pair.Resource{
			{Key: "deployments", Namespaced: true, Owner: pair.OwnerModern, Legacy: pair.View{Store: "core"},
				Modern: pair.View{Store: "modern"}},
		}}
	before, empty := contents(t, servers["core"]), contents(t, servers["modern"])
	lost := 0
	for n := int64(1); ; n++ {
		var moves []move.Move
		header, err := move.New(ctx, m, clean, move.Options{}, func(m move.Move) error {
			moves = append(moves, m)
			return nil
		})
		if err != nil || len(moves) != 120 {
			t.Fatalf("planned %d moves, %v; want 120", len(moves), err)
		}
		plan := move.Plan{Header: header, ID: fmt.Sprint(n), Moves: func() iter.Seq2[move.Move, error] {
			return func(yield func(move.Move, error) bool) {
				for _, m := range moves {
					if !yield(m, nil) {
						return
					}
				}
			}
		}}
		job := move.Job{Map: m, Stores: lossy, Plan: plan, Files: &memory{}, Run: fmt.Sprint("journal ", n),
			By: "a test"}
		reached := false
		for i, verb := range []func(context.Context, move.Job) (move.Result, error){move.Apply, move.Undo} {
			for _, p := range proxies {
				p.Reset()
				look := func(r etcdtest.Request) error {
					if r.Number == n && r.Answered == (n%3 != 0) { // two answers for a request
						reached = true
						return etcdtest.ErrLost
					}
					return nil
				}
				p.Look.Store(&look)
			}
			if result, err := verb(ctx, job); err != nil || result.Moved != 120 {
				t.Fatalf("request %d lost: %+v, %v; want 120 keys", n, result, err)
			}
			if i == 0 && (len(contents(t, servers["core"])) != 0 || len(contents(t, servers["modern"])) != 120) {
				t.Fatalf("request %d lost: not all keys are moved", n)
			}
		}
		if core, modern := contents(t, servers["core"]), contents(t, servers["modern"]); !maps.Equal(core, before) ||
			!maps.Equal(modern, empty) {
			t.Fatalf("request %d lost: %d and %d keys after undo, want %d and none", n, len(core), len(modern),
				len(before))
		}
		if !reached {
			break
		}
		lost++
	}
	if lost < 15 {
		t.Errorf("only %d requests were lost", lost)
	}
}

// contents are the keys of a member with their values and leases.
func contents(t *testing.T, s *etcdtest.Server) map[string]string {
	t.Helper()
	response, err := s.Client(t).Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, kv := range response.Kvs {
		values[string(kv.Key)] = fmt.Sprintf("%s %x", kv.Value, kv.Lease)
	}
	return values
}

// deployments gives all deployments to the store modern.
func deployments() *pair.Map {
	return &pair.Map{Prefix: "/registry", Stores: []string{"core", "modern"},
		CustomResources: pair.Resource{Owner: pair.OwnerModern}, Resources: []pair.Resource{
			{Key: "deployments", Namespaced: true, Owner: pair.OwnerModern, Legacy: pair.View{Store: "core"},
				Modern: pair.View{Store: "modern"}},
		}}
}

// planned plans a move of so many keys.
func planned(t *testing.T, stores map[string]move.Store, id string, keys int) move.Job {
	t.Helper()
	var moves []move.Move
	header, err := move.New(t.Context(), deployments(), stores, move.Options{}, func(m move.Move) error {
		moves = append(moves, m)
		return nil
	})
	if err != nil || len(moves) != keys {
		t.Fatalf("planned %d moves, %v; want %d", len(moves), err, keys)
	}
	plan := move.Plan{Header: header, ID: id, Moves: func() iter.Seq2[move.Move, error] {
		return func(yield func(move.Move, error) bool) {
			for _, m := range moves {
				if !yield(m, nil) {
					return
				}
			}
		}
	}}
	return move.Job{Map: deployments(), Stores: stores, Plan: plan, Files: &memory{}, Run: "the journal of " + id,
		By: "a test"}
}

func manyDeployments(n int) map[string][]byte {
	values := map[string][]byte{}
	for i := range n {
		values[fmt.Sprintf("/registry/deployments/default/d-%04d", i)] = fmt.Appendf(nil, "deployment %d", i)
	}
	return values
}

// TestWhatAMemberDoesLate: the transactions of an apply hang in a member until long after it gave up; an undo brings
// everything back; and then the member does them. Without a lock in their guard, late deletions would take the only
// copies.
func TestWhatAMemberDoesLate(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"core", "modern"} { // the one where keys are deleted, the one where they are created
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			servers := map[string]*etcdtest.Server{"core": etcdtest.Start(t), "modern": etcdtest.Start(t)}
			servers["core"].Put(t, manyDeployments(50))
			before := contents(t, servers["core"])
			direct, through := map[string]move.Store{}, map[string]move.Store{}
			for name, s := range servers {
				direct[name] = &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{s.Endpoint}})}
				through[name] = &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{s.Endpoint}})}
			}
			proxy := etcdtest.NewRequests(t, servers[slow])
			through[slow] = &etcdv3.Writer{
				Client: open(t, etcdv3.Config{Endpoints: []string{proxy.Endpoint}, Timeout: time.Minute})}
			job := planned(t, direct, "late", 50)
			wake, hanging := make(chan struct{}), atomic.Bool{}
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			var late atomic.Int64
			done := make(chan struct{}, 1000) // more than there are transactions
			look := func(r etcdtest.Request) error {
				if r.Method != "KV/Txn" || !hanging.Load() {
					return nil
				}
				if !r.Answered {
					late.Add(1)
					giveUp()
					<-wake
				} else {
					done <- struct{}{}
				}
				return nil
			}
			proxy.Look.Store(&look)
			job.Stores = through
			job.Progress = func(step move.Step, moves int64) {
				if slow == "core" && step == move.Copied || slow == "modern" && step == move.Saved {
					through[slow] = hangs{through[slow], &hanging}
				}
			}
			if _, err := move.Apply(ctx, job); err == nil || late.Load() == 0 {
				t.Fatalf("Apply of a member that hangs = %v, with %d transactions on the way", err, late.Load())
			}
			job.Stores = direct
			if result, err := move.Undo(t.Context(), job); err != nil || result.Moved != 50 {
				t.Fatalf("Undo = %+v, %v; want 50 keys", result, err)
			}
			close(wake)
			for range late.Load() { // the member has done what was sent to it
				select {
				case <-done:
				case <-time.After(time.Minute):
					t.Fatal("the member does not do what was sent to it")
				}
			}
			if core, modern := contents(t, servers["core"]),
				contents(t, servers["modern"]); !maps.Equal(core, before) || len(modern) != 0 {
				t.Errorf("in the end there are %d keys in core and %d in modern, want %d and none", len(core),
					len(modern), len(before))
			}
		})
	}
}

// hangs makes a member hang from the first write on.
type hangs struct {
	move.Store
	hanging *atomic.Bool
}

func (h hangs) Create(ctx context.Context, entries []etcd.Entry) (bool, error) {
	h.hanging.Store(true)
	return h.Store.Create(ctx, entries)
}

func (h hangs) Delete(ctx context.Context, keys []move.KeyAt) (bool, error) {
	h.hanging.Store(true)
	return h.Store.Delete(ctx, keys)
}

// TestMoveThroughAChangeOfLeaders: the destination has three members; its leader changes while keys are copied, and a
// member that is asked stops while they are deleted.
func TestMoveThroughAChangeOfLeaders(t *testing.T) {
	t.Parallel()
	source, cluster := etcdtest.Start(t), etcdtest.StartCluster(t, 3)
	source.Put(t, manyDeployments(600))
	stores := map[string]move.Store{
		"core": &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{source.Endpoint}})},
		"modern": &etcdv3.Writer{
			Client: open(t, etcdv3.Config{Endpoints: cluster.Endpoints(), Timeout: 2 * time.Second})},
	}
	job := planned(t, stores, "leaders", 600)
	job.Progress = func(step move.Step, moves int64) {
		switch {
		case step == move.Copied && moves == 200:
			cluster.MoveLeader(t, (cluster.Leader(t)+1)%3)
		case step == move.Deleted && moves == 200:
			cluster.Members[0].Stop()
		}
	}
	if result, err := move.Apply(t.Context(), job); err != nil || result.Moved != 600 || result.Left != 0 {
		t.Fatalf("Apply = %+v, %v; want 600 keys", result, err)
	}
	if left := contents(t, source); len(left) != 0 {
		t.Errorf("%d keys are left in core", len(left))
	}
	if result, err := move.Undo(t.Context(), job); err != nil || result.Moved != 600 ||
		len(contents(t, source)) != 600 {
		t.Errorf("Undo with two members of three = %+v, %v; %d keys in core, want 600", result, err,
			len(contents(t, source)))
	}
}

package etcdv3_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

// objects are n keys of benchMap, of several resources, and an object that it has something to say about.
func objects(n int) map[string][]byte {
	values := map[string][]byte{"/registry/namespaces/default": benchObject("v1", "Namespace", "", "default", "", nil)}
	for i := range n - 2 {
		kind := [][3]string{{"pods", "v1", "Pod"}, {"configmaps", "v1", "ConfigMap"}, {"secrets", "v1", "Secret"}}[i%3]
		name := fmt.Sprintf("o-%05d", i)
		values["/registry/"+kind[0]+"/default/"+name] = benchObject(kind[1], kind[2], "default", name, "",
			make([]byte, 200))
	}
	values["/registry/pods/default/bad"] = []byte("k8s\x00damaged")
	return values
}

const storeKeys = 900

// scanning scans the store in small pages, and calls trouble after each step with the number of keys that were read.
func scanning(t *testing.T, client *etcdv3.Client, trouble func(keys int64)) *scan.Report {
	t.Helper()
	var mu sync.Mutex
	var keys int64
	report, err := scan.Stores(t.Context(), benchMap(), []etcd.Store{{Name: "core", Pager: client}},
		scan.Options{
			Limits: etcd.Limits{Keys: 40},
			Progress: func(p scan.Progress) {
				mu.Lock()
				defer mu.Unlock()
				if keys += p.Keys; p.Keys > 0 && trouble != nil {
					trouble(keys)
				}
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// each calls the steps in turn, the i-th once (i+1)*every keys are read.
func each(every int64, steps ...func()) func(keys int64) {
	done := 0
	return func(keys int64) {
		if done < len(steps) && keys >= int64(done+1)*every {
			done++
			steps[done-1]()
		}
	}
}

// wantWhole fails unless the report is what it is of a store that nothing happens to.
func wantWhole(t *testing.T, report *scan.Report) {
	t.Helper()
	if !report.Complete || report.Stores[0].Keys != storeKeys {
		t.Errorf("%d keys, complete %v, incomplete %q; want all %d", report.Stores[0].Keys, report.Complete,
			report.Incomplete, storeKeys)
	}
	var rules []string
	for _, f := range report.Findings {
		if f.Severity > finding.Info { // a filler outside of the prefix is a remark
			rules = append(rules, f.Rule+" "+f.Subject)
		}
	}
	if want := []string{"FUS000 core:pods"}; !slices.Equal(rules, want) {
		t.Errorf("findings = %q, want %q", rules, want)
	}
}

// incompleteSays reports whether one of the reasons says all of it.
func incompleteSays(report *scan.Report, says ...string) bool {
	return slices.ContainsFunc(report.Incomplete, func(reason string) bool {
		return !slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(reason, s) })
	})
}

func wantNote(t *testing.T, report *scan.Report, says ...string) {
	t.Helper()
	for _, s := range says {
		if !slices.ContainsFunc(report.Stores[0].Notes, func(note string) bool { return strings.Contains(note, s) }) {
			t.Errorf("notes = %q, want one that says %q", report.Stores[0].Notes, s)
		}
	}
}

func TestScanWhileTheLeaderChanges(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cluster.Members[1].Put(t, objects(storeKeys))
	client := open(t, etcdv3.Config{Endpoints: cluster.Endpoints(), Timeout: 5 * time.Second})
	report := scanning(t, client, each(150,
		func() { cluster.MoveLeader(t, 1) },
		func() { cluster.MoveLeader(t, 0) }, // which is read
		func() { cluster.Members[0].Stop() },
	))
	wantWhole(t, report)
	wantNote(t, report, "going on with "+cluster.Members[1].Endpoint)
	if len(report.Stores[0].Notes) != 1 {
		t.Errorf("notes = %q, want only that one member was left", report.Stores[0].Notes)
	}
}

func TestScanWhileMembersDieOneAfterTheOther(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cluster.Members[0].Put(t, objects(storeKeys))
	client := open(t, etcdv3.Config{Endpoints: cluster.Endpoints(), Timeout: 5 * time.Second})
	stop := func(i int) func() { return cluster.Members[i].Stop }
	report := scanning(t, client, each(200, stop(0), stop(1), stop(2)))
	if report.Complete || report.Stores[0].Keys < 600 || report.Stores[0].Keys == storeKeys {
		t.Errorf("%d keys, complete %v; want what was read until the last member died", report.Stores[0].Keys,
			report.Complete)
	}
	wantNote(t, report, "going on with "+cluster.Members[1].Endpoint, "going on with "+cluster.Members[2].Endpoint)
	if !incompleteSays(report, `store core: reading "/registry/`, "no member answered") {
		t.Errorf("incomplete = %q, want the range that was not read, and why", report.Incomplete)
	}
	for _, f := range report.Findings {
		if f.Rule != "FUS000" {
			t.Errorf("finding %+v of what was not read", f)
		}
	}
}

func TestScanLeavesAMemberThatHangs(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, objects(storeKeys))
	first, other := etcdtest.NewProxy(t, server.Endpoint), etcdtest.NewProxy(t, server.Endpoint)
	client := open(t, etcdv3.Config{Endpoints: []string{first.Endpoint, other.Endpoint}, Timeout: 5 * time.Second})
	report := scanning(t, client, each(300, first.Hang))
	wantWhole(t, report)
	wantNote(t, report, first.Endpoint+": context deadline exceeded; going on with "+other.Endpoint)
}

// TestScanOfASlowMember: an answer that takes its time is an answer.
func TestScanOfASlowMember(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, objects(storeKeys))
	slow, other := etcdtest.NewProxy(t, server.Endpoint), etcdtest.NewProxy(t, server.Endpoint)
	slow.Delay(100 * time.Millisecond)
	client := open(t, etcdv3.Config{Endpoints: []string{slow.Endpoint, other.Endpoint}, Timeout: 10 * time.Second})
	report := scanning(t, client, nil)
	wantWhole(t, report)
	if len(report.Stores[0].Notes) > 0 {
		t.Errorf("notes = %q, want nothing to be said of a slow member", report.Stores[0].Notes)
	}
}

// TestScanWithoutAQuorum: what is left of the cluster is read when that is asked for, and only then.
func TestScanWithoutAQuorum(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cluster.Members[2].Put(t, objects(storeKeys))
	cluster.Members[0].Stop()
	cluster.Members[1].Stop()
	etcdtest.Eventually(t, "the last member to notice", func() bool {
		status, err := cluster.Members[2].Client(t).Status(t.Context(), cluster.Members[2].Endpoint)
		return err == nil && status.Leader == 0
	})
	config := etcdv3.Config{Endpoints: cluster.Endpoints(), Timeout: 3 * time.Second} // a read ends with it
	report := scanning(t, open(t, config), nil)
	var unreachable *etcdv3.UnreachableError
	if report.Complete || !errors.As(report.Cause, &unreachable) || !unreachable.NoLeader ||
		!incompleteSays(report, cluster.Members[2].Endpoint+": it runs and has no leader") {
		t.Errorf("complete %v, incomplete %q; want it to say that there is no leader", report.Complete,
			report.Incomplete)
	}
	config.Timeout, config.Serializable = time.Minute, true // members that stopped refuse at once
	report = scanning(t, open(t, config), nil)
	wantWhole(t, report)
	wantNote(t, report, "connection refused; going on with "+cluster.Members[1].Endpoint,
		"read as "+cluster.Members[2].Endpoint+" knows it")
}

func TestScanRefusesEndpointsOfTwoClusters(t *testing.T) {
	t.Parallel()
	one, two := etcdtest.Start(t), etcdtest.Start(t)
	one.Put(t, objects(storeKeys))
	two.Put(t, objects(storeKeys))
	first, second := etcdtest.NewProxy(t, one.Endpoint), etcdtest.NewProxy(t, two.Endpoint)
	config := etcdv3.Config{Endpoints: []string{first.Endpoint, second.Endpoint}, Timeout: 5 * time.Second}
	refused := func(report *scan.Report) {
		t.Helper()
		var other *etcdv3.OtherClusterError
		if report.Complete || !errors.As(report.Cause, &other) || !incompleteSays(report, "they are two stores") {
			t.Errorf("complete %v, incomplete %q; want two clusters to be refused", report.Complete, report.Incomplete)
		}
	}
	report := scanning(t, open(t, config), nil)
	refused(report)
	if report.Stores[0].Keys > 0 {
		t.Errorf("%d keys were read", report.Stores[0].Keys)
	}
	err := open(t, config).Watch(t.Context(), "/registry/", 1, time.Minute, func(int64, []etcd.Change) error {
		return nil
	})
	if !errors.Is(err, etcdv3.ErrReplaced) {
		t.Errorf("Watch = %v, want %v", err, etcdv3.ErrReplaced)
	}
	// The second is not there to say who it is, until the first has died.
	second.Cut()
	refused(scanning(t, open(t, config), each(300, func() { second.Mend(t); first.Cut() })))
}

func TestSameKnowsAStoreByAnyAddress(t *testing.T) {
	t.Parallel()
	one, two := etcdtest.StartCluster(t, 2), etcdtest.Start(t)
	one.Members[0].Put(t, objects(10))
	two.Put(t, objects(10))
	a := open(t, etcdv3.Config{Endpoints: one.Endpoints()[:1]})
	b := open(t, etcdv3.Config{Endpoints: one.Endpoints()[1:]})
	c := open(t, etcdv3.Config{Endpoints: []string{two.Endpoint}})
	for _, test := range []struct {
		a, b *etcdv3.Client
		want bool
	}{{a, b, true}, {b, a, true}, {a, c, false}, {c, b, false}} {
		if got, err := test.a.Same(t.Context(), test.b, "/registry/"); got != test.want || err != nil {
			t.Errorf("Same = %v, %v; want %v", got, err, test.want)
		}
	}
}

// TestScanWhileTheStoreIsCompacted compacts after every page, and then all the time.
func TestScanWhileTheStoreIsCompacted(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, objects(storeKeys))
	compact := func() error {
		put, err := server.Client(t).Put(t.Context(), "compact_rev_key", "x")
		if err == nil {
			_, err = server.Client(t).Compact(t.Context(), put.Header.Revision)
		}
		return err
	}
	report := scanning(t, open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}}), func(int64) {
		if err := compact(); err != nil {
			t.Error(err)
		}
	})
	wantWhole(t, report)
	wantNote(t, report, "was compacted", "is read again at revision", "is read on at revision")

	ctx, cancel := context.WithCancel(t.Context())
	compacted := sync.NewCond(&sync.Mutex{})
	compactions := 0
	var failed error // as compactions, with the lock of compacted
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil && failed == nil {
			err := compact()
			compacted.L.Lock()
			compactions, failed = compactions+1, err
			compacted.L.Unlock()
			compacted.Broadcast()
		}
	})
	wantWhole(t, scanning(t, open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}}), func(int64) {
		compacted.L.Lock()
		defer compacted.L.Unlock()
		for before := compactions; compactions < before+2 && failed == nil; {
			compacted.Wait()
		}
	}))
	cancel()
	group.Wait()
	if failed != nil {
		t.Errorf("compacting: %v", failed)
	}
}

// TestPageWaitsForALaggingMember: a member that does not have the revision yet will have it.
func TestPageWaitsForALaggingMember(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, objects(10))
	head, err := server.Client(t).Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	way := etcdtest.NewRequests(t, server)
	refused := 0
	look := func(r etcdtest.Request) error {
		if r.Method != "KV/Range" || !r.Answered {
			return nil
		}
		if refused++; refused == 3 { // the third time it still did not have the revision
			server.Put(t, map[string][]byte{"/registry/pods/default/new": nil})
		}
		return nil
	}
	client := open(t, etcdv3.Config{Endpoints: []string{way.Endpoint}, Timeout: 10 * time.Second})
	request := all
	request.Revision = head.Header.Revision + 1
	way.Look.Store(&look)
	if page, err := client.Page(t.Context(), request); err != nil || len(page.Entries) != 11 {
		t.Errorf("Page = %d entries, %v; want 11 once the member has the revision", len(page.Entries), err)
	}
	client = open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}, Timeout: 2 * time.Second})
	request.Revision = 1 << 40
	var unreachable *etcdv3.UnreachableError
	if _, err := client.Page(t.Context(), request); !errors.As(err, &unreachable) ||
		!strings.Contains(err.Error(), "future revision") ||
		!strings.Contains(unreachable.Hint(), "restored from a backup") {
		t.Errorf("Page far in the future = %v", err)
	}
}

func TestLearner(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 1)
	cluster.Members[0].Put(t, objects(storeKeys))
	learner := cluster.AddLearner(t)
	config := etcdv3.Config{Endpoints: []string{learner.Endpoint}, Timeout: time.Minute}
	var unreachable *etcdv3.UnreachableError
	if report := scanning(t, open(t, config), nil); report.Complete || !errors.As(report.Cause, &unreachable) ||
		!strings.Contains(unreachable.Hint(), "is a learner") {
		t.Errorf("complete %v, incomplete %q; want it to say that the member is a learner", report.Complete,
			report.Incomplete)
	}
	config.Endpoints = []string{learner.Endpoint, cluster.Members[0].Endpoint}
	report := scanning(t, open(t, config), nil)
	wantWhole(t, report)
	wantNote(t, report, "it is a learner; going on with "+cluster.Members[0].Endpoint)
}

func TestFullStoreIsReadAndSaysWhyItIsNotWritten(t *testing.T) {
	t.Parallel()
	server := etcdtest.StartWith(t, func(c *embed.Config) { c.QuotaBackendBytes = 2 << 20 })
	server.Put(t, objects(storeKeys))
	for i := 0; ; i++ {
		if _, err := server.Client(t).Put(t.Context(), "/filler", strings.Repeat("x", 1<<20)); err != nil {
			break
		}
		if i == 300 { // a server counts what is committed, ten times a second
			t.Fatal("the store does not get full")
		}
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}, Timeout: time.Minute})
	report := scanning(t, client, nil)
	wantWhole(t, report)
	wantNote(t, report, "is full (alarm NOSPACE)")
	_, err := (&etcdv3.Writer{Client: client}).Create(
		t.Context(), []etcd.Entry{{Key: []byte("/registry/pods/default/new"), Value: []byte("x")}})
	var refused *etcdv3.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "space exceeded") ||
		!strings.Contains(refused.Hint(), "etcdctl alarm disarm") {
		t.Errorf("Create in a full store = %v, want it to say so", err)
	}
}

func TestAlarmsAreNoted(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, objects(storeKeys))
	conn := server.Client(t).ActiveConnection()
	status, err := pb.NewMaintenanceClient(conn).Status(t.Context(), &pb.StatusRequest{})
	if err == nil {
		_, err = pb.NewMaintenanceClient(conn).Alarm(t.Context(),
			&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId,
				Alarm: pb.AlarmType_CORRUPT})
	}
	if err != nil {
		t.Fatal(err)
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}, Timeout: 5 * time.Second})
	report := scanning(t, client, nil)
	wantWhole(t, report)
	wantNote(t, report, "members to differ (alarm CORRUPT)")
	var refused *etcdv3.RefusedError
	writer := &etcdv3.Writer{Client: client}
	if _, err := writer.Create(t.Context(),
		[]etcd.Entry{{Key: []byte("/registry/pods/default/new"), Value: []byte("x")}}); !errors.As(
		err, &refused) || !strings.Contains(refused.Hint(), "takes no writes") {
		t.Errorf("Create = %v, want it to say that the store is corrupt", err)
	}
}

// withUsers turns authentication on, with root, and reader who may read what is below /registry/.
func withUsers(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "secret")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "reader")),
		second(c.RoleGrantPermission(ctx, "reader", "/registry/", "/registry0",
			clientv3.PermissionType(clientv3.PermRead))),
		second(c.UserAdd(ctx, "reader", "secret")), second(c.UserGrantRole(ctx, "reader", "reader")),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTokensThatAreForgotten turns authentication off and on in the middle: the server does not know the tokens any
// more. The user may read what is below the prefix, and nothing else.
func TestTokensThatAreForgotten(t *testing.T) {
	t.Parallel()
	server := etcdtest.StartWith(t, func(c *embed.Config) { c.BcryptCost = 4 })
	server.Put(t, objects(storeKeys))
	server.Put(t, map[string][]byte{"/elsewhere": []byte("x")})
	withUsers(t, server.Client(t))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Username: "root",
		Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	forget := func() {
		if _, err := root.AuthDisable(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := server.Client(t).AuthEnable(t.Context()); err != nil {
			t.Error(err)
		}
	}
	way, other := etcdtest.NewProxy(t, server.Endpoint), etcdtest.NewProxy(t, server.Endpoint)
	config := etcdv3.Config{Endpoints: []string{way.Endpoint, other.Endpoint}, Username: "reader", Password: "secret",
		Timeout: 10 * time.Second}
	report := scanning(t, open(t, config), each(200, forget, forget, forget))
	wantWhole(t, report)
	wantNote(t, report, `keys outside "/registry/" are not counted`)
	if len(report.Stores[0].Notes) != 1 {
		t.Errorf("notes = %q, want no member to be left for a token", report.Stores[0].Notes)
	}

	// A watch stands, and a new one is opened with a token that is forgotten.
	done := errors.New("done")
	put := func() {
		if _, err := root.Put(t.Context(), "/registry/pods/default/new", "x"); err != nil {
			t.Error(err)
		}
	}
	put()
	n := 0
	reader := open(t, config)
	count := func(_ int64, changes []etcd.Change) error {
		if n += len(changes); n%3 == 0 {
			return done
		}
		forget()
		put()
		return nil
	}
	for range 2 {
		if err := reader.Watch(t.Context(), "/registry/", report.Stores[0].Revision+1, time.Minute, count); !errors.Is(
			err, done) {
			t.Fatalf("Watch = %v after %d changes", err, n)
		}
		forget()
	}
	if err := reader.Watch(t.Context(), "/elsewhere", 1, time.Minute, count); !errors.Is(err, etcd.ErrDenied) {
		t.Errorf("Watch of what may not be read = %v, want %v", err, etcd.ErrDenied)
	}
}

// TestTokenOfAnotherRequest: several requests share a token, and one that is late puts an old one in place of the
// newest.
func TestTokenOfAnotherRequest(t *testing.T) {
	t.Parallel()
	server := etcdtest.StartWith(t, func(c *embed.Config) { c.BcryptCost = 4 })
	server.Put(t, objects(10))
	withUsers(t, server.Client(t))
	way := etcdtest.NewRequests(t, server)
	for _, test := range []struct {
		refusal error
		times   int64 // a client of etcd makes a request with two tokens by itself
		passes  bool
	}{
		{rpctypes.ErrGRPCInvalidAuthToken, 4, true},
		{rpctypes.ErrGRPCAuthOldRevision, 3, true},
		{rpctypes.ErrGRPCUserEmpty, 3, true},
		{rpctypes.ErrGRPCInvalidAuthToken, 1 << 40, false},
		{rpctypes.ErrGRPCUserEmpty, 1 << 40, false},
	} {
		t.Run(fmt.Sprint(test.times, " times ", rpctypes.ErrorDesc(test.refusal)), func(t *testing.T) {
			var left atomic.Int64
			left.Store(test.times)
			look := func(r etcdtest.Request) error {
				if r.Method == "KV/Range" && !r.Answered && left.Add(-1) >= 0 {
					return test.refusal
				}
				return nil
			}
			way.Look.Store(&look)
			client := open(t, etcdv3.Config{Endpoints: []string{way.Endpoint, server.Endpoint}, Username: "reader",
				Password: "secret", Timeout: 20 * time.Second})
			page, err := client.Page(t.Context(), all)
			if notes := client.Notes(); test.passes && (err != nil || len(page.Entries) != 10 || len(notes) > 0) {
				t.Errorf("Page = %d entries, %v; notes %q; want 10 and no member left", len(page.Entries), err, notes)
			} else if !test.passes && err == nil && len(notes) == 0 {
				t.Error("a member that takes no token is not left")
			}
		})
	}
}

// TestUserOfACertificate: the user is the name in the client's certificate, who may not ask members who they are.
func TestUserOfACertificate(t *testing.T) {
	t.Parallel()
	server := etcdtest.StartTLS(t)
	server.Put(t, objects(storeKeys))
	c, ctx := server.Client(t), t.Context()
	if err := errors.Join(second(c.RoleAdd(ctx, "certified")),
		second(c.UserAddWithOptions(ctx, "etcd", "", &clientv3.UserAddOptions{NoPassword: true})),
		second(c.RoleGrantPermission(ctx, "certified", "/registry/", "/registry0",
			clientv3.PermissionType(clientv3.PermRead))),
		second(c.UserGrantRole(ctx, "etcd", "certified"))); err != nil {
		t.Fatal(err)
	}
	withUsers(t, c)
	pki := server.PKI
	first, other := etcdtest.NewProxy(t, server.Endpoint), etcdtest.NewProxy(t, server.Endpoint)
	config := etcdv3.Config{Endpoints: []string{first.Endpoint, other.Endpoint}, CAFile: pki.CA, CertFile: pki.Cert,
		KeyFile: pki.Key, Timeout: 5 * time.Second}
	report := scanning(t, open(t, config), each(300, first.Hang))
	wantWhole(t, report)
	wantNote(t, report, `keys outside "/registry/" are not counted`, "going on with "+other.Endpoint)
	if len(report.Stores[0].Notes) != 2 {
		t.Errorf("notes = %q, want two", report.Stores[0].Notes)
	}
}

// history is what etcd itself says happened to the keys below the prefix since a revision.
func history(t *testing.T, client *clientv3.Client, from int64) []string {
	t.Helper()
	head, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var happened []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for response := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		for _, e := range response.Events {
			happened = append(happened, fmt.Sprint(e.Kv.ModRevision, " ", string(e.Kv.Key), " ", string(e.Kv.Value)))
			if e.Kv.ModRevision == head.Header.Revision {
				return happened
			}
		}
	}
	t.Fatal("the history ends")
	return nil
}

// TestWatchThroughTrouble writes all the time, does to a cluster what happens to clusters, and compares what was seen
// with what etcd says was written: nothing is lost, and nothing comes twice.
func TestWatchThroughTrouble(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cluster.Members[0].Put(t, map[string][]byte{"/registry/a": nil})
	var proxies []*etcdtest.Proxy
	config := etcdv3.Config{Timeout: 700 * time.Millisecond}
	for _, m := range cluster.Members {
		proxies = append(proxies, etcdtest.NewProxy(t, m.Endpoint))
		config.Endpoints = append(config.Endpoints, proxies[len(proxies)-1].Endpoint)
	}
	var watched atomic.Int64 // the member that the watch went on with last
	config.Log = func(msg string) {
		for i, e := range config.Endpoints {
			if strings.HasSuffix(msg, "going on with "+e) {
				watched.Store(int64(i))
			}
		}
	}
	changed := sync.NewCond(&sync.Mutex{})
	var seen []string
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	client := open(t, config)
	var watchErr error // as seen, with the lock of changed
	ended := false
	group.Go(func() {
		err := client.Watch(ctx, "/registry/", 2, time.Minute,
			func(revision int64, changes []etcd.Change) error {
				changed.L.Lock()
				defer changed.L.Unlock()
				for _, c := range changes {
					seen = append(seen, fmt.Sprint(c.ModRevision, " ", string(c.Key), " ", string(c.Value)))
				}
				changed.Broadcast()
				return nil
			})
		changed.L.Lock()
		defer changed.L.Unlock()
		watchErr, ended = err, true
		changed.Broadcast()
	})
	// Whatever ends the test, the watch and the writer end with it.
	defer group.Wait()
	defer cancel()
	writer := cluster.Client(t)
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			putCtx, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = writer.Put(putCtx, fmt.Sprintf("/registry/k-%d", i%5), fmt.Sprint(i)) // it may fail meanwhile
			cancel()
		}
	})
	// caughtUp waits until the watch has seen something that is written from now on.
	caughtUp := func() {
		t.Helper()
		var marker *clientv3.PutResponse
		etcdtest.Eventually(t, "a write to succeed", func() bool { // it may fail meanwhile
			putCtx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			marker, _ = writer.Put(putCtx, "/registry/marker", "m")
			return marker != nil
		})
		want, late := fmt.Sprint(marker.Header.Revision, " /registry/marker m"), false
		limit := time.AfterFunc(2*time.Minute, func() {
			changed.L.Lock()
			defer changed.L.Unlock()
			late = true
			changed.Broadcast()
		})
		defer limit.Stop()
		changed.L.Lock()
		defer changed.L.Unlock()
		for !slices.Contains(seen, want) {
			if ended || late {
				t.Fatalf("%q is not seen; the watch has ended: %t, %v; its last member: %d; seen last: %q", want, ended,
					watchErr, watched.Load(), seen[max(0, len(seen)-5):])
			}
			changed.Wait()
		}
	}
	caughtUp()
	cluster.MoveLeader(t, int(watched.Load()+1)%3)
	caughtUp()
	hung := proxies[watched.Load()]
	hung.Hang()
	caughtUp()
	hung.Resume()
	killed := cluster.Members[watched.Load()]
	killed.Stop()
	caughtUp()
	killed.Restart(t)
	caughtUp()
	for _, p := range proxies {
		p.Cut()
	}
	for _, p := range proxies {
		p.Mend(t)
	}
	caughtUp()
	cancel()
	group.Wait()
	if !errors.Is(watchErr, context.Canceled) {
		t.Fatalf("Watch = %v", watchErr)
	}
	happened := history(t, writer, 2)
	if diff := cmp.Diff(happened[:min(len(seen), len(happened))], seen); diff != "" {
		t.Errorf("what happened and what was seen differ (-happened +seen):\n%s", diff)
	}
	if len(seen) < 20 {
		t.Errorf("only %d changes were seen", len(seen))
	}
}

// TestWatchOfAnIdleStoreHasPatience: nothing happened for longer than the patience, and then the member dies.
func TestWatchOfAnIdleStoreHasPatience(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	server := etcdtest.Start(t)
	server.Put(t, map[string][]byte{"/registry/a": nil})
	first, other := etcdtest.NewProxy(t, server.Endpoint), etcdtest.NewProxy(t, server.Endpoint)
	done := errors.New("done")
	left := make(chan struct{}, 10)
	client := open(t, etcdv3.Config{Endpoints: []string{first.Endpoint, other.Endpoint}, Timeout: time.Minute,
		Log: func(string) {
			left <- struct{}{}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-left:
			server.Put(t, map[string][]byte{"/registry/a": []byte("changed")})
		case <-ctx.Done():
		}
	}()
	err := client.Watch(ctx, "/registry/", 2, patience, func(_ int64, changes []etcd.Change) error {
		if len(changes) == 1 && string(changes[0].Value) == "changed" {
			return done
		}
		idle := time.AfterFunc(patience+100*time.Millisecond, first.Cut) // the watch stands
		t.Cleanup(func() { idle.Stop() })
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("Watch = %v, want it to go on with the other member", err)
	}
}

// TestWatchNoticesAStoreThatWasReplaced: a backup was restored under the same address, with other ids or with the same.
func TestWatchNoticesAStoreThatWasReplaced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		token        string
		serializable bool
	}{{"the same", false}, {"the same", true}, {"another", false}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Parallel()
			server := etcdtest.StartWith(t, func(c *embed.Config) { c.InitialClusterToken = "the same" })
			for i := range 20 {
				server.Put(t, map[string][]byte{"/registry/a": fmt.Append(nil, i)})
			}
			client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}, Timeout: 2 * time.Second,
				Serializable: test.serializable})
			err := client.Watch(t.Context(), "/registry/", 2, time.Minute,
				func(revision int64, _ []etcd.Change) error {
					if revision == 21 {
						server.Stop()
						at, err := url.Parse(server.Endpoint)
						if err != nil {
							return err
						}
						etcdtest.StartWith(t, func(c *embed.Config) {
							c.InitialClusterToken = test.token
							c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
						})
					}
					return nil
				})
			if !errors.Is(err, etcdv3.ErrReplaced) {
				t.Errorf("Watch = %v, want %v", err, etcdv3.ErrReplaced)
			}
			client.Forget()
			if page, err := client.Page(t.Context(), all); err != nil || len(page.Entries) != 0 {
				t.Errorf("Page after Forget = %+v, %v; want the new store, which is empty", page, err)
			}
		})
	}
}

// TestWatchWaitsForALaggingMember: without a quorum a watch goes on with a member that is a revision behind, and is not
// told that the store was replaced.
func TestWatchWaitsForALaggingMember(t *testing.T) {
	t.Parallel()
	// two etcds with one id, so as to hold one of them back
	configure := func(c *embed.Config) { c.InitialClusterToken = "the same" }
	var left atomic.Bool            // the watch has to go on with the other
	asked := make(chan struct{}, 1) // after that, the one that lags behind has answered
	answering := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		answer, err := handle(ctx, request)
		if _, read := request.(*pb.RangeRequest); read && left.Load() {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return answer, err
	}
	ahead := etcdtest.StartWith(t, configure)
	behind := etcdtest.StartWith(t, func(c *embed.Config) {
		configure(c)
		c.GRPCAdditionalServerOptions = append(c.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(answering))
	})
	put := func(s *etcdtest.Server, value string) { s.Put(t, map[string][]byte{"/registry/a": []byte(value)}) }
	for _, value := range []string{"0", "1"} {
		put(ahead, value)
		put(behind, value)
	}
	put(ahead, "2")
	way := etcdtest.NewProxy(t, ahead.Endpoint)
	client := open(t, etcdv3.Config{Endpoints: []string{way.Endpoint, behind.Endpoint}, Timeout: time.Minute,
		Serializable: true})
	done := errors.New("done")
	var seen []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-asked:
			put(behind, "2")
			put(behind, "3")
		case <-ctx.Done():
		}
	}()
	err := client.Watch(ctx, "/registry/", 2, time.Minute, func(_ int64, changes []etcd.Change) error {
		for _, c := range changes {
			seen = append(seen, string(c.Value))
			switch string(c.Value) {
			case "2":
				left.Store(true)
				way.Cut()
			case "3":
				return done
			}
		}
		return nil
	})
	if want := []string{"0", "1", "2", "3"}; !errors.Is(err, done) || !slices.Equal(seen, want) {
		t.Errorf("Watch = %v, seen %q; want %q", err, seen, want)
	}
}

// TestWatchSeesATransactionWhole, also one that the server cuts into several messages.
func TestWatchSeesATransactionWhole(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	large := strings.Repeat("x", 1<<20)
	ops := make([]clientv3.Op, 4) // more than a server puts into one message
	for i := range ops {
		ops[i] = clientv3.OpPut(fmt.Sprintf("/registry/k-%d", i), large[:1<<18])
	}
	for range 12 {
		if _, err := server.Client(t).Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	done := errors.New("done")
	count := map[int64]int{}
	err := client.Watch(t.Context(), "/registry/", 1, time.Minute,
		func(revision int64, changes []etcd.Change) error {
			for _, c := range changes {
				count[c.ModRevision]++
			}
			for r := range count {
				if r <= revision && count[r] != len(ops) {
					t.Errorf("%d changes of revision %d came with those up to %d, want %d", count[r], r, revision,
						len(ops))
				}
			}
			if revision == 13 {
				return done
			}
			return nil
		})
	if !errors.Is(err, done) || len(count) != 12 {
		t.Errorf("Watch = %v, changes of %d revisions; want 12", err, len(count))
	}
}

// TestMain lets more tests run at a time than there are processors: what they do is wait, for elections and for
// timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

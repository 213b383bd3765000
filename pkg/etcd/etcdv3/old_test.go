package etcdv3_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
)

// TestEtcdOfAnotherRelease reads, watches and writes with the etcd program that FUSIONCTL_TEST_ETCD names: old clusters
// run old ones. It was run with 3.1.20, 3.2.13, 3.3.10 and 3.5.17.
func TestEtcdOfAnotherRelease(t *testing.T) {
	program := os.Getenv("FUSIONCTL_TEST_ETCD")
	if program == "" {
		t.Skip("FUSIONCTL_TEST_ETCD is not set")
	}
	t.Parallel()
	client, peer := "http://"+etcdtest.FreeAddress(t), "http://"+etcdtest.FreeAddress(t)
	cmd := exec.CommandContext(t.Context(), program, "--data-dir", t.TempDir(), "--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	bare, err := clientv3.New(
		clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	put := func(key, value string) error {
		_, err := bare.Put(t.Context(), key, value)
		return err
	}
	etcdtest.Eventually(t, "etcd to serve", func() bool { return put("/registry/pods/default/first", "x") == nil })
	if _, err := bare.Delete(t.Context(), "/registry/pods/default/first"); err != nil {
		t.Fatal(err)
	}
	for key, value := range objects(storeKeys) {
		if err := put(key, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	first, other := etcdtest.NewProxy(t, client), etcdtest.NewProxy(t, client)
	config := etcdv3.Config{Endpoints: []string{first.Endpoint, other.Endpoint}, Timeout: 2 * time.Second}
	report := scanning(t, open(t, config), each(300, first.Hang))
	wantWhole(t, report)
	wantNote(t, report, "going on with "+other.Endpoint)
	first.Resume()

	// Every change, once, through a cut.
	done := errors.New("done")
	n := 0
	watching := open(t, config)
	if err := put("/registry/n", "0"); err != nil {
		t.Fatal(err)
	}
	err = watching.Watch(t.Context(), "/registry/", report.Stores[0].Revision+1, time.Minute,
		func(_ int64, changes []etcd.Change) error {
			for _, c := range changes {
				if string(c.Value) != fmt.Sprint(n) {
					return fmt.Errorf("change %d is %q", n, c.Value)
				}
				switch n++; n {
				case 20:
					first.Cut()
				case 40:
					return done
				}
				if err := put("/registry/n", fmt.Sprint(n)); err != nil {
					return err
				}
			}
			return nil
		})
	if !errors.Is(err, done) {
		t.Errorf("Watch = %v after %d changes, want 40", err, n)
	}
	head, err := bare.Get(t.Context(), "x")
	if err == nil {
		_, err = bare.Compact(t.Context(), head.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = watching.Watch(t.Context(), "/registry/", 3, time.Minute, func(int64, []etcd.Change) error {
		return nil
	})
	if !errors.Is(err, etcd.ErrCompacted) {
		t.Errorf("Watch of what is compacted = %v, want %v", err, etcd.ErrCompacted)
	}

	writer := &etcdv3.Writer{Client: open(t, config)}
	const lease = 4711
	if err := writer.Grant(t.Context(), lease, 600); err != nil {
		t.Errorf("Grant = %v", err)
	}
	entry := etcd.Entry{Key: []byte("/registry/pods/default/moved"), Value: []byte("x"), Lease: lease}
	for _, want := range []bool{true, false} {
		if created, err := writer.Create(t.Context(), []etcd.Entry{entry}); err != nil || created != want {
			t.Errorf("Create = %v, %v; want %v", created, err, want)
		}
	}
	if seconds, err := writer.TimeToLive(t.Context(), lease); err != nil || seconds < 500 {
		t.Errorf("TimeToLive = %d, %v", seconds, err)
	}

	// A user who may read the prefix.
	withUsers(t, bare)
	config.Username, config.Password = "reader", "secret"
	report = scanning(t, open(t, config), nil)
	if !report.Complete || report.Stores[0].Keys != storeKeys+2 {
		t.Errorf("as reader: %d keys, incomplete %q", report.Stores[0].Keys, report.Incomplete)
	}
	wantNote(t, report, `keys outside "/registry/" are not counted`)
	if err := open(t, config).Watch(t.Context(), "/elsewhere", 0, time.Minute, func(int64, []etcd.Change) error {
		return nil
	}); !errors.Is(err, etcd.ErrDenied) {
		t.Errorf("Watch of what may not be read = %v, want %v", err, etcd.ErrDenied)
	}
}

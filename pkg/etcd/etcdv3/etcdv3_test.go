package etcdv3_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
)

func open(t *testing.T, config etcdv3.Config) *etcdv3.Client {
	t.Helper()
	client, err := etcdv3.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func podKeys(n int) map[string][]byte {
	values := map[string][]byte{}
	for i := range n {
		values[fmt.Sprintf("/registry/pods/default/p-%04d", i)] = fmt.Appendf(nil, "value %d", i)
	}
	return values
}

var all = etcd.Request{From: "/registry/", To: "/registry0", LimitKeys: 100}

func TestPagesReadsALiveStore(t *testing.T) {
	server := etcdtest.Start(t)
	values := podKeys(1000)
	server.Put(t, values)
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	head, err := client.Page(t.Context(), etcd.Request{From: "\x00", LimitKeys: 1, KeysOnly: true})
	if err != nil || head.RangeKeys != 1000 || head.Revision < 3 {
		t.Fatalf("head = %+v, %v; want 1000 keys", head, err)
	}
	server.Put(t, map[string][]byte{"/registry/pods/default/p-0500": []byte("changed later")})
	for _, keysOnly := range []bool{false, true} {
		got := 0
		request := all
		request.Revision, request.KeysOnly = head.Revision, keysOnly
		err := etcd.Pages(t.Context(), client, request, etcd.Limits{Keys: 150}, func(p etcd.Page) error {
			for _, e := range p.Entries {
				if !keysOnly && string(e.Value) != string(values[string(e.Key)]) {
					t.Errorf("%s = %q at revision %d, want %q", e.Key, e.Value, head.Revision, values[string(e.Key)])
				}
				if keysOnly && e.Value != nil {
					t.Errorf("%s comes with a value", e.Key)
				}
				got++
			}
			return nil
		})
		if err != nil || got != 1000 {
			t.Errorf("keysOnly %v: read %d keys, %v; want 1000", keysOnly, got, err)
		}
	}
}

func TestPageSaysThatARevisionWasCompacted(t *testing.T) {
	server := etcdtest.Start(t)
	server.Put(t, podKeys(10))
	server.Put(t, podKeys(10))
	if _, err := server.Client(t).Compact(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	request := all
	request.Revision = 2
	if _, err := client.Page(t.Context(), request); !errors.Is(err, etcd.ErrCompacted) {
		t.Errorf("Page at a compacted revision = %v, want %v", err, etcd.ErrCompacted)
	}
}

func TestPageRefusesMoreThanItTakesIn(t *testing.T) {
	server := etcdtest.Start(t)
	large := make([]byte, 1<<20)
	for i := range 20 {
		server.Put(t, map[string][]byte{fmt.Sprintf("/registry/secrets/default/s-%02d", i): large})
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	if _, err := client.Page(t.Context(), all); !errors.Is(err, etcd.ErrPageTooLarge) {
		t.Fatalf("Page of 20 MiB = %v, want %v", err, etcd.ErrPageTooLarge)
	}
	n := 0
	err := etcd.Pages(t.Context(), client, all, etcd.Limits{}, func(p etcd.Page) error {
		n += len(p.Entries)
		return nil
	})
	if err != nil || n != 20 {
		t.Errorf("Pages read %d of 20 values of 1 MiB: %v", n, err)
	}
}

func TestPageGoesOnWithAnotherMember(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Put(t, podKeys(10))
	var mu sync.Mutex
	var said []string
	client := open(t, etcdv3.Config{
		Endpoints: []string{"http://" + closedPort(t), "http://" + silentPort(t), server.Endpoint},
		Log:       func(msg string) { mu.Lock(); said = append(said, msg); mu.Unlock() },
	})
	page, err := client.Page(t.Context(), all)
	if err != nil || len(page.Entries) != 10 {
		t.Fatalf("Page = %d entries, %v; want 10 from the third member", len(page.Entries), err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 2 || !strings.Contains(said[0], "connection refused") ||
		!strings.Contains(said[1], "going on with "+server.Endpoint) {
		t.Errorf("failovers = %q, want both to be told", said)
	}
}

// closedPort is an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentPort is an address that takes connections and never answers.
func silentPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestPageWithTLS(t *testing.T) {
	server := etcdtest.StartTLS(t)
	server.Put(t, podKeys(3))
	pki := server.PKI
	good := etcdv3.Config{Endpoints: []string{server.Endpoint}, CAFile: pki.CA, CertFile: pki.Cert, KeyFile: pki.Key,
		Timeout: 2 * time.Second}
	page, err := open(t, good).Page(t.Context(), all)
	if err != nil || len(page.Entries) != 3 {
		t.Fatalf("Page = %d entries, %v; want 3", len(page.Entries), err)
	}
	for name, test := range map[string]struct {
		change     func(*etcdv3.Config)
		says, hint string
	}{
		"wrong CA": {func(c *etcdv3.Config) {
			c.CAFile = pki.OtherCA
		}, "unknown authority", "the CA file does not belong to this etcd"},
		"no certificate": {func(c *etcdv3.Config) {
			c.CertFile, c.KeyFile = "", ""
		}, "certificate required", "wants a client certificate"},
		"no TLS": {func(c *etcdv3.Config) {
			c.Endpoints = []string{strings.Replace(server.Endpoint, "https", "http", 1)}
		}, "no member answered", "https://"},
		"nobody there": {func(c *etcdv3.Config) {
			c.Endpoints = []string{"https://" + closedPort(t)}
		}, "connection refused", "nothing listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			test.change(&config)
			_, err := open(t, config).Page(t.Context(), all)
			var unreachable *etcdv3.UnreachableError
			if !errors.As(err, &unreachable) {
				t.Fatalf("Page = %v, want an UnreachableError", err)
			}
			if !strings.Contains(err.Error(), test.says) || !strings.Contains(unreachable.Hint(), test.hint) {
				t.Errorf("error %q, hint %q; want %q and %q", err, unreachable.Hint(), test.says, test.hint)
			}
		})
	}
}

// TestCertificateIsReadForEveryConnection: it is renewed while a watch runs.
func TestCertificateIsReadForEveryConnection(t *testing.T) {
	t.Parallel()
	server := etcdtest.StartTLS(t)
	server.Put(t, podKeys(3))
	way := etcdtest.NewProxy(t, server.Endpoint)
	dir := t.TempDir()
	config := etcdv3.Config{Endpoints: []string{way.Endpoint}, CAFile: server.PKI.CA,
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Timeout: 5 * time.Second}
	replace := func(pki etcdtest.PKI) {
		t.Helper()
		for from, to := range map[string]string{pki.Cert: config.CertFile, pki.Key: config.KeyFile} {
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		way.Cut()
		way.Mend(t)
	}
	replace(server.PKI)
	client := open(t, config)
	if page, err := client.Page(t.Context(), all); err != nil || len(page.Entries) != 3 {
		t.Fatalf("Page = %d entries, %v; want 3", len(page.Entries), err)
	}
	replace(etcdtest.NewPKI(t)) // of another CA
	var unreachable *etcdv3.UnreachableError
	if _, err := client.Page(t.Context(), all); !errors.As(err, &unreachable) ||
		!strings.Contains(unreachable.Hint(), "not signed by the CA that this etcd trusts") {
		t.Errorf("Page with a certificate of another CA = %v", err)
	}
	replace(server.PKI)
	if page, err := client.Page(t.Context(), all); err != nil || len(page.Entries) != 3 {
		t.Errorf("Page with the certificate that was put in place = %d entries, %v; want 3", len(page.Entries), err)
	}
	if err := os.Remove(config.KeyFile); err != nil {
		t.Fatal(err)
	}
	way.Cut()
	way.Mend(t)
	if _, err := client.Page(t.Context(), all); err == nil ||
		!strings.Contains(err.Error(), "reading the client certificate "+config.CertFile) {
		t.Errorf("Page without the file of the key = %v", err)
	}
}

func TestPageWithUserAndPassword(t *testing.T) {
	server := etcdtest.StartWith(t, func(c *embed.Config) { c.BcryptCost = 4 })
	server.Put(t, podKeys(3))
	c, ctx := server.Client(t), t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "secret")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "nothing")), second(c.UserAdd(ctx, "nobody", "secret")),
		second(c.UserGrantRole(ctx, "nobody", "nothing")),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	config := etcdv3.Config{Endpoints: []string{server.Endpoint}, Username: "root", Password: "secret",
		Timeout: 2 * time.Second}
	if page, err := open(t, config).Page(ctx, all); err != nil || len(page.Entries) != 3 {
		t.Errorf("Page as root = %d entries, %v; want 3", len(page.Entries), err)
	}
	for name, says := range map[string]string{"nobody": "permission denied", "": "user name is empty",
		"stranger": "authentication failed"} {
		config.Username = name
		_, err := open(t, config).Page(ctx, all)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Page as %q = %v, want %q and no password", name, err, says)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestOpenRefusesBadConfiguration(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no PEM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	https := []string{"https://127.0.0.1:1"}
	for says, config := range map[string]etcdv3.Config{
		"no endpoint":                     {},
		`endpoint "127.0.0.1:2379": want`: {Endpoints: []string{"127.0.0.1:2379"}},
		`endpoint "ftp://h": want`:        {Endpoints: []string{"ftp://h"}},
		"no such file":                    {Endpoints: https, CAFile: text + "2"},
		"holds no PEM certificate":        {Endpoints: https, CAFile: text},
		"needs both":                      {Endpoints: https, CertFile: text},
		"reading the client certificate":  {Endpoints: https, CertFile: text, KeyFile: text},
	} {
		if _, err := etcdv3.Open(config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Open = %v, want an error that says %q", err, says)
		}
	}
}

// TestLivePagesMatchABareClient compares with what etcd's own client reads, keys outside the range included.
func TestLivePagesMatchABareClient(t *testing.T) {
	server := etcdtest.Start(t)
	values := podKeys(50)
	values["compact_rev_key"], values["/registry0"], values["/other"] = []byte("1"), []byte("x"), []byte("y")
	server.Put(t, values)
	bare, err := server.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, kv := range bare.Kvs {
		want = append(want, string(kv.Key))
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	err = etcd.Pages(t.Context(), client, etcd.Request{From: "\x00", LimitKeys: 1}, etcd.Limits{Keys: 7},
		func(p etcd.Page) error {
			for _, e := range p.Entries {
				got = append(got, string(e.Key))
			}
			return nil
		})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Pages = %q, %v; want %q", got, err, want)
	}
}

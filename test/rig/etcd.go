package rig

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Etcd is an etcd, of one member inside the test's process, or of several that are processes of their own. It serves
// with TLS and wants client certificates.
type Etcd struct {
	Name string
	URL  string   // https://127.0.0.1:23456, of the first member
	URLs []string // of all members
	// Members are the processes of an etcd of several members, in the order of their URLs.
	Members []*Process

	rig       *Rig
	config    *embed.Config
	server    *embed.Etcd
	client    *clientv3.Client
	clientCrt string
	clientKey string
}

// StartEtcd starts an empty etcd and waits until it serves.
func (r *Rig) StartEtcd(name string) *Etcd {
	r.t.Helper()
	return r.startEtcd(name, false)
}

// StartAnonymousEtcd starts an etcd that serves TLS and asks no client for a certificate.
func (r *Rig) StartAnonymousEtcd(name string) *Etcd {
	r.t.Helper()
	e, err := r.newEtcd(name)
	if err != nil {
		r.t.Fatalf("preparing etcd %s: %v", name, err)
	}
	e.config.ClientTLSInfo.TrustedCAFile, e.config.ClientTLSInfo.ClientCertAuth = "", false
	e.config.UnsafeNoFsync = true
	r.etcds = append(r.etcds, e)
	e.Start()
	return e
}

// StartDurableEtcd starts an etcd that brings every write to the disk before it answers, as in production: for
// measurements.
func (r *Rig) StartDurableEtcd(name string) *Etcd {
	r.t.Helper()
	return r.startEtcd(name, true)
}

func (r *Rig) startEtcd(name string, durable bool) *Etcd {
	r.t.Helper()
	e, err := r.newEtcd(name)
	if err != nil {
		r.t.Fatalf("preparing etcd %s: %v", name, err)
	}
	e.config.UnsafeNoFsync = !durable // a test's data need not outlive the machine
	r.etcds = append(r.etcds, e)
	e.Start()
	return e
}

func (r *Rig) newEtcd(name string) (*Etcd, error) {
	serverCrt, serverKey, err := r.PKI.Serving("etcd-"+name, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	clientCrt, clientKey, err := r.PKI.Client("etcd-"+name+"-client", "rig")
	if err != nil {
		return nil, err
	}
	client := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", r.Port())}
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", r.Port())}

	config := embed.NewConfig()
	config.Name = name
	config.Dir = filepath.Join(r.dir, "etcd-"+name)
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = name + "=" + peer.String()
	config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = serverCrt, serverKey
	config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = r.PKI.File("ca.crt"), true
	config.LogOutputs = []string{filepath.Join(r.dir, "etcd-"+name+".log")}
	config.LogLevel = "warn"
	return &Etcd{Name: name, URL: client.String(), URLs: []string{client.String()}, rig: r, config: config,
		clientCrt: clientCrt, clientKey: clientKey}, nil
}

// StartEtcdMembers starts an empty etcd of several members, each at an address of its own on the sandbox's bridge and a
// process that can be killed, and waits until it serves. The certificate of a member is good for its own address, and
// unless they are apart for those of the others.
func (r *Rig) StartEtcdMembers(name string, members int, apart bool) *Etcd {
	r.t.Helper()
	program, err := Program("etcd")
	if err != nil {
		r.t.Fatal(err)
	}
	release, err := etcdReleaseOf(r.t.Context(), program)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.startMembers(name, release, r.bridgeAddresses(members), apart)
}

// EtcdRelease is a release of etcd that is built.
type EtcdRelease struct {
	Minor   kubever.EtcdMinor
	Version string // 3.4.21
	// Everywhere: it is the one that the rig runs where no other is asked for.
	Everywhere bool
	// OnRequest: make rig does not build it, and not every change is tested with it.
	OnRequest bool
	program   string
}

// EtcdReleases lists the releases of etcd that are built, the oldest first: that of the folder etcd, and those of the
// folders etcd-3.N.
// Errors: none is built; a program that does not say its version; one without its folder.
func EtcdReleases(ctx context.Context) ([]EtcdRelease, error) {
	one, err := Program("etcd")
	if err != nil {
		return nil, err
	}
	others, err := filepath.Glob(one + "-*")
	if err != nil {
		return nil, err
	}
	var releases []EtcdRelease
	for _, program := range append(others, one) {
		release, err := etcdReleaseOf(ctx, program)
		if err != nil {
			return nil, err
		}
		if release.Everywhere = program == one; !release.Everywhere {
			folder := filepath.Join(filepath.Dir(filepath.Dir(program)), filepath.Base(program))
			if release.OnRequest, err = onRequest(folder); err != nil {
				return nil, err
			}
		}
		releases = append(releases, release)
	}
	slices.SortFunc(releases, func(a, b EtcdRelease) int {
		return cmp.Or(cmp.Compare(a.Minor.Major, b.Minor.Major), cmp.Compare(a.Minor.Minor, b.Minor.Minor))
	})
	return releases, nil
}

var etcdVersion = regexp.MustCompile(`(?m)^etcd Version: (\S+)$`)

// etcdReleaseOf asks the program which release it is.
func etcdReleaseOf(ctx context.Context, program string) (EtcdRelease, error) {
	out, err := exec.CommandContext(ctx, program, "--version").CombinedOutput()
	match := etcdVersion.FindSubmatch(out)
	if err != nil || match == nil {
		return EtcdRelease{}, fmt.Errorf("asking %s for its version: %v: %s", program, err, out)
	}
	release := EtcdRelease{Version: string(match[1]), program: program}
	var ok bool
	if release.Minor, ok = kubever.ParseEtcd(release.Version); !ok {
		return EtcdRelease{}, fmt.Errorf("%s says that it is %q: want a version such as 3.6.8", program,
			release.Version)
	}
	return release, nil
}

// etcdFlags are those that not every release has.
var etcdFlags = []struct {
	flag  string
	since kubever.EtcdMinor
}{
	{"--unsafe-no-fsync", kubever.EtcdMinor{Major: 3, Minor: 5}},
	{"--log-level=warn", kubever.EtcdMinor{Major: 3, Minor: 5}},
}

// StartEtcdOf starts an empty etcd of a release, of several members at ports of one address, and waits until it serves.
func (r *Rig) StartEtcdOf(name string, release EtcdRelease, members int) *Etcd {
	r.t.Helper()
	return r.startMembers(name, release, slices.Repeat([]string{r.host}, members), false)
}

func (r *Rig) startMembers(name string, release EtcdRelease, addresses []string, apart bool) *Etcd {
	r.t.Helper()
	e := &Etcd{Name: name, rig: r}
	var err error
	if e.clientCrt, e.clientKey, err = r.PKI.Client("etcd-"+name+"-client", "rig"); err != nil {
		r.t.Fatal(err)
	}
	var peers, initial []string
	for i, address := range addresses {
		e.URLs = append(e.URLs, fmt.Sprintf("https://%s:%d", address, r.Port()))
		peers = append(peers, fmt.Sprintf("http://%s:%d", address, r.Port()))
		initial = append(initial, fmt.Sprintf("%s-%d=%s", name, i+1, peers[i]))
	}
	e.URL = e.URLs[0]
	for i, address := range addresses {
		member := fmt.Sprintf("%s-%d", name, i+1)
		names := addresses
		if apart {
			names = []string{address}
		}
		serverCrt, serverKey, err := r.PKI.Serving("etcd-"+member, names...)
		if err != nil {
			r.t.Fatal(err)
		}
		args := []string{
			"--name=" + member, "--data-dir=" + filepath.Join(r.dir, "etcd-"+member),
			"--listen-client-urls=" + e.URLs[i], "--advertise-client-urls=" + e.URLs[i],
			"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i],
			"--initial-cluster=" + strings.Join(initial, ","),
			"--cert-file=" + serverCrt, "--key-file=" + serverKey, "--client-cert-auth",
			"--trusted-ca-file=" + r.PKI.File("ca.crt"),
			// a busy machine is not a lost leader
			"--heartbeat-interval=200", "--election-timeout=2000",
		}
		for _, f := range etcdFlags {
			if older := release.Minor.Major < f.since.Major ||
				release.Minor.Major == f.since.Major && release.Minor.Minor < f.since.Minor; !older {
				args = append(args, f.flag)
			}
		}
		e.Members = append(e.Members, r.start("etcd-"+member, release.program, args))
	}
	e.AwaitMembers()
	return e
}

// Authenticate makes the store ask who its clients are: API servers and the client of the rig are the user in their
// certificates, who may read and write what API servers keep, and nothing else.
func (e *Etcd) Authenticate() {
	e.rig.t.Helper()
	ctx, client := e.rig.t.Context(), e.Client()
	const user, role = "rig", "kubernetes"
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", rand.Text()); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, role); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, role, "/registry", "/registry0", clientv3.PermissionType(
				clientv3.PermReadWrite))
			return err
		},
		func() error { // with which API servers agree on who compacts
			_, err := client.RoleGrantPermission(ctx, role, "compact_rev_key", "", clientv3.PermissionType(
				clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, user, rand.Text()); return err },
		func() error { _, err := client.UserGrantRole(ctx, user, role); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			e.rig.t.Fatalf("authentication of etcd %s: %v", e.Name, err)
		}
	}
}

// AwaitMembers waits until every member answers a read of what the majority has.
func (e *Etcd) AwaitMembers() {
	e.rig.t.Helper()
	for i, member := range e.Members {
		client := e.clientOf(e.URLs[i])
		member.Wait("serve", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := client.Get(ctx, "/registry/ready")
			return err
		})
		client.Close()
	}
}

// Flags are the arguments with which an API server of any release uses this etcd.
func (e *Etcd) Flags() []string {
	return []string{
		"--etcd-servers=" + strings.Join(e.URLs, ","),
		"--etcd-cafile=" + e.rig.PKI.File("ca.crt"),
		"--etcd-certfile=" + e.clientCrt,
		"--etcd-keyfile=" + e.clientKey,
	}
}

// Start starts a stopped etcd, with the data and the address that it had, and waits until it serves.
func (e *Etcd) Start() {
	e.rig.t.Helper()
	if e.server != nil {
		e.rig.t.Fatalf("etcd %s runs already", e.Name)
	}
	if len(e.Members) > 0 {
		for _, member := range e.Members {
			member.StartAgain()
		}
		e.AwaitMembers()
		return
	}
	server, err := embed.StartEtcd(e.config)
	if err != nil {
		e.rig.t.Fatalf("starting etcd %s: %v", e.Name, err)
	}
	e.server = server
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		e.rig.t.Fatalf("starting etcd %s: %v", e.Name, err)
	case <-time.After(readyWithin):
		e.rig.t.Fatalf("etcd %s does not serve after %s", e.Name, readyWithin)
	}
}

// Directory is where its data lie. It, CopyData and UseData are for an etcd of one member.
func (e *Etcd) Directory() string { return e.config.Dir }

// CopyData copies the data, as a backup is made of a stopped member, and returns where the copy lies.
func (e *Etcd) CopyData(name string) string {
	e.rig.t.Helper()
	e.Stop()
	to := filepath.Join(e.rig.dir, "etcd-"+e.Name+"-"+name)
	if err := os.CopyFS(to, os.DirFS(e.config.Dir)); err != nil {
		e.rig.t.Fatalf("copying the data of etcd %s: %v", e.Name, err)
	}
	e.Start()
	return to
}

// UseData starts etcd again, under its address, with the data of another directory, which may be empty.
func (e *Etcd) UseData(directory string) {
	e.rig.t.Helper()
	e.Stop()
	e.config.Dir = directory
	e.Start()
}

// Stop ends etcd and keeps its data.
func (e *Etcd) Stop() {
	if e.client != nil {
		e.client.Close()
		e.client = nil
	}
	if e.server != nil {
		e.server.Close()
		e.server = nil
	}
	for _, member := range e.Members {
		member.Stop()
	}
}

// Client is a client of this etcd. It is closed by Stop.
func (e *Etcd) Client() *clientv3.Client {
	e.rig.t.Helper()
	if e.client == nil {
		e.client = e.clientOf(e.URLs...)
	}
	return e.client
}

// ClientOf is a client of some members. The caller closes it.
func (e *Etcd) ClientOf(urls ...string) *clientv3.Client {
	e.rig.t.Helper()
	return e.clientOf(urls...)
}

func (e *Etcd) clientOf(urls ...string) *clientv3.Client {
	e.rig.t.Helper()
	config, err := e.rig.PKI.clientTLS("rig")
	if err != nil {
		e.rig.t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, TLS: config, DialTimeout: readyWithin})
	if err != nil {
		e.rig.t.Fatalf("connecting to etcd %s: %v", e.Name, err)
	}
	return client
}

// Keys lists the keys with the prefix, in order.
func (e *Etcd) Keys(ctx context.Context, prefix string) ([]string, error) {
	response, err := e.Client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("listing %s in etcd %s: %w", prefix, e.Name, err)
	}
	var keys []string
	for _, kv := range response.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// storesRequest says where the stores are, and how to read them.
type storesRequest struct {
	endpoints    []string // STORE=URL[,URL...]
	snapshots    []string // STORE=FILE
	skipHash     bool     // of snapshots
	ca           string
	cert         string
	key          string
	user         string
	passwordFile string
	timeout      time.Duration
	rate         int
	gentle       bool
}

const passwordVariable = "FUSIONCTL_ETCD_PASSWORD"

// storesFlags adds the flags of a verb that reads stores.
func storesFlags(cmd *cobra.Command, r *storesRequest) {
	flags := cmd.Flags()
	flags.StringArrayVar(&r.endpoints, "endpoints", nil,
		"read a store at other endpoints than the spec's: STORE=URL[,URL...]; repeat per store")
	flags.StringArrayVar(&r.snapshots, "snapshot", nil,
		"read a store from a snapshot or a member's db file instead: STORE=FILE; repeat per store")
	flags.BoolVar(&r.skipHash, "skip-hash-check", false,
		"do not verify the hash at the end of snapshots, which takes longer than to read them")
	flags.StringVar(&r.ca, "ca", "", "file of the CA that signed the stores' certificates, in place of the spec's")
	flags.StringVar(&r.cert, "cert", "", "file of the client certificate, in place of the spec's")
	flags.StringVar(&r.key, "key", "", "file of the client certificate's key, in place of the spec's")
	flags.StringVar(&r.user, "user", "", "etcd user, for stores with authentication")
	flags.StringVar(&r.passwordFile, "password-file", "",
		"file with the user's password; default: the variable "+passwordVariable)
	flags.DurationVar(&r.timeout, "timeout", 10*time.Second,
		"timeout of one request to one member, before the next one is tried")
	flags.IntVar(&r.rate, "rate", 0, "keys to read per second and store at most; 0: no limit")
	flags.BoolVar(&r.gentle, "gentle", false,
		"for an unhealthy cluster: one range at a time, with serializable reads")
}

// hideSnapshotFlags leaves the flags about files out of the help of a verb that refuses them.
func hideSnapshotFlags(cmd *cobra.Command) {
	for _, name := range []string{"snapshot", "skip-hash-check"} {
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic("cli: internal error: " + err.Error())
		}
	}
}

// scanOptions are the options of a scan by a verb. Without parallel it takes the default.
func (r *storesRequest) scanOptions(depth string, parallel int) scan.Options {
	if r.gentle {
		parallel = 1
	}
	return scan.Options{Depth: scan.Depth(depth), Parallel: parallel, Fields: &objects.Finder{}}
}

// warnOld says that what is read from a live store may be old, for verbs whose output does not say it.
func (r *storesRequest) warnOld(ctx context.Context, stores ...openStore) {
	if r.gentle && slices.ContainsFunc(stores, func(s openStore) bool { return s.live != nil }) {
		loggerFrom(ctx).Warn("serializable reads of one member: newer changes may be missing")
	}
}

// openStore is a store that a verb reads.
type openStore struct {
	etcd.Store
	live  *etcdv3.Client // nil for a file
	close func() error
}

// opened are the stores as libraries take them.
func opened(stores []openStore) []etcdv3.Store {
	result := make([]etcdv3.Store, len(stores))
	for i, s := range stores {
		result[i] = etcdv3.Store{Store: s.Store, Client: s.live}
	}
	return result
}

// storesIn are the stores, for what reads them all alike.
func storesIn(stores []openStore) []etcd.Store {
	result := make([]etcd.Store, len(stores))
	for i, s := range stores {
		result[i] = s.Store
	}
	return result
}

// openSpecStores plans a spec and opens its stores, or the one named.
func openSpecStores(ctx context.Context, file, only string, request storesRequest, streams Streams) (
	*plan.Plan, []openStore, error) {
	p, err := loadPlan(streams, file)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	if only != "" {
		if p.Store(only) == nil {
			return nil, nil,
				badInput(fmt.Errorf("the spec has no store %q", only),
					"its stores are "+strings.Join(storeNames(p), ", "))
		}
		names = []string{only}
	}
	limitMemory(ctx)
	stores, err := openStores(ctx, request, p, names...)
	request.warnOld(ctx, stores...)
	return p, stores, err
}

// openStores opens the stores of the plan: those with --snapshot from their file, the others live. With only, the
// others are left out.
func openStores(ctx context.Context, r storesRequest, p *plan.Plan, only ...string) ([]openStore, error) {
	password, err := r.password(ctx)
	if err != nil {
		return nil, err
	}
	endpoints, files, err := r.places(p)
	if err != nil {
		return nil, err
	}
	var stores []openStore
	for _, s := range p.Stores {
		if len(only) > 0 && !slices.Contains(only, s.Name) {
			continue
		}
		var store openStore
		if file := files[s.Name]; file != "" {
			store, err = r.openSnapshot(s.Name, file)
		} else {
			if urls := endpoints[s.Name]; len(urls) > 0 {
				s.Endpoints = urls
			}
			store, err = r.openLive(ctx, s, password)
		}
		if err != nil {
			closeStores(stores)
			return nil, err
		}
		stores = append(stores, store)
	}
	return stores, nil
}

func closeStores(stores []openStore) {
	for _, s := range stores {
		_ = s.close() // they were only read
	}
}

func (r *storesRequest) password(ctx context.Context) (string, error) {
	if r.user == "" {
		if r.passwordFile != "" {
			return "", usagef("--password-file needs --user")
		}
		return "", nil
	}
	if r.passwordFile == "" {
		password, ok := os.LookupEnv(passwordVariable)
		if !ok {
			return "", badInput(fmt.Errorf("--user %q: no password given", r.user),
				"set "+passwordVariable+", or name a file with --password-file")
		}
		return password, nil
	}
	data, err := interruptibly(ctx, func() ([]byte, error) { return os.ReadFile(r.passwordFile) })
	if err != nil {
		return "", badInput(err, "")
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// places reads --endpoints and --snapshot, by store.
func (r *storesRequest) places(p *plan.Plan) (endpoints map[string][]string, files map[string]string, err error) {
	if endpoints, err = parseStoreURLs(r.endpoints, storeNames(p)); err != nil {
		return nil, nil, err
	}
	if files, err = parseStoreFiles(r.snapshots, storeNames(p)); err != nil {
		return nil, nil, err
	}
	for _, s := range p.Stores {
		if files[s.Name] != "" && len(endpoints[s.Name]) > 0 {
			return nil, nil, usagef("store %s: --snapshot and --endpoints: want one of them", s.Name)
		}
		for _, other := range p.Stores {
			if other.Name < s.Name && isOneFile(files[other.Name], files[s.Name]) {
				return nil, nil,
					badInput(fmt.Errorf("--snapshot: %s and %s are one file, which is of one store", files[other.Name],
						files[s.Name]), "name the file of each store")
			}
		}
	}
	return endpoints, files, nil
}

// isOneFile reports whether two names lead to one file; what cannot be looked at is told when it is opened.
func isOneFile(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func (r *storesRequest) openSnapshot(name, file string) (openStore, error) {
	f, err := snapshot.Open(file)
	if err != nil {
		return openStore{}, badInput(fmt.Errorf("store %s: %w", name, err), "")
	}
	if r.skipHash {
		f.SkipHash()
	}
	return openStore{Store: etcd.Store{Name: name, Walker: f}, close: f.Close}, nil
}

func (r *storesRequest) openLive(ctx context.Context, s plan.Store, password string) (openStore, error) {
	if r.timeout <= 0 {
		return openStore{}, usagef("--timeout %s: want more than 0", r.timeout)
	}
	if r.rate < 0 {
		return openStore{}, usagef("--rate %d: want 0 or more", r.rate)
	}
	files := spec.TLS{}
	if s.TLS != nil {
		files = *s.TLS
	}
	override(&files.CA, r.ca)
	override(&files.Cert, r.cert)
	override(&files.Key, r.key)
	log := loggerFrom(ctx)
	config := etcdv3.Config{
		Endpoints: s.Endpoints, Username: r.user, Password: password, CAFile: files.CA, CertFile: files.Cert,
		KeyFile: files.Key,
		Timeout: r.timeout, KeysPerSecond: r.rate, Serializable: r.gentle,
		Log: func(msg string) { log.Warn("failover", "store", s.Name, "reason", msg) },
	}
	client, err := etcdv3.Open(config)
	if err != nil {
		return openStore{}, badInput(fmt.Errorf("store %s: %w", s.Name, err), "--ca, --cert and --key override the "+
			"spec's files, --endpoints its addresses")
	}
	return openStore{Store: etcd.Store{Name: s.Name, Pager: client}, live: client, close: client.Close}, nil
}

func override(target *string, value string) {
	if value != "" {
		*target = value
	}
}

func storeNames(p *plan.Plan) []string {
	var names []string
	for _, s := range p.Stores {
		names = append(names, s.Name)
	}
	return names
}

// noSuchKey is the error about what neither version knows and no store holds.
func noSuchKey(path string, m *pair.Map) error {
	key := storage.NormalPrefix(m.Prefix) + "/" + path
	return withHint(fmt.Errorf("no store has %s or any key below it, and neither version has such a resource",
		storage.Printable(key)),
		"fusionctl etcd ls SPEC lists the keys")
}

// storeHint is the way out of an error of a store, "" when there is none in particular.
func storeHint(err error) string {
	var unreachable *etcdv3.UnreachableError
	var hinting interface{ Hint() string }
	switch {
	case errors.Is(err, snapshot.ErrDamaged):
		return "take a fresh snapshot with etcdctl snapshot save; a member's db file can be read while the member is " +
			"stopped"
	case errors.Is(err, etcd.ErrDenied):
		return "grant a role of the user read permission on everything below the prefix: etcdctl role " +
			"grant-permission ROLE read --prefix /registry/"
	case errors.As(err, &unreachable) && unreachable.NoLeader:
		return "too few members run to elect a leader; --gentle reads from one member, which may be stale"
	case errors.As(err, &hinting):
		return hinting.Hint()
	}
	return ""
}

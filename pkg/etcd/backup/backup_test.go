package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd/restore"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
)

// world is two stores with what belongs there, and a directory of backups.
type world struct {
	Source
	servers map[string]*etcdtest.Server
	dir     string
	now     time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Source: Source{Map: *storetest.SplitMap()}, servers: map[string]*etcdtest.Server{},
		dir: filepath.Join(t.TempDir(), "backups"), now: time.Date(2026, 3, 29, 1, 2, 3, 0, time.UTC)}
	clean := storetest.Clean()
	for _, name := range w.Map.Stores {
		s := etcdtest.Start(t)
		values := map[string][]byte{}
		for key, value := range clean[name] {
			values[w.Map.Prefix+"/"+key] = value
		}
		s.Put(t, values)
		w.servers[name] = s
		w.Stores = append(w.Stores, plan.Store{Name: name, Endpoints: []string{s.Endpoint}})
	}
	return w
}

func (w *world) save(t *testing.T, keep int) (*Backup, []string) {
	t.Helper()
	b, kept, err := Save(t.Context(), w.Source, w.dir, keep, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	return b, kept
}

// TestOldBackupsGo: as many as told are kept, the newest ones; what a killed process left goes, and nothing else does.
func TestOldBackupsGo(t *testing.T) {
	w := newWorld(t)
	others := []string{"20200101T000000Z", "notes", ".20200101T000000Z.other"} // the first is no backup
	for _, other := range append(others, ".20200102T000000Z.partial") {
		if err := os.MkdirAll(filepath.Join(w.dir, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for range 4 {
		b, kept := w.save(t, 2)
		names = append([]string{b.Name}, names...)
		if want := names[:min(len(names), 2)]; !slices.Equal(kept, want) {
			t.Errorf("%q are kept, want %q", kept, want)
		}
		if len(b.Stores) != len(w.Stores) || b.Stores[0].Keys == 0 || b.Stores[0].Revision < 2 ||
			b.Stores[0].Bytes == 0 || b.Findings.Errors != 0 {
			t.Errorf("%+v", b)
		}
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	want := slices.Sorted(slices.Values(append(append([]string{".lock"}, others...), names[:2]...)))
	if !slices.Equal(there, want) {
		t.Errorf("there are %q, want %q", there, want)
	}
	info, err := os.Stat(filepath.Join(w.dir, names[0], w.Stores[0].Name+".db"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestAClockThatWasAhead: a backup of a time to come takes no place of those that are made since, and stays.
func TestAClockThatWasAhead(t *testing.T) {
	w := newWorld(t)
	now := w.now
	w.now = now.AddDate(10, 0, 0)
	ahead, _ := w.save(t, 1)
	w.now = now
	w.save(t, 1)
	last, kept := w.save(t, 1)
	if want := []string{ahead.Name, last.Name}; !slices.Equal(kept, want) {
		t.Errorf("%q are kept, want %q", kept, want)
	}
}

// TestBackupsOfWhatWasLostStay: those of a store that was emptied or exchanged take the place of none from before.
func TestBackupsOfWhatWasLostStay(t *testing.T) {
	write := func(dir, name, record string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, recordFile), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, newest = `{"stores":[{"name":"core","revision":100,"keys":1000}]}`, "20260105T000000Z"
	for name, test := range map[string]struct {
		old    string
		is     Store
		stayed bool
	}{
		"goes on":             {old, Store{Name: "core", Revision: 200, Keys: 900}, false},
		"exchanged":           {old, Store{Name: "core", Revision: 5, Keys: 1000}, true},
		"emptied":             {old, Store{Name: "core", Revision: 200, Keys: 50}, true},
		"a small one":         {strings.Replace(old, "1000", "9", 1), Store{Name: "core", Revision: 200}, false},
		"another":             {old, Store{Name: "modern", Revision: 5}, false},
		"a record of nothing": {"x", Store{Name: "core", Revision: 200, Keys: 900}, true},
	} {
		dir := t.TempDir()
		names := []string{newest, "20260104T000000Z", "20260103T000000Z"}
		for _, other := range names[1:] {
			write(dir, other, test.old)
		}
		write(dir, newest, old)
		kept, err := prune(dir, 1, &Backup{Name: newest, Stores: []Store{test.is}})
		want := names[:1]
		if test.stayed {
			want = names
		}
		there, listing := List(dir)
		if err := errors.Join(err, listing); err != nil || !slices.Equal(kept, want) || !slices.Equal(there, want) {
			t.Errorf("%s: %q are kept, %q there, %v; want %q", name, kept, there, err, want)
		}
	}
}

// TestABackupThatCannotBeReadIsNone: a store that does not answer, and one in which a value is no object, leave the
// backups that were there; what the check finds in one that can be read is counted.
func TestABackupThatCannotBeReadIsNone(t *testing.T) {
	w := newWorld(t)
	first, _ := w.save(t, 1)
	w.servers["core"].Put(t, map[string][]byte{"/registry/pods/default/bad": []byte("no object")})
	if b, _ := w.save(t, 2); b.Findings == first.Findings {
		t.Errorf("nothing is found: %+v", b.Findings)
	}
	w.servers["modern"].Stop()
	_, _, err := Save(t.Context(), w.Source, w.dir, 1, w.now)
	if err == nil || !strings.Contains(err.Error(), "store modern") {
		t.Errorf("a store does not answer: %v", err)
	}
	if kept, err := List(w.dir); err != nil || len(kept) != 2 || kept[1] != first.Name {
		t.Errorf("%q are left, %v", kept, err)
	}
	if left, err := filepath.Glob(filepath.Join(w.dir, ".*.partial")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

// TestDamagedSnapshotsAreFound by their hash, and by what the tree of pages says.
func TestDamagedSnapshotsAreFound(t *testing.T) {
	w := newWorld(t)
	b, _ := w.save(t, 1)
	in := filepath.Join(w.dir, b.Name)
	if _, _, err := verify(t.Context(), w.Source, in); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(in, "core.db")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var incomplete *local.IncompleteError
	if _, _, err := verify(t.Context(), w.Source, in); !errors.As(err, &incomplete) {
		t.Errorf("one bit is another: %v", err)
	}
	m := restore.Member{DataDir: t.TempDir(), ID: "x", Snapshot: file, Name: "default", PeerURL: "http://127.0.0.1:1",
		Cluster: "default=http://127.0.0.1:1", Token: "x"}
	if err := m.Restore(t.Context()); err == nil {
		t.Error("a damaged snapshot is restored")
	}
	if left, err := os.ReadDir(m.DataDir); err != nil || len(left) != 1 || left[0].Name() != ".lock" {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestChangedBackupsAreNotRestored: who changes a snapshot can make its hash anew, but not that of the record.
func TestChangedBackupsAreNotRestored(t *testing.T) {
	w := newWorld(t)
	b, _ := w.save(t, 2)
	other, _ := w.save(t, 2)
	in, file := filepath.Join(w.dir, b.Name), filepath.Join(w.dir, b.Name, "core.db")
	restore := func() error {
		m := restore.Member{DataDir: t.TempDir(), ID: "x", Snapshot: file, Name: "default",
			PeerURL: "http://127.0.0.1:1", Cluster: "default=http://127.0.0.1:1", Token: "x"}
		return m.Restore(t.Context())
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(filepath.Join(in, recordFile))
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(with string) {
		t.Helper()
		if err := errors.Join(os.Remove(file), os.Link(with, file)); err != nil {
			t.Fatal(err)
		}
	}
	exchange(filepath.Join(w.dir, other.Name, "modern.db")) // whole, and verified
	if err := restore(); err == nil || !strings.Contains(err.Error(), "was changed since the backup was made") {
		t.Errorf("another snapshot: %v", err)
	}
	for text, want := range map[string]string{
		"{":                                    "unexpected end",
		`{"sha256":{"modern.db":"x"}}`:         "does not name it",
		strings.Repeat(" ", 2<<20):             "larger than",
		`{"name":"x","stores":[]}`:             "", // of a release before
		string(record):                         "was changed",
		`{"sha256":{"core.db":"` + "0" + `"}}`: "was changed",
	} {
		if err := os.WriteFile(filepath.Join(in, recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := restore(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("beside the record %.40q: %v, want %q", text, err, want)
		}
	}
	if err := os.Remove(filepath.Join(in, recordFile)); err != nil {
		t.Fatal(err)
	}
	if err := restore(); err != nil {
		t.Errorf("a snapshot that is no backup's: %v", err)
	}
}

// TestBackupsAreKeptWhereNobodyElseWrites: who owns the directory could exchange what is restored one day.
func TestBackupsAreKeptWhereNobodyElseWrites(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Save(t.Context(), Source{}, dir, 1, time.Now()); err == nil || !strings.Contains(err.Error(),
		"other users cannot write") {
		t.Errorf("into a directory of everybody's: %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const another = 4711
	if err := os.Chown(dir, another, another); err != nil {
		t.Skip("only root gives a directory away")
	}
	elsewhere := filepath.Join(t.TempDir(), "made") // by whom the lock leads there
	if err := os.Symlink(elsewhere, filepath.Join(dir, ".lock")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Save(t.Context(), Source{}, dir, 1, time.Now()); err == nil || !strings.Contains(err.Error(),
		"belongs to another user") {
		t.Errorf("into a directory of another user: %v", err)
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link of another user was followed: %v", err)
	}
}

// TestSnapshotsStayInTheirDirectory: a file is named after each store, and the names come from a Secret.
func TestSnapshotsStayInTheirDirectory(t *testing.T) {
	w := newWorld(t)
	w.Stores[0].Name = "../core"
	if _, _, err := Save(t.Context(), w.Source, w.dir, 1, w.now); err == nil || !strings.Contains(err.Error(),
		`store "../core": want a name`) {
		t.Errorf("Save = %v", err)
	}
	if _, err := os.Lstat(w.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

// TestOneBackupAtATime: a second process is told so.
func TestOneBackupAtATime(t *testing.T) {
	w := newWorld(t)
	release, err := restore.Lock(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, _, err := Save(t.Context(), w.Source, w.dir, 1, w.now); !errors.Is(err, restore.ErrBusy) {
		t.Errorf("%v", err)
	}
}

// TestRestoredStoresAreBackedUp: a restore raises the revision by an entry that has no key. It stays in the store, and
// is nothing that was damaged.
func TestRestoredStoresAreBackedUp(t *testing.T) {
	w := newWorld(t)
	first, _ := w.save(t, 2)
	store := w.Stores[0]
	s := w.servers[store.Name]
	s.Stop()
	const peer = "http://127.0.0.1:0"
	m := restore.Member{DataDir: s.Dir, ID: "a", Snapshot: snapshotIn(filepath.Join(w.dir, first.Name), store.Name),
		Name: "default", PeerURL: peer, Cluster: "default=" + peer, Token: "core-a"}
	if err := m.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	for range 2 {
		b, _ := w.save(t, 2)
		was, is := first.Stores[0], b.Stores[0]
		if is.Keys != was.Keys || is.Revision < was.Revision+1_000_000 || b.Findings.Errors != 0 {
			t.Errorf("%+v, and %+v before the restore", is, was)
		}
		s.Put(t, map[string][]byte{"/registry/configmaps/demo/after": []byte("{}")})
		answer, err := s.Client(t).Get(t.Context(), "/registry/configmaps/demo/after")
		if err == nil {
			_, err = s.Client(t).Compact(t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err == nil {
			_, err = s.Client(t).Delete(t.Context(), "/registry/configmaps/demo/after")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

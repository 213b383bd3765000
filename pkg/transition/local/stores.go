package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// IncompleteError says that stores could not be read to their end: whether they agree is not known.
type IncompleteError struct {
	Incomplete []string
	Cause      error // may be nil
}

func (e *IncompleteError) Error() string {
	return "the stores could not be read to their end:\n  " + strings.Join(e.Incomplete, "\n  ")
}

func (e *IncompleteError) Unwrap() error { return e.Cause }

// DisagreeError says what stands in stores that a plan does not allow there.
type DisagreeError struct {
	Findings []finding.Finding
	// Objects are those that an API server of the plan cannot decode, each with its store, key and type; the first
	// mostObjects of them.
	Objects []string
	Further int // objects beside those
}

// mostObjects bounds what an error names.
const mostObjects = 1000

func (e *DisagreeError) Error() string {
	lines := []string{"the stores do not agree:"}
	for _, f := range e.Findings {
		lines = append(lines, fmt.Sprintf("  %s %s: %s", f.Rule, f.Subject, f.Message))
	}
	if len(e.Objects) > 0 {
		lines = append(lines, "objects that cannot be decoded:")
		for _, o := range e.Objects {
			lines = append(lines, "  "+o)
		}
	}
	if e.Further > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", e.Further))
	}
	return strings.Join(lines, "\n")
}

// Telling is what is told beside an answer. Fields may be nil.
type Telling struct {
	Failover func(store, reason string)
	// Note is about what is in no one's way: what an API server repairs when it starts.
	Note func(text string)
}

// StoresAgree reads the stores of a check as a whole and compares them with its ownership map. Errors:
// *IncompleteError; *DisagreeError, with every error that the check does not accept.
func StoresAgree(ctx context.Context, c *transition.Check, tell Telling) error {
	var stores []etcdv3.Store
	for _, s := range c.Stores {
		client, err := open(s, tell.Failover)
		if err != nil {
			return err
		}
		defer client.Close()
		stores = append(stores, etcdv3.Store{Store: etcd.Store{Name: s.Name, Pager: counted(client, mostScanned)},
			Client: client})
	}
	report, err := etcdv3.Scan(ctx, c.Map, stores,
		scan.Options{Depth: scan.DepthEnvelope, Parallel: 2, Fields: &objects.Finder{}})
	if err != nil {
		return err
	}
	if !report.Complete {
		return &IncompleteError{Incomplete: report.Incomplete, Cause: report.Cause}
	}
	var problems []finding.Finding
	judged, _ := finding.Accept(report.Findings, c.Accept)
	for _, f := range judged.Findings {
		if f.Severity == finding.Error {
			problems = append(problems, f)
		} else if tell.Note != nil && f.Severity == finding.Warning && f.Rule == repairedAtStart {
			tell.Note(fmt.Sprintf("%s %s: %s", f.Rule, f.Subject, f.Message))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	disagree := &DisagreeError{Findings: problems}
	for _, s := range stores {
		if err := disagree.name(ctx, c.Map, s.Store); err != nil {
			return errors.Join(disagree, err)
		}
	}
	return disagree
}

// repairedAtStart is the rule about what allocators have recorded: a warning of it is repaired.
const repairedAtStart = "FUS050"

// mostScanned is how many keys of a store are read: each takes 16 bytes of memory until the end, of an operator, too,
// which runs other control planes. In 8 GiB, the largest store that etcd suggests, they would have 860 bytes each with
// their objects, and are read twice at most.
const mostScanned = 10_000_000

// counting is a store of which so many keys are read at most.
type counting struct {
	*etcdv3.Client
	most int64
	read atomic.Int64
}

func counted(client *etcdv3.Client, most int64) *counting {
	return &counting{Client: client, most: most}
}

// Page reads a page.
func (c *counting) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	page, err := c.Client.Page(ctx, r)
	if err == nil && c.read.Add(int64(len(page.Entries))) > c.most {
		return etcd.Page{}, fmt.Errorf("it has more than %d keys: no store of Kubernetes objects", c.most)
	}
	return page, err
}

// name reads the resources of a store that findings are about once more, and names the objects that a side which reads
// them cannot decode.
func (e *DisagreeError) name(ctx context.Context, m *pair.Map, store etcd.Store) error {
	for i := range m.Resources {
		row := &m.Resources[i]
		about := func(f finding.Finding) bool { return f.Subject == store.Name+":"+row.Key }
		if row.Kind == "" || !slices.ContainsFunc(e.Findings, about) {
			continue
		}
		from := m.Prefix + "/" + row.Key + "/"
		_, err := etcd.Entries(ctx, store, etcd.Request{From: from, To: etcd.PrefixEnd(from)},
			func(entry etcd.Entry) error {
				stored, err := storage.ReadEnvelope(entry.Value)
				if err != nil || stored.APIVersion == nil { // a finding of its own
					return nil //nolint:nilerr
				}
				for _, side := range row.Readers(store.Name) {
					if slices.Contains(row.View(side).Decodes, string(stored.APIVersion)) {
						continue
					}
					if len(e.Objects) == mostObjects {
						e.Further++
						break
					}
					e.Objects = append(e.Objects, fmt.Sprintf("store %s: %s, %s %s", store.Name,
						storage.Printable(string(entry.Key)), stored.APIVersion, stored.Kind))
					break
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

func open(s plan.Store, warn func(store, reason string)) (*etcdv3.Client, error) {
	config := etcdv3.Config{Endpoints: s.Endpoints, Timeout: 10 * time.Second}
	if s.TLS != nil {
		config.CAFile, config.CertFile, config.KeyFile = s.TLS.CA, s.TLS.Cert, s.TLS.Key
	}
	if warn != nil {
		config.Log = func(reason string) { warn(s.Name, reason) }
	}
	client, err := etcdv3.Open(config)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.Name, err)
	}
	return client, nil
}

// KeysError names keys that stores hold and should not: of each prefix the first.
type KeysError struct {
	Found []string
	hint  string
}

func (e *KeysError) Error() string {
	return "there are keys where there should be none:\n  " + strings.Join(e.Found, "\n  ")
}

// Hint is what to do about the keys, "" where the check does not say it.
func (e *KeysError) Hint() string { return e.hint }

// NoKeys looks for keys below those of a check in its stores. warn is told of failovers, nil allowed. Errors:
// *KeysError; *IncompleteError for what kept it from looking.
func NoKeys(ctx context.Context, c *transition.Check, warn func(store, reason string)) error {
	var found []string
	for _, s := range c.Stores {
		unread := func(err error) error {
			return &IncompleteError{Incomplete: []string{fmt.Sprintf("store %s: %v", s.Name, err)}, Cause: err}
		}
		client, err := open(s, warn)
		if err != nil {
			return unread(err)
		}
		defer client.Close()
		for _, prefix := range c.Keys {
			page, err := client.Page(ctx, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix), LimitKeys: 1,
				KeysOnly: true})
			if err != nil {
				return unread(err)
			}
			if len(page.Entries) > 0 {
				found = append(found, fmt.Sprintf("store %s: %s", s.Name,
					storage.Printable(string(page.Entries[0].Key))))
			}
		}
	}
	if len(found) > 0 {
		return &KeysError{Found: found, hint: c.Hint}
	}
	return nil
}

// Facts reads what a transition has to know of the stores: those of the plan to which it leads agree with that, and no
// key is in the way of a resource that goes to another store. Nothing is read, and nothing known, without that plan.
// Prepare is for objects that are to be written again, and keys that are to be moved. Errors: *DisagreeError,
// *RewriteError, *KeysError and *LeftError, where the stores are not as the transition needs them; *IncompleteError,
// and what else kept it from looking.
func Facts(ctx context.Context, from, to transition.Setup, prepare bool, tell Telling) (transition.Facts, error) {
	p := to.Plan
	if p == nil {
		return transition.Facts{}, nil
	}
	moves, moving, hint := transition.Moves(from, to), transition.MovingOf(from, to), ""
	if !prepare && len(moving) > 0 {
		moving, hint = nil, "; with --prepare the steps move those that API servers read there"
	}
	if stays := transition.Stays(moves, moving); len(stays) > 0 {
		for _, check := range transition.MoveChecks(from.Plan, p, stays) {
			check.Hint += hint
			if err := NoKeys(ctx, &check, tell.Failover); err != nil {
				return transition.Facts{}, err
			}
		}
	}
	check := transition.StoresCheck(from, to, moving)
	judge := StoresAgree
	if check.Rewrite = transition.Rewrites(from, to); prepare && check.Rewrite != nil {
		judge = MayRewrite
	}
	if err := judge(ctx, &check, tell); err != nil {
		return transition.Facts{}, err
	}
	for i := range moving {
		check := transition.MayMoveCheck(&moving[i])
		if err := MayMove(ctx, &check, tell); err != nil {
			return transition.Facts{}, err
		}
	}
	if ending := transition.EndingKinds(from, to); ending != nil {
		if err := nothingLeft(ctx, ending); err != nil {
			return transition.Facts{}, err
		}
	}
	return transition.Facts{StoresAgree: true, Prepare: prepare, Empty: moves}, nil
}

// Look reads what stores show of themselves: the id of the cluster, the newest revision, and kube-system where it is
// stored. A rehearsal looks at none. Errors: about the stores that could not be read, beside those that were.
func (h *Host) Look(ctx context.Context, _ string, w *transition.Watch) (map[string]witness.Sight, error) {
	seen := map[string]witness.Sight{}
	if h.Rehearsal != "" {
		return seen, nil
	}
	var problems []error
	for _, s := range w.Stores {
		sight, err := sightOf(ctx, s, w.Prefix+"/"+witness.KubeSystem)
		if err != nil {
			problems = append(problems, fmt.Errorf("store %s: %w", s.Name, err))
			continue
		}
		seen[s.Name] = sight
	}
	return seen, errors.Join(problems...)
}

func sightOf(ctx context.Context, s plan.Store, key string) (witness.Sight, error) {
	sight := witness.Sight{At: time.Now().UTC(), Objects: map[string]witness.Object{}}
	client, err := open(s, nil)
	if err != nil {
		return sight, err
	}
	defer client.Close()
	if sight.Cluster, err = client.Cluster(ctx); err != nil {
		return sight, err
	}
	page, err := client.Page(ctx, etcd.Request{From: key, To: key + "\x00", LimitKeys: 1})
	if err != nil {
		return sight, err
	}
	sight.Revision = page.Revision
	if len(page.Entries) == 0 {
		sight.Objects[witness.KubeSystem] = witness.Object{}
		return sight, nil
	}
	envelope, err := storage.ReadEnvelope(page.Entries[0].Value)
	var meta storage.Meta
	if err == nil {
		err = envelope.ReadIdentity(&meta)
	}
	if err == nil { // an encrypted one identifies no store
		sight.Objects[witness.KubeSystem] = witness.Object{UID: string(meta.UID),
			Revision: page.Entries[0].ModRevision}
	}
	return sight, nil
}

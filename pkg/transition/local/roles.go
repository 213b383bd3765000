package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/policy/roles"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// RolesError says what stands against copies of roles, or against taking them away.
type RolesError struct{ Reasons []string }

func (e *RolesError) Error() string {
	const most = 20
	lines := e.Reasons
	if len(lines) > most {
		lines = append(slices.Clone(lines[:most]), fmt.Sprintf("and %d more", len(e.Reasons)-most))
	}
	return "roles and bindings:\n  " + strings.Join(lines, "\n  ")
}

// roleStores are the stores of roles, and what was read of them.
type roleStores struct {
	*transition.Roles
	from, to handover.Store

	legacy, modern []roles.Object
	replaced       []roles.Object        // those of InPlaceOf
	entries        map[string]etcd.Entry // of the modern side, by the part of the key below the prefix
	catalog        *policy.Catalog       // with the definitions of both stores
}

// withRoles does something with the stores of roles.
func withRoles(ctx context.Context, r *transition.Roles, do func(*roleStores) error) error {
	s := &roleStores{Roles: r}
	for _, of := range []struct {
		store *plan.Store
		as    *handover.Store
	}{{&r.From, &s.from}, {&r.To, &s.to}} {
		client, err := open(*of.store, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		*of.as = &etcdv3.Writer{Client: client}
	}
	return do(s)
}

// read reads what there is. Errors: *RolesError, with every object that is none of v1 and every rule of ABAC that no
// role allows; a store that fails.
func (s *roleStores) read(ctx context.Context) error {
	var refused RolesError
	s.entries, s.legacy, s.modern = map[string]etcd.Entry{}, nil, nil
	if s.Stored {
		err := s.each(ctx, s.from, s.From.Name, &refused, func(_ etcd.Entry, o roles.Object) {
			s.legacy = append(s.legacy, o)
		})
		if err != nil {
			return err
		}
	}
	err := s.each(ctx, s.to, s.To.Name, &refused, func(e etcd.Entry, o roles.Object) {
		s.modern, s.entries[o.Key()] = append(s.modern, o), e
	})
	if err != nil {
		return err
	}
	if err := s.define(ctx); err != nil {
		return err
	}
	for _, file := range s.Policies {
		if err := s.addPolicy(file, &refused); err != nil {
			return err
		}
	}
	if s.Rules != "" {
		if err := s.addRules("the policy of the modern side", strings.NewReader(s.Rules), &refused); err != nil {
			return err
		}
	}
	s.legacy = slices.DeleteFunc(s.legacy, s.ended)
	if err := s.addReplaced(&refused); err != nil {
		return err
	}
	if len(refused.Reasons) > 0 {
		return &refused
	}
	return nil
}

// addReplaced reads what others take the place of, where roles decide: the roles of rules, and bindings of components
// that run no more alone.
func (s *roleStores) addReplaced(refused *RolesError) error {
	if s.replaced = nil; s.InPlaceOf == nil {
		return nil
	}
	before := &roleStores{Roles: s.Roles, catalog: s.catalog}
	if err := before.addRules("the policy of the modern side before", strings.NewReader(*s.InPlaceOf),
		refused); err != nil {
		return err
	}
	s.replaced = before.legacy
	for _, o := range s.modern {
		if s.ended(o) {
			s.replaced = append(s.replaced, o)
		}
	}
	return nil
}

// ended reports whether an object binds no others than users of components that run no more.
func (s *roleStores) ended(o roles.Object) bool {
	return len(o.Subjects) > 0 && !slices.ContainsFunc(o.Subjects, func(subject rbacv1.Subject) bool {
		return subject.Kind != rbacv1.UserKind || !slices.Contains(s.Ended, subject.Name)
	})
}

func (s *roleStores) each(ctx context.Context, store handover.Store, name string, refused *RolesError,
	visit func(etcd.Entry, roles.Object)) error {
	for _, k := range s.Keys {
		from := s.Prefix + "/" + k.Key + "/"
		_, err := etcd.Entries(ctx, etcd.Store{Name: name, Pager: store},
			etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(e etcd.Entry) error {
				o, err := roleOf(e.Value, k.StoredAs)
				if err == nil && s.Prefix+"/"+o.Key() != string(e.Key) {
					err = fmt.Errorf("is %s", storage.Printable(o.Key()))
				}
				if err != nil {
					refused.Reasons = append(refused.Reasons, fmt.Sprintf("store %s: %s: %v", name,
						storage.Printable(string(e.Key)), err))
					return nil
				}
				e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
				visit(e, o)
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

func roleOf(value []byte, apiVersion string) (o roles.Object, err error) {
	envelope, err := storage.ReadEnvelope(value)
	if err == nil && string(envelope.APIVersion) != apiVersion {
		value, err = lossless(value, apiVersion, 0)
	}
	if err != nil {
		return o, err
	}
	tree, err := objects.Decode(value)
	if err != nil {
		return o, err
	}
	return roles.Read(tree)
}

// define reads the definitions of custom resources, of which rules may speak.
func (s *roleStores) define(ctx context.Context) error {
	s.catalog = policy.NewCatalog()
	from := s.Prefix + "/" + storage.CRDResource + "/"
	for _, store := range []etcd.Store{{Name: s.From.Name, Pager: s.from}, {Name: s.To.Name, Pager: s.to}} {
		keys := etcd.Request{From: from, To: etcd.PrefixEnd(from)}
		_, err := etcd.Entries(ctx, store, keys, func(e etcd.Entry) error {
			return s.catalog.AddCRDs("store "+store.Name+": "+storage.Printable(string(e.Key)), e.Value)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPolicy adds roles that allow what a file of ABAC allows.
func (s *roleStores) addPolicy(file string, refused *RolesError) error {
	text, err := os.Open(file)
	if err != nil {
		return err
	}
	defer text.Close()
	return s.addRules(file, text, refused)
}

// addRules adds roles that allow what lines of ABAC allow, whatever release reads them.
func (s *roleStores) addRules(file string, text io.Reader, refused *RolesError) error {
	rules, err := policy.ParseOneMeaning(file, text)
	if err != nil {
		return err
	}
	rbac := policy.ToRBAC(rules, s.catalog)
	for _, gap := range rbac.Gaps {
		refused.Reasons = append(refused.Reasons, fmt.Sprintf("%s:%d: %s", file, gap.Line, gap.Why))
	}
	for _, o := range roles.OfPolicy(rbac) {
		if !slices.ContainsFunc(s.legacy, func(l roles.Object) bool { return l.Key() == o.Key() }) {
			s.legacy = append(s.legacy, o)
			continue
		}
		refused.Reasons = append(refused.Reasons, fmt.Sprintf("%s: %s is there already", file,
			storage.Printable(o.Key())))
	}
	return nil
}

func (h *Host) rolesMayGo(ctx context.Context, r *transition.Roles) error {
	return withRoles(ctx, r, func(s *roleStores) error {
		if err := s.read(ctx); err != nil {
			return err
		}
		_, err := s.copies()
		return err
	})
}

// copies are what is to be written, so that every subject may do there what it may do here.
func (s *roleStores) copies() (roles.Copies, error) {
	if s.InPlaceOf != nil {
		c, problems := roles.Replace(s.replaced, s.legacy, s.modern)
		if len(problems) > 0 {
			return c, &RolesError{Reasons: problems}
		}
		return c, nil
	}
	c, problems := roles.Copy(s.legacy, s.modern)
	if len(problems) == 0 {
		problems = notAllowed(s.proof(c.Apply(s.modern)))
	}
	if len(problems) > 0 {
		return c, &RolesError{Reasons: problems}
	}
	return c, nil
}

func (s *roleStores) proof(after []roles.Object) roles.Proof {
	own := slices.DeleteFunc(slices.Clone(s.modern), func(o roles.Object) bool {
		return o.Annotations[roles.Copied] != ""
	})
	return roles.Prove(s.legacy, own, after)
}

func notAllowed(p roles.Proof) (lines []string) {
	for _, c := range p.Missing {
		lines = append(lines, "would not be allowed on the modern side: "+storage.Printable(c.String()))
	}
	return lines
}

// rolesEqual proves that nothing is to be copied, and that every subject may do there what it may do here. Where roles
// are to decide there from now on, a person sees which bindings come into force with them.
func (h *Host) rolesEqual(ctx context.Context, r *transition.Roles) error {
	return withRoles(ctx, r, func(s *roleStores) error {
		if err := s.equal(ctx); err != nil || s.Rules == "" {
			return err
		}
		return s.waking()
	})
}

// noneWakes has a person see what comes into force with roles: what was written since they were proven equal, too.
func (h *Host) noneWakes(ctx context.Context, r *transition.Roles) error {
	return withRoles(ctx, r, func(s *roleStores) error {
		if err := s.read(ctx); err != nil {
			return err
		}
		return s.waking()
	})
}

// mostWaking bounds what a person is shown; the name of what was found is of all.
const mostWaking = 100

func (s *roleStores) waking() error {
	var names []string
	waking := roles.WakingOf(s.legacy, s.modern)
	for _, w := range waking {
		then := make([]string, len(w.Then))
		for i, c := range w.Then {
			then[i] = c.String()
		}
		names = append(names, storage.Printable(w.Key+": "+prose.First(then, mostListed)))
	}
	if len(names) == 0 {
		return nil
	}
	const text = "once roles decide at the modern API server, these bindings come into force, which clients have " +
		"created there and nothing consults now. See that each may stay, or delete it:"
	if more := len(names) - mostWaking; more > 0 {
		names = append(names[:mostWaking], fmt.Sprintf("and %d more", more))
	}
	return &transition.ByHandError{Text: text + "\n  " + strings.Join(names, "\n  "),
		Found: transition.Found(fmt.Sprint(waking))} // with all that each allows
}

func (s *roleStores) equal(ctx context.Context) error {
	if err := s.read(ctx); err != nil {
		return err
	}
	c, err := s.copies()
	if err != nil {
		return err
	}
	if list := slices.Concat(c.Create, c.Change, c.Remove); len(list) > 0 {
		var keys []string
		for _, o := range list {
			keys = append(keys, storage.Printable(o.Key()))
		}
		return fmt.Errorf("written since they were copied, apply copies again: %s", prose.First(keys, 8))
	}
	return nil
}

// RolesReport is what a file beside the snapshots says of copies.
type RolesReport struct {
	Schema string `json:"schema"`
	// Copies are the keys of those that the modern side has, and of what it has by itself that allows the same.
	Copies []string `json:"copies"`
	// Kept is what the modern API server creates by itself, where it differs from what the legacy side has.
	Kept []roles.Difference `json:"kept"`
	roles.Proof
	// Waking are bindings of the modern side's own, which no authorizer consults as long as a policy of ABAC decides
	// there, by what they allow beyond what is copied once roles do.
	Waking []roles.Waking `json:"waking"`
}

// ReportOfRoles is the name of the file.
const ReportOfRoles = "copied-roles.json"

// copyRoles writes what is to be written, in rounds: what a client writes meanwhile is copied, too.
func (h *Host) copyRoles(ctx context.Context, r *transition.Roles) error {
	if err := filetree.Private(h.Snapshots); err != nil {
		return err
	}
	return withRoles(ctx, r, func(s *roleStores) error {
		report, err := s.copy(ctx)
		if err != nil || r.InPlaceOf != nil { // the report is of what was copied when roles began to decide
			return err
		}
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		return filetree.WriteFile(filepath.Join(h.Snapshots, ReportOfRoles), append(text, '\n'), 0o600)
	})
}

const roundsOfRoles = 10

func (s *roleStores) copy(ctx context.Context) (*RolesReport, error) {
	release, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	for range roundsOfRoles {
		if err := s.read(ctx); err != nil {
			return nil, err
		}
		c, err := s.copies()
		if err != nil {
			return nil, err
		}
		if len(c.Create)+len(c.Change)+len(c.Remove) == 0 {
			report := &RolesReport{Schema: "fusionctl/copied-roles/v1", Copies: []string{}, Kept: c.Kept,
				Proof: s.proof(s.modern), Waking: roles.WakingOf(s.legacy, s.modern)}
			for i := range s.legacy {
				report.Copies = append(report.Copies, s.legacy[i].Key())
			}
			slices.Sort(report.Copies)
			return report, nil
		}
		for _, o := range inOrder(s.Keys, c.Create) {
			entry, err := s.entry(&o)
			if err == nil {
				_, err = s.to.Create(ctx, []etcd.Entry{entry}) // one that is there by now is in the next round
			}
			if err != nil {
				return nil, fmt.Errorf("%s: copying: %w", storage.Printable(o.Key()), err)
			}
		}
		for _, o := range c.Change {
			entry, err := s.entry(&o)
			if err == nil {
				_, err = s.to.Replace(ctx, []etcd.Entry{entry})
			}
			if err != nil {
				return nil, fmt.Errorf("%s: copying again: %w", storage.Printable(o.Key()), err)
			}
		}
		if err := s.remove(ctx, c.Remove); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("after %d rounds there are still roles to copy: something writes them all the time; stop "+
		"it and run this again", roundsOfRoles)
}

// inOrder sorts objects by their resources: a binding comes after what it binds.
func inOrder(keys []transition.RoleKey, list []roles.Object) []roles.Object {
	at := func(o roles.Object) int {
		return slices.IndexFunc(keys, func(k transition.RoleKey) bool { return strings.HasPrefix(o.Key(), k.Key+"/") })
	}
	slices.SortStableFunc(list, func(a, b roles.Object) int { return at(a) - at(b) })
	return list
}

func (s *roleStores) entry(o *roles.Object) (etcd.Entry, error) {
	if o.CreationTimestamp.IsZero() { // of rules of ABAC
		o.CreationTimestamp = metav1.NewTime(time.Now())
	}
	text, err := json.Marshal(o)
	return etcd.Entry{Key: []byte(s.Prefix + "/" + o.Key()), Value: text,
		ModRevision: s.entries[o.Key()].ModRevision}, err
}

// remove deletes what is as it was read, bindings first.
func (s *roleStores) remove(ctx context.Context, list []roles.Object) error {
	for _, o := range slices.Backward(inOrder(s.Keys, list)) {
		entry := s.entries[o.Key()]
		_, err := s.to.Delete(ctx, []move.KeyAt{{Key: string(entry.Key), ModRevision: entry.ModRevision}})
		if err != nil {
			return fmt.Errorf("%s: deleting its copy: %w", storage.Printable(o.Key()), err)
		}
	}
	return nil
}

// removeRoles takes the copies away. What was changed since is named, and stays.
func (h *Host) removeRoles(ctx context.Context, r *transition.Roles) error {
	there := *r
	// Whatever the legacy side has, copies are known by themselves.
	there.Stored, there.Policies, there.Rules = false, nil, ""
	return withRoles(ctx, &there, func(s *roleStores) error { return s.withdraw(ctx) })
}

func (s *roleStores) withdraw(ctx context.Context) error {
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	for range roundsOfRoles {
		if err := s.read(ctx); err != nil {
			return err
		}
		remove, problems := roles.Withdraw(s.modern)
		switch {
		case len(problems) > 0:
			return &RolesError{Reasons: problems}
		case len(remove) == 0:
			return nil
		}
		if err := s.remove(ctx, remove); err != nil {
			return err
		}
	}
	return errors.New("copies are written all the time: stop what does it and run this again")
}

func (s *roleStores) lock(ctx context.Context) (release func(), err error) {
	var releases []func(context.Context) error
	release = func() {
		for _, r := range releases {
			_ = r(context.WithoutCancel(ctx)) // what remains of it expires
		}
	}
	for _, of := range []struct {
		store handover.Store
		name  string
	}{{s.from, s.From.Name}, {s.to, s.To.Name}} {
		r, err := of.store.Lock(ctx, s.Prefix+move.LockKey, move.Owner{Run: "transition roles", Store: of.name,
			By: "fusionctl transition: roles"})
		if err != nil {
			release()
			return nil, fmt.Errorf("store %s: locking: %w", of.name, err)
		}
		releases = append(releases, r)
	}
	return release, nil
}

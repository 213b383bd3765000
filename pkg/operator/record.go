package operator

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// RecordName is the Secret beside a control plane that says by which plan it runs, and how far a transition came. An
// operator that was killed, or is a new one, goes on from there: the status is only shown.
const RecordName = "fusionctl-record"

// recordKey is the entry of the Secret, oldRecordKey the one that operators wrote before.
const (
	recordKey    = "record.json.zst"
	oldRecordKey = "record.json.gz"
)

// limitRecordBytes bounds a record that is read: a Secret holds 1 MiB of it, compressed.
const limitRecordBytes = 64 << 20

// record is what the Secret holds.
type record struct {
	Runs string     `json:"runs,omitempty"` // digest of the plan by which the components run
	Plan *plan.Plan `json:"plan,omitempty"` // that plan
	// Target is what runs it; "" for pods.
	Target render.Target `json:"target,omitempty"`
	Open   *open         `json:"open,omitempty"` // the transition that is carried out or undone
	// Failed is the digest of a plan to which no transition leads again, since one came back, and Why.
	Failed string `json:"failed,omitempty"`
	Why    string `json:"why,omitempty"`
	// Seen is what the stores of the plan showed when the last transition ended, by name.
	Seen map[string]witness.Sight `json:"seen,omitempty"`

	// Restored is the backup that the annotation names, once that was begun.
	Restored string `json:"restored,omitempty"`
	// Approvals counts the transitions that began with an approval: each is for one alone. Approved is the last one of
	// an operator that did not count.
	Approvals int    `json:"approvals,omitempty"`
	Approved  string `json:"approved,omitempty"`

	History []api.PastTransition `json:"history,omitempty"` // the last one first

	secret *corev1.Secret
}

// open is a transition with its journal.
type open struct {
	To         string                `json:"to"` // digest of the plan
	Plan       *plan.Plan            `json:"plan"`
	Target     render.Target         `json:"target,omitempty"` // of the plan; "" for pods
	Transition transition.Transition `json:"transition"`
	Journal    []transition.Record   `json:"journal,omitempty"`
	Since      metav1.Time           `json:"since"`
	StepSince  metav1.Time           `json:"stepSince"` // when the last record was written
	Back       bool                  `json:"back,omitempty"`
	Why        string                `json:"why,omitempty"` // it goes back
	// Lost are hosts that are gone for good since it began, as a person has approved and other hosts have seen.
	Lost []string `json:"lost,omitempty"`
}

// readRecord reads the record of a control plane; an empty one where there is none. Errors: what cannot be read is
// never taken for nothing.
func readRecord(ctx context.Context, c client.Reader, name string) (*record, error) {
	r := &record{}
	secret := &corev1.Secret{}
	err := c.Get(ctx, types.NamespacedName{Namespace: name, Name: RecordName}, secret)
	if apierrors.IsNotFound(err) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of %s: %w", name, err)
	}
	if !ours(secret, name) {
		return nil, foreign(secret, name)
	}
	err = r.unpack(secret.Data)
	if err == nil {
		err = r.validate(name)
	}
	if err != nil {
		return nil, fmt.Errorf("in Secret %s/%s: %w: nothing is changed while it is unreadable", name,
			RecordName, err)
	}
	r.secret = secret
	return r, nil
}

// unpack reads the entry of a record.
func (r *record) unpack(entries map[string][]byte) error {
	if data, there := entries[recordKey]; there || entries[oldRecordKey] == nil {
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(limitWindowBytes))
		if err != nil {
			return err
		}
		defer z.Close()
		return r.decode(z)
	}
	z, err := gzip.NewReader(bytes.NewReader(entries[oldRecordKey]))
	if err != nil {
		return err
	}
	return r.decode(z)
}

// limitWindowBytes is how far back a record is compared with what was written before: the files of hosts are alike, and
// those of many hosts far apart.
const limitWindowBytes = 32 << 20

// pack writes the entry of a record.
func (r *record) pack() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	window := zstd.MinWindowSize
	for window < len(text) && window < limitWindowBytes {
		window *= 2
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(text, nil), z.Close()
}

// limitOpenBytes bounds the record of a transition that begins. The records of its steps, and those of looks at stores,
// come to it, and a Secret has no room for more than corev1.MaxSecretSize.
const limitOpenBytes = corev1.MaxSecretSize / 2

// fits refuses a record that would outgrow its Secret in the midst of a transition, or that is not read again.
func (r *record) fits() error {
	data, err := r.pack()
	if err != nil {
		return err
	}
	steps := len(r.Open.Transition.Steps)
	if len(data) > limitOpenBytes {
		return fmt.Errorf("the record of %d steps needs %d KiB of Secret %s, which has room for %d: take the hosts "+
			"into spec.hosts and spec.kubelet.modern.nodes in several edits", steps, len(data)>>10, RecordName,
			limitOpenBytes>>10)
	}
	if err := new(record).unpack(map[string][]byte{recordKey: data}); err != nil {
		return fmt.Errorf("the record of %d steps could not be read again: %w", steps, err)
	}
	return nil
}

// decode reads the JSON of a record: 64 MiB of empty steps are a few kilobytes of a Secret, and gigabytes of memory of
// the operator, which runs every other control plane, too.
func (r *record) decode(in io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(in, limitRecordBytes+1))
	switch {
	case err != nil:
		return err
	case len(text) > limitRecordBytes, jsontext.DecodedBytes(text) > limitRecordBytes:
		return fmt.Errorf("takes more than %d MiB", limitRecordBytes>>20)
	}
	return json.Unmarshal(text, r)
}

// errBeyond is wrapped when a record, or a manifest, is about more than the control plane's own pods. Who may write the
// Secrets of one namespace gets nothing of another by a record, and nothing of a node.
var errBeyond = errors.New("refers to objects outside this control plane")

// validate refuses what no operator has written: plans and steps of another control plane.
func (r *record) validate(name string) error {
	for _, of := range r.setups() {
		wanted := plan.Hosted
		if onHosts(of.Target) {
			wanted = plan.OnHosts
		}
		if p := of.Plan; p != nil && (p.Name != name || p.Target != wanted) {
			return fmt.Errorf("a plan of %q, %q: %w", p.Name, p.Target, errBeyond)
		}
	}
	if r.Open == nil {
		return nil
	}
	for _, of := range r.Open.Journal {
		about := []transition.Event{transition.Seen, transition.Halted, transition.Acknowledged}
		if of.Looked == nil && slices.Contains(about, of.Event) {
			return fmt.Errorf("step %q, %s: says nothing of stores: %w", of.Step, of.Event, transition.ErrJournal)
		}
	}
	switch {
	case onHosts(r.Open.Target):
		return r.Open.Transition.Validate()
	default:
		for i := range r.Open.Transition.Steps {
			s := &r.Open.Transition.Steps[i]
			for _, a := range []*transition.Action{s.Do, s.Undo} {
				if err := validateAction(a, name); err != nil {
					return fmt.Errorf("step %q: %w", s.ID, err)
				}
			}
		}
	}
	return nil
}

// approval is what the annotation says that lets a transition begin: the digest of the plan to which it leads, that of
// the plan which runs, how many approvals there were before, and the hosts that count as lost. To approve the way from
// one plan is not to approve that from another one, whose steps are others; to approve that a host leaves is not to
// approve that its member is removed without a way back.
func (r *record) approval(digest string, lost []string) string {
	word := digest
	if r.Runs != "" {
		word += fromWord + r.Runs
	}
	if n := r.approvals(); n > 0 {
		word = fmt.Sprintf("%s.%d", word, n+1)
	}
	for _, host := range lost {
		word += lostWord + host
	}
	return word
}

func (r *record) approvals() int {
	if r.Approvals == 0 && r.Approved != "" {
		return 1
	}
	return r.Approvals
}

// fromWord stands before the plan from which an approval lets a transition begin.
const fromWord = ".from-"

// lostWord stands before each host that an approval names as lost.
const lostWord = ".lost-"

// IsAbout reports whether a person who named a plan means a word of approval, of which it is the beginning. Its digest
// alone does not say that hosts are lost: then it is the whole word.
func IsAbout(word, named string) bool {
	digest, _, _ := strings.Cut(word, ".")
	return named == word || named == digest && !strings.Contains(word, lostWord)
}

// target is what runs the components.
func (r *record) target() render.Target {
	if r.Target == "" {
		return render.Hosted
	}
	return r.Target
}

// setups are what runs, and what an open transition leads to.
func (r *record) setups() []transition.Setup {
	all := []transition.Setup{{Plan: r.Plan, Target: r.target()}}
	if r.Open != nil {
		all = append(all, transition.Setup{Plan: r.Open.Plan, Target: r.Open.Target})
	}
	return all
}

func validateAction(a *transition.Action, name string) error {
	if a == nil {
		return nil
	}
	workloads := []*transition.Workload{a.Workload}
	for _, c := range slices.Concat(a.Before, a.After) {
		if (c.Kind == transition.RolledOut || c.Kind == transition.NoPods) && c.Workload == nil {
			return fmt.Errorf("check %q names no workload", c.Kind)
		}
		if (c.Kind == transition.Settled || c.Kind == transition.Released) && c.Marks == nil {
			return fmt.Errorf("check %q names no marks", c.Kind)
		}
		if c.Kind == transition.MemberIs {
			if err := validateMember(c.Member, name); err != nil {
				return err
			}
		}
		workloads = append(workloads, c.Workload)
	}
	switch a.Kind {
	case transition.RunChecks:
	case transition.RestoreMember, transition.PutBackMember:
		if err := validateMember(a.Member, name); err != nil {
			return err
		}
	case transition.Release:
		if a.Marks == nil {
			return fmt.Errorf("action %q names no marks", a.Kind)
		}
	default:
		if a.Workload == nil {
			return fmt.Errorf("action %q names no workload", a.Kind)
		}
	}
	for _, w := range workloads {
		if w == nil {
			continue
		}
		if w.Namespace != name {
			return fmt.Errorf("%s of namespace %q: %w", w.Name, w.Namespace, errBeyond)
		}
		if _, err := objectsOf(w); err != nil {
			return err
		}
	}
	return nil
}

// write writes the record. One that another operator wrote since it was read is not overwritten.
func (r *record) write(ctx context.Context, c client.Client, name string) error {
	data, err := r.pack()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: RecordName}}
	if r.secret != nil {
		secret = r.secret.DeepCopy()
	}
	mark(secret, name)
	secret.Data = map[string][]byte{recordKey: data}
	if r.secret == nil {
		err = c.Create(ctx, secret)
	} else {
		err = c.Update(ctx, secret) // with the resourceVersion that was read
	}
	if err != nil {
		return fmt.Errorf("writing the record of %s: %w", name, err)
	}
	r.secret = secret
	return nil
}

// journal keeps the records of the open transition in the record: *transition.Journal.
type journal struct {
	ctx    context.Context
	client client.Client
	name   string
	record *record
	now    func() metav1.Time
}

func (j *journal) Records() []transition.Record { return j.record.Open.Journal }

// Append writes a record unless it is the last one of a step again: a step that waits is begun at each look.
func (j *journal) Append(r transition.Record) error {
	o := j.record.Open
	if r.Looked != nil {
		return j.noteLook(r)
	}
	for _, last := range slices.Backward(o.Journal) {
		if last.Looked == nil {
			if reflect.DeepEqual(last, r) {
				return nil
			}
			break
		}
	}
	o.Journal, o.StepSince = append(o.Journal, r), j.now()
	return j.record.write(j.ctx, j.client, j.name)
}

// noteLookEvery is how often a look that found what the one before it found is written.
const noteLookEvery = time.Minute

// noteLook keeps one look at a store, the last one, and the first record of a stop that goes on: a transition looks
// each time that it is carried on.
func (j *journal) noteLook(r transition.Record) error {
	o := j.record.Open
	stop := transition.Stopped(o.Journal)
	if r.Event == transition.Halted && stop != nil && stop.Step == r.Step && alike(stop, &r) {
		return nil
	}
	if r.Event == transition.Seen && stop == nil {
		for _, last := range slices.Backward(o.Journal) {
			if last.Event == transition.Seen && alike(&last, &r) && within(&last, &r, noteLookEvery) {
				return nil
			}
		}
		o.Journal = slices.DeleteFunc(slices.Clone(o.Journal), func(old transition.Record) bool {
			if old.Event != transition.Seen {
				return false
			}
			for name := range old.Looked.Stores {
				if _, again := r.Looked.Stores[name]; !again {
					return false
				}
			}
			return true
		})
	}
	o.Journal = append(o.Journal, r)
	return j.record.write(j.ctx, j.client, j.name)
}

// alike reports whether two looks saw the same stores.
func alike(a, b *transition.Record) bool {
	return maps.EqualFunc(a.Looked.Stores, b.Looked.Stores, func(x, y witness.Sight) bool {
		return x.Cluster == y.Cluster && maps.EqualFunc(x.Objects, y.Objects, func(x, y witness.Object) bool {
			return x.UID == y.UID
		})
	})
}

// within reports whether a look came so soon after another one.
func within(before, now *transition.Record, limit time.Duration) bool {
	for name, was := range before.Looked.Stores {
		if is := now.Looked.Stores[name]; is.At.Sub(was.At) > limit {
			return false
		}
	}
	return true
}

// stopID names a stop: one that comes after it has another name.
func stopID(stop *transition.Record) string {
	if stop == nil {
		return ""
	}
	data, err := json.Marshal(stop)
	if err != nil {
		return "" // what annotations do not say
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:digestBytes])
}

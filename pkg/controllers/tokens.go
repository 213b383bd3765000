package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// The type and annotations of the Secret of a service account's token, in every version.
const (
	tokenSecretType   = "kubernetes.io/service-account-token"
	accountAnnotation = "kubernetes.io/service-account.name"
	uidAnnotation     = "kubernetes.io/service-account.uid"
)

// tokens knows the Secrets that hold tokens, from a watch, and creates one for an account that has none. Of a Secret it
// keeps names and whether a pod can start with it, none of its data.
type tokens struct {
	cluster *cluster
	side    pair.Side     // the nodes see its Secrets
	within  time.Duration // how long the admission of a pod waits for its token
	comes   bool          // some controller creates a Secret for every account

	mutex    sync.Mutex
	accounts map[account]types.UID
	secrets  map[account][]tokenSecret
	lacking  int           // watches whose first list is not in
	changed  chan struct{} // closed at the next change
}

// account is a service account.
type account struct{ namespace, name string }

// tokenSecret is a Secret of an account.
type tokenSecret struct {
	name, resourceVersion string
	of                    types.UID // the account of its annotation
	filled                bool      // it has the token and what else a pod mounts
}

func newTokens(c *cluster, within time.Duration) *tokens {
	side := cmp.Or(c.layout.home(schema.GroupResource{Resource: "secrets"}), pair.Legacy)
	return &tokens{
		cluster: c, side: side, within: within, lacking: 2, changed: make(chan struct{}),
		comes:    kubever.Behaves(kubever.BehaviourTokenSecretsCreated, c.layout.plan.Legacy.Version.Minor),
		accounts: map[account]types.UID{}, secrets: map[account][]tokenSecret{},
	}
}

// run watches until ctx ends.
func (t *tokens) run(ctx context.Context) {
	var wait sync.WaitGroup
	defer wait.Wait()
	client := t.cluster.client(t.side)
	for _, w := range []struct {
		of    collection
		store tokenStore
	}{
		{collection{t.resource("serviceaccounts", "ServiceAccount"), "", decodeObject},
			tokenStore{t, t.seeAccount, t.forgetAccount, func() { clear(t.accounts) }}},
		{collection{t.resource("secrets", "Secret"), ofTokens, decodeSecret},
			tokenStore{t, t.seeSecret, t.forgetSecret, func() { clear(t.secrets) }}},
	} {
		reflector := client.reflector(w.of, &firstList{tokenStore: w.store})
		wait.Go(func() { reflector.RunWithContext(ctx) })
	}
}

func (t *tokens) resource(name, kind string) resource {
	return t.cluster.resource(t.side, "", "v1", name, kind)
}

// tokenStore is what a reflector writes to.
type tokenStore struct {
	tokens      *tokens
	see, forget func(*metav1.PartialObjectMetadata)
	clear       func()
}

func (s tokenStore) with(object any, change func(*metav1.PartialObjectMetadata)) error {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("controllers: internal error: a watch of tokens returned a %T", object)
	}
	s.tokens.mutex.Lock()
	defer s.tokens.mutex.Unlock()
	change(o)
	s.tokens.tell()
	return nil
}

func (s tokenStore) Add(object any) error    { return s.with(object, s.see) }
func (s tokenStore) Update(object any) error { return s.with(object, s.see) }
func (s tokenStore) Delete(object any) error { return s.with(object, s.forget) }
func (s tokenStore) Resync() error           { return nil }

// firstList notes when the first list is in.
type firstList struct {
	tokenStore
	in bool
}

func (f *firstList) Replace(objects []any, _ string) error {
	t := f.tokens
	t.mutex.Lock()
	defer t.mutex.Unlock()
	f.clear()
	for _, object := range objects {
		if o, ok := object.(*metav1.PartialObjectMetadata); ok {
			f.see(o)
		}
	}
	if !f.in {
		f.in = true
		t.lacking--
	}
	t.tell()
	return nil
}

// tell wakes all that wait. The mutex is held.
func (t *tokens) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tokens) seeAccount(o *metav1.PartialObjectMetadata) {
	t.accounts[account{o.Namespace, o.Name}] = o.UID
}

func (t *tokens) forgetAccount(o *metav1.PartialObjectMetadata) {
	delete(t.accounts, account{o.Namespace, o.Name})
}

func (t *tokens) seeSecret(o *metav1.PartialObjectMetadata) {
	t.forgetSecret(o)
	of := account{o.Namespace, o.Annotations[accountAnnotation]}
	if of.name == "" || o.DeletionTimestamp != nil {
		return
	}
	t.secrets[of] = append(t.secrets[of], tokenSecret{name: o.Name, resourceVersion: o.ResourceVersion,
		of: types.UID(o.Annotations[uidAnnotation]), filled: o.Annotations[filledAnnotation] != ""})
	slices.SortFunc(t.secrets[of], func(a, b tokenSecret) int { return cmp.Compare(a.name, b.name) })
}

func (t *tokens) forgetSecret(o *metav1.PartialObjectMetadata) {
	of := account{o.Namespace, o.Annotations[accountAnnotation]}
	t.secrets[of] = slices.DeleteFunc(t.secrets[of], func(s tokenSecret) bool { return s.name == o.Name })
	if len(t.secrets[of]) == 0 {
		delete(t.secrets, of)
	}
}

// errNoAccount: the API server itself refuses a pod without its service account.
var errNoAccount = errors.New("there is no such service account")

// Secret names the Secret of an account's token. One that has its token is returned immediately. Otherwise the
// admission of the pod waits, not for long: for the controllers that create a Secret for every account, where there are
// some, and for the token of one that is created here.
func (t *tokens) Secret(ctx context.Context, namespace, name string, dryRun bool) (secret, warning string, err error) {
	of := account{namespace, name}
	ctx, cancel := context.WithTimeout(ctx, t.within)
	defer cancel()
	if err := t.until(ctx, func() bool { return t.lacking == 0 }); err != nil {
		return "", "", errors.New("the tokens of service accounts are not listed yet")
	}
	found, uid := t.find(of)
	if uid == "" { // just created: the watch has not delivered it
		o, err := t.cluster.client(t.side).get(ctx, t.resource("serviceaccounts", "ServiceAccount"), namespace, name)
		if errors.Is(err, discovery.ErrNotFound) {
			return "", "", fmt.Errorf("service account %s/%s: %w", namespace, name, errNoAccount)
		} else if err != nil {
			return "", "", err
		}
		uid = o.UID
		t.mutex.Lock()
		t.accounts[of] = uid
		t.mutex.Unlock()
		found, _ = t.find(of)
	}
	if found.filled {
		return found.name, "", nil
	}
	own := ownSecret(name)
	if dryRun {
		return cmp.Or(found.name, own), "", nil
	}
	wait := func(ctx context.Context) bool {
		return t.until(ctx, func() bool { found, _ = t.findLocked(of); return found.filled }) == nil
	}
	if found.name == "" && t.comes {
		half, cancel := context.WithTimeout(ctx, t.within/2)
		came := wait(half)
		cancel()
		if came {
			return found.name, "", nil
		}
	}
	if found.name == "" {
		if err := t.create(ctx, of, uid, own); err != nil {
			return "", "", err
		}
	}
	if wait(ctx) {
		return found.name, "", nil
	}
	secret = cmp.Or(found.name, own)
	return secret, fmt.Sprintf("Secret %s/%s has no token yet: the pod waits for the controller that writes it",
		namespace, secret), nil
}

// until waits for a condition, which is evaluated with the mutex held.
func (t *tokens) until(ctx context.Context, condition func() bool) error {
	for {
		t.mutex.Lock()
		done, changed := condition(), t.changed
		t.mutex.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (t *tokens) find(of account) (tokenSecret, types.UID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.findLocked(of)
}

// findLocked is the first filled Secret of the account as it is now, or the first one that may be filled. One of a
// deleted account of the same name will be deleted too.
func (t *tokens) findLocked(of account) (tokenSecret, types.UID) {
	uid := t.accounts[of]
	var best tokenSecret
	for _, s := range t.secrets[of] {
		if uid == "" || s.of != uid && (s.of != "" || s.filled) {
			continue
		}
		if s.filled {
			return s, uid
		}
		if best.name == "" {
			best = s
		}
	}
	return best, uid
}

// ownSecret is the name of the Secret that is created for an account which has none.
func ownSecret(account string) string {
	const suffix, limit = "-token-modern", 253
	if len(account)+len(suffix) <= limit {
		return account + suffix
	}
	sum := sha256.Sum256([]byte(account))
	return account[:limit-len(suffix)-9] + "-" + hex.EncodeToString(sum[:4]) + suffix
}

// create creates an empty Secret, which the token controller fills; one that another process has created meanwhile is
// as good.
func (t *tokens) create(ctx context.Context, of account, uid types.UID, name string) error {
	r := t.resource("secrets", "Secret")
	err := t.cluster.writer.write(ctx, t.side, http.MethodPost, r.collection(of.namespace), map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": tokenSecretType,
		"metadata": map[string]any{"name": name, "namespace": of.namespace,
			"labels":      map[string]any{managedLabel: managedBy},
			"annotations": map[string]any{accountAnnotation: of.name, uidAnnotation: uid}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	t.cluster.record(
		"create", r, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: of.namespace, Name: name}},
		"a pod needs the token of service account "+of.name+", which no Secret holds", err)
	if err != nil {
		return fmt.Errorf("creating the Secret of service account %s/%s: %w", of.namespace, of.name, err)
	}
	return nil
}

// filledAnnotation stands for the data of a Secret: it is never on an object of an API server.
const filledAnnotation = "filled"

// decodeSecret keeps the names, the account, and whether the keys that pods mount are there.
func decodeSecret(data []byte) (*metav1.PartialObjectMetadata, error) {
	var wire struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Data map[string]json.RawMessage `json:"data"`
	}
	object, err := decodeObject(data)
	if err == nil {
		err = utiljson.Unmarshal(data, &wire)
	}
	if err != nil {
		return nil, err
	}
	object.Annotations = map[string]string{accountAnnotation: wire.Metadata.Annotations[accountAnnotation],
		uidAnnotation: wire.Metadata.Annotations[uidAnnotation]}
	filled := true
	for _, key := range []string{"token", "ca.crt", "namespace"} {
		if len(wire.Data[key]) <= len(`""`) {
			filled = false
		}
	}
	if filled {
		object.Annotations[filledAnnotation] = "yes"
	}
	return object, nil
}

// ofTokens selects Secrets by their type, in every version.
const ofTokens = "type=" + tokenSecretType

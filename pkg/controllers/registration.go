package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// registration reconciles the admission configuration of pods on the modern API server: of the webhook, or mutating
// admission policies. What the plan does not have is deleted: the API server would call a webhook that does not run.
// Only the leader does.
type registration struct {
	*cluster
	webhook *Webhook // nil where none runs
}

// registrationKinds are the kinds of admission configuration, each after what it refers to.
var registrationKinds = []string{"MutatingWebhookConfiguration", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding"}

func (r *registration) sync(ctx context.Context) error {
	known, err := r.catalogs[pair.Modern].recent(ctx)
	if err != nil {
		return err
	}
	const group = "admissionregistration.k8s.io"
	if err := known.failure(group); err != nil {
		return err
	}
	served := map[string]resource{}
	for _, kind := range registrationKinds {
		if of := known.ofKind([]string{group}, kind); len(of) > 0 {
			served[kind] = of[0]
		}
	}
	wanted, err := r.wanted(served)
	if err != nil {
		return err
	}
	if len(wanted) > 0 {
		if err := r.markSystemNamespace(ctx); err != nil {
			return err
		}
	}
	var problems []error
	for _, kind := range registrationKinds {
		of, ok := served[kind]
		if !ok {
			continue
		}
		names := map[string]bool{}
		for _, object := range wanted {
			if object["kind"] == kind {
				name := object["metadata"].(map[string]any)["name"].(string)
				names[name] = true
				problems = append(problems, r.ensure(ctx, of, name, object))
			}
		}
		problems = append(problems, r.removeOthers(ctx, of, names))
	}
	return errors.Join(problems...)
}

// wanted are the admission configurations of the plan, in the versions that the API server serves.
func (r *registration) wanted(served map[string]resource) ([]map[string]any, error) {
	p := r.layout.plan
	switch {
	case p.Pods == nil:
		return nil, nil
	case p.Pods.Admission.By == plan.ByPolicy:
		if served["MutatingAdmissionPolicy"].Version != "v1" {
			return nil, errors.New("the modern side does not serve MutatingAdmissionPolicy in " +
				"admissionregistration.k8s.io/v1")
		}
		return admission.For(p).Policies(p.Pods.Admission), nil
	case r.webhook == nil:
		return nil, errors.New("the plan has an admission webhook for pods, which was not started")
	}
	of, ok := served["MutatingWebhookConfiguration"]
	if !ok {
		return nil, errors.New("the modern side serves no MutatingWebhookConfiguration")
	}
	ca, err := os.ReadFile(r.webhook.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA bundle of the admission webhook: %w", err)
	}
	return []map[string]any{admission.For(p).Webhook(p.Pods.Admission, of.Version, r.webhook.URL,
		base64.StdEncoding.EncodeToString(ca))}, nil
}

// markSystemNamespace labels the control plane's own namespace, so that admission of pods leaves it out.
func (r *registration) markSystemNamespace(ctx context.Context) error {
	side := cmp.Or(r.layout.home(schema.GroupResource{Resource: "namespaces"}), pair.Modern)
	of := r.namespaces(side)
	found, err := r.client(side).read(ctx, of.object("", admission.SystemNamespace))
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", admission.SystemNamespace, err)
	}
	object := &unstructured.Unstructured{Object: found}
	if object.GetLabels()[admission.OptOut] == admission.Off {
		return nil
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion()}}
	return r.change(ctx, of, meta, "pods of the control plane must not depend on its own webhook",
		map[string]any{"labels": map[string]any{admission.OptOut: admission.Off}})
}

// contentAnnotation is a hash of what was written: API servers add defaults, and drop unknown fields.
const contentAnnotation = "kubefusion.dev/content"

// ensure writes an object unless it is as it was written last.
func (r *registration) ensure(ctx context.Context, of resource, name string, wanted map[string]any) error {
	text, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	wanted["metadata"].(map[string]any)["annotations"] = map[string]any{contentAnnotation: hex.EncodeToString(sum[:16])}
	wanted["metadata"].(map[string]any)["labels"] = map[string]any{managedLabel: managedBy}
	what, verb, at := "create", http.MethodPost, of.collection("")
	found, err := r.client(of.side).read(ctx, of.object("", name))
	switch {
	case errors.Is(err, discovery.ErrNotFound):
	case err != nil:
		return fmt.Errorf("reading %s: %w", of.describe("", name), err)
	case kept(found, wanted):
		return nil
	default:
		what, verb, at = "change", http.MethodPut, of.object("", name)
		wanted["metadata"].(map[string]any)["resourceVersion"] = (&unstructured.Unstructured{Object: found}).
			GetResourceVersion()
	}
	err = r.writer.write(ctx, of.side, verb, at, wanted)
	r.record(what, of, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}},
		"the modern API server mutates pods by it", err)
	if err != nil {
		return fmt.Errorf("writing %s: %w", of.describe("", name), err)
	}
	return nil
}

// kept reports whether an object is as it was written, and was written for what is wanted. A field that the version
// does not know is always missing in it.
func kept(found, wanted any) bool {
	switch want := wanted.(type) {
	case map[string]any:
		have, ok := found.(map[string]any)
		if annotations, has := want["annotations"]; has && !contains(have["annotations"], annotations) {
			return false
		}
		for name, value := range want {
			if existing, has := have[name]; has && !kept(existing, value) {
				return false
			}
		}
		return ok
	case []any:
		have, ok := found.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !kept(have[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return found == wanted
	}
}

// removeOthers deletes admission configurations of fusionctl that are not wanted.
func (r *registration) removeOthers(ctx context.Context, of resource, wanted map[string]bool) error {
	items, err := r.client(of.side).listAll(ctx, of, "")
	if err != nil {
		return err
	}
	for i := range items {
		o := &items[i]
		if wanted[o.Name] || o.Name != admission.Name && !strings.HasSuffix(o.Name, "."+admission.Name) {
			continue
		}
		if err := r.delete(ctx, of, o, metav1.DeletePropagationBackground, "the plan does not have it"); err != nil {
			return err
		}
	}
	return nil
}

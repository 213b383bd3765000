//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// pizzaAccess is what the modern side's policy allows beside access: pizzas to developers.
const pizzaAccess = access + `  - {subjects: [{kind: Group, name: developers}], apiGroups: [` + pizzaGroup + `], resources: ["*"]}
`

const pizzaPaths = "/apis/" + pizzaGroup + "/"

// converted is a pair whose sides have one custom resource each, of one name, in two versions between which one webhook
// converts.
type converted struct {
	*fused
	webhook *rig.Process
}

// TestConvertedCustomResourcesOfBothSides: a custom resource with a conversion webhook on either side, defined through
// v1beta1 on the legacy side and through v1 on the modern one. Each side serves its own objects in both versions. While
// the webhook does not answer, they are served in the version that is stored, and everything else goes on; what such an
// object may own is not collected, and a namespace that may hold some does not end, until the webhook answers again.
func TestConvertedCustomResourcesOfBothSides(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	f := &converted{fused: startFused(t, legacy, pizzaAccess)}
	webhook := newPizzaWebhook(t, f.Rig)
	binary, err := fusionctl()
	must(t, err)
	rules, err := filepath.Abs(pizzaRules)
	must(t, err)
	f.webhook = f.StartProgram("pizza-webhook", binary, []string{"crd", "webhook", "--rules", rules, "--listen",
		webhook.address, "--tls-cert", webhook.certFile, "--tls-key", webhook.keyFile, "--any-client"})
	f.awaitWebhook(webhook.address)
	for side, definitions := range map[string]string{"legacy": "v1beta1", "modern": "v1"} {
		minor := map[string]kubever.Minor{"legacy": 15, "modern": 36}[side]
		must(t, f.sides()[side].Call(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/"+definitions+
			"/customresourcedefinitions", pizzaDefinition(t, minor, webhook, "v1alpha1", "v1"), nil))
		f.Eventually("a pizza of the "+side+" side", func(ctx context.Context) error {
			return f.order(ctx, side, "demo", "of-"+side)
		})
		f.isConverted(side)
	}
	f.goesOnWithoutWebhook(webhook.address)
	storesAreClean(t, f.Pair)
	proved(t, spec.LayoutSplit, legacy, modern,
		"with a custom resource on either side, of one name and with a conversion webhook, each side serves its own "+
			"objects in both versions",
		"while the conversion webhook does not answer, objects are served in their stored version; what they own is "+
			"not collected, and namespaces wait for it")
}

// awaitWebhook waits until the webhook listens.
func (f *converted) awaitWebhook(address string) {
	f.t.Helper()
	f.webhook.Wait("listen", func(context.Context) error {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
}

// order creates a pizza in the stored version.
func (f *converted) order(ctx context.Context, side, namespace, name string) error {
	err := f.sides()[side].Call(ctx, http.MethodPost, pizzaPaths+"v1alpha1/namespaces/"+namespace+"/pizzas", object{
		"apiVersion": pizzaGroup + "/v1alpha1", "kind": "Pizza", "metadata": object{"name": name},
		"spec": object{"size": "M", "toppings": []string{"basil", "tomato"}}}, nil)
	if rig.Code(err) == http.StatusConflict { // an answer was lost
		return nil
	}
	return err
}

// isConverted fails unless a side has its own pizza alone, in both versions, each with its own shape.
func (f *converted) isConverted(side string) {
	f.t.Helper()
	var old struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct{ Toppings []string }
		}
	}
	must(f.t, f.sides()[side].Call(f.t.Context(), http.MethodGet, pizzaPaths+"v1alpha1/namespaces/demo/pizzas", nil,
		&old))
	if len(old.Items) != 1 || old.Items[0].Metadata.Name != "of-"+side || len(old.Items[0].Spec.Toppings) != 2 {
		f.t.Errorf("pizzas of the %s side: %+v, want of-%s alone, with two toppings", side, old.Items, side)
	}
	var now struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct{ Toppings []struct{ Name string } }
		}
	}
	must(f.t, f.sides()[side].Call(f.t.Context(), http.MethodGet, pizzaPaths+"v1/namespaces/demo/pizzas", nil, &now))
	if len(now.Items) != 1 || len(now.Items[0].Spec.Toppings) != 2 || now.Items[0].Spec.Toppings[0].Name != "basil" {
		f.t.Errorf("pizzas of the %s side, converted: %+v, want of-%s alone, with basil first", side, now.Items, side)
	}
}

// goesOnWithoutWebhook stops the webhook, and starts it again.
func (f *converted) goesOnWithoutWebhook(address string) {
	f.t.Helper()
	ctx := f.t.Context()
	const space, owned = "without-webhook", "/api/v1/namespaces/demo/configmaps/owned-by-"
	must(f.t, f.admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": space}}, nil))
	for side, client := range f.sides() {
		f.Eventually("a pizza in the new namespace", func(ctx context.Context) error {
			return f.order(ctx, side, space, "inside")
		})
		owner := object{}
		must(f.t, client.Call(ctx, http.MethodGet, pizzaPaths+"v1/namespaces/demo/pizzas/of-"+side, nil, &owner))
		must(f.t, client.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps", object{
			"metadata": object{"name": "owned-by-" + side, "ownerReferences": []object{{
				"apiVersion": pizzaGroup + "/v1", "kind": "Pizza", "name": "of-" + side,
				"uid": owner["metadata"].(object)["uid"]}}}}, nil))
	}

	f.webhook.Kill()
	must(f.t, f.admin.Call(ctx, http.MethodDelete, "/api/v1/namespaces/"+space, nil, nil))
	f.Throughout(20*time.Second, "the pair goes on without the webhook", func(ctx context.Context) error {
		for side, client := range f.sides() {
			pizza := "/namespaces/demo/pizzas/of-" + side
			if err := client.Call(ctx, http.MethodGet, pizzaPaths+"v1alpha1"+pizza, nil, nil); err != nil {
				return fmt.Errorf("the pizza of the %s side as it is stored: %w", side, err)
			}
			if err := client.Call(ctx, http.MethodGet, pizzaPaths+"v1"+pizza, nil, nil); rig.Code(err) !=
				http.StatusInternalServerError {
				return fmt.Errorf("the pizza of the %s side, converted: %w, want 500", side,
					errors.Join(err, errNotYet))
			}
			if err := client.Call(ctx, http.MethodGet, demoPods, nil, nil); err != nil {
				return fmt.Errorf("pods through the %s side: %w", side, err)
			}
			if err := f.admin.Call(ctx, http.MethodGet, owned+side, nil, nil); err != nil {
				return fmt.Errorf("what the pizza of the %s side owns: %w", side, err)
			}
		}
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+space, nil, nil); err != nil {
			return fmt.Errorf("the namespace that has pizzas: %w", err)
		}
		return nil
	})
	f.bystandersLive("without the webhook")

	f.webhook.StartAgain()
	f.awaitWebhook(address)
	f.Eventually("the namespace ends", func(ctx context.Context) error {
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+space, nil, nil); rig.Code(err) !=
			http.StatusNotFound {
			return fmt.Errorf("getting it: %w", errors.Join(err, errNotYet))
		}
		return nil
	})
	for side, client := range f.sides() {
		if err := client.Call(ctx, http.MethodGet, pizzaPaths+"v1alpha1/namespaces/"+space+"/pizzas/inside", nil,
			nil); rig.Code(err) != http.StatusNotFound {
			f.t.Errorf("a pizza of the %s side in the namespace that has ended: %v, want 404", side, err)
		}
		f.isConverted(side)
		must(f.t, client.Call(ctx, http.MethodDelete, pizzaPaths+"v1/namespaces/demo/pizzas/of-"+side, nil, nil))
		f.Eventually("what the pizza owned is collected", func(ctx context.Context) error {
			if err := f.admin.Call(ctx, http.MethodGet, owned+side, nil, nil); rig.Code(err) != http.StatusNotFound {
				return fmt.Errorf("getting it: %w", errors.Join(err, errNotYet))
			}
			return nil
		})
	}
	f.bystandersLive("with the webhook again")
}

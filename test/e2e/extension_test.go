//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// extensionUser is who the extension API servers are for the API servers that they stand behind.
const extensionUser = "extension-server"

// extensionAccess is what the modern side's policy allows beside access: flunders to developers; and to the extension
// API server, which reads who front proxies are and which namespaces there are, that it asks who somebody is and what
// he may do.
const extensionAccess = access + `  - {subjects: [{kind: Group, name: developers}], apiGroups: [wardle.example.com], resources: ["*"]}
  - {subjects: [{kind: User, name: ` + extensionUser + `}], apiGroups: [""], resources: [namespaces], readOnly: true}
  - {subjects: [{kind: User, name: ` + extensionUser + `}], apiGroups: [""], resources: [configmaps], namespaces: [kube-system], readOnly: true}
  - {subjects: [{kind: User, name: ` + extensionUser + `}], apiGroups: [authentication.k8s.io], resources: [tokenreviews]}
  - {subjects: [{kind: User, name: ` + extensionUser + `}], apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews]}
`

// extended is a pair with an extension API server behind either side, which serve one group.
type extended struct {
	*fused
	servers map[string]*rig.APIServer
	users   map[string]*rig.Client // who have no more than developers have
}

const (
	flunderVersion = "wardle.example.com/v1alpha1"
	demoFlunders   = "/apis/" + flunderVersion + "/namespaces/demo/flunders"
	wardleService  = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.wardle.example.com"
)

// TestExtensionAPIServersOfBothSides: each side has an extension API server of its own behind it, which serve one
// group. Users reach the one of their side, which knows them by the headers of its side's API server. While one does
// not answer, the other does, and so does everything else; nothing that could have its objects for owners is collected,
// and no namespace ends that could hold some, until it answers again.
func TestExtensionAPIServersOfBothSides(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	f := &extended{fused: startFused(t, legacy, extensionAccess), servers: map[string]*rig.APIServer{},
		users: map[string]*rig.Client{}}
	f.allowOnTheLegacySide()
	for side, server := range map[string]*rig.APIServer{"legacy": f.Legacy, "modern": f.Modern} {
		f.extend(side, server)
	}
	for side, user := range f.users {
		must(t, user.Call(t.Context(), http.MethodPost, demoFlunders, flunder("of-"+side), nil))
		f.flundersAre(side, "of-"+side)
	}
	for name, server := range map[string]*rig.APIServer{"legacy": f.Legacy, "modern": f.Modern} {
		nobody := server.Client("mallory")
		if err := nobody.Call(t.Context(), http.MethodGet, demoFlunders, nil, nil); rig.Code(err) !=
			http.StatusForbidden {
			t.Errorf("a user without permissions lists flunders through the %s side: %v, want 403", name, err)
		}
	}
	for side, other := range map[string]string{"legacy": "modern", "modern": "legacy"} {
		f.goesOnWithout(side, other)
	}
	f.flundersHoldWhatTheyOwn()
	storesAreClean(t, f.Pair)
	proved(t, spec.LayoutSplit, legacy, modern,
		"with an extension API server behind either side, of one group, users reach the one of their side",
		"while an extension API server of either side does not answer, that of the other side does; what its objects "+
			"own is not collected, and namespaces wait for it")
}

// allowOnTheLegacySide gives the legacy side's users by roles what the policy gives those of the modern side.
func (f *extended) allowOnTheLegacySide() {
	f.t.Helper()
	const roles = "/apis/rbac.authorization.k8s.io/v1/"
	bind := func(path, name, role string, kind string, subject object) {
		f.t.Helper()
		subject["apiGroup"] = "rbac.authorization.k8s.io"
		must(f.t, f.admin.Call(f.t.Context(), http.MethodPost, roles+path, object{
			"metadata": object{"name": name}, "subjects": []object{subject},
			"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}}, nil))
	}
	rule := func(group, resource string, verbs ...string) object {
		return object{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": verbs}
	}
	for name, rule := range map[string]object{
		"flunders": rule("wardle.example.com", "*", "*"), "namespaces": rule("", "namespaces", "list", "watch"),
	} {
		must(f.t, f.admin.Call(f.t.Context(), http.MethodPost, roles+"clusterroles", object{
			"metadata": object{"name": "extension-" + name}, "rules": []object{rule}}, nil))
	}
	user := func() object { return object{"kind": "User", "name": extensionUser} }
	bind("clusterrolebindings", "extension-flunders", "extension-flunders", "ClusterRole",
		object{"kind": "Group", "name": "developers"})
	bind("clusterrolebindings", "extension-namespaces", "extension-namespaces", "ClusterRole", user())
	bind("clusterrolebindings", "extension-reviews", "system:auth-delegator", "ClusterRole", user())
	bind("namespaces/kube-system/rolebindings", "extension-front-proxies", "extension-apiserver-authentication-reader",
		"Role", user())
}

// extend starts an extension API server behind a side's, and registers it there.
func (f *extended) extend(side string, server *rig.APIServer) {
	f.t.Helper()
	service := "wardle-" + side
	extension, port := f.StartExtension("extension-"+side, server, extensionUser, service+".demo.svc")
	extension.WaitReady()
	f.servers[side], f.users[side] = extension, server.Client("alice", "developers")
	admin := server.Client("admin", "system:masters")
	authority, err := os.ReadFile(f.PKI.File("ca.crt"))
	must(f.t, err)
	// There is no network of services here: the name of one that is elsewhere leads to loopback.
	must(f.t, admin.Call(f.t.Context(), http.MethodPost, "/api/v1/namespaces/demo/services", object{
		"metadata": object{"name": service}, "spec": object{"type": "ExternalName", "externalName": "localhost"}}, nil))
	must(f.t, admin.Call(f.t.Context(), http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", object{
		"metadata": object{"name": "v1alpha1.wardle.example.com"}, "spec": object{
			"group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 15,
			"caBundle": base64.StdEncoding.EncodeToString(authority),
			"service":  object{"namespace": "demo", "name": service, "port": port}}}, nil))
	f.awaitAvailable(side, "True")
	f.Eventually("the "+side+" side serves flunders", func(ctx context.Context) error {
		return f.users[side].Call(ctx, http.MethodGet, demoFlunders, nil, nil)
	})
}

// awaitAvailable waits until a side says of its extension API server that it is available, or is not.
func (f *extended) awaitAvailable(side, want string) {
	f.t.Helper()
	admin := map[string]*rig.APIServer{"legacy": f.Legacy, "modern": f.Modern}[side].Client("admin", "system:masters")
	f.Eventually(fmt.Sprintf("the %s side's extension API server is available = %s", side, want),
		func(ctx context.Context) error {
			var service struct {
				Status struct {
					Conditions []struct{ Type, Status, Reason, Message string }
				}
			}
			if err := admin.Call(ctx, http.MethodGet, wardleService, nil, &service); err != nil {
				return err
			}
			for _, condition := range service.Status.Conditions {
				if condition.Type == "Available" && condition.Status == want {
					return nil
				}
			}
			return fmt.Errorf("%+v", service.Status.Conditions)
		})
}

func flunder(name string) object {
	return object{"apiVersion": flunderVersion, "kind": "Flunder", "metadata": object{"name": name}}
}

// flundersAre fails unless the side has exactly this flunder in the namespace of the tests.
func (f *extended) flundersAre(side, name string) {
	f.t.Helper()
	var list struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	must(f.t, f.users[side].Call(f.t.Context(), http.MethodGet, demoFlunders, nil, &list))
	if len(list.Items) != 1 || list.Items[0].Metadata.Name != name {
		f.t.Errorf("the %s side has flunders %+v, want %s alone", side, list.Items, name)
	}
}

// goesOnWithout stops the extension API server of a side, and starts it again.
func (f *extended) goesOnWithout(side, other string) {
	f.t.Helper()
	ctx := f.t.Context()
	space := "without-" + side
	must(f.t, f.admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": space}}, nil))
	flunders := "/apis/" + flunderVersion + "/namespaces/" + space + "/flunders"
	for _, user := range f.users {
		f.Eventually("a flunder in the new namespace", func(ctx context.Context) error {
			err := user.Call(ctx, http.MethodPost, flunders, flunder("inside"), nil)
			if rig.Code(err) == http.StatusConflict { // an answer was lost
				return nil
			}
			return err
		})
	}
	// Its owner is of the side that goes away. It was there at first, so that the collector has seen what it owns.
	owner, owned := object{}, "/api/v1/namespaces/demo/configmaps/owned-on-"+side
	must(f.t, f.users[side].Call(ctx, http.MethodGet, demoFlunders+"/of-"+side, nil, &owner))
	must(f.t, f.sides()[side].Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps", object{
		"metadata": object{"name": "owned-on-" + side, "ownerReferences": []object{{"apiVersion": flunderVersion,
			"kind": "Flunder", "name": "of-" + side, "uid": owner["metadata"].(object)["uid"]}}}}, nil))

	f.servers[side].Kill()
	f.awaitAvailable(side, "False")
	must(f.t, f.admin.Call(ctx, http.MethodDelete, "/api/v1/namespaces/"+space, nil, nil))
	f.Throughout(20*time.Second, "the pair goes on without the "+side+" side's extension API server",
		func(ctx context.Context) error {
			if err := f.users[side].Call(ctx, http.MethodGet, demoFlunders, nil, nil); rig.Code(err) !=
				http.StatusServiceUnavailable {
				return fmt.Errorf("flunders of the side: %w, want 503", errors.Join(err, errNotYet))
			}
			if err := f.users[other].Call(ctx, http.MethodGet, demoFlunders+"/of-"+other, nil, nil); err != nil {
				return fmt.Errorf("flunders of the other side: %w", err)
			}
			for name, client := range f.sides() {
				if err := client.Call(ctx, http.MethodGet, demoPods, nil, nil); err != nil {
					return fmt.Errorf("pods through the %s side: %w", name, err)
				}
			}
			if err := f.admin.Call(ctx, http.MethodGet, owned, nil, nil); err != nil {
				return fmt.Errorf("what a flunder owns: %w", err)
			}
			if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+space, nil, nil); err != nil {
				return fmt.Errorf("the namespace that may have flunders: %w", err)
			}
			return nil
		})
	f.bystandersLive("without the " + side + " side's extension API server")

	f.servers[side].StartAgain()
	f.servers[side].WaitReady()
	f.awaitAvailable(side, "True")
	f.Eventually("the namespace ends", func(ctx context.Context) error {
		err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+space, nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("getting it: %w", errors.Join(err, errNotYet))
		}
		return nil
	})
	for name, user := range f.users {
		if err := user.Call(ctx, http.MethodGet, flunders+"/inside", nil, nil); rig.Code(err) != http.StatusNotFound {
			f.t.Errorf("a flunder of the %s side in the namespace that has ended: %v, want 404", name, err)
		}
	}
	f.flundersAre(other, "of-"+other)
	must(f.t, f.users[side].Call(ctx, http.MethodDelete, demoFlunders+"/of-"+side, nil, nil))
	f.Eventually("what the flunder owned is collected", func(ctx context.Context) error {
		if err := f.admin.Call(ctx, http.MethodGet, owned, nil, nil); rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("getting it: %w", errors.Join(err, errNotYet))
		}
		return nil
	})
	must(f.t, f.users[side].Call(ctx, http.MethodPost, demoFlunders, flunder("of-"+side), nil))
	f.bystandersLive("with the " + side + " side's extension API server again")
}

// flundersHoldWhatTheyOwn makes the objects of the modern side's extension API server hard to see: by a definition of
// their name, which is preferred, and by the deletion of its API service. They are in its store all the time.
func (f *extended) flundersHoldWhatTheyOwn() {
	f.t.Helper()
	ctx, admin := f.t.Context(), f.Modern.Client("admin", "system:masters")
	owner, owned := object{}, "/api/v1/namespaces/demo/configmaps/owned-all-the-time"
	must(f.t, f.users["modern"].Call(ctx, http.MethodGet, demoFlunders+"/of-modern", nil, &owner))
	must(f.t, f.user.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps", object{
		"metadata": object{"name": "owned-all-the-time", "ownerReferences": []object{{"apiVersion": flunderVersion,
			"kind": "Flunder", "name": "of-modern", "uid": owner["metadata"].(object)["uid"]}}}}, nil))
	stays := func(when string) {
		f.t.Helper()
		// longer than the controllers take to hear of what a side serves, and to look at all objects
		f.Throughout(60*time.Second, when+", what a flunder owns stays", func(ctx context.Context) error {
			return f.admin.Call(ctx, http.MethodGet, owned, nil, nil)
		})
	}
	const definitions, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "flunders.wardle.example.com"
	must(f.t, admin.Call(ctx, http.MethodPost, definitions, object{"metadata": object{"name": name}, "spec": object{
		"group": "wardle.example.com", "scope": "Namespaced",
		"names": object{"plural": "flunders", "singular": "flunder", "kind": "Flunder", "listKind": "FlunderList"},
		"versions": []object{{"name": "v9", "served": true, "storage": true,
			"schema": object{"openAPIV3Schema": object{"type": "object"}}}}}}, nil))
	f.Eventually("the definition is preferred", func(ctx context.Context) error {
		var group metav1.APIGroup
		if err := admin.Call(ctx, http.MethodGet, "/apis/wardle.example.com", nil, &group); err != nil ||
			group.PreferredVersion.Version != "v9" {
			return fmt.Errorf("%+v: %w", group, errors.Join(err, errNotYet))
		}
		return nil
	})
	stays("with a definition of the same name")
	must(f.t, admin.Call(ctx, http.MethodDelete, definitions+"/"+name, nil, nil))

	var service object
	must(f.t, admin.Call(ctx, http.MethodGet, wardleService, nil, &service))
	must(f.t, admin.Call(ctx, http.MethodDelete, wardleService, nil, nil))
	stays("without the API service")
	must(f.t, admin.Call(ctx, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", object{
		"metadata": object{"name": "v1alpha1.wardle.example.com"}, "spec": service["spec"]}, nil))
	f.awaitAvailable("modern", "True")
	must(f.t, f.users["modern"].Call(ctx, http.MethodDelete, demoFlunders+"/of-modern", nil, nil))
	f.Eventually("what the flunder owned is collected", func(ctx context.Context) error {
		if err := f.admin.Call(ctx, http.MethodGet, owned, nil, nil); rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("getting it: %w", errors.Join(err, errNotYet))
		}
		return nil
	})
}

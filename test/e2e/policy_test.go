//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/policy/webhook"
	"github.com/kubefusion/fusionctl/test/rig"
)

// policyLines are rules of every kind, traps included.
const policyLines = `# comment
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","resource":"configmaps","namespace":"default"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"viewers","resource":"pods","namespace":"*","readonly":true}}

{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"bob","group":"viewers","resource":"secrets","namespace":"default","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"carol","group":"*","resource":"services","namespace":"default","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"dave","resource":"endpoints","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"erin","apiGroup":"","resource":"*","namespace":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ivan","resource":"configmaps","namespace":"default","readOnly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"judy","apigroup":"*","Resource":"configmaps","resource":"secrets","namespace":"default"}}
{"user":"frank","namespace":"default","resource":"configmaps","readonly":true}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:authenticated","nonResourcePath":"/version","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","nonResourcePath":"/api*","readonly":true}}
`

// policyRequest is a request as HTTP, and as the authorizer sees it.
type policyRequest struct {
	method, path string
	asked        policy.Request
}

func policyRequests() []policyRequest {
	resource := func(method, path, verb, resource, namespace, subresource string) policyRequest {
		return policyRequest{method, path, policy.Request{Verb: verb, Resource: resource, Namespace: namespace,
			Subresource: subresource}}
	}
	return []policyRequest{
		resource("GET", "/api/v1/namespaces/default/configmaps", "list", "configmaps", "default", ""),
		resource("POST", "/api/v1/namespaces/default/configmaps", "create", "configmaps", "default", ""),
		resource("DELETE", "/api/v1/namespaces/default/configmaps/none", "delete", "configmaps", "default", ""),
		resource("GET", "/api/v1/namespaces/kube-system/configmaps", "list", "configmaps", "kube-system", ""),
		resource("GET", "/api/v1/pods", "list", "pods", "", ""),
		resource("GET", "/api/v1/namespaces/default/pods/none/log", "get", "pods", "default", "log"),
		resource("GET", "/api/v1/namespaces/default/pods/none/exec?command=id", "get", "pods", "default", "exec"),
		resource("POST", "/api/v1/namespaces/default/pods/none/exec?command=id", "create", "pods", "default", "exec"),
		resource("GET", "/api/v1/namespaces/default/secrets", "list", "secrets", "default", ""),
		resource("GET", "/api/v1/namespaces/default/services", "list", "services", "default", ""),
		resource("GET", "/api/v1/endpoints", "list", "endpoints", "", ""),
		resource("GET", "/api/v1/namespaces/default/endpoints", "list", "endpoints", "default", ""),
		resource("GET", "/api/v1/nodes", "list", "nodes", "", ""),
		resource("GET", "/api/v1/namespaces/default", "get", "namespaces", "default", ""),
		{"GET", "/version", policy.Request{Verb: "get", Path: "/version"}},
		{"GET", "/api", policy.Request{Verb: "get", Path: "/api"}},
		{"GET", "/api/v1", policy.Request{Verb: "get", Path: "/api/v1"}},
		{"GET", "/metrics", policy.Request{Verb: "get", Path: "/metrics"}},
	}
}

var policyUsers = []struct {
	name   string
	groups []string
}{
	{"alice", nil}, {"bob", nil}, {"bob", []string{"viewers"}}, {"carol", nil}, {"dave", nil}, {"erin", nil},
	{"frank", nil}, {"ivan", nil}, {"judy", nil}, {"grace", []string{"viewers", "others"}},
}

// askAll sends every request as every user and compares what the server permits with what the policy says. Where
// execNeedsCreate, a get of pods/exec must be allowed as a create, too.
func askAll(t *testing.T, server *rig.APIServer, by *policy.Authorizer, execNeedsCreate bool) {
	t.Helper()
	allowed, refused := 0, 0
	for _, u := range policyUsers {
		client := server.Client(u.name, u.groups...)
		for _, request := range policyRequests() {
			q := request.asked
			q.User, q.Groups = u.name, u.groups
			q = q.Authenticated()
			_, want := by.Match(q.Attributes())
			if execNeedsCreate && q.Subresource == "exec" {
				q.Verb = "create"
				_, create := by.Match(q.Attributes())
				want = want && create
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			code := rig.Code(client.Call(ctx, request.method, request.path, nil, &struct{}{}))
			cancel()
			if got := code != http.StatusForbidden && code != http.StatusUnauthorized; got != want {
				t.Errorf("%s %s as %s in %v: %d, and the policy says allowed: %v", request.method, request.path, u.name,
					u.groups, code, want)
			}
			if want {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed < 20 || refused < 20 {
		t.Errorf("%d requests are allowed and %d refused: too few to show anything", allowed, refused)
	}
}

// readRules reads a policy as fusionctl does.
func readRules(t *testing.T, file string) *policy.Authorizer {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	rules, err := policy.Parse(file, f)
	must(t, err)
	return policy.NewAuthorizer(rules)
}

// Every release of the rig decides by a policy file as pkg/policy does. A right to all core resources is the right to
// act as anybody; a generated one is not.
func TestServersDecideAsThePolicySays(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		t.Run(release.Minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			sections, err := policy.Generate(policy.Intent{Grants: []policy.Grant{{
				Subjects: []policy.Subject{{Kind: policy.KindUser, Name: "heidi"}}, APIGroups: []string{""},
				Resources: []string{"*"}, Namespaces: []string{"*"},
			}}})
			must(t, err)
			file := filepath.Join(t.TempDir(), "policy.jsonl")
			must(t, os.WriteFile(file, append([]byte(policyLines), policy.Format(sections)...), 0o600))
			args := append(r.APIServerArgs(release.Minor, r.StartEtcd("core")), "--authorization-mode=ABAC",
				"--authorization-policy-file="+file)
			server := r.StartAPIServer("apiserver", release.Minor, args)
			server.WaitReady()
			// Since 1.35 a get of pods/exec needs create as well; ABAC is asked about that in a way that it takes for a
			// read again.
			askAll(t, server, readRules(t, file), false)

			if code := impersonate(t, server, "erin"); code != http.StatusOK {
				t.Errorf("erin, who may write every core resource, reads what no rule allows as system:masters: %d, "+
					"want 200", code)
			}
			if code := impersonate(t, server, "heidi"); code != http.StatusForbidden {
				t.Errorf("heidi, whose right to every core resource was generated, reads what no rule allows as "+
					"system:masters: %d, want 403", code)
			}
		})
	}
}

// impersonate reads what no rule of the test allows, as a member of system:masters.
func impersonate(t *testing.T, server *rig.APIServer, user string) int {
	t.Helper()
	config := server.RESTConfig(user)
	config.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	response, err := client.Get(server.URL + "/apis/rbac.authorization.k8s.io")
	must(t, err)
	defer response.Body.Close()
	return response.StatusCode
}

// Every release of the rig asks the webhook over TLS with a certificate, in every version of the review that it has,
// and follows the file when it changes.
func TestServersAskTheWebhook(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		versions := []string{""}
		if kubever.Flag(kubever.APIServer, "authorization-webhook-version").In(release.Minor) {
			versions = []string{"v1beta1", "v1"}
		}
		for _, version := range versions {
			t.Run(release.Minor.String()+version, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t)
				file := filepath.Join(t.TempDir(), "policy.jsonl")
				must(t, os.WriteFile(file, []byte(policyLines), 0o600))
				source, err := webhook.Open(file, true, webhook.NewMetrics(prometheus.NewRegistry()))
				must(t, err)
				config, err := r.PKI.Kubeconfig("webhook-client", serveWebhook(t, r, source)+"/authorize",
					"kube-apiserver")
				must(t, err)
				args := append(r.APIServerArgs(release.Minor, r.StartEtcd("core")), "--authorization-mode=Webhook",
					"--authorization-webhook-config-file="+config,
					"--authorization-webhook-cache-authorized-ttl=1ms",
					"--authorization-webhook-cache-unauthorized-ttl=1ms")
				if version != "" {
					args = append(args, "--authorization-webhook-version="+version)
				}
				server := r.StartAPIServer("apiserver", release.Minor, args)
				server.WaitReady()
				gate, _ := kubever.Gate("AuthorizePodWebsocketUpgradeCreatePermission").At(release.Minor)
				askAll(t, server, readRules(t, file), gate.Default)

				must(t, os.WriteFile(file,
					[]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"mallory","resource":"configmaps","namespace":"default"}}`), 0o600))
				for range 2 { // seen, and seen to stay
					_, err := source.Check()
					must(t, err)
				}
				for user, want := range map[string]int{"mallory": http.StatusOK, "alice": http.StatusForbidden} {
					code := rig.Code(server.Client(user).Call(t.Context(), http.MethodGet,
						"/api/v1/namespaces/default/configmaps", nil, nil))
					if code != want {
						t.Errorf("after the change %s is answered %d, want %d", user, code, want)
					}
				}
			})
		}
	}
}

// serveWebhook serves the policy to the clients of the rig's authority that are called kube-apiserver, and returns its
// URL.
func serveWebhook(t *testing.T, r *rig.Rig, source *webhook.Source) string {
	t.Helper()
	cert, key, err := r.PKI.Serving("webhook", "127.0.0.1")
	must(t, err)
	certificates := &webserver.Certificates{Cert: cert, Key: key, ClientCA: r.PKI.File("ca.crt"),
		ClientNames: []string{"kube-apiserver"}}
	config, err := certificates.Config()
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/authorize",
		&webhook.Handler{Policy: source.Current, Metrics: webhook.NewMetrics(prometheus.NewRegistry())})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- webserver.Serve(ctx, tls.NewListener(listener, config), mux, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(fmt.Errorf("the webhook: %w", err))
		}
	})
	return "https://" + listener.Addr().String()
}

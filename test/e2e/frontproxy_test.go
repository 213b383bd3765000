//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/test/adopted"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestFrontProxyNamesAreBothSides: a legacy API server takes front proxies of any name, and calls its extension API
// servers under one of its own. What both servers publish decides whether they believe it: with the plan's arguments
// they do, with one name on the modern side they do not.
func TestFrontProxyNamesAreBothSides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		names     string // of the modern API server; "" as in the plan
		published []string
	}{
		{"as planned", "", []string{}},
		{"a name too few", "front-proxy-client", []string{"front-proxy-client"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rig.New(t)
			made := adopted.Make(t, "templates-1.10", filepath.Join(r.Dir(), "adopted"), r.PKI.File("ca.crt"),
				r.PKI.File("ca.key"), false)
			a := &adoption{t: t, rig: r, cluster: made, stores: map[string]*rig.Etcd{}}
			made.Relocate(t, made.Plan.Hosts[0].Name)
			legacy := a.start(made.Plan.ComponentsOf(pair.Legacy, kubever.APIServer)[0])
			legacy.WaitReady()
			admin := legacy.Client("admin", "system:masters")
			if names := frontProxies(t, r, admin, []string{}); len(names) > 0 {
				t.Fatalf("the legacy side publishes %q, want every name", names)
			}
			proxy := filepath.Join(made.Root, made.Plan.Hosts[0].Name, "etc/kubernetes/certs/proxy.crt")
			if err := believes(t, proxy, made, nil); err != nil {
				t.Errorf("before: %v", err)
			}

			modern := made.Plan.ComponentsOf(pair.Modern, kubever.APIServer)[0]
			if c.names != "" {
				modern.Args = append(slices.Clone(modern.Args), plan.Arg{Name: "requestheader-allowed-names",
					Value: c.names})
			}
			server := a.start(modern)
			server.WaitReady()
			names := frontProxies(t, r, admin, c.published)
			err := believes(t, proxy, made, names)
			if refused := err != nil; refused != (c.names != "") {
				t.Errorf("published %q; an extension API server answers the legacy side: %v", names, err)
			}
			found := liveFrontProxies(t, r, made.Spec, legacy.URL, server.URL)
			// By its plan the modern side admits every name, too: it runs with another argument.
			reported := slices.ContainsFunc(found, func(f finding.Finding) bool {
				return f.Severity == finding.Error && strings.Contains(f.Message, "the legacy API server every name")
			})
			if reported != (c.names != "") || !reported && len(found) > 0 {
				t.Errorf("published %q; check --live reports %+v", names, found)
			}
		})
	}
}

// liveFrontProxies is what check --live reports about front proxies.
func liveFrontProxies(t *testing.T, r *rig.Rig, spec, legacy, modern string) []finding.Finding {
	t.Helper()
	args := []string{"check", spec, "--live", "--no-flags", "-o", "json"}
	for side, url := range map[pair.Side]string{pair.Legacy: legacy, pair.Modern: modern} {
		file, err := r.PKI.Kubeconfig("auditor-"+string(side), url, "auditor", "system:masters")
		must(t, err)
		args = append(args, "--"+string(side)+"-kubeconfig", file)
	}
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	var answer struct{ Findings []finding.Finding }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatalf("check --live exits %d: %v\n%s%s", code, err, &out, &errs)
	}
	return slices.DeleteFunc(answer.Findings, func(f finding.Finding) bool { return f.Rule != "FUS251" })
}

// frontProxies are the names that both API servers publish, once they are those that are wanted, and remain so.
func frontProxies(t *testing.T, r *rig.Rig, client *rig.Client, want []string) []string {
	t.Helper()
	names := []string{}
	read := func(ctx context.Context) error {
		var published struct{ Data map[string]string }
		const place = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
		if err := client.Call(ctx, http.MethodGet, place, nil, &published); err != nil {
			return err
		}
		text, ok := published.Data["requestheader-allowed-names"]
		if !ok {
			return fmt.Errorf("no names are published: %v", published.Data)
		}
		names = nil
		if err := json.Unmarshal([]byte(text), &names); err != nil {
			return err
		}
		if !slices.Equal(names, want) {
			return fmt.Errorf("published names %q, want %q", names, want)
		}
		return nil
	}
	r.Eventually("the names of front proxies", read)
	r.Throughout(5*time.Second, "the names of front proxies", read)
	return names
}

// believes asks Kubernetes' own authenticator of extension API servers whether it takes a user from the headers of a
// request with the certificate; nil when it does.
func believes(t *testing.T, certificate string, c *adopted.Cluster, names []string) error {
	t.Helper()
	parsed := func(file string) []*x509.Certificate {
		data, err := os.ReadFile(file)
		must(t, err)
		certificates, err := pki.ParseCertificates(data)
		must(t, err)
		return certificates
	}
	roots := x509.NewCertPool()
	for _, ca := range parsed(filepath.Join(c.Root, c.Plan.Hosts[0].Name, c.Plan.PKI.RequestHeaderCA)) {
		roots.AddCert(ca)
	}
	authenticator := headerrequest.NewDynamicVerifyOptionsSecure(
		x509request.StaticVerifierFn(x509.VerifyOptions{Roots: roots,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
		headerrequest.StaticStringSlice(names), headerrequest.StaticStringSlice{"X-Remote-User"},
		headerrequest.StaticStringSlice{}, headerrequest.StaticStringSlice{"X-Remote-Group"},
		headerrequest.StaticStringSlice{"X-Remote-Extra-"})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://extension.test/apis", http.NoBody)
	must(t, err)
	request.Header.Set("X-Remote-User", "alice")
	request.TLS = &tls.ConnectionState{PeerCertificates: parsed(certificate)}
	answer, ok, err := authenticator.AuthenticateRequest(request)
	switch {
	case err != nil:
		return err
	case !ok || answer.User.GetName() != "alice":
		return fmt.Errorf("the user is not taken from the header")
	}
	return nil
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubefusion/fusionctl/test/adopted"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestKubeletsLetTheModernServerIn: a kubelet with --authorization-mode=Webhook asks the legacy API server whether the
// holder of the kubelet client certificate that pki issued may reach it. It may when what render wrote is applied, and
// only then.
func TestKubeletsLetTheModernServerIn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker-units-1.10", "other-paths-1.15", "start-scripts-1.6"} {
		t.Run(name, func(t *testing.T) {
			r := rig.New(t)
			directory := filepath.Join(r.Dir(), "adopted")
			c := adopted.Make(t, name, directory, r.PKI.File("ca.crt"), r.PKI.File("ca.key"), false)
			if c.Plan.Kubelets == nil {
				t.Fatal("the plan has nothing for kubelets to allow, want a certificate that pki issues")
			}
			user, groups := kubeletClient(t, c)
			minor := c.Plan.Legacy.Version.Minor
			server := r.StartAPIServer("legacy", minor, append(r.APIServerArgs(minor, r.StartEtcd("core")),
				"--authorization-mode=RBAC"))
			server.WaitReady()
			admin := server.Client("admin", "system:masters")
			reaches := func(subresource string) (bool, error) {
				review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
					"spec": map[string]any{"user": user, "groups": groups, "resourceAttributes": map[string]any{
						"verb": "create", "resource": "nodes", "subresource": subresource, "name": "n1"}}}
				var answer struct{ Status struct{ Allowed bool } }
				err := admin.Call(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
					review, &answer)
				return answer.Status.Allowed, err
			}
			if allowed, err := reaches("proxy"); err != nil || allowed {
				t.Fatalf("before: %s of %q reaches kubelets: %v, %v; want that it does not", user, groups, allowed, err)
			}
			applyRoles(t, r, admin, filepath.Join(directory, "rendered", "legacy-access.yaml"))
			for _, subresource := range []string{"proxy", "stats", "log", "spec", "metrics"} {
				r.Eventually("nodes/"+subresource+" is allowed", func(context.Context) error {
					allowed, err := reaches(subresource)
					if err == nil && !allowed {
						err = errors.New("not allowed")
					}
					return err
				})
			}
		})
	}
}

// kubeletClient is the identity in the certificate that pki issued for the API server at kubelets.
func kubeletClient(t *testing.T, c *adopted.Cluster) (user string, groups []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Root, c.Plan.Hosts[0].Name, c.Plan.PKI.KubeletClientCert))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if user = certificate.Subject.CommonName; user != c.Plan.Kubelets.User {
		t.Errorf("the certificate is that of %q, and the plan speaks of %q", user, c.Plan.Kubelets.User)
	}
	return user, append(certificate.Subject.Organization, "system:authenticated")
}

// applyRoles creates the objects of a file of roles and bindings.
func applyRoles(t *testing.T, r *rig.Rig, admin *rig.Client, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var object map[string]any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		kind, metadata := fmt.Sprint(object["kind"]), object["metadata"].(map[string]any)
		path := fmt.Sprintf("/apis/%s/", object["apiVersion"])
		if namespace, ok := metadata["namespace"]; ok {
			path += fmt.Sprintf("namespaces/%s/", namespace)
		}
		path += strings.ToLower(kind) + "s"
		r.Eventually("creating "+path, func(ctx context.Context) error { // the roles of a new server come one by one
			err := admin.Call(ctx, http.MethodPost, path, object, nil)
			if rig.Code(err) == http.StatusConflict {
				return nil
			}
			return err
		})
	}
}

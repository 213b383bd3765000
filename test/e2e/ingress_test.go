//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestIngressesGoOver: real API servers have an Ingress each in a version that they serve, as the same object, while it
// is in both stores; what ingress controllers write of its status on either side, and what clients write on one, is no
// reason to stop. The way back is the same, and names what the legacy version would lose.
func TestIngressesGoOver(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: [networking.k8s.io], " +
		"resources: [\"*\"]}\n"
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: rights,
		NoControllers: true})
	legacy, modern := startBare(t, r, p)
	const older, newer = "/apis/extensions/v1beta1/namespaces/demo/ingresses",
		"/apis/networking.k8s.io/v1/namespaces/demo/ingresses"
	must(t, legacy.Call(t.Context(), http.MethodPost, older, object{"metadata": object{"name": "web",
		"annotations": object{"kubernetes.io/ingress.class": "nginx"}}, "spec": object{
		"tls": []object{{"hosts": []string{"web.test"}, "secretName": "web"}},
		"rules": []object{{"host": "web.test", "http": object{"paths": []object{{"path": "/a",
			"backend": object{"serviceName": "web", "servicePort": "http"}}}}}}}}, nil))

	steps := ingressSteps(t, p)
	host := &local.Host{Snapshots: t.TempDir() + "/records", Wait: time.Minute}
	do := func(a *transition.Action) error {
		var problems []error
		for i := range a.Before {
			problems = append(problems, host.Check(t.Context(), "cp-1", &a.Before[i]))
		}
		if a.Kind != transition.RunChecks {
			problems = append(problems, host.Do(t.Context(), "cp-1", a))
		}
		return errors.Join(problems...)
	}
	type ingress struct {
		Metadata struct {
			UID         string
			Annotations map[string]string
		}
		Spec struct {
			Rules []struct {
				HTTP struct {
					Paths []struct {
						PathType string
						Backend  struct {
							ServiceName string
							Service     struct {
								Name string
								Port struct{ Name string }
							}
						}
					}
				}
			}
		}
		Status struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
		}
	}
	get := func(c *rig.Client, path string) (i ingress, code int) {
		err := c.Call(t.Context(), http.MethodGet, path+"/web", nil, &i)
		return i, rig.Code(err)
	}
	address := func(c *rig.Client, path, ip string) {
		must(t, c.Call(t.Context(), http.MethodPatch, path+"/web/status", object{"status": object{
			"loadBalancer": object{"ingress": []object{{"ip": ip}}}}}, nil))
	}
	address(legacy, older, "10.0.0.1")
	first, _ := get(legacy, older)

	must(t, do(steps.forth[0]))
	if n, code := get(modern, newer); code != http.StatusOK || n.Metadata.UID != first.Metadata.UID ||
		n.Spec.Rules[0].HTTP.Paths[0].PathType != "ImplementationSpecific" ||
		n.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name != "http" ||
		n.Metadata.Annotations["kubernetes.io/ingress.class"] != "nginx" {
		t.Fatalf("copied, the modern API server has %+v, %d", n, code)
	}
	address(modern, newer, "10.0.0.2")
	address(legacy, older, "10.0.0.9")
	must(t, modern.Call(t.Context(), http.MethodPatch, newer+"/web", object{"metadata": object{
		"labels": object{"by": "a-modern-client"}}}, nil))
	for _, a := range steps.forth[1:] {
		must(t, do(a))
	}
	if _, code := get(legacy, older); code != http.StatusNotFound {
		t.Errorf("handed over, the legacy API server answers %d", code)
	}
	if n, code := get(modern, newer); code != http.StatusOK || n.Metadata.UID != first.Metadata.UID ||
		n.Status.LoadBalancer.Ingress[0].IP != "10.0.0.2" {
		t.Errorf("handed over, the modern API server has %+v, %d", n, code)
	}

	matches := func(pathType string) {
		must(t, modern.Call(t.Context(), http.MethodPatch, newer+"/web", object{"spec": object{"rules": []object{{
			"host": "web.test", "http": object{"paths": []object{{"path": "/a", "pathType": pathType, "backend": object{
				"service": object{"name": "web", "port": object{"name": "http"}}}}}}}}}}, nil))
	}
	matches("Exact")
	if err := do(steps.back[0]); err == nil || !strings.Contains(err.Error(), "pathType") {
		t.Errorf("with a path type that 1.15 does not have: %v", err)
	}
	matches("ImplementationSpecific")
	for _, a := range steps.back {
		must(t, do(a))
	}
	if n, code := get(legacy, older); code != http.StatusOK || n.Metadata.UID != first.Metadata.UID ||
		n.Spec.Rules[0].HTTP.Paths[0].Backend.ServiceName != "web" {
		t.Errorf("handed back, the legacy API server has %+v, %d", n, code)
	}
	if _, code := get(modern, newer); code != http.StatusNotFound {
		t.Errorf("handed back, the modern API server answers %d", code)
	}
}

// wayOfIngresses are the actions about objects, in both directions.
type wayOfIngresses struct{ forth, back []*transition.Action }

func ingressSteps(t *testing.T, p *rig.Pair) (way wayOfIngresses) {
	t.Helper()
	tr := handingOver(t, p, "ingresses.networking.k8s.io")
	about := func(a *transition.Action) bool {
		return a != nil && (a.Objects != nil || len(a.Before) > 0 && a.Before[0].Objects != nil)
	}
	for _, s := range tr.Steps {
		if about(s.Do) {
			way.forth = append(way.forth, s.Do)
		}
		if about(s.Undo) {
			way.back = append([]*transition.Action{s.Undo}, way.back...)
		}
	}
	if len(way.forth) != 4 || len(way.back) != 4 {
		t.Fatalf("%d and %d steps are about objects, want 4", len(way.forth), len(way.back))
	}
	way.forth = way.forth[1:] // it may be copied; what follows is that it was
	return way
}

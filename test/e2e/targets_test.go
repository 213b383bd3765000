//go:build e2e && linux

package e2e

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestTransitionChangesTargetAndCertificates: what runs the modern side of a real host as units of systemd becomes
// static pods, and units again; its certificates are replaced by new ones, and by those of before again. apply and undo
// are killed meanwhile, and go on. The pods of both sides keep their containers.
func TestTransitionChangesTargetAndCertificates(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyUnits(t, 15, 1)
		n := f.nodes[0]
		for _, image := range f.PlanImages(f.Plan) {
			n.Import(image)
		}
		legacy := filepath.Join(f.Dir(), "legacy", n.Name)
		f.issueCertificates(legacy)
		f.installPrograms()
		f.install(f.SpecFile, "/root/fused.yaml", "0600")
		const fused = "/root/fused.yaml"

		install := f.planSteps("install", "none", fused, "--to-target", "systemd")
		f.editManager("-garbagecollector")
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f",
			filepath.Join(f.runbook(render.Systemd), "legacy-access.yaml"))
		install.run("apply", "permissions on the legacy side")
		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		before, units := f.started(), f.run("sh", "-c", unitSums)

		pods := f.planSteps("pods", fused, fused, "--from-target", "systemd", "--to-target", "static-pod")
		const put = "put /etc/kubernetes/manifests/"
		pods.killed("apply", put+"etcd-modern.yaml")
		pods.killed("apply", put+"kube-apiserver-modern.yaml")
		pods.run("undo") // it turns round in the middle
		f.runsAs(render.Systemd)
		pods.killed("apply", put+"fusionctl-controllers.yaml")
		pods.run("apply")
		f.runsAs(render.StaticPod)
		f.same(before, "as static pods")
		f.rolls(pair.Modern, "deployments", "modern", 2)
		before = f.started()
		pods.killed("undo", put+"kube-apiserver-modern.yaml")
		pods.run("undo")
		f.runsAs(render.Systemd)
		f.same(before, "as units again")
		if after := f.run("sh", "-c", unitSums); after != units {
			t.Errorf("the files are\n%s\nwant as before\n%s", after, units)
		}

		renewed := filepath.Join(f.Dir(), "renewed")
		f.issue(filepath.Join(legacy, "etc/kubernetes/pki"), renewed)
		old := f.serial()
		renew := f.planSteps("renew", fused, fused, "--from-target", "systemd", "--to-target", "systemd",
			"--from-pki", filepath.Join(f.Dir(), "certificates"), "--to-pki", renewed, "--read-stores")
		renew.killed("apply", renew.at(1, 3))
		renew.killed("apply", renew.at(2, 3))
		renew.run("apply")
		if serial := f.serial(); serial == old {
			t.Errorf("the modern API server serves certificate %s, as before", serial)
		}
		f.deploy(pair.Modern, "renewed", 1, serves())
		f.awaitReady("renewed", 1)
		f.same(before, "with new certificates")
		renew.killed("undo", renew.at(1, 2))
		renew.run("undo")
		if serial := f.serial(); serial != old {
			t.Errorf("the modern API server serves certificate %s, want %s as before", serial, old)
		}
		f.same(before, "with the certificates of before")
		if after := f.run("sh", "-c", unitSums); after != units {
			t.Errorf("the files are\n%s\nwant as before\n%s", after, units)
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"on a real host the modern side's units of systemd become static pods and units again, and its "+
				"certificates are replaced and put back, by fusionctl transition, killed meanwhile: the pods of both "+
				"sides keep their containers")
	}, fusionctlEnv)
}

// runsAs: every component of the modern side runs as the target says, and as nothing else.
func (f *nodesPair) runsAs(target render.Target) {
	t := f.t
	t.Helper()
	for i := range f.Plan.Components {
		c := &f.Plan.Components[i]
		if c.Side == pair.Legacy {
			continue // it runs from units of its own
		}
		state, _ := f.nodes[0].Run(t.Context(), "systemctl", "is-active", c.Name) // it fails when it does not run
		_, err := f.nodes[0].Run(t.Context(), "test", "-e", "/etc/kubernetes/manifests/"+c.Name+".yaml")
		if unit := strings.TrimSpace(state) == "active"; unit != (target == render.Systemd) || (err == nil) == unit {
			t.Errorf("%s: its unit is %s, and its manifest there: %t; want it as %s", c.Name, strings.TrimSpace(state),
				err == nil, target)
		}
	}
	for _, side := range pair.Sides() {
		must(t, f.client(side).Call(t.Context(), http.MethodGet, f.path(side, "deployments"), nil, nil))
	}
}

// serial is the number of the certificate with which the modern API server serves.
func (f *nodesPair) serial() string {
	t := f.t
	t.Helper()
	address := net.JoinHostPort(machine, strconv.Itoa(f.Plan.Modern.Port))
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at
	must(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// at is the title of the step which is that part of the way.
func (s *stepsOnHost) at(part, parts int) string {
	titles := slices.SortedFunc(maps.Keys(s.ids), func(a, b string) int { return strings.Compare(s.ids[a], s.ids[b]) })
	return titles[len(titles)*part/parts]
}

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestPreflightBesideRunningServers runs preflight on the machine of a pair: silent where the modern side may start,
// and where it runs; it names a port that another process has, and a store that does not answer.
func TestPreflightBesideRunningServers(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: "split", Legacy: "1.15.12", Modern: "1.36.3", NoControllers: true,
		More: access})
	p.StartLegacy()
	preflight := func(when string, want ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), []string{"preflight", p.SpecFile, "--staged", filepath.Dir(p.SpecFile), "--skip",
			"images,kubelet", "-o", "json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		var answer struct {
			Complete   bool
			Incomplete []string
			Findings   []finding.Finding
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("%s: preflight exits %d: %v\n%s%s", when, code, err, &out, &errs)
		}
		var found []string
		for _, f := range answer.Findings {
			// The paths of managers are those of the test's folder, and not the plan's: they are others.
			if f.Severity == finding.Error && !strings.HasSuffix(f.Key, kubever.ControllerManager) &&
				!strings.HasSuffix(f.Key, kubever.ControllerManager+"-modern") {
				found = append(found, f.Rule)
			}
		}
		slices.Sort(found)
		found = slices.Compact(found)
		if !answer.Complete || !slices.Equal(found, want) {
			t.Errorf("%s: exit %d, findings %q, want %q; incomplete %q\n%s", when, code, found, want, answer.Incomplete,
				&out)
		}
	}
	preflight("before the modern side starts")

	server := p.Plan.ComponentsOf(pair.Modern, kubever.APIServer)[0]
	port, _ := server.Arg("secure-port")
	address, _ := server.Arg("bind-address")
	listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
	must(t, err)
	preflight("while this test has the port of the modern API server", "FUS268")
	must(t, listener.Close())

	p.StartModern()
	preflight("while the modern side runs")

	p.Stores["modern"].Stop()
	preflight("while a store does not answer", "FUS269")
	p.Stores["modern"].Start()
}

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/test/rig"
)

// Two API servers that each believe to be the only one write the endpoints of the kubernetes service by turns, every
// ten seconds. etcd watch tells that as a fight.
func TestWatchTellsAFight(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.15.12", Modern: "1.36.3", NoModernManager: true,
		More:             access,
		ModernServerArgs: []string{"endpoint-reconciler-type=master-count", "advertise-address=192.0.2.2"}})
	p.StartLegacy()
	p.StartModern()
	c := newCommand(t.Context(), "etcd", "watch", p.SpecFile)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var event struct {
			Event   string
			Finding finding.Finding
		}
		must(t, json.Unmarshal(lines.Bytes(), &event))
		if event.Event != "fight" {
			continue
		}
		if event.Finding.Rule != "FUS040" || event.Finding.Subject != "core:services/endpoints/default/kubernetes" {
			t.Errorf("a fight of rule %s about %s, want FUS040 about the endpoints of kubernetes", event.Finding.Rule,
				event.Finding.Subject)
		}
		seenDamage(t, spec.LayoutShared, "1.15.12", "1.36.3", "a modern server that counts masters and a legacy one "+
			"that keeps leases write the endpoints of kubernetes alternately")
		return
	}
	t.Fatalf("watch ended without a fight: %v\n%s", lines.Err(), c.err.String())
}

// The addresses of the two sides in the endpoints of the kubernetes service, for the tests below.
const legacyAddress, modernAddress = "192.0.2.1", "192.0.2.2"

// endpointsWritten follows what is written about the endpoints of the kubernetes service, from now on. What it returns
// waits for one with exactly these addresses, and returns its ports.
func endpointsWritten(t *testing.T, r *rig.Rig, p *rig.Pair) (await func(what string, addresses ...string) []string) {
	events := p.Stores["core"].Client().Watch(t.Context(), "/registry/services/endpoints/default/kubernetes",
		clientv3.WithCreatedNotify())
	if created, ok := <-events; !ok || !created.Created {
		t.Fatalf("watching the endpoints of kubernetes: %v", created.Err())
	}
	var written []*clientv3.Event
	return func(what string, addresses ...string) (ports []string) {
		t.Helper()
		r.Eventually(what, func(context.Context) error {
			select {
			case response := <-events:
				must(t, response.Err())
				written = append(written, response.Events...)
			default:
			}
			for len(written) > 0 {
				var found []string
				found, ports = addressesAndPorts(t, written[0].Kv.Value)
				written = written[1:]
				if slices.Equal(found, addresses) {
					return nil
				}
			}
			return fmt.Errorf("no endpoints with the addresses %q were written", addresses)
		})
		return ports
	}
}

func addressesAndPorts(t *testing.T, stored []byte) (addresses, ports []string) {
	t.Helper()
	if len(stored) == 0 { // deleted
		return nil, nil
	}
	object, err := objects.Decode(stored)
	must(t, err)
	data, err := json.Marshal(object)
	must(t, err)
	var endpoints struct {
		Subsets []struct {
			Addresses []struct{ IP string }
			Ports     []struct{ Port int }
		}
	}
	must(t, json.Unmarshal(data, &endpoints))
	for _, subset := range endpoints.Subsets {
		for _, a := range subset.Addresses {
			addresses = append(addresses, a.IP)
		}
		for _, port := range subset.Ports {
			ports = append(ports, strconv.Itoa(port.Port))
		}
	}
	slices.Sort(addresses)
	return addresses, ports
}

// Leases in two stores: each side finds its own alone, and takes the other's address away.
func TestLeasesInTwoStores(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		ModernServerArgs: []string{"endpoint-reconciler-type=lease", "advertise-address=" + modernAddress}})
	await := endpointsWritten(t, r, p)
	p.StartLegacy()
	p.StartModern()
	await("the modern side writes its address alone", modernAddress)
	await("the legacy side writes its address alone", legacyAddress)
	await("the modern side writes its address alone again", modernAddress)
	seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3", "lease reconcilers with leases in two stores remove each "+
		"other's address from the endpoints of kubernetes")
}

// One advertised address: the modern side takes it away when it starts.
func TestRestartTakesTheCommonAddress(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		ModernServerArgs: []string{"endpoint-reconciler-type=lease"}})
	p.StartLegacy()
	p.StartModern()
	await := endpointsWritten(t, r, p)
	p.RestartServer(pair.Modern)
	await("the endpoints of kubernetes are without an address while the legacy side serves")
	seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3", "the restart of a modern server that advertises the legacy "+
		"one's address leaves the endpoints of kubernetes without any")
}

// One list of ports: an address of each side, and the port of one.
func TestAddressesShareOnePort(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.15.12", Modern: "1.36.3", More: sharedAccess,
		NoModernManager:  true,
		ModernServerArgs: []string{"endpoint-reconciler-type=lease", "advertise-address=" + modernAddress}})
	await := endpointsWritten(t, r, p)
	p.StartLegacy()
	p.StartModern()
	ports := await("an address of each side", legacyAddress, modernAddress)
	if len(ports) != 1 {
		t.Errorf("the endpoints of kubernetes have the ports %q, want one for both addresses", ports)
	}
	if strings.HasSuffix(p.Legacy.URL, ":"+ports[0]) == strings.HasSuffix(p.Modern.URL, ":"+ports[0]) {
		t.Errorf("port %s is that of one of %s and %s, want of exactly one", ports[0], p.Legacy.URL, p.Modern.URL)
	}
	seenDamage(t, spec.LayoutShared, "1.15.12", "1.36.3", "in the endpoints of kubernetes the addresses of both sides "+
		"have the port of one alone")
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/test/adopted"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestAnAdoptedControlPlaneStarts starts the modern API server and controller manager that fusionctl made for each
// control plane as people set them up: with the arguments of the plan, and only the files that the host has, that pki
// issued and that render wrote. A modern side has no scheduler: the legacy side's binds the pods of both. Those whose
// modern side has nothing that was not started before are made and parsed alone; FUSIONCTL_E2E_ADOPTED=all starts them,
// too.
func TestAnAdoptedControlPlaneStarts(t *testing.T) {
	t.Parallel()
	started, parsed, begun, names, seen := map[string]bool{}, map[string]bool{}, 0, adopted.Names(t), 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r := rig.New(t)
			seen++
			c := adopted.Make(t, name, filepath.Join(r.Dir(), "adopted"), r.PKI.File("ca.crt"), r.PKI.File("ca.key"),
				false)
			a := &adoption{t: t, rig: r, cluster: c, stores: map[string]*rig.Etcd{}}
			parse(t, c, parsed)
			var differ []string
			for _, component := range c.Plan.Components {
				if component.Side == pair.Modern {
					differ = append(differ, differences(component.Kind, component.Args, wordOf, started)...)
				}
			}
			if len(differ) == 0 && os.Getenv("FUSIONCTL_E2E_ADOPTED") != "all" {
				t.Log("others have started with every argument that the modern side has here")
				return
			}
			t.Logf("it starts with %q", differ)
			begun++
			c.Relocate(t, c.Plan.Hosts[0].Name)
			server := a.start(c.Plan.ComponentsOf(pair.Modern, kubever.APIServer)[0])
			server.WaitReady()
			// The policy holds: strangers are refused, discovery is answered.
			stranger := server.Client("mallory", "strangers")
			if err := stranger.Call(t.Context(), http.MethodGet, "/api/v1/secrets", nil, nil); rig.Code(
				err) != http.StatusForbidden {
				t.Errorf("a stranger reads secrets: %v, want 403", err)
			}
			must(t, stranger.Call(t.Context(), http.MethodGet, "/apis", nil, nil))
			a.lead(server)
		})
	}
	if begun < 10 && seen == len(names) && !t.Failed() { // some may be left out
		t.Errorf("%d of them started, want ten or more", begun)
	}
}

// differences are the arguments, each part of a list by itself, of which no one was seen that has the shape.
func differences(program string, args []plan.Arg, shape func(string) string, seen map[string]bool) (differ []string) {
	for _, arg := range args {
		for part := range strings.SplitSeq(arg.Value, ",") {
			if what := program + " --" + arg.Name + "=" + shape(part); !seen[what] {
				seen[what] = true
				differ = append(differ, what)
			}
		}
	}
	return differ
}

var (
	plainWord = regexp.MustCompile(`^[*+-]?[A-Za-z]+(=(true|false))?$`)
	numbers   = regexp.MustCompile(`[0-9]+`)
)

// wordOf leaves true, RBAC and Feature=false, and no files, addresses and numbers.
func wordOf(value string) string {
	if plainWord.MatchString(value) {
		return value
	}
	return ""
}

func withoutNumbers(value string) string { return numbers.ReplaceAllString(value, "0") }

// lead starts the controller manager of the modern side, and waits until it leads: its kubeconfig is the one that
// render wrote, its certificate the one that pki issued, and the policy lets it have its lock.
func (a *adoption) lead(server *rig.APIServer) {
	a.t.Helper()
	p := a.cluster.Plan
	managers := p.ComponentsOf(pair.Modern, kubever.ControllerManager)
	locks := slices.DeleteFunc(slices.Clone(p.Modern.Locks), func(l pair.Lock) bool {
		return l.Component != kubever.ControllerManager
	})
	if len(managers) == 0 || len(locks) != 1 {
		a.t.Fatalf("the plan has %d modern controller managers and the locks %v, want one each", len(managers), locks)
	}
	args := a.args(managers[0])
	for _, arg := range args {
		if name, file, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); strings.HasSuffix(name, "kubeconfig") {
			text, err := os.ReadFile(file)
			must(a.t, err)
			must(a.t, os.WriteFile(file, clusterServer.ReplaceAll(text, []byte("${1}"+server.URL)), 0o600))
		}
	}
	manager := a.rig.StartControllerManager(managers[0].Name, p.Modern.Version.Minor, args)
	manager.WaitReady()
	admin := server.Client("admin", "system:masters")
	manager.Wait("lead", func(ctx context.Context) error {
		var lease struct {
			Spec struct{ HolderIdentity string }
		}
		err := admin.Call(ctx, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/"+locks[0].Namespace+"/leases/"+
			locks[0].Name, nil, &lease)
		if err == nil && lease.Spec.HolderIdentity == "" {
			err = errors.New("nobody holds the lock")
		}
		return err
	})
	if refused := forbidden.FindString(manager.Log()); refused != "" {
		a.t.Errorf("the policy refuses the controller manager: %s", refused)
	}
}

var (
	clusterServer = regexp.MustCompile(`(?m)^(\s*(?:- )?server: ).*$`)
	forbidden     = regexp.MustCompile(`(?m)^.*is forbidden.*$`)
)

// parse gives the arguments of every component to the program of its release, as far as the rig has it: those of the
// modern side, and those that the legacy side is to have. Arguments that differ in numbers alone are parsed once.
func parse(t *testing.T, c *adopted.Cluster, parsed map[string]bool) {
	t.Helper()
	for _, component := range c.Plan.Components {
		if component.Side == "" {
			continue
		}
		program, err := rig.Binary(component.Kind, c.Plan.Side(component.Side).Version.Minor)
		if err != nil {
			continue // the rig has four releases
		}
		if len(differences(program, component.Args, withoutNumbers, parsed)) == 0 {
			continue
		}
		var args []string
		for _, arg := range component.Args {
			args = append(args, "--"+arg.Name+"="+ofThePod.ReplaceAllString(arg.Value, "127.0.0.1"))
		}
		// All arguments are parsed before help is printed, and nothing is started.
		// Old programs exit with an error after it.
		out, _ := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput()
		if !bytes.Contains(out, []byte("--")) {
			t.Fatalf("%s prints no help: %s", filepath.Base(program), out)
		}
		if refused := refusedFlag.Find(out); refused != nil {
			t.Errorf("%s on %s: %s does not take the arguments of the plan: %s", component.Name, component.Host,
				filepath.Base(program), refused)
		}
	}
}

// ofThePod is an address that a kubelet fills in, such as $(POD_IP).
var ofThePod = regexp.MustCompile(`\$\([A-Z_]+\)`)

// refusedFlag is how pflag refuses an argument.
var refusedFlag = regexp.MustCompile(
	`(?m)(unknown (shorthand )?flag|invalid argument|flag needs an argument|bad flag syntax).*$`)

// adoption runs components of a plan that was made for other machines.
type adoption struct {
	t       *testing.T
	rig     *rig.Rig
	cluster *adopted.Cluster
	stores  map[string]*rig.Etcd
}

// etcd is the one in the place of a store.
func (a *adoption) etcd(store string) *rig.Etcd {
	switch s := a.cluster.Plan.Store(store); {
	case a.stores[store] != nil:
	case s.TLS != nil && !s.TLS.Identifies():
		a.stores[store] = a.rig.StartAnonymousEtcd(store)
	default:
		a.stores[store] = a.rig.StartEtcd(store)
	}
	return a.stores[store]
}

// start starts an API server with the plan's arguments.
func (a *adoption) start(c plan.Component) *rig.APIServer {
	a.t.Helper()
	args := a.args(c)
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--etcd-cafile=") }) {
		flags := a.etcd("core").Flags() // the etcd of a rig wants TLS
		args = append(args, slices.DeleteFunc(flags, func(f string) bool {
			return strings.HasPrefix(f, "--etcd-servers")
		})...)
	}
	return a.rig.StartAPIServer(c.Name, a.cluster.Plan.Side(c.Side).Version.Minor, args)
}

// args are the plan's, with other addresses, ports and etcd members, below the root of the host.
func (a *adoption) args(c plan.Component) []string {
	a.t.Helper()
	root := filepath.Join(a.cluster.Root, c.Host)
	stores, _ := c.Arg("etcd-cafile")
	ownStores := stores != "" && !sameFile(root+stores, a.rig.PKI.File("ca.crt"))
	var args []string
	for _, arg := range c.Args {
		value := arg.Value
		switch name := kubever.FlagName(arg.Name); {
		case name == "etcd-servers" || name == "etcd-servers-overrides":
			value = a.members(value)
		case strings.HasPrefix(name, "etcd-") && strings.HasSuffix(name, "file") && ownStores:
			continue // the members of the rig are not of the cluster's own CA of stores
		case name == "etcd-cafile":
			value = root + value
		case name == "secure-port":
			value = fmt.Sprint(a.rig.Port())
		case name == "bind-address" || name == "insecure-bind-address" || name == "address":
			value = "127.0.0.1"
		case name == "advertise-address":
			value = "192.0.2.1"
		case plan.ReadsFile(name) || name == "audit-log-path" || name == "cert-dir":
			if strings.HasPrefix(value, "/") {
				value = root + value
			}
		}
		args = append(args, "--"+arg.Name+"="+value)
	}
	return args
}

// sameFile reports whether two files have the same in them.
func sameFile(a, b string) bool {
	first, errFirst := os.ReadFile(a)
	second, errSecond := os.ReadFile(b)
	return errFirst == nil && errSecond == nil && bytes.Equal(first, second)
}

// members exchanges the URLs of stores.
func (a *adoption) members(value string) string {
	for _, s := range a.cluster.Plan.Stores {
		for _, endpoint := range s.Endpoints {
			if strings.Contains(value, endpoint) {
				value = strings.ReplaceAll(value, endpoint, a.etcd(s.Name).URL)
			}
		}
	}
	return value
}

// TestLoggedFlagsAreThoseThatWereGiven reads what the programs of releases log at their start: of some 150 flags those
// are left that they were given.
func TestLoggedFlagsAreThoseThatWereGiven(t *testing.T) {
	t.Parallel()
	client := []string{"--kubeconfig=/no/such.conf", "--v=2"} // they end where they look for it
	for component, given := range map[string][]string{
		kubever.APIServer: {"--authorization-mode=Node,RBAC", "--etcd-servers=http://127.0.0.1:1,http://127.0.0.1:2",
			"--secure-port=0", // it ends where it looks at that
			"--service-account-key-file=/etc/a.pub", "--service-account-key-file=/etc/b.pub",
			"--service-cluster-ip-range=10.3.0.0/16", "--tls-sni-cert-key=/etc/x.crt,/etc/x.key", "--v=2"},
		kubever.ControllerManager: append([]string{"--cluster-cidr=10.244.0.0/16", "--controllers=*,-nodelifecycle"},
			client...),
		kubever.Scheduler: client,
	} {
		for _, minor := range []kubever.Minor{15, 36} {
			program, err := rig.Binary(component, minor)
			must(t, err)
			log, err := exec.CommandContext(t.Context(), program, given...).CombinedOutput()
			if err == nil {
				t.Fatalf("%s %s ends well, want an error: %s", component, minor, log)
			}
			running, err := adopt.ReadAll(fstest.MapFS{"journal.log": {Data: log}}, nil)
			must(t, err)
			p := running.Process(component)
			if p == nil {
				t.Errorf("%s %s is not found in its log: %s", component, minor, log)
				continue
			}
			var got []string
			args, _ := p.Args(minor)
			for _, a := range args {
				got = append(got, "--"+a.Name+"="+a.Value)
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(given))
			if !slices.Equal(got, want) {
				t.Errorf("%s %s: read %q, want %q", component, minor, got, want)
			}
		}
	}
}

package rig

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Pair is a plan that runs: the two sides of one fused control plane as real processes over real stores. Their
// arguments are the plan's, their policy, kubeconfigs and certificates are those that render and pki give to a user;
// the spec is written for this machine.
type Pair struct {
	Plan     *plan.Plan
	SpecFile string // the spec of the plan
	Stores   map[string]*Etcd
	Legacy   *APIServer
	Modern   *APIServer
	// Managers of the two sides; nil where the plan has none.
	LegacyManager *ControllerManager
	ModernManager *ControllerManager

	rig    *Rig
	naive  bool
	access []byte // what render says that the legacy side has to allow to the controllers that see both
	paths  *strings.Replacer
}

// PairSpec is what a test says of a pair. The rest of the spec is this machine's.
type PairSpec struct {
	Layout         spec.Layout
	Legacy, Modern string // versions
	// LegacyManagerArgs and ModernManagerArgs are further arguments of the controller managers, "name=value"; with them
	// a test makes a configuration that the plan would not.
	LegacyManagerArgs, ModernManagerArgs []string
	LegacyServerArgs, ModernServerArgs   []string
	NoControllers                        bool     // of the plan: nothing sees both sides
	ControllersArgs                      []string // of the controllers that see both sides
	NoModernManager                      bool
	LegacyScheduler                      bool
	// Members is how many members each store has; more than one are processes of their own, each at an address of its
	// own on the sandbox's bridge.
	Members int
	// StartStore starts a store; default: one of Members, of the release that the rig runs everywhere.
	StartStore func(name string) *Etcd
	// Host is the address of the pair's host, at which its API servers serve. Default: that of the sandbox's bridge;
	// outside of a sandbox they serve on loopback, and advertise an address that no component connects to.
	Host    string
	Network string // of spec; default: one range, or two where the pair needs them
	More    string // YAML of further fields of spec, two spaces deep: owners, access
}

// pairTemplate is the spec of a pair on loopback. API servers advertise an address without clients: they refuse to
// advertise loopback.
var pairTemplate = template.Must(template.New("spec").Parse(`apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pair}
spec:
  layout: {{.Layout}}
  hosts: [{name: cp-1, address: {{.Host}}}]
  network: {{.Network}}
  pki:
    directory: {{.Dir}}
    ca: {{.PKI.File "ca.crt"}}
    caKey: {{.PKI.File "ca.key"}}
    serviceAccountKey: {{.PKI.File "sa.key"}}
    serviceAccountPublicKeys: [{{.PKI.File "sa.pub"}}]
  stores:
{{- range .Stores}}
  - {name: {{.Name}}, endpoints: [{{range .URLs}}"{{.}}", {{end}}], tls: {ca: {{$.PKI.File "ca.crt"}}, cert: {{$.StoreCert}}, key: {{$.StoreKey}}}}
{{- end}}
  legacy:
    version: {{.Legacy}}
    apiServer: {port: {{.LegacyPort}}, bindAddress: {{.Bind}}, extraArgs: [{{range .LegacyServerArgs}}{{.}}, {{end}}]}
    controllerManager: {extraArgs: [{{range .LegacyManagerArgs}}{{.}}, {{end}}]}
{{- if .LegacyScheduler}}
    scheduler: {extraArgs: [{{range .LegacySchedulerArgs}}{{.}}, {{end}}]}
{{- end}}
  modern:
    version: {{.Modern}}
    apiServer: {port: {{.ModernPort}}, bindAddress: {{.Bind}}, extraArgs: [{{range .ModernServerArgs}}{{.}}, {{end}}]}
{{- if not .NoModernManager}}
    controllerManager: {extraArgs: [{{range .ModernManagerArgs}}{{.}}, {{end}}]}
{{- end}}
  controllers: {disabled: {{.NoControllers}}, port: {{.ControllersPort}}, extraArgs: [{{range .ControllersArgs}}{{.}}, {{end}}]}
{{.More}}
`))

// StartPair plans the pair and starts it: stores, the legacy side, the modern side, each waited for.
func (r *Rig) StartPair(s PairSpec) *Pair {
	r.t.Helper()
	p := r.NewPair(s)
	p.StartLegacy()
	p.StartModern()
	return p
}

// NewPair plans the pair, starts its stores and writes the files that its components read. No component runs yet.
func (r *Rig) NewPair(s PairSpec) *Pair {
	r.t.Helper()
	start := r.StartEtcd
	if s.Members > 1 {
		start = func(name string) *Etcd { return r.StartEtcdMembers(name, s.Members, false) }
	}
	if s.StartStore != nil {
		start = s.StartStore
	}
	p := &Pair{rig: r, Stores: map[string]*Etcd{"core": start("core")}}
	if s.Layout == spec.LayoutSplit {
		p.Stores["modern"] = start("modern")
	}
	text := []byte(p.specText(s))
	p.SpecFile = filepath.Join(r.dir, "pair.yaml")
	if err := os.WriteFile(p.SpecFile, text, 0o644); err != nil {
		r.t.Fatal(err)
	}
	f, err := spec.Load(p.SpecFile, text)
	if err != nil {
		r.t.Fatalf("the spec of the pair: %v", err)
	}
	if p.Plan, err = plan.New(f, plan.OnHosts); err != nil {
		r.t.Fatalf("planning the pair: %v", err)
	}
	// The spec puts every path into the test's folder but those that the plan chooses.
	p.paths = strings.NewReplacer("/etc/kubernetes/", r.dir+"/etc/kubernetes/", "/var/lib/", r.dir+"/var/lib/")
	if err := p.writeFiles(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// specText writes the spec for this machine.
func (p *Pair) specText(s PairSpec) string {
	r := p.rig
	legacy, err := kubever.Parse(s.Legacy)
	if err != nil {
		r.t.Fatal(err)
	}
	modern, err := kubever.Parse(s.Modern)
	if err != nil {
		r.t.Fatal(err)
	}
	core := p.Stores["core"]
	stores := []*Etcd{core}
	if modern := p.Stores["modern"]; modern != nil {
		stores = append(stores, modern)
	}
	network := s.Network
	if network == "" {
		network = "{serviceCIDRs: [10.96.0.0/24]}"
		if spec.NeedsOwnRange(legacy.Minor, modern.Minor) {
			network = "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}"
		}
	}
	if kubever.Behaves(kubever.BehaviourInsecurePort, legacy.Minor) {
		s.LegacyServerArgs = append([]string{"insecure-port=0"}, s.LegacyServerArgs...)
	}
	host, bind := r.advertised(), r.host
	if s.Host != "" {
		host, bind = s.Host, s.Host
	}
	var b strings.Builder
	err = pairTemplate.Execute(&b, map[string]any{
		"Host": host, "Bind": bind, "LegacyScheduler": s.LegacyScheduler,
		"LegacySchedulerArgs": yamlArgs(slices.Concat(r.portOf(kubever.Scheduler, legacy.Minor), patience)),
		"Layout":              s.Layout, "Network": network, "Dir": filepath.Join(r.dir, "pki-of-plan"), "PKI": r.PKI,
		"Stores":    stores,
		"StoreCert": core.clientCrt, "StoreKey": core.clientKey, "Legacy": s.Legacy, "Modern": s.Modern,
		"ControllersPort": r.Port(), "ControllersArgs": yamlArgs(s.ControllersArgs), "LegacyPort": r.Port(),
		"ModernPort": r.Port(), "NoModernManager": s.NoModernManager, "NoControllers": s.NoControllers, "More": s.More,
		"LegacyServerArgs": yamlArgs(s.LegacyServerArgs), "ModernServerArgs": yamlArgs(s.ModernServerArgs),
		"LegacyManagerArgs": yamlArgs(slices.Concat(r.portOf(kubever.ControllerManager, legacy.Minor), patience,
			s.LegacyManagerArgs)),
		"ModernManagerArgs": yamlArgs(
			slices.Concat(r.portOf(kubever.ControllerManager, modern.Minor), patience, s.ModernManagerArgs)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// patience keeps a controller manager or scheduler from ending because a busy machine did not let it renew its lock
// within the usual ten seconds.
var patience = []string{"leader-elect-lease-duration=60s", "leader-elect-renew-deadline=40s"}

// portOf is a free port for a controller manager or scheduler, by the flags that its release has. The usual ports may
// be taken here.
func (r *Rig) portOf(component string, minor kubever.Minor) []string {
	port := fmt.Sprint(r.Port())
	switch secure, _ := kubever.Flag(component, "secure-port").Default(minor); {
	case secure == "" || secure == "0": // 1.10 and 1.11 have the flag and no certificate of their own
		return []string{"port=" + port}
	case kubever.Flag(component, "port").In(minor):
		return []string{"port=0", "secure-port=" + port}
	default:
		return []string{"secure-port=" + port}
	}
}

// yamlArgs writes name=value as the spec's {name: , value: }.
func yamlArgs(args []string) []string {
	list := make([]string, len(args))
	for i, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		list[i] = fmt.Sprintf("{name: %s, value: %q}", name, value)
	}
	return list
}

// writeFiles puts the certificates that pki issues and the files that render makes where the components look for them.
func (p *Pair) writeFiles() error {
	certificate, err := os.ReadFile(p.rig.PKI.File("ca.crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.rig.PKI.File("ca.key"))
	if err != nil {
		return err
	}
	authority, err := pki.ParseAuthority(certificate, key)
	if err != nil {
		return err
	}
	lifetime := pki.LifetimeOf(time.Now(), time.Hour)
	files, err := pki.Issue(p.Plan, pki.Given{
		Authorities: map[string]*pki.Authority{p.Plan.PKI.CA: authority},
		Has:         func(_, path string) bool { _, err := os.Stat(path); return err == nil },
	}, lifetime, lifetime)
	if err != nil {
		return fmt.Errorf("issuing the pair's certificates: %w", err)
	}
	for _, f := range files {
		if err := p.write(f.Path, f.Data); err != nil {
			return err
		}
	}
	rendered, err := render.Files(p.Plan, render.Options{Target: render.StaticPod})
	if err != nil {
		return fmt.Errorf("rendering the pair: %w", err)
	}
	for _, f := range rendered {
		if f.Path == "legacy-access.yaml" {
			p.access = f.Data
		}
		if strings.HasSuffix(f.Path, "/admission.yaml") { // it names a file
			f.Data = []byte(p.paths.Replace(string(f.Data)))
		}
		if path, ok := strings.CutPrefix(f.Path, p.Plan.Hosts[0].Name+"/"); ok {
			if err := p.write("/"+path, f.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Pair) write(path string, data []byte) error {
	path = p.paths.Replace(path)
	if !strings.HasPrefix(path, p.rig.dir+"/") {
		return fmt.Errorf("writing %s: lies outside of the test's folder", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// NaiveLegacyManager makes the legacy controller manager run with its version's own default of --controllers, whatever
// the plan has: a legacy side without changes.
func (p *Pair) NaiveLegacyManager() { p.naive = true }

// Place is where this machine has a path of the plan's.
func (p *Pair) Place(path string) string { return p.paths.Replace(path) }

// CollectNaively starts the modern controller manager again, with its garbage collector beside the controllers of the
// plan: a naive set-up.
func (p *Pair) CollectNaively() {
	p.rig.t.Helper()
	p.ModernManager.Stop()
	const flag = "--controllers="
	i := slices.IndexFunc(p.ModernManager.args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	p.ModernManager.args = slices.Clone(p.ModernManager.args)
	p.ModernManager.args[i] += "," + p.Plan.Controller(pair.Modern, "garbage-collector-controller").Name
	// the one that was stopped holds the lock for a while
	p.ModernManager.args = append(p.ModernManager.args, "--leader-elect=false")
	p.ModernManager.StartAgain()
	p.ModernManager.WaitReady()
}

// LegacyManagerArg is an argument with which the plan runs the legacy controller manager.
func (p *Pair) LegacyManagerArg(name string) (string, bool) {
	return p.Plan.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0].Arg(name)
}

// Args are the arguments of a side's component on this machine.
func (p *Pair) Args(side pair.Side, component string) []string {
	p.rig.t.Helper()
	return p.args(p.Plan.ComponentsOf(side, component)[0])
}

// PassLegacyLock stops the legacy controller manager and starts that of another host, which the plan does not have: it
// runs with its version's own default of --controllers.
func (p *Pair) PassLegacyLock() {
	p.rig.t.Helper()
	p.LegacyManager.Stop()
	p.NaiveLegacyManager()
	// the one that was stopped holds the lock for a while
	args := append(p.Args(pair.Legacy, kubever.ControllerManager), "--leader-elect=false")
	p.LegacyManager = p.rig.StartControllerManager("controller-manager-elsewhere", p.Plan.Legacy.Version.Minor, args)
	p.LegacyManager.WaitReady()
}

// StartLegacy starts the legacy side and waits for it.
func (p *Pair) StartLegacy() {
	p.rig.t.Helper()
	p.Legacy, p.LegacyManager = p.start(pair.Legacy)
}

// StartModern starts the modern side and waits for it.
func (p *Pair) StartModern() {
	p.rig.t.Helper()
	p.Modern, p.ModernManager = p.start(pair.Modern)
}

func (p *Pair) start(side pair.Side) (server *APIServer, manager *ControllerManager) {
	p.rig.t.Helper()
	minor := p.Plan.Side(side).Version.Minor
	for _, c := range p.Plan.ComponentsOf(side, kubever.APIServer) {
		server = p.rig.StartAPIServer(c.Name, minor, p.args(c))
		server.WaitReady()
	}
	for _, c := range p.Plan.ComponentsOf(side, kubever.ControllerManager) {
		manager = p.rig.StartControllerManager(c.Name, minor, p.args(c))
		manager.WaitReady()
	}
	for _, c := range p.Plan.ComponentsOf(side, kubever.Scheduler) {
		p.rig.Start(c.Name, kubever.Scheduler, minor, p.args(c)).MayEnd(managerRestarts)
	}
	return server, manager
}

// StartControllers starts the controllers that see both sides, which the program is, with the plan's arguments,
// kubeconfigs and certificate, once the legacy side has been told what to allow them. It returns the address of their
// health as well, without waiting for it.
func (p *Pair) StartControllers(program string, env ...string) (controllers *Process, health string) {
	p.rig.t.Helper()
	components := p.Plan.ComponentsOf("", plan.JointControllers)
	if len(components) != 1 {
		p.rig.t.Fatalf("the plan has %d components %s, want one", len(components), plan.JointControllers)
	}
	p.AllowControllers()
	c := components[0]
	health, _ = c.Arg("listen")
	return p.rig.start("controllers", program, append(slices.Clone(c.Command[1:]), p.args(c)...), env...), health
}

// AllowControllers tells the legacy side what it has to allow to the controllers that see both sides.
func (p *Pair) AllowControllers() {
	p.rig.t.Helper()
	admin := p.Legacy.Client("admin", "system:masters")
	for document := range strings.SplitSeq(string(p.access), "---\n") {
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			p.rig.t.Fatalf("what the legacy side has to allow: %v", err)
		}
		var body map[string]any
		if err := yaml.Unmarshal([]byte(document), &body); err != nil {
			p.rig.t.Fatal(err)
		}
		path := "/apis/" + o.APIVersion
		if o.Metadata.Namespace != "" {
			path += "/namespaces/" + o.Metadata.Namespace
		}
		if err := admin.Call(p.rig.t.Context(), http.MethodPost, path+"/"+strings.ToLower(o.Kind)+"s", body,
			nil); err != nil {
			p.rig.t.Fatalf("allowing the controllers on the legacy side: %v", err)
		}
	}
}

// RestartServer restarts a side's API server. Its controller manager is stopped meanwhile: one that cannot renew its
// lock for long enough ends by itself, and it is the kubelet that starts it again.
func (p *Pair) RestartServer(side pair.Side) {
	p.rig.t.Helper()
	server, manager := p.Legacy, p.LegacyManager
	if side == pair.Modern {
		server, manager = p.Modern, p.ModernManager
	}
	if manager != nil {
		manager.Stop()
	}
	server.Restart()
	if manager != nil {
		manager.Restart()
	}
}

// args are the plan's, with the paths of this machine.
func (p *Pair) args(c plan.Component) []string {
	p.rig.t.Helper()
	var list []string
	for _, a := range c.Args {
		if p.naive && c.Side == pair.Legacy && a.Name == "controllers" {
			continue
		}
		list = append(list, a.String())
	}
	mapped, err := MapArgs(list, func(_, value string) string { return p.paths.Replace(value) })
	if err != nil {
		p.rig.t.Fatal(err)
	}
	return mapped
}

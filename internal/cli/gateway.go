package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/gateway"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	hubwebhook "github.com/kubefusion/fusionctl/pkg/hub/webhook"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy/webhook"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type gatewayRequest struct {
	spec, plan     string // files; one of them
	legacy, modern string // kubeconfig files
	clusters       clusterFlags
	serving        serverFlags
	policy         string // file; "" for none
	rules          string // directory; "" for none
	audit          auditFlags
	options        gateway.Options
}

func newGatewayCmd(streams Streams) *cobra.Command {
	var req gatewayRequest
	cmd := &cobra.Command{
		Use:   "gateway {SPEC | --plan PLAN} --legacy-kubeconfig FILE --modern-kubeconfig FILE",
		Short: "Serve one endpoint over both API servers",
		Long: `gateway serves one endpoint over both API servers of a plan until it is stopped. Clients use it as they
use an API server, with one kubeconfig; gateway routes shows what it serves through which side.

Of objects that each side has of its own, such as Deployments, lists and watches merge both sides. A request by name
goes to the side that has the object; a name that both have is answered 409. New ones are created on the side that
spec.gateway.create names, the modern one by default. What is read carries the annotation kubefusion.dev/side. The paths
/sides/legacy/... and /sides/modern/... lead to one side alone. Partial answers are refused.

Where the plan's legacy side is retired, it serves the modern one alone, and to old clients what is converted from and
to it.

Further clusters, of spec.gateway.clusters or --cluster, are served below /clusters/NAME, each by itself and in every
version that converts to one of its own. Who a client is, is said there by impersonation, with the identity of that
cluster's kubeconfig: its name as both sides know it, and its groups but those of system:. Users of system: are refused.

Clients are known by certificates of --client-ca, or by bearer tokens; there are no anonymous ones. Who they are is
forwarded to the API servers with the certificate of a front proxy, so that each side's own authorization decides. A
token counts on the sides that know it, unless spec.gateway.sharedIdentities says that a name is the same user on both.
With --policy every request of a client is decided by an ABAC policy first; what no rule allows is forwarded to no side.
The file is read again when it changes.

With --conversion-rules custom resources are converted, too, by the rules files and CRDs of a directory, as those of
fusionctl crd webhook. They are read again when they change.

With --audit-log-path it records requests as an API server does, by the rules of --audit-policy-file: events of
audit.k8s.io/v1, with the same audit ID as those of the API servers, and the side that answered as an annotation.

The kubeconfigs are those of the gateway itself: it needs permission to get /api, /apis, /version
and /readyz, to list API services and to create token reviews.

Plans include it where the spec has spec.gateway: fusionctl render writes the unit or the static pod, the plan that it
reads, its kubeconfigs, and the policy or RBAC of each side. From a spec the plan is computed at each start, by the
facts of this fusionctl.

/healthz, /livez and /readyz are served beside the API; /metrics at --metrics-listen.

Exit codes: 0 stopped by a signal, 1 could not serve, 2 bad usage or bad input file.`,
		Example: `  fusionctl gateway spec.yaml --legacy-kubeconfig legacy.conf --modern-kubeconfig modern.conf --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --proxy-cert front-proxy-client.crt --proxy-key front-proxy-client.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.spec = args[0]
			}
			return runGateway(cmd.Context(), &req, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.plan, "plan", "", "the plan of the pair, instead of a spec: the gateway.json of a rendered host, "+
		"or the output of fusionctl plan -o json")
	f.StringVar(&req.legacy, "legacy-kubeconfig", "", "kubeconfig of the legacy API server (required, but for "+
		"a plan whose legacy side is retired)")
	f.StringVar(&req.modern, "modern-kubeconfig", "", "kubeconfig of the modern API server (required)")
	f.StringVar(&req.options.ProxyCert, "proxy-cert", "", "file of the front proxy's certificate, as "+
		"--proxy-client-cert-file of the API servers (required)")
	f.StringVar(&req.options.ProxyKey, "proxy-key", "", "file of that certificate's key (required)")
	f.StringVar(&req.serving.certificates.Cert, "tls-cert", "", "file of the server's certificate (required)")
	f.StringVar(&req.serving.certificates.Key, "tls-key", "", "file of the certificate's key (required)")
	f.StringVar(&req.serving.certificates.ClientCA, "client-ca", "",
		"file of the CA that signs the clients' certificates "+
			"(required)")
	f.StringVar(&req.serving.listen, "listen", "127.0.0.1:8443", "address to serve on")
	f.StringVar(&req.serving.metricsListen, "metrics-listen", "",
		"loopback address of /metrics and /healthz, without TLS (default not)")
	f.StringVar(&req.policy, "policy", "", "file of the ABAC policy of the gateway (default none: the sides "+
		"alone decide)")
	bindRules(f, &req.rules)
	req.clusters.bind(f)
	req.audit.bind(f)
	f.DurationVar(&req.options.DiscoveryInterval, "discovery-interval", 5*time.Second,
		"how often both API servers are queried for what they serve")
	f.IntVar(&req.options.Requests, "user-requests", 200, "requests of one user that are served concurrently")
	f.IntVar(&req.options.Watches, "user-watches", 2000, "watches and streams of one user that are served concurrently")
	f.IntVar(&req.options.InFlight, "max-requests-inflight", 400, "requests of all users that are served "+
		"concurrently; more wait, and the user with the fewest is next")
	cmd.AddCommand(newGatewayRoutesCmd(streams))
	return cmd
}

func runGateway(ctx context.Context, req *gatewayRequest, streams Streams) error {
	if (req.spec == "") == (req.plan == "") {
		return usagef("want one of SPEC and --plan")
	}
	for _, required := range []struct{ flag, value string }{
		{"modern-kubeconfig", req.modern}, {"proxy-cert", req.options.ProxyCert},
		{"proxy-key", req.options.ProxyKey}, {"tls-cert", req.serving.certificates.Cert},
		{"tls-key", req.serving.certificates.Key},
		{"client-ca", req.serving.certificates.ClientCA}} {
		if required.value == "" {
			return usagef("--%s is required", required.flag)
		}
	}
	if req.options.DiscoveryInterval <= 0 || req.options.Requests <= 0 || req.options.Watches <= 0 ||
		req.options.InFlight <= 0 {
		return usagef("--discovery-interval, --user-requests, --user-watches and --max-requests-inflight: " +
			"want more than 0")
	}
	if address := req.serving.metricsListen; address != "" && !loopback(address) {
		return usagef("--metrics-listen %q: want an address on loopback, since metrics are served without TLS", address)
	}
	p, err := plannedPair(streams, req.spec, req.plan)
	if err != nil {
		return err
	}
	if err := wantLegacy(p, req.legacy); err != nil {
		return err
	}
	if p.Gateway != nil {
		req.options.Create, req.options.SharedIdentities = p.Gateway.Create, p.Gateway.SharedIdentities
	}
	if req.options.Legacy, req.options.Modern, err = bothConfigs(ctx, req.legacy, req.modern); err != nil {
		return err
	}
	if req.options.Clusters, err = req.clusters.configs(ctx, p.Gateway); err != nil {
		return err
	}
	registry := newServerRegistry()
	req.options.Log = serverLog(ctx, streams)
	door, err := req.door(streams)
	if err != nil {
		return err
	}
	rules, err := openRules(req.rules)
	if err != nil {
		return err
	}
	if rules != nil {
		req.options.Rules = func() gateway.Rules { return gateway.Rules(rules.Current()) }
	}
	var audited io.Closer
	if req.options.Audit, audited, err = req.audit.open(streams); err != nil {
		return err
	}
	defer audited.Close()
	g, err := gateway.New(p, req.options, registry)
	if err != nil {
		return badInput(err, "")
	}
	defer g.Close()
	req.serving.certificates.Optional = true
	return req.serving.run(ctx, service{
		registry: registry, log: req.options.Log, about: []any{"plan", cmp.Or(req.plan, req.spec)}, begin: g.EndWith,
		follow: func(ctx context.Context) {
			var following sync.WaitGroup
			following.Go(func() { webserver.PaceHeap(ctx) })
			if door != nil {
				following.Go(func() {
					followPolicy(ctx, door, req.options.DiscoveryInterval, req.options.Log, req.policy, g.PolicyRead)
				})
			}
			if rules != nil {
				following.Go(func() {
					followRules(ctx, rules, req.options.DiscoveryInterval, req.options.Log, req.rules, g.RulesRead)
				})
			}
			g.Run(ctx)
			following.Wait()
		},
	}, g, statusOf(registry))
}

// wantLegacy refuses a kubeconfig of a side that is retired, and none of one that runs.
func wantLegacy(p *plan.Runtime, file string) error {
	switch {
	case p.Legacy.Retired && file != "":
		return usagef("--legacy-kubeconfig %s: the plan's legacy side is retired: leave it out", file)
	case !p.Legacy.Retired && file == "":
		return usagef("--legacy-kubeconfig is required")
	}
	return nil
}

// bothConfigs are the configurations of the sides; nil for "".
func bothConfigs(ctx context.Context, legacyFile, modernFile string) (legacy, modern *rest.Config, err error) {
	if legacyFile != "" {
		if legacy, err = verifiedKubeconfig(ctx, legacyFile, ""); err != nil {
			return nil, nil, err
		}
	}
	modern, err = verifiedKubeconfig(ctx, modernFile, "")
	return legacy, modern, err
}

// door opens the policy of --policy; nil for none.
func (req *gatewayRequest) door(streams Streams) (*webhook.Source, error) {
	if req.policy == "" {
		return nil, nil
	}
	if req.policy == "-" {
		return nil, usagef("--policy: standard input cannot be read again; want a file")
	}
	in, err := openInput(streams, req.policy)
	if err != nil {
		return nil, err
	}
	if err := in.Close(); err != nil {
		return nil, err
	}
	// The metrics are those of policy serve; the gateway has one of its own.
	source, err := webhook.Open(req.policy, false, webhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		return nil, badInput(err, "fusionctl policy validate "+req.policy+" lists the errors")
	}
	req.options.Policy = func() authorizer.Authorizer { return source.Current().Authorizer }
	return source, nil
}

// bindRules adds the flag for rules of custom resources.
func bindRules(f *pflag.FlagSet, directory *string) {
	f.StringVar(directory, "conversion-rules", "", "directory of rules files, and their CRDs, by which custom "+
		"resources are converted (default none: built-in resources alone)")
}

// openRules opens the rules of a directory; nil for none.
func openRules(directory string) (*hubwebhook.Source, error) {
	if directory == "" {
		return nil, nil
	}
	// The metrics are those of crd webhook; the gateway has one of its own.
	source, err := hubwebhook.Open(directory, hubwebhook.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		return nil, badInput(err, rulesHint)
	}
	return source, nil
}

const rulesHint = "fusionctl crd test RULES --crd FILE tries rules before they are served"

// followRules reads the rules of a directory again when they change. read gets the error of each time.
func followRules(ctx context.Context, source *hubwebhook.Source, every time.Duration, log *slog.Logger,
	directory string, read func(error)) {
	source.Watch(ctx, every, func(err error) {
		if read(err); err != nil {
			log.Error("reload failed; previous rules stay in use", "directory", directory, "err", err)
			return
		}
		log.Info("rules loaded", "directory", directory)
	})
}

// clusterFlags name further clusters: a name and a kubeconfig each, in the same order.
type clusterFlags struct{ names, kubeconfigs []string }

func (c *clusterFlags) bind(f *pflag.FlagSet) {
	f.StringArrayVar(&c.names, "cluster", nil, "name of a further cluster, served below /clusters/NAME; may be "+
		"repeated (default those of spec.gateway.clusters)")
	f.StringArrayVar(&c.kubeconfigs, "cluster-kubeconfig", nil, "kubeconfig of that cluster, of an identity that may "+
		"impersonate users and groups; one for each --cluster")
}

// configs are the configurations of further clusters by name: those of the flags, otherwise those of the plan.
func (c *clusterFlags) configs(ctx context.Context, g *plan.Gateway) (map[string]*rest.Config, error) {
	if len(c.names) != len(c.kubeconfigs) {
		return nil, usagef("--cluster and --cluster-kubeconfig: want one of each for every further cluster")
	}
	var named []spec.GatewayCluster
	for i, name := range c.names {
		named = append(named, spec.GatewayCluster{Name: name, Kubeconfig: c.kubeconfigs[i]})
	}
	if named == nil && g != nil {
		named = g.Clusters
	}
	configs := map[string]*rest.Config{}
	for _, further := range named {
		if configs[further.Name] != nil {
			return nil, usagef("--cluster %s: want each cluster once", further.Name)
		}
		var err error
		if configs[further.Name], err = kubeconfig(ctx, further.Kubeconfig, ""); err != nil {
			return nil, err
		}
	}
	return configs, nil
}

type gatewayRoutesRequest struct {
	spec           string
	legacy, modern string // kubeconfig files; both or none
	cluster        string // "" for the pair
	clusterConfig  string // kubeconfig file; "" for that of the spec
	rules          string // directory; "" for none
	output         string
}

type routesHead struct {
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	Source  string `json:"source"` // facts, servers
}

func newGatewayRoutesCmd(streams Streams) *cobra.Command {
	var req gatewayRoutesRequest
	cmd := &cobra.Command{
		Use:   "routes SPEC",
		Short: "Show through which API server each resource is served in each version, and why",
		Long: `routes prints one row for every resource in every version that a side serves, or that is converted:

  owner      by the side that the plan has for it
  other      by the other side, which alone serves this version
  converted  by the side that has it, in a version of its own: requests and answers are converted
  both       each side has objects of its own: both are queried, and their answers are merged; the objects of a side that
             does not serve this version are converted
  none       not at all; the reason says what serves it instead
  unknown    not at the moment: discovery failed on a side

READ is the side whose API server gets, lists and watches; WRITE is the side whose API server is sent changes and
requests for subresources; a row without WRITE is read only. Where exec, attach and port-forward need another side, the
reason says so.

Without kubeconfigs the rows are those of the facts about both versions and of --runtime-config in the plan: built-in
resources, with the verbs of most. With both kubeconfigs they are what the API servers serve at the moment, custom
resources and extension API servers included.

With --conversion-rules custom resources are converted, too, by the rules files and CRDs of a directory.

With --cluster they are those of one further cluster of spec.gateway.clusters, which is asked what it serves.

Exit codes: 0 done, 1 discovery of an API server is incomplete, 2 bad usage or bad spec.`,
		Example: `  fusionctl gateway routes spec.yaml
  fusionctl gateway routes spec.yaml --legacy-kubeconfig legacy.conf --modern-kubeconfig modern.conf -o json
  fusionctl gateway routes spec.yaml --cluster edge --cluster-kubeconfig edge.conf`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.spec = args[0]
			return runGatewayRoutes(cmd.Context(), req, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.legacy, "legacy-kubeconfig", "", "kubeconfig of the legacy API server")
	f.StringVar(&req.modern, "modern-kubeconfig", "", "kubeconfig of the modern API server")
	f.StringVar(&req.cluster, "cluster", "", "a further cluster, in place of the pair")
	f.StringVar(&req.clusterConfig, "cluster-kubeconfig", "", "its kubeconfig (default that of spec.gateway.clusters)")
	bindRules(f, &req.rules)
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runGatewayRoutes(ctx context.Context, req gatewayRoutesRequest, streams Streams) error {
	if req.cluster == "" && req.clusterConfig != "" || req.cluster != "" && req.legacy+req.modern != "" {
		return usagef("--cluster-kubeconfig is of a --cluster, and --legacy-kubeconfig and --modern-kubeconfig are not")
	}
	runtime, err := loadPair(streams, req.spec)
	if err != nil {
		return err
	}
	if req.legacy != "" && req.modern == "" || req.modern != "" && req.legacy == "" && !runtime.Legacy.Retired {
		return usagef("--legacy-kubeconfig and --modern-kubeconfig: want both, or none for the facts")
	}
	conversions, err := conversionsOf(req.rules)
	if err != nil {
		return err
	}
	head := routesHead{Schema: "fusionctl/gateway-routes/v1", Name: runtime.Name, Cluster: req.cluster, Source: "facts"}
	var table *routes.Table
	var incomplete error
	if req.cluster == "" {
		sources := routes.Facts(runtime)
		if req.modern != "" {
			if err := wantLegacy(runtime, req.legacy); err != nil {
				return err
			}
			head.Source = "servers"
			if sources, err = servedBy(ctx, runtime, req); err != nil {
				return err
			}
		}
		sources.Conversions = conversions
		table, incomplete = routes.New(runtime, sources), sources.Gaps()
	} else {
		head.Source = "servers"
		if table, incomplete, err = clusterRoutes(ctx, runtime, req, conversions); err != nil {
			return err
		}
	}
	var rows rowWriter = newTableRows(streams.Out)
	if req.output != "table" {
		rows = newDocumentRows(streams.Out, req.output, head, "routes")
	}
	header := []string{"RESOURCE", "VERSION", "WAY", "READ", "WRITE", "WHY"}
	for _, r := range table.Rows {
		cells := []string{r.String(), r.Version, string(r.Way), cmp.Or(string(r.Read), "-"),
			cmp.Or(string(r.Write), "-"), r.Why}
		if err := rows.row(r.Entry(), header, cells); err != nil {
			return err
		}
	}
	var tail any
	if incomplete != nil {
		tail = map[string]string{"incomplete": incomplete.Error()}
	}
	if err := rows.close(tail); err != nil {
		return err
	}
	return incomplete
}

// conversionsOf is what is converted by the rules of a directory; built-in resources alone for "".
func conversionsOf(directory string) (routes.Conversions, error) {
	source, err := openRules(directory)
	if err != nil {
		return routes.Conversions{}, err
	}
	var rules gateway.Rules
	if source != nil {
		rules = gateway.Rules(source.Current())
	}
	_, conversions, err := gateway.Converting(rules)
	if err != nil {
		return conversions, badInput(err, rulesHint)
	}
	return conversions, nil
}

// clusterRoutes asks a further cluster what it serves. Errors: gaps in what it says are the second result.
func clusterRoutes(ctx context.Context, p *plan.Runtime, req gatewayRoutesRequest,
	conversions routes.Conversions) (table *routes.Table, gaps, err error) {
	file := req.clusterConfig
	if file == "" && p.Gateway != nil {
		for _, further := range p.Gateway.Clusters {
			if further.Name == req.cluster {
				file = further.Kubeconfig
			}
		}
	}
	if file == "" {
		return nil, nil, usagef("--cluster %s: spec.gateway.clusters has none of this name; --cluster-kubeconfig says "+
			"where it is", req.cluster)
	}
	config, err := kubeconfig(ctx, file, "")
	if err != nil {
		return nil, nil, err
	}
	server, err := apiserver.New(config, apiserver.Options{})
	if err != nil {
		return nil, nil, err
	}
	result, err := server.Discover(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster %s: %w", req.cluster, err)
	}
	return routes.Alone(pair.Side(req.cluster), result, conversions), result.Gaps(), nil
}

// servedBy asks both API servers what they serve.
func servedBy(ctx context.Context, p *plan.Runtime, req gatewayRoutesRequest) (routes.Sources, error) {
	legacy, modern, err := bothConfigs(ctx, req.legacy, req.modern)
	if err != nil {
		return routes.Sources{}, err
	}
	return gateway.SourcesOf(ctx, p, legacy, modern)
}

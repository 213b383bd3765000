package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubefusion/fusionctl/pkg/controllers"
)

type controllersRequest struct {
	spec, plan     string // files; one of them
	legacy, modern string // kubeconfig files
	webhook        podsWebhookRequest
	options        controllers.Options
}

func newControllersCmd(streams Streams) *cobra.Command {
	req := controllersRequest{options: controllers.Options{Collect: true, LeaderElect: true, QPS: 100,
		ChangesPerSecond: 50, Workers: 20, Listen: "127.0.0.1:10270", Brake: controllers.DefaultBrake}}
	cmd := &cobra.Command{
		Use:   "controllers {--plan PLAN | --spec SPEC} --legacy-kubeconfig FILE --modern-kubeconfig FILE",
		Short: "Run the garbage collector and namespace controller across both API servers",
		Long: `controllers runs, until it is stopped, what Kubernetes' own controller managers cannot do while two API
servers share objects: a garbage collector that looks up owners on both sides, and a namespace controller that finalizes
a namespace when it is empty on both sides.

An object is deleted when each of its owners is absent by UID from every side that could have it, by a read made just
before. A side that is unreachable suspends every deletion that depends on it.

A store that was replaced, emptied or restored is distinguished from one in which objects were deleted: identity and
revision of each are recorded in --state-dir. When that changes, or when more owners of a kind vanish within a minute
than --brake-share and --brake-owners allow, nothing is deleted any more, /readyz fails and an event says why, until a
person has looked: fusionctl controllers acknowledge.

Where the plan has pods, every replica also serves the modern API server's admission requests for pods, and the leader
maintains the Service through which those pods reach it.

Plans that need them include them: fusionctl render writes the unit or the static pod, the plan that they read, and the
policy or RBAC of each side. From a spec the plan is computed at each start, by the facts of this fusionctl.

One process at a time is the leader, the one that holds the lock. A process that loses the lock, or an API server,
stands by and takes the lock again; admission requests are served meanwhile.

The audit trail, one JSON object with its reason for each deletion and each change, goes to standard output; the log
goes to standard error. /healthz, /readyz and /metrics are served at --listen.

Exit codes: 1 could not start; 2 bad usage or bad input file; 130 stopped by a signal.`,
		Example: `  fusionctl controllers --spec pair.yaml --legacy-kubeconfig legacy.conf --modern-kubeconfig modern.conf --dry-run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runControllers(cmd.Context(), req, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.plan, "plan", "", "the plan of the pair: the plan.json of a rendered host, or the output of "+
		"fusionctl plan -o json")
	f.StringVar(&req.spec, "spec", "", "the spec of the pair, instead of a plan")
	f.StringVar(&req.legacy, "legacy-kubeconfig", "", "kubeconfig of the legacy API server (required)")
	f.StringVar(&req.modern, "modern-kubeconfig", "", "kubeconfig of the modern API server (required)")
	f.BoolVar(&req.options.Collect, "collect", req.options.Collect,
		"run the garbage collector; without it only the namespace controller runs")
	f.BoolVar(&req.options.DryRun, "dry-run", false, "change nothing; the audit trail reports what would be done")
	f.BoolVar(&req.options.DeleteOrphans, "delete-orphans", false,
		"delete objects whose namespace neither side has, instead of reporting them")
	f.BoolVar(&req.options.LeaderElect, "leader-elect", req.options.LeaderElect,
		"act only while holding the lock, config map "+controllers.LockNamespace+"/"+controllers.LockName)
	f.Float32Var(&req.options.QPS, "qps", req.options.QPS, "requests per second to each API server, at most")
	f.Float64Var(&req.options.ChangesPerSecond, "changes-per-second", req.options.ChangesPerSecond,
		"deletions and changes per second, at most")
	f.IntVar(&req.options.Workers, "workers", req.options.Workers, "objects that are processed concurrently")
	f.StringVar(&req.options.Listen, "listen", req.options.Listen,
		"loopback address of /healthz, /readyz and /metrics; empty for none")
	f.StringVar(&req.options.Health, "health-listen", "",
		"address of /healthz and /readyz alone, for the kubelet of a pod (default: none)")
	f.StringVar(&req.options.StateDirectory, "state-dir", "", "directory that remembers what the stores showed of "+
		"themselves, outside of them; without it that is forgotten with the process")
	f.IntVar(&req.options.Brake.Share, "brake-share", req.options.Brake.Share,
		"percentage of the owners of a kind that may vanish within a minute; 100 lets all of them")
	f.IntVar(&req.options.Brake.Least, "brake-owners", req.options.Brake.Least,
		"number of owners of a kind that may vanish within a minute, less one, whatever share they are")
	req.webhook.bind(cmd)
	cmd.AddCommand(newControllersAcknowledgeCmd(streams))
	return cmd
}

func runControllers(ctx context.Context, req controllersRequest, streams Streams) error {
	if (req.spec == "") == (req.plan == "") {
		return usagef("want one of --plan and --spec")
	}
	for _, required := range []struct{ flag, value string }{{"legacy-kubeconfig", req.legacy},
		{"modern-kubeconfig", req.modern}} {
		if required.value == "" {
			return usagef("--%s is required", required.flag)
		}
	}
	if req.options.Listen != "" && !loopback(req.options.Listen) {
		return usagef("--listen %q: want an address on loopback, since metrics are served without TLS",
			req.options.Listen)
	}
	if req.options.Health != "" {
		if _, _, err := net.SplitHostPort(req.options.Health); err != nil {
			return usagef("--health-listen %q: want HOST:PORT or :PORT", req.options.Health)
		}
	}
	if req.options.QPS <= 0 || req.options.ChangesPerSecond <= 0 || req.options.Workers <= 0 {
		return usagef("--qps, --changes-per-second and --workers: want more than 0")
	}
	if b := req.options.Brake; b.Share < 1 || b.Share > 100 || b.Least < 1 {
		return usagef("--brake-share %d and --brake-owners %d: want a percentage and a number above 0", b.Share,
			b.Least)
	}
	p, err := plannedPair(streams, req.spec, req.plan)
	if err != nil {
		return err
	}
	if p.Legacy.Retired {
		return badInput(fmt.Errorf("%s: spec.legacy.retired: true: there is one API server, and nothing between two",
			cmp.Or(req.spec, req.plan)), "the modern controller manager does all of it")
	}
	if sides := p.StaleReaders(); len(sides) > 0 {
		return badInput(fmt.Errorf("the plan lets the %s API server read from an etcd member that may be stale: a "+
			"live owner may seem absent", sides[0]),
			"set --etcd-quorum-read=true on that API server; see fusionctl explain FUS226")
	}
	if req.options.Legacy, err = verifiedKubeconfig(ctx, req.legacy, ""); err != nil {
		return err
	}
	if req.options.Modern, err = verifiedKubeconfig(ctx, req.modern, ""); err != nil {
		return err
	}
	if req.options.Webhook, err = req.webhook.webhook(ctx, p); err != nil {
		return err
	}
	req.options.Log = slog.New(slog.NewJSONHandler(streams.Err, logOptions(serverLevel(ctx))))
	req.options.Audit = slog.New(slog.NewJSONHandler(streams.Out, logOptions(slog.LevelInfo)))
	klog.SetSlogLogger(req.options.Log)
	if err := controllers.Run(ctx, p, req.options); err != nil {
		return err
	}
	return ctx.Err()
}

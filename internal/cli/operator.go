package cli

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubefusion/fusionctl/pkg/operator"
)

// operatorNamespace is where the operator runs unless it is told otherwise.
const operatorNamespace = "kubefusion-system"

type operatorRequest struct {
	kubeconfig, context string
	options             operator.Options
}

func newOperatorCmd(streams Streams) *cobra.Command {
	var req operatorRequest
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Run many fused control planes from one cluster",
		Long: `operator drives fused control planes that are objects of a management cluster: FusedControlPlane of
kubefusion.dev/v1alpha1, whose spec is that of a spec file. Their components run as pods of that cluster, in a namespace
of the control plane's name.

The spec is planned and checked as fusionctl check does. A plan without errors is reached by a transition: an ordered
list of steps, each verified before the next one begins, and rolled back when a step does not finish within
--step-limit. A spec that leads to no plan, to a plan with errors, or to one to which no transition leads, changes
nothing; the status says why. Progress is kept in a Secret of the control plane, so that a restarted operator resumes
or rolls back.

get, plan, approve, history, back, done and report are for people: they read these objects, and write their annotations.
A link to this program named kubectl-fusion has them as kubectl fusion get, and so on.

One process at a time acts, the one that holds the lease fusionctl-operator in --namespace. Metrics are served at
--metrics-listen, without TLS, on loopback.

Exit codes: 1 could not start, or lost the lease; 2 bad usage; 130 stopped by a signal.`,
		Example: `  fusionctl operator --kubeconfig management.conf`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runOperator(cmd.Context(), req, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&req.kubeconfig, "kubeconfig", "", "of the management cluster (default: the pod's service account)")
	f.StringVar(&req.context, "context", "", "of the kubeconfig (default: its current one)")
	f.StringVarP(&req.options.Namespace, "namespace", "n", operatorNamespace, "of the lease")
	f.IntVar(&req.options.MaxConcurrent, "max-concurrent", 4, "transitions that go on at a time; those that wait "+
		"for a person, an agent or a store do not count")
	f.DurationVar(&req.options.StepLimit, "step-limit", 15*time.Minute, "how long a step may take before its "+
		"transition goes back")
	f.DurationVar(&req.options.Repair, "repair-interval", time.Hour, "how often everything is applied again")
	f.StringVar(&req.options.Metrics, "metrics-listen", "127.0.0.1:10273",
		"loopback address of /metrics; empty for none")
	f.StringVar(&req.options.Health, "health-listen", "127.0.0.1:10272",
		"address of /healthz and /readyz; empty for none")
	cmd.AddCommand(newOperatorManifestsCmd(streams))
	cmd.AddCommand(newPlanesCmds(streams)...)
	return cmd
}

func runOperator(ctx context.Context, req operatorRequest, streams Streams) error {
	o := &req.options
	switch {
	case o.Metrics != "" && !loopback(o.Metrics):
		return usagef("--metrics-listen %q: want an address on loopback, since metrics are served without TLS",
			o.Metrics)
	case o.MaxConcurrent < 1:
		return usagef("--max-concurrent %d: want at least 1", o.MaxConcurrent)
	case o.StepLimit <= 0 || o.Repair <= 0:
		return usagef("--step-limit and --repair-interval: want more than 0")
	case o.Namespace == "":
		return usagef("--namespace is empty: the lease is in one")
	}
	if o.Health != "" {
		if _, _, err := net.SplitHostPort(o.Health); err != nil {
			return usagef("--health-listen %q: want HOST:PORT or :PORT", o.Health)
		}
	}
	var err error
	if req.kubeconfig == "" {
		o.Config, err = rest.InClusterConfig()
		err = badInput(err, "--kubeconfig reaches a management cluster from elsewhere")
	} else {
		o.Config, err = verifiedKubeconfig(ctx, req.kubeconfig, req.context)
	}
	if err != nil {
		return err
	}
	o.Log = slog.New(slog.NewJSONHandler(streams.Err, logOptions(serverLevel(ctx))))
	klog.SetSlogLogger(o.Log)
	if err := operator.Run(ctx, *o); err != nil {
		return err
	}
	return ctx.Err()
}

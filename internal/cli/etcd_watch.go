package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/etcd/watch"
)

type etcdWatchRequest struct {
	file     string
	depth    string
	metrics  metricsFlags
	interval time.Duration
	stores   storesRequest
}

func newEtcdWatchCmd(streams Streams) *cobra.Command {
	var req etcdWatchRequest
	cmd := &cobra.Command{
		Use:   "watch SPEC",
		Short: "Check continuously: findings that appear and disappear, and fights over keys",
		Long: `watch checks the stores of a spec, follows every change to them, and prints a JSON line for each finding
that appears, changes or disappears. A key in the wrong store or a value that a reader cannot decode is reported
immediately; findings that need the whole store, and those that disappear, are reported by the next check, at most
--interval after a change. A key that both sides write alternately is reported as a fight.

--metrics serves the same as Prometheus metrics at /metrics, and /healthz: on loopback, or with TLS to clients with a
certificate.

It runs until it is interrupted: it reconnects, continues with other members, and checks again when it missed changes.

Exit codes: 1 could not start, 2 bad usage or a bad spec, 130 interrupted.`,
		Example: `  fusionctl etcd watch fused.yaml --metrics :9105 | tee -a etcd-findings.jsonl
  fusionctl etcd watch fused.yaml --gentle --interval 10m --depth keys`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runEtcdWatch(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	hideSnapshotFlags(cmd)
	enumFlag(cmd, &req.depth, "depth", "", "how much a check reads", words(scan.Depths())...)
	req.metrics.bind(cmd.Flags())
	cmd.Flags().DurationVar(&req.interval, "interval", time.Minute,
		"the least time between two checks; a check of a large store also waits nine times as long as it took")
	return cmd
}

func runEtcdWatch(ctx context.Context, req etcdWatchRequest, streams Streams) error {
	if req.interval < time.Millisecond {
		return usagef("--interval %s: want at least 1ms", req.interval)
	}
	if len(req.stores.snapshots) > 0 {
		return usagef("--snapshot: a file does not change; fusionctl etcd check reads it")
	}
	p, stores, err := openSpecStores(ctx, req.file, "", req.stores, streams)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	lines := json.NewEncoder(streams.Out)
	w := watch.New(watch.Config{
		Map: p.Ownership(), Stores: opened(stores), Options: req.stores.scanOptions(req.depth, 0),
		Interval: req.interval, Patience: 6 * req.stores.timeout,
		Accept: p.Accept,
	}, func(e watch.Event) error { return lines.Encode(e) })
	measured := &webserver.CertificateMetrics{}
	listener, err := req.metrics.listen(ctx, measured)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if listener != nil {
		certificates := prometheus.NewRegistry()
		certificates.MustRegister(measured)
		metrics := prometheus.Gatherers{w.Metrics(), certificates}
		loggerFrom(ctx).Info("serving metrics", "address", listener.Addr().String())
		group.Go(func() error { return serveMetrics(ctx, listener, metrics) })
	}
	group.Go(func() error {
		err := w.Run(ctx)
		return withHint(err, storeHint(err))
	})
	return group.Wait()
}

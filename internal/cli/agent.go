package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubefusion/fusionctl/pkg/operator/agent"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
)

type agentRequest struct {
	kubeconfig, bootstrap, context string
	options                        agent.Options
}

func newAgentCmd(streams Streams) *cobra.Command {
	var req agentRequest
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Execute the steps of a host for an operator in another cluster",
		Long: `agent runs on each control-plane host, and on each node whose kubelet is changed, of a FusedControlPlane with
spec.target static-pod or systemd. It watches the ControlPlaneHost of its host in the management cluster, carries out
the steps of transitions that the operator puts there, verifies them and reports. While no transition goes on it
compares files, units and programs with the plan, records them in the status, and with spec.repair: Repair puts back
what differs; what was there is kept in --state-dir.

It is the user fusionctl:agent:PLANE:HOST. With --bootstrap-kubeconfig it creates a key and a
CertificateSigningRequest, waits until that is approved, and renews the certificate before its end; the key stays in
--state-dir. With --kubeconfig it uses an identity that was issued otherwise. Either way it may read the object and the
Secret of its own host, and write the status of that object. It refuses to work on a machine that does not have the
address of the host. It runs as root: who may write the Secret of a host in the management cluster is root there.

An agent that was killed goes on with its task. One that is asked for another task breaks off the one before.

Exit codes: 1 could not start, 2 bad usage or bad input file, 130 stopped by a signal.`,
		Example: `  fusionctl agent --plane prod --host cp-1 --bootstrap-kubeconfig /etc/fusionctl/bootstrap.conf
  fusionctl agent --plane prod --host cp-1 --kubeconfig /etc/fusionctl/agent.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), req, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&req.options.Plane, "plane", "", "name of the FusedControlPlane")
	f.StringVar(&req.options.Host, "host", "", "name of this host in its spec")
	f.StringVar(&req.kubeconfig, "kubeconfig", "", "of the management cluster, with the agent's own identity")
	f.StringVar(&req.bootstrap, "bootstrap-kubeconfig", "", "of the management cluster, with an identity that may "+
		"create CertificateSigningRequests")
	f.StringVar(&req.context, "context", "", "of the kubeconfig (default: its current one)")
	f.StringVar(&req.options.State, "state-dir", "/var/lib/fusionctl/agent", "directory of the key, the certificate "+
		"and files that were replaced")
	f.StringVar(&req.options.Snapshots, "snapshots", otherSnapshots, "directory of the snapshots of stores")
	f.StringVar(&req.options.Lock, "lock", machineLock, "file that is locked while this machine is changed")
	f.StringVar(&req.options.Credentials, "registry-config", "", "file with credentials of registries, as docker "+
		"login writes it, for programs that come from images")
	f.DurationVar(&req.options.Every, "interval", time.Minute, "how often this machine is compared with the plan")
	return cmd
}

func runAgent(ctx context.Context, req agentRequest, streams Streams) error {
	o := &req.options
	switch {
	case !spec.IsLabel(o.Plane):
		return usagef("--plane %q: want the name of a FusedControlPlane", o.Plane)
	case !spec.IsNodeName(o.Host):
		return usagef("--host %q: want the name of a host of its spec", o.Host)
	case (req.kubeconfig == "") == (req.bootstrap == ""):
		return usagef("want one of --kubeconfig and --bootstrap-kubeconfig")
	case o.Every <= 0:
		return usagef("--interval %s: want more than 0", o.Every)
	case !filepath.IsAbs(o.State) || !filepath.IsAbs(o.Snapshots) || !filepath.IsAbs(o.Lock) ||
		o.Credentials != "" && !filepath.IsAbs(o.Credentials):
		return usagef("--state-dir, --snapshots, --lock and --registry-config: want absolute paths")
	}
	file := req.kubeconfig
	if file == "" {
		file = req.bootstrap
	}
	config, err := verifiedKubeconfig(ctx, file, req.context)
	if err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	o.Program = newVersionDocument(release, info).Program
	o.IsHere = local.IsHere
	o.Log = slog.New(slog.NewJSONHandler(streams.Err, logOptions(serverLevel(ctx))))
	klog.SetSlogLogger(o.Log)
	if req.bootstrap != "" {
		identity := agent.Identity{Bootstrap: config, Plane: o.Plane, Host: o.Host,
			Directory: filepath.Join(o.State, "pki"), Log: o.Log}
		if config, err = identity.Start(ctx); err != nil {
			return err
		}
	}
	config.UserAgent = "fusionctl-agent/" + api.Version
	o.Config = config
	return agent.Run(ctx, *o)
}

package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

type restartsAnnotateRequest struct {
	pods     podsRequest
	from, to string
	output   string
}

func newRestartsAnnotateCmd(streams Streams) *cobra.Command {
	var req restartsAnnotateRequest
	cmd := &cobra.Command{
		Use:   "annotate --from VERSION --to VERSION (-f FILE | --kubeconfig FILE)",
		Short: "Print the hashes with which a new kubelet would keep its containers",
		Long: `annotate prints, for each container, the hash that the runtime's metadata would need for the new kubelet
to keep it. It writes nothing, and no runtime has a way to write it: it means editing files of a stopped runtime, at the
risks that are printed. The alternatives are to let the containers be restarted, or to patch the kubelet: see
docs/restarts.md.

A container gets no value when no known kubelet computes its recorded hash for its definition, since a new value would
hide for ever that the definition was changed.

Exit codes: 0 done, 1 could not finish, 2 bad usage or a bad file, 3 done and some containers have no value.`,
		Example: `  fusionctl restarts annotate --from 1.12 --to 1.17 --kubeconfig admin.conf --node node-1 --runtime-endpoint unix:///run/containerd/containerd.sock`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRestartsAnnotate(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.from, "from", "", "version of the running kubelet, such as 1.12")
	cmd.Flags().StringVar(&req.to, "to", "", "version of the new kubelet")
	req.pods.addFlags(cmd)
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "yaml")
	return cmd
}

// annotateRisks are what writing such a value means.
var annotateRisks = []string{
	"no runtime can change the metadata of a container: its files are edited while it is stopped, in its own format, " +
		"and a mistake loses containers",
	"while values are written and until the new kubelet runs, no kubelet may run: the old one restarts every " +
		"container with a new value",
	"there is no way back: once values are written, the old kubelet restarts all of them; keep the recorded ones",
	"a value is valid for the present definition: if the pod is changed before the new kubelet runs, it is wrong, " +
		"and if the container was started from another definition, its container keeps running with that one " +
		"undetected",
}

type annotateHead struct {
	Schema string   `json:"schema"`
	From   string   `json:"from"`
	To     string   `json:"to"`
	Risks  []string `json:"risks"`
}

func runRestartsAnnotate(ctx context.Context, req restartsAnnotateRequest, streams Streams) error {
	route, err := parseRoute(req.from, req.to, nil)
	if err != nil {
		return err
	}
	if err := req.pods.check(); err != nil {
		return err
	}
	runtime, err := req.pods.loadRuntime(ctx, streams)
	if err != nil {
		return err
	}
	var rows rowWriter = newTableRows(streams.Out)
	if req.output != "table" {
		rows = newDocumentRows(streams.Out, req.output,
			annotateHead{"fusionctl/restarts-annotate/v1", req.from, req.to, annotateRisks}, "containers")
	}
	printed, without := 0, 0
	reader := podReader{
		pod: func(pod *v1.Pod) error {
			for _, w := range route.Rewrites(pod, runtime) {
				if w.New == "" {
					without++
				}
				if printed == 0 && req.output == "table" {
					printRisks(streams.Out)
				}
				printed++
				if err := rows.row(w, annotateHeader, annotateCells(w)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	if err := reader.read(ctx, &req.pods, streams); err != nil {
		return abort(rows, printed > 0, err)
	}
	if err := rows.close(nil); err != nil {
		return err
	}
	if without > 0 {
		return errAttention
	}
	return nil
}

func printRisks(w io.Writer) {
	for _, risk := range annotateRisks {
		visible.Fprintln(w, "risk: "+risk)
	}
	visible.Fprintln(w)
}

var annotateHeader = []string{"NAMESPACE", "POD", "CONTAINER", "KEY", "RECORDED", "NEW", "WHY NOT"}

func annotateCells(w restart.Rewrite) []string {
	return []string{dash(w.Namespace), dash(w.Pod), withKind(w.Container, w.Kind), w.Key, dash(w.Recorded), dash(w.New),
		dash(w.Why)}
}

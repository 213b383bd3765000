package cli

import (
	"context"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

type restartsHashRequest struct {
	file    string
	kubelet string
	source  string
	output  string
}

func newRestartsHashCmd(streams Streams) *cobra.Command {
	var req restartsHashRequest
	cmd := &cobra.Command{
		Use:   "hash FILE --kubelet VERSION",
		Short: "Print the hash of each container",
		Long: `hash prints, for each container, the hash that a kubelet of the version computes, and records with the
runtime under io.kubernetes.container.hash.

FILE is JSON or YAML: a pod, a list of pods, a workload with a pod template, or a bare container; - is standard input.
Containers are hashed as they are: nothing is defaulted. The pod of a running container is the one that the API server
serves.

--source gives the way by which the kubelet got the pod, which matters to kubelets before 1.16: from the API server, or
from a file, exactly as it is.

Exit codes: 0 done, 1 could not finish, 2 bad usage or a bad file.`,
		Example: `  kubectl get pod web-0 -o json | fusionctl restarts hash - --kubelet 1.12
  fusionctl restarts hash pod.yaml --kubelet 1.6.13 --source file -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runRestartsHash(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.kubelet, "kubelet", "", "version of the kubelet, such as 1.12 or v1.20.4+k3s1")
	enumFlag(cmd, &req.source, "source", "", "where the kubelet got the pod from", string(restart.API),
		string(restart.File))
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "yaml")
	return cmd
}

func runRestartsHash(ctx context.Context, req restartsHashRequest, streams Streams) error {
	version, err := parseVersionFlag("kubelet", req.kubelet)
	if err != nil {
		return err
	}
	out := newHashWriter(streams.Out, req.output)
	skipped := map[string]int{} // objects without containers, by kind
	undefaulted := ""           // the first container that no API server has defaulted
	for object, err := range readObjects(ctx, streams, req.file) {
		var rows []restart.ContainerHash
		if err == nil {
			rows, err = restart.HashObject(object, version, restart.Source(req.source))
			err = badInput(err, "")
		}
		if object.Pod == nil && object.Container == nil {
			skipped[object.Kind]++
		}
		for _, row := range rows {
			if undefaulted == "" && !row.Defaulted {
				undefaulted = row.Container
			}
		}
		if err == nil && len(rows) > 0 {
			err = out.add(rows)
		}
		if err != nil {
			return abort(out.rows, out.many, err)
		}
	}
	if out.first == nil {
		return noPods(req.file, skipped)
	}
	if err := out.finish(); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(skipped)) {
		visible.Fprintf(streams.Err, "note: %d %s without containers left out\n", skipped[kind], kind)
	}
	if undefaulted != "" {
		visible.Fprintf(streams.Err, "note: container %q lacks the defaults of an API server, which are part of the "+
			"hash of a running container\n", undefaulted)
	}
	return nil
}

// hashWriter prints rows as they come. It holds back those of the first object until it knows whether there is another.
type hashWriter struct {
	first []restart.ContainerHash
	rows  rowWriter
	many  bool
}

func newHashWriter(w io.Writer, output string) *hashWriter {
	if output != "table" {
		return &hashWriter{rows: newDocumentRows(w, output, struct {
			Schema string `json:"schema"`
		}{"fusionctl/restarts-hash/v1"}, "containers")}
	}
	return &hashWriter{rows: newTableRows(w)}
}

func (h *hashWriter) add(rows []restart.ContainerHash) error {
	if h.first == nil {
		h.first = rows
		return nil
	}
	if !h.many {
		h.many = true
		if err := h.print(h.first); err != nil {
			return err
		}
	}
	return h.print(rows)
}

func (h *hashWriter) finish() error {
	if !h.many {
		for i := range h.first {
			h.first[i].Namespace, h.first[i].Object = "", ""
		}
		if err := h.print(h.first); err != nil {
			return err
		}
	}
	return h.rows.close(nil)
}

func (h *hashWriter) print(rows []restart.ContainerHash) error {
	for _, row := range rows {
		header, cells := []string{"CONTAINER", "HASH"}, []string{withKind(row.Container, row.Kind), row.Hash.String()}
		if h.many {
			header, cells = append([]string{"NAMESPACE", "OBJECT"}, header...),
				append([]string{dash(row.Namespace), dash(row.Object)}, cells...)
		}
		if err := h.rows.row(row, header, cells); err != nil {
			return err
		}
	}
	return nil
}

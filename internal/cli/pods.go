package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kubefusion/fusionctl/pkg/kube"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/pkg/restart/cri"
)

// podsRequest says where pods come from, and what their runtimes recorded.
type podsRequest struct {
	files      []string
	kubeconfig string
	context    string
	namespace  string
	node       string
	runtimes   []string
	endpoint   string
}

func (r *podsRequest) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&r.files, "file", "f", nil,
		"pods as the API server serves them, JSON or YAML; - is standard input; repeat for more")
	flags.StringVar(&r.kubeconfig, "kubeconfig", "", "read the pods from the cluster of this kubeconfig")
	flags.StringVar(&r.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVar(&r.namespace, "namespace", "", "only pods of this namespace, of a cluster (default all)")
	flags.StringVar(&r.node, "node", "", "only pods of this node, of a cluster (default all)")
	flags.StringArrayVar(&r.runtimes, "runtime", nil,
		"recorded hashes: JSON of crictl ps, crictl inspect, crictl pods or docker inspect; repeat for more")
	flags.StringVar(&r.endpoint, "runtime-endpoint", "",
		"recorded hashes: the CRI socket of this node, such as unix:///run/containerd/containerd.sock")
}

func (r *podsRequest) check() error {
	switch {
	case len(r.files) == 0 && r.kubeconfig == "":
		return badInput(errors.New("which pods? want --file or --kubeconfig"),
			"kubectl get pdb,pods -A -o json | fusionctl restarts plan ... -f -")
	case len(r.files) > 0 && r.kubeconfig != "":
		return usagef("--file and --kubeconfig: want one of them")
	case r.kubeconfig == "" && r.context+r.namespace+r.node != "":
		return usagef("--context, --namespace and --node select pods of a cluster: only with --kubeconfig")
	}
	return checkStdinOnce(slices.Concat(r.files, r.runtimes))
}

// loadRuntime reads what was recorded, nil if nothing was given.
func (r *podsRequest) loadRuntime(ctx context.Context, streams Streams) (*restart.Runtime, error) {
	if len(r.runtimes) == 0 && r.endpoint == "" {
		return nil, nil
	}
	runtime := new(restart.Runtime)
	for _, file := range r.runtimes {
		in, err := openInput(streams, file)
		if err != nil {
			return nil, err
		}
		_, err = restart.ParseRuntime(in, runtime)
		in.Close()
		if err != nil {
			return nil, badInput(fmt.Errorf("%s: %w", file, err), "")
		}
	}
	if r.endpoint != "" {
		if err := cri.Read(ctx, r.endpoint, runtime); err != nil {
			return nil, withHint(err, "only root can open the socket; crictl ps -o json > FILE and --runtime FILE do "+
				"the same")
		}
	}
	return runtime, nil
}

// parseRoute reads the versions of a route.
func parseRoute(from, to string, via []string) (restart.Route, error) {
	start, err := parseVersionFlag("from", from)
	if err != nil {
		return restart.Route{}, err
	}
	end, err := parseVersionFlag("to", to)
	if err != nil {
		return restart.Route{}, err
	}
	var stops []kubever.Version
	for _, text := range via {
		stop, err := parseVersionFlag("via", text)
		if err != nil {
			return restart.Route{}, err
		}
		stops = append(stops, stop)
	}
	route, err := restart.NewRoute(start, end, stops...)
	if err != nil {
		return restart.Route{}, badInput(fmt.Errorf("--via: %w", err), "")
	}
	return route, nil
}

// podReader hands on the pods of all sources, and the PodDisruptionBudgets, all of these first; budget is nil if they
// do not matter.
type podReader struct {
	budget  func(*policyv1.PodDisruptionBudget)
	pod     func(*v1.Pod) error
	pods    int
	skipped map[string]int // objects of other kinds
}

func (p *podReader) read(ctx context.Context, r *podsRequest, streams Streams) error {
	p.skipped = map[string]int{}
	if r.kubeconfig != "" {
		return p.readCluster(ctx, r)
	}
	for _, file := range r.files {
		if err := p.readFile(ctx, streams, file); err != nil {
			return err
		}
	}
	if p.pods == 0 {
		return noPods(strings.Join(r.files, ", "), p.skipped)
	}
	return nil
}

func (p *podReader) readCluster(ctx context.Context, r *podsRequest) error {
	client, err := kube.NewClient(r.kubeconfig, r.context)
	if err != nil {
		return badInput(err, "")
	}
	if p.budget != nil {
		budgets, err := client.DisruptionBudgets(ctx, r.namespace)
		if err != nil {
			return err
		}
		for _, budget := range budgets {
			p.budget(budget)
		}
	}
	for pod, err := range client.Pods(ctx, kube.Selection{Namespace: r.namespace, Node: r.node}) {
		if err != nil {
			return err
		}
		p.pods++
		if err := p.pod(pod); err != nil {
			return err
		}
	}
	return nil
}

func (p *podReader) readFile(ctx context.Context, streams Streams, file string) error {
	for object, err := range readObjects(ctx, streams, file) {
		switch {
		case err != nil:
			return err
		case object.Budget != nil && p.budget == nil:
		case object.Budget != nil && p.pods > 0:
			return badInput(fmt.Errorf("%s: %s comes after a pod: pods are evaluated as they are read", file, object),
				"kubectl get pdb,pods puts PodDisruptionBudgets first, and so does -f BUDGETS -f PODS")
		case object.Budget != nil:
			p.budget(object.Budget)
		case object.Pod == nil || object.IsTemplate:
			p.skipped[object.Kind]++
		default:
			p.pods++
			if err := p.pod(object.Pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// noPods says what there is instead.
func noPods(where string, skipped map[string]int) error {
	var found []string
	for _, kind := range slices.Sorted(maps.Keys(skipped)) {
		name := kind
		if name == "" {
			name = "container"
		}
		found = append(found, fmt.Sprintf("%d %s", skipped[kind], name))
	}
	message := where + ": no pods"
	if len(found) > 0 {
		message += "; found: " + strings.Join(found, ", ")
	}
	return badInput(errors.New(message), "want the pods as the API server serves them: kubectl get pods -A -o json")
}

// readObjects reads the objects of a file. What cannot be decoded is bad input.
func readObjects(ctx context.Context, streams Streams, file string) iter.Seq2[restart.Object, error] {
	return func(yield func(restart.Object, error) bool) {
		in, err := openInput(streams, file)
		if err != nil {
			yield(restart.Object{}, err)
			return
		}
		defer in.Close()
		for object, err := range restart.Objects(contextReader{ctx, in}) {
			if err != nil {
				yield(object, badInput(fmt.Errorf("%s: %w", file, err), ""))
				return
			}
			if !yield(object, nil) {
				return
			}
		}
	}
}

// withKind names a container, and what it is unless it is one of the application.
func withKind(container string, kind restart.ContainerKind) string {
	if kind == "" || kind == restart.AppContainer {
		return container
	}
	return container + " (" + string(kind) + ")"
}

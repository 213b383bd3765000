package cli

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/migrate"
)

type crdPlanRequest struct {
	crdRequest
	name    string
	storage string
	retire  []string
	with    string
	out     string
	grace   time.Duration
	wait    time.Duration
	output  string
}

func newCRDPlanCmd(streams Streams) *cobra.Command {
	var req crdPlanRequest
	cmd := &cobra.Command{
		Use:   "plan NAME --storage VERSION --kubeconfig FILE",
		Short: "Print the steps to another storage version, each with its check and its inverse",
		Long: `plan prints the steps that migrate the objects of a resource to another storage version and, with
--retire, remove old versions from its CRD. It only reads. --out writes the plan to a file, for crd apply.

--with names a file with the new CRD: a version that the cluster does not have yet, and the conversion, are taken from
it.

Without --storage, objects that are stored in other versions than the present storage version are rewritten. For a
built-in resource, as deployments.apps, there is nothing else to do.

Exit codes: 0 planned, 1 could not finish, 2 bad usage, or a goal that cannot be reached, 3 planned, with a warning to
read first, 130 interrupted.`,
		Example: `  fusionctl crd plan pizzas.restaurant.example.com --storage v1 --kubeconfig modern.conf --spec fused.yaml --out pizzas.plan
  fusionctl crd plan pizzas.restaurant.example.com --storage v1 --with pizzas-v1.yaml --retire v1alpha1 --wait 72h --kubeconfig modern.conf
  fusionctl crd plan deployments.apps --kubeconfig admin.conf`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.name = args[0]
			return runCRDPlan(cmd.Context(), req, streams)
		},
	}
	crdFlags(cmd, &req.crdRequest)
	flags := cmd.Flags()
	flags.StringVar(&req.storage, "storage", "", "version in which objects are to be stored")
	flags.StringSliceVar(&req.retire, "retire", nil, "versions to remove at the end")
	flags.StringVar(&req.with, "with", "", "file with the CRD from which the new version and its conversion are taken")
	flags.DurationVar(&req.grace, "grace", time.Minute,
		"how long a request may last that an API server began before the switch: its --request-timeout")
	flags.DurationVar(&req.wait, "wait", 0,
		"how long a version is not served before it is removed; 0: until an audit log shows that no client uses it")
	flags.StringVar(&req.out, "out", "", "file for the plan")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runCRDPlan(ctx context.Context, req crdPlanRequest, streams Streams) error {
	if req.grace < 0 || req.wait < 0 {
		return usagef("--grace and --wait: want no negative time")
	}
	goal := migrate.Goal{Storage: req.storage, Retire: req.retire, Grace: req.grace, Wait: req.wait}
	if req.with != "" {
		files, err := readDefinitions(streams, req.with)
		if err != nil {
			return err
		}
		if goal.With = files[req.name]; goal.With == nil {
			return usagef("%s: does not define %s", req.with, req.name)
		}
	}
	c, err := req.openCluster(ctx, streams)
	if err != nil {
		return err
	}
	defer c.close()
	o, err := c.Observe(ctx, req.name)
	if err != nil {
		return crdError(err)
	}
	p, err := migrate.New(o, goal)
	if err != nil {
		return badInput(err, "")
	}
	if p.Seen, err = c.Look(ctx, o, time.Now()); err != nil {
		return crdError(err)
	}
	if req.out != "" {
		data, err := json.MarshalIndent(p, "", "  ")
		if err == nil {
			err = writePlan(req.out, append(data, '\n'))
		}
		if err != nil {
			return err
		}
	}
	if err := printCRDPlan(streams.Out, req.output, p); err != nil {
		return err
	}
	if len(p.Warnings) > 0 {
		return errAttention
	}
	return nil
}

func printCRDPlan(w io.Writer, output string, p *migrate.Plan) error {
	if printed, err := printDocument(w, output, p); printed {
		return err
	}
	return printSteps(w, p)
}

func printSteps(w io.Writer, p *migrate.Plan) error {
	if len(p.Steps) == 0 {
		_, err := visible.Fprintf(w, "%s: nothing to do, everything is stored as %s\n", p.Resource.Name, p.Storage)
		return err
	}
	visible.Fprintf(w, "%s: from %s to %s\n\n", p.Resource.Name, p.From, p.Storage)
	err := printStepTable(w, p.Steps)
	printWarnings(w, p.Warnings)
	return err
}

func printWarnings(w io.Writer, warnings []string) {
	for _, warning := range warnings {
		visible.Fprintf(w, "\nwarning: %s\n", warning)
	}
}

func printStepTable(w io.Writer, steps []migrate.Step) error {
	return printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "STEP\tWHAT\tCHECK\tINVERSE")
		for i, s := range steps {
			safe := ""
			if s.Safe {
				safe = " (safe to stay here)"
			}
			visible.Fprintf(t, "%d %s\t%s\t%s\t%s%s\n", i+1, s.ID(), s.Does, s.Check, dash(s.Inverse), safe)
		}
	})
}

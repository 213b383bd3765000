package cli

import (
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type planRequest struct {
	file   string
	output string
	all    bool
}

// planDocument is a plan as JSON and YAML show it.
type planDocument struct {
	Schema string `json:"schema"`
	*plan.Plan
}

func newPlanCmd(streams Streams) *cobra.Command {
	var req planRequest
	cmd := &cobra.Command{
		Use:   "plan SPEC",
		Short: "Print the resources, locations, owners, controllers and flags of a spec",
		Long: `plan prints what follows from a spec: where each side keeps each resource and which side writes it, which
controllers run and why, and every argument of every component with its reason.

Exit codes: 0 done, 2 bad spec.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runPlan(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	cmd.Flags().BoolVar(&req.all, "all", false,
		"in the table, also list resources that neither version serves by default")
	return cmd
}

func runPlan(req planRequest, streams Streams) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	document := planDocument{Schema: plan.Schema, Plan: p}
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	return printPlan(streams.Out, p, req.all)
}

func printPlan(w io.Writer, p *plan.Plan, all bool) error {
	visible.Fprintf(w, "%s: %s layout, legacy %s, modern %s, kubelet %s\n\n", p.Name, p.Layout, p.Legacy.Version,
		p.Modern.Version, p.Kubelet)
	sections := []func(io.Writer){
		func(t io.Writer) { printStores(t, p) },
		func(t io.Writer) { printResources(t, p, all) },
		func(t io.Writer) { printControllers(t, p) },
		func(t io.Writer) { printLocks(t, p) },
		func(t io.Writer) { printJoint(t, p) },
		func(t io.Writer) { printComponents(t, p) },
	}
	if p.Gateway != nil {
		sections = append(sections, func(t io.Writer) { printGateway(t, p.Gateway) })
	}
	if p.Pods != nil {
		sections = append(sections, func(t io.Writer) { printPods(t, p.Pods) })
	}
	for i, section := range sections {
		if i > 0 {
			visible.Fprintln(w)
		}
		if err := printTable(w, section); err != nil {
			return err
		}
	}
	return nil
}

func printStores(t io.Writer, p *plan.Plan) {
	visible.Fprintln(t, "STORE\tDEFAULT OF\tRUN BY\tENDPOINTS")
	for _, s := range p.Stores {
		var of []string
		for _, side := range pair.Sides() {
			if p.Side(side).Store == s.Name {
				of = append(of, string(side))
			}
		}
		by := "not in this plan"
		if s.Managed != nil {
			by = "this plan, etcd " + s.Managed.Version
		}
		visible.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, dash(strings.Join(of, ",")), by, strings.Join(s.Endpoints, ","))
	}
}

func printResources(t io.Writer, p *plan.Plan, all bool) {
	visible.Fprintln(t, "RESOURCE\tKEY\tOWNER\tLEGACY\tMODERN\tWHY")
	for _, r := range p.Resources {
		if !all && !r.Pseudo && len(r.Legacy.Serves) == 0 && len(r.Modern.Serves) == 0 {
			continue
		}
		visible.Fprintf(t, "%s\t%s/%s\t%s\t%s\t%s\t%s\n", r.Name, p.Prefix, r.Key, r.Owner, place(r.Legacy),
			place(r.Modern), r.Why)
	}
	visible.Fprintf(t, "%s\t%s/GROUP/RESOURCE\t%s\t%s\t%s\tevery version keeps them in its default store\n",
		p.CustomResources.Name, p.Prefix,
		p.CustomResources.Owner, place(p.CustomResources.Legacy), place(p.CustomResources.Modern))
}

// place is a side's store and the version that it stores: core:apps/v1.
func place(s pair.View) string {
	switch {
	case s.Store == "":
		return "-"
	case s.StoredAs == "":
		return s.Store
	default:
		return s.Store + ":" + s.StoredAs
	}
}

func printControllers(t io.Writer, p *plan.Plan) {
	visible.Fprintln(t, "SIDE\tCONTROLLER\tRUNS\tWHY")
	for _, c := range p.Controllers {
		visible.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Side, c.Name, map[bool]string{true: "on", false: "off"}[c.On], c.Why)
	}
}

func printLocks(t io.Writer, p *plan.Plan) {
	visible.Fprintln(t, "SIDE\tCOMPONENT\tLOCK\tNAME")
	for _, side := range pair.Sides() {
		for _, l := range p.Side(side).Locks {
			visible.Fprintf(t, "%s\t%s\t%s\t%s/%s\n", l.Side, l.Component, l.Resource, l.Namespace, l.Name)
		}
	}
}

// printJoint says what the controllers that see both sides are for, or that there are none.
func printJoint(t io.Writer, p *plan.Plan) {
	visible.Fprintln(t, "CONTROLLERS OF BOTH SIDES\tWHY")
	if p.Joint == nil {
		visible.Fprintf(t, "%s\t%s\n", "none", "no component is missing without them, or the spec disables them")
		return
	}
	for _, why := range p.Joint.Why {
		visible.Fprintf(t, "%s\t%s\n", plan.JointControllers, why)
	}
}

// printGateway says where one endpoint over both sides is.
func printGateway(t io.Writer, g *plan.Gateway) {
	visible.Fprintln(t, "GATEWAY\tNEW OBJECTS\tWHY")
	if !g.Serves() {
		visible.Fprintf(t, "none\t%s\tthe spec disables it, or the plan is for a cluster\n", g.Create)
		return
	}
	visible.Fprintf(t, "%s\t%s\tspec.gateway: one endpoint over both API servers\n", g.Component.Server, g.Create)
}

func printComponents(t io.Writer, p *plan.Plan) {
	for i, c := range p.Components {
		if i > 0 {
			visible.Fprintln(t)
		}
		visible.Fprintf(t, "%s on %s: %s\n", c.Name, c.Host, c.Image)
		for _, a := range c.Args {
			visible.Fprintf(t, "  %s\t%s\n", a, a.Why)
		}
	}
}

func printPods(t io.Writer, p *plan.Pods) {
	s := p.Service
	visible.Fprintln(t, "PODS OF THE MODERN SIDE\t\tWHY")
	visible.Fprintf(t, "service\t%s/%s, %s\tcreated through the %s server: %s\n", s.Namespace, s.Name,
		net.JoinHostPort(s.ClusterIP, strconv.Itoa(s.Port)), s.Side, s.Why)
	visible.Fprintf(t, "endpoints\t%s, port %d\tthe modern API servers that are ready\n",
		strings.Join(s.Addresses, ","), s.Target)
	visible.Fprintf(t, "tokens\t%s\t%s\n", p.Tokens, p.TokensWhy)
	visible.Fprintf(t, "mutated by\t%s, failure policy %s\t%s\n", p.Admission.By, p.Admission.FailurePolicy,
		p.Admission.Why)
	visible.Fprintf(t, "label\t%s=%s\tdistinguishes them from the legacy side's\n", p.SideLabel, spec.SideLabelModern)
	visible.Fprintf(t, "unknown fields\t%s\tthe legacy side drops them\n", p.UnknownFields)
}

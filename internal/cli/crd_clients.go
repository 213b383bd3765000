package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type crdClientsRequest struct {
	name      string
	versions  []string
	auditLogs []string
	since     string
	output    string
}

type crdClientsDocument struct {
	Schema  string           `json:"schema"`
	Name    string           `json:"name"`
	From    time.Time        `json:"from"` // which time the logs cover
	To      time.Time        `json:"to"`
	Clients []migrate.Client `json:"clients"`
}

func newCRDClientsCmd(streams Streams) *cobra.Command {
	var req crdClientsRequest
	cmd := &cobra.Command{
		Use:   "clients NAME --version VERSION --audit-log FILE",
		Short: "List the clients that still use a version, from audit logs",
		Long: `clients reads audit logs of an API server, JSON lines of audit.k8s.io, also compressed with gzip, and
lists the clients that requested a resource in the version: user and program, how often, and when last. It reads a
stream; its memory grows with the number of different clients.

A client that gets 404 keeps requesting a version that is no longer served.

Exit codes: 0 no client, 1 could not finish, 2 bad usage, or a file that is not an audit log to its end, 3 some client
uses it, 130 interrupted.`,
		Example: `  fusionctl crd clients pizzas.restaurant.example.com --version v1alpha1 --audit-log audit.log --audit-log audit-1.log.gz
  fusionctl crd clients deployments.extensions --version v1beta1 --audit-log audit.log --since 2026-11-01T00:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.name = args[0]
			return runCRDClients(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.versions, "version", nil, "versions to look for (default all)")
	flags.StringArrayVar(&req.auditLogs, "audit-log", nil, "file to read, - for standard input; repeat for more")
	flags.StringVar(&req.since, "since", "", "leave out requests before this time, as 2026-11-01T00:00:00Z")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runCRDClients(ctx context.Context, req crdClientsRequest, streams Streams) error {
	if len(req.auditLogs) == 0 {
		return usagef("--audit-log FILE is required")
	}
	var since time.Time
	if req.since != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, req.since); err != nil {
			return usagef("--since %q: want a time as 2026-11-01T00:00:00Z", req.since)
		}
	}
	plural, group := migrate.SplitName(req.name)
	clients := migrate.NewClients(migrate.Resource{Name: req.name, Plural: plural, Group: group}, req.versions, since)
	for _, file := range req.auditLogs {
		if err := readAuditLog(ctx, streams, file, func(e policy.AuditEvent) error {
			return clients.Add(auditedRequest(e))
		}); err != nil {
			return err
		}
	}
	covered := clients.Requests()
	document := crdClientsDocument{Schema: "fusionctl/crd-clients/v1", Name: req.name, From: covered.From,
		To: covered.To, Clients: clients.List()}
	if covered.From.IsZero() {
		return badInput(fmt.Errorf("%s: no event in the audit logs", strings.Join(req.auditLogs, ", ")),
			"a log without events does not show that no client uses the version")
	}
	if err := printCRDClients(streams.Out, req.output, document); err != nil {
		return err
	}
	if len(document.Clients) > 0 {
		return errAttention
	}
	return nil
}

// auditedRequest is what an event says of one request.
func auditedRequest(e policy.AuditEvent) migrate.Request {
	q := migrate.Request{
		Time: cmp.Or(e.RequestTime, e.StageTime, e.Timestamp), Verb: e.Verb, User: e.User.Username, Agent: e.UserAgent,
		IsStarting: e.Stage == "RequestReceived" || e.Stage == "ResponseStarted",
	}
	if e.ImpersonatedUser != nil {
		q.User = e.ImpersonatedUser.Username
	}
	if o := e.ObjectRef; o != nil {
		q.Group, q.Version, q.Plural, q.Namespace = o.APIGroup, o.APIVersion, o.Resource, o.Namespace
	}
	if e.ResponseStatus != nil {
		q.Code = e.ResponseStatus.Code
	}
	return q
}

func printCRDClients(w io.Writer, output string, d crdClientsDocument) error {
	if printed, err := printDocument(w, output, d); printed {
		return err
	}
	if len(d.Clients) > 0 {
		if err := printTable(w, func(t io.Writer) {
			visible.Fprintln(t, "USER\tPROGRAM\tVERSION\tREQUESTS\tVERBS\t404\tLAST")
			for _, c := range d.Clients {
				visible.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\n", dash(c.User), dash(c.Agent), c.Version, c.Requests,
					verbCounts(c.Verbs), c.NotFound, c.Last.UTC().Format(time.RFC3339))
			}
		}); err != nil {
			return err
		}
		visible.Fprintln(w)
	}
	_, err := visible.Fprintf(w, "%s: %s; the logs cover %s to %s\n", d.Name, prose.Counted(len(d.Clients), "client"),
		d.From.UTC().Format(time.RFC3339), d.To.UTC().Format(time.RFC3339))
	return err
}

// verbCounts is "get 3, list 1".
func verbCounts(verbs map[string]int) string {
	var texts []string
	for verb, n := range verbs {
		texts = append(texts, fmt.Sprintf("%s %d", verb, n))
	}
	slices.Sort(texts)
	return dash(strings.Join(texts, ", "))
}

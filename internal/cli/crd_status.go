package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/migrate"
)

type crdStatusRequest struct {
	crdRequest
	names  []string
	output string
}

type crdStatusDocument struct {
	Schema    string           `json:"schema"`
	Resources []migrate.Status `json:"resources"`
}

func newCRDStatusCmd(streams Streams) *cobra.Command {
	var req crdStatusRequest
	cmd := &cobra.Command{
		Use:   "status [NAME...] --kubeconfig FILE",
		Short: "Show which versions are served and stored, and what blocks retiring one",
		Long: `status shows for each CRD, or for those named, which versions are served, which one is the storage
version, which ones are in status.storedVersions, and in which ones objects are stored. Only the store has the last:
--spec or --endpoints or --snapshot name it; without it, the column is unknown.

Conversion is tested: an object is read in every served version. A NAME may be a built-in resource, as deployments.apps.

Exit codes: 0 done, 1 could not finish, 2 bad usage or no such resource, 3 an object is stored in a version that the CRD
does not have, or conversion is broken, 130 interrupted.`,
		Example: `  fusionctl crd status --kubeconfig modern.conf
  fusionctl crd status pizzas.restaurant.example.com --kubeconfig modern.conf --spec fused.yaml
  fusionctl crd status deployments.apps --kubeconfig admin.conf --endpoints https://10.0.0.11:2379 --ca ca.crt --cert etcd.crt --key etcd.key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.names = args
			return runCRDStatus(cmd.Context(), req, streams)
		},
		Args: cobra.ArbitraryArgs,
	}
	crdFlags(cmd, &req.crdRequest)
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runCRDStatus(ctx context.Context, req crdStatusRequest, streams Streams) error {
	c, err := req.openCluster(ctx, streams)
	if err != nil {
		return err
	}
	defer c.close()
	document := crdStatusDocument{Schema: "fusionctl/crd-status/v1", Resources: []migrate.Status{}}
	if len(req.names) == 0 {
		definitions, err := c.Definitions(ctx)
		if err != nil {
			return err
		}
		for _, d := range definitions {
			o, err := c.ObserveDefinition(ctx, d)
			if err != nil {
				return crdError(err)
			}
			document.Resources = append(document.Resources, migrate.NewStatus(o))
		}
	}
	for _, name := range req.names {
		o, err := c.Observe(ctx, name)
		if err != nil {
			return crdError(err)
		}
		document.Resources = append(document.Resources, migrate.NewStatus(o))
	}
	if err := printCRDStatus(streams.Out, req.output, document); err != nil {
		return err
	}
	if slices.ContainsFunc(document.Resources, func(s migrate.Status) bool { return s.NeedsAttention() }) {
		return errAttention
	}
	return nil
}

func printCRDStatus(w io.Writer, output string, document crdStatusDocument) error {
	if printed, err := printDocument(w, output, document); printed {
		return err
	}
	if len(document.Resources) == 0 {
		_, err := visible.Fprintln(w, "there are no CRDs")
		return err
	}
	if err := printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "RESOURCE\tVERSION\tSERVED\tWRITTEN\tREMEMBERED\tSTORED\tBLOCKS ITS REMOVAL")
		for _, s := range document.Resources {
			name := s.Name
			for _, v := range s.Versions {
				stored := "unknown"
				if v.Objects != nil {
					stored = fmt.Sprint(*v.Objects)
				}
				remembered := yesNo(v.Remembered)
				if s.BuiltIn {
					remembered = "-"
				}
				visible.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, v.Name, yesNo(v.Served), yesNo(v.Storage),
					remembered, stored, dash(strings.Join(v.Blocks, "; ")))
				name = ""
			}
		}
	}); err != nil {
		return err
	}
	visible.Fprintln(w)
	for _, s := range document.Resources {
		printCRDNotes(w, s)
	}
	return nil
}

// printCRDNotes writes what does not fit into a row.
func printCRDNotes(w io.Writer, s migrate.Status) {
	if s.Stored != nil {
		visible.Fprintf(w, "%s: %s in store %s at revision %d\n", s.Name,
			prose.Counted(int(s.Stored.Objects()), "object"),
			s.Stored.Store, s.Stored.Revision)
		if s.Stored.Encrypted > 0 {
			visible.Fprintf(w, "%s: %d of them are encrypted, and their version is unknown\n", s.Name,
				s.Stored.Encrypted)
		}
		if s.Stored.Unreadable > 0 {
			visible.Fprintf(w, "%s: %d of them cannot be read, the first is %s\n", s.Name, s.Stored.Unreadable,
				s.Stored.Example)
		}
	} else {
		visible.Fprintf(w, "%s: what is stored is unknown: %s; --spec, --endpoints or --snapshot names one\n", s.Name,
			s.Unknown)
	}
	if s.Strategy == migrate.StrategyWebhook {
		visible.Fprintf(w, "%s: conversion through %s: %s", s.Name, s.Webhook, s.Health.State)
		if s.Health.Detail != "" {
			visible.Fprintf(w, ": %s", s.Health.Detail)
		}
		visible.Fprintln(w)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

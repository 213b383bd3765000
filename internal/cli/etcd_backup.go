package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/etcd/restore"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type etcdBackupRequest struct {
	file, source  string
	endpoints     []string
	ca, cert, key string
	out, result   string
	keep          int
	output        string
}

func newEtcdBackupCmd(streams Streams) *cobra.Command {
	var req etcdBackupRequest
	cmd := &cobra.Command{
		Use:   "backup SPEC --out DIR",
		Short: "Save the stores into a directory, and verify what was saved",
		Long: `backup saves a snapshot of every store of a spec into a new directory below --out, named by the time, and
reads each to its end as etcd check does. What cannot be read to its end is no backup, and is removed. Then the oldest
backups but --keep are removed.

The files hold the Secrets of both sides: they are for their owner alone, and --out is to be a directory into which no
other user can write. Findings about what is stored are counted; they do not make a backup bad.

Exit codes: 0 done, 1 no backup was made, 2 bad usage or a bad spec, 130 interrupted.`,
		Example: `  fusionctl etcd backup fused.yaml --out /var/backups/fused --keep 14`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.file = args[0]
			}
			return runEtcdBackup(cmd.Context(), req, streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.out, "out", "", "directory of the backups")
	f.IntVar(&req.keep, "keep", spec.DefaultBackupsKept, "how many backups are kept")
	f.StringArrayVar(&req.endpoints, "endpoints", nil,
		"save a store at other endpoints than the spec's: STORE=URL[,URL...]; repeat per store")
	f.StringVar(&req.ca, "ca", "", "file of the CA that signed the stores' certificates, in place of the spec's")
	f.StringVar(&req.cert, "cert", "", "file of the client certificate, in place of the spec's")
	f.StringVar(&req.key, "key", "", "file of the client certificate's key, in place of the spec's")
	f.StringVar(&req.source, "source", "", "file in which fusionctl operator says what is saved, in place of SPEC")
	f.StringVar(&req.result, "result", "", "file into which the result goes, too, as JSON: of a pod, "+
		"/dev/termination-log")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

// read is what is saved.
func (r *etcdBackupRequest) read(streams Streams) (backup.Source, error) {
	var s backup.Source
	if r.source != "" {
		data, err := readInput(streams, r.source, specLimitBytes)
		if err != nil {
			return s, err
		}
		if err := json.Unmarshal(data, &s); err != nil {
			return s, badInput(fmt.Errorf("%s: %w", r.source, err), "")
		}
		return s, nil
	}
	p, err := loadPlan(streams, r.file)
	if err != nil {
		return s, err
	}
	urls, err := parseStoreURLs(r.endpoints, storeNames(p))
	if err != nil {
		return s, err
	}
	s = backup.SourceOf(p)
	s.Stores = append([]plan.Store(nil), s.Stores...)
	for i := range s.Stores {
		store := &s.Stores[i]
		if at := urls[store.Name]; len(at) > 0 {
			store.Endpoints = at
		}
		files := spec.TLS{}
		if store.TLS != nil {
			files = *store.TLS
		}
		override(&files.CA, r.ca)
		override(&files.Cert, r.cert)
		override(&files.Key, r.key)
		if store.TLS = &files; !strings.HasPrefix(store.Endpoints[0], "https://") {
			store.TLS = nil
		}
	}
	return s, nil
}

func runEtcdBackup(ctx context.Context, req etcdBackupRequest, streams Streams) error {
	switch {
	case (req.file == "") == (req.source == ""):
		return usagef("want SPEC")
	case req.out == "":
		return usagef("--out is empty: want the directory of the backups")
	case req.keep < 1 || req.keep > spec.MostBackupsKept:
		return usagef("--keep %d: want 1 to %d", req.keep, spec.MostBackupsKept)
	}
	source, err := req.read(streams)
	if err != nil {
		return err
	}
	limitMemory(ctx)
	made, kept, err := backup.Save(ctx, source, req.out, req.keep, time.Now())
	document := backup.NewResult(made, kept, err)
	if req.result != "" {
		text, told := json.Marshal(document)
		if told == nil {
			told = os.WriteFile(req.result, text, 0o600) // in place: a kubelet mounts the file
		}
		if err == nil && told != nil {
			err = told
		}
	}
	if err != nil {
		return withHint(err, storeHint(err))
	}
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	return printTable(streams.Out, func(t io.Writer) {
		visible.Fprintln(t, "BACKUP\tSTORE\tREVISION\tKEYS\tBYTES")
		for _, s := range made.Stores {
			visible.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", made.Name, s.Name, s.Revision, s.Keys, s.Bytes)
		}
	})
}

type etcdRestoreRequest struct {
	member restore.Member
	back   bool
}

func newEtcdRestoreCmd(streams Streams) *cobra.Command {
	var req etcdRestoreRequest
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT --data-dir DIR",
		Short: "Put a stopped member of a store back to a snapshot, and keep what it had",
		Long: `restore writes the data of a member from a snapshot while no etcd runs with it. What the member had is kept
beside it, as before-ID; --back puts that back. Run it for every member, with the same snapshot, then start them.

Revisions go on behind those of the snapshot, by 1000000000, and older ones are compacted: clients of both API servers
list again. Stop the API servers before, and start them after.

Exit codes: 0 done, 1 could not, 2 bad usage, 130 interrupted.`,
		Example: `  fusionctl etcd restore core.db --data-dir /var/lib/etcd-core --name cp-1 --id 1 --token core-1 \
    --peer-url https://10.0.0.11:2380 --cluster cp-1=https://10.0.0.11:2380,cp-2=https://10.0.0.12:2380
  fusionctl etcd restore --back --data-dir /var/lib/etcd-core --id 1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.member.Snapshot = args[0]
			}
			return runEtcdRestore(cmd.Context(), req, streams)
		},
	}
	f, m := cmd.Flags(), &req.member
	f.StringVar(&m.DataDir, "data-dir", "", "of the member, as etcd has it")
	f.StringVar(&m.ID, "id", "", "names this restore; done again with the same one, it changes nothing")
	f.StringVar(&m.Name, "name", "", "of the member, as etcd has it")
	f.StringVar(&m.PeerURL, "peer-url", "", "of the member, as etcd has it in --initial-advertise-peer-urls")
	f.StringVar(&m.Cluster, "cluster", "", "all members, as etcd has them in --initial-cluster")
	f.StringVar(&m.Token, "token", "", "of the cluster; another one than before, the same for all members")
	f.BoolVar(&req.back, "back", false, "put back what the member had before the restore of that --id")
	return cmd
}

func runEtcdRestore(ctx context.Context, req etcdRestoreRequest, streams Streams) error {
	m := &req.member
	switch {
	case m.DataDir == "":
		return usagef("--data-dir is empty: want the data directory of the member")
	case !spec.IsLabel(m.ID):
		return usagef("--id %q: want lower-case letters, digits and dashes between them", m.ID)
	case req.back && m.Snapshot != "":
		return usagef("--back takes no snapshot: it puts back what the member had")
	case req.back:
		if err := m.PutBack(); err != nil {
			return err
		}
		visible.Fprintf(streams.Out, "%s has what it had before %s\n", m.DataDir, m.ID)
		return nil
	case m.Snapshot == "" || m.Name == "" || m.PeerURL == "" || m.Cluster == "" || m.Token == "":
		return usagef("want SNAPSHOT, --name, --peer-url, --cluster and --token")
	}
	done := m.Is(false) == nil // by a process before: a pod that was killed is followed by another one
	if err := m.Restore(ctx); err != nil {
		return err
	}
	if done {
		visible.Fprintf(streams.Out, "%s has what was restored by --id %s before, and nothing was done; another --id "+
			"restores another snapshot\n", m.DataDir, m.ID)
		return nil
	}
	visible.Fprintf(streams.Out, "%s has what %s has; before-%s there is what it had\n", m.DataDir, m.Snapshot, m.ID)
	return nil
}

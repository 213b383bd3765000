package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

type pkiRequest struct {
	file                string
	caCert, caKey       string
	etcdCert, etcdKey   string
	proxyCert, proxyKey string
	serviceAccountKey   string
	out                 string
	target              string
	days                int
	now                 time.Time
}

func newPKICmd(streams Streams) *cobra.Command {
	req := pkiRequest{}
	cmd := &cobra.Command{
		Use:   "pki SPEC [--ca-cert FILE --ca-key FILE] --out DIR",
		Short: "Issue the certificates of a plan, from the cluster's own CA",
		Long: `pki issues the certificates of the components of a plan: serving certificates with the right names,
client certificates with the right user, none of them in system:masters. Files are written to DIR/HOST/PATH, ready to be
copied to each host. Existing files are kept, keys have mode 0600, and only their owner can read the directories that
pki creates. Certificates that the cluster has already are not issued again; the service-account key of the legacy side
is reused, so that its tokens stay valid on both sides.

Exit codes: 0 done, 1 could not write, 2 bad spec, bad key files, or a DIR where other users can write, 3 a certificate
that was kept is not the plan's: without all its names, of another user, group or CA, or expired; or a key that was kept
is empty, another certificate's, or readable by others.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.now = args[0], time.Now()
			return runPKI(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.caCert, "ca-cert", "", "certificate of the cluster's CA")
	flags.StringVar(&req.caKey, "ca-key", "", "private key of the cluster's CA")
	flags.StringVar(&req.etcdCert, "etcd-ca-cert", "",
		"certificate of the CA of the stores, if it is another one")
	flags.StringVar(&req.etcdKey, "etcd-ca-key", "", "private key of the CA of the stores")
	flags.StringVar(&req.proxyCert, "front-proxy-ca-cert", "",
		"certificate of the CA of the aggregation layer, if there is one")
	flags.StringVar(&req.proxyKey, "front-proxy-ca-key", "", "private key of the CA of the aggregation layer")
	flags.StringVar(&req.serviceAccountKey, "service-account-key", "",
		"private key with which the legacy side signs tokens; without it, a new one is created")
	flags.StringVar(&req.out, "out", "", "directory to write below")
	enumFlag(cmd, &req.target, "target", "",
		"target of the plan; certificates for hosted have the names of services and pods", render.Targets...)
	flags.IntVar(&req.days, "days", 365, "validity of certificates")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic("cli: internal error: " + err.Error())
	}
	cmd.AddCommand(newPKIShowCmd(streams))
	return cmd
}

func runPKI(ctx context.Context, req pkiRequest, streams Streams) error {
	if req.days < 1 || req.days > 36500 {
		return usagef("--days=%d: want 1 to 36500", req.days)
	}
	p, err := loadPlanFor(streams, req.file, render.Target(req.target).Plan())
	if err != nil {
		return err
	}
	if req.caCert == "" && !pki.MakesAuthority(p) {
		return badInput(errors.New("--ca-cert and --ca-key are missing"), "they are the cluster's CA, "+p.PKI.CA)
	}
	if filetree.IsDir(req.out) { // what is there is kept: a CA or a key of another user would be
		if err := filetree.Private(req.out); err != nil {
			return badInput(err, "")
		}
	}
	given, err := pkiGiven(req, p, streams)
	if err != nil {
		return err
	}
	day := 24 * time.Hour
	files, err := pki.Issue(p, given, pki.LifetimeOf(req.now, time.Duration(req.days)*day),
		pki.LifetimeOf(req.now, 10*365*day))
	if err != nil {
		return badInput(err, "fusionctl pki --help names the flags for further authorities")
	}
	tree := make([]filetree.File, len(files))
	for i, f := range files {
		tree[i] = filetree.File{Path: path.Join(f.Host, f.Path), Mode: 0o644, Data: f.Data}
		if f.Secret {
			tree[i].Mode = 0o600
		}
	}
	if err := filetree.Add(ctx, req.out, tree); err != nil {
		return err
	}
	for _, f := range tree {
		visible.Fprintln(streams.Out, filepath.Join(req.out, filepath.FromSlash(f.Path)))
	}
	visible.Fprintf(streams.Err, "%d files written below %s; existing ones were kept\n", len(files), req.out)
	return printKept(p, req, given.Authorities, streams)
}

// printKept reports the files that were kept and do not do.
func printKept(p *plan.Plan, req pkiRequest, given map[string]*pki.Authority, streams Streams) error {
	tree := filetree.DirFS(req.out)
	kept, err := pki.KeptCertificates(p, tree, given, req.now)
	if err != nil {
		return err
	}
	keys, err := pki.KeptKeys(p, tree)
	kept = append(kept, keys...)
	for _, k := range kept {
		visible.Fprintf(streams.Err, "%s: was kept, and %s\n", filepath.Join(req.out, filepath.FromSlash(k.File)),
			k.Why)
	}
	if err == nil && len(kept) > 0 {
		return errAttention
	}
	return err
}

// pkiGiven reads the authorities and keys that exist. The authority of the stores may be the cluster's.
func pkiGiven(req pkiRequest, p *plan.Plan, streams Streams) (pki.Given, error) {
	given := pki.Given{Authorities: map[string]*pki.Authority{}, Has: func(host, path string) bool {
		_, err := os.Lstat(filepath.Join(req.out, host, filepath.FromSlash(path)))
		return err == nil
	}}
	authority := func(path, flag, cert, key string) error {
		if (cert == "") != (key == "") {
			return usagef("--%s-cert and --%s-key: want both, or none", flag, flag)
		}
		if cert == "" {
			return nil
		}
		certificate, err := readInput(streams, cert, keyLimitBytes)
		if err != nil {
			return err
		}
		private, err := readInput(streams, key, keyLimitBytes)
		if err != nil {
			return err
		}
		a, err := pki.ParseAuthority(certificate, private)
		if err != nil {
			return badInput(fmt.Errorf("%s, %s: %w", cert, key, err), "")
		}
		given.Authorities[path] = a
		return nil
	}
	stores := slices.DeleteFunc(slices.Clone(p.Stores), func(s plan.Store) bool { return s.TLS == nil })
	err := authority(p.PKI.CA, "ca", req.caCert, req.caKey)
	if err == nil && len(stores) > 0 {
		err = authority(stores[0].TLS.CA, "etcd-ca", req.etcdCert, req.etcdKey)
	}
	if err == nil {
		err = authority(p.PKI.RequestHeaderCA, "front-proxy-ca", req.proxyCert, req.proxyKey)
	}
	if err == nil && req.serviceAccountKey != "" {
		given.ServiceAccountKey, err = readInput(streams, req.serviceAccountKey, keyLimitBytes)
	}
	return given, err
}

type pkiDocument struct {
	Schema       string            `json:"schema"`
	Certificates []pki.Certificate `json:"certificates"`
}

func newPKIShowCmd(streams Streams) *cobra.Command {
	var output string
	var warnDays int
	cmd := &cobra.Command{
		Use:   "show DIR",
		Short: "List the certificates below a directory, first to expire first",
		Long: `show lists every certificate below a directory: its names, its issuer, its expiry. Keys are not opened.

Exit codes: 0 done, 2 no such directory or a file that cannot be read, 3 a certificate has expired or expires within
--warn-days.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return runPKIShow(args[0], output, warnDays, time.Now(), streams)
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "table", "json", "yaml")
	cmd.Flags().IntVar(&warnDays, "warn-days", 30, "certificates that expire sooner make the exit code 3")
	return cmd
}

func runPKIShow(dir, output string, warnDays int, now time.Time, streams Streams) error {
	base, root := dir, "."
	if !filetree.IsDir(dir) {
		base, root = filepath.Split(filepath.Clean(dir))
	}
	rows, err := pki.List(filetree.DirFS(filepath.Clean(base)), root, now)
	if err == nil && len(rows) == 0 {
		err = errors.New("no certificates below it")
	}
	if err != nil {
		return badInput(fmt.Errorf("reading %s: %w", dir, err), "")
	}
	for i := range rows {
		rows[i].File = filepath.Join(base, filepath.FromSlash(rows[i].File))
	}
	document := pkiDocument{Schema: "fusionctl/pki-show/v1", Certificates: rows}
	printed, err := printDocument(streams.Out, output, document)
	if !printed {
		err = printTable(streams.Out, func(t io.Writer) {
			visible.Fprintln(t, "ENDS\tDAYS\tNAME\tGROUPS\tISSUER\tFILE")
			for _, r := range rows {
				visible.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", r.NotAfter.UTC().Format(time.DateOnly), r.Days,
					r.CommonName, dash(strings.Join(r.Organizations, ",")), r.Issuer, r.File)
			}
		})
	}
	if err == nil && slices.ContainsFunc(rows, func(r pki.Certificate) bool { return r.Days < warnDays }) {
		return errAttention
	}
	return err
}

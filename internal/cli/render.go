package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/playbook"
)

type renderRequest struct {
	file   string
	out    string
	target string
	books  bool // with playbooks
	clouds bool // with user data for cloud-init
	host   string
	diff   string // compare with this directory instead of writing
	verify string // judge the files of this tree instead of writing
	output string // of the comparison, of the judgement
	now    time.Time
}

func newRenderCmd(streams Streams) *cobra.Command {
	var req renderRequest
	cmd := &cobra.Command{
		Use:   "render SPEC --out DIR | --diff DIR | --verify ROOT",
		Short: "Write static pods, systemd units or hosted manifests, with policy, kubeconfigs and a runbook",
		Long: `render writes a directory for each host of a spec, a mirror of its file system: static pod manifests or
systemd units, the policy of the modern API server, kubeconfigs that refer to key files. RUNBOOK.md beside them has the
order of installation, the verification of each step and the way back.

With --target hosted the components run as pods of another cluster: Deployments, a StatefulSet for each managed store,
Services, and Secrets that are referred to and not contained; "fusionctl pki --target hosted" issues certificates with
their names there.

With --target ansible there are also playbooks of Ansible, which install static pods on the hosts step by step, verify
each and can go back; with --target ansible-systemd they install units.

With --target cloud-init (or cloud-init-systemd) there is also user data for cloud-init: hosts that boot with it have
their tree and the spec where the runbook stages them. It starts nothing.

The directory is written as a whole or not at all. One that render wrote from the same spec is replaced, unless a file
was changed or added since. With --out - the manifests go to standard output, as one YAML stream.

Components of a legacy side that runs already are written below HOST/existing: copying the tree replaces none of them.

With --diff DIR nothing is written: the arguments, variables and images of the plan are compared with those of the
static pods or systemd units in DIR, each difference with its reason. DIR is a host's /etc/kubernetes/manifests or
/etc/systemd/system, a copy of its root, or a directory with one of these for each host, by its name.

With --verify ROOT nothing is written: files, keys and certificates of a copy of a host's root, or of a directory with
one for each host, are judged as fusionctl preflight judges those of a host: missing files, modes, expiry, issuers,
names, keys that do not fit, service-account keys that do not match. Links lead nowhere out of ROOT.

Exit codes: 0 written, no difference or nothing found; 1 could not write, or --verify could not look at everything; 2
bad usage, a bad spec, or a directory that is not overwritten; 3 there are differences or errors in the tree, or the
files were written and fusionctl check finds errors in the plan.`,
		Example: `  fusionctl render spec.yaml --out rendered
  fusionctl render spec.yaml --out rendered --target systemd
  fusionctl render spec.yaml --out rendered --target hosted
  fusionctl render spec.yaml --out rendered --target ansible && ansible-playbook -i rendered/ansible/inventory.yml rendered/ansible/site.yml
  fusionctl render spec.yaml --out rendered --target cloud-init
  fusionctl render spec.yaml --out - --host cp-1
  fusionctl render spec.yaml --diff /etc/kubernetes/manifests --host cp-1
  fusionctl render spec.yaml --verify copies`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.now = args[0], time.Now()
			if target, found := playbookTargets[req.target]; found {
				req.target, req.books = string(target), true
			}
			if target, found := cloudTargets[req.target]; found {
				req.target, req.clouds = string(target), true
			}
			switch {
			case req.out != "" && req.diff != "":
				return usagef("--out writes and --diff compares: want one of the two")
			case req.books && (req.out == "" || req.out == "-" || req.host != ""):
				return usagef("--target ansible: want --out DIR, for all hosts")
			case req.clouds && (req.out == "" || req.out == "-" || req.host != "" || req.file == "-"):
				return usagef("--target cloud-init: want --out DIR, for all hosts, and the spec as a file")
			case req.verify != "" && req.out+req.diff != "":
				return usagef("--verify only reads: want it without --out and --diff")
			case req.verify == "" && (req.output == "sarif" || req.output == "html"):
				return usagef("-o %s: only with --verify", req.output)
			case req.verify != "":
				return runRenderVerify(cmd.Context(), req, streams)
			case req.diff != "":
				return runRenderDiff(req, streams)
			}
			return runRender(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.out, "out", "", "directory to write; - is standard output")
	enumFlag(cmd, &req.target, "target", "", "target of the plan", append(slices.Clone(render.Targets),
		slices.Concat(slices.Sorted(maps.Keys(playbookTargets)), slices.Sorted(maps.Keys(cloudTargets)))...)...)
	cmd.Flags().StringVar(&req.host, "host", "", "only this host")
	cmd.Flags().StringVar(&req.diff, "diff", "", "directory of manifests or units to compare with")
	cmd.Flags().StringVar(&req.verify, "verify", "", "root of a host, or directory of one for each, to judge")
	enumFlag(cmd, &req.output, "output", "o", "output format of --diff and --verify; sarif and html of --verify alone",
		"table", "json", "yaml", "sarif", "html")
	return cmd
}

func runRender(ctx context.Context, req renderRequest, streams Streams) error {
	if req.out == "" {
		return badInput(errors.New("--out is missing"),
			"--out DIR names a directory to write, --out - is standard output, --diff DIR compares")
	}
	p, err := loadPlanFor(streams, req.file, render.Target(req.target).Plan())
	if err != nil {
		return err
	}
	report := catalog.Check(p)
	files, err := render.Files(p, render.Options{Target: render.Target(req.target), Host: req.host,
		Spec: specFrom(req.out, req.file), Findings: report.Findings})
	if err != nil {
		return badInput(err, "")
	}
	if req.books {
		if files, err = withPlaybooks(p, req, files); err != nil {
			return badInput(err, "")
		}
	}
	if req.clouds {
		if files, err = withUserData(p, req, files, streams); err != nil {
			return err
		}
	}
	if req.out == "-" {
		err = printManifests(streams.Out, render.Target(req.target), files)
	} else {
		err = writeTree(ctx, req, p, files, streams)
	}
	if err == nil && finding.Worst(report.Findings) >= finding.Error {
		visible.Fprintf(streams.Err, "%s: with this plan the two versions damage each other; fusionctl check "+
			"%s names them\n",
			prose.Counted(finding.Summarize(report.Findings).Errors, "error"), req.file)
		return errAttention
	}
	return err
}

// playbookTargets are the targets with playbooks, and what runs the components then.
var playbookTargets = map[string]render.Target{"ansible": render.StaticPod, "ansible-systemd": render.Systemd}

// cloudTargets are the targets with user data for cloud-init, and what runs the components then.
var cloudTargets = map[string]render.Target{"cloud-init": render.StaticPod, "cloud-init-systemd": render.Systemd}

// withUserData adds what hosts read at their first boot.
func withUserData(p *plan.Plan, req renderRequest, files []render.File, streams Streams) ([]render.File, error) {
	spec, err := readInput(streams, req.file, specLimitBytes)
	if err != nil {
		return nil, err
	}
	data, err := render.UserData(p, files, spec)
	if err != nil {
		return nil, badInput(err, "")
	}
	return append(files, data...), nil
}

// withPlaybooks adds the playbooks of the installation.
func withPlaybooks(p *plan.Plan, req renderRequest, files []render.File) ([]render.File, error) {
	steps, err := transition.New(transition.Setup{},
		transition.Setup{Plan: p, Target: render.Target(req.target)}, transition.Facts{})
	if err != nil {
		return nil, err
	}
	books, err := playbook.Files(steps)
	if errors.Is(err, playbook.ErrHostName) {
		err = badInput(err, "")
	}
	return append(files, books...), err
}

// specFrom is the name of the spec as the commands of the runbook, which lies in the directory, have to write it.
func specFrom(directory, file string) string {
	if file == "-" || directory == "-" || filepath.IsAbs(file) {
		return file
	}
	from, err := filepath.Rel(directory, file)
	if err != nil { // one of the two is absolute
		if from, err = filepath.Abs(file); err != nil {
			return file
		}
	}
	return from
}

// printManifests writes the manifests as one stream of YAML documents, each below the place that it has in the tree.
func printManifests(w io.Writer, target render.Target, files []render.File) error {
	if target == render.Systemd {
		return badInput(errors.New("--out -: systemd units are no YAML stream"), "--out DIR writes them")
	}
	var out bytes.Buffer
	for _, f := range files {
		if path.Ext(f.Path) == ".yaml" || path.Ext(f.Path) == ".conf" {
			fmt.Fprintf(&out, "---\n# Source: %s\n%s", f.Path, f.Data) // as it is: it is data
		}
	}
	_, err := asData(w).Write(out.Bytes())
	return err
}

func writeTree(ctx context.Context, req renderRequest, p *plan.Plan, files []render.File, streams Streams) error {
	tree := make([]filetree.File, len(files))
	for i, f := range files {
		tree[i] = filetree.File(f)
	}
	part := ""
	if req.host != "" {
		part = "host " + req.host
	}
	err := filetree.Write(ctx, req.out, identity(p), part, tree)
	var occupied *filetree.OccupiedError
	switch {
	case errors.As(err, &occupied):
		return badInput(err, "name another directory, or move this one away")
	case err != nil:
		return err
	}
	visible.Fprintf(streams.Err, "wrote %d files to %s\n", len(files), req.out)
	return nil
}

// identity tells clusters apart, also those whose specs have one name: by the CA of their clients and the legacy side's
// store.
func identity(p *plan.Plan) string {
	endpoints := []string{}
	if store := p.Store(p.Legacy.Store); store != nil {
		endpoints = store.Endpoints
	}
	return fmt.Sprintf("%s, with CA %s and store %s", p.Name, p.PKI.CA, strings.Join(endpoints, ","))
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/demo"
	"github.com/kubefusion/fusionctl/internal/localetcd"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

func newDemoCmd(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Run the main job from spec to findings, on two etcd servers inside this process",
		Long: `demo renders the examples, validates the policy of one of them, shows how one endpoint serves both of its
sides, fills two etcd servers as its two API servers would, checks the owner of every key, and shows how three accidents
are found. It describes each step.

It needs no other program, listens on loopback only, and removes its files, also when it is interrupted.

Exit codes: 0 done, 1 a result was not as expected, 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), streams) },
	}
}

// demoExample is the example whose stores are filled.
const demoExample = "vendor-1.6-1.36.yaml"

func runDemo(ctx context.Context, streams Streams) (err error) {
	signal.Ignore(syscall.SIGPIPE) // `demo | head` is to fail at a write, and clean up
	defer signal.Reset(syscall.SIGPIPE)
	dir, err := os.MkdirTemp("", "fusionctl-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out := &checkedWriter{Writer: streams.Out}
	streams.Out = out
	d := &demonstration{streams: streams, dir: dir, stores: map[string]*localetcd.Member{}}
	defer d.stop()
	for _, chapter := range []func(context.Context) error{d.showPlan, d.judgePlans, d.renderExamples, d.validatePolicy,
		d.showRoutes, d.startStores, d.checkStores, d.showAccidents} {
		if err := errors.Join(chapter(ctx), out.err); err != nil {
			return err
		}
	}
	d.say("", "Nothing of this is left behind. `fusionctl init split` writes a spec to start from.")
	return nil
}

// checkedWriter remembers the first error.
type checkedWriter struct {
	io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// demonstration is one run of the demo.
type demonstration struct {
	streams Streams
	dir     string
	plan    *plan.Plan
	stores  map[string]*localetcd.Member
}

// spec is the file of demoExample.
func (d *demonstration) spec() string { return filepath.Join(d.dir, "examples", demoExample) }

func (d *demonstration) showPlan(ctx context.Context) error {
	if err := os.CopyFS(filepath.Join(d.dir, "examples"), examples.FS); err != nil {
		return err
	}
	var err error
	if d.plan, err = loadPlan(d.streams, d.spec()); err != nil {
		return err
	}
	d.say("", fmt.Sprintf("A Kubernetes %s has run for years, customised and relied upon, and must not change. New "+
		"software needs %s. They are to share one set of nodes. What follows runs in this process and in one "+
		"directory, DEMO=%s, which is removed at the end.",
		d.plan.Legacy.Version, d.plan.Modern.Version, d.dir))
	d.say("1. The plan", "A spec names the two versions, the stores, and what users may do through the modern API "+
		"server. The plan follows from it and from the facts about the two versions:")
	out, err := d.run(ctx, exitDone, "graph", d.spec())
	d.show(out)
	return err
}

// refusedExample is the example of a pair that must not share a store.
const refusedExample = "shared-1.15-1.36-refused.yaml"

// judgePlans checks a plan that may run and one that may not.
func (d *demonstration) judgePlans(ctx context.Context) error {
	d.say("2. The rules", "Every known way in which two versions damage each other is a rule. This plan breaks none "+
		"that loses data; the warnings say what to avoid:")
	out, err := d.run(ctx, exitDone, "check", d.spec())
	if err != nil {
		return err
	}
	d.show(abridged(out, 4))
	d.say("", "Another pair, both of its versions on one store, is refused:")
	out, err = d.run(ctx, exitAttention, "check", filepath.Join(d.dir, "examples", refusedExample))
	d.show(abridged(out, 6))
	return err
}

// abridged keeps the first lines and the last of a text.
func abridged(text string, first int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) <= first+2 {
		return text
	}
	return strings.Join(slices.Concat(lines[:first+1], []string{"  ...", lines[len(lines)-1]}), "\n")
}

func (d *demonstration) renderExamples(ctx context.Context) error {
	d.say("3. The manifests", "Static pods, kubeconfigs and the policy of every example without errors, a directory "+
		"for each host. Each argument in them exists in its version:")
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range files {
		if name == refusedExample {
			continue
		}
		out, err := d.run(ctx, exitDone, "render", filepath.Join(d.dir, "examples", name), "--out", d.rendered(name))
		if err != nil {
			return err
		}
		d.show(out)
	}
	return nil
}

// rendered is the directory into which an example is rendered.
func (d *demonstration) rendered(example string) string {
	return filepath.Join(d.dir, strings.TrimSuffix(example, ".yaml"))
}

func (d *demonstration) validatePolicy(context.Context) error {
	file := filepath.Join(d.rendered(demoExample), d.plan.Hosts[0].Name, filepath.FromSlash(d.plan.PolicyFile))
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	report, err := policy.Validate(d.short(file), bytes.NewReader(text), policy.Options{})
	if err != nil {
		return err
	}
	d.say("4. The policy", fmt.Sprintf("The modern API server allows the requests that this file allows, and no "+
		"others. Its %d rules begin with those for users; what discovery, probes and each controller of the modern "+
		"side need follows.", len(report.Rules)))
	d.show("\n" + strings.Join(strings.SplitN(string(text), "\n", policyLinesShown+1)[:policyLinesShown], "\n") +
		"\n...")
	var warnings bytes.Buffer
	for _, f := range report.Findings {
		if f.Severity >= finding.Warning {
			printFinding(&warnings, f)
		}
	}
	d.show(warnings.String())
	if finding.Worst(report.Findings) >= finding.Error {
		return fmt.Errorf("%s: the API server would not read it as intended", d.short(file))
	}
	d.say("", "The file was parsed as that API server parses it, and has no errors.")
	return nil
}

// policyLinesShown is how much of the policy the demo prints: the lines are long, and much alike.
const policyLinesShown = 4

// routesShown are the rows of the gateway's table that the demo prints: one of each way.
var routesShown = regexp.MustCompile(
	`(?m)^(RESOURCE|pods|deployments\.apps|deployments\.extensions) +(VERSION|v1|v1beta1) .*$`)

func (d *demonstration) showRoutes(ctx context.Context) error {
	d.say("5. The gateway", "Clients need not know which side has what: one endpoint serves both API servers, in "+
		"every version that one of them has, or that converts to one. Of its table, each row with its reason:")
	out, err := d.run(ctx, exitDone, "gateway", "routes", d.spec())
	if err != nil {
		return err
	}
	rows := routesShown.FindAllString(out, -1)
	for i, row := range rows { // the first column is as wide as the longest name of all
		name, rest, _ := strings.Cut(row, " ")
		rows[i] = fmt.Sprintf("%-23s %s", name, strings.TrimLeft(rest, " "))
	}
	d.show(strings.Join(append(rows, "..."), "\n"))
	return nil
}

// startStores runs an etcd for every store of the plan and fills it.
func (d *demonstration) startStores(ctx context.Context) error {
	d.say("6. The stores", "Two etcd servers start, and are filled as the two API servers fill them: the shared "+
		"resources in the core store, each side's "+
		"Deployments in its own store and in its own version, objects in protobuf, custom resources in JSON.")
	contents, err := demo.Fill(d.plan, time.Now())
	if err != nil {
		return fmt.Errorf("demo: internal error: %w", err)
	}
	members := make([]*localetcd.Member, len(d.plan.Stores))
	var group errgroup.Group
	for i, store := range d.plan.Stores {
		group.Go(func() error {
			var err error
			members[i], err = localetcd.Start(ctx, localetcd.Options{Dir: filepath.Join(d.dir, "etcd-"+store.Name)})
			return err
		})
	}
	err = group.Wait()
	for i, store := range d.plan.Stores {
		if members[i] != nil {
			d.stores[store.Name] = members[i]
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(d.streams.Out)
	for _, store := range d.plan.Stores {
		if err := d.stores[store.Name].Put(ctx, contents[store.Name]); err != nil {
			return err
		}
		fmt.Fprintf(d.streams.Out, "  etcd %-8s %s  %3d keys\n", store.Name, d.stores[store.Name].Endpoint,
			len(contents[store.Name]))
	}
	return nil
}

func (d *demonstration) stop() {
	for _, member := range d.stores {
		member.Stop()
	}
}

// check runs etcd check and returns the parts of its answer: stores, resources, findings if any, and the verdict.
func (d *demonstration) check(ctx context.Context, code int) ([]string, error) {
	args := []string{"etcd", "check", d.spec(), "--fail-on", "warning"}
	for _, store := range d.plan.Stores {
		args = append(args, "--endpoints", store.Name+"="+d.stores[store.Name].Endpoint)
	}
	out, err := d.run(ctx, code, args...)
	return strings.Split(strings.TrimSpace(out), "\n\n"), err
}

func (d *demonstration) checkStores(ctx context.Context) error {
	d.say("7. The findings", "Is every key in the store of its owner, and can every reader decode it?")
	parts, err := d.check(ctx, exitDone)
	if err != nil {
		return err
	}
	d.show(strings.Join(parts, "\n\n"))
	d.say("", "The stores are clean. An info is not a fault: it names what would be deleted if a garbage collector "+
		"that the plan disables were enabled.")
	return nil
}

// ruleOf finds the rule of what etcd check printed, infos left out.
var ruleOf = regexp.MustCompile(`(?m)^(?:error|warning) (FUS[0-9]+) `)

func (d *demonstration) showAccidents(ctx context.Context) error {
	violations, err := demo.Violations(d.plan, time.Now())
	if err != nil {
		return fmt.Errorf("demo: internal error: %w", err)
	}
	d.say("8. Three accidents", "Each is caused, found, and reverted.")
	for i, v := range violations {
		d.say(fmt.Sprintf("8.%d %s", i+1, v.Title), v.Story)
		if err := d.stores[v.Store].Put(ctx, map[string][]byte{v.Key: v.Value}); err != nil {
			return err
		}
		fmt.Fprintf(d.streams.Out, "\n  written to %s: %s\n", v.Store, v.Key)
		parts, err := d.check(ctx, exitAttention)
		if err != nil {
			return err
		}
		var found []string
		for _, match := range ruleOf.FindAllStringSubmatch(strings.Join(parts, "\n"), -1) {
			found = append(found, match[1])
		}
		findings, _, _ := strings.Cut(strings.Join(parts[2:len(parts)-1], "\n\n"), "\ninfo ")
		d.show(findings + "\n... and the infos as before\n\n" + parts[len(parts)-1])
		if !slices.Equal(found, []string{v.Rule}) {
			return fmt.Errorf("demo: etcd check reports %v, want %s alone", found, v.Rule)
		}
		if err := d.stores[v.Store].Delete(ctx, v.Key); err != nil {
			return err
		}
	}
	return nil
}

// run runs a verb of this program, shows the command, and returns what it printed, messages last; another exit code
// than code is an error.
func (d *demonstration) run(ctx context.Context, code int, args ...string) (string, error) {
	var out, messages bytes.Buffer // the streams of the verb
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = d.short(arg)
	}
	command := "fusionctl " + strings.Join(shown, " ")
	fmt.Fprintf(d.streams.Out, "\n  $ %s\n", command)
	got := Main(context.WithValue(ctx, memoryShared{}, true), args,
		Streams{In: strings.NewReader(""), Out: &out, Err: &messages})
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if got != code {
		return "", fmt.Errorf("%s: exit code %d, want %d\n%s", command, got, code, messages.String())
	}
	return d.short(out.String() + messages.String()), nil
}

// short writes the folder as $DEMO.
func (d *demonstration) short(text string) string { return strings.ReplaceAll(text, d.dir, "$DEMO") }

// show prints what a verb printed.
func (d *demonstration) show(text string) {
	if text == "" {
		return
	}
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(d.streams.Out, strings.TrimRight("  "+line, " "))
	}
}

// say prints a title, if any, and a paragraph.
func (d *demonstration) say(title, text string) {
	fmt.Fprintln(d.streams.Out)
	if title != "" {
		fmt.Fprintln(d.streams.Out, title)
	}
	fmt.Fprintln(d.streams.Out, strings.Join(prose.Wrap(strings.Fields(text), 110), "\n"))
}

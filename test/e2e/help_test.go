//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// What a program says about itself with --help is what the facts say: the flags and their defaults, the feature gates,
// the controllers and the admission plugins. And it accepts every flag of the facts, those too that its help hides.
func TestFactsAgreeWithTheProgramsHelp(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		minor := release.Minor
		for _, component := range release.Programs {
			if !slices.Contains(kubever.Components(), component) {
				continue // kubelets, service proxies and kubectl: no plan has their flags
			}
			t.Run(component+"-"+minor.String(), func(t *testing.T) {
				t.Parallel()
				binary, err := rig.Binary(component, minor)
				if err != nil {
					t.Fatal(err)
				}
				help := rig.ParseHelp(run(t, binary, "--help"))
				if len(help) < 20 {
					t.Fatalf("its help has %d flags; is its format understood?", len(help))
				}
				compareFlags(t, help, component, minor)
				compareGates(t, help["feature-gates"].Text, component, minor)
				switch component {
				case kubever.APIServer:
					compareAdmission(t, help, minor)
				case kubever.ControllerManager:
					compareControllers(t, help["controllers"].Text, minor)
				}
				offerFlags(t, binary, component, minor)
			})
		}
	}
}

// releases are those that have an API server.
func releases(t *testing.T) []rig.Release {
	t.Helper()
	releases, err := rig.Releases()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(releases, func(r rig.Release) bool {
		return !slices.Contains(r.Programs, kubever.APIServer)
	})
}

// run returns what a program writes; it is one that ends by itself. Which code it ends with is its own affair: 1.6
// calls a request for help a mistake.
func run(t *testing.T, binary string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Dir = t.TempDir()
	out, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("%s %s: %v", binary, strings.Join(args, " "), err)
	}
	return string(out)
}

// zeros are the defaults that a help text leaves out, of all types of flags.
var zeros = []string{"", "false", "0", "0s", "[]", "<nil>"}

func compareFlags(t *testing.T, help map[string]rig.HelpFlag, component string, minor kubever.Minor) {
	t.Helper()
	compared := 0
	for name, flag := range help {
		fact := kubever.Flag(component, name)
		if !fact.In(minor) {
			t.Errorf("--%s is in its help, the facts do not have it", name)
			continue
		}
		want, known := fact.Default(minor)
		if !known {
			continue // it depends on the machine
		}
		compared++
		if inOrder(name, flag.Default) != want && !(flag.Default == "" && slices.Contains(zeros, want)) {
			t.Errorf("--%s has the default %q, the facts say %q", name, flag.Default, want)
		}
	}
	if compared < len(help)*9/10 {
		t.Errorf("the facts have a default for %d of %d flags, want one for nearly all", compared, len(help))
	}
}

// inOrder puts a default in order that releases before 1.10 print in that of a Go map, another one each time.
func inOrder(flag, value string) string {
	if flag != "cloud-provider-gce-lb-src-cidrs" {
		return value
	}
	list := strings.Split(value, ",")
	slices.Sort(list)
	return strings.Join(list, ",")
}

// gateLine is a gate; from 1.37 on with what holds once no older version has to be compatible, which is no default.
var gateLine = regexp.MustCompile(
	`(?m)^(?:kube:)?([A-Za-z0-9]+)=true\|false \((ALPHA|BETA) - default=(true|false)\)(?:, or .*)?$`)

// compareGates compares alpha and beta gates; help texts leave out the others.
func compareGates(t *testing.T, text, component string, minor kubever.Minor) {
	t.Helper()
	got, want := map[string]string{}, map[string]string{}
	for _, match := range gateLine.FindAllStringSubmatch(text, -1) {
		got[match[1]] = match[2] + " " + match[3]
	}
	for _, gate := range kubever.Gates(minor) {
		state, _ := gate.At(minor)
		if gate.KnownTo(component, minor) && (state.Stage == "ALPHA" || state.Stage == "BETA") {
			want[gate.Name] = fmt.Sprintf("%s %t", state.Stage, state.Default)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("feature gates (-facts +help):\n%s", diff)
	}
}

func compareControllers(t *testing.T, text string, minor kubever.Minor) {
	t.Helper()
	got := listAfter(t, text, "All controllers: ", "\n")
	off := listAfter(t, text, "Disabled-by-default controllers: ", " (default", "\n")
	var want, wantOff []string
	for _, controller := range kubever.Controllers(minor) {
		name, _ := controller.NameIn(minor)
		want = append(want, name)
		// The help does not count those as off that do nothing because a feature gate is off.
		if !controller.DefaultOn(minor) && !slices.ContainsFunc(controller.GatesIn(minor), func(gate string) bool {
			return !gateOn(gate, minor)
		}) {
			wantOff = append(wantOff, name)
		}
	}
	slices.Sort(want)
	slices.Sort(wantOff)
	slices.Sort(got)
	slices.Sort(off)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("controllers (-facts +help):\n%s", diff)
	}
	if diff := cmp.Diff(wantOff, off); diff != "" {
		t.Errorf("controllers that are off by default (-facts +help):\n%s", diff)
	}
}

func gateOn(name string, minor kubever.Minor) bool {
	state, _ := kubever.Gate(name).At(minor)
	return state.Default
}

func compareAdmission(t *testing.T, help map[string]rig.HelpFlag, minor kubever.Minor) {
	t.Helper()
	want := slices.Sorted(slices.Values(kubever.AdmissionPlugins(minor)))
	if diff := cmp.Diff(want, listAfter(t, help["admission-control"].Text, "Comma-delimited list of: ",
		".")); diff != "" {
		t.Errorf("admission plugins (-facts +help):\n%s", diff)
	}
	enable, ok := help["enable-admission-plugins"]
	if !ok || !strings.Contains(enable.Text, "default enabled ones (") {
		return // the release does not say which are on by default
	}
	if diff := cmp.Diff(kubever.AdmissionDefaultOn(minor),
		listAfter(t, enable.Text, "default enabled ones (", ")")); diff != "" {
		t.Errorf("admission plugins that are on by default, in their order (-facts +help):\n%s", diff)
	}
}

// listAfter reads the comma-separated words between a start and the nearest of the ends.
func listAfter(t *testing.T, text, start string, ends ...string) []string {
	t.Helper()
	_, list, found := strings.Cut(text, start)
	if !found {
		t.Fatalf("%q has no %q; is the format understood?", text, start)
	}
	for _, end := range ends {
		list, _, _ = strings.Cut(list, end)
	}
	var words []string
	for _, word := range strings.Split(list, ",") {
		words = append(words, strings.TrimSpace(word))
	}
	return words
}

var (
	unknownFlag = regexp.MustCompile(`unknown flag: --(\S+)`)
	badValue    = regexp.MustCompile(`invalid argument .* for "?(?:-\w, )?--([^\s":=]+)`)
)

// offerFlags gives the program all flags of the facts, and in the end --help so that it does not start. A parser stops
// at the first flag that it does not like; that one is judged and left out, and the rest offered again.
func offerFlags(t *testing.T, binary, component string, minor kubever.Minor) {
	t.Helper()
	offers := map[string]string{}
	for _, fact := range kubever.Flags(component, minor) {
		if fact.Name != "help" {
			value, _ := fact.Default(minor)
			offers[fact.Name] = strings.Trim(strings.TrimPrefix(value, "<nil>"), "[]")
		}
	}
	for {
		var args []string
		for name, value := range offers {
			args = append(args, "--"+name+"="+value)
		}
		slices.Sort(args)
		out := run(t, binary, append(args, "--help")...)
		if match := unknownFlag.FindStringSubmatch(out); match != nil {
			t.Errorf("--%s is in the facts, its parser does not know it", match[1])
			delete(offers, match[1])
		} else if match := badValue.FindStringSubmatch(out); match != nil {
			if _, offered := offers[match[1]]; !offered {
				t.Fatalf("it complains about --%s, which it was not given", match[1])
			}
			delete(offers, match[1]) // the flag is known: the value is not one that its default is printed as
		} else if len(rig.ParseHelp(out)) > 0 {
			return
		} else {
			t.Fatalf("given all flags of the facts it says:\n%s", out)
		}
	}
}

package adopt_test

import (
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// FuzzRendered: units and static pods that fusionctl writes are read as they are meant, whatever the values.
func FuzzRendered(f *testing.F) {
	for _, value := range []string{"2", "a b", `"`, `'a' \x41 \`, "$A ${A} $$ $(A)", "%n%%", "é\t;#", "{{ a }}", ",=:",
		"  ", "a\nb=c\\\n\"'d'\n"} {
		f.Add(value)
	}
	p := plantest.Example(f, "split-1.6-1.10.yaml")
	at := slices.IndexFunc(p.Components, func(c plan.Component) bool {
		return c.Kind == kubever.APIServer && c.Side == pair.Modern
	})
	c := &p.Components[at]
	f.Fuzz(func(t *testing.T, value string) {
		c.Args = []plan.Arg{{Name: "v", Value: value, Origin: plan.FromPlan}}
		c.Env = []spec.EnvVar{{Name: "V", Value: value}}
		for _, target := range []render.Target{render.Systemd, render.StaticPod} {
			files, err := render.Files(p, render.Options{Target: target})
			if err != nil && value != "2" {
				return // what no unit, or no pod, can say
			}
			if err != nil {
				t.Fatal(err)
			}
			dir := fstest.MapFS{}
			for _, file := range files {
				if folder := path.Dir(file.Path); strings.HasSuffix(folder, "/etc/systemd/system") ||
					strings.HasSuffix(folder, render.ManifestDirectory) {
					dir[path.Base(file.Path)] = &fstest.MapFile{Data: file.Data}
				} else if path.Ext(file.Path) == ".env" {
					dir[path.Base(file.Path)] = &fstest.MapFile{Data: file.Data}
				}
			}
			running, err := adopt.ReadAll(dir, nil)
			if err != nil {
				t.Fatalf("%s: %q: %v", target, value, err)
			}
			of := slices.IndexFunc(running.Processes, func(r adopt.Process) bool { return r.Name == c.Name })
			if of < 0 {
				t.Fatalf("%s: %q: %s is none of %+v", target, value, c.Name, running.Processes)
			}
			if r := running.Processes[of]; !slices.Equal(r.Words, []string{"--v=" + value}) ||
				value != "" && value[0] != '-' && // that is arguments, which are among the words
					!slices.Contains(r.Env, spec.EnvVar{Name: "V", Value: value}) {
				t.Errorf("%s: %q is read as %q, %q", target, value, r.Words, r.Env)
			}
		}
	})
}

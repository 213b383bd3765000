package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestRolesAreCopiedWhileAllRuns: nothing of the control plane stops, the proof follows the copies, and the way back
// takes them away; a plan without them does so, too.
func TestRolesAreCopiedWhileAllRuns(t *testing.T) {
	with := func(text string) Setup {
		text = strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+
			strings.Join(rbacResources(), ", ")+"]\n", 1)
		return Setup{Plan: planOf(t, splitExample, text), Target: render.StaticPod}
	}
	from, to := handing(t, splitExample, "", render.StaticPod), with(example(t, splitExample))
	steps := func(from, to Setup) (list []string) {
		t.Helper()
		tr, err := New(from, to, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, s := range tr.Steps {
			text := ""
			for _, a := range []*Action{s.Do, s.Undo} {
				switch {
				case a == nil:
					text += " | -"
				case a.Kind == RunChecks:
					text += " | " + string(a.Before[0].Kind)
				default:
					text += " | " + string(a.Kind)
				}
				if a != nil && a.Roles != nil {
					keys := []string{}
					for _, k := range a.Roles.Keys {
						keys = append(keys, k.Key)
					}
					if strings.Join(keys, " ") != "clusterroles roles clusterrolebindings rolebindings" ||
						a.Roles.From.Name != "core" || a.Roles.To.Name != "modern" || !a.Roles.Stored {
						t.Errorf("the roles are %+v", a.Roles)
					}
				}
			}
			list = append(list, strings.TrimPrefix(text, " | "))
		}
		return list
	}
	for _, test := range []struct {
		from, to Setup
		want     []string
	}{
		{from, to, []string{"roles may go | -", "snapshot store | -", "snapshot store | -", "copy roles | remove roles",
			"roles equal | -"}},
		{to, from, []string{"snapshot store | -", "snapshot store | -", "remove roles | copy roles"}},
		{to, to, nil},
	} {
		if got := steps(test.from, test.to); !slices.Equal(got, test.want) {
			t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
	row := to.Plan.Resource("roles")
	if !row.Copied || row.HandedOver || row.Owner != pair.OwnerSplit {
		t.Errorf("the row of roles is %+v", row)
	}
	if _, err := New(Setup{}, to, Facts{}); err == nil || !strings.Contains(err.Error(), "then copy") {
		t.Errorf("from nothing: %v", err)
	}
}

// TestRolesByWhichTheLegacySideAuthorizes: files of ABAC are found where its pods have them on the host, and roles that
// it does not ask are left.
func TestRolesByWhichTheLegacySideAuthorizes(t *testing.T) {
	text := example(t, splitExample)
	at := strings.Index(text, "  legacy:")
	server := strings.Index(text[at:], "apiServer: {") + at + len("apiServer: {")
	text = text[:server] + "extraArgs: [{name: authorization-mode, value: ABAC}, {name: authorization-policy-file, " +
		"value: /etc/abac.jsonl}], " + text[server:]
	copied := strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+
		strings.Join(rbacResources(), ", ")+"]\n", 1)
	tr, err := New(Setup{Plan: planOf(t, splitExample, text), Target: render.StaticPod},
		Setup{Plan: planOf(t, splitExample, copied), Target: render.StaticPod}, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if r := tr.Steps[0].Do.Before[0].Roles; r.Stored || !slices.Equal(r.Policies, []string{"/etc/abac.jsonl"}) {
		t.Errorf("the roles are %+v", r)
	}
}

// TestEachHostProvesItsOwnPolicy: the copies are of the first host's file, and every API server has one of its own.
func TestEachHostProvesItsOwnPolicy(t *testing.T) {
	text := example(t, threeHosts)
	at := strings.Index(text, "  legacy:")
	server := strings.Index(text[at:], "apiServer: {") + at + len("apiServer: {")
	text = text[:server] + "extraArgs: [{name: authorization-mode, value: ABAC}, {name: authorization-policy-file, " +
		"value: /etc/abac.jsonl}], " + text[server:]
	copied := strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+
		strings.Join(rbacResources(), ", ")+"]\n", 1)
	from := Setup{Plan: planOf(t, threeHosts, text), Target: render.Systemd}
	to := Setup{Plan: planOf(t, threeHosts, copied), Target: render.Systemd}
	tr, err := New(from, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	var proven []string
	for _, s := range tr.Steps {
		if s.Do != nil && len(s.Do.Before) > 0 && s.Do.Before[0].Kind == RolesEqual {
			proven = append(proven, s.Host)
			if c := s.Do.Before[0]; !slices.Equal(c.Roles.Policies, []string{"/etc/abac.jsonl"}) ||
				(c.Hint == "") != (s.Host == "cp-1") {
				t.Errorf("on %s: %+v, %q", s.Host, c.Roles, c.Hint)
			}
		}
	}
	if !slices.Equal(proven, []string{"cp-1", "cp-2", "cp-3"}) {
		t.Errorf("the policies of hosts %q are proven, want those of all", proven)
	}
	for i := range to.Plan.Components { // one that authorizes by what is stored
		if c := &to.Plan.Components[i]; c.Host == "cp-2" && c.Side == pair.Legacy && c.Kind == kubever.APIServer {
			c.Args = append(slices.Clone(c.Args), plan.Arg{Name: "authorization-mode", Value: "RBAC"})
		}
	}
	if _, err := New(from, to, Facts{}); err == nil ||
		!strings.Contains(err.Error(), "cp-1 and cp-2 do not authorize") {
		t.Errorf("with another mode on one host: %v", err)
	}
}

func rbacResources() (names []string) {
	for _, name := range []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings"} {
		names = append(names, name+".rbac.authorization.k8s.io")
	}
	return names
}

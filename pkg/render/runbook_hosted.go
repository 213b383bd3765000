package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// hostedRunbook is what templates/RUNBOOK-hosted.md.tmpl ranges over.
type hostedRunbook struct {
	runbookFacts
	Rows     []hostedRow
	Secrets  []hostedSecret
	Members  []hostedStep
	Legacy   []hostedStep
	Modern   []hostedStep
	Managers []hostedStep
	Joint    hostedBoth
	Gateway  hostedBoth
	Forward  []string // make what runs in the cluster answer where a person works
}

// hostedBoth starts what sees both sides, after the legacy side has allowed it.
type hostedBoth struct {
	Steps           []hostedStep
	Words, Commands []string
	Namespaces      string // the side through which namespaces have their finalizer
}

type hostedRow struct{ Component, Kind, File, Port, Stores string }

// hostedSecret is a Secret that the pods of a component have their files from.
type hostedSecret struct{ Component, Name, Command string }

// hostedStep starts one component, asks it, and stops it.
type hostedStep struct{ Start, Verify, Stop []string }

func newHostedRunbook(p *plan.Plan, o Options) (hostedRunbook, error) {
	v := hostedRunbook{runbookFacts: newRunbookFacts(p, o)}
	v.Issued = certificatesToIssue(p)
	v.Issue = issueCommands(p, v.Spec+" --target hosted", []spec.Host{{Name: hostedName, Address: p.Hosts[0].Address}},
		false)
	check := "fusionctl etcd check " + v.Spec
	components := hostedComponents(p)
	for i := range components {
		c := &components[i]
		file := hostedFile(i, c)
		row := hostedRow{Component: strings.TrimSpace(c.Name + " " + c.Version), Kind: HostedKind(c), File: file,
			Port: fmt.Sprint(c.Port), Stores: "-"}
		step := hostedStepOf(p, c, file)
		switch {
		case c.Kind == plan.Etcd:
			row.Stores = c.Store
			v.Members = append(v.Members, step)
			v.Forward = append(v.Forward, forward(p, c))
			scheme, _, _ := strings.Cut(p.Store(c.Store).Endpoints[0], "://")
			check += " --endpoints " + shell(c.Store+"="+scheme+"://"+plan.HostPort("127.0.0.1", c.Port))
		case c.Side == pair.Legacy:
			v.Legacy = append(v.Legacy, step)
		case c.Kind == kubever.APIServer:
			v.Modern = append(v.Modern, step)
			v.Restart = append(slices.Clone(step.Start), step.Verify[0])
			v.Log = "k logs deployment/" + c.Name + " --tail=50"
			v.ModernURLs = []string{"https://" + plan.HostPort(plan.ServiceName(p.Name, c.Name), c.Port)}
			v.Asked = []string{"https://" + plan.HostPort("127.0.0.1", c.Port)}
			v.Forward = append(v.Forward, forward(p, c))
			v.Policies = []string{"policy.jsonl"}
		case c.Kind == plan.JointControllers:
			permit := newPermit(p, Hosted)
			v.Joint = hostedBoth{Steps: []hostedStep{step}, Words: permit.Words, Commands: permit.Commands,
				Namespaces: string(pair.Legacy)}
			if row := p.Resource("namespaces"); row != nil && row.Route().Write == pair.Modern {
				v.Joint.Namespaces = string(pair.Modern)
			}
		case c.Kind == plan.JointGateway:
			v.Gateway.Steps = []hostedStep{step}
			v.Gateway.Words, v.Gateway.Commands = permitUser(&legacyUser{p.Gateway.Component.User, gatewayRole,
				p.Gateway.Component.Legacy})
		default:
			v.Managers = append(v.Managers, step)
		}
		if c.Kind == kubever.APIServer {
			row.Stores = strings.Join(storesOf(p, c.Side), ", ")
		}
		v.Rows = append(v.Rows, row)
		secrets, err := hostedSecrets(p, c)
		if err != nil {
			return v, err
		}
		v.Secrets = append(v.Secrets, secrets...)
	}
	v.AtStores, v.EtcdCheck = "On a machine that reaches the stores", check
	return v, nil
}

// forward makes a service answer where a person works.
func forward(p *plan.Plan, c *plan.Component) string {
	return fmt.Sprintf(`kubectl --kubeconfig "$CLUSTER" -n %s port-forward service/%s %d:%d &`, p.Name, c.Name, c.Port,
		c.Port)
}

// hostedFile is the manifest of the i-th component of a hosted plan.
func hostedFile(i int, c *plan.Component) string {
	return fmt.Sprintf("%s/%02d-%s.yaml", hostedName, i+1, c.Name)
}

// hostedSecrets are the Secrets that a component refers to, and how each is made.
func hostedSecrets(p *plan.Plan, c *plan.Component) ([]hostedSecret, error) {
	var list []hostedSecret
	add := func(name, from string) {
		list = append(
			list, hostedSecret{Component: c.Name, Name: name, Command: "k create secret generic " + name + from})
	}
	from := ""
	for _, f := range secretFiles(p, c) {
		from += " --from-file=" + shell(f.Key+"=certificates/"+hostedName+f.Path)
	}
	if from != "" {
		add(secretOf(c), from)
	}
	texts, err := configTexts(p, c, "")
	if err != nil {
		return nil, err
	}
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.ReadOnly && !holdsAny(p, c, m, texts) {
			add(directorySecret(c, m), " --from-file="+shell("certificates/"+hostedName+path.Clean("/"+m.Path)))
		}
	}
	return list, nil
}

// holdsAny reports whether a component names a file in one of its mounts.
func holdsAny(p *plan.Plan, c *plan.Component, m *plan.Mount, texts []configText) bool {
	for _, f := range secretFiles(p, c) {
		if mountOf(c, f.Path).Path == m.Path {
			return true
		}
	}
	for _, t := range texts {
		if in := mountOf(c, t.path); in != nil && in.Path == m.Path {
			return true
		}
	}
	return false
}

func hostedStepOf(p *plan.Plan, c *plan.Component, file string) hostedStep {
	kind := strings.ToLower(HostedKind(c)) + "/"
	step := hostedStep{
		Start:  []string{"kubectl --kubeconfig \"$CLUSTER\" apply -f " + shell(file)},
		Verify: []string{"k rollout status " + kind + c.Name + "    # every pod is ready"},
		Stop:   []string{"k delete " + kind + c.Name},
	}
	switch c.Kind {
	case plan.Etcd:
		line := fmt.Sprintf("k exec %s-0 -- etcdctl --endpoints=%s", c.Name,
			strings.Join(p.Store(c.Store).Endpoints, ","))
		if m := p.Store(c.Store).Managed; m != nil && m.ServerTLS != nil && p.Store(c.Store).TLS != nil {
			line += fmt.Sprintf(" --cacert=%s --cert=%s --key=%s", shell(m.ServerTLS.CA), shell(m.ServerTLS.Cert),
				shell(m.ServerTLS.Key))
		}
		step.Verify = append(step.Verify, line+" endpoint health    # every member is healthy")
	case plan.JointControllers:
		step.Verify = append(step.Verify, "k logs "+kind+c.Name+
			" --tail=50    # one of its pods leads; another one stands by")
	case kubever.APIServer, plan.JointGateway:
		step.Verify = append(step.Verify, "k get endpoints "+c.Name+"    # an address for each pod")
	default:
		step.Verify = append(step.Verify, "k logs "+kind+c.Name+
			" --tail=-1 | grep -i 'acquired lease'    # one of its pods leads")
	}
	return step
}

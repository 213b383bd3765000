package render

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// shell quotes a word for any POSIX shell. A line break stays one, since $'\n' is not in every shell; the line behind
// it begins with an empty word, so that it ends no block of code of a Markdown page.
func shell(s string) string {
	if bareWord.MatchString(s) && !strings.ContainsAny(s, "*;#") {
		return s
	}
	return "'" + quotedText.Replace(s) + "'"
}

var quotedText = strings.NewReplacer("'", `'\''`, "\n", "\n''", "\r", "\r''")

// inline is a text within a line or a table of Markdown.
func inline(s string) string {
	return strings.NewReplacer("`", "'", "|", `\|`).Replace(oneLine(s))
}

// sentence is a text outside of code in which no markup stands: a picture would be loaded from somewhere, and a link
// lead there.
func sentence(s string) string {
	return strings.NewReplacer("`", "'", "|", `\|`, `\`, `\\`, "[", `\[`, "<", "&lt;").Replace(oneLine(s))
}

// stagedSpec is the name of the spec beside the staged tree of a host.
const stagedSpec = "spec.yaml"

// stageCommands bring the tree of each host and the spec to it, where nothing reads them yet.
func stageCommands(p *plan.Plan, staging, spec string) []string {
	var lines []string
	for _, h := range p.Hosts {
		lines = append(lines,
			fmt.Sprintf("tar -C %s -cf - . | ssh root@%s 'install -d -m 0700 %s && tar -C %s -xpf -'", h.Name,
				h.Address, staging, staging),
			fmt.Sprintf("ssh root@%s 'umask 077; cat > %s/%s' < %s", h.Address, staging, stagedSpec, spec),
			fmt.Sprintf("ssh root@%s 'tar -C / --ignore-failed-read -cf %s/before.tar etc/kubernetes "+
				"etc/systemd/system'", h.Address, staging))
	}
	return lines
}

// preflights are the commands on each host that look at it.
func preflights(p *plan.Plan, staging string, target Target) []preflight {
	var list []preflight
	for _, h := range p.Hosts {
		command := fmt.Sprintf("fusionctl preflight %s/%s --host %s --staged %s", staging, stagedSpec, h.Name, staging)
		if target == Systemd {
			command += " --target " + string(target)
		}
		list = append(list, preflight{Host: h.Name, Command: command})
	}
	return list
}

// programs are what the units of the plan start, once for each version.
func programs(p *plan.Plan) []startedProgram {
	var list []startedProgram
	for i := range p.Components {
		c := &p.Components[i]
		if runsAlready(p, c) {
			continue
		}
		words := []string{shell(programFile(c))}
		for _, w := range c.Command[min(1, len(c.Command)):] {
			words = append(words, shell(w))
		}
		q := startedProgram{File: inline(programFile(c)), Version: c.Version,
			Print: strings.Join(words, " ") + " --version"}
		if plan.SeesBoth(c.Kind) {
			q.Version, q.Print = "the one that rendered this", strings.Join(words, " ")+" --help | head -n 1"
		}
		q.Put, q.Sum = listedProgram(p, programFile(c))
		if !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return list
}

// listedProgram are the commands for a program of which the spec says where it comes from.
func listedProgram(p *plan.Plan, file string) (put, sum string) {
	for i := range p.Programs {
		q := &p.Programs[i]
		if q.Path != file {
			continue
		}
		on := ""
		if len(q.Hosts) > 0 {
			on = "    # on " + strings.Join(q.Hosts, ", ")
		}
		if q.Image == "" {
			put += "install -D -m 0755 " + shell(q.File) + " " + shell(file) + on + "\n"
		} else {
			put += "crane export " + shell(q.Image) + " - | tar -x --to-stdout " +
				shell(strings.TrimPrefix(q.File, "/")) + " | install -D -m 0755 /dev/stdin " + shell(file) + on + "\n"
		}
		sum += "echo " + shell(q.SHA256+"  "+file) + " | sha256sum --check" + on + "\n"
	}
	return strings.TrimSuffix(put, "\n"), strings.TrimSuffix(sum, "\n")
}

// runbookRows list what runs, as it is on the first host.
func runbookRows(p *plan.Plan, target Target) []runbookRow {
	var rows []runbookRow
	for i := range p.Components {
		c := &p.Components[i]
		if c.Host != p.Hosts[0].Name {
			continue
		}
		row := runbookRow{Component: strings.TrimSpace(c.Name + " " + c.Version), Port: strconv.Itoa(c.Port),
			File: inline(placeOf(c, target)), Store: "-"}
		switch {
		case runsAlready(p, c):
			row.File = "runs already"
		case c.Port == 0:
			row.Port = "-"
		}
		if c.Kind == kubever.APIServer {
			row.Store = strings.Join(storesOf(p, c.Side), ", ")
		} else if c.Kind == plan.Etcd {
			row.Store = c.Store
		}
		rows = append(rows, row)
	}
	return rows
}

// placeOf is where a component's manifest or unit lies on its host.
func placeOf(c *plan.Component, target Target) string {
	if target == Systemd {
		return unitDirectory + "/" + unitName(c)
	}
	return ManifestDirectory + "/" + c.Name + ".yaml"
}

// etcdctl is a command to the members of a store.
func etcdctl(s *plan.Store, endpoints []string, command string) string {
	line := "ETCDCTL_API=3 etcdctl --endpoints=" + shell(strings.Join(endpoints, ","))
	if s.TLS != nil {
		line += " --cacert=" + shell(s.TLS.CA)
	}
	if s.TLS.Identifies() {
		line += fmt.Sprintf(" --cert=%s --key=%s", shell(s.TLS.Cert), shell(s.TLS.Key))
	}
	return line + " " + command
}

// backups save each store that exists before this plan.
func backups(p *plan.Plan) []backup {
	var list []backup
	for _, s := range p.Stores {
		if s.Managed == nil && len(s.Endpoints) > 0 {
			list = append(list,
				backup{Store: s.Name,
					Command: etcdctl(&s, s.Endpoints[:1], "snapshot save "+s.Name+"-before-fusion.db")})
		}
	}
	return list
}

// phaseOf collects the commands about some components, once for all hosts on which they are the same; what has to be
// there beside them apart where something is to be looked at in between.
func phaseOf(p *plan.Plan, target Target, apart bool, of func(*plan.Component) bool) phase {
	var ph phase
	for _, h := range p.Hosts {
		b := block{Hosts: h.Name}
		for i := range p.Components {
			c := &p.Components[i]
			if c.Host != h.Name || !of(c) {
				continue
			}
			if apart {
				b.Beside = append(b.Beside, beside(p, c)...)
			} else {
				b.Start = append(b.Start, beside(p, c)...)
			}
			b.Start = append(b.Start, startCommands(c, target)...)
			b.Verify = append(b.Verify, verifyCommands(p, c)...)
			b.Stop = append(stopCommands(c, target), b.Stop...)
		}
		if len(b.Verify) == 0 && len(b.Stop) == 0 {
			continue
		}
		if last := len(ph.Blocks) - 1; last >= 0 && sameCommands(&ph.Blocks[last], &b) {
			ph.Blocks[last].Hosts += ", " + b.Hosts
			ph.Blocks[last].Many = true
		} else {
			ph.Blocks = append(ph.Blocks, b)
		}
	}
	return ph
}

func sameCommands(a, b *block) bool {
	return slices.Equal(a.Beside, b.Beside) && slices.Equal(a.Start, b.Start) && slices.Equal(a.Verify, b.Verify) &&
		slices.Equal(a.Stop, b.Stop)
}

// beside are the files that a component wants in place before it starts: kubeconfigs, the policy and the plan.
func beside(p *plan.Plan, c *plan.Component) []string {
	var lines []string
	if file, ok := c.Arg("authorization-policy-file"); ok && file == p.PolicyFile {
		lines = append(lines, installCommand(file, "0600"))
	}
	if file, ok := c.Arg("audit-policy-file"); ok && file == p.AuditPolicyFile {
		lines = append(lines, installCommand(file, "0600"))
	}
	if file, _ := admissionFile(p, c); file != "" {
		lines = append(lines, installCommand(file, "0600"))
	}
	switch c.Kind {
	case plan.JointControllers:
		lines = append(lines, installCommand(p.Joint.PlanFile, "0600"))
	case plan.JointGateway:
		lines = append(lines, installCommand(p.Gateway.Component.PlanFile, "0600"))
	}
	for _, k := range p.Kubeconfigs {
		if k.Host == c.Host && k.Component == c.Name {
			lines = append(lines, installCommand(k.Path, "0600"))
		}
	}
	return lines
}

// installCommand puts a file of the staged tree into its place.
func installCommand(file, mode string) string {
	clean := path.Clean("/" + file)
	return fmt.Sprintf("install -D -m %s %s %s", mode, shell("."+clean), shell(clean))
}

func startCommands(c *plan.Component, target Target) []string {
	if target == StaticPod {
		return []string{installCommand(placeOf(c, target), "0600")}
	}
	lines := []string{installCommand(placeOf(c, target), "0644")}
	if len(c.Env) > 0 {
		lines = append(lines, installCommand(environmentPath(c), "0600"))
	}
	return append(lines, "systemctl daemon-reload", "systemctl enable --now --no-block "+unitName(c))
}

func stopCommands(c *plan.Component, target Target) []string {
	if target == StaticPod {
		return []string{"rm " + shell(placeOf(c, target))}
	}
	return []string{"systemctl disable --now " + unitName(c)}
}

// restartCommands restart a component with another policy. A kubelet restarts a pod whose manifest goes away and comes
// back.
func restartCommands(p *plan.Plan, c *plan.Component, target Target) []string {
	policy := installCommand(p.PolicyFile, "0600")
	if target == StaticPod {
		file := shell(placeOf(c, target))
		return []string{policy, "mv " + file + " /root/ && sleep 30 && mv " +
			shell("/root/"+path.Base(placeOf(c, target))) + " " + file}
	}
	return []string{policy, "systemctl restart " + unitName(c)}
}

func logCommand(c *plan.Component, target Target) string {
	if target == StaticPod {
		return "tail -n 50 /var/log/containers/" + c.Name + "-*.log"
	}
	return "journalctl -n 50 -u " + unitName(c)
}

// verifyCommands ask a component whether it is well; each line has what it should answer behind it.
func verifyCommands(p *plan.Plan, c *plan.Component) []string {
	q := c.Liveness
	if q == nil {
		return nil
	}
	address := plan.HostPort(q.Host, q.Port)
	switch {
	case q.Path == "":
		return []string{fmt.Sprintf("timeout 5 bash -c '</dev/tcp/%s/%d' && echo listening    # listening", q.Host,
			q.Port)}
	case c.Kind == plan.JointGateway:
		return gatewayReady(p, c)
	case c.Kind == plan.Etcd:
		return []string{fmt.Sprintf(`curl -s %s://%s%s    # "health":"true"`, strings.ToLower(q.Scheme), address,
			q.Path)}
	case q.Scheme != "HTTPS":
		return []string{fmt.Sprintf("curl -s http://%s%s    # ok", address, q.Path)}
	case c.Kind == kubever.APIServer:
		ca := " --cacert " + shell(p.PKI.CA)
		return []string{
			fmt.Sprintf("curl -s%s https://%s%s    # ok", ca, address, q.Path),
			fmt.Sprintf("curl -s%s https://%s/version | grep gitVersion    # v%s", ca, address, c.Version),
		}
	default:
		// It creates its certificate at every start, so that no client can verify it, and only this host connects.
		return []string{fmt.Sprintf("curl -sk https://%s%s    # ok", address, q.Path)}
	}
}

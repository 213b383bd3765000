package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// certificatesToIssue lists the certificates that the plan needs and the cluster does not have, once for the hosts on
// which they are the same, authorities first.
func certificatesToIssue(p *plan.Plan) []issued {
	var list []issued
	for _, c := range p.Certificates {
		if c.Existing {
			continue
		}
		one := issued{Cert: inline(c.Cert), CA: inline(c.CA), Name: inline(c.CommonName),
			Names: inline(strings.Join(slices.Concat(c.DNSNames, c.IPs), ", ")),
			Why:   inline(c.Why), Authority: c.Authority}
		if c.Authority {
			one.CA = "itself"
		}
		i := slices.IndexFunc(list, func(x issued) bool { x.Hosts = ""; return x == one })
		if i < 0 {
			one.Hosts = c.Host
			list = append(list, one)
		} else {
			list[i].Hosts += ", " + c.Host
		}
	}
	slices.SortStableFunc(list, func(a, b issued) int { return rank(a.Authority) - rank(b.Authority) })
	return list
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// issueCommands bring the certificates that the hosts have, each to a directory of its name, issue what is missing
// beside them, and bring the whole back where it is wanted there.
func issueCommands(p *plan.Plan, arguments string, hosts []spec.Host, back bool) []string {
	if len(certificatesToIssue(p)) == 0 {
		return nil
	}
	var lines []string
	for _, h := range hosts {
		here := "certificates/" + h.Name
		lines = append(lines, fmt.Sprintf("mkdir -p %s && ssh root@%s %s | tar -C %s -xf -", here, h.Address,
			shell("tar -C / -cf - --ignore-failed-read "+shellWords(certificateDirectories(p, h.Name))), here))
	}
	at := func(file string) string { return shell("certificates/" + hosts[0].Name + path.Clean("/"+file)) }
	issue := fmt.Sprintf("fusionctl pki %s --ca-cert %s --ca-key %s", arguments, at(p.PKI.CA), at(p.PKI.CAKey))
	for _, authority := range foreignAuthorities(p) {
		key := strings.TrimSuffix(authority, path.Ext(authority)) + ".key"
		flag := "etcd-ca"
		if authority == p.PKI.RequestHeaderCA {
			flag = "front-proxy-ca"
		}
		issue += fmt.Sprintf(" --%s-cert %s --%s-key %s", flag, at(authority), flag, at(key))
	}
	lines = append(lines, issue+" --out certificates")
	for _, h := range hosts {
		if back {
			lines = append(lines, fmt.Sprintf("tar -C certificates/%s -cf - . | ssh root@%s 'tar -C / "+
				"--skip-old-files -xpf -'", h.Name, h.Address))
		}
	}
	return lines
}

// certificateDirectories are the directories of a host below which certificates lie, none within another, without the
// leading slash.
func certificateDirectories(p *plan.Plan, host string) []string {
	var directories []string
	for _, c := range p.Certificates {
		if c.Host == host {
			directories = append(directories, path.Dir(c.Cert), path.Dir(c.CA))
		}
	}
	slices.Sort(directories)
	var outer []string
	for _, d := range slices.Compact(directories) {
		if !slices.ContainsFunc(outer, func(o string) bool { return within(d, o) }) {
			outer = append(outer, d)
		}
	}
	for i := range outer {
		outer[i] = strings.TrimPrefix(outer[i], "/")
	}
	return outer
}

// foreignAuthorities sign certificates of the plan and are neither the cluster's own nor made by the plan.
func foreignAuthorities(p *plan.Plan) []string {
	var list []string
	for _, c := range p.Certificates {
		made := slices.ContainsFunc(p.Certificates, func(a plan.Certificate) bool {
			return a.Authority && a.Cert == c.CA && !a.Existing
		})
		if !c.Existing && c.CA != p.PKI.CA && !made && !slices.Contains(list, c.CA) {
			list = append(list, c.CA)
		}
	}
	return list
}

func shellWords(list []string) string {
	quoted := make([]string, len(list))
	for i, w := range list {
		quoted[i] = shell(w)
	}
	return strings.Join(quoted, " ")
}

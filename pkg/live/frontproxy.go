package live

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// What both API servers publish about front proxies: the names that extension API servers admit, and their CA. Up to
// 1.16 a server overwrites it at its start, since 1.17 servers add to it, and people edit it; the plan knows none of
// that. Source: pkg/master/client_ca_hook.go of 1.6.13 to 1.16.15; clusterauthenticationtrust of 1.17.17 and 1.36.3.
const (
	authenticationMap = "extension-apiserver-authentication"
	namesKey          = "requestheader-allowed-names"
	authorityKey      = "requestheader-client-ca-file"
)

// judgeFrontProxies holds what is published to what the API servers of the plan admit and present.
func (c *checker) judgeFrontProxies(ctx context.Context) {
	row := c.plan.Resource("configmaps")
	if row != nil && row.VisibleToBoth() {
		c.judgeFrontProxy(ctx, pair.Modern, pair.Sides())
		return
	}
	for _, side := range pair.Sides() {
		c.judgeFrontProxy(ctx, side, []pair.Side{side})
	}
}

// judgeFrontProxy reads the config map through one side, for the sides that see it.
func (c *checker) judgeFrontProxy(ctx context.Context, through pair.Side, seen []pair.Side) {
	served := c.catalogs[through].Resources
	at := slices.IndexFunc(served, func(r discovery.Resource) bool { return r.Group == "" && r.Name == "configmaps" })
	if at < 0 {
		return // what is not known of the catalog is reported with it
	}
	body, err := c.servers[through].Read(ctx, served[at].Object(metav1.NamespaceSystem, authenticationMap))
	if errors.Is(err, discovery.ErrNotFound) {
		return // no server publishes any
	}
	var published struct {
		Data map[string]string `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(body, &published)
	}
	text, has := published.Data[namesKey]
	var names []string
	if err == nil && has {
		err = json.Unmarshal([]byte(text), &names)
	}
	if err != nil {
		c.incomplete("configmaps: %s of the %s side: %v", title(metav1.NamespaceSystem, authenticationMap), through,
			err)
		return
	}
	if !has {
		return
	}
	report := func(key string, severity finding.Severity, fix, format string, args ...any) {
		c.add(finding.Finding{Rule: "FUS251", Severity: severity, Key: string(through) + " " + key, Fix: fix,
			Subject: title(metav1.NamespaceSystem, authenticationMap), Message: fmt.Sprintf(format, args...)})
	}
	const again = "restart the API server that has the name; where one of the sides is of 1.16 or older, which " +
		"overwrites this, give both the same --requestheader-allowed-names"
	wanted, restricted := map[string]bool{}, true
	for _, side := range seen {
		own, all := c.admits(side)
		restricted = restricted && !all
		for _, name := range own {
			wanted[name] = true
		}
		lacking := slices.DeleteFunc(own, func(name string) bool { return slices.Contains(names, name) })
		switch {
		case len(names) == 0: // every name is admitted
		case all:
			report(string(side)+" any", finding.Error, "remove --requestheader-allowed-names of the other side, or "+
				"give both the names of all front proxies", "admits %s alone, and the %s API server every name: "+
				"aggregated APIs that are reached under another are cut off", strings.Join(names, ", "), side)
		case len(lacking) > 0:
			report(string(side), finding.Error, again, "admits %s and not %s of the %s side: aggregated APIs that are "+
				"reached under that name are cut off", strings.Join(names, ", "), strings.Join(lacking, ", "), side)
		}
	}
	extra := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return wanted[name] })
	switch {
	case restricted && len(names) == 0 && len(wanted) > 0:
		report("all", finding.Warning, "restart the API servers, and remove the key where it stays empty",
			"admits every name, and both sides only some: any certificate of the CA may act as a user")
	case restricted && len(extra) > 0:
		report("more", finding.Warning, "take the name out of the config map where nothing uses it", "admits %s, "+
			"which neither side has: a certificate of that name may act as a user", strings.Join(extra, ", "))
	}
	c.judgeAuthority(published.Data[authorityKey], report)
}

// admits are the names that the API servers of a side are told to admit; all says that it is every name.
func (c *checker) admits(side pair.Side) (names []string, all bool) {
	for _, server := range c.plan.ComponentsOf(side, kubever.APIServer) {
		authority, _ := server.Arg(authorityKey)
		own, _ := server.Arg(namesKey)
		for name := range strings.SplitSeq(own, ",") {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		all = all || authority != "" && strings.Trim(own, ", ") == ""
	}
	return names, all
}

// judgeAuthority looks at the CA that is published: one that has expired verifies no front proxy.
func (c *checker) judgeAuthority(text string, report func(key string, severity finding.Severity, fix, format string,
	args ...any)) {
	var last *x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (last == nil || certificate.NotAfter.After(last.NotAfter)) {
			last = certificate
		}
	}
	switch {
	case text == "" || c.now.IsZero():
	case last == nil:
		report("authority", finding.Error, "give both API servers a --requestheader-client-ca-file with certificates",
			"%s holds no certificate: no front proxy is believed", authorityKey)
	case c.now.After(last.NotAfter):
		report("authority", finding.Error,
			"renew the CA of --requestheader-client-ca-file, and restart the API servers",
			"every CA of front proxies has expired, the last one on %s: no front proxy is believed",
			last.NotAfter.UTC().Format(time.DateTime))
	}
}

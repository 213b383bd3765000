package preflight

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// files judges each file that a component names by itself: whether it is there, is what it is to be, and is kept from
// others.
func (c *check) files() {
	for _, need := range c.Files {
		f, looked := c.host.Files[need.Path]
		if !looked || f.Unread {
			continue
		}
		users := strings.Join(need.Users, ", ")
		switch {
		case f.Missing && need.Listed:
			c.report(finding.Finding{Rule: Missing, Subject: need.Path, Severity: finding.Info,
				Message: "is missing; " + users + " needs it",
				Fix:     "fusionctl transition apply puts it there, from where spec.programs says"})
		case f.Missing:
			c.report(finding.Finding{Rule: Missing, Subject: need.Path, Message: "is missing; " + users + " needs it",
				Fix: c.provider(need)})
		case f.Directory != need.Directory:
			what, want := "a file", "a directory"
			if f.Directory {
				what, want = want, what
			}
			c.report(finding.Finding{Rule: Missing, Subject: need.Path, Key: "kind",
				Message: fmt.Sprintf("is %s; %s needs %s", what, users, want), Fix: "remove it. " + c.provider(need)})
		case need.Program && f.Mode&0o111 == 0:
			c.report(finding.Finding{Rule: Missing, Subject: need.Path, Key: "mode",
				Message: fmt.Sprintf("has mode %04o and cannot be executed; %s starts it", f.Mode.Perm(), users),
				Fix:     "chmod 755 " + need.Path})
		case f.Problem != "":
			c.report(finding.Finding{Rule: WrongKey, Subject: need.Path, Key: "unreadable",
				Message: f.Problem + "; " + users + " needs it", Fix: "replace it"})
		case need.Certificate && len(f.Certificates) == 0:
			c.report(finding.Finding{Rule: WrongKey, Subject: need.Path, Key: "certificate",
				Message: "holds no certificate; " + users + " needs one", Fix: "replace it"})
		case need.Rendered != nil && !bytes.Equal(f.Data, need.Rendered):
			c.report(finding.Finding{Rule: Stale, Subject: need.Path,
				Message: "differs from what render writes for this plan; " + users + " reads it",
				Fix:     "fusionctl render the spec again, and copy this file from the tree of host " + c.Host})
		}
		c.mode(need, f, users)
	}
}

// mode judges who may read a file with credentials.
func (c *check) mode(need FileNeed, f File, users string) {
	if f.Missing || f.Directory || !f.PrivateKey && !need.Secret || f.Mode.Perm()&0o077 == 0 {
		return
	}
	found := finding.Finding{Rule: Readable, Subject: need.Path, Fix: "chmod 600 " + need.Path,
		Message: fmt.Sprintf("has mode %04o: other users of the host can read the credentials of %s", f.Mode.Perm(),
			users)}
	if f.Mode.Perm()&0o007 == 0 {
		found.Severity = finding.Warning
		found.Message = fmt.Sprintf("has mode %04o: its group can read the credentials of %s", f.Mode.Perm(), users)
	} else if !f.PrivateKey {
		found.Severity = finding.Warning
	}
	c.report(found)
}

// provider says where a missing file comes from.
func (c *check) provider(need FileNeed) string {
	p := c.Plan
	switch {
	case need.Rendered != nil:
		return "copy it from the tree of host " + c.Host + " that fusionctl render writes"
	case need.Program:
		return "install it"
	case need.Directory:
		return "create it, with the files that its components read"
	}
	for _, cert := range p.Certificates {
		if cert.Host == c.Host && !cert.Existing && (cert.Cert == need.Path || cert.Key == need.Path) {
			return "fusionctl pki issues it; copy the tree of host " + c.Host + " to the host"
		}
	}
	if k := p.TokenKey; k != nil && (k.Private == need.Path || k.Public == need.Path) {
		return "fusionctl pki creates it; copy the tree of host " + c.Host + " to the host"
	}
	return "put it there, or correct the path in the spec"
}

// validity judges the time of every certificate in a file that a component names.
func (c *check) validity() {
	for _, need := range c.Files {
		f, ok := c.read(need.Path)
		if !ok || len(f.Certificates) == 0 {
			continue
		}
		ended := 0
		for _, cert := range f.Certificates {
			if c.now.After(cert.NotAfter) {
				ended++
			}
		}
		for _, cert := range f.Certificates {
			c.within(need, cert, ended < len(f.Certificates) && cert.IsCA)
		}
	}
}

// within judges the time of one certificate. others says that the file is a bundle of authorities with a valid one.
func (c *check) within(need FileNeed, cert *x509.Certificate, others bool) {
	const day = 24 * time.Hour
	found := finding.Finding{Rule: Expired, Subject: need.Path, Key: cert.SerialNumber.String(),
		Fix: "renew it; fusionctl pki issues those of the plan again once they are removed"}
	name := fmt.Sprintf("certificate of %q", cert.Subject.CommonName)
	date := func(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }
	switch {
	case c.now.After(cert.NotAfter):
		found.Message = fmt.Sprintf("%s expired on %s", name, date(cert.NotAfter))
		if others {
			found.Severity = finding.Warning
		}
	case c.now.Before(cert.NotBefore):
		found.Message = fmt.Sprintf("%s is not valid before %s", name, date(cert.NotBefore))
		found.Fix = "correct the clock of the host, or wait"
	case c.now.Add(Warn).After(cert.NotAfter):
		found.Severity = finding.Warning
		found.Message = fmt.Sprintf("%s expires on %s, in %d days", name, date(cert.NotAfter),
			int(cert.NotAfter.Sub(c.now)/day))
	default:
		return
	}
	found.Message += "; " + strings.Join(need.Users, ", ") + " needs it"
	c.report(found)
}

// certificates holds each certificate of the plan that a component to be started presents to its key, its authority,
// and what the plan says of it.
func (c *check) certificates() {
	for _, cert := range c.Plan.Certificates {
		if cert.Host != c.Host || !c.needs(cert.Cert) {
			continue
		}
		f, ok := c.read(cert.Cert)
		if !ok {
			continue
		}
		if len(f.Certificates) == 0 {
			continue // files reports it
		}
		if key, ok := c.read(cert.Key); ok && c.needs(cert.Key) {
			c.fits(cert, f, key)
		}
		frontProxy := cert.Cert == c.proxyCert()
		if !cert.Existing || frontProxy {
			c.signed(cert.Cert, f.Certificates, cert.CA, cert.Why)
		}
		if frontProxy {
			c.admitted(cert, f.Certificates[0])
		}
		if !cert.Existing && !cert.Authority {
			c.identity(cert, f.Certificates[0])
		}
	}
}

// storesOfClients holds the certificates that the modern API server shows to stores to the CAs by which API servers
// know their clients.
func (c *check) storesOfClients() {
	var judged []string
	for i := range c.Plan.Stores {
		s := &c.Plan.Stores[i]
		_, shown, _ := c.Identity(s)
		f, ok := c.read(shown)
		if !ok || len(f.Certificates) == 0 || slices.Contains(judged, shown) {
			continue
		}
		judged = append(judged, shown)
		for _, side := range pair.Sides() {
			file := c.fileArg(c.component(side, kubever.APIServer), "client-ca-file")
			ca, ok := c.read(file)
			if !ok {
				continue
			}
			if err := c.verify(f.Certificates, ca); err != nil && !isExpired(err) {
				continue
			}
			c.report(finding.Finding{Rule: StoreOfClients, Subject: shown,
				Message: fmt.Sprintf("opens stores, and was issued by the CA in %s, by which the %s API server knows "+
					"its clients: unless they have users of their own, every kubelet and user with a certificate "+
					"of it reads and writes everything there", file, side),
				Fix: "give the members of the stores a CA of their own, and the API servers a certificate of it; or " +
					"create a user root and one for this certificate in each (etcdctl user add, etcdctl auth " +
					"enable), and accept this"})
			break
		}
	}
}

// fits judges a key by its certificate.
func (c *check) fits(cert plan.Certificate, f, key File) {
	message := ""
	switch {
	case !key.PrivateKey:
		message = "holds no private key"
	case !slices.ContainsFunc(key.PublicKeys, func(k []byte) bool { return bytes.Equal(k, publicKey(f)) }):
		message = "belongs to another certificate than " + cert.Cert
	default:
		return
	}
	c.report(finding.Finding{Rule: WrongKey, Subject: cert.Key, Message: message + "; " + cert.Why,
		Fix: "put the key of " + cert.Cert + " there, or remove both and issue them again with fusionctl pki"})
}

// publicKey is that of the first certificate in a file, nil where it is of no known kind.
func publicKey(f File) []byte {
	der, err := x509.MarshalPKIXPublicKey(f.Certificates[0].PublicKey)
	if err != nil {
		return nil
	}
	return der
}

// signed judges a certificate, with those that follow it in its file, by the authority that others will hold it to.
func (c *check) signed(file string, chain []*x509.Certificate, authority, why string) {
	ca, ok := c.read(authority)
	if !ok {
		return
	}
	err := c.verify(chain, ca)
	if err == nil || isExpired(err) { // of the authority, whose file is judged by itself
		return
	}
	c.report(finding.Finding{Rule: OtherCA, Subject: file, Key: authority,
		Message: fmt.Sprintf("was issued by %q, and %s does not verify it (%v); %s", chain[0].Issuer.CommonName,
			authority, err, why),
		Fix: "issue it again by " + authority + ", or name the CA that signed it in the spec"})
}

// verify holds a certificate, with those that follow it, to the authorities in a file, whether or not it is valid now.
func (c *check) verify(chain []*x509.Certificate, ca File) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range ca.Certificates {
		roots.AddCert(root)
	}
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	at := c.now // whether it is valid now is another question
	if leaf := chain[0]; at.After(leaf.NotAfter) || at.Before(leaf.NotBefore) {
		at = leaf.NotAfter.Add(-time.Second)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func isExpired(err error) bool {
	invalid, ok := err.(x509.CertificateInvalidError)
	return ok && invalid.Reason == x509.Expired
}

// usages are the words of the plan.
var usages = map[string]x509.ExtKeyUsage{plan.UsageServer: x509.ExtKeyUsageServerAuth,
	plan.UsageClient: x509.ExtKeyUsageClientAuth}

// identity judges a certificate that the plan needs by its names, its user and its usages.
func (c *check) identity(want plan.Certificate, got *x509.Certificate) {
	problem := func(key, fix, format string, args ...any) {
		c.report(finding.Finding{Rule: OtherName, Subject: want.Cert, Key: key,
			Message: fmt.Sprintf(format, args...) + "; " + want.Why, Fix: fix})
	}
	again := "remove it and its key, and issue them again with fusionctl pki"
	if lacking := lacksNames(got, slices.Concat(want.DNSNames, want.IPs)...); len(lacking) > 0 {
		problem("names", again, "is not valid for %s: its subject alternative names lack them",
			strings.Join(lacking, ", "))
	}
	for _, usage := range want.Usages {
		if len(got.ExtKeyUsage) > 0 && !slices.Contains(got.ExtKeyUsage, usages[usage]) &&
			!slices.Contains(got.ExtKeyUsage, x509.ExtKeyUsageAny) {
			problem("usage "+usage, again, "is not valid as a %s certificate (extended key usage)", usage)
		}
	}
	if !slices.Contains(want.Usages, plan.UsageClient) || want.Cert == c.proxyCert() {
		return
	}
	if got.Subject.CommonName != want.CommonName {
		problem("user", again, "is that of user %q; the policy knows %q", got.Subject.CommonName, want.CommonName)
	}
	for _, group := range got.Subject.Organization {
		if !slices.Contains(want.Organizations, group) {
			problem("group "+group, again, "is in group %q, which the plan does not give it", group)
		}
	}
}

func lacksNames(cert *x509.Certificate, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return cert.VerifyHostname(name) == nil })
}

// component is the component of a side and kind on the host, nil for none.
func (c *check) component(side pair.Side, kind string) *plan.Component {
	for i := range c.Plan.Components {
		if k := &c.Plan.Components[i]; k.Host == c.Host && k.Side == side && k.Kind == kind {
			return k
		}
	}
	return nil
}

// fileArg is where the file lies on the host that an argument of a component names, "" for none.
func (c *check) fileArg(k *plan.Component, name string) string {
	if k == nil {
		return ""
	}
	value, _ := k.Arg(name)
	if value == "" {
		return ""
	}
	return c.onHost(k, value)
}

// proxyCert is the certificate that the modern API server presents to extension API servers, "" for none.
func (c *check) proxyCert() string {
	return c.fileArg(c.component(pair.Modern, kubever.APIServer), "proxy-client-cert-file")
}

// admitted judges the name of the front-proxy certificate by the names that the API servers publish: extension API
// servers take user names from these alone.
func (c *check) admitted(want plan.Certificate, got *x509.Certificate) {
	for _, side := range pair.Sides() {
		server := c.component(side, kubever.APIServer)
		if server == nil {
			continue
		}
		if ca := c.fileArg(server, "requestheader-client-ca-file"); ca == "" {
			continue
		}
		var names []string
		for _, a := range server.Args {
			if kubever.FlagName(a.Name) != "requestheader-allowed-names" {
				continue
			}
			for name := range strings.SplitSeq(a.Value, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name)
				}
			}
		}
		if len(names) == 0 || slices.Contains(names, got.Subject.CommonName) {
			continue
		}
		c.report(finding.Finding{Rule: NotAdmitted, Subject: want.Cert, Key: string(side),
			Message: fmt.Sprintf("has the name %q; --requestheader-allowed-names of the %s API server admits %s: "+
				"aggregated APIs answer 401 or treat every user as anonymous", got.Subject.CommonName, side,
				strings.Join(names, ", ")),
			Fix: fmt.Sprintf("issue it again with the name %s, by %s", names[0], want.CA)})
	}
}

// kubeconfigServers holds the serving certificate of each API server to the kubeconfigs with which components of this
// host reach it.
func (c *check) kubeconfigServers() {
	for _, k := range c.Plan.Kubeconfigs {
		if k.Host != c.Host || !c.needs(k.Path) {
			continue
		}
		u, err := url.Parse(k.Server)
		if err != nil || u.Scheme != "https" {
			continue
		}
		side := pair.Modern
		if port, _ := strconv.Atoi(u.Port()); port == c.Plan.Legacy.Port {
			side = pair.Legacy
		}
		if !c.Plan.Side(side).Existing {
			continue // the plan has its certificate, with all names
		}
		file := c.fileArg(c.component(side, kubever.APIServer), "tls-cert-file")
		f, ok := c.read(file)
		if !ok || len(f.Certificates) == 0 {
			continue
		}
		why := fmt.Sprintf("%s reaches the %s API server by %s", k.Component, side, k.Path)
		c.signed(file, f.Certificates, k.CA, why)
		if lacking := lacksNames(f.Certificates[0], u.Hostname()); len(lacking) > 0 {
			c.report(finding.Finding{Rule: OtherName, Subject: file, Key: "server " + k.Path,
				Message: fmt.Sprintf("is not valid for %s; %s", u.Hostname(), why),
				Fix:     "issue it again with this name"})
		}
	}
}

// tokens holds the keys with which tokens of service accounts are signed to those with which API servers verify them.
func (c *check) tokens() {
	type signer struct {
		file, by string
		side     pair.Side
	}
	var signers []signer
	for _, side := range pair.Sides() {
		for kind, flag := range map[string]string{kubever.ControllerManager: "service-account-private-key-file",
			kubever.APIServer: "service-account-signing-key-file"} {
			if k := c.component(side, kind); k != nil {
				if file := c.fileArg(k, flag); file != "" {
					signers = append(signers, signer{file, "--" + flag + " of " + k.Name, side})
				}
			}
		}
	}
	slices.SortFunc(signers, func(a, b signer) int { return strings.Compare(a.by, b.by) })
	for _, side := range pair.Sides() {
		server := c.component(side, kubever.APIServer)
		verifying, complete := c.verifyingKeys(server)
		if !complete {
			continue
		}
		for _, s := range signers {
			if side == pair.Legacy && s.side == pair.Modern && c.Plan.Legacy.Existing && c.Plan.TokenKey != nil {
				continue // the legacy side has no tokens, and takes none
			}
			key, ok := c.read(s.file)
			if !ok {
				continue
			}
			if !key.PrivateKey {
				c.report(finding.Finding{Rule: WrongTokens, Subject: s.file, Key: "private",
					Message: "holds no private key; " + s.by + " signs tokens with it",
					Fix:     "put the private key of the service accounts there"})
				continue
			}
			if slices.ContainsFunc(key.PublicKeys, func(k []byte) bool { return verifying[string(k)] }) {
				continue
			}
			c.report(finding.Finding{Rule: WrongTokens, Subject: s.file, Key: string(side),
				Message: fmt.Sprintf("%s signs tokens with a key that none of the files of --service-account-key-file "+
					"of %s has: it answers them with 401", s.by, server.Name),
				Fix: fmt.Sprintf("add its public key to --service-account-key-file of %s", server.Name)})
		}
	}
}

// verifyingKeys are the public keys by which an API server verifies tokens; incomplete when a file of them was not
// read.
func (c *check) verifyingKeys(server *plan.Component) (keys map[string]bool, complete bool) {
	if server == nil {
		return nil, false
	}
	keys = map[string]bool{}
	for _, a := range server.Args {
		if kubever.FlagName(a.Name) != verifies(server) {
			continue
		}
		f, ok := c.read(c.onHost(server, a.Value))
		if !ok {
			return nil, false
		}
		for _, key := range f.PublicKeys {
			keys[string(key)] = true
		}
	}
	return keys, len(keys) > 0
}

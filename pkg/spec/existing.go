package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// RunsWith is the value of an argument with which a component that runs already was started, by the name that the flag
// has now; of several the last counts. ok tells an empty value from none.
func (s *Side) RunsWith(kind, name string) (value string, ok bool) {
	values := s.AllRunsWith(kind, name)
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// AllRunsWith are the values of an argument that is given several times, in order.
func (s *Side) AllRunsWith(kind, name string) []string {
	c := s.component(kind)
	if c == nil {
		return nil
	}
	var values []string
	for _, a := range c.ExtraArgs {
		if kubever.Meant(kind, a.Name, s.Version.Minor) == name {
			values = append(values, a.Value)
		}
	}
	return values
}

// component is a side's component by its kind, nil where the side has none.
func (s *Side) component(kind string) *Component {
	switch {
	case kind == kubever.APIServer && s.APIServer != nil:
		return &s.APIServer.Component
	case kind == kubever.ControllerManager:
		return s.ControllerManager
	case kind == kubever.Scheduler:
		return s.Scheduler
	}
	return nil
}

// named is the first file of the host that one of the arguments names, given as KIND, FLAG pairs; "" for none.
func (s *Side) named(flags ...[2]string) string {
	for _, f := range flags {
		value, ok := s.RunsWith(f[0], f[1])
		if !ok || !path.IsAbs(value) {
			continue
		}
		file, _ := s.component(f[0]).OnHost(value) // one of an object of the cluster is copied to this path
		return file
	}
	return ""
}

// Adopt fills in the files that a running legacy side names. What it does not name has no usual name either: nothing
// shows that it exists. Such a file is one of the modern side's own, in DIRECTORY/modern, and fusionctl pki makes it.
func (p *PKI) Adopt(legacy *Side) {
	const server, manager = kubever.APIServer, kubever.ControllerManager
	setDefault(&p.CA, legacy.named([2]string{server, "client-ca-file"}, [2]string{manager, "root-ca-file"},
		[2]string{manager, "cluster-signing-cert-file"}))
	setDefault(&p.CAKey, legacy.named([2]string{manager, "cluster-signing-key-file"}))
	if p.CAKey == "" && p.CA != "" {
		p.CAKey = KeyBeside(p.CA)
	}
	setDefault(&p.ServiceAccountKey, legacy.named([2]string{manager, "service-account-private-key-file"},
		[2]string{server, "service-account-signing-key-file"}))
	setDefault(&p.RequestHeaderCA, legacy.named([2]string{server, "requestheader-client-ca-file"}))
	if p.RequestHeaderCA != "" { // a certificate of no such CA is one that no extension API server believes
		setDefault(&p.ProxyClientCert, legacy.named([2]string{server, "proxy-client-cert-file"}))
		setDefault(&p.ProxyClientKey, legacy.named([2]string{server, "proxy-client-key-file"}))
	}
	setDefault(&p.KubeletClientCert, legacy.named([2]string{server, "kubelet-client-certificate"}))
	setDefault(&p.KubeletClientKey, legacy.named([2]string{server, "kubelet-client-key"}))
	setDefault(&p.EncryptionConfiguration, legacy.named([2]string{server, "encryption-provider-config"}))
	if len(p.ServiceAccountPublic) == 0 {
		p.ServiceAccountPublic = legacy.tokenKeys()
		if p.ServiceAccountKey == "" {
			p.ServiceAccountPublic = append(p.ServiceAccountPublic, path.Join(p.Directory, "modern/sa.pub"))
		}
	}
	if p.ServiceAccountIssuer == "" {
		issuers := legacy.AllRunsWith(server, "service-account-issuer")
		if len(issuers) > 0 {
			p.ServiceAccountIssuer = issuers[0] // the one that issues; the others are accepted
		}
	}
}

// tokenKeys are the files with which a running API server verifies tokens. One that is given none takes the key of its
// serving certificate.
func (s *Side) tokenKeys() []string {
	var files []string
	for _, value := range s.AllRunsWith(kubever.APIServer, "service-account-key-file") {
		if file, _ := s.APIServer.OnHost(value); path.IsAbs(file) && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	if len(files) > 0 || s.APIServer == nil {
		return files
	}
	if file := s.named([2]string{kubever.APIServer, "tls-private-key-file"}); file != "" {
		return []string{file}
	}
	if file := s.named([2]string{kubever.ControllerManager, "service-account-private-key-file"}); file != "" {
		return []string{file} // a private key verifies as its public one does
	}
	return nil
}

// KeyBeside is where the key of a certificate lies when nothing says otherwise: ca.crt and ca.key, ca.pem and
// ca-key.pem.
func KeyBeside(cert string) string {
	ending := path.Ext(cert)
	base := strings.TrimSuffix(cert, ending)
	if ending == ".pem" {
		return base + "-key.pem"
	}
	return base + ".key"
}

package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// MapArgs exchanges the values of an argument list that was made for other machines: change gets every flag's name,
// without dashes, and its value, and returns the value to use here. Errors: an argument that is not --name=value; a
// change may not drop or add any.
func MapArgs(args []string, change func(name, value string) string) ([]string, error) {
	mapped := make([]string, 0, len(args))
	for _, arg := range args {
		name, value, ok := splitArg(arg)
		if !ok {
			return nil, fmt.Errorf("argument %q: want --name=value", arg)
		}
		mapped = append(mapped, "--"+name+"="+change(name, value))
	}
	return mapped, nil
}

func splitArg(arg string) (name, value string, ok bool) {
	arg, dashes := strings.CutPrefix(arg, "--")
	name, value, equals := strings.Cut(arg, "=")
	return name, value, dashes && equals && name != ""
}

// argValue is the value of a flag; of several the last counts, as in the servers. "" when it is not there.
func argValue(args []string, flag string) string {
	last := ""
	for _, arg := range args {
		if name, value, ok := splitArg(arg); ok && name == flag {
			last = value
		}
	}
	return last
}

// serving is where a component with these arguments is reached from this machine; "" when the port is not given or 0.
func serving(args []string, scheme, hostFlag, portFlag string) string {
	host, port := argValue(args, hostFlag), argValue(args, portFlag)
	if port == "" || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// APIServer is a running kube-apiserver.
type APIServer struct {
	*Process
	URL   string // https://127.0.0.1:23456
	Minor kubever.Minor
}

// StartAPIServer starts a kube-apiserver; WaitReady waits for it. The arguments name a --secure-port, a serving
// certificate of the rig's authority that is good for its address, and that authority as --client-ca-file.
func (r *Rig) StartAPIServer(name string, minor kubever.Minor, args []string) *APIServer {
	r.t.Helper()
	url := serving(args, "https", "bind-address", "secure-port")
	if url == "" {
		r.t.Fatalf("starting %s: its arguments have no --secure-port", name)
	}
	return &APIServer{Process: r.Start(name, kubever.APIServer, minor, args), URL: url, Minor: minor}
}

// ServerAt is a kube-apiserver that the test does not run itself: a pod or a unit of a node.
func (r *Rig) ServerAt(name, url string, minor kubever.Minor) *APIServer {
	return &APIServer{Process: &Process{Name: name, rig: r}, URL: url, Minor: minor}
}

// WaitReady waits until the server says that it is ready, as its release puts that.
func (s *APIServer) WaitReady() {
	s.rig.t.Helper()
	// This group passes every authorizer of every release: readiness says nothing about what the server permits.
	client := s.Client("rig-ready", "system:masters")
	s.Wait("become ready", func(ctx context.Context) error {
		err := client.Call(ctx, http.MethodGet, "/readyz", nil, nil)
		if Code(err) == http.StatusNotFound { // before 1.16
			err = client.Call(ctx, http.MethodGet, "/healthz", nil, nil)
		}
		return err
	})
}

// Restart stops the server, starts it again with the same arguments, and waits until it is ready.
func (s *APIServer) Restart() {
	s.rig.t.Helper()
	s.Process.Restart()
	s.WaitReady()
}

// Client speaks to the server as the user in the groups; the API of any release can be used with it.
func (s *APIServer) Client(user string, groups ...string) *Client {
	s.rig.t.Helper()
	config, err := s.rig.PKI.clientTLS(user, groups...)
	if err != nil {
		s.rig.t.Fatal(err)
	}
	return newClient(s.URL, config)
}

// ClientOf speaks to any server with a certificate of the rig, as the user in the groups.
func (r *Rig) ClientOf(url, user string, groups ...string) *Client {
	r.t.Helper()
	config, err := r.PKI.clientTLS(user, groups...)
	if err != nil {
		r.t.Fatal(err)
	}
	return newClient(url, config)
}

// RESTConfig is for the clients of client-go, which understand the releases of their own time.
func (s *APIServer) RESTConfig(user string, groups ...string) *rest.Config {
	s.rig.t.Helper()
	certificate, key, err := s.rig.PKI.issue(clientTemplate(user, groups))
	if err != nil {
		s.rig.t.Fatal(err)
	}
	return &rest.Config{
		Host: s.URL,
		TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key,
			CAData: certificatePEM(s.rig.PKI.certificate.Raw)},
		QPS: -1, // no limit of the client's own
	}
}

// ControllerManager is a running kube-controller-manager.
type ControllerManager struct {
	*Process
	url string
}

// managerRestarts is how often a controller manager is started again that ended by itself. They are made to be: one
// that does not get the token of one of its service accounts within half a minute ends, and 1.6 sometimes forgets to
// make one.
const managerRestarts = 10

// StartControllerManager starts a kube-controller-manager; WaitReady waits for it. The arguments name a --secure-port
// or, for old releases, a --port.
func (r *Rig) StartControllerManager(name string, minor kubever.Minor, args []string) *ControllerManager {
	r.t.Helper()
	url := serving(args, "https", "bind-address", "secure-port")
	if url == "" {
		url = serving(args, "http", "address", "port")
	}
	if url == "" {
		r.t.Fatalf("starting %s: its arguments have neither --secure-port nor --port", name)
	}
	m := &ControllerManager{Process: r.Start(name, kubever.ControllerManager, minor, args), url: url}
	m.MayEnd(managerRestarts)
	return m
}

// WaitReady waits until the controller manager answers; with leader election it may not have started its controllers
// then.
func (m *ControllerManager) WaitReady() {
	m.rig.t.Helper()
	// It makes a serving certificate for itself unless it is given one, and what it says here is no secret.
	client := newClient(m.url, &tls.Config{InsecureSkipVerify: true})
	m.Wait("become healthy", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, "/healthz", nil, nil)
	})
}

// Restart stops the controller manager, starts it again with the same arguments, and waits until it answers.
func (m *ControllerManager) Restart() {
	m.rig.t.Helper()
	m.Process.Restart()
	m.WaitReady()
}

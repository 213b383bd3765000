package rig

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The DNS of a cluster: names of services and of pods behind headless ones, as kubelets are told by --cluster-dns and
// --cluster-domain.
const (
	clusterDomain   = "cluster.local"
	dnsAnswerWithin = 5 * time.Second
	dnsSecondsKept  = 1
)

// ClusterDNSArgs are the arguments of kubelets whose pods use StartClusterDNS.
var ClusterDNSArgs = []string{"--cluster-dns=" + Bridge, "--cluster-domain=" + clusterDomain}

// StartClusterDNS answers for the names of the services of a cluster until the test ends, at the bridge of the sandbox,
// from what the API server has at that moment. It knows no other names.
func (r *Rig) StartClusterDNS(server *APIServer) {
	r.t.Helper()
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(Bridge, "53"))
	if err != nil {
		r.t.Fatal(err)
	}
	d := &clusterDNS{server.Client("rig-dns", "system:masters")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve(conn)
	}()
	r.t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
}

type clusterDNS struct{ client *Client }

// serve answers until the connection is closed.
func (d *clusterDNS) serve(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			continue
		}
		question := append([]byte(nil), buffer[:n]...)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), dnsAnswerWithin)
			defer cancel()
			if answer := d.answer(ctx, question); answer != nil {
				_, _ = conn.WriteTo(answer, from) // who asked asks again
			}
		}()
	}
}

// answer is the answer to a message; nil for none.
func (d *clusterDNS) answer(ctx context.Context, question []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return nil
	}
	code := dnsmessage.RCodeSuccess
	addresses, found, err := d.lookUp(ctx, strings.ToLower(q.Name.String()))
	switch {
	case err != nil:
		code = dnsmessage.RCodeServerFailure
	case !found:
		code = dnsmessage.RCodeNameError
	}
	message := dnsmessage.Message{
		Header: dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RCode: code,
			RecursionDesired: header.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	for _, a := range addresses {
		if q.Type != dnsmessage.TypeA || !a.Is4() {
			continue
		}
		message.Answers = append(message.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: dnsSecondsKept},
			Body:   &dnsmessage.AResource{A: a.As4()}})
	}
	packed, err := message.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// lookUp is the address of SERVICE.NAMESPACE.svc.cluster.local., or those of the pods behind it where it is headless,
// or that of the one pod of the host name in HOST.SERVICE.NAMESPACE.svc.cluster.local.
func (d *clusterDNS) lookUp(ctx context.Context, name string) (addresses []netip.Addr, found bool, err error) {
	name, inside := strings.CutSuffix(name, ".svc."+clusterDomain+".")
	labels := strings.Split(name, ".")
	if !inside || len(labels) < 2 || len(labels) > 3 {
		return nil, false, nil
	}
	namespace, service := url.PathEscape(labels[len(labels)-1]), url.PathEscape(labels[len(labels)-2])
	var s struct{ Spec struct{ ClusterIP string } }
	err = d.client.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/services/"+service, nil, &s)
	if Code(err) == http.StatusNotFound || Code(err) == http.StatusBadRequest {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if ip, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
		return []netip.Addr{ip}, len(labels) == 2, nil
	}
	var slices struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []string
				Hostname   string
				Conditions struct{ Ready *bool }
			}
		}
	}
	if err := d.client.Call(ctx, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+
		"/endpointslices?labelSelector=kubernetes.io/service-name%3D"+service, nil, &slices); err != nil {
		return nil, false, err
	}
	found = len(labels) == 2
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			// Of services that publish addresses which are not ready, the controller says that they are.
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			if !ready || len(labels) == 3 && e.Hostname != labels[0] {
				continue
			}
			for _, a := range e.Addresses {
				if ip, err := netip.ParseAddr(a); err == nil {
					addresses, found = append(addresses, ip), true
				}
			}
		}
	}
	return addresses, found, nil
}

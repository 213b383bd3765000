package preflight

import (
	"crypto/x509"
	"io/fs"
	"time"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Host is what was read of a host. What could not be read is in Incomplete, and no finding.
type Host struct {
	Files map[string]File // by path on the host
	// World says that more than files was read: sockets, stores, the container runtime and the kubelet. It is nil of a
	// tree of files.
	World      *World
	Incomplete []string // what could not be looked at, and why
}

// File is one path of a host. A private key is not in it: its public half is.
type File struct {
	Missing      bool
	Unread       bool // it is there, and could not be read; Incomplete says why
	Directory    bool
	Mode         fs.FileMode
	Data         []byte              // of a file that is not PEM
	Certificates []*x509.Certificate // those of a PEM file, in order
	PrivateKey   bool                // it holds one
	PublicKeys   [][]byte            // of the keys and certificates in it, as PKIX DER
	Problem      string              // why what looks like PEM is none
}

// World is what was read of a host besides files. What is nil was not looked at.
type World struct {
	Listening []Socket
	Addresses []string            // of the host's interfaces
	Stores    map[string][]Member // by store
	Images    *[]string           // names and digests of the images of the container runtime
	Kubelet   *Kubelet
	// Streams is the address on which the container runtime streams exec and attach; nil when it does not say.
	Streams *string
}

// Socket is a TCP socket on which a process listens.
type Socket struct {
	Address string // "" is all of them
	Port    int
	Process []string // its command line; nil when it could not be read
}

// Member is what the member of a store at an endpoint answered.
type Member struct {
	Endpoint string
	Version  string
	Problem  string // "" when it answered
}

// Kubelet is how the kubelet of the host runs.
type Kubelet struct {
	StaticPods string // the directory from which it starts static pods; "" for none
	Where      string // what says so: an argument, a file
}

// Warn is how long before the end of a certificate is warned.
const Warn = 30 * 24 * time.Hour

// Check judges what was read of a host by what the plan needs of it. Findings are sorted.
func Check(n *Needs, h *Host, now time.Time) []finding.Finding {
	c := check{Needs: n, host: h, now: now}
	c.files()
	c.validity()
	c.certificates()
	c.storesOfClients()
	c.kubeconfigServers()
	c.tokens()
	c.encryption()
	if h.World != nil {
		c.ports()
		c.stores()
		c.images()
		c.kubelet()
		c.streams()
	}
	for i := range c.found {
		f := &c.found[i]
		f.Key = finding.Key(f.Rule, n.Host, f.Subject, f.Key)
	}
	finding.Sort(c.found)
	return c.found
}

type check struct {
	*Needs
	host  *Host
	now   time.Time
	found []finding.Finding
}

// report adds a finding; its severity is the rule's unless it says another.
func (c *check) report(f finding.Finding) {
	if f.Severity == 0 {
		for _, r := range Rules() {
			if r.ID == f.Rule {
				f.Severity = r.Severity
			}
		}
	}
	c.found = append(c.found, f)
}

// read is a file that is there and was read as PEM; false otherwise, which is reported elsewhere.
func (c *check) read(path string) (File, bool) {
	f, ok := c.host.Files[path]
	return f, ok && !f.Missing && !f.Unread && !f.Directory && f.Problem == ""
}

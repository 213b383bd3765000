package pki

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"
)

// Certificate is one of a file.
type Certificate struct {
	File          string    `json:"file"`
	CommonName    string    `json:"commonName"`
	Organizations []string  `json:"organizations,omitempty"`
	Names         []string  `json:"names,omitempty"` // names and addresses
	Issuer        string    `json:"issuer"`
	NotAfter      time.Time `json:"notAfter"`
	Days          int       `json:"days"` // until it ends, negative when it has
}

// List reads the certificates of a tree from the root on, those that end first first: of every .crt file, and of .pem
// files that hold any. Errors: a file that cannot be read or parsed.
func List(tree fs.FS, root string, now time.Time) ([]Certificate, error) {
	list := []Certificate{}
	err := fs.WalkDir(tree, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ext := path.Ext(name)
		if entry.IsDir() || (ext != ".crt" && ext != ".pem") {
			return nil
		}
		data, err := readFile(tree, name)
		if err != nil {
			return err
		}
		if ext == ".pem" && !bytes.Contains(data, []byte("BEGIN CERTIFICATE")) {
			return nil // a key
		}
		certificates, err := ParseCertificates(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range certificates {
			entry := Certificate{File: name, CommonName: c.Subject.CommonName, Organizations: c.Subject.Organization,
				Names: c.DNSNames, Issuer: c.Issuer.CommonName, NotAfter: c.NotAfter,
				Days: int(c.NotAfter.Sub(now).Hours() / 24)}
			for _, ip := range c.IPAddresses {
				entry.Names = append(entry.Names, ip.String())
			}
			list = append(list, entry)
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return list, err
}

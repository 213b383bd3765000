// Package host reads what preflight judges: files below a root, and of the machine on which it runs listening sockets,
// stores, the container runtime and the kubelet. It changes nothing.
package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// Parts of a machine that can be left out.
const (
	Ports   = "ports"
	Stores  = "stores"
	Images  = "images"
	Kubelet = "kubelet"
)

// Parts lists them, for help texts and validation.
var Parts = []string{Ports, Stores, Images, Kubelet}

// Options say what to read.
type Options struct {
	// Root is the root of the host's files, "" for the machine's own.
	Root string
	// Staged is a directory with the tree of the host that render wrote: a file that render writes and that is not in
	// its place is looked for there.
	Staged  string
	Machine bool     // the machine itself is read too, not only files
	Skip    []string // Parts to leave out
	Runtime string   // the socket of the container runtime; "" to look for it
	Proc    string   // where the kernel shows processes and sockets; "" for /proc
}

// fileBytes bounds what is read of one file.
const fileBytes = 8 << 20

// Read reads what the plan needs to be known of a host. What cannot be read is in Incomplete; ctx bounds the time.
func Read(ctx context.Context, n *preflight.Needs, o Options) *preflight.Host {
	r := reader{Options: o, host: &preflight.Host{Files: map[string]preflight.File{}}}
	for _, name := range n.Paths() {
		f := r.file(name)
		if needed := slices.ContainsFunc(n.Files, func(f preflight.FileNeed) bool {
			return f.Path == name
		}); f.Missing &&
			!needed {
			r.incomplete("%s is missing: what is on the host was not compared with it", name)
		}
		r.host.Files[name] = f
	}
	for _, need := range n.Files {
		// Files of the tree bring their directories along.
		if o.Staged != "" && (need.Rendered != nil || need.Directory) && r.host.Files[need.Path].Missing {
			r.host.Files[need.Path] = r.at(filepath.Join(o.Staged, filepath.FromSlash(need.Path)))
		}
	}
	if o.Machine {
		r.host.World = &preflight.World{}
		r.machine(ctx, n)
	}
	return r.host
}

type reader struct {
	Options
	host *preflight.Host
}

func (r *reader) incomplete(format string, args ...any) {
	r.host.Incomplete = append(r.host.Incomplete, fmt.Sprintf(format, args...))
}

func (r *reader) wants(part string) bool { return !slices.Contains(r.Skip, part) }

// machine reads what is no file.
func (r *reader) machine(ctx context.Context, n *preflight.Needs) {
	proc := cmp.Or(r.Proc, "/proc")
	if r.wants(Ports) {
		r.sockets(proc)
	}
	if r.wants(Stores) {
		r.stores(ctx, n)
	}
	if n.Target != render.StaticPod {
		return // units start programs, and no kubelet starts anything of the plan
	}
	kubelet := r.findKubelet(proc)
	if r.wants(Kubelet) {
		r.kubelet(kubelet, n.Manifests)
	}
	if r.wants(Images) {
		r.runtime(ctx, kubelet)
	}
}

// file reads a path of the host.
func (r *reader) file(name string) preflight.File {
	place, err := name, error(nil)
	if r.Root != "" {
		place, err = filetree.Resolve(r.Root, name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return preflight.File{Missing: true}
	case err != nil:
		r.incomplete("%s: %v", name, reason(err))
		return preflight.File{Unread: true}
	}
	return r.at(place)
}

// at reads a file of this machine.
func (r *reader) at(place string) preflight.File {
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return preflight.File{Missing: true}
	case err != nil:
		r.incomplete("%s: %v", place, reason(err))
		return preflight.File{Unread: true}
	}
	f := preflight.File{Directory: info.IsDir(), Mode: info.Mode()}
	if f.Directory || f.Mode.Perm()&0o111 != 0 && info.Size() > fileBytes { // a program
		return f
	}
	if !info.Mode().IsRegular() {
		f.Problem = "is no regular file"
		return f
	}
	data, err := readFile(place)
	if err != nil {
		r.incomplete("%s: %v", place, reason(err))
		return preflight.File{Unread: true}
	}
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		f.Data = data
		return f
	}
	contents, err := pki.ParseContents(data)
	if err != nil {
		f.Problem = err.Error()
	}
	f.Certificates, f.PrivateKey, f.PublicKeys = contents.Certificates, contents.PrivateKey, contents.PublicKeys
	return f
}

// readFile reads a text up to the bound. A pipe is not opened, which would wait for its other end.
func readFile(place string) ([]byte, error) {
	f, err := filetree.Open(place)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytes+1))
	if err == nil && len(data) > fileBytes {
		err = fmt.Errorf("is larger than %d bytes", fileBytes)
	}
	return data, err
}

// reason is an error without the path, which the caller names.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

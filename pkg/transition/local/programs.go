package local

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/registry"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

const programMode fs.FileMode = 0o755

// executable checks that a program is there, and which one.
func executable(c *transition.Check) error {
	info, err := os.Stat(c.Path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s: is no program", c.Path)
	}
	if c.SHA256 == "" {
		return nil
	}
	found, err := programDigest(c.Path)
	if err == nil && found != c.SHA256 {
		err = fmt.Errorf("%s: has the SHA-256 %s, want %s", c.Path, found, c.SHA256)
	}
	return err
}

// Digest returns the SHA-256 of a program, "" where there is none.
func (h *Host) Digest(_ context.Context, host, path string) (string, error) {
	return programDigest(h.place(host, path))
}

// programDigest is that of a regular file, "" where there is none.
func programDigest(name string) (string, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: is no regular file", name)
	}
	file, err := filetree.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// asideOf is where what was in the place of a program is kept, by its digest: beside it, so that both are on one file
// system.
func asideOf(file, digest string) string {
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+"."+digest[:16])
}

// putProgram puts a program into its place, and keeps what was there. The place has what it had or the whole program,
// whenever the process is killed.
func (h *Host) putProgram(ctx context.Context, host string, p *transition.Binary) error {
	file := h.place(host, p.Path)
	found, err := programDigest(file)
	if err != nil {
		return err
	}
	if found == p.SHA256 {
		return errors.Join(filetree.RemovePartial(file), os.Chmod(file, programMode))
	}
	if found != "" {
		if err := notRunning(file, found, "replaced by "+p.SHA256); err != nil {
			return err
		}
		if err := keepAside(file, found); err != nil {
			return err
		}
	} else {
		if h.Rehearsal != "" { // other files of the directory are secret
			if err := filetree.Private(filepath.Join(h.Rehearsal, host)); err != nil {
				return err
			}
		}
		if err := publicDirectories(filepath.Dir(file)); err != nil {
			return err
		}
	}
	return filetree.Replace(file, programMode, func(w *bufio.Writer) error {
		sum := sha256.New()
		if err := h.fetch(ctx, host, p, io.MultiWriter(w, sum)); err != nil {
			return fmt.Errorf("program %s: %w", p.Path, err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
			return fmt.Errorf("program %s: %s has the SHA-256 %s, want %s: nothing was put there", p.Path, from(p), got,
				p.SHA256)
		}
		return nil
	})
}

// from names where a program comes from.
func from(p *transition.Binary) string {
	if p.Image == "" {
		return p.File
	}
	return p.File + " of image " + p.Image
}

// fetch writes a program from where it comes.
func (h *Host) fetch(ctx context.Context, host string, p *transition.Binary, out io.Writer) error {
	if p.Image != "" {
		client := h.Images
		if client == nil {
			client = &registry.Client{}
		}
		name, repository, digest, _ := spec.ImageByDigest(p.Image) // which Validate has judged
		return client.File(ctx, registry.Image{Registry: name, Repository: repository, Digest: digest}, p.File, out)
	}
	source := h.place(host, p.File)
	in, err := filetree.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, interrupted{ctx, in})
	return err
}

// interrupted is a reader that ends with its context.
type interrupted struct {
	ctx context.Context
	in  io.Reader
}

func (i interrupted) Read(into []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.in.Read(into)
}

// keepAside gives what is in the place of a program another name.
func keepAside(file, digest string) error {
	aside := asideOf(file, digest)
	err := os.Link(file, aside)
	if errors.Is(err, fs.ErrExist) { // of a process that was killed, or of the same program before
		var kept string
		if kept, err = programDigest(aside); err == nil && kept != digest {
			err = fmt.Errorf("%s: has the SHA-256 %s, and is in the way of what %s has, %s", aside, kept, file, digest)
		}
	}
	if err != nil {
		return fmt.Errorf("keeping what is in the place of a program: %w", err)
	}
	return filetree.Sync(filepath.Dir(file))
}

// removeProgram puts back what was there before a program was put, or removes that. What was there already stays, and
// so does what was changed since.
func (h *Host) removeProgram(host string, p *transition.Binary) error {
	file := h.place(host, p.Path)
	if p.Before == nil { // the step has not begun
		return nil
	}
	before := *p.Before
	err := filetree.RemovePartial(file)
	if err != nil || before == p.SHA256 { // it was there, and not put by this step
		return err
	}
	found, err := programDigest(file)
	switch {
	case err != nil:
		return err
	case found == before && before == "":
		return nil
	case found == before: // a process was killed that had only kept it
		return removeAside(file, before)
	case found != "" && found != p.SHA256:
		return fmt.Errorf("%s: has the SHA-256 %s, and had %q before %s was put there: it was changed since, and stays",
			file, found, before, p.SHA256)
	}
	if found != "" {
		if err := notRunning(file, found, "removed"); err != nil {
			return err
		}
	}
	if before == "" {
		if err := os.Remove(file); err != nil {
			return err
		}
		return filetree.Sync(filepath.Dir(file))
	}
	aside := asideOf(file, before)
	kept, err := programDigest(aside)
	if err == nil && kept != before {
		err = fmt.Errorf("%s: has the SHA-256 %q, want %s, which %s had before: put it back by hand", aside, kept,
			before, file)
	}
	if err == nil {
		err = os.Rename(aside, file)
	}
	if err != nil {
		return err
	}
	return filetree.Sync(filepath.Dir(file))
}

// removeAside takes the second name of what is in its place away.
func removeAside(file, digest string) error {
	aside := asideOf(file, digest)
	a, err := os.Lstat(aside)
	b, there := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && there == nil && !os.SameFile(a, b) {
		return nil
	}
	if err = errors.Join(err, there); err == nil {
		err = os.Remove(aside)
	}
	if err != nil {
		return err
	}
	return filetree.Sync(filepath.Dir(file))
}

// notRunning refuses to change a program that processes run: the next one would be another program, at a time that no
// step has chosen.
func notRunning(file, digest, what string) error {
	running, err := processesOf(file)
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("%s, SHA-256 %s: is not %s: process %d runs it: want another path for another program, or "+
			"FROM with the one that runs", file, digest, what, running[0])
	}
	return err
}

// processesOf are the processes that run a file. Where processes cannot be listed, as on no Linux, nothing is known:
// steps are for Linux alone.
func processesOf(file string) ([]int, error) {
	program, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, link := range links {
		running, err := os.Stat(link) // otherwise it has ended, is of the kernel, or of another user
		if err != nil || !os.SameFile(running, program) {
			continue
		}
		if id, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// publicDirectories creates a directory and those above it that are missing, which every user may look into, whatever
// the umask: components do not all run as root.
func publicDirectories(name string) error {
	if filetree.IsDir(name) {
		return nil
	}
	above := filepath.Dir(name)
	if err := publicDirectories(above); err != nil {
		return err
	}
	if err := os.Mkdir(name, programMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(name, programMode); err != nil {
		return err
	}
	return filetree.Sync(above)
}

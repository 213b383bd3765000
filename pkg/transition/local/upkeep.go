package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// Keeper looks after what a plan has on this machine while no transition goes on.
type Keeper struct {
	Host *Host
	// Aside is the directory in which files that are replaced are kept; it is made.
	Aside string
	Now   func() time.Time

	programs map[string]programSum
}

// programSum is the digest of a program, as long as its file is the same.
type programSum struct {
	info fs.FileInfo
	sum  string
}

// Found is what of an Upkeep there is.
type Found struct {
	Files   []FoundFile
	Program string // SHA-256 of the program of a unit, "" where there is none
	// ProgramDiffers says how it is not the program that the plan has, "" when it is, or the plan does not say.
	ProgramDiffers string
	// Stopped: the unit is not active. Problem is why the component does not serve, "" when it does.
	Stopped bool
	Problem string
}

// FoundFile is a file of an Upkeep.
type FoundFile struct {
	Path   string
	SHA256 string // of what is there; "" for nothing
	// Differs says how it is not what the plan has, "" when it is.
	Differs string
}

// Differs names what is not as the plan has it.
func (f *Found) Differs() []string {
	var list []string
	for _, file := range f.Files {
		if file.Differs != "" {
			list = append(list, file.Differs)
		}
	}
	return list
}

// Look compares what is there with what the plan has, and asks whether it serves.
func (k *Keeper) Look(ctx context.Context, host string, u *transition.Upkeep) Found {
	var found Found
	for _, f := range slices.Concat(u.Start, u.Beside) {
		file := FoundFile{Path: f.Path}
		data, _, err := state(k.Host.place(host, f.Path))
		if data != nil {
			file.SHA256 = digest(data)
		}
		if err == nil {
			err = fileIs(k.Host.place(host, f.Path), &f)
		}
		if err != nil {
			file.Differs = err.Error()
		}
		found.Files = append(found.Files, file)
	}
	var problems []error
	if u.Program != "" {
		var err error
		if found.Program, err = k.program(k.Host.place(host, u.Program)); err != nil {
			problems = append(problems, err)
		}
		if _, err := os.Lstat(k.Host.place(host, u.Program)); u.ProgramSHA256 != "" && errors.Is(err, fs.ErrNotExist) {
			found.ProgramDiffers = u.Program + ": is not there"
		} else if u.ProgramSHA256 != "" && found.Program != "" && found.Program != u.ProgramSHA256 {
			found.ProgramDiffers = fmt.Sprintf("%s: has the SHA-256 %s, and the plan %s", u.Program, found.Program,
				u.ProgramSHA256)
		}
	}
	if u.Unit != "" && k.Host.Rehearsal == "" {
		out, err := exec.CommandContext(ctx, "systemctl", "is-active", u.Unit).CombinedOutput()
		if err != nil {
			found.Stopped = true
			problems = append(problems, fmt.Errorf("unit %s is %s", u.Unit, said(out, err)))
		}
	}
	for i := range u.Ready {
		problems = append(problems, k.Host.Check(ctx, host, &u.Ready[i]))
	}
	if err := errors.Join(problems...); err != nil {
		found.Problem = err.Error()
	}
	return found
}

// said is what a command said, or why it could not.
func said(out []byte, err error) string {
	if text := string(bytes.TrimSpace(out)); text != "" {
		return text
	}
	return err.Error()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// program is the digest of a program, which is read again when its file is another one.
func (k *Keeper) program(name string) (string, error) {
	file, err := filetree.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if known, ok := k.programs[name]; ok && os.SameFile(known.info, info) && known.info.Size() == info.Size() &&
		known.info.ModTime().Equal(info.ModTime()) {
		return known.sum, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	if k.programs == nil {
		k.programs = map[string]programSum{}
	}
	k.programs[name] = programSum{info, hex.EncodeToString(sum.Sum(nil))}
	return k.programs[name].sum, nil
}

// Mend puts back what differs, and starts a unit whose files it has put back, or that is stopped. What was in a file is
// kept in Aside. It returns what it did, also beside an error. What is no regular file is left alone.
func (k *Keeper) Mend(ctx context.Context, host string, u *transition.Upkeep, found *Found) ([]string, error) {
	var done []string
	var problems []error
	differs := func(f *transition.File) bool {
		return slices.ContainsFunc(found.Files, func(o FoundFile) bool { return o.Path == f.Path && o.Differs != "" })
	}
	restart := false
	for _, files := range [][]transition.File{u.Beside, u.Start} { // a manifest starts what reads the others
		for i := range files {
			f := &files[i]
			if !differs(f) {
				continue
			}
			if err := k.replace(ctx, host, f); err != nil {
				problems = append(problems, err)
				continue
			}
			done = append(done, "put back "+f.Path)
			restart = restart || slices.ContainsFunc(u.Start, func(s transition.File) bool { return s.Path == f.Path })
		}
	}
	if len(problems) == 0 && u.Binary != nil && u.Unit != "" && found.ProgramDiffers != "" {
		if err := k.putProgram(ctx, host, u); err != nil {
			problems = append(problems, err)
		} else {
			done, restart = append(done, "put program "+u.Program), true
		}
	}
	if u.Unit == "" || k.Host.Rehearsal != "" || !restart && !found.Stopped || len(problems) > 0 {
		return done, errors.Join(problems...)
	}
	if err := startUnit(ctx, u.Unit); err != nil {
		return done, err
	}
	return append(done, "restarted "+u.Unit), nil
}

// putProgram puts the program of a unit into its place, from where the plan has it, and keeps what was there beside it.
// The unit is stopped while that is exchanged, and no sooner: where it cannot be had, what runs goes on.
func (k *Keeper) putProgram(ctx context.Context, host string, u *transition.Upkeep) error {
	staged := *u.Binary
	staged.Path += ".next"
	if err := k.Host.putProgram(ctx, host, &staged); err != nil {
		return err
	}
	fetched := k.Host.place(host, staged.Path)
	defer os.Remove(fetched) //nolint:errcheck // it is a copy; the next one is put over it
	if k.Host.Rehearsal == "" {
		if err := systemctl(ctx, "stop", u.Unit); err != nil {
			return err
		}
	}
	placed := *u.Binary
	placed.Image, placed.File = "", staged.Path
	return k.Host.putProgram(ctx, host, &placed)
}

// mostKept is how many contents of one path are kept in Aside: the first one, which is what there was before anything
// was put back, and the last ones. What fights with the upkeep writes one each time that it is put back.
const mostKept = 10

// keep puts what a file has into Aside. What is kept of it already is not kept twice.
func (k *Keeper) keep(path string, data []byte) error {
	if err := filetree.Private(k.Aside); err != nil {
		return err
	}
	of := strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "__") + "."
	entries, err := os.ReadDir(k.Aside) // sorted: by the time, for one path
	if err != nil {
		return err
	}
	sum := "." + digest(data)[:8]
	var kept []string
	for _, e := range entries {
		rest, is := strings.CutPrefix(e.Name(), of)
		if at, _, _ := strings.Cut(rest, "."); !is || len(rest) != len(asideTime+sum) || !isAsideTime(at) {
			continue // of another path, or none of ours
		}
		if strings.HasSuffix(rest, sum) {
			if was, err := os.ReadFile(filepath.Join(k.Aside, e.Name())); err == nil && bytes.Equal(was, data) {
				return nil
			}
		}
		kept = append(kept, e.Name())
	}
	name := of + k.Now().UTC().Format(asideTime) + sum
	if err := filetree.WriteFile(filepath.Join(k.Aside, name), data, 0o600); err != nil {
		return err
	}
	for len(kept) >= mostKept {
		if err := os.Remove(filepath.Join(k.Aside, kept[1])); err != nil {
			return err
		}
		kept = slices.Delete(kept, 1, 2)
	}
	return nil
}

const asideTime = "20060102T150405Z"

func isAsideTime(text string) bool {
	_, err := time.Parse(asideTime, text)
	return err == nil
}

// replace puts a file into its place, whatever is there.
func (k *Keeper) replace(ctx context.Context, host string, f *transition.File) error {
	data, mode, err := state(k.Host.place(host, f.Path))
	if err != nil {
		return err
	}
	if data != nil && !bytes.Equal(data, f.Data) {
		if err := k.keep(f.Path, data); err != nil {
			return fmt.Errorf("keeping what %s has: %w", f.Path, err)
		}
	}
	var was *transition.File
	if data != nil {
		was = &transition.File{Path: f.Path, Mode: mode, Data: data}
	}
	return k.Host.put(ctx, host, f, was)
}

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// Tree is where the files of one host of a plan are.
type Tree struct {
	Host        string
	Directories []string // none where the host has no directory
}

// ErrWhichHost says that the files of a directory may be those of several hosts.
var ErrWhichHost = errors.New("of which host are these files?")

// existing is where a directory of a host has what it has of a control plane already.
const existing = "existing"

// ByHost says which directory is whose: DIR/HOST where there is one of some host, as render writes them, and else DIR
// itself. only is the host that is wanted, "" for all.
// Errors: the directory is none; that of a host is a link; only is none of the hosts; ErrWhichHost.
func ByHost(directory string, hosts []string, only string) ([]Tree, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: is a file, want the directory that it is in", directory)
	}
	wanted := hosts
	if only != "" {
		if !slices.Contains(hosts, only) {
			return nil, fmt.Errorf("host %q: the plan has %s", only, strings.Join(hosts, ", "))
		}
		wanted = []string{only}
	}
	for _, host := range hosts {
		for _, d := range []string{filepath.Join(directory, host), filepath.Join(directory, host, existing)} {
			if info, err := os.Lstat(d); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				return nil, fmt.Errorf("%s: is a link: want the directory itself; links in a copy of a host's files "+
					"lead anywhere on this machine", d)
			}
		}
	}
	if !slices.ContainsFunc(hosts, func(h string) bool { return filetree.IsDir(filepath.Join(directory, h)) }) {
		if len(wanted) > 1 {
			return nil, fmt.Errorf("%s: %w the plan has %s", directory, ErrWhichHost, strings.Join(hosts, ", "))
		}
		return []Tree{{wanted[0], []string{directory}}}, nil
	}
	var trees []Tree
	for _, host := range wanted {
		root := filepath.Join(directory, host)
		trees = append(trees, Tree{host, slices.DeleteFunc([]string{root, filepath.Join(root, existing)},
			func(d string) bool { return !filetree.IsDir(d) })})
	}
	return trees, nil
}

// Running reads what the files of a host start, as render.Diff compares it with the plan, and what a person should know
// about them. Places begin with the directory.
// Errors: those of Open and of adopt.ReadAll, beside the notes about what was read before.
func (t Tree) Running(p *plan.Plan) (running []render.Running, notes []adopt.Note, err error) {
	for _, directory := range t.Directories {
		dir, err := Open(directory)
		if err != nil {
			return nil, notes, err
		}
		found, err := adopt.ReadAll(dir.Files, dir.Host)
		if err != nil {
			return nil, notes, fmt.Errorf("reading %s: %w", directory, err)
		}
		about := found.Notes
		for i := range found.Processes {
			process := &found.Processes[i]
			args, more := process.Args(render.MinorOf(p, process.Name))
			about = append(about, more...)
			running = append(running, render.Running{Name: process.Name, Kind: process.Component,
				Place: filepath.Join(directory, process.Place), Image: process.Image, Args: args, Env: process.Env})
		}
		for _, note := range about {
			if note.Place != "" {
				note.Place = filepath.Join(directory, note.Place)
			}
			notes = append(notes, note)
		}
	}
	return running, notes, nil
}

//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// tarred is what kubectl cp runs in a container: `tar cf - PATH` and `tar xmf - -C DIR`.
type tarred struct {
	extract bool
	now     bool // files are of the time at which they are written
	dir     string
	paths   []string
}

// parseTar reads the arguments of tar, of which it knows those that kubectl gives.
func parseTar(args []string) (t tarred, err error) {
	file, mode := "", ""
	next := func(option string) (value string) {
		if len(args) == 0 {
			err = errors.Join(err, fmt.Errorf("tar: %s wants a value", option))
			return ""
		}
		value, args = args[0], args[1:]
		return value
	}
	for first := true; len(args) > 0; first = false {
		arg := next("")
		switch {
		case arg == "--no-same-permissions" || arg == "--no-same-owner":
			continue
		case strings.HasPrefix(arg, "--") || arg == "-" || !strings.HasPrefix(arg, "-") && !first:
			t.paths = append(t.paths, arg)
			continue
		}
		for _, letter := range strings.TrimPrefix(arg, "-") {
			switch letter {
			case 'c', 'x':
				mode += string(letter)
			case 'm':
				t.now = true
			case 'f':
				file = next("f")
			case 'C':
				t.dir = next("C")
			default:
				err = errors.Join(err, fmt.Errorf("tar: option %q: want c, x, m, f or C", letter))
			}
		}
	}
	t.extract = mode == "x"
	if mode != "c" && mode != "x" || file != "-" || t.extract == (len(t.paths) > 0) {
		err = errors.Join(err, errors.New("tar: want cf - PATH... or xf - [-C DIR]"))
	}
	return t, err
}

func runTar(args []string, in io.Reader, out io.Writer) error {
	t, err := parseTar(args)
	switch {
	case err != nil:
		return err
	case t.extract:
		return t.untar(in)
	}
	w := tar.NewWriter(out)
	for _, each := range t.paths {
		if err := t.add(w, each); err != nil {
			return err
		}
	}
	return w.Close()
}

// add writes a file, or a folder with what is below. Names lose their first slash, as everywhere.
func (t tarred) add(w *tar.Writer, name string) error {
	at := name
	if !path.IsAbs(name) {
		at = filepath.Join(t.dir, name)
	}
	return filepath.WalkDir(at, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header.Name = strings.TrimPrefix(name+strings.TrimPrefix(file, at), "/")
		if info.IsDir() {
			header.Name += "/"
		}
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		in, err := os.Open(file)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.CopyN(w, in, header.Size)
		return err
	})
}

// untar writes what an archive holds below the folder, and nothing beside it.
func (t tarred) untar(in io.Reader) error {
	root, err := os.OpenRoot(filepath.Clean(t.dir))
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimLeft(header.Name, "/"))
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, name)
		case tar.TypeReg:
			err = untarFile(root, name, header, r)
		default:
			err = fmt.Errorf("tar: %s: no file, folder or link", header.Name)
		}
		if err == nil && !t.now && header.Typeflag != tar.TypeSymlink {
			err = root.Chtimes(name, header.ModTime, header.ModTime)
		}
		if err != nil {
			return err
		}
	}
}

func untarFile(root *os.Root, name string, header *tar.Header, in io.Reader) error {
	out, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

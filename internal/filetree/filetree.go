// Package filetree writes files, and directories of generated files, as a whole or not at all. Of directories it
// overwrites only what it wrote itself.
package filetree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is a file of the tree.
type File struct {
	Path string // relative, with slashes; within the tree
	Mode fs.FileMode
	Data []byte
}

// Record lies in a directory that Write wrote and says what it put there.
// Shape:  {"schema":"fusionctl/filetree/v1","source":"kubeflow","files":{"cp-1/etc/...":"sha256:..."}}
type Record struct {
	Schema string            `json:"schema"`
	Source string            `json:"source"` // what the files were made from
	Part   string            `json:"part"`   // which part of it; "" for the whole
	Files  map[string]string `json:"files"`  // digests by path
}

// RecordFile is the name of the record in the directory.
const RecordFile = ".fusionctl-render"

const recordSchema = "fusionctl/filetree/v1"

// OccupiedError says that a directory holds something that would be lost.
type OccupiedError struct {
	Directory string
	Lost      []string // what would be lost, one sentence each
}

func (e *OccupiedError) Error() string {
	const limitLines = 10
	lines := e.Lost
	if len(lines) > limitLines {
		lines = append(slices.Clone(lines[:limitLines]), fmt.Sprintf("and %d more", len(e.Lost)-limitLines))
	}
	return fmt.Sprintf("%s: is not overwritten:\n  %s", e.Directory, strings.Join(lines, "\n  "))
}

// Write puts the files, and a record of them, into the directory, which then holds nothing else. The directory may be
// missing, empty, or one that Write wrote from the same source and that is unchanged since. The new content is written
// beside it and takes its place by a rename, so that the directory is at every moment the old one or the new one; what
// a run that was killed has left there is removed by the next one. The directory is its owner's alone when one of the
// files is.
//
// Errors: *OccupiedError; what the file system says. After an error, and when ctx ends, the directory is as it was.
func Write(ctx context.Context, directory, source, part string, files []File) error {
	directory, err := place(directory)
	if err != nil {
		return err
	}
	release, held, err := lock(ctx, filepath.Dir(directory))
	if err != nil {
		return fmt.Errorf("writing %s: %w", directory, err)
	}
	defer release()
	if held {
		if err := clean(directory); err != nil {
			return fmt.Errorf("removing the leftovers of an earlier run beside %s: %w", directory, err)
		}
	}
	exists, err := replaceable(directory, source, part)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(directory), "."+filepath.Base(directory)+".new-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", directory, err)
	}
	defer os.RemoveAll(temporary) // gone once it is renamed
	if err := fill(ctx, temporary, source, part, files); err != nil {
		return fmt.Errorf("writing %s: %w", directory, err)
	}
	if err := swap(temporary, directory, exists); err != nil {
		return fmt.Errorf("writing %s: %w", directory, err)
	}
	return Sync(filepath.Dir(directory))
}

// IsDir reports whether there is a directory of the name.
func IsDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// place is the directory without links, so that a rename replaces it and not a link to it.
func place(directory string) (string, error) {
	absolute, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
		absolute = resolved
	}
	working, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(working); err == nil {
		working = resolved
	}
	if working == absolute ||
		strings.HasPrefix(working, strings.TrimSuffix(absolute, string(filepath.Separator))+
			string(filepath.Separator)) {
		return "", &OccupiedError{Directory: directory,
			Lost: []string{"it is, or holds, the working directory, and it would be replaced"}}
	}
	return absolute, nil
}

// replaceable reports whether the directory exists, and refuses one that holds what Write did not put there.
func replaceable(directory, source, part string) (exists bool, err error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", directory, err)
	}
	if len(entries) == 0 {
		return true, nil
	}
	record, err := readRecord(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return true, &OccupiedError{Directory: directory, Lost: []string{"it holds files that were not rendered"}}
	}
	if err != nil {
		return true, fmt.Errorf("reading %s: %w", filepath.Join(directory, RecordFile), err)
	}
	lost, err := changed(directory, record)
	if err != nil {
		return true, err
	}
	if record.Source != source {
		lost = append(lost, fmt.Sprintf("it was rendered from %q, not from %q", record.Source, source))
	} else if part != "" && record.Part != part {
		whole := record.Part
		if whole == "" {
			whole = "every host"
		}
		lost = append(lost, fmt.Sprintf("it was rendered for %s, not for %s alone", whole, part))
	}
	if len(lost) > 0 {
		return true, &OccupiedError{Directory: directory, Lost: lost}
	}
	return true, nil
}

// limitRecordBytes is the size of the largest record: a thousand hosts have 200,000 files.
const limitRecordBytes = 64 << 20

// readRecord reads the record of a directory that may have another owner: opening a pipe would wait for its other end,
// and a link may lead to what has no end.
func readRecord(directory string) (*Record, error) {
	name := filepath.Join(directory, RecordFile)
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	data, err := ReadFile(name, limitRecordBytes)
	if err != nil {
		return nil, err
	}
	var record Record
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, err
	}
	if record.Schema != recordSchema {
		return nil, fmt.Errorf("schema %q: want %q", record.Schema, recordSchema)
	}
	return &record, nil
}

// changed lists, by path, what a person has put into the directory or changed in it since the record was made.
func changed(directory string, record *Record) ([]string, error) {
	var lost []string
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(directory, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() || relative == RecordFile {
			return nil
		}
		want, ours := record.Files[relative]
		switch {
		case !ours:
			lost = append(lost, relative+" was not rendered")
		case !entry.Type().IsRegular():
			lost = append(lost, relative+" is no longer a file")
		default:
			got, err := digestOf(name)
			if err != nil {
				return err
			}
			if got != want {
				lost = append(lost, relative+" was changed by hand")
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", directory, err)
	}
	return lost, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digestOf is the digest of a file, whatever its size.
func digestOf(name string) (string, error) {
	f, err := Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

// The modes of directories.
const (
	private fs.FileMode = 0o700
	public  fs.FileMode = 0o755
)

// fill writes files and record into an empty directory.
func fill(ctx context.Context, directory, source, part string, files []File) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	mode := public
	record := Record{Schema: recordSchema, Source: source, Part: part, Files: map[string]string{}}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			return fmt.Errorf("%q lies outside of the directory", f.Path)
		}
		if err := directories(root, path.Dir(f.Path)); err != nil {
			return err
		}
		if err := create(root, f.Path, f.Data, f.Mode); err != nil {
			return err
		}
		if f.Mode.Perm()&0o077 == 0 {
			mode = private
		}
		record.Files[f.Path] = digest(f.Data)
	}
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	if err := create(root, RecordFile, append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := root.Chmod(".", mode); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = syncIn(root, name)
		}
		return err
	})
}

// movedAway is the name of the old content while the new one takes its place, where two directories cannot be
// exchanged.
const movedAway = "tree"

// swap gives the temporary directory the place of the other, and gives it back when that fails.
func swap(temporary, directory string, exists bool) error {
	if !exists {
		return os.Rename(temporary, directory)
	}
	if exchange(temporary, directory) == nil {
		return os.RemoveAll(temporary)
	}
	old, err := os.MkdirTemp(filepath.Dir(directory), "."+filepath.Base(directory)+".old-")
	if err != nil {
		return err
	}
	if err := os.Rename(directory, filepath.Join(old, movedAway)); err != nil {
		return errors.Join(err, os.RemoveAll(old))
	}
	if err := os.Rename(temporary, directory); err != nil {
		if back := os.Rename(filepath.Join(old, movedAway), directory); back != nil {
			return errors.Join(err, fmt.Errorf("restoring the old content, which is in %s: %w", old, back))
		}
		return errors.Join(err, os.RemoveAll(old))
	}
	return os.RemoveAll(old)
}

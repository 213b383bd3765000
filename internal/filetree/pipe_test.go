//go:build unix

package filetree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenOpensNoPipe, whatever was there when it was looked at.
func TestOpenOpensNoPipe(t *testing.T) {
	directory := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(directory, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(directory, "device")); err != nil {
		t.Fatal(err)
	}
	opened := map[string]func(string) error{
		"Open":     func(name string) error { _, err := Open(filepath.Join(directory, name)); return err },
		"ReadFile": func(name string) error { _, err := ReadFile(filepath.Join(directory, name), 1); return err },
		"DirFS":    func(name string) error { _, err := DirFS(directory).Open(name); return err },
		"Within":   func(name string) error { _, err := Within(directory).Open(name); return err },
	}
	ended := make(chan string)
	for by, open := range opened {
		for _, name := range []string{"pipe", "device"} {
			if by == "Within" && name == "device" {
				continue // it leads out
			}
			go func() { ended <- fmt.Sprintf("%s %s: %v", by, name, open(name)) }()
			select {
			case got := <-ended:
				if !strings.HasSuffix(got, name+": is no regular file") {
					t.Error(got)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s of a %s waits", by, name)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(directory, "file"), []byte("ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(filepath.Join(directory, "file"), 2); err != nil || string(data) != "ab" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
	if _, err := ReadFile(filepath.Join(directory, "file"), 1); err == nil || !strings.Contains(err.Error(),
		"larger than 1 bytes") {
		t.Errorf("ReadFile of more than it may = %v", err)
	}
	if err := fstest.TestFS(Within(filepath.Join(directory)), "file"); err == nil {
		t.Error("a pipe is read") // TestFS opens all
	}
	if err := errors.Join(os.Remove(filepath.Join(directory, "pipe")), os.Remove(filepath.Join(directory, "device")),
		os.Mkdir(filepath.Join(directory, "d"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(DirFS(directory), "file", "d"); err != nil {
		t.Error(err)
	}
}

// Opening a pipe would wait for its other end, and no signal would end that.
func TestWriteOpensNoPipe(t *testing.T) {
	directory := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(directory, RecordFile), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Write(t.Context(), directory, "a", "", sample) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("Write = %v, want that the record is no regular file", err)
		}
	case <-time.After(time.Minute):
		t.Error("Write waits for the other end of a pipe")
	}
}

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What kubectl cp sends arrives, and comes back.
func TestTar(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"a/large": string(bytes.Repeat([]byte("x"), 100_000)), "a/b/small": "s"} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("large", filepath.Join(from, "a/link")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := runTar([]string{"cf", "-", from + "/a"}, nil, &archive); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"xmf", "-", "-C", to}, {"--no-same-permissions", "--no-same-owner", "-xmf", "-",
		"-C", filepath.Join(to, "..", filepath.Base(to), "tmp")}} {
		if err := os.MkdirAll(args[len(args)-1], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := runTar(args, bytes.NewReader(archive.Bytes()), nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"large", "b/small", "link"} {
			want, err := os.ReadFile(filepath.Join(from, "a", name))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(args[len(args)-1], from, "a", name)); err != nil ||
				!bytes.Equal(got, want) {
				t.Errorf("%s by %q: %d bytes, %v", name, args, len(got), err)
			}
		}
	}
	var outside bytes.Buffer
	w := tar.NewWriter(&outside)
	if err := w.WriteHeader(&tar.Header{Name: "../outside", Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := runTar([]string{"xmf", "-", "-C", to}, &outside, nil); err == nil {
		t.Error("a file is written beside the folder")
	}
	for _, args := range [][]string{nil, {"cf", "-"}, {"cf"}, {"tf", "-"}, {"cf", "x.tar", "a"}, {"xf", "-", "a"}} {
		if err := runTar(args, nil, nil); err == nil {
			t.Errorf("tar %q is understood", args)
		}
	}
}

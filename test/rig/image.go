package rig

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
)

// Image is a container image of static programs, for nodes that no registry is reached from.
type Image struct {
	Name  string            // docker.io/library/pod:1
	Files map[string]string // path in the image to a file of this machine, all executable: usr/local/bin/etcd
	// Entrypoint is what runs unless the pod says so.
	Entrypoint []string
}

// write writes the image as a tar archive that container runtimes import: an OCI layout. Its configuration names the
// image, so no two images have the same: the runtime's answers would name one for the other.
func (i Image) write(file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("making image %s: %w", i.Name, err)
	}
	w := &layout{w: tar.NewWriter(out)}
	layerBlob := w.blob("application/vnd.oci.image.layer.v1.tar", layer)
	config := w.blob("application/vnd.oci.image.config.v1+json", jsonBytes(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Labels": map[string]string{"name": i.Name}, "Entrypoint": i.Entrypoint,
			"Env": append([]string{"PATH=/usr/local/bin:/"}, collection...),
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	}))
	manifest := w.blob("application/vnd.oci.image.manifest.v1+json", jsonBytes(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": []any{layerBlob},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": i.Name,
		"org.opencontainers.image.ref.name": i.Name}
	w.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	w.add("index.json", jsonBytes(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}))
	if w.err != nil {
		return w.err
	}
	return w.w.Close()
}

// layer is the one layer of the image: its programs, and the folders that a program may expect.
func (i Image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{}
	folder := func(name string) error {
		if folders[name] || name == "." {
			return nil
		}
		folders[name] = true
		mode := int64(0o755)
		if name == "tmp" {
			mode = 0o777
		}
		return w.WriteHeader(&tar.Header{Name: name + "/", Mode: mode, Typeflag: tar.TypeDir})
	}
	for _, name := range []string{"dev", "etc", "proc", "sys", "tmp", "var"} {
		if err := folder(name); err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(i.Files))
	for name := range i.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var parents []string
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			parents = append(parents, dir)
		}
		for _, dir := range slices.Backward(parents) {
			if err := folder(dir); err != nil {
				return nil, err
			}
		}
		if err := addFile(w, name, i.Files[name]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func addFile(w *tar.Writer, name, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(
		&tar.Header{Name: name, Mode: 0o755, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// layout writes the files of an OCI layout; it keeps the first error.
type layout struct {
	w   *tar.Writer
	err error
}

func (l *layout) add(name string, data []byte) {
	if l.err == nil {
		l.err = l.w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
	}
	if l.err == nil {
		_, l.err = l.w.Write(data)
	}
}

// blob adds data and returns its descriptor.
func (l *layout) blob(mediaType string, data []byte) map[string]any {
	sum := digest(data)
	l.add("blobs/sha256/"+sum[len("sha256:"):], data)
	return map[string]any{"mediaType": mediaType, "digest": sum, "size": len(data)}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// jsonBytes writes maps of strings, numbers and lists, which cannot fail.
func jsonBytes(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("rig: internal error: " + err.Error())
	}
	return data
}

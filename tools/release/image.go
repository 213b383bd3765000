package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who runs in the image; nonroot, by the number that distroless images use.
const user = "65532"

// image writes the image of each linux program as one OCI layout, in a tar file, and its digest.
func (r *release) image(programs []program) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	any := false
	for _, p := range programs {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageOf(p)
		if err != nil {
			return err
		}
		any = true
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	if !any {
		return nil
	}
	dir := filepath.Join(r.extras, "image")
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := target.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	var entries []entry
	err = filepath.Walk(dir, func(file string, info os.FileInfo, err error) error {
		if err != nil || file == dir {
			return err
		}
		e := entry{name: strings.TrimPrefix(file, dir+"/"), mode: 0o644}
		if info.IsDir() {
			e.name, e.mode, e.dir = e.name+"/", 0o755, true
		} else if e.data, err = os.ReadFile(file); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	data, err := packed(entries, r.date)
	if err != nil {
		return err
	}
	if err := r.write("fusionctl_"+r.number()+"_image.tar", data); err != nil {
		return err
	}
	return r.write("fusionctl_"+r.number()+"_image.digest", []byte(digest.String()+"\n"))
}

// imageOf has the program, and what a process expects around it: a user, and a directory for temporary files.
func (r *release) imageOf(p program) (v1.Image, error) {
	binary, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files, err := packed([]entry{
		{name: "etc/", mode: 0o755, dir: true},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/none\nnonroot:x:" + user + ":" + user +
			":nonroot:/home/nonroot:/none\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
		{name: "tmp/", mode: 0o1777, dir: true},
		{name: "usr/", mode: 0o755, dir: true},
		{name: "usr/bin/", mode: 0o755, dir: true},
		{name: "usr/bin/fusionctl", mode: 0o755, data: binary},
		{name: "usr/share/", mode: 0o755, dir: true},
		{name: "usr/share/doc/", mode: 0o755, dir: true},
		{name: "usr/share/doc/fusionctl/", mode: 0o755, dir: true},
		{name: "usr/share/doc/fusionctl/copyright", mode: 0o644, data: license},
	}, r.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.date}, RootFS: rootFS(image),
		Config: v1.Config{User: user + ":" + user, WorkingDir: "/", Entrypoint: []string{"/usr/bin/fusionctl"},
			Env: []string{"PATH=/usr/bin", "HOME=/tmp"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "fusionctl",
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.commit,
				"org.opencontainers.image.source":   "https://github.com/kubefusion/fusionctl",
				"org.opencontainers.image.licenses": "Apache-2.0",
			}},
	})
}

func rootFS(image v1.Image) v1.RootFS {
	file, err := image.ConfigFile()
	if err != nil {
		panic("release: internal error: " + err.Error()) // of an image in memory
	}
	return file.RootFS
}

package rig

import (
	"archive/tar"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ServeImage serves an image as registries do, by digests alone, until the test ends, and returns what names it:
// HOST:PORT/programs@sha256:DIGEST. The certificate is of the rig's authority.
func (r *Rig) ServeImage(image Image) string {
	r.t.Helper()
	manifest, blobs, err := r.unpacked(image)
	if err != nil {
		r.t.Fatalf("serving image %s: %v", image.Name, err)
	}
	certFile, keyFile, err := r.PKI.Serving("registry", r.host)
	if err != nil {
		r.t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(r.host, "0"))
	if err != nil {
		r.t.Fatal(err)
	}
	server := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			kind, digest := path.Split(strings.TrimPrefix(request.URL.Path, "/v2/programs/"))
			sum, known := strings.CutPrefix(digest, "sha256:")
			switch {
			case !known || kind == "manifests/" && digest != manifest:
				http.NotFound(w, request)
				return
			case kind == "manifests/":
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			}
			http.ServeFile(w, request, filepath.Join(blobs, filepath.Base(sum)))
		})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "") // until it is closed
	}()
	r.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().String() + "/programs@" + manifest
}

// unpacked writes the blobs of an image into a folder, each as a file of its sum, and returns the manifest's digest.
func (r *Rig) unpacked(image Image) (manifest, blobs string, err error) {
	blobs = filepath.Join(r.dir, "registry")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return "", "", err
	}
	archive := filepath.Join(r.dir, "registry.tar")
	if err := image.write(archive); err != nil {
		return "", "", err
	}
	defer os.Remove(archive)
	file, err := os.Open(archive)
	if err != nil {
		return "", "", err
	}
	defer file.Close()
	var index struct{ Manifests []struct{ Digest string } }
	for in := tar.NewReader(file); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", "", err
		}
		switch dir, name := path.Split(header.Name); {
		case dir == "blobs/sha256/":
			out, err := os.Create(filepath.Join(blobs, name))
			if err != nil {
				return "", "", err
			}
			_, err = io.Copy(out, in)
			if err := errors.Join(err, out.Close()); err != nil {
				return "", "", err
			}
		case name == "index.json":
			if err := json.NewDecoder(in).Decode(&index); err != nil {
				return "", "", err
			}
		}
	}
	if len(index.Manifests) != 1 {
		return "", "", errors.New("the index names no manifest")
	}
	return index.Manifests[0].Digest, blobs, nil
}

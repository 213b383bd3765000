package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// entry is a file of an archive.
type entry struct {
	name string
	data []byte
	mode int64
	dir  bool
}

// packed is a tar of the entries, all of root and of one time.
func packed(entries []entry, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: date, Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR}
		if e.dir {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// zipped compresses without a name or a time.
func zipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// archiveName is the archive of a program.
func (r *release) archiveName(p program) string {
	return "fusionctl_" + r.number() + "_" + p.os + "_" + p.arch + ".tar.gz"
}

// archive holds the program, its license and those of its dependencies, manual pages and completions.
func (r *release) archive(p program) error {
	entries := []entry{}
	add := func(name, file string, mode int64) error {
		data, err := os.ReadFile(file)
		entries = append(entries, entry{name: name, data: data, mode: mode})
		return err
	}
	if err := add("fusionctl", p.file, 0o755); err != nil {
		return err
	}
	for _, file := range r.papers() {
		if err := add(file.name, file.source, 0o644); err != nil {
			return err
		}
	}
	for _, pattern := range []string{"completions/*", "man/*"} {
		found, err := r.glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range found {
			if err := add(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), file, 0o644); err != nil {
				return err
			}
		}
	}
	data, err := packed(entries, r.date)
	if err != nil {
		return err
	}
	if data, err = zipped(data); err != nil {
		return err
	}
	return r.write(r.archiveName(p), data)
}

// paper is a text that comes along.
type paper struct{ name, source string }

func (r *release) papers() []paper {
	return []paper{
		{"LICENSE", filepath.Join(r.source, "LICENSE")},
		{"THIRD_PARTY_LICENSES", filepath.Join(r.source, "internal/licenses/THIRD_PARTY_LICENSES")},
		{"README.md", filepath.Join(r.source, "README.md")},
		{"CHANGELOG.md", filepath.Join(r.source, "CHANGELOG.md")},
		{"dashboard.json", filepath.Join(r.source, "examples/monitoring/dashboard.json")},
		{"rules.yaml", filepath.Join(r.source, "examples/monitoring/rules.yaml")},
	}
}

// completionsOf are where Debian's shells look.
var completionsOf = map[string]string{
	"fusionctl.bash": "/usr/share/bash-completion/completions/fusionctl",
	"fusionctl.fish": "/usr/share/fish/vendor_completions.d/fusionctl.fish",
	"fusionctl.zsh":  "/usr/share/zsh/vendor-completions/_fusionctl",
}

// debian makes a package for Debian and what descends from it.
func (r *release) debian(p program) error {
	var contents files.Contents
	add := func(destination, source string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: source, Destination: destination,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}})
	}
	add("/usr/bin/fusionctl", p.file, 0o755)
	pages, err := r.glob("man/*.1")
	if err != nil {
		return err
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if data, err = zipped(data); err != nil {
			return err
		}
		if err := os.WriteFile(page+".gz", data, 0o644); err != nil {
			return err
		}
		add("/usr/share/man/man1/"+filepath.Base(page)+".gz", page+".gz", 0o644)
	}
	completions, err := r.glob("completions/*")
	if err != nil {
		return err
	}
	for _, file := range completions {
		add(completionsOf[filepath.Base(file)], file, 0o644)
	}
	for _, paper := range r.papers() {
		name := paper.name
		if name == "LICENSE" {
			name = "copyright"
		}
		add("/usr/share/doc/fusionctl/"+name, paper.source, 0o644)
	}
	info := nfpm.WithDefaults(&nfpm.Info{Name: "fusionctl", Arch: p.arch, Platform: "linux", Version: r.number(),
		VersionSchema: "semver", Section: "admin", Priority: "optional", MTime: r.date, License: "Apache-2.0",
		Maintainer: "The fusionctl maintainers <maintainers@kubefusion.dev>",
		Homepage:   "https://github.com/kubefusion/fusionctl",
		Description: "two Kubernetes control-plane versions over one set of nodes\n" +
			"Plans, checks, renders and watches a legacy and a modern control plane\n" +
			"that share one set of nodes.",
		Overridables: nfpm.Overridables{Contents: contents}})
	info.Deb.Compression = "gzip"
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := deb.Default.Package(info, &out); err != nil {
		return err
	}
	return r.write("fusionctl_"+r.number()+"_"+p.arch+".deb", out.Bytes())
}

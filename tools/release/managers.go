package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

const downloads = "https://github.com/kubefusion/fusionctl/releases/download/"

// managers writes the manifest of krew and the formula of Homebrew. Both name the archives by their checksums.
func (r *release) managers(programs []program) error {
	type uri struct{ URL, Sum, OS, Arch string }
	var uris []uri
	for _, p := range programs {
		data, err := os.ReadFile(filepath.Join(r.out, r.archiveName(p)))
		if err != nil {
			return err
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		uris = append(uris, uri{downloads + r.version + "/" + r.archiveName(p), sum, p.os, p.arch})
	}
	krew := plugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	krew.Metadata.Name = "fusionctl"
	krew.Spec.Version = r.version
	krew.Spec.Homepage = "https://github.com/kubefusion/fusionctl"
	krew.Spec.ShortDescription = "Two control-plane versions over one set of nodes"
	krew.Spec.Description = "Plans, checks, renders and watches a legacy and a modern control plane over one set of " +
		"nodes.\n"
	for _, u := range uris {
		var p platform
		p.Selector.MatchLabels = map[string]string{"os": u.OS, "arch": u.Arch}
		p.URI, p.SHA256, p.Bin = u.URL, u.Sum, "fusionctl"
		p.Files = []copied{{From: "fusionctl", To: "."}, {From: "LICENSE", To: "."}}
		krew.Spec.Platforms = append(krew.Spec.Platforms, p)
	}
	manifest, err := yaml.Marshal(krew)
	if err != nil {
		return err
	}
	if err := r.write("krew.yaml", manifest); err != nil {
		return err
	}
	var formula bytes.Buffer
	bySystem := map[string][]uri{}
	for _, u := range uris {
		if u.OS == "darwin" {
			u.OS = "macos"
		}
		bySystem[u.OS] = append(bySystem[u.OS], u)
	}
	err = brew.Execute(&formula, map[string]any{"Version": r.number(), "Systems": bySystem})
	if err != nil {
		return err
	}
	return r.write("fusionctl.rb", formula.Bytes())
}

// plugin is a manifest of krew.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Platforms        []platform `json:"platforms"`
	} `json:"spec"`
}

type platform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string   `json:"uri"`
	SHA256 string   `json:"sha256"`
	Bin    string   `json:"bin"`
	Files  []copied `json:"files"`
}

type copied struct {
	From string `json:"from"`
	To   string `json:"to"`
}

var brew = template.Must(template.New("").Funcs(template.FuncMap{"cpu": func(arch string) string {
	return strings.NewReplacer("amd64", "intel", "arm64", "arm").Replace(arch)
}}).Parse(`class Fusionctl < Formula
  desc "Two Kubernetes control-plane versions over one set of nodes"
  homepage "https://github.com/kubefusion/fusionctl"
  version "{{.Version}}"
  license "Apache-2.0"
{{range $system, $uris := .Systems}}
  on_{{$system}} do
{{- range $uris}}
    on_{{cpu .Arch}} do
      url "{{.URL}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "fusionctl"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/fusionctl.bash" => "fusionctl"
    zsh_completion.install "completions/fusionctl.zsh" => "_fusionctl"
    fish_completion.install "completions/fusionctl.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fusionctl version")
  end
end
`))

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// read reads a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// made is a command of make on a page, in a block or within a line.
var made = regexp.MustCompile("(?m)(?:^ *|`)make ([a-z][a-z0-9-]*)")

// TestMakeTargetsExist: what pages tell people to make is a target of the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	told := 0
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "docs/install.md", "docs/evidence.md",
		"pkg/kubever/tables/README.md", "test/rig/README.md"} {
		for _, m := range made.FindAllStringSubmatch(read(t, page), -1) {
			told++
			if !targets[m[1]] {
				t.Errorf("%s: make %s is no target of the Makefile", page, m[1])
			}
		}
	}
	if told < 15 {
		t.Errorf("%d targets were looked for, want more", told)
	}
}

// TestInstallingBeginsWithoutGo: the README's first way to install needs no Go, and go install takes the module as it
// is: it refuses one that replaces others.
func TestInstallingBeginsWithoutGo(t *testing.T) {
	_, text, found := strings.Cut(read(t, "README.md"), "## Installing\n")
	deb, install := strings.Index(text, "_amd64.deb && sudo dpkg -i"), strings.Index(text, "go install ")
	if !found || deb < 0 || install < deb {
		t.Errorf("README.md, Installing: the package at %d, go install at %d; want the package first", deb, install)
	}
	if line := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`).FindString(read(t, "go.mod")); line != "" {
		t.Errorf("go.mod: %q: go install refuses modules with it", line)
	}
}

// TestIssueTemplatesAreForms: the host of the repository shows forms that it can read.
func TestIssueTemplatesAreForms(t *testing.T) {
	files, err := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("issue templates: %v, %v", files, err)
	}
	for _, file := range files {
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
			ContactLinks []struct{ Name, URL, About string } `json:"contact_links"`
		}
		if err := yaml.Unmarshal([]byte(read(t, strings.TrimPrefix(file, "../"))), &form); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if filepath.Base(file) == "config.yml" {
			if len(form.ContactLinks) == 0 {
				t.Errorf("%s leads nowhere", file)
			}
			continue
		}
		asks, ids := 0, map[string]bool{}
		for _, part := range form.Body {
			if part.Type == "markdown" {
				continue
			}
			asks++
			if part.ID == "" || ids[part.ID] || part.Attributes.Label == "" {
				t.Errorf("%s: %+v wants a label, and an id of its own", file, part)
			}
			ids[part.ID] = true
		}
		if form.Name == "" || form.Description == "" || asks < 3 {
			t.Errorf("%s: name %q, description %q, %d fields", file, form.Name, form.Description, asks)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

const version = "v9.8.7-rc.1"

// TestRelease makes a release twice, from two checkouts in different directories, and holds each file against the
// other. It then installs the Debian package in a root of its own, and runs the file system of the image.
// FUSIONCTL_RELEASE_PLATFORMS has more than one platform built.
func TestRelease(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("dpkg --root and chroot want root")
	}
	if out, err := exec.Command("git", "-C", "../..", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("a release is made of a commit, and here is none: %s", out)
	}
	platforms := []string{"linux/amd64"}
	if list := os.Getenv("FUSIONCTL_RELEASE_PLATFORMS"); list != "" {
		platforms = strings.Split(list, ",")
	}
	t.Setenv("GOPROXY", "off")
	var releases []*release
	for _, name := range []string{"one", "another/deeper"} {
		source := filepath.Join(t.TempDir(), name)
		output(t, exec.Command("git", "clone", "-q", "--no-tags", "../..", source))
		r := &release{version: version, source: source, out: filepath.Join(t.TempDir(), "dist")}
		if err := r.make(t.Context(), platforms); err != nil {
			t.Fatal(err)
		}
		releases = append(releases, r)
	}
	one, other := releases[0], releases[1]
	entries, err := os.ReadDir(one.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !bytes.Equal(one.read(t, e.Name()), other.read(t, e.Name())) {
			t.Errorf("%s is not the same in both", e.Name())
		}
	}
	if want := 5 + 2*len(platforms) + strings.Count(strings.Join(platforms, " "), "linux"); len(entries) != want {
		t.Errorf("%d files, want %d: %v", len(entries), want, entries)
	}
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = one.out
	output(t, check)
	t.Run("archive", func(t *testing.T) { one.testArchive(t) })
	t.Run("contents", func(t *testing.T) { one.testContents(t) })
	t.Run("debian", func(t *testing.T) { one.testDebian(t) })
	t.Run("image", func(t *testing.T) { one.testImage(t) })
	t.Run("instructions", func(t *testing.T) { one.testInstructions(t) })
	t.Run("managers", func(t *testing.T) { one.testManagers(t, len(platforms)) })
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Error(err)
	}
	return data
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// testVersion holds what a program says of itself against the release.
func (r *release) testVersion(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var said struct {
		Program, Commit, Date, Go, Oldest, Newest string
		Modified                                  bool
	}
	if err := json.Unmarshal([]byte(output(t, cmd)), &said); err != nil {
		t.Fatal(err)
	}
	if said.Program != version || said.Commit != r.commit || said.Date != r.date.Format(time.RFC3339) ||
		said.Modified ||
		said.Oldest != "1.6" || !strings.HasPrefix(said.Go, "go1.") {
		t.Errorf("version: %+v, want %s of %s", said, version, r.commit)
	}
}

// untar unpacks into a directory, and gives the names.
func untar(t *testing.T, data []byte, dir string) (names []string) {
	t.Helper()
	var in io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		in = unzipped
	}
	reader := tar.NewReader(in)
	for {
		h, err := reader.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		target := filepath.Join(dir, h.Name)
		if h.Uid != 0 || h.Gid != 0 || !strings.HasPrefix(target, dir) {
			t.Errorf("%s: of %d:%d", h.Name, h.Uid, h.Gid)
		}
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(target, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(target, h.FileInfo().Mode()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, h.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *release) testArchive(t *testing.T) {
	dir := t.TempDir()
	names := untar(t, r.read(t, "fusionctl_9.8.7-rc.1_linux_amd64.tar.gz"), dir)
	for _, want := range []string{"fusionctl", "LICENSE", "THIRD_PARTY_LICENSES", "man/fusionctl-etcd-check.1",
		"completions/fusionctl.bash", "completions/fusionctl.zsh", "completions/fusionctl.fish"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	r.testVersion(t, exec.Command(filepath.Join(dir, "fusionctl"), "version", "-o", "json"))
}

func (r *release) testContents(t *testing.T) {
	var bom cyclonedx.BOM
	data := r.read(t, "fusionctl_9.8.7-rc.1_linux_amd64.cdx.json")
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(data), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, c := range *bom.Components {
		if named[c.BOMRef] || c.Version == "" {
			t.Errorf("%s: twice, or without a version", c.BOMRef)
		}
		named[c.BOMRef], named[c.Name] = true, true
	}
	for _, want := range []string{"std", "k8s.io/api", "go.etcd.io/etcd/server/v3", "github.com/spf13/cobra"} {
		if !named[want] {
			t.Errorf("%s is missing", want)
		}
	}
	if named["github.com/goreleaser/nfpm/v2"] {
		t.Error("what makes the release is in the program")
	}
}

func (r *release) testDebian(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.out, "fusionctl_9.8.7-rc.1_amd64.deb")
	output(t, exec.Command("dpkg", "--root="+root, "--install", file))
	if status := output(t, exec.Command("dpkg", "--root="+root, "--status", "fusionctl")); !strings.Contains(status,
		"Status: install ok installed") || !strings.Contains(status, "Version: 9.8.7~rc.1") {
		t.Errorf("dpkg --status: %s", status)
	}
	for _, want := range []string{"usr/share/man/man1/fusionctl.1.gz", "usr/share/man/man1/fusionctl-report.1.gz",
		"usr/share/bash-completion/completions/fusionctl", "usr/share/zsh/vendor-completions/_fusionctl",
		"usr/share/fish/vendor_completions.d/fusionctl.fish", "usr/share/doc/fusionctl/copyright"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Error(err)
		}
	}
	if damaged := output(t, exec.Command("dpkg", "--root="+root, "--verify", "fusionctl")); damaged != "" {
		t.Errorf("dpkg --verify: %s", damaged)
	}
	run := exec.Command("/usr/bin/fusionctl", "version", "-o", "json")
	run.Dir, run.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	r.testVersion(t, run)
	output(t, exec.Command("dpkg", "--root="+root, "--purge", "fusionctl"))
	if _, err := os.Stat(filepath.Join(root, "usr/bin/fusionctl")); !os.IsNotExist(err) {
		t.Errorf("after dpkg --purge: %v", err)
	}
}

// descriptor is a reference in an OCI layout.
type descriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

func (r *release) testImage(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	untar(t, r.read(t, "fusionctl_9.8.7-rc.1_image.tar"), dir)
	blob := func(digest string, into any) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "blobs", strings.ReplaceAll(digest, ":", "/")))
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); sum != digest {
			t.Errorf("%s is %s", digest, sum)
		}
		if into != nil {
			if err := json.Unmarshal(data, into); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != 1 {
		t.Fatal(err, string(data))
	}
	if digest := strings.TrimSpace(string(r.read(t, "fusionctl_9.8.7-rc.1_image.digest"))); digest !=
		index.Manifests[0].Digest {
		t.Errorf("the digest is %s, and the file says %s", index.Manifests[0].Digest, digest)
	}
	var platforms struct{ Manifests []descriptor }
	blob(index.Manifests[0].Digest, &platforms)
	for _, p := range platforms.Manifests {
		if p.Platform.Architecture != "amd64" {
			continue
		}
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(p.Digest, &manifest)
		var config struct {
			Config struct {
				User       string
				Entrypoint []string
			}
			RootFS struct {
				Diff []string `json:"diff_ids"`
			}
		}
		blob(manifest.Config.Digest, &config)
		if config.Config.User != "65532:65532" || len(config.RootFS.Diff) != 1 || len(manifest.Layers) != 1 {
			t.Errorf("config: %+v", config)
		}
		untar(t, blob(manifest.Layers[0].Digest, nil), root)
		inside := func(args ...string) *exec.Cmd {
			cmd := exec.Command(config.Config.Entrypoint[0], args...)
			cmd.Dir, cmd.Env = "/", []string{"HOME=/tmp", "PATH=/usr/bin"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root,
				Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			return cmd
		}
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		r.testVersion(t, inside("version", "-o", "json"))
		output(t, inside("init", "split", "-o", "/tmp/spec.yaml"))
		if plan := output(t, inside("plan", "/tmp/spec.yaml")); !strings.Contains(plan, "deployments") {
			t.Errorf("plan in the image: %s", plan)
		}
		if out, err := inside("init", "split", "-o", "/spec.yaml").CombinedOutput(); err == nil {
			t.Errorf("the user of the image wrote into /: %s", out)
		}
		return
	}
	t.Error("no image for amd64")
}

func (r *release) testManagers(t *testing.T, platforms int) {
	var manifest plugin
	if err := yaml.UnmarshalStrict(r.read(t, "krew.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	formula := string(r.read(t, "fusionctl.rb"))
	if len(manifest.Spec.Platforms) != platforms || strings.Count(formula, "sha256 ") != platforms {
		t.Errorf("%d platforms of krew, and the formula %s; want %d", len(manifest.Spec.Platforms), formula, platforms)
	}
	for _, p := range manifest.Spec.Platforms {
		sum := fmt.Sprintf("%x", sha256.Sum256(r.read(t, filepath.Base(p.URI))))
		if sum != p.SHA256 || !strings.Contains(formula, `url "`+p.URI+`"`) || !strings.Contains(formula, sum) ||
			!strings.HasPrefix(p.URI, downloads+version+"/") {
			t.Errorf("%+v: the archive has %s", p, sum)
		}
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		output(t, exec.Command(ruby, "-c", filepath.Join(r.out, "fusionctl.rb")))
	}
}

// testInstructions: what docs/install.md has people download is a file of the release.
func (r *release) testInstructions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(r.source, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile(`releases/download/v1\.2\.3/([\w.-]+)|\x60(fusionctl_1\.2\.3_[\w.]+)`)
	named := file.FindAllStringSubmatch(string(text), -1)
	if len(named) < 5 {
		t.Errorf("docs/install.md names %d files, want more", len(named))
	}
	// A test may build for one platform alone: the archive of another is named as that one's is.
	built := strings.NewReplacer()
	if _, err := os.Stat(filepath.Join(r.out, "fusionctl_"+r.number()+"_darwin_arm64.tar.gz")); err != nil {
		var pairs []string
		for _, platform := range strings.Split(everyPlatform, ",") {
			pairs = append(pairs, strings.ReplaceAll(platform, "/", "_")+".tar.gz", "linux_amd64.tar.gz")
		}
		built = strings.NewReplacer(pairs...)
	}
	for _, n := range named {
		name := built.Replace(strings.ReplaceAll(cmp.Or(n[1], n[2]), "1.2.3", r.number()))
		if _, err := os.Stat(filepath.Join(r.out, name)); err != nil {
			t.Errorf("docs/install.md: %v", err)
		}
	}
}

// TestGoInstall: the Go command takes a release from the repository by its tag, as a module of others: nothing in
// go.mod counts in the main module alone, and what the program embeds is in the module. The modules that it requires
// come from the caches of this machine.
func TestGoInstall(t *testing.T) {
	if out, err := exec.Command("git", "-C", "../..", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("the Go command takes a commit, and here is none: %s", out)
	}
	const tag, host = "v0.0.1-rc.1", "github.com/kubefusion/fusionctl"
	cache := strings.TrimSpace(output(t, exec.Command("go", "env", "GOMODCACHE")))
	source, own := filepath.Join(t.TempDir(), "source"), t.TempDir()
	output(t, exec.Command("git", "clone", "-q", "--no-tags", "../..", source))
	output(t, exec.Command("git", "-C", source, "tag", tag))
	install := exec.Command("go", "install", host+"/cmd/fusionctl@"+tag)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOBIN="+own, "GOMODCACHE="+filepath.Join(own, "mod"), "GOWORK=off",
		"GOPROXY=file://"+filepath.ToSlash(cache)+"/cache/download", "GOPRIVATE="+host, "GOSUMDB=off",
		"GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0", "GOVCS=*:git", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(source)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+host)
	output(t, install)
	var said struct{ Program, Go, Newest string }
	text := output(t, exec.Command(filepath.Join(own, "fusionctl"), "version", "-o", "json"))
	if err := json.Unmarshal([]byte(text), &said); err != nil || said.Program != tag || said.Newest == "" {
		t.Errorf("%v: %s, want version %s", err, text, tag)
	}
	for _, args := range [][]string{{"explain", "FUS060"}, {"plan", filepath.Join(source,
		"examples/split-1.15-1.36.yaml")}, {"licenses"}} {
		if out := output(t, exec.Command(filepath.Join(own, "fusionctl"), args...)); len(out) < 500 {
			t.Errorf("fusionctl %s says %q", strings.Join(args, " "), out)
		}
	}
}

func TestReleaseRefuses(t *testing.T) {
	for version, want := range map[string]string{"": "want a version", "1.2.3": "want a version",
		"v1.2":     "want a version",
		"v1.2.3+x": "want a version", "v1.2.3": "changed"} {
		source := t.TempDir()
		output(t, exec.Command("git", "init", "-q", source))
		if err := os.WriteFile(filepath.Join(source, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := &release{version: version, source: source, out: filepath.Join(source, "dist")}
		if err := r.make(context.Background(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("VERSION=%q: %v, want %s", version, err, want)
		}
		if _, err := os.Stat(r.out); !os.IsNotExist(err) {
			t.Errorf("VERSION=%q: %s is there", version, r.out)
		}
	}
}

// Package adopted holds control planes as people have set them up, in the shapes of public installers, and takes one
// through fusionctl: init --from, what is left to fill in, check, pki and render.
package adopted

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"embed"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

//go:embed testdata/*.txtar
var archives embed.FS

// Names lists the control planes.
func Names(t testing.TB) []string {
	t.Helper()
	entries, err := fs.ReadDir(archives, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txtar"))
	}
	return names
}

// Cluster is one of them, on disk: the files of its hosts, those that fusionctl pki and render made for them, and the
// plan.
type Cluster struct {
	Root  string // ROOT/HOST is the root of a host
	Spec  string // the spec file
	Plan  *plan.Plan
	Said  string // what init said
	Check string // what check said

	hosts       []string  // of which there are files
	authority   [2]string // of clients where the cluster has none; empty: pki makes one
	hostFiles   []string
	values      map[string]string    // of arguments, which the machines tell
	authorities map[string][2]string // certificate and key of an authority on this machine, by its path on a host
}

// Make writes the files of a control plane below a directory, with certificates of the authority in caCert and caKey,
// and takes it through fusionctl. A cluster without a CA gets one that pki makes, or the authority where own is false.
func Make(t testing.TB, name, directory, caCert, caKey string, own bool) *Cluster {
	t.Helper()
	data, err := archives.ReadFile("testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(data)
	c := &Cluster{Root: filepath.Join(directory, "root"), Spec: filepath.Join(directory, "spec.yaml"),
		authorities: map[string][2]string{}, values: map[string]string{}}
	if !own {
		c.authority = [2]string{caCert, caKey}
	}
	options, hosts, files := map[string][]string{}, []string{}, ""
	for _, f := range archive.Files {
		switch {
		case f.Name == "options":
			for line := range strings.Lines(string(f.Data)) {
				words := strings.Fields(line)
				options[words[0]] = words[1:]
			}
		case f.Name == "files":
			files = string(f.Data)
		default:
			host, _, _ := strings.Cut(f.Name, "/")
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
			write(t, filepath.Join(c.Root, f.Name), f.Data)
		}
	}
	c.hosts = hosts
	for _, host := range hosts {
		c.files(t, host, files, directory, caCert, caKey)
	}
	args := []string{"init", "split", "--out", c.Spec}
	args = append(args, options["args"]...)
	args = append(args, "--from")
	for _, from := range options["from"] {
		args = append(args, filepath.Join(c.Root, from))
	}
	var code int
	if code, _, c.Said = run(t, args...); code != 0 {
		t.Fatalf("fusionctl %s exits %d: %s", strings.Join(args, " "), code, c.Said)
	}
	c.fill(t)
	var errs string
	if code, c.Check, errs = run(t, "check", c.Spec); code != 0 && code != 3 {
		t.Fatalf("fusionctl check exits %d: %s%s", code, c.Check, errs)
	}
	c.issue(t)
	c.render(t, directory)
	return c
}

func run(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// accountKey is one for all: they take long to make.
var accountKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// files makes what a host has besides its texts, one line each:
//
//	ca CERT [KEY]            the authority that was given
//	own-ca CERT NAME         another one, whose key is elsewhere
//	pair CERT KEY CA NAME    a certificate of an authority before it
//	key PRIVATE [PUBLIC]     keys of service accounts
//	host-files PATH          the operator copies it to the hosts and says so
//	value ARGUMENT VALUE     the operator fills in what only the machine can tell
func (c *Cluster) files(t testing.TB, host, lines, directory, caCert, caKey string) {
	t.Helper()
	lifetime := pki.LifetimeOf(time.Now(), 24*time.Hour)
	at := func(file string) string { return filepath.Join(c.Root, host, filepath.FromSlash(file)) }
	for line := range strings.Lines(strings.ReplaceAll(lines, "{host}", host)) {
		words := strings.Fields(line)
		switch words[0] {
		case "ca":
			write(t, at(words[1]), read(t, caCert))
			c.authorities[words[1]] = [2]string{caCert, caKey}
			if len(words) > 2 {
				write(t, at(words[2]), read(t, caKey))
			}
		case "own-ca":
			_, pair, err := pki.NewAuthority(words[2], lifetime)
			if err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(directory, host+"-"+words[2]+".key")
			write(t, key, pair.Key)
			write(t, at(words[1]), pair.Certificate)
			c.authorities[words[1]] = [2]string{at(words[1]), key}
		case "pair":
			files := c.authorities[words[3]]
			authority, err := pki.ParseAuthority(read(t, files[0]), read(t, files[1]))
			if err != nil {
				t.Fatalf("%s: %v", words[3], err)
			}
			pair, err := authority.Issue(plan.Certificate{CommonName: words[4], IPs: []string{"127.0.0.1", "10.0.0.11"},
				Usages: []string{plan.UsageServer, plan.UsageClient}}, lifetime)
			if err != nil {
				t.Fatal(err)
			}
			write(t, at(words[1]), pair.Certificate)
			write(t, at(words[2]), pair.Key)
		case "key":
			key, err := accountKey()
			if err != nil {
				t.Fatal(err)
			}
			private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
			write(t, at(words[1]), private)
			if len(words) > 2 {
				public, err := pki.PublicKey(private)
				if err != nil {
					t.Fatal(err)
				}
				write(t, at(words[2]), public)
			}
		case "value":
			c.values[words[1]] = words[2]
		case "host-files":
			c.hostFiles = append(c.hostFiles, words[1])
		default:
			t.Fatalf("files: %q", line)
		}
	}
}

var toFill = regexp.MustCompile(`(?m)^fill in \S+:\d+: ([^:]+): `)

// fill writes what init said is left to fill in, and nothing else.
func (c *Cluster) fill(t testing.TB) {
	t.Helper()
	text := read(t, c.Spec)
	file, _, err := spec.Parse(c.Spec, text)
	if err != nil {
		t.Fatalf("the draft: %v", err)
	}
	s := &file.Spec
	for _, match := range toFill.FindAllStringSubmatch(c.Said, -1) {
		switch place := match[1]; place {
		case "spec.access":
			s.Access = []spec.Access{{Subjects: []spec.Subject{{Kind: "Group", Name: "developers"}},
				APIGroups: []string{"example.org"}, Resources: []string{"*"}}}
		case "spec.hosts":
			s.Hosts = append(s.Hosts, spec.Host{Name: "cp-2", Address: "10.0.0.12"},
				spec.Host{Name: "cp-3", Address: "10.0.0.13"})
		case "spec.stores[1].endpoints":
			scheme := "http"
			if s.Stores[1].TLS != nil {
				scheme = "https"
			}
			s.Stores[1].Endpoints = []string{scheme + "://10.0.0.11:2479"}
		case "spec.hostFiles":
			s.HostFiles = c.hostFiles
		default:
			if !fillAddress(s, place) && !c.fillArgument(s, place) {
				t.Fatalf("init leaves %s to fill in, which the test does not know:\n%s", place, c.Said)
			}
		}
	}
	if text, err = spec.Marshal(file); err != nil {
		t.Fatal(err)
	}
	write(t, c.Spec, text)
	loaded, err := spec.Load(c.Spec, text)
	if err != nil {
		t.Fatalf("the draft with what was missing filled in: %v\n%s", err, c.Said)
	}
	if c.Plan, err = plan.New(loaded, plan.OnHosts); err != nil {
		t.Fatalf("planning the draft with what was missing filled in: %v", err)
	}
}

var addressPlace = regexp.MustCompile(`^spec\.hosts\[(\d)\]\.address$`)

// fillAddress writes the address of a host.
func fillAddress(s *spec.Spec, place string) bool {
	match := addressPlace.FindStringSubmatch(place)
	if match == nil {
		return false
	}
	at, err := strconv.Atoi(match[1])
	s.Hosts[at].Address = fmt.Sprintf("10.0.0.%d", 11+at)
	return err == nil
}

// argumentPlace is that of an argument, or of all of a component.
var argumentPlace = regexp.MustCompile(`^spec\.legacy\.(\w+)\.extraArgs(?:\[(\d+)\])?$`)

// fillArgument writes what a machine would have put into an argument. Of words that it would have added there are none.
func (c *Cluster) fillArgument(s *spec.Spec, place string) bool {
	match := argumentPlace.FindStringSubmatch(place)
	if match == nil {
		return false
	}
	component := map[string]*spec.Component{"apiServer": &s.Legacy.APIServer.Component,
		"controllerManager": s.Legacy.ControllerManager, "scheduler": s.Legacy.Scheduler}[match[1]]
	at, err := strconv.Atoi(match[2])
	if err != nil {
		return component != nil
	}
	arg := &component.ExtraArgs[at]
	value, known := c.values[arg.Name]
	arg.Value = value
	return known
}

// issue runs fusionctl pki with the authorities that the cluster has.
func (c *Cluster) issue(t testing.TB) {
	t.Helper()
	args := []string{"pki", c.Spec, "--out", c.Root}
	give := func(flag, file string) {
		if files, ok := c.authorities[file]; ok {
			args = append(args, "--"+flag+"-cert", files[0], "--"+flag+"-key", files[1])
		}
	}
	give("ca", c.Plan.PKI.CA)
	if _, known := c.authorities[c.Plan.PKI.CA]; !known && c.authority[0] != "" {
		args = append(args, "--ca-cert", c.authority[0], "--ca-key", c.authority[1])
	}
	if c.Plan.PKI.RequestHeaderCA != c.Plan.PKI.CA {
		give("front-proxy-ca", c.Plan.PKI.RequestHeaderCA)
	}
	if code, out, errs := run(t, args...); code != 0 {
		t.Fatalf("fusionctl %s exits %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
}

// render runs fusionctl render, and puts what it makes into its place on each host.
func (c *Cluster) render(t testing.TB, directory string) {
	t.Helper()
	rendered := filepath.Join(directory, "rendered")
	if code, out, errs := run(t, "render", c.Spec, "--out", rendered); code != 0 && code != 3 {
		t.Fatalf("fusionctl render exits %d: %s%s", code, out, errs)
	}
	err := filepath.WalkDir(rendered, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(rendered, name)
		if host, rest, ok := strings.Cut(filepath.ToSlash(relative), "/"); ok && !strings.HasPrefix(rest, "existing/") {
			write(t, filepath.Join(c.Root, host, rest), read(t, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// absolute is what may be a path in a text.
var absolute = regexp.MustCompile(`/[A-Za-z0-9._/-]+`)

// Relocate makes texts that name files of their host name them where they are on this machine.
func (c *Cluster) Relocate(t testing.TB, host string) {
	t.Helper()
	root := filepath.Join(c.Root, host)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text := read(t, name)
		if bytes.Contains(text, []byte("-----BEGIN")) {
			return nil
		}
		write(t, name, absolute.ReplaceAllFunc(text, func(file []byte) []byte {
			if info, err := os.Stat(filepath.Join(root, string(file))); err == nil && info.Mode().IsRegular() {
				return []byte(filepath.Join(root, string(file)))
			}
			return file
		}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Missing lists the files that a component to be started names and that are not on its host, and those that it mounts
// as what they are not.
func (c *Cluster) Missing() []string {
	var missing []string
	for i := range c.Plan.Components {
		component := &c.Plan.Components[i]
		if component.Side != "" && c.Plan.Side(component.Side).Existing || !slices.Contains(c.hosts, component.Host) {
			continue
		}
		look := func(why, file string) {
			if file == "" || file == component.Program {
				return
			}
			if _, err := os.Stat(
				filepath.Join(c.Root, component.Host, filepath.FromSlash(path.Clean(file)))); err != nil {
				missing = append(missing, fmt.Sprintf("%s on %s: %s: %s", component.Name, component.Host, why, file))
			}
		}
		for _, a := range component.Args {
			if plan.ReadsFile(a.Name) {
				look("--"+a.Name, a.Value)
			}
		}
		for _, m := range component.Mounts {
			if m.Required || !m.Directory {
				look("mount "+m.Name, m.Path)
			}
			info, err := os.Stat(filepath.Join(c.Root, component.Host, filepath.FromSlash(m.Path)))
			if err == nil && !m.Unchecked && info.IsDir() != m.Directory {
				missing = append(missing, fmt.Sprintf("%s on %s: mount %s: %s is a directory: %v, want %v",
					component.Name, component.Host, m.Name, m.Path, info.IsDir(), m.Directory))
			}
		}
		for _, k := range c.Plan.Kubeconfigs {
			if k.Host == component.Host && k.Component == component.Name {
				look("kubeconfig", k.CA)
				look("kubeconfig", k.Cert)
				look("kubeconfig", k.Key)
			}
		}
	}
	return missing
}

package adopt_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf16"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestDraft reads the files of every case, dir/... and host/..., and shows the draft, what it lacks and what it notes.
// What it lacks is filled in here as a person would, and then the draft must load.
func TestDraft(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		dir, host := fstest.MapFS{}, fstest.MapFS{}
		for _, name := range c.Sections() {
			if file, ok := strings.CutPrefix(name, "dir/"); ok {
				dir[file] = &fstest.MapFile{Data: c.Input(name)}
			}
			if file, ok := strings.CutPrefix(name, "host/"); ok {
				host[file] = &fstest.MapFile{Data: c.Input(name)}
			}
		}
		options := options(t, c)
		running, err := read(dir, host)
		if err != nil {
			c.Want("error", []byte(err.Error()))
			return
		}
		draft, err := running.Draft(options)
		if err != nil {
			c.Want("error", []byte(err.Error()))
			return
		}
		text, err := draft.Text()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for _, missing := range draft.Missing {
			fmt.Fprintln(&said, "fill in", missing.Place)
			c.Text(missing.Text, "fill in "+missing.Place)
		}
		for _, note := range draft.Notes {
			fmt.Fprintln(&said, note)
		}
		c.WantText("spec.yaml", text, golden.Comments)
		c.Want("said", []byte(said.String()))
		loads(t, draft, text)
	})
}

// TestTextsOfWindows: a shell there writes UTF-16 with a mark at its begin, which YAML may be in, and other texts.
func TestTextsOfWindows(t *testing.T) {
	const manifest = "kind: Pod\r\nspec:\r\n  containers:\r\n  - name: kube-apiserver\r\n" +
		"    image: a/kube-apiserver:v1.24.9\r\n" +
		"    command: [kube-apiserver, '--etcd-servers=http://10.0.0.11:2379', --oidc-groups-prefix=\u00fc]\r\n"
	little, big := []byte("\xff\xfe"), []byte("\xfe\xff")
	for _, unit := range utf16.Encode([]rune(manifest)) {
		little = append(little, byte(unit), byte(unit>>8))
		big = append(big, byte(unit>>8), byte(unit))
	}
	for _, text := range [][]byte{[]byte(manifest), []byte("\ufeff" + manifest), little, big} {
		running, err := adopt.Read(fstest.MapFS{"kube-apiserver.yaml": {Data: text}}, nil)
		if err != nil {
			t.Fatalf("%.8q: %v", text, err)
		}
		if words := running.Processes[0].Words; !slices.Contains(words, "--oidc-groups-prefix=\u00fc") {
			t.Errorf("%.8q: read %q", text, words)
		}
	}
	for _, text := range [][]byte{little[:len(little)-1], append(slices.Clone(little), 0, 0), little[2:]} {
		if running, err := adopt.Read(fstest.MapFS{"kube-apiserver.yaml": {Data: text}}, nil); err == nil {
			t.Errorf("%.8q: read %+v, want an error", text, running)
		}
	}
}

// read passes no host when the case has none.
func read(dir, host fstest.MapFS) (*adopt.Running, error) {
	if len(host) == 0 {
		return adopt.Read(dir, nil)
	}
	return adopt.Read(dir, host)
}

func options(t *testing.T, c *golden.Case) adopt.Options {
	o := adopt.Options{Layout: spec.LayoutSplit, Modern: kubever.Version{Minor: kubever.Suggested}}
	text, _ := c.Optional("options")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch name {
		case "layout":
			o.Layout = spec.Layout(value)
		case "legacy":
			o.Legacy, err = kubever.Parse(value)
		case "modern":
			o.Modern, err = kubever.Parse(value)
		default:
			t.Fatalf("option %q", name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// loads fills in what the draft says is missing, and requires that nothing else is.
func loads(t *testing.T, draft *adopt.Draft, text []byte) {
	if _, err := spec.Load("spec.yaml", text); err == nil {
		t.Error("the draft loads although nobody said who may do what")
	}
	file, lines, err := spec.Parse("spec.yaml", text)
	if err != nil {
		t.Fatalf("the draft does not decode: %v", err)
	}
	s := &file.Spec
	for _, missing := range draft.Missing {
		if strings.Contains(missing.Place, ".legacy.") { // an argument, whose value may be any
			continue
		}
		switch missing.Place {
		case "spec.access":
			s.Access = []spec.Access{{Subjects: []spec.Subject{{Kind: "User", Name: "alice"}}, APIGroups: []string{""},
				Resources: []string{"pods"}}}
		case "spec.hostFiles":
			s.HostFiles = []string{"/etc/kubernetes/secrets"}
		case "spec.hosts":
			s.Hosts = append(s.Hosts, spec.Host{Name: "cp-2", Address: "10.0.0.12"})
		case "spec.hosts[0].address":
			s.Hosts[0].Address = "10.0.0.11"
		case "spec.stores[0].endpoints":
			s.Stores[0].Endpoints = []string{"http://10.0.0.11:2379"}
		case "spec.stores[1].endpoints":
			scheme := "http"
			if s.Stores[1].TLS != nil {
				scheme = "https"
			}
			s.Stores[1].Endpoints = []string{scheme + "://10.0.0.99:2479"}
		case "spec.stores[0].tls.ca", "spec.stores[0].tls.cert", "spec.stores[0].tls.key":
			for i := range s.Stores {
				s.Stores[i].TLS = &spec.TLS{CA: "/ca", Cert: "/cert", Key: "/key"}
			}
		default:
			t.Errorf("the draft lacks %s, which this test does not know", missing)
		}
	}
	file.Default()
	if err := spec.Validate(file, lines); err != nil {
		t.Errorf("the draft with what was missing filled in: %v", err)
	}
}

func TestDraftAsksForTheVersionWithASentinel(t *testing.T) {
	running, err := adopt.Read(fstest.MapFS{
		"kube-apiserver.service": {Data: []byte("[Service]\nExecStart=/usr/bin/kube-apiserver --v=2\n")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := running.Draft(adopt.Options{Layout: spec.LayoutSplit, Modern: kubever.Version{Minor: 36}}); !errors.Is(
		err, adopt.ErrVersion) {
		t.Errorf("Draft of a unit without a version = %v, want ErrVersion", err)
	}
}

func TestArgsReadsThemAsTheComponentDoes(t *testing.T) {
	for _, test := range []struct {
		words string
		want  string
		notes int
	}{
		{"--etcd_servers=http://a:1 --v=2", "etcd-servers=http://a:1 v=2", 0},
		{"--etcd-servers http://a:1 --v 2", "etcd-servers=http://a:1 v=2", 0},
		{"-v=2", "v=2", 0},
		{"-v 2 --profiling", "v=2 profiling=true", 0},
		{"-v2", "v=2", 0},
		{"--profiling false", "profiling=true", 1}, // a switch does not take the next word
		{"--allow-privileged=false --allow-privileged", "allow-privileged=false allow-privileged=true", 0},
		{"--runtime-config=a=b,c=d", "runtime-config=a=b,c=d", 0},
		{"--min-request-timeout -1", "min-request-timeout=-1", 0},
		{"--acme-sink file --acme-on", "acme-sink=file acme-on=true", 2},
		{"--admission-control=", "admission-control=", 0},
		{"--etcd-prefix --v=2", " v=2", 1},
		{"stray --v=2 -- --port=1", "v=2", 2},
		{"--", "", 0},
		{"- --- --=x", "", 3},
	} {
		p := adopt.Process{Component: kubever.APIServer, Words: strings.Fields(test.words)}
		args, notes := p.Args(6)
		var got []string
		for _, arg := range args {
			got = append(got, arg.Name+"="+arg.Value)
		}
		if test.words == "--etcd-prefix --v=2" {
			test.want = "etcd-prefix= v=2"
		}
		if strings.Join(got, " ") != test.want || len(notes) != test.notes {
			t.Errorf("Args(%s) = %v with notes %v, want %s with %d notes", test.words, got, notes, test.want,
				test.notes)
		}
	}
}

// What an installer makes a control plane from does not say how it runs: each form is named, with what is wanted in its
// place.
func TestReadNamesWhatAnInstallerReads(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"kops":       {"cluster.yaml", "apiVersion: kops/v1alpha2\nkind: Cluster\n", "spec of kops"},
		"nodeup":     {"user-data", "#!/bin/bash\nNODEUP_URL=https://x/nodeup\n", "user data of kops"},
		"kubeadm":    {"k.yaml", "apiVersion: kubeadm.k8s.io/v1beta1\nkind: ClusterConfiguration\n", "of kubeadm"},
		"k0s":        {"k0s.yaml", "apiVersion: k0s.k0sproject.io/v1beta1\nkind: ClusterConfig\n", "of k0s"},
		"talos":      {"cp.yaml", "version: v1alpha1\nmachine:\n  type: controlplane\n", "of Talos"},
		"rke":        {"cluster.yml", "nodes:\n- address: a\n  role: [controlplane, etcd]\n", "docker inspect"},
		"rke state":  {"cluster.rkestate", `{"desiredState": {"rkeConfig": {}}}`, "docker inspect"},
		"acs-engine": {"a.json", `{"properties": {"orchestratorProfile": {"orchestratorType": "Kubernetes"}}}`, "acs"},
		"pharos":     {"cluster.yml", "hosts:\n- address: 10.0.0.1\n  role: master\n", "of Pharos"},
		"kube-up":    {"kube-env", "SERVER_BINARY_TAR_URL: https://x\n", "kube-up"},
		"kube-aws":   {"cluster.yaml", "clusterName: x\nhostedZoneId: y\n", "of kube-aws"},
		"terraform":  {"main.tf", "module \"x\" {\n  a = 1\n}\n", "of Terraform"},
		"terraform's unit": {"cp.tf", "data \"x\" \"y\" {\n  content = <<EOF\n" +
			"[Service]\nExecStart=kube-apiserver --etcd-servers=a\nEOF\n}\n",
			"which computes what it writes; want /etc/kubernetes/manifests"},
		"locals": {"locals.tf", "locals {\n  args = \"--etcd-servers=${var.a}\"\n}\n", "of Terraform"},
		"nomad": {"k.nomad", "job \"k\" {\n  task \"kube-apiserver\" {\n    config {\n      args = " +
			"[\"--etcd-servers=a\"]\n    }\n  }\n}\n", "nomad job inspect"},
		"upstart": {"kube-apiserver.conf", "start on runlevel [2]\nexec /opt/start-apiserver\n",
			"a job of upstart"},
		"environment":  {"apiserver", "KUBE_ETCD=\"--etcd-servers=http://a:1\"\n", "the unit that reads it"},
		"template":     {"a.yaml", "spec:\n  {{ range }}\n  - --etcd-servers={{ x }}\n", "that was not filled"},
		"bad yaml":     {"a.yaml", "spec:\n - --etcd-servers=a\nx", "a.yaml: has the arguments of an API server and"},
		"another form": {"notes", "run it --etcd-servers=x", "in a form that is not read"},
	} {
		_, err := adopt.Read(fstest.MapFS{test.file: {Data: []byte(test.text)}}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), test.file) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Read = %v, want one sentence about %q", name, err, test.want)
		}
	}
}

// A document may unpack to anything: what it holds is bounded, and documents within documents are.
func TestReadBoundsWhatDocumentsHold(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.CopyN(w, zeros{}, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := "#cloud-config\nwrite_files:\n- path: /etc/kubernetes/manifests/kube-apiserver.yaml\n  encoding: gz+b64\n" +
		"  content: " + base64.StdEncoding.EncodeToString(packed.Bytes()) + "\n"
	nested := "run: kube-apiserver --etcd-servers=http://a:1\n"
	for range 10 {
		nested = "write_files:\n- path: /etc/kubernetes/manifests/a.yaml\n  encoding: b64\n  content: " +
			base64.StdEncoding.EncodeToString([]byte(nested)) + "\n"
	}
	for name, test := range map[string]struct{ text, want string }{
		"bomb":   {bomb, "larger than 1048576 bytes"},
		"nested": {nested, "holds files that hold files"},
	} {
		_, err := adopt.Read(fstest.MapFS{"user-data": {Data: []byte(test.text)}}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Read = %v, want %q", name, err, test.want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzRead: no file panics, what is read can be drafted, and the draft decodes.
func FuzzRead(f *testing.F) {
	f.Add("kube-apiserver.yaml", "kind: Pod\nspec: {containers: [{image: 'a/kube-apiserver:v1.6.13', command: "+
		"[kube-apiserver, --v=2]}]}")
	f.Add("a.service", "[Service]\nEnvironment=\"A=b c\" D=--v=2\nExecStart=/bin/sh -c \"exec kube-apiserver $D "+
		"${A:-x} $(date) >>/log\" \\\n # no\n --x")
	f.Add("a.service", "[Service]\nExecStart=docker run -v /a:/a hyperkube:v1.8.0 /hyperkube apiserver "+
		"--etcd-servers=https://a:1,,b --secure-port=x")
	f.Add("a", "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\", \"spec\": {\"containers\": [{\"args\": "+
		"[\"kube-apiserver\", \"--service-cluster-ip-range=::/0\"]}]}}]}")
	f.Add("job.json", `{"Config": {"command": "kube-apiserver", "args": ["--v=2"], "env": [{"name": "A", "value": "b"}]},`+
		` "mounts": [{"source": "/a", "target": "/b"}]}`)
	f.Add("kube.conf", "[program:kube-apiserver]\ncommand=kube-apiserver\n  --v=2 ; all\nenvironment=A=\"b,c\",D=e\n")
	f.Add("kube-apiserver.container", "[Container]\nImage=k/kube-apiserver:v1.15.12\nExec=--v=2\nVolume=/a:/b:ro\n")
	f.Add("pod.yaml", "kind: Pod\nspec: {containers: [{image: a, command: [wait, '{\"command\": \"kube-apiserver\", "+
		"\"args\": [\"--v\"]}']}]}\n")
	f.Add("kube-apiserver", "#!/sbin/openrc-run\ncommand=kube-apiserver\ncommand_args=\"${A:-$(b)} ${C:=d}\"\n")
	f.Add("a.ign", `{"storage": {"files": [{"path": "/etc/kubernetes/manifests/a", "contents": {"source": "data:,a%20b"}}]},`+
		`"systemd": {"units": [{"name": "a.service", "contents": "[Service]\nExecStart=kube-apiserver --v=2"}]}}`)
	f.Add("a.sh", "#!/bin/sh\nf() { cat <<EOF | tee $1\nkind: Pod\n$2 ${x:-y} $(z)\nEOF\n}\nf a b; f; kube-apiserver "+
		"--v=2 \"$@\"")
	f.Add("docker-compose.yml", "services: {a: {image: 'kube-apiserver:v1.6.13', command: '--v=${X:-2}', "+
		"volumes: [a:b]}}")
	f.Add("kube-apiserver.conf", "start on x\nenv A=\"--v=2\"\nchdir /a\nscript\n. /etc/default/a\nexec "+
		"kube-apiserver $A\nend script\n")
	f.Add("pods.txt", "Name: a\nAnnotations: a: b\nContainers:\n  kube-apiserver:\n    Image: "+
		"a/kube-apiserver:v1.9.1\n    Command:\n      sh\n      -c\n      kube-apiserver \\\n       --v=2\n"+
		"    Mounts:\n      /a from b (ro)\nVolumes:\n  b:\n    Type: Secret (x)\n    SecretName: c\n")
	f.Add("a.log", "FLAG: --etcd-servers=\"[a,b]\"\nFLAG: --a=\"\"\nFLAG: --v=\"2\"\nFLAG: --bind-address=\"1\"\n"+
		"FLAG: --service-account-key-file=\"[a,b]\"\nVersion: v1.18.2\n")
	f.Add("a.sh", "#!/bin/sh\n() kube-apiserver --v=2\n")
	f.Add("a.sh", "#!/bin/sh\nkube-apiserver $(\u007f\u0085\u2028\ufffe)0\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		if !fs.ValidPath(name) || strings.Contains(name, "/") || name == "." {
			return
		}
		running, err := adopt.Read(fstest.MapFS{name: {Data: []byte(text)}}, nil)
		if err != nil {
			return
		}
		draft, err := running.Draft(adopt.Options{Layout: spec.LayoutSplit, Legacy: kubever.Version{Minor: 6},
			Modern: kubever.Version{Minor: 36}})
		if err != nil {
			return
		}
		printed, err := draft.Text()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := spec.Parse("spec.yaml", printed); err != nil {
			t.Errorf("the draft does not decode: %v\n%s", err, printed)
		}
	})
}

// FuzzReadFiles: files that name each other are read alike each time; nothing is opened that is not a path below the
// directory, and what is opened again and again is bounded.
func FuzzReadFiles(f *testing.F) {
	f.Add("[Service]\nEnvironmentFile=-/etc/a\nExecStart=/opt/a.sh $B",
		"#!/bin/sh\n. /etc/a\nexec kube-apiserver $C --v=2",
		"A=1\nC=\"--x=y\"\nexport D=e", "[Service]\nExecStart=\nExecStart=/usr/bin/kube-apiserver --v=${A} %H %i")
	f.Add("[Service]\nEnvironmentFile=/../../etc/passwd\nExecStart=/bin/sh -c '. /opt/../../a; kube-apiserver $@' a b",
		"source /opt/a.sh", "kube-apiserver --v=2", "[Service]\nWorkingDirectory=/../..\nEnvironment=A=../..")
	f.Add("start on x\nexec kube-apiserver $A\n", ". /etc/a\n. /opt/a.sh\nf() { f $@ $@; }; f a", ". /opt/a.sh", "")
	f.Fuzz(func(t *testing.T, unit, script, variables, dropIn string) {
		files := fstest.MapFS{"a.service": {Data: []byte(unit)}, "opt/a.sh": {Data: []byte(script)},
			"b.conf": {Data: []byte(unit)}, "etc/a": {Data: []byte(variables)},
			"etc/hostname":       {Data: []byte(variables)},
			"a.service.d/b.conf": {Data: []byte(dropIn)}, "c.sh": {Data: []byte("#!/bin/sh\n" + script)}}
		counted := &counting{FS: files}
		once, err := adopt.Read(counted, counted)
		for name := range counted.names {
			if !fs.ValidPath(name) {
				t.Errorf("%q was opened", name)
			}
		}
		if counted.bytes > 65<<20 {
			t.Errorf("%d MiB were read of %d bytes", counted.bytes>>20,
				len(unit)+len(script)+len(variables)+len(dropIn))
		}
		again, errAgain := adopt.Read(files, files)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("%v, and then %v", err, errAgain)
		}
		if err != nil {
			return
		}
		for i, p := range once.Processes {
			args, _ := p.Args(6)
			argsAgain, _ := again.Processes[i].Args(6)
			if !slices.Equal(args, argsAgain) || p.Place != again.Processes[i].Place {
				t.Errorf("%v, and then %v", args, argsAgain)
			}
		}
	})
}

// A host of a fused control plane starts two of most components; their names tell them apart.
func TestReadAllKeepsTwoOfAComponent(t *testing.T) {
	pod := func(name string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("kind: Pod\nmetadata: {name: " + name +
			"}\nspec: {containers: [{command: [kube-apiserver]}]}\n")}
	}
	dir := fstest.MapFS{"legacy.yaml": pod("kube-apiserver"), "modern.yaml": pod("kube-apiserver-modern")}
	if _, err := adopt.Read(dir, nil); err == nil {
		t.Error("Read takes one of two API servers")
	}
	running, err := adopt.ReadAll(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range running.Processes {
		names = append(names, p.Name)
	}
	if strings.Join(names, " ") != "kube-apiserver kube-apiserver-modern" {
		t.Errorf("ReadAll = %q, want both", names)
	}
	if running, err := adopt.ReadAll(fstest.MapFS{}, nil); err != nil || len(running.Processes) != 0 {
		t.Errorf("ReadAll of nothing = %v, %v", running, err)
	}
}

// By aliases a few bytes become gigabytes: such a document is passed over, and says so.
// doubled are lines that double a variable so often that it takes all memory.
func doubled(first, line string) string {
	text := first
	for i := range 40 {
		text += fmt.Sprintf(line, i+1, i)
	}
	return text
}

// TestVariablesThatAreBombs: what variables and packed files make is bounded, whatever form they have.
func TestVariablesThatAreBombs(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 1<<20)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + doubled("A0=xxxxxxxx\n", "A%d=\"$A%[2]d$A%[2]d\"\n")
	const good = "kind: Pod\nspec:\n  containers:\n  - {name: kube-apiserver, image: kube-apiserver:v1.15.12, " +
		"command: [kube-apiserver]}\n"
	calls := "#!/bin/sh\nf() {\n" + strings.Repeat("f\n", 50) + "}\nf\n"
	for name, files := range map[string]fstest.MapFS{
		"a script":        {"a.sh": {Data: []byte(script + "kube-apiserver --x=$A40\n")}},
		"a here-document": {"a.sh": {Data: []byte(script + "cat >/a.yaml <<EOF\n$A40\nEOF\n")}},
		"functions":       {"a.sh": {Data: []byte(calls)}},
		"a shell of a pod": {"a.yaml": {Data: []byte(strings.Replace(good, "[kube-apiserver]",
			"[sh, -c, "+strconv.Quote(strings.TrimPrefix(script, "#!/bin/sh\n")+"kube-apiserver --x=$A40")+"]", 1))}},
		"a pod": {"a.yaml": {Data: []byte(strings.Replace(good, "[kube-apiserver]",
			"[kube-apiserver, $(A40)], env: ["+doubled("{name: A0, value: x}",
				", {name: A%d, value: $(A%[2]d)$(A%[2]d)}")+"]", 1))}},
		"a unit": {"a.service": {Data: []byte("[Service]\nEnvironment=A=" + strings.Repeat("x", 400_000) +
			"\nExecStart=/usr/bin/kube-apiserver --x=" + strings.Repeat("${A}", 100_000) + "\n")}},
		"a docker-compose file": {".env": {Data: []byte("A=" + strings.Repeat("x", 400_000))},
			"compose.yaml": {Data: []byte("services:\n  api:\n    image: a\n    command: kube-apiserver --x=" +
				strings.Repeat("${A}", 100_000) + "\n")}},
		"packed files": {"user-data.yaml": {Data: []byte("a: &a " + base64.StdEncoding.EncodeToString(packed.Bytes()) +
			"\nwrite_files:\n" + doubled("", "- {path: /a%d, encoding: gz+b64, content: *a} # %d\n") +
			doubled("", "- {path: /b%d, encoding: gz+b64, content: *a} # %d\n"))}},
	} {
		t.Run(name, func(t *testing.T) {
			files["0.yaml"] = &fstest.MapFile{Data: []byte(good)}
			running, err := read(files, fstest.MapFS{})
			notes := fmt.Sprint(err)
			if err == nil {
				notes = fmt.Sprint(running.Notes)
				if len(running.Processes) != 1 {
					t.Errorf("%d processes, want the good one", len(running.Processes))
				}
			}
			if !strings.Contains(notes, "make more than") &&
				!strings.Contains(notes, "too often") {
				t.Errorf("notes %.300s", notes)
			}
		})
	}
}

func TestDocumentsThatAreBombs(t *testing.T) {
	nested := "a0: &a0 [x]\n"
	for i := range 9 {
		nested += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	long := "a: &a " + strings.Repeat("x", 200_000) + "\nb: [" + strings.Repeat("*a,", 20_000) + "]\n"
	const pod = "kind: Pod\nspec:\n  containers:\n  - {name: kube-apiserver, command: [kube-apiserver, *"
	for name, text := range map[string]string{"nested.yaml": nested + pod + "a9]}\n", "long.yaml": long +
		"kind: Pod\nspec:\n  containers:\n  - {name: kube-apiserver, command: [kube-apiserver," +
		strings.Repeat("*a,", 20_000) + "]}\n",
		"docker-compose.yml": nested + "services: {api: {image: kube-apiserver, command: *a9}}\n",
		"user-data.yaml":     nested + "write_files:\n- {path: /a, content: *a9}\n",
	} {
		good := "kind: Pod\nspec:\n  containers:\n  - {name: kube-apiserver, image: kube-apiserver:v1.15.12, " +
			"command: [kube-apiserver]}\n"
		running, err := read(fstest.MapFS{name: {Data: []byte(text)}, "z.yaml": {Data: []byte(good)}}, fstest.MapFS{})
		if err != nil || len(running.Processes) != 1 {
			t.Errorf("%s: %d processes (%v), want the good one", name, len(running.Processes), err)
			continue
		}
		if notes := fmt.Sprint(running.Notes); !strings.Contains(notes, "its aliases make more") {
			t.Errorf("%s: notes %.300s", name, notes)
		}
	}
}

// TestHeadersOfMessagesAreBounded: lines of a field that goes on and on are added to it one by one.
func TestHeadersOfMessagesAreBounded(t *testing.T) {
	const message = "Content-Type: multipart/mixed; boundary=x\nX-A: a\n%s\n--x\n\n" +
		"kube-apiserver --etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.0.0.0/16\n--x--\n"
	for lines, want := range map[int]bool{10: true, 300_000: false} {
		text := fmt.Sprintf(message, strings.Repeat(" b\n", lines))
		start := time.Now()
		_, err := read(fstest.MapFS{"user-data": {Data: []byte(text)}}, nil)
		took := time.Since(start)
		if read := err == nil || strings.Contains(err.Error(), "part-1"); read != want || took > 10*time.Second {
			t.Errorf("a header of %d lines: read %v in %s, %v", lines, read, took, err)
		}
	}
}

// closed is a directory of which one file is another user's.
type closed struct {
	fstest.MapFS
	name string
}

func (c closed) Open(name string) (fs.File, error) {
	if name == c.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return c.MapFS.Open(name)
}

// TestReadOfFilesOfOtherUsers: a file that cannot be read may start what is wanted. It is an error where it lies in the
// folder of the API server, or where none is found, and in no other folder.
func TestReadOfFilesOfOtherUsers(t *testing.T) {
	manifest := &fstest.MapFile{Data: []byte("kind: Pod\nspec: {containers: [{command: [kube-apiserver]}]}\n")}
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string // of the error, or of a note
		fails bool
	}{
		"beside the API server": {fstest.MapFS{"secret": {}, "a.yaml": manifest},
			"open secret: permission denied", true},
		"and nothing else": {fstest.MapFS{"secret": {}}, "open secret: permission denied", true},
		"above its folder": {fstest.MapFS{"secret": {}, "etc/kubernetes/manifests/a.yaml": manifest}, "", false},
		"in another folder": {fstest.MapFS{"lib/systemd/system/secret.service": {},
			"etc/kubernetes/manifests/a.yaml": manifest}, "a file is ignored: open lib/", false},
	} {
		closedName := "secret"
		if _, ok := test.files[closedName]; !ok {
			closedName = "lib/systemd/system/secret.service"
		}
		running, err := adopt.Read(closed{test.files, closedName}, nil)
		said := fmt.Sprint(err)
		if err == nil {
			said = fmt.Sprint(running.Notes)
		}
		if (err != nil) != test.fails || !strings.Contains(said, test.want) {
			t.Errorf("%s: Read says %s, fails: %v; want %q, %v", name, said, err != nil, test.want, test.fails)
		}
	}
}

// TestDirectoriesOfLongTextsAreRefused: what a directory holds is held in memory, file beside file.
func TestDirectoriesOfLongTextsAreRefused(t *testing.T) {
	long := &fstest.MapFile{Data: bytes.Repeat([]byte("x"), 1<<20)}
	files := fstest.MapFS{}
	for i := range 65 {
		files[fmt.Sprintf("etc/kubernetes/manifests/%d", i)] = long
	}
	if _, err := adopt.Read(files, nil); err == nil || !strings.Contains(err.Error(), "hold more than 67108864 bytes") {
		t.Errorf("reading them: %v", err)
	}
}

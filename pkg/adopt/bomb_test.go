package adopt_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kubefusion/fusionctl/pkg/adopt"
)

const startsServer = "kube-apiserver --etcd-servers=http://127.0.0.1:2379 "

// numbered repeats a format with a number in it.
func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestCommandLinesThatAreBombs: words, variables, mounts and questions are looked for among each other. What has more
// than any control plane is refused, not read for hours.
func TestCommandLinesThatAreBombs(t *testing.T) {
	const many = 21_000
	const unit = "[Service]\n%sExecStart=/usr/bin/" + startsServer + "%s\n"
	const script = "#!/bin/sh\n%sexec /usr/bin/" + startsServer + "%s\n"
	const pod = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n%s%s"
	const container = `{"Path":"kube-apiserver","Args":["--etcd-servers=http://127.0.0.1:2379"%s],` +
		`"Config":{},"HostConfig":{"Binds":["/a:/b"%s]}}`
	for name, text := range map[string]string{
		"words.service":     fmt.Sprintf(unit, "", numbered(many, "--a=%d ")),
		"unset.service":     fmt.Sprintf(unit, "", numbered(many, "--a=${V%d} ")),
		"in-one.service":    fmt.Sprintf(unit, "", numbered(many, "${V%d}")),
		"variables.service": fmt.Sprintf(unit, numbered(many, "Environment=V%d=1\n"), ""),
		"unset.sh":          fmt.Sprintf(script, "", numbered(many/8, "--a=$V%d ")),
		"one.sh":            fmt.Sprintf(script, "X=\""+numbered(many/8, "$V%d ")+"\"\n", "$X"),
		"chain.sh":          fmt.Sprintf(script, numbered(many, "X=\"$X $V%d\"\n"), "$X"),
		"conditions.sh":     fmt.Sprintf(script, numbered(many/2, "if a; then V%[1]d=1; fi; X=\"$X $V%[1]d\"\n"), "$X"),
		"exports.sh":        fmt.Sprintf(script, numbered(many, "export V%d=1\n"), ""),
		"starts.sh":         fmt.Sprintf(script, numbered(many/2, startsServer+"--a=%d &\n"), ""),
		"sources.sh":        fmt.Sprintf(script, numbered(many, ". /etc/%d\n"), ""),
		"words.yaml":        fmt.Sprintf(pod, numbered(many, "    - --a=%d\n"), ""),
		"unset.yaml":        fmt.Sprintf(pod, numbered(many, "    - --a=$(V%d)\n"), ""),
		"mounts.yaml":       fmt.Sprintf(pod, "", "    volumeMounts:\n"+numbered(many, "    - {mountPath: /%d}\n")),
		"words.json":        fmt.Sprintf(container, numbered(many, `,"--a=%d"`), ""),
		"binds.json":        fmt.Sprintf(container, "", numbered(many, `,"/a%[1]d:/b%[1]d"`)),
		"ps.txt":            "root 1 " + startsServer + numbered(many, "--a=%d "),
		"kube-apiserver":    numbered(many, "--a=%d\n"),
	} {
		_, err := adopt.Read(fstest.MapFS{name: {Data: []byte(text)}}, nil)
		if err == nil || !strings.Contains(err.Error(), "have more than 20000 words and variables") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	running, err := adopt.Read(fstest.MapFS{"a.service": {Data: fmt.Appendf(nil, unit,
		numbered(500, "Environment=V%d=1\n"), numbered(500, "--a=${V%d} "))}}, nil)
	if err != nil || len(running.Processes[0].Words) != 501 {
		t.Errorf("a long one: %v", err)
	}
}

// TestNestedScriptsEnd: the parser goes as deep as parentheses are nested, and a process without stack is gone.
func TestNestedScriptsEnd(t *testing.T) {
	for name, text := range map[string]string{
		"subshells":   strings.Repeat("(", 500_000) + startsServer + strings.Repeat(")", 500_000),
		"arithmetic":  startsServer + "$((" + strings.Repeat("~", 900_000) + "1))",
		"pipes":       startsServer + strings.Repeat("|a", 450_000),
		"conditions":  strings.Repeat("if a;then ", 90_000) + startsServer + strings.Repeat(";fi", 30_000),
		"expressions": startsServer + strings.Repeat("${a:-", 150_000) + strings.Repeat("}", 150_000),
	} {
		_, err := adopt.Read(fstest.MapFS{"a.sh": {Data: []byte("#!/bin/sh\n" + text + "\n")}}, nil)
		if err == nil || !strings.Contains(err.Error(), "one command of it has more than 65536 bytes") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	long := strings.Repeat("echo a line of a long script that is read\n", 10_000)
	if _, err := adopt.Read(fstest.MapFS{"a.sh": {Data: []byte("#!/bin/sh\n" + long + startsServer + "--a=b\n")}},
		nil); err != nil {
		t.Errorf("a long script: %v", err)
	}
}

// TestScriptsThatAreBombs: lists of words double as texts do, also of empty ones, and functions read a long text again
// at each call.
func TestScriptsThatAreBombs(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for name, text := range map[string]string{
		"arrays":    "X=('')\n" + strings.Repeat("X=(\"${X[@]}\" \"${X[@]}\")\n", 23),
		"arguments": "f() { a " + strings.Repeat(`"$@" `, 500) + "; }\nf " + strings.Repeat("'' ", 5000) + "\n",
		"quotes":    "f() { a '" + long + "'; }\n" + strings.Repeat("f\n", 1200),
		"computed":  "f() { a $(b '" + long + "'); }\n" + strings.Repeat("f\n", 1200),
	} {
		script := []byte("#!/bin/sh\n" + text + startsServer + "--a=b\n")
		_, err := adopt.Read(fstest.MapFS{"a.sh": {Data: script}}, nil)
		if err == nil || !strings.Contains(err.Error(), "variables and packed files make more than") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// TestFilesThatAreNamedAgainAndAgain: a file of a megabyte, and a few bytes that name it, are read a few times.
func TestFilesThatAreNamedAgainAndAgain(t *testing.T) {
	long := &fstest.MapFile{Data: []byte(strings.Repeat("# a line of a long file\n", 40_000))}
	const unit = "[Service]\n%sExecStart=/usr/bin/" + startsServer + "%s\n"
	variables := fmt.Appendf(nil, unit, strings.Repeat("EnvironmentFile=/etc/long\n", 20_000), "")
	dropIns := fstest.MapFS{"a.service": {Data: fmt.Appendf(nil, unit, "", "")}}
	for i := range 100 {
		dropIns[fmt.Sprintf("a.service.d/%d.conf", i)] = long
	}
	shared := fstest.MapFS{"service.d/a.conf": long}
	for i := range 100 {
		shared[fmt.Sprintf("a%d.service", i)] = &fstest.MapFile{Data: []byte("[Service]\nExecStart=/bin/a\n")}
	}
	script := []byte("#!/bin/sh\n" + strings.Repeat(". /etc/long\n", 20_000) + startsServer + "--a=b\n")
	for name, files := range map[string]fstest.MapFS{
		"variables": {"a.service": {Data: variables}, "etc/long": long},
		"drop-ins":  dropIns,
		"of all":    shared,
		"sourced":   {"a.sh": {Data: script}, "etc/long": long},
	} {
		counted := &counting{FS: files}
		_, err := adopt.Read(counted, nil)
		if err == nil || !strings.Contains(err.Error(), "hold more than") {
			t.Errorf("%s: %.300v", name, err)
		}
		if counted.bytes > 128<<20 {
			t.Errorf("%s: %d MiB were read: %v", name, counted.bytes>>20, err)
		}
	}
	units := &counting{FS: fstest.MapFS{}}
	for i := range 500 {
		units.FS.(fstest.MapFS)[fmt.Sprintf("lib/systemd/system/%d.service", i)] = &fstest.MapFile{}
		units.FS.(fstest.MapFS)[fmt.Sprintf("etc/systemd/system/a%d.service", i)] = &fstest.MapFile{}
	}
	if _, err := adopt.Read(units, nil); err == nil || units.names["etc/systemd/system"] > 5 {
		t.Errorf("folders of units are listed for each unit: %d times, %v", units.names["etc/systemd/system"], err)
	}
	usual := fstest.MapFS{"service.d/a.conf": {Data: []byte("[Service]\nEnvironment=A=b\n")},
		"kube-apiserver.service": {Data: fmt.Appendf(nil, unit, "EnvironmentFile=/etc/a\n", "$B")},
		"etc/a":                  {Data: []byte("B=--v=2\n")}}
	if running, err := adopt.Read(usual, nil); err != nil || running.Processes[0].Words[1] != "--v=2" {
		t.Errorf("a usual one: %v", err)
	}
}

// TestQuestionsThatAreBombs: what a variable leaves open is looked for among what the others do.
func TestQuestionsThatAreBombs(t *testing.T) {
	script := "#!/bin/sh\nX=\"" + numbered(900, "$V%d") + "\"\n" + strings.Repeat("Y=\""+strings.Repeat("$X", 1000)+
		"\"\n", 400) + startsServer + "--a=b\n"
	_, err := adopt.Read(fstest.MapFS{"a.sh": {Data: []byte(script)}}, nil)
	if err == nil || !strings.Contains(err.Error(), "leave too much open of each other") {
		t.Errorf("%.300v", err)
	}
}

// counting counts what is read of files.
type counting struct {
	fs.FS
	bytes int
	names map[string]int // how often they were opened
}

func (c *counting) Open(name string) (fs.File, error) {
	if c.names == nil {
		c.names = map[string]int{}
	}
	c.names[name]++
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if list, ok := f.(fs.ReadDirFile); ok {
		return list, nil
	}
	return &countingFile{f, c}, nil
}

type countingFile struct {
	fs.File
	all *counting
}

func (c *countingFile) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	c.all.bytes += n
	return n, err
}

// TestKeysThatAreBombs: a parser that says of each two keys that they are the same takes gigabytes of a megabyte.
func TestKeysThatAreBombs(t *testing.T) {
	keys := strings.Repeat("a: b\n", 5000)
	for name, text := range map[string]string{
		"pod.yaml":           "kind: Pod\n" + keys + "spec: {containers: [{command: [" + startsServer + "]}]}\n",
		"user-data":          "#cloud-config\n" + keys,
		"docker-compose.yml": "services:\n  a: {image: kube-apiserver}\n" + keys,
	} {
		_, err := adopt.Read(fstest.MapFS{name: {Data: []byte(text)}}, nil)
		if err == nil || len(err.Error()) > 2000 {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

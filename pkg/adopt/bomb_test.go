package adopt_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

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

// TestContinuedLinesAreReadInTime: eight times the lines take about eight times as long.
func TestContinuedLinesAreReadInTime(t *testing.T) {
	const unit = "[Service]\nEnvironmentFile=/etc/a\nExecStart=/usr/bin/" + startsServer
	for name, files := range map[string]func(n int) fstest.MapFS{
		"of a unit": func(n int) fstest.MapFS {
			return fstest.MapFS{"a.service": {Data: []byte(unit + strings.Repeat("\\\n", n) + "\n")}, "a": {}}
		},
		"of variables": func(n int) fstest.MapFS {
			return fstest.MapFS{"a.service": {Data: []byte(unit + "\n")},
				"a": {Data: []byte("A=" + strings.Repeat("b\\\n", n) + "\n")}}
		},
		"without a backslash": func(n int) fstest.MapFS {
			return fstest.MapFS{"a.service": {Data: []byte(unit + "\n" + strings.Repeat("-a=\n", n))}, "a": {}}
		},
		"of supervisord": func(n int) fstest.MapFS {
			return fstest.MapFS{"a.conf": {Data: []byte("[program:a]\ncommand=" + startsServer + "\nenvironment=" +
				strings.Repeat("A=b,", n) + "\n")}}
		},
	} {
		reading := func(n int) time.Duration {
			fastest := time.Hour
			for range 3 {
				start := time.Now()
				if _, err := adopt.Read(files(n), nil); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				fastest = min(fastest, time.Since(start))
			}
			return fastest
		}
		few, many := reading(25_000), reading(200_000)
		t.Logf("%s: %s, %s", name, few, many)
		if many > 24*few {
			t.Errorf("%s: 25,000 lines take %s, 200,000 %s", name, few, many)
		}
	}
}

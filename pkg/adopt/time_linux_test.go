package adopt_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/adopt"
)

// TestFilesAreReadInTime: eight times as much takes about eight times as long; what grows with its square, 64 times.
// The time is that of this thread on a processor: it is the same on a machine that is busy with something else.
func TestFilesAreReadInTime(t *testing.T) {
	const unit = "[Service]\nEnvironmentFile=/etc/a\nExecStart=/usr/bin/" + startsServer
	one := func(name, text string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(text)}, "a": {}} }
	for name, files := range map[string]func(n int) fstest.MapFS{
		"continued lines of a unit": func(n int) fstest.MapFS {
			return one("a.service", unit+strings.Repeat("\\\n", 20*n)+"\n")
		},
		"continued lines of variables": func(n int) fstest.MapFS {
			return fstest.MapFS{"a.service": {Data: []byte(unit + "\n")},
				"a": {Data: []byte("A=" + strings.Repeat("b\\\n", 20*n) + "\n")}}
		},
		"lines without a backslash": func(n int) fstest.MapFS {
			return one("a.service", unit+"\n"+strings.Repeat("-a=\n", 20*n))
		},
		"variables of supervisord": func(n int) fstest.MapFS {
			return one("a.conf", "[program:a]\ncommand="+startsServer+"\nenvironment="+
				strings.Repeat("A=b,", 20*n)+"\n")
		},
		"files of a document": func(n int) fstest.MapFS {
			return one("a.yaml", "#cloud-config\nwrite_files:\n"+numbered(n, "- {path: /opt/%d/a, content: x}\n"))
		},
		"files of a document in one folder": func(n int) fstest.MapFS {
			return one("a.yaml", "#cloud-config\nwrite_files:\n"+numbered(n, "- {path: /a%d, content: x}\n"))
		},
		"drop-ins of a document": func(n int) fstest.MapFS {
			return one("a.yaml", "#cloud-config\nwrite_files:\n"+
				numbered(n, "- {path: /etc/systemd/system/kubelet.service.d/%d.conf, content: x}\n"))
		},
		"programs, and lines between them": func(n int) fstest.MapFS {
			return one("a.service", "[Service]\n"+strings.Repeat("ExecStart=/bin/a\n-a=\n", 4*n))
		},
		"programs, and variables": func(n int) fstest.MapFS {
			return one("a.service", "[Service]\n"+strings.Repeat("Environment=A=1\n", n)+
				strings.Repeat("ExecStart=/usr/bin/kubelet\n", n))
		},
		"words that are images": func(n int) fstest.MapFS {
			return one("a.service", "[Service]\nExecStart=/bin/a "+strings.Repeat("etcd:1 ", 4*n)+"\n")
		},
		"names of the host": func(n int) fstest.MapFS {
			files := one("a.service", "[Service]\n"+strings.Repeat("Environment=A=%H\n", n)+
				"ExecStart=/usr/bin/kubelet\n")
			files["etc/hostname"] = &fstest.MapFile{Data: []byte(strings.Repeat("# a\n", n) + "a\n")}
			return files
		},
		"mounts of one name": func(n int) fstest.MapFS {
			return one("a.yaml", "kind: Pod\nspec:\n  containers:\n  - command: [kube-apiserver]\n    volumeMounts: ["+
				strings.Repeat("{name: a, mountPath: /},", n)+"]\n")
		},
		"mounts, and volumes": func(n int) fstest.MapFS {
			return one("a.yaml", "kind: Pod\nspec:\n  volumes: ["+strings.Repeat("{name: b},", n)+
				"]\n  containers:\n  - command: [kube-apiserver]\n    volumeMounts: ["+
				strings.Repeat("{name: a, mountPath: /},", n/2)+"]\n")
		},
	} {
		reading := func(n int) time.Duration {
			made := files(n)
			return cputest.Thread(t, func() { _, _ = adopt.Read(made, nil) })
		}
		few, many := reading(500), reading(4000)
		t.Logf("%s: %s, %s: %.1f", name, few, many, float64(many)/float64(few))
		if many > 24*few {
			t.Errorf("%s: takes %s, and eight times as much %s", name, few, many)
		}
	}
}

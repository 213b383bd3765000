package adopt_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestMountsOfHosts: the modern side reads the files of the legacy one, by their paths on the host. Where a path in the
// containers is another file on one of the hosts, no spec says both.
func TestMountsOfHosts(t *testing.T) {
	host := func(directory, more string) *adopt.Running {
		t.Helper()
		manifest := fmt.Sprintf(`kind: Pod
metadata: {name: kube-apiserver}
spec:
  containers:
  - name: kube-apiserver
    image: k8s.gcr.io/kube-apiserver:v1.15.12
    command: [kube-apiserver, --etcd-servers=http://127.0.0.1:2379, --client-ca-file=/pki/ca.crt]
    volumeMounts:
    - {name: pki, mountPath: /pki}
    - {name: more, mountPath: /more}
  volumes:
  - {name: pki, hostPath: {path: %s}}
  - {name: more, hostPath: {path: %s}}
`, directory, more)
		running, err := adopt.Read(fstest.MapFS{"kube-apiserver.yaml": {Data: []byte(manifest)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return running
	}
	draft := func(second *adopt.Running) (*adopt.Draft, error) {
		return adopt.DraftHosts([]adopt.Host{{Name: "cp-1", Running: host("/etc/pki", "/usr/share")},
			{Name: "cp-2", Running: second}},
			adopt.Options{Layout: spec.LayoutSplit, Modern: kubever.Version{Minor: kubever.Suggested}})
	}
	const want = "cp-2/kube-apiserver.yaml:5: /pki/ca.crt of kube-apiserver is another file of the host than on cp-1 " +
		"(/etc/pki/ca.crt there, /srv/pki/ca.crt here)"
	if _, err := draft(host("/srv/pki", "/usr/share")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a file that lies elsewhere: %v, want %s", err, want)
	}
	d, err := draft(host("/etc/pki", "/opt/share"))
	if err != nil {
		t.Fatalf("a mount that no argument uses: %v", err)
	}
	if text := fmt.Sprint(d.Notes); !strings.Contains(text, "the mounts of kube-apiserver are others than on cp-1") {
		t.Errorf("notes: %s", text)
	}
}

// TestImagesOfHosts: hosts that are updated one after the other have other images, and those with units none.
func TestImagesOfHosts(t *testing.T) {
	host := func(file, text string) *adopt.Running {
		t.Helper()
		running, err := adopt.Read(fstest.MapFS{file: {Data: []byte(text)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return running
	}
	pod := func(image string) *adopt.Running {
		return host("kube-apiserver.yaml", "kind: Pod\nmetadata: {name: kube-apiserver}\nspec:\n  containers:\n"+
			"  - name: kube-apiserver\n    image: "+image+"\n    command: [kube-apiserver, "+
			"--etcd-servers=http://127.0.0.1:2379]\n")
	}
	d, err := adopt.DraftHosts([]adopt.Host{{Name: "cp-1", Running: pod("example.org/kube-apiserver:v1.15.12")},
		{Name: "cp-2", Running: pod("example.org/kube-apiserver:v1.15.12")},
		{Name: "cp-3", Running: pod("mirror.example.org/kube-apiserver:v1.15.9")},
		{Name: "cp-4", Running: host("kube-apiserver.service",
			"[Service]\nExecStart=/opt/bin/kube-apiserver --etcd-servers=http://127.0.0.1:2379\n")}},
		adopt.Options{Layout: spec.LayoutSplit, Modern: kubever.Version{Minor: kubever.Suggested}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "", "mirror.example.org/kube-apiserver:v1.15.9", ""} {
		if h := d.File.Spec.Hosts[i]; h.Image(kubever.APIServer) != want || h.Image(kubever.Scheduler) != "" {
			t.Errorf("the image of %s is %q, want %q", h.Name, h.Image(kubever.APIServer), want)
		}
	}
	if text := fmt.Sprint(d.Notes); !strings.Contains(text, "cp-4/kube-apiserver.service:2: kube-apiserver is started "+
		"by another program than on cp-1 (kube-apiserver there, /opt/bin/kube-apiserver here)") {
		t.Errorf("notes: %s", text)
	}
}

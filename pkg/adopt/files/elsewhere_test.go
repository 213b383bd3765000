package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/adopt/files"
)

// TestReadNamesWhatLiesElsewhere gives roots of hosts whose API server is started from a folder that is not read: the
// error names the file, and what is wanted in its place.
func TestReadNamesWhatLiesElsewhere(t *testing.T) {
	arguments := "./kube-apiserver --etcd-servers https://10.4.7.12:2379 --service-cluster-ip-range 192.168.0.0/16\n"
	for name, want := range map[string]string{
		"opt/kubernetes/server/bin/kube-apiserver.sh": "want its directory after --from: opt/kubernetes/server/bin",
		"etc/supervisor/conf.d/kube-apiserver.conf":   "in a form that is not read; want the components as they run",
		"etc/init/kube-apiserver.conf":                "is a job of upstart",
		"etc/origin/node/pods/apiserver.yaml":         "is of an OpenShift 3 master",
		"etc/rancher/rke2/config.yaml":                "k3s and rke2 run the components themselves",
		"var/lib/image/rootfs/etc/k3s.service":        "k3s and rke2 run the components themselves",
		"etc/default/kube-apiserver":                  "is the environment of a unit",
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{
				"etc/init/kube-apiserver.conf": "start on started etcd\nexec kube-apiserver $OPTS\n",
				"etc/origin/node/pods/apiserver.yaml": "kind: Pod\nspec: {containers: [{name: api, command: " +
					"[/bin/bash, -c], args: [exec openshift start master api --config=/etc/origin/master.yaml]}]}\n",
				"etc/rancher/rke2/config.yaml":         "kube-apiserver-arg: [audit-log-maxage=30]\n",
				"var/lib/image/rootfs/etc/k3s.service": "[Service]\nExecStart=/usr/local/bin/k3s server\n",
				"etc/default/kube-apiserver":           `KUBE_APISERVER_OPTS="--etcd-servers=http://127.0.0.1:4001"` + "\n",
			}[name]
			if text == "" {
				text = arguments
			}
			root := t.TempDir()
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := files.Read([]string{root})
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want) {
				t.Errorf("reading a root with %s: %v, want %q", name, err, want)
			}
		})
	}
}

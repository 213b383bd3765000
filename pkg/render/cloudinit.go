package render

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// CloudInit is the directory of user data for cloud-init in a tree.
const CloudInit = "cloud-init"

// staging is the directory on a host in which the runbook expects the tree of the host.
func staging(p *plan.Plan) string { return "/root/fusion-" + p.Name }

// UserData gives user data for cloud-init, one file for each host: at its first boot the host puts its tree and the
// spec where step 2 of the runbook puts them, where no component reads them. Files are those of Files, all of them.
// Shape: cloud-init/cp-1.yaml, a #cloud-config. Errors: a host without files.
func UserData(p *plan.Plan, files []File, spec []byte) ([]File, error) {
	var all []File
	for _, h := range p.Hosts {
		written := []File{{Path: stagedSpec, Mode: private, Data: spec}}
		for _, f := range files {
			if name, below := strings.CutPrefix(f.Path, h.Name+"/"); below {
				written = append(written, File{Path: name, Mode: f.Mode, Data: f.Data})
			}
		}
		if len(written) == 1 {
			return nil, fmt.Errorf("host %q: there are no files for it", h.Name)
		}
		text, err := userData(p, h.Name, written)
		if err != nil {
			return nil, err
		}
		all = append(all, File{Path: path.Join(CloudInit, h.Name+".yaml"), Mode: private, Data: text})
	}
	return all, nil
}

func userData(p *plan.Plan, host string, files []File) ([]byte, error) {
	var b bytes.Buffer
	quoted := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil { // of a string: never
			panic("render: internal error: " + err.Error())
		}
		return string(text)
	}
	directory := staging(p)
	fmt.Fprintf(&b, `#cloud-config
# The tree of host %s, brought to %s at the first boot. Nothing is started:
# go on with what RUNBOOK.md verifies in step 2. Flags may hold secrets, and who may ask the
# metadata service on the host may read user data.
bootcmd:
- [cloud-init-per, once, fusionctl, install, -d, -m, "0700", %s]
runcmd:
- [sh, -c, %s]
write_files:
`, oneLine(host), oneLine(directory), quoted(directory), quoted("tar -C / --ignore-failed-read -cf "+shell(directory)+
		"/before.tar etc/kubernetes etc/systemd/system"))
	for _, f := range files {
		packed, err := packed(f.Data)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "- path: %s\n  owner: root:root\n  permissions: \"%04o\"\n  encoding: gz+b64\n  content: %s\n",
			quoted(path.Join(directory, f.Path)), f.Mode.Perm(), packed)
	}
	return b.Bytes(), nil
}

// packed is what cloud-init calls gz+b64; the same bytes each time.
func packed(data []byte) (string, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), err
}

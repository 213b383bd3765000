package render

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Kubelet is what connects the kubelet of a node to the modern API server: its kubeconfig, and a drop-in that gives its
// unit another command line. The unit and what it reads stay: without the drop-in the kubelet is what it was.
func Kubelet(n *plan.Node) (kubeconfigFile, dropIn File, err error) {
	text, err := kubeconfig(&n.Kubeconfig)
	if err != nil {
		return kubeconfigFile, dropIn, err
	}
	words := []string{quoted(n.Program, nil)}
	if strings.ContainsRune(n.Program, '$') {
		return kubeconfigFile, dropIn, fmt.Errorf("program %q: systemd takes no $ in the name of a program", n.Program)
	}
	for _, a := range n.Args {
		words = append(words, quoted(a, nil))
	}
	const public fs.FileMode = 0o644
	sum := sha256.Sum256(text) // of what it reads when it starts: with another one it is another kubelet
	unit := "# Written by fusionctl: the kubelet at the modern API server. Change the spec, not this file.\n" +
		fmt.Sprintf("# %s: %x\n", n.Kubeconfig.Path, sum[:8]) +
		"[Service]\nExecStart=\nExecStart=" + strings.Join(words, " \\\n  ") + "\n"
	return File{Path: n.Kubeconfig.Path, Mode: private, Data: text},
		File{Path: "/etc/systemd/system/" + n.Unit + ".d/90-fusionctl.conf", Mode: public, Data: []byte(unit)}, nil
}

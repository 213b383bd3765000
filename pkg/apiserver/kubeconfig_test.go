package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubeconfigsThatNameNoServer: what is empty is no server. In a pod client-go would take it for the cluster that
// the pod runs in, with the account of the pod.
func TestKubeconfigsThatNameNoServer(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "bare": "apiVersion: v1\nkind: Config\n"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := Kubeconfig(file, "")
		if err == nil || !strings.HasSuffix(err.Error(), name+": it names no server") {
			t.Errorf("%s: Kubeconfig = %v, %v", name, config, err)
		}
		config, err = Kubeconfig(file, "other")
		if err == nil || !strings.Contains(err.Error(), `context "other" does not exist`) {
			t.Errorf("%s: Kubeconfig of another context = %v, %v", name, config, err)
		}
	}
}

// TestContextsOfKubeconfigs: one that is named counts, whatever the current one is.
func TestContextsOfKubeconfigs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"https://a"}}],` +
		`"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"none"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := Kubeconfig(file, "a"); err != nil || config.Host != "https://a" {
		t.Errorf("Kubeconfig of a context = %v, %v", config, err)
	}
	for _, context := range []string{"", "other"} {
		if config, err := Kubeconfig(file, context); err == nil {
			t.Errorf("Kubeconfig of the context %q = %v", context, config)
		}
	}
}

// TestPasswordsOfKubeconfigsAreNotPrinted, which URLs may have.
func TestPasswordsOfKubeconfigsAreNotPrinted(t *testing.T) {
	for cluster, want := range map[string]string{
		`"server":"https://u:secret@192.0.2.1"`:                             "has a user in it",
		`"server":"https://u:secret%zz@192.0.2.1/a"`:                        "has a user in it",
		`"server":"u:secret@192.0.2.1:443"`:                                 "has a user in it",
		`"server":"https://a/","proxy-url":"http://u:secret%zz@192.0.2.1"`:  "want a URL of http, https or socks5",
		`"server":"https://a/","proxy-url":"ftp://u:secret@192.0.2.1"`:      "want a URL of http, https or socks5",
		`"server":"https://a/k8s/c@d","proxy-url":"http://u:secret@b:3128"`: "",
		`"server":"https://a","proxy-url":"socks5://127.0.0.1:1080"`:        "",
		`"server":"192.0.2.1:8080"`:                                         "",
	} {
		file := filepath.Join(t.TempDir(), "config")
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{%s}}],`+
			`"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`, cluster)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBECONFIG", file)
		for name, read := range map[string]func() error{
			"Kubeconfig":        func() error { _, err := Kubeconfig(file, ""); return err },
			"DefaultKubeconfig": func() error { _, err := DefaultKubeconfig(""); return err },
		} {
			err := read()
			if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) ||
				strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("%s of %s = %v, want %q", name, cluster, err, want)
			}
		}
	}
}

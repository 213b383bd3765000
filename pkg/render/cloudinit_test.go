package render

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

// cloudConfig is the part of cloud-init's schema that user data uses.
type cloudConfig struct {
	Boot  [][]string `json:"bootcmd"`
	Run   [][]string `json:"runcmd"`
	Files []struct {
		Path        string `json:"path"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     string `json:"content"`
	} `json:"write_files"`
}

func userDataOf(t *testing.T, example string, target Target) ([]File, []File, []byte) {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + example)
	if err != nil {
		t.Fatal(err)
	}
	p := plantest.Of(t, string(text))
	files, err := Files(p, Options{Target: target, Spec: "spec.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := UserData(p, files, text)
	if err != nil {
		t.Fatal(err)
	}
	return files, data, text
}

// What cloud-init writes is the tree of the host, byte for byte, in the directory where the runbook stages it, and
// nothing anywhere else.
func TestUserDataBringsTheTreeOfEachHost(t *testing.T) {
	for _, target := range []Target{StaticPod, Systemd} {
		files, data, spec := userDataOf(t, "ha-three-hosts-1.15-1.36.yaml", target)
		if len(data) != 3 {
			t.Fatalf("%s: %d files of user data, want one for each of 3 hosts", target, len(data))
		}
		for _, d := range data {
			host := strings.TrimSuffix(filepath.Base(d.Path), ".yaml")
			if !bytes.HasPrefix(d.Data, []byte("#cloud-config\n")) || d.Mode != 0o600 {
				t.Errorf("%s: mode %v, begins with %.20q", d.Path, d.Mode, d.Data)
			}
			var config cloudConfig
			if err := yaml.UnmarshalStrict(d.Data, &config); err != nil {
				t.Fatalf("%s: %v", d.Path, err)
			}
			const root = "/root/fusion-ha/"
			want := map[string]File{root + "spec.yaml": {Data: spec, Mode: 0o600}}
			for _, f := range files {
				if name, ok := strings.CutPrefix(f.Path, host+"/"); ok {
					want[root+name] = f
				}
			}
			if len(config.Files) != len(want) || len(want) < 5 {
				t.Errorf("%s writes %d files, want %d", d.Path, len(config.Files), len(want))
			}
			for _, f := range config.Files {
				zipped, err := base64.StdEncoding.DecodeString(f.Content)
				if err != nil {
					t.Fatal(err)
				}
				reader, err := gzip.NewReader(bytes.NewReader(zipped))
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(reader)
				if err != nil {
					t.Fatal(err)
				}
				if w, ok := want[f.Path]; !ok || !bytes.Equal(content, w.Data) || f.Encoding != "gz+b64" ||
					f.Permissions != modeText(w) {
					t.Errorf("%s: %s with mode %s is not that of the tree", d.Path, f.Path, f.Permissions)
				}
			}
			if len(config.Boot) != 1 || config.Boot[0][len(config.Boot[0])-1]+"/" != root || len(config.Run) != 1 {
				t.Errorf("%s: commands %q, %q", d.Path, config.Boot, config.Run)
			}
		}
	}
}

func modeText(f File) string {
	const digits = "01234567"
	m := f.Mode.Perm()
	return string([]byte{'0', digits[m>>6&7], digits[m>>3&7], digits[m&7]})
}

// cloud-init itself takes it, where there is one: Debian's package cloud-init has it.
func TestCloudInitTakesUserData(t *testing.T) {
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Skip("no cloud-init: Debian's package of that name has it")
	}
	_, data, _ := userDataOf(t, "ha-three-hosts-1.15-1.36.yaml", StaticPod)
	file := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(file, data[0].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "schema", "--config-file", file).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "Valid") {
		t.Errorf("cloud-init schema: %v\n%s", err, out)
	}
}

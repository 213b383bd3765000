package restart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// longExponent is a quantity that takes the API server's own parser minutes.
var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)

// FuzzHash gives every container that can be decoded to every minor, and compares the newest with the originals:
// go-spew over the Go type, encoding/json, and a trip through protobuf.
func FuzzHash(f *testing.F) {
	files, err := filepath.Glob("testdata/0*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(txtar.Parse(data).Files[0].Data)
	}
	f.Add([]byte(`{"name":"\u2028\b\f<&>\ud800","command":[],"ports":[null],"resources":{"limits":{"cpu":null,"a":"+1"},"requests":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if longExponent.Match(data) {
			t.Skip()
		}
		container := new(v1.Container)
		if json.Unmarshal(data, container) != nil {
			return
		}
		for _, minor := range kubever.Minors() {
			for _, source := range []Source{API, File} {
				if _, err := Hash(container, minor, source); err != nil {
					t.Errorf("Hash(%s, %s): %v", minor, source, err)
				}
			}
		}
		compareWithOriginals(t, container)
	})
}

func compareWithOriginals(t *testing.T, container *v1.Container) {
	t.Helper()
	want, err := json.Marshal(container)
	if err != nil {
		t.Fatal(err)
	}
	sum, text, err := jsonContainer(container, form{minor: kubever.Newest}, true)
	if err != nil || string(text) != string(want) {
		t.Errorf("JSON, %v:\n%s\nwant\n%s", err, text, want)
	}
	if want := fnvText(fnvOffset, spewConfig.Sprintf("%#v", want)); sum != want {
		t.Errorf("hash of the JSON %x, want %x", sum, want)
	}

	compareDumps(t, container, File, container)
	data, err := container.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	sent := new(v1.Container)
	if err := sent.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	compareDumps(t, container, API, sent)
}

func compareDumps(t *testing.T, container *v1.Container, source Source, held *v1.Container) {
	t.Helper()
	want := spewConfig.Sprintf("%#v", *held)
	sum, text, err := dumpContainer(container, form{minor: kubever.Newest, source: source}, true)
	if err != nil || string(text) != want {
		t.Errorf("dump of %s, %v:\n%s\nwant\n%s", source, err, text, want)
	}
	if want := fnvText(fnvOffset, want); sum != want {
		t.Errorf("hash of the dump of %s %x, want %x", source, sum, want)
	}
}

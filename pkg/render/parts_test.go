package render

import (
	"bytes"
	"strings"
	"testing"
)

// TestPartsAreTheFilesOfTheHosts: what a transition puts in place is what render writes, file for file.
func TestPartsAreTheFilesOfTheHosts(t *testing.T) {
	for _, target := range []Target{StaticPod, Systemd} {
		for name, p := range examplesFor(t, target) {
			files, err := Files(p, Options{Target: target})
			if err != nil {
				t.Fatal(err)
			}
			parts, err := Parts(p, target)
			if err != nil {
				t.Fatal(err)
			}
			owned := map[string]File{}
			for _, part := range parts {
				for _, f := range append(part.Start, part.Beside...) {
					at := part.Component.Host + f.Path
					if _, twice := owned[at]; twice {
						t.Errorf("%s, %s: %s belongs to two parts", name, target, at)
					}
					owned[at] = f
				}
			}
			for _, f := range files {
				host, rest, nested := strings.Cut(f.Path, "/")
				if !nested || strings.HasPrefix("/"+rest, existingDirectory+"/") {
					continue
				}
				got, ok := owned[f.Path]
				if !ok || !bytes.Equal(got.Data, f.Data) || got.Mode != f.Mode {
					t.Errorf("%s, %s: %s of %s is not the file of a part", name, target, rest, host)
				}
				delete(owned, f.Path)
			}
			for at := range owned {
				t.Errorf("%s, %s: part has %s, which is not rendered", name, target, at)
			}
		}
	}
}

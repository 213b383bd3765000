package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestHostedPlansNameNoHost: nothing that a hosted plan starts has the name or the address of a host, whatever argument
// holds it.
func TestHostedPlansNameNoHost(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := spec.Load(file, data)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(f.Spec.Stores, func(s spec.Store) bool { return s.Managed == nil }) {
			continue // that store stays where it is
		}
		p, err := New(f, Hosted)
		if err != nil {
			t.Fatal(err)
		}
		tried++
		started, err := json.Marshal([]any{p.Stores, p.Components, p.Kubeconfigs, p.Certificates})
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range f.Spec.Hosts {
			for _, of := range []string{host.Name, host.Address} {
				if at := strings.Index(string(started), of); at >= 0 {
					t.Errorf("%s: %q of a host is in the hosted plan: ...%.200s", file, of,
						started[max(0, at-100):])
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no example has managed stores alone")
	}
}

func TestReplaceEndpointsReplacesWholeURLs(t *testing.T) {
	moved := map[string]string{"https://10.0.0.1:2479": "https://m-0:2479"}
	for value, want := range map[string]string{
		"https://10.0.0.1:2479":                      "https://m-0:2479",
		"https://10.0.0.1:24790":                     "https://10.0.0.1:24790",
		"/pods#https://10.0.0.1:2479;https://b,/x#c": "/pods#https://m-0:2479;https://b,/x#c",
		"": "",
	} {
		if got := replaceEndpoints(value, moved); got != want {
			t.Errorf("replaceEndpoints(%q) = %q, want %q", value, got, want)
		}
	}
}

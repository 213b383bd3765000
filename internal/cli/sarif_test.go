package cli

import (
	"bytes"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Files are named by whoever made the repository. A viewer resolves what stands for them.
func TestFilesStayFilesInSARIF(t *testing.T) {
	for file, want := range map[string]string{
		"spec.yaml": "spec.yaml", "/etc/a.yaml": "/etc/a.yaml", "a b%20#1?.yaml": "a b%20#1?.yaml",
		"javascript:alert(1)": "./javascript:alert(1)", "https:/evil.test/x": "./https:/evil.test/x",
		"https://evil.test/x": "./https:/evil.test/x", "//evil.test/x": "/evil.test/x", "../ü.yaml": "../ü.yaml",
	} {
		var out bytes.Buffer
		found := []finding.Finding{{Rule: "FUS001", Severity: finding.Error, File: file}}
		if err := printSARIF(&out, finding.Plans, "spec.yaml", found); err != nil {
			t.Fatal(err)
		}
		var log sarifLog
		if err := json.Unmarshal(out.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		uri, err := url.Parse(log.Runs[0].Results[0].Locations[0].Physical.Artifact.URI)
		if err != nil || uri.Scheme != "" || uri.Host != "" || uri.Path != want || uri.RawQuery+uri.Fragment != "" {
			t.Errorf("%q is %v, %v, want the path %q alone", file, uri, err, want)
		}
	}
}

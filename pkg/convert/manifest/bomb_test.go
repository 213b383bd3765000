package manifest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// record is what Helm stores of a manifest.
func record(t *testing.T, text string) map[string]any {
	t.Helper()
	release, err := json.Marshal(map[string]any{"name": "bomb", "info": map[string]any{"status": "deployed"},
		"manifest": text})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(release); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	helm := base64.StdEncoding.EncodeToString(packed.Bytes())
	return map[string]any{"kind": "Secret", "metadata": map[string]any{"labels": map[string]any{"owner": "helm"}},
		"data": map[string]any{"release": base64.StdEncoding.EncodeToString([]byte(helm))}}
}

// Records that anybody who may write Secrets can write: they unpack to a bounded size, and what they hold is read in
// time that grows with it.
func TestReleasesThatAreBombs(t *testing.T) {
	if _, found, err := HelmRelease(record(t, strings.Repeat("a: b\n", releaseLimitBytes/4))); !found || err == nil {
		t.Errorf("a record of more than the limit: %v, %v, want an error", found, err)
	}
	aliases := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 12 {
		previous := string(rune('a' + i))
		next := string(rune('b' + i))
		aliases += next + "0: &" + next + "0 [" + strings.Repeat("*"+previous+"0,", 9) + "]\n"
	}
	const bytesOfEach = 1 << 20
	for name, text := range map[string]string{
		"aliases":        aliases,
		"deep flow":      strings.Repeat("[", bytesOfEach),
		"deep maps":      strings.Repeat("{a: ", bytesOfEach/4),
		"deep block":     strings.Repeat("- ", bytesOfEach/2) + "x",
		"many documents": strings.Repeat("---\na: b\n", bytesOfEach/9),
		"many keys":      strings.Repeat("a: b\n", bytesOfEach/5),
		"indented": func() string {
			var b strings.Builder
			for i := range 1400 {
				b.WriteString(strings.Repeat(" ", i) + "a:\n")
			}
			return b.String()
		}(),
		"comments": strings.Repeat("#\n", bytesOfEach/2) + "a: b\n",
		"anchors":  strings.Repeat("- &a x\n", bytesOfEach/7),
	} {
		release, found, err := HelmRelease(record(t, text))
		if err != nil || !found {
			t.Fatalf("%s: %v", name, err)
		}
		start, parts := time.Now(), 0
		for range Parts(bytes.NewReader(release.Manifest)) {
			parts++
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: %d parts of %d bytes in %s", name, parts, len(text), took)
		} else {
			t.Logf("%s: %d parts of %d bytes in %s", name, parts, len(text), took)
		}
	}
}

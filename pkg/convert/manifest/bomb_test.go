package manifest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"runtime"
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
	return recordOf(t, release, map[string]any{"owner": "helm"})
}

// recordOf is a Secret with a record, which is packed.
func recordOf(t *testing.T, release []byte, labels map[string]any) map[string]any {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(release); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	helm := base64.StdEncoding.EncodeToString(packed.Bytes())
	return map[string]any{"kind": "Secret", "metadata": map[string]any{"labels": labels},
		"data": map[string]any{"release": base64.StdEncoding.EncodeToString([]byte(helm))}}
}

// bombs are manifests that anybody who may write Secrets can store.
func bombs() map[string]string {
	aliases := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 12 {
		previous := string(rune('a' + i))
		next := string(rune('b' + i))
		aliases += next + "0: &" + next + "0 [" + strings.Repeat("*"+previous+"0,", 9) + "]\n"
	}
	const bytesOfEach = 1 << 20
	return map[string]string{
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
	}
}

func countParts(text []byte) int {
	parts := 0
	for range Parts(bytes.NewReader(text)) {
		parts++
	}
	return parts
}

// TestReleasesThatAreBombs: they unpack to a bounded size, and reading what they hold allocates no more than grows with
// it. In which time it is read is what BenchmarkReleasesThatAreBombs says.
func TestReleasesThatAreBombs(t *testing.T) {
	if _, found, err := HelmRelease(record(t, strings.Repeat("a: b\n", releaseLimitBytes/4))); !found || err == nil {
		t.Errorf("a record of more than the limit: %v, %v, want an error", found, err)
	}
	allocated := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.TotalAlloc
	}
	for name, text := range bombs() {
		release, found, err := HelmRelease(record(t, text))
		if err != nil || !found {
			t.Fatalf("%s: %v", name, err)
		}
		before := allocated()
		parts := countParts(release.Manifest)
		const fixed, perByte = 1 << 20, 20
		got, limit := allocated()-before, uint64(fixed+perByte*len(text))
		t.Logf("%s: %d parts of %d bytes, %d allocated", name, parts, len(text), got)
		if got > limit {
			t.Errorf("%s: reading %d bytes allocates %d, want at most %d", name, len(text), got, limit)
		}
	}
}

// A record has as many hooks, and in Helm 2 as many manifests, as fit into it: none of them is copied for each other.
func TestReleasesOfManyHooks(t *testing.T) {
	const count = 2_000_000
	field := func(number byte, text string) string { return string([]byte{number<<3 | 2, byte(len(text))}) + text }
	helm2 := strings.Repeat(field(helm2Manifest, "a: b"), count/4) + field(helm2Manifest, "kind: Pod") +
		strings.Repeat(field(helm2Hooks, field(helm2HookManifest, "")), count)
	for name, object := range map[string]map[string]any{
		"Helm 3": recordOf(t, []byte(`{"manifest":"kind: Pod","hooks":[`+strings.Repeat("{},", count-1)+"{}]}"),
			map[string]any{"owner": "helm"}),
		"Helm 2": recordOf(t, []byte(helm2), map[string]any{"OWNER": "TILLER"}),
	} {
		done := make(chan Release, 1)
		go func() {
			release, _, err := HelmRelease(object)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			done <- release
		}()
		select {
		case release := <-done:
			want := "kind: Pod" + strings.Repeat(documentBreak, count)
			if string(release.Manifest) != want {
				t.Errorf("%s: %d bytes that begin with %.20q", name, len(release.Manifest), release.Manifest)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: %d hooks are read for more than two minutes", name, count)
		}
	}
}

func BenchmarkReleasesThatAreBombs(b *testing.B) {
	for name, text := range bombs() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				countParts([]byte(text))
			}
		})
	}
}

// TestAliasesThatAreBombs: a few kilobytes of manifests that would be gigabytes when their aliases are written out.
func TestAliasesThatAreBombs(t *testing.T) {
	bomb := "kind: Pod\na: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n"
	for part, err := range Parts(strings.NewReader(bomb)) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Decode(); err == nil || !strings.Contains(err.Error(), "aliases") {
			t.Errorf("Decode = %v", err)
		}
	}
}

// TestObjectsOfManyObjectsAreRefused: two bytes of a list are ten kilobytes on the way to another version.
func TestObjectsOfManyObjectsAreRefused(t *testing.T) {
	texts := map[string]func(n int) string{
		"JSON": func(n int) string {
			return `{"kind":"Pod","text":"{{{{\"{","a":[` + strings.Repeat("{},", n) + `{}]}`
		},
		"flow":  func(n int) string { return "kind: Pod\na: [" + strings.Repeat("{},", n) + "]\n" },
		"block": func(n int) string { return "kind: Pod\na:\n" + strings.Repeat("- {}\n", n) },
	}
	for name, text := range texts {
		for n, refused := range map[int]bool{mapsLimit - 10: false, mapsLimit + 10: true} {
			for part, err := range Parts(strings.NewReader(text(n))) {
				if err != nil {
					t.Fatal(err)
				}
				if !part.Object {
					continue
				}
				if _, err := part.Decode(); errors.Is(err, errManyMaps) != refused || !refused && err != nil {
					t.Errorf("%s of %d: %v", name, n, err)
				}
			}
		}
	}
}

// White space without end is handed over piece by piece.
func TestBlankTextIsNotHeld(t *testing.T) {
	for _, blank := range []string{"\n", " \t\n", "---\n"} {
		var read int
		var object bool
		text := strings.Repeat(blank, 3*limitBlankBytes/len(blank)) + "kind: Pod\n"
		for part, err := range Parts(strings.NewReader(text)) {
			if err != nil {
				t.Fatal(err)
			}
			if len(part.Text) > limitBlankBytes+4 {
				t.Errorf("%q: %d bytes at once", blank, len(part.Text))
			}
			read += len(part.Text)
			if object = object || part.Object; object && part.Line != 1+strings.Count(text, "\n")-1 {
				t.Errorf("%q: the object is in line %d", blank, part.Line)
			}
		}
		if read != len(text) || !object {
			t.Errorf("%q: %d bytes of %d, an object: %t", blank, read, len(text), object)
		}
	}
}

package kubever

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestParseCountsVendorBuildsAsTheirMinor(t *testing.T) {
	for text, want := range map[string]Version{
		"1.6":              {Minor: 6},
		"v1.6.13":          {Minor: 6, Patch: 13, HasPatch: true},
		"v1.6.13-acme.4":   {Minor: 6, Patch: 13, HasPatch: true, Suffix: "-acme.4"},
		"1.20.4+k3s1":      {Minor: 20, Patch: 4, HasPatch: true, Suffix: "+k3s1"},
		"v1.24.17-eks-a_b": {Minor: 24, Patch: 17, HasPatch: true, Suffix: "-eks-a_b"},
		"1.36":             {Minor: 36},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		again, err := Parse(got.String())
		if err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v, want what was printed: %+v", got.String(), again, err, got)
		}
	}
}

func TestParseRefusesAndNamesTheRange(t *testing.T) {
	for _, text := range []string{"", "v", "1", "1.", "2.6", "1.06", "1.6.x", "1.6.1.2", "1.6-", "1.6 ", "one.six",
		"1.-6", "v1.6.13-ac me", "1.99999", "latest"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", text, got)
		}
	}
	for _, text := range []string{"1.5", "1.5.8", "v1.38.0", "1.370"} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), "1.6 to 1.37") {
			t.Errorf("Parse(%q): %v, want an error that names 1.6 to 1.37", text, err)
		}
	}
}

func TestLibraryIsTheMinorOfTheModules(t *testing.T) {
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"k8s.io/api v0", "k8s.io/apimachinery v0", "k8s.io/kubernetes v1"} {
		if want := fmt.Sprintf("\t%s.%d.", module, Library); !strings.Contains(string(data), want) {
			t.Errorf("go.mod has no %q: Library is the minor of these modules", want)
		}
	}
	if Library > Newest || Suggested > Newest {
		t.Errorf("Library is %s and Suggested %s, newer than the facts", Library, Suggested)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("v1.6.13-acme.4")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		if !v.Minor.Known() {
			t.Errorf("Parse(%q) accepted minor %d", text, v.Minor)
		}
		if again, err := Parse(v.String()); err != nil || again != v {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", v.String(), again, err, v)
		}
	})
}

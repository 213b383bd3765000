package spec_test

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestSkeletonLoads writes one for every layout and for pairs near and far.
func TestSkeletonLoads(t *testing.T) {
	for _, layout := range []spec.Layout{spec.LayoutShared, spec.LayoutSplit} {
		for _, legacy := range kubever.Minors() {
			for _, modern := range []kubever.Minor{kubever.Oldest, legacy - 1, legacy, legacy + 1, legacy + 4,
				kubever.Newest} {
				if !modern.Known() {
					continue
				}
				text, err := spec.Skeleton(layout, kubever.Version{Minor: legacy}, kubever.Version{Minor: modern})
				if modern < legacy {
					if err == nil {
						t.Errorf("Skeleton(%s, %s, %s) = nil, want an error", layout, legacy, modern)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				file, err := spec.Load("spec.yaml", text)
				if err != nil {
					t.Fatalf("Load(Skeleton(%s, %s, %s)): %v", layout, legacy, modern, err)
				}
				if got := file.Spec; got.Layout != layout || got.Legacy.Version.Minor != legacy ||
					got.Modern.Version.Minor != modern {
					t.Errorf("Skeleton(%s, %s, %s) is %s, %s, %s", layout, legacy, modern, got.Layout,
						got.Legacy.Version, got.Modern.Version)
				}
			}
		}
	}
}

func TestSkeletonSaysWhatBothVersionsStoreAlike(t *testing.T) {
	for _, test := range []struct {
		name           string
		layout         spec.Layout
		legacy, modern string
	}{
		{"shared-1.6-1.10", spec.LayoutShared, "1.6", "1.10"},
		{"split-1.6-1.36", spec.LayoutSplit, "1.6", "1.36"},
		{"split-vendor", spec.LayoutSplit, "v1.15.12-acme.4", "1.31.2"},
	} {
		legacy, err := kubever.Parse(test.legacy)
		if err != nil {
			t.Fatal(err)
		}
		modern, err := kubever.Parse(test.modern)
		if err != nil {
			t.Fatal(err)
		}
		text, err := spec.Skeleton(test.layout, legacy, modern)
		if err != nil {
			t.Fatal(err)
		}
		golden.File(t, "testdata/skeleton/"+test.name+".yaml", text)
		if strings.Contains(string(text), "<no value>") {
			t.Errorf("%s has a hole", test.name)
		}
	}
}

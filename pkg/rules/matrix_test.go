package rules

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func TestMatrixPageIsCurrent(t *testing.T) {
	page, err := MatrixPage()
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "../../docs/matrix.md", []byte(page))
}

func TestMatrixTakesTheSpecsOfInit(t *testing.T) {
	for _, layout := range []spec.Layout{spec.LayoutSplit, spec.LayoutShared} {
		base, err := defaultSpec(layout, kubever.Oldest, kubever.Newest)
		if err != nil {
			t.Fatal(err)
		}
		for _, legacy := range kubever.Minors() {
			for _, modern := range kubever.Minors() {
				if modern < legacy || (legacy+modern)%4 != 0 {
					continue
				}
				want, err := defaultSpec(layout, legacy, modern)
				if err != nil {
					t.Fatal(err)
				}
				got, err := between(base, legacy, modern)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(spec.File{})); diff != "" {
					t.Fatalf("%s %s %s (-init +matrix)\n%s", layout, legacy, modern, diff)
				}
			}
		}
	}
}

// The bound is 2 s for a layout on an idle machine, where it takes less than half of that; here it is generous.
func TestMatrixIsFast(t *testing.T) {
	start := time.Now()
	pairs, err := Matrix(spec.LayoutSplit)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("%d pairs took %v, want well under 10 s even on a busy machine", len(pairs), took)
	} else {
		t.Logf("%d pairs in %v", len(pairs), took)
	}
	if want := 31 * 32 / 2; len(pairs) != want {
		t.Errorf("%d pairs, want %d", len(pairs), want)
	}
}

func BenchmarkMatrix(b *testing.B) {
	for b.Loop() {
		if _, err := Matrix(spec.LayoutSplit); err != nil {
			b.Fatal(err)
		}
	}
}

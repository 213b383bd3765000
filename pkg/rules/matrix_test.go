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

func TestMatrixHasEveryPair(t *testing.T) {
	pairs, err := Matrix(spec.LayoutSplit)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(kubever.Minors()); len(pairs) != n*(n+1)/2 {
		t.Errorf("%d pairs of %d minors, want %d", len(pairs), n, n*(n+1)/2)
	}
}

func BenchmarkMatrix(b *testing.B) {
	const bound = 10 * time.Second // 2 s on a machine that does nothing else
	for b.Loop() {
		if _, err := Matrix(spec.LayoutSplit); err != nil {
			b.Fatal(err)
		}
	}
	if took := b.Elapsed() / time.Duration(b.N); took > bound {
		b.Errorf("a layout takes %v, want less than %v", took, bound)
	}
}

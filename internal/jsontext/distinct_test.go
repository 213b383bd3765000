package jsontext

import (
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestDistinctTakesNotLong: a CRD of thousands of versions, each with a schema of its own that is alike to its end.
func TestDistinctTakesNotLong(t *testing.T) {
	list := make([]any, 200)
	for i := range list {
		list[i] = "the same"
	}
	var values []map[string]any
	for i := range 8000 {
		values = append(values, map[string]any{"a": append(list[:199:199], int64(i))})
	}
	if took := cputest.Thread(t, func() {
		var d Distinct
		for range 2 {
			for i, value := range values {
				if n := d.Number(value); n != i {
					t.Fatalf("value %d has number %d", i, n)
				}
			}
		}
		if len(d.Values) != len(values) {
			t.Errorf("%d values", len(d.Values))
		}
	}); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

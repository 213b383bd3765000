package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/convert"
)

// Files are written one after the other, each behind a separator, an empty one too; what cannot be opened ends the run
// when all before it is written.
func TestConvertOfFiles(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("f8 is gone")
	for _, missing := range []bool{false, true} {
		var want []string
		files := func(yield func(File, error) bool) {
			want = nil
			for i := range 12 {
				name, text := fmt.Sprint("f", i), fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\n", i)
				open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
				switch {
				case i == 5:
					text = ""
				case i == 8 && missing:
					open = func() (io.ReadCloser, error) { return nil, gone }
				}
				if want = append(want, text); !yield(File{name, open}, nil) {
					return
				}
			}
		}
		var out bytes.Buffer
		w := NewWriter(&out, Same)
		err := New(c, Options{Choose: ForMinor(c, 36), Minor: 36, Format: Same}).Files(t.Context(), files, w,
			func(r Result) error { return r.Err })
		if err == nil {
			err = w.Close()
		}
		wantErr := error(nil)
		if missing {
			want, wantErr = want[:8], gone
		}
		if got, want := out.String(), strings.Join(want, "---\n"); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%v; want %v; written is\n%s\nwant\n%s", err, wantErr, got, want)
		}
	}
}

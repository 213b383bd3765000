package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// deadlines says which deadlines were set, in seconds from the start.
type deadlines struct {
	http.ResponseWriter
	began time.Time
	set   []string
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, "write "+t.Sub(d.began).String())
	return nil
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, "read "+t.Sub(d.began).String())
	return nil
}

// An exchange that ends in time keeps the server's deadlines; one that waits for a side is answered, late.
func TestSlowExchangesGetMoreTime(t *testing.T) {
	for _, test := range []struct {
		name, body     string
		answered, ends time.Duration
		want           []string
	}{
		{"quick", "", time.Second, 2 * time.Second, nil},
		{"slow to read", "", time.Second, 50 * time.Second, []string{"write 1m0s", "read 2m45s"}},
		{"slow to begin", "", 70 * time.Second, 71 * time.Second, []string{"write 2m45s", "read 2m45s", "write 1m40s"}},
		{"slow to begin, with a body", "{}", 70 * time.Second, 71 * time.Second,
			[]string{"write 2m45s", "read 1m25s", "write 1m40s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &deadlines{ResponseWriter: httptest.NewRecorder(), began: time.Now()}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if test.body != "" {
				r = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body))
			}
			x, end := startExtension(d, r)
			w := &counter{ResponseWriter: d, extension: x}
			time.Sleep(test.answered)
			w.WriteHeader(http.StatusOK)
			time.Sleep(test.ends - test.answered)
			end()
			time.Sleep(time.Hour)
			if diff := cmp.Diff(test.want, d.set); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		})
	}
}

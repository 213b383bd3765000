package scan

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// answers is a pager that answers as no etcd does.
type answers func(etcd.Request) etcd.Page

func (f answers) Page(_ context.Context, r etcd.Request) (etcd.Page, error) { return f(r), nil }

func TestScanSaysSoWhenAnAnswerDoesNotLeadOn(t *testing.T) {
	one := func(key string, more bool) answers {
		return func(etcd.Request) etcd.Page {
			return etcd.Page{Revision: 7, More: more, RangeKeys: 2, Entries: []etcd.Entry{{Key: []byte(key)}}}
		}
	}
	for says, pager := range map[string]answers{
		"has more=true and no keys": func(etcd.Request) etcd.Page {
			return etcd.Page{Revision: 7, More: true, RangeKeys: 2}
		},
		`ends with the key "/registry/pods/a"`: one("/registry/pods/a", true),
		`ends with the key "/a"`:               one("/a", false),
		`ends with the key "/z"`:               one("/z", true),
	} {
		report, err := Stores(t.Context(), storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: pager}}, Options{})
		if err != nil || report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), says) {
			t.Errorf("Scan = %v, incomplete %q, want it to say %s", err, report.Incomplete, says)
		}
	}
}

// A store whose every revision is gone before a page of it is read is given up.
func TestScanGivesUpWhenNoRevisionLastsForAPage(t *testing.T) {
	newPager := func() *storetest.Pager {
		pager := storetest.Clean()["core"].Pager(t)
		pager.OnPage = func(f *storetest.Pager, r etcd.Request) error {
			if f.Requests > 1000 {
				t.Fatal("1000 requests and no end")
			}
			if r.Revision != 0 && strings.HasPrefix(r.From, "/registry/pods/") {
				f.Revision++
				f.CompactBefore = f.Revision
			}
			return nil
		}
		return pager
	}
	report, err := Stores(t.Context(), storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: newPager()}},
		Options{Parallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(report.Cause, etcd.ErrCompacted) || report.Complete {
		t.Errorf("complete %v, cause %v; want an incomplete report because of %v", report.Complete, report.Cause,
			etcd.ErrCompacted)
	}
	if notes := report.Stores[0].Notes; len(notes) > restarts+1 { // and one of the range behind it
		t.Errorf("%d notes %q, want at most %d", len(notes), notes, restarts+1)
	}
}

package scan

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

func TestScanSaysSoWhenAnAnswerDoesNotLeadOn(t *testing.T) {
	for says, pager := range storetest.NoEtcd() {
		report, err := Stores(t.Context(), storetest.SplitMap(), []etcd.Store{{Name: "core", Pager: pager}}, Options{})
		if err != nil || report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), says) {
			t.Errorf("Scan = %v, incomplete %q, want it to say %s", err, report.Incomplete, says)
		}
	}
}

// A store whose every revision is gone before a page of it is read is given up.
func TestScanGivesUpWhenNoRevisionLastsForAPage(t *testing.T) {
	report, err := Stores(t.Context(), storetest.SplitMap(),
		[]etcd.Store{{Name: "core", Pager: storetest.Compacted(t)}},
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

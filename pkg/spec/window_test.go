package spec

import (
	"testing"
	"time"
)

// TestWindowsOpenAndClose: on the clocks of their zones, from the minute of the schedule until the duration is over,
// also past midnight and past a change of the clocks.
func TestWindowsOpenAndClose(t *testing.T) {
	night := Window{Schedule: "0 22 * * 1-5", Duration: "4h", TimeZone: "Europe/Berlin"}
	weekend := Window{Schedule: "30 6 * * 6", Duration: "90m"}
	for _, test := range []struct {
		at   string
		open bool
		next string
	}{
		{"2026-11-25T20:59:59Z", false, "2026-11-25T21:00:00Z"}, // Wednesday; 21:59:59 there
		{"2026-11-25T21:00:00Z", true, ""},
		{"2026-11-26T00:59:59Z", true, ""},
		{"2026-11-26T01:00:00Z", false, "2026-11-26T21:00:00Z"},
		{"2026-11-28T00:30:00Z", true, ""}, // that of Friday
		{"2026-11-28T01:30:00Z", false, "2026-11-28T06:30:00Z"},
		{"2026-11-28T07:59:59Z", true, ""},
		{"2026-11-28T08:00:00Z", false, "2026-11-30T21:00:00Z"},
		{"2026-07-01T19:59:00Z", false, "2026-07-01T20:00:00Z"}, // an hour earlier, in summer
		{"2026-03-28T00:30:00Z", true, ""},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		open, next, err := WindowAt([]Window{night, weekend}, at)
		opens := next.UTC().Format(time.RFC3339)
		if err != nil || open != test.open || !open && opens != test.next {
			t.Errorf("at %s: %v, next %s, %v; want %v, %s", test.at, open, opens, err, test.open, test.next)
		}
	}
	if open, _, err := WindowAt(nil, time.Time{}); !open || err != nil {
		t.Errorf("without windows: %v, %v", open, err)
	}
	for _, bad := range []Window{{Schedule: "@every 1h", Duration: "1h"}, {Schedule: "0 1 * * *", Duration: "59s"},
		{Schedule: "0 1 * * *", Duration: "169h"}, {Schedule: "0 1 * * *"}, {Duration: "1h"},
		{Schedule: "0 1 * * *", Duration: "1h", TimeZone: "Nowhere"}} {
		if open, _, err := WindowAt([]Window{bad}, time.Time{}); open || err == nil {
			t.Errorf("%+v: %v, %v", bad, open, err)
		}
	}
}

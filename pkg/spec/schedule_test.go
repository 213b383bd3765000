package spec

import (
	"testing"
	"time"
)

// TestSchedulesKeepTheTimeOfDay over the days on which clocks are changed: no time is left out, and none comes twice.
func TestSchedulesKeepTheTimeOfDay(t *testing.T) {
	for _, c := range []struct{ name, schedule, zone, from, want string }{
		{"in UTC", "30 2 * * *", "", "2026-03-28T03:00:00Z", "2026-03-29T02:30:00Z"},
		{"in winter", "30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-28T01:30:00Z"},
		{"an hour that the day does not have", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			"2026-03-29T01:30:00Z"},
		{"the day after", "30 2 * * *", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		{"the last one of summer", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T01:30:00Z"},
		{"not twice", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
		{"between both", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-25T01:30:00Z"},
		{"west of it", "0 22 * * 6", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z"},
		{"half an hour of summer", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			"2026-10-03T15:45:00Z"},
	} {
		s, err := ParseSchedule(c.schedule, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(from).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%s: after %s comes %s, want %s", c.name, c.from, got, c.want)
		}
	}
	// A year of it in every zone: one each day.
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo",
		"Asia/Tehran", "Africa/Cairo"} {
		s, err := ParseSchedule("30 2 * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		at, n := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), 0
		for end := at.AddDate(1, 0, 0); ; n++ {
			next := s.Next(at)
			if next.After(end) {
				break
			}
			if gap := next.Sub(at); n > 0 && (gap < 22*time.Hour || gap > 26*time.Hour) {
				t.Errorf("%s: %v, and then %v", zone, at, next)
			}
			at = next
		}
		if n != 365 {
			t.Errorf("%s: %d in a year", zone, n)
		}
	}
}

func TestSchedulesThatAreNone(t *testing.T) {
	for _, c := range [][2]string{{"", ""}, {"30 2 * *", ""}, {"61 2 * * *", ""}, {"30 2 30 2 *", ""},
		{"TZ=0", ""}, {"CRON_TZ=UTC 1 1 * * *", ""}, {"@every 1h", ""}, {"@noon", ""}, {"30 2 * * *", "Local"},
		{"30 2 * * *", "Europe/Atlantis"}, {"30 2 * * *", "../../etc/passwd"}} {
		if _, err := ParseSchedule(c[0], c[1]); err == nil {
			t.Errorf("%q in %q is a schedule", c[0], c[1])
		}
	}
}

// FuzzParseSchedule: each schedule that is taken has a time that comes, and another one after it.
func FuzzParseSchedule(f *testing.F) {
	for _, text := range []string{"30 2 * * *", "0 0 29 2 *", "@daily", "*/7 0-23/5 1,31 * 1-5", "60 * * * *",
		"0 0 31 2 *", "@every 1s"} {
		f.Add(text, "Europe/Berlin", int64(1_774_746_000))
	}
	f.Add("30 2 * * *", "../../etc/passwd", int64(0))
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		s, err := ParseSchedule(text, zone)
		if err != nil {
			return
		}
		at := time.Unix(unix%(1<<33), 0)
		next := s.Next(at)
		if next.IsZero() {
			return // none within five years
		}
		if after := s.Next(next); !next.After(at) || !after.IsZero() && !after.After(next) {
			t.Errorf("%q in %q, after %s: %s, then %s", text, zone, at, next, after)
		}
	})
}

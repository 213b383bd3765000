package spec

import (
	"fmt"
	"time"
)

// Window is a time in which transitions may begin.
type Window struct {
	// when it opens: five fields of cron, minute, hour, day, month, day of the week
	Schedule string `json:"schedule"`
	TimeZone string `json:"timeZone,omitempty"` // of the schedule, as Europe/Berlin; default UTC
	Duration string `json:"duration"`           // for how long, as 4h or 90m; at most 168h
}

// Bounds of Window.Duration.
const (
	shortestWindow = time.Minute
	longestWindow  = 7 * 24 * time.Hour
)

// parse reads a window. Errors: what is wrong with its schedule, and with its duration.
func (w *Window) parse() (schedule *Schedule, duration time.Duration, err error) {
	if schedule, err = ParseSchedule(w.Schedule, w.TimeZone); err != nil {
		return nil, 0, err
	}
	duration, err = parseWindowDuration(w.Duration)
	return schedule, duration, err
}

func parseWindowDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestWindow || d > longestWindow {
		return 0, fmt.Errorf("%q: want hours and minutes, such as 4h or 1h30m, from %s to %s", text, shortestWindow,
			longestWindow)
	}
	return d, nil
}

// WindowAt reports whether a window is open at a time, and when otherwise the next one opens. Without windows one is
// always open. Errors: a window that Load refuses.
func WindowAt(windows []Window, now time.Time) (open bool, next time.Time, err error) {
	if len(windows) == 0 {
		return true, time.Time{}, nil
	}
	for i := range windows {
		schedule, duration, err := windows[i].parse()
		if err != nil {
			return false, time.Time{}, fmt.Errorf("spec.windows[%d]: %w", i, err)
		}
		if opened := schedule.Next(now.Add(-duration)); !opened.IsZero() && !opened.After(now) {
			return true, time.Time{}, nil
		}
		if opens := schedule.Next(now); !opens.IsZero() && (next.IsZero() || opens.Before(next)) {
			next = opens
		}
	}
	return false, next, nil
}

package spec

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an image of fusionctl alone has no time zones

	"github.com/robfig/cron/v3"
)

// Schedule is when something happens: five fields of cron, on the clocks of a time zone.
type Schedule struct {
	cron cron.Schedule
	zone *time.Location
}

// ParseSchedule reads a schedule as CronJobs have it, and the name of its time zone, "" for UTC. Errors: what is wrong
// with one of them.
func ParseSchedule(text, zone string) (*Schedule, error) {
	s := &Schedule{zone: time.UTC}
	if strings.Contains(text, "TZ") { // the parser takes it, and ends the program for some
		return nil, errors.New("has a time zone; want it in timeZone")
	}
	if strings.HasPrefix(strings.TrimSpace(text), "@every") {
		return nil, errors.New("begins with @every, whose times depend on when it is read; want five fields of cron")
	}
	var err error
	if s.cron, err = cron.ParseStandard(text); err != nil {
		return nil, fmt.Errorf("%w; want five fields of cron, such as \"30 2 * * *\"", err)
	}
	if s.zone, err = ParseZone(zone); err != nil {
		return nil, err
	}
	if s.cron.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("names no day that ever comes")
	}
	return s, nil
}

// ParseZone is the time zone of a name, UTC for none. Errors: it is none of the tz database.
func ParseZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return time.UTC, nil
	case "Local": // of the machine on which it is read
		return nil, errors.New(`unknown time zone Local; want a name such as Europe/Berlin`)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w; want a name such as Europe/Berlin", err)
	}
	return zone, nil
}

// Next is the first time after t. A time of day that a day does not have, since clocks are put forward, is the moment
// an hour beside it; one that a day has twice happens once.
func (s *Schedule) Next(t time.Time) time.Time {
	local := t.In(s.zone)
	// The times are looked for on a clock that is never changed.
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(),
		local.Nanosecond(), time.UTC).Add(-clocksChange)
	for {
		wall = s.cron.Next(wall)
		if wall.IsZero() {
			return wall
		}
		at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, s.zone)
		if at.After(t) {
			return at
		}
	}
}

// clocksChange is more than clocks are changed by, but for zones that moved to another day.
const clocksChange = 3 * time.Hour

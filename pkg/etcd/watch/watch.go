// Package watch checks the stores of a fused control plane continuously, and emits what changes: findings that appear
// and disappear, and fights over keys.
package watch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/fight"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Schema names the format of events.
const Schema = "fusionctl/etcd-watch/v1"

// Event is one change. The findings of the first check appear with it.
type Event struct {
	Schema  string           `json:"schema"` // fusionctl/etcd-watch/v1
	Time    time.Time        `json:"time"`
	Event   string           `json:"event"` // appeared, changed, disappeared, fight, fight-over, checked, missed
	Finding *finding.Finding `json:"finding,omitempty"`
	// Accepted is the reason for which the finding is accepted; it counts in no summary and in no metric.
	Accepted string       `json:"accepted,omitempty"`
	Fight    *fight.Fight `json:"fight,omitempty"`
	Check    *Check       `json:"check,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}

// Check sums up a check of all stores.
type Check struct {
	Complete   bool            `json:"complete"`
	Incomplete []string        `json:"incomplete,omitempty"`
	Notes      []string        `json:"notes,omitempty"` // members that were left, ranges that were read again
	Keys       int64           `json:"keys"`
	Seconds    float64         `json:"seconds"`
	Summary    finding.Summary `json:"summary"`
}

// Config is what is watched, and how.
type Config struct {
	Map      pair.Map
	Stores   []etcdv3.Store // live ones
	Options  scan.Options   // of each check
	Interval time.Duration  // the least time between two checks
	Patience time.Duration  // with a store of which no member answers, before its changes count as missed
	Accept   []finding.Acceptance
}

// Watch is one watch over all stores. Its fields belong to Run's goroutine.
type Watch struct {
	config   Config
	emit     func(Event) error
	referee  *fight.Referee
	metrics  *metrics
	findings []finding.Finding
	seen     map[string]int64 // by store: the revision from which its watch goes on
}

// New prepares a watch that calls emit with every event, one after the other.
func New(config Config, emit func(Event) error) *Watch {
	return &Watch{
		config: config, emit: emit, referee: fight.NewReferee(&config.Map, fight.Rules{}),
		metrics: newMetrics(), seen: map[string]int64{},
	}
}

// Metrics gathers the present metrics of the watch. Safe to call while Run runs.
func (w *Watch) Metrics() prometheus.Gatherer { return w.metrics.registry }

// storeChanges are changes of one store, or the end of its watch.
type storeChanges struct {
	store    string
	revision int64
	changes  []etcd.Change
	err      error
	back     bool // the store answers again
}

// Run checks, watches until something calls for another check, and so on until ctx ends. It waits for a store that
// becomes unreachable. Errors: ctx's; emit's own; a store that cannot be read at the start.
func (w *Watch) Run(ctx context.Context) error {
	for first := true; ; first = false {
		took, err := w.check(ctx, first)
		if err != nil {
			return err
		}
		if err := w.follow(ctx, took); err != nil {
			return err
		}
	}
}

// check reads the stores whole and emits what has changed since the last check. Changes from before the check are not
// lost: the watch goes on where it was.
func (w *Watch) check(ctx context.Context, first bool) (time.Duration, error) {
	var there []etcdv3.Store
	var away []string
	for _, s := range w.config.Stores {
		if w.seen[s.Name] == 0 {
			s.Client.Forget()
			newest, err := etcd.NewestRevision(ctx, s.Pager, w.prefix())
			if err != nil && (first || ctx.Err() != nil) {
				return 0, fmt.Errorf("store %s: %w", s.Name, err)
			}
			if err != nil {
				away = append(away, fmt.Sprintf("store %s: %v", s.Name, err))
				continue
			}
			w.seen[s.Name] = newest + 1
		}
		there = append(there, s)
	}
	start := time.Now()
	report, err := etcdv3.Scan(ctx, &w.config.Map, there, w.config.Options)
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	took := time.Since(start)
	counting, _ := finding.Accept(report.Findings, w.config.Accept)
	check := &Check{
		Complete: report.Complete, Incomplete: append(report.Incomplete, away...), Seconds: took.Seconds(),
		Summary: finding.Summarize(counting.Findings),
	}
	for _, s := range report.Stores {
		check.Keys += s.Keys
		for _, note := range s.Notes {
			check.Notes = append(check.Notes, "store "+s.Name+": "+note)
		}
	}
	w.metrics.checked(report, took) // before a reader of the line scrapes them
	if err := w.tell(Event{Event: "checked", Check: check}); err != nil {
		return 0, err
	}
	if report.Complete { // what could not be read has not disappeared
		return took, w.turn(report.Findings)
	}
	return took, w.turn(append(missingFrom(report.Findings, w.findings), report.Findings...))
}

// missingFrom are the findings of before that now lacks.
func missingFrom(now, before []finding.Finding) []finding.Finding {
	var missing []finding.Finding
	for _, t := range scan.Turns(before, now) {
		if t.Turn == scan.Disappeared {
			missing = append(missing, t.Finding)
		}
	}
	return missing
}

// turn replaces the findings and emits what has changed.
func (w *Watch) turn(findings []finding.Finding) error {
	turns := scan.Turns(w.findings, findings)
	w.findings = findings
	w.count() // before a reader of the lines scrapes them
	for _, t := range turns {
		if err := w.tell(Event{Event: string(t.Turn), Finding: &t.Finding}); err != nil {
			return err
		}
	}
	return nil
}

// count shows in the metrics how many findings there are that are not accepted.
func (w *Watch) count() {
	counting, _ := finding.Accept(w.findings, w.config.Accept)
	w.metrics.found(counting.Findings)
}

func (w *Watch) tell(e Event) error {
	if e.Finding != nil {
		for _, a := range w.config.Accept {
			if a.Covers(*e.Finding) {
				e.Accepted = a.Reason
				break
			}
		}
	}
	e.Schema, e.Time = Schema, time.Now().UTC()
	return w.emit(e)
}

// follow watches all stores until it is time for the next check: something has changed and enough time has passed, or
// changes of a store were missed, or a store is back.
func (w *Watch) follow(ctx context.Context, took time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan storeChanges)
	var group errgroup.Group
	defer func() { _ = group.Wait() }()
	defer cancel()
	dirty := false
	for _, s := range w.config.Stores {
		from := w.seen[s.Name]
		if from == 0 { // the check could not read it
			dirty = true
			group.Go(func() error { return await(ctx, s, w.prefix(), min(reviveEvery, w.config.Interval), changes) })
			continue
		}
		group.Go(func() error { return follow(ctx, s, w.prefix(), from, w.config.Patience, changes) })
	}
	rest := max(w.config.Interval, 9*took)
	rested := false
	timer, ticker := time.NewTimer(rest), time.NewTicker(min(10*time.Second, w.config.Interval))
	defer timer.Stop()
	defer ticker.Stop()
	for !rested || !dirty {
		select {
		case c := <-changes:
			if c.err != nil {
				w.seen[c.store] = 0
				w.metrics.missed.WithLabelValues(c.store).Inc()
				if err := w.tell(
					Event{Event: "missed", Reason: fmt.Sprintf("store %s: %v", c.store, c.err)}); err != nil {
					return err
				}
			}
			if c.err != nil || c.back { // A store that comes and goes must not be checked without a pause.
				return pause.For(ctx, min(rest, max(reviveEvery, took)))
			}
			w.seen[c.store] = c.revision + 1
			dirty = dirty || len(c.changes) > 0
			if err := w.look(ctx, c); err != nil {
				return err
			}
		case <-ticker.C:
			for _, fight := range w.referee.Over(time.Now()) {
				if err := w.tell(Event{Event: "fight-over", Fight: &fight}); err != nil {
					return err
				}
			}
			w.metrics.fights.Set(float64(w.referee.Fights()))
		case <-timer.C:
			rested = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// reviveEvery is how often an unreachable store is probed.
const reviveEvery = 5 * time.Second

func (w *Watch) prefix() string { return storage.NormalPrefix(w.config.Map.Prefix) + "/" }

// follow sends the changes of one store until ctx ends, or no member answers for longer than patience.
func follow(
	ctx context.Context, s etcdv3.Store, prefix string, from int64, patience time.Duration, changes chan<- storeChanges,
) error {
	err := s.Client.Watch(ctx, prefix, from, patience, func(revision int64, seen []etcd.Change) error {
		return send(ctx, changes, storeChanges{store: s.Name, revision: revision, changes: seen})
	})
	return send(ctx, changes, storeChanges{store: s.Name, err: err})
}

// await probes a store periodically and reports when it answers.
func await(ctx context.Context, s etcdv3.Store, prefix string, every time.Duration, changes chan<- storeChanges) error {
	for {
		if err := pause.For(ctx, every); err != nil {
			return err
		}
		s.Client.Forget()
		if _, err := etcd.NewestRevision(ctx, s.Pager, prefix); err == nil {
			return send(ctx, changes, storeChanges{store: s.Name, back: true})
		}
	}
}

func send(ctx context.Context, changes chan<- storeChanges, c storeChanges) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case changes <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look emits what changed keys show by themselves, and fights.
func (w *Watch) look(ctx context.Context, c storeChanges) error {
	if len(c.changes) == 0 {
		return nil
	}
	w.metrics.changes.WithLabelValues(c.store).Add(float64(len(c.changes)))
	now := time.Now()
	for _, change := range c.changes {
		fight := w.referee.See(now, c.store, change)
		if fight == nil {
			continue
		}
		found := fight.Finding()
		if err := w.tell(Event{Event: "fight", Fight: fight, Finding: &found}); err != nil {
			return err
		}
		w.metrics.fights.Set(float64(w.referee.Fights()))
	}
	found, err := scan.Glance(ctx, &w.config.Map, map[string][]etcd.Change{c.store: c.changes})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	for _, f := range found {
		// A check counted all of them, in other words than a glance at one has: what it found was reported.
		known := func(k finding.Finding) bool { return k.Key == f.Key }
		if slices.ContainsFunc(w.findings, known) {
			continue
		}
		w.findings = append(w.findings, f)
		w.count()
		if err := w.tell(Event{Event: string(scan.Appeared), Finding: &f}); err != nil {
			return err
		}
	}
	return nil
}

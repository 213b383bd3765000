package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type etcdWatchRequest struct {
	file     string
	depth    string
	metrics  metricsFlags
	interval time.Duration
	stores   storesRequest
}

func newEtcdWatchCmd(streams Streams) *cobra.Command {
	var req etcdWatchRequest
	cmd := &cobra.Command{
		Use:   "watch SPEC",
		Short: "Check continuously: findings that appear and disappear, and fights over keys",
		Long: `watch checks the stores of a spec, follows every change to them, and prints a JSON line for each finding that appears, changes
or disappears. A key in the wrong store or a value that a reader cannot decode is told at once; what takes the whole store to
see, and what is over, is told by the next check, at most --interval after a change. A key that is written again and again by
both sides is told as a fight.

--metrics serves the same as Prometheus metrics at /metrics, and /healthz: on loopback, or with TLS to clients with a certificate.

It runs until it is interrupted: it reconnects, goes on with other members, and checks anew when it missed changes.

Exit codes: 1 could not begin, 2 bad usage or a bad spec, 130 interrupted.`,
		Example: `  fusionctl etcd watch fused.yaml --metrics :9105 | tee -a etcd-findings.jsonl
  fusionctl etcd watch fused.yaml --gentle --interval 10m --depth keys`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runEtcdWatch(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	hideSnapshotFlags(cmd)
	enumFlag(cmd, &req.depth, "depth", "", "how much a check reads", words(etcdsplit.Depths())...)
	req.metrics.bind(cmd.Flags())
	cmd.Flags().DurationVar(&req.interval, "interval", time.Minute, "the least time between two checks; a check of a large store also rests nine times as long as it took")
	return cmd
}

// watchEvent is one line of watch.
type watchEvent struct {
	Schema  string           `json:"schema"`
	Time    time.Time        `json:"time"`
	Event   string           `json:"event"` // appeared, changed, disappeared, fight, fight-over, checked, missed
	Finding *finding.Finding `json:"finding,omitempty"`
	Fight   *etcdsplit.Fight `json:"fight,omitempty"`
	Check   *watchCheck      `json:"check,omitempty"`
	Reason  string           `json:"reason,omitempty"`
}

// watchCheck sums up a check of all stores.
type watchCheck struct {
	Complete   bool            `json:"complete"`
	Incomplete []string        `json:"incomplete,omitempty"`
	Notes      []string        `json:"notes,omitempty"` // members that were left, ranges that were read again
	Keys       int64           `json:"keys"`
	Seconds    float64         `json:"seconds"`
	Summary    finding.Summary `json:"summary"`
}

func runEtcdWatch(ctx context.Context, req etcdWatchRequest, streams Streams) error {
	if req.interval < time.Millisecond {
		return usagef("--interval %s: want at least 1ms", req.interval)
	}
	if len(req.stores.snapshots) > 0 {
		return usagef("--snapshot: a file does not change; fusionctl etcd check reads it")
	}
	p, stores, err := openSpecStores(ctx, req.file, "", req.stores, streams)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	w := newWatch(req, p, stores, streams.Out)
	listener, err := req.metrics.listen(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if listener != nil {
		loggerFrom(ctx).Info("serving metrics", "address", listener.Addr().String())
		group.Go(func() error { return w.metrics.serve(ctx, listener) })
	}
	group.Go(func() error { return w.run(ctx) })
	return group.Wait()
}

// watch is one run of the verb. Its fields belong to run's goroutine.
type watch struct {
	request   etcdWatchRequest
	ownership etcdsplit.Map
	accepted  []spec.Accept
	stores    []openStore
	out       *json.Encoder
	referee   *etcdsplit.Referee
	metrics   *watchMetrics
	findings  []finding.Finding
	seen      map[string]int64 // by store: the revision from which its watch goes on
}

func newWatch(req etcdWatchRequest, p *plan.Plan, stores []openStore, out io.Writer) *watch {
	ownership := p.Ownership()
	return &watch{
		request: req, ownership: ownership, accepted: p.Accept, stores: stores, out: json.NewEncoder(out),
		referee: etcdsplit.NewReferee(&ownership, etcdsplit.FightRules{}), metrics: newWatchMetrics(), seen: map[string]int64{},
	}
}

// storeChanges are changes of one store, or the end of its watch.
type storeChanges struct {
	store    string
	revision int64
	changes  []etcdsplit.Change
	err      error
	back     bool // the store answers again
}

// run checks, watches until something calls for another check, and so on.
func (w *watch) run(ctx context.Context) error {
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

// check reads the stores whole and tells what has changed since the last time. Changes from before the check are not lost:
// the watch goes on where it was.
func (w *watch) check(ctx context.Context, first bool) (time.Duration, error) {
	var there []openStore
	var away []string
	for _, s := range w.stores {
		if w.seen[s.Name] == 0 {
			s.live.Forget()
			newest, err := etcdsplit.NewestRevision(ctx, s.Pager, w.prefix())
			if err != nil && (first || ctx.Err() != nil) {
				return 0, withHint(fmt.Errorf("store %s: %w", s.Name, err), storeHint(err))
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
	report, err := scanApart(ctx, &w.ownership, there, w.request.stores.scanOptions(w.request.depth, 0))
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	accept(report.Findings, w.accepted)
	took := time.Since(start)
	check := &watchCheck{Complete: report.Complete, Incomplete: append(report.Incomplete, away...), Seconds: took.Seconds(), Summary: finding.Summarize(report.Findings)}
	for _, s := range report.Stores {
		check.Keys += s.Keys
		for _, note := range s.Notes {
			check.Notes = append(check.Notes, "store "+s.Name+": "+note)
		}
	}
	w.metrics.checked(report, took) // before whoever reads the line asks for them
	if err := w.emit(watchEvent{Event: "checked", Check: check}); err != nil {
		return 0, err
	}
	if report.Complete { // what could not be seen has not disappeared
		return took, w.turn(report.Findings)
	}
	return took, w.turn(append(missingFrom(report.Findings, w.findings), report.Findings...))
}

// missingFrom are the findings of before that now lacks.
func missingFrom(now, before []finding.Finding) []finding.Finding {
	var missing []finding.Finding
	for _, t := range etcdsplit.Turns(before, now) {
		if t.Turn == etcdsplit.Disappeared {
			missing = append(missing, t.Finding)
		}
	}
	return missing
}

// turn replaces the findings and tells what has changed.
func (w *watch) turn(findings []finding.Finding) error {
	for _, t := range etcdsplit.Turns(w.findings, findings) {
		if err := w.emit(watchEvent{Event: string(t.Turn), Finding: &t.Finding}); err != nil {
			return err
		}
	}
	w.findings = findings
	w.metrics.found(findings)
	return nil
}

func (w *watch) emit(e watchEvent) error {
	e.Schema, e.Time = "fusionctl/etcd-watch/v1", time.Now().UTC()
	return w.out.Encode(e)
}

// follow watches all stores until it is time for the next check: something has changed and enough time has passed, or
// changes of a store were missed, or a store is back.
func (w *watch) follow(ctx context.Context, took time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan storeChanges)
	var group errgroup.Group
	defer func() { _ = group.Wait() }()
	defer cancel()
	dirty := false
	for _, s := range w.stores {
		from := w.seen[s.Name]
		if from == 0 { // the check could not read it
			dirty = true
			group.Go(func() error { return await(ctx, s, w.prefix(), min(reviveEvery, w.request.interval), changes) })
			continue
		}
		group.Go(func() error { return follow(ctx, s, w.prefix(), from, 6*w.request.stores.timeout, changes) })
	}
	rest := max(w.request.interval, 9*took)
	rested := false
	timer, ticker := time.NewTimer(rest), time.NewTicker(min(10*time.Second, w.request.interval))
	defer timer.Stop()
	defer ticker.Stop()
	for !rested || !dirty {
		select {
		case c := <-changes:
			if c.err != nil {
				w.seen[c.store] = 0
				w.metrics.missed.WithLabelValues(c.store).Inc()
				if err := w.emit(watchEvent{Event: "missed", Reason: fmt.Sprintf("store %s: %v", c.store, c.err)}); err != nil {
					return err
				}
			}
			if c.err != nil || c.back { // A store that comes and goes must not be checked without a pause.
				return sleep(ctx, min(rest, max(reviveEvery, took)))
			}
			w.seen[c.store] = c.revision + 1
			dirty = dirty || len(c.changes) > 0
			if err := w.look(ctx, c); err != nil {
				return err
			}
		case <-ticker.C:
			for _, fight := range w.referee.Over(time.Now()) {
				if err := w.emit(watchEvent{Event: "fight-over", Fight: &fight}); err != nil {
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

// reviveEvery is how often a store is asked whether it is back.
const reviveEvery = 5 * time.Second

func (w *watch) prefix() string { return etcdsplit.NormalPrefix(w.ownership.Prefix) + "/" }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow sends the changes of one store until ctx ends, or no member answers for longer than patience.
func follow(ctx context.Context, s openStore, prefix string, from int64, patience time.Duration, changes chan<- storeChanges) error {
	err := s.live.Watch(ctx, prefix, from, patience, func(revision int64, seen []etcdsplit.Change) error {
		return send(ctx, changes, storeChanges{store: s.Name, revision: revision, changes: seen})
	})
	return send(ctx, changes, storeChanges{store: s.Name, err: err})
}

// await asks a store now and then and sends word when it answers.
func await(ctx context.Context, s openStore, prefix string, every time.Duration, changes chan<- storeChanges) error {
	for {
		if err := sleep(ctx, every); err != nil {
			return err
		}
		s.live.Forget()
		if _, err := etcdsplit.NewestRevision(ctx, s.Pager, prefix); err == nil {
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

// look tells what changed keys show by themselves, and fights.
func (w *watch) look(ctx context.Context, c storeChanges) error {
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
		found := []finding.Finding{fight.Finding()}
		accept(found, w.accepted)
		if err := w.emit(watchEvent{Event: "fight", Fight: fight, Finding: &found[0]}); err != nil {
			return err
		}
		w.metrics.fights.Set(float64(w.referee.Fights()))
	}
	found, err := etcdsplit.Glance(ctx, &w.ownership, map[string][]etcdsplit.Change{c.store: c.changes})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	accept(found, w.accepted)
	for _, f := range found {
		// A check counted all of them, in other words than a glance at one has: what it found is told.
		if slices.ContainsFunc(w.findings, func(known finding.Finding) bool { return known.Rule == f.Rule && known.Subject == f.Subject }) {
			continue
		}
		w.findings = append(w.findings, f)
		if err := w.emit(watchEvent{Event: string(etcdsplit.Appeared), Finding: &f}); err != nil {
			return err
		}
	}
	w.metrics.found(w.findings)
	return nil
}

// watchMetrics are what --metrics serves.
type watchMetrics struct {
	registry  *prometheus.Registry
	findings  *prometheus.GaugeVec
	keys      *prometheus.GaugeVec
	bytes     *prometheus.GaugeVec
	complete  prometheus.Gauge
	lastCheck prometheus.Gauge
	duration  prometheus.Gauge
	checks    prometheus.Counter
	fights    prometheus.Gauge
	changes   *prometheus.CounterVec
	missed    *prometheus.CounterVec
}

func newWatchMetrics() *watchMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name, Help: help})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name, Help: help}, labels)
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: name, Help: help}, labels)
	}
	m := &watchMetrics{
		registry:  prometheus.NewRegistry(),
		findings:  gauges("findings", "Findings at present, by rule and severity.", "rule", "severity"),
		keys:      gauges("keys", "Keys of each resource in each store, at the last check.", "store", "resource"),
		bytes:     gauges("value_bytes", "Bytes of the values of each resource in each store, at the last check.", "store", "resource"),
		complete:  gauge("check_complete", "1 when the last check could read all stores to their end, else 0."),
		lastCheck: gauge("last_check_timestamp_seconds", "When the last check ended."),
		duration:  gauge("last_check_duration_seconds", "How long the last check took."),
		checks:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "fusionctl", Subsystem: "etcd", Name: "checks_total", Help: "Checks of all stores."}),
		fights:    gauge("fights", "Keys that are written again and again by both sides, at present."),
		changes:   counters("changes_total", "Changes seen in each store.", "store"),
		missed:    counters("missed_total", "How often changes of a store were missed, so that it was checked anew.", "store"),
	}
	m.registry.MustRegister(m.findings, m.keys, m.bytes, m.complete, m.lastCheck, m.duration, m.checks, m.fights, m.changes, m.missed)
	return m
}

// mostSeries of a store have a resource of their own, and those that the plan knows beyond that: whatever a key says is one.
const mostSeries = 500

func (m *watchMetrics) checked(report *etcdsplit.Report, took time.Duration) {
	m.keys.Reset()
	m.bytes.Reset()
	series := map[string]int{} // by store
	for _, r := range report.Resources {
		if series[r.Store]++; series[r.Store] > mostSeries && r.Owner == "" {
			r.Resource = "(others)"
		}
		m.keys.WithLabelValues(r.Store, r.Resource).Add(float64(r.Keys))
		m.bytes.WithLabelValues(r.Store, r.Resource).Add(float64(r.Bytes))
	}
	m.complete.Set(0)
	if report.Complete {
		m.complete.Set(1)
	}
	m.checks.Inc()
	m.duration.Set(took.Seconds())
	m.lastCheck.SetToCurrentTime()
}

func (m *watchMetrics) found(findings []finding.Finding) {
	m.findings.Reset()
	for _, f := range findings {
		m.findings.WithLabelValues(f.Rule, f.Severity.String()).Inc()
	}
}

// serve serves the metrics until ctx ends.
func (m *watchMetrics) serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", ok)
	if err := webserver.Serve(ctx, listener, mux, loggerFrom(ctx)); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return ctx.Err()
}

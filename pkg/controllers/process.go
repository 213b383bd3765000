package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// process lasts from start to stop: it serves health checks and webhooks, and is the leader for one term or several.
type process struct {
	*cluster
	options Options
	keepers []func(context.Context) error
	elector *leaderelection.HealthzAdaptor
	lease   lease

	mutex  sync.Mutex
	acting *manager // nil while it stands by
}

// lease is how long the lock is held without being renewed, for how long a renewal is tried, and how often.
type lease struct{ duration, renew, retry time.Duration }

func newProcess(c *cluster, o Options) *process {
	p := &process{cluster: c, options: o, elector: leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)}
	p.lease = lease{15 * time.Second, 10 * time.Second, 2 * time.Second}
	c.metrics.sizes(
		func() int { return p.count((*manager).objects) },
		func() int { return p.count((*manager).queued) },
		func() int { return p.count(func(*manager) int { return 1 }) })
	if o.Webhook != nil && o.Webhook.Metrics != nil {
		c.metrics.registry.MustRegister(o.Webhook.Metrics)
	}
	return p
}

func (m *manager) objects() int { return m.graph.size() }
func (m *manager) queued() int  { return m.collector.queue.Len() }

func (p *process) count(of func(*manager) int) int {
	if m := p.current(); m != nil {
		return of(m)
	}
	return 0
}

func (p *process) current() *manager {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.acting
}

// run serves, and runs the controllers while it is the leader, until ctx ends.
func (p *process) run(ctx context.Context) (err error) {
	for _, at := range []struct {
		address string
		metrics bool
	}{{p.options.Listen, true}, {p.options.Health, false}} {
		stop, err := p.serve(at.address, at.metrics)
		if err != nil {
			return err
		}
		defer stop()
	}
	if p.keepers, err = podKeepers(p.cluster, p.options); err != nil {
		return err
	}
	if p.options.Webhook != nil && !p.options.DryRun {
		serving, end := context.WithCancel(ctx)
		wait, err := p.answers(serving, p.options.Webhook)
		if err != nil {
			end()
			return err
		}
		defer wait()
		defer end()
	}
	var looking sync.WaitGroup
	looks, last := context.WithCancel(ctx)
	looking.Go(func() { p.guard.run(looks) })
	defer looking.Wait()
	defer last()
	if !p.options.LeaderElect || p.options.DryRun {
		return p.act(ctx)
	}
	return p.lead(ctx)
}

// act runs the controllers until ctx ends. Of an earlier term only the identity of the cluster is kept.
func (p *process) act(ctx context.Context) error {
	for _, catalogs := range p.catalogs {
		catalogs.forget()
	}
	m := newManager(p.cluster, p.options)
	m.keepers = p.keepers
	set := func(acting *manager) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.acting = acting
	}
	set(m)
	defer set(nil)
	return m.run(ctx)
}

// lead acts while this process holds the lock. A process that loses it stops acting, so as not to act beside the next
// leader, and stands by.
func (p *process) lead(ctx context.Context) error {
	side := cmp.Or(p.layout.home(schema.GroupResource{Resource: "configmaps"}), pair.Modern)
	config := map[pair.Side]*rest.Config{pair.Legacy: p.options.Legacy, pair.Modern: p.options.Modern}[side]
	client, err := newClient(side, config, -1) // the collector's rate limit must not delay a renewal
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("naming this process for the lock: %w", err)
	}
	identity := host + "_" + string(uuid.NewUUID())
	for {
		held := &lock{client: client, identity: identity, guard: p.guard}
		if err := p.term(ctx, held); err != nil || ctx.Err() != nil {
			return err
		}
		p.log.Warn("leader election lost; standing by", "lock", LockNamespace+"/"+LockName)
		if pause.For(ctx, p.lease.retry) != nil {
			return nil
		}
	}
}

// term waits for the lock and acts until it is lost or ctx ends.
func (p *process) term(ctx context.Context, lock *lock) error {
	// The lock is held until the controllers have stopped: its context ends after theirs.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var mutex sync.Mutex
	leading, ended := false, make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		mutex.Lock()
		defer mutex.Unlock()
		if !leading {
			release()
		}
	})()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: p.lease.duration, RenewDeadline: p.lease.renew, RetryPeriod: p.lease.retry,
		WatchDog: p.elector, Name: LockName, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				mutex.Lock()
				leading = true
				mutex.Unlock()
				acting, stop := context.WithCancel(held)
				defer context.AfterFunc(ctx, stop)()
				var beside sync.WaitGroup
				stops := lock.another()
				beside.Go(func() { stops.carry(acting) })
				err := p.act(acting)
				stop()
				beside.Wait()
				ended <- err
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(holding)
	mutex.Lock()
	wait := leading || ctx.Err() == nil
	mutex.Unlock()
	if !wait {
		return nil // stopped before it led
	}
	return <-ended
}

// serve serves health checks, and metrics where it is told to.
func (p *process) serve(address string, metrics bool) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for health checks: %w", err)
	}
	server := webserver.New(p.checks(metrics), p.log)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("health checks stopped", "err", err)
		}
	}()
	p.log.Info("listening", "address", listener.Addr().String())
	return func() { server.Close() }, nil
}

// checks answers health checks, and metrics where it is told to.
func (p *process) checks(metrics bool) http.Handler {
	mux := http.NewServeMux()
	answer := func(check func(*http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := check(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /healthz", answer(p.elector.Check))
	mux.HandleFunc("GET /readyz", answer(func(*http.Request) error { return p.ready() }))
	if metrics {
		mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{}))
	}
	return mux
}

// ready reports why the controllers are not active.
func (p *process) ready() error {
	if err := p.guard.ready(); err != nil {
		return err
	}
	if m := p.current(); m != nil {
		return m.ready()
	}
	return errors.New("standing by: waiting for the lock")
}

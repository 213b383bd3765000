//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/test/rig"
)

// unitHosts carries out transitions with real processes and without root: units are processes of the test, which start
// again when they are killed, as systemd starts them again; files of each host lie below a directory; hosts are
// addresses of loopback. What is asked of components and stores, and done to these, is what the program itself does.
type unitHosts struct {
	*local.Host
	t         *testing.T
	rig       *rig.Rig
	root      string
	addresses map[string]string // of hosts
	// program finds the program of a command line; rewrite changes a word of one, for what hosts do not share here.
	program func(path string) (string, error)
	rewrite func(host, word string) string
	running map[string]*rig.Process // by HOST/UNIT
	skipped []transition.CheckKind  // what the test has no files for
	// after is asked when an action was done, and before it is recorded.
	after func(host string, a *transition.Action) error
}

func newUnitHosts(t *testing.T, r *rig.Rig) *unitHosts {
	return &unitHosts{Host: &local.Host{Snapshots: filepath.Join(r.Dir(), "snapshots"), Wait: 2 * time.Minute,
		ByHand: func(string, string) error { return nil }}, t: t, rig: r, root: filepath.Join(r.Dir(), "hosts"),
		addresses: map[string]string{}, running: map[string]*rig.Process{},
		rewrite: func(_, word string) string { return word }}
}

func (u *unitHosts) Do(ctx context.Context, host string, a *transition.Action) error {
	var err error
	switch a.Kind {
	case transition.PutFile, transition.RemoveFile:
		err = (&local.Host{Rehearsal: u.root}).Do(ctx, host, a)
	case transition.StartUnit:
		err = u.start(host, a.Unit)
	case transition.StopUnit:
		if p := u.running[host+"/"+a.Unit]; p != nil {
			p.Stop()
			delete(u.running, host+"/"+a.Unit)
		}
	case transition.SettleMember:
		own, store := *a.Members, *a.Members.Store.Managed
		store.DataDir += "/" + host
		own.Store.Managed = &store
		err = u.Host.Do(ctx, host, &transition.Action{Kind: a.Kind, Members: &own})
	case transition.AddMember, transition.PromoteMember, transition.RemoveMember, transition.SetDataAside:
		own := *a.Joining
		own.DataDir += "/" + host
		err = u.Host.Do(ctx, host, &transition.Action{Kind: a.Kind, Joining: &own})
	default:
		err = u.Host.Do(ctx, host, a)
	}
	if err == nil && u.after != nil {
		err = u.after(host, a)
	}
	return err
}

// start runs what a unit's file says, once.
func (u *unitHosts) start(host, unit string) error {
	if u.running[host+"/"+unit] != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(u.root, host, "etc/systemd/system", unit))
	if err != nil {
		return err
	}
	_, command, ok := strings.Cut(strings.ReplaceAll(string(text), " \\\n", " "), "\nExecStart=")
	if !ok {
		return fmt.Errorf("%s: starts nothing", unit)
	}
	line, _, _ := strings.Cut(command, "\n")
	words := strings.Fields(line)
	program, err := u.program(words[0])
	if err != nil {
		return err
	}
	var args []string
	for _, word := range words[1:] {
		args = append(args, strings.Fields(u.rewrite(host, word))...)
	}
	p := u.rig.StartProgram(host+"-"+strings.TrimSuffix(unit, ".service"), program, args)
	p.MayEnd(1000) // a member that was removed does, again and again
	u.running[host+"/"+unit] = p
	return nil
}

// kill ends the process of a unit as SIGKILL does, and starts it again as systemd does.
func (u *unitHosts) kill(host, unit string) {
	if p := u.running[host+"/"+unit]; p != nil {
		p.Kill()
		p.StartAgain()
	}
}

func (u *unitHosts) Check(ctx context.Context, host string, c *transition.Check) error {
	for _, kind := range u.skipped {
		if c.Kind == kind {
			return nil
		}
	}
	if c.Kind == transition.NoData {
		own := *c
		own.Path += "/" + host
		return u.Host.Check(ctx, host, &own)
	}
	if unit := filepath.Base(c.Path); c.Kind == transition.UnitOn {
		if u.running[host+"/"+unit] == nil {
			return fmt.Errorf("%s of %s: is stopped", unit, host)
		}
		return nil
	}
	if c.Kind == transition.FileIs {
		return (&local.Host{Rehearsal: u.root}).Check(ctx, host, c)
	}
	if c.Probe != nil { // every host of the test has a loopback of its own
		own := *c
		probe := *c.Probe
		probe.Host = u.addresses[host]
		own.Probe = &probe
		c = &own
	}
	return u.Host.Check(ctx, host, c)
}

func (u *unitHosts) Look(ctx context.Context, host string, w *transition.Watch) (map[string]witness.Sight, error) {
	return u.Host.Look(ctx, host, w)
}

func (u *unitHosts) Digest(ctx context.Context, host, path string) (string, error) {
	return u.Host.Digest(ctx, host, path)
}

func (u *unitHosts) Keep(ctx context.Context, host string, o *transition.Objects) (*handover.Known, error) {
	return u.Host.Keep(ctx, host, o)
}

// memoryJournal is a transition.Journal, and may be killed: then nothing more is recorded.
type memoryJournal struct {
	records []transition.Record
	left    int // records until the process that keeps it is killed; negative: never
}

var errKilled = errors.New("killed")

func (j *memoryJournal) Records() []transition.Record { return j.records }

func (j *memoryJournal) Append(r transition.Record) error {
	if j.left == 0 {
		return errKilled
	}
	j.left--
	j.records = append(j.records, r)
	return nil
}

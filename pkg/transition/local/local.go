// Package local carries out the steps of a transition on the machine on which it runs, or rehearses them in a
// directory.
package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/internal/registry"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// Host is a transition.Runner.
type Host struct {
	// Rehearsal is a directory in which a directory for each host stands for its file system; "" for this machine. A
	// rehearsal puts and removes files, and nothing else: it looks at files only, and starts, asks and copies nothing.
	Rehearsal string
	Snapshots string        // directory of the snapshots
	Wait      time.Duration // how long a component may take to start or to stop
	// Images reads programs of images; nil for a client without credentials.
	Images *registry.Client
	// ByHand returns nil once a person has done what the text says, and has agreed to what checks found, as in
	// transition.ByHandError.
	ByHand func(text, found string) error

	notes []string
}

// Notes are what checks have found since the last call that is in no one's way.
func (h *Host) Notes() []string {
	notes := h.notes
	h.notes = nil
	return notes
}

func (h *Host) note(text string) { h.notes = append(h.notes, text) }

// place is where a path of a host lies.
func (h *Host) place(host, path string) string {
	if h.Rehearsal == "" {
		return path
	}
	return filepath.Join(h.Rehearsal, host, filepath.FromSlash(path))
}

// Do does one action. Errors name what is in the way; after one, it can be repeated.
func (h *Host) Do(ctx context.Context, host string, a *transition.Action) error {
	switch a.Kind {
	case transition.PutFile:
		return h.put(ctx, host, a.File, a.Was)
	case transition.RemoveFile:
		return h.remove(host, a.File)
	case transition.PutProgram:
		return h.putProgram(ctx, host, a.Program)
	case transition.RemoveProgram:
		return h.removeProgram(host, a.Program)
	case transition.ChangeKubelet, transition.RestoreKubelet:
		return h.changeKubelet(ctx, host, a)
	}
	if h.Rehearsal != "" {
		return nil
	}
	switch a.Kind {
	case transition.StartUnit:
		return startUnit(ctx, a.Unit)
	case transition.StopUnit:
		if _, err := os.Stat("/etc/systemd/system/" + a.Unit); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return stopUnit(ctx, a.Unit)
	case transition.Snapshot:
		return h.snapshot(ctx, a.Store)
	case transition.Release:
		return release(ctx, a.Marks)
	case transition.HandOver, transition.HandBack:
		return h.handOver(ctx, a.Objects)
	case transition.CopyRoles:
		return h.copyRoles(ctx, a.Roles)
	case transition.RemoveRoles:
		return h.removeRoles(ctx, a.Roles)
	case transition.RaiseStore:
		return h.raiseStore(ctx, a.Members)
	case transition.RewriteObjects:
		return rewrite(ctx, a.Rewrite, true)
	case transition.MoveKeys:
		return moveKeys(ctx, a.Moving)
	case transition.SettleMember:
		return h.settleMember(ctx, a.Members)
	case transition.LowerStore:
		return h.lowerStore(ctx, a.Members)
	case transition.AddMember:
		return h.addMember(ctx, a.Joining)
	case transition.PromoteMember:
		return h.promoteMember(ctx, a.Joining)
	case transition.RemoveMember:
		return h.removeMember(ctx, a.Joining)
	case transition.SetDataAside:
		return setDataAside(a.Joining.DataDir)
	case transition.ClearEndpoints:
		return clearEndpoints(ctx, a.Masters)
	case transition.AddRanges:
		return addRanges(ctx, a.Ranges)
	case transition.RemoveRanges:
		return removeRanges(ctx, a.Ranges)
	case transition.RestoreMember:
		return stoppedMember(a.Member).Restore(ctx)
	case transition.PutBackMember:
		return stoppedMember(a.Member).PutBack()
	case transition.ByHand:
		return h.ByHand(a.Text, a.Found)
	}
	return fmt.Errorf("action %q: not known", a.Kind)
}

// startUnit has a unit run by the files that are there now. One that runs already is started again: since it was
// stopped, a unit that wants it may have had it started by the files of before: rendered units want no other, those of
// people and of earlier releases may.
func startUnit(ctx context.Context, unit string) error {
	for _, args := range [][]string{{"daemon-reload"}, {"enable", unit}, {"restart", unit}} {
		if err := systemctl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// stopUnit has a unit stopped for good. One whose program ended in that moment by itself would stay among those that
// have failed, for as long as the host runs, and with it an alert about it.
func stopUnit(ctx context.Context, unit string) error {
	if err := systemctl(ctx, "disable", "--now", unit); err != nil {
		return err
	}
	if systemctl(ctx, "is-failed", "--quiet", unit) != nil {
		return nil
	}
	return systemctl(ctx, "reset-failed", unit)
}

// unitOn checks that a unit is enabled, or runs: one that neither is was stopped for good.
func unitOn(ctx context.Context, unit string) error {
	if systemctl(ctx, "is-enabled", "--quiet", unit) == nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, "systemctl", "is-active", unit).Output()
	if slices.Contains([]string{"active", "activating", "reloading"}, string(bytes.TrimSpace(out))) {
		return nil
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		return fmt.Errorf("whether %s runs is not known: %w", unit, err)
	}
	return fmt.Errorf("%s: is stopped, and not enabled", unit)
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// limitStateBytes is above the size of any file that a plan has.
const limitStateBytes = 64 << 20

// state is the content of a file, nil where there is none.
func state(file string) ([]byte, fs.FileMode, error) {
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s: is no regular file", file)
	}
	data, err := filetree.ReadFile(file, limitStateBytes)
	if data == nil {
		data = []byte{}
	}
	return data, info.Mode().Perm(), err
}

func (h *Host) put(ctx context.Context, host string, f, was *transition.File) error {
	file := h.place(host, f.Path)
	data, mode, err := state(file)
	switch {
	case err != nil:
		return err
	case data != nil && bytes.Equal(data, f.Data) && mode == f.Mode:
		return filetree.RemovePartial(file) // a process may have been killed when only that was left to be done
	case data == nil && was == nil:
		root := "/"
		if h.Rehearsal != "" {
			root = filepath.Join(h.Rehearsal, host)
		}
		// Its temporary name begins with a dot: the kubelet reads every other file of the manifests' directory.
		return filetree.Add(
			ctx, root, []filetree.File{{Path: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Data: f.Data}})
	case data != nil && (bytes.Equal(data, f.Data) || was != nil && bytes.Equal(data, was.Data)):
		return filetree.WriteFile(file, f.Data, f.Mode)
	}
	if data == nil {
		return fmt.Errorf("%s: was removed by hand, and is not put back", file)
	}
	return fmt.Errorf("%s: was changed by hand, and is not overwritten", file)
}

func (h *Host) remove(host string, f *transition.File) error {
	file := h.place(host, f.Path)
	data, _, err := state(file)
	switch {
	case err != nil:
		return err
	case data == nil:
		return filetree.RemovePartial(file) // of a process that was killed before the file had its name
	case !bytes.Equal(data, f.Data):
		return fmt.Errorf("%s: was changed by hand, and is not removed", file)
	}
	if err := filetree.RemovePartial(file); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	return filetree.Sync(filepath.Dir(file))
}

// Check returns nil when it looked and found what the check wants. It waits for what starts and stops.
func (h *Host) Check(ctx context.Context, host string, c *transition.Check) error {
	if h.Rehearsal != "" && c.Kind != transition.FileIs {
		return nil
	}
	err := h.check(ctx, host, c)
	// The hint is what to do about what was found, and not about what could not be read.
	if _, unread := errors.AsType[*IncompleteError](err); err != nil && c.Hint != "" && !unread {
		err = fmt.Errorf("%w: %s", err, c.Hint)
	}
	return err
}

func (h *Host) check(ctx context.Context, host string, c *transition.Check) error {
	switch c.Kind {
	case transition.FileIs:
		return fileIs(h.place(host, c.Path), c.File)
	case transition.UnitOn:
		return unitOn(ctx, path.Base(c.Path))
	case transition.Executable:
		return executable(c)
	case transition.Certificate:
		return certificate(c.Certificate, time.Now())
	case transition.Ready:
		return h.wait(ctx, c.Program+" is not ready", func(ctx context.Context) error { return ready(ctx, c) })
	case transition.Gone:
		return h.wait(ctx, c.Program+" has not stopped", func(ctx context.Context) error {
			if err := gone(ctx, c.Probe); err != nil || len(c.Args) == 0 {
				return err
			}
			commands, err := commandLines()
			if err != nil {
				return err
			}
			return ended(c, commands)
		})
	case transition.Runs:
		commands, err := commandLines()
		if err != nil {
			return err
		}
		return runs(c, commands)
	case transition.StoresAgree:
		return StoresAgree(ctx, c, Telling{Note: h.note})
	case transition.MayRewrite:
		return MayRewrite(ctx, c, Telling{Note: h.note})
	case transition.NotNewer:
		return notNewer(ctx, c)
	case transition.MayMove:
		return MayMove(ctx, c, Telling{})
	case transition.NoKeys:
		return NoKeys(ctx, c, nil)
	case transition.Settled:
		return settled(ctx, c.Marks)
	case transition.Released:
		return released(ctx, c.Marks)
	case transition.Program:
		return kubeletProgram(ctx, c)
	case transition.NodeRights:
		return nodeRights(ctx, c.Node)
	case transition.NodeReady:
		return h.nodeReady(ctx, c.Node)
	case transition.NodePods:
		return h.nodePods(ctx, c.Node)
	case transition.Budgets:
		return budgets(ctx, c)
	case transition.RolesMayGo:
		return h.rolesMayGo(ctx, c.Roles)
	case transition.RolesEqual:
		return h.rolesEqual(ctx, c.Roles)
	case transition.NoneWakes:
		return h.noneWakes(ctx, c.Roles)
	case transition.MembersAre:
		return h.membersAre(ctx, c.Members)
	case transition.OneCluster:
		return h.wait(ctx, "the endpoints are not those of one cluster", func(ctx context.Context) error {
			return oneCluster(ctx, c.Stores)
		})
	case transition.SameData:
		return h.sameData(ctx, c.Stores)
	case transition.Silent:
		return silent(ctx, c.Addresses)
	case transition.NoData:
		return noData(c.Path)
	case transition.MemberIs:
		return stoppedMember(c.Member).Is(c.Back)
	case transition.BackupIs:
		return backupIs(ctx, c.Member)
	case transition.MayComeBack:
		return mayComeBack(ctx, c.Members)
	case transition.Beats:
		return h.beats(ctx, c)
	case transition.NothingLeft:
		return nothingLeft(ctx, c)
	case transition.MastersAre:
		return h.wait(ctx, "the service kubernetes leads elsewhere", func(ctx context.Context) error {
			return mastersAre(ctx, c.Masters)
		})
	case transition.RangesAdded:
		return h.wait(ctx, "the allocator does not know all addresses", func(ctx context.Context) error {
			return rangesAdded(ctx, c.Ranges)
		})
	case transition.Works:
		return h.works(ctx, &c.Asked[0])
	case transition.MayGo:
		return h.withObjects(ctx, c.Objects, (*handover.Job).Check)
	case transition.Defined:
		return h.defined(ctx, c)
	case transition.Adopted:
		return h.withObjects(ctx, c.Objects, h.adopted)
	}
	return fmt.Errorf("check %q: not known", c.Kind)
}

func fileIs(file string, want *transition.File) error {
	data, mode, err := state(file)
	switch {
	case err != nil:
		return err
	case want == nil && data != nil:
		return fmt.Errorf("%s: is there already", file)
	case want != nil && data == nil:
		return fmt.Errorf("%s: is not there", file)
	case want != nil && !bytes.Equal(data, want.Data):
		return fmt.Errorf("%s: is another file", file)
	case want != nil && mode != want.Mode:
		return fmt.Errorf("%s: has mode %04o, want %04o: chmod %04o makes it that", file, mode, want.Mode, want.Mode)
	}
	return nil
}

// wait asks until there is no error, or the time is over.
func (h *Host) wait(ctx context.Context, what string, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, h.Wait)
	defer cancel()
	var err error
	if pause.Until(limited, 250*time.Millisecond, func() (bool, error) {
		now := ask(limited)
		if now == nil || err == nil || limited.Err() == nil { // that the time ended says less than what was before
			err = now
		}
		return now == nil, nil
	}) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%s after %s: %w", what, h.Wait, err)
}

func address(p *plan.Probe) string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

func gone(ctx context.Context, p *plan.Probe) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address(p))
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s accepts connections", address(p)), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	return err // no answer: whether a process listens is not known
}

// silentAfter is how long a machine that is not lost may take to accept a connection.
const silentAfter = 5 * time.Second

// silent checks that nothing accepts connections at addresses: it is all that can be seen of a machine that is off. A
// look that this machine could not take shows nothing.
func silent(ctx context.Context, addresses []string) error {
	errs := make([]error, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() {
			conn, err := (&net.Dialer{Timeout: silentAfter}).DialContext(ctx, "tcp", address)
			switch {
			case err == nil:
				errs[i] = errors.Join(fmt.Errorf("%s accepts connections", address), conn.Close())
			case !unanswered(err):
				errs[i] = fmt.Errorf("whether something answers at %s is not known: %w", address, err)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// unanswered reports whether a connection was tried, and nothing accepted it. A name that is not found, no way to the
// network, and a rule or a limit of this machine are no answer of another one.
func unanswered(err error) bool {
	if _, unnamed := errors.AsType[*net.DNSError](err); unnamed {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EHOSTDOWN)
}

func ready(ctx context.Context, c *transition.Check) error {
	p := c.Probe
	if p.Path == "" {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address(p))
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	// A controller manager's certificate is one that it makes for itself; that of an API server is the plan's.
	config := &tls.Config{InsecureSkipVerify: c.CA == ""} //nolint:gosec // on this host, for its health only
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: no certificate in it", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config,
		DisableKeepAlives: true, MaxResponseHeaderBytes: answerBytes}, CheckRedirect: noRedirect}
	base := strings.ToLower(p.Scheme) + "://" + address(p)
	body, err := get(ctx, client, base+p.Path)
	if err != nil {
		return err
	}
	var etcd struct{ Health any } // other components answer ok, which is no JSON
	if json.Unmarshal(body, &etcd) == nil && etcd.Health != nil && fmt.Sprint(etcd.Health) != "true" {
		return fmt.Errorf("%s: %s", base+p.Path, body)
	}
	if c.Version == "" {
		return nil
	}
	if body, err = get(ctx, client, base+"/version"); err != nil {
		return err
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return err
	}
	if !isVersion(version.GitVersion, c.Version) {
		return fmt.Errorf("%s is of version %s, want %s", base, version.GitVersion, c.Version)
	}
	return nil
}

// answerBytes is what is read of an answer about health or a version.
const answerBytes = 1 << 16

// noRedirect: health of another server is not that of this one, and it gets no certificate.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return body, err
}

// certificate checks the certificate of a file and that its key is there.
func certificate(want *plan.Certificate, now time.Time) error {
	text, err := os.ReadFile(want.Cert)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s: no certificate in it", want.Cert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", want.Cert, err)
	}
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{want.Cert}, args...)...))
	}
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		wrong("is valid from %s to %s", cert.NotBefore, cert.NotAfter)
	}
	if cert.Subject.CommonName != want.CommonName {
		wrong("is of %q, want %q", cert.Subject.CommonName, want.CommonName)
	}
	for _, name := range want.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			wrong("lacks the name %s", name)
		}
	}
	for _, ip := range want.IPs {
		if !slices.ContainsFunc(cert.IPAddresses, net.ParseIP(ip).Equal) {
			wrong("lacks the address %s", ip)
		}
	}
	if _, err := os.Stat(want.Key); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// IsHere reports whether an address is one of this machine.
func IsHere(address string) (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	ip := net.ParseIP(address)
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}), nil
}

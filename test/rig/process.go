package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Process is a program of a release that runs for a test. It ends with the test: by the Rig when the test ends in an
// orderly way or panics, and by the kernel (on Linux) when the test's process is killed or runs out of its time. It is
// only ever signalled through its own handle, never by name.
type Process struct {
	Name string // as the test calls it: legacy-apiserver

	rig     *Rig
	program string
	args    []string
	env     []string // beside what every program gets
	// attributes are the kernel's for the child. enter, unless nil, prepares the thread that starts it.
	attributes *syscall.SysProcAttr
	enter      func() error
	log        string

	// stopWithin is the time to end after a polite request; then the process is killed. Recent API servers take more
	// than half a minute while clients watch.
	stopWithin time.Duration

	// restarts is how often the process is started again when it ends by itself, as a kubelet does.
	restarts int

	mutex    sync.Mutex
	process  *os.Process   // nil while it was never started
	ended    chan struct{} // closed when the process has ended
	err      error         // how it ended; valid then
	expected bool          // the test wanted it to end
	used     time.Duration // of processors, in its runs that have ended
}

// Start runs a program of a release. The arguments are given as they are.
func (r *Rig) Start(name, program string, minor kubever.Minor, args []string) *Process {
	r.t.Helper()
	binary, err := Binary(program, minor)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.start(name, binary, args)
}

// StartProgram runs a program that a test has built. The arguments are given as they are, env is NAME=VALUE.
func (r *Rig) StartProgram(name, path string, args []string, env ...string) *Process {
	r.t.Helper()
	return r.start(name, path, args, env...)
}

func (r *Rig) start(name, binary string, args []string, env ...string) *Process {
	r.t.Helper()
	p := r.newProcess(name, binary, args, env...)
	p.run()
	return p
}

// newProcess is a process that has not been started.
func (r *Rig) newProcess(name, binary string, args []string, env ...string) *Process {
	p := &Process{
		Name: name, rig: r, program: binary, args: args, env: env, attributes: diesWithParent(),
		log: filepath.Join(r.dir, name+".log"), stopWithin: 5 * time.Second,
	}
	r.processes = append(r.processes, p)
	return p
}

// run starts the program; its output goes to the end of the log.
func (p *Process) run() {
	p.rig.t.Helper()
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		p.rig.t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		defer log.Close()
		// The kernel ends the child with the thread that started it, not with the process: the thread stays here until
		// then.
		runtime.LockOSThread()
		if p.enter != nil {
			if err := p.enter(); err != nil {
				started <- err
				return
			}
		}
		command, err := p.started(log)
		started <- err
		for command != nil {
			p.err = command.Wait()
			p.spent(command.ProcessState)
			command = p.startedAgain(log)
		}
	}()
	if err := <-started; err != nil {
		p.rig.t.Fatalf("starting %s: %v", p.Name, err)
	}
}

// started starts the process for the first time, or again at the wish of the test.
func (p *Process) started(log io.Writer) (*exec.Cmd, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.ended, p.expected = make(chan struct{}), false
	command, err := p.startLocked(log)
	if err != nil {
		p.err = err
		close(p.ended)
	}
	return command, err
}

// collection has the programs of Kubernetes trade memory for computing: most live for seconds, and a third of what an
// API server computes at its start is the collection of memory.
var collection = []string{"GOGC=400", "GOMEMLIMIT=768MiB"}

// ofRelease is what the rig adds to a program's name. Releases have none, and clients call themselves by it: in user
// agents, and as managers of fields.
var ofRelease = regexp.MustCompile(`-1\.\d+$`)

// startLocked starts the program. The caller holds the mutex.
func (p *Process) startLocked(log io.Writer) (*exec.Cmd, error) {
	command := exec.Command(p.program, p.args...)
	command.Args[0] = ofRelease.ReplaceAllString(p.program, "")
	command.Dir = p.rig.dir // old servers write below the working folder
	command.Env = []string{"HOME=" + p.rig.dir, "TMPDIR=" + p.rig.dir, "PATH=" + os.Getenv("PATH")}
	command.Env = slices.Concat(command.Env, collection, p.env)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = p.attributes
	if err := command.Start(); err != nil {
		return nil, err
	}
	p.process = command.Process
	return command, nil
}

// spent counts what a run has computed, and the processes that it has waited for.
func (p *Process) spent(run *os.ProcessState) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if run != nil {
		p.used += run.UserTime() + run.SystemTime()
	}
}

// MayEnd lets the process end by itself so many times; it is started again.
func (p *Process) MayEnd(times int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.restarts = times
}

// startedAgain starts a process that ended by itself once more, when it may be; otherwise that was its end. The process
// is ended before or after, under the same mutex: it never misses the new one.
func (p *Process) startedAgain(log io.Writer) *exec.Cmd {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !p.expected && p.restarts > 0 {
		p.restarts--
		fmt.Fprintf(log, "rig: %s ended by itself: %v; it is started again, as a kubelet would\n", p.Name, p.err)
		command, err := p.startLocked(log)
		if err == nil {
			return command
		}
		p.err = err
	}
	close(p.ended)
	return nil
}

// Stop asks the process to end, as a service manager does, and waits for it; after a few seconds it does not ask any
// more.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the process at once, as a power failure does, and waits for it.
func (p *Process) Kill() { p.end(os.Kill) }

func (p *Process) end(signal os.Signal) {
	p.mutex.Lock()
	process, ended := p.process, p.ended
	p.expected = true
	p.mutex.Unlock()
	if process == nil {
		return
	}
	p.signal(process, signal)
	select {
	case <-ended:
	case <-time.After(p.stopWithin):
		p.signal(process, os.Kill)
		<-ended
	}
}

// Signal sends the process a signal, such as one that makes it hang.
func (p *Process) Signal(signal os.Signal) {
	p.rig.t.Helper()
	p.mutex.Lock()
	process := p.process
	p.mutex.Unlock()
	if process == nil {
		p.rig.t.Fatalf("%s was never started", p.Name)
	}
	p.signal(process, signal)
}

// Hangs reports, as nil, that SIGSTOP has reached every thread of the process: until then it may still answer.
func (p *Process) Hangs() error {
	p.mutex.Lock()
	process := p.process
	p.mutex.Unlock()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Pid))
	for _, thread := range threads {
		text, readErr := os.ReadFile(thread)
		_, state, _ := strings.Cut(string(text), ") ")
		if readErr == nil && !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: %s has not stopped", p.Name, thread)
		}
	}
	return err
}

func (p *Process) signal(process *os.Process, signal os.Signal) {
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.rig.t.Errorf("ending %s: %v", p.Name, err)
	}
}

// StartAgain starts a process that was killed, with the same arguments.
func (p *Process) StartAgain() {
	p.rig.t.Helper()
	p.run()
}

// SetArg gives an argument another value for the next start of the process, or adds it.
func (p *Process) SetArg(name, value string) {
	p.args = slices.DeleteFunc(slices.Clone(p.args), func(arg string) bool {
		return strings.HasPrefix(arg, "--"+name+"=")
	})
	p.args = append(p.args, "--"+name+"="+value)
}

// Restart stops the process and starts it again with the same arguments.
func (p *Process) Restart() {
	p.rig.t.Helper()
	p.Stop()
	p.run()
}

// Exit waits for a process that is expected to end by itself and returns its exit code.
// Errors: it did not end before ctx did.
func (p *Process) Exit(ctx context.Context) (int, error) {
	p.mutex.Lock()
	ended := p.ended
	p.expected = true
	p.mutex.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for %s to end: %w", p.Name, ctx.Err())
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode(), nil
	}
	return 0, p.err
}

// endedByItself says how the process ended if it was not stopped, and nil otherwise.
func (p *Process) endedByItself() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.expected || p.process == nil {
		return nil
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return p.err
		}
		return errors.New("exit status 0")
	default:
		return nil
	}
}

// Wait tries the probe until it returns nil. The test fails when that takes too long, and at once when the process
// ends.
func (p *Process) Wait(what string, probe func(context.Context) error) {
	p.rig.t.Helper()
	p.mutex.Lock()
	ended := p.ended
	p.mutex.Unlock()
	if err := poll(p.rig.t.Context(), readyWithin, ended, probe); err != nil {
		p.rig.t.Fatalf("waiting for %s to %s: %v", p.Name, what, err)
	}
}

// Log returns what the process has written so far, in all its runs.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// LogTail returns the last lines that the process has written, indented, the beginning of each: of the output of a run
// a part may be kept, and it should hold what the test itself said.
func (p *Process) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(p.Log(), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = "    " + line[:min(len(line), 240)]
	}
	return strings.Join(all, "\n")
}

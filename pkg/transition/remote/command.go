package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"

	"mvdan.cc/sh/v3/shell"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// grace is how long a command has to end by itself once its input has ended.
const grace = 10 * time.Second

// command is a Connection to the standard input and output of a process.
type command struct {
	io.Reader
	in     io.WriteCloser
	out    io.Closer
	cmd    *exec.Cmd
	said   *tail
	closed sync.Once
	err    error
}

// Start runs a program and connects to it; ctx bounds its whole life. The errors of the connection end with what it
// last wrote to its standard error.
func Start(ctx context.Context, name string, args ...string) (Connection, error) {
	c := &command{cmd: exec.CommandContext(ctx, name, args...), said: &tail{}}
	c.cmd.Stderr = c.said
	c.cmd.WaitDelay = grace
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Reader, c.out = out, out
	return c, c.cmd.Start()
}

// Over reaches agents over a command line such as "ssh -l root", to which the address of the host and the command line
// of the agent are added; program is that of fusionctl on the other hosts.
// Errors: a command line without a program, or that no shell would read. Nothing in it is expanded.
func Over(line, program string) (func(context.Context, transition.Host) (Connection, error), error) {
	words, err := shell.Fields(line, nil)
	if err == nil && len(words) == 0 {
		err = errors.New("no program")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: is no command line: %w", line, err)
	}
	return func(ctx context.Context, h transition.Host) (Connection, error) {
		return Start(ctx, words[0], slices.Concat(words[1:], []string{h.Address, program + " transition agent"})...)
	}, nil
}

func (c *command) Write(data []byte) (int, error) { return c.in.Write(data) }

func (c *command) Close() error {
	c.closed.Do(func() {
		_, _ = c.in.Close(), c.out.Close() // the agent ends when its input does
		late := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
		defer late.Stop()
		if err := c.cmd.Wait(); err != nil {
			c.err = fmt.Errorf("%s: %w", c.cmd.Path, err)
			if text := c.said.last(); text != "" {
				c.err = errors.Join(c.err, errors.New(visible.Text(text)))
			}
		}
	})
	return c.err
}

// tail keeps the end of what is written to it.
type tail struct {
	mutex sync.Mutex
	data  []byte
}

func (t *tail) Write(data []byte) (int, error) {
	const most = 4096
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.data = append(t.data, data...)
	if len(t.data) > most {
		t.data = append([]byte(nil), t.data[len(t.data)-most:]...)
	}
	return len(data), nil
}

func (t *tail) last() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return string(bytes.TrimSpace(t.data))
}

package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// startSystemd is the first process of a machine until it is connected. Then systemd takes its place, below the node's
// cgroup. It manages no cgroup version 2: the kubelet and the runtime here have none. It has no generators: those of
// Debian make units that do not belong here, and a dozen of them run at each daemon-reload.
const startSystemd = `until [ -e /run/connected ]; do sleep 0.05; done
echo 0 > "/sys/fs/cgroup/systemd$0/cgroup.procs"
umount /sys/fs/cgroup/unified
cd /
exec env -i PATH="$PATH" container=rig SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/rig-units \
	SYSTEMD_GENERATOR_PATH=/run/rig-generators /lib/systemd/systemd \
	--system --log-target=console --log-level=info --show-status=0 --crash-shell=0 --unit=default.target`

// units are what Debian's own of the names are to units that are installed. The machine that runs the test has other
// ones, which must not start here.
var units = map[string]string{
	"default.target":        "[Unit]\nDefaultDependencies=no\nWants=multi-user.target\nAfter=multi-user.target\n",
	"multi-user.target":     "[Unit]\nDefaultDependencies=no\n",
	"sysinit.target":        "[Unit]\nDefaultDependencies=no\n",
	"basic.target":          "[Unit]\nDefaultDependencies=no\n",
	"network-online.target": "[Unit]\nDefaultDependencies=no\n",
	"shutdown.target":       "[Unit]\nDefaultDependencies=no\n",
}

// awaitSystemd lets systemd start and waits for it.
func (n *Node) awaitSystemd() error {
	ctx := n.rig.t.Context()
	if _, err := n.Run(ctx, "mount", "-t", "tmpfs", "rig", "/etc/systemd/system"); err != nil {
		return err
	}
	for name, text := range units {
		if err := n.WriteFile(filepath.Join("/run/rig-units", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := n.WriteFile("/etc/systemd/system.conf.d/collection.conf",
		[]byte("[Manager]\nDefaultEnvironment="+strings.Join(collection, " ")+"\n"), 0o644); err != nil {
		return err
	}
	if err := n.WriteFile("/run/connected", nil, 0o644); err != nil {
		return err
	}
	err := poll(ctx, time.Minute, nil, func(ctx context.Context) error {
		out, err := n.Run(ctx, "systemctl", "is-active", "default.target")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if out, err := n.Run(ctx, "sh", "-c", onlyPrepared, n.cgroup); err != nil {
		return fmt.Errorf("unmounting controllers: %w: %s", err, out)
	}
	return nil
}

// onlyPrepared unmounts the controllers that systemd has mounted and that this machine has not: a kubelet wants the
// node's cgroup below each one that it knows, and nothing would remove it there.
const onlyPrepared = `for dir in /sys/fs/cgroup/*; do
	[ ! -e "$dir/cgroup.procs" ] || [ -e "$dir$0" ] || umount "$dir" || exit
done`

// WriteFile writes a file of the node.
func (n *Node) WriteFile(file string, data []byte, mode os.FileMode) error {
	out, err := n.RunWith(n.rig.t.Context(), strings.NewReader(string(data)), "install", "-D", "-m",
		strconv.FormatUint(uint64(mode.Perm()), 8), "/dev/stdin", file)
	if err != nil {
		return fmt.Errorf("writing %s on %s: %w: %s", file, n.Name, err, out)
	}
	return nil
}

// CopyTree puts the files below a folder of the test below the root of the node.
func (n *Node) CopyTree(dir string) error {
	if out, err := n.Run(n.rig.t.Context(), "cp", "-a", dir+"/.", "/"); err != nil {
		return fmt.Errorf("copying %s to %s: %w: %s", dir, n.Name, err, out)
	}
	return nil
}

// enterWords are what a command begins with that runs on the node.
func (n *Node) enterWords() []string {
	return []string{"nsenter", "--target", strconv.Itoa(n.init.pid()), "--net", "--mount", "--pid", "--"}
}

// Enter is a line of a shell script beside the node that runs the script in $* on it.
func (n *Node) Enter() string {
	return "exec " + strings.Join(n.enterWords(), " ") + ` sh -c "cd /root && $*"`
}

// PlanImages are images under the names that the manifests of a plan have, of the programs of the rig.
func (r *Rig) PlanImages(p *plan.Plan) []Image {
	r.t.Helper()
	var images []Image
	seen := map[string]bool{}
	for i := range p.Components {
		c := &p.Components[i]
		if seen[c.Image] || plan.SeesBoth(c.Kind) {
			continue // those borrow an image of another component
		}
		seen[c.Image] = true
		file, err := r.ProgramOf(c)
		if err != nil {
			r.t.Fatal(err)
		}
		images = append(images, Image{Name: c.Image, Files: map[string]string{"usr/local/bin/" + c.Kind: file}})
	}
	return images
}

// ProgramOf is the program of a component of a plan.
func (r *Rig) ProgramOf(c *plan.Component) (string, error) {
	if c.Kind == plan.Etcd {
		return Program("etcd")
	}
	version, err := kubever.Parse(c.Version)
	if err != nil {
		return "", fmt.Errorf("component %s: %w", c.Name, err)
	}
	return Binary(c.Kind, version.Minor)
}

// Shell is a shell that keeps its variables, functions and folder from one command to the next.
type Shell struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	rest    []byte
	entered bool // the command is what has entered a node, and the shell its child
}

// Shell starts one on the node, or beside it where the node is nil, in a folder.
func (r *Rig) Shell(n *Node, dir string, env ...string) *Shell {
	r.t.Helper()
	words := []string{"bash", "--norc"}
	if n != nil {
		words = append(n.enterWords(), words...)
	}
	s := &Shell{command: exec.Command(words[0], words[1:]...), entered: n != nil}
	s.command.Env = append(os.Environ(), env...)
	in, err := s.command.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	s.in, s.out, s.command.Stderr = in, out, s.command.Stdout
	if err := s.command.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = s.in.Close() // it ends, and what has entered the node with it
		late := time.AfterFunc(10*time.Second, s.kill)
		defer late.Stop()
		_ = s.command.Wait()
	})
	if out, code, err := s.Run(r.t.Context(), "cd "+dir); err != nil || code != 0 {
		r.t.Fatalf("a shell in %s: %d, %v\n%s", dir, code, err, out)
	}
	return s
}

// kill ends the shell. On a node it is the child of the program that has entered the node, which reaps it; otherwise
// the first process of the node could not end.
func (s *Shell) kill() {
	pid := s.command.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if first := strings.Fields(string(children)); err == nil && len(first) > 0 && s.entered {
		if child, err := strconv.Atoi(first[0]); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
			return
		}
	}
	_ = s.command.Process.Kill()
}

// Run runs a command, and returns what it writes and its exit code.
func (s *Shell) Run(ctx context.Context, command string) (out string, code int, err error) {
	const end = "\x01end of the command "
	stop := context.AfterFunc(ctx, s.kill)
	defer stop()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null 2>&1; printf '\\001end of the command %%d\\n' $?\n",
		command); err != nil {
		return "", 0, err
	}
	buffer := make([]byte, 64<<10)
	for {
		if before, after, found := strings.Cut(string(s.rest), end); found {
			if number, rest, whole := strings.Cut(after, "\n"); whole {
				s.rest = []byte(rest)
				code, err := strconv.Atoi(number)
				return before, code, err
			}
		}
		n, err := s.out.Read(buffer)
		s.rest = append(s.rest, buffer[:n]...)
		if err != nil {
			return string(s.rest), 0, fmt.Errorf("running %q: %w", command, err)
		}
	}
}

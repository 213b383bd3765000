package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// What else tells how components are started: what docker inspect prints, the argument files of a snap, lists of
// processes.

// container of docker inspect, as much as tells how it is started.
type inspected struct {
	Name   string   `json:"Name"`
	Path   string   `json:"Path"`
	Args   []string `json:"Args"`
	Config *struct {
		Image string   `json:"Image"`
		Env   []string `json:"Env"`
		Dir   string   `json:"WorkingDir"`
	} `json:"Config"`
	HostConfig struct {
		Binds []string `json:"Binds"`
	} `json:"HostConfig"`
	Mounts []struct {
		Type        string `json:"Type"`
		Source      string `json:"Source"`
		Destination string `json:"Destination"`
		RW          bool   `json:"RW"`
	} `json:"Mounts"`
}

func (r *reader) inspected(file string, c *inspected) {
	name := strings.TrimPrefix(c.Name, "/")
	place := file + ":" + name
	environment := map[string]string{}
	var env []spec.EnvVar
	for _, variable := range c.Config.Env {
		key, value, _ := strings.Cut(variable, "=")
		environment[key] = value
		if key != "PATH" && key != "HOME" && key != "HOSTNAME" {
			env = append(env, spec.EnvVar{Name: key, Value: value})
		}
	}
	line, ok := r.commandLine(place, append([]string{c.Path}, c.Args...), environment)
	if !ok {
		return
	}
	p := Process{Component: line.component, Name: name, Place: place, Image: c.Config.Image, Command: line.command,
		Words: line.words, Env: withVariables(env, line.env), broken: line.broken, asks: line.asks}
	r.workIn(&p, inDirectory(c.Config.Dir, line.directory))
	seen := map[string]bool{}
	mount := func(m spec.Mount) {
		seen[m.At()] = true
		p.Mounts = append(p.Mounts, m)
	}
	for i, m := range c.Mounts {
		if m.Type == "bind" || m.Type == "" {
			mount(bind(i, m.Source, m.Destination, !m.RW))
		}
	}
	for i, text := range c.HostConfig.Binds {
		from, rest, _ := strings.Cut(text, ":")
		to, options, _ := strings.Cut(rest, ":")
		if path.IsAbs(from) && path.IsAbs(to) && !seen[trimSlash(to)] {
			mount(bind(len(c.Mounts)+i, from, to, slices.Contains(strings.Split(options, ","), "ro")))
		}
	}
	r.start(p)
}

// bind is a mount of a container of docker.
func bind(i int, from, to string, readOnly bool) spec.Mount {
	m := spec.Mount{Name: fmt.Sprintf("bind-%d", i), HostPath: path.Clean(from), ReadOnly: readOnly}
	if to = path.Clean(to); to != m.HostPath {
		m.MountPath = to
	}
	return m
}

// snapVariables are those in the argument files of a snap.
var snapVariables = map[string]string{
	"SNAP": "/snap/microk8s/current", "SNAP_DATA": "/var/snap/microk8s/current",
	"SNAP_COMMON": "/var/snap/microk8s/common",
}

// snapFile reads an argument file of a snap: it is called after the component and has nothing but arguments and
// comments.
func (r *reader) snapFile(name string, text []byte) bool {
	component := path.Base(name)
	if component == "args" { // COMPONENT/REVISION/args
		component = path.Base(path.Dir(path.Dir(name)))
	}
	if !slices.Contains(programs, component) {
		return false
	}
	var lines []string
	joined := strings.ReplaceAll(string(text), "\\\n", "")
	for line := range strings.SplitSeq(joined, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 || slices.ContainsFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "-") }) {
		return false
	}
	words, err := splitWords(strings.Join(lines, " "))
	if err != nil {
		r.note(name, "is ignored: %v", err)
		return true
	}
	for i, word := range words {
		words[i], _ = expandBraces(word, snapVariables, r.made)
	}
	if r.ignored(name) {
		return true
	}
	r.start(Process{Component: component, Name: component, Place: name + ":1", Words: words})
	return true
}

// processLines reads lines of ps, of /proc/PID/cmdline or of a log that have the whole command line of a component in
// them.
func (r *reader) processLines(name string, text []byte) {
	lines := strings.Split(strings.ReplaceAll(string(text), "\x00", " "), "\n")
	for i, line := range lines {
		words := strings.Fields(line)
		start := slices.IndexFunc(words, func(word string) bool {
			word = strings.Trim(word, `"'`)
			return !strings.Contains(word, "=") && (slices.Contains(programs, path.Base(word)) || isHyperkube(word))
		})
		if start < 0 || start+1 >= len(words) || slices.Contains(words[:start], "grep") {
			continue
		}
		found, ok := locate(words[start:])
		if !ok || len(found.words) == 0 || !strings.HasPrefix(found.words[0], "-") { // prose
			continue
		}
		place := fmt.Sprintf("%s:%d", name, i+1)
		if why := cutOff(found.words, lines[i+1:]); why != "" {
			if !slices.Contains(programs[:3], found.component) {
				continue
			}
			r.refused = append(r.refused, fmt.Errorf("%s: the command line of %s %s; want it whole, as ps -ww -eo "+
				"args prints it", place, found.component, why))
			continue
		}
		for n, word := range found.words {
			found.words[n] = strings.Trim(word, `"'`)
		}
		for n, word := range found.command {
			found.command[n] = strings.Trim(word, `"'`)
		}
		r.start(Process{Component: found.component, Name: found.component,
			Place: place, Command: found.command, Words: found.words})
		r.note(place, "a list of processes does not show quotes: a value with blanks in it ends at the first one")
	}
}

// cutOff says why a command line in a text is not all of it: a pager or a terminal ends it with a mark, a file goes on
// in the following lines. "" where nothing shows that.
func cutOff(words []string, following []string) string {
	last := words[len(words)-1]
	switch {
	case last == `\`, len(following) > 0 && strings.HasPrefix(strings.TrimSpace(following[0]), "--"):
		return "goes on in the next line"
	case strings.HasSuffix(last, ">"), strings.HasSuffix(last, "…"), strings.HasSuffix(last, "..."):
		return "is cut off after " + last
	}
	return ""
}

// ErrNone says that no file starts an API server, and that none refuses to be adopted.
var ErrNone = errors.New("no " + kubever.APIServer + " among the files")

// Elsewhere says which files below a directory have to do with an API server and are in none of the folders that Read
// looks into: the directory may be the root of a host. It is nil where there is none among the first files.
func Elsewhere(files fs.FS) error {
	var errs []error
	searched, read := 0, 0
	_ = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		folder := path.Dir(name)
		switch searched++; {
		case searched > limitFiles || read > limitReadBytes || len(errs) == few:
			return fs.SkipAll
		case err == nil && entry.IsDir() && slices.Contains([]string{"proc", "sys", "dev"}, name):
			return fs.SkipDir // reading what is there may wait
		case err != nil || !entry.Type().IsRegular() || slices.Contains(folders, folder) ||
			slices.Contains(passedOver, path.Ext(name)) || isBackup(path.Base(name)):
			return nil
		}
		text, err := readFile(files, name)
		if err != nil {
			return nil
		}
		read += len(text)
		other := &reader{}
		switch form := known(name, text); {
		case other.refuse(name, text):
			errs = append(errs, other.refused...)
		case form != nil && strings.Contains(strings.ToLower(string(text)), "apiserver"):
			errs = append(errs, form)
		case startsServer.Match(text):
			errs = append(errs, fmt.Errorf("%s: has the arguments of an API server; want its directory after "+
				"--from: %s", name, folder))
		}
		return nil
	})
	return errors.Join(errs...)
}

// few are enough to see what is meant.
const few = 3

// passedOver are the endings of files that are long, or hold keys.
var passedOver = []string{".log", ".crt", ".key", ".pem", ".db", ".snap", ".wal", ".md", ".go", ".jsonl"}

// unread names the files that start an API server in a form that is not read.
func (r *reader) unread() []error {
	var errs []error
	look := func(name string, text []byte) {
		why := slices.IndexFunc(r.notes, func(n Note) bool {
			return strings.HasPrefix(n.Place, name) && strings.HasPrefix(n.Text, "is ignored: ")
		})
		switch err := known(name, text); {
		case err != nil:
			errs = append(errs, err)
		case startsServer.Match(text) && template.Match(text):
			errs = append(errs, fmt.Errorf("%s: is a template that was not filled in; want the file as it lies on the "+
				"host", name))
		case startsServer.Match(text) && why >= 0:
			errs = append(errs, fmt.Errorf("%s: has the arguments of an API server and cannot be read: %s",
				r.notes[why].Place, strings.TrimPrefix(r.notes[why].Text, "is ignored: ")))
		case startsServer.Match(text):
			errs = append(errs, fmt.Errorf("%s: has the arguments of an API server in a form that is not read; want "+
				"the components as they run: ps -ww -eo args > FILE on the host", name))
		}
	}
	for _, f := range r.texts {
		look(f.name, f.text)
	}
	for _, name := range r.beside {
		if text, err := r.readText(r.files, name); err == nil {
			look(name, text)
		}
	}
	return errs
}

// startsServer is an argument that nearly every API server has, and no other component.
var startsServer = regexp.MustCompile(`--etcd[-_]servers\b|--service-cluster-ip-range=.*--etcd`)

// template is what the languages of templates have around what is to be filled in.
var template = regexp.MustCompile(`\{\{|\{%|%\{|<%`)

var (
	openShift = regexp.MustCompile(`(?m)^kind:\s*MasterConfig\s*$|\b(openshift|origin) start master\b`)
	k3sServer = regexp.MustCompile(`(?m)^ExecStart=\S*/(k3s|rke2)\s*\\?\s*$|^ExecStart=\S*/(k3s|rke2)\s+server\b`)
	supervise = regexp.MustCompile(`(?m)^ExecStart=\S*/(k0s\s+controller|localkube|kubelite)\b`)
	k3sConfig = regexp.MustCompile(`(?m)^(kube-apiserver-arg|cluster-init|write-kubeconfig-mode|datastore-endpoint):`)
)

// refuse says of a file that it starts a control plane of which the files do not tell enough.
func (r *reader) refuse(name string, text []byte) bool {
	switch {
	case openShift.Match(text):
		r.refused = append(r.refused, fmt.Errorf("%s: is of an OpenShift 3 master, whose API server is no "+
			"kube-apiserver with arguments but a program of its own, under other keys in etcd: it cannot be adopted",
			name))
	case k3sServer.Match(text), k3sConfig.Match(text):
		r.refused = append(r.refused, fmt.Errorf("%s: k3s and rke2 run the components themselves, and their files do "+
			"not say with which arguments; want the lines \"Running kube-apiserver ...\" of their log in a file, and "+
			"a store that is etcd", name))
	case supervise.Match(text):
		r.refused = append(r.refused, fmt.Errorf("%s: the program runs the components itself, and the unit does not "+
			"say with which arguments; want the processes that it has started, if they are processes of their own: "+
			"ps -ww -eo args > FILE", name))
	default:
		return false
	}
	return true
}

// storeRefused says that the objects are where no second API server can reach them as they are.
func storeRefused(place, backend, servers string) error {
	switch {
	case backend != "" && backend != "etcd2" && backend != "etcd3":
		return fmt.Errorf("%s: --storage-backend=%s: the objects are not in etcd, and the modern side needs an etcd "+
			"that both sides reach; move the cluster to etcd first", place, backend)
	case strings.Contains(servers, "unix:") || strings.Contains(servers, "kine"):
		return fmt.Errorf("%s: --etcd-servers=%s: that is kine in front of another database, and the modern side "+
			"needs an etcd that both sides reach; move the cluster to etcd first", place, servers)
	}
	return nil
}

// whyNone says what keeps a directory from being a control plane.
func whyNone(refused []error, notes []Note) error {
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	text := "want static pod manifests, such as those of " +
		"/etc/kubernetes/manifests, systemd units, what docker inspect prints, the argument files of a snap, or a " +
		"list of processes"
	unread := slices.DeleteFunc(slices.Clone(notes), func(n Note) bool {
		return !strings.HasPrefix(n.Text, "is ignored")
	})
	if len(unread) > 0 {
		text += "; " + unread[0].String()
	}
	if len(unread) > 1 {
		text += fmt.Sprintf("; and %d more files are ignored", len(unread)-1)
	}
	return fmt.Errorf("%w; %s", ErrNone, text)
}

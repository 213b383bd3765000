// Package adopt reads how a running control plane is started, from static pod manifests or systemd units, and drafts
// the spec for it: whatever the files say is kept, and nothing is made up that they do not say.
package adopt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// The components besides those of kubever that are recognised: two for what their arguments tell about the cluster, and
// fusionctl's own, which run in an image that may be an API server's.
const (
	Etcd        = "etcd"
	Kubelet     = "kubelet"
	Controllers = "fusionctl-controllers"
	Gateway     = "fusionctl-gateway"
)

// limitFileBytes bounds a file that is read: an etcd object cannot be larger, and neither can a static pod.
const limitFileBytes = 1 << 20

// Process is one component and how it is started.
type Process struct {
	Component string   // kube-apiserver, kube-controller-manager, kube-scheduler, etcd or kubelet
	Name      string   // of the pod or the unit: two of a component on one host have two names
	Place     string   // FILE:LINE of the container or the ExecStart
	Image     string   // "" for a process that is not a container
	Command   []string // the words up to the component's program; empty when the image has it as its entrypoint
	Words     []string // what follows it; Args takes them apart
	Env       []spec.EnvVar
	Mounts    []spec.Mount

	objects  map[string][]string // of the cluster, whose files the component sees at a path
	unfilled string              // a word with a variable that nothing substitutes
	broken   string              // why the arguments are not all there
	asks     []asked             // what only the machine can tell
	unseen   []spec.Mount        // volumes whose files are on no host and in no object
	// what others than the arguments tell
	replicas   int      // of the object that it is started by
	release    string   // the version that its log has
	printed    []string // the flags that its log has, which are all of the release; the words have those with a value
	cluster    string   // name of the cluster: an annotation of kops
	advertised string   // address: an annotation of kubeadm, the host of a probe
}

// Note is something about a file that a person should know.
// Shape: {kube-apiserver.yaml:12, "the output of the shell goes to ... no longer"}
type Note struct {
	Place string // FILE or FILE:LINE; "" when it is about the whole
	Text  string
	Kept  bool // what it is about is among the arguments all the same
}

// String prints the note as FILE:LINE: TEXT.
func (n Note) String() string {
	if n.Place == "" {
		return n.Text
	}
	return n.Place + ": " + n.Text
}

// Running is a control plane as its files describe it.
type Running struct {
	Processes []Process // by component, each at most once, but for etcd and kubelet
	Notes     []Note
}

// Process returns the first process of a component, nil when there is none.
func (r *Running) Process(component string) *Process {
	for i := range r.Processes {
		if r.Processes[i].Component == component {
			return &r.Processes[i]
		}
	}
	return nil
}

// folders are looked into, one after the other, when the directory itself starts no API server: it may be a copy of a
// host's root.
var folders = []string{
	".", "manifests", "etc/kubernetes/manifests", "kubernetes/manifests",
	"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system", "systemd/system",
	"args", "var/snap/microk8s/current/args", "var/snap", "etc/init.d",
	"var/lib/rancher/rke2/agent/pod-manifests", "etc/rancher/rke2", "etc/rancher/k3s", "etc/origin/node/pods",
	"etc/origin/master", "etc/init", "etc/supervisor/conf.d", "etc/supervisord.d", "etc/containers/systemd",
}

// Folders are those of a machine in which what starts a control plane may lie, below its root.
func Folders() []string { return slices.Clone(folders[1:]) }

// Read reads the files of a directory: every static pod manifest, as the kubelet does (YAML or JSON of any name that
// does not start with a dot), and every systemd unit (NAME.service and its drop-ins in NAME.service.d). A directory
// that holds neither may be the copy of a host's root.
//
// The environment files of units are looked for in dir, by their full path below it or by their base name, and then in
// host, if that is not nil: the root of the machine that dir belongs to. So are drop-ins.
//
// Errors: what makes the result doubtful is one: no API server (ErrNone), two of a component, an environment file that
// is missing although arguments come from it. Names in errors and notes are relative to dir.
func Read(dir, host fs.FS) (*Running, error) {
	running, tried, err := readFirst(dir, host, new(made), folders, func(r *Running) bool {
		return r.Process(kubever.APIServer) != nil
	}, 0)
	if err != nil {
		return nil, err
	}
	if running == nil {
		return nil, whyNone(tried.refused, tried.notes)
	}
	return running, running.once()
}

// ReadAll reads the files of a directory as Read does, whatever they start: two control planes side by side, a part of
// one, or nothing. Of the folders in which manifests and units may lie it reads the first that starts any component.
// Errors: an environment file that is missing although arguments come from it.
func ReadAll(dir, host fs.FS) (*Running, error) {
	running, _, err := readFirst(dir, host, new(made), folders,
		func(r *Running) bool { return len(r.Processes) > 0 }, 0)
	if running == nil {
		running = &Running{}
	}
	return running, err
}

// readFirst reads the first of some folders that holds what is wanted, then what documents in them make, then lists of
// processes; nil when none does. tried is what all of them said; depth counts documents within documents.
func readFirst(dir, host fs.FS, m *made, folders []string, wanted func(*Running) bool, depth int) (
	found *Running, tried *reader, err error) {
	tried = &reader{}
	var lists []*reader
	folders = withServices(dir, folders)
	for _, folder := range folders {
		r := &reader{files: dir, folder: folder, host: host, made: m}
		if err := r.read(); err != nil {
			return nil, tried, err
		}
		if running := r.running(); wanted(running) {
			if len(r.unreadable) > 0 {
				return nil, tried, errors.Join(r.unreadable...)
			}
			r.complete(folders)
			return r.running(), tried, nil
		}
		tried.notes = append(tried.notes, r.notes...)
		lists = append(lists, r)
	}
	for _, r := range lists {
		running, inner, err := r.readHeld(wanted, depth)
		if err != nil || running != nil {
			return running, tried, err
		}
		tried.notes = append(tried.notes, inner.notes...)
		tried.refused = append(tried.refused, inner.refused...)
	}
	for _, r := range lists { // where nothing starts a component, a list of processes may show some
		for _, f := range r.texts {
			r.processLines(f.name, f.text)
		}
		if running := r.running(); wanted(running) {
			return running, tried, nil
		}
	}
	for _, r := range lists {
		if len(r.unreadable) > 0 {
			return nil, tried, errors.Join(r.unreadable...)
		}
		if tried.refused = append(tried.refused, r.refused...); len(r.refused) == 0 {
			tried.refused = append(tried.refused, r.unread()...)
		}
	}
	return nil, tried, nil
}

// complete adds the components that other folders start and this one does not: some hosts have static pods and units.
func (r *reader) complete(folders []string) {
	if r.folder == "." { // what is wanted lies in the directory itself; below it may be anything
		return
	}
	for _, folder := range folders {
		if folder == "." || folder == r.folder {
			continue
		}
		other := &reader{files: r.files, folder: folder, host: r.host, made: r.made}
		if err := other.read(); err != nil {
			r.note(folder, "is ignored: %v", err)
			continue
		}
		for _, err := range other.unreadable {
			r.note(folder, "a file is ignored: %v", err)
		}
		r.add(other.processes, other.notes)
	}
}

// add takes the components of another folder that are not there yet, and what is to be known about their files.
func (r *reader) add(processes []Process, notes []Note) {
	for _, p := range processes {
		if !slices.ContainsFunc(r.processes, func(q Process) bool { return q.Component == p.Component }) {
			r.note(p.Place, "is read too: it starts %s, which nothing beside %s does", p.Component,
				r.processes[0].Place)
			r.processes = append(r.processes, p)
			for _, n := range notes {
				if fileOf(n.Place) == fileOf(p.Place) && !slices.Contains(r.notes, n) {
					r.notes = append(r.notes, n)
				}
			}
		}
	}
}

// fileOf is the file of a place.
func fileOf(place string) string {
	file, _, _ := strings.Cut(place, ":")
	return file
}

// reader collects what one folder starts.
type reader struct {
	files     fs.FS
	folder    string
	host      fs.FS
	made      *made // shared with all that is read beside it
	processes []Process
	notes     []Note
	refused   []error // files of control planes that cannot be adopted
	texts     []textFile
	holders   []holder // documents that hold the files of a machine
	beside    []string // files that are not read, by their endings
	// unreadable are files that may hold what is wanted: an error where the folder starts something, or none does
	unreadable []error

	referenced       map[string]bool // variables in the command lines of units
	environmentFiles map[string]bool // names of files that units have their variables from

	hostName *string                    // once it was looked for
	units    map[string]map[string]bool // the names in folders of systemd, once they were looked for
}

type textFile struct {
	name string
	text []byte
}

// limitFiles is far above what starts a control plane: a directory with more is another one than was meant.
const limitFiles = 4096

func (r *reader) read() error {
	entries, err := fs.ReadDir(r.files, r.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) > limitFiles {
		name := r.folder
		if name == "." {
			name = "the directory"
		}
		return fmt.Errorf("%s holds %d files, want at most %d: is it the one of the manifests or units?", name,
			len(entries), limitFiles)
	}
	var files []textFile
	r.referenced, r.environmentFiles = map[string]bool{}, map[string]bool{}
	for _, entry := range entries {
		name := path.Join(r.folder, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if folder := r.overridden(entry.Name()); folder != "" && path.Ext(name) == ".service" {
			r.note(name, "is left out: systemd reads the unit of this name in %s instead", folder)
			continue
		}
		info, err := fs.Stat(r.files, name) // through links, as the kubelet does
		switch {
		case err != nil && namesComponent.MatchString(entry.Name()):
			r.unreadable = append(r.unreadable, err)
			continue
		case err != nil:
			r.note(name, "is ignored: %v", err)
			continue
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			r.note(name, "is ignored: it is %s", KindOf(info.Mode()))
			continue
		}
		if info.IsDir() || slices.Contains(beside, path.Ext(name)) && !r.isStarter(name) {
			r.beside = append(r.beside, name)
			continue
		}
		if isBackup(entry.Name()) {
			r.note(name, "is left out: its name is that of a copy; a kubelet reads it too when it lies among its "+
				"manifests")
			continue
		}
		text, err := readFile(r.files, name)
		if !r.made.read(len(text)) {
			return fmt.Errorf("%s: the files up to this one hold more than %d bytes: is it the directory of the "+
				"manifests or units?", name, limitReadBytes)
		}
		if errors.Is(err, errNotText) || errors.Is(err, errTooLarge) && startsBinary(r.files, name) {
			r.note(name, "is ignored: it is not text")
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			r.unreadable = append(r.unreadable, err)
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, textFile{name, text})
		if path.Ext(name) == ".service" {
			for _, variable := range referenced(text) {
				r.referenced[variable] = true
			}
		}
	}
	for _, component := range programs { // the snap of a single component
		name := path.Join(r.folder, component, "current", "args")
		if text, err := r.readText(r.files, name); err == nil {
			files = append(files, textFile{name, text})
		}
	}
	for _, f := range files {
		if path.Ext(f.name) == ".service" {
			if err := r.unit(f.name, f.text); err != nil {
				return err
			}
		}
	}
	for _, f := range files {
		unit, err := r.asUnit(f.name, f.text)
		if err != nil {
			return err
		}
		switch {
		case unit:
		case r.refuse(f.name, f.text), path.Ext(f.name) == ".service", r.environmentFiles[f.name]:
		case r.inspect(f.name, f.text), r.snapFile(f.name, f.text), r.multipart(f.name, f.text), r.hold(f.name, f.text),
			r.printedUnits(f.name, f.text), r.compose(f.name, f.text), r.upstart(f.name, f.text),
			r.describedPods(f.name, f.text):
		case isShellScript(f.text) && r.startedBy(script{name: f.name, text: string(f.text)}, nil, nil, ""):
		case r.printedFlags(f.name, f.text):
		case path.Ext(f.name) == ".txt" || path.Ext(f.name) == ".log" || path.Base(f.name) == "cmdline":
			r.texts = append(r.texts, f)
		default:
			r.manifest(f.name, f.text)
			r.texts = append(r.texts, f)
		}
	}
	return nil
}

// namesComponent knows a file by its name that is not to be passed over where it cannot be read.
var namesComponent = regexp.MustCompile(`apiserver|controller-manager|scheduler`)

// copies are the endings of backup files, of an editor or a package manager.
var copies = []string{".bak", ".backup", ".old", ".orig", ".save", ".rpmsave", ".rpmnew", ".dpkg-old", ".dpkg-new",
	".dpkg-dist", ".swp", ".disabled", ".tmp"}

func isBackup(name string) bool {
	return strings.HasSuffix(name, "~") || slices.Contains(copies, path.Ext(name)) || backupPattern.MatchString(name)
}

// backupPattern is a date or a number behind the ending: kube-apiserver.yaml.20190417, kube-apiserver.manifest.1.
var backupPattern = regexp.MustCompile(`\.(ya?ml|json|manifest|service)[-._][0-9][-0-9TZ_.:]*$`)

// beside lists the endings of files that stand beside units and manifests.
var beside = []string{".conf", ".env", ".target", ".timer", ".socket", ".mount", ".path", ".slice", ".md",
	".crt", ".key", ".pem"}

var (
	errNotText  = errors.New("is not UTF-8")
	errTooLarge = fmt.Errorf("larger than %d bytes", limitFileBytes)
)

// startsBinary reports whether the first bytes of a file are no text: a program or an archive beside the manifests.
func startsBinary(files fs.FS, name string) bool {
	file, err := files.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	start := make([]byte, 512)
	n, err := io.ReadFull(file, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	text := start[:n]
	for range utf8.UTFMax - 1 { // the last letter may be cut
		if last, size := utf8.DecodeLastRune(text); last == utf8.RuneError && size == 1 {
			text = text[:len(text)-1]
		}
	}
	return bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text)
}

// KindOf is what lies where a file is wanted.
func KindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}

// readText reads a text that is named by others, and may be so again and again: each time counts.
func (r *reader) readText(files fs.FS, name string) ([]byte, error) {
	if err := r.made.err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := readFile(files, name)
	if err == nil && !r.made.read(len(text)) {
		return nil, fmt.Errorf("%s: %w", name, r.made.err())
	}
	return text, err
}

// readFile reads a text up to the bound. A pipe is not opened, which would wait for its other end.
func readFile(files fs.FS, name string) ([]byte, error) {
	if info, err := fs.Stat(files, name); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is %s, want a file", name, KindOf(info.Mode()))
	}
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limitFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(text) > limitFileBytes {
		return nil, fmt.Errorf("%s: %w", name, errTooLarge)
	}
	if text, err = asUTF8(text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// asUTF8 turns a text that says that it is UTF-16 into UTF-8: a Windows shell writes what kubectl prints in that way.
func asUTF8(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		var err error
		text, err = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Bytes(text)
		if err != nil || bytes.IndexByte(text, 0) >= 0 || bytes.ContainsRune(text, utf8.RuneError) {
			return nil, errNotText
		}
	}
	if !utf8.Valid(text) {
		return nil, errNotText
	}
	return text, nil
}

func (r *reader) note(place, format string, args ...any) {
	r.notes = append(r.notes, Note{Place: place, Text: fmt.Sprintf(format, args...)})
}

var order = []string{kubever.APIServer, kubever.ControllerManager, kubever.Scheduler, Etcd, Kubelet, Controllers,
	Gateway}

func (r *reader) running() *Running {
	slices.SortStableFunc(r.processes, func(a, b Process) int {
		return cmp.Compare(slices.Index(order, a.Component), slices.Index(order, b.Component))
	})
	return &Running{Processes: r.processes, Notes: r.notes}
}

// placeholder is what is replaced before a file is used, in the languages of templates and in what sed is given:
// {{ x }}, <% x %>, <args>, #ETCD_ENDPOINTS#, @CERT@, __LEVEL__, %%NAME%%.
var placeholder = regexp.MustCompile(
	`\{\{|<%|^<[\w -]+>$|=<[\w -]+>$|#[A-Z][A-Z0-9_]*#|@[A-Z][A-Z0-9_]*@|__[A-Z][A-Z0-9_]*__|%%[A-Z][A-Z0-9_]*%%`)

// once refuses two processes of one component: which of them runs cannot be told. Several etcds are not unusual. It
// refuses templates too, whose arguments stand for others.
func (r *Running) once() error {
	var errs []error
	for _, p := range r.Processes {
		if p.broken != "" {
			errs = append(errs, fmt.Errorf("%s: %s", p.Place, p.broken))
		}
		for _, word := range append([]string{p.Image, p.unfilled}, p.Words...) {
			if word != "" && (word == p.unfilled || placeholder.MatchString(word)) {
				errs = append(errs, fmt.Errorf("%s: %q is a place in a template that was not filled in; want the file "+
					"as it lies on the host", p.Place, word))
				break
			}
		}
	}
	for i := 1; i < len(r.Processes); i++ {
		first, second := r.Processes[i-1], r.Processes[i]
		if first.Component == second.Component && len(kubever.Flags(second.Component, kubever.Oldest)) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s is started in %s too; move away the file that is not in use",
				second.Place, second.Component, first.Place))
		}
	}
	return errors.Join(errs...)
}

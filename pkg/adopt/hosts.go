package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Host is one control-plane machine and what its files start.
type Host struct {
	Name    string // of its directory; "" where the files tell, as far as they do
	Running *Running
}

// DraftHosts drafts the spec of a control plane of several hosts. The arguments are those of the first; what is another
// on another host stands under that host. Errors: those of Draft; hosts of different versions, or that start different
// components.
func DraftHosts(hosts []Host, o Options) (*Draft, error) {
	if len(hosts) == 0 {
		return nil, errors.New("no hosts")
	}
	draft, err := hosts[0].Running.draft(o, hosts)
	if err != nil && len(hosts) > 1 {
		return nil, fmt.Errorf("%s: %w", hosts[0].Name, err)
	}
	return draft, err
}

// otherHosts adds the hosts after the first, with the arguments that are others there.
func (w *writer) otherHosts(hosts []Host) error {
	var problems []error
	running := map[int]*Running{} // by the place of the host in the spec
	for _, h := range hosts[1:] {
		other := &writer{running: h.Running, options: w.options, minor: w.minor}
		version, err := h.Running.version(h.Running.Process(kubever.APIServer), w.options.Legacy)
		switch {
		case err != nil && !errors.Is(err, ErrVersion):
			problems = append(problems, fmt.Errorf("%s: %w", h.Name, err))
			continue
		case err == nil && version.Minor != w.minor:
			problems = append(problems, fmt.Errorf("%s runs %s, and %s runs %s; a side has one version: read the "+
				"hosts when all of them run it", h.Name, version, hosts[0].Name, w.File.Spec.Legacy.Version))
			continue
		}
		other.arguments()
		args, images := &spec.HostArgs{}, spec.HostImages{}
		for _, of := range []struct {
			kind  string
			list  *[]spec.Change
			image *string
		}{{kubever.APIServer, &args.APIServer, &images.APIServer},
			{kubever.ControllerManager, &args.ControllerManager, &images.ControllerManager},
			{kubever.Scheduler, &args.Scheduler, &images.Scheduler}} {
			here, there := w.running.Process(of.kind), h.Running.Process(of.kind)
			if (here == nil) != (there == nil) {
				problems = append(problems, fmt.Errorf("%s is started on one of %s and %s only; read all files of "+
					"both hosts",
					of.kind, hosts[0].Name, h.Name))
				continue
			}
			*of.list = differences(of.kind, w.minor, w.args[of.kind], other.args[of.kind])
			switch {
			case here == nil:
			case there.Image == "" && here.Image != "" || !slices.Equal(here.Command, there.Command):
				w.note(h.Name+"/"+there.Place, "%s is started by another program than on %s (%s there, %s here); the "+
					"spec has the former", of.kind, hosts[0].Name, startedWith(here), startedWith(there))
			case here.Image != there.Image:
				*of.image = there.Image
			}
			if here == nil || slices.Equal(here.Mounts, there.Mounts) {
				continue
			}
			if moved := movedFiles(here, there, other.args[of.kind]); len(moved) > 0 {
				problems = append(problems, fmt.Errorf("%s/%s: %s of %s is another file of the host than on %s (%s "+
					"there, %s here), and the modern side reads the same path on every host; have it at one path on "+
					"all of them",
					h.Name, there.Place, moved[0].seen, of.kind, hosts[0].Name, moved[0].first, moved[0].other))
				continue
			}
			w.note(h.Name+"/"+there.Place, "the mounts of %s are others than on %s, and its arguments name the same "+
				"files of both; the spec has the latter", of.kind, hosts[0].Name)
		}
		host := spec.Host{Name: h.Name, Address: other.address()}
		if images != (spec.HostImages{}) {
			args.Images = &images
		}
		if args.Images != nil || len(args.APIServer)+len(args.ControllerManager)+len(args.Scheduler) > 0 {
			host.Legacy = args
		}
		w.File.Spec.Hosts = append(w.File.Spec.Hosts, host)
		running[len(w.File.Spec.Hosts)-1] = h.Running
		if host.Address == "" {
			place := fmt.Sprintf("spec.hosts[%d].address", len(w.File.Spec.Hosts)-1)
			w.missing(place, "the address at which others reach the API servers of %s", h.Name)
		}
		// What a file of every host says is said once, of the first.
		for _, note := range append(unasked(h.Running.Notes, h.Running.Processes), other.Notes...) {
			if !slices.ContainsFunc(w.Notes, func(n Note) bool { return n.Text == note.Text }) {
				w.note(h.Name+"/"+note.Place, "%s", note.Text)
			}
		}
	}
	w.sharedAddresses()
	for at := range w.File.Spec.Hosts {
		if running[at] != nil {
			w.askedAt(at, running[at])
		}
	}
	return errors.Join(problems...)
}

// startedWith is the program of a process, or the image that has it.
func startedWith(p *Process) string {
	return cmp.Or(strings.Join(p.Command, " "), p.Image, p.Component)
}

// movedFile is one that two components see under one path, and that lies elsewhere on one of their hosts.
type movedFile struct{ seen, first, other string }

// movedFiles are those that the arguments name.
func movedFiles(here, there *Process, args []spec.Arg) []movedFile {
	var moved []movedFile
	before, after := spec.Component{ExtraMounts: here.Mounts}, spec.Component{ExtraMounts: there.Mounts}
	for _, a := range args {
		if !path.IsAbs(a.Value) || strings.Contains(a.Value, ",") {
			continue
		}
		first, _ := before.OnHost(a.Value)
		other, _ := after.OnHost(a.Value)
		if first != other {
			moved = append(moved, movedFile{a.Value, first, other})
		}
	}
	return moved
}

// differences are the arguments of a list that are others than those of the first, by name.
func differences(kind string, m kubever.Minor, first, other []spec.Arg) []spec.Change {
	byName := func(args []spec.Arg) (map[string][]string, []string) {
		values, names := map[string][]string{}, []string{}
		for _, a := range args {
			name := kubever.FlagName(a.Name)
			if values[name] == nil {
				names = append(names, name)
			}
			values[name] = append(values[name], a.Value)
		}
		return values, names
	}
	before, names := byName(first)
	after, added := byName(other)
	var changes []spec.Change
	for _, name := range append(names, added...) {
		if slices.Equal(before[name], after[name]) || slices.ContainsFunc(changes, func(c spec.Change) bool {
			return c.Name == name
		}) {
			continue
		}
		if len(after[name]) == 0 {
			changes = append(changes, spec.Change{Name: name, Remove: true})
		}
		for _, value := range after[name] {
			changes = append(changes, spec.Change{Name: name, Value: value})
		}
	}
	return changes
}

// sharedAddresses leaves out changes that are nothing but the host's own address in the place of the first one's: a
// plan does that by itself.
func (w *writer) sharedAddresses() {
	hosts := w.File.Spec.Hosts
	for i := range hosts {
		h := &hosts[i]
		if h.Legacy == nil || h.Address == "" {
			continue
		}
		own := func(kind string) func(spec.Change) bool {
			return func(c spec.Change) bool {
				return c.Value == h.Address && !c.Remove && w.value(kind, c.Name) == hosts[0].Address &&
					len(w.values[kind][c.Name]) == 1
			}
		}
		h.Legacy.APIServer = slices.DeleteFunc(h.Legacy.APIServer, own(kubever.APIServer))
		h.Legacy.ControllerManager = slices.DeleteFunc(h.Legacy.ControllerManager, own(kubever.ControllerManager))
		h.Legacy.Scheduler = slices.DeleteFunc(h.Legacy.Scheduler, own(kubever.Scheduler))
		if h.Legacy.Images == nil &&
			len(h.Legacy.APIServer)+len(h.Legacy.ControllerManager)+len(h.Legacy.Scheduler) == 0 {
			h.Legacy = nil
		}
	}
}

// others counts the control-plane hosts that the files of one tell of: by --apiserver-count, by the members of its
// etcd.
func (w *writer) others() (count int, why string) {
	if n, err := strconv.Atoi(w.server("apiserver-count")); err == nil && n > 1 {
		return n, "--apiserver-count=" + strconv.Itoa(n)
	}
	if n := w.running.Process(kubever.APIServer).replicas; n > 1 {
		return n, fmt.Sprintf("replicas: %d of its API server", n)
	}
	members := map[string]bool{}
	for endpoint := range strings.SplitSeq(w.server("etcd-servers"), ",") {
		u, err := url.Parse(spec.WithScheme(strings.TrimSpace(endpoint)))
		if err != nil || u.Hostname() == "" {
			continue
		}
		if address, err := netip.ParseAddr(u.Hostname()); err == nil && address.IsLoopback() ||
			u.Hostname() == "localhost" {
			continue
		}
		members[u.Hostname()] = true
	}
	for member := range strings.SplitSeq(w.value(Etcd, "initial-cluster"), ",") {
		if _, peer, ok := strings.Cut(member, "="); ok {
			if u, err := url.Parse(peer); err == nil && u.Hostname() != "" {
				members["peer "+u.Hostname()] = true
			}
		}
	}
	peers := 0
	for name := range members {
		if strings.HasPrefix(name, "peer ") {
			peers++
		}
	}
	return max(peers, len(members)-peers), "its etcd"
}

// clusterName is a name for the spec: that of the options, of the cluster, or of the machine.
func (w *writer) clusterName(hosts []Host) string {
	candidates := []string{w.options.Name}
	if name := w.value(kubever.ControllerManager, "cluster-name"); name != "kubernetes" {
		candidates = append(candidates, name)
	}
	candidates = append(candidates, w.running.Process(kubever.APIServer).cluster)
	for _, candidate := range candidates {
		if name := label(candidate); name != "" {
			return name
		}
	}
	if first := w.File.Spec.Hosts[0]; len(hosts) > 1 || first.Name != defaultHost {
		return label("fused-" + first.Name)
	} else if first.Address != "" {
		return label("fused-" + first.Address)
	}
	return "fused"
}

// defaultHost names a host of which the files do not tell a name.
const defaultHost = "cp-1"

// label turns a text into a DNS label, "" when nothing is left of it.
func label(text string) string {
	mapped := spec.DNSLabel(text)
	return strings.Trim(mapped[:min(len(mapped), 63)], "-")
}

// overriddenStores drafts the stores to which the API server's own overrides lead.
func (w *writer) overriddenStores() {
	at := w.running.Process(kubever.APIServer).Place
	for _, value := range w.values[kubever.APIServer]["etcd-servers-overrides"] {
		for entry := range strings.SplitSeq(value, ",") {
			name, servers, ok := strings.Cut(strings.TrimSpace(entry), "#")
			if !ok || strings.TrimSpace(servers) == "" {
				w.note(at, "--etcd-servers-overrides: %q: want GROUP/RESOURCE#URL;URL; it is kept as it is", entry)
				continue
			}
			var endpoints []string
			for endpoint := range strings.SplitSeq(servers, ";") {
				if endpoint = w.endpoint(endpoint); endpoint != "" {
					endpoints = append(endpoints, endpoint)
				}
			}
			w.overriddenStore(name, endpoints)
		}
	}
}

func (w *writer) overriddenStore(resource string, endpoints []string) {
	stores := w.File.Spec.Stores
	for i := range stores {
		if slices.ContainsFunc(endpoints, func(e string) bool { return slices.Contains(stores[i].Endpoints, e) }) {
			return // it is known
		}
	}
	_, short, _ := strings.Cut(resource, "/")
	base := cmp.Or(label(short), "overridden")
	name := base
	for n := 2; slices.ContainsFunc(stores, func(s spec.Store) bool { return s.Name == name }); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	store := spec.Store{Name: name, Endpoints: endpoints, Prefix: stores[0].Prefix}
	if slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https:") }) {
		store.TLS = w.tlsFiles()
	}
	w.comment(fmt.Sprintf("spec.stores[%d]", len(stores)),
		"Where the legacy side keeps "+strings.TrimPrefix(resource, "/")+". "+
			w.from(kubever.APIServer, "etcd-servers-overrides"))
	w.File.Spec.Stores = append(stores, store)
}

// endpoint is an address of an etcd member as a URL, the way the API server takes it.
func (w *writer) endpoint(text string) string {
	text = strings.TrimSuffix(strings.TrimSpace(text), "/")
	if text == "" {
		return ""
	}
	return spec.WithScheme(text)
}

// hostFile is where a file of a component lies on the host, "" where it is on none, or no argument names it.
func (w *writer) hostFile(component, flag string) string {
	value := w.value(component, flag)
	if !path.IsAbs(value) {
		return value
	}
	c := spec.Component{ExtraMounts: w.running.Process(component).Mounts}
	file, _ := c.OnHost(value)
	return file
}

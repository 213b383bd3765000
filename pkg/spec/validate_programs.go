package spec

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	// SHA256Pattern is the grammar of digests of programs.
	SHA256Pattern = `^[0-9a-f]{64}$`
	// ImageByDigestPattern is the grammar of images of programs: a registry, which clients do not guess, a repository,
	// a tag that nothing reads, and a digest. Source: grammar of github.com/distribution/reference 0.6.0.
	ImageByDigestPattern = `^((?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|localhost|\[[0-9a-fA-F:]+\])(?::[0-9]+)?|` +
		`[A-Za-z0-9-]+:[0-9]+)/([a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)` +
		`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@(sha256:[0-9a-f]{64})$`
)

var (
	sha256Pattern        = regexp.MustCompile(SHA256Pattern)
	imageByDigestPattern = regexp.MustCompile(ImageByDigestPattern)
)

// IsSHA256 reports whether a text is a digest in hexadecimal digits.
func IsSHA256(text string) bool { return sha256Pattern.MatchString(text) }

// ImageByDigest takes registry.k8s.io/kube-apiserver:v1.36.3@sha256:... apart. A tag is left out: the digest says which
// image it is.
func ImageByDigest(image string) (registry, repository, digest string, ok bool) {
	parts := imageByDigestPattern.FindStringSubmatch(image)
	if parts == nil || len(image) > limitImageBytes {
		return "", "", "", false
	}
	return parts[1], parts[2], parts[3], true
}

const limitImageBytes = 512

// programs judges what transitions put on hosts. Whether a unit starts it, transitions say: that depends on what runs
// the components.
func (v *validator) programs() {
	places := map[string]*programsAt{} // by path
	machines := v.machines()
	for i := range v.file.Spec.Programs {
		p, at := &v.file.Spec.Programs[i], index("spec.programs", i)
		placed := v.programFile(at+".path", p.Path)
		if placed && strings.ContainsRune(p.Path, '$') {
			v.expect(at+".path", p.Path, "want a path without $, which systemd takes for a variable")
		}
		if !IsSHA256(p.SHA256) {
			v.expect(at+".sha256", p.SHA256, "want the SHA-256 of the program: 64 hexadecimal digits, as sha256sum "+
				"prints them")
		}
		if v.programFile(at+".file", p.File) && p.Image == "" && p.File == p.Path {
			v.addf(at+".file", "%q: is where the program is put; want the file from which it comes", p.File)
		}
		if _, _, _, ok := ImageByDigest(p.Image); p.Image != "" && !ok {
			v.expect(at+".image", p.Image, "want an image of a registry by its digest, such as "+
				"registry.k8s.io/kube-apiserver@sha256:...: a tag may be another image tomorrow")
		}
		for j, name := range p.Hosts {
			v.machine(index(at+".hosts", j), name)
		}
		if !placed || len(machines) == 0 {
			continue
		}
		there := places[p.Path]
		if there == nil {
			there = &programsAt{on: map[string]string{}}
			places[p.Path] = there
		}
		if first, name := there.add(at, p, machines); first != "" {
			v.addf(at+".path", "%q: is that of %s too, on host %q", p.Path, first, name)
		}
	}
}

// programsAt are the programs of one path: one on every machine, and those on some.
type programsAt struct {
	all string
	on  map[string]string
}

// add puts a program on its machines, or names the first one that has another, and that other one.
func (p *programsAt) add(at string, of *Program, machines []string) (first, name string) {
	if len(of.Hosts) == 0 {
		switch {
		case p.all != "":
			return p.all, machines[0]
		case len(p.on) > 0: // some machine has it
			name = slices.Min(slices.Collect(maps.Keys(p.on)))
			return p.on[name], name
		}
		p.all = at
		return "", ""
	}
	for _, name := range slices.Sorted(slices.Values(of.Hosts)) {
		if _, is := slices.BinarySearch(machines, name); !is {
			continue
		}
		if first := cmp.Or(p.all, p.on[name]); first != "" && first != at {
			return first, name
		}
		p.on[name] = at
	}
	return "", ""
}

// programFile checks the path of a program.
func (v *validator) programFile(at, value string) bool {
	ok := v.absolute(at, value, true)
	if ok && (value == "/" || path.Clean(value) != value) {
		v.expect(at, value, "want the path of a file")
		return false
	}
	return ok
}

// machines are the names of hosts, and of nodes whose kubelets transitions change, each once, sorted.
func (v *validator) machines() []string {
	if v.names == nil {
		v.names = []string{}
		for _, h := range v.file.Spec.Hosts {
			v.names = append(v.names, h.Name)
		}
		if k := v.file.Spec.Kubelet.Modern; k != nil {
			for _, n := range k.Nodes {
				v.names = append(v.names, n.Name)
			}
		}
		slices.Sort(v.names)
		v.names = slices.Compact(v.names)
	}
	return v.names
}

// machine checks the name of one of them.
func (v *validator) machine(at, name string) {
	known := v.machines()
	if _, is := slices.BinarySearch(known, name); is || !v.Lines.Trusts("spec.hosts") ||
		!v.Lines.Trusts("spec.kubelet") {
		return
	}
	want := "want the name of one of spec.hosts, or of spec.kubelet.modern.nodes"
	if near, ok := v.nearest(name, known); ok {
		want += "; did you mean \"" + near + "\"?"
	}
	v.expect(at, name, want)
}

package adopt

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Documents that hold the files of a machine, as it gets them at its first start: the user data of cloud-init and
// coreos-cloudinit, Ignition and what it is made of, the file tasks of kops, and scripts that write their files from
// here-documents.

// holder is such a document: the directory that it makes.
type holder struct {
	name  string
	files *memoryFiles
}

// held is one file of a document, in any of the forms.
type held struct {
	Path     string       `yaml:"path"`
	Content  *string      `yaml:"content"`  // cloud-config
	Encoding string       `yaml:"encoding"` // of Content
	Contents heldContents `yaml:"contents"` // Ignition, kops
	Type     string       `yaml:"type"`     // kops
}

// heldContents are a text, or where a text is.
type heldContents struct {
	text        *string
	Inline      *string `yaml:"inline"`
	Source      string  `yaml:"source"`
	Local       string  `yaml:"local"`
	Compression string  `yaml:"compression"`
	Remote      struct {
		URL string `yaml:"url"`
	} `yaml:"remote"`
}

// UnmarshalYAML decodes a plain text as well as a mapping.
func (c *heldContents) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&c.text)
	}
	type plain heldContents
	return node.Decode((*plain)(c))
}

// heldUnit is a unit of systemd in a document.
type heldUnit struct {
	Name     string       `yaml:"name"`
	Content  string       `yaml:"content"`
	Contents string       `yaml:"contents"`
	DropIns  []heldDropIn `yaml:"drop-ins"`
	Dropins  []heldDropIn `yaml:"dropins"`
}

type heldDropIn struct {
	Name     string `yaml:"name"`
	Content  string `yaml:"content"`
	Contents string `yaml:"contents"`
}

// machine is all forms of a document in one.
type machine struct {
	WriteFiles       []held `yaml:"write_files"`
	WriteFilesDashed []held `yaml:"write-files"`
	CoreOS           struct {
		Units []heldUnit `yaml:"units"`
	} `yaml:"coreos"`
	Storage struct {
		Files []held `yaml:"files"`
	} `yaml:"storage"`
	Systemd struct {
		Units []heldUnit `yaml:"units"`
	} `yaml:"systemd"`
	held `yaml:",inline"`
}

// hold reads a document that holds files, and reports whether the text is one.
func (r *reader) hold(name string, text []byte) bool {
	files := newMemoryFiles()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil || unreadable(&document) != "" {
			break // r.manifest says what is wrong with the file
		}
		var m machine
		if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode || document.Decode(&m) != nil {
			continue
		}
		list := slices.Concat(m.WriteFiles, m.WriteFilesDashed, m.Storage.Files)
		if m.Type == "file" {
			list = append(list, m.held)
		}
		for _, file := range list {
			if r.holdFile(name, files, file); r.ignored(name) {
				return true
			}
		}
		for _, unit := range append(m.CoreOS.Units, m.Systemd.Units...) {
			unitName := path.Join("etc/systemd/system", path.Base(unit.Name))
			if content := unit.Content + unit.Contents; content != "" {
				files.add(unitName, []byte(content))
			}
			for _, dropIn := range append(unit.DropIns, unit.Dropins...) {
				files.add(path.Join(unitName+".d", path.Base(dropIn.Name)), []byte(dropIn.Content+dropIn.Contents))
			}
		}
	}
	if files.empty() {
		return false
	}
	r.holders = append(r.holders, holder{name, files})
	return true
}

// holdFile adds one file of a document, or notes why it has none. Certificates, keys and programs are passed over.
func (r *reader) holdFile(name string, files *memoryFiles, file held) {
	to := strings.TrimPrefix(path.Clean("/"+file.Path), "/")
	if file.Path == "" || to == "" {
		return
	}
	text, err := file.text()
	var elsewhere *elsewhereError
	switch {
	case errors.As(err, &elsewhere) && strings.HasSuffix(path.Dir(to), "bin"): // a program
	case errors.As(err, &elsewhere):
		r.note(name, "/%s is at %s and not in this file", to, elsewhere.place)
	case err != nil:
		r.note(name, "is ignored: /%s: %v", to, err)
	case r.made.take(len(text)) && utf8.Valid(text):
		files.add(to, text)
	}
}

// elsewhereError says that a document has not the text of a file but its place.
type elsewhereError struct{ place string }

func (e *elsewhereError) Error() string { return "is at " + e.place }

// text is what the file will have in it.
func (h *held) text() ([]byte, error) {
	c := h.Contents
	switch {
	case h.Content != nil:
		return decoded([]byte(*h.Content), h.Encoding)
	case c.text != nil:
		return []byte(*c.text), nil
	case c.Inline != nil:
		return []byte(*c.Inline), nil
	case c.Local != "":
		return nil, &elsewhereError{c.Local}
	case c.Remote.URL != "":
		return nil, &elsewhereError{c.Remote.URL}
	}
	data, ok := strings.CutPrefix(c.Source, "data:")
	if !ok && c.Source != "" {
		return nil, &elsewhereError{c.Source}
	}
	kind, data, _ := strings.Cut(data, ",")
	unescaped, err := url.PathUnescape(data)
	if err != nil {
		return nil, err
	}
	encoding := c.Compression
	if strings.HasSuffix(kind, ";base64") {
		encoding += "+base64"
	}
	return decoded([]byte(unescaped), encoding)
}

// decoded takes base64 and gzip from a text, as the names of cloud-init's encodings say.
func decoded(text []byte, encoding string) ([]byte, error) {
	encoding = strings.ToLower(encoding)
	if strings.Contains(encoding, "b64") || strings.Contains(encoding, "base64") {
		packed := strings.Join(strings.Fields(string(text)), "")
		plain, err := base64.StdEncoding.DecodeString(packed)
		if err != nil {
			return nil, fmt.Errorf("decoding base64: %w", err)
		}
		text = plain
	}
	if !strings.Contains(encoding, "gz") {
		return text, nil
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	text, err = io.ReadAll(io.LimitReader(unzipped, limitFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	if len(text) > limitFileBytes {
		return nil, fmt.Errorf("larger than %d bytes", limitFileBytes)
	}
	return text, nil
}

// limitHeld is how deep documents are looked for in documents: user data hold scripts that write manifests.
const limitHeld = 3

// readHeld reads what the documents make, and what they name from beside them. Components that one of them does not
// start are taken from the others. Errors: several of them start what is wanted.
func (r *reader) readHeld(wanted func(*Running) bool, depth int) (found *Running, tried *reader, err error) {
	tried = &reader{}
	in := -1
	for i, h := range r.holders {
		if depth == limitHeld {
			tried.note(h.name, "is ignored: it holds files that hold files, and so on")
			continue
		}
		running, inner, err := r.readHolder(h, wanted, depth)
		if err != nil {
			return nil, tried, err
		}
		tried.refused = append(tried.refused, inner.refused...)
		switch {
		case running == nil:
			tried.notes = append(tried.notes, inner.notes...)
		case found != nil:
			return nil, tried, fmt.Errorf("%s: starts the same as %s; move away the file that is not in use", h.name,
				r.holders[in].name)
		default:
			found, in = running, i
		}
	}
	if found == nil {
		return nil, tried, nil
	}
	whole := &reader{processes: found.Processes, notes: append(slices.Clone(r.notes), found.Notes...)}
	for i, h := range r.holders {
		if i == in {
			continue
		}
		running, _, err := r.readHolder(h, func(r *Running) bool { return len(r.Processes) > 0 }, depth)
		if err != nil {
			whole.note(h.name, "is ignored: %v", err)
			continue
		}
		if running != nil {
			whole.add(running.Processes, running.Notes)
		}
	}
	return whole.running(), tried, nil
}

// readHolder reads what one document makes; places have its name in front.
func (r *reader) readHolder(h holder, wanted func(*Running) bool, depth int) (*Running, *reader, error) {
	beside := r.files
	if message, ok := r.files.(overlay); ok && message.message { // its parts make one machine
		for _, other := range r.holders {
			if other.name != h.name {
				beside = overlay{other.files, beside}
			}
		}
	}
	running, inner, err := readFirst(overlay{h.files, beside}, nil, r.made, h.files.folders(), wanted, depth+1)
	if err != nil {
		return nil, inner, fmt.Errorf("%s: %w", h.name, err)
	}
	for i, refused := range inner.refused {
		inner.refused[i] = fmt.Errorf("%s: %w", h.name, refused)
	}
	below := func(notes []Note) {
		for i := range notes {
			if notes[i].Place != "" {
				notes[i].Place = h.name + "/" + notes[i].Place
			}
		}
	}
	below(inner.notes)
	if running != nil {
		below(running.Notes)
		for i := range running.Processes {
			running.Processes[i].Place = h.name + "/" + running.Processes[i].Place
		}
	}
	return running, inner, nil
}

// overlay is a directory of files in memory. A file that is named, and that is not in there, may lie beside them.
type overlay struct {
	*memoryFiles
	beside fs.FS
}

// Open opens what is in memory, or a file that is not a directory.
func (o overlay) Open(name string) (fs.File, error) {
	if f, err := o.memoryFiles.Open(name); err == nil || o.beside == nil {
		return f, err
	}
	if info, err := fs.Stat(o.beside, name); err != nil || !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return o.beside.Open(name)
}

package adopt

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"
)

// User data in several parts, as cloud-init takes them: a message of MIME whose parts are documents and scripts.

// limitParts is far above what a machine is made from.
const limitParts = 256

// multipart reads the parts of a message, and reports whether the text is one.
func (r *reader) multipart(name string, text []byte) bool {
	plain, packed := unpackedUserData(text)
	header, body := messageHeader(plain)
	boundary := boundaryOf(header)
	files := newMemoryFiles()
	files.message = true
	switch {
	case boundary == "" && !packed:
		return false
	case boundary == "":
		files.add("part-1", []byte(plain))
		r.holders = append(r.holders, holder{name, files})
		return true
	}
	for i, part := range partsOf(body, boundary) {
		if i == limitParts {
			r.note(name, "is ignored: has more than %d parts", limitParts)
			return true
		}
		partHeader, content := messageHeader(part)
		if boundaryOf(partHeader) != "" {
			files.add(fmt.Sprintf("part-%d", i+1), []byte(part)) // it is read as a message of its own
			continue
		}
		file, err := transferred(content, partHeader["content-transfer-encoding"])
		if err == nil && bytes.HasPrefix(file, gzipMagic) {
			file, err = decoded(file, "gzip")
		}
		if err != nil {
			r.note(fmt.Sprintf("%s/part-%d", name, i+1), "is ignored: %v", err)
			continue
		}
		if !r.made.take(len(file)) {
			return r.ignored(name)
		}
		files.add(fmt.Sprintf("part-%d", i+1), file)
	}
	r.holders = append(r.holders, holder{name, files})
	return true
}

// unpackedUserData is the text itself, or what is in it: the interfaces of clouds print user data in base64.
func unpackedUserData(text []byte) (plain string, packed bool) {
	decodedText, err := decoded(text, "base64")
	if err == nil && bytes.HasPrefix(decodedText, gzipMagic) {
		decodedText, err = decoded(decodedText, "gzip")
	}
	if err != nil || !utf8.Valid(decodedText) || !bytes.Contains(decodedText, []byte("\n")) {
		return string(text), false
	}
	return string(decodedText), true
}

// gzipMagic is how a packed text begins.
var gzipMagic = []byte("\x1f\x8b")

// limitHeader is above the size of any header of a message: each line of a field is added to those before.
const limitHeader = 64 << 10

// messageHeader takes the header from a message or a part: its fields by their names in lower case. It is empty where
// the text begins with something else.
func messageHeader(text string) (header map[string]string, body string) {
	header, last := map[string]string{}, ""
	for rest := text; ; {
		line, after, more := strings.Cut(rest, "\n")
		line = strings.TrimRight(line, "\r")
		key, value, field := strings.Cut(line, ":")
		switch {
		case len(text)-len(after) > limitHeader:
			return map[string]string{}, text
		case line == "":
			return header, after
		case last == "" && strings.HasPrefix(line, "From "): // of a mailbox
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			header[last] += " " + strings.TrimSpace(line)
		case !field || strings.ContainsAny(key, " \t#"):
			return map[string]string{}, text
		default:
			last = strings.ToLower(key)
			header[last] = strings.TrimSpace(value)
		}
		if !more {
			return header, ""
		}
		rest = after
	}
}

// boundaryOf is the line between the parts of a message, "" for a text of one part.
func boundaryOf(header map[string]string) string {
	kind, parameters, err := mime.ParseMediaType(header["content-type"])
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return ""
	}
	return parameters["boundary"]
}

// partsOf are the texts between the boundaries.
func partsOf(body, boundary string) []string {
	var parts []string
	var part strings.Builder
	inside := false
	for line := range strings.Lines(body) {
		trimmed := strings.TrimRight(line, " \t\r\n")
		if end := trimmed == "--"+boundary+"--"; !end && trimmed != "--"+boundary {
			part.WriteString(line)
			continue
		} else if inside {
			parts = append(parts, part.String())
			if inside = false; end {
				return parts
			}
		}
		inside = true
		part.Reset()
	}
	if inside { // the last boundary is missing
		parts = append(parts, part.String())
	}
	return parts
}

// transferred takes the encoding of a part from it.
func transferred(text, encoding string) ([]byte, error) {
	switch strings.ToLower(encoding) {
	case "base64":
		return decoded([]byte(text), "base64")
	case "quoted-printable":
		plain, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(text)))
		if err != nil {
			return nil, fmt.Errorf("decoding quoted-printable: %w", err)
		}
		return plain, nil
	}
	return []byte(text), nil
}

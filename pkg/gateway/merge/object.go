package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// SideAnnotation is on every object that is read of a resource of which each side has its own objects: the side that
// has it. It is never stored.
const SideAnnotation = "kubefusion.dev/side"

type fields map[string]json.RawMessage

func encode(value any) json.RawMessage {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("merge: internal error: " + err.Error())
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// sub is the object in a field; nil where the field is missing or null.
func (f fields) sub(name string) (fields, error) {
	var inner fields
	if raw, ok := f[name]; ok {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return nil, fmt.Errorf("%s: want an object: %w", name, err)
		}
	}
	return inner, nil
}

func (f fields) text(name string) string {
	var s string
	if raw, ok := f[name]; !ok || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Meta is what of an object decides about a request.
type Meta struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// Read is an object of a side as clients see it: it names its side, and its resource version is composite. all is the
// version to show; the side's part of it is replaced by the object's own. A Table has its objects treated, a Status and
// what has no metadata stays as it is.
// Returned beside it: the object's own resource version.
func Read(object []byte, side pair.Side, all Version) (shown []byte, own string, err error) {
	if at := find(object); at.asItStands() {
		return at.shown(nil, object, side, all), at.own(object), nil
	}
	return readDecoded(object, side, all)
}

// readDecoded is Read of any object.
func readDecoded(object []byte, side pair.Side, all Version) (shown []byte, own string, err error) {
	var f fields
	if err := json.Unmarshal(object, &f); err != nil {
		return nil, "", err
	}
	switch f.text("kind") {
	case "Status":
		return object, "", nil
	case "Table":
		own, err = f.readTable(side, all, true)
	default:
		own, err = f.read(side, all, true)
	}
	if err != nil {
		return nil, "", err
	}
	return encode(f), own, nil
}

// MetadataAlone is an object as API servers answer with its metadata alone, for those that are too old to.
// Errors: no JSON object.
func MetadataAlone(object []byte) ([]byte, error) {
	var metadata json.RawMessage
	if at := find(object); at.usual && at.metadata != (span{}) {
		metadata = object[at.metadata.from:at.metadata.to]
	} else {
		var f fields
		if err := json.Unmarshal(object, &f); err != nil {
			return nil, err
		}
		if metadata = f["metadata"]; metadata == nil {
			metadata = json.RawMessage("{}")
		}
	}
	return fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, metadata), nil
}

// ReadBookmark is the object of a bookmark: a resource version and nothing else.
func ReadBookmark(object []byte, side pair.Side, all Version) (shown []byte, own string, err error) {
	var f fields
	if err := json.Unmarshal(object, &f); err != nil {
		return nil, "", err
	}
	if f.text("kind") == "Table" { // with the row of an object that has nothing but the version
		own, err = f.readTable(side, all, false)
	} else {
		own, err = f.read(side, all, false)
	}
	if err == nil && own == "" {
		err = errors.New("a bookmark without a resource version")
	}
	if err != nil {
		return nil, "", err
	}
	return encode(f), own, nil
}

func (f fields) read(side pair.Side, all Version, named bool) (own string, err error) {
	metadata, err := f.sub("metadata")
	if err != nil || metadata == nil {
		return "", err
	}
	if own = metadata.text("resourceVersion"); own != "" {
		metadata["resourceVersion"] = encode(all.With(side, own).String())
	}
	if named {
		annotations, err := metadata.sub("annotations")
		if err != nil {
			return "", err
		}
		if annotations == nil {
			annotations = fields{}
		}
		annotations[SideAnnotation] = encode(side)
		metadata["annotations"] = encode(annotations)
	}
	f["metadata"] = encode(metadata)
	return own, nil
}

// readTable treats the objects of a table's rows. The resource version of the table is that of its last row where the
// table has none of its own, as in watch events.
func (f fields) readTable(side pair.Side, all Version, named bool) (own string, err error) {
	var rows []fields
	if raw, ok := f["rows"]; ok {
		var texts []json.RawMessage
		if err := json.Unmarshal(raw, &texts); err == nil && len(texts) > limitRows {
			return "", fmt.Errorf("%d rows, more than %d", len(texts), limitRows)
		}
		if err := json.Unmarshal(raw, &rows); err != nil {
			return "", fmt.Errorf("rows: %w", err)
		}
	}
	for _, row := range rows {
		object, err := row.sub("object")
		if err != nil {
			return "", err
		}
		if object == nil {
			continue
		}
		if own, err = object.read(side, all, named); err != nil {
			return "", err
		}
		row["object"] = encode(object)
	}
	if rows != nil {
		f["rows"] = encode(rows)
	}
	metadata, err := f.sub("metadata")
	if err != nil {
		return "", err
	}
	if version := metadata.text("resourceVersion"); version != "" {
		own = version
		metadata["resourceVersion"] = encode(all.With(side, own).String())
		f["metadata"] = encode(metadata)
	}
	return own, nil
}

// Write is an object that a client sends, or a merge patch of one, as its side stores it: without the annotation, with
// the resource version of that side.
// Errors: no JSON object; ErrForeignVersion, wrapped: a resource version of the other side alone, or of an API server.
func Write(object []byte, side pair.Side) ([]byte, error) {
	var f fields
	if err := json.Unmarshal(object, &f); err != nil {
		return nil, err
	}
	metadata, err := f.sub("metadata")
	if err != nil {
		return nil, err
	}
	if metadata != nil {
		if err := metadata.write(side); err != nil {
			return nil, err
		}
		f["metadata"] = encode(metadata)
	}
	return encode(f), nil
}

func (f fields) write(side pair.Side) error {
	if raw, ok := f["resourceVersion"]; ok {
		version, err := writeVersion(raw, side)
		if err != nil {
			return fmt.Errorf("metadata.resourceVersion: %w", err)
		}
		f["resourceVersion"] = version
	}
	annotations, err := f.sub("annotations")
	if err != nil || annotations == nil {
		return err
	}
	if _, ok := annotations[SideAnnotation]; !ok {
		return nil
	}
	delete(annotations, SideAnnotation)
	if len(annotations) == 0 {
		delete(f, "annotations") // in a patch, {} would be as good; in an object nothing is what was stored
		return nil
	}
	f["annotations"] = encode(annotations)
	return nil
}

// writeVersion is a resource version that a client sends, on the side.
func writeVersion(raw json.RawMessage, side pair.Side) (json.RawMessage, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || text == "" || text == "0" {
		return raw, nil // null, "", and what the server refuses
	}
	version, err := ParseVersion(text)
	if err != nil {
		return nil, err
	}
	if version.Of(side) == "" {
		return nil, fmt.Errorf("%q %w of the %s side", text, ErrForeignVersion, side)
	}
	return encode(version.Of(side)), nil
}

// ErrTestFailed: an operation of a JSON patch tests the annotation of the side for another value.
var ErrTestFailed = errors.New("a test of the JSON patch failed")

const (
	annotationsPath = "/metadata/annotations"
	versionPath     = "/metadata/resourceVersion"
)

var annotationPath = annotationsPath + "/" + strings.ReplaceAll(SideAnnotation, "/", "~1")

// WritePatch is a patch that a client sends, as its side understands it. The kinds of patches are those of their
// content types: a JSON patch is a list of operations, the others are objects.
// Errors: as Write; ErrTestFailed, wrapped.
func WritePatch(patch []byte, contentType string, side pair.Side) ([]byte, error) {
	if contentType != "application/json-patch+json" {
		return Write(patch, side)
	}
	var operations []fields
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, err
	}
	kept := []fields{}
	for _, operation := range operations {
		op, path := operation.text("op"), operation.text("path")
		if op == "test" {
			if err := operation.test(path, side); err != nil {
				return nil, err
			}
		}
		if from := operation.text("from"); from == annotationPath && (op == "copy" || op == "move") {
			operation = fields{"op": encode("add"), "path": encode(path), "value": encode(side)} // it stays where it is
		}
		switch path {
		case annotationPath: // it is what it is
			continue
		case versionPath:
			if raw, ok := operation["value"]; ok {
				version, err := writeVersion(raw, side)
				if err != nil {
					return nil, err
				}
				operation["value"] = version
			}
		case annotationsPath, "/metadata", "":
			if err := operation.writeValue(path, side); err != nil {
				return nil, err
			}
			if path == annotationsPath && op == "test" && string(operation["value"]) == "{}" {
				operation["value"] = json.RawMessage("null") // what has no annotations has no empty ones
			}
		}
		kept = append(kept, operation)
	}
	return encode(kept), nil
}

// test carries out what an operation tests of the annotation of the side, which is on every object that was read.
func (f fields) test(path string, side pair.Side) error {
	value := f["value"]
	for _, step := range map[string][]string{annotationPath: {}, annotationsPath: {SideAnnotation},
		"/metadata": {"annotations", SideAnnotation}, "": {"metadata", "annotations", SideAnnotation}}[path] {
		var inner fields
		if err := json.Unmarshal(value, &inner); err != nil {
			return fmt.Errorf("%w: %q: want an object", ErrTestFailed, path)
		}
		value = inner[step]
	}
	if path != annotationPath && path != annotationsPath && path != "/metadata" && path != "" {
		return nil
	}
	var text string
	if json.Unmarshal(value, &text) != nil || text != string(side) {
		return fmt.Errorf("%w: the annotation %s is %q, not %s", ErrTestFailed, SideAnnotation, side, value)
	}
	return nil
}

// writeValue treats the value of an operation of a JSON patch that holds the metadata, or a part of it.
func (f fields) writeValue(path string, side pair.Side) error {
	raw, ok := f["value"]
	if !ok {
		return nil
	}
	wrapped := map[string]string{annotationsPath: `{"metadata":{"annotations":%s}}`,
		"/metadata": `{"metadata":%s}`, "": `%s`}[path]
	written, err := Write(fmt.Appendf(nil, wrapped, raw), side)
	if err != nil {
		return err
	}
	var whole fields
	if err := json.Unmarshal(written, &whole); err != nil {
		return err
	}
	value := json.RawMessage(written)
	if path != "" {
		if value = whole["metadata"]; path == annotationsPath {
			metadata, err := whole.sub("metadata")
			if err != nil {
				return err
			}
			if value = metadata["annotations"]; value == nil {
				value = json.RawMessage("{}")
			}
		}
	}
	f["value"] = value
	return nil
}

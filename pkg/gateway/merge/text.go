package merge

import (
	"bytes"
	"encoding/json"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// places are where the text of an object has what Read changes. A list may have a hundred megabytes of objects: to
// decode and encode them takes thirty times as long as to write them with a few bytes more.
type places struct {
	kind, namespace, name          string
	metadata, version, annotations span
	// usual: the object has each of these at most once, and nothing in them that only a decoder understands. One that
	// has is decoded.
	usual bool
}

// span is a part of a text. The zero value is none.
type span struct{ from, to int }

func (s span) of(text []byte) []byte { return text[s.from:s.to] }

// within is where a part of a text lies that is a slice of it.
func within(text, part []byte) span {
	from := cap(text) - cap(part)
	return span{from, from + len(part)}
}

// find finds the places in an object. Its text must be valid JSON.
func find(object []byte) places {
	p := places{usual: true}
	err := storage.JSONMembers(object, func(key, value []byte) bool {
		switch string(key) {
		case "kind":
			p.text(&p.kind, value)
		case "metadata":
			p.place(&p.metadata, object, value, '{')
		}
		return p.usual
	})
	if err != nil || !p.usual || p.metadata == (span{}) {
		p.usual = p.usual && err == nil
		return p
	}
	err = storage.JSONMembers(p.metadata.of(object), func(key, value []byte) bool {
		switch string(key) {
		case "namespace":
			p.text(&p.namespace, value)
		case "name":
			p.text(&p.name, value)
		case "resourceVersion":
			p.place(&p.version, object, value, '"')
			p.usual = p.usual && bytes.IndexByte(value, '\\') < 0
		case "annotations":
			p.place(&p.annotations, object, value, '{')
		}
		return p.usual
	})
	if err != nil || !p.usual || p.annotations == (span{}) {
		p.usual = p.usual && err == nil
		return p
	}
	err = storage.JSONMembers(p.annotations.of(object), func(key, _ []byte) bool {
		p.usual = string(key) != SideAnnotation
		return p.usual
	})
	p.usual = p.usual && err == nil
	return p
}

func (p *places) place(at *span, object, value []byte, first byte) {
	p.usual = *at == (span{}) && value[0] == first
	*at = within(object, value)
}

func (p *places) text(into *string, value []byte) {
	p.usual = *into == "" && value[0] == '"' && bytes.IndexByte(value, '\\') < 0
	if p.usual {
		*into = string(value[1 : len(value)-1])
	}
}

// own is the object's resource version; "" where it has none.
func (p *places) own(object []byte) string {
	if p.version == (span{}) {
		return ""
	}
	return string(object[p.version.from+1 : p.version.to-1])
}

// asItStands reports whether the object is shown by its text. A Table has objects of its own in it, and a Status stays
// as it is.
func (p *places) asItStands() bool { return p.usual && p.kind != "Table" && p.kind != "Status" }

// sideMember is the annotation of a side as a member of an object.
var sideMember = map[pair.Side]string{
	pair.Legacy: string(encode(SideAnnotation)) + ":" + string(encode(pair.Legacy)),
	pair.Modern: string(encode(SideAnnotation)) + ":" + string(encode(pair.Modern)),
}

// edit replaces a part of a text.
type edit struct {
	at   span
	with []byte
}

// shown appends a usual object as Read shows it.
func (p *places) shown(out, object []byte, side pair.Side, all Version) []byte {
	if p.metadata == (span{}) {
		return append(out, object...)
	}
	edits := make([]edit, 0, 2)
	if p.annotations != (span{}) {
		edits = append(edits, first(object, p.annotations, sideMember[side]))
	} else {
		edits = append(edits, first(object, p.metadata, `"annotations":{`+sideMember[side]+`}`))
	}
	if own := p.own(object); own != "" {
		edits = append(edits, edit{p.version, encode(all.With(side, own).String())})
	}
	if len(edits) == 2 && edits[1].at.from < edits[0].at.from {
		edits[0], edits[1] = edits[1], edits[0]
	}
	from := 0
	for _, e := range edits {
		out = append(append(out, object[from:e.at.from]...), e.with...)
		from = e.at.to
	}
	return append(out, object[from:]...)
}

// first adds a member to the object at a place, before its others.
func first(text []byte, at span, member string) edit {
	inside := span{at.from + 1, at.from + 1}
	if len(bytes.TrimSpace(text[inside.from:at.to-1])) > 0 {
		member += ","
	}
	return edit{inside, []byte(member)}
}

// members takes an object apart. The text must be valid JSON; the texts are parts of it. Errors: no object.
func members(text []byte) (fields, error) {
	f := fields{}
	if storage.JSONMembers(text, func(key, value []byte) bool {
		f[string(key)] = value
		return true
	}) != nil {
		return nil, json.Unmarshal(text, &f) // which says what it is; null is no error
	}
	return f, nil
}

// elements takes an array apart, as members does an object. The text must be valid JSON.
func elements(text []byte) ([]json.RawMessage, error) {
	if text[0] != '[' { // null, or an error
		var none []json.RawMessage
		err := json.Unmarshal(text, &none)
		return none, err
	}
	var all []json.RawMessage
	err := storage.JSONElements(text, func(value []byte) bool {
		all = append(all, value)
		return true
	})
	return all, err
}

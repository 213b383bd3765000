package merge

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

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

// find finds the places in an object. usual is false for what is no JSON, too.
func find(object []byte) places {
	s, p := scanner{text: object}, places{}
	if !s.object(&p) || s.space() < len(object) {
		p.usual = false
	}
	return p
}

// reads takes a text, and goes on whatever it finds.
func (p *places) reads(into *string, value []byte) bool {
	if p.usual = p.plain(value) && p.usual && *into == "" && value[0] == '"'; p.usual {
		*into = string(value[1 : len(value)-1])
	}
	return true
}

// begins reports whether a value begins as a usual one that was not there before.
func (p *places) begins(before span, s *scanner, first byte) bool {
	p.usual = p.usual && before == (span{}) && s.at < len(s.text) && s.text[s.at] == first
	return p.usual
}

// plain has what is written with escapes decoded, as a key may be another way to write one that matters, and what is no
// UTF-8, for which a decoder puts something else.
func (p *places) plain(text []byte) bool {
	p.usual = p.usual && bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text)
	return true
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

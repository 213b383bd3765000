package merge

import (
	"encoding/json"
	"errors"
	"strings"
)

// Text is JSON that was read once from its begin to its end: a list may have a hundred megabytes, so that what is to be
// known before it is taken apart is found out in one pass.
type Text struct {
	json     []byte
	elements int64
}

// ReadText checks the text. Errors: it is not JSON.
func ReadText(text []byte) (Text, error) {
	s := scanner{text: text, elements: 1}
	if s.value(0) && s.space() == len(text) {
		return Text{text, s.elements}, nil
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil { // which says what is wrong, and where
		return Text{}, err
	}
	return Text{}, errors.New("not JSON")
}

// elementBytes is about what an object of a list takes beside its text, and what a field of the list itself does.
const elementBytes = 512

// HeldBytes is about what ParseList makes of the text, beside it: an empty object is two bytes.
func (t Text) HeldBytes() int64 { return t.elements * elementBytes }

// limitDepth is how deep values may be in others, as for encoding/json.
const limitDepth = 10_000

// scanner says of a text what json.Valid does, in half of its time, and counts.
type scanner struct {
	text     []byte
	at       int
	elements int64 // fields of the outermost value, and elements of those fields
}

// space goes on to the next byte that is no white space, and returns its index.
func (s *scanner) space() int {
	for s.at < len(s.text) && (s.text[s.at] <= ' ') && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
	return s.at
}

// skip goes on behind the byte, if it is the next.
func (s *scanner) skip(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value goes on behind the next value, which is in depth others.
func (s *scanner) value(depth int) bool {
	if s.space() == len(s.text) {
		return false
	}
	switch s.text[s.at] {
	case '"':
		return s.quoted()
	case '{':
		return s.list(depth+1, '}')
	case '[':
		return s.list(depth+1, ']')
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

// list goes on behind an object or an array.
func (s *scanner) list(depth int, end byte) bool {
	if s.at++; depth > limitDepth {
		return false
	}
	if s.space(); s.skip(end) {
		return true
	}
	for {
		if end == '}' {
			if s.space(); !s.quoted() {
				return false
			}
			if s.space(); !s.skip(':') {
				return false
			}
		}
		if !s.value(depth) {
			return false
		}
		if s.space(); s.skip(end) {
			return true
		}
		if !s.skip(',') {
			return false
		}
		if depth <= 2 {
			s.elements++
		}
	}
}

// members goes on behind an object. member goes on behind the value of a member, whose key stands there as it is
// written.
func (s *scanner) members(member func(key []byte) bool) bool {
	if s.space(); !s.skip('{') {
		return false
	}
	if s.space(); s.skip('}') {
		return true
	}
	for {
		from := s.space()
		if !s.quoted() {
			return false
		}
		key := s.text[from+1 : s.at-1]
		if s.space(); !s.skip(':') {
			return false
		}
		if s.space(); !member(key) {
			return false
		}
		if s.space(); s.skip('}') {
			return true
		}
		if !s.skip(',') {
			return false
		}
	}
}

// object goes on behind an object with which the text begins, and finds its places on the way, as find does.
func (s *scanner) object(p *places) bool {
	*p = places{usual: true}
	return s.members(func(key []byte) bool {
		at := s.at
		switch string(key) {
		case "kind":
			return s.value(1) && p.reads(&p.kind, s.text[at:s.at])
		case "metadata":
			if !p.begins(p.metadata, s, '{') {
				return s.value(1)
			}
			ok := s.metadata(p)
			p.metadata = span{at, s.at}
			return ok
		}
		return p.plain(key) && s.value(1)
	})
}

func (s *scanner) metadata(p *places) bool {
	return s.members(func(key []byte) bool {
		at := s.at
		switch string(key) {
		case "namespace":
			return s.value(2) && p.reads(&p.namespace, s.text[at:s.at])
		case "name":
			return s.value(2) && p.reads(&p.name, s.text[at:s.at])
		case "resourceVersion":
			p.begins(p.version, s, '"')
			if !s.value(2) {
				return false
			}
			p.version = span{at, s.at}
			return p.plain(s.text[at:s.at])
		case "annotations":
			if !p.begins(p.annotations, s, '{') {
				return s.value(2)
			}
			ok := s.members(func(key []byte) bool {
				p.usual = p.usual && string(key) != SideAnnotation
				return p.plain(key) && s.value(3)
			})
			p.annotations = span{at, s.at}
			return ok
		}
		return p.plain(key) && s.value(2)
	})
}

// plain are the bytes that stand for themselves in a string. Whether they are UTF-8 is not looked at.
var plain = func() (table [256]bool) {
	for c := range table {
		table[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return table
}()

// quoted goes on behind a string.
func (s *scanner) quoted() bool {
	if !s.skip('"') {
		return false
	}
	for {
		rest := s.text[s.at:]
		n := 0
		for n < len(rest) && plain[rest[n]] {
			n++
		}
		if s.at += n; s.skip('"') {
			return true
		}
		if !s.skip('\\') || !s.escape() {
			return false
		}
	}
}

// escape goes on behind what follows a backslash.
func (s *scanner) escape() bool {
	if s.at == len(s.text) {
		return false
	}
	c := s.text[s.at]
	s.at++
	if c != 'u' {
		return strings.IndexByte(`"\/bfnrt`, c) >= 0
	}
	for range 4 {
		if s.at == len(s.text) || strings.IndexByte("0123456789abcdefABCDEF", s.text[s.at]) < 0 {
			return false
		}
		s.at++
	}
	return true
}

func (s *scanner) word(w string) bool {
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		return s.digits()
	}
	return true
}

// digits goes on behind at least one.
func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}

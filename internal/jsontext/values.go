package jsontext

// Values counts what is in JSON that is read in pieces. The zero value has read nothing.
type Values struct {
	values, objects  int64
	inside, escaping bool // a string; behind a backslash
}

// Count counts the next piece.
func (v *Values) Count(text []byte) {
	for _, c := range text {
		switch {
		case v.escaping:
			v.escaping = false
		case v.inside:
			v.escaping, v.inside = c == '\\', c != '"'
		case c == '"':
			v.inside = true
		case c == ',' || c == '[':
			v.values++
		case c == '{':
			v.values++
			v.objects++
		}
	}
}

// Bytes is about what the values take when they are decoded. What counts are the values, not the length of their text:
// an empty object takes two bytes of text, and 200 times as many in memory.
func (v *Values) Bytes() int64 {
	const (
		valueBytes  = 48  // in a list or a map
		objectBytes = 400 // a map with room for eight fields
	)
	return (v.values+1)*valueBytes + v.objects*objectBytes
}

// DecodedBytes is about what JSON takes when it is decoded, beside its text.
func DecodedBytes(text []byte) int64 {
	var v Values
	v.Count(text)
	return v.Bytes()
}

// Fits reports whether JSON takes no more than the limit when it is decoded. A short text does whatever is in it.
func Fits(text []byte, limitBytes int64) bool {
	const mostPerByte = 256
	return int64(len(text)) <= limitBytes/mostPerByte || DecodedBytes(text) <= limitBytes
}

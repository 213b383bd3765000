package adopt

import "fmt"

// limitMadeBytes bounds what variables and packed files make of all that is read together: by them, as by aliases, a
// few bytes become gigabytes.
const limitMadeBytes = 64 << 20

// wordBytes is what a word counts beyond its text, which may be empty: a script puts lists of words together as it does
// texts.
const wordBytes = 64

// limitReadBytes bounds the texts of files that are held together: far above what starts a control plane.
const limitReadBytes = 64 << 20

// limitWords bounds the words, variables and mounts of all command lines that are read together: they are looked for
// among each other. A question to a person counts as many.
const (
	limitWords = 20_000
	question   = 20
)

// beyondError is why a bound refuses something.
type beyondError struct{ text string }

func (e *beyondError) Error() string { return e.text }

func beyond(format string, values ...any) error { return &beyondError{fmt.Sprintf(format, values...)} }

// made is how much that is, and how much was read.
type made struct{ bytes, texts, parts int }

// read reports whether a text of so many bytes may be held beside the others.
func (m *made) read(n int) bool {
	m.texts += n
	return m.texts <= limitReadBytes
}

// take reports whether there may be so many bytes more. After the first time that there may not, there may be none.
func (m *made) take(n int) bool {
	m.bytes += n
	return !m.over()
}

// count reports whether there may be so many parts of command lines more, as take does.
func (m *made) count(n int) bool {
	m.parts += n
	return !m.over()
}

func (m *made) over() bool {
	return m.bytes > limitMadeBytes || m.parts > limitWords || m.texts > limitReadBytes
}

// err is why something is ignored when there is too much; nil when there is not.
func (m *made) err() error {
	switch {
	case m.bytes > limitMadeBytes:
		return beyond("variables and packed files make more than %d bytes", limitMadeBytes)
	case m.texts > limitReadBytes:
		return beyond("the files up to this one, of which some may be read several times, hold more than %d bytes",
			limitReadBytes)
	case m.parts > limitWords:
		return beyond("command lines up to this one have more than %d words and variables, or more than %d parts "+
			"that only the machine can tell", limitWords, limitWords/question)
	}
	return nil
}

// start takes a component, unless there is too much of it.
func (r *reader) start(p Process) {
	if !r.made.count(len(p.Words) + len(p.Command) + len(p.Env) + len(p.Mounts) + len(p.unseen)) {
		r.ignored(p.Place)
		return
	}
	r.processes = append(r.processes, p)
}

// ignored notes that something is not read since there is too much, and reports whether that is so.
func (r *reader) ignored(place string) bool {
	err := r.made.err()
	if err != nil {
		r.note(place, "is ignored: %v", err)
	}
	return err != nil
}

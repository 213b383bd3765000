package golden

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Texts are the sentences of several golden files: each stands once, with the places and the cases that have it, so
// that a sentence which changes rewrites one file. The zero value is ready for use.
type Texts struct {
	places map[string]map[string]map[string]bool // text, place, case
	cases  map[string]bool
}

// Add notes that a case has the text at a place; an empty text is none.
func (x *Texts) Add(text, place, name string) {
	if x.places == nil {
		x.places, x.cases = map[string]map[string]map[string]bool{}, map[string]bool{}
	}
	x.cases[name] = true
	if text == "" {
		return
	}
	if x.places[text] == nil {
		x.places[text] = map[string]map[string]bool{}
	}
	if x.places[text][place] == nil {
		x.places[text][place] = map[string]bool{}
	}
	x.places[text][place][name] = true
}

// File compares the texts with a file, or rewrites it under -update.
// Shape:  the text; below it, indented, a line for each place with the cases that have it there; an empty line.
func (x *Texts) File(t *testing.T, file string) {
	t.Helper()
	var b bytes.Buffer
	for _, text := range slices.Sorted(maps.Keys(x.places)) {
		fmt.Fprintln(&b, text)
		for _, place := range slices.Sorted(maps.Keys(x.places[text])) {
			cases := strings.Join(slices.Sorted(maps.Keys(x.places[text][place])), " ")
			if len(x.places[text][place]) == len(x.cases) {
				cases = "every case"
			}
			fmt.Fprintf(&b, "    %s: %s\n", place, cases)
		}
		fmt.Fprintln(&b)
	}
	File(t, file, b.Bytes())
}

// A Form takes the sentences out of a text: say is called for each with the place where it stood, and a mark stays.
type Form func(data []byte, say func(text, place string)) []byte

// mark is what stays where a sentence stood.
const mark = "..."

// Comments are the lines that start with #, of YAML and units. Lines of one comment are one sentence, and its place is
// the first word below it, without the value of a flag; a line that names flags itself starts one about them.
func Comments(data []byte, say func(text, place string)) []byte {
	var out bytes.Buffer
	var comment []string
	place := ""
	flush := func(below string) {
		if len(comment) > 0 {
			say(strings.Join(comment, " "), cmp.Or(place, below))
		}
		comment, place = nil, ""
	}
	for line := range strings.Lines(string(data)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			flush(subject(text))
			out.WriteString(line)
			continue
		}
		text = strings.TrimSpace(text)
		kept := line[:strings.Index(line, "#")] + "# "
		if m := aboutFlags.FindStringSubmatch(text); m != nil {
			flush(m[1])
			kept, place, text = kept+m[0], m[1], text[len(m[0]):]
		}
		if comment = append(comment, text); len(comment) == 1 {
			fmt.Fprintln(&out, kept+mark)
		}
	}
	flush("the end")
	return out.Bytes()
}

var aboutFlags = regexp.MustCompile(`^(--[^:]*): `)

// subject is what a comment is about: the first word of the line below it, without punctuation around it.
func subject(line string) string {
	return cmp.Or(firstWord.FindString(line), "an empty line")
}

var firstWord = regexp.MustCompile(`(--)?[A-Za-z0-9$][^=:, "']*`)

var (
	fenced = regexp.MustCompile(`^( *)(.*?)(\s+# )(.*)$`) // a command and what is said behind it
	bullet = regexp.MustCompile(`^(\s*(?:- |\d+\. )?)(.*)$`)
	prose  = regexp.MustCompile(`\S+ \S+ \S+ \S+`) // a cell of fewer words is a name
)

// Markdown takes the paragraphs, the items of lists, the comments behind commands, and the cells of tables that are
// sentences. Their place is the heading above them.
func Markdown(data []byte, say func(text, place string)) []byte {
	var out bytes.Buffer
	var paragraph []string
	place, code := "the head", false
	flush := func() {
		if len(paragraph) > 0 {
			say(strings.Join(paragraph, " "), place)
			paragraph = nil
		}
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		text := strings.TrimSpace(line)
		switch fence := strings.HasPrefix(text, "```"); {
		case fence:
			flush()
			code = !code
			fmt.Fprintln(&out, line)
		case code:
			if m := fenced.FindStringSubmatch(line); m != nil {
				say(m[4], place)
				line = m[1] + m[2] + m[3] + mark
			}
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(text, "#"):
			flush()
			place = strings.TrimLeft(text, "# ")
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(text, "|"):
			flush()
			cells := strings.Split(line, "|")
			for i, cell := range cells {
				if prose.MatchString(cell) {
					say(strings.TrimSpace(cell), place)
					cells[i] = " " + mark + " "
				}
			}
			fmt.Fprintln(&out, strings.Join(cells, "|"))
		case text == "":
			flush()
			fmt.Fprintln(&out, line)
		default:
			m := bullet.FindStringSubmatch(line)
			if strings.TrimSpace(m[1]) != "" {
				flush()
			}
			if paragraph = append(paragraph, m[2]); len(paragraph) == 1 {
				fmt.Fprintln(&out, m[1]+mark)
			}
		}
	}
	flush()
	return out.Bytes()
}

package hub

import (
	"fmt"
	"math"
	"regexp/syntax"
	"strings"
)

// generator makes objects that a schema allows, for most schemas at the first attempt. Objects of one seed are the same
// everywhere.
type generator struct {
	next  func() uint64
	words []string // texts that the rules treat specially: separators, values
	dense int      // how many of 10 optional fields an object has
}

func (g *generator) below(n int) int { return int(g.next() % uint64(n)) }

func (g *generator) chance(ofTen int) bool { return g.below(10) < ofTen }

// object makes an object of a version; whether the schema allows it is for a validator to say.
func (g *generator) object(d *Definition, version string) map[string]any {
	g.dense = []int{0, 10, 3, 7}[g.below(4)]
	s := d.Schemas[version]
	object, _ := g.value(s, 0).(map[string]any)
	metadata := map[string]any{
		"name":            fmt.Sprintf("object-%d", g.below(1000)),
		"uid":             fmt.Sprintf("%08x-0000-4000-8000-000000000000", uint32(g.next())),
		"resourceVersion": fmt.Sprint(g.below(100000)), "generation": int64(g.below(100)),
		"creationTimestamp": "2020-01-02T03:04:05Z",
	}
	if d.Namespaced {
		metadata["namespace"] = "default"
	}
	if g.chance(g.dense) {
		metadata["labels"] = map[string]any{"app": "a", "example.com/team": "b"}
		metadata["annotations"] = map[string]any{"example.com/note": g.text(0, 30)}
		metadata["finalizers"] = []any{"example.com/wait"}
	}
	object["apiVersion"], object["kind"], object["metadata"] = d.Group+"/"+version, d.Kind, metadata
	return object
}

func (g *generator) value(s *Schema, depth int) any {
	switch {
	case s == nil:
		return g.anything(depth)
	case s.Enum != nil:
		return s.Enum[g.below(len(s.Enum))]
	case s.Nullable && g.chance(1):
		return nil
	}
	switch s.shape() {
	case "anything":
		return g.anything(depth)
	case "integer or string":
		if g.chance(5) {
			return int64(g.below(100))
		}
		return fmt.Sprintf("%d%%", g.below(101))
	case "object", "map":
		return g.fields(s, depth)
	case "array":
		return g.list(s, depth)
	case "integer":
		return g.integer(s)
	case "number":
		if g.chance(5) {
			return g.integer(s)
		}
		low, high := bounds(s)
		return math.Round((low+(high-low)*float64(g.below(1000))/1000)*100) / 100
	case "boolean":
		return g.chance(5)
	}
	return g.string(s)
}

func (g *generator) fields(s *Schema, depth int) map[string]any {
	object := map[string]any{}
	for _, name := range s.names() {
		if depth == 0 && (name == "metadata" || name == "apiVersion" || name == "kind") {
			continue
		}
		if s.requires(name) || g.chance(g.dense) {
			object[name] = g.value(s.Properties[name], depth+1)
		}
	}
	low, high := counts(s.MinProperties, s.MaxProperties, 3)
	if s.AdditionalProperties != nil && s.AdditionalProperties.allows && depth > 0 || s.Preserve && depth > 0 &&
		g.chance(g.dense) {
		for n := low + int64(g.below(int(max(high-low, 0)+1))); n > 0; n-- {
			object[fmt.Sprintf("key-%d", g.below(20))] = g.value(s.valueSchema(), depth+1)
		}
	}
	if s.Embedded {
		object["apiVersion"], object["kind"] = "v1", "ConfigMap"
		object["metadata"] = map[string]any{"name": "embedded"}
	}
	return object
}

// counts are how many there are: up to usual where the schema says nothing, or a few more than it wants at least.
func counts(least, most *int64, usual int64) (low, high int64) {
	high = usual
	if least != nil {
		low, high = *least, *least+2
	}
	if most != nil {
		high = min(high, *most)
	}
	return low, high
}

func (g *generator) list(s *Schema, depth int) any {
	low, high := counts(s.MinItems, s.MaxItems, 3)
	list := []any{}
	seen := map[string]bool{}
	n := low + int64(g.below(int(max(high-low, 0)+1)))
	for attempts := 0; int64(len(list)) < n && attempts < 50; attempts++ {
		item := g.value(s.Items, depth+1)
		var identity any
		switch element, _ := item.(map[string]any); {
		case s.ListType == "map":
			identity = keysOf(element, s.ListMapKeys)
		case s.ListType == "set" || s.UniqueItems:
			identity = item
		}
		if identity != nil {
			if d := digest(identity); seen[d] {
				continue
			} else {
				seen[d] = true
			}
		}
		list = append(list, item)
	}
	return list
}

func bounds(s *Schema) (low, high float64) {
	low, high = -5, 1000
	if s.Minimum != nil {
		low = *s.Minimum
		high = low + 1000
	}
	if s.Maximum != nil {
		high = *s.Maximum
		if s.Minimum == nil {
			low = min(low, high-1000)
		}
	}
	switch s.Format {
	case "int32":
		low, high = max(low, math.MinInt32), min(high, math.MaxInt32)
	}
	return low, high
}

func (g *generator) integer(s *Schema) int64 {
	low, high := bounds(s)
	first, last := int64(math.Ceil(low)), int64(math.Floor(high))
	if s.ExclusiveMinimum && float64(first) == low {
		first++
	}
	if s.ExclusiveMaximum && float64(last) == high {
		last--
	}
	n := last
	switch span := last - first; {
	case span <= 0 || g.chance(1):
		n = first
	case g.chance(7): // what is small is found more often, and read more easily
		n = first + int64(g.below(int(min(span, 20)+1)))
	case g.chance(7):
		n = first + int64(g.next()%uint64(min(span, 1<<30)+1))
	}
	if s.MultipleOf != nil && *s.MultipleOf >= 1 {
		step := int64(*s.MultipleOf)
		if n -= n % step; n < first {
			n += step
		}
	}
	return n
}

func (g *generator) anything(depth int) any {
	kinds := 6
	if depth > 4 {
		kinds = 4
	}
	switch g.below(kinds) {
	case 0:
		return int64(g.below(100))
	case 1:
		return g.chance(5)
	case 2:
		return float64(g.below(100)) + 0.5
	case 3:
		return g.text(0, 8)
	case 4:
		return map[string]any{"a": g.anything(depth + 1), "b": g.anything(depth + 1)}
	}
	return []any{g.anything(depth + 1)}
}

// formats are texts of the formats that API servers check.
var formats = map[string][]string{
	"date-time": {"2020-01-02T03:04:05Z", "1999-12-31T23:59:59.5Z"}, "date": {"2020-01-02"},
	"duration": {"1h30m", "5s"}, "email": {"a@example.com"},
	"ipv4": {"192.0.2.1", "198.51.100.7"}, "ipv6": {"2001:db8::1"}, "cidr": {"192.0.2.0/24"},
	"mac": {"00:00:5e:00:53:01"}, "hostname": {"host.example.com"},
	"uri": {"https://example.com/a?b=c"}, "uuid": {"123e4567-e89b-12d3-a456-426614174000"},
	"uuid3": {"123e4567-e89b-32d3-a456-426614174000"},
	"uuid4": {"123e4567-e89b-42d3-a456-426614174000"}, "uuid5": {"123e4567-e89b-52d3-a456-426614174000"},
	"byte": {"aGVsbG8=", ""}, "hexcolor": {"#00ff00"},
	"isbn": {"978-0321751041"}, "isbn10": {"0321751043"}, "isbn13": {"978-0321751041"},
	"creditcard": {"4111111111111111"}, "ssn": {"123-45-6789"},
	"bsonobjectid": {"507f1f77bcf86cd799439011"}, "rgbcolor": {"rgb(1,2,3)"}, "password": {"secret"},
}

func (g *generator) string(s *Schema) string {
	if texts := formats[s.Format]; len(texts) > 0 && s.Pattern == "" {
		return texts[g.below(len(texts))]
	}
	low, high := int64(0), int64(24)
	if s.MinLength != nil {
		low = *s.MinLength
		high = low + 24
	}
	if s.MaxLength != nil {
		high = min(high, *s.MaxLength)
	}
	if s.Pattern == "" {
		return g.text(int(low), int(high))
	}
	expression, err := syntax.Parse(s.Pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	text := ""
	for range 20 {
		var b strings.Builder
		g.match(&b, expression)
		text = b.String()
		if n := int64(len([]rune(text))); n >= low && (s.MaxLength == nil || n <= *s.MaxLength) {
			break
		}
	}
	return text
}

// text is letters, now and then with words of the rules, spaces, or letters that take more than a byte.
func (g *generator) text(low, high int) string {
	n := low + g.below(max(high-low, 0)+1)
	var runes []rune
	for len(runes) < n {
		switch {
		case len(g.words) > 0 && g.chance(2):
			runes = append(runes, []rune(g.words[g.below(len(g.words))])...)
		case g.chance(1):
			runes = append(runes, []rune(" é世-.,:/\"\\0")[g.below(11)])
		default:
			runes = append(runes, rune('a'+g.below(26)))
		}
	}
	return string(runes[:n])
}

// limitRepeat bounds what * and + make.
const limitRepeat = 6

// match writes a text that the expression matches; assertions in the middle of it are not looked at.
func (g *generator) match(b *strings.Builder, e *syntax.Regexp) {
	repeat := func(low, high int) {
		if high < 0 || high > low+limitRepeat {
			high = low + limitRepeat
		}
		for n := low + g.below(high-low+1); n > 0; n-- {
			g.match(b, e.Sub[0])
		}
	}
	switch e.Op {
	case syntax.OpLiteral:
		b.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		b.WriteRune(g.oneOf(e.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteRune(rune('a' + g.below(26)))
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpRepeat:
		repeat(e.Min, e.Max)
	case syntax.OpAlternate:
		g.match(b, e.Sub[g.below(len(e.Sub))])
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range e.Sub {
			g.match(b, sub)
		}
	}
}

// oneOf picks a rune of a class, which is pairs of first and last; a printable one of ASCII where it has some.
func (g *generator) oneOf(class []rune) rune {
	for attempts := 0; attempts < 20; attempts++ {
		i := 2 * g.below(len(class)/2)
		low, high := max(class[i], ' '), min(class[i+1], '~')
		if low <= high {
			return low + rune(g.below(int(high-low)+1))
		}
	}
	return class[0]
}

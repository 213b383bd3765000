package hub

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// What a rules file has to say of itself.
const (
	APIVersion = "kubefusion.dev/v1alpha1"
	Kind       = "ConversionRules"
)

// Rules is a rules file: how the versions of one CRD become its hub version, and are made from it.
type Rules struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		CRD      string    `json:"crd"` // its name: pizzas.example.com
		Hub      string    `json:"hub"`
		Versions []Version `json:"versions"`
	} `json:"spec"`

	lines strictyaml.Lines
	name  string
}

// Version is a version of the CRD and its rules with the hub.
type Version struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules,omitempty"`
}

// Rule is one of the following. "Field" is a path in the version, "hub" one in the hub.
type Rule struct {
	Rename   *Pair    `json:"rename,omitempty"`   // the same place, another name
	Move     *Pair    `json:"move,omitempty"`     // a field, or all that is below it, to another place
	Values   *Values  `json:"values,omitempty"`   // a scalar, value by value
	Split    *Split   `json:"split,omitempty"`    // one text in the version, several fields in the hub
	Merge    *Merge   `json:"merge,omitempty"`    // several fields in the version, one text in the hub
	Wrap     *Pair    `json:"wrap,omitempty"`     // one value in the version, a list in the hub
	Unwrap   *Pair    `json:"unwrap,omitempty"`   // a list in the version, one value in the hub
	Constant *Setting `json:"constant,omitempty"` // a field of one side that always is this
	Default  *Setting `json:"default,omitempty"`  // a field of one side that is this where nothing else says what it is
	CEL      *CEL     `json:"cel,omitempty"`      // expressions, for each direction
	Each     *Each    `json:"each,omitempty"`     // rules for every element of a list, or every value of a map
	Keep     *Side    `json:"keep,omitempty"`     // a field of one side that the annotation keeps for it
	Drop     *Side    `json:"drop,omitempty"`     // a field of one side that is lost
}

// Pair is a field of the version and one of the hub.
type Pair struct {
	Field string `json:"field"`
	Hub   string `json:"hub"`
}

// Values maps a scalar. Hub may be left out when it is the same path. Others says what happens to a value without a
// pair: "keep" lets it through, "fail" fails the conversion; without it, the schemas must allow no other value.
type Values struct {
	Field  string      `json:"field"`
	Hub    string      `json:"hub,omitempty"`
	Pairs  []ValuePair `json:"pairs"`
	Others string      `json:"others,omitempty"`
}

// ValuePair says that a value of the version is this one of the hub, in both directions or, with Only, in "toHub" or
// "fromHub".
type ValuePair struct {
	Field any    `json:"field"`
	Hub   any    `json:"hub"`
	Only  string `json:"only,omitempty"`
}

// Split is a text of the version whose parts are fields of the hub. The last part takes what is left.
type Split struct {
	Field     string   `json:"field"`
	Separator string   `json:"separator"`
	Hub       []string `json:"hub"`
}

// Merge is the reverse of Split: fields of the version are parts of a text of the hub.
type Merge struct {
	Fields    []string `json:"fields"`
	Separator string   `json:"separator"`
	Hub       string   `json:"hub"`
}

// Setting is a value of a field of one side.
type Setting struct {
	Field string `json:"field,omitempty"`
	Hub   string `json:"hub,omitempty"`
	Value any    `json:"value"`
}

// Side is a field of one side.
type Side struct {
	Field string `json:"field,omitempty"`
	Hub   string `json:"hub,omitempty"`
}

// CEL sets fields by expressions over self, the object of the other side, or in each the element, whose object is
// object.
type CEL struct {
	ToHub   []Expression `json:"toHub"`
	FromHub []Expression `json:"fromHub"`
}

// Expression sets one field to what it evaluates to; optional.none() leaves it out, and so does a When that is false.
type Expression struct {
	Set        string `json:"set"`
	Expression string `json:"expression"`
	When       string `json:"when,omitempty"`
}

// Each applies rules, whose paths start at the element, to each element. Hub may be left out when it is the same path.
type Each struct {
	Field string `json:"field"`
	Hub   string `json:"hub,omitempty"`
	Rules []Rule `json:"rules"`
}

var format = strictyaml.Format{Noun: "rules file", APIVersion: APIVersion, Kind: Kind, LimitBytes: 1 << 20,
	LimitFields: 20_000}

// Parse reads a rules file, YAML or JSON, and judges what can be judged without the CRD.
// Errors: every problem, joined, each with NAME:LINE and the path of the field. Safe for concurrent use.
func Parse(name string, data []byte) (*Rules, error) {
	r := &Rules{name: name}
	ps, ok := format.Decode(name, data, r)
	r.lines = ps.Lines
	if ok {
		r.validate(ps)
	}
	if err := ps.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Rules) validate(ps *strictyaml.Problems) {
	for _, required := range []struct{ path, value string }{{"apiVersion", r.APIVersion}, {"kind", r.Kind},
		{"spec.crd", r.Spec.CRD}, {"spec.hub", r.Spec.Hub}} {
		if required.value == "" && ps.Lines.Trusts(required.path) {
			ps.Addf(required.path, "is missing")
		}
	}
	if len(r.Spec.Versions) == 0 && ps.Lines.Trusts("spec.versions") {
		ps.Addf("spec.versions", "want at least one version beside the hub")
	}
	for i, version := range r.Spec.Versions {
		at := fmt.Sprintf("spec.versions[%d]", i)
		switch {
		case version.Name == "" && ps.Lines.Trusts(at+".name"):
			ps.Addf(at+".name", "is missing")
		case version.Name == r.Spec.Hub && version.Name != "":
			ps.Addf(at+".name", "%q is the hub; rules are between it and another version", version.Name)
		case slices.ContainsFunc(r.Spec.Versions[:i], func(v Version) bool { return v.Name == version.Name }):
			ps.Addf(at+".name", "%q has rules above", version.Name)
		}
		validateRules(ps, at+".rules", version.Rules)
	}
}

// validateRules checks that every rule is one rule; what it says is judged when it is compiled.
func validateRules(ps *strictyaml.Problems, at string, rules []Rule) {
	for i, rule := range rules {
		at := fmt.Sprintf("%s[%d]", at, i)
		names := rule.kinds()
		switch {
		case len(names) == 0 && ps.Lines.Trusts(at):
			ps.Addf(at, "is no rule; want one of rename, move, values, split, merge, wrap, unwrap, constant, "+
				"default, cel, each, keep, drop")
		case len(names) > 1:
			ps.Addf(at, "is %s at once; want one rule in each item of the list", strings.Join(names, " and "))
		case rule.Each != nil:
			validateRules(ps, at+".each.rules", rule.Each.Rules)
		}
	}
}

// kinds names what the rule is.
func (r Rule) kinds() []string {
	var names []string
	for _, kind := range []struct {
		name string
		is   bool
	}{
		{"rename", r.Rename != nil}, {"move", r.Move != nil}, {"values", r.Values != nil}, {"split", r.Split != nil},
		{"merge", r.Merge != nil},
		{"wrap", r.Wrap != nil}, {"unwrap", r.Unwrap != nil}, {"constant", r.Constant != nil},
		{"default", r.Default != nil}, {"cel", r.CEL != nil},
		{"each", r.Each != nil}, {"keep", r.Keep != nil}, {"drop", r.Drop != nil},
	} {
		if kind.is {
			names = append(names, kind.name)
		}
	}
	return names
}

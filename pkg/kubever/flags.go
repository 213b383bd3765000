package kubever

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// The components of a control plane whose flags are known.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// FlagFact is what is known about one command-line flag of one component.
// Shape: {kube-apiserver storage-versions 1.6-1.13 1.12-1.13}; Name has no leading dashes.
// The zero FlagFact is in no version. Every flag that the parser of a component accepts has one, hidden ones included.
type FlagFact struct {
	Component  string
	Name       string
	Minors     Ranges // minors whose parser accepts the flag
	Deprecated Ranges // minors that mark it deprecated, or whose help text starts with DEPRECATED
	Source     string

	defaults    []during[string]
	lateIn      Ranges
	deprecation []during[string]
	only        []during[string]
}

// In reports whether the component accepts the flag at the minor. Accepting is not heeding: --insecure-port of 1.20
// takes only 0.
func (f FlagFact) In(m Minor) bool { return f.Minors.Has(m) }

// DeprecatedIn reports whether the component calls the flag deprecated at the minor.
func (f FlagFact) DeprecatedIn(m Minor) bool { return f.Deprecated.Has(m) }

// Default returns the flag's default at the minor, printed as its help prints it: lists as [a,b], durations as 1m0s.
// false: the minor lacks the flag, or the default depends on the machine or on other flags.
func (f FlagFact) Default(m Minor) (string, bool) { return at(f.defaults, m) }

// DeprecationMessage returns what the component prints when the flag is used at the minor, "" for nothing.
func (f FlagFact) DeprecationMessage(m Minor) string {
	message, _ := at(f.deprecation, m)
	return message
}

// OnlyValue returns the value without which the component exits when it is given the flag; false where it takes others.
func (f FlagFact) OnlyValue(m Minor) (string, bool) { return at(f.only, m) }

// NotInDotZero reports whether the flag arrived after the first release of the minor: 1.6.13 has --request-timeout,
// 1.6.0 refuses it.
func (f FlagFact) NotInDotZero(m Minor) bool { return f.lateIn.Has(m) }

type flagKey struct{ component, name string }

var flagTable = sync.OnceValue(decodeFlags)

func decodeFlags() map[flagKey]FlagFact {
	rows := readTable("flags.tsv", 6)
	flags := make(map[flagKey]FlagFact, len(rows))
	for _, r := range rows {
		f := FlagFact{
			Component: r.text(0), Name: r.text(1), Minors: r.ranges(2), Deprecated: r.ranges(3), lateIn: r.ranges(4),
			defaults: timeline(r, 5, verbatim),
			Source:   "flag definitions read from the source of each minor, see Release",
		}
		if _, twice := flags[flagKey{f.Component, f.Name}]; twice {
			r.fail("flag %s occurs twice", f.Name)
		}
		flags[flagKey{f.Component, f.Name}] = f
	}
	for _, r := range readTable("deprecations.tsv", 4) {
		f, ok := flags[flagKey{r.text(0), r.text(1)}]
		if !ok {
			r.fail("no flag %s", r.text(1))
		}
		f.deprecation = append(f.deprecation, during[string]{r.ranges(2), r.text(3)})
		flags[flagKey{f.Component, f.Name}] = f
	}
	for _, r := range readTable("flag-values.tsv", 4) {
		f, ok := flags[flagKey{r.text(0), r.text(1)}]
		if !ok {
			r.fail("no flag %s", r.text(1))
		}
		f.only = append(f.only, during[string]{r.ranges(2), r.text(3)})
		flags[flagKey{f.Component, f.Name}] = f
	}
	return flags
}

// Flag finds a flag by its name without dashes; the zero FlagFact when no minor of the component has it.
func Flag(component, name string) FlagFact { return flagTable()[flagKey{component, name}] }

// FlagName is the name of a flag with dashes: components take underscores for dashes, so arguments are compared by it.
func FlagName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// FlagGiven finds the flag that an argument sets, however it is spelled. Some minors know a flag with underscores only.
func FlagGiven(component, name string, m Minor) FlagFact {
	if f := Flag(component, name); f.In(m) {
		return f
	}
	return Flag(component, FlagName(name))
}

// Flags lists the flags that the component accepts at the minor, by name.
func Flags(component string, m Minor) []FlagFact {
	var flags []FlagFact
	for _, f := range flagTable() {
		if f.Component == component && f.In(m) {
			flags = append(flags, f)
		}
	}
	slices.SortFunc(flags, func(a, b FlagFact) int { return cmp.Compare(a.Name, b.Name) })
	return flags
}

// Components lists the components whose flags are known.
func Components() []string { return []string{APIServer, ControllerManager, Scheduler} }

var releaseTable = sync.OnceValue(decodeReleases)

func decodeReleases() map[Minor]string {
	releases := make(map[Minor]string)
	for _, r := range readTable("releases.tsv", 2) {
		releases[r.parseMinor(r.text(0))] = r.text(1)
	}
	return releases
}

// Release names the patch release that was read for a minor, such as "1.6.13". Facts hold for it, and for the minor's
// other releases as far as NotInDotZero and the notes of a fact do not say otherwise.
func Release(m Minor) string { return releaseTable()[m] }

var aliasTable = sync.OnceValue(decodeAliases)

type flagAlias struct {
	minors Ranges
	means  string
}

func decodeAliases() map[flagKey]flagAlias {
	aliases := map[flagKey]flagAlias{}
	for _, r := range readTable("flag-aliases.tsv", 4) {
		key := flagKey{r.text(0), r.text(1)}
		if _, twice := aliases[key]; twice || Flag(key.component, key.name).Name == "" ||
			Flag(key.component, r.text(3)).Name == "" {
			r.fail("flag %s: want a flag, once, and the flag that it means", r.text(1))
		}
		aliases[key] = flagAlias{minors: r.ranges(2), means: r.text(3)}
	}
	return aliases
}

// Meant is the name of the flag that an argument sets at the minor, whatever the spelling: --address of an old API
// server is --insecure-bind-address. A name that is no other flag's alias means itself, with dashes for underscores.
func Meant(component, name string, m Minor) string {
	name = FlagName(name)
	if alias, ok := aliasTable()[flagKey{component, name}]; ok && alias.minors.Has(m) {
		return alias.means
	}
	return name
}

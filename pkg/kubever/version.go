// Package kubever knows what differs between the minor versions of Kubernetes: a version, parsed and ordered, and
// embedded tables of facts (resources, stored versions, flags, feature gates, controllers, locks ...), each with a
// range of minors and a source. Nothing else in fusionctl knows a version number.
package kubever

import (
	"fmt"
	"strconv"
	"strings"
)

// Minor is the N of Kubernetes 1.N.
type Minor int

// Oldest and Newest bound the minors for which the tables hold facts. A version outside is refused, not guessed.
const (
	Oldest Minor = 6
	Newest Minor = 37
)

// Suggested is the minor of the modern side where no version is named: the newest whose servers run with every change.
const Suggested Minor = 36

// Library is the minor of the k8s.io modules that fusionctl is built with: of their types, conversions and validation.
// There can be facts about a newer one before the modules beside them (controller-runtime) are there for it.
const Library Minor = 36

// FactsOf is the day on which the tables were last held against the sources and the programs of the releases.
const FactsOf = "2026-11-25"

// String prints the minor as 1.N.
func (m Minor) String() string { return "1." + strconv.Itoa(int(m)) }

// MarshalText prints the minor as 1.N, so that JSON and YAML show versions and not bare numbers.
func (m Minor) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText printed, and any version that Parse accepts.
func (m *Minor) UnmarshalText(text []byte) error {
	version, err := Parse(string(text))
	if err != nil {
		return err
	}
	*m = version.Minor
	return nil
}

// Known reports whether the tables hold facts about the minor.
func (m Minor) Known() bool { return m >= Oldest && m <= Newest }

// Minors lists every known minor, oldest first.
func Minors() []Minor {
	minors := make([]Minor, 0, Newest-Oldest+1)
	for m := Oldest; m <= Newest; m++ {
		minors = append(minors, m)
	}
	return minors
}

// Version is a Kubernetes version as a user writes it: "1.6", "v1.6.13", "1.6.13-acme.4", "v1.20.4+k3s1".
// Facts hold per minor: a vendor's build counts as its minor.
type Version struct {
	Minor    Minor
	Patch    int    // meaningful only when HasPatch
	HasPatch bool   // false for "1.6"
	Suffix   string // what a vendor appended, with its separator: "-acme.4", "+k3s1"; "" for a plain release
}

// Parse reads a version. A leading "v" is accepted; the major must be 1 and the minor within Oldest..Newest.
// Errors name what was given and the range of versions that are known.
func Parse(s string) (Version, error) {
	number := strings.TrimPrefix(s, "v")
	var version Version
	if i := strings.IndexAny(number, "-+"); i >= 0 {
		number, version.Suffix = number[:i], number[i:]
		if !isVendorSuffix(version.Suffix) {
			return Version{}, fmt.Errorf("%q: want a Kubernetes version, such as 1.31, v1.6.13 or v1.6.13-acme.4", s)
		}
	}
	parts := strings.Split(number, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "1" {
		return Version{}, fmt.Errorf("%q: want a Kubernetes version, such as 1.31, v1.6.13 or v1.6.13-acme.4", s)
	}
	minor, ok := parseNumber(parts[1])
	if !ok {
		return Version{}, fmt.Errorf("%q: want a Kubernetes version, such as 1.31, v1.6.13 or v1.6.13-acme.4", s)
	}
	version.Minor = Minor(minor)
	if len(parts) == 3 {
		if version.Patch, version.HasPatch = parseNumber(parts[2]); !version.HasPatch {
			return Version{}, fmt.Errorf("%q: want a Kubernetes version, such as 1.31, v1.6.13 or v1.6.13-acme.4", s)
		}
	}
	if !version.Minor.Known() {
		return Version{}, fmt.Errorf("%q: no facts about this minor; known are %s to %s", s, Oldest, Newest)
	}
	return version, nil
}

// parseNumber reads a decimal without sign and without leading zeros, at most four digits long.
func parseNumber(s string) (int, bool) {
	if s == "" || len(s) > 4 || (len(s) > 1 && s[0] == '0') {
		return 0, false
	}
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0, false
		}
		n = n*10 + int(r-'0')
	}
	return n, true
}

// isVendorSuffix accepts what semantic versions allow behind the patch: separators and the characters of identifiers.
func isVendorSuffix(suffix string) bool {
	if len(suffix) < 2 {
		return false
	}
	for _, r := range suffix {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune(".-+_", r):
		default:
			return false
		}
	}
	return true
}

// String prints the version without a leading "v", as it would be written in a spec.
func (v Version) String() string {
	s := v.Minor.String()
	if v.HasPatch {
		s += "." + strconv.Itoa(v.Patch)
	}
	return s + v.Suffix
}

// MarshalText prints the version as String does.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a version as Parse does.
func (v *Version) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*v = parsed
	return nil
}

// Range is a span of minors, both ends included.
type Range struct{ From, To Minor }

// Has reports whether the minor lies in the range.
func (r Range) Has(m Minor) bool { return r.From <= m && m <= r.To }

// String prints the range as 1.6-1.9, or as 1.6 when it holds one minor.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// Ranges is a set of minors as ascending spans that do not touch.
type Ranges []Range

// Spans gathers ascending minors into ranges: 1.6, 1.7, 1.9 are 1.6-1.7,1.9.
func Spans(minors []Minor) Ranges {
	var ranges Ranges
	for _, m := range minors {
		if last := len(ranges) - 1; last >= 0 && ranges[last].To == m-1 {
			ranges[last].To = m
		} else {
			ranges = append(ranges, Range{From: m, To: m})
		}
	}
	return ranges
}

// Has reports whether one of the spans holds the minor.
func (rs Ranges) Has(m Minor) bool {
	for _, r := range rs {
		if r.Has(m) {
			return true
		}
	}
	return false
}

// String prints the spans, separated by commas; "never" for none.
func (rs Ranges) String() string {
	if len(rs) == 0 {
		return "never"
	}
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

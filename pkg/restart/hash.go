// Package restart answers one question: an old container meets a new kubelet, will it be restarted?
//
// A kubelet notes a hash of the container's definition when it starts a container, and compares it with a hash computed
// anew whenever it looks at the pod. What is hashed changed over the years, so that a new kubelet may find every
// container changed although none changed. The package computes the hash that a kubelet of any minor from 1.6 to 1.37
// would compute, from tables of facts: what is hashed (algorithms), and which fields the Go types had (fields.txt).
//
//   - [Hash] is the hash of one container, [Matches] a comparison for kubelets that accept the hashes of older ones;
//   - [Objects] and [ParseRuntime] read pods, and what a container runtime recorded, from streams and files;
//   - [Route.Judge] says for each container of a pod whether it will be restarted, and why; what cannot be decided is
//     [Unknown];
//   - [Tally] adds up verdicts, [Paths] compares the ways through the minors, [Order] keeps PodDisruptionBudgets whole;
//   - [Route.Rewrites] computes what would have to be recorded for a container to be kept.
package restart

import (
	"errors"
	"fmt"
	"hash/adler32"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Sum is the hash of a container, as the kubelet holds it: 32 bits, widened.
type Sum uint64

// String prints the hash as the kubelet records it: hexadecimal, lower case, without leading zeros.
func (s Sum) String() string { return strconv.FormatUint(uint64(s), 16) }

// MarshalText prints the hash as String does.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a hash as ParseSum does.
func (s *Sum) UnmarshalText(text []byte) error {
	sum, ok := ParseSum(string(text))
	if !ok {
		return fmt.Errorf("%q: want a hash, such as 48c72f38", text)
	}
	*s = sum
	return nil
}

// ParseSum reads a recorded hash as the kubelet does. What is missing or cannot be parsed is no hash; a kubelet takes
// it for 0.
func ParseSum(recorded string) (Sum, bool) {
	n, err := strconv.ParseUint(recorded, 16, 64)
	return Sum(n), err == nil
}

// Source says how the kubelet came to hold the container, which shows in dumps of the struct (1.6 to 1.15).
type Source string

const (
	// API is a pod read from the API server: lists without elements are gone, quantities are in canonical form, and the
	// divisor of a resourceFieldRef, when absent, is 0.
	API Source = "api"
	// File is a container exactly as given: a pod read from a file or a URL, or a container that a kubelet holds in
	// memory.
	File Source = "file"
)

// algorithm is how kubelets of a range of minors turn a container into a hash.
type algorithm struct {
	of     kubever.Behaviour // the kubelets that use it
	what   string            // completes "the 1.16 kubelet hashes ..."
	counts which             // of the fields that some minors have and others do not
	hash   func(c *v1.Container, f form, keep bool) (sum uint32, text []byte, err error)
}

// which says which fields of a type make a difference by being there.
type which int

const (
	noFields  which = iota
	setFields       // those that are not empty
	allFields
)

// form is what the text of a container depends on.
type form struct {
	minor       kubever.Minor
	source      Source
	longEscapes bool
}

// algorithms are the three of them; each hashes its text with FNV-1a.
var algorithms = []algorithm{
	{kubever.BehaviourContainerHashStruct, "the struct", allFields, dumpContainer},
	{kubever.BehaviourContainerHashJSON, "JSON", setFields, jsonContainer},
	{kubever.BehaviourContainerHashNameImage, "only name and image", noFields, jsonNameImage},
}

// algorithmsByMinor are looked up for every hash.
var algorithmsByMinor = sync.OnceValue(func() map[kubever.Minor]*algorithm {
	found := map[kubever.Minor]*algorithm{}
	for _, minor := range kubever.Minors() {
		for i := range algorithms {
			if kubever.Behaves(algorithms[i].of, minor) {
				found[minor] = &algorithms[i]
			}
		}
	}
	return found
})

func algorithmOf(minor kubever.Minor) (*algorithm, error) {
	if a := algorithmsByMinor()[minor]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("kubelet %s: no facts about this minor; known are %s to %s", minor, kubever.Oldest,
		kubever.Newest)
}

// Hash is the hash that a kubelet of the minor computes for the container, and records when it starts it. Shape: the
// container is hashed as given: nothing is defaulted. Fields that the minor does not know are left out. Errors: a nil
// container, a minor without facts, and a port that is neither number nor string, which no API server accepts. Source:
// algorithms; for patch releases of 1.27 to 1.29 see [Hashes]. It keeps and changes nothing. Safe for concurrent use.
func Hash(container *v1.Container, minor kubever.Minor, source Source) (Sum, error) {
	return hash(container, form{minor, source, hasLongEscapes(kubever.Version{Minor: minor, HasPatch: true})})
}

// Hashes is what kubelets of a version may compute: one hash, or two when it depends on a patch release that is not
// named. That is so for minors 1.27 to 1.29 and a container that has a backspace or a form feed in one of its strings.
func Hashes(container *v1.Container, version kubever.Version, source Source) ([]Sum, error) {
	long := hasLongEscapes(version)
	sum, err := hash(container, form{version.Minor, source, long})
	if err != nil {
		return nil, err
	}
	if version.HasPatch || escapesSince(version.Minor) == 0 {
		return []Sum{sum}, nil
	}
	other, err := hash(container, form{version.Minor, source, !long})
	if err != nil {
		return nil, err
	}
	if other == sum {
		return []Sum{sum}, nil
	}
	return []Sum{sum, other}, nil
}

func hash(container *v1.Container, f form) (Sum, error) {
	if container == nil {
		return 0, errors.New("hashing a container: it is nil")
	}
	a, err := algorithmOf(f.minor)
	if err != nil {
		return 0, err
	}
	sum, _, err := a.hash(container, f, false)
	if err != nil {
		return 0, fmt.Errorf("hashing container %q: %w", container.Name, err)
	}
	return Sum(sum), nil
}

// legacyHash is the hash of kubelets that run containers by dockertools or rkt: adler32 of the same dump.
func legacyHash(container *v1.Container, minor kubever.Minor, source Source) (Sum, error) {
	_, text, err := dumpContainer(container, form{minor: minor, source: source}, true)
	return Sum(adler32.Checksum(text)), err
}

// hasLongEscapes reports whether the kubelet writes \u0008 and \u000c into the JSON that it hashes. A version without a
// patch counts as its first release.
func hasLongEscapes(v kubever.Version) bool {
	v.HasPatch = true
	return !kubever.BehavesIn(kubever.BehaviourJSONShortEscapes, v)
}

// escapesSince is the first patch release of the minor with short escapes, 0 where the patch makes no difference.
func escapesSince(m kubever.Minor) int {
	return kubever.BehavesSince(kubever.BehaviourJSONShortEscapes, m)
}

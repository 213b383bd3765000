package kubever

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// EtcdMinor is the minor of an etcd release.
type EtcdMinor struct{ Major, Minor int }

func (m EtcdMinor) String() string { return fmt.Sprintf("%d.%d", m.Major, m.Minor) }

// Before reports whether the minor is older than another one.
func (m EtcdMinor) Before(o EtcdMinor) bool {
	return m.Major < o.Major || m.Major == o.Major && m.Minor < o.Minor
}

// ParseEtcd reads the minor of an etcd release: "3.6.8", "v3.6", "3.5.21-vendor.1".
func ParseEtcd(release string) (m EtcdMinor, ok bool) {
	m, _, ok = parseEtcd(release)
	return m, ok
}

// EtcdPatch reads the patch level of an etcd release, 21 of "3.5.21-vendor.1"; false where it has none.
func EtcdPatch(release string) (patch int, ok bool) {
	_, rest, ok := parseEtcd(release)
	digits, isPatch := strings.CutPrefix(rest, ".")
	digits = digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]
	patch, err := strconv.Atoi(digits)
	return patch, ok && isPatch && err == nil
}

func parseEtcd(release string) (m EtcdMinor, rest string, ok bool) {
	major, rest, ok := strings.Cut(strings.TrimPrefix(release, "v"), ".")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	var errMajor, errMinor error
	m.Major, errMajor = strconv.Atoi(major)
	m.Minor, errMinor = strconv.Atoi(rest[:digits])
	if !ok || errMajor != nil || errMinor != nil || m.Major < 0 {
		return EtcdMinor{}, "", false
	}
	return m, rest[digits:], true
}

// EtcdUpgrade is the way from one minor of etcd to the next, and back.
type EtcdUpgrade struct {
	From, To EtcdMinor
	// LeastPatch is the first patch release of From whose members may go on.
	LeastPatch int
	// Downgrades: members of To can come back once all of them run. Where they cannot, they can until the last one
	// runs.
	Downgrades bool
	// Settles: members of To do not start on logs with requests of version 2, which releases before From wrote.
	Settles bool
	Why     string // of both
}

var etcdTable = sync.OnceValue(func() (list []EtcdUpgrade) {
	for _, r := range readTable("etcd.tsv", 6) {
		u := EtcdUpgrade{Downgrades: r.yes(3), Settles: r.yes(4), Why: r.text(5)}
		var from, to bool
		u.From, from = ParseEtcd(r.text(0))
		u.To, to = ParseEtcd(r.text(1))
		patch, err := strconv.Atoi(r.text(2))
		if !from || !to || err != nil || !u.From.Before(u.To) {
			r.fail("want a minor, the next one, and a patch level")
		}
		u.LeastPatch = patch
		list = append(list, u)
	}
	return list
})

// EtcdUpgrades lists the ways from one minor of etcd to the next, the oldest first.
func EtcdUpgrades() []EtcdUpgrade { return etcdTable() }

// EtcdUpgradeOf returns the way from a minor of etcd to the next, of which one is given: the older of the two.
func EtcdUpgradeOf(from EtcdMinor) (EtcdUpgrade, bool) {
	for _, u := range etcdTable() {
		if u.From == from {
			return u, true
		}
	}
	return EtcdUpgrade{}, false
}

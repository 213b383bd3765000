package kubever

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// EtcdUse is what is known about API servers of a minor on members of an etcd minor.
type EtcdUse string

const (
	// EtcdRun: one was run on such members, and did all that its clients may ask of it.
	EtcdRun EtcdUse = "run"
	// EtcdBetween: none was run, but older and newer ones were on these members, or this one on older and newer
	// members.
	EtcdBetween EtcdUse = "between"
	// EtcdFails: one was seen not to work.
	EtcdFails EtcdUse = "fails"
	// EtcdUnknown: nothing was seen.
	EtcdUnknown EtcdUse = "unknown"
)

// Works reports whether an API server may be expected to work.
func (u EtcdUse) Works() bool { return u == EtcdRun || u == EtcdBetween }

// EtcdServer is what is known about one minor of etcd as the store of API servers.
type EtcdServer struct {
	Minor EtcdMinor
	// Run are the minors of kube-apiserver that were run on it, Fails those that were seen not to work.
	Run, Fails Ranges
	// CertificateUsers: with authentication on, a client is the user that its certificate names. API servers cannot use
	// an etcd that wants a password.
	CertificateUsers bool
	// Learners: a member may join without a vote, and get it later.
	Learners bool
	Source   string

	progress, status int // the first patch releases; -1 for none
}

var etcdServerTable = sync.OnceValue(func() (list []EtcdServer) {
	for _, r := range readTable("etcd-servers.tsv", 8) {
		s := EtcdServer{Run: r.ranges(1), Fails: r.ranges(2), CertificateUsers: r.yes(3), progress: r.patch(4),
			status: r.patch(5), Learners: r.yes(6), Source: r.text(7)}
		var ok bool
		if s.Minor, ok = ParseEtcd(r.text(0)); !ok || s.Source == "" || overlap(s.Run, s.Fails) {
			r.fail("want a minor of etcd, what was seen, and no minor that both works and fails")
		}
		if len(list) > 0 && !list[len(list)-1].Minor.Before(s.Minor) {
			r.fail("minors of etcd do not ascend")
		}
		list = append(list, s)
	}
	return list
})

// patch reads a patch level, -1 where the table says "-".
func (r row) patch(column int) int {
	if r.text(column) == "" {
		return -1
	}
	n, err := strconv.Atoi(r.text(column))
	if err != nil || n < 0 {
		r.fail("column %d: want a patch level, found %q", column+1, r.text(column))
	}
	return n
}

// EtcdProgress reports whether an API server can ask members of an etcd release, such as "3.5.21", how far a watch is:
// by default, and where the members ask who their clients are. A release without a patch level counts as the last.
func EtcdProgress(release string) (open, users bool) {
	minor, _ := ParseEtcd(release)
	server, known := EtcdServerOf(minor)
	patch := math.MaxInt
	if _, digits, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(release, "v"), minor.String()), "."); ok {
		if n, err := strconv.Atoi(digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]); err == nil {
			patch = n
		}
	}
	open = known && server.progress >= 0 && patch >= server.progress
	return open, open && server.status >= 0 && patch >= server.status
}

// EtcdServers lists the minors of etcd that something is known about, the oldest first.
func EtcdServers() []EtcdServer { return slices.Clone(etcdServerTable()) }

// EtcdServerOf returns what is known about a minor of etcd; false where that is nothing.
func EtcdServerOf(m EtcdMinor) (EtcdServer, bool) {
	for _, s := range etcdServerTable() {
		if s.Minor == m {
			return s, true
		}
	}
	return EtcdServer{}, false
}

// EtcdUseOf returns what is known about API servers of a minor on members of an etcd release, such as "3.5.21".
func EtcdUseOf(m Minor, release string) EtcdUse {
	etcd, ok := ParseEtcd(release)
	if !ok {
		return EtcdUnknown
	}
	server, known := EtcdServerOf(etcd)
	switch {
	case known && server.Fails.Has(m):
		return EtcdFails
	case known && server.Run.Has(m):
		return EtcdRun
	case known && server.runBetween(m):
		return EtcdBetween
	}
	older, newer := false, false
	for _, s := range etcdServerTable() {
		if s.Run.Has(m) || s.runBetween(m) {
			older = older || s.Minor.Before(etcd)
			newer = newer || etcd.Before(s.Minor)
		}
	}
	if older && newer {
		return EtcdBetween
	}
	return EtcdUnknown
}

// runBetween reports whether an older and a newer API server than the minor were run.
func (s EtcdServer) runBetween(m Minor) bool {
	return len(s.Run) > 0 && s.Run[0].From < m && m < s.Run[len(s.Run)-1].To
}

// UnseenOnEtcd says of which minors an API server may not work on members of an etcd release, and the way out; "" where
// all of them may be expected to work.
func UnseenOnEtcd(release string, minors ...Minor) (message, fix string) {
	var unseen, works []string
	how := "not run on it"
	for _, m := range minors {
		use := EtcdUseOf(m, release)
		if use == EtcdFails {
			how = "seen not to work on it"
		}
		if name := APIServer + " " + m.String(); !use.Works() && !slices.Contains(unseen, name) {
			unseen = append(unseen, name)
		}
	}
	if len(unseen) == 0 {
		return "", ""
	}
	for _, s := range etcdServerTable() {
		if !slices.ContainsFunc(minors, func(m Minor) bool { return !EtcdUseOf(m, s.Minor.String()).Works() }) {
			works = append(works, s.Minor.String())
		}
	}
	verb := "was"
	if len(unseen) > 1 {
		verb = "were"
	}
	return fmt.Sprintf("etcd %s: %s %s %s", release, strings.Join(unseen, " and "), verb, how),
		"use an etcd of one of these minors: " + strings.Join(works, ", ")
}

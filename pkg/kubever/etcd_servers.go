package kubever

import (
	"fmt"
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
	// EtcdFails: one was seen not to work, or has the client of one that was.
	EtcdFails EtcdUse = "fails"
	// EtcdUnknown: nothing was seen.
	EtcdUnknown EtcdUse = "unknown"
)

// Works reports whether an API server may be expected to work.
func (u EtcdUse) Works() bool { return u == EtcdRun || u == EtcdBetween }

// EtcdServer is what is known about one minor of etcd as the store of API servers.
type EtcdServer struct {
	Minor EtcdMinor
	// Run are the minors of kube-apiserver that were run on it, Fails those that do not work on it, since some patch
	// release.
	Run, Fails Ranges
	// CertificateUsers: with authentication on, a client is the user that its certificate names. API servers cannot use
	// an etcd that wants a password.
	CertificateUsers bool
	// Learners: a member may join without a vote, and get it later.
	Learners bool
	Source   string

	fails, progress, status int // the first patch releases; -1 for none
}

var etcdServerTable = sync.OnceValue(func() (list []EtcdServer) {
	for _, r := range readTable("etcd-servers.tsv", 9) {
		s := EtcdServer{Run: r.ranges(1), Fails: r.ranges(2), fails: r.patch(3), CertificateUsers: r.yes(4),
			progress: r.patch(5), status: r.patch(6), Learners: r.yes(7), Source: r.text(8)}
		var ok bool
		if s.Minor, ok = ParseEtcd(r.text(0)); !ok || s.Source == "" || len(s.Fails) > 0 != (s.fails >= 0) ||
			s.fails == 0 && overlap(s.Run, s.Fails) {
			r.fail("want a minor of etcd, what was seen, since when what fails does, and no minor that always fails " +
				"and was run")
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

// since reports whether a release of the minor is a patch release or a later one; none is -1. A release without a patch
// level counts as the last.
func (s EtcdServer) since(release string, patch int) bool {
	at, known := EtcdPatch(release)
	return patch >= 0 && (!known || at >= patch)
}

// FailsFrom is the first release on which what fails does, "3.6.16"; "" where that is the first of the minor, or none
// fails.
func (s EtcdServer) FailsFrom() string {
	if s.fails <= 0 {
		return ""
	}
	return fmt.Sprintf("%s.%d", s.Minor, s.fails)
}

// EtcdProgress reports whether an API server can ask members of an etcd release, such as "3.5.21", how far a watch is:
// by default, and where the members ask who their clients are. A release without a patch level counts as the last.
func EtcdProgress(release string) (open, users bool) {
	minor, _ := ParseEtcd(release)
	server, known := EtcdServerOf(minor)
	open = known && server.since(release, server.progress)
	return open, open && server.since(release, server.status)
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

// EtcdUseOf returns what is known about API servers of a minor on members of an etcd release, such as "3.5.21". A
// release without a patch level counts as the last.
func EtcdUseOf(m Minor, release string) EtcdUse {
	etcd, ok := ParseEtcd(release)
	if !ok {
		return EtcdUnknown
	}
	server, known := EtcdServerOf(etcd)
	switch {
	case known && server.Fails.Has(m) && server.since(release, server.fails):
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
	how := [2]string{"was not run on it", "were not run on it"}
	for _, m := range minors {
		use := EtcdUseOf(m, release)
		if use == EtcdFails {
			how = [2]string{"does not work on it", "do not work on it"}
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
		} else if last, ok := s.lastThatWorks(minors); ok {
			works = append(works, last)
		}
	}
	return fmt.Sprintf("etcd %s: %s %s", release, strings.Join(unseen, " and "), how[min(len(unseen), 2)-1]),
		"use an etcd of one of these minors: " + strings.Join(works, ", ")
}

// lastThatWorks is the last release of the minor that API servers of some minors may be expected to work on, as
// "3.5 up to 3.5.34", where later ones do not; false where there is none.
func (s EtcdServer) lastThatWorks(minors []Minor) (string, bool) {
	if s.fails <= 0 {
		return "", false
	}
	last := fmt.Sprintf("%s.%d", s.Minor, s.fails-1)
	return s.Minor.String() + " up to " + last,
		!slices.ContainsFunc(minors, func(m Minor) bool { return !EtcdUseOf(m, last).Works() })
}

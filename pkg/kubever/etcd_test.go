package kubever

import "testing"

func TestEtcdReleases(t *testing.T) {
	for _, test := range []struct {
		release string
		want    EtcdMinor
		ok      bool
		use     EtcdUse // of 1.36
	}{
		{"3.6.8", EtcdMinor{3, 6}, true, EtcdRun}, {"v3.4", EtcdMinor{3, 4}, true, EtcdRun},
		{"3.3.10", EtcdMinor{3, 3}, true, EtcdRun}, {"2.3.8", EtcdMinor{2, 3}, true, EtcdUnknown},
		{"3.2.32", EtcdMinor{3, 2}, true, EtcdBetween}, {"3.0.17", EtcdMinor{3, 0}, true, EtcdUnknown},
		{"3.10.0", EtcdMinor{3, 10}, true, EtcdUnknown}, {"4.0.0", EtcdMinor{4, 0}, true, EtcdUnknown},
		{"3.3-vendor.2", EtcdMinor{3, 3}, true, EtcdRun}, {"3.5.21-acme", EtcdMinor{3, 5}, true, EtcdRun},
		{"", EtcdMinor{}, false, EtcdUnknown}, {"3", EtcdMinor{}, false, EtcdUnknown},
		{"three.four", EtcdMinor{}, false, EtcdUnknown}, {"-1.2", EtcdMinor{}, false, EtcdUnknown},
		{"3.", EtcdMinor{}, false, EtcdUnknown},
	} {
		got, ok := ParseEtcd(test.release)
		if got != test.want || ok != test.ok {
			t.Errorf("ParseEtcd(%q) = %v, %t; want %v, %t", test.release, got, ok, test.want, test.ok)
		}
		if got := EtcdUseOf(36, test.release); got != test.use {
			t.Errorf("EtcdUseOf(1.36, %q) = %q, want %q", test.release, got, test.use)
		}
	}
	for minor, want := range map[Minor]EtcdUse{6: EtcdRun, 7: EtcdBetween, 13: EtcdBetween, 15: EtcdRun} {
		if got := EtcdUseOf(minor, "3.4.21"); got != want || !got.Works() {
			t.Errorf("EtcdUseOf(%s, 3.4.21) = %q, want %q", minor, got, want)
		}
	}
}

// Members that are built with a later HTTP library end the streams of clients that ask for a host of another name.
func TestAPIServersDoNotWorkOnLaterPatchReleasesOfEtcd(t *testing.T) {
	for release, works := range map[string]bool{"3.4.44": true, "3.5.0": true, "3.5.34": true, "v3.5.35": false,
		"3.5.36-acme.1": false, "3.5": false, "3.6.8": true, "3.6.15": true, "3.6.16": false, "3.7.3": true} {
		for minor, client := range map[Minor]bool{21: true, 22: works, 23: works, 24: true} {
			if got := EtcdUseOf(minor, release); got.Works() != client || !client && got != EtcdFails {
				t.Errorf("EtcdUseOf(%s, %q) = %q, want that it works: %t", minor, release, got, client)
			}
		}
	}
	message, fix := UnseenOnEtcd("3.5.35", 22, 36)
	if want := "etcd 3.5.35: kube-apiserver 1.22 does not work on it"; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
	if want := "use an etcd of one of these minors: 3.1, 3.2, 3.3, 3.4, 3.5 up to 3.5.34, 3.6 up to 3.6.15, 3.7"; fix !=
		want {
		t.Errorf("fix %q, want %q", fix, want)
	}
}

func TestEtcdProgress(t *testing.T) {
	for release, want := range map[string][2]bool{"3.3.27": {}, "3.4.30": {}, "3.4.31": {true, true},
		"v3.5.12": {}, "3.5.13-acme": {true, true}, "3.6.8": {true, false}, "3.6.12": {true, true}, "3.6": {true, true},
		"3.7.3": {true, true}, "3.1.20": {}, "9.9.9": {}, "": {}} {
		if open, users := EtcdProgress(release); open != want[0] || users != want[1] {
			t.Errorf("EtcdProgress(%q) = %t, %t; want %v", release, open, users, want)
		}
	}
}

func TestEtcdPatches(t *testing.T) {
	for release, want := range map[string]int{"3.6.8": 8, "v3.5.21-vendor.1": 21, "3.4": -1, "3.4-vendor.2": -1, "": -1,
		"3.5.": -1, "3.5.x": -1, "three.5.1": -1} {
		got, ok := EtcdPatch(release)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("EtcdPatch(%q) = %d, %t; want %d", release, got, ok, want)
		}
	}
}

// TestEtcdUpgradesAreOneMinorEach: etcd goes one minor at a time, so the ways form a line without gaps.
func TestEtcdUpgradesAreOneMinorEach(t *testing.T) {
	list := EtcdUpgrades()
	for i, u := range list {
		if u.To.Major != u.From.Major || u.To.Minor != u.From.Minor+1 || u.Why == "" ||
			i > 0 && list[i-1].To != u.From {
			t.Errorf("row %d: %+v; want one minor, from where the row before ends, and a reason", i, u)
		}
		if got, ok := EtcdUpgradeOf(u.From); !ok || got != u {
			t.Errorf("EtcdUpgradeOf(%s) = %+v, %t", u.From, got, ok)
		}
	}
	if _, ok := EtcdUpgradeOf(EtcdMinor{2, 3}); ok || len(list) == 0 {
		t.Errorf("%d ways, and one from 2.3: %t", len(list), ok)
	}
}

// Every minor has one way to hash a container: a release that is added to the tables needs a row.
func TestEveryMinorHashesContainersInOneWay(t *testing.T) {
	for _, minor := range Minors() {
		ways := 0
		for _, b := range []Behaviour{BehaviourContainerHashStruct, BehaviourContainerHashJSON,
			BehaviourContainerHashNameImage} {
			if Behaves(b, minor) {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s: %d ways to hash a container, want 1", minor, ways)
		}
	}
}

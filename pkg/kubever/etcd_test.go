package kubever

import "testing"

func TestEtcdReleases(t *testing.T) {
	for _, test := range []struct {
		release  string
		want     EtcdMinor
		ok       bool
		untested bool // by API servers that were never seen before 3.4
	}{
		{"3.6.8", EtcdMinor{3, 6}, true, false}, {"v3.4", EtcdMinor{3, 4}, true, false},
		{"3.3.10", EtcdMinor{3, 3}, true, true}, {"2.3.8", EtcdMinor{2, 3}, true, true},
		{"3.10.0", EtcdMinor{3, 10}, true, false}, {"4.0.0", EtcdMinor{4, 0}, true, false},
		{"3.3-vendor.2", EtcdMinor{3, 3}, true, true}, {"3.5.21-acme", EtcdMinor{3, 5}, true, false},
		{"", EtcdMinor{}, false, true}, {"3", EtcdMinor{}, false, true}, {"three.four", EtcdMinor{}, false, true},
		{"-1.2", EtcdMinor{}, false, true}, {"3.", EtcdMinor{}, false, true},
	} {
		got, ok := ParseEtcd(test.release)
		if got != test.want || ok != test.ok {
			t.Errorf("ParseEtcd(%q) = %v, %t; want %v, %t", test.release, got, ok, test.want, test.ok)
		}
		if got := UntestedOnEtcd(36, test.release); got != test.untested {
			t.Errorf("UntestedOnEtcd(1.36, %q) = %t, want %t", test.release, got, test.untested)
		}
		if UntestedOnEtcd(6, test.release) {
			t.Errorf("UntestedOnEtcd(1.6, %q): 1.6 was released with etcd 3.0", test.release)
		}
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

package cli

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesItsSource(t *testing.T) {
	for want, document := range map[string]versionDocument{
		"e68bdd3c0ffee 2026-11-22T20:13:00Z": {Program: "v1.2.3", Commit: "e68bdd3c0ffee",
			Date: "2026-11-22T20:13:00Z"},
		"e68bdd3c0ffee, modified 2026-11-22T20:13:00Z": {Program: "(devel)", Commit: "e68bdd3c0ffee",
			Date: "2026-11-22T20:13:00Z", Modified: true},
		"e68bdd3c0ffee":          {Program: "v1.2.3", Commit: "e68bdd3c0ffee"},
		"that of the tag v1.2.3": {Program: "v1.2.3"},
		"unknown":                {Program: "(devel)"},
	} {
		if got := document.source(); got != want {
			t.Errorf("%+v: %q, want %q", document, got, want)
		}
	}
}

func TestVersionOfEachKindOfBuild(t *testing.T) {
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "e68bdd3c0ffee"},
		{Key: "vcs.time", Value: "2026-11-22T20:13:00Z"}, {Key: "vcs.modified", Value: "true"}}
	for name, test := range map[string]struct {
		release               string
		info                  *debug.BuildInfo
		program, commit, date string
		modified              bool
	}{
		"release": {"v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings}, "v1.2.3",
			"e68bdd3c0ffee", "2026-11-22T20:13:00Z", true},
		"go install of a release": {"", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3", "", "",
			false},
		"go install of a commit": {
			"", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20261122201300-e68bdd3c0ffe"}},
			"v1.2.4-0.20261122201300-e68bdd3c0ffe", "e68bdd3c0ffe", "2026-11-22T20:13:00Z", false},
		"nothing is known": {"", nil, "unknown", "", "", false},
	} {
		got := newVersionDocument(test.release, test.info)
		if got.Program != test.program || got.Commit != test.commit || got.Date != test.date ||
			got.Modified != test.modified {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Go == "" || got.Oldest != "1.6" || got.Newest == "" || got.Platform == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

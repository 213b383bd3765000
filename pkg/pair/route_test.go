package pair

import "testing"

func TestRoute(t *testing.T) {
	const older, newer = "extensions/v1beta1", "apps/v1"
	legacy := View{Store: "core", StoredAs: older, Decodes: []string{older}}
	modern := View{Store: "core", StoredAs: newer, Decodes: []string{older, newer}}
	for name, tc := range map[string]struct {
		owner          Owner
		legacy, modern func(*View)
		want           Route
	}{
		"only the legacy side may write, and the modern side reads it": {owner: OwnerLegacy,
			want: Route{Modern, Legacy}},
		"only the legacy side may write, and the modern side does not decode it": {
			owner: OwnerLegacy, modern: func(v *View) { v.Decodes = []string{newer} }, want: Route{Legacy, Legacy}},
		"only the legacy side may write, and the modern side's watches break": {
			owner: OwnerLegacy, modern: func(v *View) { v.WatchBreaks = []string{older} }, want: Route{Legacy, Legacy}},
		"only the modern side may write, and reads what was there before": {owner: OwnerModern,
			want: Route{Modern, Modern}},
		"only the modern side may write, and neither side reads everything": {
			owner: OwnerModern, modern: func(v *View) { v.Decodes = []string{newer} }, want: Route{Modern, Modern}},
		"only the modern side may write, and watches of what was there before break": {
			owner: OwnerModern, legacy: func(v *View) { v.Decodes = []string{older, newer} },
			modern: func(v *View) { v.WatchBreaks = []string{older} }, want: Route{Legacy, Modern}},
		"both may write, and both read everything": {
			owner: OwnerShared, legacy: func(v *View) {
				v.Decodes = []string{older, newer}
			}, want: Route{Modern, Modern}},
		"both may write, and the modern side alone reads everything": {owner: OwnerShared, want: Route{Modern, Modern}},
		"both may write, and the legacy side alone reads everything": {
			owner: OwnerShared, legacy: func(v *View) { v.Decodes = []string{older, newer} },
			modern: func(v *View) { v.Decodes = []string{newer} }, want: Route{Legacy, Legacy}},
		"both may write, and the modern side's watches break": {
			owner: OwnerShared, legacy: func(v *View) { v.Decodes = []string{older, newer} },
			modern: func(v *View) { v.WatchBreaks = []string{older} }, want: Route{Legacy, Legacy}},
		"both may write, and neither side reads everything": {
			owner: OwnerShared, modern: func(v *View) { v.Decodes = []string{newer} }, want: Route{Modern, Modern}},
		"custom resources of one store have no version": {
			owner: OwnerShared, legacy: func(v *View) {
				*v = View{Store: "core"}
			}, modern: func(v *View) { *v = View{Store: "core"} }, want: Route{Modern, Modern}},
		"each side has its own":       {owner: OwnerSplit, modern: func(v *View) { v.Store = "modern" }},
		"only the legacy side has it": {owner: OwnerLegacy, modern: func(v *View) { *v = View{} }},
		"only the modern side has it": {owner: OwnerModern, legacy: func(v *View) { *v = View{} }},
		"neither side has it": {owner: OwnerSplit, legacy: func(v *View) {
			*v = View{}
		}, modern: func(v *View) { *v = View{} }},
	} {
		r := Resource{Owner: tc.owner, Legacy: legacy, Modern: modern}
		if tc.legacy != nil {
			tc.legacy(&r.Legacy)
		}
		if tc.modern != nil {
			tc.modern(&r.Modern)
		}
		if got := r.Route(); got != tc.want {
			t.Errorf("%s: Route() = %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestOther(t *testing.T) {
	for _, side := range Sides() {
		if side.Other() == side || side.Other().Other() != side {
			t.Errorf("Other() of %s is %s, whose other is %s", side, side.Other(), side.Other().Other())
		}
	}
}

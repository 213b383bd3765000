package scan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

func TestTurnsGoByKeysAndNotByWords(t *testing.T) {
	of := func(key, message string) finding.Finding {
		rule, _, _ := strings.Cut(key, "|")
		return finding.Finding{Rule: rule, Subject: "core:pods", Key: key, Message: message}
	}
	one, other := of("FUS004|core:pods", "1 key in the wrong store"),
		of("FUS130|core:pods|core", "1 object in 1 namespace")
	two := of("FUS004|core:pods", "2 keys, told in other words")
	var got []string
	for _, turned := range Turns([]finding.Finding{one, other}, []finding.Finding{two, of("FUS000|core:pods|x", "x")}) {
		got = append(got, fmt.Sprint(turned.Turn, " ", turned.Finding.Rule))
	}
	if want := []string{"changed FUS004", "appeared FUS000", "disappeared FUS130"}; !slices.Equal(got, want) {
		t.Errorf("Turns = %q, want %q", got, want)
	}
	if turned := Turns([]finding.Finding{one}, []finding.Finding{one}); len(turned) > 0 {
		t.Errorf("Turns of the same findings = %+v", turned)
	}

	// Words alone do not make two findings one.
	a, b, c := of("FUS060|a", "3 pods"), of("FUS060|b", "3 pods"), of("FUS060|c", "3 pods")
	all := []finding.Finding{a, b, c}
	for i := range all {
		left := slices.Delete(slices.Clone(all), i, i+1)
		if turned := Turns(all, left); len(turned) != 1 || turned[0].Turn != Disappeared ||
			turned[0].Finding.Key != all[i].Key {
			t.Errorf("Turns when %q is over = %+v", all[i].Key, turned)
		}
	}
}

func TestGlanceSeesWhatOneKeyShows(t *testing.T) {
	change := func(key string, value []byte) etcd.Change {
		return etcd.Change{Entry: etcd.Entry{Key: []byte("/registry/" + key), Value: value}}
	}
	stray := storetest.Put("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "x", "u", nil)
	deleted := change("deployments/default/gone", nil)
	deleted.Deleted = true
	findings, err := Glance(t.Context(), storetest.SplitMap(), map[string][]etcd.Change{
		"modern": {change("deployments/default/api",
			storetest.Put("apps/v1", "Deployment", "default", "api", "u", nil)),
			change("deployments/default/gone", []byte("x")), deleted},
		"core": {change("pods/default/bad", []byte("k8s\x00\x0a\xff")), change("flowschemas/x", stray)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.Rule+" "+f.Subject+" "+f.Message[:5])
		// its home may have held it for years
		if f.Subject == "core:flowschemas" &&
			!strings.HasSuffix(f.Message, "is not known, because it was not read, or not to its end") {
			t.Errorf("%s says more than changes can show", f.Message)
		}
	}
	if want := []string{"FUS000 core:pods 1 val", "FUS004 core:flowschemas 1 key",
		"FUS004 modern:deployments 1 key"}; !slices.Equal(got, want) {
		t.Errorf("Glance = %q, want %q", got, want)
	}
}

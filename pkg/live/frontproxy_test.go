package live

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// admit gives the API server of a side names of front proxies, and their CA; no names are every name.
func (p *fakePair) admit(side pair.Side, names string) {
	server := p.plan.ComponentsOf(side, "kube-apiserver")[0]
	for i := range p.plan.Components {
		if c := &p.plan.Components[i]; c.Name == server.Name {
			c.Args = slices.DeleteFunc(slices.Clone(c.Args), func(a plan.Arg) bool {
				return a.Name == namesKey || a.Name == authorityKey
			})
			c.Args = append(c.Args, plan.Arg{Name: authorityKey, Value: "/etc/kubernetes/pki/front-proxy-ca.crt"})
			if names != "" {
				c.Args = append(c.Args, plan.Arg{Name: namesKey, Value: names})
			}
		}
	}
}

// publish is what is in the config map of both sides.
func (p *fakePair) publish(data obj) {
	text, err := json.Marshal(obj{"metadata": obj{"name": authenticationMap, "namespace": "kube-system", "uid": "auth"},
		"data": data})
	if err != nil {
		p.t.Fatal(err)
	}
	p.shared("/api/v1/configmaps", string(text))
}

// TestPublishedFrontProxiesAreThoseOfThePlan: the config map is what extension API servers read, whatever the arguments
// say.
func TestPublishedFrontProxiesAreThoseOfThePlan(t *testing.T) {
	authority := func(lifetime time.Duration) string {
		_, pair, err := pki.NewAuthority("front-proxy", pki.LifetimeOf(clock, lifetime))
		if err != nil {
			t.Fatal(err)
		}
		return string(pair.Certificate)
	}
	good, expired := authority(24*time.Hour), authority(-time.Hour)
	for _, test := range []struct {
		name           string
		legacy, modern string // names
		data           obj
		want           []string // words of the one finding; none for silence
	}{
		{"the same", "front-proxy-client,kube", "kube,front-proxy-client", obj{namesKey: `["front-proxy-client","kube"]`,
			authorityKey: good}, nil},
		{"no names of both", "", "", obj{namesKey: "[]"}, nil},
		{"nothing of front proxies", "kube", "kube", obj{"client-ca-file": good}, nil},
		{"one too few", "kube,front-proxy-client", "front-proxy-client", obj{namesKey: `["front-proxy-client"]`},
			[]string{"FUS251 error", "and not kube of the legacy side", "cut off"}},
		{"of the modern side", "kube", "kube,front-proxy-client", obj{namesKey: `["kube"]`},
			[]string{"FUS251 error", "and not front-proxy-client of the modern side"}},
		{"every name of one side", "", "kube", obj{namesKey: `["kube"]`},
			[]string{"FUS251 error", "the legacy API server every name"}},
		{"one too many", "kube", "kube", obj{namesKey: `["kube","left-over"]`},
			[]string{"FUS251 warning", "admits left-over, which neither side has"}},
		{"every name", "kube", "kube", obj{namesKey: `[]`}, []string{"FUS251 warning", "admits every name"}},
		{"no JSON", "kube", "kube", obj{namesKey: "kube"}, []string{"incomplete: configmaps", authenticationMap}},
		{"an expired CA", "kube", "kube", obj{namesKey: `["kube"]`, authorityKey: expired},
			[]string{"FUS251 error", "every CA of front proxies has expired, the last one on 2026-01-02"}},
		{"a new CA beside it", "kube", "kube", obj{namesKey: `["kube"]`, authorityKey: expired + good}, nil},
		{"no certificate", "kube", "kube", obj{namesKey: `["kube"]`, authorityKey: "front-proxy-ca.crt"},
			[]string{"FUS251 error", "holds no certificate"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPair(t, "1.10.13", "")
			p.admit(pair.Legacy, test.legacy)
			p.admit(pair.Modern, test.modern)
			p.publish(test.data)
			p.wants(test.want...)
		})
	}
	p := newPair(t, "1.10.13", "")
	p.modern.fails["/api/v1/namespaces/kube-system/configmaps/"+authenticationMap] = errors.New("forbidden")
	p.wants("incomplete: configmaps", "forbidden")
}

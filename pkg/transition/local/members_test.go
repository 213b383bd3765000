package local

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestMembersThatHaveNotAgreed: a member that has just started answers before it knows on which release all agree. It
// is asked again where that is what is looked at, and believed elsewhere.
func TestMembersThatHaveNotAgreed(t *testing.T) {
	member := etcdtest.Start(t)
	behind, err := url.Parse(member.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	forward := &httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{Protocols: &h2c},
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	states, err := askMembers(t.Context(), &plan.Store{Endpoints: []string{member.Endpoint}}, nil)
	if err != nil || states[0].err != nil || states[0].minor != states[0].cluster {
		t.Fatalf("%v, %+v", err, states)
	}
	release := states[0].release
	newer, ok := kubever.ParseEtcd(release)
	if !ok {
		t.Fatal(release)
	}
	for cluster, want := range map[string]string{release: "", notDecided: "have agreed on nothing yet",
		"else": `"else" is no release`} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				forward.ServeHTTP(w, r)
				return
			}
			w.Write([]byte(`{"etcdserver":"` + release + `","etcdcluster":"` + cluster + `"}`))
		}))
		server.Config.Protocols = &both
		server.Start()
		store := plan.Store{Name: "core", Endpoints: []string{server.URL}}
		members := &transition.Members{Store: store, Minors: []string{newer.String()}}
		err := sameData(t.Context(), []plan.Store{store})
		if believed := cluster != "else"; (err == nil) != believed {
			t.Errorf("%s: the same data: %v", cluster, err)
		} else if err := membersAre(t.Context(), members); (err == nil) != believed {
			t.Errorf("%s: members: %v", cluster, err)
		}
		members.Cluster = newer.String()
		err = membersAre(t.Context(), members)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: members that agree: %v, want %q", cluster, err, want)
		}
		server.Close()
	}
}

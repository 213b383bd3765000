//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// etcdReleases are the releases of etcd that are built.
func etcdReleases(t *testing.T) []rig.EtcdRelease {
	t.Helper()
	releases, err := rig.EtcdReleases(t.Context())
	must(t, err)
	return releases
}

// membersOf starts a store of three members of a release. They ask who their clients are, where clients can say it by
// their certificate.
func membersOf(r *rig.Rig, release rig.EtcdRelease) func(name string) *rig.Etcd {
	return func(name string) *rig.Etcd {
		store := r.StartEtcdOf(name, release, 3)
		if known, _ := kubever.EtcdServerOf(release.Minor); known.CertificateUsers {
			store.Authenticate()
		}
		return store
	}
}

// TestAPIServersOnEtcdReleases: every API server that is built works on three members of every etcd that is built, but
// for those that the facts except: it reads, writes, lists in pages, watches and expires what it keeps, and goes on
// while a member is away.
func TestAPIServersOnEtcdReleases(t *testing.T) {
	t.Parallel()
	all := releases(t)
	for _, etcd := range etcdReleases(t) {
		for _, release := range all {
			t.Run(etcd.Version+" "+release.Version.String(), func(t *testing.T) {
				t.Parallel()
				use := factsKnowOf(t, release, etcd)
				r := rig.New(t)
				store := membersOf(r, etcd)("store")
				server := r.StartAPIServer("apiserver", release.Minor, r.APIServerArgs(release.Minor, store))
				if use == kubever.EtcdFails {
					endsWithoutItsStore(t, server)
					return
				}
				server.WaitReady()
				open, users := kubever.EtcdProgress(etcd.Version)
				if known, _ := kubever.EtcdServerOf(etcd.Minor); known.CertificateUsers {
					open = users
				}
				usesItsStore(t, r, server, open)
				store.Members[0].Kill()
				usesItsStore(t, r, server, open)
			})
		}
	}
}

// factsKnowOf holds the facts against what is run here. What every change builds has a row. What was built on request
// need not have one: that is said, because whoever has it all built is to add it.
func factsKnowOf(t *testing.T, release rig.Release, etcd rig.EtcdRelease) kubever.EtcdUse {
	t.Helper()
	use := kubever.EtcdUseOf(release.Minor, etcd.Version)
	switch {
	case use == kubever.EtcdRun || use == kubever.EtcdFails:
	case release.OnRequest || etcd.OnRequest:
		t.Logf("etcd-servers.tsv of pkg/kubever has no run of %s on etcd %s (%s): add %d to its row when this passes",
			release.Version, etcd.Version, use, release.Minor)
	default:
		t.Errorf("the facts say %q of %s on etcd %s, which is run here", use, release.Version, etcd.Version)
	}
	return use
}

// endsWithoutItsStore: an API server that the facts call unable to use its store gives up, because its members end its
// requests.
func endsWithoutItsStore(t *testing.T, server *rig.APIServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	code, err := server.Exit(ctx)
	must(t, err)
	if code == 0 || !strings.Contains(server.Log(), "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR") {
		t.Errorf("it ended with %d and says nothing of streams that its store terminates", code)
	}
}

// usesItsStore does through an API server what its clients do, and its store must be able to. progress says whether it
// can ask how far a watch is.
func usesItsStore(t *testing.T, r *rig.Rig, server *rig.APIServer, progress bool) {
	t.Helper()
	client := server.Client("admin", "system:masters")
	const maps = "/api/v1/namespaces/default/configmaps"
	var list struct {
		Metadata struct{ Continue, ResourceVersion string }
		Items    []struct{ Metadata struct{ Name string } }
	}
	eventually := func(what string, probe func(context.Context) error) {
		t.Helper()
		r.Eventually(server.Name+" "+what, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a request may hang on a member that is gone
			defer cancel()
			return probe(ctx)
		})
	}
	eventually("lists", func(ctx context.Context) error { return client.Call(ctx, http.MethodGet, maps, nil, &list) })
	watch := watching(t, server, maps+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion)
	for i := range 3 {
		name := fmt.Sprintf("map-%d", i)
		eventually("creates", func(ctx context.Context) error {
			err := client.Call(ctx, http.MethodPost, maps, object{"metadata": object{"name": name}}, nil)
			if rig.Code(err) == http.StatusConflict { // an answer was lost
				return nil
			}
			return err
		})
	}
	eventually("updates", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodPut, maps+"/map-0", object{"metadata": object{"name": "map-0"},
			"data": object{"key": "value"}}, nil)
	})
	var found []string
	eventually("lists in pages", func(ctx context.Context) error {
		found = nil
		for next := ""; ; next = list.Metadata.Continue {
			list.Metadata.Continue, list.Items = "", nil
			if err := client.Call(ctx, http.MethodGet, maps+"?limit=1&continue="+next, nil, &list); err != nil {
				return err
			}
			for _, item := range list.Items {
				found = append(found, item.Metadata.Name)
			}
			if list.Metadata.Continue == "" {
				return nil
			}
		}
	})
	if len(found) < 3 {
		t.Errorf("%s: lists %v, want at least the three that were created", server.Name, found)
	}
	for i := range 3 {
		eventually("deletes", func(ctx context.Context) error {
			err := client.Call(ctx, http.MethodDelete, fmt.Sprintf("%s/map-%d", maps, i), nil, nil)
			if rig.Code(err) == http.StatusNotFound {
				return nil
			}
			return err
		})
	}
	want := []string{"ADDED map-0", "ADDED map-1", "ADDED map-2", "MODIFIED map-0", "DELETED map-0", "DELETED map-1",
		"DELETED map-2"}
	for _, event := range want {
		select {
		case got, ok := <-watch:
			if !ok || got != event {
				t.Errorf("%s: watching says %q, want %q", server.Name, got, event)
				return
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: watching does not say %q", server.Name, event)
			return
		}
	}
	if state, ok := kubever.Gate("WatchList").At(server.Minor); ok && state.Default {
		// Caches of today's clients begin so: what is there, and then a bookmark, which etcd's progress brings.
		eventually("begins a watch with what is there", func(ctx context.Context) error {
			return client.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{
				"metadata": object{"generateName": "another-kind-"}}, nil)
		})
		want := "BOOKMARK "
		if !progress {
			want = "ERROR a watch stream was requested by the client but the required storage feature " +
				"RequestWatchProgress is disabled"
		}
		eventually("begins a watch with "+want, func(context.Context) error { // it asks its store at its start, again
			initial := watching(t, server, maps+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"+
				"&resourceVersionMatch=NotOlderThan")
			select {
			case got := <-initial:
				if got != want {
					return fmt.Errorf("a watch begins with %q", got)
				}
				return nil
			case <-time.After(time.Minute):
				return errors.New("nothing within a minute")
			}
		})
	}
	eventually("keeps an event for a time", func(ctx context.Context) error { // in etcd with a lease
		return client.Call(ctx, http.MethodPost, "/api/v1/namespaces/default/events", object{
			"metadata": object{"generateName": "event-"}, "involvedObject": object{"namespace": "default"}}, nil)
	})
}

// watching sends what a watch of config maps says, TYPE and NAME, until the test ends.
func watching(t *testing.T, server *rig.APIServer, path string) <-chan string {
	t.Helper()
	client, err := rest.HTTPClientFor(server.RESTConfig("admin", "system:masters"))
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	must(t, err)
	response, err := client.Do(request)
	must(t, err)
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			var event struct {
				Type   string
				Object struct {
					Metadata struct{ Name string }
					Message  string // of an error
				}
			}
			if decoder.Decode(&event) != nil {
				return
			}
			if event.Object.Metadata.Name != "kube-root-ca.crt" { // a controller's
				events <- event.Type + " " + event.Object.Metadata.Name + event.Object.Message
			}
		}
	}()
	return events
}

// TestPairsOnEtcdReleases: the pairs that are run with every change work on three members of every other etcd that is
// built, with TLS and users. On those that are built with every change there is time for one pair, another with each
// commit.
func TestPairsOnEtcdReleases(t *testing.T) {
	fixed, _ := possiblePairs(t)
	t.Parallel()
	others := slices.DeleteFunc(etcdReleases(t), func(r rig.EtcdRelease) bool { return r.Everywhere })
	if len(others) == 0 {
		t.Error("no other etcd is built")
	}
	for _, etcd := range others {
		pairs := fixed
		if !etcd.OnRequest && !*everyPair {
			pairs = []rig.PairSpec{ofThisCommit(t, fixed, etcd.Version)}
		}
		for _, s := range pairs {
			t.Run(fmt.Sprintf("%s %s %s+%s", etcd.Version, s.Layout, s.Legacy, s.Modern), func(t *testing.T) {
				t.Parallel()
				r := rig.New(t)
				s.StartStore = membersOf(r, etcd)
				proveThePair(t, r, r.StartPair(s))
				proved(t, s.Layout, s.Legacy, s.Modern, "the same with stores of three members of etcd "+etcd.Version)
			})
		}
	}
}

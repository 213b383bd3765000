//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestEtcdMemberIsKilled: an API server goes on while any member of its three is away, except one that verifies every
// member by the name of the first, where certificates have no other names. That is what rule FUS167 says.
func TestEtcdMemberIsKilled(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		r := rig.New(t)
		for name, minors := range map[string][]kubever.Minor{"apart": {6, 10, 15, 36}, "together": {15}} {
			apart := name == "apart"
			store := r.StartEtcdMembers(name, 3, apart)
			for _, minor := range minors {
				args := append(r.APIServerArgs(minor, store), fmt.Sprintf("--etcd-prefix=/registry-%d", minor))
				server := r.StartAPIServer(fmt.Sprintf("apiserver-%s-%s", name, minor), minor, args)
				server.WaitReady()
				stuck := apart && kubever.Behaves(kubever.BehaviourEtcdFirstName, minor)
				writesWithout(r, server, store, stuck)
				server.Stop()
			}
			store.Stop()
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"API servers of both releases write while any member of a store of three is killed, where certificates "+
				"have the names of all members, as those that pki issues")
		seenDamage(t, "-", "1.15.12", "1.36.3",
			"with members whose certificates have their own names alone, 1.15.12 writes nothing while the first one "+
				"is away")
	})
}

// writesWithout kills one member after the other. Where the server is stuck it writes nothing without the first one.
func writesWithout(r *rig.Rig, server *rig.APIServer, store *rig.Etcd, stuck bool) {
	client := server.Client("admin", "system:masters")
	namespaces := 0
	write := func(ctx context.Context) error {
		namespaces++
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // a request may hang on what is gone
		defer cancel()
		return client.Call(ctx, http.MethodPost, "/api/v1/namespaces",
			object{"metadata": object{"name": fmt.Sprintf("written-%d", namespaces)}}, nil)
	}
	for i, member := range store.Members {
		what := fmt.Sprintf("%s writes without member %d of store %s", server.Name, i+1, store.Name)
		member.Kill()
		if stuck && i == 0 {
			r.Throughout(25*time.Second, what, func(ctx context.Context) error {
				if err := write(ctx); err == nil {
					return fmt.Errorf("it writes, and its rule says that it does not")
				}
				return nil
			})
		} else {
			r.Eventually(what, write)
		}
		member.StartAgain()
		store.AwaitMembers()
		r.Eventually(what+", which is back", write)
	}
}

package local

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestMembersThatSayNothing: a store whose answers have nothing in them, not even a header, ends no agent.
func TestMembersThatSayNothing(t *testing.T) {
	silent := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(new(emptypb.Empty))
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			silent.ServeHTTP(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"etcdserver":"3.5.16","etcdcluster":"3.5.0"}`))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()

	store := plan.Store{Name: "core", Endpoints: []string{server.URL, server.URL}}
	h, ctx := &Host{Wait: 100 * time.Millisecond}, t.Context()
	m := &transition.Members{Store: store, Minors: []string{"3.5", "3.6"}, Cluster: "3.5"}
	j := &transition.Joining{Name: "cp-2", PeerURL: "http://127.0.0.1:1", Store: store, DataDir: t.TempDir()}
	for name, do := range map[string]func() error{
		"membersAre": func() error { return h.membersAre(ctx, m) },
		"raiseStore": func() error { return h.raiseStore(ctx, m) },
		// of which what does not answer has not agreed on anything
		"lowerStore":    func() error { return errors.Join(h.lowerStore(ctx, m), errors.New("nothing is done")) },
		"mayComeBack":   func() error { return errors.Join(mayComeBack(ctx, m), errors.New("nothing is known")) },
		"oneCluster":    func() error { return oneCluster(ctx, []plan.Store{store}) },
		"sameData":      func() error { return h.sameData(ctx, []plan.Store{store}) },
		"promoteMember": func() error { return h.promoteMember(ctx, j) },
		"Save":          func() error { return Save(ctx, &store, t.TempDir()) },
		"Look": func() error {
			_, err := h.Look(ctx, "", &transition.Watch{Prefix: "/registry", Stores: []plan.Store{store}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := do(); err == nil {
				t.Error("it is as it should be")
			} else {
				t.Log(err)
			}
		})
	}
}

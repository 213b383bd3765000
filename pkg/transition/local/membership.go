package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// memberDir is what a member keeps in its data directory.
const memberDir = "member"

// withCluster asks the members of a store, whichever answers. Each call of ask has memberPatience.
func withCluster(ctx context.Context, s *plan.Store, ask func(context.Context, *clientv3.Client) error) error {
	secured, err := tlsOf(s)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints, TLS: secured, Logger: zap.NewNop(),
		DialTimeout: memberPatience, MaxCallRecvMsgSize: statusBytes})
	if err != nil {
		return fmt.Errorf("store %s: %w", s.Name, err)
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	if err := ask(limited, client); err != nil {
		return fmt.Errorf("store %s: %w", s.Name, err)
	}
	return nil
}

// memberOf is the member with a peer URL, nil for none, of a list that a majority has agreed on.
func memberOf(ctx context.Context, client *clientv3.Client, peerURL string) (*pb.Member, *clientv3.MemberListResponse,
	error) {
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return slices.Contains(m.PeerURLs, peerURL) })
	if at < 0 {
		return nil, list, nil
	}
	return list.Members[at], list, nil
}

// addMember adds a learner, where there is no member with its peer URL. What data there is then is that of a member
// that was removed, with which none may start: it is set aside first. Data of another cluster stays: the store is not
// the one that it was.
func (h *Host) addMember(ctx context.Context, j *transition.Joining) error {
	return h.wait(ctx, j.Name+" is not added", func(ctx context.Context) error {
		return withCluster(ctx, &j.Store, func(ctx context.Context, client *clientv3.Client) error {
			own, list, err := memberOf(ctx, client, j.PeerURL)
			if err != nil || own != nil {
				return err
			}
			if of, err := clusterOf(j.DataDir); err != nil {
				return err
			} else if of != 0 && of != list.Header.GetClusterId() {
				return fmt.Errorf("%s: holds data of the cluster %x, and the store is %x: nothing is set aside",
					j.DataDir, of, list.Header.GetClusterId())
			}
			if err := setDataAside(j.DataDir); err != nil {
				return err
			}
			_, err = client.MemberAddAsLearner(ctx, []string{j.PeerURL})
			return err
		})
	})
}

// promoteMember gives a member its vote, once it has what the others have.
func (h *Host) promoteMember(ctx context.Context, j *transition.Joining) error {
	if err := h.addMember(ctx, j); err != nil {
		return err
	}
	return h.wait(ctx, j.Name+" has no vote", func(ctx context.Context) error {
		return withCluster(ctx, &j.Store, func(ctx context.Context, client *clientv3.Client) error {
			own, _, err := memberOf(ctx, client, j.PeerURL)
			switch {
			case err != nil:
				return err
			case own == nil:
				return errors.New("it was removed")
			case !own.IsLearner:
				return nil
			}
			_, err = client.MemberPromote(ctx, own.ID) // etcd refuses it while it lacks something
			return err
		})
	})
}

// removeMember takes a member out. etcd refuses it where those that run would be no majority of the others.
func (h *Host) removeMember(ctx context.Context, j *transition.Joining) error {
	return h.wait(ctx, j.Name+" is not removed", func(ctx context.Context) error {
		return withCluster(ctx, &j.Store, func(ctx context.Context, client *clientv3.Client) error {
			own, all, err := memberOf(ctx, client, j.PeerURL)
			switch {
			case err != nil:
				return err
			case own != nil && len(all.Members) == 1:
				return errors.New("it is the only member")
			case own != nil:
				if _, err := client.MemberRemove(ctx, own.ID); err != nil {
					return err
				}
			}
			// Of two members the other one has the removal in its log, and that it is agreed upon in memory, until
			// something is written: killed before, it would wait for the vote of the one that is gone. This changes
			// nothing.
			if _, err = client.Revoke(ctx, clientv3.NoLease); errors.Is(err, rpctypes.ErrLeaseNotFound) {
				err = nil
			}
			return err
		})
	})
}

// setDataAside renames what a member has stored: nothing is deleted. The directory itself stays, which may be a file
// system of its own.
func setDataAside(dataDir string) error {
	dir := filepath.Join(dataDir, memberDir)
	if _, err := os.Lstat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.left-%d", dir, n)
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(dir, aside); err != nil {
			return err
		}
		return filetree.Sync(dataDir) // before a member is added that may not start with it
	}
}

// noData checks that no member has stored anything in a directory.
func noData(dataDir string) error {
	_, err := os.Lstat(filepath.Join(dataDir, memberDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: there is data of a member", filepath.Join(dataDir, memberDir))
}

// oneCluster checks that every endpoint of stores answers, has a leader, and is of the same cluster as the others of
// its store.
func oneCluster(ctx context.Context, stores []plan.Store) error {
	var problems []error
	for i := range stores {
		states, err := askMembers(ctx, &stores[i], nil)
		if err != nil {
			return err
		}
		for n := range states {
			s := &states[n]
			switch {
			case s.err != nil:
				problems = append(problems, fmt.Errorf("%s: %w", s.endpoint, s.err))
			case s.Leader == 0:
				problems = append(problems, fmt.Errorf("%s: has no leader", s.endpoint))
			case states[0].id() != 0 && s.id() != states[0].id():
				problems = append(problems, fmt.Errorf("%s: is of another cluster than %s", s.endpoint,
					states[0].endpoint))
			}
		}
	}
	return errors.Join(problems...)
}

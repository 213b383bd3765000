package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Store is where the objects of a resource lie.
type Store struct {
	etcd.Store
	Prefix string // of every key: "/registry"
}

// Stored is what a store holds of a resource, at one revision.
type Stored struct {
	Store    string `json:"store"`
	Revision int64  `json:"revision"`
	// Versions counts objects by the apiVersion in which they are stored.
	Versions   map[string]int64 `json:"versions"`
	Encrypted  int64            `json:"encrypted,omitempty"`  // only the API server can decrypt them
	Unreadable int64            `json:"unreadable,omitempty"` // no objects of Kubernetes
	Example    string           `json:"example,omitempty"`    // key of one that is unreadable
}

// Objects is how many there are.
func (s *Stored) Objects() int64 {
	n := s.Encrypted + s.Unreadable
	for _, count := range s.Versions {
		n += count
	}
	return n
}

// Others lists the apiVersions other than the given one in which objects are stored, and counts those objects; what
// cannot be read counts as another version.
func (s *Stored) Others(apiVersion string) (versions []string, objects int64) {
	for _, v := range slices.Sorted(maps.Keys(s.Versions)) {
		if v != apiVersion {
			versions, objects = append(versions, v), objects+s.Versions[v]
		}
	}
	return versions, objects + s.Encrypted + s.Unreadable
}

// Object is one object of the resource.
type Object struct {
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// ReadStored reads every key of the resource from the store and counts by version; visit, unless it is nil, is called
// for each object with the apiVersion in which it is stored, "" when that cannot be told. One page is held at a time.
// Errors: those of the store, and visit's own.
func ReadStored(ctx context.Context, store Store, r Resource, visit func(o Object, apiVersion string) error) (
	*Stored, error) {
	from := storage.NormalPrefix(store.Prefix) + "/" + r.Key + "/"
	stored := &Stored{Store: store.Name, Versions: map[string]int64{}}
	revision, err := etcd.Entries(ctx, store.Store, etcd.Request{From: from, To: from[:len(from)-1] + "0"},
		func(e etcd.Entry) error {
			object, apiVersion := Object{Name: string(e.Key[len(from):]),
				ResourceVersion: fmt.Sprint(e.ModRevision)}, ""
			if namespace, name, ok := strings.Cut(object.Name, "/"); ok {
				object.Namespace, object.Name = namespace, name
			}
			switch envelope, err := storage.ReadEnvelope(e.Value); {
			case err != nil:
				if stored.Unreadable++; stored.Example == "" {
					stored.Example = string(e.Key)
				}
			case envelope.Encoding == storage.Encrypted:
				stored.Encrypted++
			default:
				apiVersion = string(envelope.APIVersion)
				stored.Versions[apiVersion]++
			}
			if visit == nil {
				return nil
			}
			return visit(object, apiVersion)
		})
	stored.Revision = revision
	return stored, err
}

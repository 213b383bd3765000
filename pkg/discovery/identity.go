package discovery

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Errors of requests, to be asked for with errors.Is. The text of an error is the server's own where it said something.
var (
	// ErrNotFound is the server's own word, as a Status, that it has no object of the name that was asked for.
	ErrNotFound = errors.New("there is no such object")
	// ErrNotServed is any other 404: of a path that is not served (1.6 says that in a Status, too), of a namespace, of
	// a proxy on the way. It says nothing about the object.
	ErrNotServed = errors.New("the path is not served")
	// ErrForbidden: the server does not know the client, or does not permit the request.
	ErrForbidden = errors.New("forbidden")
	// ErrUnreachable: no server answered, or not in time.
	ErrUnreachable = errors.New("the server is unreachable")
	// ErrNotKubernetes: the answer is none that an API server gives to the request: no JSON, another kind, another
	// object, a redirect, a list that does not end.
	ErrNotKubernetes = errors.New("not the answer of a Kubernetes API server")
	// ErrWrongServer: the server is not the one that was meant.
	ErrWrongServer = errors.New("this is not the control plane that was planned")
)

// Identity is which server of which cluster answers.
type Identity struct {
	GitVersion string          // as the server says it: "v1.6.13-acme.4"
	Version    kubever.Version // the zero value when there are no facts about it
	Newer      bool            // there are no facts about it, because its minor is newer than they are
	SystemUID  string          // of the namespace kube-system; "" when it was not asked for
	Date       time.Time       // by the server's clock, to the second; zero when it did not say
}

// Is compares the identity with what was planned: the minor version and, unless it is "", the UID of kube-system.
// Errors: ErrWrongServer, wrapped. Two kubeconfigs that lead to one server, or one that leads to another cluster, would
// make every owner look absent.
func (i Identity) Is(version kubever.Version, systemUID string) error {
	if i.Version.Minor != version.Minor {
		return fmt.Errorf("the server is of version %q, and the plan has %s: %w", i.GitVersion, version, ErrWrongServer)
	}
	if systemUID != "" && i.SystemUID != systemUID {
		return fmt.Errorf("namespace kube-system has UID %q, want %q: %w", i.SystemUID, systemUID, ErrWrongServer)
	}
	return nil
}

// Behaves reports whether the server behaves as named; one that there are no facts about as the newest that there are
// facts about.
func (i Identity) Behaves(behaviour kubever.Behaviour) bool {
	minor := i.Version.Minor
	if !minor.Known() {
		minor = kubever.Newest
	}
	return kubever.Behaves(behaviour, minor)
}

// ListOptions say which objects of a collection are listed, and how.
type ListOptions struct {
	// Metadata: metadata is enough; the server may send whole objects all the same.
	Metadata                     bool
	LabelSelector, FieldSelector string
	// Limit is the number of objects of a page; 0 for a good one, below 0 for no pages. Servers before 1.9 send all,
	// whatever the request.
	Limit int
	// Continue is the token of a page.
	Continue string
	// ResourceVersion and ResourceVersionMatch as the API has them; "" reads from the store.
	ResourceVersion, ResourceVersionMatch string
	// Consistent: a list whose state the server has forgotten is an error. Otherwise it goes on from the same place in
	// the present state: no object comes twice, and objects that came or went in the meantime may be missing or there.
	Consistent bool
}

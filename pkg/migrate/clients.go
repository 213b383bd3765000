package migrate

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Request is one request that an audit log shows.
type Request struct {
	Time       time.Time
	Group      string
	Version    string // "" in logs that do not say
	Plural     string
	Namespace  string
	Verb       string
	User       string
	Agent      string // the program, as it calls itself
	Code       int    // of the answer
	IsStarting bool   // of a long request that had not ended
}

// Client is a client that requested a version.
type Client struct {
	User     string         `json:"user"`
	Agent    string         `json:"agent,omitempty"`
	Version  string         `json:"version"`
	Requests int            `json:"requests"`
	Verbs    map[string]int `json:"verbs"`
	NotFound int            `json:"notFound,omitempty"` // that were answered 404: the version was not served
	First    time.Time      `json:"first"`
	Last     time.Time      `json:"last"`
	Example  string         `json:"example,omitempty"` // a namespace
}

// maxClients bounds the memory of a Clients.
const maxClients = 100_000

// Clients collects who asked for versions of a resource. Its memory grows with the number of different clients, not
// with that of requests.
type Clients struct {
	resource Resource
	versions []string
	since    time.Time
	found    map[[3]string]*Client
	requests Requests
}

// NewClients starts without clients. versions are those that are looked for, none for all; requests before since do not
// count.
func NewClients(r Resource, versions []string, since time.Time) *Clients {
	return &Clients{resource: r, versions: versions, since: since, found: map[[3]string]*Client{}}
}

// ErrNoTimes says that an audit log does not say when its events were.
var ErrNoTimes = errors.New("an event of the audit log has no time")

// Add counts a request.
// Errors: too many different clients; ErrNoTimes.
func (c *Clients) Add(q Request) error {
	if q.Time.IsZero() {
		return ErrNoTimes
	}
	if c.requests.From.IsZero() || q.Time.Before(c.requests.From) {
		c.requests.From = q.Time
	}
	if q.Time.After(c.requests.To) {
		c.requests.To = q.Time
	}
	if q.Group != c.resource.Group || q.Plural != c.resource.Plural ||
		(len(c.versions) > 0 && !slices.Contains(c.versions, q.Version)) || q.Time.Before(c.since) {
		return nil
	}
	id := [3]string{q.User, q.Agent, q.Version}
	client, ok := c.found[id]
	if !ok {
		if len(c.found) == maxClients {
			return errors.New("more than 100000 different clients")
		}
		client = &Client{User: q.User, Agent: q.Agent, Version: q.Version, Verbs: map[string]int{}, First: q.Time,
			Example: q.Namespace}
		c.found[id] = client
	}
	if q.Time.Before(client.First) {
		client.First = q.Time
	}
	if q.Time.After(client.Last) {
		client.Last = q.Time
	}
	if !q.IsStarting { // counted when it ends; that it was begun makes its client known
		client.Requests++
		client.Verbs[q.Verb]++
		if q.Code == 404 {
			client.NotFound++
		}
	}
	c.requests.Count++
	if !q.Time.Before(c.requests.Last) {
		c.requests.Last, c.requests.Who = q.Time, q.User
	}
	return nil
}

// Requests sums up what was added.
func (c *Clients) Requests() Requests { return c.requests }

// List lists the clients, those who asked last first.
func (c *Clients) List() []Client {
	list := []Client{}
	for _, client := range c.found {
		list = append(list, *client)
	}
	slices.SortFunc(list, func(a, b Client) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.User, b.User), cmp.Compare(a.Agent, b.Agent),
			cmp.Compare(a.Version, b.Version))
	})
	return list
}

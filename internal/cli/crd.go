package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/migrate/live"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

func newCRDCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Migrate the storage version of CRDs, with proof, and retire old versions",
		Long: `The crd verbs migrate a resource from one version to another: the version is added to the CRD and served,
new objects are stored in it, every object is rewritten, and only when no object is stored in the old version is that
version removed from status.storedVersions and from the CRD.

Built-in resources are rewritten by the same verbs: deployments.apps that are stored as extensions/v1beta1.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCRDStatusCmd(streams), newCRDPlanCmd(streams), newCRDApplyCmd(streams), newCRDUndoCmd(streams),
		newCRDDiffCmd(streams), newCRDClientsCmd(streams))
	cmd.AddCommand(newCRDTestCmd(streams), newCRDWebhookCmd(streams))
	return cmd
}

// crdRequest says which cluster, and where its objects lie.
type crdRequest struct {
	kubeconfig string
	context    string
	apiServers []string
	spec       string
	side       string
	prefix     string
	stores     storesRequest
}

func crdFlags(cmd *cobra.Command, r *crdRequest) {
	flags := cmd.Flags()
	flags.StringVar(&r.kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flags.StringVar(&r.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringArrayVar(&r.apiServers, "api-server", nil,
		"URL of one of several API servers behind it, to check the storage version of each; repeat for each")
	flags.StringVar(&r.spec, "spec", "", "spec of a fused control plane whose store holds the objects")
	enumFlag(cmd, &r.side, "side", "", "with --spec, the side of the API server", string(pair.Modern),
		string(pair.Legacy))
	flags.StringArrayVar(&r.stores.endpoints, "endpoints", nil,
		"the store of the objects: URL[,URL...]; with --spec, STORE=URL[,URL...] instead of the spec's")
	flags.StringArrayVar(&r.stores.snapshots, "snapshot", nil,
		"read the store from a snapshot or a member's db file: FILE; with --spec, STORE=FILE")
	flags.StringVar(&r.prefix, "prefix", "/registry", "prefix of every key, without --spec")
	flags.StringVar(&r.stores.ca, "ca", "", "file of the CA that signed the store's certificates")
	flags.StringVar(&r.stores.cert, "cert", "", "file of the client certificate for the store")
	flags.StringVar(&r.stores.key, "key", "", "file of the client certificate's key")
	flags.StringVar(&r.stores.user, "user", "", "etcd user, for stores with authentication")
	flags.StringVar(&r.stores.passwordFile, "password-file", "",
		"file with the user's password; default: the variable "+passwordVariable)
	flags.DurationVar(&r.stores.timeout, "timeout", 10*time.Second, "timeout of one request to one member of the store")
}

// cluster is what the crd verbs work on.
type cluster struct {
	server *live.Server
	plan   *plan.Plan // of --spec; nil without
	side   pair.Side
	req    *crdRequest
	open   map[string]openStore
}

// openCluster checks the flags and connects. Nothing is asked yet.
func (r *crdRequest) openCluster(ctx context.Context, streams Streams) (*cluster, error) {
	if r.kubeconfig == "" {
		return nil, usagef("--kubeconfig is required")
	}
	c := &cluster{req: r, side: pair.Side(r.side), open: map[string]openStore{}}
	if r.spec != "" {
		p, err := loadPlan(streams, r.spec)
		if err != nil {
			return nil, err
		}
		c.plan = p
	} else {
		for _, value := range slices.Concat(r.stores.endpoints, r.stores.snapshots) {
			if name, _, ok := strings.Cut(value, "="); ok && !strings.ContainsAny(name, "/?") {
				return nil, usagef("%q: without --spec there is one store, and it has no name", withoutUser(value))
			}
		}
		if len(r.stores.snapshots) > 1 || (len(r.stores.snapshots) > 0 && len(r.stores.endpoints) > 0) {
			return nil, usagef("--endpoints and --snapshot: without --spec there is one store")
		}
	}
	config, err := interruptibly(ctx, func() (*rest.Config, error) {
		return apiserver.Kubeconfig(r.kubeconfig, r.context)
	})
	if err != nil {
		return nil, badInput(err, "")
	}
	if c.server, err = live.Open(config, r.apiServers); err != nil {
		return nil, badInput(err, "")
	}
	return c, nil
}

func (c *cluster) close() {
	for _, s := range c.open {
		_ = s.close() // they were only read
	}
}

// store opens the store that holds the resource; nil when none was given.
func (c *cluster) store(ctx context.Context, r migrate.Resource) (*migrate.Store, error) {
	name, prefix := "etcd", c.req.prefix
	described := plan.Store{Name: name}
	switch {
	case c.plan != nil:
		name, prefix = c.storeOf(r), c.plan.Prefix
		if name == "" {
			return nil, badInput(fmt.Errorf("%s: the %s side of the spec does not have it", r.Name, c.side), "")
		}
		described = *c.plan.Store(name)
	case len(c.req.stores.endpoints)+len(c.req.stores.snapshots) == 0:
		return nil, nil
	}
	opened, ok := c.open[name]
	if !ok {
		var err error
		if opened, err = c.openStore(ctx, described); err != nil {
			return nil, err
		}
		c.open[name] = opened
	}
	return &migrate.Store{Store: opened.Store, Prefix: prefix}, nil
}

// storeOf names the store in which the side keeps the resource.
func (c *cluster) storeOf(r migrate.Resource) string {
	row := &c.plan.CustomResources
	if r.BuiltIn {
		found := c.plan.Resource(r.Key)
		if found == nil {
			return ""
		}
		row = &found.Resource
	}
	return row.View(c.side).Store
}

func (c *cluster) openStore(ctx context.Context, s plan.Store) (openStore, error) {
	r := c.req.stores
	password, err := r.password(ctx)
	if err != nil {
		return openStore{}, err
	}
	endpoints, files := map[string][]string{}, map[string]string{}
	if c.plan == nil {
		for _, value := range r.endpoints {
			endpoints[s.Name] = append(endpoints[s.Name], strings.Split(value, ",")...)
		}
		if len(r.snapshots) > 0 {
			files[s.Name] = r.snapshots[0]
		}
	} else if endpoints, files, err = r.places(c.plan); err != nil {
		return openStore{}, err
	}
	if file := files[s.Name]; file != "" {
		return r.openSnapshot(s.Name, file)
	}
	if urls := endpoints[s.Name]; len(urls) > 0 {
		s.Endpoints = urls
	}
	return r.openLive(ctx, s, password)
}

// observe looks at one resource: at its definition, the store, and whether it is converted.
func (c *cluster) observe(ctx context.Context, name string) (migrate.Observation, error) {
	d, err := c.server.Definition(ctx, name)
	if errors.Is(err, live.ErrNoDefinition) {
		return c.observeBuiltIn(ctx, name)
	}
	if err != nil {
		return migrate.Observation{}, err
	}
	return c.observeDefinition(ctx, d)
}

func (c *cluster) observeDefinition(ctx context.Context, d *migrate.Definition) (migrate.Observation, error) {
	o := migrate.Observation{Resource: d.Resource(), Definition: d}
	objects := live.Objects{Server: c.server, Resource: o.Resource}
	o.Health = migrate.CheckConversion(ctx, d, objects, objects)
	return o, c.observeStored(ctx, &o)
}

func (c *cluster) observeBuiltIn(ctx context.Context, name string) (migrate.Observation, error) {
	r, served, storage, err := c.server.BuiltIn(ctx, name)
	if errors.Is(err, live.ErrNoDefinition) {
		return migrate.Observation{}, badInput(err, "a name is plural and group, as in pizzas.restaurant.example.com "+
			"or deployments.apps")
	}
	if err != nil {
		return migrate.Observation{}, err
	}
	o := migrate.Observation{Resource: r, Served: served, Storage: storage}
	return o, c.observeStored(ctx, &o)
}

func (c *cluster) observeStored(ctx context.Context, o *migrate.Observation) error {
	store, err := c.store(ctx, o.Resource)
	if err != nil {
		return err
	}
	if store == nil {
		o.WhyUnknown = "no store was given: --spec, --endpoints or --snapshot"
		return nil
	}
	if o.Stored, err = migrate.ReadStored(ctx, *store, o.Resource, nil); err != nil {
		return withHint(fmt.Errorf("%s: %w", o.Resource.Name, err), storeHint(err))
	}
	return nil
}

// look reads what the store of the resource shows of itself.
func (c *cluster) look(ctx context.Context, o migrate.Observation) (*witness.Sight, error) {
	store, err := c.store(ctx, o.Resource)
	if err != nil {
		return nil, err
	}
	var served string // of a resource that is built in
	if len(o.Served) > 0 {
		served = o.Served[0]
	}
	return migrate.Look(ctx, live.Objects{Server: c.server, Resource: o.Resource}, store, served, time.Now())
}

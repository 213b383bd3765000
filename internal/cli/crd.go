package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/migrate/live"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
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

// cluster is what the crd verbs work on, and the stores that they opened.
type cluster struct {
	*live.Cluster
	plan *plan.Plan // of --spec; nil without
	req  *crdRequest
	open map[string]openStore
}

// openCluster checks the flags and connects. No request is sent yet.
func (r *crdRequest) openCluster(ctx context.Context, streams Streams) (*cluster, error) {
	if r.kubeconfig == "" {
		return nil, usagef("--kubeconfig is required")
	}
	c := &cluster{Cluster: &live.Cluster{Prefix: r.prefix}, req: r, open: map[string]openStore{}}
	c.Open = c.store
	if r.spec != "" {
		p, err := loadPlan(streams, r.spec)
		if err != nil {
			return nil, err
		}
		ownership := p.Ownership()
		c.plan, c.Pair, c.Side = p, &ownership, pair.Side(r.side)
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
	config, err := kubeconfig(ctx, r.kubeconfig, r.context)
	if err != nil {
		return nil, err
	}
	if c.Server, err = live.Open(config, r.apiServers); err != nil {
		return nil, badInput(err, "")
	}
	return c, nil
}

func (c *cluster) close() {
	for _, s := range c.open {
		_ = s.close() // they were only read
	}
}

// store opens a store once; nil when none was given.
func (c *cluster) store(ctx context.Context, name string) (*etcd.Store, error) {
	opened, ok := c.open[name]
	if !ok {
		described := plan.Store{Name: "etcd"}
		switch {
		case c.plan != nil:
			described = *c.plan.Store(name)
		case len(c.req.stores.endpoints)+len(c.req.stores.snapshots) == 0:
			return nil, nil
		}
		var err error
		if opened, err = c.openStore(ctx, described); err != nil {
			return nil, err
		}
		c.open[name] = opened
	}
	return &opened.Store, nil
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

const storeOfServer = "--kubeconfig with --side, or --endpoints with --prefix: one of them is another API server's"

// crdError adds the way out to an error of reading a resource.
func crdError(err error) error {
	switch {
	case errors.Is(err, live.ErrNoDefinition):
		return badInput(err, "a name is plural and group, as in pizzas.restaurant.example.com or deployments.apps")
	case errors.Is(err, live.ErrNotPlaced):
		return badInput(err, "")
	case errors.Is(err, migrate.ErrNotItsStore):
		return badInput(err, storeOfServer)
	}
	return withHint(err, storeHint(err))
}

// crdLimitBytes is more than an API server takes for a CRD.
const crdLimitBytes = 8 << 20

// readDefinitions reads the CRDs of a file, by name. What else is in it is skipped; a file without CRDs is bad input.
func readDefinitions(streams Streams, file string) (map[string]*migrate.Definition, error) {
	data, err := readInput(streams, file, 8*crdLimitBytes)
	if err != nil {
		return nil, err
	}
	definitions, err := migrate.ParseDefinitions(data)
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", file, err), "")
	}
	if len(definitions) == 0 {
		return nil, badInput(fmt.Errorf("%s: holds no CustomResourceDefinition", file), "")
	}
	return definitions, nil
}

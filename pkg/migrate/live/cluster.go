package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Cluster is an API server and the stores of its objects.
type Cluster struct {
	*Server
	// Pair is the ownership map of the control planes to which the server belongs; nil for a server that stands alone,
	// whose objects lie in one store, which Open knows as "".
	Pair *pair.Map
	Side pair.Side // of the server, with Pair
	// Prefix of every key, without Pair: "/registry".
	Prefix string
	// Open opens a store by its name in Pair; nil for one that is not given. A store is opened again at each call.
	Open func(ctx context.Context, store string) (*etcd.Store, error)
}

// ErrNotPlaced is wrapped when the server's side does not have a resource.
var ErrNotPlaced = errors.New("the side does not have the resource")

// row is where the pair keeps the resource: its own row, or that of custom resources.
func (c *Cluster) row(r migrate.Resource) *pair.Resource {
	if !r.BuiltIn {
		return &c.Pair.CustomResources
	}
	for i := range c.Pair.Resources {
		if c.Pair.Resources[i].Key == r.Key {
			return &c.Pair.Resources[i]
		}
	}
	return nil
}

// Store opens the store in which the server keeps the resource; nil when it is not given.
// Errors: ErrNotPlaced, wrapped; those of Open.
func (c *Cluster) Store(ctx context.Context, r migrate.Resource) (*migrate.Store, error) {
	name, prefix := "", c.Prefix
	if c.Pair != nil {
		prefix = c.Pair.Prefix
		if row := c.row(r); row != nil {
			name = row.View(c.Side).Store
		}
		if name == "" {
			return nil, fmt.Errorf("%s: %w: %s", r.Name, ErrNotPlaced, c.Side)
		}
	}
	opened, err := c.Open(ctx, name)
	if err != nil || opened == nil {
		return nil, err
	}
	return &migrate.Store{Store: *opened, Prefix: prefix}, nil
}

// Observe reads one resource: its definition, what is stored of it, and whether its objects are converted.
// Shape: name is plural and group, "pizzas.restaurant.example.com", also of a resource that is built in.
// Errors: ErrNoDefinition, ErrNotPlaced, those of the server and of the store.
func (c *Cluster) Observe(ctx context.Context, name string) (migrate.Observation, error) {
	d, err := c.Definition(ctx, name)
	if err == nil {
		return c.ObserveDefinition(ctx, d)
	}
	if !errors.Is(err, ErrNoDefinition) {
		return migrate.Observation{}, err
	}
	r, served, storage, err := c.BuiltIn(ctx, name)
	if err != nil {
		return migrate.Observation{}, err
	}
	o := migrate.Observation{Resource: r, Served: served, Storage: storage, Side: c.Side}
	if c.Pair != nil {
		o.Row = c.row(r)
	}
	return o, c.readStored(ctx, &o)
}

// ObserveDefinition is Observe for a CRD that was read already.
func (c *Cluster) ObserveDefinition(ctx context.Context, d *migrate.Definition) (migrate.Observation, error) {
	o := migrate.Observation{Resource: d.Resource(), Definition: d, Side: c.Side}
	if c.Pair != nil {
		o.Row = c.row(o.Resource)
	}
	objects := Objects{Server: c.Server, Resource: o.Resource}
	o.Health = migrate.CheckConversion(ctx, d, objects, objects)
	return o, c.readStored(ctx, &o)
}

func (c *Cluster) readStored(ctx context.Context, o *migrate.Observation) error {
	store, err := c.Store(ctx, o.Resource)
	if err != nil {
		return err
	}
	if store == nil {
		o.WhyUnknown = "no store was given"
		return nil
	}
	if store.Walker == nil { // a file is of another time
		err = migrate.Confirm(ctx, *store, o.Resource, c.Server, Objects{Server: c.Server, Resource: o.Resource})
		if err != nil {
			return fmt.Errorf("%s: %w", o.Resource.Name, err)
		}
	}
	if o.Stored, err = migrate.ReadStored(ctx, *store, o.Resource, nil); err != nil {
		return fmt.Errorf("%s: %w", o.Resource.Name, err)
	}
	return nil
}

// Look reads what identifies the store of an observed resource.
func (c *Cluster) Look(ctx context.Context, o migrate.Observation, now time.Time) (*witness.Sight, error) {
	store, err := c.Store(ctx, o.Resource)
	if err != nil {
		return nil, err
	}
	var served string // of a resource that is built in
	if len(o.Served) > 0 {
		served = o.Served[0]
	}
	return migrate.Look(ctx, Objects{Server: c.Server, Resource: o.Resource}, store, served, now)
}

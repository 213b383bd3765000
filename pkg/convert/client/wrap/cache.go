package wrap

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
)

// Cache serves programs of other versions with a cache that exists: its reads, its informers' events and its indexes
// are in the asked version, and it watches the server's. An event that does not convert is handed to failed, which may
// be called from many goroutines and is required: its object would look absent otherwise. Errors: Options without a
// Converter or a Negotiator, and no function for failures.
func Cache(next ctrlcache.Cache, scheme *runtime.Scheme, o Options, failed func(error)) (ctrlcache.Cache, error) {
	b, err := newBridge(scheme, o)
	if err != nil {
		return nil, err
	}
	if failed == nil {
		return nil, fmt.Errorf("wrapping a cache: want a function for events that do not convert")
	}
	return &cache{Cache: next, reader: reader{b, next}, failed: failed}, nil
}

type cache struct {
	ctrlcache.Cache // starts and waits
	reader          reader
	failed          func(error)
}

// Get reads an object.
func (c *cache) Get(ctx context.Context, key ctrl.ObjectKey, into ctrl.Object, options ...ctrl.GetOption) error {
	return c.reader.Get(ctx, key, into, options...)
}

// List reads a list.
func (c *cache) List(ctx context.Context, into ctrl.ObjectList, options ...ctrl.ListOption) error {
	return c.reader.List(ctx, into, options...)
}

// GetInformer is that of the server's version, with events in the asked one.
func (c *cache) GetInformer(
	ctx context.Context, object ctrl.Object, options ...ctrlcache.InformerGetOption,
) (ctrlcache.Informer, error) {
	served, answer, err := c.reader.served(ctx, object)
	if err != nil {
		return nil, err
	}
	next, err := c.Cache.GetInformer(ctx, served, options...)
	return c.informer(next, answer, err)
}

// GetInformerForKind is GetInformer for a kind.
func (c *cache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, options ...ctrlcache.InformerGetOption,
) (ctrlcache.Informer, error) {
	answer, err := c.reader.answerFor(ctx, gvk)
	if err != nil {
		return nil, err
	}
	next, err := c.Cache.GetInformerForKind(ctx, answer.As, options...)
	return c.informer(next, answer, err)
}

func (c *cache) informer(next ctrlcache.Informer, answer negotiate.Answer, err error) (ctrlcache.Informer, error) {
	if err != nil || answer.Verdict == negotiate.Pass {
		return next, err
	}
	return &informer{next, c, answer}, nil
}

// RemoveInformer stops the informer of the server's version.
func (c *cache) RemoveInformer(ctx context.Context, object ctrl.Object) error {
	served, _, err := c.reader.served(ctx, object)
	if err != nil {
		return err
	}
	return c.Cache.RemoveInformer(ctx, served)
}

// IndexField indexes objects of the server's version by what extract finds in the asked one.
func (c *cache) IndexField(ctx context.Context, object ctrl.Object, field string, extract ctrl.IndexerFunc) error {
	served, answer, err := c.reader.served(ctx, object)
	if err != nil {
		return err
	}
	if answer.Verdict == negotiate.Pass {
		return c.Cache.IndexField(ctx, object, field, extract)
	}
	return c.Cache.IndexField(ctx, served, field, func(stored ctrl.Object) []string {
		if asked, ok := c.converted(stored, answer).(ctrl.Object); ok {
			return extract(asked)
		}
		return nil
	})
}

// converted is an object of the asked version, nil after a failure.
func (c *cache) converted(object any, answer negotiate.Answer) any {
	switch object := object.(type) {
	case toolscache.DeletedFinalStateUnknown:
		if object.Obj = c.converted(object.Obj, answer); object.Obj == nil {
			return nil
		}
		return object
	case runtime.Object:
		made, err := c.reader.converted(object, answer)
		if err != nil {
			c.failed(err)
			return nil
		}
		return made
	default:
		c.failed(fmt.Errorf("%s: %T is no object", answer.As, object))
		return nil
	}
}

// informer hands on events in the asked version.
type informer struct {
	ctrlcache.Informer // of the server's version
	cache              *cache
	answer             negotiate.Answer
}

func (i *informer) handler(next toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if converted := i.cache.converted(object, i.answer); converted != nil {
				next.OnAdd(converted, initial)
			}
		},
		UpdateFunc: func(was, is any) {
			before, now := i.cache.converted(was, i.answer), i.cache.converted(is, i.answer)
			switch {
			case before != nil && now != nil:
				next.OnUpdate(before, now)
			case now != nil: // until now it could not be converted, and was not seen
				next.OnAdd(now, false)
			}
		},
		DeleteFunc: func(object any) {
			if converted := i.cache.converted(object, i.answer); converted != nil {
				next.OnDelete(converted)
			}
		},
	}
}

// AddEventHandler adds a handler of the asked version.
func (i *informer) AddEventHandler(next toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.handler(next))
}

// AddEventHandlerWithResyncPeriod is AddEventHandler with another period.
func (i *informer) AddEventHandlerWithResyncPeriod(next toolscache.ResourceEventHandler, period time.Duration) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.handler(next), period)
}

// AddEventHandlerWithOptions is AddEventHandler with options.
func (i *informer) AddEventHandlerWithOptions(
	next toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.handler(next), options)
}

// AddIndexers adds indexes of the asked version.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	converting := toolscache.Indexers{}
	for name, index := range indexers {
		converting[name] = func(object any) ([]string, error) {
			converted := i.cache.converted(object, i.answer)
			if converted == nil {
				return nil, nil
			}
			return index(converted)
		}
	}
	return i.Informer.AddIndexers(converting)
}

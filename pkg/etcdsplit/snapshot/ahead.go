package snapshot

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// batchEntries are handed over at a time.
const batchEntries = 512

// ahead walks the tree of a mapped file in one goroutine and visits what it finds in the caller's: the bytes of a mapping
// stay where they are, so entries can be handed over without copying.
func (w *walker) ahead(ctx context.Context, t *tree) error {
	group, ctx := errgroup.WithContext(ctx)
	visit := w.visit
	batches, used := make(chan []etcdsplit.Entry), make(chan []etcdsplit.Entry, 2)
	for range cap(used) {
		used <- make([]etcdsplit.Entry, 0, batchEntries)
	}
	group.Go(func() error {
		defer close(batches)
		return faultsAsErrors(func() error {
			batch := <-used
			hand := func() error {
				select {
				case batches <- batch:
				case <-ctx.Done():
					return ctx.Err()
				}
				batch = (<-used)[:0]
				return nil
			}
			w.visit = func(e etcdsplit.Entry) error {
				if batch = append(batch, e); len(batch) == batchEntries {
					return hand()
				}
				return nil
			}
			if err := t.bucket(ctx, "key", w.item); err != nil {
				return err
			}
			return hand()
		})
	})
	stopped := errors.New("stopped")
	var visitErr error
	group.Go(func() error {
		visitErr = faultsAsErrors(func() error {
			for batch := range batches {
				for i := range batch {
					if err := visit(batch[i]); err != nil {
						return err
					}
				}
				used <- batch
			}
			return nil
		})
		if visitErr != nil {
			return stopped // ends the walk
		}
		return nil
	})
	err := group.Wait()
	if visitErr != nil {
		return visitErr
	}
	return err
}

// faultsAsErrors runs f, which reads a mapped file: where the file has become shorter, or the disk fails, reading memory
// faults, and that is an error about the file and not the end of the program.
func faultsAsErrors(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recovered := recover(); recovered != nil {
			fault, ok := recovered.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok {
				panic(recovered)
			}
			err = damaged("it cannot be read any more: %v", fault)
		}
	}()
	return f()
}

// Package etcdsplit is the API for programs that check the ownership of keys in the stores of a fused control plane. It
// holds aliases alone: each name stands for one of the packages that do the work.
//
//	pair       the ownership map: where each side keeps each resource, and which side writes it
//	storage    keys and values as API servers write them
//	etcd       the keys of a store, in pages; etcd/etcdv3 reads a live one, etcd/snapshot a file
//	etcd/scan  what stores hold against the map, as findings
//
// A plan of package plan has the map of a spec.
package etcdsplit

import (
	"context"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// The ownership map.
type (
	Map      = pair.Map      // of a fused control plane
	Resource = pair.Resource // one row of it
	View     = pair.View     // a resource as one side sees it: the store, the versions
	Side     = pair.Side     // legacy or modern
	Owner    = pair.Owner    // of a resource: legacy, modern, shared, split
)

// Keys.
type (
	Classifier = storage.Classifier // takes keys apart
	Key        = storage.Key        // a key taken apart
)

// Stores.
type (
	Store   = etcd.Store   // a live store behind a Pager, or a file behind a Walker
	Pager   = etcd.Pager   // reads pages of a live store
	Walker  = etcd.Walker  // visits the keys of a file
	Entry   = etcd.Entry   // a key with its value
	Request = etcd.Request // for a page
	Page    = etcd.Page    // of entries
	Walked  = etcd.Walked  // a file as a whole
)

// The input and the result of a scan.
type (
	Options = scan.Options // the zero value is the default scan
	Depth   = scan.Depth   // how much of a store is read
	Report  = scan.Report  // findings, counts, and what could not be read
)

// The errors of a Pager that have a way out, which Scan takes. A Pager of your own wraps them.
var (
	ErrCompacted    = etcd.ErrCompacted
	ErrPageTooLarge = etcd.ErrPageTooLarge
	ErrDenied       = etcd.ErrDenied
)

// NewClassifier returns a classifier for keys below the prefix of the map. It is safe for concurrent use.
func NewClassifier(m *Map) *Classifier { return storage.NewClassifier(m) }

// RowOf finds the row of the map for a classified key; nil when the map does not know the resource.
func RowOf(m *Map, k Key) *Resource { return storage.RowOf(m, k) }

// Scan reads the stores, compares them with the map and reports what does not match. It only reads. Memory is bounded:
// a page per worker and at most 32 bytes per key. Errors: the map or the stores are unusable. A store that could not be
// read, or not to its end, is no error: the report says what is missing and is not Complete.
func Scan(ctx context.Context, m *Map, stores []Store, options Options) (*Report, error) {
	return scan.Stores(ctx, m, stores, options)
}

// Rules lists what Scan can find, by ID, with the reason of each.
func Rules() []finding.Rule { return scan.Rules() }

package etcdv3

import (
	"context"
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Store is a store of a plan: a live one, or, without a client, a file.
type Store struct {
	etcd.Store
	Client *Client
}

// Scan scans the stores as scan.Stores does. Two that are one and the same etcd are no answer to the question whose
// a key is: the report has no findings then, and is incomplete.
func Scan(ctx context.Context, m *pair.Map, stores []Store, options scan.Options) (*scan.Report, error) {
	scanned := make([]etcd.Store, len(stores))
	for i, s := range stores {
		scanned[i] = s.Store
	}
	report, err := scan.Stores(ctx, m, scanned, options)
	if err != nil || !report.Complete {
		return report, err
	}
	one, err := OneEtcd(ctx, stores, m.Prefix)
	if err != nil {
		one = err.Error()
	} else if one != "" {
		report.Findings = []finding.Finding{} // they compare a store with itself
		for i := range report.Resources {
			report.Resources[i].Verdict, report.Resources[i].Rules = "unknown", nil
		}
	}
	if one != "" {
		report.Complete, report.Incomplete = false, append(report.Incomplete, one)
	}
	return report, nil
}

// OneEtcd names two live stores that are one and the same etcd, "" when there are none: then every key seems to be in
// both, and none can be moved.
func OneEtcd(ctx context.Context, stores []Store, prefix string) (string, error) {
	for i, a := range stores {
		for _, b := range stores[i+1:] {
			if a.Client == nil || b.Client == nil {
				continue
			}
			same, err := a.Client.Same(ctx, b.Client, storage.NormalPrefix(prefix)+"/")
			if err != nil {
				return "", fmt.Errorf("stores %s and %s: %w", a.Name, b.Name, err)
			}
			if same {
				return fmt.Sprintf("stores %s and %s are one and the same etcd: give each its own endpoints", a.Name,
					b.Name), nil
			}
		}
	}
	return "", nil
}

package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// answers is a pager whose pages a function computes.
type answers func(etcd.Request) etcd.Page

func (f answers) Page(_ context.Context, r etcd.Request) (etcd.Page, error) { return f(r), nil }

// NoEtcd are pagers that answer as no etcd does, by what the error of reading them says.
func NoEtcd() map[string]etcd.Pager {
	one := func(key string, more bool) answers {
		return func(etcd.Request) etcd.Page {
			return etcd.Page{Revision: 7, More: more, RangeKeys: 2, Entries: []etcd.Entry{{Key: []byte(key)}}}
		}
	}
	return map[string]etcd.Pager{
		"has more=true and no keys": answers(func(etcd.Request) etcd.Page {
			return etcd.Page{Revision: 7, More: true, RangeKeys: 2}
		}),
		`ends with the key "/registry/pods/a"`: one("/registry/pods/a", true), // again and again
		`ends with the key "/a"`:               one("/a", false),
		`ends with the key "/z"`:               one("/z", true),
	}
}

// Compacted is a pager of the clean store core of which each revision is compacted before a page of pods is read.
func Compacted(t *testing.T) *Pager {
	pager := Clean()["core"].Pager(t)
	pager.OnPage = func(f *Pager, r etcd.Request) error {
		if f.Requests > 1000 {
			t.Fatal("1000 requests and no end")
		}
		if r.Revision != 0 && strings.HasPrefix(r.From, "/registry/pods/") {
			f.Revision++
			f.CompactBefore = f.Revision
		}
		return nil
	}
	return pager
}

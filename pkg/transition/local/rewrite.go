package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// RewriteError names the objects that cannot be written in a version that the API servers of a plan read.
type RewriteError struct {
	Version string
	Objects []string // the first mostObjects of them, each with its store, key and reason
	Further int
}

func (e *RewriteError) Error() string {
	lines := append([]string{"these objects cannot be written for " + e.Version + ":"}, e.Objects...)
	if e.Further > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.Further))
	}
	return strings.Join(lines, "\n  ")
}

// MayRewrite is StoresAgree but for versions that cannot be decoded of objects that can be written again without loss.
// Errors: those of StoresAgree; *RewriteError, with every object that cannot.
func MayRewrite(ctx context.Context, c *transition.Check, tell Telling) error {
	disagree := new(DisagreeError)
	if err := StoresAgree(ctx, c, tell); err == nil {
		return nil
	} else if !errors.As(err, &disagree) {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(disagree.Findings), func(f finding.Finding) bool {
		return slices.Contains(undecodable, f.Rule) &&
			slices.ContainsFunc(c.Rewrite.Resources, func(r transition.Rewritten) bool {
				return f.Subject == r.Store+":"+r.Key
			})
	})
	err := rewrite(ctx, c.Rewrite, false)
	if len(others) > 0 {
		err = errors.Join(&DisagreeError{Findings: others}, err)
	}
	return err
}

// undecodable are the rules about objects that an API server cannot decode: FUS090 names those that the other one wrote
// at its start.
var undecodable = []string{"FUS002", "FUS003", "FUS090"}

// rounds bounds how often what is written meanwhile is read again: the API servers of the other side run.
const rounds = 10

// rewrite writes what the API servers of a plan do not read in a version that they read, or only says what cannot be.
// It writes nothing where one object cannot be; what others write meanwhile is not overwritten. Errors: *RewriteError.
func rewrite(ctx context.Context, r *transition.Rewrite, write bool) error {
	problems := RewriteError{Version: r.Version}
	writers := make([]*etcdv3.Writer, len(r.Stores))
	for i, s := range r.Stores {
		client, err := open(s, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		writers[i] = &etcdv3.Writer{Client: client}
		// What is written is read twice: there may be more of it than fits into memory.
		err = eachUnread(ctx, r, s.Name, writers[i], &problems, func(etcd.Entry) error { return nil })
		if err != nil {
			return err
		}
	}
	if len(problems.Objects) > 0 {
		return &problems
	}
	if !write {
		return nil
	}
	for _, b := range r.Bitmaps {
		at := slices.IndexFunc(r.Stores, func(s plan.Store) bool { return s.Name == b.Store })
		if err := completeBitmap(ctx, r.Prefix, b, writers[at]); err != nil {
			return fmt.Errorf("store %s: %s: %w", b.Store, b.Key, err)
		}
	}
	for i, s := range r.Stores {
		for round, left := 0, true; left; round++ {
			if round == rounds {
				return fmt.Errorf("store %s: after %d rounds there are still objects to write: something writes them "+
					"all the time; stop it and run this again", s.Name, rounds)
			}
			left = false
			err := eachUnread(ctx, r, s.Name, writers[i], &problems, func(e etcd.Entry) error {
				left = true // one that was written by others since it was read is seen in the next round
				_, err := writers[i].Replace(ctx, []etcd.Entry{e})
				return err
			})
			if err != nil {
				return fmt.Errorf("store %s: writing objects again: %w", s.Name, err)
			}
			if len(problems.Objects) > 0 {
				return &problems
			}
		}
	}
	return nil
}

// eachUnread visits the objects of a store that API servers of the plan do not read, as they are to be written.
func eachUnread(ctx context.Context, r *transition.Rewrite, store string, pager etcd.Pager, problems *RewriteError,
	visit func(etcd.Entry) error) error {
	for _, row := range r.Resources {
		if row.Store != store {
			continue
		}
		from := r.Prefix + "/" + row.Key + "/"
		_, err := etcd.Entries(ctx, etcd.Store{Name: store, Pager: pager},
			etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(e etcd.Entry) error {
				envelope, err := storage.ReadEnvelope(e.Value)
				if err == nil && slices.Contains(row.Reads, string(envelope.APIVersion)) {
					return nil
				}
				var value []byte
				if err == nil {
					value, err = converted(e.Value, row.To)
				}
				if err != nil {
					if len(problems.Objects) == mostObjects {
						problems.Further++
						return nil
					}
					problems.Objects = append(problems.Objects, fmt.Sprintf("store %s: %s: %v", store,
						storage.Printable(string(e.Key)), err))
					return nil
				}
				e.Key, e.Value = bytes.Clone(e.Key), value
				return visit(e)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// converted is a value in the first of some versions that has all of it.
func converted(value []byte, versions []string) ([]byte, error) {
	if len(versions) == 0 {
		return nil, errors.New("there is no version that both sides of the way read")
	}
	var problems []error
	for _, v := range versions {
		data, err := lossless(value, v, 0)
		if err == nil {
			return data, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

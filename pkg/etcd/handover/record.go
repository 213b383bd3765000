package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Schema names the format of a record.
const Schema = "fusionctl/hand-over/v1"

// Record is what a hand-over took. It outlives both directions.
type Record struct {
	Schema  string   `json:"schema"`
	Objects []Object `json:"objects"`
	// Pods are those that the objects owned before they went.
	Pods []Pod `json:"pods"`
	Back bool  `json:"back,omitempty"` // the direction in which they are going
	// Copied: the objects were copied in that direction, and each is in both stores until its original is removed.
	Copied bool `json:"copied,omitempty"`

	index map[string]int // of Objects, by UID
}

// Object is one that was handed over.
type Object struct {
	Key   string `json:"key"` // whole
	UID   string `json:"uid"`
	Value []byte `json:"value"` // as it was
	// Copies are the SHA-256 of what was put in its place; more than one where it was written meanwhile.
	Copies []string `json:"copies,omitempty"`
	// Generation is its own when it went, in the direction in which they are going.
	Generation int64 `json:"generation,omitempty"`
	// Rolls: its pods go and come: it was being rolled out or scaled, or they are of a template that the controllers
	// there have not seen.
	Rolls bool `json:"rolls,omitempty"`
	// Agreed is the digest in which the object and its copy were the same at last, Next that in which they are to be;
	// of resources that are compared.
	Agreed string `json:"agreed,omitempty"`
	Next   string `json:"next,omitempty"`
	// Leaves: its original is removed, and absent from then on.
	Leaves bool `json:"leaves,omitempty"`
}

// Pod is one that an object owns.
type Pod struct {
	Key      string `json:"key"`
	UID      string `json:"uid"`
	Owner    string `json:"owner,omitempty"` // UID of the object
	Node     string `json:"node,omitempty"`
	Revision string `json:"revision,omitempty"` // of its owner's template, as its label says; "" where it has none
}

// Digest is that of the objects that were handed over, as they were. It stays on the way back, on which a record gets
// the direction, the pods of then, and objects that were created since.
func (r *Record) Digest() string {
	h := sha256.New()
	for _, o := range r.Objects {
		if len(o.Copies) > 0 {
			fmt.Fprintf(h, "%q %q %q %q\n", o.Key, o.UID, sum(o.Value), o.Copies)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// at is where the object of a UID is.
func (r *Record) at(uid string) (int, bool) {
	if r.index == nil {
		r.index = make(map[string]int, len(r.Objects))
		for i, o := range r.Objects {
			r.index[o.UID] = i
		}
	}
	at, known := r.index[uid]
	return at, known
}

// of is the object of a UID; nil when there is none.
func (r *Record) of(uid string) *Object {
	if at, known := r.at(uid); known {
		return &r.Objects[at]
	}
	return nil
}

// uids are the identities of what was taken.
func (r *Record) uids() map[string]bool {
	uids := map[string]bool{}
	for _, o := range r.Objects {
		uids[identity(o.Key, o.UID)] = true
	}
	return uids
}

// steady are the identities of those whose pods stay.
func (r *Record) steady() map[string]bool {
	uids := map[string]bool{}
	for _, o := range r.Objects {
		if !o.Rolls {
			uids[identity(o.Key, o.UID)] = true
		}
	}
	return uids
}

// wasCopied reports whether a value is what a hand-over has put in the place of an object.
func wasCopied(rec *Record, uid string, value []byte) bool {
	at, known := rec.at(uid)
	return known && slices.Contains(rec.Objects[at].Copies, sum(value))
}

func sum(value []byte) string {
	s := sha256.Sum256(value)
	return hex.EncodeToString(s[:])
}

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// deleteCollection deletes what a list of the same query shows, on both sides. Nothing is deleted unless both say that
// the client may. Beyond that it is no more atomic than that of one API server, which stops at the first object that it
// cannot delete: an error on the side that comes second says what was done on the first.
func (b *both) deleteCollection(w http.ResponseWriter) error {
	for _, name := range []string{"limit", "continue"} {
		if b.query.Has(name) { // sides that are too old for it would delete everything
			return badRequest("deletecollection of what both sides have is not served with %s", name)
		}
	}
	body, kind, err := b.readBody(w, b.r, b.exchange, b.memory)
	if err != nil {
		return err
	}
	// Of a collection, sides before 1.12 read no options in the query.
	if body, kind, err = b.deletionOf(body, kind, true); err != nil {
		return err
	}
	names, ask, _, err := b.parts("application/json")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.heedsOptions(b.query, body, name); err != nil {
			return err
		}
	}
	if err := b.mayDeleteCollection(names); err != nil {
		return err
	}
	for i, name := range names {
		q := ask(name)
		q.method, q.contentType = http.MethodDelete, kind
		if len(body) > 0 {
			if q.body, err = b.written(body, kind, name); err != nil {
				return err
			}
		}
		var refused *apierrors.StatusError
		err := b.deleteOf(name, q)
		if i > 0 && errors.As(err, &refused) {
			refused.ErrStatus.Message += fmt.Sprintf("; on the %s side the objects were deleted before", names[0])
		}
		if err != nil {
			return err
		}
	}
	b.took.by(names...)
	// The objects themselves, which API servers answer with, would be those of one side after the other.
	writeJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusSuccess, Code: http.StatusOK})
	return nil
}

// deleteOf sends the deletion of a collection to a side. The objects that it answers with are read and not held.
func (b *both) deleteOf(name pair.Side, q question) error {
	ctx, cancel := context.WithTimeout(b.r.Context(), 2*b.sides[name].answerTimeout)
	defer cancel()
	body, _, err := b.opened(ctx, name, q, b.memory)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return unreachable(name, err)
	}
	return nil
}

// mayDeleteCollection asks each side whether the client may delete collections there.
func (b *both) mayDeleteCollection(names []pair.Side) error {
	var group errgroup.Group
	for _, name := range names {
		resource := b.row.GroupVersionResource()
		if as, ok := b.row.As[name]; ok {
			resource = as
		}
		review, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: b.info.Namespace, Verb: b.info.Verb, Group: resource.Group, Version: resource.Version,
				Resource: resource.Resource}},
		})
		if err != nil {
			return err
		}
		memory := b.reserve(b.exchange) // one for each: it grows in one place at a time
		b.took.end(memory.Release)
		group.Go(func() error {
			a, err := b.sides[name].ask(b.r.Context(), b.r, b.id, question{method: http.MethodPost,
				path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				accept: "application/json", contentType: "application/json", body: review}, limitStatusBytes, memory)
			switch {
			case err != nil:
				return err
			case a.code != http.StatusOK && a.code != http.StatusCreated:
				return b.partly(a)
			}
			var said authorizationv1.SelfSubjectAccessReview
			if err := json.Unmarshal(a.body, &said); err != nil {
				return unreachable(name, err)
			}
			if !said.Status.Allowed {
				return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%q cannot delete collections "+
					"of %s on the %s side: nothing is deleted on either; /sides/%s deletes on the other alone",
					b.id.GetName(), resource.GroupResource(), name, name.Other())
			}
			return nil
		})
	}
	return group.Wait()
}

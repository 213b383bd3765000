package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

const accessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// mayDelete makes a side that answers the question whether the client may delete collections.
func (f *fakeSide) mayDelete(allowed string) {
	f.say("POST "+accessReviews, http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",
		"status":{"allowed":`+allowed+`}}`)
}

// deletions is how many collections a side was asked to delete.
func (f *fakeSide) deletions() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.asked {
		if r.Method == http.MethodDelete {
			n++
		}
	}
	return n
}

func TestCollectionsAreDeletedOnBothSides(t *testing.T) {
	x := newFixture(t)
	deleted := `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9"},"items":[]}`
	nothing := func(what string) {
		t.Helper()
		if n := x.legacy.deletions() + x.modern.deletions(); n > 0 {
			t.Fatalf("%s: %d collections deleted", what, n)
		}
	}
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("DELETE "+collection, http.StatusOK, deleted)
	}

	// Unless both sides say that the client may, nothing is deleted.
	x.legacy.mayDelete("true")
	x.wants("DELETE", collection, "", http.StatusNotFound, "modern side") // which has no such review
	x.modern.mayDelete("false")
	x.wants("DELETE", collection, "", http.StatusForbidden, "/sides/legacy")
	x.modern.say("POST "+accessReviews, http.StatusCreated, "no JSON")
	x.wants("DELETE", collection, "", http.StatusServiceUnavailable, "modern")
	x.modern.say("POST "+accessReviews, http.StatusForbidden, `{"kind":"Status","message":"not yours","status":"Failure"}`)
	x.wants("DELETE", collection, "", http.StatusForbidden, "not yours")
	x.modern.mayDelete("true")
	x.wants("DELETE", collection+"?limit=1", "", http.StatusBadRequest, "limit")
	x.wants("DELETE", collection+"?continue=x", "", http.StatusBadRequest, "continue")
	x.wants("DELETE", collection+"?shardSelector=x", "", http.StatusUnprocessableEntity, "shardSelector")
	x.wants("DELETE", collection, "{", http.StatusBadRequest, "")
	x.isOld()
	x.wants("DELETE", collection+"?dryRun=All", "", http.StatusBadRequest, "dryRun")
	x.wants("DELETE", collection, `{"dryRun":["All"]}`, http.StatusBadRequest, "dryRun")
	const tied = `{"preconditions":{"resourceVersion":"l5m6"}}`
	x.wants("DELETE", collection, tied, http.StatusBadRequest, "preconditions.resourceVersion")
	x.legacy.say("GET "+collection+"/old", http.StatusOK, deployment("old", "u-old"))
	x.wants("DELETE", collection+"/old", tied, http.StatusBadRequest, "preconditions.resourceVersion")
	nothing("before both sides agree")
	x.gateway.at(pair.Legacy).says(kubever.Version{Minor: 15})

	x.wants("DELETE", collection+"?labelSelector=app%3Da&propagationPolicy=Orphan&resourceVersion=l3m4",
		`{"preconditions":{"resourceVersion":"l5m6"}}`, http.StatusOK, `"Success"`)
	for side, want := range map[*fakeSide][2]string{x.legacy: {"3", "5"}, x.modern: {"4", "6"}} {
		r, body := side.last(collection)
		if q := r.URL.Query(); q.Get("labelSelector") != "app=a" || q.Get("propagationPolicy") != "Orphan" ||
			q.Get("resourceVersion") != want[0] || body != `{"preconditions":{"resourceVersion":"`+want[1]+`"}}` {
			t.Errorf("a side is asked for %s with %s", r.URL, body)
		}
	}
	r, body := x.legacy.last(accessReviews)
	if r == nil || !strings.Contains(body, `"verb":"deletecollection"`) || !strings.Contains(body, `"group":"apps"`) ||
		!strings.Contains(body, `"resource":"deployments"`) || !strings.Contains(body, `"namespace":"`) {
		t.Errorf("the review: %s", body)
	}

	// Without a body the options are in the query, where sides before 1.12 do not look for them.
	x.wants("DELETE", collection+"?labelSelector=app%3Da&propagationPolicy=Orphan", "", http.StatusOK, `"Success"`)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		if r, body := side.last(collection); r.URL.RawQuery != "labelSelector=app%3Da" ||
			body != `{"propagationPolicy":"Orphan"}` {
			t.Errorf("a side is asked for %s with %s", r.URL, body)
		}
	}
	x.wants("DELETE", collection+"?gracePeriodSeconds=soon", "", http.StatusBadRequest, "soon")

	// What fails on the first side is not done on the second; what fails on the second says what was done before.
	n := x.modern.deletions()
	x.legacy.say("DELETE "+collection, http.StatusConflict, `{"kind":"Status","status":"Failure","message":"no"}`)
	x.wants("DELETE", collection, "", http.StatusConflict, "the legacy side: no")
	if x.modern.deletions() != n {
		t.Error("the modern side deletes what the legacy side refused")
	}
	x.legacy.page("DELETE "+collection, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
	})
	x.wants("DELETE", collection, "", http.StatusServiceUnavailable, "legacy")
	if x.modern.deletions() != n {
		t.Error("the modern side deletes though the legacy side's answer breaks off")
	}
	x.legacy.say("DELETE "+collection, http.StatusOK, deleted)
	x.modern.say("DELETE "+collection, http.StatusConflict, `{"kind":"Status","status":"Failure","message":"no"}`)
	x.wants("DELETE", collection, "", http.StatusConflict, "no; on the legacy side the objects were deleted before")
}

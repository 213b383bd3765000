package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// reviewLimitBytes bounds the reviews that are read. An API server's request, whose words they repeat, has smaller
// headers.
const reviewLimitBytes = 1 << 20

// Handler answers SubjectAccessReviews of authorization.k8s.io, v1 and v1beta1, as API servers send them to
// --authorization-webhook-config-file. It answers in the version of the question.
//
// A request that a rule allows is allowed, with the rule's place as the reason. Any other is no opinion, which lets
// authorizers behind this one decide, unless Deny. A question that cannot be read is answered 400, never by a decision.
// Safe for concurrent use.
type Handler struct {
	Policy  func() Policy     // the policy of the moment
	Deny    bool              // deny instead of having no opinion
	Slots   webserver.Slots   // as many reviews are answered at once; nil for no bound
	Memory  *webserver.Budget // of all reviews; nil for no bound
	Metrics *Metrics
	Logger  *slog.Logger // decisions on level debug; nil for none
}

// Policy is a compiled policy and the name of the file that it came from.
type Policy struct {
	Name       string
	Authorizer *policy.Authorizer
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	memory := h.Memory.Reserve()
	defer memory.Release()
	body, err := webserver.Body(w, r, reviewLimitBytes, memory)
	if err != nil {
		h.refuse(w, err)
		return
	}
	free, err := h.Slots.Take(r.Context())
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer free()
	// What counts are the values, of which a user chooses some: an empty requirement takes three bytes of text.
	if err := memory.Grow(r.Context(), jsontext.DecodedBytes(body)+2*int64(len(body))); err != nil {
		h.refuse(w, err)
		return
	}
	review, err := parseReview(body)
	if err != nil {
		h.refuse(w, err)
		return
	}
	status := h.decide(review.request)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review.answer(status)); err != nil {
		h.logger().Debug("writing the review failed", "err", err)
		return
	}
	h.Metrics.decided(review.version, status, time.Since(start))
	h.logger().Debug("decided", "request", review.request.String(), "allowed", status.Allowed, "denied", status.Denied,
		"reason", status.Reason)
}

func (h *Handler) refuse(w http.ResponseWriter, err error) {
	h.Metrics.Bad.Inc()
	h.logger().Info("review refused", "err", err)
	webserver.Refuse(w, err)
}

func (h *Handler) logger() *slog.Logger {
	if h.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Logger
}

func (h *Handler) decide(q policy.Request) authorizationv1.SubjectAccessReviewStatus {
	by := h.Policy()
	if rule, ok := by.Authorizer.Match(q.Attributes()); ok {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true,
			Reason: fmt.Sprintf("%s:%d", by.Name, rule.Line)}
	}
	return authorizationv1.SubjectAccessReviewStatus{Denied: h.Deny, Reason: "no rule of " + by.Name + " allows it"}
}

// review is a question in either version.
type review struct {
	version string
	request policy.Request
	v1      authorizationv1.SubjectAccessReview
	v1beta1 authorizationv1beta1.SubjectAccessReview
}

// parseReview reads a SubjectAccessReview.
func parseReview(body []byte) (*review, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(body, &meta); err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	r := &review{version: meta.APIVersion}
	if meta.Kind != "SubjectAccessReview" {
		return nil, fmt.Errorf("kind %q: want SubjectAccessReview", meta.Kind)
	}
	var err error
	switch meta.APIVersion {
	case authorizationv1.SchemeGroupVersion.String():
		if err = json.Unmarshal(body, &r.v1); err == nil {
			err = r.ask(r.v1.Spec)
		}
	case authorizationv1beta1.SchemeGroupVersion.String():
		if err = json.Unmarshal(body, &r.v1beta1); err == nil {
			err = r.ask(fromV1beta1(r.v1beta1.Spec))
		}
	default:
		return nil, fmt.Errorf("apiVersion %q: want %s or %s", meta.APIVersion, authorizationv1.SchemeGroupVersion,
			authorizationv1beta1.SchemeGroupVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	return r, nil
}

func fromV1beta1(spec authorizationv1beta1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: spec.User, Groups: spec.Groups,
		ResourceAttributes:    (*authorizationv1.ResourceAttributes)(spec.ResourceAttributes),
		NonResourceAttributes: (*authorizationv1.NonResourceAttributes)(spec.NonResourceAttributes),
	}
}

// ask turns the spec into a request. Selectors are left out: a policy has no word for them.
func (r *review) ask(spec authorizationv1.SubjectAccessReviewSpec) error {
	r.request = policy.Request{User: spec.User, Groups: spec.Groups}
	switch resource, path := spec.ResourceAttributes, spec.NonResourceAttributes; {
	case (resource == nil) == (path == nil):
		return errors.New("want either resourceAttributes or nonResourceAttributes")
	case path != nil && path.Path == "":
		return errors.New("nonResourceAttributes without a path")
	case path != nil:
		r.request.Verb, r.request.Path = path.Verb, path.Path
	default:
		r.request.Verb, r.request.APIGroup, r.request.Resource = resource.Verb, resource.Group, resource.Resource
		r.request.Subresource, r.request.Namespace, r.request.ObjectName = resource.Subresource, resource.Namespace,
			resource.Name
	}
	return nil
}

// answer is the review with the status, in its own version.
func (r *review) answer(status authorizationv1.SubjectAccessReviewStatus) any {
	if r.version == authorizationv1beta1.SchemeGroupVersion.String() {
		r.v1beta1.Status = authorizationv1beta1.SubjectAccessReviewStatus(status)
		return r.v1beta1
	}
	r.v1.Status = status
	return r.v1
}

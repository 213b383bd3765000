package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/admission"
)

// Webhook is the admission webhook for pods, where the modern API server does not mutate them itself. Every process
// serves it, leader or not.
type Webhook struct {
	Listen string      // address
	URL    string      // for the modern API server
	TLS    *tls.Config // of the listener
	CAFile string      // PEM: the CA bundle of the webhook configuration; reloaded
	Losses admission.Losses
	// Metrics of the certificate, served beside those of the controllers; nil for none.
	Metrics prometheus.Collector
}

// WebhookPath is the path of the webhook.
const WebhookPath = "/pods"

// limitReviewBytes is more than an API server sends: the old and the new object, each at most 1.5 MiB, and the overhead
// of JSON.
const limitReviewBytes = 16 << 20

// limitReviewMemory bounds what all reviews take: a pod of a thousand fields takes 1 MiB.
const limitReviewMemory = 256 << 20

// reviewer serves admission reviews.
type reviewer struct {
	change  *admission.Change
	tokens  admission.Tokens
	losses  admission.Losses
	timeout time.Duration // of the API server
	slots   webserver.Slots
	memory  *webserver.Budget
	metrics *metrics
}

// reviewVersions are the supported versions of reviews; the fields that are used are the same in both.
var reviewVersions = map[string]bool{"admission.k8s.io/v1": true, "admission.k8s.io/v1beta1": true}

// ServeHTTP responds to a review in its own version. What could not be decided is an HTTP error: the API server then
// applies the failure policy.
func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	result := "error"
	defer func() { v.metrics.reviews.WithLabelValues(result).Observe(time.Since(start).Seconds()) }()
	memory := v.memory.Reserve()
	defer memory.Release()
	body, err := webserver.Body(w, r, limitReviewBytes, memory)
	if err != nil {
		webserver.Refuse(w, err)
		return
	}
	free, err := v.slots.Take(r.Context())
	if err != nil {
		webserver.Refuse(w, err)
		return
	}
	defer free()
	// A user sends a pod before anything is validated, and its values count, not its bytes.
	const copies = 2 // as it came, and as it is judged
	if err := memory.Grow(r.Context(), copies*jsontext.DecodedBytes(body)+2*int64(len(body))); err != nil {
		webserver.Refuse(w, err)
		return
	}
	review, err := readReview(body)
	if err != nil {
		webserver.Refuse(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), v.timeout)
	defer cancel()
	q := review.Request
	answer, err := v.change.Review(ctx, admission.Request{
		Operation: string(q.Operation), Kind: schema.GroupVersionKind(q.Kind), Subresource: q.SubResource,
		Namespace: q.Namespace,
		Object:    q.Object.Raw, Old: q.OldObject.Raw, DryRun: q.DryRun != nil && *q.DryRun,
	}, v.tokens, v.losses)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Request, review.Response = nil, &admissionv1.AdmissionResponse{UID: q.UID, Allowed: answer.Refusal == "",
		Warnings: answer.Warnings}
	switch {
	case answer.Refusal != "":
		result = "refused"
		review.Response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Message: answer.Refusal}
	case len(answer.Patch) > 0:
		result = "changed"
		form := admissionv1.PatchTypeJSONPatch
		review.Response.PatchType = &form
		if review.Response.Patch, err = json.Marshal(answer.Patch); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	default:
		result = "unchanged"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server has closed the connection
}

func readReview(data []byte) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(data, review); err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	if review.Kind != "AdmissionReview" || !reviewVersions[review.APIVersion] {
		return nil, fmt.Errorf("%q %q: want an AdmissionReview of admission.k8s.io/v1 or v1beta1", review.APIVersion,
			review.Kind)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, errors.New("the review has no request with a uid")
	}
	if len(validation.IsDNS1123Label(review.Request.Namespace)) > 0 {
		return nil, fmt.Errorf("namespace %q: want that of a pod or a workload", review.Request.Namespace)
	}
	return review, nil
}

// answers serves the webhook until ctx ends; the function that it returns waits for requests in flight.
func (p *process) answers(ctx context.Context, o *Webhook) (wait func(), err error) {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for admission reviews of pods: %w", err)
	}
	planned := p.layout.plan
	timeout := time.Duration(planned.Pods.Admission.TimeoutSeconds) * time.Second
	tokens := newTokens(p.cluster, timeout/2)
	mux := http.NewServeMux()
	mux.Handle(WebhookPath,
		&reviewer{change: admission.For(planned), tokens: tokens, losses: o.Losses, timeout: timeout * 9 / 10,
			slots: webserver.NewSlots(webserver.DefaultRequests), memory: webserver.NewBudget(limitReviewMemory),
			metrics: p.metrics})
	var group sync.WaitGroup
	group.Go(func() { tokens.run(ctx) })
	group.Go(func() {
		if err := webserver.Serve(ctx, tls.NewListener(listener, http1(o.TLS)), mux, p.log); err != nil {
			p.log.Error("admission webhook stopped", "err", err)
		}
	})
	p.log.Info("admission webhook listening", "address", listener.Addr().String())
	return group.Wait, nil
}

// http1 keeps a listener to HTTP/1.1. The API server of 1.10 does not recover from an HTTP/2 connection whose other end
// was closed: for minutes it returns "no cached connection", and no pod can be created (seen).
func http1(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	if ask := config.GetConfigForClient; ask != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := ask(hello)
			if chosen != nil {
				chosen = http1(chosen)
			}
			return chosen, err
		}
	}
	return config
}

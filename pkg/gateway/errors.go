package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// refusal is an answer of the gateway itself, as API servers say it.
func refusal(code int, reason metav1.StatusReason, format string, args ...any) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code),
		Reason:  reason,
		Message: "fusionctl gateway: " + fmt.Sprintf(format, args...)}}
}

func badRequest(format string, args ...any) error {
	return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// notImplemented refuses what the gateway could do only in part.
func notImplemented(format string, args ...any) error {
	return refusal(http.StatusNotImplemented, "NotImplemented", format, args...)
}

func unsupported(format string, args ...any) error {
	return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, format, args...)
}

// unavailable is said while a side cannot be reached.
func unavailable(format string, args ...any) error {
	err := refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, format, args...)
	err.ErrStatus.Details = unavailableDetails()
	return err
}

// expired is said of a resource version with which a client cannot go on: it lists again without one.
func expired(format string, args ...any) error {
	return refusal(http.StatusGone, metav1.StatusReasonExpired, format, args...)
}

func unavailableDetails() *metav1.StatusDetails { return &metav1.StatusDetails{RetryAfterSeconds: 1} }

func unreachable(side pair.Side, err error) error {
	return unavailable("%s does not answer: %v", serverOf(side), err)
}

// unfinished is said where a server got a request and no whole answer came. A write that may have been done has no time
// to come again, at which clients would send it by themselves: there would be two objects of a name that the server
// makes.
func unfinished(side pair.Side, method string, err error) error {
	if method == http.MethodGet || method == http.MethodHead {
		return unreachable(side, err)
	}
	return refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "%s does not answer: %v; "+
		"whether it did what was asked is not known", serverOf(side), err)
}

// unread is why the body of a request was not read.
func unread(err error) error {
	var tooLarge *http.MaxBytesError
	var refused *webserver.RequestError
	switch {
	case errors.As(err, &tooLarge):
		return refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the request has more than %d bytes", tooLarge.Limit)
	case errors.As(err, &refused) && refused.Code == http.StatusRequestEntityTooLarge:
		return refusal(refused.Code, metav1.StatusReasonRequestEntityTooLarge, "%v", err)
	case errors.As(err, &refused) && refused.Code == http.StatusServiceUnavailable:
		return unavailable("%v", err)
	}
	return badRequest("reading the request: %v", err)
}

// spare turns a panic beside the goroutine of a request into an error of that request. Nothing above catches it there:
// it would end the gateway, and the watches of everybody. It is deferred.
func (g *Gateway) spare(name pair.Side, failed func(error)) {
	if problem := recover(); problem != nil {
		g.log.Error("answer of a side panicked", "side", name, "err", fmt.Sprint(problem),
			"stack", string(debug.Stack()))
		failed(refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"reading what %s answers did not finish", called(name)))
	}
}

// answered is an answer of a side that the gateway passes on.
type answered struct{ *answer }

func (a answered) Error() string { return fmt.Sprintf("%s answers %d", called(a.side), a.code) }

// refuse writes an error as a Status.
func refuse(w http.ResponseWriter, err error) {
	if passed := (answered{}); errors.As(err, &passed) {
		passed.copyTo(w, passed.body)
		return
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Reason: metav1.StatusReasonInternalError, Message: "fusionctl gateway: " + err.Error()}
	if known := (*apierrors.StatusError)(nil); errors.As(err, &known) {
		status = known.ErrStatus
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	writeJSON(w, int(status.Code), status)
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that is gone
}

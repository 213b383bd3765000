package apiserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

const (
	longestPause = 10 * time.Second // a server that wants to be left alone for longer is queried again all the same
	// faultAttempts is how often a request is sent to which the server itself answers that it failed, as a conversion
	// does.
	faultAttempts = 3
	// silentAttempts is how often a request is sent that is not answered in time: each takes the whole timeout.
	silentAttempts = 2
)

// retry repeats a request while its failure is one that passes, with growing pauses that end with ctx. repeatable says
// that the request may be carried out twice: a read, or a write that names the state which it replaces. Another is
// repeated only when it was not begun.
func (s *Server) retry(ctx context.Context, repeatable bool, request func() error) error {
	pause := s.pause
	for attempt := 1; ; attempt++ {
		err := request()
		if err == nil || attempt >= s.attempts || !passes(err, repeatable, attempt) {
			return err
		}
		timer := time.NewTimer(max(pause/2+rand.N(pause), min(retryAfter(err), longestPause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}

// retryUnanswered is retry for questions to which a server that fails is an answer, too: an API service that is down
// stays so for a while.
func (s *Server) retryUnanswered(ctx context.Context, repeatable bool, request func() error) error {
	var answered error
	err := s.retry(ctx, repeatable, func() error {
		err := request()
		if code := statusCode(err); code != 0 && code != http.StatusTooManyRequests {
			answered = err
			return nil
		}
		return err
	})
	return cmp.Or(answered, err)
}

// passes reports whether the same request may succeed a little later.
func passes(err error, repeatable bool, attempt int) bool {
	switch code := statusCode(err); code {
	case 0:
	case http.StatusTooManyRequests: // it was not begun
		return true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return repeatable
	case http.StatusNotImplemented:
		return false
	default:
		return repeatable && code >= http.StatusInternalServerError && attempt < faultAttempts
	}
	if !errors.Is(err, discovery.ErrUnreachable) {
		return false
	}
	broken := utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || errors.Is(err, io.ErrUnexpectedEOF)
	silent := utilnet.IsTimeout(err) && attempt < silentAttempts
	return utilnet.IsConnectionRefused(err) || repeatable && (broken || silent)
}

// retryAfter is how long the server wants to be left alone.
func retryAfter(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// Passing reports whether the failure is one that may pass by itself: the server is unreachable, or too busy.
func Passing(err error) bool {
	switch statusCode(err) {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return errors.Is(err, discovery.ErrUnreachable)
}

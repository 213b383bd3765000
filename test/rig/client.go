package rig

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/kubefusion/fusionctl/internal/pause"
)

// Client speaks JSON to a server, without an opinion about its API: what a release of 2017 answers is as good as any.
// Safe for concurrent use.
type Client struct {
	http *http.Client
	base string
}

func newClient(base string, config *tls.Config) *Client {
	// A proxy of the environment has no business with loopback. HTTP/1 is what all of the servers speak alike.
	return &Client{
		base: base, http: &http.Client{Transport: &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 4}}}
}

// StatusError is an answer of a server that is not 2xx.
type StatusError struct {
	Method, Path string
	Code         int
	Message      string // the server's own, or the body

	after time.Duration // of Retry-After
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.Method, e.Path, e.Code, e.Message)
}

// Code is the HTTP status of an error of Call: 200 for nil, 0 for an error without an answer.
func Code(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Code
	}
	return 0
}

// Call sends in as JSON, unless it is nil, and reads the answer's JSON into out, unless that is nil.
// A PATCH is a merge patch. Paths are as on the wire: /api/v1/namespaces?limit=1. A server that says how long to wait
// before the request is made again is waited for, as every client of Kubernetes does: busy ones shed load.
// Errors: *StatusError for answers that are not 2xx.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	for range retries {
		err := c.call(ctx, method, path, in, out)
		status, _ := errors.AsType[*StatusError](err)
		if status == nil || status.Code != http.StatusTooManyRequests || status.after == 0 {
			return err
		}
		if pause.For(ctx, status.after) != nil {
			return err
		}
	}
	return c.call(ctx, method, path, in, out)
}

// retries is how often a request that a busy server turns away is made again.
const retries = 30

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	response, err := c.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return &StatusError{Method: method, Path: path, Code: response.StatusCode, Message: message(data),
			after: time.Duration(seconds) * time.Second}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	return nil
}

// Do sends JSON and returns the answer, whatever its status, for tests that look at its header. The caller closes its
// body.
func (c *Client) Do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return c.http.Do(request)
}

// message is what an answer says about its failure: the message of a Status, or the whole.
func message(data []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(data, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(bytes.TrimSpace(data))
}

// ClientWith speaks to any server with a client's own certificate and trust. It gives up a server that does not answer.
func (r *Rig) ClientWith(url string, config *tls.Config) *Client {
	c := newClient(url, config)
	c.http.Timeout = 10 * time.Second
	return c
}

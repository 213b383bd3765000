//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// probe requests a URL ten times a second, each time by a connection of its own. It writes a line for each request to
// one file, and one for each that failed to another: whether it hung, how long connecting took, and what else may tell
// why. It is a process that stays: curl, started ten times a second, took an eighth of two processors.
func probe(target, requests, failed string) error {
	// Where it has no endpoints, the answer is there at once; ten seconds are for a machine that is busy.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for ; ; time.Sleep(100 * time.Millisecond) {
		if err := appendLine(requests, ""); err != nil {
			return err
		}
		began, connected := time.Now(), "not"
		err := request(client, target, func() { connected = "after " + time.Since(began).String() })
		if err == nil {
			continue
		}
		what := "failed"
		if os.IsTimeout(err) {
			what = "hung"
		}
		load, _ := os.ReadFile("/proc/loadavg")
		if err := appendLine(failed, fmt.Sprintf("at %s it %s: %v; connected: %s; load %.5s; %s",
			began.Format(time.TimeOnly), what, err, connected, load, tracked(target))); err != nil {
			return err
		}
	}
}

func request(client *http.Client, target string, connected func()) error {
	r, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected() }}))
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return nil
}

// tracked says where the kernel has sent the open connections to the host of the URL.
func tracked(target string) string {
	parsed, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	out, err := exec.Command("conntrack", "-L", "-p", "tcp", "-d", parsed.Hostname()).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	var open []string
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "TIME_WAIT") && len(open) < 2 {
			open = append(open, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(open, " | ")
}

func appendLine(name, line string) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(file, line); err != nil {
		return err
	}
	return file.Close()
}

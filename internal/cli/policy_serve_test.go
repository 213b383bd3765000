package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// TestPolicyServeReloads starts the verb as a user would, and changes the file under it: a good change is used, a bad
// one is not.
func TestPolicyServeReloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	write := func(text string) {
		t.Helper()
		if err := filetree.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(user string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"` + user +
			`","resource":"configmaps","namespace":"a"}}` + "\n"
	}
	write(rule("alice"))
	ctx, cancel := context.WithCancel(t.Context())
	logs, stderr := io.Pipe()
	lines := bufio.NewScanner(logs)
	done := make(chan int, 1)
	go func() {
		done <- Main(ctx, []string{"policy", "serve", file, "--insecure-http", "--listen", "127.0.0.1:0",
			"--metrics-listen", "127.0.0.1:0", "--reload-interval", "5ms"},
			Streams{In: strings.NewReader(""), Out: io.Discard, Err: stderr})
		stderr.Close()
	}()
	next := func(want string) string {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return lines.Text()
			}
		}
		t.Fatalf("the log ends without %q: %v", want, lines.Err())
		return ""
	}
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(next("serving"))[1]
	get := func(path string) string {
		t.Helper()
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %s %s %v", path, response.Status, body, err)
		}
		return string(body)
	}
	allowed := func(user string) bool {
		t.Helper()
		body := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"` + user +
			`","resourceAttributes":{"verb":"get","resource":"configmaps","namespace":"a"}}}`
		response, err := http.Post("http://"+address+"/authorize", "application/json", bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var review struct{ Status struct{ Allowed bool } }
		if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	if !allowed("alice") || allowed("bob") {
		t.Error("the first policy allows alice alone")
	}
	write(rule("bob"))
	next("policy loaded")
	if allowed("alice") || !allowed("bob") {
		t.Error("the changed policy allows bob alone")
	}
	write("{}\n")
	next("reload failed")
	if allowed("alice") || !allowed("bob") {
		t.Error("a policy that allows everything is in use, or the last good one is not")
	}
	if metrics := get("/metrics"); !strings.Contains(metrics, "fusionctl_policy_file_good 0\n") ||
		!strings.Contains(
			metrics, `fusionctl_policy_decisions_total{decision="allow",version="authorization.k8s.io/v1"} 3`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	get("/healthz")
	get("/readyz")
	cancel()
	go io.Copy(io.Discard, logs)
	if code := <-done; code != exitDone {
		t.Errorf("exit %d after the signal, want 0", code)
	}
}

func TestPolicyServeRefusesToBeOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(file,
		[]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"a"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dangerous := filepath.Join(t.TempDir(), "dangerous.jsonl")
	if err := os.WriteFile(dangerous, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no certificate to serve with":    {file},
		"want --listen on a loopback":     {file, "--insecure-http", "--listen", "0.0.0.0:0"},
		"takes no certificates":           {file, "--insecure-http", "--tls-cert", file},
		"no flag restricts the clients":   {file, "--tls-cert", file, "--tls-key", file, "--client-name", "x"},
		"loading the certificate":         {file, "--tls-cert", file, "--tls-key", file, "--any-client"},
		"no rule in it":                   {empty, "--insecure-http"},
		"FUS150":                          {dangerous, "--insecure-http"},
		"want a file":                     {filepath.Dir(file), "--insecure-http"},
		"standard input cannot be read":   {"-", "--insecure-http"},
		"--reload-interval 0s: want more": {file, "--insecure-http", "--reload-interval", "0"},
	} {
		var stderr bytes.Buffer
		code := Main(t.Context(), append([]string{"policy", "serve"}, args...),
			Streams{In: strings.NewReader(""), Out: io.Discard, Err: &stderr})
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("serve %v: exit %d, %q, want 2 and %q", args, code, stderr.String(), want)
		}
	}
}

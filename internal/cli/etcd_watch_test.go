package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// watchLine is what the test reads of a line.
type watchLine struct {
	Schema  string
	Event   string
	Finding struct{ Rule, Subject, Message string }
	Fight   struct{ Store, Key string }
	Check   struct {
		Complete bool
		Keys     int
	}
	Reason string
}

// watching runs the verb until the test ends, and reads its lines.
type watching struct {
	t      *testing.T
	lines  *json.Decoder
	cancel context.CancelFunc
	ended  chan int
	seen   []string
}

func watchStores(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	reader, writer := io.Pipe()
	w := &watching{t: t, lines: json.NewDecoder(reader), cancel: cancel, ended: make(chan int, 1)}
	var errs bytes.Buffer
	go func() {
		code := cli.Main(ctx, slices.Concat([]string{"etcd", "watch", splitSpec}, args),
			cli.Streams{In: strings.NewReader(""), Out: writer, Err: &errs})
		writer.CloseWithError(fmt.Errorf("it ended with %d: %s", code, errs.String()))
		w.ended <- code
	}()
	t.Cleanup(func() {
		cancel()
		reader.Close()
		if code := <-w.ended; code != 130 && !t.Failed() {
			t.Errorf("exit code %d after an interrupt, want 130", code)
		}
	})
	return w
}

// until reads lines up to the first that is as wanted.
func (w *watching) until(what string, wanted func(watchLine) bool) watchLine {
	w.t.Helper()
	for {
		var line watchLine
		if err := w.lines.Decode(&line); err != nil {
			w.t.Fatalf("waiting for %s: %v; seen %q", what, err, w.seen)
		}
		if line.Schema != "fusionctl/etcd-watch/v1" {
			w.t.Fatalf("schema %q", line.Schema)
		}
		w.seen = append(w.seen, line.Event+" "+line.Finding.Rule+" "+line.Finding.Subject)
		if wanted(line) {
			return line
		}
	}
}

func (w *watching) finding(event, rule, subject string) watchLine {
	w.t.Helper()
	return w.until(event+" "+rule+" "+subject, func(l watchLine) bool {
		return l.Event == event && l.Finding.Rule == rule && l.Finding.Subject == subject
	})
}

func TestEtcdWatchTellsWhatAppearsAndDisappears(t *testing.T) {
	servers := liveStores(t)
	address := etcdtest.FreeAddress(t)
	w := watchStores(t, slices.Concat(endpoints(servers), []string{"--interval", "200ms", "--metrics", address})...)
	if first := w.until("the first check", func(l watchLine) bool {
		return l.Event == "checked"
	}); !first.Check.Complete || first.Check.Keys != 245 {
		t.Errorf("first check = %+v, want 245 keys, complete", first.Check)
	}
	w.finding("appeared", "FUS060", "core:pods")

	// At a glance: a value that nobody can read. Then it is repaired.
	core := servers["core"].Client(t)
	if _, err := core.Put(t.Context(), "/registry/pods/default/bad", "k8s\x00damaged"); err != nil {
		t.Fatal(err)
	}
	w.finding("appeared", "FUS000", "core:pods")
	if metrics := get(t, "http://"+address+"/metrics"); !strings.Contains(metrics,
		`fusionctl_etcd_findings{rule="FUS000",severity="error"} 1`) ||
		!strings.Contains(metrics, `fusionctl_etcd_keys{resource="pods",store="core"}`) {
		t.Errorf("metrics lack the finding or the keys:\n%s", metrics)
	}
	if _, err := core.Delete(t.Context(), "/registry/pods/default/bad"); err != nil {
		t.Fatal(err)
	}
	w.finding("disappeared", "FUS000", "core:pods")

	// Only the whole store shows it: a namespace that is gone.
	if _, err := servers["modern"].Client(t).Put(t.Context(), "/registry/kubeflow.org/notebooks/gone/nb",
		`{"apiVersion":"kubeflow.org/v1","kind":"Notebook","metadata":{"name":"nb","namespace":"gone","uid":"x"}}`); err != nil {
		t.Fatal(err)
	}
	w.finding("appeared", "FUS130", "modern:kubeflow.org/notebooks")

	// A fight: two API servers that each put their own address.
	for i := range 8 {
		if _, err := core.Put(t.Context(), "/registry/services/endpoints/default/kubernetes",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"kubernetes","namespace":"default","uid":"u"},"subsets":[%d]}`, i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if fight := w.until("a fight", func(l watchLine) bool {
		return l.Event == "fight"
	}); fight.Finding.Rule != "FUS040" || fight.Fight.Key != "services/endpoints/default/kubernetes" {
		t.Errorf("fight = %+v, want FUS040 about the endpoints of kubernetes", fight)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestEtcdWatchServesMetricsToWhoHasACertificate, and on loopback alone when there are no certificates.
func TestEtcdWatchServesMetricsToWhoHasACertificate(t *testing.T) {
	servers, pki := liveStores(t), etcdtest.NewPKI(t)
	address := etcdtest.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	checked := func(l watchLine) bool { return l.Event == "checked" }
	open := watchStores(t, slices.Concat(endpoints(servers), []string{"--metrics", ":" + port})...)
	open.until("the first check", checked)
	if metrics := get(t, "http://"+address+"/metrics"); !strings.Contains(metrics, "fusionctl_etcd_checks_total 1") {
		t.Errorf("no metrics on loopback:\n%s", metrics)
	}
	if conn, err := net.Dial("tcp", "127.0.0.2:"+port); err == nil {
		t.Errorf("--metrics :%s listens on %s too", port, conn.RemoteAddr())
		conn.Close()
	}

	address = etcdtest.FreeAddress(t)
	protected := watchStores(t,
		slices.Concat(endpoints(servers), []string{"--metrics", address, "--tls-cert", pki.Cert, "--tls-key", pki.Key,
			"--client-ca", pki.CA})...)
	protected.until("the first check", checked)
	authorities := x509.NewCertPool()
	ca, err := os.ReadFile(pki.CA)
	if err != nil || !authorities.AppendCertsFromPEM(ca) {
		t.Fatalf("reading %s: %v", pki.CA, err)
	}
	pair, err := tls.LoadX509KeyPair(pki.Cert, pki.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, certificates := range [][]tls.Certificate{nil, {pair}} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: authorities, Certificates: certificates}}}
		response, err := client.Get("https://" + address + "/metrics")
		if (err == nil) != (certificates != nil) {
			t.Errorf("reading metrics with %d certificates: %v", len(certificates), err)
		}
		if err == nil {
			response.Body.Close()
		}
	}
}

func TestEtcdWatchRefusesBadInput(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	nowhere := []string{"--endpoints", "core=http://127.0.0.1:1", "--endpoints", "modern=http://127.0.0.1:1"}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unreachable": {nowhere, 1, "no member answered"},
		"port taken": {slices.Concat(nowhere, []string{"--metrics", taken.Addr().String()}), 2,
			"--metrics: listen tcp"},
		"port open": {slices.Concat(nowhere, []string{"--metrics", "0.0.0.0:0"}), 2, "is not on loopback"},
		"no port":   {slices.Concat(nowhere, []string{"--metrics", "9105"}), 2, "want :PORT or HOST:PORT"},
		"no key": {slices.Concat(nowhere, []string{"--metrics", "0.0.0.0:0", "--tls-cert", "x.crt"}), 2,
			"want all of --tls-cert"},
		"no CA": {slices.Concat(nowhere, []string{"--metrics", "0.0.0.0:0", "--tls-cert", "x.crt", "--tls-key",
			"x.key"}), 2, "want all of --tls-cert"},
		"no metrics": {slices.Concat(nowhere, []string{"--tls-cert", "x.crt"}), 2, "need --metrics"},
		"file":       {fromFiles, 2, "a file does not change"},
		"interval":   {slices.Concat(nowhere, []string{"--interval", "0s"}), 2, "--interval 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, slices.Concat([]string{"etcd", "watch", splitSpec}, test.args)...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, test.code, test.says)
			}
		})
	}
}

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cli"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	reader, writer := io.Pipe()
	w := &watching{t: t, lines: json.NewDecoder(reader), cancel: cancel, ended: make(chan int, 1)}
	var errs bytes.Buffer
	go func() {
		code := cli.Main(ctx, slices.Concat([]string{"etcd", "watch", splitSpec}, args), cli.Streams{In: strings.NewReader(""), Out: writer, Err: &errs})
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
	address := freeAddress(t)
	w := watchStores(t, slices.Concat(endpoints(servers), []string{"--interval", "200ms", "--metrics", address})...)
	if first := w.until("the first check", func(l watchLine) bool { return l.Event == "checked" }); !first.Check.Complete || first.Check.Keys != 245 {
		t.Errorf("first check = %+v, want 245 keys, complete", first.Check)
	}
	w.finding("appeared", "FUS060", "core:pods")

	// At a glance: a value that nobody can read. Then it is repaired.
	core := servers["core"].Client(t)
	if _, err := core.Put(t.Context(), "/registry/pods/default/bad", "k8s\x00damaged"); err != nil {
		t.Fatal(err)
	}
	w.finding("appeared", "FUS000", "core:pods")
	if metrics := get(t, "http://"+address+"/metrics"); !strings.Contains(metrics, `fusionctl_etcd_findings{rule="FUS000",severity="error"} 1`) || !strings.Contains(metrics, `fusionctl_etcd_keys{resource="pods",store="core"}`) {
		t.Errorf("metrics lack the finding or the keys:\n%s", metrics)
	}
	if _, err := core.Delete(t.Context(), "/registry/pods/default/bad"); err != nil {
		t.Fatal(err)
	}
	w.finding("disappeared", "FUS000", "core:pods")

	// Only the whole store shows it: a namespace that is gone.
	if _, err := servers["modern"].Client(t).Put(t.Context(), "/registry/kubeflow.org/notebooks/gone/nb", `{"apiVersion":"kubeflow.org/v1","kind":"Notebook","metadata":{"name":"nb","namespace":"gone","uid":"x"}}`); err != nil {
		t.Fatal(err)
	}
	w.finding("appeared", "FUS130", "modern:kubeflow.org/notebooks")

	// A fight: two API servers that each put their own address.
	for i := range 8 {
		if _, err := core.Put(t.Context(), "/registry/services/endpoints/default/kubernetes", fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"kubernetes","namespace":"default","uid":"u"},"subsets":[%d]}`, i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if fight := w.until("a fight", func(l watchLine) bool { return l.Event == "fight" }); fight.Finding.Rule != "FUS040" || fight.Fight.Key != "services/endpoints/default/kubernetes" {
		t.Errorf("fight = %+v, want FUS040 about the endpoints of kubernetes", fight)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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
		"port taken":  {slices.Concat(nowhere, []string{"--metrics", taken.Addr().String()}), 2, "--metrics: listen tcp"},
		"file":        {fromFiles, 2, "a file does not change"},
		"interval":    {slices.Concat(nowhere, []string{"--interval", "0s"}), 2, "--interval 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, slices.Concat([]string{"etcd", "watch", splitSpec}, test.args)...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, test.code, test.says)
			}
		})
	}
}

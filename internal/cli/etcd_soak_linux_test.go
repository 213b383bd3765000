package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// TestEtcdWatchSoak weighs a watch of real members while FUSIONCTL_SOAK_CHANGES changes are written, as fast as they
// can be.
func TestEtcdWatchSoak(t *testing.T) {
	changes, err := strconv.Atoi(os.Getenv("FUSIONCTL_SOAK_CHANGES"))
	if err != nil {
		t.Skip("FUSIONCTL_SOAK_CHANGES is not set")
	}
	servers := liveStores(t)
	address := etcdtest.FreeAddress(t)
	cmd := program(t, slices.Concat([]string{"etcd", "watch", splitSpec, "--interval", "2s", "--metrics", address},
		endpoints(servers))...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	events := make(chan map[string]int, 1)
	checked := make(chan struct{})
	go func() {
		seen := map[string]int{}
		lines := json.NewDecoder(out)
		for {
			var line watchLine
			if err := lines.Decode(&line); err != nil {
				events <- seen
				return
			}
			if seen[line.Event]++; seen["checked"] == 1 && line.Event == "checked" {
				close(checked)
			}
		}
	}()
	<-checked
	weight := func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rss, _ := strings.Cut(string(status), "VmRSS:")
		var kib int
		if _, err := fmt.Sscan(rss, &kib); err != nil {
			t.Fatal(err)
		}
		return kib
	}
	const keys, batch = 20_000, 100
	var weights []int
	filler := strings.Repeat("f", 1000)
	for n := 0; n < changes; n += batch {
		name := []string{"core", "modern"}[n/batch%2]
		var ops []clientv3.Op
		for i := range batch {
			k := (n + i*7919) % keys
			key := fmt.Sprintf("/registry/%s/team-%02d/name-%05d",
				[]string{"pods", "deployments", "configmaps", "secrets", "strange"}[k%5], k%50, k)
			if n/keys%3 == 2 {
				ops = append(ops, clientv3.OpDelete(key))
				continue
			}
			ops = append(ops,
				clientv3.OpPut(key,
					fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"name-%05d","namespace":"team-%02d","uid":"%d"},"spec":{"n":"%d%s"}}`, k, k%50, k, n, filler)))
		}
		put, err := servers[name].Client(t).Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if n/batch%1000 == 999 { // as API servers do
			if _, err := servers[name].Client(t).Compact(t.Context(), put.Header.Revision); err != nil {
				t.Fatal(err)
			}
		}
		if n*12/changes != (n+batch)*12/changes {
			weights = append(weights, weight())
		}
	}
	metrics := get(t, "http://"+address+"/metrics")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes: KiB resident after each twelfth %d; %d series; events %v", changes, weights,
		strings.Count(metrics, "\nfusionctl_"), <-events)
	_, _ = io.Copy(io.Discard, out)
	first, last := slices.Max(weights[:4]), slices.Max(weights[8:])
	if last > first+first/5 {
		t.Errorf("%d KiB in the first third, %d KiB in the last", first, last)
	}
}

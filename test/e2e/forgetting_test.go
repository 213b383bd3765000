//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// A modern side whose store forgot what it had, or that looks into another one, has no ReplicaSets: their pods are not
// garbage. The controllers stop, and resume when it is acknowledged.
func TestStoresThatForgetLoseNoPods(t *testing.T) {
	t.Parallel()
	f := startFused(t, "1.15.12", access)
	store := f.Stores["modern"]
	f.ModernManager.Stop()
	f.Modern.Kill()
	backup := store.CopyData("backup")
	f.Modern.StartAgain()
	f.Modern.WaitReady()
	f.ModernManager.Restart()
	f.create("modern", "deployments", deployment("later"))
	f.awaitPods("later", 3)
	f.awaitControllers()
	kept, err := deploymentPods(t.Context(), f.admin)
	must(t, err)
	f.awaitRemembered()
	f.controllers.Kill() // it is from the disk that it is known
	f.controllers.StartAgain()
	f.awaitControllers()
	f.ModernManager.Stop() // it would write what is missing

	data := store.Directory()
	for _, forgets := range []struct {
		name       string
		does, mend func()
	}{
		{"its backup is restored", func() { store.UseData(backup) }, func() { store.UseData(data) }},
		{"its data directory is empty", func() { store.UseData(t.TempDir()) }, func() { store.UseData(data) }},
		{"its API server is started with another prefix",
			func() {
				f.Modern.SetArg("etcd-prefix", "/elsewhere")
			}, func() { f.Modern.SetArg("etcd-prefix", "/registry") }},
		{"its API server is started with the other side's endpoint",
			func() { f.Modern.SetArg("etcd-servers", f.Stores["core"].URL) }, nil},
	} {
		f.Modern.Kill()
		forgets.does()
		f.Modern.StartAgain()
		f.Modern.WaitReady()
		start := time.Now()
		f.awaitStopped()
		t.Logf("%s: stopped %s after the server was ready", forgets.name, time.Since(start).Round(10*time.Millisecond))
		pause(t, 10*time.Second)
		left, err := deploymentPods(t.Context(), f.admin)
		must(t, err)
		for name, uid := range kept {
			if left[name] != uid {
				t.Fatalf("%s: pod %s is gone, and nobody deleted its Deployment", forgets.name, name)
			}
		}
		if forgets.mend == nil {
			continue
		}
		f.Modern.Kill()
		forgets.mend()
		f.Modern.StartAgain()
		f.Modern.WaitReady()
		f.acknowledge()
		f.awaitControllers()
		if forgets.name == "its backup is restored" {
			// They collect again.
			f.remove(f.user, f.path("modern", "deployments")+"/later", metav1.DeletePropagationBackground)
			f.nothingLeft("the pods of a Deployment", f.user, demoPods+"?labelSelector=deployment=later")
			for name := range kept {
				if strings.HasPrefix(name, "later-") {
					delete(kept, name)
				}
			}
		}
	}
	proved(t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"the modern store is emptied, restored or exchanged below its API server, and no pod is lost: the "+
			"controllers stop until the stop is acknowledged")
}

// awaitRemembered waits until what the modern store has now was seen, and is on the disk.
func (f *fused) awaitRemembered() {
	f.t.Helper()
	now, err := f.Stores["modern"].Client().Get(f.t.Context(), "/")
	must(f.t, err)
	file := filepath.Join(f.stateDirectory(), "witness.json")
	f.Eventually("what was seen of the store is on the disk", func(context.Context) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return remembers(text, "modern", now.Header.Revision)
	})
}

// remembers reports as nil that a revision of a store is in what the controllers remember.
func remembers(text []byte, store string, revision int64) error {
	var memory witness.Memory
	if err := json.Unmarshal(text, &memory); err != nil {
		return err
	}
	for name, seen := range memory.Stores {
		if strings.HasSuffix(name, "store "+store) && seen.Revision >= revision {
			return nil
		}
	}
	return fmt.Errorf("revision %d is not there: %+v", revision, memory.Stores)
}

// stateDirectory is where the controllers keep what they have seen.
func (f *fused) stateDirectory() string {
	f.t.Helper()
	directory, ok := f.Plan.ComponentsOf("", plan.JointControllers)[0].Arg("state-dir")
	if !ok {
		f.t.Fatal("the plan has no --state-dir")
	}
	return f.Place(directory)
}

// awaitStopped waits until the controllers say that they delete nothing.
func (f *fused) awaitStopped() {
	f.t.Helper()
	f.Eventually("the controllers stop", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(text), "deletions have stopped") {
			err = fmt.Errorf("readyz says %.200q", text)
		}
		return err
	})
}

// acknowledge says what a person says, with the rendered path.
func (f *fused) acknowledge() {
	f.t.Helper()
	binary, err := fusionctl()
	must(f.t, err)
	out, err := exec.CommandContext(f.t.Context(), binary, "controllers", "acknowledge", "--yes", "--why", "a test",
		"--state-dir", f.stateDirectory()).CombinedOutput()
	if err != nil {
		f.t.Fatalf("acknowledge: %v\n%s", err, out)
	}
}

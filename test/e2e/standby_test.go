//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// The API server that keeps the lock is away for longer than the lock can go without a renewal: the process stands by,
// leads again and collects again. The rig fails a test of which a process ends by itself.
func TestControllersStandByWhileTheirServerIsAway(t *testing.T) {
	t.Parallel()
	f := startFused(t, "1.15.12", access)
	f.create("modern", "deployments", deployment("later"))
	f.awaitPods("later", 3)
	f.ModernManager.Stop()
	f.Modern.Kill()
	f.Eventually("the controllers stand by", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return fmt.Errorf("readyz answers %s", response.Status)
		}
		return nil
	})
	f.Modern.StartAgain()
	f.Modern.WaitReady()
	f.ModernManager.Restart()
	start := time.Now()
	f.awaitControllers()
	t.Logf("they act %s after the server was ready", time.Since(start).Round(10*time.Millisecond))
	f.remove(f.user, f.path("modern", "deployments")+"/later", metav1.DeletePropagationBackground)
	f.nothingLeft("the pods of a Deployment", f.user, demoPods+"?labelSelector=deployment=later")
	proved(t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"the controllers outlive the loss of the API server that keeps their lock, and lead again")
}

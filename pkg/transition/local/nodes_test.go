package local

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func podWith(name string, restarts int32, id string, running bool) *v1.Pod {
	status := v1.ContainerStatus{Name: "main", RestartCount: restarts, ContainerID: id}
	if running {
		status.State.Running = &v1.ContainerStateRunning{}
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-1"},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{status}}}
}

// TestOnlyWhatWasPredictedMayHappen: to the pods of a node whose kubelet is changed.
func TestOnlyWhatWasPredictedMayHappen(t *testing.T) {
	for _, c := range []struct {
		verdict restart.Verdict
		now     *v1.Pod
		says    string
	}{
		{restart.Keep, podWith("web", 3, "a", true), ""},
		{restart.Keep, podWith("web", 4, "b", true), "want the same"},
		{restart.Keep, podWith("web", 3, "b", true), "want the same"},
		{restart.Restart, podWith("web", 4, "b", true), ""},
		{restart.Restart, podWith("web", 3, "a", true), "has not restarted yet"},
		{restart.Restart, podWith("web", 5, "b", true), "restarted 2 times"},
		{restart.Restart, podWith("web", 4, "b", false), "does not run"},
		{restart.Unknown, podWith("web", 4, "b", true), ""},
		{restart.Unknown, podWith("web", 3, "a", true), ""},
		{restart.Unknown, podWith("web", 5, "b", true), "restarted 2 times"},
		{restart.Keep, nil, "UID uid-1, is gone"},
	} {
		was := podWith("web", 3, "a", true)
		record := recordedNode{Pods: []recordedPod{recordPod(was, []restart.Outcome{{Container: "main",
			Verdict: c.verdict}})}}
		var now []*v1.Pod
		if c.now != nil {
			now = append(now, c.now)
		}
		other := podWith("web", 3, "a", true)
		other.UID = "uid-2" // another pod of the name is another pod
		err := record.compare(append(now, other))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, then %+v: %v, want %q", c.verdict, c.now, err, c.says)
		}
	}
	ended, static := podWith("job", 0, "", false), podWith("etcd", 0, "a", true)
	ended.Status.Phase, static.Annotations = v1.PodSucceeded, map[string]string{v1.MirrorPodAnnotationKey: "x"}
	if lives(ended) || lives(static) || !lives(podWith("web", 0, "a", true)) {
		t.Error("a pod that has ended, or one of the kubelet's own, is to be there afterwards")
	}
	if r := recordPod(podWith("web", 3, "a", false), nil); len(r.Containers) > 0 {
		t.Errorf("a container that does not run is to stay as it is: %+v", r)
	}
}

// TestRightsAreAskedOfTheServersOwnAuthorizers: one that is refused is named.
func TestRightsAreAskedOfTheServersOwnAuthorizers(t *testing.T) {
	refused, listed := "", 0
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=node-1" {
			listed++
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))
			return
		}
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil ||
			r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		a := review.Spec.ResourceAttributes
		what := review.Spec.User + " " + a.Verb + " " + a.Resource + "/" + a.Subresource
		asked[what] = slices.Contains(review.Spec.Groups, "system:nodes")
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: what != refused, Reason: "no rule"}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	node := &transition.Node{Name: "node-1", Client: "apiserver", Modern: transition.Access{Server: server.URL}}
	check := func() error {
		return (&Host{}).Check(t.Context(), "", &transition.Check{Kind: transition.NodeRights, Node: node})
	}
	if err := check(); err != nil || listed == 0 {
		t.Fatalf("%v; pods were listed %d times", err, listed)
	}
	for _, what := range []string{"system:node:node-1 update leases/", "system:node:node-1 list services/",
		"system:node:node-1 patch nodes/status", "apiserver create nodes/proxy"} {
		isNode, was := asked[what]
		if !was || isNode != strings.HasPrefix(what, "system:node:") {
			t.Errorf("%s: was asked %t, as one of system:nodes %t", what, was, isNode)
		}
		refused = what
		if err := check(); err == nil || !strings.Contains(err.Error(), "no rule") {
			t.Errorf("%s is refused: %v", what, err)
		}
	}
}

// TestANodeIsReadyWhenItsHeartbeatsAreSeen: by the legacy side, with the kubelet of the version; that it was ready when
// its kubelet stopped shows nothing.
func TestANodeIsReadyWhenItsHeartbeatsAreSeen(t *testing.T) {
	version := func(text string) kubever.Version {
		v, err := kubever.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		beats         bool
		ready, runs   string
		leases, wants bool
	}{
		"by its status":           {true, "True", "v1.36.3", false, true},
		"by its lease":            {true, "True", "v1.36.3", true, true},
		"silent":                  {false, "True", "v1.36.3", true, false},
		"not ready":               {true, "False", "v1.36.3", true, false},
		"with the kubelet before": {true, "True", "v1.15.12", true, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		count, asked := 0, 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.beats {
				count++
			}
			if asked++; !c.wants && asked > 6 { // it was looked at twice
				cancel()
			}
			beat := time.Unix(int64(count), 0).UTC().Format(metav1.RFC3339Micro)
			w.Header().Set("Content-Type", "application/json")
			var answer any
			switch r.URL.Path {
			case "/api/v1/nodes/node-1":
				if c.leases {
					beat = "2026-01-01T00:00:00Z"
				}
				answer = map[string]any{"kind": "Node", "apiVersion": "v1",
					"metadata": map[string]any{"name": "node-1"},
					"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": c.runs},
						"conditions": []any{map[string]any{"type": "Ready", "status": c.ready,
							"lastHeartbeatTime": beat}}}}
			case "/apis":
				answer = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{
					"name": "coordination.k8s.io", "versions": []any{map[string]any{
						"groupVersion": "coordination.k8s.io/v1", "version": "v1"}}}}}
			default:
				answer = map[string]any{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
					"metadata": map[string]any{"name": "node-1", "namespace": "kube-node-lease"},
					"spec":     map[string]any{"renewTime": beat}}
			}
			_ = json.NewEncoder(w).Encode(answer)
		}))
		access := transition.Access{Server: server.URL}
		h := &Host{Wait: time.Minute}
		err := h.Check(ctx, "", &transition.Check{Kind: transition.NodeReady, Node: &transition.Node{
			Name: "node-1", Legacy: access, Modern: access, Leases: c.leases, To: version("1.36.3")}})
		if (err == nil) != c.wants || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want ready %t", name, err, c.wants)
		}
		cancel()
		server.Close()
	}
}

func TestAKubeletIsOfItsVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubelet")
	for _, c := range []struct {
		prints, want string
		ok           bool
	}{
		{"Kubernetes v1.36.3", "1.36.3", true}, {"Kubernetes v1.36.3", "1.36", true},
		{"Kubernetes v1.36.3", "1.3", false}, {"Kubernetes v1.15.12", "1.36.3", false},
		{"etcd 1.36.3", "1.36.3", false},
	} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+c.prints+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		check := &transition.Check{Kind: transition.Program, Path: file, Version: c.want}
		err := (&Host{}).Check(t.Context(), "", check)
		if (err == nil) != c.ok {
			t.Errorf("%q as %s = %v, want good %t", c.prints, c.want, err, c.ok)
		}
	}
}

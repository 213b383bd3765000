package restart

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// releaseContainers are those of testdata/releases.jsonl.
func releaseContainers(t testing.TB) (containers []*v1.Container) {
	t.Helper()
	data, err := os.ReadFile("testdata/releases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var vector struct{ Container *v1.Container }
		if err := json.Unmarshal(line, &vector); err != nil {
			t.Fatal(err)
		}
		containers = append(containers, vector.Container)
	}
	return containers
}

func TestExplainHasAReasonExactlyWhenHashesDiffer(t *testing.T) {
	for i, container := range releaseContainers(t) {
		for _, from := range kubever.Minors() {
			for _, to := range kubever.Minors() {
				before, err := hash(container, form{from, API, false})
				if err != nil {
					t.Fatal(err)
				}
				after, err := hash(container, form{to, API, false})
				if err != nil {
					t.Fatal(err)
				}
				why := explain(container, from, to)
				if (len(why) > 0) != (before != after) {
					t.Errorf("container %d from %s to %s: hashes %s and %s, reasons %q", i, from, to, before, after,
						why)
				}
				if slices.Contains(why, "") {
					t.Errorf("container %d from %s to %s: an empty reason in %q", i, from, to, why)
				}
			}
		}
	}
}

func TestExplainNamesTheField(t *testing.T) {
	unprivileged := &v1.SecurityContext{}
	tcp := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}}
	always := v1.ContainerRestartPolicyAlways
	for _, c := range []struct {
		name      string
		container v1.Container
		from, to  kubever.Minor
		want      string
	}{
		{"bare", v1.Container{}, 6, 8, ""},
		{"bare", v1.Container{}, 8, 9, "every container: volumeDevices is new in 1.9"},
		{"bare", v1.Container{}, 9, 15, ""},
		{"tcp probe", v1.Container{LivenessProbe: tcp}, 6, 7, "livenessProbe.tcpSocket set: host is new in 1.7"},
		{"tcp hook",
			v1.Container{Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}}}, 6,
			7, "lifecycle.preStop.tcpSocket set: host is new in 1.7"},
		{"mounts", v1.Container{VolumeMounts: make([]v1.VolumeMount, 3)}, 7, 8,
			"volumeMounts set: mountPropagation is new in 1.8"},
		{"mounts", v1.Container{VolumeMounts: make([]v1.VolumeMount, 3)}, 12, 14,
			"volumeMounts set: subPathExpr is new in 1.14"},
		{"security", v1.Container{SecurityContext: unprivileged}, 7, 8,
			"securityContext set: allowPrivilegeEscalation is new in 1.8"},
		{"security", v1.Container{SecurityContext: unprivileged}, 9, 12,
			"securityContext set: runAsGroup is new in 1.10; securityContext set: procMount is new in 1.12"},
		{"security", v1.Container{SecurityContext: unprivileged}, 15, 14,
			"securityContext set: windowsOptions is new in 1.15"},
		{"security", v1.Container{SecurityContext: unprivileged}, 10, 11, ""},
		{"security", v1.Container{SecurityContext: unprivileged}, 12, 13, ""},
		{"anything", v1.Container{SecurityContext: unprivileged}, 12, 17,
			"the 1.16 kubelet hashes JSON instead of the struct"},
		{"anything", v1.Container{}, 12, 36, "the 1.31 kubelet hashes only name and image instead of the struct"},
		{"anything", v1.Container{}, 30, 31, "the 1.31 kubelet hashes only name and image instead of JSON"},
		{"anything", v1.Container{}, 17, 12, "the 1.15 kubelet hashes the struct instead of JSON"},
		{"startup probe", v1.Container{StartupProbe: tcp}, 16, 30, ""},
		{"hooks by another name",
			v1.Container{LivenessProbe: tcp, Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}}, 22, 23, ""},
		{"sidecar", v1.Container{RestartPolicy: &always}, 27, 28, "restartPolicy set: new in 1.28"},
		{"grpc", v1.Container{LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{}}}}, 22, 30,
			"livenessProbe.grpc set: new in 1.23"},
		{"grpc, back", v1.Container{LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{}}}},
			30, 22, "livenessProbe.grpc set: new in 1.23"},
		{"anything", v1.Container{RestartPolicy: &always}, 31, 36, ""},
	} {
		if got := strings.Join(explain(&c.container, c.from, c.to), "; "); got != c.want {
			t.Errorf("%s from %s to %s: %q, want %q", c.name, c.from, c.to, got, c.want)
		}
	}
}

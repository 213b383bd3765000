package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// decodePod reads a manifest as strictly as an API server that is asked to.
func decodePod(t *testing.T, data []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(data, &pod); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return &pod
}

// expanded is what a kubelet makes of a word (Kubernetes, "Define Command and Arguments"): $(NAME) is a variable, $$ is
// one $, and what is neither stays.
func expanded(s string, environment map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], "$$") {
			out.WriteByte('$')
			i++
			continue
		}
		if strings.HasPrefix(s[i:], "$(") {
			if name, _, closed := strings.Cut(s[i+2:], ")"); closed {
				if value, known := environment[name]; known {
					out.WriteString(value)
				} else {
					out.WriteString("$(" + name + ")")
				}
				i += len(name) + 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func TestPodArgumentsReferToTheEnvironment(t *testing.T) {
	environment := map[string]string{"A": "value", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for word, want := range map[string]string{
		"$(A)": "value", "$$(A)": "$value", "$$$(A)": "$$value", "$(B)": "$(B)", "$$(B)": "$$(B)", "$$": "$$", "$": "$",
		"a$$b$": "a$$b$", "$(": "$(", "$$$(": "$$$(", "$A": "$A",
		"$($$)": "$($$)", "$$($$)$$": "$$($$)$$", "$($(A)$$)": "$(value$$)", "$($$": "$($$",
		"$(KUBERNETES_SERVICE_HOST)": "$(KUBERNETES_SERVICE_HOST)", // which every pod has, and no spec
	} {
		if got := expanded(unexpanded(word, map[string]bool{"A": true}), environment); got != want {
			t.Errorf("%q reaches the process as %q, want %q", word, got, want)
		}
	}
	if got := unexpanded("$(A) $C", map[string]bool{"A": true}); got != "$(A) $C" {
		t.Errorf("nothing has to be escaped, and it became %q", got)
	}
}

func TestStaticPodSaysWhatThePlanSays(t *testing.T) {
	p := handmade(36)
	for i := range p.Components {
		c := &p.Components[i]
		data, err := staticPod(p, c)
		if err != nil {
			t.Fatal(err)
		}
		pod := decodePod(t, data)
		container := pod.Spec.Containers[0]
		var args []string
		for _, a := range c.Args {
			args = append(args, a.String())
		}
		if diff := cmp.Diff(args, container.Args); diff != "" {
			t.Errorf("%s: args (-plan +pod):\n%s", c.Name, diff)
		}
		if diff := cmp.Diff(c.Command, container.Command); diff != "" {
			t.Errorf("%s: command (-plan +pod):\n%s", c.Name, diff)
		}
		if container.Image != c.Image || pod.Name != c.Name || pod.Namespace != "kube-system" || !pod.Spec.HostNetwork {
			t.Errorf("%s: got %s", c.Name, data)
		}
		if len(container.VolumeMounts) != len(c.Mounts) || len(pod.Spec.Volumes) != len(c.Mounts) {
			t.Errorf("%s: %d mounts and %d volumes, want %d", c.Name, len(container.VolumeMounts),
				len(pod.Spec.Volumes), len(c.Mounts))
		}
	}
}

// Every field of every pod exists in the API of the kubelet that reads it, whichever kubelet that is.
func TestPodsHaveNoFieldThatTheKubeletLacks(t *testing.T) {
	for _, m := range kubever.Minors() {
		p := handmade(m)
		for i := range p.Components {
			data, err := staticPod(p, &p.Components[i])
			if err != nil {
				t.Fatal(err)
			}
			for _, unknown := range unknownFields(t, data, "v1.Pod", m) {
				t.Errorf("kubelet %s, %s: no field %s", m, p.Components[i].Name, unknown)
			}
		}
	}
}

// unknownFields lists the fields of a document that a minor does not know.
func unknownFields(t *testing.T, data []byte, typeName string, m kubever.Minor) []string {
	t.Helper()
	var document map[string]any
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	var unknown []string
	walkFields(document, typeName, "", m, func(path string) { unknown = append(unknown, path) })
	return unknown
}

func walkFields(value any, typeName, path string, m kubever.Minor, report func(path string)) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			walkFields(item, strings.TrimPrefix(typeName, "[]"), path, m, report)
		}
	case map[string]any:
		if strings.HasPrefix(typeName, "map[string]") {
			return // its keys are data
		}
		for name, child := range v {
			at := path + "." + name
			childType := kubever.FieldType(typeName, name, m)
			if childType == "" {
				report(at)
				continue
			}
			walkFields(child, childType, at, m, report)
		}
	}
}

func TestUnknownFieldsAreFound(t *testing.T) {
	data := []byte("spec:\n  containers:\n  - startupProbe: {httpGet: {port: 1}}\n    livenessProbe: {grpc: {port: " +
		"1}}\n")
	if got := unknownFields(t, data, "v1.Pod", 15); len(got) != 2 {
		t.Errorf("unknownFields(1.15) = %v, want the two of a later kubelet", got)
	}
	if got := unknownFields(t, data, "v1.Pod", 36); len(got) != 0 {
		t.Errorf("unknownFields(1.36) = %v, want none", got)
	}
}

func TestPodFieldsFollowTheKubelet(t *testing.T) {
	for _, test := range []struct {
		kubelet  kubever.Minor
		priority string
		volume   bool // has a type
		startup  bool
		seccomp  bool
	}{
		{6, "", false, false, false},
		{8, "system-node-critical", true, false, false},
		{16, "system-node-critical", true, true, false},
		{36, "system-node-critical", true, true, true},
	} {
		p := handmade(test.kubelet)
		data, err := staticPod(p, &p.Components[2])
		if err != nil {
			t.Fatal(err)
		}
		pod := decodePod(t, data)
		if pod.Spec.PriorityClassName != test.priority {
			t.Errorf("kubelet %s: priorityClassName %q, want %q", test.kubelet, pod.Spec.PriorityClassName,
				test.priority)
		}
		if _, marked := pod.Annotations[criticalAnnotation]; marked == (test.priority != "") {
			t.Errorf("kubelet %s: critical by annotation: %v, by priority: %q; want one of the two", test.kubelet,
				marked, test.priority)
		}
		if got := pod.Spec.Volumes[0].HostPath.Type != nil; got != test.volume {
			t.Errorf("kubelet %s: hostPath has a type: %v, want %v", test.kubelet, got, test.volume)
		}
		if got := pod.Spec.Containers[0].StartupProbe != nil; got != test.startup {
			t.Errorf("kubelet %s: startupProbe: %v, want %v", test.kubelet, got, test.startup)
		}
		if got := pod.Spec.SecurityContext != nil; got != test.seccomp {
			t.Errorf("kubelet %s: seccompProfile: %v, want %v", test.kubelet, got, test.seccomp)
		}
	}
}

// A kubelet that cannot name the host of a TCP probe asks at the pod's address: that is right only for who listens
// everywhere.
func TestTCPProbeOfAnOldKubelet(t *testing.T) {
	for _, test := range []struct {
		kubelet kubever.Minor
		bind    string
		probed  bool
		host    string
	}{
		{6, "0.0.0.0", true, ""},
		{6, "127.0.0.1", false, ""},
		{6, "10.0.0.11", false, ""},
		{7, "127.0.0.1", true, "127.0.0.1"},
	} {
		p := handmade(test.kubelet)
		c := &p.Components[1]
		c.Args[0].Value = test.bind
		data, err := staticPod(p, c)
		if err != nil {
			t.Fatal(err)
		}
		liveness := decodePod(t, data).Spec.Containers[0].LivenessProbe
		if (liveness != nil) != test.probed {
			t.Errorf("kubelet %s, --bind-address=%s: probed: %v, want %v", test.kubelet, test.bind, liveness != nil,
				test.probed)
		} else if liveness != nil && liveness.TCPSocket.Host != test.host {
			t.Errorf("kubelet %s, --bind-address=%s: host %q, want %q", test.kubelet, test.bind,
				liveness.TCPSocket.Host, test.host)
		}
	}
}

func TestPodValuesSurviveWhateverTheyContain(t *testing.T) {
	p := handmade(36)
	c := &p.Components[2]
	c.Args, c.Env, c.Mounts = nil, nil, nil
	for i, value := range hostile {
		c.Args = append(c.Args, plan.Arg{Name: "value", Value: value, Why: value, Origin: plan.FromPlan},
			plan.Arg{Name: value, Value: value})
		c.Env = append(c.Env, spec.EnvVar{Name: fmt.Sprintf("V%d", i), Value: value})
		c.Mounts = append(c.Mounts, plan.Mount{Name: fmt.Sprintf("m%d", i), Path: "/" + value})
	}
	c.Command = append([]string{"kube-apiserver"}, hostile...)
	data, err := staticPod(p, c)
	if err != nil {
		t.Fatal(err)
	}
	container := decodePod(t, data).Spec.Containers[0]
	for i, a := range c.Args {
		if got := expanded(container.Args[i], nil); got != a.String() {
			t.Errorf("args[%d] = %q, want %q", i, got, a.String())
		}
	}
	for i, e := range c.Env {
		if got := container.Env[i]; got.Name != e.Name || expanded(got.Value, nil) != e.Value {
			t.Errorf("env[%d] = %q, want %q", i, got, e)
		}
	}
	for i, m := range c.Mounts {
		if container.VolumeMounts[i].MountPath != m.Path {
			t.Errorf("mountPath = %q, want %q", container.VolumeMounts[i].MountPath, m.Path)
		}
	}
	for i, word := range c.Command {
		if got := expanded(container.Command[i], nil); got != word {
			t.Errorf("command[%d] = %q, want %q", i, got, word)
		}
	}
}

func FuzzPodValue(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p := handmade(6)
		c := &p.Components[2]
		c.Args = []plan.Arg{{Name: "v", Value: value, Why: value, Origin: plan.FromPlan}}
		c.Env = []spec.EnvVar{{Name: "V", Value: value}}
		if checkText(p) != nil || strings.Contains(value, "$(V)") {
			t.Skip()
		}
		data, err := staticPod(p, c)
		if err != nil {
			t.Fatal(err)
		}
		container := decodePod(t, data).Spec.Containers[0]
		if expanded(container.Args[0], nil) != "--v="+value || expanded(container.Env[0].Value, nil) != value ||
			len(container.Args) != 1 {
			t.Errorf("%q came back as %q and %q", value, container.Args, container.Env)
		}
		read := adopt.ReadManifest("a.yaml", data)
		if len(read.Processes) != 1 || !slices.Equal(read.Processes[0].Words, []string{"--v=" + value}) ||
			!slices.Contains(read.Processes[0].Env, spec.EnvVar{Name: "V", Value: value}) {
			t.Errorf("%q is read as %+v", value, read)
		}
	})
}

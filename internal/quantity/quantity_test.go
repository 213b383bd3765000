package quantity

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// bombs are quantities that take minutes, or gigabytes.
var bombs = []string{"1e-100000000", "1E-2147483648", "-1e-99999999999999999999", "1e2147483647", "1e+100000",
	"0.1E100000", strings.Repeat("7", 4<<20), "0." + strings.Repeat("7", 4<<20)}

func TestBombsAreRefused(t *testing.T) {
	for _, bomb := range bombs {
		if _, err := Parse(bomb); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.30q: %v", bomb, err)
		}
	}
	for _, good := range []string{"1", "-1.5", "20Gi", "1E", "1Ei", "100m", "1e3", "12E6", "1e-9", "0.5", "1e30"} {
		got, err := Parse(good)
		if want, wrong := resource.ParseQuantity(good); err != nil || wrong != nil || got.Cmp(want) != 0 {
			t.Errorf("%s is %s, %v; want %s, %v", good, got.String(), err, want.String(), wrong)
		}
	}
	for _, none := range []string{"", "e", "1e", "1ee5", "one", "1e5e5"} {
		if _, err := Parse(none); err == nil {
			t.Errorf("%q is a quantity", none)
		}
	}
}

// TestWhereverTheyAre: in lists, maps, behind pointers and what JSON inlines, and nowhere else.
func TestWhereverTheyAre(t *testing.T) {
	const bomb, good = "1e-100000000", "12345678901n"
	pod := func(put func(*corev1.Pod, resource.Quantity)) *corev1.Pod {
		p := &corev1.Pod{}
		p.Labels = map[string]string{"commit": bomb}
		p.Spec.Containers = make([]corev1.Container, 2)
		put(p, resource.MustParse(good))
		return p
	}
	for name, p := range map[string]*corev1.Pod{
		"spec.containers[1].resources.limits.cpu": pod(func(p *corev1.Pod, q resource.Quantity) {
			p.Spec.Containers[1].Resources.Limits = corev1.ResourceList{"cpu": q}
		}),
		"spec.overhead.cpu": pod(func(p *corev1.Pod, q resource.Quantity) {
			p.Spec.Overhead = corev1.ResourceList{"cpu": q}
		}),
		"spec.volumes[0].emptyDir.sizeLimit": pod(func(p *corev1.Pod, q resource.Quantity) { // of what JSON inlines
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &q}}}}
		}),
	} {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			t.Fatal(err)
		}
		message, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		of := reflect.TypeFor[*corev1.Pod]()
		if err := In(tree, of); err != nil {
			t.Errorf("%s: a good one: %v", name, err)
		}
		if err := InMessage(message, of); err != nil {
			t.Errorf("%s: a good one: %v", name, err)
		}
		replace(tree, good, "  "+bomb)
		if err := In(tree, of); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if err := InMessage([]byte(strings.Replace(string(message), good, bomb, 1)), of); err == nil { // of one length
			t.Errorf("%s: a message passes", name)
		}
	}
	if !holds(reflect.TypeFor[resourcev1.ResourceSlice](), map[reflect.Type]bool{}) {
		t.Error("a ResourceSlice has quantities")
	}
	if holds(reflect.TypeFor[corev1.ConfigMap](), map[reflect.Type]bool{}) {
		t.Error("a ConfigMap has none")
	}
}

func replace(tree any, old, now string) {
	switch tree := tree.(type) {
	case map[string]any:
		for name, value := range tree {
			if value == any(old) {
				tree[name] = now
			}
			replace(value, old, now)
		}
	case []any:
		for _, value := range tree {
			replace(value, old, now)
		}
	}
}

// TestTexts: of annotations that Kubernetes decodes on the way from version to version.
func TestTexts(t *testing.T) {
	for _, text := range []string{"1e-100000000", " 1e-100000000", `"1e-100000000"`, `[{"a":{"b":"1\u0065-100000000"}}]`,
		`{"a":[1e-100000000]}`} {
		if err := InText(text); err == nil {
			t.Errorf("%s passes", text)
		}
	}
	for _, text := range []string{"", "100m", `[{"a":{"b":"1e-3","c":5,"d":null}}]`, "{", "one"} {
		if err := InText(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTextsOfAType: what is decoded into a type as it stands is looked at before, however it is written.
func TestTextsOfAType(t *testing.T) {
	of := reflect.TypeFor[*corev1.Pod]()
	pod := `{"metadata":{"labels":{"commit":"1e100000"}},"spec":{"overhead":{"cpu":%s}}}`
	for _, text := range []string{`"1e-100000000"`, `"1\u0065-100000000"`, `1e-100000000`, `"1E99999"`, `" 1e+99999"`,
		`"` + strings.Repeat("7", 2000) + `"`} {
		if err := InJSON(fmt.Appendf(nil, pod, text), of); err == nil {
			t.Errorf("%.30s passes", text)
		}
	}
	for _, text := range []string{`"1e-3"`, `5`, `"100m"`, `"1e999"`, `{}`, `"`} {
		if err := InJSON(fmt.Appendf(nil, pod, text), of); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse: what passes is parsed at once.
func FuzzParse(f *testing.F) {
	for _, bomb := range bombs[:6] {
		f.Add(bomb)
	}
	f.Add("1.5Gi")
	f.Fuzz(func(t *testing.T, text string) {
		begin := time.Now()
		q, err := Parse(text)
		if err == nil {
			_ = q.Cmp(resource.MustParse("1"))
			_ = q.String()
		}
		if took := time.Since(begin); took > 5*time.Second { // a busy machine takes some
			t.Errorf("%q took %s", text, took)
		}
	})
}

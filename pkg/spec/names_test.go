package spec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestManyNamesAreJudgedAtOnce: the operator judges objects that others write, each of a megabyte and more. Names are
// looked up, what was meant is not looked for of what nobody typed, and programs take no place for each machine.
func TestManyNamesAreJudgedAtOnce(t *testing.T) {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	const start = "apiVersion: kubefusion.dev/v1alpha1\nkind: FusedControlPlane\nmetadata: {name: a}\nspec: {"
	nodes := "kubelet: {modern: {nodes: [" + list(10_000, "{name: node-#},") + "]}},"
	for name, text := range map[string]string{
		"names of many": nodes + "programs: [{hosts: [" + list(10_000, "nodes-#,") + "]}]",
		"hosts of many": "hosts: [" + list(10_000, "{name: h-#},") + "], controllers: {hosts: [" +
			list(10_000, "x-#,") + "]}",
		"many programs": nodes + "programs: [" + list(2_000, "{path: /a#},") + "]",
		"long names": "kubelet: {modern: {nodes: [{name: " + strings.Repeat("a", 300_000) + "}]}}, " +
			"programs: [{hosts: [" + strings.Repeat("ab", 150_000) + "]}]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if _, err := Load("a", []byte(start+text+"}")); err == nil {
			t.Errorf("%s: is a spec", name)
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		if took > 20*time.Second || allocated > 400<<20 {
			t.Errorf("%s: %s, %d MiB", name, took, allocated>>20)
		}
	}
}

// TestProgramsOfOnePath: two programs on one machine have two paths, whichever of them is on every machine.
func TestProgramsOfOnePath(t *testing.T) {
	const start = "apiVersion: kubefusion.dev/v1alpha1\nkind: FusedControlPlane\nmetadata: {name: a}\nspec: {hosts: " +
		"[{name: a}, {name: b}, {name: c}], programs: ["
	for programs, want := range map[string]string{
		"{path: /p}, {path: /q}":                                     "",
		"{path: /p}, {path: /p}":                                     `spec.programs[0].path too, on host "a"`,
		"{path: /p}, {path: /p, hosts: [c, b]}":                      `spec.programs[0].path too, on host "b"`,
		"{path: /p, hosts: [c, b]}, {path: /p}":                      `spec.programs[0].path too, on host "b"`,
		"{path: /p, hosts: [b]}, {path: /p, hosts: [a, c]}":          "",
		"{path: /p, hosts: [b]}, {path: /p, hosts: [a, b]}":          `spec.programs[0].path too, on host "b"`,
		"{path: /p, hosts: [b, b]}":                                  "",
		"{path: /p, hosts: [x]}, {path: /p, hosts: [x]}":             "",
		"{path: /p, hosts: [a]}, {path: /p, hosts: [b]}, {path: /p}": `spec.programs[0].path too, on host "a"`,
	} {
		_, err := Load("a", []byte(start+programs+"]}"))
		if err == nil {
			t.Fatal("is a spec")
		}
		want := strings.Replace(want, ".path too", " too", 1)
		is := strings.Contains(err.Error(), " too, on host ")
		if is != (want != "") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", programs, err, want)
		}
	}
}

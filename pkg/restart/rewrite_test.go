package restart

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRewritesGiveAValueOnlyWhenTheDefinitionIsKnown(t *testing.T) {
	app := defaulted("app")
	for _, c := range []struct {
		name    string
		pod     *v1.Pod
		runtime func(*v1.Pod) *Runtime
		route   []string
		want    string
		why     string
	}{
		{name: "no record", pod: running(), route: []string{"1.12", "1.17"}, want: hashOf(t, app, 17)},
		{name: "recorded", pod: running(), route: []string{"1.12", "1.17"}, want: hashOf(t, app, 17),
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, hashOf(t, app, 12)) }},
		{name: "recorded by an older one", pod: running(), route: []string{"1.12", "1.17"}, want: hashOf(t, app, 17),
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, hashOf(t, app, 8)) }},
		{name: "recorded by nobody", pod: running(), route: []string{"1.12", "1.17"},
			why:     "is none that 1.12 or an older kubelet computes",
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, "12345678") }},
		{name: "recorded as no hash", pod: running(), route: []string{"1.12", "1.17"}, why: "no hash is recorded",
			runtime: func(p *v1.Pod) *Runtime { return recorded(p, "xyz") }},
		{name: "on another node", pod: running(), route: []string{"1.12", "1.17"}, why: "that of another node",
			runtime: func(*v1.Pod) *Runtime { return new(Runtime) }},
		{name: "dockershim", pod: running(withDocker), route: []string{"1.12", "1.24"},
			why: "no value keeps it: dockershim is gone"},
		{name: "static", pod: running(withStatic), route: []string{"1.12", "1.17"},
			why: "no value keeps it: static pod"},
		{name: "static, no other fields", pod: running(withStatic), route: []string{"1.16", "1.17"}, why: "static pod"},
		{name: "a backspace", pod: running(withArgs("\b")), route: []string{"1.12", "1.28"},
			why: "name the patch release"},
	} {
		var rt *Runtime
		if c.runtime != nil {
			rt = c.runtime(c.pod)
		}
		got := route(t, c.route...).Rewrites(c.pod, rt)
		if len(got) != 1 || got[0].New != c.want || !strings.Contains(got[0].Why, c.why) ||
			(c.want == "") != (got[0].Why != "") {
			t.Errorf("%s: %+v, want %q, %q", c.name, got, c.want, c.why)
		}
	}
}

func TestRewritesNameWhereTheHashIsRecorded(t *testing.T) {
	r := route(t, "1.12", "1.17")
	if got := r.Rewrites(running(), nil)[0]; got.Key != "io.kubernetes.container.hash" ||
		got.Recorded != hashOf(t, defaulted("app"), 12) {
		t.Errorf("containerd: %+v, want the annotation, and the hash of 1.12", got)
	}
	if got := r.Rewrites(running(withDocker), nil)[0]; got.Key != "annotation.io.kubernetes.container.hash" {
		t.Errorf("docker: %+v, want the label", got)
	}
	ended := running(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
	if got := r.Rewrites(ended, nil); got != nil {
		t.Errorf("a pod that has ended: %+v, want nothing", got)
	}
}

package convert

import (
	"strings"
	"testing"
)

func TestDefaultsThatDiffer(t *testing.T) {
	c := newConverter(t)
	for _, test := range []struct{ text, to, kind, want string }{
		{`{"apiVersion":"extensions/v1beta1","kind":"DaemonSet","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a"}]}}}}`, "apps/v1", "DaemonSet",
			`metadata.labels: not set, which is {"a":"b"} in extensions/v1beta1 and nothing in apps/v1
spec.updateStrategy.rollingUpdate: not set, which is nothing in extensions/v1beta1 and {"maxSurge":0,"maxUnavailable":1} in apps/v1
spec.updateStrategy.type: not set, which is "OnDelete" in extensions/v1beta1 and "RollingUpdate" in apps/v1`},
		{`{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"rollingUpdate":{"maxSurge":2}},"template":{"metadata":{"labels":{"a":"b"}}}}}`, "apps/v1", "Deployment",
			`metadata.labels: not set, which is {"a":"b"} in extensions/v1beta1 and nothing in apps/v1
spec.progressDeadlineSeconds: not set, which is 2147483647 in extensions/v1beta1 and 600 in apps/v1
spec.revisionHistoryLimit: not set, which is 2147483647 in extensions/v1beta1 and 10 in apps/v1
spec.selector: not set, which is {"matchLabels":{"a":"b"}} in extensions/v1beta1 and nothing in apps/v1
spec.strategy.rollingUpdate.maxUnavailable: not set, which is 1 in extensions/v1beta1 and "25%" in apps/v1`},
		{`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"a"},"spec":{"rules":[{"http":{"paths":[{"path":"/","backend":{"serviceName":"a","servicePort":80}}]}}]}}`, "networking.k8s.io/v1", "Ingress",
			`spec.rules[0].http.paths[0].pathType: not set, which is "ImplementationSpecific" in extensions/v1beta1 and nothing in networking.k8s.io/v1`},
		{`{"apiVersion":"rbac.authorization.k8s.io/v1beta1","kind":"Role","metadata":{"name":"a"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`, "rbac.authorization.k8s.io/v1", "Role", ""},
		{`{"apiVersion":"batch/v1beta1","kind":"CronJob","metadata":{"name":"a"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}}}`, "batch/v1", "CronJob", ""},
	} {
		in := parse(t, []byte(test.text))
		to := in.GroupVersionKind()
		to.Group, to.Version, _ = strings.Cut(test.to, "/")
		to.Kind = test.kind
		out, lost, err := c.Convert(in, to)
		if err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		losses, err := c.Defaults(in, out, false)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, loss := range losses {
			lines = append(lines, loss.Path+": "+loss.Meaning)
		}
		if got := strings.Join(lines, "\n"); got != test.want {
			t.Errorf("%s of %s:\n%s\nwant\n%s", in.GetKind(), in.GetAPIVersion(), got, test.want)
		}
		left, err := c.Defaults(in, out, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, loss := range left {
			if !strings.Contains(loss.Meaning, "which is nothing") {
				t.Errorf("%s of %s: %s could have been written", in.GetKind(), in.GetAPIVersion(), loss.Path)
			}
		}
		again, err := c.Defaults(in, out, false)
		if err != nil || len(again) > len(left) {
			t.Errorf("%s of %s: written, and still different: %v, %v", in.GetKind(), in.GetAPIVersion(), again, err)
		}
	}
}

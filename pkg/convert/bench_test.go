package convert

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mixed are ten objects as clusters hold them, in old versions, and what each is converted to.
var mixed = []struct {
	to   schema.GroupVersionKind
	text string
}{
	{kind("apps", "v1", "Deployment"),
		fmt.Sprintf(workload, "extensions/v1beta1", "Deployment",
			`"replicas":3,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},"revisionHistoryLimit":10,`)},
	{kind("apps", "v1", "Deployment"), fmt.Sprintf(workload, "apps/v1beta1", "Deployment", `"replicas":3,`)},
	{kind("apps", "v1", "DaemonSet"),
		fmt.Sprintf(workload, "extensions/v1beta1", "DaemonSet", `"updateStrategy":{"type":"OnDelete"},`)},
	{kind("apps", "v1", "StatefulSet"),
		fmt.Sprintf(workload, "apps/v1beta1", "StatefulSet", `"replicas":3,"serviceName":"web",`)},
	{kind("networking.k8s.io", "v1", "Ingress"),
		`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"web","namespace":"shop","annotations":{"kubernetes.io/ingress.class":"nginx"}},"spec":{"tls":[{"hosts":["web.example.com"],"secretName":"web-tls"}],"rules":[{"host":"web.example.com","http":{"paths":[{"path":"/","backend":{"serviceName":"web","servicePort":80}},{"path":"/api","backend":{"serviceName":"api","servicePort":"http"}}]}}]}}`},
	{kind("autoscaling", "v2", "HorizontalPodAutoscaler"),
		`{"apiVersion":"autoscaling/v2beta1","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","namespace":"shop"},"spec":{"minReplicas":2,"maxReplicas":10,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"metrics":[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":60}},{"type":"Pods","pods":{"metricName":"requests","targetAverageValue":"100"}}]}}`},
	{kind("batch", "v1", "CronJob"),
		`{"apiVersion":"batch/v1beta1","kind":"CronJob","metadata":{"name":"backup","namespace":"shop"},"spec":{"schedule":"0 3 * * *","concurrencyPolicy":"Forbid","jobTemplate":{"spec":{"backoffLimit":2,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"backup","image":"backup:1","args":["--all"],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}}}}}`},
	{kind("rbac.authorization.k8s.io", "v1", "Role"),
		`{"apiVersion":"rbac.authorization.k8s.io/v1beta1","kind":"Role","metadata":{"name":"reader","namespace":"shop"},"rules":[{"apiGroups":[""],"resources":["pods","services"],"verbs":["get","list","watch"]},{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list"]}]}`},
	{kind("policy", "v1", "PodDisruptionBudget"),
		`{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"web","namespace":"shop"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`},
	{kind("", "v1", "Service"),
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},"spec":{"selector":{"app":"web"},"ports":[{"name":"http","port":80,"targetPort":"http"},{"name":"metrics","port":9100,"targetPort":9100}]}}`},
}

// workload is an object with a pod template, as a person writes it.
const workload = `{"apiVersion":%q,"kind":%q,"metadata":{"name":"web","namespace":"shop","labels":{"app":"web","team":"shop"},"annotations":{"example.com/owner":"shop"}},
"spec":{"minReadySeconds":3,"selector":{"matchLabels":{"app":"web"}},%s"template":{"metadata":{"labels":{"app":"web","team":"shop"}},
"spec":{"serviceAccountName":"web","terminationGracePeriodSeconds":30,"containers":[{"name":"web","image":"registry.example.com/shop/web:1.2.3",
"args":["--port=8080","--log=json"],"env":[{"name":"A","value":"1"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
"ports":[{"name":"http","containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"1","memory":"1Gi"}},
"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":5},"livenessProbe":{"httpGet":{"path":"/live","port":"http"}},
"volumeMounts":[{"name":"tmp","mountPath":"/tmp"},{"name":"config","mountPath":"/etc/web"}]}],
"volumes":[{"name":"tmp","emptyDir":{}},{"name":"config","configMap":{"name":"web"}}]}}}}`

func BenchmarkConvert(b *testing.B) {
	c := newConverter(b)
	for _, object := range mixed {
		in := parse(b, []byte(object.text))
		b.Run(in.GetAPIVersion()+" "+in.GetKind(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.Convert(in, object.to); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(in.GetAPIVersion()+" "+in.GetKind()+" decoded, converted in place and encoded", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON([]byte(object.text)); err != nil {
					b.Fatal(err)
				}
				if _, err := c.ConvertInPlace(u, object.to); err != nil {
					b.Fatal(err)
				}
				if _, err := u.MarshalJSON(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(in.GetAPIVersion()+" "+in.GetKind()+" decoded and encoded", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON([]byte(object.text)); err != nil {
					b.Fatal(err)
				}
				if _, err := u.MarshalJSON(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// readAndWrite decodes and encodes every object, and between the two converts it if it is told to.
func readAndWrite(tb testing.TB, c *Converter) {
	for _, object := range mixed {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(object.text)); err != nil {
			tb.Fatal(err)
		}
		if c != nil {
			if _, err := c.ConvertInPlace(u, object.to); err != nil {
				tb.Fatal(err)
			}
		}
		if _, err := u.MarshalJSON(); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkConversionCostsLittle: converting ten kinds of objects costs about half of what decoding and encoding them
// does. The bound is wider, for machines that do other things meanwhile.
func BenchmarkConversionCostsLittle(b *testing.B) {
	c := newConverter(b)
	readAndWrite(b, c)
	alone, converted := time.Hour, time.Hour
	for b.Loop() {
		start := time.Now()
		readAndWrite(b, nil)
		middle := time.Now()
		readAndWrite(b, c)
		alone, converted = min(alone, middle.Sub(start)), min(converted, time.Since(middle))
	}
	ratio := float64(converted) / float64(alone)
	b.ReportMetric(ratio, "times")
	if ratio > 3 {
		b.Errorf("with conversion it takes %.2f times as long as without, want at most 3", ratio)
	}
}

// BenchmarkTenThousand converts a list of ten thousand objects.
func BenchmarkTenThousand(b *testing.B) {
	c := newConverter(b)
	for _, test := range []struct {
		name string
		c    *Converter
	}{{"decoded and encoded", nil}, {"converted", c}} {
		b.Run(test.name, func(b *testing.B) {
			for b.Loop() {
				for range 10000 / len(mixed) {
					readAndWrite(b, test.c)
				}
			}
		})
	}
}

// BenchmarkNew is what a command pays that converts; the others do not.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		newConverter(b)
	}
}

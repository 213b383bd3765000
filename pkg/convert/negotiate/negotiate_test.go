package negotiate

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func kind(group, version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

var (
	deploymentKinds = []schema.GroupVersionKind{kind("apps", "v1", "Deployment"), kind("apps", "v1beta2", "Deployment"),
		kind("apps", "v1beta1", "Deployment"), kind("extensions", "v1beta1", "Deployment")}
	scalerKinds = []schema.GroupVersionKind{kind("autoscaling", "v2", "HorizontalPodAutoscaler"),
		kind("autoscaling", "v1", "HorizontalPodAutoscaler"), kind("autoscaling", "v2beta1", "HorizontalPodAutoscaler"),
		kind("autoscaling", "v2beta2", "HorizontalPodAutoscaler")}
	ingressKinds = []schema.GroupVersionKind{kind("networking.k8s.io", "v1", "Ingress"),
		kind("networking.k8s.io", "v1beta1", "Ingress"), kind("extensions", "v1beta1", "Ingress")}
	cronJobKinds = []schema.GroupVersionKind{kind("batch", "v1", "CronJob"), kind("batch", "v1beta1", "CronJob"),
		kind("batch", "v2alpha1", "CronJob")}
)

func TestNegotiateWithEachMinor(t *testing.T) {
	for _, tc := range []struct {
		kinds []schema.GroupVersionKind // the first is asked for
		want  string
	}{
		{deploymentKinds, "1.6-1.7: convert apps/v1beta1; 1.8: convert apps/v1beta2; 1.9-1.37: pass apps/v1"},
		{scalerKinds, "1.6-1.7: convert autoscaling/v1; 1.8-1.11: convert autoscaling/v2beta1; 1.12-1.22: convert " +
			"autoscaling/v2beta2; 1.23-1.37: pass autoscaling/v2"},
		{ingressKinds, "1.6-1.13: convert extensions/v1beta1; 1.14-1.18: convert networking.k8s.io/v1beta1; " +
			"1.19-1.37: pass networking.k8s.io/v1"},
		{cronJobKinds, "1.6-1.7: unsupported; 1.8-1.20: convert batch/v1beta1; 1.21-1.37: pass batch/v1"},
		{[]schema.GroupVersionKind{deploymentKinds[3], deploymentKinds[0], deploymentKinds[1], deploymentKinds[2]},
			"1.6-1.15: pass extensions/v1beta1; 1.16-1.37: convert apps/v1"},
	} {
		var spans []string
		var minors []kubever.Minor
		last := ""
		flush := func() {
			if len(minors) > 0 {
				spans = append(spans, kubever.Spans(minors).String()+": "+last)
			}
			minors = nil
		}
		for _, m := range kubever.Minors() {
			answer, err := FromFacts(m).Negotiate(tc.kinds[0], tc.kinds[1:])
			if err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSpace(string(answer.Verdict) + " " + answer.As.GroupVersion().String())
			if got != last {
				flush()
			}
			last, minors = got, append(minors, m)
			if answer.Reason == "" || answer.Verdict != Unsupported && answer.Resource.Kind != tc.kinds[0].Kind {
				t.Errorf("%s at %s: %+v", tc.kinds[0], m, answer)
			}
		}
		flush()
		if got := strings.Join(spans, "; "); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.kinds[0], got, tc.want)
		}
	}
}

func TestAnswersDoNotDependOnTheOrderOfWhatIsAsked(t *testing.T) {
	reversed := []schema.GroupVersionKind{scalerKinds[3], scalerKinds[2], scalerKinds[1]}
	for _, m := range kubever.Minors() {
		a, _ := FromFacts(m).Negotiate(scalerKinds[0], scalerKinds[1:])
		b, _ := FromFacts(m).Negotiate(scalerKinds[0], reversed)
		if a.As != b.As || a.Reason != b.Reason {
			t.Errorf("%s: %s (%s) and %s (%s)", m, a.As, a.Reason, b.As, b.Reason)
		}
	}
}

// Two groups may have kinds of one name: Knative's Service is not the core group's.
func TestAKindIsNotItsName(t *testing.T) {
	answer, err := FromFacts(36).Negotiate(kind("serving.knative.dev", "v1", "Service"), nil)
	if err != nil || answer.Verdict != Unsupported {
		t.Errorf("answer %+v %v, want unsupported", answer, err)
	}
}

func TestReasons(t *testing.T) {
	for _, tc := range []struct {
		minor kubever.Minor
		kinds []schema.GroupVersionKind
		want  string
	}{
		{6, cronJobKinds, "1.6 has it as batch/v2alpha1, which is off: --runtime-config=batch/v2alpha1=true turns it " +
			"on"},
		{6, []schema.GroupVersionKind{kind("coordination.k8s.io", "v1", "Lease"),
			kind("coordination.k8s.io", "v1beta1", "Lease")},
			"1.6 has no version of it; Kubernetes serves it in 1.12-1.37"},
		{36, []schema.GroupVersionKind{kind("apps", "v1", "Deploymnet")},
			`1.36 does not serve the kind Deploymnet in the group "apps", and no version of Kubernetes does by default`},
		{6, ingressKinds, "1.6 does not serve networking.k8s.io/v1; this is the only version that it has"},
		{15, scalerKinds, "1.15 does not serve autoscaling/v2; of the asked fields this one lacks 33, autoscaling/v1 " +
			"145, autoscaling/v2beta1 124"},
	} {
		answer, err := FromFacts(tc.minor).Negotiate(tc.kinds[0], tc.kinds[1:])
		if err != nil || answer.Reason != tc.want {
			t.Errorf("%s at %s: %v\n got %s\nwant %s", tc.kinds[0], tc.minor, err, answer.Reason, tc.want)
		}
	}
}

func TestAKindThatOnlyTheServerKnows(t *testing.T) {
	s := FromFacts(15)
	s.Served[schema.GroupVersion{Group: "example.dev", Version: "v1beta1"}] = []Resource{
		{Name: "widgets", Kind: "Widget"}}
	asked := kind("example.dev", "v1", "Widget")
	answer, err := s.Negotiate(asked, nil)
	if want := "1.15 serves it as example.dev/v1beta1, and no conversion is known"; err != nil ||
		answer.Reason != want {
		t.Errorf("answer %+v %v, want %s", answer, err, want)
	}
	answer, err = s.Negotiate(asked, []schema.GroupVersionKind{kind("example.dev", "v1beta1", "Widget")})
	if err != nil || answer.Verdict != Convert || answer.Resource.Name != "widgets" {
		t.Errorf("answer %+v %v, want a conversion", answer, err)
	}
}

func TestNoAnswerAboutWhatWasNotListed(t *testing.T) {
	for _, failed := range []schema.GroupVersion{{Group: "extensions", Version: "v1beta1"}, {Group: "extensions"},
		{Group: "apps"}} {
		s := FromFacts(6)
		s.Failed = map[schema.GroupVersion]error{failed: errors.New("no endpoints")}
		_, err := s.Negotiate(deploymentKinds[0], deploymentKinds[1:])
		if incomplete := (&IncompleteError{}); !errors.As(err, &incomplete) || incomplete.Failed != failed {
			t.Errorf("%v failed: error %v, want incomplete", failed, err)
		}
		if _, ok := s.InAnotherVersion(deploymentKinds[0], deploymentKinds[1:]); ok {
			t.Errorf("%v failed, and Deployments are found", failed)
		}
		if answer, err := s.Negotiate(kind("", "v1", "Pod"), nil); err != nil || answer.Verdict != Pass {
			t.Errorf("%v failed: pods %v %v, want pass", failed, answer, err)
		}
	}
}

func BenchmarkNegotiate(b *testing.B) {
	s := FromFacts(6)
	for b.Loop() {
		if _, err := s.Negotiate(deploymentKinds[0], deploymentKinds[1:]); err != nil {
			b.Fatal(err)
		}
	}
}

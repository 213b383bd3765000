package kubever

import "testing"

func TestParseKindReadsEverySpelling(t *testing.T) {
	for text, want := range map[string]string{
		"apps/v1/Deployment":                "apps/v1, Kind=Deployment",
		"apps/v1/deployments":               "apps/v1, Kind=Deployment",
		"Deployment.v1.apps":                "apps/v1, Kind=Deployment",
		"deployments.v1.apps":               "apps/v1, Kind=Deployment",
		"v1/Pod":                            "/v1, Kind=Pod",
		"Pod.v1":                            "/v1, Kind=Pod",
		"pods.v1":                           "/v1, Kind=Pod",
		"networking.k8s.io/v1/Ingress":      "networking.k8s.io/v1, Kind=Ingress",
		"Ingress.v1beta1.networking.k8s.io": "networking.k8s.io/v1beta1, Kind=Ingress",
		"example.com/v1/widgets":            "example.com/v1, Kind=widgets", // no table has it
	} {
		if got, err := ParseKind(text); err != nil || got.String() != want {
			t.Errorf("ParseKind(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "Pod", "/", "v1/", "apps/v1", "deployments.apps", "Pod.", ".v1", "a/b/v1/Pod",
		"apps/version/Deployment"} {
		if got, err := ParseKind(text); err == nil {
			t.Errorf("ParseKind(%q) = %s, want it refused", text, got)
		}
	}
}

package demo

import (
	"errors"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Violation is one thing that goes wrong: a key that is written against the plan.
type Violation struct {
	Title string
	Story string // what happened, two or three sentences
	Store string
	Key   string
	Value []byte
	Rule  string // what finds it
}

// Violations lists three of the ways in which stores for 1.6 and 1.36 are spoiled in practice.
func Violations(p *plan.Plan, now time.Time) ([]Violation, error) {
	w := &writer{plan: p, now: now, side: pair.Modern, contents: Contents{}}
	core, modern := p.Resource("pods").Modern.Store, p.Modern.Store
	key := func(resource, namespace, name string) string {
		return fmt.Sprintf("%s/%s/%s/%s", p.Prefix, resource, namespace, name)
	}
	value := func(apiVersion, kind string, o object) []byte {
		w.complete(kind, o)
		data, err := protobuf(apiVersion, kind, o)
		if err != nil {
			w.errs = append(w.errs, err)
		}
		return data
	}

	stray := w.pod("kubeflow", "stray", "stray", "registry.example.com/ml/stray:1", 1, nil)
	className := "public"
	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: "notebooks"},
		Spec:       networkingv1.IngressSpec{IngressClassName: &className},
	}
	const lost = "budgets.finance.example.com"
	left := []byte(`{"apiVersion":"finance.example.com/v1","kind":"Budget","metadata":{"namespace":"kubeflow",` +
		`"name":"training","uid":"0d3b6c1e-7f0a-4b0e-9d0c-6a54c1e0b7aa","creationTimestamp":"2026-01-12T08:00:00Z"},` +
		`"spec":{"gpuHours":400}}`)
	violations := []Violation{
		{
			Title: "An override lost",
			Story: fmt.Sprintf("The modern API server is restarted without /pods in its --etcd-servers-overrides. It "+
				"keeps pods in its own store now: kubelets, which read the legacy API server, never see them. A pod "+
				"%q is created.", stray.Name),
			Store: modern, Key: key("pods", "kubeflow", stray.Name), Value: value("v1", "Pod", stray), Rule: "FUS004",
		},
		{
			Title: "An override too many",
			Story: fmt.Sprintf("networking.k8s.io/ingresses is added to the overrides, to share ingresses as well. "+
				"The modern API server writes an Ingress %q into the core store, as networking.k8s.io/v1. %s does "+
				"not know that version.",
				ingress.Name, p.Legacy.Version),
			Store: core, Key: key("ingress", "kubeflow", ingress.Name),
			Value: value("networking.k8s.io/v1", "Ingress", ingress), Rule: "FUS002",
		},
		{
			Title: "A backup with a gap",
			Story: fmt.Sprintf("The modern store is restored from a backup in which the CustomResourceDefinition %s "+
				"is missing. Its objects are there: no API server serves them, and no component deletes them.", lost),
			Store: modern, Key: key("finance.example.com/budgets", "kubeflow", "training"), Value: left, Rule: "FUS232",
		},
	}
	return violations, errors.Join(w.errs...)
}

package api

import (
	"reflect"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostCRD is the definition of ControlPlaneHost. The operator writes its objects, and agents their status.
func HostCRD() *apiextensions.CustomResourceDefinition {
	s := &schemas{texts: texts(), rows: rows()}
	root := apiextensions.JSONSchemaProps{
		Type:        "object",
		Description: "A machine of a control plane on hosts, for its agent.",
		Required:    []string{"spec"},
		Properties: map[string]apiextensions.JSONSchemaProps{
			"apiVersion": {Type: "string"},
			"kind":       {Type: "string"},
			"metadata":   {Type: "object"},
			"spec":       s.of(reflect.TypeFor[HostSpec](), "spec"),
			"status":     s.of(reflect.TypeFor[HostStatus](), "status"),
		},
	}
	column := func(name, kind, path, text string) apiextensions.CustomResourceColumnDefinition {
		return apiextensions.CustomResourceColumnDefinition{Name: name, Type: kind, JSONPath: path, Description: text}
	}
	return &apiextensions.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensions.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: HostPlural + "." + Group},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: Group,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: HostPlural, Singular: HostSingular,
				Kind: HostKind, ListKind: HostKind + "List", ShortNames: []string{HostShort}},
			Scope: apiextensions.NamespaceScoped,
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: Version, Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensions.CustomResourceSubresources{
					Status: &apiextensions.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensions.CustomResourceColumnDefinition{
					column("Address", "string", ".spec.address", "of the machine"),
					column("Agent", "string", ".status.agent", "version of the agent's program"),
					column("Seen", "date", ".status.seen", "when the agent last wrote"),
					column("Task", "string", ".spec.task.title", "the last part of a transition"),
					column("Error", "string", ".status.task.error", "why that could not be done"),
				},
			}},
		},
	}
}

package api

import (
	"reflect"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// CRD is the definition of the resource. Objects are cluster-scoped: the name of one is that of its control plane, and
// of the namespace of its pods.
func CRD() *apiextensions.CustomResourceDefinition {
	s := &schemas{texts: texts(), defaults: defaults(), rows: rows()}
	root := apiextensions.JSONSchemaProps{
		Type:        "object",
		Description: s.texts["File"],
		Required:    []string{"spec"},
		Properties: map[string]apiextensions.JSONSchemaProps{
			"apiVersion": {Type: "string"},
			"kind":       {Type: "string"},
			"metadata":   {Type: "object"},
			"spec":       s.of(reflect.TypeFor[spec.Spec](), "spec"),
			"status":     s.of(reflect.TypeFor[Status](), "status"),
		},
		XValidations: apiextensions.ValidationRules{{
			Rule: `self.metadata.name.matches('` + spec.LabelPattern + `')`,
			Message: "metadata.name: want lower-case letters, digits and dashes between them, at most 63: it names a " +
				"namespace",
		}},
	}
	column := func(name, kind, path, text string, priority int32) apiextensions.CustomResourceColumnDefinition {
		return apiextensions.CustomResourceColumnDefinition{Name: name, Type: kind, JSONPath: path, Description: text,
			Priority: priority}
	}
	condition := func(kind string) string { return `.status.conditions[?(@.type=="` + kind + `")].status` }
	return &apiextensions.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensions.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: Plural + "." + Group},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: Group,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: Plural, Singular: Singular, Kind: Kind,
				ListKind: Kind + "List", ShortNames: []string{Short}},
			Scope: apiextensions.ClusterScoped,
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: Version, Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensions.CustomResourceSubresources{
					Status: &apiextensions.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensions.CustomResourceColumnDefinition{
					column("Legacy", "string", ".spec.legacy.version", "version of the legacy side", 0),
					column("Modern", "string", ".spec.modern.version", "version of the modern side", 0),
					column("Phase", "string", ".status.phase", "what the control plane is doing", 0),
					column("Ready", "string", condition(ConditionReady), "every component is ready", 0),
					column("Safe", "string", condition(ConditionSafe), "the plan has no error among its findings", 0),
					column("Backed-Up", "string", condition(ConditionBackedUp), "the last backup is good and new", 1),
					column("Age", "date", ".metadata.creationTimestamp", "", 0),
					column("Plan", "string", ".status.plan", "digest of the plan that the spec leads to", 1),
					column("Step", "string", ".status.transition.step", "the step that is carried out", 1),
				},
			}},
		},
	}
}

// defaults are those of spec that depend on no other field, by the path of their fields.
func defaults() map[string]any {
	oldest, newest := kubever.Version{Minor: kubever.Oldest}, kubever.Version{Minor: kubever.Newest}
	f := &spec.File{Spec: spec.Spec{
		Legacy:  spec.Side{Version: oldest, APIServer: &spec.APIServer{}},
		Modern:  spec.Side{Version: newest, APIServer: &spec.APIServer{}},
		Pods:    &spec.Pods{},
		Gateway: &spec.Gateway{},

		Operation: spec.Operation{Backup: &spec.Backup{}},
	}}
	f.Default()
	s := &f.Spec
	return map[string]any{
		"spec.layout":                        s.Layout,
		"spec.approval":                      spec.ApprovalAutomatic,
		"spec.deletionPolicy":                spec.DeletionKeep,
		"spec.target":                        spec.TargetHosted,
		"spec.repair":                        spec.RepairReport,
		"spec.backup.keep":                   s.Backup.Keep,
		"spec.backup.claim":                  s.Backup.Claim,
		"spec.backup.size":                   s.Backup.Size,
		"spec.network.serviceCIDRs":          s.Network.ServiceCIDRs,
		"spec.network.nodePortRange":         s.Network.NodePortRange,
		"spec.network.clusterDomain":         s.Network.ClusterDomain,
		"spec.pki.directory":                 s.PKI.Directory,
		"spec.controllers.binary":            s.Controllers.Binary,
		"spec.controllers.port":              s.Controllers.Port,
		"spec.gateway.create":                s.Gateway.Create,
		"spec.gateway.binary":                s.Gateway.Binary,
		"spec.gateway.port":                  s.Gateway.Port,
		"spec.legacy.apiServer.port":         s.Legacy.APIServer.Port,
		"spec.modern.apiServer.port":         s.Modern.APIServer.Port,
		"spec.pods.service.namespace":        s.Pods.Service.Namespace,
		"spec.pods.service.name":             s.Pods.Service.Name,
		"spec.pods.sideLabel":                s.Pods.SideLabel,
		"spec.pods.admission.failurePolicy":  s.Pods.Admission.FailurePolicy,
		"spec.pods.admission.timeoutSeconds": s.Pods.Admission.TimeoutSeconds,
		"spec.pods.admission.port":           s.Pods.Admission.Port,
		"spec.pods.unknownFields":            s.Pods.UnknownFields,
	}
}

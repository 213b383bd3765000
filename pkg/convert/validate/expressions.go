package validate

import (
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// laterExpressions are the rules of a CRD that servers of an older minor refuse because they use functions that CEL has
// since: which release brought them is said by Kubernetes' own environments. Rules that the minor drops are not there.
func laterExpressions(crd *apiextensions.CustomResourceDefinition, minor kubever.Minor) field.ErrorList {
	if minor >= kubever.Library {
		return nil
	}
	known := minor
	if kubever.Behaves(kubever.BehaviourExpressionsOfMinorBefore, minor) {
		known--
	}
	e := expressions{environment.MustBaseEnvSet(version.MajorMinor(1, uint(known)))}
	var errs field.ErrorList
	at := field.NewPath("spec")
	if v := crd.Spec.Validation; v != nil {
		errs = e.root(v.OpenAPIV3Schema, at.Child("validation", "openAPIV3Schema"))
	}
	for i, v := range crd.Spec.Versions {
		if v.Schema != nil {
			errs = append(errs, e.root(v.Schema.OpenAPIV3Schema,
				at.Child("versions").Index(i).Child("schema", "openAPIV3Schema"))...)
		}
	}
	return errs
}

// expressions compiles the rules of schemas with what a release knows.
type expressions struct{ known *environment.EnvSet }

func (e expressions) root(schema *apiextensions.JSONSchemaProps, at *field.Path) field.ErrorList {
	if schema == nil {
		return nil
	}
	return e.under(schema, crdvalidation.RootCELContext(schema), at)
}

// under are the errors of a schema and of those within it. Where a schema has no types of CEL, because it is not
// structural, the server says so itself.
func (e expressions) under(
	schema *apiextensions.JSONSchemaProps, c *crdvalidation.CELSchemaContext, at *field.Path,
) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		errs = append(errs, e.under(&property, c.ChildPropertyContext(&property, name),
			at.Child("properties").Key(name))...)
	}
	if more := schema.AdditionalProperties; more != nil && more.Schema != nil {
		errs = append(errs, e.under(more.Schema, c.ChildAdditionalPropertiesContext(more.Schema),
			at.Child("additionalProperties"))...)
	}
	if items := schema.Items; items != nil && items.Schema != nil {
		errs = append(errs, e.under(items.Schema, c.ChildItemsContext(items.Schema), at.Child("items"))...)
	}
	if len(schema.XValidations) == 0 {
		return errs
	}
	types, err := c.TypeInfo()
	if err != nil || types == nil {
		return errs
	}
	results, err := schemacel.Compile(types.Schema, types.DeclType, celconfig.PerCallLimit, e.known,
		schemacel.NewExpressionsEnvLoader())
	if err != nil {
		return append(errs, field.InternalError(at.Child("x-kubernetes-validations"), err))
	}
	for i, result := range results {
		rule, in := schema.XValidations[i], at.Child("x-kubernetes-validations").Index(i)
		if result.Error != nil {
			errs = append(errs, field.Invalid(in.Child("rule"), rule.Rule, result.Error.Detail))
		}
		if result.MessageExpressionError != nil {
			errs = append(errs, field.Invalid(in.Child("messageExpression"), rule.MessageExpression,
				result.MessageExpressionError.Detail))
		}
	}
	return errs
}

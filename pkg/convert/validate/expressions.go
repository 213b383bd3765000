package validate

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// laterExpressions are the expressions of an object that servers of a minor before the library refuse because they
// use functions that CEL has since, or cost more there: which release brought what is said by Kubernetes' own
// environments. Expressions that the minor drops are not there.
func laterExpressions(object runtime.Object, minor kubever.Minor) field.ErrorList {
	known := minor
	if kubever.Behaves(kubever.BehaviourExpressionsOfMinorBefore, minor) {
		known--
	}
	e, spec := expressions{environment.MustBaseEnvSet(version.MajorMinor(1, uint(known)))}, field.NewPath("spec")
	switch object := object.(type) {
	case *apiextensions.CustomResourceDefinition:
		if kubever.Behaves(kubever.BehaviourPresenceTestsCost, minor) {
			e.known = presenceCosts(e.known)
		}
		return e.ofDefinition(&object.Spec, spec)
	case *admissionregistration.ValidatingAdmissionPolicy:
		return e.ofValidating(&object.Spec, spec)
	case *admissionregistration.MutatingAdmissionPolicy:
		return e.ofMutating(&object.Spec, spec)
	case *admissionregistration.ValidatingWebhookConfiguration:
		return ofWebhooks(e, object.Webhooks,
			func(w *admissionregistration.ValidatingWebhook) []admissionregistration.MatchCondition {
				return w.MatchConditions
			})
	case *admissionregistration.MutatingWebhookConfiguration:
		return ofWebhooks(e, object.Webhooks,
			func(w *admissionregistration.MutatingWebhook) []admissionregistration.MatchCondition {
				return w.MatchConditions
			})
	}
	return nil
}

// presenceCosts is an environment in which has() costs something.
func presenceCosts(known *environment.EnvSet) *environment.EnvSet {
	costing, err := known.Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{cel.CostEstimatorOptions(checker.PresenceTestHasCost(true))}})
	if err != nil {
		panic(err) // Kubernetes' own environments take options
	}
	return costing
}

// expressions compiles with what a release knows.
type expressions struct{ known *environment.EnvSet }

func (e expressions) ofDefinition(
	spec *apiextensions.CustomResourceDefinitionSpec, at *field.Path,
) (errs field.ErrorList) {
	if v := spec.Validation; v != nil {
		errs = e.root(v.OpenAPIV3Schema, at.Child("validation", "openAPIV3Schema"))
	}
	for i, v := range spec.Versions {
		if v.Schema != nil {
			errs = append(errs, e.root(v.Schema.OpenAPIV3Schema,
				at.Child("versions").Index(i).Child("schema", "openAPIV3Schema"))...)
		}
	}
	return errs
}

func (e expressions) root(schema *apiextensions.JSONSchemaProps, at *field.Path) field.ErrorList {
	if schema == nil {
		return nil
	}
	c := crdvalidation.RootCELContext(schema)
	errs := e.under(schema, c, at)
	if total := c.TotalCost.Total; total > crdvalidation.StaticEstimatedCRDCostLimit {
		errs = append(errs, field.Forbidden(at, tooCostly("rules", total, crdvalidation.StaticEstimatedCRDCostLimit)))
	}
	return errs
}

func tooCostly(what string, cost, limit uint64) string {
	return fmt.Sprintf("estimated cost of the %s is %d, and at most %d: simplify it, or give arrays, maps and strings "+
		"maxItems, maxProperties and maxLength", what, cost, limit)
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
		cardinality := result.MaxCardinality
		if c.MaxCardinality != nil {
			cardinality = *c.MaxCardinality
		}
		cost := uint64(math.MaxUint64)
		if high, low := bits.Mul64(result.MaxCost, cardinality); high == 0 {
			cost = low
		}
		c.TotalCost.ObserveExpressionCost(in.Child("rule"), cost)
		if cost > crdvalidation.StaticEstimatedCostLimit {
			errs = append(errs, field.Forbidden(in.Child("rule"),
				tooCostly("rule", cost, crdvalidation.StaticEstimatedCostLimit)))
		}
		c.TotalCost.ObserveExpressionCost(in.Child("messageExpression"), result.MessageExpressionMaxCost)
		if cost := result.MessageExpressionMaxCost; cost > crdvalidation.StaticEstimatedCostLimit {
			errs = append(errs, field.Forbidden(in.Child("messageExpression"),
				tooCostly("message", cost, crdvalidation.StaticEstimatedCostLimit)))
		}
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

// compilers are those without variables of an environment, which take long to make.
var compilers sync.Map

func (e expressions) compiler() plugincel.Compiler {
	compiler, ok := compilers.Load(e.known)
	if !ok {
		compiler, _ = compilers.LoadOrStore(e.known, plugincel.NewCompiler(e.known))
	}
	return compiler.(plugincel.Compiler)
}

// compile says what is wrong with an expression. One that is missing is refused for that.
func compile(compiler plugincel.Compiler, expression plugincel.ExpressionAccessor,
	has plugincel.OptionalVariableDeclarations, at *field.Path) field.ErrorList {
	if expression.GetExpression() == "" {
		return nil
	}
	result := compiler.CompileCELExpression(expression, has, environment.NewExpressions)
	return failed(result, expression, at)
}

func failed(
	result plugincel.CompilationResult, expression plugincel.ExpressionAccessor, at *field.Path,
) field.ErrorList {
	if result.Error == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(at, expression.GetExpression(), result.Error.Detail)}
}

// ofPolicy compiles the conditions and variables of an admission policy, and returns what compiles the rest.
func (e expressions) ofPolicy(conditions []admissionregistration.MatchCondition,
	variables []admissionregistration.Variable, has plugincel.OptionalVariableDeclarations, at *field.Path) (
	plugincel.Compiler, field.ErrorList) {
	errs := e.ofConditions(conditions, has, at)
	if len(variables) == 0 {
		return e.compiler(), errs
	}
	compiler, err := plugincel.NewCompositedCompiler(e.known)
	if err != nil {
		return e.compiler(), append(errs, field.InternalError(at.Child("variables"), err))
	}
	for i, v := range variables {
		variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
		result := compiler.CompileAndStoreVariable(variable, has, environment.NewExpressions)
		errs = append(errs, failed(result, variable, at.Child("variables").Index(i).Child("expression"))...)
	}
	return compiler, errs
}

func (e expressions) ofConditions(conditions []admissionregistration.MatchCondition,
	has plugincel.OptionalVariableDeclarations, at *field.Path) (errs field.ErrorList) {
	for i, c := range conditions {
		errs = append(errs, compile(e.compiler(), &matchconditions.MatchCondition{Expression: c.Expression}, has,
			at.Child("matchConditions").Index(i).Child("expression"))...)
	}
	return errs
}

func ofWebhooks[W any](e expressions, webhooks []W, conditions func(*W) []admissionregistration.MatchCondition) (
	errs field.ErrorList) {
	for i := range webhooks {
		errs = append(errs, e.ofConditions(conditions(&webhooks[i]),
			plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, field.NewPath("webhooks").Index(i))...)
	}
	return errs
}

func (e expressions) ofValidating(
	spec *admissionregistration.ValidatingAdmissionPolicySpec, at *field.Path,
) field.ErrorList {
	has := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	compiler, errs := e.ofPolicy(spec.MatchConditions, spec.Variables, has, at)
	for i, v := range spec.Validations {
		in := at.Child("validations").Index(i)
		errs = append(errs, compile(compiler, &validating.ValidationCondition{Expression: v.Expression}, has,
			in.Child("expression"))...)
		errs = append(errs, compile(compiler,
			&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression},
			plugincel.OptionalVariableDeclarations{HasParams: has.HasParams}, in.Child("messageExpression"))...)
	}
	for i, a := range spec.AuditAnnotations {
		errs = append(errs, compile(compiler, &validating.AuditAnnotationCondition{ValueExpression: a.ValueExpression},
			has, at.Child("auditAnnotations").Index(i).Child("valueExpression"))...)
	}
	return errs
}

func (e expressions) ofMutating(
	spec *admissionregistration.MutatingAdmissionPolicySpec, at *field.Path,
) field.ErrorList {
	has := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	compiler, errs := e.ofPolicy(spec.MatchConditions, spec.Variables, has, at)
	has.HasPatchTypes = true
	for i, m := range spec.Mutations {
		in := at.Child("mutations").Index(i)
		if m.JSONPatch != nil {
			errs = append(errs, compile(compiler, &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, has,
				in.Child("jsonPatch", "expression"))...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, compile(compiler,
				&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, has,
				in.Child("applyConfiguration", "expression"))...)
		}
	}
	return errs
}

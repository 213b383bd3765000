package hub

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
)

// What expressions may cost, in the units of CEL, as the API server bounds its own: one evaluation, and all of one
// conversion.
const (
	limitCallCost uint64 = 1_000_000
	limitCost     uint64 = 10_000_000
)

// celEnvironment is what expressions can say. It is made when the first expression is compiled.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append([]cel.EnvOption{
		cel.Variable("self", cel.DynType), cel.Variable("object", cel.DynType),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(), ext.Encoders(), ext.TwoVarComprehensions(),
	}, boundedTexts()...)...)
})

// expression is a compiled expression and what it reads.
type expression struct {
	text    string
	program cel.Program
	reads   []path    // of self
	always  bool      // it is a value, as far as its type tells: never optional.none()
	result  *cel.Type // as the checker found it
}

func compileExpression(text string) (*expression, error) {
	env, err := celEnvironment()
	if err != nil {
		return nil, fmt.Errorf("hub: internal error: %w", err)
	}
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	program, err := env.Program(checked,
		cel.CostLimit(limitCallCost), cel.EvalOptions(cel.OptOptimize), cel.CostTracking(comparisons{}),
		cel.CostTrackerOptions(pairwiseCosts()...),
		cel.CustomDecorator(boundCalls))
	if err != nil {
		return nil, err
	}
	e := &expression{text: text, program: program, result: checked.OutputType()}
	e.always = e.result.TypeName() != "optional_type"
	e.reads = readsOf(checked.NativeRep().Expr())
	return e, nil
}

// readsOf finds the fields of self that an expression names, each as far as it is spelled out.
func readsOf(e ast.Expr) []path {
	var reads []path
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		if p, ok := fieldPath(e); ok {
			if len(p) > 0 && !slices.ContainsFunc(reads, p.equal) {
				reads = append(reads, p)
			}
			return
		}
		switch e.Kind() {
		case ast.SelectKind:
			walk(e.AsSelect().Operand())
		case ast.CallKind:
			call := e.AsCall()
			if call.IsMemberFunction() {
				walk(call.Target())
			}
			for _, arg := range call.Args() {
				walk(arg)
			}
		case ast.ListKind:
			for _, element := range e.AsList().Elements() {
				walk(element)
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				walk(entry.AsMapEntry().Key())
				walk(entry.AsMapEntry().Value())
			}
		case ast.StructKind:
			for _, field := range e.AsStruct().Fields() {
				walk(field.AsStructField().Value())
			}
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			for _, inner := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
				walk(inner)
			}
		}
	}
	walk(e)
	return reads
}

// fieldPath is the path of self.a.b, self.a["b"], self.?a.b and has(self.a.b).
func fieldPath(e ast.Expr) (path, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == "self"
	case ast.SelectKind:
		p, ok := fieldPath(e.AsSelect().Operand())
		return p.plus(e.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{"_[_]", "_[?_]", "_?._"}, call.FunctionName()) || len(call.Args()) != 2 ||
			call.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		name, isText := call.Args()[1].AsLiteral().(types.String)
		p, ok := fieldPath(call.Args()[0])
		return p.plus(string(name)), ok && bool(isText)
	}
	return nil, false
}

// hasPath is the path of an expression that is has(self.a.b) and nothing else.
func hasPath(text string) (path, bool) {
	env, err := celEnvironment()
	if err != nil {
		return nil, false
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, false
	}
	e := checked.NativeRep().Expr()
	if e.Kind() != ast.SelectKind || !e.AsSelect().IsTestOnly() {
		return nil, false
	}
	return fieldPath(e)
}

// evaluate runs the expression and charges the budget.
func (e *expression) evaluate(r *run, self map[string]any) (value any, there bool, err error) {
	out, details, err := e.program.Eval(map[string]any{"self": self, "object": r.object})
	if details != nil {
		if cost := details.ActualCost(); cost != nil {
			if *cost > *r.budget {
				return nil, false, fmt.Errorf("the expressions of this object cost more than %d", limitCost)
			}
			*r.budget -= *cost
		}
	}
	if err != nil {
		return nil, false, err
	}
	if o, ok := out.(*types.Optional); ok {
		if !o.HasValue() {
			return nil, false, nil
		}
		out = o.GetValue()
	}
	left := limitTextBytes
	if weigh(out, 0, &left); left < 0 {
		return nil, false, fmt.Errorf("the result has more than %d bytes, or %d levels", limitTextBytes,
			limitSchemaDepth)
	}
	const bytesPerCost = 10 // as CEL counts the bytes of a text
	if cost := uint64(limitTextBytes-left) / bytesPerCost; cost <= *r.budget {
		*r.budget -= cost
	} else {
		return nil, false, fmt.Errorf("the expressions of this object cost more than %d", limitCost)
	}
	value, err = fromCEL(out, 0)
	return value, err == nil, err
}

// holds runs a condition.
func (e *expression) holds(r *run, self map[string]any) (bool, error) {
	value, _, err := e.evaluate(r, self)
	if err != nil {
		return false, err
	}
	yes, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("gives %s, want true or false", describe(value))
	}
	return yes, nil
}

// fromCEL makes what JSON can say of a value.
func fromCEL(value ref.Val, depth int) (any, error) {
	if depth > limitSchemaDepth {
		return nil, fmt.Errorf("the result is deeper than %d levels", limitSchemaDepth)
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if uint64(v) > math.MaxInt64 {
			return nil, fmt.Errorf("the result %d is too large", uint64(v))
		}
		return int64(v), nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the result %v is no number of JSON", f)
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Timestamp:
		return v.Time.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.Duration.String(), nil
	case *types.Optional:
		return nil, errors.New("an optional value inside the result; write [?value] or {?key: value}")
	case traits.Mapper:
		return objectFromCEL(v, depth)
	case traits.Lister:
		list := []any{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			item, err := fromCEL(i.Next(), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	return nil, fmt.Errorf("the result is a %s, which JSON cannot say", value.Type().TypeName())
}

func objectFromCEL(m traits.Mapper, depth int) (any, error) {
	object := map[string]any{}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("the key %v in the result is no text", key)
		}
		value, err := fromCEL(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		object[string(name)] = value
	}
	return object, nil
}

package hub

import (
	"math"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// What one call may make. CEL counts the cost of a call when it has returned, and few calls by what they make: a short
// text that replaces itself in itself three times has a terabyte.
const (
	limitRange      = 10_000   // elements of lists.range
	limitList       = 100_000  // elements of lists that are added
	limitTextBytes  = 16 << 20 // of replace, join and format, and of all of a result
	limitValueBytes = 16       // that each value of a result counts for beside its text
)

func tooLong(function string) ref.Val {
	return types.NewErr("%s: gives more than %d bytes", function, limitTextBytes)
}

// boundedTexts declares replace and join again, as they are but for the bound.
func boundedTexts() []cel.EnvOption {
	text, texts := cel.StringType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{text, text, text}, text,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return replaceBounded(args, -1) })),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{text, text, text, cel.IntType}, text,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val {
					return replaceBounded(args, int(args[3].(types.Int)))
				}))),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{texts}, text,
				cel.UnaryBinding(func(list ref.Val) ref.Val { return joinBounded(list.(traits.Lister), "") })),
			cel.MemberOverload("list_join_string", []*cel.Type{texts, text}, text,
				cel.BinaryBinding(func(list, separator ref.Val) ref.Val {
					return joinBounded(list.(traits.Lister), string(separator.(types.String)))
				}))),
	}
}

func replaceBounded(args []ref.Val, n int) ref.Val {
	in, old, by := string(args[0].(types.String)), string(args[1].(types.String)), string(args[2].(types.String))
	times := strings.Count(in, old)
	if n >= 0 {
		times = min(times, n)
	}
	if more := len(by) - len(old); more > 0 && times > (limitTextBytes-min(len(in), limitTextBytes))/more {
		return tooLong("replace")
	}
	return types.String(strings.Replace(in, old, by, n))
}

func joinBounded(list traits.Lister, separator string) ref.Val {
	var out strings.Builder
	for i := list.Iterator(); i.HasNext() == types.True; {
		element := i.Next()
		text, ok := element.(types.String)
		if !ok {
			return types.NewErr("join: %s in the list, want texts", element.Type().TypeName())
		}
		if out.Len()+len(text)+len(separator) > limitTextBytes {
			return tooLong("join")
		}
		out.WriteString(string(text))
		if i.HasNext() == types.True {
			out.WriteString(separator)
		}
	}
	return types.String(out.String())
}

// boundCalls bounds the calls that cannot be declared again.
func boundCalls(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	switch call.Function() {
	case "lists.range":
		return boundedRange{call}, nil
	case "format":
		return boundedFormat{call}, nil
	case operators.Add:
		return boundedAdd{call}, nil
	}
	return i, nil
}

type boundedRange struct{ interpreter.InterpretableCall }

func (b boundedRange) Eval(activation interpreter.Activation) ref.Val {
	if n, ok := b.Args()[0].Eval(activation).(types.Int); ok && n > limitRange {
		return types.NewErr("lists.range(%d): at most %d", n, limitRange)
	}
	return b.InterpretableCall.Eval(activation)
}

type boundedFormat struct{ interpreter.InterpretableCall }

// precise is a number of digits that no number has.
var precise = regexp.MustCompile(`%\.[0-9]{4}`)

func (b boundedFormat) Eval(activation interpreter.Activation) ref.Val {
	form, _ := b.Args()[0].Eval(activation).(types.String)
	if precise.MatchString(string(form)) {
		return types.NewErr("format: a precision of more than 999 digits")
	}
	left := limitTextBytes - len(form)
	if weigh(b.Args()[1].Eval(activation), 0, &left); left < 0 {
		return tooLong("format")
	}
	return b.InterpretableCall.Eval(activation)
}

// weigh takes off what a value has in bytes, as text, until nothing is left.
func weigh(value ref.Val, depth int, left *int) {
	*left -= limitValueBytes
	if depth > limitSchemaDepth {
		*left = -1
	}
	switch v := value.(type) {
	case types.String:
		*left -= len(v)
	case types.Bytes:
		*left -= len(v)
	case traits.Mapper:
		for i := v.Iterator(); *left >= 0 && i.HasNext() == types.True; {
			key := i.Next()
			weigh(key, depth+1, left)
			weigh(v.Get(key), depth+1, left)
		}
	case traits.Lister:
		for i := v.Iterator(); *left >= 0 && i.HasNext() == types.True; {
			weigh(i.Next(), depth+1, left)
		}
	}
}

type boundedAdd struct{ interpreter.InterpretableCall }

// Eval bounds lists: adding one to itself takes no time, and reading what it is then takes for ever.
func (b boundedAdd) Eval(activation interpreter.Activation) ref.Val {
	sum := b.InterpretableCall.Eval(activation)
	if list, ok := sum.(traits.Lister); ok {
		if n, ok := list.Size().(types.Int); ok && n > limitList {
			return types.NewErr("a list of more than %d elements", limitList)
		}
	}
	return sum
}

// comparisons count what a comparison reads. CEL itself counts the elements of a list or map, and not what is in them:
// comparing an object with itself for each of its elements would cost next to nothing, and take hours.
type comparisons struct{}

// weightOfCost is what a unit of cost reads: CEL counts ten characters as one.
const weightOfCost = 10

func (comparisons) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In, operators.OldIn:
		cost := 1 + costOf(args...)
		return &cost
	}
	return nil
}

// costOf is the cost of reading values.
func costOf(values ...ref.Val) uint64 {
	left := math.MaxInt
	for _, value := range values {
		weigh(value, 0, &left)
	}
	if left < 0 { // too deep to be looked through
		left = 0
	}
	return uint64(math.MaxInt-left) / weightOfCost
}

// pairwise is the cost of functions that compare each element with each of another list, or of its own.
func pairwise(args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	for i, list := range args {
		other, ok := args[len(args)-1-i].(traits.Lister)
		if !ok {
			continue
		}
		n, _ := other.Size().(types.Int)
		reads, times := costOf(list), uint64(max(n, 1))
		if reads > limitCallCost/times {
			cost += limitCallCost
			continue
		}
		cost += reads * times
	}
	return &cost
}

// pairwiseCosts are those functions, by the overloads whose cost CEL's own libraries give without what elements hold.
func pairwiseCosts() []interpreter.CostTrackerOption {
	var options []interpreter.CostTrackerOption
	for _, overload := range []string{"list_sets_contains_list", "list_sets_intersects_list",
		"list_sets_equivalent_list",
		"list_distinct"} {
		options = append(options, interpreter.OverloadCostTracker(overload, pairwise))
	}
	return options
}

package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/hub"
)

// Rules are conversions of custom resources, by what they convert.
type Rules map[schema.GroupKind]*hub.Converter

// Converting is a converter of built-in kinds and, by rules, of custom resources, and what tables of routes need to
// know of it. Errors: rules of a kind that is built in.
func Converting(rules Rules) (*convert.Converter, routes.Conversions, error) {
	c, err := convert.New()
	if err != nil {
		return nil, routes.Conversions{}, err
	}
	conversions := routes.Conversions{Equivalents: c.Equivalents}
	kinds := slices.SortedFunc(maps.Keys(rules), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, kind := range kinds {
		by := rules[kind]
		versions := by.Definition.Versions()
		slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		for _, v := range versions {
			if c.Knows(kind.WithVersion(v)) {
				return nil, routes.Conversions{}, fmt.Errorf("rules of the CRD %s: %s is a kind of Kubernetes itself, "+
					"which no rules convert", by.Definition.Name, kind.WithVersion(v))
			}
		}
		for _, v := range versions {
			if v != by.Hub { // the ways between two others lead through it
				c.Register(kind.WithVersion(v), kind.WithVersion(by.Hub), to(by, by.Hub))
				c.Register(kind.WithVersion(by.Hub), kind.WithVersion(v), to(by, v))
			}
		}
		conversions.Custom = append(conversions.Custom, routes.Custom{
			GroupResource: schema.ParseGroupResource(by.Definition.Name), Kind: kind.Kind,
			Namespaced: by.Definition.Namespaced, Versions: versions})
	}
	return c, conversions, nil
}

// to converts by rules. A panic is an error that names the object.
func to(by *hub.Converter, v string) convert.Func {
	return func(object map[string]any) (converted map[string]any, err error) {
		defer func() {
			if problem := recover(); problem != nil {
				converted, err = nil, fmt.Errorf("the conversion did not finish: %v", problem)
			}
		}()
		return by.Convert(object, v)
	}
}

// converting is what is converted at the moment.
type converting struct {
	rules       Rules
	converter   *convert.Converter
	conversions routes.Conversions
}

// converts is what the rules of the moment convert. Rules that cannot be used leave those before in use.
func (g *Gateway) converts() *converting {
	if g.options.Rules == nil {
		return g.converting
	}
	g.convertingMu.Lock()
	defer g.convertingMu.Unlock()
	rules := g.options.Rules()
	if maps.Equal(rules, g.converting.rules) {
		return g.converting
	}
	next := &converting{rules: rules}
	var err error
	if next.converter, next.conversions, err = Converting(rules); err != nil {
		g.log.Error("reload failed; previous rules stay in use", "err", err)
		next.converter, next.conversions = g.converting.converter, g.converting.conversions
	}
	g.RulesRead(err)
	g.converting = next
	return next
}

// RulesRead is told whether the rules of custom resources are good: nil when they were loaded.
func (g *Gateway) RulesRead(err error) {
	g.metrics.rules.Set(1)
	if err != nil {
		g.metrics.rules.Set(0)
	}
}

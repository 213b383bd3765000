package transition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// existing makes sure that what runs already has the arguments that the plan needs of it: a person changes them, and
// takes them back on the way back.
func (b *builder) existing() {
	for _, c := range existingOf(b.to.Plan) {
		needed, had := neededArgs(c), b.had(c)
		if slices.Equal(needed, had) {
			continue
		}
		s := Step{Phase: LegacyMgr, Host: c.Host, Title: "check the arguments of " + c.Name,
			Do: b.runs(c, needed), Undo: b.runs(c, had)}
		if len(had) == 0 {
			s.Undo = takeBack(c, needed)
		}
		if len(needed) == 0 {
			s.Do = takeBack(c, had)
		}
		if b.legacyUp() { // by then the version of before is to run again: see legacyStopped
			s.Undo = nil
		}
		b.add(s)
	}
	if b.to.Plan != nil {
		return
	}
	for _, c := range existingOf(b.from.Plan) {
		if needed := neededArgs(c); len(needed) > 0 {
			b.add(Step{Phase: LegacyMgr, Host: c.Host, Title: "the arguments of " + c.Name,
				Do: takeBack(c, needed), Undo: b.runs(c, needed)})
		}
	}
}

// existingOf are the components that run from files of their own.
func existingOf(p *plan.Plan) (components []*plan.Component) {
	if p == nil {
		return nil
	}
	for i := range p.Components {
		if c := &p.Components[i]; c.Side != "" && p.Side(c.Side).Existing {
			components = append(components, c)
		}
	}
	return components
}

// runs checks that a component that runs from files of its own has the arguments.
func (b *builder) runs(c *plan.Component, args []string) *Action {
	return &Action{Kind: RunChecks, Before: []Check{{Kind: Runs, Program: c.Kind, Args: args, Others: b.others(c),
		Hint: "it runs from files of its own: change them there; fusionctl render --diff shows how"}}}
}

func takeBack(c *plan.Component, args []string) *Action {
	return &Action{Kind: ByHand, Text: fmt.Sprintf("take back what was changed in the files of %s for the plan: %s",
		c.Name, strings.Join(args, " "))}
}

// others are the arguments of the other side's component of the same kind on the same host, in either plan.
func (b *builder) others(c *plan.Component) [][]string {
	var others [][]string
	for _, s := range []Setup{b.from, b.to} {
		if s.Plan == nil {
			continue
		}
		for _, o := range s.Plan.Components {
			if o.Host != c.Host || o.Kind != c.Kind || o.Side == c.Side || len(o.Args) == 0 {
				continue
			}
			var args []string
			for _, a := range o.Args {
				args = append(args, a.String())
			}
			others = append(others, args)
		}
	}
	return others
}

// had are the arguments that the first plan needs of a component of the second.
func (b *builder) had(c *plan.Component) []string {
	for _, o := range existingOf(b.from.Plan) {
		if o.Host == c.Host && o.Name == c.Name {
			return neededArgs(o)
		}
	}
	return nil
}

func neededArgs(c *plan.Component) []string {
	var args []string
	for _, a := range c.Args {
		if a.Origin != plan.FromSpec {
			args = append(args, a.String())
		}
	}
	return args
}

package transition

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Definitions of custom resources go with these, so that no API server ever shows a part of them: what they define is
// copied first, which nothing serves there yet; then the definitions go, so that no client sees an object deleted; then
// the originals, which nothing serves any more. On the way back the same.

// custom is what definitions define.
func (b *builder) custom(set handedSet, back, copied bool) *Objects {
	o := b.objects(set, back)
	o.Definitions, o.Record = o.Record, "hand-over-custom-resources"
	o.Plan.Definitions, o.Plan.Copy = set.Subjects[0], copied
	for i := range o.Plan.Resources {
		o.Plan.Resources[i].By = handover.ByAll
	}
	return o
}

// definitionsMayGo looks before anything changes.
func (b *builder) definitionsMayGo() {
	for _, set := range b.defining {
		for _, o := range []*Objects{b.objects(set, false), b.custom(set, false, true)} {
			b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name, Title: o.what() + " can be handed over",
				Do: b.mayGoOne(o)})
		}
	}
}

// beforeDefinitions has a person stop what acts for custom resources. On the way back that may start again.
func (b *builder) beforeDefinitions() {
	for _, set := range b.defining {
		b.add(Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Do: operators(set, pair.Modern),
			Title: "no " + set.Programs + " of the legacy side run"})
	}
}

func operators(set handedSet, to pair.Side) *Action {
	return &Action{Kind: ByHand, Text: fmt.Sprintf("custom resources and their definitions go to the %s side: stop "+
		"the %s that act for them, and start them again when this is done, connected to the %s API server. What they "+
		"manage goes on meanwhile", to, set.Programs, to)}
}

// handOverDefinitions moves them, when no controller of either side collects what custom resources own.
func (b *builder) handOverDefinitions() {
	if len(b.defining) == 0 {
		return
	}
	host := b.to.Plan.Hosts[0].Name
	step := func(do, undo *Action) {
		b.add(Step{Phase: HandingOver, Host: host, Title: do.changes(), Do: do, Undo: undo})
	}
	for _, set := range b.defining {
		forth, back := b.objects(set, false), b.objects(set, true)
		for _, o := range []*Objects{back, b.custom(set, true, false)} {
			b.add(Step{Phase: HandingOver, Host: host, Undo: &Action{Kind: RunChecks, Before: []Check{
				{Kind: Adopted, Objects: o}}}, Title: "on the way back: " + o.what() + " are with the legacy side"})
		}
		step(&Action{Kind: HandOver, Objects: b.custom(set, false, true)},
			b.handBack(b.to.Plan, b.custom(set, true, false)))
		b.serves(back, pair.Legacy)
		step(&Action{Kind: HandOver, Objects: forth}, b.handBack(b.to.Plan, back))
		b.serves(forth, pair.Modern)
		step(&Action{Kind: HandOver, Objects: b.custom(set, false, false)},
			b.handBack(b.to.Plan, b.custom(set, true, true)))
	}
}

// serves waits until the API servers of a side serve what the definitions define, and those of the other one do not.
func (b *builder) serves(o *Objects, side pair.Side) {
	p := b.to.Plan
	add := func(host string, a *Action) {
		s := Step{Phase: HandingOver, Host: host, Do: a, Title: fmt.Sprintf("the API server of the %s side alone "+
			"serves what %s define", side, strings.Join(o.Names, ", "))}
		if side == pair.Legacy {
			s.Do, s.Undo, s.Title = nil, a, "on the way back: "+s.Title
		}
		b.add(s)
	}
	asked := false
	for _, h := range p.Hosts {
		from, to := jointAccess(p, h.Name, side.Other()), jointAccess(p, h.Name, side)
		if from == nil || to == nil {
			continue
		}
		asked = true
		add(h.Name, &Action{Kind: RunChecks, Before: []Check{{Kind: Defined, Objects: o, Asked: []Access{*from, *to},
			Hint: "the logs of the API servers say what they do with the definitions"}}})
	}
	if !asked {
		add(p.Hosts[0].Name, &Action{Kind: ByHand, Text: fmt.Sprintf("no host has a certificate with which both API "+
			"servers can be asked: see that those of the %s side serve the custom resources, and those of the other "+
			"side do not any more", side)})
	}
}

// afterDefinitions verifies that all of it is there. On the way back it is among the first: what stands against it is
// found while everything serves.
func (b *builder) afterDefinitions() {
	for _, set := range b.defining {
		host := b.to.Plan.Hosts[0].Name
		for _, o := range []*Objects{b.objects(set, false), b.custom(set, false, false)} {
			b.add(Step{Phase: HandingOver, Host: host, Title: o.what() + " are with the modern side",
				Do: &Action{Kind: RunChecks, Before: []Check{{Kind: Adopted, Objects: o}}}})
		}
		b.add(Step{Phase: HandingOver, Host: host, Undo: operators(set, pair.Legacy),
			Title: "on the way back: no " + set.Programs + " of the modern side run"})
		for _, o := range []*Objects{b.objects(set, true), b.custom(set, true, true)} {
			b.add(Step{Phase: HandingOver, Host: host, Title: "on the way back: " + o.what() + " can be handed back",
				Undo: b.mayGoBack(b.to.Plan, o)})
		}
	}
}

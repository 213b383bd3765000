package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// PlanSchema names the shape of a plan.
const PlanSchema = "fusionctl/crd-plan/v1"

// Action is what a step does.
type Action string

// The actions, in the order in which a plan has them.
const (
	ActionAdd     Action = "add"     // the version comes into the CRD, not served
	ActionConvert Action = "convert" // the CRD's conversion is exchanged
	ActionServe   Action = "serve"
	ActionSwitch  Action = "switch"  // new writes are stored in the version
	ActionSettle  Action = "settle"  // every API server knows
	ActionRewrite Action = "rewrite" // every object
	ActionProve   Action = "prove"   // that nothing is stored in another version
	ActionPrune   Action = "prune"   // status.storedVersions
	ActionUnserve Action = "unserve"
	ActionWait    Action = "wait"
	ActionClean   Action = "clean" // managedFields
	ActionRemove  Action = "remove"
)

// Step is one step of a plan.
type Step struct {
	Action  Action `json:"action"`
	Version string `json:"version,omitempty"`
	// Before says that a step of undo brings back what was there before the plan: the conversion.
	Before  bool   `json:"before,omitempty"`
	Does    string `json:"does"`
	Check   string `json:"check"`   // after which it counts as done
	Inverse string `json:"inverse"` // what undo does about it
	// Safe says that everything may stay as it is after this step, for any time.
	Safe bool `json:"safe,omitempty"`
}

// ID names the step in a journal and in messages.
func (s Step) ID() string {
	switch {
	case s.Before:
		return string(s.Action) + " before"
	case s.Version == "":
		return string(s.Action)
	}
	return string(s.Action) + " " + s.Version
}

// Plan is how a resource gets from one storage version to another. It is plain data and complete: applying it needs the
// servers, and nothing else. Everything that a later step needs of the present state, for undoing it too, is in it.
type Plan struct {
	Schema   string   `json:"schema"`
	Resource Resource `json:"resource"`
	// Before is the CRD as it was; nil for a resource that is built in.
	Before *Definition `json:"before,omitempty"`
	// With is a CRD that the added version and the conversion are taken from; nil for none.
	With *Definition `json:"with,omitempty"`
	From string      `json:"from"` // the version in which objects are written at present
	// the one in which they are to be; for a resource that is built in, an apiVersion
	Storage  string   `json:"storage"`
	Retire   []string `json:"retire,omitempty"`
	Steps    []Step   `json:"steps"`
	Warnings []string `json:"warnings,omitempty"` // what must be confirmed
	// Grace is how long a request may take that an API server began before it knew of the switch.
	Grace Duration `json:"grace"`
	// Wait is how long a version must not be served before it is removed; 0 leaves that to the audit log.
	Wait Duration `json:"wait"`
	// Seen is what the store showed of itself when the plan was made.
	Seen *witness.Sight `json:"seen,omitempty"`
}

// Duration is a time.Duration that JSON has as text: "1m30s".
type Duration struct{ time.Duration }

// MarshalText writes the duration as in "1m30s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(data []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(data))
	return err
}

// Goal is the wanted state of a resource.
type Goal struct {
	Storage string      // the version to store in; "" keeps the present one and only rewrites what is stored in others
	Retire  []string    // versions to remove
	With    *Definition // a CRD that has the version to add and the conversion to use; nil for none
	Grace   time.Duration
	Wait    time.Duration
}

// New plans the way from what was observed to the goal. A goal that is reached already is a plan without steps.
// Errors: a goal that cannot be reached, or not without losing something.
func New(o Observation, g Goal) (*Plan, error) {
	if o.Definition == nil {
		return newBuiltIn(o, g)
	}
	p := &Plan{
		Schema: PlanSchema, Resource: o.Resource, Before: o.Definition.Clone(), With: g.With,
		From: o.Definition.Storage(), Storage: g.Storage, Retire: slices.Clone(g.Retire), Grace: Duration{g.Grace},
		Wait: Duration{g.Wait},
	}
	if p.Storage == "" {
		p.Storage = p.From
	}
	after, err := p.definitionSteps(o)
	if err != nil {
		return nil, err
	}
	p.storageSteps(o)
	if err := p.retireSteps(o); err != nil {
		return nil, err
	}
	p.warn(o, after)
	return p, nil
}

// definitionSteps brings the version and the conversion into the CRD. It returns the CRD as it is then.
func (p *Plan) definitionSteps(o Observation) (*Definition, error) {
	d := o.Definition.Clone()
	switch {
	case d.Deleting():
		return nil, fmt.Errorf("%s is being deleted", d.Name())
	case d.Condition("NamesAccepted") == "False":
		return nil, fmt.Errorf("%s is not served: its names were not accepted", d.Name())
	case p.With != nil && p.With.Resource().Key != d.Resource().Key:
		return nil, fmt.Errorf("the file defines %s, want %s", p.With.Name(), d.Name())
	}
	if _, ok := d.Version(p.Storage); !ok {
		if p.With == nil {
			return nil, fmt.Errorf("%s has no version %q; its versions are %s", d.Name(), p.Storage,
				strings.Join(d.names(), ", "))
		}
		if err := d.addVersion(p.With, p.Storage); err != nil {
			return nil, fmt.Errorf("the file: %w", err)
		}
		p.add(Step{Action: ActionAdd, Version: p.Storage, Does: "add the version to the CRD, neither served nor stored",
			Check: "the server kept every field of it", Inverse: "remove it"})
	}
	if p.With != nil {
		before := d.Clone()
		if d.setConversion(p.With); !before.says(d) {
			strategy, webhook := d.Conversion()
			does := "convert by changing apiVersion alone"
			if strategy == StrategyWebhook {
				does = "convert through " + webhook.String()
			}
			p.add(Step{Action: ActionConvert, Does: does, Check: "an object can be read in every served version",
				Inverse: "the conversion from before"})
		}
	}
	if v, _ := d.Version(p.Storage); !v.Served {
		p.add(Step{Action: ActionServe, Version: p.Storage, Does: "serve the version",
			Check:   "an object can be read in every served version",
			Inverse: "do not serve it", Safe: true})
	}
	return d, nil
}

// storageSteps has everything stored in one version.
func (p *Plan) storageSteps(o Observation) {
	rewriting := p.Storage != p.From || !slices.Equal(o.Definition.StoredVersions(), []string{p.Storage})
	if o.Stored != nil {
		_, others := o.Stored.Others(p.Resource.APIVersion(p.Storage))
		rewriting = rewriting || others > 0
	}
	if !rewriting {
		return
	}
	if p.Storage != p.From {
		p.add(Step{Action: ActionSwitch, Version: p.Storage, Does: "write objects in the version from now on",
			Check: "the CRD says so", Inverse: fmt.Sprintf("write them in %s again, and rewrite those that were "+
				"rewritten", p.From)})
	}
	p.add(p.storing(p.Storage)...)
}

// storing are the steps that leave one version alone in the store.
func (p *Plan) storing(version string) []Step {
	steps := []Step{
		{Action: ActionSettle, Version: version, Does: "wait until every API server writes in the version",
			Check: "discovery of every API server asked shows it", Inverse: "nothing to do"},
		{Action: ActionRewrite, Version: version, Does: "have the server write every object again, unchanged",
			Check:   "no object is left, and none was refused",
			Inverse: "nothing to do: every version is read as long as the CRD has it"},
		{Action: ActionProve, Version: version, Does: fmt.Sprintf("prove that nothing is stored in another version, "+
			"%s after the switch at the earliest", p.Grace),
			Check: "the store has no key in another version; without the store, every object was written after the " +
				"switch", Inverse: "nothing to do"},
	}
	if !p.Resource.BuiltIn {
		steps = append(steps, Step{Action: ActionPrune, Version: version, Does: "leave the version alone in " +
			"status.storedVersions",
			Check: "the CRD says so", Inverse: "nothing to do: a switch back adds its version", Safe: true})
	}
	return steps
}

// retireSteps takes versions out of the CRD.
func (p *Plan) retireSteps(o Observation) error {
	for _, name := range p.Retire {
		v, ok := o.Definition.Version(name)
		switch {
		case name == p.Storage:
			return fmt.Errorf("version %q cannot be retired: objects are to be stored in it", name)
		case !ok:
			return fmt.Errorf("%s has no version %q; its versions are %s", o.Definition.Name(), name,
				strings.Join(o.Definition.names(), ", "))
		case v.Served:
			p.add(Step{Action: ActionUnserve, Version: name, Does: "stop serving the version", Check: "the CRD says so",
				Inverse: "serve it again"})
		}
	}
	if len(p.Retire) == 0 {
		return nil
	}
	how := "as long as the audit log needs to show that no client uses it"
	if p.Wait.Duration > 0 {
		how = p.Wait.String() + ", counted from when it was not served any more"
	}
	p.add(Step{Action: ActionWait, Version: strings.Join(p.Retire, ","), Does: "wait " + how,
		Check: "the time is over, and audit logs that are given show no request for it", Inverse: "nothing to do"})
	for _, name := range p.Retire {
		p.add(Step{Action: ActionClean, Version: name, Does: "take the version out of managedFields of all objects",
			Check:   "no object has it there",
			Inverse: "nothing to do: who owned fields through it owns them again when it writes"})
	}
	p.add(Step{Action: ActionProve, Version: p.Storage, Does: "prove again that nothing is stored in another version",
		Check: "as before", Inverse: "nothing to do"})
	for i, name := range p.Retire {
		p.add(Step{Action: ActionRemove, Version: name, Does: "remove the version from the CRD",
			Check:   "the CRD says so",
			Inverse: "put it back as it was", Safe: i == len(p.Retire)-1})
	}
	return nil
}

func (p *Plan) add(steps ...Step) { p.Steps = append(p.Steps, steps...) }

// warn names what the plan loses although every step succeeds.
func (p *Plan) warn(o Observation, after *Definition) {
	if strategy, _ := after.Conversion(); strategy == StrategyNone && !o.Resource.BuiltIn {
		for _, v := range after.Versions() {
			if v.Name == p.Storage {
				continue
			}
			if lost := prunedFields(after, v.Name, p.Storage); len(lost) > 0 {
				p.Warnings = append(p.Warnings, prunes(v.Name, p.Storage, lost))
			}
		}
	}
	if o.Health.State == HealthBad && p.With == nil {
		p.Warnings = append(p.Warnings, "conversion is broken, and apply will not begin: "+o.Health.Detail)
	}
}

// prunes says what objects lose where the conversion is None.
func prunes(from, to string, lost []string) string {
	star := ""
	if slices.ContainsFunc(lost, func(path string) bool { return strings.Contains(path, "*") }) {
		star = " (* stands for any field that has no name there)"
	}
	return fmt.Sprintf("the conversion None changes nothing but apiVersion, and the schema of %s does not have %s, "+
		"which %s has%s: rewriting loses these fields", to, strings.Join(lost, ", "), from, star)
}

// UndoWarnings name what the way back loses although every step succeeds: fields that were written since the storage
// version was switched, where nothing but apiVersion is converted.
func (p *Plan) UndoWarnings(steps []Step) (warnings []string) {
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == ActionSwitch }) || p.Before == nil {
		return nil
	}
	d := p.Before.Clone() // as it is when objects are rewritten
	if p.With != nil {
		d.setConversion(p.With)
		if err := d.addVersion(p.With, p.Storage); err != nil {
			return []string{"what is lost on the way back cannot be told: " + err.Error()}
		}
	}
	if strategy, _ := d.Conversion(); strategy != StrategyNone {
		return nil
	}
	for _, v := range d.Versions() {
		if v.Name == p.From {
			continue
		}
		if lost := prunedFields(d, v.Name, p.From); len(lost) > 0 {
			warnings = append(warnings, prunes(v.Name, p.From, lost))
		}
	}
	return warnings
}

// newBuiltIn plans the rewriting of a resource whose storage version the server decides.
func newBuiltIn(o Observation, g Goal) (*Plan, error) {
	switch {
	case len(g.Retire) > 0 || g.With != nil:
		return nil, fmt.Errorf("%s is built into the server: its versions cannot be added or retired", o.Resource.Name)
	case o.Storage == "":
		return nil, fmt.Errorf("%s: the server does not tell in which version it stores it", o.Resource.Name)
	case g.Storage != "" && g.Storage != o.Storage:
		return nil, fmt.Errorf("%s is built into the server, which stores it as %s and not as %s", o.Resource.Name,
			o.Storage, g.Storage)
	}
	if err := o.unreadable(o.Storage); err != nil {
		return nil, err
	}
	p := &Plan{Schema: PlanSchema, Resource: o.Resource, From: o.Storage, Storage: o.Storage, Grace: Duration{g.Grace}}
	if o.Stored != nil {
		if _, others := o.Stored.Others(o.Storage); others == 0 {
			return p, nil
		}
	}
	p.add(p.storing(o.Storage)...)
	fields, err := o.dropped()
	switch {
	case err != nil:
		return nil, err
	case len(fields) > 0:
		p.Warnings = append(p.Warnings, fmt.Sprintf("the %s side writes it in the same store, and objects that are "+
			"written again lose %s", o.Side.Other(), prose.First(fields, 3)))
	case o.Side == "":
		p.Warnings = append(p.Warnings, "a server drops the fields that it does not know when it writes an object "+
			"again: if a newer one writes the resource in the same store, plan with --spec")
	}
	return p, nil
}

// Validate reports whether the plan was made by this program.
func (p *Plan) Validate() error {
	switch {
	case p.Schema != PlanSchema:
		return fmt.Errorf("schema %q: want %s", p.Schema, PlanSchema)
	case p.Resource.Name == "" || p.Resource.Key == "" || p.Storage == "":
		return errors.New("it names no resource or no version")
	case (p.Before == nil) != p.Resource.BuiltIn:
		return errors.New("it does not have the CRD from before")
	}
	return nil
}

// apiVersion is that of a version of the plan's resource.
func (p *Plan) apiVersion(version string) string {
	if p.Resource.BuiltIn {
		return version
	}
	return p.Resource.APIVersion(version)
}

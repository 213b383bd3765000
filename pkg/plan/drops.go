package plan

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Drops lists the fields of a resource that the other side's version knows and this side's does not, or drops because a
// feature gate is off, whether both sides see its objects or not; as pair.View has them.
func (p *Plan) Drops(key string, side pair.Side) (paths []string, implied map[string]string) {
	row := p.Resource(key)
	if row == nil {
		return nil, nil
	}
	minor, other := p.Side(side).Version.Minor, p.Side(side.Other()).Version.Minor
	return dropping{minor: minor, other: other, converted: true, disabled: func(typeName, field string) bool {
		gate, off := kubever.DisabledField(typeName, field, minor)
		return off && !gate.Refused && !p.gateOn(side, gate.Name)
	}}.of(&row.Resource, side)
}

// gateOn reports whether an argument of a side's API servers turns a feature gate on; of all of them, where there are
// more.
func (p *Plan) gateOn(side pair.Side, gate string) bool {
	servers := p.ComponentsOf(side, kubever.APIServer)
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(c Component) bool {
		value, _ := c.Arg("feature-gates")
		on := false
		for _, entry := range splitList(value) {
			name, set, _ := strings.Cut(entry, "=")
			if name == gate {
				on, _ = strconv.ParseBool(set)
			}
		}
		return !on
	})
}

// drops lists the fields of a resource that the other side's version knows and this side's does not, as paths such as
// "spec.containers[].startupProbe": an object that this side rewrites loses them. It looks at the versions in which
// both sides may find the resource stored; a field below one that is lost is not listed again. For the fields, and
// those below them, it says which value means what this side does anyway.
func drops(row *pair.Resource, side pair.Side, minor, other kubever.Minor) (paths []string, implied map[string]string) {
	return dropping{minor: minor, other: other, disabled: func(string, string) bool { return false }}.of(row, side)
}

// of lists the fields of a resource.
func (d dropping) of(row *pair.Resource, side pair.Side) (paths []string, implied map[string]string) {
	d.implied = map[string]string{}
	for _, apiVersion := range []string{row.View(side).StoredAs, row.View(side.Other()).StoredAs} {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil || row.Kind == "" || !slices.Contains(row.View(side).Decodes, apiVersion) {
			continue
		}
		typeName := kubever.TypeName(gv.WithKind(row.Kind))
		d.walk("", typeName, typeName)
	}
	slices.Sort(d.paths)
	return slices.Compact(d.paths), d.implied
}

// dropping walks a type as two versions describe it.
type dropping struct {
	minor, other kubever.Minor
	// converted: objects of the other version are converted into those that this side reads, also where the other
	// version does not serve these any more; they have what they had when they were served at last.
	converted bool
	disabled  func(typeName, field string) bool // of the types that this side knows
	above     []string                          // types on the way down: some contain themselves
	paths     []string
	implied   map[string]string
}

// walk compares the fields of a type of the other version with those of the same type in this side's, which may go by
// another name: v1.Handler became v1.LifecycleHandler.
func (d *dropping) walk(prefix, theirs, ours string) {
	if slices.Contains(d.above, theirs) {
		return
	}
	d.above = append(d.above, theirs)
	known, other := kubever.Fields(ours, d.minor), d.describes(theirs)
	for _, field := range kubever.Fields(theirs, other) {
		path := prefix + field
		if !slices.Contains(known, field) || d.disabled(ours, field) {
			// What has no fields on this side is no struct that drops some: an older version may describe it otherwise.
			if len(known) > 0 {
				d.paths = append(d.paths, path)
				d.imply(path, theirs, field)
			}
			continue
		}
		their, our := kubever.FieldType(theirs, field, other), kubever.FieldType(ours, field, d.minor)
		d.walk(step(path, their)+".", kubever.ElementType(their), kubever.ElementType(our))
	}
	d.above = d.above[:len(d.above)-1]
}

// describes is the minor in whose form objects of the other version have a type.
func (d *dropping) describes(typeName string) kubever.Minor {
	if !d.converted || len(kubever.Fields(typeName, d.other)) > 0 {
		return d.other
	}
	for _, m := range slices.Backward(kubever.Minors()) {
		if m < d.other && len(kubever.Fields(typeName, m)) > 0 {
			return m
		}
	}
	return d.other
}

// step is the path to the values of a field: those of a list or a map are its elements.
func step(path, fieldType string) string {
	if kubever.ElementType(fieldType) != fieldType {
		path += "[]"
	}
	return path
}

// imply notes the values of a field that is lost, and of the fields below it, whose loss means nothing.
func (d *dropping) imply(path, typeName, field string) {
	if value, ok := kubever.ImpliedValue(typeName, field); ok {
		d.implied[path] = value
	}
	if slices.Contains(derived, typeName+"."+field) {
		d.implied[path] = pair.OneElement
	}
	other := d.describes(typeName)
	fieldType := kubever.FieldType(typeName, field, other)
	element := kubever.ElementType(fieldType)
	if slices.Contains(d.above, element) {
		return
	}
	d.above = append(d.above, element)
	for _, inner := range kubever.Fields(element, d.describes(element)) {
		d.imply(step(path, fieldType)+"."+inner, element, inner)
	}
	d.above = d.above[:len(d.above)-1]
}

// derived are lists that, when they have one element, repeat what another field of every stored object says: servers
// that know the list fill it in from there when they read an object without it.
var derived = []string{"v1.ServiceSpec.clusterIPs", "v1.ServiceSpec.ipFamilies"}

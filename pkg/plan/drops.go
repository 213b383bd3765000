package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// drops lists the fields of a resource that the other side's version knows and this side's does not, as paths such as
// "spec.containers[].startupProbe": an object that this side rewrites loses them. It looks at the versions in which both
// sides may find the resource stored; a field below one that is lost is not listed again.
func drops(row *etcdsplit.Resource, side etcdsplit.SideName, minor, other kubever.Minor) []string {
	otherSide := etcdsplit.Modern
	if side == etcdsplit.Modern {
		otherSide = etcdsplit.Legacy
	}
	var paths []string
	for _, apiVersion := range []string{row.Side(side).StoredAs, row.Side(otherSide).StoredAs} {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil || row.Kind == "" || !slices.Contains(row.Side(side).Decodes, apiVersion) {
			continue
		}
		d := dropping{minor: minor, other: other}
		d.walk("", typeName(gv, row.Kind))
		paths = append(paths, d.paths...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// typeName is a kind as the API descriptions name it: apps.v1.Deployment, v1.Pod, rbac.v1.Role.
func typeName(gv schema.GroupVersion, kind string) string {
	group, _, _ := strings.Cut(gv.Group, ".")
	if gv.Group == "internal.apiserver.k8s.io" {
		group = "apiserverinternal"
	}
	if group == "" {
		return gv.Version + "." + kind
	}
	return group + "." + gv.Version + "." + kind
}

// dropping walks a type of two versions at a time.
type dropping struct {
	minor, other kubever.Minor
	above        []string // types on the way down: some contain themselves
	paths        []string
}

func (d *dropping) walk(prefix, name string) {
	if slices.Contains(d.above, name) {
		return
	}
	d.above = append(d.above, name)
	known := kubever.Fields(name, d.minor)
	for _, field := range kubever.Fields(name, d.other) {
		path := prefix + field
		if !slices.Contains(known, field) {
			// What has no fields on this side is no struct that drops some: an older version may describe it otherwise.
			if len(known) > 0 {
				d.paths = append(d.paths, path)
			}
			continue
		}
		fieldType := kubever.FieldType(name, field, d.other)
		element := kubever.ElementType(fieldType)
		if element != fieldType {
			path += "[]"
		}
		d.walk(path+".", element)
	}
	d.above = d.above[:len(d.above)-1]
}

package negotiate

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// unknown is what one version knows of a kind and another does not.
type unknown struct {
	fields int      // all fields below paths
	paths  []string // the topmost fields: spec.behavior, spec.metrics[].resource.target
}

// unknown compares two descriptions of a kind by the names of their fields: the asked version's newest one, and the
// other version's at the server's minor. Without facts about the minor it compares the newest of both.
func (s *Server) unknown(asked, served schema.GroupVersionKind) unknown {
	theirs := s.Minor
	if !theirs.Known() {
		theirs = newest(served)
	}
	w := fieldWalk{asked: newest(asked), theirs: theirs}
	w.walk(kubever.TypeName(asked), kubever.TypeName(served), "", nil)
	return w.found
}

// newest is the last minor that describes the kind's fields; 0 for a kind that is not Kubernetes' own.
func newest(gvk schema.GroupVersionKind) kubever.Minor {
	for m := kubever.Newest; m >= kubever.Oldest; m-- {
		if kubever.Fields(kubever.TypeName(gvk), m) != nil {
			return m
		}
	}
	return 0
}

type fieldWalk struct {
	asked, theirs kubever.Minor
	found         unknown
}

// serverFields are written by servers: no client loses them.
var serverFields = []string{"apiVersion", "kind", "managedFields"}

// walk goes down the asked type and its counterpart; above holds the types on the way, because some contain themselves.
func (w *fieldWalk) walk(asked, theirs, path string, above []string) {
	if slices.Contains(above, asked) {
		return
	}
	known := kubever.Fields(theirs, w.theirs)
	for _, field := range kubever.Fields(asked, w.asked) {
		if slices.Contains(serverFields, field) {
			continue
		}
		at := path + field
		fieldType := kubever.FieldType(asked, field, w.asked)
		child := kubever.ElementType(fieldType)
		if !slices.Contains(known, field) {
			w.found.paths = append(w.found.paths, at)
			w.found.fields += 1 + w.size(child, append(above, asked))
			continue
		}
		if child != fieldType {
			at += "[]"
		}
		w.walk(child, kubever.ElementType(kubever.FieldType(theirs, field, w.theirs)), at+".", append(above, asked))
	}
}

// size counts the fields of a type, those of its fields included.
func (w *fieldWalk) size(typeName string, above []string) int {
	if slices.Contains(above, typeName) {
		return 0
	}
	n := 0
	for _, field := range kubever.Fields(typeName, w.asked) {
		n += 1 + w.size(kubever.ElementType(kubever.FieldType(typeName, field, w.asked)), append(above, typeName))
	}
	return n
}

package kubever

import (
	"slices"
	"sync"
)

// Annotation is a field before it was one: an annotation that says the same.
// Shape: {seccomp.security.alpha.kubernetes.io/pod pod spec.securityContext.seccompProfile seccomp 1.6-1.26 1.19-1.36}.
type Annotation struct {
	Name   string // * at its end stands for the name of a container
	Of     string // the kind that carries it; "pod" for pods and their templates
	Field  string // "" when no field took its place; of a container where Name ends in *
	Form   string // how it spells the field: text, json, seccomp, ...
	Heeded Ranges // minors that act by the annotation
	Fields Ranges // minors that act by the field
	Source string
}

var annotationTable = sync.OnceValue(decodeAnnotations)

func decodeAnnotations() []Annotation {
	var annotations []Annotation
	for _, r := range readTable("annotations.tsv", 7) {
		annotations = append(annotations, Annotation{
			Name: r.text(0), Of: r.text(1), Field: r.text(2), Form: r.text(3), Heeded: r.ranges(4), Fields: r.ranges(5),
			Source: r.text(6),
		})
	}
	return annotations
}

// AnnotationsOf lists the annotations that a kind may carry, or the template of a "pod"; by name. The list is not to be
// changed.
func AnnotationsOf(kind string) []Annotation { return annotationsByKind()[kind] }

var annotationsByKind = sync.OnceValue(func() map[string][]Annotation {
	byKind := map[string][]Annotation{}
	for _, row := range annotationTable() {
		byKind[row.Of] = append(byKind[row.Of], row)
	}
	return byKind
})

// NodeLabel is a label of nodes and the one that took its place.
type NodeLabel struct {
	Old, New string
	HasOld   Ranges // minors whose kubelets or installers set the old one
	HasNew   Ranges // and the new one
	Source   string
}

var nodeLabelTable = sync.OnceValue(decodeNodeLabels)

func decodeNodeLabels() []NodeLabel {
	var labels []NodeLabel
	for _, r := range readTable("labels.tsv", 5) {
		labels = append(labels, NodeLabel{Old: r.text(0), New: r.text(1), HasOld: r.ranges(2), HasNew: r.ranges(3),
			Source: r.text(4)})
	}
	return labels
}

// NodeLabels lists the labels of nodes that were renamed.
func NodeLabels() []NodeLabel { return slices.Clone(nodeLabelTable()) }

// Package hub converts custom resources between the versions of their CRD by rules in a file, through one version, the
// hub, that all others have rules with.
//
//	converter, err := hub.New(rules, definition)
//	v1, err := converter.Convert(object, "v1")
//
// Every rule is read in both directions. What a version cannot hold travels in an annotation of the object, so that a
// round trip gives the same object; see [KeptAnnotation]. Rules are checked against the schemas of both versions before
// they are used.
package hub

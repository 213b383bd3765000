package policy

import (
	"bytes"
	"encoding/json"
)

// The apiVersion and kind that every line of a policy file must have to mean what it says.
const (
	APIVersion = "abac.authorization.kubernetes.io/v1beta1"
	Kind       = "Policy"
)

// Groups that the API server itself puts requests into.
const (
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupMasters         = "system:masters"
)

// UserAnonymous is the user of a request without credentials.
const UserAnonymous = "system:anonymous"

// Rule is one line of a policy file as the server holds it after reading: defaults of old versions filled in, and a
// user or group "*" already rewritten to group system:authenticated.
//
// A rule allows a request when all of this holds:
//   - the user is User, and one of the groups is Group; an empty one does not matter, but a rule with neither matches
//     no request;
//   - the verb is get, list or watch, or the rule is not Readonly;
//   - for a resource request: APIGroup, Resource and Namespace equal the request's or are "*". The subresource and the
//     name of the object do not matter. APIGroup "" is the core group. Namespace "" is a request without namespace:
//     cluster-scoped objects, but also a list over all namespaces;
//   - for any other request: NonResourcePath equals the path, or ends in "*" and the path begins with what stands
//     before it.
//
// The fields of the language are comparable; Line is not part of the meaning.
//
// Source: kubernetes v1.36 pkg/auth/authorizer/abac, pkg/apis/abac; equal in meaning since v1.6.
type Rule struct {
	User            string // "*" is everybody, anonymous or not; no line of APIVersion can say that, Parse rewrites it
	Group           string // "*" is everybody, as for User
	Readonly        bool   // get, list and watch only; for paths only get
	APIGroup        string
	Resource        string
	Namespace       string
	NonResourcePath string

	Line int // 1-based line of the file; 0 for a rule that was computed
}

// bare is the rule without its place, for comparison.
func (r Rule) bare() Rule {
	r.Line = 0
	return r
}

// everybody reports whether the subject of the rule is every request.
func (r Rule) everybody() bool {
	return (r.User == "*" && (r.Group == "" || r.Group == "*")) || (r.User == "" && r.Group == "*")
}

// String prints the rule as a line of a policy file, without the line break.
func (r Rule) String() string {
	return string(bytes.TrimSuffix(r.appendLine(nil), []byte("\n")))
}

// line is the shape of a policy line. The order of the fields is the order in which we print them.
type line struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Spec       lineSpec `json:"spec"`
}

type lineSpec struct {
	User            string  `json:"user,omitempty"`
	Group           string  `json:"group,omitempty"`
	APIGroup        *string `json:"apiGroup,omitempty"` // a pointer: "" is the core group and worth printing
	Resource        string  `json:"resource,omitempty"`
	Namespace       *string `json:"namespace,omitempty"`
	NonResourcePath string  `json:"nonResourcePath,omitempty"`
	Readonly        bool    `json:"readonly,omitempty"`
}

// internalLine is the one spelling in which the server reads a literal "*" as everybody instead of rewriting it.
type internalLine struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       internalSpec
}

const internalAPIVersion = "abac.authorization.kubernetes.io/__internal"

// appendLine appends the rule as a line that Parse reads back as the same rule.
func (r Rule) appendLine(to []byte) []byte {
	var value any
	if r.User == "*" || r.Group == "*" {
		value = internalLine{APIVersion: internalAPIVersion, Kind: Kind, Spec: internalSpec{
			User: r.User, Group: r.Group, Readonly: r.Readonly,
			APIGroup: r.APIGroup, Resource: r.Resource, Namespace: r.Namespace, NonResourcePath: r.NonResourcePath,
		}}
	} else {
		spec := lineSpec{User: r.User, Group: r.Group, Resource: r.Resource, NonResourcePath: r.NonResourcePath,
			Readonly: r.Readonly}
		if r.Resource != "" || r.APIGroup != "" {
			spec.APIGroup = &r.APIGroup
		}
		if r.Resource != "" || r.Namespace != "" {
			spec.Namespace = &r.Namespace
		}
		value = line{APIVersion: APIVersion, Kind: Kind, Spec: spec}
	}
	buffer := bytes.NewBuffer(to)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("policy: internal error: " + err.Error()) // strings and a bool always encode
	}
	return buffer.Bytes()
}

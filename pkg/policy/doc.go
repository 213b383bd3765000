// Package policy is the language of the API server's ABAC policy files: read them, print them, decide requests, compare
// two policies, and generate one from an intent.
//
// Kubernetes reads such a file once, with --authorization-mode=ABAC --authorization-policy-file=FILE, and its reader is
// full of traps: a line without apiVersion allows everything to everybody, a field in the wrong case is ignored, a bad
// line stops the server. [Parse] accepts and refuses exactly what the server does, since it decodes with the same
// library; [Validate] names the traps.
//
// # The language
//
// A [Rule] allows a request when its subject, its verb and its object match; a policy allows what one of its rules
// allows, and has no opinion about the rest. There is no way to deny. Three properties decide what can be computed:
//
//   - Every condition is "anything", "equal to this", or, for paths, "begins with this"; a verb is a read (get, list,
//     watch) or not.
//   - A request carries one user and a set of groups; a rule asks for a user, for one group, or for both.
//   - A rule is a resource part and a path part, and no request matches both.
//
// So a part of a rule is covered by a whole policy only if a single part of the policy covers it: take a request that
// is fresh (named nowhere) wherever the part says "anything"; whatever allows this request must say "anything" there as
// well. Comparison, proof and minimisation rest on this and are exact, not samples.
//
// The package is pure: no files, network, clock or logging, and it imports neither client-go nor an etcd client.
package policy

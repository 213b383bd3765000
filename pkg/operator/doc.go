// Package operator drives fused control planes that are objects of a management cluster. It has no knowledge of its
// own: pkg/spec reads the object, pkg/plan plans it, pkg/catalog judges the plan, pkg/transition says the steps from
// the plan that runs to the plan that is wanted and back, pkg/render their objects, pkg/pki their certificates. The
// operator carries the steps out, keeps a record beside the control plane, and says in the status how far it came.
package operator
